/* The lines of batches of magic 2 and of their records, as `DumpLogSegments` prints them.
 *
 * One loop decodes a record and writes its line, without columns between them. A pause is between
 * two lines only: the largest size of a line is known before it is written.
 */
#ifndef KAFKASCAN_DUMPED_BATCHES_H
#define KAFKASCAN_DUMPED_BATCHES_H

#include "batch_row.h"
#include "java_text.h"
#include "record.h"

enum {
    /* All that a line contains besides texts, and what a copy of a text keeps free. */
    KS_HEAD_ROOM = 1024,
    KS_RECORD_ROOM = 512,
    /* Most bytes of a text for each byte of a record. */
    KS_TEXT_GROWTH = KS_REPLACEMENT_SIZE,
};

typedef struct ks_batch_dump {
    /* The output, up to `room`. */
    uint8_t *out;
    const uint8_t *room;
    /* The batches, whether their checksums are right, and the records of each. */
    const ks_batch_row *rows;
    const uint8_t *is_valid;
    const ks_payload *payloads;
    int64_t row;
    int64_t stop;
    int prints_metadata;
    int prints_data;
    /* The place of a pause in a batch whose line is written. */
    int is_begun;
    int64_t record;
    const uint8_t *at;
    /* Bytes that the next line needs at most. */
    int64_t needed;
    /* Offsets of the records, and pairs of them that do not follow each other. */
    int64_t offsets_count;
    int64_t first_offset;
    int64_t last_offset;
    int64_t *gaps;
    int64_t gaps_count;
    int64_t gaps_room;
} ks_batch_dump;

typedef struct ks_dumped_record {
    int32_t batch;
    int64_t offset;
    int64_t timestamp;
    int64_t key_position;
    int32_t key_size;
    int64_t value_position;
    int32_t value_size;
    int64_t headers_position;
    int32_t headers_count;
} ks_dumped_record;

#define KS_PUT(out, text) (memcpy((out), (text), sizeof(text) - 1), (out) + sizeof(text) - 1)

static inline uint8_t *ks_put_number(uint8_t *out, const char *name, size_t size, int64_t number) {
    memcpy(out, name, size);
    return ks_write_decimal(out + size, number);
}
#define KS_PUT_NUMBER(out, name, number) ks_put_number((out), (name), sizeof(name) - 1, (number))

static inline uint8_t *ks_put_boolean(uint8_t *out, int is_true) {
    return is_true ? KS_PUT(out, "true") : KS_PUT(out, "false");
}

static inline uint8_t *ks_put_timestamp_type(uint8_t *out, const ks_batch_row *row) {
    return row->attributes & KS_TIMESTAMP_TYPE_BIT ? KS_PUT(out, " LogAppendTime: ")
                                                   : KS_PUT(out, " CreateTime: ");
}

static inline uint8_t *ks_put_codec(uint8_t *out, const ks_batch_row *row) {
    switch (row->attributes & KS_COMPRESSION_MASK) {
        case 0:
            return KS_PUT(out, "none");
        case 1:
            return KS_PUT(out, "gzip");
        case 2:
            return KS_PUT(out, "snappy");
        case 3:
            return KS_PUT(out, "lz4");
        default:
            return KS_PUT(out, "zstd");
    }
}

/* `DefaultRecordBatch.incrementSequence`, with the arithmetic of Java's int. */
static inline int32_t ks_sequence_after(int32_t base, int32_t delta) {
    int32_t room = (int32_t)((int64_t)INT32_MAX - delta);
    if (base > room) return (int32_t)((int64_t)delta - ((int64_t)INT32_MAX - base) - 1);
    return (int32_t)((int64_t)base + delta);
}

static inline uint8_t *ks_put_head(uint8_t *out, const ks_batch_row *row, int is_valid) {
    int64_t last_offset =
        (int64_t)((uint64_t)row->base_offset + (uint64_t)(int64_t)row->last_offset_delta);
    int32_t base_sequence = row->base_sequence;
    out = KS_PUT_NUMBER(out, "baseOffset: ", row->base_offset);
    out = KS_PUT_NUMBER(out, " lastOffset: ", last_offset);
    out = KS_PUT_NUMBER(out, " count: ", row->records_count);
    out = KS_PUT_NUMBER(out, " baseSequence: ", base_sequence);
    out = KS_PUT_NUMBER(
        out, " lastSequence: ",
        base_sequence == -1 ? -1 : ks_sequence_after(base_sequence, row->last_offset_delta));
    out = KS_PUT_NUMBER(out, " producerId: ", row->producer_id);
    out = KS_PUT_NUMBER(out, " producerEpoch: ", row->producer_epoch);
    out = KS_PUT_NUMBER(out, " partitionLeaderEpoch: ", row->partition_leader_epoch);
    out = KS_PUT(out, " isTransactional: ");
    out = ks_put_boolean(out, row->attributes & KS_TRANSACTIONAL_BIT);
    out = KS_PUT(out, " isControl: ");
    out = ks_put_boolean(out, row->attributes & KS_CONTROL_BIT);
    /* A horizon of -1 counts as none in `delete_horizon_ms`, too. */
    if ((row->attributes & KS_DELETE_HORIZON_BIT) && row->base_timestamp != -1) {
        out = KS_PUT_NUMBER(out, " deleteHorizonMs: OptionalLong[", row->base_timestamp);
        out = KS_PUT(out, "]");
    } else {
        out = KS_PUT(out, " deleteHorizonMs: OptionalLong.empty");
    }
    out = KS_PUT_NUMBER(out, " position: ", row->position);
    out = ks_put_timestamp_type(out, row);
    out = ks_write_decimal(out, row->max_timestamp);
    out = KS_PUT_NUMBER(out, " size: ", (int64_t)row->batch_length + KS_LOG_OVERHEAD);
    out = KS_PUT_NUMBER(out, " magic: ", row->magic);
    out = KS_PUT(out, " compresscodec: ");
    out = ks_put_codec(out, row);
    out = KS_PUT_NUMBER(out, " crc: ", (int64_t)row->crc);
    out = KS_PUT(out, " isvalid: ");
    out = ks_put_boolean(out, is_valid);
    return KS_PUT(out, "\n");
}

