"""Scan batch headers into tables; records are not read."""

from __future__ import annotations

import operator
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

from kafkascan.batches.arrow import batch_column, display_column, named_column
from kafkascan.batches.batch_schemas import BATCH_SCHEMA
from kafkascan.batches.collecting import collect_in_parts
from kafkascan.batches.columns import (
    COLUMN_NAMES,
    BatchTable,
    as_datetime64,
    column,
    join_tables,
    require_columns,
    size_in_bytes,
)
from kafkascan.batches.resyncing.ranges import Gap, KeptRange
from kafkascan.batches.small_plots import plot_over_time
from kafkascan.batches.summary import summarize
from kafkascan.batches.walks import BatchWalk
from kafkascan.format.arguments import require_integers
from kafkascan.format.errors import CHANGED_WHILE_READ, CorruptBatchError, SourceReadError
from kafkascan.format.layout import (
    BATCH_DTYPE,
    MIN_BATCH_SIZE,
    ScanEnd,
)
from kafkascan.io import result_memory
from kafkascan.io.concurrency import require_threads
from kafkascan.io.sources import Source, SourceLike, borrowed_source
from kafkascan.io.stores.urls import as_object_url
from kafkascan.tables.schema import Schema, require_pyarrow
from kafkascan.tables.table import AnyTable, Column, Problem, Problems, problem_of

if TYPE_CHECKING:
    import pyarrow as pa

OnCorrupt: TypeAlias = Literal["raise", "stop", "resync"]
"""What a scan does at bytes that cannot be a batch: raise, stop, or search the next batch."""


