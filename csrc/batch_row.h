/* One batch: check its frame, return its size, decode its header.
 *
 * Only bytes of [p, p + KS_SIZE_UP_TO_MAGIC) are read before the frame is known to be sound, and
 * only bytes of the header afterwards.
 */
#ifndef KAFKASCAN_BATCH_ROW_H
#define KAFKASCAN_BATCH_ROW_H

#include "bytes_16.h"
#include "kafka_layout.h"
#include "kafka_status.h"

/* The smallest batch_length of a format; magic must be 0, 1 or 2. */
static inline int32_t ks_min_length(int8_t magic) {
    if (magic == 2) return KS_MIN_LENGTH_V2;
    return magic == 1 ? KS_MIN_LENGTH_V1 : KS_MIN_LENGTH_V0;
}

/* Size of a header in the file. */
static inline int64_t ks_header_size(int8_t magic) {
    if (magic == 2) return KS_BATCH_HEADER_SIZE;
    return magic == 1 ? KS_MESSAGE_V1_MIN_SIZE : KS_MESSAGE_V0_MIN_SIZE;
}

/* Frames the batch at p, of which `left` bytes remain in the source; at least
 * min(left, KS_SIZE_UP_TO_MAGIC) of them must be readable. On KS_OK, *size is the
 * size of the batch with its header, and not above `left`.
 *
 * The order of the checks is the order of Kafka's ByteBufferLogInputStream: invalid lengths and
 * magic bytes are reported before a batch counts as torn. */
static inline int ks_frame_batch(const uint8_t *p, int64_t left, int64_t *size) {
    if (left < KS_SIZE_UP_TO_MAGIC) return KS_TORN_TAIL;
    int32_t length = ks_load_i32(p + KS_AT_batch_length);
    int8_t magic = (int8_t)p[KS_AT_magic];
    if (length < KS_MIN_LENGTH_V0) return KS_BAD_LENGTH;
    if (magic < 0 || magic > 2) return KS_BAD_MAGIC;
    if (length < ks_min_length(magic)) return KS_BAD_LENGTH;
    if (length > left - KS_LOG_OVERHEAD) return KS_TORN_TAIL;
    *size = (int64_t)length + KS_LOG_OVERHEAD;
    return KS_OK;
}

/* Magic 2: every field, in native byte order. */
#if defined(KS_HAS_BYTES_16)

/* A row is a header with byte-swapped fields, so one shuffle decodes 16 bytes. Byte i of the row's
 * header is byte ks_swapped[i] of the header in the file. */
#define KS_SWAP_i8(at) (at)
#define KS_SWAP_i16(at) (at) + 1, (at)
#define KS_SWAP_i32(at) (at) + 3, (at) + 2, (at) + 1, (at)
#define KS_SWAP_u32(at) KS_SWAP_i32(at)
#define KS_SWAP_i64(at) KS_SWAP_i32((at) + 4), KS_SWAP_i32(at)
#define KS_SWAP(name, type, offset) KS_SWAP_##type(offset),
static const int8_t ks_swapped[KS_BATCH_HEADER_SIZE] = {KS_BATCH_HEADER(KS_SWAP)};

/* Swaps the fields that are completely in bytes [from, from + 16) of a header; the values of the
 * other fields are wrong. */
static inline ks_bytes_16 ks_swapped_16(const uint8_t *p, int from) {
    int8_t order[16];
    for (int i = 0; i < 16; i++) order[i] = (int8_t)(ks_swapped[from + i] - from);
    return ks_reorder_16(ks_load_bytes_16(p + from), ks_load_bytes_16(order));
}

/* Writes them to a row; the next call overwrites the wrong values. */
static inline void ks_swap_16(uint8_t *row, const uint8_t *p, int from) {
    ks_store_bytes_16(row + from, ks_swapped_16(p, from));
}

/* Whether bytes [from, stop) of a row are those of a header; both are ends of fields. */
static inline int ks_equals_16(const uint8_t *row, const uint8_t *p, int from, int stop) {
    return ks_begin_equally(ks_load_bytes_16(row + from), ks_swapped_16(p, from), stop - from);
}

static inline void ks_read_header_v2(const uint8_t *p, ks_batch_row *row) {
    uint8_t *header = (uint8_t *)row + sizeof row->position;
    ks_swap_16(header, p, KS_AT_base_offset); /* … partition_leader_epoch */
    ks_swap_16(header, p, KS_AT_magic);       /* … last_offset_delta */
    ks_swap_16(header, p, KS_AT_base_timestamp);
    ks_swap_16(header, p, KS_AT_producer_id); /* … base_sequence */
    row->records_count = ks_load_i32(p + KS_AT_records_count);
}

static inline int ks_equals_header_v2(const uint8_t *p, const ks_batch_row *row) {
    const uint8_t *header = (const uint8_t *)row + sizeof row->position;
    return ks_equals_16(header, p, KS_AT_base_offset, KS_AT_magic) &
           ks_equals_16(header, p, KS_AT_magic, KS_AT_base_timestamp) &
           ks_equals_16(header, p, KS_AT_base_timestamp, KS_AT_producer_id) &
           ks_equals_16(header, p, KS_AT_producer_id, KS_AT_records_count) &
           (row->records_count == ks_load_i32(p + KS_AT_records_count));
}

static_assert(KS_AT_magic == 16 && KS_AT_base_timestamp <= KS_AT_magic + 16 &&
                  KS_AT_producer_id == KS_AT_base_timestamp + 16 &&
                  KS_AT_records_count <= KS_AT_producer_id + 16,
              "the shuffles cover all fields");

#else

