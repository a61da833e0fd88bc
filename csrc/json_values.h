/* JSON (RFC 8259) into typed columns.
 *
 * A program says which column a value fills: a tree of steps, made by
 * kafkascan/schemas/programs/json_program.py. It is trusted; the text is not. Members of an object
 * may be missing, unknown or repeated, of which the last counts. A null is a null of any type; a
 * value of another type than its column has is an error.
 */
#ifndef KAFKASCAN_JSON_VALUES_H
#define KAFKASCAN_JSON_VALUES_H

#include <locale.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __APPLE__
#include <xlocale.h>
#endif

#include "quoted_text.h"
#include "typed_columns.h"

/* X(name): what a step reads. */
#define KS_JSON_OPS(X) \
    X(BOOLEAN) \
    X(INTEGER) /* of 64 bits */ \
    X(NUMBER)  /* the nearest double */ \
    X(STRING) \
    X(TEXT)   /* any value, as its JSON text */ \
    X(OBJECT) /* parts: for n members their steps, their order by name, and of each name where it \
                 begins and its size */ \
    X(ARRAY)  /* part: the step of an item; `size`: bytes that an item takes */ \
    X(MAP)    /* the same, of a value; the column's struct has key and value */

enum ks_json_op {
#define KS_JSON_AS_OP(name) KS_JSON_##name,
    KS_JSON_OPS(KS_JSON_AS_OP)
#undef KS_JSON_AS_OP
        KS_JSON_OP_COUNT
};

static const char *const ks_json_op_names[] = {
#define KS_JSON_NAME(name) #name,
    KS_JSON_OPS(KS_JSON_NAME)
#undef KS_JSON_NAME
};

enum {
    KS_MAX_JSON_DEPTH = 512,
    KS_MAX_JSON_NAME = 1024,   /* bytes of a member's name in a program */
    KS_MAX_JSON_NUMBER = 1024, /* digits and signs of a number */
    KS_EXACT_POWERS = 22,      /* powers of ten that are doubles */
    KS_MAX_EXPONENT = 100000,
    KS_MAX_DOUBLE_DIGITS = 309 /* of an integer */
};

#define KS_MAX_EXACT (UINT64_C(1) << 53)

typedef struct {
    int32_t op;
    int32_t column;
    int32_t first_part;
    int32_t parts;
    int64_t size;
    int64_t at;
} ks_json_step;

typedef struct {
    ks_typed typed;
    const ks_json_step *steps;
    const int32_t *parts;
    const uint8_t *constants;
    locale_t c_locale; /* for `strtod`: others have another decimal point */
} ks_json;

typedef const uint8_t *ks_json_at;

static inline ks_json_at ks_json_fails(ks_json *json, int status) {
    json->typed.status = status;
    return NULL;
}

static inline ks_json_at ks_json_space(ks_json_at p, ks_json_at limit) {
    while (p < limit && (*p == ' ' || *p == '\n' || *p == '\t' || *p == '\r')) p++;
    return p;
}

/* ---- strings ------------------------------------------------------------------------------ */

/* The unit of \uXXXX at p, which is behind the backslash; -1 if it is none. */
static inline int32_t ks_json_unit(ks_json_at p, ks_json_at limit) {
    int32_t unit = 0;
    if (limit - p < 5 || *p != 'u') return -1;
    for (int i = 1; i < 5; i++) {
        int letter = (p[i] | 0x20) - 'a';
        if (p[i] >= '0' && p[i] <= '9') {
            unit = unit << 4 | (p[i] - '0');
        } else if (letter >= 0 && letter < 6) {
            unit = unit << 4 | (letter + 10);
        } else {
            return -1;
        }
    }
    return unit;
}

/* The character of an escape at p, which is behind the backslash; p is moved. Negative: a status.
 */
static int32_t ks_json_escape(ks_json_at *p, ks_json_at limit) {
    static const char names[] = "\"\\/bfnrt", named[] = "\"\\/\b\f\n\r\t";
    if (*p == limit) return -KS_BAD_JSON;
    if (**p != 'u') {
        const char *found = **p ? strchr(names, **p) : NULL;
        (*p)++;
        return found ? named[found - names] : -KS_BAD_JSON;
    }
    int32_t unit = ks_json_unit(*p, limit);
    if (unit < 0) return -KS_BAD_JSON;
    *p += 5;
    if (unit < 0xd800 || unit > 0xdfff) return unit;
    if (unit > 0xdbff || limit - *p < 1 || **p != '\\') return -KS_BAD_VALUE_TEXT;
    int32_t low = ks_json_unit(*p + 1, limit);
    if (low < 0xdc00 || low > 0xdfff) return -KS_BAD_VALUE_TEXT;
    *p += 6;
    return 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
}

