"""Count batches per producer: amounts, timestamps, codecs and the order of batches."""

import os

from libc.stdint cimport int8_t, int32_t, int64_t, uint64_t

from kafkascan._core.layout cimport (
    KS_COMPRESSION_MASK,
    KS_CONTROL_BIT,
    KS_DELETE_HORIZON_BIT,
    KS_LOG_OVERHEAD,
    KS_OK,
    KS_OUTPUT_FULL,
    KS_TIMESTAMP_TYPE_BIT,
    KS_TRANSACTIONAL_BIT,
    ks_batch_row,
)
from kafkascan._core.markers cimport ABORT, COMMIT
from kafkascan._core.producer_ids cimport hashed, last_offset, plus
from kafkascan._core.producer_orders cimport (
    advance,
    begin_order,
    check_marker,
    check_order,
    largest_sequence,
    log_cursor,
    producer_order,
)
from kafkascan._core.producers cimport LogCursor

# How much a producer wrote. The dtype PRODUCER_COUNTS is derived from producer_order and this.
cdef struct producer_amount:
    int64_t batches
    int64_t records
    int64_t size_in_bytes
    int64_t largest_batch
    int64_t first_offset
    int64_t last_offset
    int64_t first_timestamp
    int64_t last_timestamp
    int64_t transactional_batches
    int64_t markers
    int64_t codecs                 # one bit per codec
    int64_t compressed_batches
    int64_t spanning_batches
    int64_t span_ms_total
    int64_t span_ms_max

cdef struct producer_count:
    producer_order order
    producer_amount amount

cdef struct State:
    producer_count *counts
    int64_t used
    int64_t capacity
    int32_t *slots                 # hash table of indexes into counts; -1: free
    uint64_t mask

cdef producer_amount _amount

# One row, from which Python derives a dtype.
producer_amount_row = <producer_amount[:1]> &_amount

cdef uint64_t secret = int.from_bytes(os.urandom(8), "little")


cdef producer_count *find_or_add(State *state, int64_t producer_id) noexcept nogil:
    """Return the counts of a producer, new ones if there are none; NULL if there is no room."""
    cdef uint64_t at = hashed(producer_id, secret) & state.mask
    cdef producer_count *entry
    cdef producer_amount *amount
    while state.slots[at] >= 0:
        entry = &state.counts[state.slots[at]]
        if entry.order.producer_id == producer_id:
            return entry
        at = (at + 1) & state.mask
    if state.used == state.capacity:
        return NULL
    state.slots[at] = <int32_t>state.used
    entry = &state.counts[state.used]
    state.used += 1
    begin_order(&entry.order, producer_id)
    amount = &entry.amount
    amount.batches = amount.records = amount.size_in_bytes = amount.largest_batch = 0
    amount.first_offset = amount.last_offset = -1
    amount.first_timestamp = amount.last_timestamp = -1
    amount.transactional_batches = amount.markers = amount.codecs = amount.compressed_batches = 0
    amount.spanning_batches = amount.span_ms_total = amount.span_ms_max = 0
    return entry


cdef void add_batch(producer_amount *amount, const ks_batch_row *row) noexcept nogil:
    cdef int64_t size = <int64_t>row.batch_length + KS_LOG_OVERHEAD
    cdef int codec = row.attributes & KS_COMPRESSION_MASK
    amount.batches += 1
    amount.records += row.records_count if row.records_count > 0 else 0
    amount.size_in_bytes = plus(amount.size_in_bytes, size)
    if size > amount.largest_batch:
        amount.largest_batch = size
    if amount.first_offset < 0:
        amount.first_offset = row.base_offset
    amount.last_offset = last_offset(row)
    amount.codecs |= 1 << codec
    amount.compressed_batches += codec != 0
    if row.magic >= 2 and row.attributes & KS_TRANSACTIONAL_BIT:
        amount.transactional_batches += 1
    add_times(amount, row)


cdef void add_times(producer_amount *amount, const ks_batch_row *row) noexcept nogil:
    cdef int64_t span
    cdef bint has_base = row.magic >= 2 and not row.attributes & KS_DELETE_HORIZON_BIT
    if row.max_timestamp >= 0:
        if row.max_timestamp > amount.last_timestamp:
            amount.last_timestamp = row.max_timestamp
        if amount.first_timestamp < 0 or row.max_timestamp < amount.first_timestamp:
            amount.first_timestamp = row.max_timestamp
    # LOG_APPEND_TIME gives all records of a batch the same time, which is not its base_timestamp.
    if not has_base or row.base_timestamp < 0 or row.attributes & KS_TIMESTAMP_TYPE_BIT:
        return
    if amount.first_timestamp < 0 or row.base_timestamp < amount.first_timestamp:
        amount.first_timestamp = row.base_timestamp
    if row.records_count < 2:
        return
    if row.max_timestamp >= row.base_timestamp:
        span = row.max_timestamp - row.base_timestamp
        amount.spanning_batches += 1
        amount.span_ms_total = plus(amount.span_ms_total, span)
        if span > amount.span_ms_max:
            amount.span_ms_max = span


