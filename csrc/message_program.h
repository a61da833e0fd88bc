/* Decode Kafka's generated messages into columns, by a program.
 *
 * A program is an array of instructions that kafkascan/internal_topics/message_program.py compiles
 * from the schema of a message and a version. Every value of a structure adds one value to each of
 * its columns. No byte outside of a message is read, and no value is written behind the capacity
 * of a column; without capacities, values are counted only.
 */
#ifndef KAFKASCAN_MESSAGE_PROGRAM_H
#define KAFKASCAN_MESSAGE_PROGRAM_H

#include <stdint.h>
#include <string.h>

#include "java_text.h"
#include "little_endian.h"

enum ks_message_op {
    KS_OP_NUMBER, /* big-endian, of `width` bytes */
    KS_OP_BOOL,
    KS_OP_RAW, /* `width` bytes */
    KS_OP_STRING,
    KS_OP_BYTES,
    KS_OP_ARRAY,           /* the next `first` instructions decode an element */
    KS_OP_VALID,           /* a structure begins */
    KS_OP_NULLABLE,        /* a flag of a byte; the next `first` instructions decode the structure,
                              the `second` ones behind them a null */
    KS_OP_TAGGED_NULLABLE, /* the same; the flag is a varint */
    KS_OP_DEFAULT,         /* a null, or a value with the bits `first` and `second` */
    KS_OP_TAGS,            /* tagged fields: `first` KS_OP_TAG follow, of `second` instructions */
    KS_OP_TAG,             /* tag `column`: `first` instructions decode it, `second` its default */
    KS_MESSAGE_OPS
};

enum { KS_MESSAGE_COLUMNS = 64, KS_MESSAGE_TAGS = 16, KS_MESSAGE_DEPTH = 12 };

typedef struct ks_instruction {
    int32_t op;
    int32_t column;
    int32_t is_nullable;
    int32_t width;
    int32_t first;
    int32_t second;
} ks_instruction;

/* Arrow's buffers, but for validity, which has a byte for each value. */
typedef struct ks_message_column {
    uint8_t *values; /* numbers, in native order */
    int32_t *ends;   /* of strings, bytes and arrays */
    uint8_t *data;   /* of strings and bytes */
    uint8_t *is_valid;
    int64_t capacity;  /* values */
    int64_t data_room; /* bytes of `data` */
} ks_message_column;

typedef struct ks_message_counts {
    int64_t values[KS_MESSAGE_COLUMNS];
    int64_t sizes[KS_MESSAGE_COLUMNS]; /* bytes of strings and bytes, elements of arrays */
} ks_message_counts;

typedef struct ks_message_reader {
    const uint8_t *at;
    const uint8_t *limit;
    const ks_instruction *program;
    const ks_message_column *columns; /* NULL to count only */
    ks_message_counts counts;
    int is_flexible;
    int is_silent; /* adds no values */
    int depth;
} ks_message_reader;

static inline int ks_message_take(ks_message_reader *r, int64_t size, const uint8_t **data) {
    if (size < 0 || size > r->limit - r->at) return 0;
    *data = r->at;
    r->at += size;
    return 1;
}

/* As Kafka's readUnsignedVarint: at most 5 bytes, excess bits of the last one are ignored. */
static inline int ks_message_uvarint(ks_message_reader *r, uint32_t *number) {
    uint32_t n = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        if (r->at >= r->limit) return 0;
        uint8_t byte = *r->at++;
        n |= (uint32_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *number = n;
            return 1;
        }
    }
    return 0;
}

/* A signed number of 1, 2, 4 or 8 bytes. */
static inline int64_t ks_message_big_endian(const uint8_t *p, int32_t width) {
    uint16_t n16;
    uint32_t n32;
    uint64_t n64;
    switch (width) {
        case 1:
            return (int8_t)p[0];
        case 2:
            memcpy(&n16, p, sizeof n16);
            return (int16_t)__builtin_bswap16(n16);
        case 4:
            memcpy(&n32, p, sizeof n32);
            return (int32_t)__builtin_bswap32(n32);
        default:
            memcpy(&n64, p, sizeof n64);
            return (int64_t)__builtin_bswap64(n64);
    }
}

