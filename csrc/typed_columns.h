/* Columns that decoders of typed values fill: an Arrow array each, in C memory of the caller.
 *
 * Entries are appended. A column that has no room for an entry or for its bytes is a pause: the
 * caller makes it larger, and the value is decoded again from its start. `ks_cut_column` removes
 * the entries of an incomplete value; how many the columns below have follows from their parents.
 */
#ifndef KAFKASCAN_TYPED_COLUMNS_H
#define KAFKASCAN_TYPED_COLUMNS_H

#include <stdint.h>
#include <string.h>

#include "java_text.h"
#include "kafka_status.h"

enum ks_column_kind {
    KS_VALUES, /* of one width */
    KS_ITEMS,  /* bytes or text of any size */
    KS_LISTS,
    KS_STRUCTS
};

typedef struct {
    uint8_t *data;     /* KS_VALUES, KS_ITEMS */
    int32_t *ends;     /* KS_ITEMS, KS_LISTS: capacity + 1, of which the first is 0 */
    uint8_t *is_valid; /* ones beyond the entries; NULL if no entry is null but with its parent */
    int64_t entries;
    int64_t capacity;
    int64_t size; /* KS_ITEMS: bytes of the items */
    int64_t room;
    int32_t kind;
    int32_t width;       /* KS_VALUES: bytes of an entry */
    int32_t first_child; /* columns below are contiguous, and have higher numbers */
    int32_t children;
    int32_t may_repeat_keys; /* KS_LISTS: a map has a key more than once, or it takes long to say */
    int64_t reached_entries; /* by the last value for which a column had no room */
    int64_t reached_size;
} ks_column;

/* Bytes that the items of a value's lists, and its defaults, may take. Each item fills all columns
 * below its list: a message of 2 bytes may have 500 fields, and fields that only the reader's
 * schema has take no bytes at all. So a value of the size that brokers accept by default may become
 * 2 GiB, which is what one column can have, and a larger one not many times more. */
enum {
    KS_FIRST_ROOM = 1 << 17, /* whatever the size of the value: an item of the widest schema */
    KS_ROOM_OF_BYTE = 1 << 11,
    KS_USUAL_VALUE = 1 << 20, /* message.max.bytes */
    KS_ROOM_OF_FURTHER_BYTE = 1 << 6
};

/* A part of a value that a problem is about. */
typedef struct {
    const uint8_t *at; /* where it is written; NULL if it is not known */
    int32_t column;    /* -1: none */
} ks_typed_place;

/* Why a value ended early, and where the next one begins. */
typedef struct {
    ks_column *columns;
    int64_t room_left; /* bytes that items and defaults of this value may still take */
    int64_t needed;    /* KS_OUTPUT_FULL: entries or bytes that `full` has no room for */
    int32_t full;
    int32_t depth; /* of values of recursive types */
    int status;
    int remark; /* a status of a value that is decoded, but not exactly what was written */
    ks_typed_place failed;
    ks_typed_place remarked;
} ks_typed;

static inline void ks_begin_value(ks_typed *typed, int64_t size) {
    int64_t usual = size < KS_USUAL_VALUE ? size : KS_USUAL_VALUE;
    typed->room_left =
        KS_FIRST_ROOM + KS_ROOM_OF_BYTE * usual + KS_ROOM_OF_FURTHER_BYTE * (size - usual);
    typed->depth = 0;
    typed->status = typed->remark = KS_OK;
    typed->failed.column = typed->remarked.column = -1;
}

/* Notes the innermost part of a value that cannot be decoded. */
static __attribute__((noinline, unused)) void ks_note_failed(ks_typed *typed, int32_t column,
                                                             const uint8_t *at) {
    if (typed->failed.column < 0) {
        typed->failed.column = column;
        typed->failed.at = at;
    }
}

/* Returns 0, so that callers can return it at once. */
static inline int ks_typed_fails(ks_typed *typed, int status) {
    typed->status = status;
    return 0;
}

/* Takes bytes from the room of the value; else fails with the status. */
static inline int ks_take_room(ks_typed *typed, int64_t size, int status) {
    if (size > typed->room_left) return ks_typed_fails(typed, status);
    typed->room_left -= size;
    return 1;
}

static __attribute__((noinline, unused)) int ks_column_is_full(ks_typed *typed,
                                                               const ks_column *column,
                                                               int64_t needed) {
    typed->full = (int32_t)(column - typed->columns);
    typed->needed = needed;
    return ks_typed_fails(typed, KS_OUTPUT_FULL);
}

static inline int ks_has_room(ks_typed *typed, const ks_column *column) {
    if (column->entries < column->capacity) return 1;
    return ks_column_is_full(typed, column, 0);
}

