/* Batch headers of a file that is not in the page cache, read one by one.
 *
 * The descriptor is marked POSIX_FADV_RANDOM: a read fetches the pages of a header and nothing
 * between headers. Positions that are known or guessed are requested ahead, so that many reads
 * are in flight. They are hints: only `ks_scan_file` produces rows, and it follows the lengths
 * from batch to batch.
 */
#ifndef KAFKASCAN_COLD_READS_H
#define KAFKASCAN_COLD_READS_H

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif
#include <sys/uio.h>
#include <unistd.h>

#include "batch_row.h"

typedef struct ks_log_file {
    int descriptor;
    int64_t start; /* position of the log's first byte in the file */
    int64_t size;  /* of the log */
} ks_log_file;

static inline int64_t ks_at_most(int64_t value, int64_t most) {
    return value < most ? value : most;
}

/* Reads up to `size` bytes from a position inside the log; returns how many there are. It is less
 * than asked for at the end of the log, if the file shrank, and if its disk fails. */
static inline int64_t ks_read_at(const ks_log_file *file, int64_t position, uint8_t *out,
                                 int64_t size) {
    int64_t done = 0;
    size = ks_at_most(size, file->size - position);
    while (done < size) {
        ssize_t count = pread(file->descriptor, out + done, (size_t)(size - done),
                              (off_t)(file->start + position + done));
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) break;
        done += count;
    }
    return done;
}

/* Requests bytes without waiting for them; a system may ignore it. */
static inline void ks_request(const ks_log_file *file, int64_t position, int64_t size) {
#if defined(POSIX_FADV_WILLNEED)
    if (position < 0 || position >= file->size) return;
    size = ks_at_most(size, file->size - position);
    (void)posix_fadvise(file->descriptor, (off_t)(file->start + position), (off_t)size,
                        POSIX_FADV_WILLNEED);
#else
    (void)file, (void)position, (void)size;
#endif
}

/* Requests a batch. A system with little read-ahead ignores all but the first bytes of a request,
 * so each asks for a piece. The row may be wrong: nothing is requested outside of the log. */
static inline void ks_request_batch(const ks_log_file *file, const ks_batch_row *row) {
    enum { PIECE = 1 << 17 };
    int64_t position = row->position, size = (int64_t)row->batch_length + KS_LOG_OVERHEAD;
    if (position < 0 || position >= file->size) return;
    size = ks_at_most(size, file->size - position);
    for (; size > 0; position += PIECE, size -= PIECE)
        ks_request(file, position, ks_at_most(PIECE, size));
}

/* Number of pages of a range of the file that are in the page cache; -1 if the system does not say.
 * Linux counts them since 6.5 (cachestat), for those who may write the file. */
static inline int64_t ks_count_cached(const ks_log_file *file, int64_t position, int64_t size) {
#if defined(__linux__)
    enum { CACHESTAT = 451 }; /* the number of the system call on all architectures */
    struct {
        uint64_t start, size;
    } range = {(uint64_t)(file->start + position), (uint64_t)size};
    struct {
        uint64_t cached, dirty, writeback, evicted, recently_evicted;
    } counts;
    if (syscall(CACHESTAT, file->descriptor, &range, &counts, 0U) == 0) {
        return (int64_t)(counts.cached + counts.writeback);
    }
#else
    (void)file, (void)position, (void)size;
#endif
    return -1;
}

/* Whether the page at a position is in the page cache: 1, 0, or -1 if the system does not say.
 * A read without waiting needs no permission to write the file. But it starts to fetch the page,
 * and finds it if the disk is very fast. */
static inline int ks_is_cached(const ks_log_file *file, int64_t position) {
    int64_t pages = ks_count_cached(file, position, 1);
    if (pages >= 0) return pages > 0;
#if defined(RWF_NOWAIT)
    uint8_t byte;
    struct iovec vector = {&byte, 1};
    ssize_t count =
        preadv2(file->descriptor, &vector, 1, (off_t)(file->start + position), RWF_NOWAIT);
    if (count == 1) return 1;
    return count < 0 && errno == EAGAIN ? 0 : -1;
#else
    return -1;
#endif
}

/* Fills rows with the headers of the batches from *position on, up to `stop`. Returns a status;
 * *position is where the walk stopped. */
