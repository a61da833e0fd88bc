/* Interleaved walks in one thread.
 *
 * A batch contains the length that leads to the next one, so a walk waits for memory at every
 * step. Chains are walks from several starts that take their steps alternately, so that the
 * waits overlap. A chain records positions only; the caller decides whether it is part of the
 * sequential walk (kafkascan/_core/batches.pyx).
 */
#ifndef KAFKASCAN_BATCH_CHAINS_H
#define KAFKASCAN_BATCH_CHAINS_H

#include "batch_row.h"

enum { KS_CHAINS = 8, KS_MAX_CHAIN_STEPS = 512 };

typedef struct ks_chains {
    int count;
    int64_t start[KS_CHAINS + 1];                   /* the last one: the end of all */
    int64_t position[KS_CHAINS];                    /* of the next batch of each */
    int64_t steps[KS_CHAINS];                       /* number of batches of each */
    int64_t visited[KS_CHAINS][KS_MAX_CHAIN_STEPS]; /* their positions */
} ks_chains;

/* One step of a chain; returns whether it took one. */
static inline int ks_step(ks_chains *chains, int i, int64_t step, const uint8_t *source,
                          int64_t source_size) {
    int64_t position = chains->position[i], size = 0;
    const uint8_t *p = source + position;
    if (ks_frame_batch(p, source_size - position, &size) != KS_OK) return 0;
    chains->visited[i][step] = position;
    __builtin_prefetch(p + size);
    __builtin_prefetch(p + size + KS_BATCH_HEADER_SIZE - 1);
    chains->position[i] = position + size;
    return 1;
}

/* Walks each chain until it reaches the start of the next one, has taken max_steps, or finds
 * bytes that are not a batch. */
static inline void ks_walk_chains(ks_chains *chains, const uint8_t *source, int64_t source_size,
                                  int64_t max_steps) {
    int64_t step = 0;
    unsigned stopped = 0, failed = 0;
    if (chains->count == KS_CHAINS) {
        /* While no chain has stopped: a loop over a fixed number of chains, unrolled, so that
         * the CPU's prefetchers distinguish the chains by instruction address. */
        for (; stopped == 0 && step < max_steps; step++) {
#pragma GCC unroll 16
            for (int i = 0; i < KS_CHAINS; i++) {
                int took_one = ks_step(chains, i, step, source, source_size);
                int is_done = !took_one | (chains->position[i] >= chains->start[i + 1]);
                failed |= (unsigned)!took_one << i;
                stopped |= (unsigned)is_done << i;
            }
        }
    }
    for (int i = 0; i < chains->count; i++) chains->steps[i] = step - ((failed >> i) & 1);

    /* The remaining chains. */
    unsigned all = (1u << chains->count) - 1;
    if (step == max_steps) stopped = all;
    while (stopped != all) {
        for (int i = 0; i < chains->count; i++) {
            if ((stopped >> i) & 1) continue;
            int took_one = ks_step(chains, i, chains->steps[i], source, source_size);
            chains->steps[i] += took_one;
            int is_done = !took_one | (chains->position[i] >= chains->start[i + 1]) |
                          (chains->steps[i] == max_steps);
            stopped |= (unsigned)is_done << i;
        }
    }
}

#endif /* KAFKASCAN_BATCH_CHAINS_H */
