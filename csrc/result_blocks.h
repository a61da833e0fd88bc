/* Blocks of memory for results, which are used again when they are free.
 *
 * A fault of a fresh 4 KiB page takes longer than filling the page, and threads that fault in one
 * address space wait for each other. Blocks from 1 MiB on are aligned to 2 MiB and ask for large
 * pages. Smaller ones are in a pool of their own, in pages of 4 KiB: in a large page, a result
 * would keep more memory than it needs. Where the system has no large pages, or an address
 * sanitizer checks every allocation, there are no blocks: callers allocate as usual.
 */
#ifndef KAFKASCAN_RESULT_BLOCKS_H
#define KAFKASCAN_RESULT_BLOCKS_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#include "large_pages.h"

/* The smallest block in large pages. */
#define KS_LEAST_LARGE ((int64_t)1 << 20)
#define KS_LARGEST_BLOCK ((int64_t)1 << 46)
/* Free blocks of a pool, and their bytes in both pools. */
#define KS_FREE_BLOCKS 32
#define KS_FREE_LARGE ((int64_t)1 << 26)
#define KS_FREE_SMALL ((int64_t)1 << 23)
#define KS_SMALL_UNIT_BITS 16

#if defined(__SANITIZE_ADDRESS__)
#define KS_HAS_BLOCKS 0
#elif defined(MADV_HUGEPAGE) && defined(MADV_FREE)
#define KS_HAS_BLOCKS 1
#else
#define KS_HAS_BLOCKS 0
#endif
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#undef KS_HAS_BLOCKS
#define KS_HAS_BLOCKS 0
#endif
#endif

#if KS_HAS_BLOCKS

/* Blocks of one kind, which consist of units. Of a free block, a slot has the address, and the
 * number of units in the low bits. A slot changes hands by one atomic operation, so that no lock is
 * held when another thread forks. */
typedef struct {
    int unit_bits;
    int64_t most_free; /* bytes */
    int64_t free_bytes;
    uint64_t next_slot;
    uint64_t slots[KS_FREE_BLOCKS];
} ks_pool;

static ks_pool ks_large_blocks = {.unit_bits = KS_LARGE_PAGE_BITS, .most_free = KS_FREE_LARGE};
static ks_pool ks_small_blocks = {.unit_bits = KS_SMALL_UNIT_BITS, .most_free = KS_FREE_SMALL};
static int ks_is_refused;

static inline ks_pool *ks_pool_of(int64_t size) {
    return size < KS_LEAST_LARGE ? &ks_small_blocks : &ks_large_blocks;
}

static inline int64_t ks_unit(const ks_pool *pool) { return (int64_t)1 << pool->unit_bits; }

/* Units that hold so many bytes. */
static inline int64_t ks_units(const ks_pool *pool, int64_t size) {
    return (size + ks_unit(pool) - 1) >> pool->unit_bits;
}

static inline size_t ks_bytes_of(const ks_pool *pool, int64_t units) {
    return (size_t)(units << pool->unit_bits);
}

static inline uint8_t *ks_slot_start(const ks_pool *pool, uint64_t slot) {
    return (uint8_t *)(uintptr_t)(slot & ~(uint64_t)(ks_unit(pool) - 1));
}

static inline int64_t ks_slot_units(const ks_pool *pool, uint64_t slot) {
    return (int64_t)(slot & (uint64_t)(ks_unit(pool) - 1));
}

/* The bytes of a block in large pages: those where at least half of one is used. So a result takes
 * less than half of a large page more than its size. */
static inline size_t ks_large_part(int64_t used) {
    const int64_t page = (int64_t)KS_LARGE_PAGE;
    return used < KS_LEAST_LARGE ? 0 : (size_t)((used + page / 2) & -page);
}

static inline void ks_count_free(ks_pool *pool, int64_t units) {
    __atomic_fetch_add(&pool->free_bytes, units << pool->unit_bits, __ATOMIC_RELAXED);
}

/* Unmaps the block that was taken out of a slot, if any. */
static inline void ks_drop_slot(ks_pool *pool, uint64_t slot) {
    if (slot == 0) return;
    ks_count_free(pool, -ks_slot_units(pool, slot));
    munmap(ks_slot_start(pool, slot), ks_bytes_of(pool, ks_slot_units(pool, slot)));
}

static inline void ks_empty_pool(ks_pool *pool) {
    for (int i = 0; i < KS_FREE_BLOCKS; i++) {
        ks_drop_slot(pool, __atomic_exchange_n(&pool->slots[i], 0, __ATOMIC_ACQ_REL));
    }
}

/* Unmaps all free blocks. Before a fork, so that neither process copies their pages. */
static void ks_drop_free_blocks(void) {
    ks_empty_pool(&ks_large_blocks);
    ks_empty_pool(&ks_small_blocks);
}

/* Adds a block to the free ones; the oldest of them are unmapped above the limits. The system may
 * take the memory of large free blocks where it is short of it. */
