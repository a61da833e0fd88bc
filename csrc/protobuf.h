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

#include <locale.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __APPLE__
#include <xlocale.h>
#endif

#include "little_endian.h"
#include "quoted_text.h"
#include "typed_columns.h"
#include "varint.h"

/* X(name): how the value of a field is read. Those before TEXT may be packed. */
#define KS_PB_OPS(X) \
    X(BOOL) \
    X(VARINT_32) /* the low bits */ \
    X(VARINT_64) \
    X(ZIGZAG_32) \
    X(ZIGZAG_64) \
    X(CLOSED_ENUM) /* below: where its numbers are; another number is an unknown field */ \
    X(FIXED_32) \
    X(FIXED_64) \
    X(TEXT) /* valid UTF-8 */ \
    X(BYTES) \
    X(SECONDS) /* of a time, whose column is filled when the message ends */ \
    X(NANOS) \
    X(RAW)         /* a message as its bytes */ \
    X(JSON_STRUCT) /* google.protobuf.Struct as JSON; the same for the next two */ \
    X(JSON_VALUE) \
    X(JSON_LIST) \
    X(MESSAGE) /* below: its number */

/* X(name): what a message fills when it ends. */
#define KS_PB_KINDS(X) \
    X(STRUCT) \
    X(ENTRY)   /* of a map: a struct that an unknown field removes, as in protobuf */ \
    X(WRAPPER) /* only the column of its field */ \
    X(TIMESTAMP) \
    X(DURATION)

#define KS_PB_ENUM(name) KS_PB_##name,
#define KS_PB_NAME(name) #name,
enum ks_pb_op { KS_PB_OPS(KS_PB_ENUM) KS_PB_OP_COUNT };
enum ks_pb_kind { KS_PB_KINDS(KS_PB_ENUM) KS_PB_KIND_COUNT };
static const char *const ks_pb_op_names[] = {KS_PB_OPS(KS_PB_NAME)};
static const char *const ks_pb_kind_names[] = {KS_PB_KINDS(KS_PB_NAME)};
#undef KS_PB_ENUM
#undef KS_PB_NAME

enum ks_wire_type {
    KS_WIRE_VARINT,
    KS_WIRE_64,
    KS_WIRE_SIZED,
    KS_WIRE_GROUP,
    KS_WIRE_GROUP_END,
    KS_WIRE_32
};

/* The limits of protobuf's own parsers. */
enum { KS_MAX_PROTOBUF_DEPTH = 100, KS_MAX_TAG_SIZE = 5, KS_MAX_SIZE_SIZE = 5 };

enum { KS_NANOS = 1000000000, KS_MAX_COMPARED_KEYS = 16, KS_MAX_NUMBER_TEXT = 32 };

/* Integers up to here are numbers of 64 bits that a double has exactly. */
#define KS_LARGEST_EXACT 9007199254740992.0

typedef struct {
    uint32_t tag;       /* as it is usually written */
    uint32_t other_tag; /* the same, packed or not packed; 0 for none */
    int32_t op;
    int32_t column; /* that values are appended to */
    int32_t list;   /* of a repeated field: the list or map of these; otherwise -1 */
    int32_t below;
    int32_t oneof;        /* -1 for none */
    int32_t has_presence; /* a missing value is a null */
} ks_pb_field;

typedef struct {
    int32_t kind;
    int32_t column;
    int32_t first_field; /* in the order of their numbers; a field with tag 0 follows them */
    int32_t fields;
    int32_t first_number; /* parts: the position of the field with each number, or -1 */
    int32_t numbers;      /* below this one; those of later fields are searched */
    int32_t cost;         /* in items of a list */
} ks_pb_message;

/* The open instance of a message. */
typedef struct {
    int64_t serial;
    int64_t parent; /* the serial of the instance that it belongs to */
    int64_t row;
    int64_t seconds;
    int32_t nanos;
    int32_t is_unknown;
} ks_pb_instance;

/* The member of a oneof that is set, in the instance with this serial. */
typedef struct {
    const ks_pb_field *field;
    int64_t serial;
} ks_pb_choice;

