/* Avro's binary encoding (specification 1.12, "Binary Encoding") into typed columns.
 *
 * A program says how a value that was written with one schema fills the columns of another: a
 * tree of steps, made by kafkascan/schemas/programs/avro_program.py. It is trusted; the bytes are
 * not.
 */
#ifndef KAFKASCAN_AVRO_H
#define KAFKASCAN_AVRO_H

#include <stdint.h>
#include <string.h>

#include "little_endian.h"
#include "typed_columns.h"
#include "varint.h"

/* X(name): what a step reads, and what it fills. */
#define KS_AVRO_OPS(X) \
    X(NULL) /* nothing: a null */ \
    X(BOOLEAN) \
    X(INT)  /* the varint of 32 bits */ \
    X(LONG) /* of 64 bits */ \
    X(INT_AS_LONG) \
    X(INT_AS_FLOAT) \
    X(INT_AS_DOUBLE) \
    X(LONG_AS_FLOAT) \
    X(LONG_AS_DOUBLE) \
    X(FLOAT) \
    X(DOUBLE) \
    X(FLOAT_AS_DOUBLE) \
    X(TIME_MILLIS) /* of a day, in an int */ \
    X(TIME_MICROS) /* in a long */ \
    X(BYTES) \
    X(TEXT) /* valid UTF-8 */ \
    X(REST) /* bytes without their size: all that is left */ \
    X(REST_AS_TEXT) \
    X(FIXED)         /* `size` bytes of a column of this width */ \
    X(FIXED_AS_ITEM) /* of a column of items */ \
    X(ENUM)          /* parts: the reader's number of each symbol; -1 for none */ \
    X(DECIMAL)       /* bytes (`size` is -1), all that is left (-2), or a fixed of `size` bytes; \
                        part: where 10**precision is */ \
    X(UUID)          /* a fixed of 16 bytes, as text */ \
    X(DURATION)      /* a fixed of three numbers, into three columns */ \
    X(RECORD)        /* parts: steps, in the order of the writer's fields */ \
    X(ARRAY)         /* part: the step of an item; `size`: bytes that an item takes */ \
    X(MAP)           /* the same, of a value; the column's struct has key and value */ \
    X(UNION)         /* parts: steps of the branches */ \
    X(MEMBER)        /* part: the step of one member of the column's struct; others are null */ \
    X(CONSTANT)      /* a default: part: its step, of `size` bytes at `at` of the constants */ \
    X(RAW)           /* part: a step that skips; its bytes become an item */ \
    X(UNRESOLVED)    /* the reader's schema has no type for it */ \
    X(SKIP_NULL)     /* from here on, steps without a column */ \
    X(SKIP_INT) \
    X(SKIP_BYTES) \
    X(SKIP_FIXED) \
    X(SKIP_ENUM) /* part: number of symbols */ \
    X(SKIP_RECORD) \
    X(SKIP_LIST) /* `size`: bytes of room for an item; `at`: 1 for a map */ \
    X(SKIP_UNION) \
    X(SKIP_NAMED) /* part: the step of a recursive type */

enum ks_avro_op {
#define KS_AVRO_AS_OP(name) KS_AVRO_##name,
    KS_AVRO_OPS(KS_AVRO_AS_OP)
#undef KS_AVRO_AS_OP
        KS_AVRO_OP_COUNT
};

static const char *const ks_avro_op_names[] = {
#define KS_AVRO_NAME(name) #name,
    KS_AVRO_OPS(KS_AVRO_NAME)
#undef KS_AVRO_NAME
};

enum {
    KS_MAX_VALUE_DEPTH = 1024,
    KS_UUID_TEXT_SIZE = 36,
    KS_MAX_DECIMAL_SIZE = 32,
    KS_REST_OF_VALUE = -2
};

#define KS_MILLIS_OF_DAY INT64_C(86400000)
#define KS_MICROS_OF_DAY INT64_C(86400000000)

typedef struct {
    int32_t op;
    int32_t column;
    int32_t first_part;
    int32_t parts;
    int64_t size;
    int64_t at;
} ks_avro_step;

typedef struct {
    ks_typed typed;
    const ks_avro_step *steps;
    const int32_t *parts;
    const uint8_t *constants;
} ks_avro;

typedef const uint8_t *ks_at;

static inline ks_at ks_avro_fails(ks_avro *avro, int status) {
    avro->typed.status = status;
    return NULL;
}

