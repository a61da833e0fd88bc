"""Content of a transaction in one log: its range of offsets, its size and its marker."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t

from kafkascan._core.layout cimport KS_DELETE_HORIZON_BIT, KS_LOG_OVERHEAD, ks_batch_row
from kafkascan._core.markers cimport marker
from kafkascan._core.producer_ids cimport last_offset, plus

# States besides the marker kinds ABORT and COMMIT.
cdef enum:
    OPEN = 2
    NO_TRANSACTION = -1

# The dtype TRANSACTION is derived from this struct.
cdef packed struct transaction:
    int32_t log
    int64_t producer_id
    int16_t producer_epoch
    int8_t state
    int64_t first_offset
    int64_t last_offset
    int64_t marker_offset
    int64_t last_stable_offset
    int64_t first_timestamp
    int64_t last_timestamp
    int64_t batches
    int64_t records
    int64_t size_in_bytes
    int32_t coordinator_epoch


cdef inline int64_t first_timestamp(const ks_batch_row *row) noexcept nogil:
    """Return the base timestamp, unless a delete horizon has replaced it."""
    if row.attributes & KS_DELETE_HORIZON_BIT:
        return row.max_timestamp
    return row.base_timestamp


cdef inline void begin_span(transaction *span, const ks_batch_row *row) noexcept nogil:
    span.log = 0
    span.producer_id = row.producer_id
    span.producer_epoch = row.producer_epoch
    span.state = OPEN
    span.first_offset = span.last_offset = span.marker_offset = span.last_stable_offset = -1
    span.first_timestamp, span.last_timestamp = first_timestamp(row), row.max_timestamp
    span.batches = span.records = span.size_in_bytes = 0
    span.coordinator_epoch = -1


cdef inline void grow_span(transaction *span, const ks_batch_row *row) noexcept nogil:
    if span.state != OPEN:
        begin_span(span, row)
        span.first_offset = row.base_offset
    span.producer_epoch = row.producer_epoch
    span.last_offset = last_offset(row)
    span.last_timestamp = row.max_timestamp
    span.batches += 1
    span.records += row.records_count if row.records_count > 0 else 0
    span.size_in_bytes = plus(span.size_in_bytes, <int64_t>row.batch_length + KS_LOG_OVERHEAD)


cdef inline void end_span(
    transaction *span,
    const ks_batch_row *row,
    const marker *end,
    int64_t last_stable_offset,
    transaction *out,
) noexcept nogil:
    """End a transaction; a marker without an open transaction ends an empty one."""
    if span.state != OPEN:
        begin_span(span, row)
    out[0] = span[0]
    out.state = end.kind
    out.marker_offset = row.base_offset
    out.last_stable_offset = last_stable_offset
    out.coordinator_epoch = end.coordinator_epoch
    span.state = NO_TRANSACTION
