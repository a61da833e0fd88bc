"""Logs gone through from their first batch to their last, whatever they are given as.

Segments are read by several threads; what is found arrives in the order of each log, so that
whoever follows transactions or producers sees what a broker saw.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan.batch_columns import BatchTable, join_rows
from kafkascan.errors import CorruptBatchError
from kafkascan.log_chunks import (
    ChunkTables,
    LogChunk,
    OpenLook,
    group_segments,
    read_chunks,
    threads_for,
)
from kafkascan.log_dir import (
    LogDir,
    PartitionDir,
    SegmentFile,
    is_log_dir,
    open_log_dir,
    partition_dir,
)
from kafkascan.names import SegmentName, parse_segment_name
from kafkascan.ordered import in_order
from kafkascan.producers import parse_producer_snapshot
from kafkascan.screening import screen
from kafkascan.sources import HasSource, Source, SourceLike, borrowed_source
from kafkascan.transactions import MARKER, NO_CONTROL, ControlRows, read_control_rows

LogsLike: TypeAlias = "LogDir | PartitionDir | SourceLike"
"""A data dir, a tar of one, the folder of a partition (each as an object or a path), or a
source, which is taken as all there is of its log."""


class OneFile:
    """
    A folder of which nothing is known but one source.

    Parameters
    ----------
    source : SourceLike
    path : Path
    """

    def __init__(self, source: SourceLike, path: Path) -> None:
        self._source = source
        self.path = path.parent

    @property
    def parent(self) -> OneFile:
        """The folder around it, of which nothing is known either."""
        return OneFile(self._source, self.path)

    def names(self) -> list[str]:
        """Return nothing: what else lies there is not looked at."""
        return []

    def size(self, name: str) -> int:
        """Return the size of the source, in bytes."""
        with borrowed_source(self._source) as source:
            return source.size

    def source(self, name: str) -> SourceLike:
        """Return the source."""
        return self._source

    def read(self, name: str) -> bytes | None:
        """Return None: there are no other files."""
        return None


@dataclass(frozen=True, eq=False)
class Log:
    """
    A log that is gone through.

    Attributes
    ----------
    partition : PartitionDir
    segments : list of SegmentFile
        In order.
    """

    partition: PartitionDir
    segments: list[SegmentFile]

    @property
    def name(self) -> str:
        """What messages call it: topic and partition, or else its path."""
        one = self.partition
        return str(one.path) if one.topic is None else f"{one.topic}-{one.partition}"


def producers_before(log: Log) -> NDArray[np.void] | None:
    """
    Return what the snapshot at the first offset of a log says of producers, None without one.

    It tells of batches that are gone; brokers begin with it, too.

    Raises
    ------
    CorruptSnapshotError, OSError
    """
    found = log.segments[0].read_sibling("snapshot") if log.segments else None
    return None if found is None else parse_producer_snapshot(found[1], str(found[0]))


def open_logs(logs: LogsLike) -> list[Log]:
    """
    Return the logs that something stands for.

    Raises
    ------
    As `open_log_dir`, and `Source`.
    """
    if isinstance(logs, PartitionDir):
        return [Log(logs, logs.log_segments)]
    if isinstance(logs, (str, os.PathLike)):
        path = Path(logs)
        if not is_log_dir(path):
            return [_one_file(path)]
        logs = open_log_dir(path)
    if isinstance(logs, LogDir):
        found = [Log(one, one.log_segments) for one in logs.partitions if one.is_log]
        return [log for log in found if log.segments]
    return [_one_file(logs)]


def _one_file(source: SourceLike) -> Log:
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        path.stat()  # whether it is there is told at once
        place = partition_dir(path.parent)
    else:
        owner = source.source if isinstance(source, HasSource) else source
        owner = owner if isinstance(owner, Source) else Source(owner)
        path, source = Path(owner.path), owner
        place = partition_dir(path.parent) if owner.is_file else partition_dir("")
    folder = OneFile(source, path)
    name = parse_segment_name(path.name) or SegmentName(None, None, "log", None)
    partition = PartitionDir(path, place.topic, place.partition, place.state, folder)
    return Log(partition, [SegmentFile(path, name, folder)])


@dataclass(frozen=True, eq=False)
class Piece:
    """
    Batches of a log that follow those of the piece before.

    Attributes
    ----------
    log : int
        Index of the log.
    chunk : LogChunk
        Its segments count through all logs: see `LogWalk.segments`.
    base_offset : int
        By the name of the last segment in it: its log does not end before that.
    is_last : bool
        Whether it is the last one of its log.
    """

    log: int
    chunk: LogChunk
    base_offset: int
    is_last: bool

    @property
    def batches(self) -> BatchTable:
        """The batches."""
        return self.chunk.batches

    @cached_property
    def flags(self) -> int:
        """What there is at all in the tables of the piece, each taken for itself; see `screen`."""
        flags = 0
        for _, look in self.chunk.looks:
            flags |= look.flags
        return flags

    @cached_property
    def control(self) -> ControlRows:
        """What the control batches of producers among them say."""
        found = [(row, look.control) for row, look in self.chunk.looks if len(look.control.rows)]
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


@dataclass(frozen=True, eq=False)
class ControlLook:
    """
    What is found out of each table of batches.

    Attributes
    ----------
    flags : int
        What there is among them at all, as `screen` tells it.
    control : ControlRows
        What its control batches say.
    """

    flags: int
    control: ControlRows


class ControlLooks:
    """Reads control batches while their segment is open; a `SegmentLook`."""

    def __init__(self, segment: SegmentFile) -> None:
        pass

    def open(self, source: Source) -> None:
        """Take the segment's bytes."""
        self._source = source

    def table(self, batches: BatchTable) -> ControlLook:
        """Read the control batches among some."""
        flags = screen(batches)
        return ControlLook(flags, read_control_rows(self._source, batches, flags))

    def end(self, *, is_whole: bool) -> Any:
        """Look at nothing."""


