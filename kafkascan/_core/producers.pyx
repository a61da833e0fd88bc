"""Rows of the batch table to the state of producers, as brokers hold it."""

import os

from libc.stdint cimport int8_t, int32_t, int64_t, uint64_t

from kafkascan._core.layout cimport (
    KS_CONTROL_BIT,
    KS_NO_END_MARKER,
    KS_OK,
    KS_OUTPUT_FULL,
    KS_TRANSACTION_LEFT,
    KS_TRANSACTIONAL_BIT,
    ks_batch_row,
    ks_producer_entry,
)
from kafkascan._core.producer_ids cimport hashed, last_offset, last_sequence

# What a producer's control batch says; ABORT and COMMIT are the codes of the records.
cdef enum:
    ABORT = 0
    COMMIT = 1
    NO_RECORD = -1

cdef packed struct marker:
    int8_t kind
    int32_t coordinator_epoch
    int64_t timestamp

# A transaction that a marker ended.
cdef packed struct completed_transaction:
    int64_t row
    int64_t producer_id
    int64_t first_offset
    int64_t last_offset
    int64_t last_stable_offset
    int8_t is_aborted

cdef struct State:
    ks_producer_entry *entries
    int64_t count
    int64_t capacity
    int32_t *slots                 # where the entry of a producer is, by hash; -1: nowhere
    uint64_t mask
    int32_t *opened                # entries with an open transaction
    int64_t opened_count


cdef uint64_t secret = int.from_bytes(os.urandom(8), "little")


cdef ks_producer_entry *find(State *state, int64_t producer_id) noexcept nogil:
    """Return the entry of a producer, a fresh one for one that is new; NULL: no room."""
    cdef uint64_t at = hashed(producer_id, secret) & state.mask
    cdef ks_producer_entry *entry
    while state.slots[at] >= 0:
        entry = &state.entries[state.slots[at]]
        if entry.producer_id == producer_id:
            return entry
        at = (at + 1) & state.mask
    if state.count == state.capacity:
        return NULL
    state.slots[at] = <int32_t>state.count
    entry = &state.entries[state.count]
    state.count += 1
    entry.producer_id = producer_id
    entry.producer_epoch = -1
    forget_batches(entry)
    entry.timestamp = -1
    entry.coordinator_epoch = -1
    entry.current_txn_first_offset = -1
    return entry


cdef inline void forget_batches(ks_producer_entry *entry) noexcept nogil:
    entry.last_sequence = -1
    entry.last_offset = -1
    entry.offset_delta = 0


cdef inline void enter_epoch(ks_producer_entry *entry, int epoch) noexcept nogil:
    """ProducerStateEntry.maybeUpdateProducerEpoch."""
    if entry.producer_epoch != epoch:
        entry.producer_epoch = epoch
        forget_batches(entry)


cdef int append(State *state, const ks_batch_row *row, ks_producer_entry *entry) noexcept nogil:
    """ProducerAppendInfo.appendDataBatch, of a replica: sequences are not checked."""
    cdef bint is_transactional = row.attributes & KS_TRANSACTIONAL_BIT
    if entry.current_txn_first_offset >= 0 and not is_transactional:
        return KS_TRANSACTION_LEFT
    enter_epoch(entry, row.producer_epoch)
    entry.last_sequence = last_sequence(row)
    entry.last_offset = last_offset(row)
    entry.offset_delta = row.last_offset_delta
    entry.timestamp = row.max_timestamp
    # A negative offset, which no broker gives, would leave the transaction unopened for ever.
    if entry.current_txn_first_offset < 0 and is_transactional and row.base_offset >= 0:
        entry.current_txn_first_offset = row.base_offset
        state.opened[state.opened_count] = <int32_t>(entry - state.entries)
        state.opened_count += 1
    return KS_OK


cdef int64_t last_stable_offset(
    State *state, int64_t producer_id, int64_t marker_offset
) noexcept nogil:
    """ProducerStateManager.lastStableOffset: where the first of the others' transactions began."""
    cdef int64_t first = -1, offset, i
    for i in range(state.opened_count):
        offset = state.entries[state.opened[i]].current_txn_first_offset
        if state.entries[state.opened[i]].producer_id != producer_id:
            if first < 0 or offset < first:
                first = offset
    return <int64_t>(<uint64_t>marker_offset + 1) if first < 0 else first


cdef void close_transaction(State *state, const ks_producer_entry *entry) noexcept nogil:
    cdef int64_t i
    for i in range(state.opened_count):
        if state.opened[i] == entry - state.entries:
            state.opened_count -= 1
            state.opened[i] = state.opened[state.opened_count]
            return


cdef bint end_transaction(
    State *state,
    const ks_batch_row *row,
    const marker *said,
    ks_producer_entry *entry,
    completed_transaction *out,
) noexcept nogil:
    """ProducerAppendInfo.appendEndTxnMarker; tells whether a transaction was open."""
    cdef bint was_open = entry.current_txn_first_offset >= 0
    if was_open:
        out.producer_id = row.producer_id
        out.first_offset = entry.current_txn_first_offset
        out.last_offset = row.base_offset
        out.is_aborted = said.kind == ABORT
        out.last_stable_offset = last_stable_offset(state, row.producer_id, row.base_offset)
        close_transaction(state, entry)
    enter_epoch(entry, row.producer_epoch)
    entry.current_txn_first_offset = -1
    entry.coordinator_epoch = said.coordinator_epoch
    entry.timestamp = said.timestamp
    return was_open


cdef void note_open_transactions(State *state) noexcept nogil:
    cdef int64_t i
    state.opened_count = 0
    for i in range(state.count):
        if state.entries[i].current_txn_first_offset >= 0:
            state.opened[state.opened_count] = <int32_t>i
            state.opened_count += 1


