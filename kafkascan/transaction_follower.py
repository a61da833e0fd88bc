"""Follows the transactions of one log, from their first batch to what ends them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan.batch_columns import (
    BatchTable,
    delete_horizon_ms,
    is_transactional,
    last_offset,
    next_offset,
    size_in_bytes,
)
from kafkascan.errors import CorruptSnapshotError
from kafkascan.layout import NamedCode
from kafkascan.logs import Log, Piece, producers_before
from kafkascan.producers import ProducerState, RefusedBatchError
from kafkascan.screening import CONTROL, PRODUCERS, TRANSACTIONS
from kafkascan.transactions import ControlRows

TRANSACTION = np.dtype(
    [
        ("log", "=i4"),
        ("producer_id", "=i8"),
        ("producer_epoch", "=i2"),
        ("state", "=i1"),
        ("first_offset", "=i8"),
        ("last_offset", "=i8"),
        ("marker_offset", "=i8"),
        ("last_stable_offset", "=i8"),
        ("first_timestamp", "=i8"),
        ("last_timestamp", "=i8"),
        ("batches", "=i8"),
        ("records", "=i8"),
        ("size_in_bytes", "=i8"),
        ("coordinator_epoch", "=i4"),
    ]
)
"""A transaction in one log: ``log`` counts `Transactions.logs`; ``first_offset`` and
``last_offset`` are those of its records (-1 if there are none), ``marker_offset`` that of what
ended it (-1 if it is open); ``last_stable_offset`` is that of the log when it ended (-1 if it is
open or empty); timestamps are those of its batches, in milliseconds; ``batches``, ``records`` and
``size_in_bytes`` do not count the marker. Of one that began before the log does, as a snapshot
says, ``first_timestamp`` is -1, and what was written before is not counted."""


class TransactionState(NamedCode):
    """How a transaction ended."""

    ABORTED = 0
    COMMITTED = 1
    OPEN = 2

    @property
    def display_name(self) -> str:
        """The name in small letters."""
        return self.name.lower()


NO_TRANSACTIONS = np.empty(0, TRANSACTION)

Pause: TypeAlias = "tuple[int, Callable[[ProducerState | None], object]]"


def follower_of(log: Log, number: int) -> TransactionFollower:
    """Return a follower that begins with what the snapshot at the log's start says, if it can."""
    try:
        known = producers_before(log)
    except (CorruptSnapshotError, OSError):
        known = None
    start = log.segments[0].name.base_offset if log.segments else None
    return TransactionFollower(number, known, start or 0)


