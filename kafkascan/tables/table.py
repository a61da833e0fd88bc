"""Tables of rows, what was not read of them, and their conversions, derived from the schema."""

from __future__ import annotations

import itertools
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan.format.errors import FileGoneError
from kafkascan.format.findings import Severity
from kafkascan.format.layout import NO_TIMESTAMP
from kafkascan.format.optional_modules import require_module
from kafkascan.format.texts import json_text, with_escaped_bytes
from kafkascan.tables.python_values import python_values
from kafkascan.tables.schema import (
    Field,
    Schema,
    Shown,
    require_pyarrow,
)

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

Column: TypeAlias = Sequence[Any] | NDArray[Any]
"""The values of a column: a list or an array."""

HEAD_ROWS = 10
"""Rows that a notebook shows."""

LATEST_MS = (2**63 - 1) // 1000
"""The latest time in milliseconds that 64 bits of microseconds, of Spark and DuckDB, can hold."""

_CELL_SIZE = 60
# Of pandas, by those of Arrow.
_NULLABLE_TYPES = {"int8": "Int8", "int16": "Int16", "int32": "Int32", "int64": "Int64"}
# Rows that are converted to Python objects before signals are handled.
_PANDAS_ROWS = 1 << 16


class IncompleteTableWarning(UserWarning):
    """
    Rows or values are missing in a table, or a guess, and a conversion has no `problems`.

    ``warnings.filterwarnings("error", category=IncompleteTableWarning)`` makes it an error.

    Attributes
    ----------
    is_note : bool
        Whether it is of a problem that is a note, such as a copy of a log that is not read.
    """

    def __init__(self, message: str, is_note: bool = False) -> None:
        super().__init__(message, is_note)
        self.is_note = is_note

    def __str__(self) -> str:
        return str(self.args[0])


