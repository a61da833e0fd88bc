/* google.protobuf.Struct, Value and ListValue as JSON. */
#ifndef KAFKASCAN_PROTOBUF_JSON_H
#define KAFKASCAN_PROTOBUF_JSON_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protobuf_wire.h"
#include "quoted_text.h"

enum { KS_MAX_NUMBER_TEXT = 32 };

/* Integers up to here are numbers of 64 bits that a double has exactly. */
#define KS_LARGEST_EXACT 9007199254740992.0

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

#endif /* KAFKASCAN_PROTOBUF_JSON_H */