static inline ks_at ks_avro_varlong(ks_avro *avro, ks_at p, ks_at limit, int64_t *number) {
    ks_at end = ks_read_varlong(p, limit, number);
    if (end != NULL) return end;
    return ks_avro_fails(
        avro, limit - p < KS_MAX_VARLONG_SIZE ? KS_VALUE_TOO_SHORT : KS_BAD_VALUE_NUMBER);
}

static inline ks_at ks_avro_varint(ks_avro *avro, ks_at p, ks_at limit, int32_t *number) {
    int64_t wide;
    p = ks_avro_varlong(avro, p, limit, &wide);
    if (p == NULL) return NULL;
    if (wide != (int32_t)wide) return ks_avro_fails(avro, KS_BAD_VALUE_NUMBER);
    *number = (int32_t)wide;
    return p;
}

/* The size before bytes or text. */
static inline ks_at ks_avro_size(ks_avro *avro, ks_at p, ks_at limit, int64_t *size) {
    p = ks_avro_varlong(avro, p, limit, size);
    if (p == NULL) return NULL;
    if (*size < 0 || *size > limit - p) return ks_avro_fails(avro, KS_BAD_VALUE_SIZE);
    return p;
}

static inline ks_at ks_avro_index(ks_avro *avro, ks_at p, ks_at limit, int64_t count,
                                  int64_t *index) {
    p = ks_avro_varlong(avro, p, limit, index);
    if (p == NULL) return NULL;
    if (*index < 0 || *index >= count) return ks_avro_fails(avro, KS_BAD_VALUE_CHOICE);
    return p;
}

/* The number of items of the next block: 0 after the last one. A negative number is followed by
 * the size of the block, which need not be right: items are read one by one. */
static inline ks_at ks_avro_block(ks_avro *avro, ks_at p, ks_at limit, int64_t item_size,
                                  int64_t *count) {
    p = ks_avro_varlong(avro, p, limit, count);
    if (p != NULL && *count < 0) {
        int64_t size;
        p = ks_avro_size(avro, p, limit, &size);
        if (*count == INT64_MIN) return ks_avro_fails(avro, KS_BAD_VALUE_SIZE);
        *count = -*count;
    }
    if (p == NULL) return NULL;
    /* A division takes long; the product of room and size has less than 63 bits. */
    int64_t size = *count > avro->typed.room_left ? *count : *count * item_size;
    return ks_take_room(&avro->typed, size, KS_TOO_MANY_ITEMS) ? p : NULL;
}

static inline int ks_is_below(const uint8_t *a, const uint8_t *b, int width) {
    for (int i = width - 1; i >= 0; i--) {
        if (a[i] != b[i]) return a[i] < b[i];
    }
    return 0;
}

/* A big-endian number in two's complement becomes a little-endian one of the column's width. */
static ks_at ks_avro_decimal(ks_avro *avro, const ks_avro_step *step, ks_at p, ks_at limit) {
    ks_column *column = avro->typed.columns + step->column;
    int64_t size = step->size;
    uint8_t number[KS_MAX_DECIMAL_SIZE], magnitude[KS_MAX_DECIMAL_SIZE];
    int width = column->width;
    if (size == KS_REST_OF_VALUE) {
        size = limit - p;
    } else if (size < 0) {
        p = ks_avro_size(avro, p, limit, &size);
        if (p == NULL) return NULL;
    } else if (size > limit - p) {
        return ks_avro_fails(avro, KS_VALUE_TOO_SHORT);
    }
    uint8_t sign = size > 0 && (p[0] & 0x80) ? 0xff : 0;
    memset(number, sign, sizeof number);
    for (int64_t i = 0; i < size; i++) {
        uint8_t byte = p[size - 1 - i];
        if (i < width) {
            number[i] = byte;
        } else if (byte != sign) {
            return ks_avro_fails(avro, KS_DECIMAL_TOO_LARGE);
        }
    }
    unsigned carry = sign & 1;
    for (int i = 0; i < width; i++) {
        unsigned byte = (uint8_t)(number[i] ^ sign) + carry;
        magnitude[i] = (uint8_t)byte;
        carry = byte >> 8;
    }
    const uint8_t *too_large = avro->constants + avro->parts[step->first_part];
    if (!ks_is_below(magnitude, too_large, width)) {
        return ks_avro_fails(avro, KS_DECIMAL_TOO_LARGE);
    }
    return ks_put_number(&avro->typed, column, number, (size_t)width) ? p + size : NULL;
}

