/* Encode batches from columns: sizes of records, their bytes, and the headers around them.
 *
 * The output equals the output of Kafka's writers (DefaultRecord.writeTo, LegacyRecord.write,
 * MemoryRecordsBuilder): record attributes of 0, shortest varints, messages of magic 0 and 1
 * without trailing bytes. No byte outside of the output buffer is written, even if the columns
 * change between sizing and writing.
 */
#ifndef KAFKASCAN_WRITE_BATCH_H
#define KAFKASCAN_WRITE_BATCH_H

#include "batch_row.h"
#include "crc32c.h"
#include "varint.h"

/* Byte strings as addresses and sizes; a negative size is a null. Without sizes all are null. */
typedef struct ks_items {
    const uint8_t *const *data;
    const int32_t *size;
} ks_items;

typedef struct ks_records {
    const int64_t *offset;
    const int64_t *timestamp;
    ks_items key;
    ks_items value;
    const int64_t *header_starts; /* by record, and the end; NULL without headers */
    ks_items header_key;
    ks_items header_value;
} ks_records;

/* The size of a batch, header included, is an int32. */
enum { KS_LARGEST_BATCH = INT32_MAX };

static inline int32_t ks_item_size(const ks_items *items, int64_t i) {
    return items->size == NULL || items->size[i] < 0 ? -1 : items->size[i];
}

static inline const uint8_t *ks_item_data(const ks_items *items, int64_t i) {
    return items->size == NULL ? NULL : items->data[i];
}

static inline int64_t ks_size_of_sized(int32_t size) {
    return ks_size_of_varint(size) + (size > 0 ? size : 0);
}

/* ---- records of magic 2 ---- */

/* Size of key, value and headers, with their size and count fields. */
static inline int64_t ks_size_of_content(const ks_records *records, int64_t i) {
    int64_t size = ks_size_of_sized(ks_item_size(&records->key, i)) +
                   ks_size_of_sized(ks_item_size(&records->value, i));
    if (records->header_starts == NULL) return size + 1;
    int64_t first = records->header_starts[i], last = records->header_starts[i + 1];
    size += ks_size_of_varlong(last - first);
    for (int64_t h = first; h < last; h++) {
        size += ks_size_of_sized(ks_item_size(&records->header_key, h)) +
                ks_size_of_sized(ks_item_size(&records->header_value, h));
    }
    return size;
}

/* Size of a record after its length field. */
static inline int64_t ks_size_of_body(int64_t content, int64_t timestamp_delta,
                                      int64_t offset_delta) {
    return 1 + ks_size_of_varlong(timestamp_delta) + ks_size_of_varlong(offset_delta) + content;
}

static inline int64_t ks_size_of_record(int64_t body) { return ks_size_of_varlong(body) + body; }

/* Overflow wraps around, as in Java. */
static inline int64_t ks_delta(int64_t number, int64_t base) {
    return (int64_t)((uint64_t)number - (uint64_t)base);
}

/* For the sizes of typical keys, two overlapping moves are faster than a call of memcpy. */
static inline uint8_t *ks_write_bytes(uint8_t *p, const uint8_t *data, int32_t size) {
    if (size <= 0) return p;
    if (size >= 8 && size <= 16) {
        memcpy(p, data, 8);
        memcpy(p + size - 8, data + size - 8, 8);
    } else {
        memcpy(p, data, (size_t)size);
    }
    return p + size;
}

static inline uint8_t *ks_write_sized(uint8_t *p, const ks_items *items, int64_t i) {
    int32_t size = ks_item_size(items, i);
    return ks_write_bytes(ks_write_varlong(p, size), ks_item_data(items, i), size);
}

/* The same for an item that is followed by another byte of the record. */
static inline uint8_t *ks_write_sized_and_more(uint8_t *p, const ks_items *items, int64_t i) {
    int32_t size = ks_item_size(items, i);
    return ks_write_bytes(ks_write_varlong_and_more(p, size), ks_item_data(items, i), size);
}

/* The fields after the length of a record without headers. */
static inline uint8_t *ks_write_body(uint8_t *p, const ks_records *records, int64_t i,
                                     int64_t timestamp_delta, int64_t offset_delta) {
    *p++ = 0;
    p = ks_write_varlong_and_more(p, timestamp_delta);
    p = ks_write_varlong_and_more(p, offset_delta);
    p = ks_write_sized_and_more(p, &records->key, i);
    p = ks_write_sized_and_more(p, &records->value, i);
    *p++ = 0;
    return p;
}

