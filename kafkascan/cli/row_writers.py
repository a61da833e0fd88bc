"""Write rows as CSV, JSON, JSON lines or Parquet; what a writer of rows is."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import IO, Any, TextIO

from kafkascan.cli.shown_columns import COLUMN_KINDS
from kafkascan.format.texts import json_text, with_escaped_bytes
from kafkascan.internal_topics.state_tables import StateTable

# A spreadsheet evaluates a cell that starts with one of these (OWASP, "CSV Injection").
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
Columns = Mapping[str, Sequence[Any]]

_ROWS_PER_GROUP = 1 << 16


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


class ParquetWriter(Writer):
    """
    A Parquet file, with row groups of at least `_ROWS_PER_GROUP` rows, but for the last one.

    Times are ``timestamp[ms, UTC]``, counts by name are maps, other numbers are 64 bit.
    """

    def __init__(self, names: Sequence[str], stream: IO[bytes]) -> None:
        super().__init__(names, io.StringIO())
        self._stream = stream
        self._kinds: dict[str, str] = {}
        self._group: list[Any] = []
        self._rows_of_group = 0
        self._file: Any = None

    def write(self, columns: Columns) -> None:
        chosen = {name: list(columns[name]) for name in self.names}
        if not self._kinds:
            self._kinds = {name: _kind_of(name, values) for name, values in chosen.items()}
        table = StateTable("rows", self._kinds, chosen).arrow_table()
        self._group.append(table)
        self._rows_of_group += len(table)
        if self._rows_of_group >= _ROWS_PER_GROUP:
            self._write_group()

    def _write_group(self) -> None:
        import pyarrow.parquet

        table = pyarrow.concat_tables(self._group)
        self._group, self._rows_of_group = [], 0
        if self._file is None:
            self._file = pyarrow.parquet.ParquetWriter(
                self._stream, table.schema, compression="zstd"
            )
        self._file.write_table(table)

    def close(self) -> None:
        if self._file is None and not self._group:
            self.write(dict.fromkeys(self.names, ()))
        if self._group:
            self._write_group()
        self._file.close()


def _kind_of(name: str, values: Sequence[object]) -> str:
    """Return the declared kind of a column, or that of its values: a file's keys have any name."""
    if name in COLUMN_KINDS:
        return COLUMN_KINDS[name]
    found = next((one for one in values if one is not None), 0)
    return {str: "string", bool: "bool", float: "float64"}.get(type(found), "int64")


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

    def write(self, columns: Columns) -> None:
        for row in self._rows(columns):
            # With its end, so that a reader of a pipe gets each line as soon as it is flushed.
            self.out.write(json_text(dict(zip(self.names, row, strict=True))) + "\n")


class JsonWriter(Writer):
    """One JSON array of objects, an object per line; times in milliseconds."""

    prefix = "[\n"

    def write(self, columns: Columns) -> None:
        for row in self._rows(columns):
            self.out.write(self.prefix + json_text(dict(zip(self.names, row, strict=True))))
            self.prefix = ",\n"

    def close(self) -> None:
        self.out.write("[]\n" if self.prefix == "[\n" else "\n]\n")


def _csv_cell(value: Any) -> str:
    text = plain_text(value)
    is_text = isinstance(value, (str, list, dict))
    return f"'{text}" if is_text and text.startswith(_FORMULA_STARTS) else text


def plain_text(value: Any) -> str:
    """Return a value as text without quotes; a null and an empty list are empty."""
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
