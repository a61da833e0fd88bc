"""Write rows as an aligned table, JSON, JSON lines, CSV or Parquet, to stdout or a file."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

import click

from kafkascan.cli.inputs import SEGMENT_COLUMNS
from kafkascan.cli.row_writers import (
    Columns,
    CsvWriter,
    JsonLinesWriter,
    JsonWriter,
    ParquetWriter,
    Writer,
)
from kafkascan.cli.shown_columns import ShownColumns
from kafkascan.cli.table_text import TableStyle, TableWriter
from kafkascan.format.texts import with_escaped_bytes
from kafkascan.io.atomic_files import AtomicFile
from kafkascan.records.record_table import RecordTable
from kafkascan.tables.schema import require_pyarrow
from kafkascan.tables.table import AnyTable, plain_columns

FORMATS = ("table", "json", "jsonl", "csv")

_TABLE_EXTENSIONS = ("", ".txt")
_FORMATS_BY_EXTENSION = {
    ".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".parquet": "parquet",
}  # fmt: skip


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


_WRITERS: dict[str, type[Writer]] = {
    "json": JsonWriter,
    "jsonl": JsonLinesWriter,
    "csv": CsvWriter,
}


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
    columns : tuple of str or None
        The columns to write; None: all, or in a table, those for which there is room.
    is_wide : bool
        Whether a table has all columns, too.
    is_exact : bool
        Whether a table shows sizes, durations and file names in full.
    """

    output_format: str
    path: Path | None = None
    columns: tuple[str, ...] | None = None
    is_wide: bool = False
    is_exact: bool = False

    def check(self) -> None:
        """
        Check that the output can be written.

        Raises
        ------
        click.UsageError
            If it is Parquet without a file or without pyarrow.
        """
        if self.output_format == "parquet":
            if self.path is None:
                raise click.UsageError("parquet needs --output FILE")
            try:
                require_pyarrow()
            except ImportError as error:
                raise click.UsageError(str(error)) from None

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
    def open(self, columns: ShownColumns | Sequence[str]) -> Iterator[Writer]:
        """Open a writer of rows with these columns."""
        if self.path is None:
            writer = self._writer(columns, sys.stdout)
            yield writer
            writer.close()
            return
        with AtomicFile(self.path) as file:
            if self.output_format == "parquet":
                parquet = ParquetWriter(self._selected(columns)[0], file.stream)
                yield parquet
                parquet.close()
                return
            out = io.TextIOWrapper(file.stream, "utf-8", "backslashreplace", write_through=True)
            writer = self._writer(columns, out)
            yield writer
            writer.close()
            out.flush()
            out.detach()

    def _writer(self, columns: ShownColumns | Sequence[str], out: TextIO) -> Writer:
        names, details = self._selected(columns)
        if self.output_format != "table":
            return _WRITERS[self.output_format](names, out)
        is_terminal = out.isatty()
        fits = is_terminal and not self.is_wide
        style = TableStyle(
            details,
            self.is_exact,
            shutil.get_terminal_size().columns if fits else None,
            is_terminal and not os.environ.get("NO_COLOR"),
        )
        return TableWriter(names, out, style)

    def _selected(
        self, columns: ShownColumns | Sequence[str]
    ) -> tuple[Sequence[str], tuple[str, ...]]:
        """Return the columns to write, and those that are details in a table."""
        if self.columns is not None:
            return self.columns, ()
        if not isinstance(columns, ShownColumns):
            return columns, ()
        if self.output_format == "table" and not self.is_wide:
            return columns.narrow, columns.details
        return columns.names, ()

    def write_text(self, text: str) -> None:
        """Write a text as it is."""
        if self.path is None:
            sys.stdout.write(text)
            return
        with AtomicFile(self.path) as file:
            file.stream.write(text.encode("utf-8", "backslashreplace"))

    def write_columns(self, columns: Columns) -> None:
        """Write columns as one table."""
        with self.open(list(columns)) as writer:
            writer.write(columns)

    def write_rows(
        self, columns: ShownColumns | Sequence[str], rows: Sequence[Mapping[str, Any]]
    ) -> None:
        """Write the named columns of rows as one table."""
        with self.open(columns) as writer:
            needed = dict.fromkeys((*writer.names, *self._selected(columns)[1]))
            writer.write({name: [row[name] for row in rows] for name in needed})

    def write_tables(self, columns: ShownColumns, results: Sequence[AnyTable]) -> None:
        """Write results of the library, one after the other, as one table."""
        if self.output_format == "parquet":
            assert self.path is not None
            tables = [one.arrow_table() for one in results]
            if self.columns is not None:
                tables = [one.select(list(self.columns)) for one in tables]
            write_parquet(self.path, tables)
            return
        with self.open(columns) as writer:
            for one in results:
                writer.write(plain_columns(one))


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
