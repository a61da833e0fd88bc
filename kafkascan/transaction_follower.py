"""Follows the transactions of one log, from their first batch to what ends them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan.batch_columns import BatchTable, next_offset
from kafkascan.errors import CorruptSnapshotError
from kafkascan.logs import Log, Piece, producers_before
from kafkascan.producer_trails import ProducerTrails
from kafkascan.producers import ProducerState, RefusedBatchError
from kafkascan.screening import COUNTS, OFFSETS, PRODUCERS
from kafkascan.transactions import ControlRows

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
    expiration_ms : int, optional
        As of `ProducerTrails`.

    Attributes
    ----------
    state : ProducerTrails
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
        expiration_ms: int | None = None,
    ) -> None:
        self.state = ProducerTrails(known, log, expiration_ms)
        self.end_offset = -1
        self.error: Exception | None = None
        self._start_offset = start_offset
        self._path = path

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
        row, good = 0, len(batches)
        for stop, look in (*pauses, (len(batches), None)):
            known = self._follow(batches[row:stop], control.between(row, stop), flags)
            if known < stop - row:
                good = min(good, row + known)
            row = stop
            if look is not None:
                look(None if self.error is not None else self.state)
        if good:
            self.end_offset = max(self.end_offset, int(next_offset(batches[good - 1 : good])[0]))
        return self.state.take_ended()

    def _follow(self, batches: BatchTable, control: ControlRows, flags: int) -> int:
        """Bring the state up to date; returns how many batches are good."""
        was_known = self.error is None
        asked = PRODUCERS | OFFSETS | COUNTS if self.state.judges_order else PRODUCERS
        if not len(batches):
            return 0
        if not flags & asked:
            self.state.pass_over(batches)
        elif was_known or self.state.judges_order:
            try:
                self.state.follow(batches, control, self._path)
            except RefusedBatchError as refused:
                self.error = refused.error
                return refused.row
        return len(batches) if was_known else 0

    @property
    def last_stable_offset(self) -> int:
        """Where the first open transaction begins in the log, or what follows the last batch."""
        opened = self.state.first_open_offset()
        return self.end_offset if opened is None else max(opened, self._start_offset)

    def open_ones(self) -> NDArray[np.void]:
        """Return the transactions that nothing has ended so far."""
        return self.state.open_spans()


def is_empty(spans: NDArray[np.void]) -> NDArray[np.bool_]:
    """Tell which transactions are no more than a marker."""
    empty: NDArray[np.bool_] = (spans["batches"] == 0) & (spans["first_offset"] < 0)
    return empty
