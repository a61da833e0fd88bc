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
from kafkascan._core.producer_ids cimport hashed, last_offset, last_sequence, plus

cdef enum:
    largest = 0x7FFFFFFF
    # A sequence number so far ahead has rather gone back.
    half_of_all = 0x40000000

# What is said of one producer, in numbers of eight bytes each.
cdef struct producer_count:
    int64_t producer_id
    int64_t first_epoch
    int64_t producer_epoch
    int64_t last_sequence
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
    int64_t epoch_bumps
    int64_t wraps
    int64_t sequence_gaps
    int64_t missing_records
    int64_t first_gap
    int64_t duplicates
    int64_t first_duplicate
    int64_t fenced
    int64_t first_fenced
    int64_t forgotten
    int64_t spanning_batches
    int64_t span_ms_total
    int64_t span_ms_max
    int64_t holes_before           # in the offsets of the log, before the last batch
    int64_t last_seen_ms

cdef struct State:
    producer_count *counts
    int64_t used
    int64_t capacity
    int32_t *slots                 # where the entry of a producer is, by hash; -1: nowhere
    uint64_t mask
    int64_t holes
    int64_t next_offset
    int64_t expiration_ms


cdef uint64_t secret = int.from_bytes(os.urandom(8), "little")


cdef producer_count *find(State *state, int64_t producer_id) noexcept nogil:
    """Return the entry of a producer, a fresh one for one that is new; NULL: no room."""
    cdef uint64_t at = hashed(producer_id, secret) & state.mask
    cdef producer_count *entry
    cdef int64_t *field
    cdef int i
    while state.slots[at] >= 0:
        entry = &state.counts[state.slots[at]]
        if entry.producer_id == producer_id:
            return entry
        at = (at + 1) & state.mask
    if state.used == state.capacity:
        return NULL
    state.slots[at] = <int32_t>state.used
    entry = &state.counts[state.used]
    state.used += 1
    field = <int64_t *>entry
    for i in range(<int>(sizeof(producer_count) // sizeof(int64_t))):
        field[i] = 0
    entry.producer_id = producer_id
    entry.first_epoch = entry.producer_epoch = entry.last_sequence = -1
    entry.first_offset = entry.last_offset = -1
    entry.first_timestamp = entry.last_timestamp = entry.last_seen_ms = -1
    entry.first_gap = entry.first_duplicate = entry.first_fenced = -1
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


cdef void note_order(State *state, producer_count *entry, const ks_batch_row *row) noexcept nogil:
    """ProducerAppendInfo.checkProducerEpoch and checkSequence, which a leader asks before."""
    cdef int64_t known = entry.last_sequence, expected, ahead
    cdef int64_t offset = row.base_offset, idle
    if entry.producer_epoch >= 0 and row.producer_epoch < entry.producer_epoch:
        entry.fenced += 1
        if entry.first_fenced < 0:
            entry.first_fenced = offset
        return
    if entry.producer_epoch != row.producer_epoch:
        if entry.producer_epoch >= 0:
            entry.epoch_bumps += 1
            expected = 0
        else:
            expected = -1
    elif known < 0:
        expected = -1
    else:
        expected = (known + 1) & largest
    if expected >= 0 and row.base_sequence >= 0 and row.base_sequence != expected:
        idle = 0
        if row.max_timestamp >= 0 and entry.last_seen_ms >= 0:
            idle = <int64_t>(<uint64_t>row.max_timestamp - <uint64_t>entry.last_seen_ms)
        ahead = (<int64_t>row.base_sequence - expected) & largest
        if idle >= state.expiration_ms or state.holes != entry.holes_before:
            entry.forgotten += 1
        elif ahead < half_of_all:
            entry.sequence_gaps += 1
            entry.missing_records += ahead
            if entry.first_gap < 0:
                entry.first_gap = offset
        else:
            entry.duplicates += 1
            if entry.first_duplicate < 0:
                entry.first_duplicate = offset
    if row.base_sequence >= 0 and (
        last_sequence(row) < row.base_sequence or (row.base_sequence == 0 and known == largest)
    ):
        entry.wraps += 1
    enter(state, entry, row)
    entry.last_sequence = last_sequence(row)


cdef void enter(State *state, producer_count *entry, const ks_batch_row *row) noexcept nogil:
    if entry.first_epoch < 0:
        entry.first_epoch = row.producer_epoch
    if entry.producer_epoch != row.producer_epoch:
        entry.producer_epoch = row.producer_epoch
        entry.last_sequence = -1
    entry.holes_before = state.holes
    entry.last_seen_ms = row.max_timestamp


cdef void note_hole(State *state, const ks_batch_row *row) noexcept nogil:
    """What the cleaner removed, or something else did: batches may be missing there."""
    cdef bint is_wrapper = row.magic < 2 and row.records_count < 0
    if not is_wrapper and state.next_offset >= 0 and row.base_offset != state.next_offset:
        state.holes += 1
    elif row.magic >= 2 and row.records_count >= 0 and row.records_count <= row.last_offset_delta:
        state.holes += 1
    state.next_offset = plus(last_offset(row), 1)


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
    if not 0 <= used <= counts.shape[0] or counts.shape[0] >= largest:
        raise ValueError("there cannot be more producers than there is room for")
    if slots.shape[0] <= counts.shape[0] or slots.shape[0] & (slots.shape[0] - 1):
        raise ValueError("slots must be a power of two that exceeds the entries")
    if kinds.shape[0] != n:
        raise ValueError("there must be a kind for each row")
    state.counts = &counts[0] if counts.shape[0] else NULL
    state.used, state.capacity = used, counts.shape[0]
    state.slots, state.mask = &slots[0], slots.shape[0] - 1
    state.holes, state.next_offset, state.expiration_ms = holes, next_offset, expiration_ms
    with nogil:
        while i < n:
            row = &rows[i]
            id_ = row.producer_id if row.magic >= 2 and row.producer_id >= 0 else -1
            if entry == NULL or entry.producer_id != id_:
                entry = find(&state, id_)
            if entry == NULL:
                status = KS_OUTPUT_FULL
                break
            note_hole(&state, row)
            if row.magic >= 2 and row.attributes & KS_CONTROL_BIT:
                if id_ >= 0 and kinds[i] in (0, 1):
                    entry.markers += 1
                    if row.producer_epoch > entry.producer_epoch and entry.producer_epoch >= 0:
                        entry.epoch_bumps += 1
                    enter(&state, entry, row)
            else:
                note_amount(entry, row)
                if id_ >= 0:
                    note_order(&state, entry, row)
            i += 1
    return status, i, state.used, state.next_offset, state.holes


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
    if not 0 <= used <= counts.shape[0] or counts.shape[0] >= largest:
        raise ValueError("there cannot be more producers than there is room for")
    if slots.shape[0] <= counts.shape[0] or slots.shape[0] & (slots.shape[0] - 1):
        raise ValueError("slots must be a power of two that exceeds the entries")
    with nogil:
        for i in range(used):
            at = hashed(counts[i].producer_id, secret) & mask
            while slots[at] >= 0:
                at = (at + 1) & mask
            slots[at] = <int32_t>i
