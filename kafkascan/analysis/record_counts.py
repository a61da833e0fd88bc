"""Count records from batch headers, decoding only where headers do not suffice."""

from __future__ import annotations

import bisect
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kafkascan.analysis.analysis_schemas import COUNT_SCHEMA
from kafkascan.analysis.transaction_follower import follower_of
from kafkascan.batches.columns import BatchTable, is_control, is_transactional, size_in_bytes
from kafkascan.batches.scan import iter_batches
from kafkascan.batches.screening import CONTROL, FORMATS, TRANSACTIONS
from kafkascan.batches.summary import is_uncounted
from kafkascan.broker_state.markers import TRANSACTION, TransactionState
from kafkascan.format.errors import KafkaScanError
from kafkascan.format.findings import Severity
from kafkascan.io.sources import borrowed_source
from kafkascan.io.stores.urls import as_object_url
from kafkascan.logs.log_finding import PartitionFilter
from kafkascan.logs.opened_logs import LogsLike, LogView, at_one_moment, selected_logs
from kafkascan.logs.read_committed import CommittedView
from kafkascan.logs.walking.log_walk import ControlInspector, InspectedSlice, LogWalk, ScreenedTable
from kafkascan.records.decoding import iter_decoded
from kafkascan.records.read_options import ReadOptions
from kafkascan.tables.schema import Schema
from kafkascan.tables.table import NO_PROBLEMS, AnyTable, Column, Problems

COUNTS = np.dtype([(field.name, "=i8") for field in COUNT_SCHEMA.fields[2:-1]])
"""The record counts of a log: the columns of `COUNT_SCHEMA` that are counts."""


@dataclass(frozen=True, eq=False, repr=False)
class RecordCounts(AnyTable):
    """
    The record counts of logs, a row per log; result of `count_records`.

    Attributes
    ----------
    logs : list of LogView
    counts : ndarray of COUNTS, shape (logs,)
    problems : Problems
        What is not counted, and segments with the same offsets. Of these, each offset is counted
        once, from the first of them; a broker may serve it from the other one.
    """

    schema: ClassVar[Schema] = COUNT_SCHEMA

    logs: list[LogView]
    counts: NDArray[np.void]
    problems: Problems = NO_PROBLEMS

    def __len__(self) -> int:
        return len(self.logs)

    @property
    def is_exact(self) -> NDArray[np.bool_]:
        """Mask of the logs that were counted completely."""
        troubled = {
            (one.topic, one.partition) for one in self.problems if one.severity is not Severity.NOTE
        }
        partitions = [(log.partition.topic, log.partition.partition) for log in self.logs]
        is_known = np.array([one not in troubled for one in partitions], np.bool_)
        exact: NDArray[np.bool_] = is_known & (self.counts["uncounted_batches"] == 0)
        return exact

    def to_columns(self) -> dict[str, Column]:
        """Return the values of each column."""
        return {
            "topic": [log.partition.topic for log in self.logs],
            "partition": [log.partition.partition for log in self.logs],
            **{name: self.counts[name] for name in COUNTS.names or ()},
            "is_exact": self.is_exact,
        }

    def _summary_lines(self) -> list[str]:
        rest = "" if self.is_exact.all() else ", not all counted"
        return [f"<RecordCounts: {self.counts['records'].sum():,} records{rest}>"]


