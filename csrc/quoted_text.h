/* Text inside of JSON and CSV, and base64.
 *
 * The copies stop where what a sequence becomes may not fit, and go on from there. A byte that is
 * not UTF-8 becomes \xff, which in JSON is a backslash that is escaped, and the rest; only
 * KS_JAVA_JSON replaces it as Java does.
 */
#ifndef KAFKASCAN_QUOTED_TEXT_H
#define KAFKASCAN_QUOTED_TEXT_H

#include <stdint.h>
#include <string.h>

#include "java_text.h"

enum {
    KS_JSON,        /* ASCII, as of Python's `json.dumps` */
    KS_JAVA_JSON,   /* the same, malformed sequences replaced */
    KS_CSV,         /* UTF-8, quotes doubled */
    KS_JSON_IN_CSV, /* UTF-8 as of `json.dumps(ensure_ascii=False)`, quotes doubled */
    KS_JSON_UTF8,   /* the same, quotes as in JSON */
    KS_TEXT_STYLES
};

/* The largest text that one sequence becomes: three bytes that are not UTF-8, in JSON. */
enum { KS_MAX_ESCAPED = 16, KS_LANES = 16 };

/* What a cell of CSV contains. */
enum { KS_NEEDS_QUOTES = 1, KS_HAS_RETURN = 2 };

/* Lanes are 0 or 0xff after a comparison. The compiler chooses the instructions. */
typedef uint8_t ks_lanes __attribute__((vector_size(16)));

static inline ks_lanes ks_load_lanes(const uint8_t *p) {
    ks_lanes lanes;
    memcpy(&lanes, p, sizeof lanes);
    return lanes;
}

/* The number of lanes before the first one that is set. */
static inline int ks_first_lane(ks_lanes lanes) {
    uint64_t halves[2];
    memcpy(halves, &lanes, sizeof halves);
    if (halves[0]) return __builtin_ctzll(halves[0]) / 8;
    return halves[1] ? 8 + __builtin_ctzll(halves[1]) / 8 : KS_LANES;
}

static inline int ks_is_ascii_style(int style) { return style == KS_JSON || style == KS_JAVA_JSON; }

/* The bytes that are not copied as they are. */
static inline ks_lanes ks_special_lanes(ks_lanes bytes, int style) {
    if (style == KS_CSV) return (ks_lanes)((bytes >= 0x80) | (bytes == '"'));
    uint8_t last = ks_is_ascii_style(style) ? 0x7e : 0x7f;
    ks_lanes others = (ks_lanes)((bytes < 0x20) | (bytes > last));
    return others | (ks_lanes)((bytes == '"') | (bytes == '\\'));
}

static inline int ks_is_special(uint8_t byte, int style) {
    if (style == KS_CSV) return byte >= 0x80 || byte == '"';
    uint8_t last = ks_is_ascii_style(style) ? 0x7e : 0x7f;
    return byte < 0x20 || byte > last || byte == '"' || byte == '\\';
}

static inline uint8_t *ks_put_hex_byte(uint8_t *out, uint8_t byte) {
    static const char digits[] = "0123456789abcdef";
    *out++ = (uint8_t)digits[byte >> 4];
    *out++ = (uint8_t)digits[byte & 15];
    return out;
}

static inline uint8_t *ks_put_escaped_unit(uint8_t *out, uint32_t unit) {
    *out++ = '\\';
    *out++ = 'u';
    out = ks_put_hex_byte(out, (uint8_t)(unit >> 8));
    return ks_put_hex_byte(out, (uint8_t)unit);
}

