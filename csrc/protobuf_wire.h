/* Protobuf's wire format ("Encoding", protobuf.dev), and what its values are decoded with. */
#ifndef KAFKASCAN_PROTOBUF_WIRE_H
#define KAFKASCAN_PROTOBUF_WIRE_H

#include <locale.h>
#include <stdint.h>
#ifdef __APPLE__
#include <xlocale.h>
#endif

#include "little_endian.h"
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
    int32_t size;         /* bytes that it takes in columns */
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

#endif /* KAFKASCAN_PROTOBUF_WIRE_H */