/* Returns the quotation mark at the end of a string that begins at p. */
static ks_json_at ks_json_string_end(ks_json *json, ks_json_at p, ks_json_at limit,
                                     int *has_escapes) {
    *has_escapes = 0;
    for (;;) {
        while (limit - p >= KS_LANES) {
            int size = ks_first_lane(ks_special_lanes(ks_load_lanes(p), KS_JSON_UTF8));
            p += size;
            if (size < KS_LANES) break;
        }
        while (p < limit && !ks_is_special(*p, KS_JSON_UTF8)) p++;
        if (p == limit || *p < 0x20) return ks_json_fails(json, KS_BAD_JSON);
        if (*p == '"') return p;
        if (*p == '\\') {
            p++;
            int32_t found = ks_json_escape(&p, limit);
            if (found < 0) return ks_json_fails(json, -found);
            *has_escapes = 1;
        } else {
            int is_valid;
            p += ks_java_sequence(p, limit, &is_valid);
            if (!is_valid) return ks_json_fails(json, KS_BAD_VALUE_TEXT);
        }
    }
}

static inline uint8_t *ks_put_utf8(uint8_t *out, uint32_t code) {
    if (code < 0x80) {
        *out++ = (uint8_t)code;
        return out;
    }
    if (code < 0x800) {
        *out++ = (uint8_t)(0xc0 | code >> 6);
    } else {
        if (code < 0x10000) {
            *out++ = (uint8_t)(0xe0 | code >> 12);
        } else {
            *out++ = (uint8_t)(0xf0 | code >> 18);
            *out++ = (uint8_t)(0x80 | (code >> 12 & 0x3f));
        }
        *out++ = (uint8_t)(0x80 | (code >> 6 & 0x3f));
    }
    *out++ = (uint8_t)(0x80 | (code & 0x3f));
    return out;
}

/* Writes the characters of a valid string up to `end`; stops where a character may not fit. An
 * escape is never shorter than its character. */
static uint8_t *ks_json_unescape(ks_json_at p, ks_json_at end, uint8_t *out, const uint8_t *room) {
    while (p < end && out < room) {
        if (*p != '\\') {
            *out++ = *p++;
            continue;
        }
        p++;
        uint32_t code = (uint32_t)ks_json_escape(&p, end);
        if (room - out < KS_MAX_SEQUENCE && code >= 0x80) {
            uint8_t bytes[KS_MAX_SEQUENCE];
            int64_t size = ks_put_utf8(bytes, code) - bytes;
            if (size > room - out) return out;
            memcpy(out, bytes, (size_t)size);
            out += size;
        } else {
            out = ks_put_utf8(out, code);
        }
    }
    return out;
}

/* Appends the string that begins behind a quotation mark at p. */
static ks_json_at ks_json_put_string(ks_json *json, ks_column *column, ks_json_at p,
                                     ks_json_at limit) {
    int has_escapes;
    ks_json_at end = ks_json_string_end(json, p + 1, limit, &has_escapes);
    if (end == NULL) return NULL;
    p++;
    uint8_t *out = ks_put_item(&json->typed, column, end - p);
    if (out == NULL) return NULL;
    if (!has_escapes) {
        if (end > p) memcpy(out, p, (size_t)(end - p));
        return end + 1;
    }
    column->size -= out + (end - p) - ks_json_unescape(p, end, out, out + (end - p));
    column->ends[column->entries] = (int32_t)column->size;
    return end + 1;
}

/* ---- numbers ------------------------------------------------------------------------------ */

typedef struct {
    uint64_t digits;  /* the first 19 that count */
    int32_t exponent; /* of ten */
    int is_negative;
    int is_integer; /* without fraction and exponent */
    int is_long;    /* more than these digits */
    int has_more;   /* of which one is not 0 */
} ks_json_number;

