"""`scan_records`: the records of logs as a lazy Polars frame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl
from polars.io.plugins import register_io_source

from kafkascan.format.errors import UnknownColumnError
from kafkascan.io.stores.urls import located
from kafkascan.logs.opened_logs import Log, LogsLike, open_logs
from kafkascan.logs.reading import Isolation
from kafkascan.logs.selecting.conditions import Condition, Undecided
from kafkascan.logs.selecting.selected_records import RecordSelection
from kafkascan.polars.predicates import condition_of
from kafkascan.records.decoding import decode_records
from kafkascan.records.decompression import DEFAULT_MAX_DECOMPRESSED_SIZE
from kafkascan.records.read_options import Control, ReadOptions
from kafkascan.records.record_table import DEFAULT_RECORD_COLUMNS, RecordTable

_PLACE_TYPES: dict[str, pl.DataType] = {"topic": pl.String(), "partition": pl.Int32()}
_DEFAULT_COLUMNS = (*_PLACE_TYPES, *DEFAULT_RECORD_COLUMNS)


def scan_records(
    logs: LogsLike,
    /,
    *,
    columns: Sequence[str] | None = None,
    control: Control = "skip",
    isolation: Isolation = "read_uncommitted",
    log_start_offset: int | None = None,
    verify: bool = False,
    max_decompressed_size: int = DEFAULT_MAX_DECOMPRESSED_SIZE,
    storage_options: Mapping[str, object] | None = None,
) -> pl.LazyFrame:
    """
    Return the records of logs as a lazy frame that reads what a query needs.

    Only the columns of the query are decoded. Filters on ``topic`` and ``partition`` leave whole
    partitions unopened. Filters on ``offset``, ``timestamp`` and columns of the batch table such
    as ``producer_id`` leave batches undecoded, by their headers, and filters on ``offset`` leave
    segments with higher offsets unopened. This holds for comparisons with constants, ``is_in``
    and ``is_between``, combined by ``&`` and ``|``. Polars applies each filter to the records that
    were read, so any other filter only reads more. DuckDB queries the frame by the name of its
    variable, and hands its filters and columns down.

    Parameters
    ----------
    logs : path, LogDir, PartitionDir or Source
        A data directory, a tar of one, the folder of a partition, or a segment. The segments are
        listed once, when this function is called.
    columns : sequence of str, optional
        Columns of the frame: ``topic``, ``partition`` and the columns of `read_records` except
        ``batch``. By default ``topic``, ``partition``, ``offset``, ``timestamp``, ``key``,
        ``value`` and ``headers``.
    control, isolation, log_start_offset, verify, max_decompressed_size, storage_options
        See `read_records`.

    Returns
    -------
    polars.LazyFrame
        With the types of `RecordTable.to_polars`, ``topic`` as String and ``partition`` as Int32;
        both are null for a file that is not in the folder of a partition. Records are in the order
        of partitions and offsets.

    Raises
    ------
    NoLogsError
        If there are no logs.
    UnknownColumnError
        If a column does not exist.
    As `open_log_dir`; and as `read_records` when the frame is collected, perhaps as the text of a
    `polars.exceptions.ComputeError`. Damage in batches that a query does not read is not noticed.

    Notes
    -----
    Memory: one table of `iter_records` at a time, besides what Polars keeps. A header states the
    largest timestamp of its batch; as in a broker's lookup by time, a record that is younger
    than its header says may not be found by a filter on ``timestamp``. A segment is expected to
    have no offsets below the one in its name. It is not read if a filter on ``offset`` rules it out
    and its last batches, which are found by its ``.index``, do not overlap the next segment.

    Examples
    --------
    >>> frame = kafkascan.polars.scan_records("/var/lib/kafka/data")
    >>> late = frame.filter(pl.col("topic") == "orders", pl.col("offset") >= 1_000_000)
    >>> late.select("offset", "timestamp").collect()
    """
    names = tuple(_DEFAULT_COLUMNS if columns is None else dict.fromkeys(columns))
    if "batch" in names:
        raise UnknownColumnError("there is no column 'batch' in a frame of several logs")
    options = ReadOptions(
        columns=_decoded(names),
        control=control,
        verify=verify,
        max_decompressed_size=max_decompressed_size,
    )
    opened = open_logs(located(logs, storage_options), log_start_offset)
    source = _LazyRecords(opened, names, options, isolation)
    return register_io_source(source.frames, schema=source.schema)


def _decoded(names: Sequence[str]) -> list[str]:
    """Return the columns to decode; offsets, if there is nothing else to count records by."""
    return [name for name in names if name not in _PLACE_TYPES] or ["offset"]


@dataclass(frozen=True)
class _LazyRecords:
    """Logs, and how their records are read."""

    logs: list[Log]
    names: tuple[str, ...]
    options: ReadOptions
    isolation: Isolation

    @property
    def schema(self) -> pl.Schema:
        """The columns of the frame and their types."""
        types = {**_PLACE_TYPES, **decode_records(b"", None, self.options).to_polars().schema}
        return pl.Schema({name: types[name] for name in self.names})

    def frames(
        self,
        names: list[str] | None,
        predicate: pl.Expr | None,
        row_count: int | None,
        batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        """
        Yield the frames of a query, as `register_io_source` requires.

        Polars gives a count of rows together with a predicate only where the predicate applies to
        these rows: then the predicate must not change which rows they are.
        """
        chosen = list(self.names) if names is None else names
        needed = chosen if predicate is None else [*chosen, *predicate.meta.root_names()]
        condition: Condition = Undecided()
        if predicate is not None and row_count is None:
            condition = condition_of(predicate, self.schema)
        for frame in _first_rows(self._read(needed, condition, row_count, batch_size), row_count):
            kept = frame if predicate is None else frame.filter(predicate)
            yield kept.select(chosen)

    def _read(
        self,
        names: Sequence[str],
        condition: Condition,
        row_count: int | None,
        batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        rows = batch_size or self.options.batch_size
        rows = max(1, rows if row_count is None else min(rows, row_count))
        options = replace(self.options, columns=_decoded(names), batch_size=rows)
        for log in self.logs:
            selection = RecordSelection(log, condition)
            if selection.is_possible():
                for table in selection.tables(options, self.isolation):
                    yield _frame(table, log)


def _frame(table: RecordTable, log: Log) -> pl.DataFrame:
    place = {"topic": log.partition.topic, "partition": log.partition.partition}
    literals = [pl.lit(place[name], kind).alias(name) for name, kind in _PLACE_TYPES.items()]
    return table.to_polars().with_columns(literals)


def _first_rows(frames: Iterator[pl.DataFrame], count: int | None) -> Iterator[pl.DataFrame]:
    left = count
    while left is None or left > 0:
        frame = next(frames, None)
        if frame is None:
            return
        yield frame if left is None else frame.head(left)
        left = None if left is None else left - len(frame)
