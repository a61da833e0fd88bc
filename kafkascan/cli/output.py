"""Rows to stdout: aligned text, JSON, JSON lines or CSV, written as they come."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from kafkascan import CompressionType, TimestampType, as_datetime64
from kafkascan.files import AtomicFile
from kafkascan.names import printable

FORMATS = ("table", "json", "jsonl", "csv")

# Milliseconds; a table shows them as times.
TIME_COLUMNS = frozenset(
    {
        "timestamp",
        "base_timestamp",
        "max_timestamp",
        "min_timestamp",
        "delete_horizon_ms",
        "first_timestamp",
        "last_timestamp",
    }
)
# Numbers that are shown by Kafka's names.
NAMED_CODES = {"compression_type": CompressionType, "timestamp_type": TimestampType}
# Spreadsheets take a cell that begins so for a formula (OWASP, "CSV Injection").
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
# A cell of a table has at most this many characters.
_WIDEST_CELL = 120

Columns = Mapping[str, Sequence[Any]]


class Writer:
    """Writes columns of rows, chunk by chunk; `close` ends the document."""

    def __init__(self, names: Sequence[str], out: TextIO | None = None) -> None:
        self.names = list(names)
        self.out = sys.stdout if out is None else out

    def write(self, columns: Columns) -> None:
        """Write a chunk; it has all columns, each of the same length."""
        raise NotImplementedError

    def close(self) -> None:
        """Write what ends the document."""

    def _rows(self, columns: Columns) -> list[tuple[Any, ...]]:
        return list(zip(*(columns[name] for name in self.names), strict=True))


class CsvWriter(Writer):
    """
    Comma-separated, with a header line; times in milliseconds; a null is an empty field.

    Names and values come from whoever wrote to the log. So text at which a spreadsheet would
    calculate begins with an apostrophe; numbers are as they are.
    """

    def __init__(self, names: Sequence[str], out: TextIO | None = None) -> None:
        super().__init__(names, out)
        self._csv = csv.writer(self.out, lineterminator="\n")
        self._all_quoted = csv.writer(self.out, lineterminator="\n", quoting=csv.QUOTE_ALL)
        self._csv.writerow(self.names)

    def write(self, columns: Columns) -> None:
        plain = {name: [_csv_cell(value) for value in columns[name]] for name in self.names}
        for row in self._rows(plain):
            # The module does not quote a carriage return that ends no line of ours.
            has_return = any("\r" in cell for cell in row)
            (self._all_quoted if has_return else self._csv).writerow(row)


class JsonLinesWriter(Writer):
    """One JSON object per line; times in milliseconds."""

    prefix, separator = "", "\n"

    def write(self, columns: Columns) -> None:
        for row in self._rows(columns):
            self.out.write(self.prefix + json.dumps(dict(zip(self.names, row, strict=True))))
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
    """Columns aligned for the eye; times in UTC."""

    def __init__(self, names: Sequence[str], out: TextIO | None = None) -> None:
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
    if value == "":
        return '""'  # a null is a dash
    text = _plain(value)
    if len(text) > _WIDEST_CELL:
        text = text[: _WIDEST_CELL - 1] + "…"
    return printable(text) or "-"


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
    if isinstance(value, list) or (isinstance(value, dict) and _is_nested(value)):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        return ", ".join(f"{key} {count}" for key, count in value.items())
    return str(value)


def _is_nested(value: dict[str, Any]) -> bool:
    return not all(isinstance(inner, (int, str)) for inner in value.values())


_WRITERS: dict[str, type[Writer]] = {
    "table": TableWriter,
    "json": JsonWriter,
    "jsonl": JsonLinesWriter,
    "csv": CsvWriter,
}


@contextmanager
def open_output(output_format: str, names: Sequence[str], path: Path | None) -> Iterator[Writer]:
    """Write to stdout, or to a file that appears when it is whole."""
    if path is None:
        writer = _WRITERS[output_format](names)
        yield writer
        writer.close()
        return
    with AtomicFile(path) as file:
        out = io.TextIOWrapper(file.stream, "utf-8", "backslashreplace", write_through=True)
        writer = _WRITERS[output_format](names, out)
        yield writer
        writer.close()
        out.flush()
        out.detach()


def open_writer(output_format: str, names: Sequence[str]) -> Writer:
    """Return the writer of a format, for rows of these columns."""
    return _WRITERS[output_format](names)


def write_rows(output_format: str, names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows that are all there, of which these columns are shown."""
    writer = open_writer(output_format, names)
    if rows:
        writer.write({name: [row[name] for row in rows] for name in names})
    writer.close()
