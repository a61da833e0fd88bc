/* Batches from columns: the sizes of records, their bytes, and the headers around them.
 *
 * What is written is what Kafka's writers write (DefaultRecord.writeTo, LegacyRecord.write,
 * MemoryRecordsBuilder): record attributes of 0, numbers as short as they can be, messages of
 * magic 0 and 1 without anything behind their value. No byte outside of the room given is
 * written, whatever the columns say: they may change between sizing and writing.
 */
#ifndef KAFKASCAN_WRITE_BATCH_H
#define KAFKASCAN_WRITE_BATCH_H

#include "batch_row.h"
#include "crc32c.h"
#include "varint.h"

/* Bytes of any size, by number; a negative size is a null. Without sizes all are null. */
typedef struct ks_items {
    const uint8_t *const *data;
    const int32_t *size;
} ks_items;

typedef struct ks_records {
    const int64_t *offset;
    const int64_t *timestamp;
    ks_items key;
    ks_items value;
    const int64_t *header_starts; /* by record, and behind the last; NULL where none has any */
    ks_items header_key;
    ks_items header_value;
} ks_records;

/* Whole batches are as large as an int32 says, header included. */
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

/* Key, value and headers, with their sizes and number. */
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

/* What follows a record's length. */
static inline int64_t ks_size_of_body(int64_t content, int64_t timestamp_delta,
                                      int64_t offset_delta) {
    return 1 + ks_size_of_varlong(timestamp_delta) + ks_size_of_varlong(offset_delta) + content;
}

static inline int64_t ks_size_of_record(int64_t body) { return ks_size_of_varlong(body) + body; }

/* As Java subtracts: around the end of the type. */
static inline int64_t ks_delta(int64_t number, int64_t base) {
    return (int64_t)((uint64_t)number - (uint64_t)base);
}

/* Two moves that may overlap are faster than a call for what is as small as keys are. */
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

/* The same for an item that another byte of the record follows. */
static inline uint8_t *ks_write_sized_and_more(uint8_t *p, const ks_items *items, int64_t i) {
    int32_t size = ks_item_size(items, i);
    return ks_write_bytes(ks_write_varlong_and_more(p, size), ks_item_data(items, i), size);
}

/* What follows the length of a record without headers. */
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

/* Room for all of a record but its key and value, and for moving it by what its length takes. */
enum {
    KS_AROUND_ITEMS = 2 * KS_MAX_VARINT_SIZE + 2 + 2 * KS_MAX_VARLONG_SIZE + 2 * KS_MAX_VARINT_SIZE
};

/* The same as `ks_write_record` where there is room enough: how long it is needs no sum. */
static inline uint8_t *ks_write_roomy_record(uint8_t *p, const ks_records *records, int64_t i,
                                             int64_t timestamp_delta, int64_t offset_delta) {
    uint8_t *body = p + 2; /* what nearly all lengths take */
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

/* One record; returns the position behind it, or NULL if there is no room for it. */
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

/* Items may lie anywhere: those of a record some way ahead are asked for. */
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

/* What stands before the key; the checksum is left for later. */
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

/* One message that is not compressed. */
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

/* What stands before the records of a batch: nothing before a message that is not compressed,
 * the wrapper up to its value otherwise. */
static inline int64_t ks_size_before_records(int8_t magic, int is_compressed) {
    if (magic < 2 && !is_compressed) return 0;
    return ks_header_size(magic);
}

/* The records of one batch, as they are before compression; NULL if there is no room for them.
 * Of magic 1, the offsets in a wrapper count from the batch's. */
static inline uint8_t *ks_write_records(uint8_t *p, const uint8_t *limit, const ks_records *records,
                                        int64_t first, int64_t last, const ks_batch_row *batch,
                                        ks_crc_fn crc32) {
    if (batch->magic == 2) {
        /* Copies, which no byte that is written can change, stay in registers. */
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

/* The message around compressed ones: no key, and the last record's offset. */
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
    int64_t batch_size;     /* bytes that a batch may have before compression */
    int64_t batch_records;  /* records that a batch may have */
    int has_base_timestamp; /* deltas count from a time that is not the first record's */
    int64_t base_timestamp;
} ks_plan;

/* Headers that cannot be written, whatever the batch. */
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

/* The bytes that a record takes before compression. */
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

/* What asks nothing of the batch that a record comes into. */
static inline int ks_check_record(const ks_records *records, int64_t i, int8_t magic) {
    if (i > 0 && records->offset[i] <= records->offset[i - 1]) return KS_OFFSET_NOT_ABOVE;
    if (records->timestamp[i] < -1) return KS_NEGATIVE_TIMESTAMP;
    return ks_check_headers(records, i, magic);
}

/* Of the records from `first` on, before *last which a batch takes, and how many bytes they
 * have before compression. A first record is always taken. A status is about record *last. */
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
        int64_t delta = ks_delta(columns.offset[i], base_offset);
        if (delta < 0 || delta > INT32_MAX) break;
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

/* The bytes before compression of records whose batch is given; a status is about record
 * *last. Nothing is asked of timestamps: they may come from logs, where they are as they are. */
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
