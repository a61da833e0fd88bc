"""Defaults of fields, in Avro's binary encoding."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from contextlib import suppress
from typing import TypeVar

from kafkascan.format.errors import ValueSchemaError
from kafkascan.schemas.programs.avro_schema import AvroType, Json, NoDefault

Kind = TypeVar("Kind")

# Values that one default has, and its bytes: a record whose fields have defaults of their own can
# have more of them than its text shows.
_LARGEST_COUNT, _LARGEST_SIZE = 1 << 12, 1 << 16
_ERRORS = (TypeError, ValueError, OverflowError, struct.error, RecursionError)


def encoded_default(one: AvroType, value: Json | NoDefault) -> bytes:
    """
    Return a default in Avro's binary encoding.

    Raises
    ------
    ValueSchemaError
        If the default is not a value of the type, or too large.
    """
    try:
        data = _Encoder().encoded(one, value)
    except _ERRORS:
        raise ValueSchemaError(f"{value!r:.80} is no default of type {one.short_name}") from None
    if len(data) > _LARGEST_SIZE:
        raise ValueSchemaError(f"a default has more than {_LARGEST_SIZE} bytes")
    return data


class _Encoder:
    def __init__(self) -> None:
        self._left = _LARGEST_COUNT

    def encoded(self, one: AvroType, value: Json | NoDefault) -> bytes:
        self._left -= 1
        if self._left < 0:
            raise ValueSchemaError(f"a default has more than {_LARGEST_COUNT} values")
        if one.kind == "union":
            return self._branch(one, value)
        if one.kind == "record":
            values = _of(dict, value)
            given = ((part.type, values.get(part.name, part.default)) for part in one.fields)
            return b"".join(self.encoded(kind, of_part) for kind, of_part in given)
        if one.kind == "array":
            return _block(self.encoded(one.parts[0], item) for item in _of(list, value))
        if one.kind == "map":
            pairs = _of(dict, value).items()
            return _block(_sized(key.encode()) + self.encoded(one.parts[0], v) for key, v in pairs)
        if one.kind == "enum":
            return _varint(one.symbols.index(_of(str, value)))
        return _primitive(one, value)

    def _branch(self, union: AvroType, value: Json | NoDefault) -> bytes:
        """Return the value in the first branch that it fits; before 1.12, it must fit the first."""
        for number, branch in enumerate(union.parts):
            with suppress(*_ERRORS):
                return _varint(number) + self.encoded(branch, value)
        raise ValueError


def _of(kind: type[Kind], value: object) -> Kind:
    if not isinstance(value, kind) or isinstance(value, bool) != (kind is bool):
        raise TypeError(kind)
    return value


def _primitive(one: AvroType, value: Json | NoDefault) -> bytes:
    if one.kind == "null":
        _of(type(None), value)
        return b""
    if one.kind == "boolean":
        return bytes([_of(bool, value)])
    if one.kind in ("int", "long"):
        whole, limit = _of(int, value), 1 << (31 if one.kind == "int" else 63)
        if not -limit <= whole < limit:
            raise OverflowError
        return _varint(whole)
    if one.kind in ("float", "double"):
        is_float = isinstance(value, float) or value in ("NaN", "INF", "-INF")
        number = float(value if is_float else _of(int, value))  # type: ignore[arg-type]
        return struct.pack("<f" if one.kind == "float" else "<d", number)
    if one.kind == "string":
        return _sized(_of(str, value).encode())
    data = _of(str, value).encode("latin-1")
    if one.kind == "bytes":
        return _sized(data)
    if len(data) != one.size:
        raise ValueError
    return data


def _block(items: Iterable[bytes]) -> bytes:
    """Return the items of an array or map: one block, and the end."""
    parts = list(items)
    return (_varint(len(parts)) + b"".join(parts) if parts else b"") + b"\0"


def _sized(data: bytes) -> bytes:
    return _varint(len(data)) + data


def _varint(number: int) -> bytes:
    zigzag, out = (number << 1) ^ (number >> 63), bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)
