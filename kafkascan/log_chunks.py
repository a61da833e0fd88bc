"""Batches of many segments, read in chunks: small segments share one, large ones take several."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan.batch_columns import BatchTable, join_tables
from kafkascan.errors import KafkaScanError, SourceInUseError, detached
from kafkascan.layout import BATCH_DTYPE, ScanEnd
from kafkascan.log_dir import PartitionDir, SegmentFile
from kafkascan.ordered import thread_count
from kafkascan.sources import Source
from kafkascan.walks import BatchWalk

# Segments that one job goes through: handing a job over costs more than a small one.
_SEGMENTS_AT_ONCE = 64
_BYTES_AT_ONCE = 1 << 26
# Segments below this size, on the average of so many, are bound by the interpreter.
_SMALL, _SAMPLED = 1 << 20, 64
# Rows of a chunk, unless somebody asks for others.
ROWS = 1 << 16
# Rows that a segment is looked at with first, and bytes that may be kept for fewer of them.
_FIRST_ROWS = 4096
_LITTLE = 1 << 15
# References to a table that nobody but its list has, as `sys.getrefcount` counts them.
_OWN_REFERENCES = 2
_TABLES_KEPT = 64
# A message of magic 0 without key and value.
_SMALLEST_BATCH = 26


@dataclass(frozen=True)
class SegmentEnd:
    """
    How a segment ends.

    Attributes
    ----------
    segment : int
        Index into `LogBatches.segments`.
    batches : int
    end : ScanEnd or None
        None if it cannot be read.
    size, valid_bytes, trailing_bytes : int
        As of `BatchScan`.
    error : Exception or None
        What is wrong at `valid_bytes`, or why the segment cannot be read.
    look : object
        What was found besides when all of the segment had been read.
    """

    segment: int
    batches: int
    end: ScanEnd | None
    size: int
    valid_bytes: int
    trailing_bytes: int
    error: Exception | None = None
    look: Any = None


@dataclass(frozen=True, eq=False)
class LogChunk:
    """
    Some rows of the table: batches of one partition, of one segment or of several.

    Attributes
    ----------
    batches : ndarray of BATCH_DTYPE, shape (n,)
    segment : ndarray of int32, shape (n,)
        Index into `LogBatches.segments`; ascending.
    ends : list of SegmentEnd
        Of the segments that end in this chunk.
    looks : list of (int, object)
        What was found besides while the segment was open, and the row from which on.
    """

    batches: BatchTable
    segment: NDArray[np.int32]
    ends: list[SegmentEnd]
    looks: list[tuple[int, Any]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.batches)


class SegmentLook(Protocol):
    """
    Something else to be found out about a segment while it is open, in the same thread.

    It is made before the segment is opened: what stands beside a log that is written to is to
    be read before the log, of which it speaks.
    """

    def open(self, source: Source) -> None:
        """Take the segment's bytes, which are open until the end."""

    def table(self, batches: BatchTable) -> Any:
        """Look at the batches that follow; the result goes into `LogChunk.looks`."""

    def end(self, *, is_whole: bool) -> Any:
        """
        Look at the end; the result goes into `SegmentEnd.look`.

        Whether the segment was read to its end, and nothing but a torn batch is left there.
        """


OpenLook: TypeAlias = Callable[[SegmentFile], SegmentLook]


def group_segments(
    segments: Sequence[tuple[PartitionDir, SegmentFile]], first: int = 0, stop: int | None = None
) -> Iterator[range]:
    """Yield neighbours of one partition that are worth a job of their own."""
    start, size = first, 0
    stop = len(segments) if stop is None else stop
    for index in range(first, stop):
        is_other = segments[index][0] is not segments[start][0]
        if index > start and (
            is_other or index - start >= _SEGMENTS_AT_ONCE or size > _BYTES_AT_ONCE
        ):
            yield range(start, index)
            start, size = index, 0
        size += _size(segments[index][1])
    if start < stop:
        yield range(start, stop)


