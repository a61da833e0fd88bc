"""The batches of whole data dirs in one table, chunk by chunk."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan import arrow
from kafkascan.batch_columns import COLUMN_NAMES, BatchTable, join_tables, require_columns
from kafkascan.errors import KafkaScanError, SourceInUseError, detached
from kafkascan.layout import BATCH_DTYPE, ScanEnd
from kafkascan.log_dir import LogDir, PartitionDir, SegmentFile, open_log_dir
from kafkascan.ordered import in_order
from kafkascan.sources import Source
from kafkascan.walks import BatchWalk

if TYPE_CHECKING:
    import pyarrow as pa

PLACE_COLUMNS = ("topic", "partition", "segment")
"""Columns of `LogBatches` that say where a batch lies."""

Include: TypeAlias = Literal["log", "all"]
LogDirLike: TypeAlias = "str | os.PathLike[str] | LogDir"

# Segments that one job goes through: handing a job over costs more than a small one.
_SEGMENTS_AT_ONCE = 64
_BYTES_AT_ONCE = 1 << 26
# Rows that a segment is looked at with first.
_FIRST_ROWS = 4096


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


class LogBatches:
    """
    The batches of a data dir in one table; what `scan_log_dir` returns.

    Iterating gives `LogChunk`s, in the order of partitions, segments and positions, whatever
    the number of threads. pyarrow, Polars and DuckDB take the object as it is, through Arrow's
    stream capsule. Each time it is read anew.

    Attributes
    ----------
    segments : list of (PartitionDir, SegmentFile)
        What is read, in order.
    column_names : tuple of str
        Of the Arrow stream: `PLACE_COLUMNS`, and those of batches that were asked for.
    ends : list of SegmentEnd
        How segments end, as far as the last iteration has come.
    """

    def __init__(
        self,
        log_dir: LogDir,
        columns: Sequence[str] | None,
        rows: int,
        threads: int | None,
        include: Include,
    ) -> None:
        if include not in ("log", "all"):
            raise ValueError(f"include must be 'log' or 'all', not {include!r}")
        if rows < 1:
            raise ValueError("rows must be at least 1")
        names = COLUMN_NAMES if columns is None else tuple(dict.fromkeys(columns))
        require_columns([name for name in names if name not in PLACE_COLUMNS])
        listed = log_dir.segments() if include == "all" else log_dir.log_segments()
        self.segments: list[tuple[PartitionDir, SegmentFile]] = list(listed)
        self.column_names = names if columns is not None else (*PLACE_COLUMNS, *names)
        self.ends: list[SegmentEnd] = []
        self._rows = rows
        self._threads = threads

    def __iter__(self) -> Iterator[LogChunk]:
        self.ends = []
        jobs = group_segments(self.segments)
        for chunk in in_order(jobs, self._read, self._threads):
            self.ends += chunk.ends
            yield chunk

    def _read(self, job: range) -> Iterator[LogChunk]:
        return read_chunks(self.segments, job, self._rows)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Arrow's PyCapsule stream: the table, chunk by chunk."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_reader(self) -> pa.RecordBatchReader:
        """
        Return the table as a stream of Arrow's record batches.

        Timestamps become ``timestamp[ms, tz=UTC]``; topics, names of segments, codecs and
        timestamp types dictionaries, the same in each record batch.

        Returns
        -------
        pyarrow.RecordBatchReader
        """
        pa = arrow.require_pyarrow()
        places = _Places(self.segments)
        nothing = LogChunk(np.empty(0, BATCH_DTYPE), np.empty(0, np.int32), [])
        schema = places.to_arrow(nothing, self.column_names).schema
        chunks = (places.to_arrow(chunk, self.column_names) for chunk in self if len(chunk))
        return pa.RecordBatchReader.from_batches(schema, chunks)

    def to_arrow(self) -> pa.Table:
        """Return all of it at once, as Arrow's table."""
        return self.to_reader().read_all()

    def __repr__(self) -> str:
        partitions = len({partition.path for partition, _ in self.segments})
        return f"<LogBatches: {len(self.segments):,} segments of {partitions:,} partitions>"


def scan_log_dir(
    log_dir: LogDirLike,
    /,
    *,
    columns: Sequence[str] | None = None,
    rows: int = 65_536,
    threads: int | None = None,
    include: Include = "log",
) -> LogBatches:
    """
    Read the batch headers of a whole data dir, as one table.

    Parameters
    ----------
    log_dir : path or LogDir
        As of `open_log_dir`: a data dir, the folder of a partition, or a tar of them.
    columns : sequence of str, optional
        Of the Arrow stream: ``topic``, ``partition``, ``segment`` and `COLUMN_NAMES`; all of
        them by default.
    rows : int, default 65536
        At most, of each chunk.
    threads : int, optional
        Segments that are read at once; by default one per CPU.
    include : {"log", "all"}
        The segments that a broker would read, or also those on their way out or in, of
        partitions that are being dropped, and KRaft's snapshots.

    Returns
    -------
    LogBatches

    Raises
    ------
    As `open_log_dir`. A segment that is damaged, or that cannot be read, ends where it does;
    `LogBatches.ends` tells.

    Notes
    -----
    Memory does not depend on how many segments there are, but for a few hundred bytes of each:
    a few chunks for each thread are held.
    """
    opened = log_dir if isinstance(log_dir, LogDir) else open_log_dir(log_dir)
    return LogBatches(opened, columns, rows, threads, include)