typedef struct {
    ks_typed typed;
    const ks_pb_message *messages;
    const ks_pb_field *fields;
    const int32_t *parts;
    ks_pb_instance *instances; /* one for each message */
    ks_pb_choice *choices;     /* one for each oneof */
    int64_t serial;
    locale_t c_locale; /* for `snprintf`: others have another decimal point */
} ks_protobuf;

typedef const uint8_t *ks_at;

static inline ks_at ks_pb_fails(ks_protobuf *pb, int status) {
    pb->typed.status = status;
    return NULL;
}

static inline ks_at ks_pb_varint(ks_protobuf *pb, ks_at p, ks_at limit, int max_size,
                                 uint64_t *number) {
    ks_at end = ks_read_unsigned(p, limit, max_size, number);
    if (end != NULL) return end;
    return ks_pb_fails(pb, limit - p < max_size ? KS_VALUE_TOO_SHORT : KS_BAD_VALUE_NUMBER);
}

static inline ks_at ks_pb_tag(ks_protobuf *pb, ks_at p, ks_at limit, uint32_t *tag) {
    uint64_t wide;
    p = ks_pb_varint(pb, p, limit, KS_MAX_TAG_SIZE, &wide);
    if (p == NULL) return NULL;
    *tag = (uint32_t)wide;
    if (wide > UINT32_MAX || wide < 8) return ks_pb_fails(pb, KS_BAD_VALUE_TAG);
    return p;
}

/* The size before bytes, text, a message or packed numbers. */
static inline ks_at ks_pb_size(ks_protobuf *pb, ks_at p, ks_at limit, int64_t *size) {
    uint64_t wide;
    p = ks_pb_varint(pb, p, limit, KS_MAX_SIZE_SIZE, &wide);
    if (p == NULL) return NULL;
    if (wide > (uint64_t)(limit - p)) return ks_pb_fails(pb, KS_BAD_VALUE_SIZE);
    *size = (int64_t)wide;
    return p;
}

/* Skips a field whose tag was read; `content_end` is the end of a group's fields. */
static ks_at ks_pb_skip(ks_protobuf *pb, uint32_t tag, ks_at p, ks_at limit, ks_at *content_end) {
    uint32_t groups[KS_MAX_PROTOBUF_DEPTH];
    int depth = 0;
    uint64_t number;
    int64_t size;
    do {
        switch (tag & 7) {
            case KS_WIRE_VARINT:
                p = ks_pb_varint(pb, p, limit, KS_MAX_VARLONG_SIZE, &number);
                break;
            case KS_WIRE_64:
            case KS_WIRE_32:
                size = (tag & 7) == KS_WIRE_64 ? 8 : 4;
                if (limit - p < size) return ks_pb_fails(pb, KS_VALUE_TOO_SHORT);
                p += size;
                break;
            case KS_WIRE_SIZED:
                p = ks_pb_size(pb, p, limit, &size);
                if (p != NULL) p += size;
                break;
            case KS_WIRE_GROUP:
                if (depth + pb->typed.depth >= KS_MAX_PROTOBUF_DEPTH) {
                    return ks_pb_fails(pb, KS_VALUE_TOO_DEEP);
                }
                groups[depth++] = tag;
                break;
            case KS_WIRE_GROUP_END:
                if (tag >> 3 != groups[--depth] >> 3) return ks_pb_fails(pb, KS_BAD_VALUE_TAG);
                break;
            default:
                return ks_pb_fails(pb, KS_BAD_VALUE_TAG);
        }
        if (p == NULL || depth == 0) return p;
        *content_end = p;
        p = ks_pb_tag(pb, p, limit, &tag);
    } while (p != NULL);
    return NULL;
}