def threads_for(segments: Sequence[tuple[PartitionDir, SegmentFile]], threads: int | None) -> int:
    """Return how many threads serve: with small segments, they would only wait for each other."""
    asked = thread_count(threads)
    if asked == 1:
        return 1
    some = segments[:: max(1, len(segments) // _SAMPLED)]
    size = sum(_size(segment) for _, segment in some)
    return asked if size >= _SMALL * len(some) else 1


def _size(segment: SegmentFile) -> int:
    try:
        return segment.size
    except OSError:  # a broker may have deleted it since it was listed
        return 0


class ChunkTables:
    """
    Room for the rows of chunks, which is used again when nobody looks at them any more.

    The system hands out fresh memory page by page, and clears each: 5 to 10 ns a batch.

    Parameters
    ----------
    rows : int
        Of each table, and of a chunk at most.
    """

    def __init__(self, rows: int = ROWS) -> None:
        self.rows = rows
        self._tables: list[BatchTable] = []
        self._lock = threading.Lock()

    def take(self) -> BatchTable:
        """Return a table that nobody else has, nor a view of it."""
        with self._lock:
            for number in range(len(self._tables)):
                if sys.getrefcount(self._tables[number]) == _OWN_REFERENCES:
                    return self._tables[number]
            table = np.empty(self.rows, BATCH_DTYPE)
            if len(self._tables) < _TABLES_KEPT:
                self._tables.append(table)
            return table


def read_chunks(
    segments: Sequence[tuple[PartitionDir, SegmentFile]],
    job: Iterable[int],
    tables: ChunkTables,
    open_look: OpenLook | None = None,
) -> Iterator[LogChunk]:
    """Yield the batches of some segments of a partition, in chunks of at most so many rows."""
    pending, rows = _Pending(), tables.rows
    for index in job:
        for table, look, end in _read_segment(segments[index][1], index, tables, open_look):
            if pending.count and pending.count + len(table) > rows:
                yield pending.take()
            pending.add(index, table, look, end)
    if pending.tables or pending.ends:
        yield pending.take()


class _Pending:
    """What waits to become a chunk."""

    def __init__(self) -> None:
        self.tables: list[BatchTable] = []
        self.indices: list[int] = []
        self.looks: list[tuple[int, Any]] = []
        self.ends: list[SegmentEnd] = []
        self.count = 0

    def add(self, index: int, table: BatchTable, look: Any, end: SegmentEnd | None) -> None:
        if len(table):
            self.tables.append(table)
            self.indices.append(index)
            self.looks.append((self.count, look))
            self.count += len(table)
        if end is not None:
            self.ends.append(end)

    def take(self) -> LogChunk:
        tables, indices = self.tables, np.array(self.indices, np.int32)
        chunk = LogChunk(
            tables[0] if len(tables) == 1 else join_tables(tables),
            np.repeat(indices, [len(table) for table in tables]),
            self.ends,
            self.looks,
        )
        self.__init__()  # type: ignore[misc]
        return chunk


_Part: TypeAlias = "tuple[BatchTable, Any, SegmentEnd | None]"


def _read_segment(
    segment: SegmentFile, index: int, tables: ChunkTables, open_look: OpenLook | None
) -> Iterator[_Part]:
    """Yield the batches of a segment; with the last of them, how it ends."""
    try:
        look = None if open_look is None else open_look(segment)
        borrowed = segment.borrow()
    except (OSError, KafkaScanError) as error:
        yield np.empty(0, BATCH_DTYPE), None, SegmentEnd(index, 0, None, 0, 0, 0, detached(error))
        return
    source = borrowed.__enter__()
    try:
        if look is not None:
            look.open(source)
        yield from _parts(BatchWalk(source, 0, source.size), index, tables, look)
    finally:
        # What still views the bytes keeps them, and lets go of them later.
        with contextlib.suppress(SourceInUseError):
            borrowed.__exit__()


def _parts(
    walk: BatchWalk, index: int, tables: ChunkTables, look: SegmentLook | None
) -> Iterator[_Part]:
    # Little room is made for a small segment.
    rows = min(tables.rows, _FIRST_ROWS, walk.source.size // _SMALLEST_BATCH + 1)
    room, total = np.empty(rows, BATCH_DTYPE), 0
    while True:
        table, found, error = _next_table(walk, room, look)
        total += len(table)
        if walk.end is None and error is None:
            yield table, found, None
            del table, room
            room = tables.take()
            continue
        end = SegmentEnd(
            segment=index,
            batches=total,
            end=None if error is not None else walk.end,
            size=walk.source.size,
            valid_bytes=walk.valid_bytes,
            trailing_bytes=0 if error is not None else walk.trailing_bytes,
            error=error or walk.error,
            look=None if look is None else look.end(is_whole=not (error or walk.error)),
        )
        yield table, found, end
        return


def _next_table(
    walk: BatchWalk, room: BatchTable, look: SegmentLook | None
) -> tuple[BatchTable, Any, Exception | None]:
    table = room[:0]
    try:
        count = walk.fill(room)
        # The memory of a large table would be kept for as long as a few rows of it.
        is_waste = 2 * count < len(room) and room.nbytes > _LITTLE
        table = join_tables([room[:count]]) if is_waste else room[:count]
        return table, look.table(table) if look is not None and count else None, None
    except (OSError, KafkaScanError) as error:
        return room[:0], None, detached(error)