/* A quotation mark, a backslash, a control character. */
static inline uint8_t *ks_put_escaped_ascii(uint8_t *out, uint8_t byte, int style) {
    static const char named[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt";
    if (style == KS_CSV) {
        *out++ = '"';
        *out++ = '"';
        return out;
    }
    const char *found = byte ? strchr(named, byte) : NULL;
    if (!found) return ks_put_escaped_unit(out, byte);
    *out++ = '\\';
    if (byte == '"' && style == KS_JSON_IN_CSV) *out++ = '"';
    *out++ = (uint8_t)names[found - named];
    return out;
}

/* The UTF-16 units of a valid sequence of 2 to 4 bytes, escaped. */
static inline uint8_t *ks_put_escaped_sequence(uint8_t *out, const uint8_t *p, int64_t size) {
    uint32_t code = size == 2 ? p[0] & 0x1fu : size == 3 ? p[0] & 0x0fu : p[0] & 0x07u;
    for (int64_t i = 1; i < size; i++) code = code << 6 | (p[i] & 0x3fu);
    if (size < 4) return ks_put_escaped_unit(out, code);
    code -= 0x10000;
    out = ks_put_escaped_unit(out, 0xd800 + (code >> 10));
    return ks_put_escaped_unit(out, 0xdc00 + (code & 0x3ff));
}

static inline uint8_t *ks_put_malformed(uint8_t *out, const uint8_t *p, int64_t size, int style) {
    if (style == KS_JAVA_JSON) return ks_put_escaped_unit(out, 0xfffd);
    for (int64_t i = 0; i < size; i++) {
        *out++ = '\\';
        if (style == KS_JSON) *out++ = '\\';
        *out++ = 'x';
        out = ks_put_hex_byte(out, p[i]);
    }
    return out;
}

/* Copies the sequence at *in, which begins with a special byte; both pointers are moved. */
static inline void ks_copy_special(const uint8_t **in, const uint8_t *limit, uint8_t **out,
                                   int style) {
    const uint8_t *p = *in;
    if (*p < 0x80) {
        *out = ks_put_escaped_ascii(*out, *p, style);
        *in = p + 1;
        return;
    }
    int is_valid;
    int64_t size = ks_java_sequence(p, limit, &is_valid);
    *in = p + size;
    if (!is_valid) {
        *out = ks_put_malformed(*out, p, size, style);
    } else if (ks_is_ascii_style(style)) {
        *out = ks_put_escaped_sequence(*out, p, size);
    } else {
        for (int64_t i = 0; i < size; i++) *(*out)++ = p[i];
    }
}

static inline __attribute__((always_inline)) void ks_copy_in_style(const uint8_t **in,
                                                                   const uint8_t *limit,
                                                                   uint8_t **out,
                                                                   const uint8_t *room, int style) {
    const uint8_t *p = *in;
    uint8_t *q = *out;
    while (limit - p >= KS_LANES && room - q >= KS_LANES + KS_MAX_ESCAPED) {
        ks_lanes bytes = ks_load_lanes(p);
        int size = ks_first_lane(ks_special_lanes(bytes, style));
        memcpy(q, &bytes, sizeof bytes);
        p += size;
        q += size;
        if (size < KS_LANES) ks_copy_special(&p, limit, &q, style);
    }
    while (p < limit && room - q >= KS_MAX_ESCAPED) {
        if (ks_is_special(*p, style)) {
            ks_copy_special(&p, limit, &q, style);
        } else {
            *q++ = *p++;
        }
    }
    *in = p;
    *out = q;
}

/* Copies text from *in up to `limit`, or until the next sequence may not fit into *out up to
 * `room`; both are moved. */
static inline void ks_copy_quoted(const uint8_t **in, const uint8_t *limit, uint8_t **out,
                                  const uint8_t *room, int style) {
    switch (style) {
        case KS_JSON:
            ks_copy_in_style(in, limit, out, room, KS_JSON);
            break;
        case KS_JAVA_JSON:
            ks_copy_in_style(in, limit, out, room, KS_JAVA_JSON);
            break;
        case KS_CSV:
            ks_copy_in_style(in, limit, out, room, KS_CSV);
            break;
        case KS_JSON_UTF8:
            ks_copy_in_style(in, limit, out, room, KS_JSON_UTF8);
            break;
        default:
            ks_copy_in_style(in, limit, out, room, KS_JSON_IN_CSV);
    }
}

/* Flags of what a cell of CSV contains. */
static inline int ks_csv_marks(const uint8_t *p, const uint8_t *limit) {
    ks_lanes quoted = {0}, returns = {0};
    for (; limit - p >= KS_LANES; p += KS_LANES) {
        ks_lanes bytes = ks_load_lanes(p);
        quoted |= (ks_lanes)((bytes == ',') | (bytes == '"') | (bytes == '\n'));
        returns |= (ks_lanes)(bytes == '\r');
    }
    int marks = ks_first_lane(quoted) < KS_LANES ? KS_NEEDS_QUOTES : 0;
    if (ks_first_lane(returns) < KS_LANES) marks |= KS_HAS_RETURN;
    for (; p < limit; p++) {
        if (*p == ',' || *p == '"' || *p == '\n') marks |= KS_NEEDS_QUOTES;
        if (*p == '\r') marks |= KS_HAS_RETURN;
    }
    return marks;
}

/* Whether a spreadsheet evaluates a cell that starts with a byte (OWASP, "CSV Injection"). */
static inline int ks_starts_formula(uint8_t byte) {
    return byte == '=' || byte == '+' || byte == '-' || byte == '@' || byte == '\t' ||
           byte == '\r' || byte == '\n';
}

static inline uint8_t ks_base64_digit(uint32_t bits) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    return (uint8_t)digits[bits & 63];
}

/* Encodes bytes from *in up to `limit`, or until *out is full; both are moved. */
static inline void ks_copy_base64(const uint8_t **in, const uint8_t *limit, uint8_t **out,
                                  const uint8_t *room) {
    const uint8_t *p = *in;
    uint8_t *q = *out;
    while (p < limit && room - q >= 4) {
        int64_t size = limit - p < 3 ? limit - p : 3;
        uint32_t bits = (uint32_t)p[0] << 16;
        if (size > 1) bits |= (uint32_t)p[1] << 8;
        if (size > 2) bits |= p[2];
        q[0] = ks_base64_digit(bits >> 18);
        q[1] = ks_base64_digit(bits >> 12);
        q[2] = size > 1 ? ks_base64_digit(bits >> 6) : '=';
        q[3] = size > 2 ? ks_base64_digit(bits) : '=';
        p += size;
        q += 4;
    }
    *in = p;
    *out = q;
}

#endif /* KAFKASCAN_QUOTED_TEXT_H */