/* Reads a field of any kind: its tag, and where its content begins. Returns its end. */
static ks_at ks_pb_content(ks_protobuf *pb, ks_at p, ks_at limit, uint32_t *tag, ks_at *content) {
    int64_t size;
    ks_at group_end;
    p = ks_pb_tag(pb, p, limit, tag);
    if (p == NULL) return NULL;
    *content = p;
    if ((*tag & 7) == KS_WIRE_GROUP_END) return ks_pb_fails(pb, KS_BAD_VALUE_TAG);
    if ((*tag & 7) != KS_WIRE_SIZED) return ks_pb_skip(pb, *tag, p, limit, &group_end);
    *content = p = ks_pb_size(pb, p, limit, &size);
    return p == NULL ? NULL : p + size;
}

/* ---- google.protobuf.Struct, Value and ListValue as JSON ---- */

/* Their JSON is written behind their bytes, which are the last item of the column. */
typedef struct {
    ks_protobuf *pb;
    ks_column *column;
    uint8_t *out;
} ks_pb_json;

/* The tags of the fields of these messages, and of the entries of Struct's map. */
enum {
    KS_TAG_OF_ITEM = 1 << 3 | KS_WIRE_SIZED,
    KS_TAG_OF_KEY = 1 << 3 | KS_WIRE_SIZED,
    KS_TAG_OF_VALUE = 2 << 3 | KS_WIRE_SIZED,
    KS_TAG_OF_NULL = 1 << 3 | KS_WIRE_VARINT,
    KS_TAG_OF_NUMBER = 2 << 3 | KS_WIRE_64,
    KS_TAG_OF_TEXT = 3 << 3 | KS_WIRE_SIZED,
    KS_TAG_OF_BOOL = 4 << 3 | KS_WIRE_VARINT,
    KS_TAG_OF_STRUCT = 5 << 3 | KS_WIRE_SIZED,
    KS_TAG_OF_LIST = 6 << 3 | KS_WIRE_SIZED
};

static int ks_pb_json_is_full(ks_pb_json *json, int64_t more) {
    const ks_column *column = json->column;
    int64_t written = json->out - (column->data + column->size);
    return ks_column_is_full(&json->pb->typed, column, written + more);
}

static inline int64_t ks_pb_json_room(const ks_pb_json *json) {
    return json->column->data + json->column->room - json->out;
}

static int ks_pb_put_json(ks_pb_json *json, const void *text, int64_t size) {
    if (ks_pb_json_room(json) < size) return ks_pb_json_is_full(json, size);
    memcpy(json->out, text, (size_t)size);
    json->out += size;
    return 1;
}

static int ks_pb_put_json_text(ks_pb_json *json, ks_at p, int64_t size) {
    ks_at limit = p + size;
    if (!ks_is_utf8(p, size)) return ks_typed_fails(&json->pb->typed, KS_BAD_VALUE_TEXT);
    if (!ks_pb_put_json(json, "\"", 1)) return 0;
    ks_copy_quoted(&p, limit, &json->out, json->out + ks_pb_json_room(json), KS_JSON_UTF8);
    if (p < limit) return ks_pb_json_is_full(json, (limit - p + 1) * KS_MAX_ESCAPED);
    return ks_pb_put_json(json, "\"", 1);
}

/* The shortest digits that are the number; JSON has no infinity. */
static int ks_pb_put_json_number(ks_pb_json *json, ks_at p) {
    char text[KS_MAX_NUMBER_TEXT];
    double number;
    int size = 0;
    memcpy(&number, p, sizeof number);
    if (!isfinite(number)) return ks_typed_fails(&json->pb->typed, KS_BAD_VALUE_NUMBER);
    if (fabs(number) < KS_LARGEST_EXACT && number == trunc(number) &&
        !(number == 0 && signbit(number))) {
        uint8_t *end = ks_write_decimal((uint8_t *)text, (int64_t)number);
        return ks_pb_put_json(json, text, end - (uint8_t *)text);
    }
    locale_t before = uselocale(json->pb->c_locale);
    for (int digits = 15; digits <= 17; digits++) {
        size = snprintf(text, sizeof text, "%.*g", digits, number);
        if (strtod(text, NULL) == number) break;
    }
    uselocale(before);
    return ks_pb_put_json(json, text, size);
}

