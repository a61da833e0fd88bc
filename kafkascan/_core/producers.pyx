"""Rows of the batch table to the state of producers, as brokers hold it."""

import os

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint64_t
from libc.string cimport memset

from kafkascan._core.layout cimport (
    KS_CONTROL_BIT,
    KS_DELETE_HORIZON_BIT,
    KS_LOG_OVERHEAD,
    KS_NO_END_MARKER,
    KS_OK,
    KS_OUTPUT_FULL,
    KS_TRANSACTION_LEFT,
    KS_TRANSACTIONAL_BIT,
    ks_batch_row,
    ks_producer_entry,
)
from kafkascan._core.producer_ids cimport hashed, last_offset, last_sequence, plus
from kafkascan._core.producer_orders cimport (
    begin_order,
    log_place,
    note_hole,
    note_marker,
    note_order,
    producer_order,
)

# What a producer's control batch says; ABORT and COMMIT are the codes of the records.
cdef enum:
    ABORT = 0
    COMMIT = 1
    NO_RECORD = -1

# What becomes of a transaction besides.
cdef enum:
    OPEN = 2
    NO_TRANSACTION = -1

# Until it has written something, an order is of nobody.
cdef enum:
    NO_PRODUCER = -1

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

# What is in a transaction; its state is ABORT, COMMIT, OPEN or NO_TRANSACTION.
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

# A transaction that an entry has open, or had: what has ended is taken away when it comes first.
cdef struct open_transaction:
    int64_t first_offset
    int64_t entry

cdef enum:
    LATELY = 1024

cdef struct State:
    ks_producer_entry *entries
    transaction *spans             # by entry; NULL: not asked for
    producer_order *orders         # by entry; NULL: not asked for
    int64_t count
    int64_t capacity
    int32_t *slots                 # where the entry of a producer is, by hash; -1: nowhere
    uint64_t mask
    open_transaction *opened       # a heap: the first of them comes first
    int64_t opened_count
    int64_t opened_room
    int32_t lately[LATELY]         # entries, by the last bits of their producers' ids


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
    if state.spans != NULL:
        state.spans[state.count - 1].state = NO_TRANSACTION
    if state.orders != NULL:
        begin_order(&state.orders[state.count - 1], NO_PRODUCER)
    return entry


cdef inline ks_producer_entry *entry_of(State *state, int64_t producer_id) noexcept nogil:
    """As `find`; ids are given out one by one, so those at work hardly share their last bits."""
    cdef int64_t place = producer_id & (LATELY - 1)
    cdef ks_producer_entry *entry = state.entries + state.lately[place]
    # Of an entry that is none yet, 0 stands for the first.
    if state.count and entry.producer_id == producer_id:
        return entry
    entry = find(state, producer_id)
    if entry != NULL:
        state.lately[place] = <int32_t>(entry - state.entries)
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


cdef void sink_first(State *state) noexcept nogil:
    """Bring the heap in order again when something else was put first."""
    cdef open_transaction *heap = state.opened
    cdef open_transaction moved = heap[0]
    cdef int64_t at = 0, child = 1
    while child < state.opened_count:
        if child + 1 < state.opened_count:
            if heap[child + 1].first_offset < heap[child].first_offset:
                child += 1
        if heap[child].first_offset >= moved.first_offset:
            break
        heap[at] = heap[child]
        at, child = child, 2 * child + 1
    if state.opened_count > 0:
        heap[at] = moved


cdef void put_into_heap(State *state, int64_t entry) noexcept nogil:
    cdef open_transaction *heap = state.opened
    cdef int64_t offset = state.entries[entry].current_txn_first_offset
    cdef int64_t at = state.opened_count, parent
    state.opened_count += 1
    while at > 0:
        parent = (at - 1) >> 1
        if heap[parent].first_offset <= offset:
            break
        heap[at] = heap[parent]
        at = parent
    heap[at].first_offset, heap[at].entry = offset, entry


cdef void note_open_transactions(State *state) noexcept nogil:
    cdef int64_t i
    state.opened_count = 0
    for i in range(state.count):
        if state.entries[i].current_txn_first_offset >= 0:
            put_into_heap(state, i)