static inline uint8_t *ks_put_text(uint8_t *out, const uint8_t *room, const uint8_t *p,
                                   int64_t size) {
    ks_copy_java_text(&p, p + size, &out, room);
    return out;
}

/* The keys of headers that end at `limit`. Another process may have changed them after they were
 * checked: so they are checked again, and a line ends early. */
static inline uint8_t *ks_put_header_keys(uint8_t *out, const uint8_t *room, const uint8_t *p,
                                          const uint8_t *limit, int32_t count) {
    int32_t size;
    for (int32_t i = 0; i < count; i++) {
        p = ks_read_varint(p, limit, &size);
        if (p == NULL || size < 0 || size > limit - p) return out;
        if (i > 0) out = KS_PUT(out, ",");
        out = ks_put_text(out, room, p, size);
        p = ks_read_varint(p + size, limit, &size);
        if (p == NULL) return out;
        p = ks_skip_bytes(p, limit, size);
        if (p == NULL) return out;
    }
    return out;
}

static inline uint8_t *ks_put_metadata(uint8_t *out, const ks_batch_row *row,
                                       const ks_dumped_record *record) {
    int32_t delta = (int32_t)((uint64_t)record->offset - (uint64_t)row->base_offset);
    out = KS_PUT_NUMBER(out, "| offset: ", record->offset);
    out = ks_put_timestamp_type(out, row);
    out = ks_write_decimal(out, record->timestamp);
    out = KS_PUT_NUMBER(out, " keySize: ", record->key_size);
    out = KS_PUT_NUMBER(out, " valueSize: ", record->value_size);
    return KS_PUT_NUMBER(
        out,
        " sequence: ", row->base_sequence < 0 ? -1 : ks_sequence_after(row->base_sequence, delta));
}

/* Key and value; without metadata, a bar is before what is printed first. */
static inline uint8_t *ks_put_data(const ks_batch_dump *dump, uint8_t *out, const uint8_t *buffer,
                                   const ks_dumped_record *record) {
    int needs_bar = !dump->prints_metadata;
    if (record->key_size >= 0) {
        if (needs_bar) out = KS_PUT(out, "|");
        needs_bar = 0;
        out = KS_PUT(out, " key: ");
        out = ks_put_text(out, dump->room, buffer + record->key_position, record->key_size);
    }
    if (record->value_size >= 0) {
        if (needs_bar) out = KS_PUT(out, "|");
        out = KS_PUT(out, " payload: ");
        out = ks_put_text(out, dump->room, buffer + record->value_position, record->value_size);
    }
    return out;
}

/* Whether a control record is the marker of a transaction's end, in the only known versions. */
static inline int ks_is_end_marker(const uint8_t *buffer, const ks_dumped_record *record) {
    const uint8_t *key = buffer + record->key_position, *value = buffer + record->value_position;
    return record->key_size == 4 && record->value_size == 6 && key[0] == 0 && key[1] == 0 &&
           key[2] == 0 && key[3] <= 1 && value[0] == 0 && value[1] == 0;
}

static inline uint8_t *ks_put_end_marker(uint8_t *out, const uint8_t *buffer,
                                         const ks_dumped_record *record) {
    out = KS_PUT(out, " endTxnMarker: ");
    out = buffer[record->key_position + 3] ? KS_PUT(out, "COMMIT") : KS_PUT(out, "ABORT");
    return KS_PUT_NUMBER(out,
                         " coordinatorEpoch: ", ks_load_i32(buffer + record->value_position + 2));
}

static inline uint8_t *ks_put_record(const ks_batch_dump *dump, const ks_batch_row *row,
                                     const ks_payload *payload, const uint8_t *limit,
                                     const ks_dumped_record *record) {
    uint8_t *out = dump->out;
    const uint8_t *buffer = payload->buffer;
    if (dump->prints_metadata) {
        out = ks_put_metadata(out, row, record);
        out = KS_PUT(out, " headerKeys: [");
        out = ks_put_header_keys(out, dump->room, buffer + record->headers_position, limit,
                                 record->headers_count);
        out = KS_PUT(out, "]");
        /* Checked again: another process may have changed it. */
        if ((row->attributes & KS_CONTROL_BIT) && ks_is_end_marker(buffer, record)) {
            out = ks_put_end_marker(out, buffer, record);
        }
    }
    if (dump->prints_data && !(row->attributes & KS_CONTROL_BIT)) {
        out = ks_put_data(dump, out, buffer, record);
    }
    return KS_PUT(out, "\n");
}

