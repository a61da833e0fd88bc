"""The transactions of logs: open, committed, aborted and hanging (KIP-664)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kafkascan.analysis.analysis_schemas import TRANSACTION_SCHEMA
from kafkascan.analysis.transaction_contradictions import (
    Coordinators,
    Owner,
    age_at_coordinator,
    coordinator_clause,
    is_within_timeout,
)
from kafkascan.analysis.transaction_follower import (
    TransactionFollower,
    abort_command,
    at_latest_write,
    follower_of,
    is_empty,
)
from kafkascan.batches.columns import join_rows
from kafkascan.broker_state.markers import TRANSACTION, TransactionState
from kafkascan.format.arguments import require_not_negative
from kafkascan.format.layout import TRANSACTION_INDEX_ENTRY
from kafkascan.format.times import TimeLike, milliseconds_or_now, moment_of
from kafkascan.logs.data_dir_lock import LogClocks
from kafkascan.logs.log_finding import PartitionFilter
from kafkascan.logs.opened_logs import LogsLike, LogView, at_one_moment, selected_logs
from kafkascan.logs.walking.log_walk import ControlInspector, LogSlice, LogWalk
from kafkascan.tables.schema import Schema
from kafkascan.tables.table import NO_PROBLEMS, AnyTable, Column, Problems

TRANSACTION_TIMEOUT_MS = 900_000
"""Default of Kafka's ``transaction.max.timeout.ms``, which ``kafka-transactions`` uses."""


