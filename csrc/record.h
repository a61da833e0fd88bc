/* Decode the records of one uncompressed batch into columns.
 *
 * The decoder accepts and rejects the same records as Kafka's readers (DefaultRecord.readFrom,
 * DefaultRecordBatch.RecordIterator, AbstractLegacyRecordBatch.DeepRecordsIterator). It accepts
 * any record attributes, offset deltas in any order, and negative sizes as null. It reads no byte
 * outside of the batch.
 */
#ifndef KAFKASCAN_RECORD_H
#define KAFKASCAN_RECORD_H

#include "batch_row.h"
#include "varint.h"

/* The output columns; a column that was not requested is NULL. Positions count from the start
 * of the buffer that contains the bytes of the batch; the size of a null is -1. */
typedef struct ks_record_columns {
    int32_t *batch;
    int64_t *offset;
    int64_t *timestamp;
    int64_t *key_position;
    int32_t *key_size;
    int64_t *value_position;
    int32_t *value_size;
    int64_t *headers_position;
    int32_t *headers_count;
} ks_record_columns;

/* The bytes of one batch: records (magic 2), entries of a wrapper, or a plain message. */
typedef struct ks_payload {
    const uint8_t *start;
    const uint8_t *limit;
    const uint8_t *buffer; /* positions count from here */
} ks_payload;

static inline void ks_put_bytes(int64_t *positions, int32_t *sizes, int64_t row, const uint8_t *p,
                                int32_t size, const uint8_t *buffer) {
    if (positions == NULL) return;
    positions[row] = p - buffer;
    sizes[row] = size < 0 ? -1 : size;
}

/* Steps over `size` bytes; a negative size is a null, which has none. */
static inline const uint8_t *ks_skip_bytes(const uint8_t *p, const uint8_t *limit, int32_t size) {
    if (size <= 0) return p;
    return size <= limit - p ? p + size : NULL;
}

/* Steps over the headers of a record; returns NULL and a status if they are invalid. */
static inline const uint8_t *ks_skip_headers(const uint8_t *p, const uint8_t *limit, int32_t count,
                                             int *status) {
    int32_t size;
    *status = KS_BAD_HEADER_COUNT;
    if (count < 0 || count > limit - p) return NULL;
    for (; count > 0; count--) {
        *status = KS_BAD_RECORD;
        p = ks_read_varint(p, limit, &size);
        if (p == NULL) return NULL;
        if (size < 0) {
            *status = KS_BAD_HEADER_KEY;
            return NULL;
        }
        p = ks_skip_bytes(p, limit, size);
        if (p == NULL) return NULL;
        p = ks_read_varint(p, limit, &size);
        if (p == NULL) return NULL;
        p = ks_skip_bytes(p, limit, size);
        if (p == NULL) return NULL;
    }
    *status = KS_OK;
    return p;
}

/* Key, value and headers of a record that ends at `limit`. */
static inline int ks_decode_body(const uint8_t *p, const uint8_t *limit, const uint8_t *buffer,
                                 int64_t row, const ks_record_columns *columns) {
    int32_t size, count;
    int status;
    p = ks_read_varint(p, limit, &size);
    if (p == NULL) return KS_BAD_RECORD;
    ks_put_bytes(columns->key_position, columns->key_size, row, p, size, buffer);
    p = ks_skip_bytes(p, limit, size);
    if (p == NULL) return KS_BAD_RECORD;
    p = ks_read_varint(p, limit, &size);
    if (p == NULL) return KS_BAD_RECORD;
    ks_put_bytes(columns->value_position, columns->value_size, row, p, size, buffer);
    p = ks_skip_bytes(p, limit, size);
    if (p == NULL) return KS_BAD_RECORD;
    p = ks_read_varint(p, limit, &count);
    if (p == NULL) return KS_BAD_RECORD;
    ks_put_bytes(columns->headers_position, columns->headers_count, row, p, count, buffer);
    if (count != 0) {
        p = ks_skip_headers(p, limit, count, &status);
        if (p == NULL) return status;
    }
    return p == limit ? KS_OK : KS_RECORD_SIZE_MISMATCH;
}

