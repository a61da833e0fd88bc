/* CRC kernels of x86-64. Included by crc32c.c only. */
#ifndef KAFKASCAN_CRC_X86_H
#define KAFKASCAN_CRC_X86_H

#include <immintrin.h>

#include "crc_kernels.h"

#define SSE42 __attribute__((target("ssse3,sse4.2,pclmul")))
#define AVX512 \
    __attribute__((target("sse4.2,pclmul,avx512f,avx512vl,avx512bw,avx512dq,vpclmulqdq")))

static int ks_has_sse42(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
}

static int ks_has_avx512(void) {
    __builtin_cpu_init();
    return ks_has_sse42() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("vpclmulqdq");
}

/* ---- constants that move sums over bytes, per polynomial --------------------------- */

typedef struct ks_x86_factors {
    ks_fold over_16, over_64, over_256;
    ks_fold lanes[4];     /* of a 64-byte register, each over the 16-byte lanes after it */
    ks_fold registers[4]; /* of four 64-byte registers, each over the registers after it */
} ks_x86_factors;

static ks_x86_factors ks_castagnoli_factors, ks_ieee_factors;

static void ks_fill_factors(ks_x86_factors *f, uint32_t polynomial) {
    f->over_16 = ks_fold_over(polynomial, 16);
    f->over_64 = ks_fold_over(polynomial, 64);
    f->over_256 = ks_fold_over(polynomial, 256);
    for (int i = 0; i < 3; i++) {
        f->lanes[i] = ks_fold_over(polynomial, 16 * (3 - (unsigned)i));
        f->registers[i] = ks_fold_over(polynomial, 64 * (3 - (unsigned)i));
    }
    f->lanes[3] = f->registers[3] = (ks_fold){0, 0};
}

/* ---- CRC-32C by the crc32 instruction ---------------------------------------------- */

SSE42 static inline uint64_t ks_times(uint32_t crc, uint32_t power) {
    __m128i product =
        _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)crc), _mm_cvtsi32_si128((int)power), 0);
    return (uint64_t)_mm_cvtsi128_si64(product);
}

#define KS_NAMED(name) ks_castagnoli_##name
#define KS_SUM_TARGET SSE42
#define KS_JOIN_TARGET SSE42
#define KS_SUM uint64_t
#define KS_SUM_8 _mm_crc32_u64
#define KS_SUM_4 _mm_crc32_u32
#define KS_SUM_2 _mm_crc32_u16
#define KS_SUM_1 _mm_crc32_u8
#define KS_TIMES ks_times
#include "crc_streams.h"

/* ---- any CRC-32 by carry-less multiplication, 16 bytes per register ----------------- */

SSE42 static inline __m128i ks_fold_16(__m128i sum, ks_fold by, __m128i bytes) {
    __m128i factors = _mm_set_epi64x((long long)by.later, (long long)by.earlier);
    __m128i earlier = _mm_clmulepi64_si128(sum, factors, 0x00);
    __m128i later = _mm_clmulepi64_si128(sum, factors, 0x11);
    return _mm_xor_si128(_mm_xor_si128(earlier, later), bytes);
}

SSE42 static inline __m128i ks_load_16(const uint8_t *p) {
    return _mm_loadu_si128((const __m128i *)p);
}

/* Read from `n` on: moves the first n bytes of a register to its end, after zeros. */
static const uint8_t ks_to_end[32] = {
    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
    0,    1,    2,    3,    4,    5,    6,    7,    8,    9,    10,   11,   12,   13,   14,   15};

/* Folds at least 16 bytes into 16 bytes with the same CRC, from a register of 0. As in
 * ks_castagnoli_words, the first block is padded at its start, so that no tail remains. */
SSE42 static inline __m128i ks_fold_all_16(uint32_t crc, const uint8_t *p, size_t size,
                                           const ks_x86_factors *f) {
    size_t head = (size - 1) % 16 + 1;
    __m128i to_end = ks_load_16(ks_to_end + head);
    __m128i first = _mm_xor_si128(ks_load_16(p), _mm_cvtsi32_si128((int)crc));
    __m128i sum = _mm_shuffle_epi8(first, to_end);
    const uint8_t *end = p + size;
    p += head;
    if (p == end) return sum;
    /* The bytes of the register that belong to the second block. */
    __m128i more = _mm_cvtsi32_si128(head < 4 ? (int)(crc >> 8 * head) : 0);
    __m128i second = _mm_xor_si128(ks_load_16(p), more);
    p += 16;
    if (end - p >= 96) {
        __m128i a = sum, b = second, c = ks_load_16(p), d = ks_load_16(p + 16);
        for (p += 32; end - p >= 64; p += 64) {
            ks_prefetch_sums(p, 64);
            a = ks_fold_16(a, f->over_64, ks_load_16(p));
            b = ks_fold_16(b, f->over_64, ks_load_16(p + 16));
            c = ks_fold_16(c, f->over_64, ks_load_16(p + 32));
            d = ks_fold_16(d, f->over_64, ks_load_16(p + 48));
        }
        b = ks_fold_16(a, f->over_16, b);
        c = ks_fold_16(b, f->over_16, c);
        sum = ks_fold_16(c, f->over_16, d);
    } else {
        sum = ks_fold_16(sum, f->over_16, second);
    }
    for (; p < end; p += 16) sum = ks_fold_16(sum, f->over_16, ks_load_16(p));
    return sum;
}