/* Copies a value of 1, 2, 4, 8 or 16 bytes, without a call. */
static inline void ks_message_copy(uint8_t *to, const void *bits, int32_t width) {
    switch (width) {
        case 1:
            memcpy(to, bits, 1);
            break;
        case 2:
            memcpy(to, bits, 2);
            break;
        case 4:
            memcpy(to, bits, 4);
            break;
        case 8:
            memcpy(to, bits, 8);
            break;
        default:
            memcpy(to, bits, 16);
    }
}

/* A size or count: 2 or 4 bytes, or a varint of one more; negative for a null. */
static inline int ks_message_size(ks_message_reader *r, int32_t plain_width, int64_t *size) {
    const uint8_t *p;
    if (r->is_flexible) {
        uint32_t one_more;
        if (!ks_message_uvarint(r, &one_more)) return 0;
        *size = (int64_t)one_more - 1;
        return 1;
    }
    if (!ks_message_take(r, plain_width, &p)) return 0;
    *size = ks_message_big_endian(p, plain_width);
    return 1;
}

/* The row of the next value of a column; *to is NULL if values are only counted. */
static inline int ks_message_row(ks_message_reader *r, int32_t column, int is_valid, int64_t *row,
                                 const ks_message_column **to) {
    *row = r->counts.values[column]++;
    *to = NULL;
    if (r->columns == NULL) return 1;
    const ks_message_column *found = r->columns + column;
    if (*row >= found->capacity) return 0;
    found->is_valid[*row] = (uint8_t)is_valid;
    *to = found;
    return 1;
}

static inline int ks_message_put_bits(ks_message_reader *r, const ks_instruction *i, int is_valid,
                                      const void *bits, int32_t width) {
    const ks_message_column *to;
    int64_t row;
    if (r->is_silent) return 1;
    if (!ks_message_row(r, i->column, is_valid, &row, &to)) return 0;
    if (to != NULL && to->values != NULL) {
        ks_message_copy(to->values + row * width, bits, width);
    }
    return 1;
}

/* The end of a string, of bytes or of an array. */
static inline int ks_message_put_end(ks_message_reader *r, int32_t column, int is_valid,
                                     int64_t size) {
    const ks_message_column *to;
    int64_t row;
    if (r->is_silent) return 1;
    if (!ks_message_row(r, column, is_valid, &row, &to)) return 0;
    r->counts.sizes[column] += size;
    if (to != NULL) to->ends[row] = (int32_t)r->counts.sizes[column];
    return 1;
}

static inline int ks_message_put_bytes(ks_message_reader *r, const ks_instruction *i,
                                       const uint8_t *data, int64_t size) {
    if (r->is_silent) return 1;
    int is_text = i->op == KS_OP_STRING;
    int64_t stored = is_text ? ks_java_text_size(data, data + size) : size;
    if (r->columns != NULL) {
        const ks_message_column *to = r->columns + i->column;
        int64_t used = r->counts.sizes[i->column];
        /* A copy of text stops where a sequence of any size might not fit. */
        if (stored > to->data_room - KS_MAX_SEQUENCE - used) return 0;
        uint8_t *out = to->data + used;
        const uint8_t *p = data;
        if (is_text) {
            ks_copy_java_text(&p, data + size, &out, to->data + to->data_room);
        } else if (size > 0) {
            memcpy(out, data, (size_t)size);
        }
    }
    return ks_message_put_end(r, i->column, 1, stored);
}

static int ks_message_run(ks_message_reader *r, const ks_instruction *i, const ks_instruction *end);

static inline int ks_message_is_number(const ks_instruction *i) {
    return i->op == KS_OP_NUMBER || i->op == KS_OP_RAW;
}

/* The elements of an array of numbers, without a run for each. */
static inline int ks_message_numbers(ks_message_reader *r, const ks_instruction *i, int64_t count) {
    const uint8_t *p;
    if (!ks_message_take(r, count * i->width, &p)) return 0;
    if (r->is_silent) return 1;
    int64_t row = r->counts.values[i->column];
    r->counts.values[i->column] += count;
    if (r->columns == NULL || count == 0) return 1;
    const ks_message_column *to = r->columns + i->column;
    if (count > to->capacity - row) return 0;
    memset(to->is_valid + row, 1, (size_t)count);
    for (int64_t end = row + count; row < end; row++, p += i->width) {
        int64_t bits[2] = {i->op == KS_OP_NUMBER ? ks_message_big_endian(p, i->width) : 0, 0};
        const void *value = i->op == KS_OP_NUMBER ? (const void *)bits : p;
        ks_message_copy(to->values + row * i->width, value, i->width);
    }
    return 1;
}