cdef void open_transaction_of(State *state, int64_t entry) noexcept nogil:
    """Note that a transaction is open; what has ended makes room once there is none."""
    if state.opened_count == state.opened_room:
        note_open_transactions(state)
    else:
        put_into_heap(state, entry)


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
        open_transaction_of(state, entry - state.entries)
    return KS_OK


cdef int64_t first_open_offset(State *state) noexcept nogil:
    """Where the first of all open transactions began; -1 if there is none."""
    cdef open_transaction *first = state.opened
    while state.opened_count > 0:
        if state.entries[first.entry].current_txn_first_offset == first.first_offset:
            return first.first_offset
        state.opened_count -= 1
        first[0] = first[state.opened_count]
        sink_first(state)
    return -1


cdef bint end_transaction(
    State *state,
    const ks_batch_row *row,
    const marker *said,
    ks_producer_entry *entry,
    completed_transaction *out,
) noexcept nogil:
    """ProducerAppendInfo.appendEndTxnMarker; tells whether a transaction was open."""
    cdef int64_t first_offset = entry.current_txn_first_offset
    entry.current_txn_first_offset = -1
    if first_offset >= 0:
        out.producer_id = row.producer_id
        out.first_offset = first_offset
        out.last_offset = row.base_offset
        out.is_aborted = said.kind == ABORT
        # ProducerStateManager.lastStableOffset: where the first of the others' began.
        out.last_stable_offset = first_open_offset(state)
        if out.last_stable_offset < 0:
            out.last_stable_offset = plus(row.base_offset, 1)
    enter_epoch(entry, row.producer_epoch)
    entry.coordinator_epoch = said.coordinator_epoch
    entry.timestamp = said.timestamp
    return first_offset >= 0


cdef inline int64_t began(const ks_batch_row *row) noexcept nogil:
    """When a batch began: of one with a delete horizon, the base timestamp is that."""
    if row.attributes & KS_DELETE_HORIZON_BIT:
        return row.max_timestamp
    return row.base_timestamp


cdef void begin_span(transaction *span, const ks_batch_row *row) noexcept nogil:
    span.producer_id = row.producer_id
    span.producer_epoch = row.producer_epoch
    span.state = OPEN
    span.first_offset = span.last_offset = span.marker_offset = span.last_stable_offset = -1
    span.first_timestamp, span.last_timestamp = began(row), row.max_timestamp
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


cdef void end_span(
    transaction *span,
    const ks_batch_row *row,
    const marker *said,
    int64_t last_stable_offset,
    transaction *out,
) noexcept nogil:
    """A marker where nothing is open ends a transaction that is empty."""
    if span.state != OPEN:
        begin_span(span, row)
    out[0] = span[0]
    out.state = said.kind
    out.marker_offset = row.base_offset
    out.last_stable_offset = last_stable_offset
    out.coordinator_epoch = said.coordinator_epoch
    span.state = NO_TRANSACTION


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
    memset(state.lately, 0, sizeof(state.lately))
    state.opened = NULL
    state.opened_count = state.opened_room = 0
    state.spans = NULL
    state.orders = NULL


cdef void note_in_order(
    State *state, log_place *place, const ks_producer_entry *entry, const ks_batch_row *row,
    int kind,
) noexcept nogil:
    """Note what a batch of a producer says of the order of its batches."""
    cdef producer_order *order = &state.orders[entry - state.entries]
    order.producer_id = row.producer_id
    if not row.attributes & KS_CONTROL_BIT:
        note_order(place, order, row)
    elif kind in (ABORT, COMMIT):
        note_marker(place, order, row)


