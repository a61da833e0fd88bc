/* Blocks of memory for large results, in large pages.
 *
 * A fault of a fresh 4 KiB page takes longer than filling the page, and threads that fault in one
 * address space wait for each other. So a block is aligned to 2 MiB, asks for large pages, and is
 * used again when it is free. Where the system has no large pages, or an address sanitizer checks
 * every allocation, there are no blocks: callers allocate as usual.
 */
#ifndef KAFKASCAN_RESULT_BLOCKS_H
#define KAFKASCAN_RESULT_BLOCKS_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#include "large_pages.h"

/* Blocks consist of units of the size of a large page. */
#define KS_UNIT_BITS KS_LARGE_PAGE_BITS
#define KS_UNIT ((int64_t)KS_LARGE_PAGE)
/* Free blocks of the process, and their bytes. */
#define KS_FREE_BLOCKS 32
#define KS_FREE_BYTES ((int64_t)1 << 26)
#define KS_LARGEST_BLOCK ((int64_t)1 << 46)

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

/* Units that hold so many bytes. */
static inline int64_t ks_units(int64_t size) { return (size + KS_UNIT - 1) >> KS_UNIT_BITS; }

#if KS_HAS_BLOCKS

/* Free blocks: the address of each, and its number of units in the low bits. A slot changes hands
 * by one atomic operation, so that no lock is held when another thread forks. */
static uint64_t ks_free_blocks[KS_FREE_BLOCKS];
static uint64_t ks_next_slot;
static int64_t ks_free_bytes;
static int ks_is_refused;

static inline uint8_t *ks_slot_start(uint64_t slot) {
    return (uint8_t *)(uintptr_t)(slot & ~(uint64_t)(KS_UNIT - 1));
}

static inline int64_t ks_slot_units(uint64_t slot) { return (int64_t)(slot & (KS_UNIT - 1)); }

/* The bytes of a block in large pages: those where at least half of one is used. So a result takes
 * less than half of a large page more than its size. */
static inline size_t ks_large_part(int64_t used) {
    return (size_t)((used + KS_UNIT / 2) & -KS_UNIT);
}

static inline void ks_count_free(int64_t units) {
    __atomic_fetch_add(&ks_free_bytes, units << KS_UNIT_BITS, __ATOMIC_RELAXED);
}

/* Unmaps the block that was taken out of a slot, if any. */
static inline void ks_drop_slot(uint64_t slot) {
    if (slot == 0) return;
    ks_count_free(-ks_slot_units(slot));
    munmap(ks_slot_start(slot), (size_t)(ks_slot_units(slot) << KS_UNIT_BITS));
}

/* Unmaps all free blocks. Before a fork, so that neither process copies their pages. */
static void ks_drop_free_blocks(void) {
    for (int i = 0; i < KS_FREE_BLOCKS; i++) {
        ks_drop_slot(__atomic_exchange_n(&ks_free_blocks[i], 0, __ATOMIC_ACQ_REL));
    }
}

/* Adds a block to the free ones; the oldest of them are unmapped above the limits. The system may
 * take the memory of free blocks where it is short of it. */
static inline void ks_free_block(uint8_t *start, int64_t units, int64_t used) {
    size_t large = ks_large_part(used);
    uint64_t oldest;
    if (units << KS_UNIT_BITS > KS_FREE_BYTES) {
        munmap(start, (size_t)(units << KS_UNIT_BITS));
        return;
    }
    if (large > 0) madvise(start, large, MADV_FREE);
    ks_count_free(units);
    oldest = __atomic_fetch_add(&ks_next_slot, 1, __ATOMIC_RELAXED);
    ks_drop_slot(__atomic_exchange_n(&ks_free_blocks[oldest % KS_FREE_BLOCKS],
                                     (uint64_t)(uintptr_t)start | (uint64_t)units,
                                     __ATOMIC_ACQ_REL));
    for (int i = 1; i < KS_FREE_BLOCKS; i++) {
        if (__atomic_load_n(&ks_free_bytes, __ATOMIC_RELAXED) <= KS_FREE_BYTES) return;
        ks_drop_slot(__atomic_exchange_n(&ks_free_blocks[(oldest + i) % KS_FREE_BLOCKS], 0,
                                         __ATOMIC_ACQ_REL));
    }
}

/* The smallest free block with at least so many units; 0 if there is none. Of several, it is the
 * one that was freed last, which may still be in a cache of the CPU. */
static inline uint64_t ks_smallest_free(int64_t units) {
    for (;;) {
        uint64_t newest = __atomic_load_n(&ks_next_slot, __ATOMIC_RELAXED) - 1, found = 0;
        uint64_t *at = NULL;
        for (uint64_t i = 0; i < KS_FREE_BLOCKS; i++) {
            uint64_t *place = &ks_free_blocks[(newest - i) % KS_FREE_BLOCKS];
            uint64_t slot = __atomic_load_n(place, __ATOMIC_ACQUIRE);
            int64_t size = ks_slot_units(slot);
            if (size >= units && (found == 0 || size < ks_slot_units(found))) {
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

static inline uint8_t *ks_reuse_block(int64_t units) {
    uint64_t slot = ks_smallest_free(units);
    uint8_t *start = ks_slot_start(slot);
    int64_t rest = ks_slot_units(slot) - units;
    if (slot == 0) return NULL;
    ks_count_free(-ks_slot_units(slot));
    if (rest > 0) ks_free_block(start + (units << KS_UNIT_BITS), rest, 0);
    return start;
}

static inline uint8_t *ks_map_block(int64_t units) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    size_t size = (size_t)(units << KS_UNIT_BITS), room = size + (size_t)KS_UNIT, before;
    uint8_t *start = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (start == MAP_FAILED) return NULL;
    if (((uintptr_t)start & (KS_UNIT - 1)) == 0) return start;
    munmap(start, size);
    start = mmap(NULL, room, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (start == MAP_FAILED) return NULL;
    before = (size_t)(-(uintptr_t)start & (KS_UNIT - 1));
    if (before > 0) munmap(start, before);
    if (room - before > size) munmap(start + before + size, room - before - size);
    return start + before;
}

/* Memory for a result of a size, aligned to 2 MiB; NULL if there is none. Its content is
 * undefined. */
static inline uint8_t *ks_take_block(int64_t size) {
    int64_t units = ks_units(size);
    uint8_t *start;
    if (size <= 0 || size > KS_LARGEST_BLOCK) return NULL;
    if (__atomic_load_n(&ks_is_refused, __ATOMIC_RELAXED)) return NULL;
    start = ks_reuse_block(units);
    if (start == NULL) start = ks_map_block(units);
    if (start == NULL) return NULL;
    if (!ks_want_large_pages(start, ks_large_part(size))) {
        __atomic_store_n(&ks_is_refused, 1, __ATOMIC_RELAXED);
        munmap(start, (size_t)(units << KS_UNIT_BITS));
        return NULL;
    }
    return start;
}

static inline void ks_give_back_block(uint8_t *start, int64_t size) {
    ks_free_block(start, ks_units(size), size);
}

/* Gives back the memory of a block after a number of bytes, which are still used; its addresses
 * stay valid. */
static inline void ks_forget_rest(uint8_t *start, int64_t size, int64_t used) {
    int64_t kept = ks_units(used), units = ks_units(size);
    if (kept >= units) return;
    madvise(start + (kept << KS_UNIT_BITS), (size_t)((units - kept) << KS_UNIT_BITS),
            MADV_DONTNEED);
}

static inline int64_t ks_bytes_of_free_blocks(void) {
    return __atomic_load_n(&ks_free_bytes, __ATOMIC_RELAXED);
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