cdef int count_rows(
    State *state,
    log_cursor *log,
    const ks_batch_row[::1] rows,
    const int8_t[::1] kinds,
    int64_t *rows_done,
) noexcept nogil:
    cdef const ks_batch_row *row
    cdef producer_count *entry = NULL
    cdef int64_t i = 0, n = rows.shape[0], id_
    cdef int status = KS_OK
    cdef log_cursor cursor = log[0]    # a copy, which stays in registers
    while i < n:
        row = &rows[i]
        id_ = row.producer_id if row.magic >= 2 and row.producer_id >= 0 else -1
        if entry == NULL or entry.order.producer_id != id_:
            entry = find_or_add(state, id_)
            if entry == NULL:
                status = KS_OUTPUT_FULL
                break
        advance(&cursor, row)
        if row.magic >= 2 and row.attributes & KS_CONTROL_BIT:
            if id_ >= 0 and kinds[i] in (ABORT, COMMIT):
                entry.amount.markers += 1
                check_marker(&entry.order, row)
        else:
            add_batch(&entry.amount, row)
            if id_ >= 0:
                check_order(&cursor, &entry.order, row)
        i += 1
    log[0] = cursor
    rows_done[0] = i
    return status


def count_into(
    const ks_batch_row[::1] rows not None,
    const int8_t[::1] kinds not None,
    producer_count[::1] counts not None,
    int64_t used,
    int32_t[::1] slots not None,
    LogCursor cursor not None,
):
    """
    Add batches to the counts of their producers.

    Parameters
    ----------
    rows : contiguous array of BATCH_DTYPE
    kinds : array of int8, as long
        The marker kind of each control batch.
    counts : contiguous writable array of PRODUCER_COUNTS, shape (capacity,)
    used : int
        Entries in use.
    slots : writable array of int32, shape (a power of two above the capacity,)
        Hash table of the producers; see `index_counts`.
    cursor : LogCursor
        It is moved past the rows.

    Returns
    -------
    status : int
        OUTPUT_FULL if there is no room for another producer.
    rows_done, used : int
    """
    cdef State state
    cdef int64_t rows_done = 0
    cdef int status
    if not 0 <= used <= counts.shape[0] or counts.shape[0] >= largest_sequence:
        raise ValueError("used must not exceed the number of counts, which is below 2**31")
    if slots.shape[0] <= counts.shape[0] or slots.shape[0] & (slots.shape[0] - 1):
        raise ValueError("slots must be a power of two that exceeds the counts")
    if kinds.shape[0] != rows.shape[0]:
        raise ValueError("kinds must be as long as rows")
    state.counts = &counts[0] if counts.shape[0] else NULL
    state.used, state.capacity = used, counts.shape[0]
    state.slots, state.mask = &slots[0], slots.shape[0] - 1
    with nogil:
        status = count_rows(&state, &cursor.cursor, rows, kinds, &rows_done)
    return status, rows_done, state.used


def index_counts(
    const producer_count[::1] counts not None, int64_t used, int32_t[::1] slots not None
):
    """
    Build the hash table of the producers.

    Parameters
    ----------
    counts : contiguous array of PRODUCER_COUNTS
        With distinct producers.
    used : int
        Entries in use.
    slots : writable array of int32, shape (a power of two above the entries,)
        All -1.
    """
    cdef uint64_t at, mask = slots.shape[0] - 1
    cdef int64_t i
    if not 0 <= used <= counts.shape[0] or counts.shape[0] >= largest_sequence:
        raise ValueError("used must not exceed the number of counts, which is below 2**31")
    if slots.shape[0] <= counts.shape[0] or slots.shape[0] & (slots.shape[0] - 1):
        raise ValueError("slots must be a power of two that exceeds the counts")
    with nogil:
        for i in range(used):
            at = hashed(counts[i].order.producer_id, secret) & mask
            while slots[at] >= 0:
                at = (at + 1) & mask
            slots[at] = <int32_t>i