static inline int ks_scan_file(const ks_log_file *file, int64_t stop, ks_batch_row *rows,
                               int64_t capacity, int64_t *position, int64_t *count) {
    uint8_t header[KS_BATCH_HEADER_SIZE];
    int64_t size = 0;
    while (1) {
        if (*position >= stop) return KS_AT_STOP;
        if (*count >= capacity) return KS_OUTPUT_FULL;
        int64_t left = file->size - *position;
        int64_t available = ks_read_at(file, *position, header, sizeof header);
        if (available < ks_at_most(left, sizeof header)) return KS_SOURCE_FAULT;
        int status = ks_frame_batch(header, left, &size);
        if (status != KS_OK) return status;
        ks_read_batch_row(header, available, *position, &rows[*count]);
        *count += 1;
        *position += size;
    }
}

/* Returns the position after the batch at a position, or -1 if there is no batch. */
static inline int64_t ks_next_in_file(const ks_log_file *file, int64_t position) {
    uint8_t header[KS_SIZE_UP_TO_MAGIC];
    int64_t size = 0;
    int64_t available = ks_read_at(file, position, header, sizeof header);
    if (available < (int64_t)sizeof header) return -1;
    if (ks_frame_batch(header, file->size - position, &size) != KS_OK) return -1;
    return position + size;
}

/* Follows chains of batches in turns, each from its position to its stop. The next header of a
 * chain is requested before the other chains are served, so that all of them wait together.
 * Returns the number of steps: 0 if all chains have ended. */
static inline int64_t ks_follow_chains(const ks_log_file *file, int64_t *positions,
                                       const int64_t *stops, int64_t count, int64_t max_steps) {
    int64_t steps = 0, before = -1;
    while (steps < max_steps && steps > before) {
        before = steps;
        for (int64_t i = 0; i < count; i++) {
            if (positions[i] >= stops[i]) continue;
            int64_t next = ks_next_in_file(file, positions[i]);
            positions[i] = next < 0 ? stops[i] : next;
            if (positions[i] < stops[i]) ks_request(file, next, KS_BATCH_HEADER_SIZE);
            steps += 1;
        }
    }
    return steps;
}

/* ---- guesses ---------------------------------------------------------------------------- */

enum {
    KS_GUESSED_HEADERS = 3,  /* consecutive plausible headers that make a guess */
    KS_GUESS_CANDIDATES = 16 /* plausible headers that are followed for one guess */
};

/* Whether the plausible header at p is followed by others. */
static inline int ks_starts_chain(const ks_log_file *file, const uint8_t *p, int64_t position,
                                  int64_t last_offset) {
    uint8_t header[KS_BATCH_HEADER_SIZE];
    int64_t size = 0;
    for (int count = 1;; count++) {
        if (!ks_is_plausible_batch(p, file->size - position, &last_offset, &size)) return 0;
        if (count == KS_GUESSED_HEADERS) return 1;
        position += size;
        int64_t available = ks_read_at(file, position, header, sizeof header);
        if (available < (int64_t)sizeof header) return 0;
        p = header;
    }
}

/* Returns the first position in [position, limit) at which a batch plausibly starts, or -1. The
 * bytes are read into `buffer`, which is larger than a header. */
static inline int64_t ks_guess_in_file(const ks_log_file *file, int64_t position, int64_t limit,
                                       int64_t last_offset, uint8_t *buffer, int64_t capacity) {
    int candidates = KS_GUESS_CANDIDATES;
    while (position < limit) {
        int64_t available = ks_read_at(file, position, buffer, capacity);
        int64_t starts = ks_at_most(available - KS_BATCH_HEADER_SIZE + 1, limit - position);
        if (starts <= 0) return -1;
        for (int64_t i = 0; i < starts; i++) {
            const uint8_t *from = buffer + i + KS_AT_magic;
            const uint8_t *found = memchr(from, 2, (size_t)(starts - i));
            if (found == NULL) break;
            i += found - from;
            int64_t offset = last_offset, size = 0, left = file->size - position - i;
            if (!ks_is_plausible_batch(buffer + i, left, &offset, &size)) continue;
            if (ks_starts_chain(file, buffer + i, position + i, last_offset)) return position + i;
            if (--candidates == 0) return -1;
        }
        position += starts;
    }
    return -1;
}

#endif /* KAFKASCAN_COLD_READS_H */