@dataclass(frozen=True, eq=False, repr=False)
class BatchScan(AnyTable):
    """
    All batch headers of a log, and the end of the log.

    ``scan["last_offset"]`` is a column, stored or derived (see `COLUMN_NAMES`). Otherwise the
    scan behaves as its array of rows: ``len(scan)`` is the number of batches, ``scan[0]`` the
    first row, ``scan[mask]`` and ``scan[a:b]`` are tables, and iteration yields rows. pyarrow,
    Polars and DuckDB read the object through Arrow's stream capsule.

    Attributes
    ----------
    batches : ndarray of BATCH_DTYPE, shape (n,)
        In file order. Batches and gaps together cover ``[start, start + valid_bytes)``.
    end : ScanEnd
    valid_bytes : int
        Size of the prefix that consists of complete batches and gaps, counted from `start`.
    trailing_bytes : int
        Bytes from there to the end of the source: a torn or zero tail, or the bytes from a
        corrupt header on. 0 if `end` is CLEAN.
    start : int
        Position at which the scan began.
    source_size : int
        Size of the source in bytes.
    path : str
    error : CorruptBatchError or None
        The damage at ``start + valid_bytes``, if `end` is CORRUPT.
    gaps : list of Gap
        Damaged ranges between rows; only with ``on_corrupt="resync"``.
    doubtful : list of KeptRange
        Ranges of rows that may not belong to the log; only with ``on_corrupt="resync"``. See
        `KeptRange.is_doubtful`, and `is_doubtful` for a mask of the rows.

    Notes
    -----
    ``scan["last_offset"]`` is a stored or derived column, ``scan[mask]`` the rows of a mask. Codecs
    and timestamp types are numbers there: compare them with `CompressionType` and `TimestampType`,
    such as ``scan["compression_type"] == CompressionType.LZ4``. Conversions return their names.
    """

    schema: ClassVar[Schema] = BATCH_SCHEMA

    batches: BatchTable
    end: ScanEnd
    valid_bytes: int
    trailing_bytes: int
    start: int
    source_size: int
    path: str
    error: CorruptBatchError | None = field(default=None)
    gaps: list[Gap] = field(default_factory=list)
    doubtful: list[KeptRange] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.batches)

    @overload
    def __getitem__(self, index: str) -> NDArray[Any]: ...
    @overload
    def __getitem__(self, index: slice | NDArray[Any] | list[int]) -> BatchTable: ...
    @overload
    def __getitem__(self, index: int | np.integer[Any]) -> np.void: ...
    def __getitem__(
        self, index: str | int | np.integer[Any] | slice | NDArray[Any] | list[int]
    ) -> NDArray[Any] | np.void:
        if isinstance(index, str):
            return column(self.batches, index)
        rows: BatchTable | np.void = self.batches[index]
        return rows

    def __iter__(self) -> Iterator[np.void]:
        return iter(self.batches)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.batches, dtype, copy=copy)

    @property
    def position(self) -> int:
        """Position in the source after the last row or gap."""
        return self.start + self.valid_bytes

    @property
    def is_doubtful(self) -> NDArray[np.bool_]:
        """Which rows are in a range of `doubtful`; ``scan[~scan.is_doubtful]`` has the others."""
        from kafkascan.batches.resyncing.kept_ranges import are_doubtful  # as in `_resynced`

        return are_doubtful(self.batches, self.doubtful)

    @property
    def base_timestamps(self) -> NDArray[np.datetime64]:
        """`base_timestamp` as datetime64[ms], UTC; NaT for no timestamp."""
        return as_datetime64(self.batches["base_timestamp"])

    @property
    def max_timestamps(self) -> NDArray[np.datetime64]:
        """`max_timestamp` as datetime64[ms], UTC; NaT for no timestamp."""
        return as_datetime64(self.batches["max_timestamp"])

    @property
    def problems(self) -> Problems:
        """Damage at the end, gaps and doubtful rows. A torn or zero tail is none: see `end`."""
        found = [] if self.error is None else [problem_of(self.error, self.path)]
        found += [
            Problem("GAP", f"{gap.size:,} bytes are skipped: {gap.error.reason}", self.path,
                    position=gap.position)
            for gap in self.gaps
        ]  # fmt: skip
        found += [
            Problem("DOUBTFUL", f"{one.batches:,} batches may not belong to the log", self.path,
                    position=one.position, rows_missing=False)
            for one in self.doubtful
        ]  # fmt: skip
        return Problems(found)

    def to_columns(self) -> dict[str, Column]:
        """Return the values of each column; codecs and timestamp types are Kafka's names."""
        return {name: named_column(self.batches, name) for name in COLUMN_NAMES}

    def arrow_table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return what `to_arrow` returns; codecs and timestamp types are dictionaries."""
        names = list(COLUMN_NAMES if columns is None else columns)
        require_columns(names)
        table = require_pyarrow().table
        return table({name: batch_column(self.batches, name) for name in names})

    def _summary_lines(self) -> list[str]:
        lines = [
            f"<BatchScan {self.path}: {len(self):,} batches, {self.end}>",
            f"  bytes    {self.valid_bytes:,} valid, {self.trailing_bytes:,} trailing",
        ]
        if len(self):
            lines += self._describe_rows()
        if self.gaps:
            lines.append(f"  gaps     {len(self.gaps):,}, {sum(g.size for g in self.gaps):,} bytes")
        if self.doubtful:
            lines.append(f"  doubtful {sum(one.batches for one in self.doubtful):,} batches")
        if self.error is not None:
            lines.append(f"  error    {self.error}")
        return lines

    def _plot(self) -> str:
        times, sizes = self.batches["max_timestamp"], size_in_bytes(self.batches)
        return plot_over_time("Bytes by max_timestamp", times, sizes)

    def _head(self, rows: int) -> dict[str, list[object]]:
        first = self.batches[:rows]
        return {name: display_column(first, name) for name in COLUMN_NAMES}

    def _describe_rows(self) -> list[str]:
        summary = summarize(self.batches)
        records = f"{summary.records:,}"
        if summary.uncounted_batches:
            records += f" and those of {summary.uncounted_batches:,} compressed messages"
        first, last = summary.first_timestamp, summary.max_timestamp
        times = "none" if first is None else " to ".join(map(str, _as_times(first, last)))
        codecs = ", ".join(f"{codec} {count:,}" for codec, count in summary.codecs.items())
        return [
            f"  offsets  {_known(summary.first_offset)} to {summary.last_offset}",
            f"  records  {records}",
            f"  times    {times}",
            f"  codecs   {codecs}",
        ]


def _as_times(*milliseconds: int | None) -> NDArray[np.datetime64]:
    return as_datetime64(np.array(milliseconds, np.int64))


def _known(value: int | None) -> str:
    return "?" if value is None else str(value)


def scan_batches(
    source: SourceLike,
    /,
    *,
    start: int = 0,
    stop: int | None = None,
    on_corrupt: OnCorrupt = "raise",
    threads: int | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> BatchScan:
    """
    Read every batch header of a log.

    Parameters
    ----------
    source : path, bytes-like, Source or SegmentFile
        A log of batches of magic 2, 1 and 0, in any mixture.
    start : int, default 0
        Byte position of the batch at which the scan begins.
    stop : int, optional
        Byte position: batches that start there or later are left out. A batch that starts
        before it is included completely.
    on_corrupt : {"raise", "stop", "resync"}
        What to do at bytes that cannot be a batch: raise, return the batches before them with
        ``end=CORRUPT``, or continue at the next valid batch, whose header, checksum and
        offsets all fit; `gaps` lists the bytes in between, `doubtful` the batches that may be
        old data or the content of a damaged record. A torn or zero tail is not corruption.
    threads : int, optional
        Largest number of threads, for parts of at least 16 MiB of a cached file; by default one,
        which reads it as fast as the table can be written. To scan many files, call this from
        many threads: it releases the GIL.
    storage_options : mapping, optional
        Options of the store, if the source is a URL; see `ObjectUrl`.

    Returns
    -------
    BatchScan

    Raises
    ------
    CorruptBatchError, UnsupportedMagicError
        At bytes that cannot be a batch, if `on_corrupt` is "raise".
    OSError
        If the file cannot be opened: FileNotFoundError, IsADirectoryError, PermissionError, …
    SourceReadError
        If the file was truncated, or its disk failed, during the scan.
    ValueError
        If an argument is out of range.

    Notes
    -----
    The scan frames batches as Kafka does (``FileLogInputStream``,
    ``ByteBufferLogInputStream``) and reads only headers; `verify_crcs` verifies checksums.
    Memory: 69 bytes per batch. Of a file that is not in the page cache, only the pages of headers
    are read, unless batches are small (below 8 KiB on average); positions from the ``.index`` file
    let many reads run concurrently, but do not affect the result.

    With "resync", checksums are verified around damage and where offsets do not follow each
    other. Intact parts are scanned as fast as without it. A batch with a sound header stays a
    row, whatever its records are. The time is linear for any input. docs/salvage.md describes
    how batches of the log are distinguished from copies of batches inside payloads.
    """
    threads = require_threads(threads, default=1)
    with borrowed_source(as_object_url(source, storage_options)) as owner:
        start, stop = _require_range(owner, start, stop, on_corrupt)
        if on_corrupt == "resync":
            return _resynced(owner, start, stop, threads)
        batches, walk = collect_in_parts(owner, start, stop, threads)
        if walk.error is not None and on_corrupt == "raise":
            raise walk.error
        assert walk.end is not None
        return BatchScan(
            batches=batches,
            end=walk.end,
            valid_bytes=walk.position - start,
            trailing_bytes=walk.trailing_bytes,
            start=start,
            source_size=owner.size,
            path=owner.path,
            error=walk.error,
        )


def _resynced(source: Source, start: int, stop: int, threads: int) -> BatchScan:
    # With "resync" only.
    from kafkascan.batches.resyncing.kept_ranges import kept_ranges
    from kafkascan.batches.resyncing.resync import scan_with_resync

    scan = scan_with_resync(source, start, stop, threads)
    tables = scan.batches, scan.damaged, scan.dropped, scan.copies
    kept = kept_ranges(source, start, *tables) if scan.damaged else []
    return BatchScan(
        batches=scan.batches,
        end=scan.end,
        valid_bytes=scan.position - start,
        trailing_bytes=0 if scan.end is ScanEnd.CLEAN else source.size - scan.position,
        start=start,
        source_size=source.size,
        path=source.path,
        error=scan.error,
        gaps=scan.gaps,
        doubtful=[one for one in kept if one.is_doubtful],
    )


class BatchIterator(Iterator[BatchTable]):
    """
    Iterator over tables of batch headers; returned by `iter_batches`.

    Threads may share it: each table is returned once.

    Parameters
    ----------
    walk : BatchWalk
    rows : int
        Rows of each table.
    raises : bool
        Whether damage raises an error, once.
    resources : ExitStack
        Closed after the last table.

    Attributes
    ----------
    path : str
        Of the source.
    source_size : int
        Size of the source in bytes.
    """

    def __init__(self, walk: BatchWalk, rows: int, *, raises: bool, resources: ExitStack) -> None:
        self.path = walk.source.path
        self.source_size = walk.source.size
        self._walk = walk
        self._rows = rows
        self._raises = raises
        self._resources = resources
        self._lock = threading.Lock()

    def __next__(self) -> BatchTable:
        with self._lock:
            return self._next_table()

    def _next_table(self) -> BatchTable:
        if self._walk.end is None:
            table = result_memory.empty(self._rows, BATCH_DTYPE)
            count = self._walk.fill(table)
            if count:
                return table if count == self._rows else join_tables([table[:count]])
        self.close()
        if self._walk.error is not None and self._raises:
            self._raises = False
            raise self._walk.error
        raise StopIteration

    def close(self) -> None:
        """Close the source, if it was opened for this iteration."""
        self._resources.close()

    @property
    def position(self) -> int:
        """Byte position up to which batches were read, as a measure of progress."""
        return self._walk.position

    @property
    def end(self) -> ScanEnd | None:
        """How the log ends; None before the last table."""
        return self._walk.end

    @property
    def error(self) -> CorruptBatchError | None:
        """The damage at `position`, if `end` is CORRUPT."""
        return self._walk.error

    @property
    def valid_bytes(self) -> int:
        """Like `BatchScan.valid_bytes`, up to `position`."""
        return self._walk.valid_bytes

    @property
    def trailing_bytes(self) -> int:
        """Like `BatchScan.trailing_bytes`, once `end` is known."""
        return self._walk.trailing_bytes


def iter_batches(
    source: SourceLike,
    /,
    *,
    rows: int = 65_536,
    start: int = 0,
    stop: int | None = None,
    on_corrupt: OnCorrupt = "raise",
    storage_options: Mapping[str, object] | None = None,
) -> BatchIterator:
    """
    Read the batch headers of a log in tables of bounded size.

    Parameters
    ----------
    source, start, stop, on_corrupt
        See `scan_batches`; "resync" is not supported.
    rows : int, default 65536
        Rows of each table, but for the last one.
    storage_options : mapping, optional
        Options of the store, if the source is a URL; see `ObjectUrl`.

    Returns
    -------
    BatchIterator
        Yields arrays of `BATCH_DTYPE`, which are not reused. When it is exhausted, its
        ``end``, ``trailing_bytes`` and ``error`` describe the end of the log.

    Raises
    ------
    As `scan_batches`. With ``on_corrupt="raise"``, the iterator yields the rows before the
    damage, then raises.
    """
    require_integers(rows=rows)
    if rows < 1:
        raise ValueError("rows must be at least 1")
    if on_corrupt == "resync":  # it needs all of the log
        raise ValueError("on_corrupt='resync' is supported by scan_batches only")
    with ExitStack() as resources:
        owner = resources.enter_context(borrowed_source(as_object_url(source, storage_options)))
        start, stop = _require_range(owner, start, stop, on_corrupt)
        walk = BatchWalk(owner, start, stop)
        raises = on_corrupt == "raise"
        rows = min(rows, (stop - start) // MIN_BATCH_SIZE + 1)
        return BatchIterator(walk, rows, raises=raises, resources=resources.pop_all())


def iter_open_batches(
    source: Source,
    *,
    rows: int = 65_536,
    start: int = 0,
    on_corrupt: OnCorrupt = "raise",
    reads_content: bool = False,
) -> BatchIterator:
    """
    Like `iter_batches`; `reads_content` is as in `BatchWalk`.

    Raises
    ------
    SourceReadError
        If the source ends before `start`, where an earlier read of the file has found a batch.
    """
    if start > source.size:
        reason = f"the file was truncated to {source.size} bytes; position {start} was read before"
        raise SourceReadError(source.path, source.size, reason, CHANGED_WHILE_READ)
    walk = BatchWalk(source, start, source.size, reads_content=reads_content)
    return BatchIterator(walk, rows, raises=on_corrupt == "raise", resources=ExitStack())


def _require_range(
    source: Source, start: int, stop: int | None, on_corrupt: OnCorrupt
) -> tuple[int, int]:
    if on_corrupt not in ("raise", "stop", "resync"):
        raise ValueError(f"on_corrupt must be 'raise', 'stop' or 'resync', not {on_corrupt!r}")
    require_integers(start=start, **({} if stop is None else {"stop": stop}))
    start, stop = operator.index(start), None if stop is None else operator.index(stop)
    if not 0 <= start <= source.size:
        raise ValueError(f"start {start} is not a position in a source of {source.size} bytes")
    if stop is not None and stop < start:
        raise ValueError(f"stop {stop} is less than start {start}")
    return start, source.size if stop is None else min(stop, source.size)
