/* Protobuf's wire format ("Encoding", protobuf.dev) into typed columns.
 *
 * Tables say which fields a message has and which columns they fill; they are made by
 * kafkascan/schemas/programs/protobuf_program.py. They are trusted; the bytes are not.
 *
 * A value is appended as soon as it is read, and cut again if it occurs a second time: the last
 * one counts. A message that occurs several times is merged: its columns are filled up only when
 * the message around it ends, so that at most one instance of it is open at any time.
 */
#ifndef KAFKASCAN_PROTOBUF_H
#define KAFKASCAN_PROTOBUF_H

#include <stdint.h>
#include <string.h>

#include "little_endian.h"
#include "protobuf_json.h"
#include "protobuf_wire.h"
#include "typed_columns.h"

enum { KS_NANOS = 1000000000 };

static const ks_pb_field *ks_pb_find(const ks_protobuf *pb, const ks_pb_message *message,
                                     uint32_t tag) {
    const ks_pb_field *fields = pb->fields + message->first_field;
    uint32_t number = tag >> 3;
    int32_t low = 0, high = message->fields;
    if (number < (uint32_t)message->numbers) {
        low = pb->parts[message->first_number + (int32_t)number];
        if (low < 0) return NULL;
    } else {
        while (low < high) {
            int32_t middle = low + (high - low) / 2;
            if (fields[middle].tag >> 3 < number) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
    }
    const ks_pb_field *field = fields + low; /* after the last one: one with tag 0 */
    return field->tag == tag || field->other_tag == tag ? field : NULL;
}

static int ks_pb_has_number(const ks_protobuf *pb, int32_t at, int32_t number) {
    int32_t low = at + 1, high = at + 1 + pb->parts[at];
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (pb->parts[middle] == number) return 1;
        if (pb->parts[middle] < number) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return 0;
}

static inline void ks_pb_open(ks_protobuf *pb, int32_t number, int64_t parent) {
    ks_pb_instance *instance = pb->instances + number;
    instance->serial = ++pb->serial;
    instance->parent = parent;
    instance->row = pb->typed.columns[pb->messages[number].column].entries;
    instance->seconds = instance->nanos = instance->is_unknown = 0;
}

static int ks_pb_put_default(ks_typed *typed, ks_column *column) {
    if (!ks_has_room(typed, column)) return 0;
    int64_t row = column->entries++;
    if (column->kind == KS_VALUES) {
        memset(column->data + row * column->width, 0, (size_t)column->width);
    } else {
        column->ends[row + 1] = column->ends[row];
    }
    return 1;
}

static int ks_pb_put_time(ks_protobuf *pb, const ks_pb_message *message,
                          const ks_pb_instance *instance) {
    int64_t seconds = instance->seconds, nanos = instance->nanos, time;
    int is_valid = nanos > -KS_NANOS && nanos < KS_NANOS;
    if (message->kind == KS_PB_TIMESTAMP) {
        is_valid &= nanos >= 0;
    } else {
        is_valid &= !(seconds > 0 && nanos < 0) && !(seconds < 0 && nanos > 0);
    }
    if (seconds < 0 && nanos > 0) { /* so that the least time does not overflow on its way */
        seconds++;
        nanos -= KS_NANOS;
    }
    if (!is_valid || __builtin_mul_overflow(seconds, KS_NANOS, &time) ||
        __builtin_add_overflow(time, nanos, &time)) {
        return ks_typed_fails(&pb->typed, KS_TIME_OUT_OF_RANGE);
    }
    return ks_put_number(&pb->typed, pb->typed.columns + message->column, &time, sizeof time);
}

/* Fills up the columns of an open message: each has one entry more afterwards. */
static int ks_pb_close(ks_protobuf *pb, int32_t number) {
    const ks_pb_message *message = pb->messages + number;
    const ks_pb_instance *instance = pb->instances + number;
    const ks_pb_field *field = pb->fields + message->first_field;
    ks_typed *typed = &pb->typed;
    ks_column *columns = typed->columns;
    int64_t row = instance->row;
    if (message->kind >= KS_PB_TIMESTAMP) return ks_pb_put_time(pb, message, instance);
    for (int32_t i = 0; i < message->fields; i++, field++) {
        ks_column *column = columns + field->column;
        int is_put = 1;
        if (field->list >= 0) {
            int is_map =
                field->op == KS_PB_MESSAGE && pb->messages[field->below].kind == KS_PB_ENTRY;
            is_put = is_map ? ks_put_map(typed, columns + field->list)
                            : ks_put_list(typed, columns + field->list);
        } else if (field->op == KS_PB_MESSAGE &&
                   pb->instances[field->below].parent == instance->serial) {
            is_put = ks_pb_close(pb, field->below);
        } else if (column->entries != row) {
            if (!ks_pb_is_json(field->op)) continue;
            is_put = ks_pb_make_json(pb, field->op, column);
        } else if (field->has_presence) {
            is_put = ks_put_null(typed, column);
        } else if (field->op == KS_PB_MESSAGE) { /* the value of a map */
            ks_pb_open(pb, field->below, instance->serial);
            is_put = ks_pb_close(pb, field->below);
        } else {
            is_put = ks_pb_put_default(typed, column);
            if (is_put && ks_pb_is_json(field->op)) is_put = ks_pb_make_json(pb, field->op, column);
        }
        if (!is_put) {
            ks_note_failed(typed, field->column, NULL);
            return 0;
        }
    }
    return message->kind == KS_PB_WRAPPER || ks_put_struct(typed, columns + message->column);
}

/* An instance that its oneof clears is not open any more. */
static int ks_pb_clear(ks_protobuf *pb, const ks_pb_field *field, int64_t row) {
    ks_typed *typed = &pb->typed;
    if (field->op == KS_PB_MESSAGE) {
        int64_t size = pb->messages[field->below].size;
        if (!ks_take_room(typed, size, KS_TOO_MANY_ITEMS)) return 0;
        pb->instances[field->below].parent = 0;
    }
    ks_cut_column(typed, typed->columns + field->column, row);
    return 1;
}

static inline int ks_pb_choose(ks_protobuf *pb, const ks_pb_field *field,
                               const ks_pb_instance *instance) {
    ks_pb_choice *choice = pb->choices + field->oneof;
    if (choice->serial == instance->serial && choice->field != field &&
        !ks_pb_clear(pb, choice->field, instance->row)) {
        return 0;
    }
    choice->serial = instance->serial;
    choice->field = field;
    return 1;
}

#define KS_PB_READ(type, expression) \
    { \
        uint64_t n = 0; \
        p = ks_pb_varint(pb, p, limit, KS_MAX_VARLONG_SIZE, &n); \
        if (p == NULL) return NULL; \
        type value = (type)(expression); \
        return ks_put_number(typed, column, &value, sizeof value) ? p : NULL; \
    }

#define KS_PB_COPY(width) \
    { \
        if (limit - p < (width)) return ks_pb_fails(pb, KS_VALUE_TOO_SHORT); \
        return ks_put_number(typed, column, p, (width)) ? p + (width) : NULL; \
    }

/* Appends a number, bytes or text. A call would take as long as reading most numbers. */
static inline __attribute__((always_inline)) ks_at ks_pb_value(ks_protobuf *pb,
                                                               const ks_pb_field *field, ks_at p,
                                                               ks_at limit) {
    ks_typed *typed = &pb->typed;
    ks_column *column = typed->columns + field->column;
    int64_t size;
    switch (field->op) {
        case KS_PB_BOOL:
            KS_PB_READ(uint8_t, n != 0)
        case KS_PB_VARINT_32:
        case KS_PB_CLOSED_ENUM:
            KS_PB_READ(uint32_t, n)
        case KS_PB_VARINT_64:
            KS_PB_READ(uint64_t, n)
        case KS_PB_ZIGZAG_32:
            KS_PB_READ(int32_t, ks_zigzag_32((uint32_t)n))
        case KS_PB_ZIGZAG_64:
            KS_PB_READ(int64_t, ks_zigzag_64(n))
        case KS_PB_FIXED_32:
            KS_PB_COPY(4)
        case KS_PB_FIXED_64:
            KS_PB_COPY(8)
        default: /* KS_PB_TEXT, KS_PB_BYTES */
            p = ks_pb_size(pb, p, limit, &size);
            if (p == NULL) return NULL;
            if (field->op == KS_PB_TEXT && !ks_is_utf8(p, size)) {
                return ks_pb_fails(pb, KS_BAD_VALUE_TEXT);
            }
            return ks_put_bytes(typed, column, p, size) ? p + size : NULL;
    }
}

#undef KS_PB_READ
#undef KS_PB_COPY

/* Appends the bytes of a message, as a new item or to the last one. */
static ks_at ks_pb_raw(ks_protobuf *pb, const ks_pb_field *field, int is_new, uint32_t tag, ks_at p,
                       ks_at limit) {
    ks_typed *typed = &pb->typed;
    ks_column *column = typed->columns + field->column;
    ks_at end = p, after;
    int64_t size;
    if ((tag & 7) == KS_WIRE_GROUP) {
        after = ks_pb_skip(pb, tag, p, limit, &end);
        if (after == NULL) return NULL;
    } else {
        p = ks_pb_size(pb, p, limit, &size);
        if (p == NULL) return NULL;
        after = end = p + size;
    }
    size = end - p;
    if (is_new) return ks_put_bytes(typed, column, p, size) ? after : NULL;
    if (size > column->room - column->size) {
        ks_column_is_full(typed, column, size);
        return NULL;
    }
    if (size > 0) memcpy(column->data + column->size, p, (size_t)size);
    column->size += size;
    column->ends[column->entries] = (int32_t)column->size;
    return after;
}

static ks_at ks_pb_walk(ks_protobuf *pb, int32_t number, ks_at p, ks_at limit, uint32_t end_tag);

static ks_at ks_pb_submessage(ks_protobuf *pb, int32_t number, uint32_t tag, ks_at p, ks_at limit) {
    ks_typed *typed = &pb->typed;
    uint32_t end_tag = 0;
    if (typed->depth >= KS_MAX_PROTOBUF_DEPTH) return ks_pb_fails(pb, KS_VALUE_TOO_DEEP);
    if ((tag & 7) == KS_WIRE_GROUP) {
        end_tag = tag - KS_WIRE_GROUP + KS_WIRE_GROUP_END;
    } else {
        int64_t size;
        p = ks_pb_size(pb, p, limit, &size);
        if (p == NULL) return NULL;
        limit = p + size;
    }
    typed->depth++;
    p = ks_pb_walk(pb, number, p, limit, end_tag);
    typed->depth--;
    return p;
}

/* Reads a number of a closed enum; *is_known says whether the enum has it. */
static ks_at ks_pb_enum(ks_protobuf *pb, const ks_pb_field *field, ks_at p, ks_at limit,
                        int *is_known) {
    uint64_t n = 0;
    p = ks_pb_varint(pb, p, limit, KS_MAX_VARLONG_SIZE, &n);
    *is_known = p != NULL && ks_pb_has_number(pb, field->below, (int32_t)n);
    return p;
}

/* An item of a repeated field, or many packed ones. */
static ks_at ks_pb_items(ks_protobuf *pb, const ks_pb_field *field, uint32_t tag, ks_at p,
                         ks_at limit) {
    ks_typed *typed = &pb->typed;
    if (field->op >= KS_PB_RAW && field->op < KS_PB_MESSAGE) {
        p = ks_pb_raw(pb, field, 1, tag, p, limit);
        if (p == NULL || field->op == KS_PB_RAW) return p;
        return ks_pb_make_json(pb, field->op, typed->columns + field->column) ? p : NULL;
    }
    if (field->op == KS_PB_MESSAGE) {
        const ks_pb_instance *instance = pb->instances + field->below;
        const ks_pb_message *message = pb->messages + field->below;
        if (!ks_take_room(typed, message->size, KS_TOO_MANY_ITEMS)) return NULL;
        ks_pb_open(pb, field->below, 0);
        p = ks_pb_submessage(pb, field->below, tag, p, limit);
        if (p == NULL) return NULL;
        if (message->kind == KS_PB_ENTRY && instance->is_unknown) {
            ks_cut_column(typed, typed->columns + field->column, instance->row);
            return p;
        }
        return ks_pb_close(pb, field->below) ? p : NULL;
    }
    ks_at end = p;
    int is_packed = (tag & 7) == KS_WIRE_SIZED && field->op < KS_PB_TEXT, is_known = 1;
    if (is_packed) {
        int64_t size;
        p = ks_pb_size(pb, p, limit, &size);
        if (p == NULL) return NULL;
        limit = end = p + size;
        if (size == 0) return p;
    }
    do {
        ks_at after = NULL;
        if (field->op == KS_PB_CLOSED_ENUM) {
            after = ks_pb_enum(pb, field, p, limit, &is_known);
            if (after == NULL) return NULL;
        }
        p = is_known ? ks_pb_value(pb, field, p, limit) : after;
    } while (is_packed && p != NULL && p < end);
    return p;
}

/* A field that occurs once, or of which the last value counts. */
static inline ks_at ks_pb_single(ks_protobuf *pb, const ks_pb_field *field,
                                 ks_pb_instance *instance, uint32_t tag, ks_at p, ks_at limit) {
    ks_typed *typed = &pb->typed;
    ks_column *column = typed->columns + field->column;
    if (field->op == KS_PB_CLOSED_ENUM) {
        int is_known;
        ks_at end = ks_pb_enum(pb, field, p, limit, &is_known);
        if (end == NULL || !is_known) {
            instance->is_unknown = 1;
            return end;
        }
    }
    if (field->oneof >= 0 && !ks_pb_choose(pb, field, instance)) return NULL;
    if (field->op < KS_PB_SECONDS) {
        if (column->entries != instance->row) ks_cut_column(typed, column, instance->row);
        return ks_pb_value(pb, field, p, limit);
    }
    if (field->op == KS_PB_MESSAGE) {
        if (pb->instances[field->below].parent != instance->serial) {
            ks_pb_open(pb, field->below, instance->serial);
        }
        return ks_pb_submessage(pb, field->below, tag, p, limit);
    }
    if (field->op >= KS_PB_RAW) {
        return ks_pb_raw(pb, field, column->entries == instance->row, tag, p, limit);
    }
    uint64_t n = 0;
    p = ks_pb_varint(pb, p, limit, KS_MAX_VARLONG_SIZE, &n);
    if (field->op == KS_PB_SECONDS) {
        instance->seconds = (int64_t)n;
    } else {
        instance->nanos = (int32_t)n;
    }
    return p;
}

/* Reads fields of an open message up to `limit`, or up to the end of a group. */
static ks_at ks_pb_walk(ks_protobuf *pb, int32_t number, ks_at p, ks_at limit, uint32_t end_tag) {
    const ks_pb_message *message = pb->messages + number;
    const ks_pb_field *expected = pb->fields + message->first_field;
    ks_pb_instance *instance = pb->instances + number;
    while (p != NULL && p < limit) {
        const ks_pb_field *field = expected;
        uint32_t tag;
        p = ks_pb_tag(pb, p, limit, &tag);
        if (p == NULL) return NULL;
        if (tag != field->tag) {
            if ((tag & 7) == KS_WIRE_GROUP_END) {
                return tag == end_tag ? p : ks_pb_fails(pb, KS_BAD_VALUE_TAG);
            }
            field = ks_pb_find(pb, message, tag);
            if (field == NULL) {
                ks_at end;
                instance->is_unknown = 1;
                p = ks_pb_skip(pb, tag, p, limit, &end);
                continue;
            }
        }
        if (field->list < 0) {
            p = ks_pb_single(pb, field, instance, tag, p, limit);
            expected = field + 1;
        } else {
            p = ks_pb_items(pb, field, tag, p, limit);
            expected = field;
        }
        if (p == NULL) ks_note_failed(&pb->typed, field->column, NULL);
    }
    if (p != NULL && end_tag != 0) return ks_pb_fails(pb, KS_VALUE_TOO_SHORT);
    return p;
}

/* The least byte that a message can begin with: the tag of field 1. */
#define KS_PB_LEAST_TAG 8

/* Confluent's message indexes, which must be those of `path`; moves `p` behind them. */
static int ks_pb_indexes(const int32_t *path, ks_at *p, ks_at limit) {
    static const int32_t first_message[] = {1, 0};
    int32_t count, index;
    int is_same = 1;
    ks_at end = ks_read_varint(*p, limit, &count);
    if (end != NULL && count == 0) {
        is_same = path[0] == first_message[0] && path[1] == first_message[1];
    } else if (end != NULL) {
        is_same = path[0] == count;
        for (int32_t i = 0; is_same && end != NULL && i < count; i++) {
            end = ks_read_varint(end, limit, &index);
            is_same = end != NULL && index == path[1 + i];
        }
    }
    if (end == NULL) return KS_VALUE_TOO_SHORT;
    if (!is_same) return KS_UNRESOLVED_VALUE;
    *p = end;
    return 0;
}

/* The end of Apicurio's `Ref`, a message with the name of the one that follows: its size, the tag
 * of field 1, the size of the name, and the name. NULL if there is none. */
static ks_at ks_pb_ref_end(ks_at p, ks_at limit) {
    if (limit - p < 4 || p[0] > INT8_MAX || p[0] < 3 || limit - p <= p[0]) return NULL;
    if (p[1] != 0x0a || p[2] != p[0] - 2) return NULL;
    ks_at end = p + 1 + p[0];
    for (ks_at at = p + 3; at < end; at++) {
        uint8_t letter = *at | 0x20;
        int is_letter = letter >= 'a' && letter <= 'z';
        if (!is_letter && !(*at >= '0' && *at <= '9') && *at != '_') return NULL;
    }
    return end;
}

/* What says which message of the schema's file the value is: it must be the expected one. */
static ks_at ks_pb_naming(ks_protobuf *pb, const int32_t *path, ks_at p, ks_at limit) {
    const int32_t *may_be_unnamed = path + 1 + path[0], *name = may_be_unnamed + 1;
    int status = KS_UNRESOLVED_VALUE;
    if (!*may_be_unnamed || (p < limit && *p < KS_PB_LEAST_TAG)) {
        status = ks_pb_indexes(path, &p, limit);
        if (status == 0) return p;
    }
    ks_at end = ks_pb_ref_end(p, limit);
    if (end == NULL) {
        int is_unnamed = *may_be_unnamed && (p == limit || *p >= KS_PB_LEAST_TAG);
        return is_unnamed ? p : ks_pb_fails(pb, status);
    }
    int is_same = name[0] == end - (p + 3);
    for (int32_t i = 0; is_same && i < name[0]; i++) is_same = name[1 + i] == p[3 + i];
    if (!is_same) return ks_pb_fails(pb, KS_UNRESOLVED_VALUE);
    if (end < limit && *end < KS_PB_LEAST_TAG) {
        status = ks_pb_indexes(path, &end, limit);
        if (status != 0) return ks_pb_fails(pb, status);
    }
    return end;
}

/* Appends one entry to the root; returns the end of the value's bytes, or NULL. `naming` is where
 * the parts have the message that is expected: the number of its indexes, or -1 if nothing is
 * before the value; these; whether a value may begin without naming it; the size of its name, and
 * its letters. */
static ks_at ks_pb_run(ks_protobuf *pb, int64_t naming, ks_at p, ks_at limit) {
    if (pb->parts[naming] >= 0) {
        p = ks_pb_naming(pb, pb->parts + naming, p, limit);
        if (p == NULL) return NULL;
    }
    ks_pb_open(pb, 0, 0);
    p = ks_pb_walk(pb, 0, p, limit, 0);
    return p != NULL && ks_pb_close(pb, 0) ? p : NULL;
}

#endif /* KAFKASCAN_PROTOBUF_H */
