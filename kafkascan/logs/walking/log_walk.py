"""Walk logs segment by segment, in offset order, on several threads.

Results arrive in the order of each log, so that followers of transactions and producers see
what a broker saw.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, first_reaching, join_rows
from kafkascan.batches.screening import screen
from kafkascan.broker_state.markers import MARKER, NO_CONTROL, ControlRows, read_control_rows
from kafkascan.broker_state.producer_snapshots import parse_producer_snapshot
from kafkascan.format.errors import CorruptBatchError, KafkaScanError, detached
from kafkascan.format.findings import Severity
from kafkascan.io.sources import borrowed_source
from kafkascan.logs.log_chunks import (
    DEFAULT_ROWS,
    EndChecks,
    InspectedChunk,
    LogChunk,
    OpenInspector,
    group_segments,
    inspect_chunks,
    threads_for,
)
from kafkascan.logs.log_problems import LogProblems
from kafkascan.logs.opened_logs import LogView
from kafkascan.logs.segment import SegmentFile
from kafkascan.logs.walking.chunk_checks import ChunkChecks, ScreenedRows
from kafkascan.logs.walking.served_chunks import Screener, ordered_chunks
from kafkascan.records.decoding import iter_decoded
from kafkascan.records.read_options import ReadOptions
from kafkascan.tables.table import Problems


def producers_before(log: LogView) -> NDArray[np.void] | None:
    """
    Return the producers in the snapshot at the first offset of a log; None without a snapshot.

    It is the state after batches that were deleted. Brokers begin with it, too.

    Raises
    ------
    CorruptSnapshotError, OSError
    """
    found = log.segments[0].read_sibling("snapshot") if log.segments else None
    return None if found is None else parse_producer_snapshot(found[1], str(found[0]))


@dataclass(eq=False)
class ScreenedTable(ScreenedRows):
    """
    Result of a `ControlInspector` for one table of batches.

    Attributes
    ----------
    flags : int
        Properties of the batches, as `screen` returns them.
    control : ControlRows
        Contents of its control batches.
    """

    control: ControlRows


class ControlInspector(Screener):
    """Reads control batches while their segment is open; a `SegmentInspector`."""

    def table(self, batches: BatchTable) -> ScreenedTable:
        """Screen the batches, and read the control batches among them."""
        flags = screen(batches)
        return ScreenedTable(flags, read_control_rows(self._source, batches, flags))


Screened = TypeVar("Screened", bound=ScreenedTable)


@dataclass(eq=False)
class SliceStart:
    """
    Where the log's start offset is in a slice.

    Attributes
    ----------
    row : int
        Of the first batch that reaches the start offset; the batches before it are deleted.
    records : int or None
        Records of this batch at or after the start offset, if it also has earlier ones: a broker
        returns the whole batch, and consumers skip its first records.
    error : Exception or None
        The error of reading this batch.
    """

    row: int = 0
    records: int | None = None
    error: Exception | None = None


_AT_FIRST_ROW = SliceStart()


@dataclass(eq=False)
class LogSlice:
    """
    Consecutive batches of a log, after those of the previous slice.

    In batches before the log's start offset, ``records_count`` is the number of their records that
    are not deleted. Batches that end before the end of an earlier segment are omitted; a batch
    that begins before it is counted completely.

    Attributes
    ----------
    log : int
        Index of the log.
    chunk : LogChunk
        Its segments are indices into `LogWalk.segments`.
    base_offset : int
        By the name of the last segment in it; the log does not end before.
    is_last : bool
        Whether it is the last slice of its log.
    flags : int
        Properties of the batches of each table by itself; see `screen`.
    control : ControlRows
        Contents of the control batches of producers.
    start : SliceStart
        The first batch that is not deleted.
    """

    log: int
    chunk: LogChunk
    base_offset: int
    is_last: bool
    flags: int
    control: ControlRows
    start: SliceStart

    @property
    def batches(self) -> BatchTable:
        """The batches, also deleted ones: transactions may begin in them."""
        return self.chunk.batches

    @property
    def served_batches(self) -> BatchTable:
        """The batches that are not deleted."""
        return self.chunk.batches[self.start.row :]

    @property
    def served_control(self) -> ControlRows:
        """The control rows of `served_batches`."""
        return self.control.between(self.start.row, len(self.batches))

    @property
    def error(self) -> Exception | None:
        """The first error of reading the slice."""
        errors = (self.start.error, *(end.error for end in self.chunk.ends))
        return next((error for error in errors if error is not None), None)


@dataclass(eq=False)
class InspectedSlice(LogSlice, Generic[Screened, EndChecks]):
    """A slice with the results of a `SegmentInspector`, which are in `chunk`."""

    chunk: InspectedChunk[Screened, EndChecks]


def _join_flags(tables: Sequence[tuple[int, ScreenedTable]]) -> int:
    return functools.reduce(operator.or_, (table.flags for _, table in tables), 0)


def _join_control(tables: Sequence[tuple[int, ScreenedTable]]) -> ControlRows:
    found = [(row, table.control) for row, table in tables if len(table.control.rows)]
    if not found:
        return NO_CONTROL
    errors: dict[int, CorruptBatchError] = {}
    count = 0
    for _, one in found:
        errors |= {count + at: error for at, error in one.errors.items()}
        count += len(one.rows)
    rows = np.concatenate([row + one.rows for row, one in found])
    markers = join_rows([one.markers for _, one in found], MARKER)
    return ControlRows(rows, markers, errors)


def _count_from(segment: SegmentFile, batch: BatchTable, offset: int) -> int:
    """Return the number of records of a batch from an offset on."""
    options = ReadOptions(columns=("offset",), control="include")
    with borrowed_source(segment.listed()) as source:
        tables = iter_decoded(source, batch, options)
        return sum(int((table["offset"] >= offset).sum()) for table in tables)


class LogWalk(Generic[Screened, EndChecks]):
    """
    Iterates over slices of logs: one log after the other, each from its first batch to its last.

    Parameters
    ----------
    logs : sequence of LogView
    threads : int or None
        Number of threads that read segments; by default one per CPU. Small segments are read
        by one.
    open_inspector : callable
        Returns the inspector of a segment, such as a `ControlInspector`.
    once : bool, default True
        Whether each offset is read once; see `OffsetCursor`. Otherwise, all batches are read, and
        overlaps are not found.
    keep_cache : bool, default True
        Whether to leave in the page cache what was not there before.

    Attributes
    ----------
    logs : list of LogView
    segments : list of (PartitionDir, SegmentFile)
        Of all logs, in order.
    """

    def __init__(
        self,
        logs: Sequence[LogView],
        threads: int | None,
        open_inspector: OpenInspector[Screened, EndChecks],
        *,
        once: bool = True,
        keep_cache: bool = True,
    ) -> None:
        self.segments = [(log.partition, segment) for log in logs for segment in log.segments]
        self.logs = list(logs)
        self._log_of = [number for number, log in enumerate(logs) for _ in log.segments]
        self._firsts = [0, *itertools.accumulate(len(log.segments) for log in logs)]
        self._threads = threads_for(self.segments, threads)
        self._open_inspector = open_inspector
        self._once = once
        self._keep_cache = keep_cache
        self._problems = LogProblems(logs)

    @property
    def problems(self) -> Problems:
        """What the iteration has not read so far, is damaged, or is a guess."""
        return self._problems.found

    def require_complete(self) -> None:
        """Raise the error of the first problem because of which batches are missing."""
        self._problems.require_complete()

    def add_error(self, log: int, error: Exception | None) -> None:
        """Add the error after which a caller does not know the state of a log."""
        if error is not None:
            partition = self.logs[log].partition
            self._problems.add_error(partition, partition.path, error)

    def add_guess(self, log: int, symbol: str, message: str, severity: Severity) -> None:
        """Add what makes the answer about a log a guess."""
        partition = self.logs[log].partition
        self._problems.add_guess(partition, symbol, message, partition.path, severity=severity)

    def __iter__(self) -> Iterator[InspectedSlice[Screened, EndChecks]]:
        def read(job: range, position: int | None) -> Iterator[InspectedChunk[Screened, EndChecks]]:
            return inspect_chunks(
                self.segments,
                job,
                DEFAULT_ROWS,
                self._open_inspector,
                position,
                keep_cache=self._keep_cache,
            )

        jobs = self._jobs()
        chunks = ordered_chunks(self.segments, jobs, read, self._threads, once=self._once)
        before: InspectedSlice[Screened, EndChecks] | None = None
        started = -1  # the last log whose start offset was reached
        checks = ChunkChecks(self.logs, self.segments, self._problems)
        for chunk, overlaps in chunks:
            checks.add(chunk, overlaps)
            current = self._slice(chunk, started)
            self.add_error(current.log, current.start.error)
            if current.start.row < len(chunk):
                started = current.log
            if before is not None:
                before.is_last = before.log != current.log
                yield before
            before = current
        checks.finish()
        if before is not None:
            yield before

    def _slice(
        self,
        chunk: InspectedChunk[Screened, EndChecks],
        started: int,
    ) -> InspectedSlice[Screened, EndChecks]:
        last = chunk.ends[-1].segment if chunk.ends else int(chunk.segment[-1])
        number = self._log_of[last]
        is_whole = number == started or not self.logs[number].has_deleted_offsets
        return InspectedSlice(
            log=number,
            chunk=chunk,
            base_offset=self.segments[last][1].base_offset or 0,
            is_last=True,
            flags=_join_flags(chunk.tables),
            control=_join_control(chunk.tables),
            start=_AT_FIRST_ROW if is_whole else self._delete_before_start(number, chunk),
        )

    def _delete_before_start(self, number: int, chunk: LogChunk) -> SliceStart:
        """Find the log's start offset in a chunk, and correct the counts of earlier records."""
        batches, start_offset = chunk.batches, self.logs[number].start_offset
        row = first_reaching(batches, start_offset)
        batches["records_count"][:row] = 0
        if row == len(batches):
            return SliceStart(row)
        is_wrapper = bool(batches["records_count"][row] < 0)
        if batches["base_offset"][row] >= start_offset and not is_wrapper:
            return SliceStart(row)
        segment = self.segments[int(chunk.segment[row])][1]
        try:
            records = _count_from(segment, batches[row : row + 1], start_offset)
        except (OSError, KafkaScanError) as error:
            return SliceStart(row, error=detached(error))
        if not is_wrapper:
            batches["records_count"][row] = records
        return SliceStart(row, records)

    def _jobs(self) -> Iterator[range]:
        for first, stop in itertools.pairwise(self._firsts):
            yield from group_segments(self.segments, first, stop)
