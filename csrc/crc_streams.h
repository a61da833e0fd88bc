/* A CRC by an instruction that sums eight bytes. A template: x86-64 (CRC-32C) and ARMv8 (CRC-32C
 * and CRC-32) include it once for each polynomial, after they have defined
 *
 *   KS_NAMED(name)                      names of this polynomial's functions and constants
 *   KS_SUM_TARGET, KS_JOIN_TARGET       attributes: what summing and multiplying need of the CPU
 *   KS_SUM_8(crc, value) ... KS_SUM_1   the instruction, for 8, 4, 2 and 1 bytes
 *   KS_SUM                              the type of crc in KS_SUM_8 and of its result
 *   KS_TIMES(crc, power)                64 bits: the carry-less product of two 32-bit numbers
 *
 * and crc_kernels.h is included. This file undefines them.
 */

/* One sum of 8 bytes takes 2 or 3 cycles, but one can start in every cycle. Three neighbouring
 * stretches are summed in parallel and joined by multiplying the first two with the power of x
 * that represents the bytes after them. */
static ks_joiner KS_NAMED(long_joiner), KS_NAMED(short_joiner);

static void KS_NAMED(init_streams)(uint32_t polynomial) {
    KS_NAMED(long_joiner) = ks_joiner_for(polynomial, LONG_STRETCH);
    KS_NAMED(short_joiner) = ks_joiner_for(polynomial, SHORT_STRETCH);
}

KS_JOIN_TARGET static inline uint32_t KS_NAMED(three_stretches)(uint32_t crc, const uint8_t *p,
                                                                size_t stretch,
                                                                const ks_joiner *join) {
    KS_SUM a = crc, b = 0, c = 0;
    const uint8_t *end = p + stretch - 8;
    for (; p < end; p += 8) {
        a = KS_SUM_8(a, ks_load_little_u64(p));
        b = KS_SUM_8(b, ks_load_little_u64(p + stretch));
        c = KS_SUM_8(c, ks_load_little_u64(p + 2 * stretch));
    }
    a = KS_SUM_8(a, ks_load_little_u64(p));
    b = KS_SUM_8(b, ks_load_little_u64(p + stretch));
    uint64_t joined =
        KS_TIMES((uint32_t)a, join->two_stretches) ^ KS_TIMES((uint32_t)b, join->one_stretch);
    return (uint32_t)KS_SUM_8(c, ks_load_little_u64(p + 2 * stretch) ^ joined);
}

/* Less than eight bytes. */
KS_SUM_TARGET static inline uint32_t KS_NAMED(tail)(uint32_t crc, const uint8_t *p, size_t size) {
    if (size & 4) {
        uint32_t v;
        memcpy(&v, p, 4);
        crc = KS_SUM_4(crc, v);
        p += 4;
    }
    if (size & 2) {
        uint16_t w;
        memcpy(&w, p, 2);
        crc = KS_SUM_2(crc, w);
        p += 2;
    }
    return size & 1 ? KS_SUM_1(crc, *p) : crc;
}

/* Less than some hundred bytes. Leading zeros do not change the sum of a message from a register of
 * 0, so the first word is padded to 8 bytes at its start, instead of a tail at the end of the
 * message: only one branch depends on the size. The register is added to the first four bytes. */
KS_SUM_TARGET static inline uint32_t KS_NAMED(words)(uint32_t crc, const uint8_t *p, size_t size) {
    if (size < 8) return KS_NAMED(tail)(crc, p, size);
    unsigned head = (unsigned)((size - 1) % 8 + 1), bits = 8 * head;
    uint64_t first = (ks_load_little_u64(p) ^ crc) << (64 - bits);
    KS_SUM sum = KS_SUM_8(0, first) ^ (KS_SUM)((uint64_t)crc >> (bits - 8) >> 8);
    for (const uint8_t *end = p + size, *q = p + head; q < end; q += 8)
        sum = KS_SUM_8(sum, ks_load_little_u64(q));
    return (uint32_t)sum;
}

/* The kernel. */
KS_JOIN_TARGET static uint32_t KS_NAMED(streams)(uint32_t crc, const uint8_t *p, size_t size) {
    crc = ~crc;
    for (; size >= 3 * LONG_STRETCH; p += 3 * LONG_STRETCH, size -= 3 * LONG_STRETCH) {
        ks_prefetch_sums(p, 3 * LONG_STRETCH);
        crc = KS_NAMED(three_stretches)(crc, p, LONG_STRETCH, &KS_NAMED(long_joiner));
    }
    if (size >= 3 * SHORT_STRETCH) {
        ks_prefetch_sums(p, 3 * SHORT_STRETCH);
        crc = KS_NAMED(three_stretches)(crc, p, SHORT_STRETCH, &KS_NAMED(short_joiner));
        p += 3 * SHORT_STRETCH;
        size -= 3 * SHORT_STRETCH;
    }
    ks_prefetch_sums(p, USUAL_REST);
    return ~KS_NAMED(words)(crc, p, size);
}

#undef KS_NAMED
#undef KS_SUM_TARGET
#undef KS_JOIN_TARGET
#undef KS_SUM
#undef KS_SUM_8
#undef KS_SUM_4
#undef KS_SUM_2
#undef KS_SUM_1
#undef KS_TIMES
