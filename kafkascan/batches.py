"""Bytes to batch tables: the header scan.

Only batch headers are read, never records.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan import arrow
from kafkascan.batch_columns import (
    COLUMN_NAMES,
    BatchTable,
    as_datetime64,
    column,
    join_tables,
    require_columns,
)
from kafkascan.errors import CorruptBatchError
from kafkascan.layout import (
    BATCH_DTYPE,
    ScanEnd,
)
from kafkascan.parallel import collect_in_parts
from kafkascan.resync import Gap, ResyncScan
from kafkascan.sources import Source, SourceLike, borrowed_source
from kafkascan.summary import summarize
from kafkascan.walks import BatchWalk

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

OnCorrupt: TypeAlias = Literal["raise", "stop", "resync"]


@dataclass(frozen=True, eq=False, repr=False)
class BatchScan:
    """
    Every batch header of a log, and how the log ends.

    `scan["last_offset"]` is a column, stored or derived (see `COLUMN_NAMES`);
    ``len(scan)`` is the number of batches. pyarrow, Polars and DuckDB take the object as
    it is, through Arrow's stream capsule.

    Attributes
    ----------
    batches : ndarray of BATCH_DTYPE, shape (n,)
        In file order; they tile ``[start, start + valid_bytes)``, together with the gaps.
    end : ScanEnd
    valid_bytes : int
        Size of the prefix that is made of whole batches and gaps, counted from `start`.
    trailing_bytes : int
        Bytes from there to the end of the source: a torn or zero tail, or what a corrupt
        header made unreadable. 0 if `end` is CLEAN.
    start : int
        Position at which the scan began.
    source_size : int
        In bytes.
    path : str
    error : CorruptBatchError or None
        What is wrong at ``start + valid_bytes``, if `end` is CORRUPT.
    gaps : list of Gap
        What no row covers in between; only ``on_corrupt="resync"`` leaves any.
    """

    batches: BatchTable
    end: ScanEnd
    valid_bytes: int
    trailing_bytes: int
    start: int
    source_size: int
    path: str
    error: CorruptBatchError | None = field(default=None)
    gaps: list[Gap] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return column(self.batches, name)

    @property
    def base_timestamps(self) -> NDArray[np.datetime64]:
        """`base_timestamp` as datetime64[ms], UTC; NaT where there is none."""
        return as_datetime64(self.batches["base_timestamp"])

    @property
    def max_timestamps(self) -> NDArray[np.datetime64]:
        """`max_timestamp` as datetime64[ms], UTC; NaT where there is none."""
        return as_datetime64(self.batches["max_timestamp"])

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """
        Return the table as Arrow's.

        Timestamps become ``timestamp[ms, tz=UTC]``, null where Kafka says -1; codecs and
        timestamp types become dictionaries of Kafka's names.

        Parameters
        ----------
        columns : sequence of str, optional
            Of `COLUMN_NAMES`; all of them by default.

        Returns
        -------
        pyarrow.Table
        """
        names = list(COLUMN_NAMES if columns is None else columns)
        require_columns(names)
        table = arrow.require_pyarrow().table
        return table({name: arrow.batch_column(self.batches, name) for name in names})

    def to_pandas(self, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """
        Return the table as a DataFrame, with the types of `to_arrow`.

        Parameters
        ----------
        columns : sequence of str, optional
            Of `COLUMN_NAMES`; all of them by default.
        """
        return self.to_arrow(columns).to_pandas()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Arrow's PyCapsule stream of `to_arrow`."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        lines = [
            f"<BatchScan {self.path}: {len(self):,} batches, {self.end}>",
            f"  bytes    {self.valid_bytes:,} valid, {self.trailing_bytes:,} trailing",
        ]
        if len(self):
            lines += self._describe_rows()
        if self.gaps:
            lines.append(f"  gaps     {len(self.gaps):,}, {sum(g.size for g in self.gaps):,} bytes")
        if self.error is not None:
            lines.append(f"  error    {self.error}")
        return "\n".join(lines)

    def _describe_rows(self) -> list[str]:
        summary = summarize(self.batches)
        records = f"{summary.records:,}"
        if summary.uncounted_batches:
            records += f" and those of {summary.uncounted_batches:,} compressed messages"
        times = self.max_timestamps
        times = times[~np.isnat(times)]
        codecs = ", ".join(f"{codec} {count:,}" for codec, count in summary.codecs.items())
        return [
            f"  offsets  {_known(summary.first_offset)} to {summary.last_offset}",
            f"  records  {records}",
            f"  times    {f'{times.min()} to {times.max()}' if len(times) else 'none'}",
            f"  codecs   {codecs}",
        ]


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
) -> BatchScan:
    """
    Read every batch header of a log.

    Parameters
    ----------
    source : path, bytes-like, Source or Segment
        Batches of magic 2, 1 and 0, in any mixture.
    start : int, default 0
        Byte position of a batch: where the scan begins.
    stop : int, optional
        Byte position: batches that start there or later are left out. A batch that
        starts before it is whole.
    on_corrupt : {"raise", "stop", "resync"}
        What to do at bytes that cannot be a batch: raise, return what stands before them with
        ``end=CORRUPT``, or go on at the next batch that is true, by its header, its checksum
        and its offsets; what lies in between is in `gaps`. A torn or a zero tail is not
        corruption.
    threads : int, optional
        At most this many threads, for parts of at least 16 MiB; by default one, which
        reads a warm file as fast as the table can be written. Cold files may gain from
        more. To scan many files, call this from many threads: it gives up the GIL.

    Returns
    -------
    BatchScan

    Raises
    ------
    CorruptBatchError, UnsupportedMagicError
        At bytes that cannot be a batch, if `on_corrupt` is "raise".
    SourceReadError
        If the file was truncated, or its disk failed, during the scan.
    ValueError
        If an argument is out of range.

    Notes
    -----
    The walk frames batches as Kafka does (``FileLogInputStream``,
    ``ByteBufferLogInputStream``) and reads nothing but headers; checksums are
    `verify_crcs`'s. Memory: 69 bytes per batch.

    With "resync", checksums are looked at where offsets do not follow each other, and around
    damage. Intact parts are scanned as fast as ever; a batch whose header is sound stays a row,
    whatever its records are; on any bytes the time is linear. How it is decided what belongs
    to the log is told in docs/salvage.md.
    """
    _require_threads(threads)
    with borrowed_source(source) as owner:
        start, stop = _require_range(owner, start, stop, on_corrupt)
        if on_corrupt == "resync":
            return _resynced(owner, start, stop, threads or 1)
        batches, walk = collect_in_parts(owner, start, stop, threads or 1)
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
    scan = ResyncScan(source, start, stop, threads)
    assert scan.end is not None
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
    )


class BatchIterator(Iterator[BatchTable]):
    """
    Tables of batch headers, one after the other; what `iter_batches` returns.

    Attributes
    ----------
    source_size : int
        In bytes.
    """

    def __init__(
        self, source: SourceLike, rows: int, start: int, stop: int | None, on_corrupt: OnCorrupt
    ) -> None:
        self._borrowed = borrowed_source(source)
        owner = self._borrowed.__enter__()
        self._walk = BatchWalk(owner, *_require_range(owner, start, stop, on_corrupt))
        self._rows = rows
        self._raises = on_corrupt == "raise"
        self._lock = threading.Lock()
        self.source_size = owner.size

    def __next__(self) -> BatchTable:
        with self._lock:
            return self._next_table()

    def _next_table(self) -> BatchTable:
        if self._walk.end is None:
            table = np.empty(self._rows, BATCH_DTYPE)
            count = self._walk.fill(table)
            if count:
                return table if count == self._rows else join_tables([table[:count]])
        self.close()
        if self._walk.error is not None and self._raises:
            self._raises = False  # once, as a generator would
            raise self._walk.error
        raise StopIteration

    def close(self) -> None:
        """Give back the source, if it was opened for this iteration."""
        self._borrowed.__exit__()

    @property
    def position(self) -> int:
        """Byte position up to which batches were read; a measure of progress."""
        return self._walk.position

    @property
    def end(self) -> ScanEnd | None:
        """How the log ends; None while that is not known yet."""
        return self._walk.end

    @property
    def error(self) -> CorruptBatchError | None:
        """What is wrong at `position`, if `end` is CORRUPT."""
        return self._walk.error

    @property
    def valid_bytes(self) -> int:
        """As of `BatchScan`, up to here."""
        return self._walk.valid_bytes

    @property
    def trailing_bytes(self) -> int:
        """As of `BatchScan`; it says something once `end` is known."""
        return self._walk.trailing_bytes


def iter_batches(
    source: SourceLike,
    /,
    *,
    rows: int = 65_536,
    start: int = 0,
    stop: int | None = None,
    on_corrupt: OnCorrupt = "raise",
) -> BatchIterator:
    """
    Read the batch headers of a log in tables of bounded size.

    Parameters
    ----------
    source, start, stop, on_corrupt
        As in `scan_batches`, but for "resync".
    rows : int, default 65536
        Rows of each table; the last one may have fewer.

    Returns
    -------
    BatchIterator
        An iterator over arrays of `BATCH_DTYPE`; each one is the caller's to keep. When
        it is exhausted it knows how the log ends: ``end``, ``trailing_bytes``, ``error``.

    Raises
    ------
    As `scan_batches`. With ``on_corrupt="raise"``, the rows before the damage are
    returned before the error is raised.
    """
    if rows < 1:
        raise ValueError("rows must be at least 1")
    if on_corrupt == "resync":  # what belongs to the log is known when all of it was seen
        raise ValueError("on_corrupt='resync' is for scan_batches")
    return BatchIterator(source, rows, start, stop, on_corrupt)


def _require_range(
    source: Source, start: int, stop: int | None, on_corrupt: OnCorrupt
) -> tuple[int, int]:
    _require_on_corrupt(on_corrupt)
    start = operator.index(start)
    stop = None if stop is None else operator.index(stop)
    if not 0 <= start <= source.size:
        raise ValueError(f"start {start} is not a position in a source of {source.size} bytes")
    if stop is not None and stop < start:
        raise ValueError(f"stop {stop} lies before start {start}")
    return start, source.size if stop is None else min(stop, source.size)


def _require_on_corrupt(on_corrupt: str) -> None:
    if on_corrupt not in ("raise", "stop", "resync"):
        raise ValueError(f"on_corrupt must be 'raise', 'stop' or 'resync', not {on_corrupt!r}")


def _require_threads(threads: int | None) -> None:
    if threads is not None and threads < 1:
        raise ValueError("threads must be at least 1")