/* ---- the same with four registers of 64 bytes ------------------------------------------ */

AVX512 static inline __m512i ks_fold_64(__m512i sum, __m512i factors, __m512i bytes) {
    __m512i earlier = _mm512_clmulepi64_epi128(sum, factors, 0x00);
    __m512i later = _mm512_clmulepi64_epi128(sum, factors, 0x11);
    return _mm512_ternarylogic_epi64(earlier, later, bytes, 0x96); /* xor of three */
}

AVX512 static inline __m512i ks_in_all_lanes(ks_fold by) {
    return _mm512_broadcast_i64x2(_mm_set_epi64x((long long)by.later, (long long)by.earlier));
}

AVX512 static inline __m512i ks_load_64(const void *p) { return _mm512_loadu_si512(p); }

/* Leading zeros do not change the sum of a message, so a message is padded at its start to a
 * multiple of 256 bytes: there is no tail, and only one branch depends on the size. These tables,
 * read from `size mod 256` on, mask which of the first 256 bytes belong to the message, and to
 * which four of them the register is added. */
static uint8_t ks_is_message[512], ks_is_first[512 + 4];

/* Sixteen bytes with the same CRC as the message, from a register of 0. If there are bytes before
 * the last multiple of 256, there must be at least four. */
AVX512 static inline __m128i ks_fold_message(uint32_t crc, const uint8_t *data, size_t size,
                                             const ks_x86_factors *f) {
    size_t head = size % 256 == 0 ? 256 : size % 256;
    uintptr_t block = (uintptr_t)data - (256 - head);
    unsigned turn = 8 * ((4 - (unsigned)(head & 3)) & 3);
    __m512i start = _mm512_set1_epi32((int)(turn == 0 ? crc : crc << turn | crc >> (32 - turn)));
    __m512i sums[4];
    ks_prefetch_sums(data, 256);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        size_t at = head + 64 * (size_t)i;
        __mmask64 is_message = _mm512_movepi8_mask(ks_load_64(ks_is_message + at));
        __m512i bytes = _mm512_maskz_loadu_epi8(is_message, (const void *)(block + 64 * (size_t)i));
        /* bytes xor (is_first and start) */
        sums[i] = _mm512_ternarylogic_epi64(bytes, ks_load_64(ks_is_first + at), start, 0x78);
    }
    __m512i over_256 = ks_in_all_lanes(f->over_256);
    const uint8_t *p = data + head, *end = data + size;
    for (; p < end; p += 256) {
        ks_prefetch_sums(p, 256);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) sums[i] = ks_fold_64(sums[i], over_256, ks_load_64(p + 64 * i));
    }
    __m512i none = _mm512_setzero_si512();
    __m512i a = ks_fold_64(sums[0], ks_in_all_lanes(f->registers[0]), sums[3]);
    __m512i b = ks_fold_64(sums[1], ks_in_all_lanes(f->registers[1]), none);
    __m512i c = ks_fold_64(sums[2], ks_in_all_lanes(f->registers[2]), none);
    __m512i sum = _mm512_ternarylogic_epi64(a, b, c, 0x96);

    /* Moves lanes 0 to 2 over the lanes after them; lane 3 stays. */
    sum = ks_fold_64(sum, ks_load_64(f->lanes), _mm512_maskz_mov_epi64(0xc0, sum));
    __m256i half = _mm256_xor_si256(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64(sum, 1));
    return _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

/* Smaller messages are summed faster by the crc32 instruction. */
enum { SMALLEST_FOLDED = 96 };

AVX512 static uint32_t ks_crc32c_avx512(uint32_t crc, const uint8_t *p, size_t size) {
    if (size < SMALLEST_FOLDED) return ks_castagnoli_streams(crc, p, size);
    crc = ~crc;
    size_t head = size % 256;
    if (head < 4) { /* too short to add the register */
        crc = ks_castagnoli_tail(crc, p, head);
        p += head;
        size -= head;
    }
    __m128i sum = ks_fold_message(crc, p, size, &ks_castagnoli_factors);
    uint64_t partial = _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(sum));
    return ~(uint32_t)_mm_crc32_u64(partial, (uint64_t)_mm_extract_epi64(sum, 1));
}

/* ---- CRC-32, for which there is no instruction ---------------------------------------- */

SSE42 static uint32_t ks_crc32_pclmul(uint32_t crc, const uint8_t *p, size_t size,
                                      const ks_slicing_table table) {
    if (size < 16) return ~ks_slice_by_8(table, ~crc, p, size);
    uint8_t sum[16];
    _mm_storeu_si128((__m128i *)sum, ks_fold_all_16(~crc, p, size, &ks_ieee_factors));
    return ~ks_slice_by_8(table, 0, sum, sizeof sum);
}

static void ks_init_x86(void) {
    ks_fill_factors(&ks_castagnoli_factors, KS_CASTAGNOLI);
    ks_fill_factors(&ks_ieee_factors, KS_IEEE);
    memset(ks_is_message + 256, 0xff, 256);
    memset(ks_is_first + 256, 0xff, 4);
    ks_castagnoli_init_streams(KS_CASTAGNOLI);
}

#endif /* KAFKASCAN_CRC_X86_H */
