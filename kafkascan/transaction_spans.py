"""Transactions of logs from their first batch to their marker: open, committed, aborted.

Also those that nothing ends any more (KIP-664), and what ends them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kafkascan import arrow
from kafkascan.batch_columns import (
    BatchTable,
    delete_horizon_ms,
    is_transactional,
    last_offset,
    next_offset,
    size_in_bytes,
)
from kafkascan.layout import TRANSACTION_INDEX_ENTRY, NamedCode
from kafkascan.logs import Log, LogsLike, LogWalk, Piece, open_logs
from kafkascan.producers import ProducerState, RefusedBatchError
from kafkascan.screening import CONTROL, TRANSACTIONS, screen
from kafkascan.transactions import ControlRows

if TYPE_CHECKING:
    import pyarrow as pa

TRANSACTION_TIMEOUT_MS = 900_000
"""Kafka's ``transaction.max.timeout.ms``, by which ``kafka-transactions`` goes."""

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
``size_in_bytes`` do not count the marker."""


class TransactionState(NamedCode):
    """How a transaction ended."""

    ABORTED = 0
    COMMITTED = 1
    OPEN = 2

    @property
    def display_name(self) -> str:
        """The name in small letters."""
        return self.name.lower()


_NO_TRANSACTIONS = np.empty(0, TRANSACTION)


@dataclass(frozen=True, eq=False)
class Transactions:
    """
    Transactions of some logs; what `read_transactions` returns.

    Attributes
    ----------
    logs : list of Log
    spans : ndarray of TRANSACTION, shape (n,)
        By log, and in a log in the order in which they ended; open ones come last, by their
        first offset.
    last_stable_offsets, end_offsets : ndarrays of int64, shape (logs,)
        Where a read_committed consumer stops, as if all of the log were replicated; and what
        follows the last batch. -1 where the log cannot be read to its end.
    errors : dict of int to Exception
        By log: why transactions behind an offset are not known.
    now_ms, timeout_ms : int
        When it was, and how long transactions may take.
    """

    logs: list[Log]
    spans: NDArray[np.void]
    last_stable_offsets: NDArray[np.int64]
    end_offsets: NDArray[np.int64]
    errors: dict[int, Exception]
    now_ms: int
    timeout_ms: int

    def __len__(self) -> int:
        return len(self.spans)

    @property
    def age_ms(self) -> NDArray[np.int64]:
        """Milliseconds since the last batch of each transaction."""
        age: NDArray[np.int64] = self.now_ms - self.spans["last_timestamp"]
        return age

    @property
    def is_open(self) -> NDArray[np.bool_]:
        """Which of them nothing has ended."""
        result: NDArray[np.bool_] = self.spans["state"] == TransactionState.OPEN
        return result

    @property
    def is_hanging(self) -> NDArray[np.bool_]:
        """
        Which of them are open for longer than a transaction may be.

        Those are the candidates of ``kafka-transactions find-hanging``: whether the coordinator
        knows of them still stands in another log.
        """
        result: NDArray[np.bool_] = self.is_open & (self.age_ms > self.timeout_ms)
        return result

    @property
    def hanging_logs(self) -> list[str]:
        """Names of the logs in which transactions hang."""
        return [self.logs[number].name for number in np.unique(self.spans["log"][self.is_hanging])]

    @property
    def is_empty(self) -> NDArray[np.bool_]:
        """
        Which of them are no more than a marker.

        Nothing was written, or it is gone: before the log's start, or removed by the cleaner.
        """
        result: NDArray[np.bool_] = self.spans["batches"] == 0
        return result

    def aborted(self, log: int = 0) -> NDArray[np.void]:
        """
        Return the aborted transactions of a log, as ``.txnindex`` files hold them.

        Returns
        -------
        ndarray of TRANSACTION_INDEX_ENTRY
            In the order of their markers.
        """
        spans = self.spans
        is_aborted = (spans["state"] == TransactionState.ABORTED) & ~self.is_empty
        found = spans[is_aborted & (spans["log"] == log)]
        entries = np.zeros(len(found), TRANSACTION_INDEX_ENTRY)
        for name, of in (
            ("producer_id", "producer_id"),
            ("first_offset", "first_offset"),
            ("last_offset", "marker_offset"),
            ("last_stable_offset", "last_stable_offset"),
        ):
            entries[name] = found[of]
        return entries

    def select(self, mask: NDArray[np.bool_]) -> Transactions:
        """Return some of them."""
        return Transactions(
            self.logs, self.spans[mask], self.last_stable_offsets, self.end_offsets, self.errors,
            self.now_ms, self.timeout_ms,
        )  # fmt: skip

    def abort_command(self, row: int, *, bootstrap_server: str = "HOST:PORT") -> str | None:
        """
        Return the command that ends an open transaction, None for one that has ended.

        Brokers before 3.0 want ``--producer-id``, ``--producer-epoch`` and
        ``--coordinator-epoch`` instead of ``--start-offset``; all of them are columns.
        """
        span = self.spans[row]
        partition = self.logs[span["log"]].partition
        if span["state"] != TransactionState.OPEN or partition.topic is None:
            return None
        return (
            f"kafka-transactions.sh --bootstrap-server {bootstrap_server} abort"
            f" --topic {partition.topic} --partition {partition.partition}"
            f" --start-offset {span['first_offset']}"
        )

    def to_columns(self) -> dict[str, list[Any]]:
        """Return the table as lists: where, what, how long, and what would end it."""
        spans = self.spans
        numbers = spans["log"].tolist()
        partitions = [log.partition for log in self.logs]
        columns: dict[str, list[Any]] = {
            "topic": [partitions[number].topic for number in numbers],
            "partition": [partitions[number].partition for number in numbers],
        }
        for name in TRANSACTION.names or ():
            if name not in ("log", "state"):
                columns[name] = spans[name].tolist()
        names = [TransactionState(code).display_name for code in sorted(TransactionState)]
        is_open = self.is_open.tolist()
        columns["state"] = [names[code] for code in spans["state"].tolist()]
        columns["age_ms"] = [
            age if open_ else None for age, open_ in zip(self.age_ms.tolist(), is_open, strict=True)
        ]
        columns["is_hanging"] = self.is_hanging.tolist()
        columns["is_empty"] = self.is_empty.tolist()
        columns["command"] = [
            self.abort_command(row) if open_ else None for row, open_ in enumerate(is_open)
        ]
        return columns

    def to_arrow(self) -> pa.Table:
        """Return the table as Arrow's; timestamps become ``timestamp[ms, tz=UTC]``."""
        pa = arrow.require_pyarrow()
        columns: dict[str, Any] = dict(self.to_columns())
        for name in ("first_timestamp", "last_timestamp"):
            columns[name] = arrow.timestamp_column(self.spans[name])
        types = {
            "topic": pa.string(), "partition": pa.int32(), "state": pa.string(),
            "is_hanging": pa.bool_(), "is_empty": pa.bool_(), "command": pa.string(),
        }  # fmt: skip
        for name, values in columns.items():
            if isinstance(values, list):
                columns[name] = pa.array(values, types.get(name, pa.int64()))
        return pa.table(columns)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Arrow's PyCapsule stream of `to_arrow`."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return (
            f"<Transactions: {len(self):,} in {len(self.logs):,} logs,"
            f" {int(self.is_open.sum()):,} open, {int(self.is_hanging.sum()):,} hanging>"
        )