def apply_into(
    const ks_batch_row[::1] rows not None,
    const marker[::1] markers not None,
    ks_producer_entry[::1] entries not None,
    int64_t count,
    int32_t[::1] slots not None,
    open_transaction[::1] opened not None,
    int64_t open_count,
    completed_transaction[::1] completed not None,
    transaction[::1] spans not None,
    transaction[::1] ended_spans not None,
    producer_order[::1] orders not None,
    log_place[::1] place not None,
    bint is_known,
):
    """
    Apply batches to the state of producers, one after the other.

    Parameters
    ----------
    rows : contiguous array of BATCH_DTYPE
    markers : contiguous array of MARKER
        What the control batches of producers among the rows say, in order.
    entries : contiguous writable array of PRODUCER_ENTRY, shape (capacity,)
    count : int
        Entries in use.
    slots : writable array of int32, shape (a power of two above the capacity,)
        Where producers are found; -1 where there is none.
    opened : writable array of OPEN_TRANSACTION, shape (above the capacity,)
        Open transactions; some among them have ended.
    open_count : int
        How many these are; -1 if that is to be found out.
    completed : writable array of COMPLETED_TRANSACTION, as long as `markers`
        Transactions that ended.
    spans : writable array of TRANSACTION, shape (capacity,) or (0,)
        By entry, what its open transaction holds; if that is asked for.
    ended_spans : writable array of TRANSACTION, as long as `markers` or (0,)
        What transactions held that ended, empty ones among them.
    orders : writable array of PRODUCER_ORDER, shape (capacity,) or (0,)
        By entry, in which order its batches came; if that is asked for.
    place : writable array of LOG_PLACE, shape (1,) or (0,)
        Where the log has been followed to; for the orders.
    is_known : bool
        Whether the state is known still; if not, only the orders are gone on with.

    Returns
    -------
    status : int
        OUTPUT_FULL if there is no room for another producer.
    rows_done, markers_done : int
    completed_count, ended_count : int
    count, open_count : int
    """
    cdef State state
    cdef const ks_batch_row *row
    cdef ks_producer_entry *entry = NULL
    cdef log_place *at_place = NULL
    cdef completed_transaction ending
    cdef int64_t i = 0, said = 0, ended = 0, emptied = 0
    cdef int64_t row_count = rows.shape[0], marker_count = markers.shape[0]
    cdef int status = KS_OK, kind = NO_RECORD
    cdef bint was_open
    prepare(&state, entries, count, slots)
    if opened.shape[0] <= entries.shape[0] or completed.shape[0] < marker_count:
        raise ValueError("there must be room for every entry and every marker")
    if not -1 <= open_count <= opened.shape[0]:
        raise ValueError("there cannot be more open transactions than there is room for")
    if spans.shape[0] and (
        spans.shape[0] < entries.shape[0] or ended_spans.shape[0] < marker_count
    ):
        raise ValueError("there must be room for the transaction of each entry and marker")
    if orders.shape[0] and (orders.shape[0] < entries.shape[0] or place.shape[0] < 1):
        raise ValueError("there must be an order for each entry, and a place")
    state.opened, state.opened_room = &opened[0], opened.shape[0]
    state.spans = &spans[0] if spans.shape[0] else NULL
    if orders.shape[0]:
        state.orders, at_place = &orders[0], &place[0]
    with nogil:
        if open_count < 0:
            note_open_transactions(&state)
        else:
            state.opened_count = open_count
        while i < row_count:
            row = &rows[i]
            if row.producer_id < 0 or row.magic < 2:
                if at_place != NULL:
                    note_hole(at_place, row)
                i += 1
                continue
            if entry == NULL or entry.producer_id != row.producer_id:
                entry = entry_of(&state, row.producer_id)
            if entry == NULL:
                status = KS_OUTPUT_FULL
                break
            if row.attributes & KS_CONTROL_BIT:
                # One marker short is the caller's mistake: the batch counts as none.
                kind = markers[said].kind if said < marker_count else NO_RECORD
                if is_known and (
                    said >= marker_count or kind not in (ABORT, COMMIT, NO_RECORD)
                ):
                    status = KS_NO_END_MARKER
                    break
                if is_known and kind != NO_RECORD:
                    was_open = end_transaction(&state, row, &markers[said], entry, &ending)
                    if was_open:
                        ending.row = i
                        completed[ended] = ending
                        ended += 1
                    if state.spans != NULL:
                        end_span(
                            &state.spans[entry - state.entries],
                            row,
                            &markers[said],
                            ending.last_stable_offset if was_open else -1,
                            &ended_spans[emptied],
                        )
                        emptied += 1
                said += 1
            elif is_known:
                status = append(&state, row, entry)
                if status != KS_OK:
                    break
                if state.spans != NULL and row.attributes & KS_TRANSACTIONAL_BIT:
                    grow_span(&state.spans[entry - state.entries], row)
            if at_place != NULL:
                note_hole(at_place, row)
                note_in_order(&state, at_place, entry, row, kind)
            i += 1
    return status, i, said, ended, emptied, state.count, state.opened_count


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
        Entries in use.
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
