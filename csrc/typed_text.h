/* Values of typed columns as JSON, as Python's `json.dumps` writes it.
 *
 * A row that has no room is a pause: the caller makes the output larger, and the row is written
 * again from its start. The columns are trusted.
 */
#ifndef KAFKASCAN_TYPED_TEXT_H
#define KAFKASCAN_TYPED_TEXT_H

#include <stdint.h>
#include <string.h>

#include "java_text.h"
#include "quoted_text.h"

/* X(name): what the entries of a column are. */
#define KS_TEXT_KINDS(X) \
    X(NULLS) \
    X(READY)    /* texts that are JSON */ \
    X(INTEGERS) /* of 64 bits */ \
    X(REALS)    /* the shortest digits of a number, in any notation; or inf, -inf, nan */ \
    X(TEXTS) \
    X(TIMES)   /* date and time, with a space between them */ \
    X(MOMENTS) /* the same, in UTC */ \
    X(BYTES) \
    X(LISTS) \
    X(MAPS) /* lists; the columns below are keys and values */ \
    X(STRUCTS)

enum ks_text_kind {
#define KS_AS_TEXT_KIND(name) KS_TEXT_##name,
    KS_TEXT_KINDS(KS_AS_TEXT_KIND)
#undef KS_AS_TEXT_KIND
        KS_TEXT_KIND_COUNT
};

static const char *const ks_text_kind_names[] = {
#define KS_TEXT_KIND_NAME(name) #name,
    KS_TEXT_KINDS(KS_TEXT_KIND_NAME)
#undef KS_TEXT_KIND_NAME
};

/* The largest text of a number, and of what is around a value. */
enum { KS_NUMBER_ROOM = 48, KS_DIGITS = 24 };

typedef struct {
    const uint8_t *data;
    const int32_t *ends;     /* of n + 1 */
    const uint8_t *is_valid; /* NULL if all are */
    const uint8_t *label;    /* what precedes the value in a struct */
    int64_t label_size;
    int32_t kind;
    int32_t first_child;
    int32_t children;
} ks_text_column;

typedef struct {
    const ks_text_column *columns;
    uint8_t *out;
    const uint8_t *room;
    int style;
} ks_texts;

static inline int ks_put_text(ks_texts *texts, const void *text, int64_t size) {
    if (texts->room - texts->out < size) return 0;
    memcpy(texts->out, text, (size_t)size);
    texts->out += size;
    return 1;
}

static inline int ks_put_quoted(ks_texts *texts, const uint8_t *p, int64_t size) {
    const uint8_t *limit = p + size;
    if (!ks_put_text(texts, "\"", 1)) return 0;
    ks_copy_quoted(&p, limit, &texts->out, texts->room, texts->style);
    return p == limit && ks_put_text(texts, "\"", 1);
}

/* Digits of a number, and how many of them precede its decimal point. */
static int ks_read_digits(const uint8_t *p, const uint8_t *limit, uint8_t *digits, int *point) {
    int count = 0, exponent = 0, is_behind = 0;
    *point = 0;
    for (; p < limit && *p != 'e' && count < KS_DIGITS; p++) {
        if (*p == '.') {
            is_behind = 1;
            continue;
        }
        if (count > 0 || *p != '0') digits[count++] = *p;
        *point += is_behind ? -(count == 0) : count > 0;
    }
    if (p < limit && *p == 'e') {
        int is_negative = p + 1 < limit && p[1] == '-';
        for (p++; p < limit; p++) {
            if (*p >= '0' && *p <= '9' && exponent < 1000) exponent = 10 * exponent + *p - '0';
        }
        *point += is_negative ? -exponent : exponent;
    }
    while (count > 0 && digits[count - 1] == '0') count--;
    return count;
}

static uint8_t *ks_put_exponent(uint8_t *out, int exponent) {
    *out++ = 'e';
    *out++ = exponent < 0 ? '-' : '+';
    if (exponent < 0) exponent = -exponent;
    if (exponent < 10) *out++ = '0';
    return ks_write_decimal(out, exponent);
}

