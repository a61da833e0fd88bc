"""Apply batches to the state of producers, as brokers hold it (``ProducerStateManager``)."""

import os

from libc.stdint cimport int8_t, int32_t, int64_t, uint64_t
from libc.string cimport memset

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
from kafkascan._core.markers cimport ABORT, COMMIT, NO_MARKER, NO_RECORD, marker
from kafkascan._core.producer_ids cimport last_offset, last_sequence, plus
from kafkascan._core.producer_orders cimport (
    advance,
    check_marker,
    check_order,
    log_cursor,
    producer_order,
)
from kafkascan._core.producer_slots cimport (
    add_opened,
    entry_of,
    find_or_add,
    first_open_offset,
    forget_batches,
    index_entries,
    open_transaction,
    producer_slots,
    rebuild_heap,
)
from kafkascan._core.transaction_spans cimport end_span, grow_span, transaction

# A transaction that a marker ended. The dtype COMPLETED_TRANSACTION is derived from this struct.
cdef packed struct completed_transaction:
    int64_t row
    int64_t producer_id
    int64_t first_offset
    int64_t last_offset
    int64_t last_stable_offset
    int8_t is_aborted

cdef struct results:
    int64_t rows
    int64_t markers
    completed_transaction *completed
    int64_t completed_count
    transaction *spans             # NULL: not recorded
    int64_t span_count

cdef completed_transaction _completed
cdef open_transaction _opened
cdef producer_order _order
cdef transaction _span

# One row of each struct, from which Python derives the dtypes.
completed_transaction_row = <completed_transaction[:1]> &_completed
open_transaction_row = <open_transaction[:1]> &_opened
producer_order_row = <producer_order[:1]> &_order
transaction_row = <transaction[:1]> &_span

cdef uint64_t secret = int.from_bytes(os.urandom(8), "little")


cdef class LogCursor:
    """
    The position up to which the order of batches in a log was checked.

    Parameters
    ----------
    expiration_ms : int
        The broker's ``producer.id.expiration.ms``.
    of_clients : bool
        Whether clients append to the log: the sequence numbers of coordinators are not checked.
    """

    def __cinit__(self, int64_t expiration_ms, bint of_clients=True):
        self.cursor.next_offset = -1
        self.cursor.holes = 0
        self.cursor.expiration_ms = expiration_ms
        self.cursor.of_clients = of_clients

    def skip(self, int64_t first_offset, int64_t next_offset):
        """
        Move past batches that have no producer, and no gaps in their offsets.

        Parameters
        ----------
        first_offset : int
            Of the first batch.
        next_offset : int
            The offset after the last batch.
        """
        if 0 <= self.cursor.next_offset != first_offset:
            self.cursor.holes += 1
        self.cursor.next_offset = next_offset


cdef class ProducerTable:
    """
    Arrays that hold the state of producers; their capacity is fixed.

    Parameters
    ----------
    entries : contiguous writable array of PRODUCER_ENTRY, shape (capacity,)
    count : int
        Entries in use.
    slots : writable array of int32, shape (a power of two above the capacity,)
        All -1: becomes the hash table of the entries.
    opened : writable array of OPEN_TRANSACTION, longer than `entries`
        Becomes the heap of open transactions.
    spans : writable array of TRANSACTION, shape (capacity,), optional
        By entry, the content of its open transaction.
    orders : writable array of PRODUCER_ORDER, shape (capacity,), optional
        By entry, the order of its batches.
    cursor : LogCursor, optional
        Given with `orders`: it is moved past the batches that are applied.

    Attributes
    ----------
    count : int
    entries, spans, orders : ndarray
        As given.
    """

    cdef readonly object entries
    cdef readonly object spans
    cdef readonly object orders
    cdef LogCursor cursor
    cdef producer_slots known
    # These keep the arrays from being resized or freed.
    cdef ks_producer_entry[::1] _entries
    cdef int32_t[::1] _slots
    cdef open_transaction[::1] _opened
    cdef transaction[::1] _spans
    cdef producer_order[::1] _orders

    def __cinit__(
        self,
        ks_producer_entry[::1] entries not None,
        int64_t count,
        int32_t[::1] slots not None,
        open_transaction[::1] opened not None,
        transaction[::1] spans=None,
        producer_order[::1] orders=None,
        LogCursor cursor=None,
    ):
        cdef int64_t capacity = entries.shape[0]
        if not 0 <= count <= capacity or capacity >= 0x7FFFFFFF:
            raise ValueError("count must not exceed the number of entries, which is below 2**31")
        if slots.shape[0] <= capacity or slots.shape[0] & (slots.shape[0] - 1):
            raise ValueError("slots must be a power of two that exceeds the entries")
        if opened.shape[0] <= capacity:
            raise ValueError("opened must be longer than entries")
        if spans is not None and spans.shape[0] < capacity:
            raise ValueError("spans must be as long as entries")
        if (orders is None) != (cursor is None):
            raise ValueError("orders and cursor must be given together")
        if orders is not None and orders.shape[0] < capacity:
            raise ValueError("orders must be as long as entries")
        self._entries, self._slots, self._opened = entries, slots, opened
        self._spans, self._orders, self.cursor = spans, orders, cursor
        memset(&self.known, 0, sizeof(self.known))
        self.known.entries = &entries[0] if capacity else NULL
        self.known.count, self.known.capacity = count, capacity
        self.known.slots, self.known.mask = &slots[0], slots.shape[0] - 1
        self.known.secret = secret
        self.known.opened, self.known.opened_capacity = &opened[0], opened.shape[0]
        self.known.opened_count = -1
        if spans is not None and capacity:
            self.known.spans = &spans[0]
        if orders is not None and capacity:
            self.known.orders = &orders[0]
        if cursor is not None:
            self.known.cursor = &cursor.cursor
        with nogil:
            index_entries(&self.known)

    def __init__(self, entries, count, slots, opened, spans=None, orders=None, cursor=None):
        self.entries, self.spans, self.orders = entries, spans, orders

    @property
    def count(self):
        """Entries in use."""
        return self.known.count

    def first_open_offset(self):
        """Return the first offset of the earliest open transaction; -1 if none is open."""
        if self.known.opened_count < 0:
            rebuild_heap(&self.known)
        return first_open_offset(&self.known)


