/* Search for the next valid batch in damaged bytes.
 *
 * A batch is valid if its header is plausible, its offsets are within the given range, and its
 * checksum matches its bytes. It may start at any byte. Forged headers cannot slow the search
 * (crc_ranges.h): it takes linear time for any bytes.
 */
#ifndef KAFKASCAN_BATCH_SEARCH_H
#define KAFKASCAN_BATCH_SEARCH_H

#include "batch_row.h"
#include "crc_ranges.h"

typedef struct ks_search {
    const uint8_t *data;
    int64_t size;
    int64_t size_after;      /* bytes of the source after the window */
    int64_t position;        /* in: where to start; out: where the batch starts */
    int64_t limit;           /* batches that start here or later are not tried */
    int64_t lowest, highest; /* range of the batch's offsets, inclusive */
    int any_header;          /* accept any framed header whose checksum is valid */
    ks_crc_sums crc32c, crc32;
} ks_search;

static inline int ks_is_within(const ks_search *search, int64_t first, int64_t last) {
    return first >= search->lowest && last >= first && last <= search->highest;
}

/* Whether the header of a framed batch of magic 2 has values that Kafka could write. */
static inline int ks_is_plausible_v2(const ks_search *search, const uint8_t *p) {
    int64_t offset = ks_load_i64(p + KS_AT_base_offset);
    int32_t delta = ks_load_i32(p + KS_AT_last_offset_delta);
    int32_t count = ks_load_i32(p + KS_AT_records_count);
    uint16_t attributes = ks_load_u16(p + KS_AT_attributes);
    if (delta < 0 || count < 0 || count - 1 > delta) return 0;
    if (attributes >= 0x80 || (attributes & KS_COMPRESSION_MASK) > 4) return 0;
    return ks_is_within(search, offset, (int64_t)((uint64_t)offset + (uint32_t)delta));
}

/* The same for a message, of which `available` bytes may be read: key and value must fill it. */
static inline int ks_is_plausible_legacy(const ks_search *search, const uint8_t *p,
                                         int64_t available, int64_t size) {
    int8_t magic = (int8_t)p[KS_AT_magic];
    int64_t offset = ks_load_i64(p + KS_V0_AT_offset);
    uint8_t attributes = p[KS_V0_AT_attributes];
    if (attributes > (magic == 1 ? 0x0f : 0x07) || (attributes & KS_COMPRESSION_MASK) > 3) return 0;
    if (!ks_is_within(search, offset, offset)) return 0;
    int64_t key_at = magic == 1 ? KS_V1_AT_key_size : KS_V0_AT_key_size;
    int32_t key_size = ks_load_i32(p + key_at);
    int64_t value_at = key_at + 4 + (key_size < 0 ? 0 : key_size);
    if (key_size < -1 || value_at + 4 > size) return 0;
    if (value_at + 4 > available) return 1;
    int32_t value_size = ks_load_i32(p + value_at);
    return value_size >= -1 && value_at + 4 + (value_size < 0 ? 0 : value_size) == size;
}

static inline int ks_has_valid_crc(ks_search *search, int64_t position, int64_t size) {
    const uint8_t *p = search->data + position;
    int is_legacy = p[KS_AT_magic] != 2;
    ks_crc_sums *sums = is_legacy ? &search->crc32 : &search->crc32c;
    int64_t start = is_legacy ? KS_CRC_START_LEGACY : KS_CRC_START_V2;
    uint32_t stored = ks_load_u32(p + (is_legacy ? KS_V0_AT_crc : KS_AT_crc));
    return ks_crc_of_range(sums, position + start, position + size) == stored;
}

/* Whether a batch may start at one of sixteen neighbouring bytes, by its magic byte and length.
 * 32 bytes must be readable at p; the first byte of a length is at most `longest`. */
typedef uint8_t ks_lanes __attribute__((vector_size(16)));

static inline ks_lanes ks_load_lanes(const uint8_t *p) {
    ks_lanes lanes;
    memcpy(&lanes, p, sizeof lanes);
    return lanes;
}

static inline int ks_may_start_batch(const uint8_t *p, uint8_t longest) {
    ks_lanes length_0 = ks_load_lanes(p + KS_AT_batch_length);
    ks_lanes is_long = (ks_lanes)((length_0 | ks_load_lanes(p + KS_AT_batch_length + 1) |
                                   ks_load_lanes(p + KS_AT_batch_length + 2)) != 0) |
                       (ks_lanes)(ks_load_lanes(p + KS_AT_batch_length + 3) >= KS_MIN_LENGTH_V0);
    ks_lanes may_start =
        is_long & (ks_lanes)(length_0 <= longest) & (ks_lanes)(ks_load_lanes(p + KS_AT_magic) <= 2);
    uint64_t halves[2];
    memcpy(halves, &may_start, sizeof halves);
    return (halves[0] | halves[1]) != 0;
}

/* Find the next valid batch. KS_OK: it starts at `position`. KS_AT_STOP: none starts before the
 * limit. KS_NEED_WINDOW: the candidate at `position`, or its header, ends after the window. */
static inline int ks_find_batch(ks_search *search) {
    const uint8_t *data = search->data;
    int64_t at = search->position, size = 0, skippable = at;
    int64_t longest = (search->size - at + search->size_after) >> 24;
    if (longest > 0x7f) longest = 0x7f;
    ks_start_sums(&search->crc32c, at);
    ks_start_sums(&search->crc32, at);
    for (; at < search->limit; at++) {
        int64_t available = search->size - at;
        if (available < KS_BATCH_HEADER_SIZE && search->size_after > 0) break;
        if (available < KS_MESSAGE_V0_MIN_SIZE) {
            search->position = search->limit;
            return KS_AT_STOP;
        }
        const uint8_t *p = data + at;
        if (at >= skippable && available >= 32) {
            skippable = at + 16;
            if (!ks_may_start_batch(p, (uint8_t)longest)) {
                at += 15;
                continue;
            }
        }
        if (p[KS_AT_magic] > 2) continue;
        if (ks_frame_batch(p, available + search->size_after, &size) != KS_OK) continue;
        int is_plausible = p[KS_AT_magic] == 2 ? ks_is_plausible_v2(search, p)
                                               : ks_is_plausible_legacy(search, p, available, size);
        if (!is_plausible && !search->any_header) continue;
        if (size > available) break;
        if (!ks_has_valid_crc(search, at, size)) continue;
        search->position = at;
        return KS_OK;
    }
    search->position = at < search->limit ? at : search->limit;
    return at < search->limit ? KS_NEED_WINDOW : KS_AT_STOP;
}

#endif /* KAFKASCAN_BATCH_SEARCH_H */
