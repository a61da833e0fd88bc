"""One batch table over all segments of a data directory, read in chunks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from kafkascan.batches.arrow import batch_column, display_column, named_column
from kafkascan.batches.columns import COLUMN_NAMES, join_tables, require_columns
from kafkascan.batches.small_plots import plot_amounts
from kafkascan.format.arguments import require_integers, require_items
from kafkascan.format.layout import BATCH_DTYPE
from kafkascan.io.stores.urls import Place, as_object_url
from kafkascan.logs.log_chunks import (
    LogChunk,
    SegmentEnd,
    threads_for,
)
from kafkascan.logs.log_dir import LogDir, PartitionDir, SegmentKinds
from kafkascan.logs.log_finding import PartitionFilter, no_logs, open_log_dir
from kafkascan.logs.log_problems import LogProblems
from kafkascan.logs.log_schemas import LOG_BATCH_SCHEMA
from kafkascan.logs.opened_logs import (
    LogView,
    list_logs,
    live_logs,
    open_logs,
    selected_logs,
)
from kafkascan.logs.segment import SegmentFile
from kafkascan.logs.walking.served_chunks import read_chunks, read_segments
from kafkascan.tables.schema import PARTITION, SEGMENT, TOPIC, Schema, require_pyarrow
from kafkascan.tables.table import AnyTable, Column, Problems

if TYPE_CHECKING:
    import pyarrow as pa


PLACE_COLUMNS = (TOPIC.name, PARTITION.name, SEGMENT.name)
"""Columns of `LogBatches` that locate a batch."""

LogDirLike: TypeAlias = Place | LogDir
"""A `LogDir`, or the path or URL of a directory or a tar archive."""


class LogBatches(AnyTable):
    """
    The batches of a data directory in one table; returned by `scan_log_dir`.

    Iterating yields `LogChunk`s, in the order of partitions, segments and positions, whatever
    the number of threads. pyarrow, Polars and DuckDB accept the object directly, through Arrow's
    stream capsule. Every iteration and every export reads the segments again, as far as they
    reached when the directory was listed.

    Attributes
    ----------
    segments : list of (PartitionDir, SegmentFile)
        The segments in reading order.
    column_names : tuple of str
        Columns of the Arrow stream.
    ends : list of SegmentEnd
        How the segments end that the last iteration has read so far.
    """

    def __init__(
        self,
        logs: list[LogView],
        column_names: tuple[str, ...],
        rows: int,
        threads: int | None,
        once: bool,
        keep_cache: bool,
    ) -> None:
        self.segments = read_segments(logs, once=once)
        self.column_names = column_names
        self.ends: list[SegmentEnd] = []
        self._logs = logs
        self._was_read = False
        self._problems = LogProblems(logs)
        self._rows = rows
        self._threads = threads_for(self.segments, threads)
        self._once = once
        self._keep_cache = keep_cache

    def __iter__(self) -> Iterator[LogChunk]:
        self.ends, self._problems = [], LogProblems(self._logs)
        for chunk in self._chunks(self._problems, self._threads):
            self.ends += chunk.ends
            yield chunk

    def __len__(self) -> int:
        raise TypeError("the number of rows is not known: sum(len(chunk) for chunk in table)")

    @property
    def schema(self) -> Schema:
        """The fields of `column_names`."""
        return LOG_BATCH_SCHEMA.select(self.column_names)

    @property
    def problems(self) -> Problems:
        """What the last iteration or conversion has not read so far, is damaged or is a guess."""
        return self._problems.found

    def to_columns(self) -> dict[str, Column]:
        """Read everything, and return the values of each column."""
        chunks = list(self)
        batches = join_tables([chunk.batches for chunk in chunks])
        places = self._places(*chunks)
        return {
            name: places[name] if name in places else named_column(batches, name)
            for name in self.column_names
        }

    def _chunks(
        self, problems: LogProblems, threads: int, rows: int | None = None
    ) -> Iterator[LogChunk]:
        if self._was_read:
            self._logs = [log.again() for log in self._logs]
            self.segments = read_segments(self._logs, once=self._once)
        self._was_read = True
        return read_chunks(
            self._logs,
            self.segments,
            problems,
            threads,
            rows or self._rows,
            once=self._once,
            keep_cache=self._keep_cache,
        )

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Arrow's PyCapsule stream, one record batch per chunk."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_reader(self) -> pa.RecordBatchReader:
        """
        Return the table as a stream of Arrow record batches, one per chunk.

        Timestamps are ``timestamp[ms, tz=UTC]``. Topics, segment names, codecs and timestamp
        types are dictionaries that all record batches share.

        Returns
        -------
        pyarrow.RecordBatchReader
        """
        return self._reader(self.column_names)

    def _reader(self, names: Sequence[str]) -> pa.RecordBatchReader:
        pa = require_pyarrow()
        locations = _arrow_locations(self.segments)
        schema = _record_batch(_no_batches(), names, locations).schema
        chunks = (_record_batch(chunk, names, locations) for chunk in self if len(chunk))
        return pa.RecordBatchReader.from_batches(schema, chunks)

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """
        Read everything into one `pyarrow.Table`, with the types of `to_reader`.

        Parameters
        ----------
        columns : sequence of str, optional
            Of `column_names`; all of them by default.

        Returns
        -------
        pyarrow.Table
        """
        table = self.arrow_table(columns)
        self._warn_if_incomplete()
        return table

    def arrow_table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return what `to_arrow` returns, for callers that report the problems themselves."""
        return self._reader(self.column_names if columns is None else columns).read_all()

    def _summary_lines(self) -> list[str]:
        partitions = len({partition.path for partition, _ in self.segments})
        return [f"<LogBatches: {len(self.segments):,} segments of {partitions:,} partitions>"]

    def _plot(self) -> str:
        sizes: Counter[str] = Counter()
        for partition, segment in self.segments:
            sizes[partition.topic or partition.path.name] += segment.current_size()
        return plot_amounts("Bytes of segments by topic", sizes)

    def _head(self, rows: int) -> dict[str, list[object]]:
        chunks = self._chunks(LogProblems(), threads=1, rows=rows)
        chunk = next(filter(len, chunks), _no_batches())
        places = self._places(chunk)
        return {
            name: places[name] if name in places else display_column(chunk.batches, name)
            for name in self.column_names
        }

    def _places(self, *chunks: LogChunk) -> dict[str, list[object]]:
        """Return the values of `PLACE_COLUMNS`."""
        segments = [self.segments[index] for chunk in chunks for index in chunk.segment.tolist()]
        return {
            "topic": [partition.topic for partition, _ in segments],
            "partition": [partition.partition for partition, _ in segments],
            "segment": [segment.file_name for _, segment in segments],
        }