static inline void ks_free_block(ks_pool *pool, uint8_t *start, int64_t units, int64_t used) {
    size_t large = ks_large_part(used);
    uint64_t oldest;
    if ((int64_t)ks_bytes_of(pool, units) > pool->most_free) {
        munmap(start, ks_bytes_of(pool, units));
        return;
    }
    if (large > 0) madvise(start, large, MADV_FREE);
    ks_count_free(pool, units);
    oldest = __atomic_fetch_add(&pool->next_slot, 1, __ATOMIC_RELAXED);
    ks_drop_slot(
        pool, __atomic_exchange_n(&pool->slots[oldest % KS_FREE_BLOCKS],
                                  (uint64_t)(uintptr_t)start | (uint64_t)units, __ATOMIC_ACQ_REL));
    for (int i = 1; i < KS_FREE_BLOCKS; i++) {
        if (__atomic_load_n(&pool->free_bytes, __ATOMIC_RELAXED) <= pool->most_free) return;
        ks_drop_slot(pool, __atomic_exchange_n(&pool->slots[(oldest + i) % KS_FREE_BLOCKS], 0,
                                               __ATOMIC_ACQ_REL));
    }
}

/* The smallest free block with at least so many units; 0 if there is none. Of several, it is the
 * one that was freed last, which may still be in a cache of the CPU. */
static inline uint64_t ks_smallest_free(ks_pool *pool, int64_t units) {
    for (;;) {
        uint64_t newest = __atomic_load_n(&pool->next_slot, __ATOMIC_RELAXED) - 1, found = 0;
        uint64_t *at = NULL;
        for (uint64_t i = 0; i < KS_FREE_BLOCKS; i++) {
            uint64_t *place = &pool->slots[(newest - i) % KS_FREE_BLOCKS];
            uint64_t slot = __atomic_load_n(place, __ATOMIC_ACQUIRE);
            int64_t size = ks_slot_units(pool, slot);
            if (size >= units && (found == 0 || size < ks_slot_units(pool, found))) {
                found = slot;
                at = place;
            }
        }
        if (found == 0 ||
            __atomic_compare_exchange_n(at, &found, 0, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
            return found;
        }
    }
}

static inline uint8_t *ks_reuse_block(ks_pool *pool, int64_t units) {
    uint64_t slot = ks_smallest_free(pool, units);
    uint8_t *start = ks_slot_start(pool, slot);
    int64_t rest = ks_slot_units(pool, slot) - units;
    if (slot == 0) return NULL;
    ks_count_free(pool, -ks_slot_units(pool, slot));
    if (rest > 0) ks_free_block(pool, start + ks_bytes_of(pool, units), rest, 0);
    return start;
}

static inline uint8_t *ks_map_block(const ks_pool *pool, int64_t units) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    const int64_t unit = ks_unit(pool);
    size_t size = ks_bytes_of(pool, units), room = size + (size_t)unit, before;
    uint8_t *start = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (start == MAP_FAILED) return NULL;
    if (((uintptr_t)start & (uintptr_t)(unit - 1)) == 0) return start;
    munmap(start, size);
    start = mmap(NULL, room, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (start == MAP_FAILED) return NULL;
    before = (size_t)(-(uintptr_t)start & (uintptr_t)(unit - 1));
    if (before > 0) munmap(start, before);
    if (room - before > size) munmap(start + before + size, room - before - size);
    return start + before;
}

/* Memory for a result of a size, aligned to a unit; NULL if there is none. Its content is
 * undefined. */
static inline uint8_t *ks_take_block(int64_t size) {
    ks_pool *pool = ks_pool_of(size);
    int64_t units = ks_units(pool, size);
    size_t large = ks_large_part(size);
    uint8_t *start;
    if (size <= 0 || size > KS_LARGEST_BLOCK) return NULL;
    if (__atomic_load_n(&ks_is_refused, __ATOMIC_RELAXED)) return NULL;
    start = ks_reuse_block(pool, units);
    if (start == NULL) start = ks_map_block(pool, units);
    if (start == NULL) return NULL;
    if (large > 0 && !ks_want_large_pages(start, large)) {
        __atomic_store_n(&ks_is_refused, 1, __ATOMIC_RELAXED);
        munmap(start, ks_bytes_of(pool, units));
        return NULL;
    }
    return start;
}

static inline void ks_give_back_block(uint8_t *start, int64_t size) {
    ks_pool *pool = ks_pool_of(size);
    ks_free_block(pool, start, ks_units(pool, size), size);
}

/* Gives back the memory of a large block after a number of bytes, which are still used; its
 * addresses stay valid. */
static inline void ks_forget_rest(uint8_t *start, int64_t size, int64_t used) {
    ks_pool *pool = ks_pool_of(size);
    int64_t kept = ks_units(pool, used), units = ks_units(pool, size);
    if (pool == &ks_small_blocks || kept >= units) return;
    madvise(start + ks_bytes_of(pool, kept), ks_bytes_of(pool, units - kept), MADV_DONTNEED);
}

static inline int64_t ks_bytes_of_free_blocks(void) {
    return __atomic_load_n(&ks_large_blocks.free_bytes, __ATOMIC_RELAXED) +
           __atomic_load_n(&ks_small_blocks.free_bytes, __ATOMIC_RELAXED);
}

static inline int ks_start_blocks(void) { return pthread_atfork(ks_drop_free_blocks, NULL, NULL); }

#else

static inline uint8_t *ks_take_block(int64_t size) {
    (void)size;
    return NULL;
}

static inline void ks_give_back_block(uint8_t *start, int64_t size) {
    (void)start;
    (void)size;
}

static inline void ks_forget_rest(uint8_t *start, int64_t size, int64_t used) {
    (void)start;
    (void)size;
    (void)used;
}

static inline int64_t ks_bytes_of_free_blocks(void) { return 0; }

static inline void ks_drop_free_blocks(void) {}

static inline int ks_start_blocks(void) { return 0; }

#endif

#endif /* KAFKASCAN_RESULT_BLOCKS_H */
