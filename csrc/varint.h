/* Zig-zag varints (ByteUtils.readVarint, readVarlong, writeVarint, writeVarlong).
 *
 * Reading is bounded: no byte at or after `limit` is read. The functions return the end of the
 * number, or NULL if it is truncated or longer than its type allows. Like Kafka, they accept
 * encodings that are longer than necessary and ignore excess bits of the last byte.
 *
 * Writing uses the shortest encoding; there must be room for the longest.
 */
#ifndef KAFKASCAN_VARINT_H
#define KAFKASCAN_VARINT_H

#include <stddef.h>
#include <stdint.h>

enum { KS_MAX_VARINT_SIZE = 5, KS_MAX_VARLONG_SIZE = 10 };

static inline int32_t ks_zigzag_32(uint32_t n) { return (int32_t)((n >> 1) ^ (0 - (n & 1))); }
static inline int64_t ks_zigzag_64(uint64_t n) { return (int64_t)((n >> 1) ^ (0 - (n & 1))); }

static __attribute__((noinline, unused)) const uint8_t *ks_read_long_varint(const uint8_t *p,
                                                                            const uint8_t *limit,
                                                                            int max_size,
                                                                            uint64_t *number) {
    uint64_t n = 0;
    for (int i = 0; i < max_size && p < limit; i++) {
        uint8_t byte = *p++;
        n |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte < 0x80) {
            *number = n;
            return p;
        }
    }
    return NULL;
}

/* Nearly all varints have one or two bytes, which are read without a loop. */
static inline const uint8_t *ks_read_unsigned(const uint8_t *p, const uint8_t *limit, int max_size,
                                              uint64_t *number) {
    ptrdiff_t left = limit - p;
    if (left >= 1 && p[0] < 0x80) {
        *number = p[0];
        return p + 1;
    }
    if (left >= 2 && p[1] < 0x80) {
        *number = (p[0] & 0x7fu) | (uint32_t)p[1] << 7;
        return p + 2;
    }
    return ks_read_long_varint(p, limit, max_size, number);
}

static inline const uint8_t *ks_read_varint(const uint8_t *p, const uint8_t *limit,
                                            int32_t *number) {
    uint64_t n = 0;
    p = ks_read_unsigned(p, limit, KS_MAX_VARINT_SIZE, &n);
    *number = ks_zigzag_32((uint32_t)n);
    return p;
}

static inline const uint8_t *ks_read_varlong(const uint8_t *p, const uint8_t *limit,
                                             int64_t *number) {
    uint64_t n = 0;
    p = ks_read_unsigned(p, limit, KS_MAX_VARLONG_SIZE, &n);
    *number = ks_zigzag_64(n);
    return p;
}

static inline uint64_t ks_zag_64(int64_t n) { return ((uint64_t)n << 1) ^ (uint64_t)(n >> 63); }

/* Nearly all numbers take one or two bytes, which a branch would mispredict. */
enum { KS_MORE_THAN_TWO = 1 << 14 };

static inline int ks_is_longer_than_one(uint64_t zagged) { return zagged > 0x7f; }

/* Seven bits per byte: 9/64 of the bits, rounded up. */
static inline int ks_size_of_varlong(int64_t n) {
    uint64_t zagged = ks_zag_64(n);
    if (zagged < KS_MORE_THAN_TWO) return 1 + ks_is_longer_than_one(zagged);
    int highest = 63 - __builtin_clzll(zagged);
    return (highest * 9 + 73) / 64;
}

static inline int ks_size_of_varint(int32_t n) { return ks_size_of_varlong(n); }

/* A varint is the varlong of the same number. */
static inline uint8_t *ks_write_varlong(uint8_t *p, int64_t number) {
    uint64_t n = ks_zag_64(number);
    while (n > 0x7f) {
        *p++ = (uint8_t)(n | 0x80);
        n >>= 7;
    }
    *p++ = (uint8_t)n;
    return p;
}

/* The same if the byte after the number may be overwritten. */
static inline uint8_t *ks_write_varlong_and_more(uint8_t *p, int64_t number) {
    uint64_t n = ks_zag_64(number);
    if (n >= KS_MORE_THAN_TWO) return ks_write_varlong(p, number);
    int is_longer = ks_is_longer_than_one(n);
    p[0] = (uint8_t)((n & 0x7f) | (uint64_t)is_longer << 7);
    p[1] = (uint8_t)(n >> 7);
    return p + 1 + is_longer;
}

#endif /* KAFKASCAN_VARINT_H */