@dataclass(frozen=True, eq=False, repr=False)
class Transactions(AnyTable):
    """
    The transactions of logs; result of `read_transactions`.

    Attributes
    ----------
    logs : list of LogView
    spans : ndarray of TRANSACTION, shape (n,)
        By log; in a log in the order of their markers, then open transactions by first offset.
    last_stable_offsets, end_offsets : ndarrays of int64, shape (logs,)
        The offset at which a read_committed consumer stops if the log is fully replicated, and
        the offset after the last batch; -1 if the log cannot be read to its end.
    now_ms : ndarray of int64, shape (logs,)
        By log: the time relative to which its open transactions are old.
    is_latest_write : ndarray of bool, shape (logs,)
        By log: whether this is the time of its latest write, not a given or the current time.
    timeout_ms : int
        The age at which open transactions count as hanging.
    problems : Problems
        Why transactions of a log are not known, and segments with the same offsets: each offset is
        read once, from the first of them.
    owners : list of dict
        By log with open transactions: the rows of transactional ids at their coordinators in the
        same data dir, by producer id. Empty for other logs.
    """

    schema: ClassVar[Schema] = TRANSACTION_SCHEMA

    logs: list[LogView]
    spans: NDArray[np.void]
    last_stable_offsets: NDArray[np.int64]
    end_offsets: NDArray[np.int64]
    now_ms: NDArray[np.int64]
    is_latest_write: NDArray[np.bool_]
    timeout_ms: int
    problems: Problems = NO_PROBLEMS
    owners: list[dict[int, Owner]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.spans)

    @property
    def age_ms(self) -> NDArray[np.int64]:
        """Milliseconds from the last batch of each transaction to the `now_ms` of its log."""
        age: NDArray[np.int64] = self.now_ms[self.spans["log"]] - self.spans["last_timestamp"]
        return age

    @property
    def is_open(self) -> NDArray[np.bool_]:
        """Mask of the open transactions."""
        result: NDArray[np.bool_] = self.spans["state"] == TransactionState.OPEN
        return result

    @property
    def is_hanging(self) -> NDArray[np.bool_]:
        """
        Mask of the transactions that are open for longer than `timeout_ms`.

        These are the candidates of ``kafka-transactions find-hanging``, without those that the
        coordinator still has as Ongoing within their own timeout: ``__transaction_state`` in the
        same data dir is compared.
        """
        result: NDArray[np.bool_] = self.is_open & (self.age_ms > self.timeout_ms)
        for row in np.flatnonzero(result).tolist():
            result[row] = not self._is_within_timeout(row)
        return result

    def _is_within_timeout(self, row: int) -> bool:
        span = self.spans[row]
        log, now = self.logs[span["log"]].partition, int(self.now_ms[span["log"]])
        return is_within_timeout(self._owner(row), log, span, now)

    def _owner(self, row: int) -> Owner | None:
        """Return the row of the transactional id of an open transaction, if it is known."""
        log, producer_id = int(self.spans["log"][row]), int(self.spans["producer_id"][row])
        is_open = self.spans["state"][row] == TransactionState.OPEN
        return self.owners[log].get(producer_id) if is_open and self.owners else None

    @property
    def hanging_logs(self) -> list[str]:
        """Names of the logs with hanging transactions."""
        return [self.logs[number].name for number in np.unique(self.spans["log"][self.is_hanging])]

    @property
    def hanging_messages(self) -> list[str]:
        """Sentences about the logs with hanging transactions, with the time if it is not now."""
        first: dict[int, int] = {}
        for row in np.flatnonzero(self.is_hanging).tolist():
            first.setdefault(int(self.spans["log"][row]), row)
        return [
            f"{self.logs[log].name}: a transaction hangs{self._clause(log, row)}"
            for log, row in sorted(first.items())
        ]

    def _clause(self, log: int, row: int) -> str:
        now = int(self.now_ms[log])
        latest = at_latest_write(now) if self.is_latest_write[log] else ""
        return latest + coordinator_clause(self._owner(row), now)

    @property
    def is_empty(self) -> NDArray[np.bool_]:
        """
        Which transactions have no batches, only a marker.

        Nothing was written, or the batches are gone: before the log's start without a snapshot
        there, or removed by the cleaner.
        """
        result: NDArray[np.bool_] = is_empty(self.spans)
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
        """Return the transactions of a mask."""
        return replace(self, spans=self.spans[mask])

    def abort_command(self, row: int, *, bootstrap_server: str = "HOST:PORT") -> str | None:
        """
        Return the command that aborts an open transaction; None if it has ended.

        Brokers before 3.0 need ``--producer-id``, ``--producer-epoch`` and
        ``--coordinator-epoch`` instead of ``--start-offset``; all three are columns.
        """
        span = self.spans[row]
        if span["state"] != TransactionState.OPEN:
            return None
        log, first = self.logs[span["log"]], int(span["first_offset"])
        return abort_command(log, first, bootstrap_server=bootstrap_server)

    def to_columns(self) -> dict[str, Column]:
        """Return the values of each column."""
        spans = self.spans
        numbers = spans["log"].tolist()
        partitions = [log.partition for log in self.logs]
        is_open = self.is_open.tolist()
        names = [TransactionState(code).display_name for code in sorted(TransactionState)]
        clocks = np.where(self.is_latest_write[spans["log"]], "latest_write", "now").tolist()
        return {
            "topic": [partitions[number].topic for number in numbers],
            "partition": [partitions[number].partition for number in numbers],
            **{name: spans[name] for name in TRANSACTION_SCHEMA.names if name in _STORED},
            "state": [names[code] for code in spans["state"].tolist()],
            "age_ms": _where(is_open, self.age_ms.tolist()),
            "age_at": np.where(is_open, self.now_ms[spans["log"]], -1),
            "clock": _where(is_open, clocks),
            **self._coordinator_columns(),
            "is_hanging": self.is_hanging,
            "is_empty": self.is_empty,
            "command": [
                self.abort_command(row) if open_ and not self._is_within_timeout(row) else None
                for row, open_ in enumerate(is_open)
            ],
        }

    def _coordinator_columns(self) -> dict[str, Column]:
        found = [self._owner(row) for row in range(len(self))]
        times = self.now_ms[self.spans["log"]].tolist()
        return {
            "transactional_id": [one and one["transactional_id"] for one in found],
            "coordinator_state": [one and one["status"] for one in found],
            "coordinator_age_ms": [
                one and age_at_coordinator(one, now) for one, now in zip(found, times, strict=True)
            ],
            "coordinator_timeout_ms": [one and one["timeout_ms"] for one in found],
        }

    def _summary_lines(self) -> list[str]:
        return [
            f"<Transactions: {len(self):,} in {len(self.logs):,} logs,"
            f" {int(self.is_open.sum()):,} open, {int(self.is_hanging.sum()):,} hanging>"
        ]


_STORED = frozenset(TRANSACTION.names or ()) - {"log", "state"}


def _where(mask: list[bool], values: list[Any]) -> list[Any]:
    return [value if is_set else None for value, is_set in zip(values, mask, strict=True)]


