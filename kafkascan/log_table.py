"""The batches of whole data dirs in one table, chunk by chunk."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from kafkascan import arrow
from kafkascan.batch_columns import COLUMN_NAMES, require_columns
from kafkascan.layout import BATCH_DTYPE
from kafkascan.log_chunks import (
    ChunkTables,
    LogChunk,
    SegmentEnd,
    group_segments,
    read_chunks,
    threads_for,
)
from kafkascan.log_dir import LogDir, PartitionDir, SegmentFile, open_log_dir
from kafkascan.ordered import in_order

if TYPE_CHECKING:
    import pyarrow as pa

PLACE_COLUMNS = ("topic", "partition", "segment")
"""Columns of `LogBatches` that say where a batch lies."""

Include: TypeAlias = Literal["log", "all"]
LogDirLike: TypeAlias = "str | os.PathLike[str] | LogDir"


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
        self._threads = threads_for(self.segments, threads)

    def __iter__(self) -> Iterator[LogChunk]:
        self.ends = []
        tables = ChunkTables(self._rows)

        def read(job: range) -> Iterator[LogChunk]:
            return read_chunks(self.segments, job, tables)

        for chunk in in_order(group_segments(self.segments), read, self._threads):
            self.ends += chunk.ends
            yield chunk

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
        Segments that are read at once; by default one per CPU. Small ones are read in turn.
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
    Memory does not depend on how many segments there are, but for about 1 KB of each: at most
    ten chunks for each thread are held.
    """
    opened = log_dir if isinstance(log_dir, LogDir) else open_log_dir(log_dir)
    return LogBatches(opened, columns, rows, threads, include)


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