static inline int ks_message_array(ks_message_reader *r, const ks_instruction *i) {
    int64_t count;
    if (!ks_message_size(r, 4, &count)) return 0;
    if (count < 0) return i->is_nullable && ks_message_put_end(r, i->column, 0, 0);
    /* Every element takes at least one byte. */
    if (count > r->limit - r->at) return 0;
    if (i->first == 1 && ks_message_is_number(i + 1)) {
        if (!ks_message_numbers(r, i + 1, count)) return 0;
    } else {
        for (int64_t n = 0; n < count; n++) {
            if (!ks_message_run(r, i + 1, i + 1 + i->first)) return 0;
        }
    }
    return ks_message_put_end(r, i->column, 1, count);
}

static inline int ks_message_bytes(ks_message_reader *r, const ks_instruction *i) {
    const uint8_t *data;
    int64_t size;
    if (!ks_message_size(r, i->width, &size)) return 0;
    if (size < 0) return i->is_nullable && ks_message_put_end(r, i->column, 0, 0);
    return ks_message_take(r, size, &data) && ks_message_put_bytes(r, i, data, size);
}

static inline int ks_message_nullable(ks_message_reader *r, const ks_instruction *i) {
    const ks_instruction *body = i + 1, *null = body + i->first;
    int is_null;
    if (i->op == KS_OP_NULLABLE) {
        const uint8_t *flag;
        if (!ks_message_take(r, 1, &flag)) return 0;
        is_null = *flag & 0x80;
    } else {
        uint32_t flag;
        if (!ks_message_uvarint(r, &flag)) return 0;
        is_null = flag == 0;
    }
    return is_null ? ks_message_run(r, null, null + i->second) : ks_message_run(r, body, null);
}

static inline const ks_instruction *ks_message_next_tag(const ks_instruction *tag) {
    return tag + 1 + tag->first + tag->second;
}

/* Reads all tagged fields, and notes where the last one of each tag begins: Kafka's last one
 * counts, but all of them must be readable. Sizes of known fields are not used, as by Kafka. */
static inline int ks_message_find_tags(ks_message_reader *r, const ks_instruction *tags,
                                       int32_t tags_count, const uint8_t **starts) {
    uint32_t count, number, size;
    if (!ks_message_uvarint(r, &count)) return 0;
    for (; count > 0; count--) {
        if (!ks_message_uvarint(r, &number) || !ks_message_uvarint(r, &size)) return 0;
        const ks_instruction *tag = tags;
        int32_t n = 0;
        while (n < tags_count && (uint32_t)tag->column != number) {
            tag = ks_message_next_tag(tag);
            n++;
        }
        const uint8_t *skipped;
        if (n == tags_count) {
            if (!ks_message_take(r, size, &skipped)) return 0;
            continue;
        }
        starts[n] = r->at;
        int was_silent = r->is_silent;
        r->is_silent = 1;
        int is_read = ks_message_run(r, tag + 1, tag + 1 + tag->first);
        r->is_silent = was_silent;
        if (!is_read) return 0;
    }
    return 1;
}

static inline int ks_message_tags(ks_message_reader *r, const ks_instruction *i) {
    const uint8_t *starts[KS_MESSAGE_TAGS] = {0};
    if (!ks_message_find_tags(r, i + 1, i->first, starts)) return 0;
    if (r->is_silent) return 1;
    const uint8_t *end = r->at;
    const ks_instruction *tag = i + 1;
    for (int32_t n = 0; n < i->first; n++, tag = ks_message_next_tag(tag)) {
        const ks_instruction *body = tag + 1, *defaults = body + tag->first;
        if (starts[n] != NULL) {
            r->at = starts[n];
            if (!ks_message_run(r, body, defaults)) return 0;
        } else if (!ks_message_run(r, defaults, defaults + tag->second)) {
            return 0;
        }
    }
    r->at = end;
    return 1;
}

static inline int ks_message_number(ks_message_reader *r, const ks_instruction *i) {
    const uint8_t *p;
    if (!ks_message_take(r, i->width, &p)) return 0;
    if (i->op == KS_OP_RAW) return ks_message_put_bits(r, i, 1, p, i->width);
    int64_t bits[2] = {ks_message_big_endian(p, i->width), 0}; /* as wide as the widest copy */
    if (i->op == KS_OP_BOOL) bits[0] = bits[0] != 0;
    return ks_message_put_bits(r, i, 1, bits, i->width);
}

