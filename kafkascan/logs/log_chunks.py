"""Read batch headers of many segments in bounded chunks.

Small segments share a chunk, large segments take several. An inspector can read more of each
segment while its file is open.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, join_tables, offset_after
from kafkascan.batches.walks import BatchWalk
from kafkascan.format.errors import KafkaScanError, detached
from kafkascan.format.layout import BATCH_DTYPE, MIN_BATCH_SIZE, ScanEnd
from kafkascan.io import result_memory
from kafkascan.io.concurrency import are_small, group_by_bytes, require_threads
from kafkascan.io.page_cache import DropBehind
from kafkascan.io.sources import READ_AT_ONCE, Source, borrowed_source
from kafkascan.logs.log_dir import PartitionDir, attempts_to_open
from kafkascan.logs.segment import SegmentFile, position_after
from kafkascan.logs.walking.batch_offsets import SegmentOffsets
from kafkascan.logs.walking.log_reader import SegmentReading

# Segments and bytes of one job: starting a job costs more than reading a small segment.
_SEGMENTS_PER_JOB = 64
_BYTES_PER_JOB = 1 << 26
# Number of segments whose sizes are sampled to choose the number of threads.
_SAMPLED = 64
DEFAULT_ROWS = 1 << 16
"""Rows of a chunk."""
# Rows of the first table of a segment, and the size above which a mostly empty table is copied.
_FIRST_ROWS = 4096
_COPIED_ABOVE = 1 << 15

Segments: TypeAlias = list[tuple[PartitionDir, SegmentFile]]
"""Segments to read, by their indices."""

Checks = TypeVar("Checks")
EndChecks = TypeVar("EndChecks")
_Checks_co = TypeVar("_Checks_co", covariant=True)
_EndChecks_co = TypeVar("_EndChecks_co", covariant=True)


class SegmentEnd(NamedTuple):
    """
    How a segment ends.

    Attributes
    ----------
    segment : int
        Index into `LogBatches.segments`.
    batches : int
        Number of batches that were read of the segment.
    end : ScanEnd or None
        None if the segment cannot be read.
    size, valid_bytes, trailing_bytes : int
        See `BatchScan`.
    error : Exception or None
        What is wrong at `valid_bytes`, or why the segment cannot be read.
    end_offset : int or None
        The offset after the last batch; None without batches.
    misplaced : (int, int) or None
        See `SegmentOffsets`: of the batches that are not read.
    is_gone : bool
        Whether a broker has deleted the segment and its offsets since it was listed.
    """

    segment: int
    batches: int
    end: ScanEnd | None
    size: int
    valid_bytes: int
    trailing_bytes: int
    error: Exception | None = None
    end_offset: int | None = None
    misplaced: tuple[int, int] | None = None
    is_gone: bool = False

    @property
    def position(self) -> int:
        """Position after the last batch: a segment is read from its beginning."""
        return self.valid_bytes


@dataclass(eq=False)
class LogChunk:
    """
    Rows of a table of batches: of one partition, and of one segment or several.

    Attributes
    ----------
    batches : ndarray of BATCH_DTYPE, shape (n,)
    segment : ndarray of int32, shape (n,)
        Index into `LogBatches.segments`; ascending.
    ends : list of SegmentEnd
        Ends of the segments that end in this chunk.
    """

    batches: BatchTable
    segment: NDArray[np.int32]
    ends: list[SegmentEnd]

    def __len__(self) -> int:
        return len(self.batches)


@dataclass(eq=False)
class InspectedChunk(LogChunk, Generic[Checks, EndChecks]):
    """
    A chunk with the results of a `SegmentInspector`.

    Attributes
    ----------
    tables : list of (int, Checks)
        First row and result of each table that was inspected.
    end_checks : list of EndChecks or None
        Result at the end of each segment in `ends`; None if it could not be opened.
    """

    tables: list[tuple[int, Checks]]
    end_checks: list[EndChecks | None]


class SegmentInspector(Protocol[_Checks_co, _EndChecks_co]):
    """
    Reads more of a segment while its file is open, in the thread that reads its headers.

    An inspector is created before the segment is opened, so that it can read side files before
    the log: a broker writes the log first.
    """

    @property
    def reads_content(self) -> bool:
        """Whether it reads the batches of each table, not only some of them."""

    @property
    def reads_side_files(self) -> bool:
        """Whether it reads side files, which may have more by now than the segment as listed."""

    def open(self, source: Source) -> None:
        """Take the source of the segment; it is open until `end`."""

    def table(self, batches: BatchTable) -> _Checks_co:
        """Inspect the next batches, one or more."""

    def end(self, *, is_whole: bool) -> _EndChecks_co:
        """
        Inspect the segment after its last batch.

        Parameters
        ----------
        is_whole : bool
            Whether the segment was read to its end and contains no damage; a torn or zero tail
            is none.
        """


OpenInspector: TypeAlias = Callable[[SegmentFile], SegmentInspector[Checks, EndChecks]]


def group_segments(
    segments: Sequence[tuple[PartitionDir, SegmentFile]], first: int = 0, stop: int | None = None
) -> Iterator[range]:
    """Yield ranges of adjacent segments of one partition, each large enough for a job."""
    indices = range(first, len(segments) if stop is None else stop)
    for _, found in itertools.groupby(indices, lambda index: segments[index][0]):
        of_one = list(found)
        if len(of_one) == 1:
            yield range(of_one[0], of_one[0] + 1)
            continue
        sizes = [segments[index][1].current_size() for index in of_one]
        for group in group_by_bytes(sizes, _BYTES_PER_JOB, most=_SEGMENTS_PER_JOB, exceed=True):
            yield range(of_one[0] + group.start, of_one[0] + group.stop)


def threads_for(segments: Sequence[tuple[PartitionDir, SegmentFile]], threads: int | None) -> int:
    """Return the number of threads that reading segments profits from: 1 if they are small."""
    asked = require_threads(threads)
    if asked == 1:
        return 1
    sample = segments[:: max(1, len(segments) // _SAMPLED)]
    return 1 if are_small([segment.current_size() for _, segment in sample]) else asked


def end_of(batches: BatchTable) -> int | None:
    """Return the offset after the last batch of a table; None if it is empty."""
    return offset_after(batches) if len(batches) else None


def inspect_chunks(
    segments: Segments,
    job: Iterable[int],
    rows: int,
    open_inspector: OpenInspector[Checks, EndChecks],
    position: int | None = None,
    *,
    keep_cache: bool = True,
) -> Iterator[InspectedChunk[Checks, EndChecks]]:
    """
    Yield the batches of segments of one partition in chunks, with the results of inspectors.

    Parameters
    ----------
    segments : list of (PartitionDir, SegmentFile)
        Those that were replaced since they were listed are exchanged.
    job : iterable of int
        Indices of the segments to read, of one partition.
    rows : int
        Of a chunk, at most.
    open_inspector : callable
        Returns the inspector of a segment.
    position : int, optional
        The end of the segments before them: each segment is read from the end of the earlier ones
        on. By default, all batches are read.
    keep_cache : bool, default True
        Whether to leave in the page cache what was not there before.
    """
    pending: _PendingChunk[Checks, EndChecks] = _PendingChunk()
    for index in job:
        read = _read_segment(segments, index, rows, open_inspector, position, keep_cache)
        for part in read:
            if pending.count and pending.count + len(part.batches) > rows:
                yield pending.take()
            pending.add(index, part)
            if part.end is not None and position is not None:
                base_offset = segments[index][1].base_offset or 0
                position = position_after(position, base_offset, part.end.end_offset)
    if pending.parts or pending.ends:
        yield pending.take()


class _Part(NamedTuple, Generic[Checks, EndChecks]):
    """One table of a segment; the last of a segment has its end."""

    batches: BatchTable
    checks: Checks | None = None
    end: SegmentEnd | None = None
    end_checks: EndChecks | None = None


@dataclass
class _PendingChunk(Generic[Checks, EndChecks]):
    """Parts that become one chunk."""

    parts: list[tuple[int, BatchTable]] = field(default_factory=list)
    tables: list[tuple[int, Checks]] = field(default_factory=list)
    ends: list[SegmentEnd] = field(default_factory=list)
    end_checks: list[EndChecks | None] = field(default_factory=list)
    count: int = 0

    def add(self, index: int, part: _Part[Checks, EndChecks]) -> None:
        if len(part.batches):
            self.parts.append((index, part.batches))
            if part.checks is not None:
                self.tables.append((self.count, part.checks))
            self.count += len(part.batches)
        if part.end is not None:
            self.ends.append(part.end)
            self.end_checks.append(part.end_checks)

    def take(self) -> InspectedChunk[Checks, EndChecks]:
        """Return the chunk, and begin the next one."""
        parts, self.parts = self.parts, []
        tables, self.tables = self.tables, []
        ends, self.ends = self.ends, []
        end_checks, self.end_checks = self.end_checks, []
        self.count = 0
        if len(parts) == 1:
            index, joined = parts[0]
            segment = np.full(len(joined), index, np.int32)
        else:
            batches = [table for _, table in parts]
            indices = np.array([index for index, _ in parts], np.int32)
            joined = join_tables(batches)
            segment = np.repeat(indices, [len(table) for table in batches])
        return InspectedChunk(joined, segment, ends, tables, end_checks)


def _read_segment(
    segments: Segments,
    index: int,
    rows: int,
    open_inspector: OpenInspector[Checks, EndChecks],
    position: int | None,
    keep_cache: bool,
) -> Iterator[_Part[Checks, EndChecks]]:
    """
    Yield the tables of a segment, without the batches at its start that end before an offset.

    A segment that has the offsets now, instead of the listed one, takes its place in `segments`.
    """
    partition, listed = segments[index]
    for segment in attempts_to_open(listed, by_name=position is None):
        reading = SegmentReading(segment, _offsets_to_read(segment, listed, position))
        with reading:
            inspector = open_inspector(segment)
            place = segment.as_source() if inspector.reads_side_files else segment.listed()
            borrowed = borrowed_source(place, read_below=READ_AT_ONCE)
        if not reading.is_gone:
            break
    if reading.error is not None:
        error = None if reading.is_gone else reading.error
        end = SegmentEnd(index, 0, None, 0, 0, 0, error, is_gone=reading.is_gone)
        yield _Part(np.empty(0, BATCH_DTYPE), end=end)
        return
    if segment is not listed:
        segments[index] = partition, segment
    source = borrowed.__enter__()
    behind = None if keep_cache else DropBehind(source)
    try:
        inspector.open(source)
        walk = BatchWalk(source, 0, source.size, reads_content=inspector.reads_content)
        yield from _parts(walk, index, rows, inspector, reading.offsets)
    finally:
        if behind is not None:
            behind.drop()
        borrowed.__exit__()


def _offsets_to_read(
    segment: SegmentFile, listed: SegmentFile, position: int | None
) -> SegmentOffsets:
    """Return the offsets to read of a segment that has those of a listed one."""
    if position is None:
        return SegmentOffsets(segment)
    is_replaced = segment is not listed
    first = max(position, listed.base_offset or 0) if is_replaced else position
    return SegmentOffsets(segment, first)


def _parts(
    walk: BatchWalk,
    index: int,
    rows: int,
    inspector: SegmentInspector[Checks, EndChecks],
    offsets: SegmentOffsets,
) -> Iterator[_Part[Checks, EndChecks]]:
    # A small segment gets a small table.
    first_rows = min(rows, _FIRST_ROWS, walk.source.size // MIN_BATCH_SIZE + 1)
    room, total = np.empty(first_rows, BATCH_DTYPE), 0
    while True:
        batches, checks, error = _next_table(walk, room, inspector, offsets)
        total += len(batches)
        if walk.end is None and error is None:
            yield _Part(batches, checks)
            del batches, room  # so that its memory can be used again
            room = result_memory.empty(rows, BATCH_DTYPE)
            continue
        end = SegmentEnd(
            segment=index,
            batches=total,
            end=None if error is not None else walk.end,
            size=walk.source.size,
            valid_bytes=walk.valid_bytes,
            trailing_bytes=0 if error is not None else walk.trailing_bytes,
            error=error or walk.error,
            end_offset=offsets.reached,
            misplaced=offsets.misplaced,
        )
        end_checks = inspector.end(is_whole=not (error or walk.error))
        yield _Part(batches, checks, end, end_checks)
        return


def _next_table(
    walk: BatchWalk,
    room: BatchTable,
    inspector: SegmentInspector[Checks, EndChecks],
    offsets: SegmentOffsets,
) -> tuple[BatchTable, Checks | None, Exception | None]:
    """Return the next batches that were not read before; after an error none were reached."""
    reached = offsets.reached
    try:
        batches = offsets.unread(room[: walk.fill(room)])
        # A few rows must not keep the memory of a large table alive.
        is_waste = 2 * len(batches) < len(room) and room.nbytes > _COPIED_ABOVE
        batches = join_tables([batches]) if is_waste else batches
        return batches, inspector.table(batches) if len(batches) else None, None
    except (OSError, KafkaScanError) as error:
        offsets.reached = reached
        return room[:0], None, detached(error)