static inline void ks_read_header_v2(const uint8_t *p, ks_batch_row *row) {
#define KS_READ(name, type, offset) row->name = ks_load_##type(p + (offset));
    KS_BATCH_HEADER(KS_READ)
#undef KS_READ
}

static inline int ks_equals_header_v2(const uint8_t *p, const ks_batch_row *row) {
#define KS_EQUALS(name, type, offset) &(row->name == ks_load_##type(p + (offset)))
    return 1 KS_BATCH_HEADER(KS_EQUALS);
#undef KS_EQUALS
}

#endif

/* Magic 0 and 1: a message is a row of the same table. A plain message is a batch of one record.
 * The offset of a compressed wrapper is the offset of its last record; its first timestamp and
 * number of records are unknown without decompression. Fields that the format lacks are -1. */
static inline void ks_read_header_legacy(const uint8_t *p, int8_t magic, ks_batch_row *row) {
    uint8_t attributes = p[KS_V0_AT_attributes];
    int is_wrapper = (attributes & KS_COMPRESSION_MASK) != 0;
    int64_t timestamp = magic == 1 ? ks_load_i64(p + KS_V1_AT_timestamp) : -1;
    row->base_offset = ks_load_i64(p + KS_V0_AT_offset);
    row->batch_length = ks_load_i32(p + KS_V0_AT_message_size);
    row->partition_leader_epoch = -1;
    row->magic = magic;
    row->crc = ks_load_u32(p + KS_V0_AT_crc);
    row->attributes = attributes;
    row->last_offset_delta = 0;
    row->base_timestamp = is_wrapper ? -1 : timestamp;
    row->max_timestamp = timestamp;
    row->producer_id = -1;
    row->producer_epoch = -1;
    row->base_sequence = -1;
    row->records_count = is_wrapper ? -1 : 1;
}

/* Fills a row from a framed batch, of which `available` bytes may be read. The magic byte is read
 * once: if another process writes to the file, it may differ from the one that was framed, but
 * no byte after the available ones is read. */
static inline void ks_read_batch_row(const uint8_t *p, int64_t available, int64_t position,
                                     ks_batch_row *row) {
    int8_t magic = (int8_t)p[KS_AT_magic];
    row->position = position;
    if (magic == 2 && available >= KS_BATCH_HEADER_SIZE) {
        ks_read_header_v2(p, row);
    } else {
        ks_read_header_legacy(p, magic == 1 && available >= KS_MESSAGE_V1_MIN_SIZE, row);
    }
}

/* Whether a row describes the framed batch at p, of which `available` bytes may be read; its
 * position is not compared. */
static inline int ks_is_row_of(const uint8_t *p, int64_t available, const ks_batch_row *row) {
    ks_batch_row actual;
    if ((int8_t)p[KS_AT_magic] == 2 && available >= KS_BATCH_HEADER_SIZE)
        return ks_equals_header_v2(p, row);
    /* The magic byte is read again, and may have changed since the batch was framed. */
    memset(&actual, 0, sizeof actual);
    ks_read_batch_row(p, available, row->position, &actual);
    return memcmp(&actual, row, sizeof actual) == 0;
}

/* Prefetches, of the bytes that begin KS_AHEAD after a batch, as many as the batch has. A walk over
 * batches of up to a few hundred bytes reads nearly all cache lines, but in steps of varying size,
 * which the CPU's prefetchers do not follow. A prefetch never faults, also after the end of a map.
 * The number of the first lines is fixed, because a loop over the size mispredicts its end. */
enum { KS_AHEAD = 2048, KS_LINES_AHEAD = 8, KS_LARGEST_PREFETCHED = 1024, KS_CACHE_LINE = 64 };

static inline void ks_prefetch_ahead(const uint8_t *p, int64_t size) {
    if (size > KS_LARGEST_PREFETCHED) return;
    uintptr_t ahead = (uintptr_t)p + KS_AHEAD;
#pragma GCC unroll 8
    for (int i = 0; i < KS_LINES_AHEAD; i++)
        __builtin_prefetch((const void *)(ahead + (uintptr_t)i * KS_CACHE_LINE));
    for (int64_t i = KS_LINES_AHEAD * KS_CACHE_LINE; i < size; i += KS_CACHE_LINE)
        __builtin_prefetch((const void *)(ahead + (uintptr_t)i));
}

/* Whether the bytes at p are a plausible header of magic 2 after a batch that ends with
 * `last_offset`; if so, returns its size and last offset. A heuristic. */
static inline int ks_is_plausible_batch(const uint8_t *p, int64_t left, int64_t *last_offset,
                                        int64_t *size) {
    if (left < KS_BATCH_HEADER_SIZE || p[KS_AT_magic] != 2) return 0;
    if (ks_frame_batch(p, left, size) != KS_OK) return 0;
    int64_t offset = ks_load_i64(p + KS_AT_base_offset);
    int32_t delta = ks_load_i32(p + KS_AT_last_offset_delta);
    int32_t count = ks_load_i32(p + KS_AT_records_count);
    uint16_t attributes = ks_load_u16(p + KS_AT_attributes);
    if (offset <= *last_offset) return 0;
    if ((uint64_t)offset - (uint64_t)*last_offset > INT32_MAX) return 0;
    if (delta < 0 || count < 0 || count - 1 > delta) return 0;
    if (attributes >= 0x80 || (attributes & KS_COMPRESSION_MASK) > 4) return 0;
    *last_offset = (int64_t)((uint64_t)offset + (uint32_t)delta);
    return 1;
}

#endif /* KAFKASCAN_BATCH_ROW_H */