/* Room for `count` entries that are filled later. */
static inline int ks_put_number(ks_typed *typed, ks_column *column, const void *value,
                                size_t width) {
    if (!ks_has_room(typed, column)) return 0;
    memcpy(column->data + column->entries++ * (int64_t)width, value, width);
    return 1;
}

/* Room for an item of `size` bytes, or NULL. */
static inline uint8_t *ks_put_item(ks_typed *typed, ks_column *column, int64_t size) {
    if (!ks_has_room(typed, column)) return NULL;
    if (size > column->room - column->size) {
        ks_column_is_full(typed, column, size);
        return NULL;
    }
    uint8_t *out = column->data + column->size;
    column->size += size;
    column->ends[++column->entries] = (int32_t)column->size;
    return out;
}

/* Copies words that overlap, where a call of memcpy takes longer than the copy. */
static inline void ks_copy_short(uint8_t *out, const uint8_t *p, int64_t size) {
    if (size > 2 * KS_WORD) {
        memcpy(out, p, (size_t)size);
    } else if (size >= KS_WORD) {
        memcpy(out, p, KS_WORD);
        memcpy(out + size - KS_WORD, p + size - KS_WORD, KS_WORD);
    } else if (size >= KS_WORD / 2) {
        memcpy(out, p, KS_WORD / 2);
        memcpy(out + size - KS_WORD / 2, p + size - KS_WORD / 2, KS_WORD / 2);
    } else if (size > 0) {
        out[0] = p[0];
        out[size / 2] = p[size / 2];
        out[size - 1] = p[size - 1];
    }
}

static inline int ks_put_bytes(ks_typed *typed, ks_column *column, const uint8_t *p, int64_t size) {
    uint8_t *out = ks_put_item(typed, column, size);
    if (out == NULL) return 0;
    ks_copy_short(out, p, size);
    return 1;
}

/* A list or struct ends once its items or members are appended. */
static inline int ks_put_list(ks_typed *typed, ks_column *column) {
    if (!ks_has_room(typed, column)) return 0;
    int64_t end = typed->columns[column->first_child].entries;
    column->ends[++column->entries] = (int32_t)end;
    return 1;
}

static inline int ks_put_struct(ks_typed *typed, ks_column *column) {
    if (!ks_has_room(typed, column)) return 0;
    column->entries++;
    return 1;
}

/* ---- keys of maps ------------------------------------------------------------------------- */

enum {
    KS_FEW_KEYS = 8,
    KS_MAX_HASHED_KEYS = 1 << 12,
    KS_MAX_KEY_PROBES = 32 /* keys that are made to collide take no more */
};

static inline const uint8_t *ks_key(const ks_column *keys, int32_t row, int64_t *size) {
    if (keys->kind == KS_ITEMS) {
        *size = keys->ends[row + 1] - keys->ends[row];
        return keys->data + keys->ends[row];
    }
    *size = keys->width;
    return keys->data + row * (int64_t)keys->width;
}

static int ks_is_same_key(const ks_column *keys, int32_t a, int32_t b) {
    int64_t size, other;
    const uint8_t *p = ks_key(keys, a, &size), *q = ks_key(keys, b, &other);
    return size == other && memcmp(p, q, (size_t)size) == 0;
}

/* Of the size and of the words at both ends, which may overlap. */
static inline uint32_t ks_hash_of_key(const ks_column *keys, int32_t row) {
    int64_t size;
    const uint8_t *p = ks_key(keys, row, &size);
    uint64_t first = 0, last = 0;
    if (size >= KS_WORD) {
        memcpy(&first, p, KS_WORD);
        memcpy(&last, p + size - KS_WORD, KS_WORD);
    } else if (size >= KS_WORD / 2) {
        memcpy(&first, p, KS_WORD / 2);
        memcpy(&last, p + size - KS_WORD / 2, KS_WORD / 2);
    } else if (size > 0) {
        first = (uint64_t)p[0] << 16 | (uint64_t)p[size / 2] << 8 | p[size - 1];
    }
    uint64_t mixed = (first ^ (last << 23 | last >> 41)) + (uint64_t)size;
    mixed ^= mixed >> 29;
    return (uint32_t)((mixed * UINT64_C(0x9e3779b97f4a7c15)) >> 32);
}

static inline int ks_do_few_keys_repeat(const ks_column *keys, int32_t first, int32_t count) {
    uint32_t hashes[KS_FEW_KEYS];
    for (int32_t i = 0; i < count; i++) {
        hashes[i] = ks_hash_of_key(keys, first + i);
        for (int32_t j = 0; j < i; j++) {
            if (hashes[i] == hashes[j] && ks_is_same_key(keys, first + i, first + j)) return 1;
        }
    }
    return 0;
}

