/* The layout of batch headers, legacy messages, index entries and producer snapshots.
 *
 * All wire offsets derive from this file: the constants, the row struct, the decoders
 * (batch_row.h), the NumPy dtypes (kafkascan/format/layout.py) and the tables of
 * docs/format.md, which a test compares with this file.
 *
 * Sources: KIP-98 (magic 2), KIP-32 (magic 1); in Apache Kafka the classes
 * DefaultRecordBatch, LegacyRecord and Records of org.apache.kafka.common.record.
 */
#ifndef KAFKASCAN_LAYOUT_H
#define KAFKASCAN_LAYOUT_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "little_endian.h"

/* Field types: C type, NumPy code, and how to load one from big-endian bytes. */
#define KS_CTYPE_i8 int8_t
#define KS_CTYPE_i16 int16_t
#define KS_CTYPE_i32 int32_t
#define KS_CTYPE_u32 uint32_t
#define KS_CTYPE_i64 int64_t

/* X(name, type, wire offset): the header of a record batch, magic 2.
 * An offset is written as a sum: offset + size of the previous field. */
#define KS_BATCH_HEADER(X) \
    X(base_offset, i64, 0) \
    X(batch_length, i32, 0 + 8) \
    X(partition_leader_epoch, i32, 8 + 4) \
    X(magic, i8, 12 + 4) \
    X(crc, u32, 16 + 1) \
    X(attributes, i16, 17 + 4) \
    X(last_offset_delta, i32, 21 + 2) \
    X(base_timestamp, i64, 23 + 4) \
    X(max_timestamp, i64, 27 + 8) \
    X(producer_id, i64, 35 + 8) \
    X(producer_epoch, i16, 43 + 8) \
    X(base_sequence, i32, 51 + 2) \
    X(records_count, i32, 53 + 4)

/* X(name, type, wire offset): the fixed part of a message of magic 0. */
#define KS_MESSAGE_V0(X) \
    X(offset, i64, 0) \
    X(message_size, i32, 0 + 8) \
    X(crc, u32, 8 + 4) \
    X(magic, i8, 12 + 4) \
    X(attributes, i8, 16 + 1) \
    X(key_size, i32, 17 + 1)

/* X(name, type, wire offset): the fixed part of a message of magic 1. */
#define KS_MESSAGE_V1(X) \
    X(offset, i64, 0) \
    X(message_size, i32, 0 + 8) \
    X(crc, u32, 8 + 4) \
    X(magic, i8, 12 + 4) \
    X(attributes, i8, 16 + 1) \
    X(timestamp, i64, 17 + 1) \
    X(key_size, i32, 18 + 8)

/* X(name, type, wire offset): an entry of a .index file (OffsetIndex); offsets are relative to
 * the base offset of the segment. */
#define KS_OFFSET_INDEX_ENTRY(X) \
    X(relative_offset, i32, 0) \
    X(position, i32, 0 + 4)

/* X(name, type, wire offset): an entry of a .timeindex file (TimeIndex). */
#define KS_TIME_INDEX_ENTRY(X) \
    X(timestamp, i64, 0) \
    X(relative_offset, i32, 0 + 8)

/* X(name, type, wire offset): an entry of a .txnindex file (AbortedTxn). */
#define KS_TRANSACTION_INDEX_ENTRY(X) \
    X(version, i16, 0) \
    X(producer_id, i64, 0 + 2) \
    X(first_offset, i64, 2 + 8) \
    X(last_offset, i64, 10 + 8) \
    X(last_stable_offset, i64, 18 + 8)

/* X(name, type, wire offset): the header of a .snapshot file. */
#define KS_SNAPSHOT_HEADER(X) \
    X(version, i16, 0) \
    X(crc, u32, 0 + 2) \
    X(producer_count, i32, 2 + 4)

/* X(name, type, wire offset): an entry of a .snapshot file (ProducerStateManager). */
#define KS_PRODUCER_ENTRY(X) \
    X(producer_id, i64, 0) \
    X(producer_epoch, i16, 0 + 8) \
    X(last_sequence, i32, 8 + 2) \
    X(last_offset, i64, 10 + 4) \
    X(offset_delta, i32, 14 + 8) \
    X(timestamp, i64, 22 + 4) \
    X(coordinator_epoch, i32, 26 + 8) \
    X(current_txn_first_offset, i64, 34 + 4)

/* X(name, type, wire offset): the batch of an end transaction marker as coordinators write it,
 * after the batch header (EndTransactionMarker). Its one record has lengths and deltas that are
 * varints of one byte. */
