/* Decompress small gzip members: creating a library's object for each takes longer than the work.
 *
 * Members are accepted only if zlib accepts them with the same output
 * (tests/property/records/test_small_blocks.py); all others are left to the libraries. The format
 * is defined in RFC 1951 and RFC 1952. Codes are read bit by bit, which is fast enough for small
 * members and needs no tables that take longer to build than to use.
 */
#ifndef KAFKASCAN_SMALL_MEMBERS_H
#define KAFKASCAN_SMALL_MEMBERS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "compressed.h"
#include "crc32c.h"
#include "small_blocks.h"

enum { KS_SMALL_MEMBER = 2048 };

/* Bits are read ahead, the first one lowest; zeros follow the end of the input. */
typedef struct {
    const uint8_t *at, *limit;
    uint64_t bits;
    int count, zeros; /* of the bits: how many there are, and how many are not in the input */
} ks_bits;

/* Enough for any symbol with all that follows it, also a repetition: 15 + 5 + 15 + 13 bits. */
enum { KS_BITS_AHEAD = 48 };

static inline void ks_read_ahead(ks_bits *in) {
    for (; in->count < KS_BITS_AHEAD; in->count += 8) {
        if (in->at < in->limit)
            in->bits |= (uint64_t)*in->at++ << in->count;
        else
            in->zeros += 8;
    }
}

static inline bool ks_is_past_end(const ks_bits *in) { return in->zeros > in->count; }

/* The next bits, of those that were read ahead. */
static inline uint32_t ks_take_bits(ks_bits *in, int count) {
    uint32_t taken = (uint32_t)(in->bits & (((uint64_t)1 << count) - 1));
    in->bits >>= count;
    in->count -= count;
    return taken;
}

/* Drop the rest of a byte, and go back to the byte after it. */
static inline bool ks_return_bytes(ks_bits *in) {
    if (ks_is_past_end(in)) return false;
    in->at -= (in->count - in->zeros) / 8;
    in->bits = 0;
    in->count = in->zeros = 0;
    return true;
}

/* ---- Huffman codes ---- */

enum {
    KS_LONGEST_CODE = 15,
    KS_LENGTH_CODES = 19,
    KS_MOST_LITERALS = 286,
    KS_FIXED_LITERALS = 288,
    KS_MOST_DISTANCES = 30,
    KS_FIXED_DISTANCES = 32,
    KS_END_OF_BLOCK = 256,
};

/* A canonical code: how many codes have a length, and their symbols in the order of the codes. */
typedef struct {
    uint16_t count[KS_LONGEST_CODE + 1], symbol[KS_FIXED_LITERALS];
} ks_huffman;

/* Whether the lengths are those of a code. Unused codes are allowed only beside a single one of one
 * bit, as in zlib, and not at all in the code of the lengths themselves. */
static inline bool ks_build_huffman(ks_huffman *code, const uint8_t *lengths, int n,
                                    bool is_complete) {
    uint16_t starts[KS_LONGEST_CODE + 2] = {0};
    memset(code->count, 0, sizeof code->count);
    for (int i = 0; i < n; i++) code->count[lengths[i]]++;
    code->count[0] = 0;
    int unused = 1, longest = 0;
    for (int length = 1; length <= KS_LONGEST_CODE; length++) {
        unused = 2 * unused - code->count[length];
        if (unused < 0) return false;
        if (code->count[length]) longest = length;
        starts[length + 1] = starts[length] + code->count[length];
    }
    for (int i = 0; i < n; i++)
        if (lengths[i]) code->symbol[starts[lengths[i]]++] = (uint16_t)i;
    return unused == 0 || (!is_complete && longest <= 1);
}

/* The next symbol, of the bits that were read ahead; -1 if no symbol has the code. */
static inline int ks_take_symbol(ks_bits *in, const ks_huffman *code) {
    int value = 0, first = 0, at = 0;
    uint64_t bits = in->bits;
    for (int length = 1; length <= KS_LONGEST_CODE; length++, bits >>= 1) {
        value |= (int)(bits & 1);
        int count = code->count[length];
        if (value - first < count) {
            ks_take_bits(in, length);
            return code->symbol[at + value - first];
        }
        at += count;
        first = (first + count) << 1;
        value <<= 1;
    }
    return -1;
}