/* Whether `count` keys from `first` on repeat one; also if it would take long to say. A slot has
 * the upper half of a hash and 1 + the number of the key; 0 is a free one. */
static int ks_may_repeat_keys(const ks_column *keys, int32_t first, int32_t count) {
    uint32_t slots[2 * KS_MAX_HASHED_KEYS];
    uint32_t size = 4 * KS_FEW_KEYS;
    if (count <= KS_FEW_KEYS) return ks_do_few_keys_repeat(keys, first, count);
    if (count > KS_MAX_HASHED_KEYS) return 1;
    while (size < 2 * (uint32_t)count) size *= 2;
    memset(slots, 0, size * sizeof slots[0]);
    for (int32_t i = 0; i < count; i++) {
        uint32_t hash = ks_hash_of_key(keys, first + i), slot = hash & (size - 1), found;
        for (int probes = 0; (found = slots[slot]) != 0; probes++) {
            if (probes == KS_MAX_KEY_PROBES) return 1;
            int may_be_same = (found ^ hash) >> 16 == 0;
            int32_t other = first + (int32_t)(found & 0xffff) - 1;
            if (may_be_same && ks_is_same_key(keys, first + i, other)) return 1;
            slot = (slot + 1) & (size - 1);
        }
        slots[slot] = (hash & 0xffff0000) | (uint32_t)(i + 1);
    }
    return 0;
}

/* Ends a map; the entries before the last one of a key are removed when the column is complete. */
static inline int ks_put_map(ks_typed *typed, ks_column *map) {
    if (!ks_put_list(typed, map)) return 0;
    const ks_column *keys = typed->columns + typed->columns[map->first_child].first_child;
    int32_t first = map->ends[map->entries - 1], end = map->ends[map->entries];
    if (end - first > 1 && !map->may_repeat_keys) {
        map->may_repeat_keys = ks_may_repeat_keys(keys, first, end - first);
    }
    return 1;
}

static int ks_put_null(ks_typed *typed, ks_column *column) {
    if (!ks_has_room(typed, column)) return 0;
    int64_t row = column->entries++;
    if (column->is_valid != NULL) column->is_valid[row] = 0;
    if (column->kind == KS_VALUES) {
        if (column->width == 0) return 1;
        memset(column->data + row * column->width, 0, (size_t)column->width);
    } else if (column->kind != KS_STRUCTS) {
        column->ends[row + 1] = column->ends[row];
    } else {
        for (int32_t i = 0; i < column->children; i++) {
            if (!ks_put_null(typed, typed->columns + column->first_child + i)) return 0;
        }
    }
    return 1;
}

/* Removes the entries from `entries` on. */
static void ks_cut_column(ks_typed *typed, ks_column *column, int64_t entries) {
    if (column->is_valid != NULL && column->entries > entries) {
        memset(column->is_valid + entries, 1, (size_t)(column->entries - entries));
    }
    if (entries > column->entries) entries = column->entries;
    column->entries = entries;
    if (column->kind == KS_ITEMS) column->size = column->ends[entries];
    int64_t below = column->kind == KS_LISTS ? column->ends[entries] : entries;
    for (int32_t i = 0; i < column->children; i++) {
        ks_cut_column(typed, typed->columns + column->first_child + i, below);
    }
}

static __attribute__((noinline, unused)) int ks_is_long_utf8(const uint8_t *p, int64_t size) {
    const uint8_t *limit = p + size;
    int is_valid = 1;
    while (p < limit && is_valid) {
        if (*p < 0x80) {
            p++;
        } else {
            p += ks_java_sequence(p, limit, &is_valid);
        }
    }
    return is_valid;
}

/* Most texts are ASCII. Words at both ends of a text overlap. */
static inline int ks_is_utf8(const uint8_t *p, int64_t size) {
    uint64_t high = 0, word;
    if (size >= KS_WORD) {
        for (int64_t i = 0; i < size - KS_WORD; i += KS_WORD) {
            memcpy(&word, p + i, sizeof word);
            high |= word;
        }
        memcpy(&word, p + size - KS_WORD, sizeof word);
        high |= word;
    } else if (size >= KS_WORD / 2) {
        uint32_t first, last;
        memcpy(&first, p, sizeof first);
        memcpy(&last, p + size - KS_WORD / 2, sizeof last);
        high = first | last;
    } else if (size > 0) {
        high = p[0] | p[size / 2] | p[size - 1];
    }
    return (high & 0x8080808080808080u) == 0 || ks_is_long_utf8(p, size);
}

#endif /* KAFKASCAN_TYPED_COLUMNS_H */
