/* CRC kernels of ARMv8 (AArch64), named after the CPU features that they need. Included by crc32c.c
 * only.
 *
 * ARMv8 has instructions for both polynomials, so each kernel exists twice. They have only run
 * under emulation (make arm): sizes and prefetches are those that were measured on x86-64, or
 * follow from the latencies in Arm's Software Optimization Guides.
 */
#ifndef KAFKASCAN_CRC_ARM_H
#define KAFKASCAN_CRC_ARM_H

#include <arm_acle.h>
#include <arm_neon.h>

#include "crc_kernels.h"

#if defined(__clang__)
#define ARM_CRC32 __attribute__((target("crc")))
#define ARM_PMULL __attribute__((target("crc,aes")))
#define ARM_SHA3 __attribute__((target("crc,aes,sha3")))
#else
#define ARM_CRC32 __attribute__((target("+crc")))
#define ARM_PMULL __attribute__((target("+crc+crypto")))
#define ARM_SHA3 __attribute__((target("arch=armv8.2-a+crc+crypto+sha3")))
#endif

/* ---- features of the CPU -------------------------------------------------------------- */

typedef struct ks_arm_features {
    int crc32, pmull, sha3;
} ks_arm_features;

#if defined(__linux__)
#include <sys/auxv.h>

static ks_arm_features ks_features_of_cpu(void) {
    unsigned long features = getauxval(AT_HWCAP);
    return (ks_arm_features){(features & HWCAP_CRC32) != 0, (features & HWCAP_PMULL) != 0,
                             (features & HWCAP_SHA3) != 0};
}

#elif defined(__APPLE__)
#include <sys/sysctl.h>

static int ks_sysctl_is_set(const char *name) {
    int value = 0;
    size_t size = sizeof value;
    return sysctlbyname(name, &value, &size, NULL, 0) == 0 && value != 0;
}

/* FEAT_PMULL has no older name, so macOS 11 does not report it. */
static ks_arm_features ks_features_of_cpu(void) {
    return (ks_arm_features){ks_sysctl_is_set("hw.optional.armv8_crc32"),
                             ks_sysctl_is_set("hw.optional.arm.FEAT_PMULL"),
                             ks_sysctl_is_set("hw.optional.armv8_2_sha3")};
}

#else

/* What the compiler was allowed to use anywhere. */
static ks_arm_features ks_features_of_cpu(void) {
    ks_arm_features features = {0, 0, 0};
#if defined(__ARM_FEATURE_CRC32)
    features.crc32 = 1;
#endif
#if defined(__ARM_FEATURE_AES) || defined(__ARM_FEATURE_CRYPTO)
    features.pmull = 1;
#endif
#if defined(__ARM_FEATURE_SHA3)
    features.sha3 = 1;
#endif
    return features;
}

#endif

static int ks_has_arm_crc32(void) { return ks_features_of_cpu().crc32; }

static int ks_has_arm_pmull(void) {
    ks_arm_features features = ks_features_of_cpu();
    return features.crc32 && features.pmull;
}

static int ks_has_arm_sha3(void) { return ks_has_arm_pmull() && ks_features_of_cpu().sha3; }

/* ---- by the crc32 instructions, and three streams joined by PMULL ---------------------- */

/* The lower half of the product. */
ARM_PMULL static inline uint64_t ks_times(uint32_t crc, uint32_t power) {
    return vgetq_lane_u64(vreinterpretq_u64_p128(vmull_p64(crc, power)), 0);
}

#define KS_NAMED(name) ks_castagnoli_##name
#define KS_SUM_TARGET ARM_CRC32
#define KS_JOIN_TARGET ARM_PMULL
#define KS_SUM uint32_t
#define KS_SUM_8 __crc32cd
#define KS_SUM_4 __crc32cw
#define KS_SUM_2 __crc32ch
#define KS_SUM_1 __crc32cb
#define KS_TIMES ks_times
#include "crc_streams.h"

#define KS_NAMED(name) ks_ieee_##name
#define KS_SUM_TARGET ARM_CRC32
#define KS_JOIN_TARGET ARM_PMULL
#define KS_SUM uint32_t
#define KS_SUM_8 __crc32d
#define KS_SUM_4 __crc32w
#define KS_SUM_2 __crc32h
#define KS_SUM_1 __crc32b
#define KS_TIMES ks_times
#include "crc_streams.h"

/* One stream, for CPUs without PMULL. On Neoverse V2 it is as fast as three: a sum is forwarded to
 * the next one after a cycle. */
ARM_CRC32 static uint32_t ks_crc32c_arm_crc32(uint32_t crc, const uint8_t *p, size_t size) {
    return ~ks_castagnoli_words(~crc, p, size);
}

ARM_CRC32 static uint32_t ks_crc32_arm_crc32(uint32_t crc, const uint8_t *p, size_t size) {
    return ~ks_ieee_words(~crc, p, size);
}

