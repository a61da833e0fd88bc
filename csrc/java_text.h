/* UTF-8 as `new String(bytes, UTF_8)` decodes it, and decimal numbers.
 *
 * Each malformed sequence becomes one U+FFFD. Which bytes belong to it is what `String.decodeUTF8`
 * says: the longest prefix of a valid sequence, and an encoded surrogate as one.
 */
#ifndef KAFKASCAN_JAVA_TEXT_H
#define KAFKASCAN_JAVA_TEXT_H

#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "little_endian.h"

enum {
    KS_WORD = 8,
    KS_BLOCK = 32,
    KS_MAX_SEQUENCE = 4,
    KS_REPLACEMENT_SIZE = 3,
    KS_MAX_DIGITS = 20
};

static inline int ks_is_continuation(uint8_t byte) { return (byte & 0xc0) == 0x80; }

/* Whether a second byte may follow the first one of a sequence of 3 or 4 bytes. An encoded
 * surrogate (0xed, 0xa0 and more) may: Java finds it when it has all three bytes. */
static inline int ks_may_follow(uint8_t first, uint8_t second) {
    if (!ks_is_continuation(second)) return 0;
    if (first == 0xe0) return second >= 0xa0;
    if (first == 0xf0) return second >= 0x90;
    if (first == 0xf4) return second < 0x90;
    return first <= 0xf4;
}

/* The bytes of the sequence at p, which is not ASCII: at least one; *is_valid says whether they
 * encode a character. */
static inline int64_t ks_java_sequence(const uint8_t *p, const uint8_t *limit, int *is_valid) {
    uint8_t first = p[0];
    int64_t size = first < 0xc2 || first > 0xf4 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    *is_valid = 0;
    if (size == 1 || limit - p < 2) return 1;
    if (size == 2) {
        *is_valid = ks_is_continuation(p[1]);
        return *is_valid ? 2 : 1;
    }
    if (!ks_may_follow(first, p[1])) return 1;
    for (int64_t i = 2; i < size; i++) {
        if (i >= limit - p || !ks_is_continuation(p[i])) return i;
    }
    *is_valid = !(first == 0xed && p[1] >= 0xa0);
    return size;
}

/* Copies 8 bytes; returns the number of ASCII bytes before the first other one. */
static inline int ks_copy_ascii(const uint8_t *p, uint8_t *out) {
    uint64_t word;
    memcpy(&word, p, sizeof word);
    memcpy(out, &word, sizeof word);
    word &= 0x8080808080808080u;
    if (word == 0) return 8;
    return __builtin_ctzll(word) / 8;
}

/* Copies a block; returns the number of ASCII bytes before the first other one. */
static inline int ks_copy_ascii_block(const uint8_t *p, uint8_t *out) {
#ifdef __SSE2__
    __m128i low = _mm_loadu_si128((const __m128i *)(const void *)p);
    __m128i high = _mm_loadu_si128((const __m128i *)(const void *)(p + KS_BLOCK / 2));
    _mm_storeu_si128((__m128i *)(void *)out, low);
    _mm_storeu_si128((__m128i *)(void *)(out + KS_BLOCK / 2), high);
    uint32_t others = (uint32_t)_mm_movemask_epi8(low) | (uint32_t)_mm_movemask_epi8(high) << 16;
    return others == 0 ? KS_BLOCK : __builtin_ctz(others);
#else
    int size = 0;
    while (size < KS_BLOCK) {
        int some = ks_copy_ascii(p + size, out + size);
        size += some;
        if (some < KS_WORD) break;
    }
    return size;
#endif
}

/* Copies the sequence at *in, which is not ASCII, or its replacement; both pointers are moved. */
static inline void ks_copy_java_sequence(const uint8_t **in, const uint8_t *limit, uint8_t **out) {
    static const uint8_t replacement[KS_REPLACEMENT_SIZE] = {0xef, 0xbf, 0xbd};
    int is_valid;
    int64_t size = ks_java_sequence(*in, limit, &is_valid);
    if (is_valid) {
        for (int64_t i = 0; i < size; i++) (*out)[i] = (*in)[i];
        *out += size;
    } else {
        memcpy(*out, replacement, sizeof replacement);
        *out += sizeof replacement;
    }
    *in += size;
}

