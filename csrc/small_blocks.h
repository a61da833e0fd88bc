/* Decode small blocks of snappy: calling the library for them takes longer than the work.
 *
 * Batches of one small record, as producers write them without a linger, take 90 to 110 ns instead
 * of 300. Those of LZ4 need no decoder: their blocks are stored, because they do not shrink.
 *
 * The decoder returns the size of the output, or -1 if the block is damaged. The caller then leaves
 * it to the library, the only judge of errors. Whatever the decoder accepts, the library accepts
 * with the same output (tests/property/records/test_small_blocks.py).
 */
#ifndef KAFKASCAN_SMALL_BLOCKS_H
#define KAFKASCAN_SMALL_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "compressed.h"

/* Larger blocks, compressed or not, are decoded faster by the library. */
enum { KS_SMALL_BLOCK = 64, KS_SMALL_OUTPUT = 512 };

/* Append bytes that are already in the output, `distance` before its end. The range may overlap
 * the bytes it adds. */
static inline bool ks_repeat(uint8_t *out, int64_t *made, int64_t room, int64_t distance,
                             int64_t size) {
    if (distance <= 0 || distance > *made || size > room - *made) return false;
    uint8_t *to = out + *made;
    *made += size;
    if (distance == 1) {
        memset(to, to[-1], (size_t)size);
    } else if (distance >= size) {
        memcpy(to, to - distance, (size_t)size);
    } else {
        for (int64_t i = 0; i < size; i++) to[i] = to[i - distance];
    }
    return true;
}

/* Append the next bytes of the input. */
static inline bool ks_append(uint8_t *out, int64_t *made, int64_t room, const uint8_t **at,
                             const uint8_t *limit, int64_t size) {
    if (size > limit - *at || size > room - *made) return false;
    memcpy(out + *made, *at, (size_t)size);
    *at += size;
    *made += size;
    return true;
}

/* ---- elements (format_description.txt) ---- */

/* A literal is so long, or 1 to 4 bytes with its length follow. */
enum { KS_SNAPPY_SHORT_LITERAL = 60 };

static inline bool ks_snappy_element(const uint8_t **at, const uint8_t *limit, uint8_t *out,
                                     int64_t *made, int64_t room) {
    uint8_t tag = *(*at)++;
    int kind = tag & 3, extra = kind == 3 ? 4 : kind;
    int64_t high = tag >> 2;
    if (kind == 0 && high >= KS_SNAPPY_SHORT_LITERAL)
        extra = (int)high + 1 - KS_SNAPPY_SHORT_LITERAL;
    if (extra > limit - *at) return false;
    int64_t number = ks_load_little(*at, extra);
    *at += extra;
    if (kind == 0) return ks_append(out, made, room, at, limit, 1 + (extra ? number : high));
    if (kind == 1)
        return ks_repeat(out, made, room, (int64_t)(tag >> 5) << 8 | number, 4 + (high & 7));
    return ks_repeat(out, made, room, number, 1 + high);
}

/* `room` is the declared size of the output (ks_snappy_room). */
static inline int64_t ks_decode_small_snappy(const uint8_t *at, int64_t size, uint8_t *out,
                                             int64_t room) {
    const uint8_t *limit = at + size;
    int64_t made = 0;
    while (at < limit && *at >= 0x80) at++;
    if (at == limit) return -1;
    at++;
    while (at < limit)
        if (!ks_snappy_element(&at, limit, out, &made, room)) return -1;
    return made == room ? made : -1;
}

#endif /* KAFKASCAN_SMALL_BLOCKS_H */
