/* Shared by the kernels of all CPU families: polynomials, tables, powers of x, prefetches.
 *
 * All CRCs are reflected: bit 31 of a register represents x^0.
 */
#ifndef KAFKASCAN_CRC_KERNELS_H
#define KAFKASCAN_CRC_KERNELS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "little_endian.h"

#define KS_CASTAGNOLI 0x82F63B78u
#define KS_IEEE 0xEDB88320u

/* table[k][b]: the CRC of byte b followed by k zero bytes. */
typedef uint32_t ks_slicing_table[8][256];

/* x^n mod P. */
static inline uint32_t ks_power_of_x(uint32_t polynomial, unsigned n) {
    uint32_t value = 0x80000000u;
    while (n-- > 0) value = (value >> 1) ^ (polynomial & (0u - (value & 1)));
    return value;
}

static inline uint64_t ks_load_little_u64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Eight bytes per step; the register is not inverted before or afterwards. */
static inline uint32_t ks_slice_by_8(const ks_slicing_table t, uint32_t crc, const uint8_t *p,
                                     size_t size) {
    for (; size >= 8; p += 8, size -= 8) {
        uint64_t v = ks_load_little_u64(p) ^ crc;
        crc = t[7][v & 0xff] ^ t[6][(v >> 8) & 0xff] ^ t[5][(v >> 16) & 0xff] ^
              t[4][(v >> 24) & 0xff] ^ t[3][(v >> 32) & 0xff] ^ t[2][(v >> 40) & 0xff] ^
              t[1][(v >> 48) & 0xff] ^ t[0][v >> 56];
    }
    for (; size > 0; p++, size--) crc = (crc >> 8) ^ t[0][(crc ^ *p) & 0xff];
    return crc;
}

/* ---- three streams (crc_streams.h) ----------------------------------------------------- */

enum { LONG_STRETCH = 256, SHORT_STRETCH = 128 };

typedef struct ks_joiner {
    uint32_t one_stretch, two_stretches; /* x^(8 n - 33) mod P for n bytes */
} ks_joiner;

static inline ks_joiner ks_joiner_for(uint32_t polynomial, unsigned stretch) {
    return (ks_joiner){ks_power_of_x(polynomial, 8 * stretch - 33),
                       ks_power_of_x(polynomial, 16 * stretch - 33)};
}

/* Messages are mostly summed in the order of a file. For some bytes of a message, this prefetches
 * as many bytes after them: the CPU's own prefetchers lose track where three stretches are read in
 * parallel, and where loads are masked. `size` is a constant, because a loop over the size of a
 * message mispredicts its end; USUAL_REST stands for the end of a message. A prefetch never faults.
 */
enum { SUM_AHEAD = 4096, CACHE_LINE = 64, USUAL_REST = 256 };

static inline __attribute__((always_inline)) void ks_prefetch_sums(const uint8_t *p, int size) {
#pragma GCC unroll 12
    for (int i = 0; i < size; i += CACHE_LINE)
        __builtin_prefetch((const void *)((uintptr_t)p + SUM_AHEAD + (uintptr_t)i));
}

/* ---- carry-less multiplication --------------------------------------------------------- */

/* Factors that move a 16-byte sum over the next `bytes` bytes: one for its first eight bytes, one
 * for its last eight. Carry-less products of reflected numbers are one bit too low, hence the
 * shift (Gopal et al., "Fast CRC computation for
 * generic polynomials using PCLMULQDQ instruction", Intel 2009). */
typedef struct ks_fold {
    uint64_t earlier, later;
} ks_fold;

static inline ks_fold ks_fold_over(uint32_t polynomial, unsigned bytes) {
    return (ks_fold){(uint64_t)ks_power_of_x(polynomial, 8 * bytes + 32) << 1,
                     (uint64_t)ks_power_of_x(polynomial, 8 * bytes - 32) << 1};
}

#endif /* KAFKASCAN_CRC_KERNELS_H */
