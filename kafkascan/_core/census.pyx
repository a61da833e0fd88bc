"""Rows of the batch table to what each producer wrote: how much, how, and in which order."""

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
from kafkascan._core.producer_ids cimport hashed, last_offset, plus
from kafkascan._core.producer_orders cimport (
    begin_order,
    largest_sequence,
    log_place,
    note_hole,
    note_marker,
    note_order,
    producer_order,
)

# What is said of one producer, in numbers of eight bytes each.
cdef struct producer_count:
    producer_order order
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
    int64_t codecs                 # a bit for each
    int64_t compressed_batches
    int64_t spanning_batches
    int64_t span_ms_total
    int64_t span_ms_max

cdef struct State:
    producer_count *counts
    int64_t used
    int64_t capacity
    int32_t *slots                 # where the entry of a producer is, by hash; -1: nowhere
    uint64_t mask
    log_place place


cdef uint64_t secret = int.from_bytes(os.urandom(8), "little")


cdef producer_count *find(State *state, int64_t producer_id) noexcept nogil:
    """Return the entry of a producer, a fresh one for one that is new; NULL: no room."""
    cdef uint64_t at = hashed(producer_id, secret) & state.mask
    cdef producer_count *entry
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
    entry.batches = entry.records = entry.size_in_bytes = entry.largest_batch = 0
    entry.first_offset = entry.last_offset = -1
    entry.first_timestamp = entry.last_timestamp = -1
    entry.transactional_batches = entry.markers = entry.codecs = entry.compressed_batches = 0
    entry.spanning_batches = entry.span_ms_total = entry.span_ms_max = 0
    return entry


cdef void note_amount(producer_count *entry, const ks_batch_row *row) noexcept nogil:
    cdef int64_t size = <int64_t>row.batch_length + KS_LOG_OVERHEAD
    cdef int codec = row.attributes & KS_COMPRESSION_MASK
    entry.batches += 1
    entry.records += row.records_count if row.records_count > 0 else 0
    entry.size_in_bytes = plus(entry.size_in_bytes, size)
    if size > entry.largest_batch:
        entry.largest_batch = size
    if entry.first_offset < 0:
        entry.first_offset = row.base_offset
    entry.last_offset = last_offset(row)
    entry.codecs |= 1 << codec
    entry.compressed_batches += codec != 0
    if row.magic >= 2 and row.attributes & KS_TRANSACTIONAL_BIT:
        entry.transactional_batches += 1
    note_times(entry, row)


cdef void note_times(producer_count *entry, const ks_batch_row *row) noexcept nogil:
    cdef int64_t span
    cdef bint has_base = row.magic >= 2 and not row.attributes & KS_DELETE_HORIZON_BIT
    if row.max_timestamp >= 0:
        if row.max_timestamp > entry.last_timestamp:
            entry.last_timestamp = row.max_timestamp
        if entry.first_timestamp < 0 or row.max_timestamp < entry.first_timestamp:
            entry.first_timestamp = row.max_timestamp
    if not has_base or row.base_timestamp < 0:
        return
    if entry.first_timestamp < 0 or row.base_timestamp < entry.first_timestamp:
        entry.first_timestamp = row.base_timestamp
    # LOG_APPEND_TIME is one time for all records of a batch.
    if row.attributes & KS_TIMESTAMP_TYPE_BIT or row.records_count < 2:
        return
    if row.max_timestamp >= row.base_timestamp:
        span = row.max_timestamp - row.base_timestamp
        entry.spanning_batches += 1
        entry.span_ms_total = plus(entry.span_ms_total, span)
        if span > entry.span_ms_max:
            entry.span_ms_max = span


def count_into(
    const ks_batch_row[::1] rows not None,
    const int8_t[::1] kinds not None,
    producer_count[::1] counts not None,
    int64_t used,
    int32_t[::1] slots not None,
    int64_t next_offset,
    int64_t holes,
    int64_t expiration_ms,
):
    """
    Count batches to the producers that wrote them, one after the other.

    Parameters
    ----------
    rows : contiguous array of BATCH_DTYPE
    kinds : array of int8, as long
        Of a control batch, whether it is a marker: 0 or 1.
    counts : contiguous writable array of PRODUCER_COUNTS, shape (capacity,)
    used : int
        Entries in use.
    slots : writable array of int32, shape (a power of two above the capacity,)
        Where producers are found; -1 where there is none.
    next_offset : int
        That follows the batch before; -1 at the beginning of a log.
    holes : int
        Places in the log before, at which offsets are missing.
    expiration_ms : int
        After which a broker forgets an idle producer.

    Returns
    -------
    status : int
        OUTPUT_FULL if there is no room for another producer.
    rows_done, used, next_offset, holes : int
    """
    cdef State state
    cdef const ks_batch_row *row
    cdef producer_count *entry = NULL
    cdef int64_t i = 0, n = rows.shape[0], id_
    cdef int status = KS_OK
    if not 0 <= used <= counts.shape[0] or counts.shape[0] >= largest_sequence:
        raise ValueError("there cannot be more producers than there is room for")
    if slots.shape[0] <= counts.shape[0] or slots.shape[0] & (slots.shape[0] - 1):
        raise ValueError("slots must be a power of two that exceeds the entries")
    if kinds.shape[0] != n:
        raise ValueError("there must be a kind for each row")
    state.counts = &counts[0] if counts.shape[0] else NULL
    state.used, state.capacity = used, counts.shape[0]
    state.slots, state.mask = &slots[0], slots.shape[0] - 1
    state.place.holes, state.place.next_offset = holes, next_offset
    state.place.expiration_ms = expiration_ms
    with nogil:
        while i < n:
            row = &rows[i]
            id_ = row.producer_id if row.magic >= 2 and row.producer_id >= 0 else -1
            if entry == NULL or entry.order.producer_id != id_:
                entry = find(&state, id_)
            if entry == NULL:
                status = KS_OUTPUT_FULL
                break
            note_hole(&state.place, row)
            if row.magic >= 2 and row.attributes & KS_CONTROL_BIT:
                if id_ >= 0 and kinds[i] in (0, 1):
                    entry.markers += 1
                    note_marker(&state.place, &entry.order, row)
            else:
                note_amount(entry, row)
                if id_ >= 0:
                    note_order(&state.place, &entry.order, row)
            i += 1
    return status, i, state.used, state.place.next_offset, state.place.holes


def index_counts(
    const producer_count[::1] counts not None, int64_t used, int32_t[::1] slots not None
):
    """
    Note where the producers of entries are found.

    Parameters
    ----------
    counts : contiguous array of PRODUCER_COUNTS
        Each producer once.
    used : int
        Entries in use.
    slots : writable array of int32, shape (a power of two above the entries,)
        Filled with -1 before.
    """
    cdef uint64_t at, mask = slots.shape[0] - 1
    cdef int64_t i
    if not 0 <= used <= counts.shape[0] or counts.shape[0] >= largest_sequence:
        raise ValueError("there cannot be more producers than there is room for")
    if slots.shape[0] <= counts.shape[0] or slots.shape[0] & (slots.shape[0] - 1):
        raise ValueError("slots must be a power of two that exceeds the entries")
    with nogil:
        for i in range(used):
            at = hashed(counts[i].order.producer_id, secret) & mask
            while slots[at] >= 0:
                at = (at + 1) & mask
            slots[at] = <int32_t>i