static int ks_pb_put_json_value(ks_pb_json *json, ks_at p, ks_at limit);

static inline int ks_pb_deeper(ks_protobuf *pb) {
    if (pb->typed.depth >= KS_MAX_PROTOBUF_DEPTH) {
        return ks_typed_fails(&pb->typed, KS_VALUE_TOO_DEEP);
    }
    pb->typed.depth++;
    return 1;
}

/* An entry of Struct's map; one with unknown fields is none, as in protobuf. */
static int ks_pb_put_json_member(ks_pb_json *json, ks_at p, ks_at limit, int64_t *count) {
    ks_protobuf *pb = json->pb;
    ks_at key = p, key_end = p, value = p, value_end = p, content, end;
    int values = 0, is_known = 1;
    for (uint32_t tag; p < limit; p = end) {
        end = ks_pb_content(pb, p, limit, &tag, &content);
        if (end == NULL) return 0;
        if (tag == KS_TAG_OF_KEY) {
            key = content;
            key_end = end;
        } else if (tag == KS_TAG_OF_VALUE) {
            value = content;
            value_end = end;
            /* No serializer writes two, which would have to be merged. */
            if (++values > 1) return ks_typed_fails(&pb->typed, KS_BAD_VALUE_TAG);
        } else {
            is_known = 0;
        }
    }
    if (!is_known) return 1;
    if (!ks_pb_put_json(json, ", ", (*count)++ ? 2 : 0)) return 0;
    return ks_pb_put_json_text(json, key, key_end - key) && ks_pb_put_json(json, ": ", 2) &&
           ks_pb_put_json_value(json, value, value_end);
}

/* What a Struct or ListValue has; `count` items or members precede it. */
static int ks_pb_put_json_items(ks_pb_json *json, int is_list, ks_at p, ks_at limit,
                                int64_t *count) {
    ks_at content, end;
    for (uint32_t tag; p < limit; p = end) {
        int is_put = 1;
        end = ks_pb_content(json->pb, p, limit, &tag, &content);
        if (end == NULL) return 0;
        if (tag != KS_TAG_OF_ITEM) continue;
        if (!ks_pb_deeper(json->pb)) return 0;
        if (is_list) {
            is_put = ks_pb_put_json(json, ", ", (*count)++ ? 2 : 0) &&
                     ks_pb_put_json_value(json, content, end);
        } else {
            is_put = ks_pb_deeper(json->pb) && ks_pb_put_json_member(json, content, end, count);
            json->pb->typed.depth--;
        }
        if (!is_put) return 0;
        json->pb->typed.depth--;
    }
    return 1;
}

/* Of the kinds that a Value has, the last one counts; what of it follows one another is merged. */
static int ks_pb_put_json_value(ks_pb_json *json, ks_at p, ks_at limit) {
    ks_protobuf *pb = json->pb;
    ks_at first = limit, last = limit, last_end = limit, content, end;
    uint32_t kind = KS_TAG_OF_NULL, tag;
    uint64_t number;
    int64_t count = 0;
    for (; p < limit; p = end) {
        end = ks_pb_content(pb, p, limit, &tag, &content);
        if (end == NULL) return 0;
        if (tag != KS_TAG_OF_NULL && tag != KS_TAG_OF_NUMBER && tag != KS_TAG_OF_TEXT &&
            tag != KS_TAG_OF_BOOL && tag != KS_TAG_OF_STRUCT && tag != KS_TAG_OF_LIST) {
            continue;
        }
        if (tag != kind) first = p;
        kind = tag;
        last = content;
        last_end = end;
    }
    switch (kind) {
        case KS_TAG_OF_NULL:
            return ks_pb_put_json(json, "null", 4);
        case KS_TAG_OF_NUMBER:
            return ks_pb_put_json_number(json, last);
        case KS_TAG_OF_TEXT:
            return ks_pb_put_json_text(json, last, last_end - last);
        case KS_TAG_OF_BOOL:
            if (ks_pb_varint(pb, last, limit, KS_MAX_VARLONG_SIZE, &number) == NULL) return 0;
            return number ? ks_pb_put_json(json, "true", 4) : ks_pb_put_json(json, "false", 5);
        default:
            break;
    }
    int is_list = kind == KS_TAG_OF_LIST;
    if (!ks_pb_deeper(pb) || !ks_pb_put_json(json, is_list ? "[" : "{", 1)) return 0;
    for (p = first; p < limit; p = end) {
        end = ks_pb_content(pb, p, limit, &tag, &content);
        if (tag == kind && !ks_pb_put_json_items(json, is_list, content, end, &count)) return 0;
    }
    pb->typed.depth--;
    return ks_pb_put_json(json, is_list ? "]" : "}", 1);
}