cdef class Results:
    """
    The output of `apply_into`, and how far it has come.

    Parameters
    ----------
    completed : writable array of COMPLETED_TRANSACTION, as long as the markers
    spans : writable array of TRANSACTION, as long as the markers, optional
        Required if the `ProducerTable` has spans.

    Attributes
    ----------
    rows, markers : int
        Rows and markers that were applied.
    completed_count, span_count : int
        Rows of `completed` and `spans` in use.
    """

    cdef results done
    cdef completed_transaction[::1] _completed
    cdef transaction[::1] _spans

    def __cinit__(
        self,
        completed_transaction[::1] completed not None,
        transaction[::1] spans=None,
    ):
        self._completed, self._spans = completed, spans
        memset(&self.done, 0, sizeof(self.done))
        if completed.shape[0]:
            self.done.completed = &completed[0]
        if spans is not None and spans.shape[0]:
            self.done.spans = &spans[0]

    @property
    def rows(self):
        return self.done.rows

    @property
    def markers(self):
        return self.done.markers

    @property
    def completed_count(self):
        return self.done.completed_count

    @property
    def span_count(self):
        return self.done.span_count

    cdef bint has_room(self, int64_t markers, bint with_spans):
        if self._completed.shape[0] < markers:
            return False
        return not with_spans or (self._spans is not None and self._spans.shape[0] >= markers)


cdef inline void enter_epoch(ks_producer_entry *entry, int epoch) noexcept nogil:
    """ProducerStateEntry.maybeUpdateProducerEpoch."""
    if entry.producer_epoch != epoch:
        entry.producer_epoch = epoch
        forget_batches(entry)


cdef inline int append(
    producer_slots *known, const ks_batch_row *row, ks_producer_entry *entry
) noexcept nogil:
    """ProducerAppendInfo.appendDataBatch, of a replica: sequences are not checked."""
    cdef bint is_transactional = row.attributes & KS_TRANSACTIONAL_BIT
    if entry.current_txn_first_offset >= 0 and not is_transactional:
        return KS_TRANSACTION_LEFT
    enter_epoch(entry, row.producer_epoch)
    entry.last_sequence = last_sequence(row)
    entry.last_offset = last_offset(row)
    entry.offset_delta = row.last_offset_delta
    entry.timestamp = row.max_timestamp
    # No broker assigns a negative offset; as a first offset it would stand for "none open".
    if entry.current_txn_first_offset < 0 and is_transactional and row.base_offset >= 0:
        entry.current_txn_first_offset = row.base_offset
        add_opened(known, entry - known.entries)
    if known.spans != NULL and is_transactional:
        grow_span(&known.spans[entry - known.entries], row)
    return KS_OK


cdef void end_transaction(
    producer_slots *known,
    const ks_batch_row *row,
    int64_t number,
    const marker *end,
    ks_producer_entry *entry,
    results *out,
) noexcept nogil:
    """ProducerAppendInfo.appendEndTxnMarker, and the last stable offset after it."""
    cdef int64_t first_offset = entry.current_txn_first_offset, last_stable_offset = -1
    cdef completed_transaction *completed
    entry.current_txn_first_offset = -1
    if first_offset >= 0:
        # ProducerStateManager.lastStableOffset: the start of the earliest other transaction.
        last_stable_offset = first_open_offset(known)
        if last_stable_offset < 0:
            last_stable_offset = plus(row.base_offset, 1)
        completed = &out.completed[out.completed_count]
        out.completed_count += 1
        completed.row = number
        completed.producer_id = row.producer_id
        completed.first_offset = first_offset
        completed.last_offset = row.base_offset
        completed.last_stable_offset = last_stable_offset
        completed.is_aborted = end.kind == ABORT
    enter_epoch(entry, row.producer_epoch)
    entry.coordinator_epoch = end.coordinator_epoch
    entry.timestamp = end.timestamp
    if known.spans != NULL:
        end_span(
            &known.spans[entry - known.entries],
            row,
            end,
            last_stable_offset,
            &out.spans[out.span_count],
        )
        out.span_count += 1