class TransactionFollower:
    """
    Follows the transactions of one log, piece by piece.

    Parameters
    ----------
    log : int
        Its number, for the rows.
    known : array of PRODUCER_ENTRY, optional
        What was known of producers before: see `producers_before`.
    start_offset : int
        Where the log begins.
    path : str
        What errors call it.

    Attributes
    ----------
    state : ProducerState
        After the last piece.
    end_offset : int
        What follows the last batch.
    error : Exception or None
        Why what follows is not known.
    """

    def __init__(
        self,
        log: int,
        known: NDArray[np.void] | None = None,
        start_offset: int = 0,
        path: str = "",
    ) -> None:
        self.state = ProducerState(known)
        self.end_offset = -1
        self.error: Exception | None = None
        self._log = log
        self._start_offset = start_offset
        self._path = path
        self._open = _begun_before(log, known)  # by producer

    def add(self, piece: Piece) -> NDArray[np.void]:
        """Add the batches that follow; returns the transactions that end in them."""
        found = self.add_batches(piece.batches, piece.control, piece.flags)
        self.end_offset = max(self.end_offset, piece.base_offset)
        for end in piece.chunk.ends:
            if end.error is not None and self.error is None:
                self.error = end.error
        return found

    def add_batches(
        self,
        batches: BatchTable,
        control: ControlRows,
        flags: int,
        pauses: Sequence[Pause] = (),
    ) -> NDArray[np.void]:
        """
        Add batches whose control records have been read; as `add`.

        Parameters
        ----------
        batches : array of BATCH_DTYPE, shape (n,)
        control : ControlRows
        flags : int
            What there is among them: see `screen`.
        pauses : sequence of (int, callable)
            Rows before which somebody looks at the state, ascending; None if it is not known.
        """
        if self.error is not None:
            for _, look in pauses:
                look(None)
            return NO_TRANSACTIONS
        completed, good = self._apply(batches, control, flags, pauses)
        if good < len(batches):
            batches, control = batches[:good], control.between(0, good)
        if len(batches):
            self.end_offset = max(self.end_offset, int(next_offset(batches[-1:])[0]))
        if completed is None or not flags & (TRANSACTIONS | CONTROL):
            return NO_TRANSACTIONS
        return self._spans(batches, control, completed)

    def _apply(
        self, batches: BatchTable, control: ControlRows, flags: int, pauses: Sequence[Pause]
    ) -> tuple[NDArray[np.void] | None, int]:
        """Bring the state up to date; returns what has ended, and how many rows are good."""
        completed: NDArray[np.void] | None = None
        row, good = 0, len(batches)
        for stop, look in (*pauses, (good, None)):
            if flags & PRODUCERS and self.error is None:
                try:
                    ended = self.state.apply_read(
                        batches[row:stop], control.between(row, stop), self._path
                    )
                except RefusedBatchError as refused:
                    self.error, ended, good = refused.error, refused.completed, row + refused.row
                ended["row"] += row
                completed = ended if completed is None else np.concatenate([completed, ended])
                row = stop
            if look is not None:
                look(None if self.error is not None else self.state)
        return completed, good

    @property
    def last_stable_offset(self) -> int:
        """Where the first open transaction begins in the log, or what follows the last batch."""
        opened = self._open["first_offset"]
        return max(int(opened.min()), self._start_offset) if len(opened) else self.end_offset

    def open_ones(self) -> NDArray[np.void]:
        """Return the transactions that nothing has ended so far."""
        known = self.state.entries()
        opened = self._open.copy()
        if len(opened):
            known = np.sort(known, order="producer_id")
            row = np.searchsorted(known["producer_id"], opened["producer_id"])
            opened["coordinator_epoch"] = known["coordinator_epoch"][row]
        by_offset: NDArray[np.void] = np.sort(opened, order="first_offset")
        return by_offset

    def _spans(
        self, batches: BatchTable, control: ControlRows, completed: NDArray[np.void]
    ) -> NDArray[np.void]:
        kinds = np.full(len(batches), -1, np.int8)
        coordinators = np.full(len(batches), -1, np.int32)
        kinds[control.rows] = control.markers["kind"]
        coordinators[control.rows] = control.markers["coordinator_epoch"]
        is_data = is_transactional(batches) & (batches["producer_id"] >= 0)
        is_data[control.rows] = False
        rows = np.flatnonzero(is_data | (kinds >= 0))
        if not len(rows):
            return NO_TRANSACTIONS
        rows = rows[np.argsort(batches["producer_id"][rows], kind="stable")]
        spans, ends = _grouped(batches.take(rows), rows, is_data[rows], kinds[rows])
        has_ended = spans["state"] != TransactionState.OPEN
        spans["log"] = self._log
        spans["coordinator_epoch"][has_ended] = coordinators[ends[has_ended]]
        self._take_over(spans)
        opened = spans[~has_ended]
        order = np.argsort(ends[has_ended], kind="stable")
        ended: NDArray[np.void] = spans[has_ended][order]
        at = ends[has_ended][order]
        row = np.searchsorted(completed["row"], at)
        is_known = row < len(completed)
        is_known[is_known] = completed["row"][row[is_known]] == at[is_known]
        ended["last_stable_offset"][is_known] = completed["last_stable_offset"][row[is_known]]
        self._open = np.sort(np.concatenate([self._open, opened]), order="producer_id")
        return ended

    def _take_over(self, spans: NDArray[np.void]) -> None:
        """Let the first transaction of each producer go on with what was open before."""
        ids = spans["producer_id"]
        firsts = np.flatnonzero(np.diff(ids, prepend=np.int64(-1)) != 0)
        at = np.searchsorted(self._open["producer_id"], ids[firsts])
        goes_on = at < len(self._open)
        goes_on[goes_on] = self._open["producer_id"][at[goes_on]] == ids[firsts[goes_on]]
        mine, before = firsts[goes_on], self._open[at[goes_on]]
        now = spans[mine]
        for name in ("batches", "records", "size_in_bytes"):
            now[name] += before[name]
        for name in ("first_offset", "first_timestamp"):
            now[name] = before[name]
        is_over = spans["batches"][mine] == 0  # nothing but its marker is here
        for name in ("last_offset", "last_timestamp", "producer_epoch"):
            now[name][is_over] = before[name][is_over]
        spans[mine] = now
        self._open = np.delete(self._open, at[goes_on])