#define KS_END_MARKER(X) \
    X(record_length, i8, 61) \
    X(record_attributes, i8, 61 + 1) \
    X(timestamp_delta, i8, 62 + 1) \
    X(offset_delta, i8, 63 + 1) \
    X(key_size, i8, 64 + 1) \
    X(key_version, i16, 65 + 1) \
    X(key_type, i16, 66 + 2) \
    X(value_size, i8, 68 + 2) \
    X(value_version, i16, 70 + 1) \
    X(coordinator_epoch, i32, 71 + 2) \
    X(headers_count, i8, 73 + 4)

/* Wire offsets: KS_AT_<field> of batches, KS_V0_AT_<field> and KS_V1_AT_<field> of messages,
 * KS_OFFSET_INDEX_AT_<field> and KS_TIME_INDEX_AT_<field> of index entries,
 * KS_MARKER_AT_<field> of the batch of a marker. */
// clang-format off
enum ks_wire_offset {
#define KS_OFFSET(name, type, offset) KS_AT_##name = offset,
    KS_BATCH_HEADER(KS_OFFSET)
#undef KS_OFFSET
#define KS_OFFSET(name, type, offset) KS_V0_AT_##name = offset,
    KS_MESSAGE_V0(KS_OFFSET)
#undef KS_OFFSET
#define KS_OFFSET(name, type, offset) KS_V1_AT_##name = offset,
    KS_MESSAGE_V1(KS_OFFSET)
#undef KS_OFFSET
#define KS_OFFSET(name, type, offset) KS_OFFSET_INDEX_AT_##name = offset,
    KS_OFFSET_INDEX_ENTRY(KS_OFFSET)
#undef KS_OFFSET
#define KS_OFFSET(name, type, offset) KS_TIME_INDEX_AT_##name = offset,
    KS_TIME_INDEX_ENTRY(KS_OFFSET)
#undef KS_OFFSET
#define KS_OFFSET(name, type, offset) KS_MARKER_AT_##name = offset,
    KS_END_MARKER(KS_OFFSET)
#undef KS_OFFSET
};
// clang-format on

/* Sizes. A "length" counts the bytes after the length field, as Kafka's do. */
enum ks_size {
    KS_LOG_OVERHEAD = KS_AT_batch_length + 4,       /* offset + length */
    KS_SIZE_UP_TO_MAGIC = KS_AT_magic + 1,          /* determines the format */
    KS_BATCH_HEADER_SIZE = KS_AT_records_count + 4, /* magic 2 */
    KS_END_MARKER_SIZE = KS_MARKER_AT_headers_count + 1,
    KS_MESSAGE_V0_MIN_SIZE = KS_V0_AT_key_size + 4 + 4,
    KS_MESSAGE_V1_MIN_SIZE = KS_V1_AT_key_size + 4 + 4,
    KS_MIN_LENGTH_V0 = KS_MESSAGE_V0_MIN_SIZE - KS_LOG_OVERHEAD,
    KS_MIN_LENGTH_V1 = KS_MESSAGE_V1_MIN_SIZE - KS_LOG_OVERHEAD,
    KS_MIN_LENGTH_V2 = KS_BATCH_HEADER_SIZE - KS_LOG_OVERHEAD,
    /* The first byte that a checksum covers; it covers everything from there on. */
    KS_CRC_START_V2 = KS_AT_attributes,
    KS_CRC_START_LEGACY = KS_V0_AT_magic,
    /* A record of magic 2: its length, attributes, two deltas, two sizes and the number of its
     * headers take a byte each. */
    KS_MIN_RECORD_SIZE = 7,
    KS_OFFSET_INDEX_ENTRY_SIZE = KS_OFFSET_INDEX_AT_position + 4,
    KS_TIME_INDEX_ENTRY_SIZE = KS_TIME_INDEX_AT_relative_offset + 4,
};

static_assert(KS_LOG_OVERHEAD == 12, "Records.LOG_OVERHEAD");
static_assert(KS_SIZE_UP_TO_MAGIC == 17, "Records.HEADER_SIZE_UP_TO_MAGIC");
static_assert(KS_AT_crc == 17, "DefaultRecordBatch.CRC_OFFSET");
static_assert(KS_AT_attributes == 21, "DefaultRecordBatch.ATTRIBUTES_OFFSET");
static_assert(KS_BATCH_HEADER_SIZE == 61, "DefaultRecordBatch.RECORD_BATCH_OVERHEAD");
static_assert(KS_MARKER_AT_record_length == 61, "the record follows the batch header");
static_assert(KS_END_MARKER_SIZE == 78, "DefaultRecordBatch.sizeInBytes of a marker");
static_assert(KS_MIN_LENGTH_V0 == 14, "LegacyRecord.RECORD_OVERHEAD_V0");
static_assert(KS_MIN_LENGTH_V1 == 22, "LegacyRecord.RECORD_OVERHEAD_V1");
static_assert(KS_OFFSET_INDEX_ENTRY_SIZE == 8, "OffsetIndex.ENTRY_SIZE");
static_assert(KS_TIME_INDEX_ENTRY_SIZE == 12, "TimeIndex.ENTRY_SIZE");
static_assert(KS_AT_magic == KS_V0_AT_magic && KS_AT_magic == KS_V1_AT_magic,
              "Records.MAGIC_OFFSET is the same in every format");

