/* Parse the framing of compressed data: gzip members, snappy with or without the chunks of
 * snappy-java, LZ4 frames, Zstandard frames.
 *
 * Every function reports whether the framing has the usual form that Kafka's writers produce.
 * Other data (several members or frames, dependent blocks, damage) is not an error here:
 * kafkascan/records/decompression.py handles it. The formats are defined in RFC 1952, RFC 8878,
 * lz4_Frame_format.md and snappy-java's SnappyOutputStream.
 */
#ifndef KAFKASCAN_COMPRESSED_H
#define KAFKASCAN_COMPRESSED_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kafka_layout.h"

static inline uint32_t ks_load_little(const uint8_t *p, int size) {
    uint32_t n = 0;
    for (int i = 0; i < size; i++) n |= (uint32_t)p[i] << (8 * i);
    return n;
}

static inline int64_t ks_smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- gzip ---- */

enum { KS_GZIP_SMALLEST = 18, KS_GZIP_LARGEST_RATIO = 1032 };

static inline const uint8_t *ks_find_gzip_magic(const uint8_t *data, int64_t size) {
    const uint8_t *limit = data + size;
    while ((data = memchr(data, 0x1f, (size_t)(limit - data))) != NULL) {
        if (limit - data < 3) return NULL;
        if (data[1] == 0x8b && data[2] == 8) return data;
        data++;
    }
    return NULL;
}

/* Whether the data is exactly one member. Returns its declared size, limited to what is possible,
 * and the largest possible size. */
static inline bool ks_gzip_member(const uint8_t *data, int64_t size, int64_t *hint, int64_t *most) {
    if (size < KS_GZIP_SMALLEST || ks_find_gzip_magic(data, size) != data) return false;
    if (ks_find_gzip_magic(data + 1, size - 1) != NULL) return false;
    *most = KS_GZIP_LARGEST_RATIO * size;
    *hint = ks_smaller(ks_load_little(data + size - 4, 4), *most);
    return true;
}

/* ---- snappy and LZ4: blocks ---- */

typedef struct {
    const uint8_t *data, *checksum; /* the checksum: 4 bytes, or NULL */
    int64_t size, room;             /* room: largest decompressed size */
    bool is_stored;
} ks_block;

typedef struct {
    const uint8_t *at, *limit;
    int64_t lz4_block_size; /* 0: snappy */
    uint8_t lz4_flags;
    bool is_one_block; /* raw snappy */
} ks_blocks;

typedef enum { KS_BLOCKS_UNUSUAL, KS_BLOCKS_END, KS_BLOCK_FOUND } ks_block_found;

enum { KS_XERIAL_HEADER_SIZE = 16, KS_SNAPPY_LARGEST_RATIO = 64 };

static inline bool ks_snappy_blocks(const uint8_t *data, int64_t size, ks_blocks *blocks) {
    bool is_xerial = size > KS_XERIAL_HEADER_SIZE && memcmp(data, "\x82SNAPPY", 8) == 0;
    *blocks = (ks_blocks){
        .at = is_xerial ? data + KS_XERIAL_HEADER_SIZE : data,
        .limit = data + size,
        .is_one_block = !is_xerial,
    };
    return true;
}

/* The decompressed size at the start of a block, an unsigned varint; -1 if it is impossible. */
static inline int64_t ks_snappy_room(const uint8_t *data, int64_t size) {
    int64_t room = 0;
    for (int i = 0; i < ks_smaller(size, 5); i++) {
        room |= (int64_t)(data[i] & 0x7f) << (7 * i);
        if (data[i] < 0x80) return room <= KS_SNAPPY_LARGEST_RATIO * size ? room : -1;
    }
    return -1;
}

static inline ks_block_found ks_next_snappy_block(ks_blocks *blocks, ks_block *block) {
    int64_t left = blocks->limit - blocks->at;
    if (left == 0) return KS_BLOCKS_END;
    int64_t size = left;
    if (!blocks->is_one_block) {
        if (left < 4) return KS_BLOCKS_UNUSUAL;
        size = ks_load_i32(blocks->at);
        blocks->at += 4;
        if (size <= 0 || size > left - 4) return KS_BLOCKS_UNUSUAL;
    }
    *block = (ks_block){.data = blocks->at, .size = size, .room = ks_snappy_room(blocks->at, size)};
    blocks->at += size;
    return block->room > 0 ? KS_BLOCK_FOUND : KS_BLOCKS_UNUSUAL;
}

