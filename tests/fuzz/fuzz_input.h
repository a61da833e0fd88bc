/* What the fuzz targets share: numbers from the front of an input, and exact copies.
 *
 * A target reads its parameters from the first bytes of the input; the rest is the data. The data
 * is copied into memory of exactly its size, so that AddressSanitizer reports every byte that is
 * read outside of it.
 */
#ifndef KAFKASCAN_FUZZ_INPUT_H
#define KAFKASCAN_FUZZ_INPUT_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct fuzz_input {
    const uint8_t *at;
    size_t left;
} fuzz_input;

/* The next `size` bytes as a little-endian number; missing bytes are 0. */
static inline uint64_t fuzz_take(fuzz_input *input, size_t size) {
    uint64_t n = 0;
    for (size_t i = 0; i < size && input->left > 0; i++, input->at++, input->left--)
        n |= (uint64_t)*input->at << (8 * i);
    return n;
}

/* A copy of the bytes that are left. */
static inline uint8_t *fuzz_copy_rest(const fuzz_input *input) {
    uint8_t *copy = malloc(input->left ? input->left : 1);
    if (copy == NULL) abort();
    memcpy(copy, input->at, input->left);
    return copy;
}

static inline void *fuzz_allocate(size_t count, size_t size) {
    void *items = calloc(count ? count : 1, size);
    if (items == NULL) abort();
    return items;
}

#define REQUIRE(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
            abort(); \
        } \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif /* KAFKASCAN_FUZZ_INPUT_H */