/* The codes of literals and of distances. */
typedef struct {
    ks_huffman literals, distances;
} ks_codes;

static inline void ks_build_fixed_codes(ks_codes *codes) {
    uint8_t lengths[KS_FIXED_LITERALS];
    for (int i = 0; i < KS_FIXED_LITERALS; i++)
        lengths[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
    ks_build_huffman(&codes->literals, lengths, KS_FIXED_LITERALS, true);
    memset(lengths, 5, KS_FIXED_DISTANCES);
    ks_build_huffman(&codes->distances, lengths, KS_FIXED_DISTANCES, true);
}

/* ---- blocks ---- */

typedef struct {
    uint8_t *data;
    int64_t size, room;
} ks_output;

static inline bool ks_inflate_codes(ks_bits *in, ks_output *out, const ks_codes *codes) {
    static const uint16_t size_base[] = {3,  4,  5,  6,   7,   8,   9,   10,  11, 13,
                                         15, 17, 19, 23,  27,  31,  35,  43,  51, 59,
                                         67, 83, 99, 115, 131, 163, 195, 227, 258};
    static const uint8_t size_bits[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                        2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
    static const uint16_t distance_base[] = {
        1,   2,   3,   4,   5,   7,    9,    13,   17,   25,   33,   49,   65,    97,    129,
        193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
    while (!ks_is_past_end(in)) {
        ks_read_ahead(in);
        int symbol = ks_take_symbol(in, &codes->literals);
        if (symbol == KS_END_OF_BLOCK) return true;
        if (symbol < 0 || symbol >= KS_MOST_LITERALS) return false;
        if (symbol < KS_END_OF_BLOCK) {
            if (out->size == out->room) return false;
            out->data[out->size++] = (uint8_t)symbol;
            continue;
        }
        symbol -= KS_END_OF_BLOCK + 1;
        int64_t size = size_base[symbol] + ks_take_bits(in, size_bits[symbol]);
        int step = ks_take_symbol(in, &codes->distances);
        if (step < 0 || step >= KS_MOST_DISTANCES) return false;
        int64_t distance = distance_base[step] + ks_take_bits(in, step < 4 ? 0 : step / 2 - 1);
        if (!ks_repeat(out->data, &out->size, out->room, distance, size)) return false;
    }
    return false;
}

static inline bool ks_inflate_stored(ks_bits *in, ks_output *out) {
    if (!ks_return_bytes(in) || in->limit - in->at < 4) return false;
    uint32_t size = ks_load_little(in->at, 2), inverse = ks_load_little(in->at + 2, 2);
    in->at += 4;
    return size == (inverse ^ 0xffff) &&
           ks_append(out->data, &out->size, out->room, &in->at, in->limit, size);
}

static inline bool ks_take_lengths(ks_bits *in, const ks_huffman *code, uint8_t *lengths, int n) {
    for (int i = 0; i < n;) {
        ks_read_ahead(in);
        int symbol = ks_take_symbol(in, code);
        if (symbol < 0 || ks_is_past_end(in)) return false;
        if (symbol < 16) {
            lengths[i++] = (uint8_t)symbol;
            continue;
        }
        if (symbol == 16 && i == 0) return false;
        uint8_t repeated = symbol == 16 ? lengths[i - 1] : 0;
        int times = symbol == 16   ? 3 + (int)ks_take_bits(in, 2)
                    : symbol == 17 ? 3 + (int)ks_take_bits(in, 3)
                                   : 11 + (int)ks_take_bits(in, 7);
        if (times > n - i) return false;
        memset(lengths + i, repeated, (size_t)times);
        i += times;
    }
    return true;
}

static inline bool ks_inflate_dynamic(ks_bits *in, ks_output *out) {
    static const uint8_t order[] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                    11, 4,  12, 3, 13, 2, 14, 1, 15};
    uint8_t lengths[KS_MOST_LITERALS + KS_MOST_DISTANCES] = {0};
    ks_codes codes;
    int n = (int)ks_take_bits(in, 5) + 257, steps = (int)ks_take_bits(in, 5) + 1;
    int listed = (int)ks_take_bits(in, 4) + 4;
    if (n > KS_MOST_LITERALS || steps > KS_MOST_DISTANCES) return false;
    for (int i = 0; i < listed; i++) {
        ks_read_ahead(in);
        lengths[order[i]] = (uint8_t)ks_take_bits(in, 3);
    }
    if (!ks_build_huffman(&codes.literals, lengths, KS_LENGTH_CODES, true)) return false;
    memset(lengths, 0, KS_LENGTH_CODES);
    if (!ks_take_lengths(in, &codes.literals, lengths, n + steps)) return false;
    if (lengths[KS_END_OF_BLOCK] == 0) return false;
    if (!ks_build_huffman(&codes.literals, lengths, n, false)) return false;
    if (!ks_build_huffman(&codes.distances, lengths + n, steps, false)) return false;
    return ks_inflate_codes(in, out, &codes);
}

/* Decompress deflate blocks up to the last one. */
static inline bool ks_inflate(ks_bits *in, ks_output *out, const ks_codes *fixed) {
    for (bool is_last = false; !is_last;) {
        ks_read_ahead(in);
        is_last = ks_take_bits(in, 1);
        uint32_t kind = ks_take_bits(in, 2);
        bool is_valid = kind == 0   ? ks_inflate_stored(in, out)
                        : kind == 1 ? ks_inflate_codes(in, out, fixed)
                        : kind == 2 ? ks_inflate_dynamic(in, out)
                                    : false;
        if (!is_valid || ks_is_past_end(in)) return false;
    }
    return ks_return_bytes(in);
}

/* ---- members ---- */

enum {
    KS_GZIP_HEADER_SIZE = 10,
    KS_GZIP_HEADER_CRC = 2,
    KS_GZIP_EXTRA = 4,
    KS_GZIP_NAME = 8,
    KS_GZIP_COMMENT = 16,
    KS_GZIP_RESERVED = 0xe0,
};

/* The position after a header; NULL if it is not one, or not inside of the data. */
static inline const uint8_t *ks_skip_gzip_header(const uint8_t *data, const uint8_t *limit,
                                                 ks_crc_fn crc32) {
    if (limit - data < KS_GZIP_SMALLEST || memcmp(data, "\x1f\x8b\x08", 3) != 0) return NULL;
    uint8_t flags = data[3];
    const uint8_t *at = data + KS_GZIP_HEADER_SIZE;
    if (flags & KS_GZIP_RESERVED) return NULL;
    if (flags & KS_GZIP_EXTRA) {
        int64_t size = 2 + (int64_t)ks_load_little(at, 2);
        if (size > limit - at) return NULL;
        at += size;
    }
    for (int text = KS_GZIP_NAME; text <= KS_GZIP_COMMENT; text <<= 1) {
        if (!(flags & text)) continue;
        at = memchr(at, 0, (size_t)(limit - at));
        if (at == NULL) return NULL;
        at++;
    }
    if (flags & KS_GZIP_HEADER_CRC) {
        if (limit - at < 2) return NULL;
        uint32_t crc = crc32(0, data, (size_t)(at - data)) & 0xffff;
        if (crc != ks_load_little(at, 2)) return NULL;
        at += 2;
    }
    return at;
}

/* Append a member to `out`; returns its compressed size, or 0 if it is left to libraries. */
static inline int64_t ks_decode_small_member(const uint8_t *data, int64_t size, ks_output *out,
                                             const ks_codes *fixed, ks_crc_fn crc32) {
    const uint8_t *limit = data + ks_smaller(size, KS_SMALL_MEMBER);
    const uint8_t *at = ks_skip_gzip_header(data, limit, crc32);
    if (at == NULL) return 0;
    ks_bits in = {.at = at, .limit = limit};
    ks_output made = {.data = out->data + out->size, .room = out->room - out->size};
    if (!ks_inflate(&in, &made, fixed) || limit - in.at < 8) return 0;
    if (crc32(0, made.data, (size_t)made.size) != ks_load_little(in.at, 4)) return 0;
    if ((uint32_t)made.size != ks_load_little(in.at + 4, 4)) return 0;
    out->size += made.size;
    return in.at + 8 - data;
}

#endif /* KAFKASCAN_SMALL_MEMBERS_H */
