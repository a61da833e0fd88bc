"""Write rows as an aligned table, JSON, JSON lines, CSV or Parquet, to stdout or a file."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TextIO

import click
import numpy as np

from kafkascan.batches.arrow import require_pyarrow
from kafkascan.batches.columns import as_datetime64
from kafkascan.cli.inputs import SEGMENT_COLUMNS
from kafkascan.format.texts import escaped, json_text, printable, with_escaped_bytes
from kafkascan.io.atomic_files import AtomicFile
from kafkascan.records.record_table import RecordTable

FORMATS = ("table", "json", "jsonl", "csv")

_TABLE_EXTENSIONS = ("", ".txt")
_FORMATS_BY_EXTENSION = {
    ".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".parquet": "parquet",
}  # fmt: skip

# Columns in milliseconds that a table shows as UTC times.
TIME_COLUMNS = frozenset(
    {
        "timestamp",
        "base_timestamp",
        "max_timestamp",
        "delete_horizon_ms",
        "first_timestamp",
        "last_timestamp",
        "age_at",
    }
)
# A spreadsheet evaluates a cell that starts with one of these (OWASP, "CSV Injection").
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
# Texts that a table shows in quotes: a dash is a null.
_QUOTED = ("", "-", '""', '"-"')
# Longest text of a table's cell, in characters.
_MAX_CELL = 120

Columns = Mapping[str, Sequence[Any]]


def format_by_extension(path: Path | None) -> str:
    """
    Return the output format that the extension of a file stands for; ``table`` for stdout.

    Raises
    ------
    click.UsageError
        If the extension stands for none: a table of text in an .xlsx file helps nobody.
    """
    if path is None or path.suffix.lower() in _TABLE_EXTENSIONS:
        return "table"
    found = _FORMATS_BY_EXTENSION.get(path.suffix.lower())
    if found is None:
        raise click.UsageError(f"{path}: {path.suffix!r} does not name a format; give --format")
    return found


class Writer:
    """Writes rows, chunk by chunk; `close` ends the document."""

    def __init__(self, names: Sequence[str], out: TextIO) -> None:
        self.names = list(names)
        self.out = out

    def write(self, columns: Columns) -> None:
        """Write a chunk of rows, as columns of equal length."""
        raise NotImplementedError

    def close(self) -> None:
        """Write the end of the document."""

    def _rows(self, columns: Columns) -> list[tuple[Any, ...]]:
        return list(zip(*(columns[name] for name in self.names), strict=True))


class CsvWriter(Writer):
    """
    Comma-separated values with a header line; times in milliseconds; a null is an empty field.

    Names and values come from the producers of a log. Text that a spreadsheet would evaluate
    as a formula gets a leading apostrophe; numbers stay unchanged.
    """

    def __init__(self, names: Sequence[str], out: TextIO) -> None:
        super().__init__(names, out)
        self._csv = csv.writer(self.out, lineterminator="\n")
        self._all_quoted = csv.writer(self.out, lineterminator="\n", quoting=csv.QUOTE_ALL)
        self._csv.writerow(self.names)

    def write(self, columns: Columns) -> None:
        plain = {name: [_csv_cell(value) for value in columns[name]] for name in self.names}
        for row in self._rows(plain):
            # The csv module does not quote a carriage return inside of a field.
            has_return = any("\r" in cell for cell in row)
            (self._all_quoted if has_return else self._csv).writerow(row)


class JsonLinesWriter(Writer):
    """One JSON object per line; times in milliseconds."""

    prefix, separator = "", "\n"

    def write(self, columns: Columns) -> None:
        for row in self._rows(columns):
            self.out.write(self.prefix + json_text(dict(zip(self.names, row, strict=True))))
            self.prefix = self.separator

    def close(self) -> None:
        if self.prefix:
            self.out.write("\n")


class JsonWriter(JsonLinesWriter):
    """One JSON array of objects, an object per line; times in milliseconds."""

    prefix, separator = "[\n", ",\n"

    def close(self) -> None:
        self.out.write("[]\n" if self.prefix == "[\n" else "\n]\n")


class TableWriter(Writer):
    """Aligned text; times in UTC."""

    def __init__(self, names: Sequence[str], out: TextIO) -> None:
        super().__init__(names, out)
        self._widths: list[int] = []
        self._is_number: list[bool] = []

    def write(self, columns: Columns) -> None:
        if not columns[self.names[0]]:
            return
        cells = [_cells(name, columns[name]) for name in self.names]
        if not self._widths:
            self._is_number = [_are_numbers(columns[name]) for name in self.names]
            self._widths = [
                max([len(name), *map(len, column)])
                for name, column in zip(self.names, cells, strict=True)
            ]
            self._write_line(self.names)
        for row in zip(*cells, strict=True):
            self._write_line(row)

    def close(self) -> None:
        if not self._widths:
            self.out.write("  ".join(self.names) + "\n")

    def _write_line(self, row: Sequence[str]) -> None:
        padded = (
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(row, self._widths, self._is_number, strict=True)
        )
        self.out.write("  ".join(padded).rstrip() + "\n")


def _cells(name: str, values: Sequence[Any]) -> list[str]:
    if name in TIME_COLUMNS:
        times = as_datetime64(np.array([-1 if v is None else v for v in values], np.int64))
        return ["-" if np.isnat(time) else f"{time}Z" for time in times]
    return [_cell(value) for value in values]


def _cell(value: Any) -> str:
    if value in _QUOTED:
        return json.dumps(value)
    # Other values become JSON, which has its own escapes.
    text = escaped(value) if isinstance(value, str) else printable(_plain(value))
    if len(text) > _MAX_CELL:
        text = text[: _MAX_CELL - 1] + "…"
    return text or "-"


def _are_numbers(values: Sequence[Any]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(type(value) is int for value in known)


def _csv_cell(value: Any) -> str:
    text = _plain(value)
    is_text = isinstance(value, (str, list, dict))
    return f"'{text}" if is_text and text.startswith(_FORMULA_STARTS) else text


def _plain(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, dict)) and not value:
        return ""
    if isinstance(value, Counter):
        return ", ".join(f"{key} {count}" for key, count in value.items())
    if isinstance(value, (list, dict)):
        return with_escaped_bytes(json.dumps(value, ensure_ascii=False))
    return with_escaped_bytes(str(value))


_WRITERS: dict[str, type[Writer]] = {
    "table": TableWriter,
    "json": JsonWriter,
    "jsonl": JsonLinesWriter,
    "csv": CsvWriter,
}


class HasColumns(Protocol):
    """A result of the library that is a table."""

    def to_columns(self) -> dict[str, list[Any]]:
        """Return the values of each column."""

    def to_arrow(self) -> Any:
        """Return a `pyarrow.Table`."""


@dataclass(frozen=True)
class RowOutput:
    """
    Destination and format of the rows of a command.

    Attributes
    ----------
    output_format : str
        One of `FORMATS`, or ``"parquet"``.
    path : Path or None
        A file, which is replaced atomically; None is stdout.
    """

    output_format: str
    path: Path | None = None

    def check(self) -> None:
        """
        Check that the output can be written.

        Raises
        ------
        click.UsageError
            If it is no regular file, or Parquet without a file or without pyarrow.
        """
        if self.output_format == "parquet":
            if self.path is None:
                raise click.UsageError("parquet needs --output FILE")
            try:
                require_pyarrow()
            except ImportError as error:
                raise click.UsageError(str(error)) from None
        if self.path is not None and self.path.exists() and not self.path.is_file():
            raise click.UsageError(f"{self.path}: not a regular file; omit --output for stdout")

    def check_against(self, inputs: Iterable[Path]) -> None:
        """
        Check that the output is not one of the files that are read.

        Raises
        ------
        click.UsageError
        """
        if self.path is None or not self.path.exists():
            return
        if any(path.exists() and self.path.samefile(path) for path in inputs):
            raise click.UsageError(f"{self.path}: the output file is also an input")

    @contextmanager
    def open(self, names: Sequence[str]) -> Iterator[Writer]:
        """Open a writer of rows with these columns."""
        if self.path is None:
            writer = _WRITERS[self.output_format](names, sys.stdout)
            yield writer
            writer.close()
            return
        with AtomicFile(self.path) as file:
            out = io.TextIOWrapper(file.stream, "utf-8", "backslashreplace", write_through=True)
            writer = _WRITERS[self.output_format](names, out)
            yield writer
            writer.close()
            out.flush()
            out.detach()

    def write_columns(self, columns: Columns) -> None:
        """Write columns as one table."""
        with self.open(list(columns)) as writer:
            writer.write(columns)

    def write_rows(self, names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
        """Write the named columns of rows as one table."""
        with self.open(names) as writer:
            writer.write({name: [row[name] for row in rows] for name in names})

    def write_tables(self, names: Sequence[str], results: Sequence[HasColumns]) -> None:
        """
        Write results of the library, one after the other, as one table.

        The format ``table`` shows the named columns only, any other format all columns.
        """
        if self.output_format == "parquet":
            assert self.path is not None
            write_parquet(self.path, [one.to_arrow() for one in results])
            return
        tables: list[Columns] = [one.to_columns() for one in results]
        shown = names if self.output_format == "table" or not tables else list(tables[0])
        with self.open(shown) as writer:
            for table in tables:
                writer.write({name: table[name] for name in shown})


# ---- Parquet ---------------------------------------------------------------------------------


def write_parquet(path: Path, tables: Sequence[Any]) -> None:
    """Write Arrow tables of the same columns to one Parquet file, which is replaced atomically."""
    import pyarrow.parquet

    table = pyarrow.concat_tables(tables) if tables else pyarrow.table({})
    with AtomicFile(path) as file:
        pyarrow.parquet.write_table(table, file.stream, compression="zstd")


class ParquetOutput:
    """
    A Parquet file of records, which is replaced atomically at the end.

    Parameters
    ----------
    path : Path
    names : sequence of str
        The columns to write, in order.
    """

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        require_pyarrow()
        self._file = AtomicFile(path)
        self._names = names
        self._writer: Any = None

    def write(self, labels: Mapping[str, object], records: RecordTable) -> None:
        """Write records of the segment that `labels` identifies."""
        pa = require_pyarrow()
        columns = records.to_arrow()
        table = pa.table(
            {
                name: _repeated(labels[name], name, len(records))
                if name in SEGMENT_COLUMNS
                else _decoded(columns[name])
                for name in self._names
            }
        )
        self._open(table.schema).write_table(table)

    def _open(self, schema: Any) -> Any:
        import pyarrow.parquet

        if self._writer is None:
            self._writer = pyarrow.parquet.ParquetWriter(
                self._file.stream, schema, compression="zstd"
            )
        return self._writer

    def __enter__(self) -> Self:
        self._file.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None and self._writer is None:
                self.write(dict.fromkeys(SEGMENT_COLUMNS), _no_records(self._names))
            if self._writer is not None:
                self._writer.close()
        except BaseException as closing:
            self._file.__exit__(type(closing), closing, closing.__traceback__)
            raise
        self._file.__exit__(kind, error, traceback)


def _no_records(names: Sequence[str]) -> RecordTable:
    from kafkascan.logs.reading import read_records

    return read_records(b"", columns=[name for name in names if name not in SEGMENT_COLUMNS])


def _repeated(value: object, name: str, count: int) -> Any:
    pa = require_pyarrow()
    if name == "partition":
        return pa.repeat(pa.scalar(value, pa.int32()), count)
    text = None if value is None else with_escaped_bytes(str(value))
    return pa.repeat(pa.scalar(text, pa.string()), count)


def _decoded(column: Any) -> Any:
    """Decode dictionaries: segments have different ones, and a file has one schema."""
    pa = require_pyarrow()
    is_dictionary = pa.types.is_dictionary(column.type)
    return column.cast(column.type.value_type) if is_dictionary else column