class LogWalk:
    """
    Goes through logs, one after the other, each from its first batch to its last.

    Parameters
    ----------
    logs : sequence of Log
    threads : int, optional
        Segments that are read at once; by default one per CPU. Small ones are read in turn.
    open_look : callable, optional
        What else is to be found out while a segment is open. What it gives of each table must
        have the attributes of a `ControlLook`.
    tables : ChunkTables, optional
        Room for chunks that several walks share.

    Attributes
    ----------
    segments : list of (PartitionDir, SegmentFile)
        Of all logs, in order.
    """

    def __init__(
        self,
        logs: Sequence[Log],
        threads: int | None,
        open_look: OpenLook = ControlLooks,
        tables: ChunkTables | None = None,
    ) -> None:
        self.segments = [(log.partition, segment) for log in logs for segment in log.segments]
        self._log_of = [number for number, log in enumerate(logs) for _ in log.segments]
        self._firsts = [0, *itertools.accumulate(len(log.segments) for log in logs)]
        self._threads = threads_for(self.segments, threads)
        self._open_look = open_look
        self._tables = ChunkTables() if tables is None else tables

    def __iter__(self) -> Iterator[Piece]:
        def read(job: range) -> Iterator[LogChunk]:
            return read_chunks(self.segments, job, self._tables, self._open_look)

        before: Piece | None = None
        for chunk in in_order(self._jobs(), read, self._threads):
            last = chunk.ends[-1].segment if chunk.ends else int(chunk.segment[-1])
            log = self._log_of[last]
            if before is not None:
                yield replace(before, is_last=before.log != log)
            base_offset = self.segments[last][1].name.base_offset
            before = Piece(log, chunk, 0 if base_offset is None else base_offset, is_last=True)
        if before is not None:
            yield before

    def _jobs(self) -> Iterator[range]:
        for first, stop in itertools.pairwise(self._firsts):
            yield from group_segments(self.segments, first, stop)