class SegmentLook(Protocol):
    """Something else to be found out about a segment while it is open, in the same thread."""

    def table(self, batches: BatchTable) -> Any:
        """Look at the batches that follow; the result goes into `LogChunk.looks`."""

    def end(self, end: SegmentEnd) -> Any:
        """Look at the end; the result goes into `SegmentEnd.look`."""


OpenLook: TypeAlias = Callable[[SegmentFile, Source], SegmentLook]


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


def _size(segment: SegmentFile) -> int:
    try:
        return segment.size
    except OSError:  # a broker may have deleted it since it was listed
        return 0


def read_chunks(
    segments: Sequence[tuple[PartitionDir, SegmentFile]],
    job: Iterable[int],
    rows: int,
    open_look: OpenLook | None = None,
) -> Iterator[LogChunk]:
    """Yield the batches of some segments of a partition, in chunks of at most so many rows."""
    pending = _Pending()
    for index in job:
        for table, look, end in _read_segment(segments[index][1], index, rows, open_look):
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
    segment: SegmentFile, index: int, rows: int, open_look: OpenLook | None
) -> Iterator[_Part]:
    """Yield the batches of a segment; with the last of them, how it ends."""
    try:
        borrowed = segment.borrow()
    except (OSError, KafkaScanError) as error:
        yield np.empty(0, BATCH_DTYPE), None, SegmentEnd(index, 0, None, 0, 0, 0, detached(error))
        return
    source = borrowed.__enter__()
    try:
        look = None if open_look is None else open_look(segment, source)
        yield from _parts(BatchWalk(source, 0, source.size), index, rows, look)
    finally:
        # What still views the bytes keeps them, and lets go of them later.
        with contextlib.suppress(SourceInUseError):
            borrowed.__exit__()


def _parts(walk: BatchWalk, index: int, rows: int, look: SegmentLook | None) -> Iterator[_Part]:
    room, total = min(rows, _FIRST_ROWS), 0
    while True:
        table, found, error = _next_table(walk, room, look)
        total += len(table)
        if walk.end is None and error is None:
            yield table, found, None
            room = rows
            continue
        end = SegmentEnd(
            segment=index,
            batches=total,
            end=None if error is not None else walk.end,
            size=walk.source.size,
            valid_bytes=walk.valid_bytes,
            trailing_bytes=0 if error is not None else walk.trailing_bytes,
            error=error or walk.error,
        )
        if look is not None:
            end = replace(end, look=look.end(end))
        yield table, found, end
        return


def _next_table(
    walk: BatchWalk, room: int, look: SegmentLook | None
) -> tuple[BatchTable, Any, Exception | None]:
    table = np.empty(room, BATCH_DTYPE)
    try:
        count = walk.fill(table)
        # The memory of a large table would be kept for as long as a few rows of it.
        table = table[:count] if 2 * count > room else join_tables([table[:count]])
        return table, look.table(table) if look is not None and count else None, None
    except (OSError, KafkaScanError) as error:
        return table[:0], None, detached(error)


class _Places:
    """Topics and names of segments as dictionaries that all record batches share."""

    def __init__(self, segments: Sequence[tuple[PartitionDir, SegmentFile]]) -> None:
        pa = arrow.require_pyarrow()
        topics = [partition.topic for partition, _ in segments]
        names = [segment.path.name for _, segment in segments]
        self._topics, self._topic = _coded(topics)
        self._names, self._name = _coded(names)
        numbers = [partition.partition for partition, _ in segments]
        self._partition = pa.array(numbers, pa.int32())

    def to_arrow(self, chunk: LogChunk, names: Sequence[str]) -> pa.RecordBatch:
        pa = arrow.require_pyarrow()
        index = pa.array(chunk.segment)
        columns: dict[str, Any] = {}
        for name in names:
            if name == "partition":
                columns[name] = self._partition.take(index)
            elif name == "topic":
                columns[name] = _dictionary(self._topic.take(index), self._topics)
            elif name == "segment":
                columns[name] = _dictionary(self._name.take(index), self._names)
            else:
                columns[name] = arrow.batch_column(chunk.batches, name, is_stream=True)
        return pa.record_batch(columns)


def _coded(values: Sequence[str | None]) -> tuple[pa.Array, pa.Array]:
    """Return the different values, and for each value which of them it is."""
    pa = arrow.require_pyarrow()
    words = [value for value in dict.fromkeys(values) if value is not None]
    codes: dict[str | None, int | None] = {word: code for code, word in enumerate(words)}
    codes[None] = None
    return pa.array(words, pa.string()), pa.array([codes[value] for value in values], pa.int32())


def _dictionary(codes: pa.Array, words: pa.Array) -> pa.Array:
    return arrow.require_pyarrow().DictionaryArray.from_arrays(codes, words)