static inline int ks_is_digit(ks_json_at p, ks_json_at limit) {
    return p < limit && *p >= '0' && *p <= '9';
}

static inline ks_json_at ks_json_digits(ks_json_at p, ks_json_at limit, ks_json_number *number,
                                        int is_fraction) {
    const uint64_t most = (UINT64_MAX - 9) / 10;
    for (; ks_is_digit(p, limit); p++) {
        if (number->digits <= most) {
            number->digits = 10 * number->digits + (*p - '0');
            number->exponent -= is_fraction;
        } else {
            number->is_long = 1;
            number->has_more |= *p != '0';
            number->exponent += !is_fraction;
        }
    }
    return p;
}

static ks_json_at ks_json_read_number(ks_json *json, ks_json_at p, ks_json_at limit,
                                      ks_json_number *number) {
    ks_json_at first = p;
    memset(number, 0, sizeof *number);
    number->is_integer = 1;
    if (*p == '-') {
        number->is_negative = 1;
        p++;
    }
    if (!ks_is_digit(p, limit)) return ks_json_fails(json, KS_BAD_JSON);
    if (limit - first > KS_MAX_JSON_NUMBER) limit = first + KS_MAX_JSON_NUMBER;
    p = *p == '0' ? p + 1 : ks_json_digits(p, limit, number, 0);
    if (p < limit && *p == '.') {
        number->is_integer = 0;
        if (!ks_is_digit(p + 1, limit)) return ks_json_fails(json, KS_BAD_JSON);
        p = ks_json_digits(p + 1, limit, number, 1);
    }
    if (p < limit && (*p | 0x20) == 'e') {
        int32_t exponent = 0;
        number->is_integer = 0;
        p++;
        int is_negative = p < limit && *p == '-';
        if (p < limit && (*p == '-' || *p == '+')) p++;
        if (!ks_is_digit(p, limit)) return ks_json_fails(json, KS_BAD_JSON);
        for (; ks_is_digit(p, limit); p++) {
            if (exponent < KS_MAX_EXPONENT) exponent = 10 * exponent + (*p - '0');
        }
        number->exponent += is_negative ? -exponent : exponent;
    }
    if (p - first >= KS_MAX_JSON_NUMBER) return ks_json_fails(json, KS_BAD_VALUE_NUMBER);
    return p;
}

/* The double nearest to the number from p to `end`. */
static int ks_json_double(ks_json *json, const ks_json_number *number, ks_json_at p, ks_json_at end,
                          double *value) {
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                    1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    int32_t power = number->exponent;
    /* Both are exact, so one operation rounds once (Clinger, 1990). */
    if (!number->is_long && number->digits <= KS_MAX_EXACT && power >= -KS_EXACT_POWERS &&
        power <= KS_EXACT_POWERS) {
        double digits = (double)number->digits;
        double found = power < 0 ? digits / powers[-power] : digits * powers[power];
        *value = number->is_negative ? -found : found;
        return 1;
    }
    char copy[KS_MAX_JSON_NUMBER + 1];
    size_t size = (size_t)(end - p);
    memcpy(copy, p, size);
    copy[size] = '\0';
    *value = strtod_l(copy, NULL, json->c_locale);
    if (isfinite(*value)) return 1;
    return ks_json_fails(json, KS_BAD_VALUE_NUMBER) != NULL;
}

/* Whether an integer from p to `end` is the double that stands for it. */
static int ks_json_is_exact(const ks_json_number *number, ks_json_at p, ks_json_at end,
                            double value) {
    if (!number->is_long && number->digits <= KS_MAX_EXACT) return 1;
    char digits[KS_MAX_DOUBLE_DIGITS + 2];
    int size = snprintf(digits, sizeof digits, "%.0f", value);
    return size == end - p && memcmp(digits, p, (size_t)size) == 0;
}

static ks_json_at ks_json_put_number(ks_json *json, ks_column *column, ks_json_at p,
                                     ks_json_at limit) {
    ks_json_number number;
    double value;
    ks_json_at end = ks_json_read_number(json, p, limit, &number);
    if (end == NULL || !ks_json_double(json, &number, p, end, &value)) return NULL;
    if (number.is_integer && !ks_json_is_exact(&number, p, end, value)) {
        json->typed.remark = KS_ROUNDED_INTEGER;
        json->typed.remarked.column = (int32_t)(column - json->typed.columns);
        json->typed.remarked.at = p;
    }
    return ks_put_number(&json->typed, column, &value, sizeof value) ? end : NULL;
}

