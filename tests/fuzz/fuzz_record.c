/* Decode the records of one batch (record.h).
 *
 * Input: 1 byte of flags, 4 bytes: the number of records, 61 bytes: the batch header, then the
 * records. Checked: positions and sizes are inside of the data, and both ways to decode a batch
 * agree on offsets and timestamps.
 */
#include "fuzz_input.h"
#include "record.h"

enum { FLAG_WRAPPER = 1, FLAG_PLAIN = 2, FLAG_ALL_COLUMNS = 4 };

typedef struct columns {
    ks_record_columns all;
    int64_t capacity;
} columns;

static columns allocate_columns(int64_t capacity, int with_bytes) {
    size_t n = (size_t)capacity;
    columns c = {.capacity = capacity};
    c.all.batch = fuzz_allocate(n, sizeof(int32_t));
    c.all.offset = fuzz_allocate(n, sizeof(int64_t));
    c.all.timestamp = fuzz_allocate(n, sizeof(int64_t));
    if (!with_bytes) return c;
    c.all.key_position = fuzz_allocate(n, sizeof(int64_t));
    c.all.key_size = fuzz_allocate(n, sizeof(int32_t));
    c.all.value_position = fuzz_allocate(n, sizeof(int64_t));
    c.all.value_size = fuzz_allocate(n, sizeof(int32_t));
    c.all.headers_position = fuzz_allocate(n, sizeof(int64_t));
    c.all.headers_count = fuzz_allocate(n, sizeof(int32_t));
    return c;
}

static void free_columns(columns *c) {
    free(c->all.batch);
    free(c->all.offset);
    free(c->all.timestamp);
    free(c->all.key_position);
    free(c->all.key_size);
    free(c->all.value_position);
    free(c->all.value_size);
    free(c->all.headers_position);
    free(c->all.headers_count);
}

static void require_inside(int64_t position, int32_t size, int64_t limit) {
    REQUIRE(size >= -1 && position >= 0 && position <= limit);
    REQUIRE(size <= limit - position);
}

static void require_bytes_inside(const columns *c, int64_t count, int64_t size) {
    if (c->all.key_position == NULL) return;
    for (int64_t i = 0; i < count; i++) {
        require_inside(c->all.key_position[i], c->all.key_size[i], size);
        require_inside(c->all.value_position[i], c->all.value_size[i], size);
        /* Each header takes at least two bytes. */
        require_inside(c->all.headers_position[i], 2 * c->all.headers_count[i], size);
    }
}

static void decode_batch(const ks_payload *payload, const ks_batch_row *row, int64_t count,
                         int with_bytes) {
    int64_t done = -1, done_without = -1, size = payload->limit - payload->start;
    columns full = allocate_columns(count, with_bytes), partial = allocate_columns(count, 0);
    int status = ks_decode_batch(payload, row, 7, 0, count, 1, &full.all, &done);
    REQUIRE(done >= 0 && done <= count);
    REQUIRE(status != KS_OK || done == count);
    require_bytes_inside(&full, done, size);
    int without = ks_decode_batch(payload, row, 7, 0, count, 0, &partial.all, &done_without);
    REQUIRE(done_without >= 0 && done_without <= count);
    if (status == KS_OK) {
        REQUIRE(without == KS_OK);
        REQUIRE(memcmp(full.all.offset, partial.all.offset, (size_t)count * 8) == 0);
        REQUIRE(memcmp(full.all.timestamp, partial.all.timestamp, (size_t)count * 8) == 0);
    }
    free_columns(&full);
    free_columns(&partial);
}

static void decode_wrapper(const ks_payload *payload, const ks_batch_row *row, int with_bytes) {
    int64_t count = -1, last_offset, size = payload->limit - payload->start;
    int status = ks_count_entries(payload, &count, &last_offset);
    REQUIRE(count >= 0 && count * KS_MESSAGE_V0_MIN_SIZE <= size);
    columns c = allocate_columns(count, with_bytes);
    int decoded = ks_decode_wrapper(payload, row, 7, 0, count, &c.all);
    REQUIRE(status == KS_OK || decoded == status);
    if (decoded == KS_OK) require_bytes_inside(&c, count, size);
    free_columns(&c);
}

static void decode_plain(const ks_payload *payload, const ks_batch_row *row, int with_bytes) {
    int64_t size = payload->limit - payload->start;
    if (size < ks_header_size(row->magic)) return;
    columns c = allocate_columns(1, with_bytes);
    if (ks_decode_plain_message(payload, row, 7, 0, &c.all) == KS_OK) {
        require_bytes_inside(&c, 1, size);
    }
    free_columns(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input input = {data, size};
    uint8_t flags = (uint8_t)fuzz_take(&input, 1), header[KS_BATCH_HEADER_SIZE];
    int64_t count = (int64_t)fuzz_take(&input, 4);
    for (size_t i = 0; i < sizeof header; i++) header[i] = (uint8_t)fuzz_take(&input, 1);
    ks_batch_row row;
    ks_read_batch_row(header, sizeof header, 0, &row);
    uint8_t *records = fuzz_copy_rest(&input);
    ks_payload payload = {records, records + input.left, records};
    int with_bytes = (flags & FLAG_ALL_COLUMNS) != 0;
    if (flags & FLAG_WRAPPER) {
        row.magic = row.magic == 1;
        decode_wrapper(&payload, &row, with_bytes);
    } else if (flags & FLAG_PLAIN) {
        row.magic = row.magic == 1;
        decode_plain(&payload, &row, with_bytes);
    } else {
        /* Callers allocate no more records than fit into the bytes. */
        count %= (int64_t)input.left / KS_MIN_RECORD_SIZE + 2;
        decode_batch(&payload, &row, count, with_bytes);
    }
    free(records);
    return 0;
}