def read_transactions(
    logs: LogsLike,
    /,
    *,
    now_ms: int | None = None,
    timeout_ms: int = TRANSACTION_TIMEOUT_MS,
    threads: int | None = None,
) -> Transactions:
    """
    Read the transactions of logs, from batch headers and markers.

    Parameters
    ----------
    logs : path, LogDir, PartitionDir, bytes-like, Source or Segment
        A data dir, the folder of a partition, a tar of them; or a source, which is taken as
        all there is of its log.
    now_ms : int, optional
        Milliseconds since the epoch, to tell which transactions hang; by default now.
    timeout_ms : int, default 15 minutes
        The broker's ``transaction.max.timeout.ms``.
    threads : int, optional
        Segments that are read at once; by default one per CPU.

    Returns
    -------
    Transactions
        Damage in a log ends what is known of it, and is in `Transactions.errors`.

    Raises
    ------
    As `open_log_dir`.

    Notes
    -----
    What ends a transaction is a producer's control batch (KIP-98); what counts as one is what
    ``ProducerStateManager`` takes for one. The last stable offset is that of a log all of which
    is replicated. Memory: 98 bytes for each transaction.
    """
    opened = open_logs(logs)
    if now_ms is None:
        now_ms = time.time_ns() // 1_000_000
    followers: dict[int, TransactionFollower] = {}
    found: list[NDArray[np.void]] = [_NO_TRANSACTIONS]
    stable, ends = np.full(len(opened), -1, np.int64), np.full(len(opened), -1, np.int64)
    errors: dict[int, Exception] = {}
    for piece in LogWalk(opened, threads):
        number = piece.log
        follower = followers.setdefault(number, TransactionFollower(number))
        found.append(follower.add(piece))
        if piece.is_last:
            found.append(follower.open_ones())
            stable[number], ends[number] = follower.last_stable_offset, follower.end_offset
            if follower.error is not None:
                errors[number] = follower.error
                stable[number] = ends[number] = -1
            del followers[number]
    spans = np.concatenate(found)
    return Transactions(opened, spans, stable, ends, errors, now_ms, timeout_ms)


