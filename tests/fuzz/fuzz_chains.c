/* Walk several chains of batches at once (batch_chains.h).
 *
 * Input: 1 byte: the number of chains, 2 bytes: the number of steps, 2 bytes for each start, then
 * the log. Checked: each chain writes exactly the rows of a plain walk from its start.
 */
#include "batch_chains.h"
#include "fuzz_input.h"

/* Follows one chain with a plain walk, and returns where that ends. */
static int64_t walk_plainly(const ks_chains *chains, int i, const uint8_t *data, int64_t size) {
    int64_t position = chains->start[i], batch_size = 0;
    for (int64_t step = 0; step < chains->steps[i]; step++) {
        REQUIRE(position < chains->start[i + 1]);
        REQUIRE(ks_frame_batch(data + position, size - position, &batch_size) == KS_OK);
        ks_batch_row row;
        ks_read_batch_row(data + position, size - position, position, &row);
        REQUIRE(row.position == position && row.batch_length + KS_LOG_OVERHEAD == batch_size);
        REQUIRE(memcmp(&chains->rows[i][step], &row, sizeof row) == 0);
        position += batch_size;
    }
    return position;
}

static void require_plain_walks(const ks_chains *chains, const uint8_t *data, int64_t size) {
    for (int i = 0; i < chains->count; i++) {
        int64_t batch_size = 0;
        REQUIRE(chains->steps[i] >= 0 && chains->steps[i] <= chains->max_steps);
        int64_t position = walk_plainly(chains, i, data, size);
        REQUIRE(chains->position[i] == position && position <= size);
        /* Each chain has a reason to stop. */
        REQUIRE(chains->steps[i] == chains->max_steps || position >= chains->start[i + 1] ||
                ks_frame_batch(data + position, size - position, &batch_size) != KS_OK);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input input = {data, size};
    ks_chains chains = {.count = 1 + (int)fuzz_take(&input, 1) % KS_CHAINS};
    chains.max_steps = 1 + (int64_t)fuzz_take(&input, 2) % KS_MAX_CHAIN_STEPS;
    int64_t distance[KS_CHAINS];
    for (int i = 0; i < chains.count; i++) distance[i] = (int64_t)fuzz_take(&input, 2);
    int64_t limit = (int64_t)input.left, start = 0;
    if (limit < chains.count) return 0;
    for (int i = 0; i < chains.count; i++) {
        chains.start[i] = chains.position[i] = start;
        /* Starts ascend, and each chain has at least one byte. */
        int64_t spare = limit - start - (chains.count - i);
        start += 1 + (spare > 0 ? distance[i] % (spare + 1) : 0);
    }
    chains.start[chains.count] = start;
    uint8_t *log = fuzz_copy_rest(&input);
    /* Exactly the room that each chain may use. */
    size_t room = (size_t)(chains.count * chains.max_steps);
    ks_batch_row *rows = malloc(room * sizeof *rows);
    REQUIRE(rows != NULL);
    for (int i = 0; i < chains.count; i++) chains.rows[i] = rows + i * chains.max_steps;
    ks_walk_chains(&chains, log, limit);
    require_plain_walks(&chains, log, limit);
    free(rows);
    free(log);
    return 0;
}