/* Largest size of a record without its key and value, plus the size of its length field, by
 * which it may be moved. */
enum {
    KS_AROUND_ITEMS = 2 * KS_MAX_VARINT_SIZE + 2 + 2 * KS_MAX_VARLONG_SIZE + 2 * KS_MAX_VARINT_SIZE
};

/* The same as `ks_write_record` if there is room for the largest length: the record is written
 * first, and its length afterwards. */
static inline uint8_t *ks_write_roomy_record(uint8_t *p, const ks_records *records, int64_t i,
                                             int64_t timestamp_delta, int64_t offset_delta) {
    uint8_t *body = p + 2; /* size of nearly all length fields */
    uint8_t *end = ks_write_body(body, records, i, timestamp_delta, offset_delta);
    int64_t size = end - body;
    int length_size = ks_size_of_varlong(size);
    if (length_size != 2) {
        memmove(p + length_size, body, (size_t)size);
        ks_write_varlong(p, size);
        return p + length_size + size;
    }
    p[0] = (uint8_t)(size << 1 | 0x80);
    p[1] = (uint8_t)(size >> 6);
    return end;
}

/* One record; returns its end, or NULL if it does not fit. */
static inline uint8_t *ks_write_record(uint8_t *p, const uint8_t *limit, const ks_records *records,
                                       int64_t i, int64_t base_offset, int64_t base_timestamp) {
    int64_t timestamp_delta = ks_delta(records->timestamp[i], base_timestamp);
    int64_t offset_delta = ks_delta(records->offset[i], base_offset);
    if (records->header_starts == NULL) {
        int64_t key_size = ks_item_size(&records->key, i);
        int64_t value_size = ks_item_size(&records->value, i);
        if (key_size + value_size + KS_AROUND_ITEMS <= limit - p) {
            return ks_write_roomy_record(p, records, i, timestamp_delta, offset_delta);
        }
    }
    int64_t body = ks_size_of_body(ks_size_of_content(records, i), timestamp_delta, offset_delta);
    if (ks_size_of_record(body) > limit - p) return NULL;
    p = ks_write_varlong_and_more(p, body);
    *p++ = 0;
    p = ks_write_varlong_and_more(p, timestamp_delta);
    p = ks_write_varlong_and_more(p, offset_delta);
    p = ks_write_sized_and_more(p, &records->key, i);
    p = ks_write_sized_and_more(p, &records->value, i);
    if (records->header_starts == NULL) {
        *p++ = 0;
        return p;
    }
    int64_t first = records->header_starts[i], last = records->header_starts[i + 1];
    p = ks_write_varlong(p, last - first);
    for (int64_t h = first; h < last; h++) {
        p = ks_write_sized(p, &records->header_key, h);
        p = ks_write_sized(p, &records->header_value, h);
    }
    return p;
}

/* Items may be anywhere in memory: prefetch the items of a later record. */
enum { KS_RECORDS_AHEAD = 6 };

static inline void ks_prefetch_items(const ks_records *records, int64_t i, int64_t last) {
    if (i >= last) return;
    if (records->key.size != NULL) __builtin_prefetch(records->key.data[i]);
    if (records->value.size != NULL) {
        __builtin_prefetch(records->value.data[i]);
        __builtin_prefetch(records->value.data[i] + 64);
    }
}

/* ---- messages of magic 0 and 1 ---- */

static inline int64_t ks_size_of_message(int8_t magic, int32_t key_size, int32_t value_size) {
    return ks_header_size(magic) + (key_size > 0 ? key_size : 0) +
           (value_size > 0 ? value_size : 0);
}

static inline uint8_t *ks_write_plain(uint8_t *p, const uint8_t *data, int32_t size) {
    ks_store_i32(p, size);
    return ks_write_bytes(p + 4, data, size);
}

/* The fields before the key; the checksum is written later. */
static inline uint8_t *ks_write_message_head(uint8_t *p, int8_t magic, int64_t offset, int64_t size,
                                             uint8_t attributes, int64_t timestamp) {
    ks_store_i64(p + KS_V0_AT_offset, offset);
    ks_store_i32(p + KS_V0_AT_message_size, (int32_t)(size - KS_LOG_OVERHEAD));
    p[KS_V0_AT_magic] = (uint8_t)magic;
    p[KS_V0_AT_attributes] = attributes;
    if (magic == 0) return p + KS_V0_AT_key_size;
    ks_store_i64(p + KS_V1_AT_timestamp, timestamp);
    return p + KS_V1_AT_key_size;
}