/* A time of a day, which Arrow has only within a day. */
static ks_at ks_avro_time(ks_avro *avro, const ks_avro_step *step, ks_at p, ks_at limit) {
    ks_column *column = avro->typed.columns + step->column;
    int is_millis = step->op == KS_AVRO_TIME_MILLIS;
    int64_t time;
    p = ks_avro_varlong(avro, p, limit, &time);
    if (p == NULL) return NULL;
    if (time < 0 || time >= (is_millis ? KS_MILLIS_OF_DAY : KS_MICROS_OF_DAY)) {
        return ks_avro_fails(avro, KS_BAD_VALUE_NUMBER);
    }
    int32_t millis = (int32_t)time;
    int is_put = is_millis ? ks_put_number(&avro->typed, column, &millis, sizeof millis)
                           : ks_put_number(&avro->typed, column, &time, sizeof time);
    return is_put ? p : NULL;
}

static void ks_write_uuid(uint8_t *out, const uint8_t *p) {
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10) *out++ = '-';
        *out++ = (uint8_t)digits[p[i] >> 4];
        *out++ = (uint8_t)digits[p[i] & 15];
    }
}

static ks_at ks_avro_skip(ks_avro *avro, const ks_avro_step *step, ks_at p, ks_at limit);

static ks_at ks_avro_skip_inside(ks_avro *avro, const ks_avro_step *step, ks_at p, ks_at limit) {
    if (avro->typed.depth == KS_MAX_VALUE_DEPTH) return ks_avro_fails(avro, KS_VALUE_TOO_DEEP);
    avro->typed.depth++;
    p = ks_avro_skip(avro, step, p, limit);
    avro->typed.depth--;
    return p;
}

static ks_at ks_avro_skip_list(ks_avro *avro, const ks_avro_step *step, ks_at p, ks_at limit) {
    const ks_avro_step *item = avro->steps + avro->parts[step->first_part];
    int64_t count, size;
    do {
        p = ks_avro_block(avro, p, limit, step->size, &count);
        for (int64_t i = 0; p != NULL && i < count; i++) {
            if (step->at) {
                p = ks_avro_size(avro, p, limit, &size);
                if (p == NULL) return NULL;
                p += size;
            }
            p = ks_avro_skip_inside(avro, item, p, limit);
        }
    } while (p != NULL && count != 0);
    return p;
}

/* The same bytes are read and found invalid as if they were decoded, but for UTF-8. */
static ks_at ks_avro_skip(ks_avro *avro, const ks_avro_step *step, ks_at p, ks_at limit) {
    const int32_t *parts = avro->parts + step->first_part;
    int64_t number;
    switch (step->op) {
        case KS_AVRO_SKIP_NULL:
            return p;
        case KS_AVRO_SKIP_INT:
            return ks_avro_varlong(avro, p, limit, &number);
        case KS_AVRO_SKIP_BYTES:
            p = ks_avro_size(avro, p, limit, &number);
            return p == NULL ? NULL : p + number;
        case KS_AVRO_SKIP_FIXED:
            if (step->size > limit - p) return ks_avro_fails(avro, KS_VALUE_TOO_SHORT);
            return p + step->size;
        case KS_AVRO_SKIP_ENUM:
            return ks_avro_index(avro, p, limit, step->size, &number);
        case KS_AVRO_SKIP_RECORD:
            for (int32_t i = 0; p != NULL && i < step->parts; i++) {
                p = ks_avro_skip(avro, avro->steps + parts[i], p, limit);
            }
            return p;
        case KS_AVRO_SKIP_LIST:
            return ks_avro_skip_list(avro, step, p, limit);
        case KS_AVRO_SKIP_UNION:
            p = ks_avro_index(avro, p, limit, step->parts, &number);
            if (p == NULL) return NULL;
            return ks_avro_skip_inside(avro, avro->steps + parts[number], p, limit);
        default: /* KS_AVRO_SKIP_NAMED */
            return ks_avro_skip_inside(avro, avro->steps + parts[0], p, limit);
    }
}

static ks_at ks_avro_run(ks_avro *avro, const ks_avro_step *step, ks_at p, ks_at limit);

/* A step without a column fails as a part of the one around it. */
static ks_at ks_avro_failed_in(ks_avro *avro, const ks_avro_step *step) {
    if (step->op < KS_AVRO_SKIP_NULL) ks_note_failed(&avro->typed, step->column, NULL);
    return NULL;
}

