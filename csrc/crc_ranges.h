/* The checksum of any range of bytes, at a cost that does not depend on its length.
 *
 * Prefix checksums are stored for every KS_SUM_STEP-th byte. A CRC is linear, so the CRC of
 * [a, b) follows from the prefixes up to a and up to b; computing each takes less than one step.
 * Thousands of overlapping ranges, which hostile input may contain, therefore cost one pass over
 * the bytes and one or two steps each.
 */
#ifndef KAFKASCAN_CRC_RANGES_H
#define KAFKASCAN_CRC_RANGES_H

#include "crc32c.h"

enum { KS_SUM_STEP = 512, KS_CASTAGNOLI_REVERSED = 0x82f63b78, KS_IEEE_REVERSED = 0xedb88320 };

/* shift[i][n]: x to the power of 8 * n * 256^i, modulo the polynomial, bits reversed. */
typedef struct ks_crc_shifts {
    uint32_t polynomial;
    uint32_t shift[4][256];
} ks_crc_shifts;

typedef struct ks_crc_sums {
    ks_crc_fn run;
    const ks_crc_shifts *shifts;
    const uint8_t *data;
    uint32_t *sums; /* of [start, start + i * KS_SUM_STEP) */
    int64_t start;
    int64_t count; /* number of sums; at least 1, for the empty prefix */
} ks_crc_sums;

static inline uint32_t ks_multiply(uint32_t a, uint32_t b, uint32_t polynomial) {
    uint32_t product = 0;
    for (; a != 0; a <<= 1) {
        product ^= b & (0u - (a >> 31));
        b = (b >> 1) ^ (polynomial & (0u - (b & 1)));
    }
    return product;
}

static inline void ks_fill_shifts(ks_crc_shifts *shifts, uint32_t polynomial) {
    uint32_t one_byte = 1u << (31 - 8); /* x^8 */
    shifts->polynomial = polynomial;
    for (int i = 0; i < 4; i++) {
        shifts->shift[i][0] = 1u << 31;
        for (int n = 1; n < 256; n++)
            shifts->shift[i][n] = ks_multiply(shifts->shift[i][n - 1], one_byte, polynomial);
        one_byte = ks_multiply(shifts->shift[i][255], one_byte, polynomial);
    }
}

/* The CRC of bytes whose CRC is `crc`, followed by `size` zero bytes. */
static inline uint32_t ks_shift_crc(const ks_crc_shifts *shifts, uint32_t crc, uint32_t size) {
    for (int i = 0; size != 0; i++, size >>= 8)
        if (size & 0xff) crc = ks_multiply(shifts->shift[i][size & 0xff], crc, shifts->polynomial);
    return crc;
}

/* Starts the sums at a position, unless the existing ones cover it. */
static inline void ks_start_sums(ks_crc_sums *sums, int64_t position) {
    int64_t end = sums->start + (sums->count - 1) * KS_SUM_STEP;
    if (sums->count > 0 && sums->start <= position && position <= end) return;
    sums->start = position;
    sums->count = 1;
    sums->sums[0] = 0;
}

static inline uint32_t ks_sum_up_to(ks_crc_sums *sums, int64_t position) {
    int64_t i = (position - sums->start) / KS_SUM_STEP;
    for (; sums->count <= i; sums->count++) {
        int64_t from = sums->start + (sums->count - 1) * KS_SUM_STEP;
        sums->sums[sums->count] =
            sums->run(sums->sums[sums->count - 1], sums->data + from, KS_SUM_STEP);
    }
    int64_t from = sums->start + i * KS_SUM_STEP;
    return sums->run(sums->sums[i], sums->data + from, (size_t)(position - from));
}

/* The CRC of [first, last); first must not be below the start of the sums. */
static inline uint32_t ks_crc_of_range(ks_crc_sums *sums, int64_t first, int64_t last) {
    if (last - first <= 2 * KS_SUM_STEP)
        return sums->run(0, sums->data + first, (size_t)(last - first));
    uint32_t before = ks_sum_up_to(sums, first);
    return ks_sum_up_to(sums, last) ^ ks_shift_crc(sums->shifts, before, (uint32_t)(last - first));
}

#endif /* KAFKASCAN_CRC_RANGES_H */
