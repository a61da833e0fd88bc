/* Large pages of memory: one page fault instead of 512. */
#ifndef KAFKASCAN_LARGE_PAGES_H
#define KAFKASCAN_LARGE_PAGES_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#define KS_LARGE_PAGE_BITS 21
#define KS_LARGE_PAGE ((uintptr_t)1 << KS_LARGE_PAGE_BITS)

/* Asks for large pages wherever a whole one fits. Returns 0 if the system refuses them. */
static inline int ks_want_large_pages(void *start, size_t size) {
#ifdef MADV_HUGEPAGE
    uintptr_t first = ((uintptr_t)start + KS_LARGE_PAGE - 1) & -KS_LARGE_PAGE;
    uintptr_t last = ((uintptr_t)start + size) & -KS_LARGE_PAGE;
    if (last <= first) return 1;
    return madvise((void *)first, last - first, MADV_HUGEPAGE) == 0 || errno != EINVAL;
#else
    (void)start;
    (void)size;
    return 0;
#endif
}

#endif /* KAFKASCAN_LARGE_PAGES_H */