def count_records(
    logs: LogsLike,
    /,
    *,
    topics: Collection[str] | None = None,
    partitions: Collection[int] | None = None,
    deep: bool = False,
    log_start_offset: int | None = None,
    threads: int | None = None,
    keep_cache: bool = False,
    storage_options: Mapping[str, object] | None = None,
) -> RecordCounts:
    """
    Count the records of logs from batch headers and markers.

    Parameters
    ----------
    logs : path, LogDir, PartitionDir, bytes-like, Source or SegmentFile
        See `read_transactions`.
    topics : collection of str, optional
        Topics to read of a directory or an archive; by default all.
    partitions : collection of int, optional
        Numbers of the partitions to read; by default all.
    deep : bool, default False
        Also decompress compressed messages of magic 0 and 1, whose headers do not contain the
        number of records.
    log_start_offset : int, optional
        First offset of each log; see `read_transactions`. Records before it are not counted.
    threads : int, optional
        Segments that are read concurrently; by default one per CPU. Small segments are read
        sequentially.
    keep_cache : bool, default False
        Leave everything in the page cache; see `audit`.
    storage_options : mapping, optional
        Options of the store, for a URL; see `ObjectUrl`.

    Returns
    -------
    RecordCounts

    Raises
    ------
    NotALogError
        If `logs` is a file of another kind, such as a text or an index.
    As `open_log_dir`.

    Notes
    -----
    The header of a batch of magic 2 contains its number of records, also after compaction
    (``MemoryRecords.filterTo``). Markers contain which transactions were aborted.
    """
    logs = selected_logs(
        as_object_url(logs, storage_options), PartitionFilter.of(topics, partitions)
    )
    return at_one_moment(
        logs, lambda views: _count(views, deep, threads, keep_cache), log_start_offset
    )


def _count(
    opened: Sequence[LogView], deep: bool, threads: int | None, keep_cache: bool
) -> RecordCounts:
    counts = np.zeros(len(opened), COUNTS)
    for name in ("start_offset", "end_offset", "last_stable_offset"):
        counts[name] = -1
    counters: dict[int, _Counter] = {}
    open_inspector = DeepInspector if deep else ControlInspector
    walk = LogWalk(opened, threads, open_inspector, keep_cache=keep_cache)
    for log_slice in walk:
        number = log_slice.log
        counter = counters.get(number)
        if counter is None:
            counter = _Counter(opened[number], number, counts[number], is_deep=deep)
            counters[number] = counter
        counter.add(log_slice)
        if log_slice.is_last:
            walk.add_error(number, counter.follower.error)
            try:
                counter.finish()
            except (OSError, KafkaScanError) as error:
                walk.add_error(number, error)
            uncounted = int(counts["uncounted_batches"][number])
            if uncounted:
                message = (
                    f"the records of {uncounted:,} compressed messages are not counted: count with"
                    " --deep (in Python deep=True), which decompresses them"
                )
                walk.add_guess(number, "NOT_DECODED", message, Severity.WARNING)
            del counters[number]
    return RecordCounts(list(opened), counts, walk.problems)


