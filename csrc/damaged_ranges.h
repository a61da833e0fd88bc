/* Walk on from one damaged range to the next, as long as each has an extent that is clear.
 *
 * A run is what a walk frames after damage, up to bytes that are no batch or to its limit. Its
 * damaged ranges are batches with wrong checksums, whose offsets fit between those of valid ones,
 * and bytes up to the next valid batch. Anything else ends the loop before its run, and is decided
 * in Python (kafkascan/batches/resyncing/resync.py), which decides the same for these, too.
 */
#ifndef KAFKASCAN_DAMAGED_RANGES_H
#define KAFKASCAN_DAMAGED_RANGES_H

#include "batch_search.h"

/* The bytes that are looked at for zeros, and for the next batch, before it is left to Python; and
 * the batches with wrong checksums whose lengths are trusted if a valid one follows. */
enum { KS_NEAR = 1 << 16, KS_DAMAGED_IN_A_ROW = 8 };

/* A row of DAMAGED_DTYPE; packed, so that it has no holes. */
#pragma pack(push, 1)
typedef struct ks_damaged_range {
    int64_t start, stop;
    int64_t base_offset; /* these three: of the header at the start, whatever is there */
    int32_t batch_length;
    int8_t magic;
    uint8_t status;    /* what is wrong at the start */
    uint8_t is_framed; /* whether it is one damaged batch whose length is right */
} ks_damaged_range;
#pragma pack(pop)

typedef struct ks_skipping {
    ks_search search;                /* in a window of all bytes */
    int64_t stop;                    /* batches that start here or later are left out */
    int64_t least_reach, most_reach; /* bytes for which headers are trusted after damage */
    int verifies_all;
    int64_t position;    /* of the next run */
    int64_t last_damage; /* where the last damaged range ends */
    ks_batch_row *rows;
    int64_t row_count, row_capacity;
    ks_damaged_range *ranges;
    int64_t range_count, range_capacity;
} ks_skipping;

static inline int64_t ks_last_offset(const ks_batch_row *row) {
    return (int64_t)((uint64_t)row->base_offset + (uint64_t)(int64_t)row->last_offset_delta);
}

static inline int64_t ks_next_offset(const ks_batch_row *row) {
    return (int64_t)((uint64_t)ks_last_offset(row) + 1);
}

/* Whether the batch from a position to another one, where it was framed, is valid. */
static inline int ks_is_valid(ks_skipping *skipping, int64_t position, int64_t stop) {
    ks_start_sums(&skipping->search.crc32c, position);
    ks_start_sums(&skipping->search.crc32, position);
    return ks_has_valid_crc(&skipping->search, position, stop - position);
}

static inline void ks_add_range(ks_skipping *skipping, int64_t start, int64_t stop, int status) {
    const uint8_t *p = skipping->search.data + start;
    ks_damaged_range *range = &skipping->ranges[skipping->range_count++];
    range->start = start;
    range->stop = stop;
    range->base_offset = ks_load_i64(p + KS_AT_base_offset);
    range->batch_length = ks_load_i32(p + KS_AT_batch_length);
    range->magic = (int8_t)p[KS_AT_magic];
    range->status = (uint8_t)status;
    range->is_framed = 0;
    skipping->last_damage = stop;
}

/* Skips to the next valid batch after a position, if it is near. */
static inline int ks_skip_to_batch(ks_skipping *skipping, int64_t position, int status) {
    ks_search *search = &skipping->search;
    int64_t limit = skipping->stop - position > KS_NEAR ? position + KS_NEAR : skipping->stop;
    search->position = position + 1;
    search->limit = limit;
    if (search->position >= limit || skipping->range_count == skipping->range_capacity) return 0;
    if (ks_find_batch(search) != KS_OK) return 0;
    ks_add_range(skipping, position, search->position, status);
    skipping->position = search->position;
    return 1;
}

/* Whether batches with wrong checksums have offsets that ascend between those of two rows. */
static inline int ks_are_between(const ks_skipping *skipping, int64_t first, int64_t next) {
    const ks_batch_row *rows = skipping->rows;
    if (first == 0 || rows[next].base_offset > skipping->search.highest) return 0;
    for (int64_t row = first; row < next; row++) {
        if (rows[row].base_offset <= ks_last_offset(&rows[row - 1])) return 0;
        if (rows[row].base_offset > ks_last_offset(&rows[row])) return 0;
    }
    return rows[first].base_offset >= skipping->search.lowest &&
           ks_last_offset(&rows[next - 1]) < rows[next].base_offset;
}

/* Skips batches with wrong checksums up to a valid row, or to a batch that one of them covers: its
 * offsets are those that they leave. */
static inline int ks_skip_framed(ks_skipping *skipping, int64_t first, int64_t next) {
    const ks_batch_row *rows = skipping->rows;
    ks_search search = skipping->search;
    if (!ks_are_between(skipping, first, next)) return 0;
    if (skipping->range_capacity - skipping->range_count < next - first) return 0;
    for (int64_t row = first; row < next; row++) {
        int64_t start = rows[row].position, stop = rows[row + 1].position;
        search.position = start + 1;
        search.limit = stop;
        search.lowest = ks_next_offset(&rows[row]);
        search.highest = rows[row + 1].base_offset - 1;
        if (search.lowest <= search.highest) {
            if (stop - start > KS_NEAR) return 0;
            int status = ks_find_batch(&search);
            skipping->search.crc32c = search.crc32c; /* their sums */
            skipping->search.crc32 = search.crc32;
            if (status == KS_OK) stop = search.position;
        }
        ks_add_range(skipping, start, stop, KS_CHECKSUM_MISMATCH);
        skipping->position = stop;
        if (stop < rows[row + 1].position) break;
        skipping->ranges[skipping->range_count - 1].is_framed = 1;
    }
    skipping->row_count = first;
    return 1;
}