def scan_log_dir(
    log_dir: LogDirLike | LogView,
    /,
    *,
    topics: Collection[str] | None = None,
    partitions: Collection[int] | None = None,
    columns: Sequence[str] | None = None,
    rows: int = 65_536,
    threads: int | None = None,
    include: Literal["log", "all"] = "log",
    log_start_offset: int | None = None,
    keep_cache: bool = True,
    storage_options: Mapping[str, object] | None = None,
) -> LogBatches:
    """
    Read the batch headers of a whole data directory as one table.

    Parameters
    ----------
    log_dir : path, LogDir or LogView
        See `open_log_dir`: a data directory, the folder of a partition, or a tar of them.
    topics : collection of str, optional
        Topics to read of a directory or an archive; by default all.
    partitions : collection of int, optional
        Numbers of the partitions to read; by default all.
    columns : sequence of str, optional
        Columns of the Arrow stream, of ``topic``, ``partition``, ``segment`` and `COLUMN_NAMES`;
        all of them by default.
    rows : int, default 65536
        Maximum number of rows of a chunk.
    threads : int, optional
        Number of threads; by default one per CPU. Logs of small segments are read by one thread.
    include : {"log", "all"}
        "log" reads the segments that a broker would read, and each offset once, from the first of
        segments that overlap. "all" reads everything that is on disk: it adds ``.deleted``,
        ``.cleaned`` and ``.swap`` files, partitions that are being deleted or moved, KRaft's
        snapshots, and batches before the log start offset or with offsets of an earlier segment.
    log_start_offset : int, optional
        First offset of each log: batches that end before it are omitted. By default, as a broker
        has it: the base offset of the first segment, or the offset in the data dir's
        ``log-start-offset-checkpoint`` if it is higher. A broker returns the first batch
        completely; consumers skip its records before this offset.
    keep_cache : bool, default True
        Leave in the page cache what was not there before, because every iteration and every export
        reads the segments again. False drops it after each segment, in pieces of 4 MiB, so that
        reading cold files once evicts no other ones; segments below 128 KiB are left there.
    storage_options : mapping, optional
        Options of the store, for a URL; see `ObjectUrl`.

    Returns
    -------
    LogBatches

    Raises
    ------
    NoLogsError
        If there are no segments to read.
    UnknownColumnError
        If a column does not exist; the message suggests one.
    As `open_log_dir`. A segment or folder that is damaged or unreadable raises nothing: its rows
    end there, and `LogBatches.problems` contains it after an iteration or a conversion.

    Notes
    -----
    Memory: about 1 KB per segment, and at most ten chunks per thread.
    """
    if include not in ("log", "all"):
        raise ValueError(f"include must be 'log' or 'all', not {include!r}")
    require_integers(rows=rows)
    if rows < 1:
        raise ValueError("rows must be at least 1")
    require_items(str, columns=columns)
    names = (*PLACE_COLUMNS, *COLUMN_NAMES) if columns is None else tuple(dict.fromkeys(columns))
    require_columns([name for name in names if name not in PLACE_COLUMNS])
    log_dir = as_object_url(log_dir, storage_options)
    once, wanted = include == "log", PartitionFilter.of(topics, partitions)
    if isinstance(log_dir, LogView):
        views = open_logs(selected_logs(log_dir, wanted), log_start_offset)
        return LogBatches(views, names, rows, threads, once, keep_cache)
    opened = log_dir if isinstance(log_dir, LogDir) else open_log_dir(log_dir)
    opened = wanted.partitions(opened)
    logs = live_logs(opened, log_start_offset) if once else list_logs(opened, SegmentKinds.ALL)
    if not logs:
        raise no_logs(opened.path, opened.partitions)
    return LogBatches(logs, names, rows, threads, once, keep_cache)