/* Whether a number is an integer, such as 1.0 and 1e2, that is exactly these digits. */
static int ks_json_as_integer(const ks_json_number *number, uint64_t *digits) {
    int32_t power = number->exponent;
    *digits = number->digits;
    if (*digits == 0) return 1;
    for (; power < 0 && *digits % 10 == 0; power++) *digits /= 10;
    for (; power > 0 && *digits <= UINT64_MAX / 10; power--) *digits *= 10;
    return power == 0 && !number->has_more;
}

static ks_json_at ks_json_put_integer(ks_json *json, ks_column *column, ks_json_at p,
                                      ks_json_at limit) {
    ks_json_number number;
    ks_json_at end = ks_json_read_number(json, p, limit, &number);
    if (end == NULL) return NULL;
    uint64_t digits, most = (uint64_t)INT64_MAX + (number.is_negative != 0);
    if (!ks_json_as_integer(&number, &digits) || digits > most) {
        return ks_json_fails(json, KS_BAD_VALUE_NUMBER);
    }
    int64_t value = (int64_t)(number.is_negative ? 0 - digits : digits);
    return ks_put_number(&json->typed, column, &value, sizeof value) ? end : NULL;
}

/* ---- values that no column needs ---------------------------------------------------------- */

static inline ks_json_at ks_json_word(ks_json *json, ks_json_at p, ks_json_at limit,
                                      const char *word, int64_t size) {
    if (limit - p >= size && memcmp(p, word, (size_t)size) == 0) return p + size;
    return ks_json_fails(json, KS_BAD_JSON);
}

/* What follows an item or member: moves to the next one, or behind the end, which is then set. */
static inline ks_json_at ks_json_next(ks_json *json, ks_json_at p, ks_json_at limit, uint8_t close,
                                      int *is_end) {
    p = ks_json_space(p, limit);
    if (p == limit || (*p != ',' && *p != close)) return ks_json_fails(json, KS_BAD_JSON);
    *is_end = *p == close;
    return *is_end ? p + 1 : ks_json_space(p + 1, limit);
}

/* Whether a list or object that begins at p has an end at once; p is moved. */
static inline int ks_json_is_empty(ks_json_at *p, ks_json_at limit, uint8_t close) {
    *p = ks_json_space(*p + 1, limit);
    if (*p == limit || **p != close) return 0;
    (*p)++;
    return 1;
}

static inline ks_json_at ks_json_colon(ks_json *json, ks_json_at p, ks_json_at limit) {
    p = ks_json_space(p, limit);
    if (p == limit || *p != ':') return ks_json_fails(json, KS_BAD_JSON);
    return ks_json_space(p + 1, limit);
}

static ks_json_at ks_json_skip(ks_json *json, ks_json_at p, ks_json_at limit);

static ks_json_at ks_json_skip_items(ks_json *json, ks_json_at p, ks_json_at limit) {
    uint8_t close = *p == '{' ? '}' : ']';
    int is_end = ks_json_is_empty(&p, limit, close), has_escapes;
    while (p != NULL && !is_end) {
        if (close == '}') {
            if (p == limit || *p != '"') return ks_json_fails(json, KS_BAD_JSON);
            p = ks_json_string_end(json, p + 1, limit, &has_escapes);
            if (p != NULL) p = ks_json_colon(json, p + 1, limit);
            if (p == NULL) return NULL;
        }
        p = ks_json_skip(json, p, limit);
        if (p != NULL) p = ks_json_next(json, p, limit, close, &is_end);
    }
    return p;
}

static ks_json_at ks_json_skip(ks_json *json, ks_json_at p, ks_json_at limit) {
    ks_json_number number;
    int has_escapes;
    if (p == limit) return ks_json_fails(json, KS_BAD_JSON);
    switch (*p) {
        case '"':
            p = ks_json_string_end(json, p + 1, limit, &has_escapes);
            return p == NULL ? NULL : p + 1;
        case 't':
            return ks_json_word(json, p, limit, "true", 4);
        case 'f':
            return ks_json_word(json, p, limit, "false", 5);
        case 'n':
            return ks_json_word(json, p, limit, "null", 4);
        case '{':
        case '[':
            if (json->typed.depth == KS_MAX_JSON_DEPTH) {
                return ks_json_fails(json, KS_VALUE_TOO_DEEP);
            }
            json->typed.depth++;
            p = ks_json_skip_items(json, p, limit);
            json->typed.depth--;
            return p;
        default:
            return ks_json_read_number(json, p, limit, &number);
    }
}