/* Makes the last item of a column, the bytes of a message, its JSON. */
static int ks_pb_make_json(ks_protobuf *pb, int32_t op, ks_column *column) {
    int32_t start = column->ends[column->entries - 1];
    ks_at p = column->data + start, limit = column->data + column->size;
    ks_pb_json json = {pb, column, column->data + column->size};
    int is_list = op == KS_PB_JSON_LIST;
    int64_t count = 0;
    if (!ks_pb_deeper(pb)) return 0;
    if (op == KS_PB_JSON_VALUE) {
        if (!ks_pb_put_json_value(&json, p, limit)) return 0;
    } else if (!ks_pb_put_json(&json, is_list ? "[" : "{", 1) ||
               !ks_pb_put_json_items(&json, is_list, p, limit, &count) ||
               !ks_pb_put_json(&json, is_list ? "]" : "}", 1)) {
        return 0;
    }
    pb->typed.depth--;
    int64_t size = json.out - limit;
    memmove(column->data + start, limit, (size_t)size);
    column->size = start + size;
    column->ends[column->entries] = (int32_t)column->size;
    return 1;
}

static inline int ks_pb_is_json(int32_t op) { return op > KS_PB_RAW && op < KS_PB_MESSAGE; }

/* ---- the columns ---- */

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

static int ks_pb_is_same(const ks_column *keys, int32_t a, int32_t b) {
    int64_t size = keys->width, from_a = a * size, from_b = b * size;
    if (keys->kind == KS_ITEMS) {
        size = keys->ends[a + 1] - keys->ends[a];
        if (size != keys->ends[b + 1] - keys->ends[b]) return 0;
        from_a = keys->ends[a];
        from_b = keys->ends[b];
    }
    return memcmp(keys->data + from_a, keys->data + from_b, (size_t)size) == 0;
}

/* Ends a map. Whether a key is there twice is found out here only for small maps. */
static int ks_pb_put_map(ks_typed *typed, ks_column *map) {
    if (!ks_put_list(typed, map)) return 0;
    const ks_column *pairs = typed->columns + map->first_child;
    const ks_column *keys = typed->columns + pairs->first_child;
    int32_t first = map->ends[map->entries - 1], end = map->ends[map->entries];
    if (end - first > KS_MAX_COMPARED_KEYS) map->may_repeat_keys = 1;
    for (int32_t i = first + 1; i < end && !map->may_repeat_keys; i++) {
        for (int32_t j = first; j < i; j++) {
            map->may_repeat_keys |= ks_pb_is_same(keys, i, j);
        }
    }
    return 1;
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
            is_put = is_map ? ks_pb_put_map(typed, columns + field->list)
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
        if (!is_put) return 0;
    }
    return message->kind == KS_PB_WRAPPER || ks_put_struct(typed, columns + message->column);
}

/* An instance that its oneof clears is not open any more. */
static int ks_pb_clear(ks_protobuf *pb, const ks_pb_field *field, int64_t row) {
    ks_typed *typed = &pb->typed;
    if (field->op == KS_PB_MESSAGE) {
        typed->items_left -= pb->messages[field->below].cost;
        if (typed->items_left < 0) return ks_typed_fails(typed, KS_TOO_MANY_ITEMS);
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
        typed->items_left -= message->cost;
        if (typed->items_left < 0) return ks_pb_fails(pb, KS_TOO_MANY_ITEMS);
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