/* Whether a batch with a wrong checksum between two rows of its run leaves no offset to others;
 * the run goes on after it. */
static inline int ks_is_joined(const ks_skipping *skipping, int64_t first, int64_t row) {
    const ks_batch_row *rows = skipping->rows;
    return row > first && ks_are_between(skipping, row, row + 1) &&
           ks_next_offset(&rows[row]) == rows[row + 1].base_offset;
}

enum { KS_LEFT_TO_PYTHON, KS_SKIPPED, KS_GOES_ON };

/* Adds the row of the batch that stops at a position. Verified are all, or those beside offsets
 * that do not continue. `wrong` is the first row of those at the end with wrong checksums, or the
 * number of rows. */
static inline int ks_check_row(ks_skipping *skipping, int64_t first, int64_t stop, int64_t *wrong) {
    int64_t row = skipping->row_count++;
    ks_batch_row *last = &skipping->rows[row];
    if (!skipping->verifies_all) {
        int64_t expected = row > first ? ks_next_offset(last - 1) : last->base_offset;
        *wrong = row + 1;
        if (last->base_offset == expected) return KS_GOES_ON;
        if (!ks_is_valid(skipping, last[-1].position, last->position)) return KS_LEFT_TO_PYTHON;
        return last->base_offset > expected || ks_is_valid(skipping, last->position, stop)
                   ? KS_GOES_ON
                   : KS_LEFT_TO_PYTHON;
    }
    int is_valid = ks_is_valid(skipping, last->position, stop);
    if (*wrong == row) *wrong += is_valid;
    if (!is_valid || *wrong > row) return KS_GOES_ON;
    if (row - *wrong > KS_DAMAGED_IN_A_ROW) {
        skipping->row_count = *wrong;
        return ks_skip_to_batch(skipping, skipping->rows[*wrong].position, KS_CHECKSUM_MISMATCH);
    }
    if (row - *wrong > 1 || !ks_is_joined(skipping, first, *wrong))
        return ks_skip_framed(skipping, *wrong, row);
    ks_add_range(skipping, last[-1].position, last->position, KS_CHECKSUM_MISMATCH);
    skipping->ranges[skipping->range_count - 1].is_framed = 1;
    last[-1] = *last;
    *wrong = --skipping->row_count;
    return KS_GOES_ON;
}

static inline int ks_are_zero(const uint8_t *p, int64_t size) {
    for (int64_t i = 0; i < size; i++)
        if (p[i] != 0) return 0;
    return 1;
}

/* Walks over a run and the damage in it and after it; 0 if this is left to Python. */
static inline int ks_skip_run(ks_skipping *skipping) {
    const uint8_t *data = skipping->search.data;
    int64_t position = skipping->position, size = 0, source_size = skipping->search.size;
    int64_t first = skipping->row_count, wrong = first, ranges = skipping->range_count;
    int64_t reach = 2 * (position - skipping->last_damage);
    if (reach > skipping->most_reach) reach = skipping->most_reach;
    if (reach < skipping->least_reach) reach = skipping->least_reach;
    int64_t limit = skipping->stop - position > reach ? position + reach : skipping->stop;
    int status = KS_AT_STOP;
    while (position < limit) {
        status = ks_frame_batch(data + position, source_size - position, &size);
        if (status != KS_OK) break;
        if (skipping->row_count == skipping->row_capacity) return 0;
        if (skipping->range_count == skipping->range_capacity) return 0;
        ks_read_batch_row(data + position, source_size - position, position,
                          &skipping->rows[skipping->row_count]);
        position += size;
        int verdict = ks_check_row(skipping, first, position, &wrong);
        if (verdict != KS_GOES_ON) return verdict == KS_SKIPPED;
        status = KS_AT_STOP;
    }
    int64_t rows = skipping->row_count;
    if (!skipping->verifies_all && rows > first &&
        !ks_is_valid(skipping, skipping->rows[rows - 1].position, position))
        wrong = rows - 1; /* nothing after it confirms its length */
    if (status == KS_AT_STOP) {
        if (position == source_size) return 0;
        if (wrong == rows) {
            skipping->position = position;
            return skipping->range_count > ranges;
        }
    } else {
        int64_t left = source_size - position;
        if (ks_are_zero(data + position, left < KS_NEAR ? left : KS_NEAR)) return 0;
    }
    if (wrong == rows) return ks_skip_to_batch(skipping, position, status);
    skipping->row_count = wrong;
    return ks_skip_to_batch(skipping, skipping->rows[wrong].position, KS_CHECKSUM_MISMATCH);
}

/* Skips runs, up to the first one that is left to Python. */
static inline void ks_skip_runs(ks_skipping *skipping) {
    for (;;) {
        ks_skipping before = *skipping;
        if (ks_skip_run(skipping)) continue;
        before.search = skipping->search; /* its sums */
        *skipping = before;
        return;
    }
}

#endif /* KAFKASCAN_DAMAGED_RANGES_H */