/* One record of magic 2; *p is moved to its end. With `in_full`, all of it is read and checked;
 * otherwise only the fields before the key, and the next record begins where `length` says.
 * (Kafka's PartialDefaultRecord checks sizes, but not `length`; see tests/oracle/test_skipping.py.)
 */
static inline int ks_decode_record(const uint8_t **p, const ks_payload *payload,
                                   const ks_batch_row *batch, int64_t row, int in_full,
                                   const ks_record_columns *columns) {
    const uint8_t *q = *p, *limit = payload->limit;
    int32_t length, offset_delta;
    int64_t timestamp_delta;
    if (q >= limit) return KS_RECORDS_MISSING;
    q = ks_read_varint(q, limit, &length);
    if (q == NULL) return KS_BAD_RECORD;
    if (length < 0) return KS_RECORD_SIZE_MISMATCH;
    if (length > limit - q) return KS_BAD_RECORD_SIZE;
    limit = q + length;
    if (q >= limit) return KS_BAD_RECORD;
    q++; /* attributes: unused, and not checked by Kafka either */
    q = ks_read_varlong(q, limit, &timestamp_delta);
    if (q == NULL) return KS_BAD_RECORD;
    q = ks_read_varint(q, limit, &offset_delta);
    if (q == NULL) return KS_BAD_RECORD;
    /* Overflow wraps around, as in Java. */
    if (columns->offset != NULL) {
        columns->offset[row] =
            (int64_t)((uint64_t)batch->base_offset + (uint64_t)(int64_t)offset_delta);
    }
    if (columns->timestamp != NULL) {
        columns->timestamp[row] =
            (batch->attributes & KS_TIMESTAMP_TYPE_BIT)
                ? batch->max_timestamp
                : (int64_t)((uint64_t)batch->base_timestamp + (uint64_t)timestamp_delta);
    }
    *p = limit;
    return in_full ? ks_decode_body(q, limit, payload->buffer, row, columns) : KS_OK;
}

/* `count` records of a batch of magic 2, from `row` on; *done counts them. The count is not
 * read from the batch's row, which another thread may change. */
static inline int ks_decode_batch(const ks_payload *payload, const ks_batch_row *batch,
                                  int32_t batch_number, int64_t row, int64_t count, int in_full,
                                  const ks_record_columns *columns, int64_t *done) {
    const uint8_t *p = payload->start;
    /* Local copies stay in registers: the compiler must assume that writes to columns change the
     * originals. */
    const ks_record_columns local = *columns;
    const ks_batch_row head = *batch;
    const ks_payload bytes = *payload;
    int64_t i;
    for (i = 0; i < count; i++) {
        __builtin_prefetch(p + 1024);
        local.batch[row + i] = batch_number;
        int status = ks_decode_record(&p, &bytes, &head, row + i, in_full, &local);
        if (status != KS_OK) {
            *done = i;
            return status;
        }
    }
    *done = i;
    /* Kafka reads no byte of a batch whose record count is 0. */
    return i > 0 && p != payload->limit ? KS_RECORDS_LEFT : KS_OK;
}

/* ---- magic 0 and 1 ---- */

/* Key and value of the message at p, whose size was checked. */
static inline int ks_decode_message(const uint8_t *p, const uint8_t *limit, int8_t magic,
                                    const uint8_t *buffer, int64_t row,
                                    const ks_record_columns *columns) {
    const uint8_t *q = p + (magic == 1 ? KS_V1_AT_key_size : KS_V0_AT_key_size);
    int32_t size;
    for (int field = 0; field < 2; field++) {
        if (limit - q < 4) return KS_BAD_RECORD;
        size = ks_load_i32(q);
        q += 4;
        if (field == 0) {
            ks_put_bytes(columns->key_position, columns->key_size, row, q, size, buffer);
        } else {
            ks_put_bytes(columns->value_position, columns->value_size, row, q, size, buffer);
        }
        q = ks_skip_bytes(q, limit, size);
        if (q == NULL) return KS_BAD_RECORD;
    }
    /* Trailing bytes of the message are ignored, as by Kafka. */
    ks_put_bytes(columns->headers_position, columns->headers_count, row, q, 0, buffer);
    return KS_OK;
}