static ks_at ks_avro_list(ks_avro *avro, const ks_avro_step *step, ks_at p, ks_at limit) {
    ks_typed *typed = &avro->typed;
    ks_column *column = typed->columns + step->column;
    const ks_avro_step *item = avro->steps + avro->parts[step->first_part];
    ks_column *pair = typed->columns + column->first_child;
    ks_column *keys = typed->columns + pair->first_child;
    int64_t count, size;
    do {
        p = ks_avro_block(avro, p, limit, step->size, &count);
        for (int64_t i = 0; p != NULL && i < count; i++) {
            if (step->op == KS_AVRO_MAP) {
                p = ks_avro_size(avro, p, limit, &size);
                if (p == NULL) return NULL;
                if (!ks_is_utf8(p, size)) return ks_avro_fails(avro, KS_BAD_VALUE_TEXT);
                if (!ks_put_bytes(typed, keys, p, size)) return NULL;
                p += size;
                if (!ks_put_struct(typed, pair)) return NULL;
            }
            p = ks_avro_run(avro, item, p, limit);
            if (p == NULL) return ks_avro_failed_in(avro, item);
        }
    } while (p != NULL && count != 0);
    if (p == NULL) return NULL;
    return (step->op == KS_AVRO_MAP ? ks_put_map : ks_put_list)(typed, column) ? p : NULL;
}

static ks_at ks_avro_member(ks_avro *avro, const ks_avro_step *step, ks_at p, ks_at limit) {
    ks_typed *typed = &avro->typed;
    ks_column *column = typed->columns + step->column;
    const ks_avro_step *member = avro->steps + avro->parts[step->first_part];
    for (int32_t i = 0; i < column->children; i++) {
        int32_t child = column->first_child + i;
        if (child != member->column && !ks_put_null(typed, typed->columns + child)) return NULL;
    }
    p = ks_avro_run(avro, member, p, limit);
    if (p == NULL) return ks_avro_failed_in(avro, member);
    return ks_put_struct(typed, column) ? p : NULL;
}

static ks_at ks_avro_constant(ks_avro *avro, const ks_avro_step *step) {
    const uint8_t *value = avro->constants + step->at;
    if (!ks_take_room(&avro->typed, step->size, KS_DEFAULTS_TOO_LARGE)) return NULL;
    return ks_avro_run(avro, avro->steps + avro->parts[step->first_part], value,
                       value + step->size);
}

static ks_at ks_avro_duration(ks_avro *avro, const ks_avro_step *step, ks_at p, ks_at limit) {
    ks_typed *typed = &avro->typed;
    ks_column *column = typed->columns + step->column;
    if (limit - p < 12) return ks_avro_fails(avro, KS_VALUE_TOO_SHORT);
    for (int i = 0; i < 3; i++, p += 4) {
        if (!ks_put_number(typed, typed->columns + column->first_child + i, p, 4)) return NULL;
    }
    return ks_put_struct(typed, column) ? p : NULL;
}

#define KS_READ_NUMBER(read, wide, narrow) \
    { \
        wide number; \
        p = read(avro, p, limit, &number); \
        if (p == NULL) return NULL; \
        narrow value = (narrow)number; \
        return ks_put_number(typed, column, &value, sizeof value) ? p : NULL; \
    }

#define KS_READ_REAL(wide, narrow) \
    { \
        wide number; \
        if (limit - p < (ptrdiff_t)sizeof number) return ks_avro_fails(avro, KS_VALUE_TOO_SHORT); \
        memcpy(&number, p, sizeof number); \
        narrow value = (narrow)number; \
        return ks_put_number(typed, column, &value, sizeof value) ? p + sizeof number : NULL; \
    }

