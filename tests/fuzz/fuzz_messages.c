/* Decode messages into columns by programs (message_program.h).
 *
 * Input: 1 byte: the program, then messages, each after 2 bytes with its size. Checked: columns of
 * exactly the sizes that the first pass counts are filled, and both passes agree.
 */
#include "fuzz_input.h"
#include "message_program.h"
#include "message_programs.h"

enum { MOST_MESSAGES = 64 };

typedef struct message {
    uint8_t *data;
    int64_t size;
} message;

static int decode_all(ks_message_reader *reader, const fuzz_program *program,
                      const message *messages, int count, uint8_t *is_done) {
    int done = 0;
    for (int i = 0; i < count; i++) {
        is_done[i] = (uint8_t)ks_decode_message_columns(
            reader, program->code, program->size, program->columns, messages[i].data,
            messages[i].size, program->is_flexible, i & 1);
        REQUIRE(!is_done[i] || (reader->at >= messages[i].data && reader->at <= reader->limit));
        done += is_done[i];
    }
    return done;
}

static void fill(const fuzz_program *program, const ks_message_reader *counted,
                 const message *messages, int count, const uint8_t *is_done) {
    ks_message_column columns[KS_MESSAGE_COLUMNS] = {0};
    ks_message_reader *reader = fuzz_allocate(1, sizeof *reader);
    uint8_t again[MOST_MESSAGES];
    for (int i = 0; i < program->columns; i++) {
        size_t values = (size_t)counted->counts.values[i];
        size_t size = (size_t)counted->counts.sizes[i] + KS_MAX_SEQUENCE;
        columns[i].capacity = counted->counts.values[i];
        columns[i].is_valid = fuzz_allocate(values, 1);
        columns[i].ends = fuzz_allocate(values, sizeof(int32_t));
        if (program->widths[i]) {
            columns[i].values = fuzz_allocate(values, (size_t)program->widths[i]);
        }
        columns[i].data = fuzz_allocate(size, 1);
        columns[i].data_room = (int64_t)size;
    }
    reader->columns = columns;
    decode_all(reader, program, messages, count, again);
    REQUIRE(memcmp(is_done, again, (size_t)count) == 0);
    REQUIRE(memcmp(&reader->counts, &counted->counts, sizeof reader->counts) == 0);
    for (int i = 0; i < program->columns; i++) {
        free(columns[i].is_valid);
        free(columns[i].ends);
        free(columns[i].values);
        free(columns[i].data);
    }
    free(reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input input = {data, size};
    const fuzz_program *program = &fuzz_programs[fuzz_take(&input, 1) % FUZZ_PROGRAMS];
    message messages[MOST_MESSAGES];
    uint8_t is_done[MOST_MESSAGES];
    int count = 0;
    while (input.left > 0 && count < MOST_MESSAGES) {
        size_t some = (size_t)fuzz_take(&input, 2);
        if (some > input.left) some = input.left;
        fuzz_input part = {input.at, some};
        messages[count].data = fuzz_copy_rest(&part);
        messages[count++].size = (int64_t)some;
        input.at += some;
        input.left -= some;
    }
    ks_message_reader *reader = fuzz_allocate(1, sizeof *reader);
    decode_all(reader, program, messages, count, is_done);
    fill(program, reader, messages, count, is_done);
    free(reader);
    for (int i = 0; i < count; i++) free(messages[i].data);
    return 0;
}