class _Counter:
    """Counts the records of one log into a row of `COUNTS`."""

    def __init__(self, log: LogView, number: int, row: np.void, *, is_deep: bool) -> None:
        self.follower = follower_of(log, number)
        self._is_deep = is_deep
        self._log = log
        self._row = row
        # Aborted transactions that may reach beyond the last stable offset.
        self._aborted = np.empty(0, TRANSACTION)

    def add(self, log_slice: InspectedSlice[ScreenedTable, None]) -> None:
        """Add the next slice of the log."""
        row, batches = self._row, log_slice.batches
        ended = self.follower.add(log_slice)
        if self.follower.error is not None and not len(batches):
            return
        is_aborted = ended["state"] == TransactionState.ABORTED
        aborted = ended[is_aborted & (ended["batches"] > 0)]
        row["aborted_records"] += aborted["records"].sum()
        stable = self.follower.last_stable_offset
        known = np.concatenate([self._aborted, aborted])
        self._aborted = known[known["marker_offset"] >= stable]
        served = log_slice.served_batches
        row["segments"] += len(log_slice.chunk.ends)
        row["size_in_bytes"] += sum(end.valid_bytes for end in log_slice.chunk.ends)
        row["size_in_bytes"] -= size_in_bytes(batches[: log_slice.start.row]).sum()
        row["batches"] += len(served)
        if row["start_offset"] < 0:
            row["start_offset"] = self._start_offset(batches)
        inner = 0
        if log_slice.flags & FORMATS:
            if self._is_deep:
                inner = inner_records(log_slice)
            else:
                row["uncounted_batches"] += is_uncounted(served).sum()
        # Each pass over all rows takes a good part of the time to read them.
        control = is_control(batches) if log_slice.flags & CONTROL else np.False_
        of_control = records_in(batches, control) if log_slice.flags & CONTROL else 0
        row["records"] += records_in(batches, np.True_) - of_control + inner
        row["control_records"] += of_control
        if log_slice.flags & TRANSACTIONS:
            row["transactional_records"] += records_in(
                batches, is_transactional(batches) & ~control
            )

    def _start_offset(self, batches: BatchTable) -> int:
        if self._log.segments[0].name.base_offset is not None:
            return self._log.start_offset
        return int(batches["base_offset"][0]) if len(batches) else -1

    def finish(self) -> None:
        """Complete the counts after the last slice."""
        row, follower = self._row, self.follower
        row["segments"] -= len(self._log.segments) - len(self._log.served_segments)
        row["end_offset"] = follower.end_offset
        row["last_stable_offset"] = follower.last_stable_offset
        row["open_records"] = follower.open_ones()["records"].sum()
        row["committed_records"] = row["records"] - row["aborted_records"]
        # An open transaction may have begun before the log does, and have no records in it.
        if follower.last_stable_offset <= self._log.start_offset:
            row["committed_records"] = 0
        elif follower.last_stable_offset < follower.end_offset:
            row["committed_records"] -= self._count_beyond(follower.last_stable_offset)
        there = int(row["records"]) + int(row["control_records"])
        is_known = row["uncounted_batches"] == 0 and row["start_offset"] >= 0
        missing = int(row["end_offset"]) - int(row["start_offset"]) - there
        row["missing_offsets"] = missing if is_known and missing >= 0 else -1

    def _count_beyond(self, stable: int) -> int:
        """Count the records from an offset on that are not of aborted transactions."""
        end_offset = self.follower.end_offset  # not what was appended since
        view = CommittedView.of_aborted(self._aborted, end_offset, marker_column="marker_offset")
        total = 0
        bases = [one.name.base_offset or 0 for one in self._log.segments]
        first = max(0, bisect.bisect_right(bases, stable) - 1)
        for segment in self._log.segments[first:]:
            with borrowed_source(segment.listed()) as source:
                for table in iter_batches(source, on_corrupt="stop"):
                    is_beyond = (table["base_offset"] >= stable) & ~is_control(table)
                    total += records_in(table, is_beyond & view.mask(table))
        return total


def records_in(batches: BatchTable, mask: NDArray[np.bool_] | np.bool) -> int:
    """Return the number of records of some batches according to their headers."""
    counts = batches["records_count"]
    return int(counts.sum(dtype=np.int64, where=mask & (counts > 0)))


@dataclass(eq=False)
class DeepTable(ScreenedTable):
    """
    Results of the base class, and the records in compressed messages.

    Attributes
    ----------
    wrappers : ndarray of int64
        Rows of the compressed messages.
    inner_records : ndarray of int64
        The number of records in each.
    """

    wrappers: NDArray[np.int64]
    inner_records: NDArray[np.int64]


def inner_records(log_slice: InspectedSlice[ScreenedTable, None]) -> int:
    """Return the number of records in compressed messages that a `DeepInspector` counted."""
    total, start = 0, log_slice.start
    for first, table in log_slice.chunk.tables:
        assert isinstance(table, DeepTable)
        rows, counts = first + table.wrappers, table.inner_records
        if start.records is not None:
            counts[rows == start.row] = start.records
        total += int(counts[rows >= start.row].sum())
    return total


class DeepInspector(ControlInspector):
    """Also counts the records in compressed messages of magic 0 and 1; a `SegmentInspector`."""

    def table(self, batches: BatchTable) -> DeepTable:
        """Read the control batches of a table, and decompress its wrappers."""
        rows = np.flatnonzero(is_uncounted(batches))
        inner = np.zeros(len(rows), np.int64)
        if len(rows):
            wrappers = batches.take(rows)
            for found in iter_decoded(self._source, wrappers, ReadOptions(columns=("offset",))):
                positions = found.batches["position"][found["batch"]]
                at = np.searchsorted(wrappers["position"], positions)
                inner += np.bincount(at, minlength=len(rows))
        screened = super().table(batches)
        return DeepTable(screened.flags, screened.control, rows, inner)