static inline int ks_dump_decode(const uint8_t **p, const ks_payload *payload,
                                 const ks_batch_row *row, ks_dumped_record *record) {
    const ks_record_columns columns = {
        &record->batch,        &record->offset,           &record->timestamp,
        &record->key_position, &record->key_size,         &record->value_position,
        &record->value_size,   &record->headers_position, &record->headers_count,
    };
    return ks_decode_record(p, payload, row, 0, 1, &columns);
}

static inline void ks_note_offset(ks_batch_dump *dump, int64_t offset) {
    if (dump->offsets_count == 0) {
        dump->first_offset = offset;
    } else if (offset != (int64_t)((uint64_t)dump->last_offset + 1)) {
        dump->gaps[2 * dump->gaps_count] = dump->last_offset;
        dump->gaps[2 * dump->gaps_count + 1] = offset;
        dump->gaps_count++;
    }
    dump->last_offset = offset;
    dump->offsets_count++;
}

/* Whether a line of so many bytes fits, and a gap in front of it. */
static inline int ks_fits(ks_batch_dump *dump, int64_t size) {
    dump->needed = size;
    return dump->room - dump->out >= size && dump->gaps_count < dump->gaps_room;
}

/* Writes the rest of a batch's records; KS_OUTPUT_FULL is a pause, other errors are those of the
 * record that is next. */
static inline int ks_dump_records(ks_batch_dump *dump, const ks_batch_row *row) {
    const ks_payload payload = dump->payloads[dump->row];
    const ks_batch_row head = *row;
    ks_dumped_record record;
    while (dump->record < head.records_count) {
        const uint8_t *p = dump->at;
        __builtin_prefetch(p + 1024);
        int status = ks_dump_decode(&p, &payload, &head, &record);
        if (status != KS_OK) return status;
        if (!ks_fits(dump, KS_TEXT_GROWTH * (int64_t)(p - dump->at) + KS_RECORD_ROOM)) {
            return KS_OUTPUT_FULL;
        }
        /* As Kafka, which returns the last record only if no bytes are left. */
        if (dump->record + 1 == head.records_count && p != payload.limit) return KS_RECORDS_LEFT;
        ks_note_offset(dump, record.offset);
        dump->out = ks_put_record(dump, &head, &payload, p, &record);
        dump->at = p;
        dump->record++;
    }
    return head.records_count < 0 ? KS_BAD_RECORD_COUNT : KS_OK;
}

/* Decodes all records of a batch. */
static inline int ks_check_records(const ks_batch_row *row, const ks_payload *payload) {
    const ks_payload local = *payload;
    const ks_batch_row head = *row;
    ks_dumped_record record;
    const uint8_t *p = local.start;
    for (int64_t i = 0; i < head.records_count; i++) {
        int status = ks_dump_decode(&p, &local, &head, &record);
        if (status != KS_OK) return status;
    }
    return head.records_count > 0 && p != local.limit ? KS_RECORDS_LEFT : KS_OK;
}

/* Whether a control batch is one marker of a transaction's end. */
static inline int ks_is_usual_control(const ks_batch_row *row, const ks_payload *payload) {
    ks_dumped_record record;
    const uint8_t *p = payload->start;
    return row->records_count == 1 && ks_dump_decode(&p, payload, row, &record) == KS_OK &&
           ks_is_end_marker(payload->buffer, &record);
}

/* Writes the lines of batches. KS_OK: all are written, or the batch of `row` is left to others. */
static inline int ks_dump_batches(ks_batch_dump *dump) {
    for (; dump->row < dump->stop; dump->row++) {
        const ks_batch_row *row = dump->rows + dump->row;
        const ks_payload *payload = dump->payloads + dump->row;
        if (!dump->is_begun) {
            int is_control = (row->attributes & KS_CONTROL_BIT) != 0;
            if (is_control && !ks_is_usual_control(row, payload)) return KS_OK;
            if (!ks_fits(dump, KS_HEAD_ROOM)) return KS_OUTPUT_FULL;
            dump->out = ks_put_head(dump->out, row, dump->is_valid[dump->row]);
            dump->is_begun = 1;
            dump->record = 0;
            dump->at = payload->start;
            /* Kafka decodes compressed batches as a whole, and others record by record. */
            if (row->attributes & KS_COMPRESSION_MASK) {
                int status = ks_check_records(row, payload);
                if (status != KS_OK) return status;
            }
        }
        int status = ks_dump_records(dump, row);
        if (status != KS_OK) return status;
        dump->is_begun = 0;
    }
    return KS_OK;
}

#endif /* KAFKASCAN_DUMPED_BATCHES_H */
