/* Sixteen bytes in a register, in any order: SSSE3 or NEON. KS_HAS_BYTES_16 is defined if the
 * compiler may use one of them anywhere. */
#ifndef KAFKASCAN_BYTES_16_H
#define KAFKASCAN_BYTES_16_H

#include <stdint.h>

#if defined(__SSSE3__)

#include <tmmintrin.h>
#define KS_HAS_BYTES_16 1

typedef __m128i ks_bytes_16;

static inline ks_bytes_16 ks_load_bytes_16(const void *p) {
    return _mm_loadu_si128((const __m128i *)p);
}

static inline void ks_store_bytes_16(void *p, ks_bytes_16 bytes) {
    _mm_storeu_si128((__m128i *)p, bytes);
}

/* Byte i of the result is bytes[order[i]]. If order[i] is negative, it is 0; else order[i] must be
 * below 16. */
static inline ks_bytes_16 ks_reorder_16(ks_bytes_16 bytes, ks_bytes_16 order) {
    return _mm_shuffle_epi8(bytes, order);
}

/* Whether the first `count` bytes are equal. */
static inline int ks_begin_equally(ks_bytes_16 a, ks_bytes_16 b, int count) {
    int equal = _mm_movemask_epi8(_mm_cmpeq_epi8(a, b));
    return (~equal & ((1 << count) - 1)) == 0;
}

#elif defined(__aarch64__) && defined(__ARM_NEON)

#include <arm_neon.h>
#define KS_HAS_BYTES_16 1

typedef uint8x16_t ks_bytes_16;

static inline ks_bytes_16 ks_load_bytes_16(const void *p) { return vld1q_u8(p); }

static inline void ks_store_bytes_16(void *p, ks_bytes_16 bytes) { vst1q_u8(p, bytes); }

static inline ks_bytes_16 ks_reorder_16(ks_bytes_16 bytes, ks_bytes_16 order) {
    return vqtbl1q_u8(bytes, order);
}

/* Four bits for each byte: NEON has no mask of one bit each. */
static inline int ks_begin_equally(ks_bytes_16 a, ks_bytes_16 b, int count) {
    uint8x8_t equal = vshrn_n_u16(vreinterpretq_u16_u8(vceqq_u8(a, b)), 4);
    uint64_t different = ~vget_lane_u64(vreinterpret_u64_u8(equal), 0);
    return different << (64 - 4 * count) == 0;
}

#endif

#endif /* KAFKASCAN_BYTES_16_H */
