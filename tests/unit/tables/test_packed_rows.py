"""Lists of named tuples that are stored by column."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest

from kafkascan.tables.packed_rows import PackedRows


class _Row(NamedTuple):
    number: int
    may_be_none: int | None
    text: str
    extreme: int
    is_odd: bool


def _rows(count: int) -> list[_Row]:
    choice = random.Random(count)
    return [
        _Row(
            row * 70,
            choice.choice([None, row]),
            choice.choice(["constant", str(row)]),
            choice.choice([-(1 << 63), row, (1 << 63) - 1]),
            choice.random() < 0.5,
        )
        for row in range(count)
    ]


@pytest.mark.parametrize("count", [0, 1, 2, 300, 4_096, 4_097, 9_000])
def test_rows_are_those_that_were_packed(count: int) -> None:
    rows = _rows(count)
    packed = PackedRows.of(_Row, iter(rows))
    assert list(packed) == rows
    assert packed == rows
    assert rows == packed
    assert len(packed) == count
    assert packed + rows[:3] == rows + rows[:3]
    assert repr(packed) == repr(rows)
    assert all(type(row.is_odd) is bool for row in packed)


def test_rows_by_their_numbers() -> None:
    rows = _rows(9_000)
    packed = PackedRows.of(_Row, rows)
    for at in (0, 4_095, 4_096, 8_999, -1, -9_000):
        assert packed[at] == rows[at]
    assert packed[4_090:4_100] == rows[4_090:4_100]
    assert packed[::-1_000] == rows[::-1_000]
    with pytest.raises(IndexError):
        packed[9_000]


def test_other_rows_are_not_equal() -> None:
    rows = _rows(10)
    assert PackedRows.of(_Row, rows) != rows[:-1]
    assert PackedRows.of(_Row, rows) != [*rows[:-1], rows[0]]
    assert PackedRows.of(_Row, rows) != 1


def test_a_row_takes_few_bytes() -> None:
    packed = PackedRows.of(_Row, (_Row(row * 70, None, "text", row, False) for row in range(4_096)))
    (block,) = packed._blocks
    assert sum(column.codes.itemsize for column in block if column.codes.strides != (0,)) <= 8