/* As Python's `repr`: an exponent below -4 and from 16 on. */
static int ks_put_real(ks_texts *texts, const uint8_t *p, int64_t size) {
    const uint8_t *limit = p + size;
    int is_negative = size > 0 && *p == '-', point;
    uint8_t digits[KS_DIGITS], *out = texts->out;
    if (texts->room - out < KS_NUMBER_ROOM) return 0;
    p += is_negative;
    if (p < limit && *p == 'n') return ks_put_text(texts, "\"NaN\"", 5);
    if (p < limit && *p == 'i') {
        return is_negative ? ks_put_text(texts, "\"-Infinity\"", 11)
                           : ks_put_text(texts, "\"Infinity\"", 10);
    }
    int count = ks_read_digits(p, limit, digits, &point);
    if (is_negative) *out++ = '-';
    if (count == 0) {
        digits[0] = '0';
        count = point = 1;
    }
    if (point <= -4 || point > 16) {
        *out++ = digits[0];
        if (count > 1) *out++ = '.';
        memcpy(out, digits + 1, (size_t)count - 1);
        texts->out = ks_put_exponent(out + count - 1, point - 1);
        return 1;
    }
    if (point <= 0) *out++ = '0';
    for (int i = point < 0 ? point : 0; i < count || i <= point; i++) {
        if (i == point) *out++ = '.';
        *out++ = i >= 0 && i < count ? digits[i] : '0';
    }
    texts->out = out;
    return 1;
}

/* A time; what Arrow writes for one that is out of range has no date. */
static int ks_put_time(ks_texts *texts, const uint8_t *p, int64_t size, int is_moment) {
    uint8_t *first = texts->out + 1;
    if (!ks_put_quoted(texts, p, size)) return 0;
    if (size == 0 || *p == '<') return 1;
    uint8_t *space = memchr(first, ' ', (size_t)(texts->out - first));
    if (space != NULL) *space = 'T';
    if (!is_moment) return 1;
    texts->out[-1] = 'Z';
    return ks_put_text(texts, "\"", 1);
}

static int ks_put_hex(ks_texts *texts, const uint8_t *p, int64_t size) {
    if ((texts->room - texts->out) / 2 < size + 1) return 0;
    *texts->out++ = '"';
    for (int64_t i = 0; i < size; i++) texts->out = ks_put_hex_byte(texts->out, p[i]);
    *texts->out++ = '"';
    return 1;
}

static int ks_put_json(ks_texts *texts, const ks_text_column *column, int64_t row);

static int ks_put_members(ks_texts *texts, const ks_text_column *column, int64_t row) {
    const ks_text_column *member = texts->columns + column->first_child;
    if (!ks_put_text(texts, "{", 1)) return 0;
    for (int32_t i = 0; i < column->children; i++, member++) {
        if (!ks_put_text(texts, member->label, member->label_size)) return 0;
        if (!ks_put_json(texts, member, row)) return 0;
    }
    return ks_put_text(texts, "}", 1);
}

static int ks_put_json_items(ks_texts *texts, const ks_text_column *column, int64_t row) {
    const ks_text_column *item = texts->columns + column->first_child;
    int is_map = column->kind == KS_TEXT_MAPS;
    int32_t first = column->ends[row];
    if (!ks_put_text(texts, is_map ? "{" : "[", 1)) return 0;
    for (int32_t i = first; i < column->ends[row + 1]; i++) {
        if (i > first && !ks_put_text(texts, ", ", 2)) return 0;
        if (is_map && !(ks_put_json(texts, item, i) && ks_put_text(texts, ": ", 2))) return 0;
        if (!ks_put_json(texts, item + is_map, i)) return 0;
    }
    return ks_put_text(texts, is_map ? "}" : "]", 1);
}

/* Writes an entry; returns 0 if it has no room. */
static int ks_put_json(ks_texts *texts, const ks_text_column *column, int64_t row) {
    if (column->is_valid != NULL && !column->is_valid[row]) return ks_put_text(texts, "null", 4);
    switch (column->kind) {
        case KS_TEXT_NULLS:
            return ks_put_text(texts, "null", 4);
        case KS_TEXT_INTEGERS: {
            int64_t number;
            memcpy(&number, column->data + row * (int64_t)sizeof number, sizeof number);
            if (texts->room - texts->out < KS_NUMBER_ROOM) return 0;
            texts->out = ks_write_decimal(texts->out, number);
            return 1;
        }
        case KS_TEXT_LISTS:
        case KS_TEXT_MAPS:
            return ks_put_json_items(texts, column, row);
        case KS_TEXT_STRUCTS:
            return ks_put_members(texts, column, row);
        default:
            break;
    }
    const uint8_t *p = column->data + column->ends[row];
    int64_t size = column->ends[row + 1] - column->ends[row];
    switch (column->kind) {
        case KS_TEXT_READY:
            return ks_put_text(texts, p, size);
        case KS_TEXT_REALS:
            return ks_put_real(texts, p, size);
        case KS_TEXT_TEXTS:
            return ks_put_quoted(texts, p, size);
        case KS_TEXT_BYTES:
            return ks_put_hex(texts, p, size);
        default:
            return ks_put_time(texts, p, size, column->kind == KS_TEXT_MOMENTS);
    }
}

#endif /* KAFKASCAN_TYPED_TEXT_H */