enum {
    KS_LZ4_DESCRIPTOR_AT = 4,
    KS_LZ4_LARGEST_HEADER = 15,
    KS_LZ4_INDEPENDENT = 0x20,
    KS_LZ4_BLOCK_CHECKSUM = 0x10,
    KS_LZ4_CONTENT_SIZE = 0x08,
    KS_LZ4_CONTENT_CHECKSUM = 0x04,
    KS_LZ4_LARGEST_RATIO = 255,
};

/* The caller verifies the checksum of the header, which is its last byte, before `at`. */
static inline bool ks_lz4_blocks(const uint8_t *data, int64_t size, ks_blocks *blocks) {
    if (size < 7 || memcmp(data, "\x04\x22\x4d\x18", 4) != 0) return false;
    uint8_t flags = data[4], sizes = data[5];
    int64_t header_size = flags & KS_LZ4_CONTENT_SIZE ? 15 : 7;
    if (flags >> 6 != 1 || flags & 3 || !(flags & KS_LZ4_INDEPENDENT)) return false;
    if (sizes & 0x8f || sizes >> 4 < 4 || size < header_size) return false;
    *blocks = (ks_blocks){
        .at = data + header_size,
        .limit = data + size,
        .lz4_block_size = (int64_t)1 << (8 + 2 * (sizes >> 4)),
        .lz4_flags = flags,
    };
    return true;
}

static inline ks_block_found ks_next_lz4_block(ks_blocks *blocks, ks_block *block) {
    int64_t left = blocks->limit - blocks->at;
    if (left < 4) return KS_BLOCKS_UNUSUAL;
    uint32_t word = ks_load_little(blocks->at, 4);
    int64_t size = word & 0x7fffffff;
    bool has_checksum = blocks->lz4_flags & KS_LZ4_BLOCK_CHECKSUM;
    left -= 4;
    if (size == 0) {
        int64_t checksum_size = blocks->lz4_flags & KS_LZ4_CONTENT_CHECKSUM ? 4 : 0;
        return left < checksum_size ? KS_BLOCKS_UNUSUAL : KS_BLOCKS_END;
    }
    if (size > blocks->lz4_block_size) return KS_BLOCKS_UNUSUAL;
    if (size + (has_checksum ? 4 : 0) > left) return KS_BLOCKS_UNUSUAL;
    bool is_stored = word >> 31;
    *block = (ks_block){
        .data = blocks->at + 4,
        .size = size,
        .is_stored = is_stored,
        .room = is_stored ? size : ks_smaller(blocks->lz4_block_size, KS_LZ4_LARGEST_RATIO * size),
        .checksum = has_checksum ? blocks->at + 4 + size : NULL,
    };
    blocks->at += 4 + size + (has_checksum ? 4 : 0);
    return KS_BLOCK_FOUND;
}

static inline ks_block_found ks_next_block(ks_blocks *blocks, ks_block *block) {
    return blocks->lz4_block_size ? ks_next_lz4_block(blocks, block)
                                  : ks_next_snappy_block(blocks, block);
}

/* Largest decompressed size of all blocks; 0 if the framing is unusual. */
static inline int64_t ks_room_of_blocks(ks_blocks blocks) {
    ks_block block;
    int64_t room = 0;
    ks_block_found found;
    while ((found = ks_next_block(&blocks, &block)) == KS_BLOCK_FOUND) room += block.room;
    return found == KS_BLOCKS_END ? room : 0;
}

/* ---- Zstandard ---- */

enum { KS_ZSTD_LARGEST_BLOCK = 1 << 17, KS_ZSTD_LARGEST_WINDOW = 1 << 27 };

/* Whether the data is exactly one frame without a dictionary. Returns the largest size of its
 * content, and its window. */
