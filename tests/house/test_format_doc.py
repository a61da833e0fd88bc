"""The table in docs/format.md agrees with csrc/kafka_layout.h."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import kafkascan
from kafkascan._core import layout
from kafkascan.format import errors

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs" / "format.md").read_text()
KAFKA_TYPES = {"i8": "int8", "i16": "int16", "i32": "int32", "u32": "uint32", "i64": "int64"}


def documented(heading: str) -> list[tuple[str, str, int]]:
    """The rows of the table under a heading: field, type, position."""
    section = DOC.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| (\d+) \| (\w+) \| `(\w+)` \|", section, re.M)
    return [(name, kind, int(at)) for at, kind, name in rows]


@pytest.mark.parametrize(
    ("heading", "fields"),
    [
        ("Batch header (magic 2)", layout.batch_header),
        ("Message of magic 0", layout.message_v0),
        ("Message of magic 1", layout.message_v1),
        ("Entry of a time index", layout.time_index_entry),
        ("Entry of an offset index", layout.offset_index_entry),
        ("Entry of a transaction index", layout.transaction_index_entry),
        ("Header of a producer snapshot", layout.snapshot_header),
        ("Entry of a producer snapshot", layout.producer_entry),
        ("Batch of an end transaction marker", layout.end_marker),
    ],
)
def test_tables(heading: str, fields: tuple[tuple[str, str, int], ...]) -> None:
    expected = [(name, KAFKA_TYPES[kind], at) for name, kind, at in fields]
    assert documented(heading) == expected
    assert len(expected) >= 2


def test_the_dtype_is_the_table() -> None:
    dtype = kafkascan.BATCH_DTYPE
    assert dtype.names == ("position", *(name for name, _, _ in layout.batch_header))
    assert dtype.itemsize == 69
    for name, kind, at in layout.batch_header:
        assert dtype.fields[name][1] == 8 + at
        assert str(dtype[name]) == KAFKA_TYPES[kind]


def test_every_status_is_documented() -> None:
    for symbol in errors.STATUS:
        if errors.STATUS[symbol] >= 20:
            assert f"`{symbol}`" in DOC
