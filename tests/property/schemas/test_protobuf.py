"""Values of random Protobuf messages are read as protobuf reads them; damaged ones, too."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError
from hypothesis import given, strategies as st

from kafkascan.format.errors import STATUS
from kafkascan.schemas.programs.protobuf_program import ProtobufProgram
from tests.support.protobuf_values import decoded
from tests.support.random_protobuf import RandomProtobuf, message_classes

_VALUES, _NANOS = 8, 10**9
# What protobuf's Python runtime accepts: times are numbers there, texts of proto2 may be bytes, and
# a field may have the number 0, which other runtimes reject.
_STRICTER = {STATUS[name] for name in ("TIME_OUT_OF_RANGE", "BAD_VALUE_TEXT", "BAD_VALUE_TAG")}
_NOT_FINITE = (b"\xf8\x7f", b"\xf0\x7f", b"\xf8\xff")
_TIMES = ("google.protobuf.Timestamp", "google.protobuf.Duration")
_DYNAMIC = ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue")


@dataclass
class Raw:
    """A message that a column has as its bytes."""

    message: Any

    def __eq__(self, data: object) -> bool:
        found = type(self.message).FromString(data)
        one, other = (part.SerializeToString(deterministic=True) for part in (found, self.message))
        return bool(one == other)


@dataclass
class Json:
    """A message that a column has as its JSON."""

    text: str

    def __eq__(self, found: object) -> bool:
        return isinstance(found, str) and bool(json.loads(found) == json.loads(self.text))


class NotFiniteError(ValueError):
    """A Value is a number that JSON does not have."""


def json_of(message: Any) -> Json:
    try:
        return Json(json_format.MessageToJson(message))
    except (ValueError, json_format.Error) as error:
        raise NotFiniteError from error


def row_of(message: Any, inside: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return what a struct should have of a message."""
    inside = (*inside, message.DESCRIPTOR.full_name)
    row: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.is_repeated:
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                item = field.message_type.fields_by_name["value"]
                row[field.name] = {key: value_of(item, value[key], inside) for key in value}
            else:
                row[field.name] = [value_of(field, one, inside) for one in value]
        elif field.has_presence and not message.HasField(field.name):
            row[field.name] = None
        else:
            row[field.name] = value_of(field, value, inside)
    return row


def value_of(field: Any, value: Any, inside: tuple[str, ...]) -> Any:
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    if field.message_type is None:
        return value
    name = field.message_type.full_name
    if name in _TIMES:
        return value.seconds * _NANOS + value.nanos
    if name.startswith("google.protobuf.") and name.endswith("Value") and name not in _DYNAMIC:
        return value.value
    if name in _DYNAMIC:
        return json_of(value)
    if name in inside or not field.message_type.fields:
        return Raw(value)
    return row_of(value, inside)


def equal(expected: Any, found: Any) -> bool:
    if isinstance(expected, dict):
        return expected.keys() == found.keys() and all(
            equal(expected[key], found[key]) for key in expected
        )
    if isinstance(expected, list):
        return len(expected) == len(found) and all(map(equal, expected, found))
    if isinstance(expected, float) and math.isnan(expected):
        return math.isnan(found)
    return bool(expected == found)


def check(seed: int) -> int:
    """
    Compare values of all messages of two versions of a random file, each read by both.

    Returns
    -------
    int
        The number of messages.
    """
    source, other = RandomProtobuf(seed), RandomProtobuf(seed + 1)
    other.syntax = source.syntax
    versions = [message_classes(one.file()) for one in (source, other)]
    for writers, readers in permutations(versions):
        for at, writer in enumerate(writers):
            values = [source.bytes_of(writer) for _ in range(_VALUES)]
            for one in (writer, *readers[at : at + 1]):
                compare_all(one, values, seed)
    return sum(map(len, versions))


def compare_all(reader: Any, values: list[bytes], seed: int) -> None:
    found, status = decoded(ProtobufProgram(reader.DESCRIPTOR), values)
    for data, row, reason in zip(values, found, status, strict=True):
        compare(reader, data, row, reason, seed)