static inline bool ks_zstd_frame(const uint8_t *data, int64_t size, int64_t *most,
                                 int64_t *window) {
    if (size < 18 || ks_load_little(data, 4) != 0xfd2fb528) return false;
    uint8_t descriptor = data[4];
    bool is_single = descriptor >> 5 & 1, has_checksum = descriptor >> 2 & 1;
    if (descriptor & 0x0b) return false; /* a dictionary, or the reserved bit */
    int64_t at = 5, content_size = -1;
    if (!is_single) {
        int64_t base = (int64_t)1 << (10 + (data[at] >> 3));
        *window = base + (base >> 3) * (data[at] & 7);
        at++;
    }
    switch (descriptor >> 6) {
        case 0:
            if (is_single) content_size = data[at++];
            break;
        case 1:
            content_size = ks_load_little(data + at, 2) + 256;
            at += 2;
            break;
        case 2:
            content_size = ks_load_little(data + at, 4);
            at += 4;
            break;
        default:
            return false; /* more than 4 GiB */
    }
    if (is_single) *window = content_size;
    if (*window > KS_ZSTD_LARGEST_WINDOW) return false;
    *most = 0;
    for (bool is_last = false; !is_last;) {
        if (size - at < 3) return false;
        uint32_t header = ks_load_little(data + at, 3), kind = header >> 1 & 3;
        is_last = header & 1;
        at += 3 + (kind == 1 ? 1 : header >> 3);
        if (kind == 3 || header >> 3 > KS_ZSTD_LARGEST_BLOCK) return false;
        *most += kind == 2 ? KS_ZSTD_LARGEST_BLOCK : header >> 3;
    }
    if (at + (has_checksum ? 4 : 0) != size || *most == 0) return false;
    return content_size == -1 || (content_size > 0 && content_size <= *most);
}

typedef enum {
    KS_ZSTD_FRAMES,
    KS_ZSTD_TRUNCATED,
    KS_ZSTD_TRAILING_BYTES,
    KS_ZSTD_BAD_MAGIC,
    KS_ZSTD_BAD_HEADER,
    KS_ZSTD_BAD_BLOCK,
} ks_zstd_status;

/* The sizes that the output of one frame may have, added to `least` and `most`. Moves `*at` to
 * the end of the frame, which may be after the end of the data. */
static inline ks_zstd_status ks_add_zstd_frame(const uint8_t *data, int64_t size, int64_t *at,
                                               int64_t *least, int64_t *most) {
    static const uint8_t dictionary_sizes[] = {0, 1, 2, 4}, content_sizes[] = {0, 2, 4, 8};
    if (size - *at < 5) return KS_ZSTD_TRUNCATED;
    uint8_t descriptor = data[*at + 4];
    bool is_single = descriptor >> 5 & 1, has_checksum = descriptor >> 2 & 1;
    if (descriptor & 8) return KS_ZSTD_BAD_HEADER; /* the reserved bit */
    *at += 5 + dictionary_sizes[descriptor & 3] + content_sizes[descriptor >> 6];
    *at += is_single ? descriptor >> 6 == 0 : 1; /* a content size of 1 byte, or the window */
    for (bool is_last = false; !is_last;) {
        if (size - *at < 3) return KS_ZSTD_TRUNCATED;
        uint32_t header = ks_load_little(data + *at, 3), kind = header >> 1 & 3;
        int64_t block = header >> 3;
        is_last = header & 1;
        if (kind == 3 || block > KS_ZSTD_LARGEST_BLOCK) return KS_ZSTD_BAD_BLOCK;
        *at += 3 + (kind == 1 ? 1 : block);
        *least += kind == 2 ? 0 : block;
        *most += kind == 2 ? KS_ZSTD_LARGEST_BLOCK : block;
    }
    *at += has_checksum ? 4 : 0;
    return KS_ZSTD_FRAMES;
}

/* The sizes that the output of consecutive frames may have, from the headers of their blocks. */
static inline ks_zstd_status ks_zstd_bounds(const uint8_t *data, int64_t size, int64_t *least,
                                            int64_t *most) {
    int64_t at = 0;
    *least = *most = 0;
    while (at < size) {
        if (size - at < 4) return KS_ZSTD_TRAILING_BYTES;
        uint32_t magic = ks_load_little(data + at, 4);
        if ((magic & 0xfffffff0) == 0x184d2a50) { /* a frame to skip */
            if (size - at < 8) return KS_ZSTD_TRUNCATED;
            at += 8 + (int64_t)ks_load_little(data + at + 4, 4);
        } else if (magic == 0xfd2fb528) {
            ks_zstd_status status = ks_add_zstd_frame(data, size, &at, least, most);
            if (status != KS_ZSTD_FRAMES) return status;
        } else {
            return KS_ZSTD_BAD_MAGIC;
        }
    }
    return at > size ? KS_ZSTD_TRUNCATED : KS_ZSTD_FRAMES;
}

#endif /* KAFKASCAN_COMPRESSED_H */