/* Copies text from *in up to `limit`, or until the next sequence may not fit into *out up to
 * `room`; both are moved. */
static inline void ks_copy_java_text(const uint8_t **in, const uint8_t *limit, uint8_t **out,
                                     const uint8_t *room) {
    const uint8_t *p = *in;
    uint8_t *q = *out;
    while (limit - p >= KS_WORD && room - q >= KS_BLOCK + KS_MAX_SEQUENCE) {
        int is_block = limit - p >= KS_BLOCK;
        int size = is_block ? ks_copy_ascii_block(p, q) : ks_copy_ascii(p, q);
        p += size;
        q += size;
        if (size < (is_block ? KS_BLOCK : KS_WORD)) ks_copy_java_sequence(&p, limit, &q);
    }
    while (p < limit && room - q >= KS_MAX_SEQUENCE) {
        if (*p < 0x80) {
            *q++ = *p++;
        } else {
            ks_copy_java_sequence(&p, limit, &q);
        }
    }
    *in = p;
    *out = q;
}

/* The size of a text after malformed sequences are replaced. */
static inline int64_t ks_java_text_size(const uint8_t *p, const uint8_t *limit) {
    int64_t size = 0;
    while (p < limit) {
        if (limit - p >= 8) {
            uint64_t word;
            memcpy(&word, p, sizeof word);
            if ((word & 0x8080808080808080u) == 0) {
                p += sizeof word;
                size += sizeof word;
                continue;
            }
        }
        int is_valid = 1;
        int64_t some = *p < 0x80 ? 1 : ks_java_sequence(p, limit, &is_valid);
        size += is_valid ? some : KS_REPLACEMENT_SIZE;
        p += some;
    }
    return size;
}

/* Two digits of a number below 100. */
static inline void ks_write_pair(uint8_t *out, uint32_t n) {
    static const char pairs[] =
        "00010203040506070809101112131415161718192021222324252627282930313233343536373839"
        "40414243444546474849505152535455565758596061626364656667686970717273747576777879"
        "8081828384858687888990919293949596979899";
    memcpy(out, pairs + 2 * n, 2);
}

/* Eight digits of a number below 10^8. */
static inline void ks_write_eight(uint8_t *out, uint32_t n) {
    uint32_t high = n / 10000, low = n % 10000;
    ks_write_pair(out, high / 100);
    ks_write_pair(out + 2, high % 100);
    ks_write_pair(out + 4, low / 100);
    ks_write_pair(out + 6, low % 100);
}

static inline int ks_count_digits(uint32_t n) {
    return n < 10         ? 1
           : n < 100      ? 2
           : n < 1000     ? 3
           : n < 10000    ? 4
           : n < 100000   ? 5
           : n < 1000000  ? 6
           : n < 10000000 ? 7
                          : 8;
}

/* A number below 10^8 without zeros in front; returns its end. */
static inline uint8_t *ks_write_below_eight(uint8_t *out, uint32_t n) {
    int size = ks_count_digits(n), at = size;
    for (; at >= 2; at -= 2) {
        ks_write_pair(out + at - 2, n % 100);
        n /= 100;
    }
    if (at == 1) out[0] = (uint8_t)('0' + n);
    return out + size;
}

/* Writes a number of at most KS_MAX_DIGITS characters; returns its end. */
static inline uint8_t *ks_write_decimal(uint8_t *out, int64_t number) {
    const uint64_t eight = 100000000;
    uint64_t n = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    if (number < 0) *out++ = '-';
    if (n < eight) return ks_write_below_eight(out, (uint32_t)n);
    uint64_t high = n / eight;
    if (high < eight) {
        out = ks_write_below_eight(out, (uint32_t)high);
    } else {
        out = ks_write_below_eight(out, (uint32_t)(high / eight));
        ks_write_eight(out, (uint32_t)(high % eight));
        out += 8;
    }
    ks_write_eight(out, (uint32_t)(n % eight));
    return out + 8;
}

#endif /* KAFKASCAN_JAVA_TEXT_H */