def compare(reader: Any, data: bytes, row: Any, reason: int, seed: int) -> None:
    try:
        message = reader.FromString(data)
        expected = row_of(message)
    except NotFiniteError:
        assert reason in {STATUS["BAD_VALUE_NUMBER"], *_STRICTER}, (seed, data, reason)
        return
    except (DecodeError, UnicodeDecodeError):
        assert reason or has_raw(reader.DESCRIPTOR), (seed, data, row)
        return
    # Also a member of a Struct that another one with its key replaces.
    is_not_finite = reason == STATUS["BAD_VALUE_NUMBER"] and any(one in data for one in _NOT_FINITE)
    if reason in _STRICTER or is_not_finite:
        return
    assert not reason, (seed, data, reason, expected)
    try:
        assert equal(expected, row), (seed, data, expected, row)
    except DecodeError:
        raise AssertionError((seed, data, expected, row)) from None


def has_raw(message: Any, inside: tuple[str, ...] = ()) -> bool:
    name = message.full_name
    if name in inside or name in _DYNAMIC or not message.fields:
        return True
    below = [field.message_type for field in message.fields if field.message_type is not None]
    return any(has_raw(one, (*inside, name)) for one in below)


@given(st.integers(0, 2**32))
def test_values_of_random_messages_are_those_of_protobuf(seed: int) -> None:
    check(seed)


def check_damaged(seed: int) -> None:
    source = RandomProtobuf(seed)
    reader = message_classes(source.file())[0]
    compare_all(reader, [damaged(source, source.bytes_of(reader)) for _ in range(30)], seed)


def damaged(source: RandomProtobuf, data: bytes) -> bytes:
    pick = source.random
    changed = bytearray(data)
    for _ in range(pick.choice([1, 1, 2, 5])):
        at = pick.randrange(len(changed) + 1)
        change = pick.randrange(4)
        if change == 0:
            changed[at : at + 1] = bytes([pick.choice([0, 1, 2, 0x7F, 0x80, 0xFF])])
        elif change == 1:
            changed[at:at] = pick.choice(
                [b"\xff" * 9 + b"\1", b"\x80" * 10, b"\0", b"\x0b", b"\x0c"]
            )
        elif change == 2:
            del changed[at:]
        elif at < len(changed):
            changed[at] ^= 1 << pick.randrange(8)
    return bytes(changed)


def check_json(seed: int) -> None:
    """Compare Structs, Values and ListValues of all kinds, once and as items and members."""
    source = RandomProtobuf(seed)
    reader = message_classes(dynamic_file())[0]
    values = [source.bytes_of(reader) for _ in range(3)]
    compare_all(reader, values + [damaged(source, one) for one in values], seed)


@cache
def dynamic_file() -> FileDescriptorProto:
    """Return a file whose message has nothing but messages that become JSON."""
    file = FileDescriptorProto(name="random.proto", package="r", syntax="proto3")
    file.dependency.append("google/protobuf/struct.proto")
    message = file.message_type.add(name="M")
    message.oneof_decl.add(name="choice")
    for number, name in enumerate(("Struct", "Value", "ListValue"), 1):
        kind = f".google.protobuf.{name}"
        message.field.add(name=f"one{number}", number=number, label=1, type=11, type_name=kind)
        message.field.add(name=f"many{number}", number=10 + number, label=3, type=11,
                          type_name=kind)  # fmt: skip
        message.field.add(name=f"chosen{number}", number=20 + number, label=1, type=11,
                          type_name=kind, oneof_index=0)  # fmt: skip
        entry = message.nested_type.add(name=f"Map{number}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=1, type=9)
        entry.field.add(name="value", number=2, label=1, type=11, type_name=kind)
        message.field.add(name=f"map{number}", number=30 + number, label=3, type=11,
                          type_name=f".r.M.{entry.name}")  # fmt: skip
    return file


@given(st.integers(0, 2**32))
def test_dynamic_messages_are_the_json_of_protobuf(seed: int) -> None:
    check_json(seed)


@given(st.integers(0, 2**32))
def test_damaged_values_are_errors_or_what_protobuf_reads(seed: int) -> None:
    check_damaged(seed)
