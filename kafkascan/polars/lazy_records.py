"""`scan_records`: the records of logs as a lazy Polars frame."""

from __future__ import annotations

import itertools
import operator
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, cast

import polars as pl
import pyarrow as pa
from polars.io.plugins import register_io_source

from kafkascan.format.errors import CHANGED_WHILE_READ, UnknownColumnError, ValueSchemaError
from kafkascan.format.findings import Severity
from kafkascan.io.stores.urls import as_object_url
from kafkascan.io.worker_threads import ThreadPool, current_team
from kafkascan.logs.log_dir import PartitionDir
from kafkascan.logs.log_finding import PartitionFilter
from kafkascan.logs.log_problems import notes_of_moving
from kafkascan.logs.opened_logs import LogsLike, LogView, open_logs
from kafkascan.logs.queries.conditions import (
    EVERY_RECORD,
    MIRRORED,
    Comparison,
    Condition,
    Joined,
    Membership,
    Relation,
)
from kafkascan.logs.record_scan import Isolation, RecordScan
from kafkascan.records.decoding import no_records
from kafkascan.records.read_options import (
    DEFAULT_MAX_DECOMPRESSED_SIZE,
    Control,
    OnCorruptLog,
    ReadOptions,
)
from kafkascan.records.record_table import DEFAULT_RECORD_COLUMNS, RecordTable
from kafkascan.records.typed_items import (
    ColumnDecoder,
    ColumnDecoders,
    ItemDecoding,
    ItemPlace,
    require_decoders,
)
from kafkascan.tables.table import (
    LATEST_MS,
    IncompleteTableWarning,
    Problem,
    Problems,
    warn_of_late_times,
    within_microseconds,
)

TimeUnit: TypeAlias = Literal["ms", "us", "ns"]

