"""Producer state machine with optional recording of transactions and sequence errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import producers as _core
from kafkascan.batches.columns import BatchTable, is_control, is_transactional, offset_after
from kafkascan.broker_state.markers import (
    TRANSACTION,
    ControlRows,
    TransactionState,
    read_control_rows,
)
from kafkascan.format.errors import STATUS, CorruptBatchError, record_error
from kafkascan.format.layout import PRODUCER_ENTRY
from kafkascan.io.sources import Source

_FIRST_BUCKETS = 16


def java_hash_order(ids: NDArray[np.int64], *, buckets_for: int | None = None) -> NDArray[np.intp]:
    """
    Return the order in which a ``java.util.HashMap<Long, …>`` iterates over its keys.

    Parameters
    ----------
    ids : ndarray of int64
        Distinct, in the order of insertion. (``computeIfAbsent`` inserts a key at the head of
        its bucket: for a map that it fills, pass the reverse order.)
    buckets_for : int, optional
        Number of keys that the map has made room for; by default all of them.

    Notes
    -----
    Iteration is by bucket, and in a bucket by insertion. The number of buckets doubles when
    three quarters are used.
    """
    count = len(ids) if buckets_for is None else buckets_for
    buckets = _FIRST_BUCKETS
    while count > buckets * 3 // 4:
        buckets *= 2
    unsigned = ids.astype(np.uint64)
    hashes = (unsigned ^ unsigned >> np.uint64(32)).astype(np.uint32)
    hashes ^= hashes >> np.uint32(16)
    return np.argsort(hashes & np.uint32(buckets - 1), kind="stable")


PRODUCER_EXPIRATION_MS = 86_400_000
"""Kafka's ``producer.id.expiration.ms``: the broker forgets a producer that is idle for longer."""

COMPLETED_TRANSACTION = np.asarray(_core.completed_transaction_row).dtype
"""A transaction that a marker ended: ``row`` of the marker's batch in its table, ``producer_id``,
``first_offset``, ``last_offset`` (the marker's), ``last_stable_offset`` (the first offset of the
earliest other open transaction, or the offset after the marker) and ``is_aborted``."""

PRODUCER_ORDER = np.asarray(_core.producer_order_row).dtype
"""The order of a producer's batches; the fields are those of `PRODUCER_COUNTS`."""

# Kafka ends the log at a record that it cannot read, but does not catch the errors of its codecs.
_FATAL = ("UNSUPPORTED_COMPRESSION", "BAD_COMPRESSED_DATA", "OUTPUT_TOO_LARGE")
_MIN_CAPACITY = 64
_SPARSE_CAPACITY = 1 << 14
_OPEN_TRANSACTION = np.asarray(_core.open_transaction_row).dtype
_NO_PRODUCERS = np.empty(0, PRODUCER_ENTRY)
_NONE_COMPLETED = np.empty(0, COMPLETED_TRANSACTION)
_NO_SPANS = np.empty(0, TRANSACTION)


class RefusedBatch(NamedTuple):
    """
    A batch at which Kafka stops reading a segment, or refuses the log.

    Attributes
    ----------
    row : int
        Of the table that was applied.
    error : CorruptBatchError
    is_fatal : bool
        Whether Kafka refuses the log; otherwise it truncates the segment after the batch.
    """

    row: int
    error: CorruptBatchError
    is_fatal: bool


@dataclass(frozen=True, eq=False)
class AppliedBatches:
    """
    The transactions that ended in a table of batches.

    Attributes
    ----------
    completed : ndarray of COMPLETED_TRANSACTION
        In the order of their markers.
    spans : ndarray of TRANSACTION
        Their content, if it is recorded; also of markers that ended no open transaction.
    refused : RefusedBatch or None
        The batch that Kafka refuses; the batches before it were applied.
    """

    completed: NDArray[np.void]
    spans: NDArray[np.void]
    refused: RefusedBatch | None = None

    def require_accepted(self) -> NDArray[np.void]:
        """Return the completed transactions; raise the error of a batch that Kafka refuses."""
        if self.refused is not None:
            raise self.refused.error
        return self.completed


_NOTHING_APPLIED = AppliedBatches(_NONE_COMPLETED, _NO_SPANS)


