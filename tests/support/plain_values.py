"""Typed values in the types that JSON has, made one by one; slow, and simple."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa


def plain_values(values: pa.ChunkedArray) -> list[Any]:
    """Return what JSON has for each value."""
    return [_plain(one) for one in values]


def _plain(one: pa.Scalar) -> Any:
    types, kind = pa.types, one.type
    if not one.is_valid:
        return None
    if types.is_struct(kind):
        return {name: _plain(member) for name, member in one.items()}
    if types.is_map(kind):
        return {pair["key"].as_py(): _plain(pair["value"]) for pair in one.values}
    if types.is_list(kind):
        return [_plain(item) for item in one.values]
    if types.is_timestamp(kind):
        return _time(kind, one.value)
    if types.is_decimal(kind) or types.is_temporal(kind):
        return one.value if types.is_duration(kind) else one.cast(pa.string()).as_py()
    value = one.as_py()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _time(kind: pa.DataType, number: int) -> str:
    text = str(pa.scalar(number, pa.timestamp(kind.unit)).cast(pa.string()).as_py())
    if text.startswith("<"):  # out of the range that Arrow writes
        return text
    return text.replace(" ", "T", 1) + ("" if kind.tz is None else "Z")