/* ---- large messages: carry-less multiplication, eight registers of 16 bytes ------------- */

/* Where a CPU has EOR3, it starts two or four PMULLs in a cycle, so folding sums 16 bytes and more
 * in the time in which the crc32 instruction sums eight. Where it does not, as on Neoverse N1, it
 * starts one PMULL: folding would gain nothing. */
enum { FOLD_REGISTERS = 8, FOLD_STEP = 16 * FOLD_REGISTERS };

/* Below some hundred bytes, joining the registers costs more than folding saves. Estimated from
 * latencies, because emulation does not show it. */
enum { SMALLEST_FOLDED = 1024 };

typedef struct ks_arm_factors {
    ks_fold over_step, over_64, over_32, over_16;
} ks_arm_factors;

static ks_arm_factors ks_castagnoli_factors, ks_ieee_factors;

static ks_arm_factors ks_factors_of(uint32_t polynomial) {
    return (ks_arm_factors){ks_fold_over(polynomial, FOLD_STEP), ks_fold_over(polynomial, 64),
                            ks_fold_over(polynomial, 32), ks_fold_over(polynomial, 16)};
}

ARM_SHA3 static inline uint64x2_t ks_load_16(const uint8_t *p) {
    return vreinterpretq_u64_u8(vld1q_u8(p));
}

ARM_SHA3 static inline uint64x2_t ks_fold_16(uint64x2_t sum, const ks_fold *by, uint64x2_t bytes) {
    poly64x2_t factors = vreinterpretq_p64_u64(vld1q_u64(&by->earlier));
    poly64x2_t moved = vreinterpretq_p64_u64(sum);
    poly128_t earlier = vmull_p64(vgetq_lane_p64(moved, 0), vgetq_lane_p64(factors, 0));
    poly128_t later = vmull_high_p64(moved, factors);
    return veor3q_u64(vreinterpretq_u64_p128(earlier), vreinterpretq_u64_p128(later), bytes);
}

/* Sixteen bytes with the same CRC, from a register of 0, as a multiple of FOLD_STEP bytes. */
ARM_SHA3 static inline uint64x2_t ks_fold_all(uint32_t crc, const uint8_t *p, const uint8_t *end,
                                              const ks_arm_factors *f) {
    uint64x2_t sums[FOLD_REGISTERS];
#pragma GCC unroll 8
    for (int i = 0; i < FOLD_REGISTERS; i++) sums[i] = ks_load_16(p + 16 * i);
    sums[0] = veorq_u64(sums[0], vsetq_lane_u64(crc, vdupq_n_u64(0), 0));
    for (p += FOLD_STEP; p < end; p += FOLD_STEP) {
        ks_prefetch_sums(p, FOLD_STEP);
#pragma GCC unroll 8
        for (int i = 0; i < FOLD_REGISTERS; i++)
            sums[i] = ks_fold_16(sums[i], &f->over_step, ks_load_16(p + 16 * i));
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) sums[i] = ks_fold_16(sums[i], &f->over_64, sums[i + 4]);
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) sums[i] = ks_fold_16(sums[i], &f->over_32, sums[i + 2]);
    return ks_fold_16(sums[0], &f->over_16, sums[1]);
}

ARM_SHA3 static uint32_t ks_crc32c_arm_sha3(uint32_t crc, const uint8_t *p, size_t size) {
    if (size < SMALLEST_FOLDED) return ks_castagnoli_streams(crc, p, size);
    const uint8_t *end = p + size / FOLD_STEP * FOLD_STEP;
    uint64x2_t sum = ks_fold_all(~crc, p, end, &ks_castagnoli_factors);
    crc = __crc32cd(__crc32cd(0, vgetq_lane_u64(sum, 0)), vgetq_lane_u64(sum, 1));
    return ~ks_castagnoli_words(crc, end, size % FOLD_STEP);
}

ARM_SHA3 static uint32_t ks_crc32_arm_sha3(uint32_t crc, const uint8_t *p, size_t size) {
    if (size < SMALLEST_FOLDED) return ks_ieee_streams(crc, p, size);
    const uint8_t *end = p + size / FOLD_STEP * FOLD_STEP;
    uint64x2_t sum = ks_fold_all(~crc, p, end, &ks_ieee_factors);
    crc = __crc32d(__crc32d(0, vgetq_lane_u64(sum, 0)), vgetq_lane_u64(sum, 1));
    return ~ks_ieee_words(crc, end, size % FOLD_STEP);
}

static void ks_init_arm(void) {
    ks_castagnoli_init_streams(KS_CASTAGNOLI);
    ks_ieee_init_streams(KS_IEEE);
    ks_castagnoli_factors = ks_factors_of(KS_CASTAGNOLI);
    ks_ieee_factors = ks_factors_of(KS_IEEE);
}

#endif /* KAFKASCAN_CRC_ARM_H */
