"""Walk logs segment by segment, in offset order, on several threads.

Results arrive in the order of each log, so that followers of transactions and producers see
what a broker saw.
"""

from __future__ import annotations

import functools
import itertools
import operator
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, join_rows
from kafkascan.batches.screening import screen
from kafkascan.batches.walks import require_log
from kafkascan.broker_state.markers import MARKER, NO_CONTROL, ControlRows, read_control_rows
from kafkascan.broker_state.producer_snapshots import parse_producer_snapshot
from kafkascan.format.errors import CorruptBatchError
from kafkascan.format.file_names import parse_segment_name
from kafkascan.io.concurrency import map_ordered
from kafkascan.io.sources import HasSource, Source, SourceLike, borrowed_source
from kafkascan.logs.log_chunks import (
    ChunkTables,
    EndChecks,
    InspectedChunk,
    LogChunk,
    OpenInspector,
    group_segments,
    inspect_chunks,
    threads_for,
)
from kafkascan.logs.log_dir import (
    LogDir,
    PartitionDir,
    SegmentKinds,
    is_log_dir,
    no_logs,
    open_log_dir,
    partition_dir,
    select_segments,
)
from kafkascan.logs.segment import SegmentFile, segment_file

LogsLike: TypeAlias = "LogDir | PartitionDir | SourceLike"
"""A data dir, a tar of one, the folder of a partition (each as an object or a path), or a
source, which is read as a log of one segment."""


class SingleFileFolder:
    """
    A `Folder` with a single known source.

    Parameters
    ----------
    source : SourceLike
    path : Path
        Of the source.
    """

    def __init__(self, source: SourceLike, path: Path) -> None:
        self._source = source
        self.path = path.parent

    @property
    def parent(self) -> SingleFileFolder:
        """The parent folder, whose files are not known either."""
        return SingleFileFolder(self._source, self.path)

    def names(self) -> list[str]:
        """Return an empty list: other files of the folder are not read."""
        return []

    def size(self, name: str) -> int:
        """Return the size of the source, in bytes."""
        with borrowed_source(self._source) as source:
            return source.size

    def source(self, name: str) -> SourceLike:
        """Return the source."""
        return self._source

    def read(self, name: str) -> bytes | None:
        """Return None: other files are not read."""
        return None


@dataclass(frozen=True, eq=False)
class Log:
    """
    A log: a partition, and those of its segments that are read.

    Attributes
    ----------
    partition : PartitionDir
    segments : list of SegmentFile
        In offset order.
    """

    partition: PartitionDir
    segments: list[SegmentFile]

    @property
    def name(self) -> str:
        """The log's name in messages: topic and partition, or else its path."""
        one = self.partition
        return str(one.path) if one.topic is None else f"{one.topic}-{one.partition}"


def producers_before(log: Log) -> NDArray[np.void] | None:
    """
    Return the producers in the snapshot at the first offset of a log; None without a snapshot.

    It is the state after batches that were deleted. Brokers begin with it, too.

    Raises
    ------
    CorruptSnapshotError, OSError
    """
    found = log.segments[0].read_sibling("snapshot") if log.segments else None
    return None if found is None else parse_producer_snapshot(found[1], str(found[0]))


def open_logs(logs: LogsLike, *, damaged: bool = False) -> list[Log]:
    """
    Return the logs of a data dir, a partition or a source.

    Only what a broker reads is returned; see `select_segments`. A partition that is given as
    such, or by its path, is read even if its log is being dropped.

    Parameters
    ----------
    logs : LogsLike
    damaged : bool, default False
        Accept a source whose beginning is that of another kind of file.

    Raises
    ------
    NoLogsError
        If there are no live segments.
    NotALogError
        If a source that is not named as a segment is known to be another kind of file.
    As `open_log_dir`, and `Source`.
    """
    if isinstance(logs, PartitionDir):
        logs = LogDir(logs.path, [logs])
    if isinstance(logs, (str, os.PathLike)):
        path = Path(logs)
        if not is_log_dir(path):
            return [_one_file(path, damaged)]
        logs = open_log_dir(path)
    if isinstance(logs, LogDir):
        found = live_logs(logs)
        if not found:
            raise no_logs(logs.path, logs.partitions)
        return found
    return [_one_file(logs, damaged)]


def live_logs(log_dir: LogDir) -> list[Log]:
    """Return the logs of a data dir or a partition that have live segments, as `open_logs`."""
    kinds = log_dir.kinds(SegmentKinds.LOG)
    found = [Log(one, select_segments(one, kinds)) for one in log_dir.partitions]
    return [log for log in found if log.segments]


