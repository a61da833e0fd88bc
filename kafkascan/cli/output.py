"""Write rows as an aligned table, JSON, JSON lines, CSV or Parquet, to stdout or a file."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

import click

from kafkascan.cli.table_text import TableStyle, TableWriter
from kafkascan.cli.terminal import stdout_for_values
from kafkascan.io.atomic_files import AtomicFile
from kafkascan.tables.schema import Schema, Shown, require_pyarrow
from kafkascan.tables.table import AnyTable, plain_columns
from kafkascan.tables.writers import (
    FORMAT_OF_EXTENSION,
    TEXT_WRITERS,
    IsoTimes,
    ParquetWriter,
    SortedRows,
    SortOrder,
    Writer,
    as_columns,
)

_TABLE_EXTENSIONS = ("", ".txt")


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
    found = FORMAT_OF_EXTENSION.get(path.suffix.lower())
    if found is None:
        raise click.UsageError(f"{path}: {path.suffix!r} does not name a format; give --format")
    return found


@dataclass(frozen=True)
class RowOutput:
    """
    Destination and format of the rows of a command.

    Attributes
    ----------
    output_format : str
        ``"table"``, a format of `TEXT_WRITERS`, ``"parquet"``, or another name with `make_writer`.
    path : Path or None
        A file, which is replaced atomically; None is stdout.
    columns : tuple of str or None
        The columns to write; None: all, or in a table, those for which there is room.
    is_wide : bool
        Whether a table has all columns, too.
    is_exact : bool
        Whether a table shows sizes, durations and file names in full.
    is_iso : bool
        Whether times are written in ISO 8601 where they are milliseconds otherwise.
    sort : SortOrder or None
        A column of the rows by which they are sorted.
    make_writer : callable or None
        Takes a schema and a stream of text, and returns the writer of another format.
    """

    output_format: str
    path: Path | None = None
    columns: tuple[str, ...] | None = None
    is_wide: bool = False
    is_exact: bool = False
    is_iso: bool = False
    sort: SortOrder | None = None
    make_writer: Callable[[Schema, TextIO], Writer] | None = None

    def with_last(self, name: str) -> RowOutput:
        """Return the output with a column after those that were chosen, if any were."""
        if self.columns is None or name in self.columns:
            return self
        return replace(self, columns=(*self.columns, name))

    def check(self) -> None:
        """
        Check that the output can be written.

        Raises
        ------
        click.UsageError
            If it is Parquet without a file or without pyarrow, or is sorted by a column that is
            not written.
        """
        if self.columns is not None:
            self.check_sort(self.columns)
        if self.output_format == "parquet":
            if self.path is None:
                raise click.UsageError("parquet needs --output FILE")
            try:
                require_pyarrow()
            except ImportError as error:
                raise click.UsageError(str(error)) from None

    def check_sort(self, names: Sequence[str]) -> None:
        """
        Check that rows of these columns can be sorted.

        Raises
        ------
        click.UsageError
        """
        if self.sort is not None and self.sort.column not in names:
            raise click.UsageError(f"--sort {self.sort.column}: the rows do not have this column")

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
    def open(self, schema: Schema, footer: str = "") -> Iterator[Writer]:
        """Open a writer of rows, and of a text below; its schema has the columns to write."""
        if self.columns is not None:
            schema = schema.select(self.columns)
        self.check_sort(schema.names)
        if self.path is None:
            is_table = self.output_format == "table"  # its cells are printable
            writer = self._writer(schema, sys.stdout if is_table else stdout_for_values())
            yield writer
            writer.close()
            writer.out.write(footer)
            return
        with AtomicFile(self.path) as file:
            if self.output_format == "parquet":
                parquet = ParquetWriter(schema, file.stream, self.sort)
                yield parquet
                parquet.close()
                return
            out = io.TextIOWrapper(file.stream, "utf-8", "backslashreplace", write_through=True)
            writer = self._writer(schema, out)
            yield writer
            writer.close()
            out.write(footer)
            out.flush()
            out.detach()

    def _writer(self, schema: Schema, out: TextIO) -> Writer:
        writer = self._unsorted_writer(schema, out)
        return writer if self.sort is None else SortedRows(schema, writer, self.sort)

    def _unsorted_writer(self, schema: Schema, out: TextIO) -> Writer:
        if self.make_writer is not None:
            return self.make_writer(schema, out)
        if self.output_format != "table":
            writer = TEXT_WRITERS[self.output_format](schema, out)
            return IsoTimes(writer) if self.is_iso else writer
        is_chosen = self.is_wide or self.columns is not None
        if not is_chosen:
            schema = schema.without(Shown.WIDE)
        is_terminal = out.isatty()
        width = None
        if is_terminal and not self.is_wide:
            import shutil  # it loads libraries of compression

            width = shutil.get_terminal_size().columns
        has_colours = is_terminal and not os.environ.get("NO_COLOR")
        return TableWriter(schema, out, TableStyle(is_chosen, self.is_exact, width, has_colours))

    def write_text(self, text: str) -> None:
        """Write a text as it is."""
        if self.path is None:
            sys.stdout.write(text)
            return
        with AtomicFile(self.path) as file:
            file.stream.write(text.encode("utf-8", "backslashreplace"))

    def write_rows(
        self,
        schema: Schema,
        rows: Sequence[Mapping[str, Any]],
        *,
        footer: str = "",
        limit: int | None = None,
    ) -> None:
        """
        Write rows, which have a value for every column, as one table.

        Parameters
        ----------
        schema : Schema
        rows : sequence of mappings
        footer : str, optional
            A line below a table for people.
        limit : int, optional
            Largest number of rows; the first ones, after they are sorted.
        """
        if limit is not None:
            self.check_sort(schema.names)
            order = range(len(rows)) if self.sort is None else self.sort.order_of(schema, rows)
            rows = [rows[number] for number in order[:limit]]
        with self.open(schema, footer if self.output_format == "table" else "") as writer:
            writer.write(as_columns(rows, writer.schema.names))

    def write_tables(self, schema: Schema, tables: Sequence[AnyTable]) -> None:
        """
        Write tables of the same columns, one after the other, as one table.

        Without a table, as no input could be read, people get no empty one.
        """
        if not tables and self.output_format == "table" and self.path is None:
            return
        with self.open(schema) as writer:
            for one in tables:
                if isinstance(writer, ParquetWriter):
                    writer.write_table(one.arrow_table(writer.schema.names))
                else:
                    writer.write(plain_columns(one))