_RELATIONS: dict[Relation, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_BOUNDS: dict[Literal["both", "left", "right", "none"], tuple[Relation, Relation]] = {
    "both": (">=", "<="),
    "left": (">=", "<"),
    "right": (">", "<="),
    "none": (">", "<"),
}
_TIMES: dict[TimeUnit, pl.Datetime] = {
    "ms": pl.Datetime("ms", "UTC"),
    "us": pl.Datetime("us", "UTC"),
    "ns": pl.Datetime("ns", "UTC"),
}
_UNITS_PER_MS: dict[TimeUnit, int] = {"us": 1_000, "ns": 1_000_000}
# Records of a partition that tell the columns of typed values.
_FIRST_RECORDS = 1_000
# Deeper expressions are rare, and Python's stack is not endless.
_MOST_LEVELS = 100


def condition_of(predicate: pl.Expr, schema: pl.Schema, levels: int = _MOST_LEVELS) -> Condition:
    """
    Return what a predicate says about columns of integers, timestamps and text.

    Parameters
    ----------
    predicate : polars.Expr
    schema : polars.Schema
        Of the frame. A comparison with a value of another type decides nothing.
    levels : int
        Depth up to which the expression is read.

    Returns
    -------
    Condition
        Holds wherever the predicate is true.
    """
    parts = predicate.meta.pop()[::-1]
    if len(parts) == 2 and levels:
        for join in (operator.and_, operator.or_):
            if predicate.meta.eq(join(*parts)):
                inner = tuple(condition_of(part, schema, levels - 1) for part in parts)
                return Joined(inner, is_any=join is operator.or_)
        return _comparison(predicate, parts, schema) or _membership(predicate, parts, schema)
    if len(parts) == 3 and levels:
        return _unless_null(predicate, parts, schema, levels) or _between(predicate, parts, schema)
    return Joined(())


def _unless_null(
    predicate: pl.Expr, parts: Sequence[pl.Expr], schema: pl.Schema, levels: int
) -> Condition | None:
    """Return the condition of an expression that a null replaces; DuckDB asks for ``IN`` so."""
    then, otherwise, when = parts
    is_null = _is_literal(then) and pl.select(then).to_series().to_list() == [None]
    if is_null and predicate.meta.eq(pl.when(when).then(then).otherwise(otherwise)):
        return condition_of(otherwise, schema, levels - 1)
    return None


def _comparison(
    predicate: pl.Expr, parts: Sequence[pl.Expr], schema: pl.Schema
) -> Condition | None:
    for relation, compare in _RELATIONS.items():
        if predicate.meta.eq(compare(parts[0], parts[1])):
            compared = _compared(parts[0], relation, parts[1], schema)
            return compared or _compared(parts[1], MIRRORED[relation], parts[0], schema)
    return None


def _compared(
    column: pl.Expr, relation: Relation, value: pl.Expr, schema: pl.Schema
) -> Comparison | None:
    name = _column_name(column, schema)
    if name is None:
        return _compared_finely(column, relation, value, schema)
    values = _values(value, schema[name])
    return Comparison(name, relation, values[0]) if values and len(values) == 1 else None


def _compared_finely(
    column: pl.Expr, relation: Relation, value: pl.Expr, schema: pl.Schema
) -> Comparison | None:
    """Return a comparison with a time of a finer unit; DuckDB's are in microseconds."""
    names = column.meta.root_names()
    name = _column_name(pl.col(names[0]), schema) if len(names) == 1 else None
    if name is None or schema[name] != _TIMES["ms"]:
        return None
    for unit, scale in _UNITS_PER_MS.items():
        values = _values(value, _TIMES[unit])
        if values and len(values) == 1 and column.meta.eq(pl.col(name).dt.cast_time_unit(unit)):
            milliseconds, rest = divmod(int(values[0]), scale)
            if rest and relation in ("==", "!="):
                return None
            # Between two milliseconds, the upper one is the first that is not below the time.
            is_rounded_up = rest and relation in (">=", "<")
            return Comparison(name, relation, milliseconds + bool(is_rounded_up))
    return None


def _between(predicate: pl.Expr, parts: Sequence[pl.Expr], schema: pl.Schema) -> Condition:
    column, low, high = parts
    for closed, (above, below) in _BOUNDS.items():
        if predicate.meta.eq(column.is_between(low, high, closed=closed)):
            bounds = (
                _compared(column, above, low, schema),
                _compared(column, below, high, schema),
            )
            return Joined(tuple(bound or Joined(()) for bound in bounds))
    return Joined(())


def _membership(predicate: pl.Expr, parts: Sequence[pl.Expr], schema: pl.Schema) -> Condition:
    name = _column_name(parts[0], schema)
    if name is None or not _is_literal(parts[1]):
        return Joined(())
    if not predicate.meta.eq(parts[0].is_in(parts[1])):
        return Joined(())
    values = _values(parts[1], pl.List(schema[name])) or _values(parts[1], schema[name])
    return Membership(name, values) if values else Joined(())


def _column_name(expression: pl.Expr, schema: pl.Schema) -> str | None:
    names = expression.meta.root_names()
    is_column = len(names) == 1 and names[0] in schema and expression.meta.eq(pl.col(names[0]))
    return names[0] if is_column and _is_ordered(schema[names[0]]) else None


def _is_ordered(dtype: pl.DataType) -> bool:
    return dtype.is_integer() or dtype in (pl.String, _TIMES["ms"])


def _is_literal(expression: pl.Expr) -> bool:
    return expression.meta.is_literal(allow_aliasing=True)


def _values(expression: pl.Expr, dtype: pl.DataType) -> list[int | str] | None:
    """Return the values of a literal of a type; None for nulls and for other expressions."""
    if not _is_literal(expression):
        return None
    found = pl.select(expression).to_series()
    if found.dtype != dtype:
        return None
    if isinstance(dtype, pl.List):
        found = found.explode()
    values: list[int | str] = found.to_physical().to_list()
    return None if None in values or not values else values


_PLACE_TYPES: dict[str, pl.DataType] = {"topic": pl.String(), "partition": pl.Int32()}
_DEFAULT_COLUMNS = (*_PLACE_TYPES, *DEFAULT_RECORD_COLUMNS)


def scan_records(
    logs: LogsLike | Sequence[LogsLike],
    /,
    *,
    topics: Collection[str] | None = None,
    partitions: Collection[int] | None = None,
    columns: Sequence[str] | None = None,
    control: Control = "skip",
    isolation: Isolation = "read_uncommitted",
    log_start_offset: int | None = None,
    verify: bool = True,
    max_decompressed_size: int = DEFAULT_MAX_DECOMPRESSED_SIZE,
    on_corrupt: OnCorruptLog = "raise",
    storage_options: Mapping[str, object] | None = None,
    key: ColumnDecoders | None = None,
    value: ColumnDecoders | None = None,
    within_microseconds: bool = False,
) -> pl.LazyFrame:
    """
    Return the records of logs as a lazy frame that reads what a query needs.

    Checksums are verified by default, unlike by `read_records`.

    Only the columns of the query are decoded. Filters on ``topic`` and ``partition`` leave whole
    partitions unopened. Filters on ``offset``, ``timestamp`` and columns of the batch table such
    as ``producer_id`` leave batches undecoded, by their headers, and filters on ``offset`` leave
    segments with higher offsets unopened. This holds for comparisons with constants, ``is_in``
    and ``is_between``, combined by ``&`` and ``|``. Polars applies each filter to the records that
    were read, so any other filter only reads more. DuckDB queries the frame by the name of its
    variable, and hands its filters and columns down.

    Parameters
    ----------
    logs : path, LogDir, PartitionDir or Source, or a list of them
        A data directory, a tar of one, the folder of a partition, or a segment. The segments are
        listed once, when this function is called.
    topics : collection of str, optional
        Topics to read. By default all; with `key` or `value`, those whose names do not begin with
        an underscore, which are Kafka's own and the registry's.
    partitions : collection of int, optional
        Numbers of the partitions to read; by default all.
    columns : sequence of str, optional
        Columns of the frame: ``topic``, ``partition`` and the columns of `read_records` except
        ``batch``. By default ``topic``, ``partition``, ``offset``, ``timestamp``, ``key``,
        ``value`` and ``headers``.
    verify : bool, default True
        Verify the checksums of the batches that are read.
    on_corrupt : {"raise", "stop"}
        What to do at damage: raise, or return the records that can be read, with an
        `IncompleteTableWarning`.
    control, isolation, log_start_offset, max_decompressed_size, storage_options
        See `read_records`.
    key, value : Registry or ReaderSchema, optional
        Decode keys or values into columns with types; see `read_records`. The topics must have
        columns of one type, which the registry's subjects or a named schema say, or otherwise the
        first records of each topic, which are read when this function is called.
    within_microseconds : bool, default False
        Make times null that 64 bits of microseconds cannot hold, with an `IncompleteTableWarning`.
        Queries of DuckDB fail at such times.

    Returns
    -------
    polars.LazyFrame
        With the types of `RecordTable.to_polars`, ``topic`` as String and ``partition`` as Int32;
        both are null for a file that is not in the folder of a partition. Records are in the order
        of partitions and offsets.

    Raises
    ------
    NoLogsError
        If there are no logs, or none of `topics` and `partitions`.
    UnknownColumnError
        If a column does not exist.
    ValueSchemaError
        If the type of a typed column is unknown, or differs between topics.
    As `open_log_dir`; and as `read_records` when the frame is collected, perhaps as the text of a
    `polars.exceptions.ComputeError`. Damage in batches that a query does not read is not noticed.

    Warns
    -----
    IncompleteTableWarning
        If records are missing, or are a guess: see `RecordTable.problems`.

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
        on_corrupt=on_corrupt,
    )
    places = cast("Sequence[LogsLike]", logs if isinstance(logs, (list, tuple)) else [logs])
    of_places = [
        open_logs(as_object_url(place, storage_options), log_start_offset) for place in places
    ]
    wanted = PartitionFilter.of(topics, partitions)
    for note in itertools.chain.from_iterable(map(notes_of_moving, of_places)):
        if wanted.has(note.topic, note.partition):
            warnings.warn(_warning_of(note), stacklevel=2)
    is_typed = key is not None or value is not None
    opened = _wanted_logs(list(itertools.chain.from_iterable(of_places)), wanted, is_typed=is_typed)
    given = require_decoders(key=key, value=value)
    if given:
        options = replace(options, also_stored=("offset", "headers"))
    typed = {name: _settled(opened, name, one, options) for name, one in given.items()}
    source = _LazyRecords(opened, names, options, isolation, typed, within_microseconds)
    return register_io_source(source.frames, schema=source.schema)


def _wanted_logs(logs: list[LogView], wanted: PartitionFilter, *, is_typed: bool) -> list[LogView]:
    """
    Return the wanted logs.

    Raises
    ------
    NoLogsError
        If there are none.
    """
    found = [log for log in logs if wanted.has(log.partition.topic, log.partition.partition)]
    if not found and wanted.is_given:
        place = ", ".join(sorted({str(log.partition.path.parent) for log in logs})) or "no paths"
        raise wanted.nothing_in(place)
    if is_typed and wanted.topics is None:
        others = [one for one in found if not (one.partition.topic or "").startswith("_")]
        return others or found
    return found


def _within_microseconds(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a frame whose times are null where 64 bits of microseconds cannot hold them."""
    times = [name for name, kind in frame.schema.items() if kind == pl.Datetime("ms", "UTC")]
    fits = {name: pl.col(name).to_physical().is_between(-LATEST_MS, LATEST_MS) for name in times}
    if not times or frame.select(pl.all_horizontal(one.all() for one in fits.values())).item():
        return frame
    warn_of_late_times()
    return frame.with_columns(pl.when(fits[name]).then(pl.col(name)) for name in times)


def _decoded(names: Sequence[str]) -> list[str]:
    """Return the columns to decode; offsets, if there is nothing else to count records by."""
    return [name for name in names if name not in _PLACE_TYPES] or ["offset"]


def _place(name: str, one: PartitionDir) -> ItemPlace:
    return ItemPlace(name, str(one.path), one.topic, one.partition)


def _settled(
    logs: Sequence[LogView], name: str, decoders: ColumnDecoders, options: ReadOptions
) -> dict[str | None, ColumnDecoder]:
    """Return the decoder of each topic; where no schema says the columns, its first records do."""
    found: dict[str | None, ColumnDecoder] = {}
    options = replace(options, columns=[name], batch_size=_FIRST_RECORDS)
    for log in logs:
        topic = log.partition.topic
        if topic not in found:
            found[topic] = decoders.decoder(_place(name, log.partition))
        if found[topic].arrow_type is None:
            tables = RecordScan(options=options).tables(log)
            for table in itertools.islice(tables, 1):
                found[topic].decode(table, 1)
    return found


@dataclass(frozen=True)
class _LazyRecords:
    """Logs, and how their records are read."""

    logs: list[LogView]
    names: tuple[str, ...]
    options: ReadOptions
    isolation: Isolation
    typed: Mapping[str, Mapping[str | None, ColumnDecoder]]
    within_microseconds: bool
    # Polars reads in a thread of its own, also for a caller that is a worker.
    team: ThreadPool | None = field(default_factory=current_team)

    @property
    def schema(self) -> pl.Schema:
        """The columns of the frame and their types."""
        none = no_records(self.options).to_polars()
        types = {**_PLACE_TYPES, **none.schema, **self._typed_schema()}
        return pl.Schema({name: types[name] for name in self.names})

    def _typed_schema(self) -> Mapping[str, pl.DataType]:
        """Return the types of typed columns, which all topics must have in common."""
        found = {}
        for name, decoders in self.typed.items():
            unknown = [topic or "the log" for topic, one in decoders.items() if not one.arrow_type]
            kinds = {one.arrow_type for one in decoders.values()}
            if unknown or len(kinds) != 1:
                what = f"the type of the {name}s of {', '.join(unknown)} is unknown"
                raise ValueSchemaError(
                    f"{what if unknown else f'the {name}s of several topics have different types'}:"
                    " scan one topic (topics=[NAME]), or name a schema by"
                    f" {name}=registry.reader(SUBJECT, message=NAME)"
                )
            found[name] = pl.Series(pa.array([], kinds.pop())).dtype
        return found

    def _decoder(self, name: str, one: PartitionDir) -> ColumnDecoder:
        return self.typed[name][one.topic].at(_place(name, one))

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
        condition: Condition = EVERY_RECORD
        if predicate is not None and row_count is None:
            condition = condition_of(predicate, self.schema)
        for frame in _first_rows(self._read(needed, condition, row_count, batch_size), row_count):
            kept = frame if predicate is None else frame.filter(predicate)
            found = kept.select(chosen)
            yield _within_microseconds(found) if self.within_microseconds else found

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
        scan = RecordScan(
            options=options,
            condition=condition,
            is_exact=bool(self.typed),  # typed values of other records cost more than the mask
            isolation=self.isolation,
        )
        for log in self.logs:
            if scan.may_select(log.partition):
                decoders = {name: self._decoder(name, log.partition) for name in self.typed}
                decoding = ItemDecoding(decoders)
                for table in scan.tables(log):
                    if self.team is not None:
                        self.team.require_wanted()
                    found = decoding.decoded(table)
                    records = found.records.with_problems(table.problems + found.problems)
                    yield _frame(_short(records) if self.within_microseconds else records, log)


def _short(table: RecordTable) -> RecordTable:
    """Return records; times in typed values are null where microseconds cannot hold them."""
    typed = {}
    for name, column in table.typed.items():
        chunks = column.chunks
        changed = [within_microseconds(one) for one in chunks]
        if any(new is not old for new, old in zip(changed, chunks, strict=True)):
            warn_of_late_times()
        typed[name] = pa.chunked_array(changed, column.type)
    return table.with_typed(typed) if typed else table


def _frame(table: RecordTable, log: LogView) -> pl.DataFrame:
    _warn_of_guesses(table.problems)
    place = {"topic": log.partition.topic, "partition": log.partition.partition}
    literals = [pl.lit(place[name], kind).alias(name) for name, kind in _PLACE_TYPES.items()]
    return table.to_polars().with_columns(literals)


def _warn_of_guesses(problems: Problems) -> None:
    """Warn of what the frame has no place for; of missing rows, a conversion warns."""
    alarms = [
        one
        for one in problems
        if one.severity is not Severity.NOTE or one.symbol == CHANGED_WHILE_READ
    ]
    alarms.sort(key=lambda one: one.symbol != CHANGED_WHILE_READ)  # it is about all rows
    is_known = any(one.rows_missing for one in alarms)
    if alarms and (not is_known or alarms[0].symbol == CHANGED_WHILE_READ):
        warnings.warn(_warning_of(alarms[0]), stacklevel=2)


def _warning_of(problem: Problem) -> IncompleteTableWarning:
    is_note = problem.severity is Severity.NOTE and not problem.rows_missing
    return IncompleteTableWarning(f"records: {problem}", is_note)


def _first_rows(frames: Iterator[pl.DataFrame], count: int | None) -> Iterator[pl.DataFrame]:
    left = count
    while left is None or left > 0:
        frame = next(frames, None)
        if frame is None:
            return
        yield frame if left is None else frame.head(left)
        left = None if left is None else left - len(frame)