/* Bits of `attributes`. */
enum ks_attribute {
    KS_COMPRESSION_MASK = 0x07,
    KS_TIMESTAMP_TYPE_BIT = 0x08,
    KS_TRANSACTIONAL_BIT = 0x10,
    KS_CONTROL_BIT = 0x20,
    KS_DELETE_HORIZON_BIT = 0x40,
};

/* A row of the batch table: the position of the header in the source, then the header in native
 * byte order. Packed, so that NumPy does not repack copies of a table; row offset = 8 + wire
 * offset, so a row is a byte-swapped header. */
#pragma pack(push, 1)
typedef struct ks_batch_row {
    int64_t position;
#define KS_MEMBER(name, type, offset) KS_CTYPE_##type name;
    KS_BATCH_HEADER(KS_MEMBER)
#undef KS_MEMBER
} ks_batch_row;
#pragma pack(pop)

static_assert(sizeof(ks_batch_row) == 8 + KS_BATCH_HEADER_SIZE, "a row has no holes");
#define KS_CHECK(name, type, offset) \
    static_assert(offsetof(ks_batch_row, name) == 8 + (offset), "row order is wire order");
KS_BATCH_HEADER(KS_CHECK)
#undef KS_CHECK

/* The state of a producer, in native byte order, with the layout of a snapshot entry. */
#pragma pack(push, 1)
typedef struct ks_producer_entry {
#define KS_MEMBER(name, type, offset) KS_CTYPE_##type name;
    KS_PRODUCER_ENTRY(KS_MEMBER)
#undef KS_MEMBER
} ks_producer_entry;
#pragma pack(pop)

static_assert(sizeof(ks_producer_entry) == 46, "ProducerStateManager.PRODUCER_SNAPSHOT_ENTRY");
#define KS_CHECK(name, type, offset) \
    static_assert(offsetof(ks_producer_entry, name) == (offset), "entries have no holes");
KS_PRODUCER_ENTRY(KS_CHECK)
#undef KS_CHECK

/* An entry of the tables as data, for the dtypes in Python. */
typedef struct ks_field {
    const char *name;
    const char *type;
    int offset;
} ks_field;

/* Unaligned big-endian loads; each compiles to a load and a byte swap. */
static inline uint64_t ks_load_u64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return __builtin_bswap64(v);
}

static inline uint32_t ks_load_u32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return __builtin_bswap32(v);
}

static inline uint16_t ks_load_u16(const uint8_t *p) { return (uint16_t)((p[0] << 8) | p[1]); }

static inline int64_t ks_load_i64(const uint8_t *p) { return (int64_t)ks_load_u64(p); }
static inline int32_t ks_load_i32(const uint8_t *p) { return (int32_t)ks_load_u32(p); }
static inline int16_t ks_load_i16(const uint8_t *p) { return (int16_t)ks_load_u16(p); }
static inline int8_t ks_load_i8(const uint8_t *p) { return (int8_t)*p; }

/* Unaligned big-endian stores. */
static inline void ks_store_u64(uint8_t *p, uint64_t v) {
    v = __builtin_bswap64(v);
    memcpy(p, &v, sizeof v);
}

static inline void ks_store_u32(uint8_t *p, uint32_t v) {
    v = __builtin_bswap32(v);
    memcpy(p, &v, sizeof v);
}

static inline void ks_store_u16(uint8_t *p, uint16_t v) {
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

static inline void ks_store_i64(uint8_t *p, int64_t v) { ks_store_u64(p, (uint64_t)v); }
static inline void ks_store_i32(uint8_t *p, int32_t v) { ks_store_u32(p, (uint32_t)v); }
static inline void ks_store_i16(uint8_t *p, int16_t v) { ks_store_u16(p, (uint16_t)v); }
static inline void ks_store_i8(uint8_t *p, int8_t v) { *p = (uint8_t)v; }

#endif /* KAFKASCAN_LAYOUT_H */