def read_transactions(
    logs: LogsLike,
    /,
    *,
    topics: Collection[str] | None = None,
    partitions: Collection[int] | None = None,
    now_ms: TimeLike | None = None,
    timeout_ms: int = TRANSACTION_TIMEOUT_MS,
    log_start_offset: int | None = None,
    threads: int | None = None,
) -> Transactions:
    """
    Read the transactions of logs from batch headers and markers.

    Parameters
    ----------
    logs : path, LogDir, PartitionDir, bytes-like, Source or SegmentFile
        A data dir, a partition directory, or a tar of them; or a source, which counts as a
        whole log.
    topics : collection of str, optional
        Topics to read of a directory or an archive; by default all.
    partitions : collection of int, optional
        Numbers of the partitions to read; by default all.
    now_ms : int, str, datetime, numpy.datetime64 or pandas.Timestamp, optional
        Milliseconds since the epoch, for the age of open transactions. By default now, if a
        broker has locked the data dir; otherwise, as in a copy, the time of the latest write to
        the log.
    timeout_ms : int, default 15 minutes
        The broker's ``transaction.max.timeout.ms``.
    log_start_offset : int, optional
        First offset of each log. By default, as a broker has it: the base offset of the first
        segment, or the offset in the data dir's ``log-start-offset-checkpoint`` if it is higher
        (``DeleteRecords``). 0 reads everything that is on disk. Transactions that ended before
        it are omitted, and records before it are not counted.
    threads : int, optional
        Segments that are read concurrently; by default one per CPU. Small segments are read
        sequentially.

    Returns
    -------
    Transactions
        Transactions after damage in a log are not known: see `Transactions.problems`.

    Raises
    ------
    NotALogError
        If `logs` is a file of another kind, such as a text or an index.
    As `open_log_dir`.

    Notes
    -----
    A control batch ends the transaction of its producer (KIP-98), by the rules of
    ``ProducerStateManager``. The last stable offset is that of a fully replicated log. Memory:
    98 bytes for each transaction.

    If retention has deleted the start of a log, the producer snapshot at its first segment
    contains the transactions that were open there, with their first offsets; batches before the
    log are not counted (``first_timestamp`` is -1). Without this snapshot, a transaction starts
    with its first batch in the log: its true start is not known, nor are open transactions all
    of whose batches are gone.
    """
    require_not_negative(timeout_ms=timeout_ms)
    given_ms = None if now_ms is None else moment_of(now_ms, "now_ms")

    def read(opened: Sequence[LogView]) -> Transactions:
        walk = LogWalk(opened, threads, ControlInspector)
        collector = TransactionCollector(walk, given_ms)
        for log_slice in walk:
            collector.add(log_slice)
        return collector.transactions(timeout_ms)

    logs = selected_logs(logs, PartitionFilter.of(topics, partitions))
    return at_one_moment(logs, read, log_start_offset)


class TransactionCollector:
    """
    Collects the transactions of logs, slice by slice of a walk, which receives the errors.

    Parameters
    ----------
    walk : LogWalk
    now_ms : int, optional
        See `read_transactions`.
    """

    def __init__(self, walk: LogWalk[Any, Any], now_ms: int | None = None) -> None:
        clocks = LogClocks(now_ms)
        times = [clocks.time_of(log.partition) for log in walk.logs]
        self._walk = walk
        self._is_latest_write = np.array([time is None for time in times], np.bool_)
        now = milliseconds_or_now()
        self._now = np.array([now if time is None else time for time in times], np.int64)
        self._followers: dict[int, TransactionFollower] = {}
        self._found: list[NDArray[np.void]] = []
        self._stable = np.full(len(times), -1, np.int64)
        self._ends = np.full(len(times), -1, np.int64)

    def add(self, log_slice: LogSlice) -> None:
        """Add the next batches."""
        number = log_slice.log
        log, follower = self._walk.logs[number], self._followers.get(number)
        if follower is None:
            follower = self._followers[number] = follower_of(log, number)
        ended = follower.add(log_slice)
        if len(ended):
            self._found.append(ended[ended["marker_offset"] >= log.start_offset])
        if log_slice.is_last:
            self._end(number, self._followers.pop(number))

    def _end(self, number: int, follower: TransactionFollower) -> None:
        self._found.append(follower.open_ones())
        if self._is_latest_write[number]:
            self._now[number] = follower.latest_write_ms(int(self._now[number]))
        if follower.error is not None:
            self._walk.add_error(number, follower.error)
            return
        self._stable[number] = follower.last_stable_offset
        self._ends[number] = follower.end_offset

    def transactions(self, timeout_ms: int = TRANSACTION_TIMEOUT_MS) -> Transactions:
        """Return the transactions, after the end of the walk."""
        spans = join_rows(self._found, TRANSACTION)
        coordinators = Coordinators()
        opened = set(spans["log"][spans["state"] == TransactionState.OPEN].tolist())
        owners = [
            coordinators.beside(log.partition) if number in opened else {}
            for number, log in enumerate(self._walk.logs)
        ]
        return Transactions(
            self._walk.logs,
            spans,
            self._stable,
            self._ends,
            self._now,
            self._is_latest_write,
            timeout_ms,
            self._walk.problems + coordinators.problems,
            owners,
        )
