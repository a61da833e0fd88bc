"""Typed values as values that JSON has."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from kafkascan.tables.schema import require_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

Change: TypeAlias = "Callable[[Any], Any] | None"
"""What makes a value one that JSON has; None if it is one."""


def plain_values(values: pa.ChunkedArray) -> list[Any]:
    """
    Return values made of the types that JSON has.

    Bytes are hexadecimal; decimals are texts, with all their digits; dates and times are texts in
    ISO 8601, moments in UTC; a number that is not finite is the text ``NaN``, ``Infinity`` or
    ``-Infinity``; a map is an object, in which the last of several equal keys counts.
    """
    change = _change_of(values.type)
    found: list[Any] = values.cast(_text_type(values.type)).to_pylist()
    return found if change is None else [_changed(change, one) for one in found]


def _text_type(kind: pa.DataType) -> pa.DataType:
    """Return a type in which values that JSON does not have, but for bytes, are texts."""
    pa = require_pyarrow()
    if pa.types.is_struct(kind):
        return pa.struct([one.with_type(_text_type(one.type)) for one in kind])
    if pa.types.is_map(kind):
        return pa.map_(_text_type(kind.key_type), _field_of_text(kind.item_field))
    if pa.types.is_list(kind):
        return pa.list_(_field_of_text(kind.value_field))
    if pa.types.is_duration(kind):
        return pa.int64()
    is_text = pa.types.is_decimal(kind) or pa.types.is_temporal(kind)
    return pa.string() if is_text or pa.types.is_dictionary(kind) else kind


def _field_of_text(field: pa.Field) -> pa.Field:
    return field.with_type(_text_type(field.type))


def _change_of(kind: pa.DataType) -> Change:
    types = require_pyarrow().types
    if types.is_floating(kind):
        return _finite
    if types.is_binary(kind) or types.is_fixed_size_binary(kind):
        return bytes.hex
    if types.is_timestamp(kind):
        return _iso
    if types.is_struct(kind):
        return _struct_change({one.name: _change_of(one.type) for one in kind})
    if types.is_map(kind):
        item = _change_of(kind.item_type)
        return lambda pairs: {str(key): _changed(item, one) for key, one in pairs}
    if types.is_list(kind):
        item = _change_of(kind.value_type)
        return None if item is None else lambda items: [_changed(item, one) for one in items]
    return None


def _struct_change(changes: dict[str, Change]) -> Change:
    needed = [(name, change) for name, change in changes.items() if change is not None]
    if not needed:
        return None

    def change(members: dict[str, Any]) -> dict[str, Any]:
        for name, one in needed:
            members[name] = _changed(one, members[name])
        return members

    return change


def _changed(change: Change, value: Any) -> Any:
    return value if change is None or value is None else change(value)


def _finite(number: float) -> float | str:
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _iso(text: str) -> str:
    """Return the text of a time as ISO 8601 has it; Arrow puts a space between date and time."""
    return text.replace(" ", "T", 1)