/* An uncompressed message: a batch of one record. */
static inline int ks_decode_plain_message(const ks_payload *payload, const ks_batch_row *batch,
                                          int32_t batch_number, int64_t row,
                                          const ks_record_columns *columns) {
    columns->batch[row] = batch_number;
    if (columns->offset != NULL) columns->offset[row] = batch->base_offset;
    if (columns->timestamp != NULL) columns->timestamp[row] = batch->max_timestamp;
    return ks_decode_message(payload->start, payload->limit, batch->magic, payload->buffer, row,
                             columns);
}

/* The format of a message inside a wrapper: Kafka treats every magic but 0 as 1
 * (LegacyRecord.keySizeOffset). */
static inline int8_t ks_inner_layout(const uint8_t *p) { return p[KS_V0_AT_magic] != 0; }

/* The next message of a wrapper; *size is 0 after the last one. A truncated last message is
 * ignored, as by Kafka (DataLogInputStream). */
static inline int ks_next_entry(const uint8_t *p, const uint8_t *limit, int64_t *size) {
    *size = 0;
    if (limit - p < KS_LOG_OVERHEAD) return KS_OK;
    int32_t length = ks_load_i32(p + KS_V0_AT_message_size);
    if (length < KS_MIN_LENGTH_V0) return KS_INNER_TOO_SMALL;
    if (length > limit - p - KS_LOG_OVERHEAD) return KS_OK;
    if (length < ks_min_length(ks_inner_layout(p))) return KS_INNER_TOO_SMALL;
    if (p[KS_V0_AT_attributes] & KS_COMPRESSION_MASK) return KS_INNER_COMPRESSED;
    *size = (int64_t)length + KS_LOG_OVERHEAD;
    return KS_OK;
}

/* Counts the messages in a wrapper; *last_offset is the stored offset of the last one. */
static inline int ks_count_entries(const ks_payload *payload, int64_t *count,
                                   int64_t *last_offset) {
    const uint8_t *p = payload->start;
    int64_t size = 0;
    int status;
    *count = 0;
    *last_offset = 0;
    while ((status = ks_next_entry(p, payload->limit, &size)) == KS_OK && size > 0) {
        *last_offset = ks_load_i64(p + KS_V0_AT_offset);
        *count += 1;
        p += size;
    }
    if (status == KS_OK && *count == 0) return KS_NO_INNER_MESSAGES;
    return status;
}

/* All messages of a wrapper. In magic 1, the stored offsets are relative to the first message,
 * whose offset follows from the wrapper's offset and the last message; a wrapper offset of 0 was
 * written by clients that did not set it. */
static inline int ks_decode_wrapper(const ks_payload *payload, const ks_batch_row *batch,
                                    int32_t batch_number, int64_t row, int64_t count,
                                    const ks_record_columns *columns) {
    int64_t entries, last_inner, base = 0, size = 0;
    int status = ks_count_entries(payload, &entries, &last_inner);
    if (status != KS_OK) return status;
    if (entries != count) return KS_ROW_MISMATCH;
    if (batch->magic == 1 && batch->base_offset != 0) {
        if (batch->base_offset < last_inner) return KS_BAD_WRAPPER_OFFSET;
        base = (int64_t)((uint64_t)batch->base_offset - (uint64_t)last_inner);
    }
    int is_append_time = batch->magic == 1 && (batch->attributes & KS_TIMESTAMP_TYPE_BIT);
    const uint8_t *p = payload->start;
    for (; count > 0; count--, row++, p += size) {
        status = ks_next_entry(p, payload->limit, &size);
        if (status != KS_OK || size == 0) return KS_ROW_MISMATCH;
        int8_t layout = ks_inner_layout(p);
        columns->batch[row] = batch_number;
        if (columns->offset != NULL) {
            columns->offset[row] = (int64_t)((uint64_t)base + ks_load_u64(p + KS_V0_AT_offset));
        }
        if (columns->timestamp != NULL) {
            columns->timestamp[row] = layout == 0 ? -1
                                      : is_append_time && p[KS_V0_AT_magic] == 1
                                          ? batch->max_timestamp
                                          : ks_load_i64(p + KS_V1_AT_timestamp);
        }
        status = ks_decode_message(p, p + size, layout, payload->buffer, row, columns);
        if (status != KS_OK) return status;
    }
    return KS_OK;
}

#endif /* KAFKASCAN_RECORD_H */
