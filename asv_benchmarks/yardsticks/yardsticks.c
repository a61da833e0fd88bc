/* What the machine can do: measuring sticks, not readers. No bounds checks worth the name. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    int64_t wide[6];
    int32_t narrow[6];
    int16_t small[2];
    int8_t tiny[4];
} row;

static uint64_t load8(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return __builtin_bswap64(v);
}

static uint32_t load4(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, 4);
    return __builtin_bswap32(v);
}

static uint16_t load2(const uint8_t *p) {
    uint16_t v;
    memcpy(&v, p, 2);
    return __builtin_bswap16(v);
}

/* Writes one row of 80 bytes for a header, as a reader has to. */
static inline void read_row(const uint8_t *p, int64_t position, row *r) {
    r->wide[0] = position;
    r->wide[1] = (int64_t)load8(p);
    r->wide[2] = (int64_t)load8(p + 27);
    r->wide[3] = (int64_t)load8(p + 35);
    r->wide[4] = (int64_t)load8(p + 43);
    r->wide[5] = r->wide[1] + (int32_t)load4(p + 23);
    r->narrow[0] = (int32_t)load4(p + 8) + 12;
    r->narrow[1] = (int32_t)load4(p + 12);
    r->narrow[2] = (int32_t)load4(p + 17);
    r->narrow[3] = (int32_t)load4(p + 23);
    r->narrow[4] = (int32_t)load4(p + 53);
    r->narrow[5] = (int32_t)load4(p + 57);
    r->small[0] = (int16_t)load2(p + 21);
    r->small[1] = (int16_t)load2(p + 51);
    r->tiny[0] = (int8_t)p[16];
}

/* The plain dependent walk: what every reader does that chases one length after another.
 * Returns the number of rows. */
int64_t plain_walk(const uint8_t *data, int64_t size, void *out) {
    row *rows = out;
    int64_t position = 0, count = 0;
    while (position + 61 <= size) {
        const uint8_t *p = data + position;
        int64_t batch_size = (int64_t)load4(p + 8) + 12;
        if (position + batch_size > size) break;
        read_row(p, position, &rows[count++]);
        position += batch_size;
    }
    return count;
}

/* The same over a file, a read for each header. Returns the number of rows. */
int64_t read_walk(const char *path, void *out) {
    row *rows = out;
    uint8_t header[61];
    int64_t position = 0, count = 0;
    int descriptor = open(path, O_RDONLY);
    while (pread(descriptor, header, sizeof header, position) == sizeof header) {
        read_row(header, position, &rows[count++]);
        position += (int64_t)load4(header + 8) + 12;
    }
    close(descriptor);
    return count;
}

/* Headers at positions that are known, so that none waits for another: no reader that finds the
 * positions out can be faster. Requests them `ahead` headers before it reads them. */
void read_headers(const uint8_t *data, const int64_t *positions, int64_t count, int64_t ahead,
                  void *out) {
    row *rows = out;
    for (int64_t i = 0; i < count; i++) {
        if (i + ahead < count) {
            const uint8_t *next = data + positions[i + ahead];
            __builtin_prefetch(next);
            __builtin_prefetch(next + 60);
        }
        read_row(data + positions[i], positions[i], &rows[i]);
    }
}

/* One word of every cache line: the bandwidth at which one core can read memory once. */
uint64_t touch(const uint8_t *data, int64_t size) {
    uint64_t seen = 0;
    for (int64_t i = 0; i + 64 <= size; i += 64) {
        uint64_t v;
        memcpy(&v, data + i, 8);
        seen ^= v;
    }
    return seen;
}

/* ---- single pages of a disk ------------------------------------------------------------- */

enum { PAGE = 4096, MOST_IN_FLIGHT = 256 };

typedef struct {
    int descriptor;
    const int64_t *positions;
    int64_t count, next, failed;
} page_reads;

static void *read_some_pages(void *argument) {
    page_reads *reads = argument;
    _Alignas(PAGE) static __thread uint8_t page[PAGE];
    for (;;) {
        int64_t i = __atomic_fetch_add(&reads->next, 1, __ATOMIC_RELAXED);
        if (i >= reads->count) return NULL;
        if (pread(reads->descriptor, page, PAGE, reads->positions[i] & -(int64_t)PAGE) <= 0) {
            __atomic_fetch_add(&reads->failed, 1, __ATOMIC_RELAXED);
        }
    }
}

/* Reads the pages of positions past the page cache, as many at a time as there are threads: no
 * reader of headers that are in different pages can be faster. Returns how many reads failed. */
int64_t read_pages(const char *path, const int64_t *positions, int64_t count, int in_flight) {
    pthread_t threads[MOST_IN_FLIGHT];
    page_reads reads = {open(path, O_RDONLY | O_DIRECT), positions, count, 0, 0};
    int started = 0;
    if (reads.descriptor < 0) return count;
    while (started < in_flight && started < MOST_IN_FLIGHT &&
           pthread_create(&threads[started], NULL, read_some_pages, &reads) == 0) {
        started++;
    }
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
    close(reads.descriptor);
    return started > 0 ? reads.failed : count;
}