def _one_file(source: SourceLike, damaged: bool) -> Log:
    if isinstance(source, HasSource):
        source = source.as_source()
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        path.stat()  # raises if the file is missing
        partition = partition_dir(path.parent)
    else:
        owner = source if isinstance(source, Source) else Source(source)
        path, source = Path(owner.path), owner
        partition = partition_dir(path.parent if owner.is_file else "")
    if not damaged and parse_segment_name(path.name) is None:
        with borrowed_source(source) as opened:
            require_log(opened)
    folder = SingleFileFolder(source, path)
    partition = replace(partition, path=path, folder=folder)
    return Log(partition, [segment_file(path, folder)])


@dataclass(frozen=True, eq=False)
class ScreenedTable:
    """
    Result of a `ControlInspector` for one table of batches.

    Attributes
    ----------
    flags : int
        Properties of the batches, as `screen` returns them.
    control : ControlRows
        Contents of its control batches.
    """

    flags: int
    control: ControlRows


class ControlInspector:
    """Reads control batches while their segment is open; a `SegmentInspector`."""

    def __init__(self, segment: SegmentFile) -> None:
        pass

    def open(self, source: Source) -> None:
        """Take the source of the segment."""
        self._source = source

    def table(self, batches: BatchTable) -> ScreenedTable:
        """Screen the batches, and read the control batches among them."""
        flags = screen(batches)
        return ScreenedTable(flags, read_control_rows(self._source, batches, flags))

    def end(self, *, is_whole: bool) -> None:
        """Do nothing."""


Screened = TypeVar("Screened", bound=ScreenedTable)


@dataclass(frozen=True, eq=False)
class LogSlice:
    """
    Consecutive batches of a log, after those of the previous slice.

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
    """

    log: int
    chunk: LogChunk
    base_offset: int
    is_last: bool
    flags: int
    control: ControlRows

    @property
    def batches(self) -> BatchTable:
        """The batches."""
        return self.chunk.batches


@dataclass(frozen=True, eq=False)
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


class LogWalk(Generic[Screened, EndChecks]):
    """
    Iterates over slices of logs: one log after the other, each from its first batch to its last.

    Parameters
    ----------
    logs : sequence of Log
    threads : int or None
        Number of threads that read segments; by default one per CPU. Small segments are read
        by one.
    open_inspector : callable
        Returns the inspector of a segment, such as a `ControlInspector`.
    tables : ChunkTables, optional
        Memory for chunks, which several walks can share.

    Attributes
    ----------
    segments : list of (PartitionDir, SegmentFile)
        Of all logs, in order.
    """

    def __init__(
        self,
        logs: Sequence[Log],
        threads: int | None,
        open_inspector: OpenInspector[Screened, EndChecks],
        tables: ChunkTables | None = None,
    ) -> None:
        self.segments = [(log.partition, segment) for log in logs for segment in log.segments]
        self._log_of = [number for number, log in enumerate(logs) for _ in log.segments]
        self._firsts = [0, *itertools.accumulate(len(log.segments) for log in logs)]
        self._threads = threads_for(self.segments, threads)
        self._open_inspector = open_inspector
        self._tables = ChunkTables() if tables is None else tables

    def __iter__(self) -> Iterator[InspectedSlice[Screened, EndChecks]]:
        def read(job: range) -> Iterator[InspectedChunk[Screened, EndChecks]]:
            return inspect_chunks(self.segments, job, self._tables, self._open_inspector)

        before: InspectedSlice[Screened, EndChecks] | None = None
        for chunk in map_ordered(self._jobs(), read, self._threads):
            current = self._slice(chunk)
            if before is not None:
                yield replace(before, is_last=before.log != current.log)
            before = current
        if before is not None:
            yield before

    def _slice(
        self, chunk: InspectedChunk[Screened, EndChecks]
    ) -> InspectedSlice[Screened, EndChecks]:
        last = chunk.ends[-1].segment if chunk.ends else int(chunk.segment[-1])
        return InspectedSlice(
            log=self._log_of[last],
            chunk=chunk,
            base_offset=self.segments[last][1].base_offset or 0,
            is_last=True,
            flags=_join_flags(chunk.tables),
            control=_join_control(chunk.tables),
        )

    def _jobs(self) -> Iterator[range]:
        for first, stop in itertools.pairwise(self._firsts):
            yield from group_segments(self.segments, first, stop)