cdef inline void record_order(
    producer_order *order, log_cursor *cursor, const ks_batch_row *row, int kind
) noexcept nogil:
    advance(cursor, row)
    order.producer_id = row.producer_id
    if not row.attributes & KS_CONTROL_BIT:
        check_order(cursor, order, row)
    elif kind in (ABORT, COMMIT):
        check_marker(order, row)


cdef int apply_rows(
    producer_slots *known,
    const ks_batch_row[::1] rows,
    const marker[::1] markers,
    results *out,
    bint order_only,
) noexcept nogil:
    cdef const ks_batch_row *row
    cdef ks_producer_entry *entry = NULL
    cdef int64_t i = out.rows, m = out.markers
    cdef int64_t row_count = rows.shape[0], marker_count = markers.shape[0]
    cdef int status = KS_OK, kind = NO_RECORD
    cdef bint checks_order = known.cursor != NULL
    cdef log_cursor cursor         # a copy, which stays in registers
    if checks_order:
        cursor = known.cursor[0]
    while i < row_count:
        row = &rows[i]
        if row.producer_id < 0 or row.magic < 2:
            if checks_order:
                advance(&cursor, row)
            i += 1
            continue
        if entry == NULL or entry.producer_id != row.producer_id:
            entry = entry_of(known, row.producer_id)
            if entry == NULL:
                status = KS_OUTPUT_FULL
                break
        if row.attributes & KS_CONTROL_BIT:
            kind = markers[m].kind if m < marker_count else NO_MARKER
            if not order_only:
                if kind in (ABORT, COMMIT):
                    end_transaction(known, row, i, &markers[m], entry, out)
                elif kind != NO_RECORD:
                    status = KS_NO_END_MARKER
                    break
            m += 1
        elif not order_only:
            status = append(known, row, entry)
            if status != KS_OK:
                break
        if checks_order:
            record_order(&known.orders[entry - known.entries], &cursor, row, kind)
        i += 1
    if checks_order:
        known.cursor[0] = cursor
    out.rows, out.markers = i, m
    return status


def apply_into(
    ProducerTable table not None,
    const ks_batch_row[::1] rows not None,
    const marker[::1] markers not None,
    Results done not None,
    *,
    bint order_only=False,
):
    """
    Apply batches to the state of producers, one after the other.

    Parameters
    ----------
    table : ProducerTable
    rows : contiguous array of BATCH_DTYPE
    markers : contiguous array of MARKER
        Of the control batches of producers among the rows, in order.
    done : Results
        Gets the results; a call continues where the previous one stopped.
    order_only : bool
        Check the order of batches, and leave the state as it is.

    Returns
    -------
    status : int
        OUTPUT_FULL if the table has no room for another producer.
    """
    cdef int status
    if not done.has_room(markers.shape[0], table._spans is not None):
        raise ValueError("the results must be as long as the markers")
    if not (done.done.rows <= rows.shape[0] and done.done.markers <= markers.shape[0]):
        raise ValueError("the results are those of more rows")
    with nogil:
        if table.known.opened_count < 0:
            rebuild_heap(&table.known)
        status = apply_rows(&table.known, rows, markers, &done.done, order_only)
    return status


def merge_into(ProducerTable table not None, const ks_producer_entry[::1] entries not None):
    """
    Merge newer entries into a table (``ProducerStateManager.update``).

    Parameters
    ----------
    table : ProducerTable
        With room for every new producer.
    entries : contiguous array of PRODUCER_ENTRY
        In the order in which producers become known; a `last_offset` below 0 means that there
        is no new batch.
    """
    cdef ks_producer_entry *entry
    cdef const ks_producer_entry *new
    cdef int64_t i
    if entries.shape[0] > table.known.capacity - table.known.count:
        raise ValueError("the table must have room for every producer")
    with nogil:
        table.known.opened_count = -1
        for i in range(entries.shape[0]):
            new = &entries[i]
            entry = find_or_add(&table.known, new.producer_id)
            enter_epoch(entry, new.producer_epoch)
            if new.last_offset >= 0:
                entry.last_sequence = new.last_sequence
                entry.last_offset = new.last_offset
                entry.offset_delta = new.offset_delta
            entry.timestamp = new.timestamp
            entry.coordinator_epoch = new.coordinator_epoch
            entry.current_txn_first_offset = new.current_txn_first_offset
