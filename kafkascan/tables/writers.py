"""Write rows, chunk by chunk, as JSON, JSON lines, CSV or Parquet; what a writer of rows is."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import IO, Any, TextIO

import numpy as np

from kafkascan.format.texts import json_text, with_escaped_bytes
from kafkascan.tables.schema import Schema
from kafkascan.tables.table import Column, Table, as_list

# A spreadsheet evaluates a cell that starts with one of these (OWASP, "CSV Injection").
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
_ROWS_PER_GROUP = 1 << 16


@dataclass(frozen=True)
class LargeText:
    """
    A text of many megabytes, which JSON and CSV write piece by piece.

    Attributes
    ----------
    pieces : callable
        Returns an iterator over its pieces.
    """

    pieces: Callable[[], Iterator[str]]


class Writer:
    """
    Writes rows, chunk by chunk; `close` ends the document.

    Parameters
    ----------
    schema : Schema
        Of the columns to write, in order.
    out : text stream
    """

    def __init__(self, schema: Schema, out: TextIO) -> None:
        self.schema = schema
        self.out = out

    def write(self, columns: Mapping[str, Column]) -> None:
        """Write a chunk of rows, as columns of equal length."""
        raise NotImplementedError

    def close(self) -> None:
        """Write the end of the document."""

    def _rows(self, columns: Mapping[str, Column]) -> list[tuple[Any, ...]]:
        return list(zip(*(as_list(columns[name]) for name in self.schema.names), strict=True))


class ParquetWriter(Writer):
    """
    A Parquet file, with row groups of at least `_ROWS_PER_GROUP` rows, but for the last one.

    Types are those of the schema.
    """

    def __init__(self, schema: Schema, stream: IO[bytes]) -> None:
        super().__init__(schema, io.StringIO())
        self._stream = stream
        self._group: list[Any] = []
        self._rows_of_group = 0
        self._file: Any = None

    def write(self, columns: Mapping[str, Column]) -> None:
        """Write a chunk of rows."""
        self.write_table(Table(self.schema, columns).arrow_table())

    def write_table(self, table: Any) -> None:
        """Write a `pyarrow.Table` of the same columns."""
        self._group.append(table)
        self._rows_of_group += len(table)
        if self._rows_of_group >= _ROWS_PER_GROUP:
            self._write_group()

    def _write_group(self) -> None:
        import pyarrow.parquet

        table = pyarrow.concat_tables(self._group)
        self._group, self._rows_of_group = [], 0
        if self._file is None:
            # Those of keys and values help no reader, and take copies of large ones.
            counted = [one.name for one in table.schema if not pyarrow.types.is_binary(one.type)]
            self._file = pyarrow.parquet.ParquetWriter(
                self._stream, table.schema, compression="zstd", write_statistics=counted
            )
        self._file.write_table(table)

    def close(self) -> None:
        """Write what is left, and the end of the document."""
        if self._file is None and not self._group:
            self.write_table(self.schema.to_arrow().empty_table())
        if self._group:
            self._write_group()
        self._file.close()


class CsvWriter(Writer):
    """
    Comma-separated values with a header line; times in milliseconds; a null is an empty field.

    Names and values come from the producers of a log. Text that a spreadsheet would evaluate
    as a formula gets a leading apostrophe; numbers stay unchanged.
    """

    def __init__(self, schema: Schema, out: TextIO) -> None:
        super().__init__(schema, out)
        self._csv = csv.writer(self.out, lineterminator="\n")
        self._all_quoted = csv.writer(self.out, lineterminator="\n", quoting=csv.QUOTE_ALL)
        self._csv.writerow(schema.names)

    def write(self, columns: Mapping[str, Column]) -> None:
        """Write a chunk of rows."""
        plain = {name: [_csv_cell(value) for value in as_list(columns[name])]
                 for name in self.schema.names}  # fmt: skip
        for row in self._rows(plain):
            if any(isinstance(cell, LargeText) for cell in row):
                self._write_large(row)
                continue
            # The csv module does not quote a carriage return inside of a field.
            has_return = any("\r" in cell for cell in row)
            (self._all_quoted if has_return else self._csv).writerow(row)

    def _write_large(self, row: Sequence[str | LargeText]) -> None:
        for number, cell in enumerate(row):
            self.out.write(',"' if number else '"')
            pieces = cell.pieces() if isinstance(cell, LargeText) else iter((cell,))
            first = next(pieces, "")
            is_formula = isinstance(cell, LargeText) and first.startswith(_FORMULA_STARTS)
            for piece in chain(("'",) if is_formula else (), (first,), pieces):
                self.out.write(piece.replace('"', '""'))
            self.out.write('"')
        self.out.write("\n")


class JsonLinesWriter(Writer):
    """One JSON object per line; times in milliseconds."""

    def write(self, columns: Mapping[str, Column]) -> None:
        """Write a chunk of rows."""
        names = self.schema.names
        for row in self._rows(columns):
            # With its end, so that a reader of a pipe gets each line as soon as it is flushed.
            _write_json(self.out, "", names, row, "\n")


class JsonWriter(Writer):
    """One JSON array of objects, an object per line; times in milliseconds."""

    prefix = "[\n"

    def write(self, columns: Mapping[str, Column]) -> None:
        """Write a chunk of rows."""
        names = self.schema.names
        for row in self._rows(columns):
            _write_json(self.out, self.prefix, names, row, "")
            self.prefix = ",\n"

    def close(self) -> None:
        """Write what is left, and the end of the document."""
        self.out.write("[]\n" if self.prefix == "[\n" else "\n]\n")


def _write_json(
    out: TextIO, before: str, names: Sequence[str], row: Sequence[Any], after: str
) -> None:
    """Write an object, and what precedes and follows it."""
    if not any(isinstance(value, LargeText) for value in row):
        out.write(before + json_text(dict(zip(names, row, strict=True))) + after)
        return
    out.write(before)
    for number, (name, value) in enumerate(zip(names, row, strict=True)):
        out.write(f"{', ' if number else '{'}{json_text(name)}: ")
        if isinstance(value, LargeText):
            out.write('"')
            for piece in value.pieces():
                out.write(json_text(piece)[1:-1])
            out.write('"')
        else:
            out.write(json_text(value))
    out.write("}" + after)


class IsoTimes(Writer):
    """
    Writes times in ISO 8601 with another writer, which would write milliseconds.

    Parameters
    ----------
    writer : Writer
    """

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer.schema, writer.out)
        self._writer = writer

    def write(self, columns: Mapping[str, Column]) -> None:
        """Write a chunk of rows."""
        times = {one.name: _iso_times(columns[one.name]) for one in self.schema
                 if one.type == "time"}  # fmt: skip
        self._writer.write({**columns, **times})

    def close(self) -> None:
        """Write what is left, and the end of the document."""
        self._writer.close()


def _iso_times(milliseconds: Column) -> list[str | None]:
    values = [None if one == -1 else one for one in as_list(milliseconds)]
    times = np.array([one or 0 for one in values], "datetime64[ms]")
    texts = np.datetime_as_string(times, timezone="UTC").tolist()
    return [None if one is None else text for one, text in zip(values, texts, strict=True)]


def _csv_cell(value: Any) -> str | LargeText:
    if isinstance(value, LargeText):
        return value
    text = plain_text(value)
    is_text = isinstance(value, (str, list, dict))
    return f"'{text}" if is_text and text.startswith(_FORMULA_STARTS) else text


def plain_text(value: Any) -> str:
    """Return a value as text without quotes; a null and an empty list are empty."""
    if value is None or (isinstance(value, (list, dict)) and not value):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Counter):
        return ", ".join(f"{key} {count}" for key, count in value.items())
    if isinstance(value, (list, dict)):
        return with_escaped_bytes(json.dumps(value, ensure_ascii=False))
    return with_escaped_bytes(str(value))


TEXT_WRITERS: Mapping[str, type[Writer]] = {
    "json": JsonWriter,
    "jsonl": JsonLinesWriter,
    "csv": CsvWriter,
}
"""The writers of text formats, by their names."""

FORMAT_OF_EXTENSION: Mapping[str, str] = {
    ".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".parquet": "parquet",
}  # fmt: skip
"""The formats that extensions of files stand for."""


def as_columns(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, Column]:
    """Return the named columns of rows."""
    return {name: [row[name] for row in rows] for name in names}
