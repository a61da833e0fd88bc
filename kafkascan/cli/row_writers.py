"""Write rows as CSV, JSON or JSON lines; what a writer of rows is."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from kafkascan.format.texts import json_text, with_escaped_bytes

# A spreadsheet evaluates a cell that starts with one of these (OWASP, "CSV Injection").
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
Columns = Mapping[str, Sequence[Any]]


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