static inline void ks_seal_message(uint8_t *start, const uint8_t *end, ks_crc_fn crc32) {
    const uint8_t *covered = start + KS_CRC_START_LEGACY;
    ks_store_u32(start + KS_V0_AT_crc, crc32(0, covered, (size_t)(end - covered)));
}

/* One uncompressed message. */
static inline uint8_t *ks_write_message(uint8_t *p, const uint8_t *limit, const ks_records *records,
                                        int64_t i, int8_t magic, int64_t offset, uint8_t attributes,
                                        int64_t timestamp, ks_crc_fn crc32) {
    int32_t key_size = ks_item_size(&records->key, i);
    int32_t value_size = ks_item_size(&records->value, i);
    int64_t size = ks_size_of_message(magic, key_size, value_size);
    if (size > limit - p) return NULL;
    uint8_t *q = ks_write_message_head(p, magic, offset, size, attributes, timestamp);
    q = ks_write_plain(q, ks_item_data(&records->key, i), key_size);
    q = ks_write_plain(q, ks_item_data(&records->value, i), value_size);
    ks_seal_message(p, q, crc32);
    return q;
}

/* ---- batches ---- */

static inline int ks_is_compressed(const ks_batch_row *batch) {
    return (batch->attributes & KS_COMPRESSION_MASK) != 0;
}

/* Size of the bytes before the records of a batch. In magic 0 and 1: nothing before an
 * uncompressed message, otherwise the wrapper up to its value. */
static inline int64_t ks_size_before_records(int8_t magic, int is_compressed) {
    if (magic < 2 && !is_compressed) return 0;
    return ks_header_size(magic);
}

/* The records of one batch before compression; NULL if they do not fit. In magic 1, offsets in a
 * wrapper are relative to the offset of the batch. */
static inline uint8_t *ks_write_records(uint8_t *p, const uint8_t *limit, const ks_records *records,
                                        int64_t first, int64_t last, const ks_batch_row *batch,
                                        ks_crc_fn crc32) {
    if (batch->magic == 2) {
        /* Local copies stay in registers: writes to the output cannot change them. */
        const ks_records columns = *records;
        const int64_t base_offset = batch->base_offset, base_timestamp = batch->base_timestamp;
        for (int64_t i = first; i < last && p != NULL; i++) {
            ks_prefetch_items(&columns, i + KS_RECORDS_AHEAD, last);
            p = ks_write_record(p, limit, &columns, i, base_offset, base_timestamp);
        }
        return p;
    }
    int64_t base = batch->magic == 1 && ks_is_compressed(batch) ? batch->base_offset : 0;
    uint8_t time_bit = batch->attributes & KS_TIMESTAMP_TYPE_BIT;
    for (int64_t i = first; i < last && p != NULL; i++) {
        int64_t timestamp = time_bit ? batch->max_timestamp : records->timestamp[i];
        p = ks_write_message(p, limit, records, i, batch->magic, ks_delta(records->offset[i], base),
                             time_bit, timestamp, crc32);
    }
    return p;
}

/* The header of magic 2 around [start, end), checksum last. */
static inline void ks_seal_batch(uint8_t *start, const uint8_t *end, ks_batch_row *batch,
                                 ks_crc_fn crc32c) {
    const uint8_t *covered = start + KS_CRC_START_V2;
    batch->batch_length = (int32_t)(end - start - KS_LOG_OVERHEAD);
#define KS_WRITE(name, type, offset) ks_store_##type(start + (offset), batch->name);
    KS_BATCH_HEADER(KS_WRITE)
#undef KS_WRITE
    batch->crc = crc32c(0, covered, (size_t)(end - covered));
    ks_store_u32(start + KS_AT_crc, batch->crc);
}

/* The wrapper of compressed messages: no key, and the offset of the last record. */
static inline void ks_seal_wrapper(uint8_t *start, const uint8_t *end, const ks_batch_row *batch,
                                   ks_crc_fn crc32) {
    int64_t offset =
        (int64_t)((uint64_t)batch->base_offset + (uint64_t)(int64_t)batch->last_offset_delta);
    uint8_t *p = ks_write_message_head(start, batch->magic, offset, end - start,
                                       (uint8_t)batch->attributes, batch->max_timestamp);
    ks_store_i32(p, -1);
    ks_store_i32(p + 4, (int32_t)(end - p - 8));
    ks_seal_message(start, end, crc32);
}

/* ---- where batches end ---- */

