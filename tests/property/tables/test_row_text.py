"""Compiled rows of JSON and CSV are those that Python's modules write, wherever pauses are."""

from __future__ import annotations

import base64
import io
from collections import Counter
from collections.abc import Sequence
from typing import Any
from unittest import mock

import numpy as np
from hypothesis import given, strategies as st

from kafkascan._core.text_lines import BASE64, HEX, TEXT
from kafkascan.tables import writers
from kafkascan.tables.schema import Field, Schema
from kafkascan.tables.text_columns import PrintedHeaders, PrintedItems, Repeated, located
from tests.support.records import varint
from tests.support.row_text import csv_text, iso_time, json_lines

_KINDS = {
    TEXT: lambda data: data.decode("utf-8", "surrogateescape"),
    HEX: bytes.hex,
    BASE64: lambda data: base64.b64encode(data).decode(),
}
# Bytes that are escaped, begin and break sequences, or are what a spreadsheet evaluates.
_PIECES = st.sampled_from(
    [b"a", b"=", b"+", b"-", b"@", b"\t", b"\r", b"\n", b",", b'"', b"\\", b"'", b"\0", b"\x1f",
     b"\x7f", b"\x80", b"\xbf", b"\xc1", b"\xc2", b"\xe0\x80", b"\xe2\x82", b"\xed\xa0\x80",
     b"\xf0\x90", b"\xf4\x90\x80\x80", b"\xff", "ü".encode(), "€".encode(), "𝄞".encode(),
     b"x" * 15, b"y" * 64, b"\xff" * 20]
)  # fmt: skip
_BYTES = st.builds(
    lambda pieces, times: b"".join(pieces) * times,
    st.lists(_PIECES, max_size=20), st.sampled_from([1, 1, 1, 30]),
)  # fmt: skip
_INTEGERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-1000, 1000)
_STRINGS = _BYTES.map(lambda data: data.decode("utf-8", "surrogateescape")) | st.text(max_size=9)
_NESTED = st.recursive(
    st.none() | st.booleans() | _INTEGERS | _STRINGS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
_VALUES = (
    _NESTED
    | st.floats()
    | st.integers()
    | st.dictionaries(st.sampled_from(["=a", "b"]), st.integers(0, 9)).map(Counter)
)
_HEADERS = st.lists(st.tuples(_BYTES, st.none() | _BYTES), max_size=4)


def _encoded(headers: list[tuple[bytes, bytes | None]]) -> bytes:
    found = b""
    for item in (one for pair in headers for one in pair):
        found += varint(-1) if item is None else varint(len(item)) + item
    return found


@st.composite
def _columns(draw: st.DrawFn, rows: int) -> tuple[Any, Sequence[Any]]:
    """Return a column, and its values as Python has them."""

    def many(one: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(one, min_size=rows, max_size=rows))

    kind = draw(st.sampled_from(["numbers", "booleans", "values", "repeated", "items", "headers"]))
    if kind == "numbers":
        dtype = draw(st.sampled_from([np.int8, np.uint32, np.int64, np.uint64]))
        values = np.array(many(_INTEGERS), np.int64).astype(dtype)
        return values, values.tolist()
    if kind == "booleans":
        values = np.array(many(st.booleans()), bool)
        return values, values.tolist()
    if kind == "values":
        values = many(_VALUES)
        return values, values
    if kind == "repeated":
        few = draw(st.lists(_VALUES, min_size=1, max_size=3))
        column = Repeated(few, np.array(many(st.integers(0, len(few) - 1)), np.intp))
        return column, list(column)
    how = draw(st.sampled_from(list(_KINDS)))
    if kind == "items":
        items = many(st.none() | _BYTES)
        column = PrintedItems(how, *located(items))
        values = [None if one is None else _KINDS[how](one) for one in items]
        for row in draw(st.sets(st.integers(0, rows - 1))) if rows else ():
            column[row] = values[row] = draw(_VALUES)
        return column, values
    lists = many(_HEADERS)
    addresses, sizes, owner = located([_encoded(one) for one in lists])
    counts = np.array([len(one) for one in lists], np.int32)
    values = [
        [{"key": _KINDS[TEXT](key), "value": None if value is None else _KINDS[how](value)}
         for key, value in one]
        for one in lists
    ]  # fmt: skip
    return PrintedHeaders(how, addresses, counts, sizes.astype(np.int64), owner), values


@st.composite
def _tables(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Sequence[Any]]]:
    rows = draw(st.integers(0, 6))
    count = draw(st.integers(1, 4))
    columns = [draw(_columns(rows)) for _ in range(count)]
    names = [f"name_{number}" for number in range(count)]
    printed = {name: one for name, (one, _) in zip(names, columns, strict=True)}
    return printed, {name: values for name, (_, values) in zip(names, columns, strict=True)}


def _written(name: str, columns: dict[str, Any], *, is_utf_8: bool, size: int) -> str:
    schema = Schema("rows", tuple(Field(one, "string") for one in columns))
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, "utf-8" if is_utf_8 else "utf-16", newline="\n")
    with mock.patch.object(writers, "_CHUNK_SIZE", size):
        writer = writers.TEXT_WRITERS[name](schema, out)
    writer.write(columns)
    writer.write(columns)
    writer.close()
    out.flush()
    return raw.getvalue().decode(out.encoding)


@given(_tables(), st.booleans(), st.integers(512, 700))
def test_rows(
    table: tuple[dict[str, Any], dict[str, Sequence[Any]]], is_utf_8: bool, size: int
) -> None:
    printed, values = table
    twice = {name: [*one, *one] for name, one in values.items()}
    lines = json_lines(twice)
    expected = {
        "jsonl": "".join(f"{line}\n" for line in lines),
        "json": "[\n" + ",\n".join(lines) + "\n]\n" if lines else "[]\n",
        "csv": csv_text(twice),
    }
    for name, text in expected.items():
        assert _written(name, printed, is_utf_8=is_utf_8, size=size) == text


@given(st.lists(st.none() | _INTEGERS | st.just(-1)), st.booleans())
def test_times(times: list[int | None], is_array: bool) -> None:
    if is_array:
        times = [-1 if one is None else one for one in times]
    schema = Schema("rows", (Field("time", "time"),))
    out = io.StringIO()
    column = np.array(times, np.int64) if is_array else times
    writers.IsoTimes(writers.TEXT_WRITERS["csv"](schema, out)).write({"time": column})
    assert out.getvalue() == csv_text({"time": [iso_time(one) for one in times]})