/* ---- values of columns -------------------------------------------------------------------- */

static ks_json_at ks_json_value(ks_json *json, const ks_json_step *step, ks_json_at p,
                                ks_json_at limit);

static inline int ks_json_is_name(const ks_json *json, const int32_t *name, ks_json_at key,
                                  int64_t size) {
    return size == name[1] && memcmp(json->constants + name[0], key, (size_t)size) == 0;
}

/* The number of a member by its name; -1 for an unknown one. */
static int32_t ks_json_find(const ks_json *json, const ks_json_step *step, ks_json_at key,
                            int64_t size) {
    int32_t count = step->parts / 4, low = 0, high = count;
    const int32_t *order = json->parts + step->first_part + count, *names = order + count;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        const int32_t *name = names + 2 * order[middle];
        int64_t common = size < name[1] ? size : name[1];
        int found = memcmp(json->constants + name[0], key, (size_t)common);
        if (found == 0) found = (name[1] > size) - (name[1] < size);
        if (found == 0) return order[middle];
        if (found < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return -1;
}

/* Reads the key at p, and finds its member, which probably is `next`. */
static ks_json_at ks_json_key(ks_json *json, const ks_json_step *step, ks_json_at p,
                              ks_json_at limit, int32_t next, int32_t *member) {
    int32_t count = step->parts / 4;
    if (p == limit || *p != '"') return ks_json_fails(json, KS_BAD_JSON);
    p++;
    if (next < count) {
        const int32_t *name = json->parts + step->first_part + 2 * count + 2 * next;
        if (limit - p > name[1] && p[name[1]] == '"' && ks_json_is_name(json, name, p, name[1])) {
            *member = next;
            return p + name[1] + 1;
        }
    }
    int has_escapes;
    ks_json_at end = ks_json_string_end(json, p, limit, &has_escapes);
    if (end == NULL) return NULL;
    if (has_escapes) {
        uint8_t key[KS_MAX_JSON_NAME + KS_MAX_SEQUENCE];
        *member =
            ks_json_find(json, step, key, ks_json_unescape(p, end, key, key + sizeof key) - key);
    } else {
        *member = ks_json_find(json, step, p, end - p);
    }
    return end + 1;
}

static ks_json_at ks_json_member(ks_json *json, const ks_json_step *step, int64_t row, ks_json_at p,
                                 ks_json_at limit) {
    ks_typed *typed = &json->typed;
    ks_column *column = typed->columns + step->column;
    if (column->entries > row) {
        if (!ks_take_room(typed, step->at, KS_TOO_MANY_ITEMS)) return NULL;
        ks_cut_column(typed, column, row);
    }
    return ks_json_value(json, step, p, limit);
}

static ks_json_at ks_json_object(ks_json *json, const ks_json_step *step, ks_json_at p,
                                 ks_json_at limit) {
    ks_typed *typed = &json->typed;
    ks_column *column = typed->columns + step->column;
    int64_t row = column->entries;
    int32_t next = 0, member;
    int is_end = ks_json_is_empty(&p, limit, '}');
    while (!is_end) {
        p = ks_json_key(json, step, p, limit, next, &member);
        if (p != NULL) p = ks_json_colon(json, p, limit);
        if (p == NULL) return NULL;
        if (member < 0) {
            p = ks_json_skip(json, p, limit);
        } else {
            const ks_json_step *part = json->steps + json->parts[step->first_part + member];
            ks_json_at at = p;
            p = ks_json_member(json, part, row, p, limit);
            if (p == NULL) ks_note_failed(typed, part->column, at);
            next = member + 1;
        }
        if (p != NULL) p = ks_json_next(json, p, limit, '}', &is_end);
        if (p == NULL) return NULL;
    }
    for (int32_t i = 0; i < column->children; i++) {
        ks_column *child = typed->columns + column->first_child + i;
        if (child->entries == row && !ks_put_null(typed, child)) return NULL;
    }
    return ks_put_struct(typed, column) ? p : NULL;
}

static ks_json_at ks_json_list(ks_json *json, const ks_json_step *step, ks_json_at p,
                               ks_json_at limit) {
    ks_typed *typed = &json->typed;
    ks_column *column = typed->columns + step->column;
    const ks_json_step *item = json->steps + json->parts[step->first_part];
    ks_column *pair = typed->columns + column->first_child;
    int is_map = step->op == KS_JSON_MAP;
    uint8_t close = is_map ? '}' : ']';
    int is_end = ks_json_is_empty(&p, limit, close);
    while (!is_end) {
        if (!ks_take_room(typed, step->size, KS_TOO_MANY_ITEMS)) return NULL;
        if (is_map) {
            if (p == limit || *p != '"') return ks_json_fails(json, KS_BAD_JSON);
            p = ks_json_put_string(json, typed->columns + pair->first_child, p, limit);
            if (p != NULL) p = ks_json_colon(json, p, limit);
            if (p == NULL || !ks_put_struct(typed, pair)) return NULL;
        }
        ks_json_at at = p;
        p = ks_json_value(json, item, p, limit);
        if (p == NULL) ks_note_failed(typed, item->column, at);
        if (p != NULL) p = ks_json_next(json, p, limit, close, &is_end);
        if (p == NULL) return NULL;
    }
    return (is_map ? ks_put_map : ks_put_list)(typed, column) ? p : NULL;
}

static ks_json_at ks_json_mismatch(ks_json *json, ks_json_at p) {
    int is_value = *p == '-' || (*p >= '0' && *p <= '9') || strchr("\"{[tf", *p) != NULL;
    return ks_json_fails(json, is_value && *p ? KS_BAD_VALUE_TYPE : KS_BAD_JSON);
}

/* Appends one entry to the step's column; returns the end of the value's text, or NULL. */
static ks_json_at ks_json_value(ks_json *json, const ks_json_step *step, ks_json_at p,
                                ks_json_at limit) {
    ks_typed *typed = &json->typed;
    ks_column *column = typed->columns + step->column;
    if (p == limit) return ks_json_fails(json, KS_BAD_JSON);
    if (*p == 'n') {
        p = ks_json_word(json, p, limit, "null", 4);
        return p != NULL && ks_put_null(typed, column) ? p : NULL;
    }
    int is_number = *p == '-' || (*p >= '0' && *p <= '9');
    switch (step->op) {
        case KS_JSON_BOOLEAN: {
            uint8_t truth = *p == 't';
            if (*p != 't' && *p != 'f') break;
            p = ks_json_skip(json, p, limit);
            return p != NULL && ks_put_number(typed, column, &truth, 1) ? p : NULL;
        }
        case KS_JSON_INTEGER:
            if (is_number) return ks_json_put_integer(json, column, p, limit);
            break;
        case KS_JSON_NUMBER:
            if (is_number) return ks_json_put_number(json, column, p, limit);
            break;
        case KS_JSON_STRING:
            if (*p == '"') return ks_json_put_string(json, column, p, limit);
            break;
        case KS_JSON_OBJECT:
            if (*p == '{') return ks_json_object(json, step, p, limit);
            break;
        case KS_JSON_ARRAY:
            if (*p == '[') return ks_json_list(json, step, p, limit);
            break;
        case KS_JSON_MAP:
            if (*p == '{') return ks_json_list(json, step, p, limit);
            break;
        default: { /* KS_JSON_TEXT */
            ks_json_at end = ks_json_skip(json, p, limit);
            return end != NULL && ks_put_bytes(typed, column, p, end - p) ? end : NULL;
        }
    }
    return ks_json_mismatch(json, p);
}

/* Appends one entry to the step's column; returns the end of the text, or NULL. A byte order mark
 * before the text is none of it. */
static ks_json_at ks_json_run(ks_json *json, const ks_json_step *step, ks_json_at p,
                              ks_json_at limit) {
    if (limit - p >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0) p += 3;
    p = ks_json_space(p, limit);
    ks_json_at end = ks_json_value(json, step, p, limit);
    if (end != NULL) return ks_json_space(end, limit);
    ks_note_failed(&json->typed, step->column, p);
    return NULL;
}

#endif /* KAFKASCAN_JSON_VALUES_H */