class ProducerState:
    """
    The producers of a partition, as ``ProducerStateManager`` holds them.

    Parameters
    ----------
    entries : array of PRODUCER_ENTRY, optional
        The entries of a snapshot, in its order.
    records_transactions : bool, default False
        Record the content of transactions: `AppliedBatches.spans` and `open_spans`.
    expiration_ms : int, optional
        Check the order of each producer's batches as a leader with this
        ``producer.id.expiration.ms`` does: `orders`. By default the order is not checked.
    of_clients : bool, default True
        Whether clients append to the log. A leader checks the sequence numbers of clients only
        (``AppendOrigin.CLIENT``), not those of coordinators: see `BROKERS_TOPICS`.
    """

    def __init__(
        self,
        entries: NDArray[np.void] | None = None,
        *,
        records_transactions: bool = False,
        expiration_ms: int | None = None,
        of_clients: bool = True,
    ) -> None:
        known = _NO_PRODUCERS if entries is None else entries
        self._cursor = None if expiration_ms is None else _core.LogCursor(expiration_ms, of_clients)
        self._records_transactions = records_transactions
        # Most logs have no producers, and need no table.
        self._made = self._table_of(_last_of_each(known)) if len(known) else None

    def _table_of(self, known: NDArray[np.void]) -> _core.ProducerTable:
        return _producer_table(
            max(len(known), _MIN_CAPACITY),
            known,
            _open_spans(known) if self._records_transactions else None,
            None if self._cursor is None else np.repeat(_UNORDERED, len(known)),
            self._cursor,
        )

    @property
    def _table(self) -> _core.ProducerTable:
        if self._made is None:
            self._made = self._table_of(_NO_PRODUCERS)
        return self._made

    def __len__(self) -> int:
        return 0 if self._made is None else self._made.count

    @property
    def checks_order(self) -> bool:
        """Whether the order of batches is checked."""
        return self._cursor is not None

    def _grow(self, capacity: int) -> None:
        """Move the producers to a table with more room."""
        table, count = self._table, self._table.count
        self._made = _producer_table(
            capacity,
            table.entries[:count],
            None if table.spans is None else table.spans[:count],
            None if table.orders is None else table.orders[:count],
            self._cursor,
        )

    # ---- batches -------------------------------------------------------------------------

    def apply(self, source: Source, batches: BatchTable) -> AppliedBatches:
        """
        Apply batches one after the other, as recovery does (``LogSegment.recover``).

        Parameters
        ----------
        source : Source
            Only the control batches are read.
        batches : array of BATCH_DTYPE, shape (n,)
            In log order.
        """
        if self._cursor is None and not (batches["producer_id"] >= 0).any():
            return _NOTHING_APPLIED
        return self.apply_read(batches, read_control_rows(source, batches), source.path)

    def apply_read(self, batches: BatchTable, control: ControlRows, path: str) -> AppliedBatches:
        """
        Apply batches whose control records were read; as `apply`.

        Parameters
        ----------
        batches : array of BATCH_DTYPE, shape (n,)
        control : ControlRows
            Of these batches.
        path : str
            Path of the log in errors.
        """
        unreadable = min(control.errors, default=None)
        stop = len(batches) if unreadable is None else int(control.rows[unreadable])
        status, row, completed, spans = self._run(batches[:stop], control)
        refused = None
        if status != STATUS["OK"]:
            error = record_error(status, path, batches[row])
            refused = RefusedBatch(row, error, is_fatal=True)
        elif unreadable is not None:
            error = control.errors[unreadable]
            refused = RefusedBatch(stop, error, is_fatal=error.symbol in _FATAL)
        return AppliedBatches(completed, spans, refused)

    def check_order(self, batches: BatchTable, control: ControlRows) -> None:
        """Check the order of batches without applying them: the state is no longer known."""
        if self._cursor is not None:
            self._run(batches, control, order_only=True)

    def skip(self, batches: BatchTable) -> None:
        """Skip batches that have no producer, and no gaps in their offsets."""
        if self._cursor is not None:
            self._cursor.skip(int(batches["base_offset"][0]), offset_after(batches))

    def _run(
        self, batches: BatchTable, control: ControlRows, *, order_only: bool = False
    ) -> tuple[int, int, NDArray[np.void], NDArray[np.void]]:
        """Return the status, the row reached, completed transactions and their content."""
        markers = control.markers
        completed = np.empty(len(markers), COMPLETED_TRANSACTION)
        spans = _NO_SPANS if self._table.spans is None else np.empty(len(markers), TRANSACTION)
        done = _core.Results(completed, spans)
        status = STATUS["OUTPUT_FULL"]
        while status == STATUS["OUTPUT_FULL"]:
            status = _core.apply_into(self._table, batches, markers, done, order_only=order_only)
            if status == STATUS["OUTPUT_FULL"]:
                self._grow(2 * len(self._table.entries))
        return status, done.rows, completed[: done.completed_count], spans[: done.span_count]

    def load(self, source: Source, batches: BatchTable) -> AppliedBatches:
        """
        Apply batches as a broker does to segments that it does not recover.

        ``UnifiedLog.loadProducersFromRecords`` collects the producers of the batches in a Java
        ``HashMap``: new producers become known in the order of that map.

        Parameters
        ----------
        source, batches
            See `apply`. Nothing is applied if a batch is refused.
        """
        writers = batches["producer_id"][batches["producer_id"] >= 0]
        ids, first = np.unique(writers, return_index=True)
        ids = ids[np.argsort(first, kind="stable")]
        loaded = ProducerState(self._without_batches(ids))
        applied = loaded.apply(source, batches)
        if applied.refused is not None:
            return applied
        # Kafka keeps open transactions by first offset, and ends them after all have begun.
        again = _repeated(applied.completed["first_offset"])
        if again is not None:
            row = int(applied.completed["row"][again])
            refused = RefusedBatch(row, _unknown_transaction(source.path, batches[row]), True)
            return AppliedBatches(applied.completed[:again], _NO_SPANS, refused)
        found = loaded._entries()
        by_first_batch = np.argsort(found["producer_id"])[np.argsort(np.argsort(ids))]
        # computeIfAbsent runs for each batch; the map grows when the next one is looked up.
        added = int((first < len(writers) - 1).sum())
        order = java_hash_order(ids[::-1], buckets_for=added)
        if self._table.count + len(found) > len(self._table.entries):
            self._grow(self._table.count + len(found))
        _core.merge_into(self._table, found.take(by_first_batch[::-1].take(order)))
        return applied

    def _without_batches(self, ids: NDArray[np.int64]) -> NDArray[np.void]:
        """Return the entries of producers without their last batches."""
        known = self._entries()
        known = known[np.isin(known["producer_id"], ids)]
        known["last_sequence"] = known["last_offset"] = -1
        known["offset_delta"] = 0
        return known

    # ---- the state -----------------------------------------------------------------------

    def _entries(self) -> NDArray[np.void]:
        return self._table.entries[: self._table.count]

    def entries(self) -> NDArray[np.void]:
        """
        Return the entries of all producers.

        Returns
        -------
        ndarray of PRODUCER_ENTRY
            In the order of a snapshot: that of the broker's ``HashMap``.
        """
        if not len(self):
            return _NO_PRODUCERS
        known = self._entries()
        return known.take(java_hash_order(known["producer_id"]))

    def open_transactions(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the producers that have open transactions, and the first offsets of these."""
        known = self._entries() if len(self) else _NO_PRODUCERS
        first = known["current_txn_first_offset"]
        rows = np.flatnonzero(first >= 0)
        return known["producer_id"][rows], first[rows]

    def first_open_offset(self) -> int | None:
        """Return the first offset of the earliest open transaction; None if none is open."""
        offset = self._table.first_open_offset() if len(self) else -1
        return None if offset < 0 else offset

    def open_spans(self) -> NDArray[np.void]:
        """Return the content of the open transactions, by first offset; if it is recorded."""
        if not len(self) or self._table.spans is None:
            return _NO_SPANS
        spans = self._table.spans[: self._table.count]
        rows = np.flatnonzero(spans["state"] == TransactionState.OPEN)
        opened = spans.take(rows)
        opened["coordinator_epoch"] = self._entries()["coordinator_epoch"][rows]
        return opened[np.lexsort((opened["producer_id"], opened["first_offset"]))]

    def orders(self) -> NDArray[np.void]:
        """Return the PRODUCER_ORDER of each producer with batches in the log, if it is checked."""
        if not len(self) or self._table.orders is None:
            return np.empty(0, PRODUCER_ORDER)
        found = self._table.orders[: self._table.count]
        return found[found["producer_id"] >= 0]


def _last_of_each(entries: NDArray[np.void]) -> NDArray[np.void]:
    """Drop the entries that a later entry of the same producer replaces."""
    ids = entries["producer_id"]
    _, last = np.unique(ids[::-1], return_index=True)
    return entries if len(last) == len(ids) else entries.take(np.sort(len(ids) - 1 - last))


def _producer_table(
    capacity: int,
    entries: NDArray[np.void],
    spans: NDArray[np.void] | None,
    orders: NDArray[np.void] | None,
    cursor: _core.LogCursor | None,
) -> _core.ProducerTable:
    """Return a table with room for `capacity` producers that holds the given ones."""
    rows = np.empty(capacity, PRODUCER_ENTRY)
    rows[: len(entries)] = entries
    span_rows = order_rows = None
    if spans is not None:
        span_rows = np.empty(capacity, TRANSACTION)
        span_rows[: len(spans)] = spans
    if orders is not None:
        order_rows = np.empty(capacity, orders.dtype)
        order_rows[: len(orders)] = orders
    return _core.ProducerTable(
        rows,
        len(entries),
        empty_slots(capacity),
        # Twice as many: a full heap is rebuilt without stale items, which must be rare.
        np.empty(2 * capacity, _OPEN_TRANSACTION),
        span_rows,
        order_rows,
        cursor,
    )


def empty_slots(capacity: int) -> NDArray[np.int32]:
    """
    Return the slots of an empty hash table for the given number of producers.

    A small table is sparse, so that collisions are rare: a mispredicted branch takes as long
    as the rest of the work for a batch.
    """
    spread = 8 if capacity <= _SPARSE_CAPACITY else 2
    return np.full(1 << (spread * capacity - 1).bit_length(), -1, np.int32)


def _open_spans(entries: NDArray[np.void]) -> NDArray[np.void]:
    """Return by entry the transaction that is open according to a snapshot."""
    spans = np.zeros(len(entries), TRANSACTION)
    is_open = entries["current_txn_first_offset"] >= 0
    spans["state"] = np.where(is_open, TransactionState.OPEN, -1)
    spans["first_offset"] = entries["current_txn_first_offset"]
    spans["last_timestamp"] = entries["timestamp"]
    for name in ("producer_id", "producer_epoch", "last_offset", "coordinator_epoch"):
        spans[name] = entries[name]
    for name in ("marker_offset", "last_stable_offset", "first_timestamp"):
        spans[name] = -1
    return spans


def _unordered() -> NDArray[np.void]:
    """Return the order of a producer without batches, as `producer_order` begins."""
    order = np.zeros(1, PRODUCER_ORDER)
    for name in (
        "producer_id", "producer_epoch", "last_sequence", "last_seen_ms", "first_epoch",
        "first_gap", "first_duplicate", "first_fenced",
    ):  # fmt: skip
        order[name] = -1
    return order


_UNORDERED = _unordered()


# ---- open transactions by first offset -------------------------------------------------------


def find_unknown_transaction(
    path: str,
    read_batches: Callable[[], BatchTable],
    completed: NDArray[np.void],
    open_before: tuple[NDArray[np.int64], NDArray[np.int64]],
) -> RefusedBatch | None:
    """
    Find the first marker whose transaction Kafka does not know, although one was open.

    Kafka keeps open transactions by first offset. If batches are repeated, two producers may
    have begun a transaction at the same offset; the first that ends removes both.

    Parameters
    ----------
    path : str
        Path of the log in errors.
    read_batches : callable
        Returns the batches that were applied one after the other; called if batches are repeated.
    completed : array of COMPLETED_TRANSACTION
        The transactions that ended in them.
    open_before : tuple of ndarray
        `ProducerState.open_transactions` before they were applied.
    """
    if _repeated(completed["first_offset"]) is None:
        return None
    batches = read_batches()
    producers, offsets = (column.tolist() for column in open_before)
    current, ongoing = dict(zip(producers, offsets, strict=True)), set(offsets)
    ended = set(completed["row"].tolist())
    rows = np.flatnonzero(is_transactional(batches) & (batches["producer_id"] >= 0))
    is_marker = is_control(batches)
    for row in rows.tolist():
        producer, offset = int(batches["producer_id"][row]), int(batches["base_offset"][row])
        if row in ended:
            first = current.pop(producer, None)
            if first not in ongoing:
                return RefusedBatch(row, _unknown_transaction(path, batches[row]), is_fatal=True)
            ongoing.remove(first)
        elif not is_marker[row] and producer not in current:
            current[producer] = offset
            ongoing.add(offset)
    return None


def _repeated(values: NDArray[np.int64]) -> int | None:
    """Return the row at which a value occurs for the second time; None if all are distinct."""
    known = values.tolist()
    if len(set(known)) == len(known):
        return None
    seen: set[int] = set()
    for row, value in enumerate(known):
        if value in seen:
            return row
        seen.add(value)
    return None


def _unknown_transaction(path: str, batch: np.void) -> CorruptBatchError:
    detail = "another transaction began at the same offset, so Kafka does not know this one"
    return record_error("BAD_CONTROL_RECORD", path, batch, detail)