class AnyTable(ABC):
    """
    A table: rows, the schema that says what their columns are, and the problems of reading them.

    pyarrow, Polars and DuckDB accept the object directly, through Arrow's stream capsule.

    Attributes
    ----------
    schema : Schema
    problems : Problems
        What was not read, is damaged or is a guess; empty if the answer is complete.
    """

    if TYPE_CHECKING:  # a property at run time would be in the way of subclasses' attributes

        @property
        def schema(self) -> Schema:
            """The fields of the columns."""

    @property
    @abstractmethod
    def problems(self) -> Problems:
        """What was not read, is damaged or is a guess."""

    @abstractmethod
    def to_columns(self) -> dict[str, Column]:
        """Return the values of each column: times are milliseconds since the epoch, or -1."""

    def __len__(self) -> int:
        return len(next(iter(self.to_columns().values())))

    @property
    def is_complete(self) -> bool:
        """Whether no rows are missing."""
        return not any(one.rows_missing for one in self.problems)

    def __getitem__(self, name: str) -> Any:
        """Return a column."""
        return self.to_columns()[self.schema[name].name]

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows as dicts."""
        columns = self.to_columns()
        return rows_of({name: columns[name] for name in self.schema.names})

    def to_json(self, *, indent: int | None = None) -> str:
        """
        Return a JSON document: ``rows``, ``problems`` and ``is_complete``.

        Times are milliseconds since the epoch, and bytes are hexadecimal.
        """
        document = {
            "is_complete": self.is_complete,
            "problems": plain_rows(self.problems),
            "rows": plain_rows(self),
        }
        return json_text(document, indent=indent)

    def json_column(self, column: Field, values: Column) -> list[Any]:
        """
        Return the values of a column in the types that JSON has.

        Parameters
        ----------
        column : Field
        values : ndarray or sequence
            As `to_columns` returns them.
        """
        if column.type != "binary":
            return as_list(values)
        return [None if value is None else value.hex() for value in as_list(values)]

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """
        Return a `pyarrow.Table`.

        Parameters
        ----------
        columns : sequence of str, optional
            Names of columns; all by default.

        Returns
        -------
        pyarrow.Table
            Times are ``timestamp[ms, tz=UTC]``.

        Warns
        -----
        IncompleteTableWarning
            If rows are missing.
        """
        self._warn_if_incomplete()
        return self.arrow_table(columns)

    def arrow_table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return what `to_arrow` returns, for callers that report the problems themselves."""
        schema = self.schema if columns is None else self.schema.select(columns)
        values = self.to_columns()
        return require_pyarrow().table(
            {one.name: arrow_column(one, values[one.name]) for one in schema}
        )

    def _warn_if_incomplete(self) -> None:
        """Warn the caller of the conversion that calls this."""
        if not self.is_complete:
            first = next(one for one in self.problems if one.rows_missing)
            text = f"{self.schema.name}: rows or values are missing, see .problems: {first}"
            warnings.warn(text, IncompleteTableWarning, stacklevel=3)

    def to_pandas(
        self,
        columns: Sequence[str] | None = None,
        *,
        dtype_backend: Literal["pyarrow"] | None = None,
    ) -> pd.DataFrame:
        """
        Return the table as a `pandas.DataFrame`, with the types of `to_arrow`.

        Parameters
        ----------
        columns : sequence of str, optional
            See `to_arrow`.
        dtype_backend : {"pyarrow"}, optional
            As in pandas: ``"pyarrow"`` keeps Arrow's columns (`pandas.ArrowDtype`), without a
            Python object per value.

        Returns
        -------
        pandas.DataFrame
            A column of integers with nulls has one of pandas' nullable types, such as ``Int64``:
            doubles do not have all integers.
        """
        if dtype_backend not in (None, "pyarrow"):
            raise ValueError(f"dtype_backend must be 'pyarrow' or None, not {dtype_backend!r}")
        pandas = require_module("pandas", extra="pandas")
        self._warn_if_incomplete()
        table = self.arrow_table(columns)
        frame: pd.DataFrame
        if dtype_backend == "pyarrow":
            frame = table.to_pandas(types_mapper=pandas.ArrowDtype)
            return frame
        # In pieces, because pyarrow makes Python objects without handling signals.
        frames = [
            _pandas_frame(table.slice(at, _PANDAS_ROWS))
            for at in range(0, max(1, table.num_rows), _PANDAS_ROWS)
        ]
        frame = frames[0]
        if len(frames) > 1:
            frame = pandas.concat(frames, ignore_index=True)
        for name, kind in zip(table.column_names, table.schema.types, strict=True):
            if str(kind) in _NULLABLE_TYPES and table[name].null_count:
                dtype = pandas.api.types.pandas_dtype(_NULLABLE_TYPES[str(kind)])
                frame[name] = table[name].to_pandas(types_mapper=lambda _, known=dtype: known)
        return frame

    def to_polars(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """
        Return the table as a `polars.DataFrame`, with the types of `to_arrow`.

        Parameters
        ----------
        columns : sequence of str, optional
            See `to_arrow`.

        Returns
        -------
        polars.DataFrame
        """
        polars = require_module("polars", extra="polars")
        self._warn_if_incomplete()
        frame: pl.DataFrame = polars.from_arrow(self.arrow_table(columns))
        return frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Arrow's PyCapsule stream of `to_arrow`."""
        self._warn_if_incomplete()
        return self.arrow_table().__arrow_c_stream__(requested_schema)

    # ---- displays ----

    def _summary_lines(self) -> list[str]:
        """Return the lines of `repr`."""
        return [f"<{type(self).__name__} {self.schema.name}: {len(self):,} rows>"]

    def _head(self, rows: int) -> Mapping[str, Sequence[object]]:
        """Return at most this many first rows: the values of each column, for display."""
        return {name: list(values[:rows]) for name, values in self.to_columns().items()}

    def _plot(self) -> str:
        """Return an SVG of the table for a notebook; empty, if it has none."""
        return ""

    def __repr__(self) -> str:
        return "\n".join([*self._summary_lines(), *problem_lines(self.problems)])

    def _repr_html_(self) -> str:
        """Return the summary, a plot and the first rows for a notebook."""
        import html  # notebooks only: its list of entities is large

        summary = html.escape(repr(self))
        return f"<div><pre>{summary}</pre>{self._plot()}{html_table(self, HEAD_ROWS)}</div>"


def _pandas_frame(table: pa.Table) -> pd.DataFrame:
    """Return a table with Python's objects; dates and times that Python cannot hold are texts."""
    try:
        return table.to_pandas()
    except (OverflowError, ValueError):
        types = require_pyarrow().types
        names = [
            one.name for one in table.schema if types.is_nested(one.type) or types.is_date(one.type)
        ]
        frame = table.drop_columns(names).to_pandas()
        for name in names:
            frame[name] = python_values(table[name])
        return frame[table.column_names]


def rows_of(columns: Mapping[str, Column]) -> list[dict[str, Any]]:
    """Return the rows of columns as dicts of Python's values."""
    names = list(columns)
    values = zip(*(as_list(one) for one in columns.values()), strict=True)
    return [dict(zip(names, row, strict=True)) for row in values]


def as_list(values: Column) -> list[Any]:
    """Return the values of a column as Python's values."""
    found: list[Any] = values.tolist() if isinstance(values, np.ndarray) else list(values)
    return found


def plain_columns(table: AnyTable) -> dict[str, list[Any]]:
    """Return the columns of a table for text formats: bytes are hexadecimal."""
    columns = table.to_columns()
    return {one.name: table.json_column(one, columns[one.name]) for one in table.schema}


def plain_rows(table: AnyTable) -> list[dict[str, Any]]:
    """Return the rows of a table for text formats, as `plain_columns`."""
    return rows_of(plain_columns(table))


def arrow_column(column: Field, values: Column, *, is_spark: bool = False) -> pa.Array:
    """Return the values of a column as an Arrow array of its type."""
    pa = require_pyarrow()
    kind = column.arrow_type(is_spark=is_spark)
    if column.type == "time":
        times = timestamp_column(values)
        return (within_microseconds(times) if is_spark else times).cast(kind)
    if column.type.startswith("map<"):
        return pa.array([None if one is None else _pairs(one) for one in values], kind)
    if column.type == "string":
        return pa.array(
            [None if one is None else with_escaped_bytes(str(one)) for one in as_list(values)], kind
        )
    return pa.array(values, kind)


def timestamp_column(milliseconds: Column) -> pa.Array:
    """Return ``timestamp[ms, tz=UTC]``, with null for -1 and None."""
    pa = require_pyarrow()
    if isinstance(milliseconds, np.ndarray):
        values = np.ascontiguousarray(milliseconds)
        # A mask is a pass over fresh memory, and most logs need none.
        may_miss = len(values) > 0 and values.min() <= NO_TIMESTAMP
        raw = pa.array(values, pa.int64(), mask=values == NO_TIMESTAMP if may_miss else None)
    else:
        known = [None if one is None or one < 0 else one for one in milliseconds]
        raw = pa.array(known, pa.int64())
    return raw.cast(pa.timestamp("ms", tz="UTC"))


def within_microseconds(values: pa.Array) -> pa.Array:
    """
    Return values; null for times in milliseconds that 64 bits of microseconds cannot hold.

    Parameters
    ----------
    values : pyarrow.Array
        Times may also be in structs, lists and maps.

    Returns
    -------
    pyarrow.Array
        The same object, if all times fit.
    """
    pa = require_pyarrow()
    kind = values.type
    if kind == pa.timestamp("ms", tz="UTC"):
        return _times_within_microseconds(values)
    if pa.types.is_struct(kind):
        fields = [values.field(number) for number in range(kind.num_fields)]
        changed = [within_microseconds(one) for one in fields]
        if all(new is old for new, old in zip(changed, fields, strict=True)):
            return values
        return pa.StructArray.from_arrays(changed, fields=list(kind), mask=values.is_null())
    if not pa.types.is_list(kind) and not pa.types.is_map(kind):
        return values
    items = values.items if pa.types.is_map(kind) else values.values
    changed_items = within_microseconds(items)
    if changed_items is items:
        return values
    is_null = np.append(values.is_null().to_numpy(zero_copy_only=False), False)
    ends = pa.array(values.offsets.to_numpy(), mask=is_null)
    if pa.types.is_map(kind):
        return pa.MapArray.from_arrays(ends, values.keys, changed_items, type=kind)
    return pa.ListArray.from_arrays(ends, changed_items, type=kind)


def _times_within_microseconds(times: pa.Array) -> pa.Array:
    import pyarrow.compute as compute

    raw = times.view("int64")
    least, most = (one.as_py() or 0 for one in compute.min_max(raw).values())
    if -LATEST_MS <= least <= most <= LATEST_MS:
        return times
    fits = compute.and_(compute.greater_equal(raw, -LATEST_MS), compute.less_equal(raw, LATEST_MS))
    return compute.if_else(fits, times, None)


def warn_of_late_times() -> None:
    """Warn of times that are null because 64 bits of microseconds cannot hold them."""
    message = "times that 64 bits of microseconds cannot hold are null"
    warnings.warn(message, IncompleteTableWarning, stacklevel=2)


class WithinMicroseconds:
    """
    The stream of a table in which times are null that 64 bits of microseconds cannot hold.

    Parameters
    ----------
    table : AnyTable, or any other object with Arrow's stream capsule
    """

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        pa = require_pyarrow()
        reader = pa.RecordBatchReader.from_stream(self._table)
        batches = (self._shortened(batch) for batch in reader)
        stream = pa.RecordBatchReader.from_batches(reader.schema, batches)
        return stream.__arrow_c_stream__(requested_schema)

    @staticmethod
    def _shortened(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = batch.columns
        changed = [within_microseconds(one) for one in columns]
        if any(new is not old for new, old in zip(changed, columns, strict=True)):
            warn_of_late_times()
        return require_pyarrow().RecordBatch.from_arrays(changed, schema=batch.schema)


def _pairs(counts: Mapping[Any, int]) -> list[tuple[str, int]]:
    return [(str(name), count) for name, count in counts.items()]


def html_table(table: AnyTable, rows: int) -> str:
    """Return the first rows of a table as HTML."""
    import html

    head = table._head(rows)
    names = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    body = "".join(
        f"<tr>{''.join(f'<td>{_html_cell(value)}</td>' for value in row)}</tr>"
        for row in zip(*head.values(), strict=True)
    )
    # The class is pandas': notebooks style it.
    return f'<table class="dataframe"><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>'


def _html_cell(value: object) -> str:
    import html

    if value is None:
        return ""
    if isinstance(value, (bytes, str)):
        value = value[: _CELL_SIZE + 1]  # of a long value, nothing more is formatted
    text = str(value)
    return html.escape(text if len(text) <= _CELL_SIZE else f"{text[: _CELL_SIZE - 1]}…")


def problem_lines(problems: Problems) -> list[str]:
    """Return a line with the number of problems and the first one; none without problems."""
    return [f"  {len(problems):,} problems: {one}" for one in itertools.islice(problems, 1)]


# ---- problems --------------------------------------------------------------------------------

PROBLEM_SCHEMA = Schema(
    "problems",
    (
        Field("severity", "string", "note, warning or error", nullable=False, shown=Shown.ALWAYS,
              alarms={"error": "red", "warning": "yellow"}),
        Field("symbol", "string", "greppable name of the kind", nullable=False,
              shown=Shown.ALWAYS),
        Field("topic", "string", "topic of the log"),
        Field("partition", "int32", "partition of the log"),
        Field("path", "string", "file or folder", "path", nullable=False),
        Field("position", "int64", "byte position in the file"),
        Field("offset", "int64", "the first offset that is missing or in doubt"),
        Field("count", "int64", "number of these offsets"),
        Field("message", "string", "one sentence", nullable=False, shown=Shown.BELOW),
        Field("rows_missing", "bool", "whether rows of the table are missing because of it",
              nullable=False),
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Problem:
    """
    Something that was not read, is damaged, or makes an answer a guess.

    Attributes
    ----------
    symbol : str
        Greppable name of the kind.
    message : str
        One sentence, without path and position.
    path : str
        File or folder.
    severity : Severity, default ERROR
    position : int or None
        Byte position in the file.
    topic, partition : str and int, or None
        Of the log.
    rows_missing : bool, default True
        Whether rows of the answer are missing because of it.
    offset : int or None
        The first offset that is missing or in doubt, if it is known. After damage, that is the one
        after the last batch before it: a damaged header may contain any number.
    count : int or None
        Number of these offsets, if it is known. There may be fewer records: transactions and
        compaction leave gaps.
    """

    symbol: str
    message: str
    path: str
    severity: Severity = Severity.ERROR
    position: int | None = None
    topic: str | None = None
    partition: int | None = None
    rows_missing: bool = True
    # What they add does not make another problem.
    offset: int | None = field(default=None, compare=False)
    count: int | None = field(default=None, compare=False)

    def __str__(self) -> str:
        place = "" if self.position is None else f" position {self.position}:"
        return f"{self.path}:{place} {self.message} [{self.symbol}]"


UNREADABLE = "UNREADABLE"
"""Symbol of a file, folder or object that could not be read at all."""

UNREAD = frozenset({UNREADABLE, "SOURCE_FAULT"})
"""Symbols of files that could not be read, or not to their end."""

FILE_GONE = "FILE_GONE"
"""Symbol of a file that retention or compaction removed between two reads of it."""


def problem_of(
    error: Exception,
    path: str,
    *,
    topic: str | None = None,
    partition: int | None = None,
    offset: int | None = None,
) -> Problem:
    """
    Return the problem that an error means for an answer that goes on without what it is about.

    Parameters
    ----------
    error : Exception
        A `KafkaScanError`, or an `OSError`, which means that something was not read.
    path : str
        What was read, if the error does not say it.
    topic, partition
        Of the log.
    offset : int, optional
        The offset after what was read.
    """
    if isinstance(error, FileGoneError):  # the log goes on without it
        return Problem(
            FILE_GONE, error.reason, error.path, Severity.NOTE, None, topic, partition, False
        )
    reason = getattr(error, "reason", None)
    if reason is None and isinstance(error, OSError):
        reason = error.strerror
    unnamed = UNREADABLE if isinstance(error, OSError) else "CORRUPT"
    symbol = getattr(error, "symbol", unnamed)
    return Problem(
        symbol,
        str(reason or error).removesuffix(f" [{symbol}]"),
        str(getattr(error, "path", None) or getattr(error, "filename", None) or path),
        position=getattr(error, "position", None),
        topic=topic,
        partition=partition,
        offset=offset,
    )


class Problems(AnyTable):
    """
    The problems of an answer, as a table.

    Iterating yields each `Problem`.

    Parameters
    ----------
    found : iterable of Problem
    """

    schema: ClassVar[Schema] = PROBLEM_SCHEMA

    def __init__(self, found: Iterable[Problem] = ()) -> None:
        self._found = tuple(found)

    @property
    def problems(self) -> Problems:
        """The problems of a table of problems: none."""
        return NO_PROBLEMS

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[Problem]:
        return iter(self._found)

    def __getitem__(self, name: str | int) -> Any:
        """Return a column by its name, or a `Problem` by its number."""
        return self._found[name] if isinstance(name, int) else super().__getitem__(name)

    def __add__(self, others: Iterable[Problem]) -> Problems:
        return Problems((*self._found, *others))

    def to_columns(self) -> dict[str, Column]:
        """Return the columns as lists."""
        return {name: [getattr(one, name) for one in self._found] for name in PROBLEM_SCHEMA.names}

    @property
    def is_complete(self) -> bool:
        """Whether the table itself is complete: always."""
        return True


NO_PROBLEMS = Problems()
"""The problems of a complete answer."""


# ---- tables of plain values ------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class Table(AnyTable):
    """
    A table of plain values.

    ``table["offset"]`` is a column as a list, and `rows` returns the rows as dicts. pyarrow,
    Polars and DuckDB accept the object directly, through Arrow's stream capsule.

    Attributes
    ----------
    schema : Schema
    columns : dict of str to list or array
    problems : Problems
    """

    schema: Schema
    columns: Mapping[str, Column]
    problems: Problems = field(default=NO_PROBLEMS)

    @classmethod
    def of_rows(
        cls, schema: Schema, rows: Iterable[Mapping[str, Any]], problems: Problems = NO_PROBLEMS
    ) -> Table:
        """Return a table of rows, each of which has a value for every column."""
        listed = list(rows)
        columns = {name: [row[name] for row in listed] for name in schema.names}
        return cls(schema, columns, problems)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, name: str) -> Any:
        return self.columns[self.schema[name].name]

    def to_columns(self) -> dict[str, Column]:
        """Return the columns."""
        return dict(self.columns)

    def where(self, **wanted: object) -> Table:
        """Return the rows whose columns have these values."""
        rows = (row for row in self.rows() if all(row[name] == of for name, of in wanted.items()))
        return self.of_rows(self.schema, rows, self.problems)

    def select(self, names: Sequence[str]) -> Table:
        """Return some columns."""
        return replace(
            self, schema=self.schema.select(names), columns={name: self[name] for name in names}
        )