class TransactionFollower:
    """
    Follows the transactions of one log, piece by piece.

    Parameters
    ----------
    log : int
        Its number, for the rows.

    Attributes
    ----------
    state : ProducerState
        After the last piece.
    end_offset : int
        What follows the last batch.
    error : Exception or None
        Why what follows is not known.
    """

    def __init__(self, log: int) -> None:
        self.state = ProducerState()
        self.end_offset = -1
        self.error: Exception | None = None
        self._log = log
        self._open = _NO_TRANSACTIONS  # by producer

    def add(self, piece: Piece) -> NDArray[np.void]:
        """Add the batches that follow; returns the transactions that end in them."""
        found = self.add_batches(piece.batches, piece.control)
        self.end_offset = max(self.end_offset, piece.base_offset)
        for end in piece.chunk.ends:
            if end.error is not None and self.error is None:
                self.error = end.error
        return found

    def add_batches(self, batches: BatchTable, control: ControlRows) -> NDArray[np.void]:
        """Add batches whose control records have been read; as `add`."""
        if self.error is not None:
            return _NO_TRANSACTIONS
        try:
            completed = self.state.apply_read(batches, control, "")
        except RefusedBatchError as refused:
            self.error, completed = refused.error, refused.completed
            batches = batches[: refused.row]
            control = control.between(0, refused.row)
        if len(batches):
            self.end_offset = max(self.end_offset, int(next_offset(batches[-1:])[0]))
        return self._spans(batches, control, completed)

    @property
    def last_stable_offset(self) -> int:
        """Where the first open transaction begins, or what follows the last batch."""
        opened = self._open["first_offset"]
        return int(opened.min()) if len(opened) else self.end_offset

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
        if not screen(batches) & (TRANSACTIONS | CONTROL):
            return _NO_TRANSACTIONS
        kinds = np.full(len(batches), -1, np.int8)
        coordinators = np.full(len(batches), -1, np.int32)
        kinds[control.rows] = control.markers["kind"]
        coordinators[control.rows] = control.markers["coordinator_epoch"]
        is_data = is_transactional(batches) & (batches["producer_id"] >= 0)
        is_data[control.rows] = False
        rows = np.flatnonzero(is_data | (kinds >= 0))
        if not len(rows):
            return _NO_TRANSACTIONS
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