static inline int ks_message_default(ks_message_reader *r, const ks_instruction *i) {
    if (i->width == 0) return ks_message_put_end(r, i->column, !i->is_nullable, 0);
    int32_t bits[4] = {i->first, i->second, 0, 0};
    return ks_message_put_bits(r, i, !i->is_nullable, bits, i->width);
}

/* Runs instructions; returns 0 if the bytes do not encode the message. */
static int ks_message_run(ks_message_reader *r, const ks_instruction *i,
                          const ks_instruction *end) {
    int is_done = 1;
    if (r->depth >= KS_MESSAGE_DEPTH) return 0;
    r->depth++;
    while (is_done && i < end) {
        const ks_instruction *next = i + 1;
        switch (i->op) {
            case KS_OP_NUMBER:
            case KS_OP_BOOL:
            case KS_OP_RAW:
                is_done = ks_message_number(r, i);
                break;
            case KS_OP_STRING:
            case KS_OP_BYTES:
                is_done = ks_message_bytes(r, i);
                break;
            case KS_OP_ARRAY:
                is_done = ks_message_array(r, i);
                next += i->first;
                break;
            case KS_OP_VALID:
                is_done = ks_message_put_bits(r, i, !i->is_nullable, NULL, 0);
                break;
            case KS_OP_NULLABLE:
            case KS_OP_TAGGED_NULLABLE:
                is_done = ks_message_nullable(r, i);
                next += i->first + i->second;
                break;
            case KS_OP_DEFAULT:
                is_done = ks_message_default(r, i);
                break;
            case KS_OP_TAGS:
                is_done = ks_message_tags(r, i);
                next += i->second;
                break;
            default:
                is_done = 0;
        }
        i = next;
    }
    r->depth--;
    return is_done;
}

/* Decodes one message; a message that cannot be decoded adds no values. */
static inline int ks_decode_message_columns(ks_message_reader *r, const ks_instruction *program,
                                            int64_t size, int32_t columns, const uint8_t *data,
                                            int64_t data_size, int is_flexible, int must_end) {
    ks_message_counts before;
    memcpy(before.values, r->counts.values, (size_t)columns * sizeof(int64_t));
    memcpy(before.sizes, r->counts.sizes, (size_t)columns * sizeof(int64_t));
    r->at = data;
    r->limit = data + data_size;
    r->is_flexible = is_flexible;
    r->is_silent = 0;
    r->depth = 0;
    int is_done = ks_message_run(r, program, program + size) && !(must_end && r->at != r->limit);
    if (!is_done) {
        memcpy(r->counts.values, before.values, (size_t)columns * sizeof(int64_t));
        memcpy(r->counts.sizes, before.sizes, (size_t)columns * sizeof(int64_t));
    }
    return is_done;
}

/* The int16 in front of a key or value of a coordinator's topic. */
static inline int ks_read_message_prefix(const uint8_t *data, int64_t size, int32_t *number) {
    if (size < 2) return 0;
    *number = (int16_t)((data[0] << 8) | data[1]);
    return 1;
}

/* A number as Kafka's AbstractApiMessageSerde reads it: a negative int loses its upper bytes. */
static inline int ks_message_short(ks_message_reader *r, int32_t *number) {
    uint32_t n;
    if (!ks_message_uvarint(r, &n) || (n > INT16_MAX && n <= INT32_MAX)) return 0;
    *number = (int16_t)n;
    return 1;
}

/* The frame of a message of the metadata log; returns its size, or 0. To Kafka's classes, a
 * negative version has the fields of the first one. */
static inline int64_t ks_read_message_frame(const uint8_t *data, int64_t size, int32_t *type,
                                            int32_t *version) {
    ks_message_reader r = {.at = data, .limit = data + size};
    int32_t frame_version;
    if (!ks_message_short(&r, &frame_version) || frame_version != 1) return 0;
    if (!ks_message_short(&r, type) || !ks_message_short(&r, version)) return 0;
    if (*version < 0) *version = 0;
    return r.at - data;
}

#endif /* KAFKASCAN_MESSAGE_PROGRAM_H */