cdef void prepare(
    State *state,
    ks_producer_entry[::1] entries,
    int64_t count,
    int32_t[::1] slots,
):
    if not 0 <= count <= entries.shape[0] or entries.shape[0] >= 0x7FFFFFFF:
        raise ValueError("there cannot be more producers than there is room for")
    if slots.shape[0] <= entries.shape[0] or slots.shape[0] & (slots.shape[0] - 1):
        raise ValueError("slots must be a power of two that exceeds the entries")
    state.entries = &entries[0] if entries.shape[0] else NULL
    state.count = count
    state.capacity = entries.shape[0]
    state.slots = &slots[0]
    state.mask = slots.shape[0] - 1
    state.opened = NULL
    state.opened_count = 0


def apply_into(
    const ks_batch_row[::1] rows not None,
    const marker[::1] markers not None,
    ks_producer_entry[::1] entries not None,
    int64_t count,
    int32_t[::1] slots not None,
    int32_t[::1] open_slots not None,
    completed_transaction[::1] completed not None,
):
    """
    Apply batches to the state of producers, one after the other.

    Parameters
    ----------
    rows : contiguous array of BATCH_DTYPE
    markers : contiguous array
        What the control batches of producers among the rows say, in order.
    entries : contiguous writable array of PRODUCER_ENTRY, shape (capacity,)
    count : int
        Entries in use.
    slots : writable array of int32, shape (a power of two above the capacity,)
        Where producers are found; -1 where there is none.
    open_slots : writable array of int32, shape (capacity,)
        Room to work in.
    completed : writable array, as long as `markers`
        Transactions that ended.

    Returns
    -------
    status : int
        OUTPUT_FULL if there is no room for another producer.
    rows_done, markers_done : int
    completed_count : int
    count : int
    """
    cdef State state
    cdef const ks_batch_row *row
    cdef ks_producer_entry *entry = NULL
    cdef int64_t i = 0, said = 0, ended = 0
    cdef int64_t row_count = rows.shape[0], marker_count = markers.shape[0]
    cdef int status = KS_OK
    prepare(&state, entries, count, slots)
    if open_slots.shape[0] < entries.shape[0] or completed.shape[0] < marker_count:
        raise ValueError("there must be room for every entry and every marker")
    state.opened = &open_slots[0] if open_slots.shape[0] else NULL
    with nogil:
        note_open_transactions(&state)
        while i < row_count:
            row = &rows[i]
            if row.producer_id < 0 or row.magic < 2:
                i += 1
                continue
            if entry == NULL or entry.producer_id != row.producer_id:
                entry = find(&state, row.producer_id)
            if entry == NULL:
                status = KS_OUTPUT_FULL
                break
            if row.attributes & KS_CONTROL_BIT:
                # One marker short is the caller's mistake: the batch counts as none.
                if said >= marker_count or markers[said].kind not in (ABORT, COMMIT, NO_RECORD):
                    status = KS_NO_END_MARKER
                    break
                if markers[said].kind != NO_RECORD:
                    completed[ended].row = i
                    ended += end_transaction(
                        &state, row, &markers[said], entry, &completed[ended]
                    )
                said += 1
            else:
                status = append(&state, row, entry)
                if status != KS_OK:
                    break
            i += 1
    return status, i, said, ended, state.count


def merge_into(
    const ks_producer_entry[::1] news not None,
    ks_producer_entry[::1] entries not None,
    int64_t count,
    int32_t[::1] slots not None,
):
    """
    Take over what is new of some producers (ProducerStateManager.update).

    Parameters
    ----------
    news : contiguous array of PRODUCER_ENTRY
        In the order in which producers become known; a `last_offset` below 0 says that there
        is no new batch.
    entries : contiguous writable array of PRODUCER_ENTRY
        With room for all that is new.
    count : int
        Entries in use.
    slots : writable array of int32
        As of `apply_into`.

    Returns
    -------
    count : int
    """
    cdef State state
    cdef ks_producer_entry *entry
    cdef const ks_producer_entry *new
    cdef int64_t i
    prepare(&state, entries, count, slots)
    if news.shape[0] > entries.shape[0] - count:
        raise ValueError("there must be room for every producer")
    with nogil:
        for i in range(news.shape[0]):
            new = &news[i]
            entry = find(&state, new.producer_id)
            enter_epoch(entry, new.producer_epoch)
            if new.last_offset >= 0:
                entry.last_sequence = new.last_sequence
                entry.last_offset = new.last_offset
                entry.offset_delta = new.offset_delta
            entry.timestamp = new.timestamp
            entry.coordinator_epoch = new.coordinator_epoch
            entry.current_txn_first_offset = new.current_txn_first_offset
    return state.count


def index_entries(
    ks_producer_entry[::1] entries not None, int64_t count, int32_t[::1] slots not None
):
    """
    Note where the producers of entries are found.

    Parameters
    ----------
    entries : contiguous array of PRODUCER_ENTRY
    count : int
        Entries in use. Of a producer that has several, the last one counts.
    slots : writable array of int32
        Filled with -1 before.
    """
    cdef State state
    cdef uint64_t at
    cdef int64_t i
    prepare(&state, entries, count, slots)
    with nogil:
        for i in range(count):
            at = hashed(state.entries[i].producer_id, secret) & state.mask
            while (
                state.slots[at] >= 0
                and state.entries[state.slots[at]].producer_id != state.entries[i].producer_id
            ):
                at = (at + 1) & state.mask
            state.slots[at] = <int32_t>i
