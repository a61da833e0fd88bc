"""The text of rows, made row by row with Python's own modules; slow, and simple."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kafkascan.format.texts import json_text, with_escaped_bytes

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")


def json_lines(columns: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return each row as a JSON object."""
    rows = zip(*columns.values(), strict=True)
    return [json_text(dict(zip(columns, row, strict=True))) for row in rows]


def csv_text(columns: Mapping[str, Sequence[Any]]) -> str:
    """Return a document with a header line."""
    out = io.StringIO()
    usual = csv.writer(out, lineterminator="\n")
    all_quoted = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL)
    usual.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        cells = [_csv_cell(value) for value in row]
        # The csv module does not quote a carriage return inside of a field.
        has_return = any("\r" in cell for cell in cells)
        (all_quoted if has_return else usual).writerow(cells)
    return out.getvalue()


def _csv_cell(value: Any) -> str:
    text = _plain_text(value)
    is_text = isinstance(value, (str, list, dict))
    return f"'{text}" if is_text and text.startswith(_FORMULA_STARTS) else text


def _plain_text(value: Any) -> str:
    if value is None or (isinstance(value, (list, dict)) and not value):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Counter):
        return ", ".join(f"{key} {count}" for key, count in value.items())
    if isinstance(value, (list, dict)):
        return with_escaped_bytes(json.dumps(value, ensure_ascii=False))
    return with_escaped_bytes(str(value))


def iso_time(milliseconds: int | None) -> str | None:
    """Return a time in ISO 8601."""
    if milliseconds in (None, -1):
        return None
    time = np.datetime64(milliseconds, "ms")
    return str(np.datetime_as_string(time, timezone="UTC"))