def _no_batches() -> LogChunk:
    return LogChunk(np.empty(0, BATCH_DTYPE), np.empty(0, np.int32), [])


@dataclass(frozen=True)
class _ArrowLocations:
    """
    Locations of segments as Arrow arrays, shared by all record batches.

    Attributes
    ----------
    partition : array of int32, one item per segment
    topic, segment : dictionary arrays, one item per segment
    """

    partition: pa.Array
    topic: pa.DictionaryArray
    segment: pa.DictionaryArray


def _arrow_locations(segments: Sequence[tuple[PartitionDir, SegmentFile]]) -> _ArrowLocations:
    pa = require_pyarrow()
    topics = pa.array([partition.topic for partition, _ in segments], pa.string())
    names = pa.array([segment.file_name for _, segment in segments], pa.string())
    return _ArrowLocations(
        partition=pa.array([partition.partition for partition, _ in segments], pa.int32()),
        topic=topics.dictionary_encode(),
        segment=names.dictionary_encode(),
    )


def _record_batch(
    chunk: LogChunk, names: Sequence[str], locations: _ArrowLocations
) -> pa.RecordBatch:
    pa = require_pyarrow()
    index = pa.array(chunk.segment)
    columns = {
        name: getattr(locations, name).take(index)
        if name in PLACE_COLUMNS
        else batch_column(chunk.batches, name, is_stream=True)
        for name in names
    }
    return pa.record_batch(columns)
