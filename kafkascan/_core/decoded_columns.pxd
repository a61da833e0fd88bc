"""The columns that decoders of records fill."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkascan._core.layout cimport ks_batch_row


cdef extern from "record.h" nogil:
    ctypedef struct ks_record_columns:
        int32_t *batch
        int64_t *offset
        int64_t *timestamp
        int64_t *key_position
        int32_t *key_size
        int64_t *value_position
        int32_t *value_size
        int64_t *headers_position
        int32_t *headers_count

    ctypedef struct ks_payload:
        const uint8_t *start
        const uint8_t *limit
        const uint8_t *buffer

    int ks_decode_batch(
        const ks_payload *payload, const ks_batch_row *batch, int32_t batch_number,
        int64_t row, int64_t count, int in_full, const ks_record_columns *columns,
        int64_t *done
    )


cdef inline int64_t *longs(object column, int64_t capacity) except? NULL:
    """Return the data of an int64 column, or NULL."""
    cdef int64_t[::1] view
    if column is None:
        return NULL
    view = column
    if view.shape[0] != capacity:
        raise ValueError("columns differ in length")
    return &view[0] if capacity else NULL


cdef inline int32_t *ints(object column, int64_t capacity) except? NULL:
    """Return the data of an int32 column, or NULL."""
    cdef int32_t[::1] view
    if column is None:
        return NULL
    view = column
    if view.shape[0] != capacity:
        raise ValueError("columns differ in length")
    return &view[0] if capacity else NULL


cdef inline int take_columns(dict columns, int64_t capacity, ks_record_columns *found) except -1:
    """Set the addresses of the columns in a dict, which must have room for so many records."""
    found.batch = ints(columns["batch"], capacity)
    found.offset = longs(columns.get("offset"), capacity)
    found.timestamp = longs(columns.get("timestamp"), capacity)
    found.key_position = longs(columns.get("key_position"), capacity)
    found.key_size = ints(columns.get("key_size"), capacity)
    found.value_position = longs(columns.get("value_position"), capacity)
    found.value_size = ints(columns.get("value_size"), capacity)
    found.headers_position = longs(columns.get("headers_position"), capacity)
    found.headers_count = ints(columns.get("headers_count"), capacity)
    for name in ("key_position", "value_position", "headers_position"):
        pair = name.replace("headers_position", "headers_count").replace("_position", "_size")
        if (columns.get(name) is None) != (columns.get(pair) is None):
            raise ValueError(f"{name} needs {pair}")
    return 0


cdef inline bint are_read_in_full(const ks_record_columns *columns) noexcept nogil:
    """Whether a column needs more of a record than the fields before its key."""
    return (
        columns.key_position != NULL
        or columns.value_position != NULL
        or columns.headers_position != NULL
    )