typedef struct ks_plan {
    int8_t magic;
    int is_compressed;
    int64_t batch_size;     /* largest size before compression */
    int64_t batch_records;  /* largest number of records */
    int has_base_timestamp; /* deltas count from base_timestamp */
    int64_t base_timestamp;
} ks_plan;

/* Checks the headers of a record. */
static inline int ks_check_headers(const ks_records *records, int64_t i, int8_t magic) {
    if (records->header_starts == NULL) return KS_OK;
    int64_t first = records->header_starts[i], last = records->header_starts[i + 1];
    if (magic < 2 && last > first) return KS_HEADERS_NOT_SUPPORTED;
    if (last - first > INT32_MAX) return KS_RECORD_TOO_LARGE;
    for (int64_t h = first; h < last; h++) {
        if (ks_item_size(&records->header_key, h) < 0) return KS_NULL_HEADER_KEY;
    }
    return KS_OK;
}

/* Size of a record before compression. */
static inline int64_t ks_size_of(const ks_records *records, int64_t i, int8_t magic,
                                 int64_t base_offset, int64_t base_timestamp) {
    if (magic < 2) {
        return ks_size_of_message(magic, ks_item_size(&records->key, i),
                                  ks_item_size(&records->value, i));
    }
    return ks_size_of_record(ks_size_of_body(ks_size_of_content(records, i),
                                             ks_delta(records->timestamp[i], base_timestamp),
                                             ks_delta(records->offset[i], base_offset)));
}

/* Checks of a record that do not depend on its batch. The log end offset, which is above the
 * last offset, has to fit into 63 bits, too. */
static inline int ks_check_record(const ks_records *records, int64_t i, int8_t magic) {
    if (records->offset[i] < 0 || records->offset[i] == INT64_MAX) return KS_OFFSET_OUT_OF_RANGE;
    if (i > 0 && records->offset[i] <= records->offset[i - 1]) return KS_OFFSET_NOT_ABOVE;
    if (records->timestamp[i] < -1) return KS_NEGATIVE_TIMESTAMP;
    return ks_check_headers(records, i, magic);
}

/* Finds the end *last of the batch that begins with record `first`, and the size of its records
 * before compression. A batch has at least one record. A status is about record *last. */
static inline int ks_plan_batch(const ks_plan *plan, const ks_records *records, int64_t first,
                                int64_t count, int64_t *last, int64_t *size) {
    const ks_records columns = *records;
    int8_t magic = plan->magic;
    int64_t before = ks_size_before_records(magic, plan->is_compressed);
    int64_t batch_size = plan->batch_size, sum = 0, i = first;
    int64_t base_offset = columns.offset[first];
    int64_t base_timestamp =
        plan->has_base_timestamp ? plan->base_timestamp : columns.timestamp[first];
    int status = KS_OK;
    if (plan->batch_records < count - first) count = first + plan->batch_records;
    for (; i < count; i++) {
        status = ks_check_record(&columns, i, magic);
        if (status != KS_OK) break;
        if (ks_delta(columns.offset[i], base_offset) > INT32_MAX) break; /* offsets ascend */
        int64_t taken = ks_size_of(&columns, i, magic, base_offset, base_timestamp);
        if (taken > KS_LARGEST_BATCH - before) {
            status = KS_RECORD_TOO_LARGE;
            break;
        }
        if (i > first && before + sum + taken > batch_size) break;
        sum += taken;
    }
    *last = i;
    *size = sum;
    return status;
}

/* Size before compression of the records of a given batch; a status is about record *last.
 * Timestamps are not checked: they may come from existing logs. */
static inline int ks_measure_batch(const ks_records *records, int64_t first, int64_t end,
                                   const ks_batch_row *batch, int64_t *last, int64_t *size) {
    int64_t before = ks_size_before_records(batch->magic, ks_is_compressed(batch));
    *size = 0;
    for (*last = first; *last < end; ++*last) {
        int64_t i = *last;
        if (i > first && records->offset[i] <= records->offset[i - 1]) return KS_OFFSET_NOT_ABOVE;
        int status = ks_check_headers(records, i, batch->magic);
        if (status != KS_OK) return status;
        int64_t delta = ks_delta(records->offset[i], batch->base_offset);
        if (delta < INT32_MIN || delta > INT32_MAX) return KS_OFFSET_DELTA_TOO_LARGE;
        *size += ks_size_of(records, i, batch->magic, batch->base_offset, batch->base_timestamp);
        if (*size > KS_LARGEST_BATCH - before) return KS_RECORD_TOO_LARGE;
    }
    return KS_OK;
}

#endif /* KAFKASCAN_WRITE_BATCH_H */