/* Appends one entry to the step's column; returns the end of the value's bytes, or NULL. */
static ks_at ks_avro_run(ks_avro *avro, const ks_avro_step *step, ks_at p, ks_at limit) {
    ks_typed *typed = &avro->typed;
    ks_column *column = typed->columns + step->column;
    const int32_t *parts = avro->parts + step->first_part;
    int64_t size;
    switch (step->op) {
        case KS_AVRO_NULL:
            return ks_put_null(typed, column) ? p : NULL;
        case KS_AVRO_BOOLEAN: {
            if (p == limit) return ks_avro_fails(avro, KS_VALUE_TOO_SHORT);
            if (*p > 1) return ks_avro_fails(avro, KS_BAD_VALUE_CHOICE);
            return ks_put_number(typed, column, p, 1) ? p + 1 : NULL;
        }
        case KS_AVRO_INT:
            KS_READ_NUMBER(ks_avro_varint, int32_t, int32_t)
        case KS_AVRO_LONG:
            KS_READ_NUMBER(ks_avro_varlong, int64_t, int64_t)
        case KS_AVRO_INT_AS_LONG:
            KS_READ_NUMBER(ks_avro_varint, int32_t, int64_t)
        case KS_AVRO_INT_AS_FLOAT:
            KS_READ_NUMBER(ks_avro_varint, int32_t, float)
        case KS_AVRO_INT_AS_DOUBLE:
            KS_READ_NUMBER(ks_avro_varint, int32_t, double)
        case KS_AVRO_LONG_AS_FLOAT:
            KS_READ_NUMBER(ks_avro_varlong, int64_t, float)
        case KS_AVRO_LONG_AS_DOUBLE:
            KS_READ_NUMBER(ks_avro_varlong, int64_t, double)
        case KS_AVRO_FLOAT:
            KS_READ_REAL(float, float)
        case KS_AVRO_DOUBLE:
            KS_READ_REAL(double, double)
        case KS_AVRO_FLOAT_AS_DOUBLE:
            KS_READ_REAL(float, double)
        case KS_AVRO_TIME_MILLIS:
        case KS_AVRO_TIME_MICROS:
            return ks_avro_time(avro, step, p, limit);
        case KS_AVRO_BYTES:
        case KS_AVRO_TEXT:
            p = ks_avro_size(avro, p, limit, &size);
            if (p == NULL) return NULL;
            if (step->op == KS_AVRO_TEXT && !ks_is_utf8(p, size)) {
                return ks_avro_fails(avro, KS_BAD_VALUE_TEXT);
            }
            return ks_put_bytes(typed, column, p, size) ? p + size : NULL;
        case KS_AVRO_REST:
        case KS_AVRO_REST_AS_TEXT:
            if (step->op == KS_AVRO_REST_AS_TEXT && !ks_is_utf8(p, limit - p)) {
                return ks_avro_fails(avro, KS_BAD_VALUE_TEXT);
            }
            return ks_put_bytes(typed, column, p, limit - p) ? limit : NULL;
        case KS_AVRO_FIXED:
            if (step->size > limit - p) return ks_avro_fails(avro, KS_VALUE_TOO_SHORT);
            return ks_put_number(typed, column, p, (size_t)step->size) ? p + step->size : NULL;
        case KS_AVRO_FIXED_AS_ITEM:
            if (step->size > limit - p) return ks_avro_fails(avro, KS_VALUE_TOO_SHORT);
            return ks_put_bytes(typed, column, p, step->size) ? p + step->size : NULL;
        case KS_AVRO_ENUM: {
            p = ks_avro_index(avro, p, limit, step->parts, &size);
            if (p == NULL) return NULL;
            if (parts[size] < 0) return ks_avro_fails(avro, KS_UNRESOLVED_VALUE);
            return ks_put_number(typed, column, &parts[size], 4) ? p : NULL;
        }
        case KS_AVRO_DECIMAL:
            return ks_avro_decimal(avro, step, p, limit);
        case KS_AVRO_UUID: {
            if (limit - p < 16) return ks_avro_fails(avro, KS_VALUE_TOO_SHORT);
            uint8_t *text = ks_put_item(typed, column, KS_UUID_TEXT_SIZE);
            if (text == NULL) return NULL;
            ks_write_uuid(text, p);
            return p + 16;
        }
        case KS_AVRO_DURATION:
            return ks_avro_duration(avro, step, p, limit);
        case KS_AVRO_RECORD:
            for (int32_t i = 0; i < step->parts; i++) {
                const ks_avro_step *part = avro->steps + parts[i];
                p = part->op >= KS_AVRO_SKIP_NULL ? ks_avro_skip(avro, part, p, limit)
                                                  : ks_avro_run(avro, part, p, limit);
                if (p == NULL) return ks_avro_failed_in(avro, part);
            }
            return ks_put_struct(typed, column) ? p : NULL;
        case KS_AVRO_ARRAY:
        case KS_AVRO_MAP:
            return ks_avro_list(avro, step, p, limit);
        case KS_AVRO_UNION:
            p = ks_avro_index(avro, p, limit, step->parts, &size);
            return p == NULL ? NULL : ks_avro_run(avro, avro->steps + parts[size], p, limit);
        case KS_AVRO_MEMBER:
            return ks_avro_member(avro, step, p, limit);
        case KS_AVRO_CONSTANT:
            return ks_avro_constant(avro, step) == NULL ? NULL : p;
        case KS_AVRO_RAW: {
            ks_at end = ks_avro_skip(avro, avro->steps + parts[0], p, limit);
            return end != NULL && ks_put_bytes(typed, column, p, end - p) ? end : NULL;
        }
        default:
            return ks_avro_fails(avro, KS_UNRESOLVED_VALUE);
    }
}

#undef KS_READ_NUMBER
#undef KS_READ_REAL

#endif /* KAFKASCAN_AVRO_H */
