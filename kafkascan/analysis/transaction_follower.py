"""Follow the transactions of one log from their first batch to their marker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, as_datetime64, join_rows, offset_after
from kafkascan.batches.screening import COUNTS, OFFSETS, PRODUCERS
from kafkascan.broker_state.markers import TRANSACTION, ControlRows
from kafkascan.broker_state.producer_state import ProducerState
from kafkascan.format.errors import CorruptSnapshotError
from kafkascan.logs.opened_logs import LogView
from kafkascan.logs.walking.log_walk import LogSlice, producers_before

Pause: TypeAlias = "tuple[int, Callable[[ProducerState | None], object]]"
"""A row of a table, and a function that gets the producers' state before this row."""


def follower_of(log: LogView, number: int) -> TransactionFollower:
    """Return a follower that starts with the snapshot at the log's start, if it can be read."""
    try:
        known = producers_before(log)
    except (CorruptSnapshotError, OSError):
        known = None
    return TransactionFollower(number, known, log.start_offset)


class TransactionFollower:
    """
    Follows the transactions of one log, slice by slice.

    Parameters
    ----------
    log : int
        Number of the log, for the rows that are returned.
    known : array of PRODUCER_ENTRY, optional
        Entries of the snapshot at the start of the log: see `producers_before`.
    start_offset : int
        First offset of the log. The log does not end before it: if all batches do, a broker that
        loads the log deletes them, and creates an empty segment at this offset.
    path : str
        Path of the log in errors.
    expiration_ms, of_clients
        See `ProducerState`.

    Attributes
    ----------
    state : ProducerState
        After the last slice, or before the first error.
    end_offset : int
        The offset after the last batch.
    error : Exception or None
        The first error; transactions after it are not known.
    """

    def __init__(
        self,
        log: int,
        known: NDArray[np.void] | None = None,
        start_offset: int = 0,
        path: str = "",
        expiration_ms: int | None = None,
        *,
        of_clients: bool = True,
    ) -> None:
        self.state = ProducerState(
            known,
            records_transactions=True,
            expiration_ms=expiration_ms,
            of_clients=of_clients,
        )
        self.end_offset = -1
        self.error: Exception | None = None
        self._log = log
        self._start_offset = start_offset
        self._path = path
        self._latest_ms = -1

    def add(self, log_slice: LogSlice) -> NDArray[np.void]:
        """Add the next slice of the log; return the transactions that end in it."""
        ended = self.add_batches(log_slice.batches, log_slice.control, log_slice.flags)
        self.end_offset = max(self.end_offset, log_slice.base_offset)
        self.error = self.error or log_slice.error
        if log_slice.is_last:
            self.end_offset = max(self.end_offset, self._start_offset)
        return ended

    def add_batches(
        self,
        batches: BatchTable,
        control: ControlRows,
        flags: int,
        pauses: Sequence[Pause] = (),
    ) -> NDArray[np.void]:
        """
        Add batches whose control records were read; as `add`.

        Parameters
        ----------
        batches : array of BATCH_DTYPE, shape (n,)
        control : ControlRows
        flags : int
            Properties of the batches: see `screen`.
        pauses : sequence of Pause
            Rows ascend; the functions get None if the state is not known.
        """
        row, known_rows = 0, len(batches)
        ended = []
        if known_rows:
            self._latest_ms = max(self._latest_ms, int(batches["max_timestamp"].max()))
        for stop, inspect in (*pauses, (len(batches), None)):
            known, spans = self._apply(batches[row:stop], control.between(row, stop), flags)
            ended.append(spans)
            if known < stop - row:
                known_rows = min(known_rows, row + known)
            row = stop
            if inspect is not None:
                inspect(None if self.error is not None else self.state)
        if known_rows:
            self.end_offset = max(self.end_offset, offset_after(batches[:known_rows]))
        return self._numbered(ended[0] if len(ended) == 1 else join_rows(ended, TRANSACTION))

    def _apply(
        self, batches: BatchTable, control: ControlRows, flags: int
    ) -> tuple[int, NDArray[np.void]]:
        """Return how many batches are before an error, and the transactions that end in them."""
        state, none_ended = self.state, np.empty(0, TRANSACTION)
        relevant = PRODUCERS | OFFSETS | COUNTS if state.checks_order else PRODUCERS
        if not len(batches):
            return 0, none_ended
        if not flags & relevant:
            state.skip(batches)
            return (len(batches) if self.error is None else 0), none_ended
        if self.error is not None:
            state.check_order(batches, control)
            return 0, none_ended
        applied = state.apply_read(batches, control, self._path)
        if applied.refused is None:
            return len(batches), applied.spans
        row = applied.refused.row
        self.error = applied.refused.error
        state.check_order(batches[row:], control.between(row, len(batches)))
        return row, applied.spans

    def _numbered(self, spans: NDArray[np.void]) -> NDArray[np.void]:
        spans["log"] = self._log
        return spans

    def latest_write_ms(self, now_ms: int) -> int:
        """Return the time of the latest write to the log, by its timestamps; at most a time."""
        seen: list[int] = self.state.orders()["last_seen_ms"].tolist()
        return min(max([self._latest_ms, *seen]), now_ms)

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the earliest open transaction; the end of the log if none is open."""
        opened = self.state.first_open_offset()
        return self.end_offset if opened is None else max(opened, self._start_offset)

    def open_ones(self) -> NDArray[np.void]:
        """Return the transactions that are open at the end of what was added."""
        return self._numbered(self.state.open_spans())


def at_latest_write(time_ms: int) -> str:
    """Return the clause of messages for ages that are relative to the latest write to a log."""
    return f" at the latest write to the log, {as_datetime64(np.array([time_ms]))[0]}Z"


def abort_command(
    log: LogView, first_offset: int, *, bootstrap_server: str = "HOST:PORT"
) -> str | None:
    """Return the command of Kafka that aborts an open transaction; None if the topic is unknown."""
    if log.partition.topic is None:
        return None
    return (
        f"kafka-transactions.sh --bootstrap-server {bootstrap_server} abort"
        f" --topic {log.partition.topic} --partition {log.partition.partition}"
        f" --start-offset {first_offset}"
    )


def is_empty(spans: NDArray[np.void]) -> NDArray[np.bool_]:
    """Return which transactions have no batches, only a marker."""
    empty: NDArray[np.bool_] = (spans["batches"] == 0) & (spans["first_offset"] < 0)
    return empty
