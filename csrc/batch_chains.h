/* Interleaved walks in one thread.
 *
 * A batch contains the length that leads to the next one, so a walk waits for memory at every
 * step. Chains are walks from several starts that take their steps alternately, so that the
 * waits overlap. Each chain writes rows of its own; the caller decides whether they are part of the
 * sequential walk, and joins them (kafkascan/_core/batches.pyx).
 */
#ifndef KAFKASCAN_BATCH_CHAINS_H
#define KAFKASCAN_BATCH_CHAINS_H

#include "batch_row.h"

/* KS_CHAIN_BLOCK: rounds of steps before the rows of their batches are read. */
enum { KS_CHAINS = 12, KS_MAX_CHAIN_STEPS = 1024, KS_CHAIN_BLOCK = 32 };

typedef struct ks_chains {
    int count;
    int64_t max_steps;            /* of each chain: the room for its rows */
    int64_t start[KS_CHAINS + 1]; /* the last one: the end of all */
    int64_t position[KS_CHAINS];  /* of the next batch of each */
    int64_t steps[KS_CHAINS];     /* number of batches of each */
    ks_batch_row *rows[KS_CHAINS];
} ks_chains;

/* One step of a chain; writes the position of the batch, and returns whether there was one. */
static inline int ks_step(ks_chains *chains, int i, int64_t *at, const uint8_t *source,
                          int64_t source_size) {
    int64_t position = chains->position[i], size = 0;
    const uint8_t *p = source + position;
    if (ks_frame_batch(p, source_size - position, &size) != KS_OK) return 0;
    __builtin_prefetch(p + size);
    __builtin_prefetch(p + size + KS_BATCH_HEADER_SIZE - 1);
    *at = position;
    chains->position[i] = position + size;
    return 1;
}

static inline void ks_read_rows_at(const int64_t *at, int64_t count, const uint8_t *source,
                                   int64_t source_size, ks_batch_row *rows) {
    for (int64_t n = 0; n < count; n++)
        ks_read_batch_row(source + at[n], source_size - at[n], at[n], &rows[n]);
}

/* Takes steps of all chains until one stops; returns the bits of the stopped chains.
 *
 * The loop over a fixed number of chains is unrolled, so that the CPU's prefetchers distinguish
 * the chains by instruction address. Rows are read in blocks, while the headers are in the cache:
 * the fewer instructions lie between two prefetches, the more address translations overlap. */
static inline unsigned ks_walk_all_chains(ks_chains *chains, const uint8_t *source,
                                          int64_t source_size) {
    int64_t at[KS_CHAINS][KS_CHAIN_BLOCK], taken = 0;
    unsigned stopped = 0, failed = 0;
    while (stopped == 0 && taken < chains->max_steps) {
        int64_t rest = chains->max_steps - taken, n = 0;
        int64_t most = rest < KS_CHAIN_BLOCK ? rest : KS_CHAIN_BLOCK;
        for (; stopped == 0 && n < most; n++) {
#pragma GCC unroll 16
            for (int i = 0; i < KS_CHAINS; i++) {
                int took_one = ks_step(chains, i, &at[i][n], source, source_size);
                int is_done = !took_one | (chains->position[i] >= chains->start[i + 1]);
                failed |= (unsigned)!took_one << i;
                stopped |= (unsigned)is_done << i;
            }
        }
        for (int i = 0; i < KS_CHAINS; i++) {
            int64_t count = n - ((failed >> i) & 1);
            ks_read_rows_at(at[i], count, source, source_size, chains->rows[i] + taken);
            chains->steps[i] += count;
        }
        taken += n;
    }
    return stopped;
}

/* Walks each chain until it reaches the start of the next one, has taken max_steps, or finds
 * bytes that are not a batch. */
static inline void ks_walk_chains(ks_chains *chains, const uint8_t *source, int64_t source_size) {
    unsigned stopped = 0, all = (1u << chains->count) - 1;
    if (chains->count == KS_CHAINS) stopped = ks_walk_all_chains(chains, source, source_size);
    for (int i = 0; i < chains->count; i++)
        stopped |= (unsigned)(chains->steps[i] >= chains->max_steps) << i;
    while (stopped != all) {
        for (int i = 0; i < chains->count; i++) {
            if ((stopped >> i) & 1) continue;
            int64_t at = 0;
            int took_one = ks_step(chains, i, &at, source, source_size);
            ks_read_rows_at(&at, took_one, source, source_size, chains->rows[i] + chains->steps[i]);
            chains->steps[i] += took_one;
            int is_done = !took_one | (chains->position[i] >= chains->start[i + 1]) |
                          (chains->steps[i] == chains->max_steps);
            stopped |= (unsigned)is_done << i;
        }
    }
}

#endif /* KAFKASCAN_BATCH_CHAINS_H */