def is_empty(spans: NDArray[np.void]) -> NDArray[np.bool_]:
    """Tell which transactions are no more than a marker."""
    empty: NDArray[np.bool_] = (spans["batches"] == 0) & (spans["first_offset"] < 0)
    return empty


def _begun_before(log: int, known: NDArray[np.void] | None) -> NDArray[np.void]:
    """Return the transactions that are open by a snapshot, by producer."""
    if known is None:
        return NO_TRANSACTIONS
    # Of a producer that has several entries, the last one counts.
    ids, last = np.unique(known["producer_id"][::-1], return_index=True)
    known = known[::-1][last]
    known = known[(ids >= 0) & (known["current_txn_first_offset"] >= 0)]
    spans = np.zeros(len(known), TRANSACTION)
    spans["log"], spans["state"] = log, TransactionState.OPEN
    spans["first_offset"] = known["current_txn_first_offset"]
    spans["last_timestamp"] = known["timestamp"]
    for name in ("producer_id", "producer_epoch", "last_offset", "coordinator_epoch"):
        spans[name] = known[name]
    for name in ("marker_offset", "last_stable_offset", "first_timestamp"):
        spans[name] = -1
    return spans


def _grouped(
    table: BatchTable, rows: NDArray[np.intp], is_data: NDArray[np.bool_], kinds: NDArray[np.int8]
) -> tuple[NDArray[np.void], NDArray[np.intp]]:
    """Cut rows, which stand by producer, where a producer or a transaction ends."""
    ids, is_end = table["producer_id"], kinds >= 0
    begins = np.ones(len(rows), np.bool_)
    begins[1:] = (ids[1:] != ids[:-1]) | is_end[:-1]
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(rows)) - 1
    spans = np.zeros(len(first), TRANSACTION)
    spans["producer_id"] = ids[first]
    spans["last_stable_offset"] = spans["coordinator_epoch"] = -1
    has_ended = is_end[last]
    spans["state"] = np.where(has_ended, kinds[last], np.int8(TransactionState.OPEN))
    spans["marker_offset"] = np.where(has_ended, table["base_offset"][last], -1)
    spans["batches"] = np.add.reduceat(is_data.astype(np.int64), first)
    records = np.where(is_data, np.maximum(table["records_count"], 0), 0).astype(np.int64)
    spans["records"] = np.add.reduceat(records, first)
    sizes = np.where(is_data, size_in_bytes(table), 0)
    spans["size_in_bytes"] = np.add.reduceat(sizes, first)
    has_data = spans["batches"] > 0
    last_data = np.where(has_ended & has_data, last - 1, last)
    spans["producer_epoch"] = table["producer_epoch"][last_data]
    spans["first_offset"] = np.where(has_data, table["base_offset"][first], -1)
    spans["last_offset"] = np.where(has_data, last_offset(table)[last_data], -1)
    # Of a batch with a delete horizon, the base timestamp is that.
    has_horizon = delete_horizon_ms(table) >= 0
    begun = np.where(has_horizon, table["max_timestamp"], table["base_timestamp"])
    spans["first_timestamp"] = begun[first]
    spans["last_timestamp"] = table["max_timestamp"][last_data]
    return spans, rows[last]
