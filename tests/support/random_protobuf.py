"""Random Protobuf files of every syntax, and random messages of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FeatureSet,
    FieldDescriptorProto as Field,
    FileDescriptorProto,
)

from kafkascan.schemas.programs import protobuf_schema

_WELL_KNOWN = ("timestamp", "duration", "wrappers", "struct", "any")
_MESSAGES = (
    "Timestamp", "Duration", "Int32Value", "StringValue", "BoolValue", "DoubleValue", "BytesValue",
    "Struct", "Value", "Any",
)  # fmt: skip
_SCALARS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 15, 16, 17, 18]
_KEYS = [3, 4, 5, 6, 7, 8, 9, 13, 15, 16, 17, 18]
_NUMBERS = [
    0,
    1,
    2,
    -1,
    127,
    128,
    300,
    2**31 - 1,
    -(2**31),
    2**32 - 1,
    2**63 - 1,
    -(2**63),
    2**64 - 1,
]

# Messages inside a value, at most: most values are small, so that a test can try many types.
_MOST_MESSAGES = [5, 10, 20, 20, 200]


class RandomProtobuf:
    """
    Files and messages of one random seed.

    Parameters
    ----------
    seed : int
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.syntax = self.random.choice(["proto2", "proto3", "editions"])

    def file(self) -> FileDescriptorProto:
        """Return a file with some messages that refer to one another."""
        pick = self.random
        file = FileDescriptorProto(name="random.proto", package="r", syntax=self.syntax)
        if self.syntax == "editions":
            file.edition = 1000  # 2023
        file.dependency.extend(f"google/protobuf/{name}.proto" for name in _WELL_KNOWN)
        for name in ("E0", "E1"):
            enum = file.enum_type.add(name=name)
            numbers = [0, *pick.sample([1, 2, 3, 5, -1, 1000, 2**31 - 1], pick.randrange(4))]
            for number in numbers:
                label = f"{name}_{number}".replace("-", "M")
                enum.value.add(name=label, number=number)
            if self.syntax == "editions":
                closed, opened = FeatureSet.EnumType.CLOSED, FeatureSet.EnumType.OPEN
                enum.options.features.enum_type = closed if name == "E1" else opened
        for at in range(pick.randrange(1, 4)):
            file.message_type.add(name=f"M{at}")
        for message in file.message_type:
            self._fill(message, len(file.message_type))
        return file

    def _fill(self, message: DescriptorProto, messages: int) -> None:
        pick = self.random
        count = pick.randrange(9)
        small = pick.sample(range(1, 3 * count + 2), count)
        numbers = [
            pick.choice([one, one, one, one + 100, one + 5000, 2**29 - 1 - one]) for one in small
        ]
        if len(set(numbers)) < count:
            numbers = small
        oneof = message.oneof_decl.add(name="choice") if pick.random() < 0.5 else None
        synthetic = []
        for number in numbers:
            field = message.field.add(name=f"f{number}", number=number, label=1)
            shape = pick.choice(["plain", "plain", "list", "map", "optional", "oneof"])
            if shape == "map":
                self._map(message, field, messages)
                continue
            self._type(field, messages)
            if shape == "list":
                field.label = 3
                self._packing(field)
            elif shape == "oneof" and oneof is not None:
                field.oneof_index = 0
            elif shape == "optional" and self.syntax == "proto3":
                field.proto3_optional = True
                synthetic.append(field)
            elif self._may_be_implicit(field) and pick.random() < 0.5:
                field.options.features.field_presence = FeatureSet.FieldPresence.IMPLICIT
        if oneof is not None and not any(one.HasField("oneof_index") for one in message.field):
            message.oneof_decl.pop()
        for field in synthetic:
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")

    def _may_be_implicit(self, field: Field) -> bool:
        return (
            self.syntax == "editions" and field.type not in (10, 11) and field.type_name != ".r.E1"
        )

    def _type(self, field: Field, messages: int) -> None:
        pick = self.random
        kind = pick.choice(["scalar", "scalar", "scalar", "enum", "message", "known"])
        if kind == "scalar":
            field.type = pick.choice(_SCALARS)
        elif kind == "enum":
            field.type, field.type_name = Field.TYPE_ENUM, pick.choice([".r.E0", ".r.E1"])
        elif kind == "known":
            field.type = Field.TYPE_MESSAGE
            field.type_name = f".google.protobuf.{pick.choice(_MESSAGES)}"
        else:
            field.type, field.type_name = Field.TYPE_MESSAGE, f".r.M{pick.randrange(messages)}"
            if pick.random() < 0.3:
                if self.syntax == "proto2":
                    field.type = Field.TYPE_GROUP
                elif self.syntax == "editions":
                    delimited = FeatureSet.MessageEncoding.DELIMITED
                    field.options.features.message_encoding = delimited

    def _packing(self, field: Field) -> None:
        if field.type in (9, 10, 11, 12) or self.random.random() < 0.5:
            return
        if self.syntax == "editions":
            expanded = FeatureSet.RepeatedFieldEncoding.EXPANDED
            field.options.features.repeated_field_encoding = expanded
        else:
            field.options.packed = self.random.random() < 0.5

    def _map(self, message: DescriptorProto, field: Field, messages: int) -> None:
        entry = message.nested_type.add(name=f"F{field.number}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=1, type=self.random.choice(_KEYS))
        value = entry.field.add(name="value", number=2, label=1)
        self._type(value, messages)
        value.ClearField("options")
        if value.type == Field.TYPE_GROUP:
            value.type = Field.TYPE_MESSAGE
        field.label, field.type = 3, Field.TYPE_MESSAGE
        field.type_name = f".r.{message.name}.{entry.name}"

    # ---- messages ----

    def fill(self, message: Any, depth: int = 0) -> None:
        """Set some of the fields of a message."""
        pick = self.random
        if depth == 0:
            self._messages_left = pick.choice(_MOST_MESSAGES)
        self._messages_left -= 1
        for field in message.DESCRIPTOR.fields:
            if pick.random() < 0.3 or depth > 4 or self._messages_left < 0:
                continue
            if not field.is_repeated:
                self._set(message, field, depth)
                continue
            items = getattr(message, field.name)
            is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
            for _ in range(pick.choice([0, 1, 2, 3, 25])):
                if not is_map:
                    if field.message_type is not None:
                        self.fill(items.add(), depth + 1)
                    else:
                        items.append(self._scalar(field))
                    continue
                key, value = field.message_type.fields
                if value.message_type is not None:
                    self.fill(items[self._scalar(key)], depth + 1)
                else:
                    items[self._scalar(key)] = self._scalar(value)

    def _set(self, message: Any, field: Any, depth: int) -> None:
        if field.message_type is None:
            setattr(message, field.name, self._scalar(field))
        else:
            inner = getattr(message, field.name)
            inner.SetInParent()
            self.fill(inner, depth + 1)

    def _scalar(self, field: Any) -> Any:
        pick = self.random
        if field.containing_type.full_name.startswith("google.protobuf."):
            if field.name == "nanos":
                return pick.randrange(10**9)
            if field.name == "seconds":
                return pick.choice([0, 1, 10**9])
        kind = field.type
        if kind in (1, 2):
            return pick.choice([0.0, 1.5, -0.0, float("nan"), float("inf"), 2.0**100])
        if kind == 8:
            return pick.random() < 0.5
        if kind == 9:
            return pick.choice(["", "a", "naïve", "€" * 20, "0123456789abcdef"])
        if kind == 12:
            return pick.choice([b"", b"\0\xff", b"x" * 40])
        if kind == 14:
            known = list(field.enum_type.values_by_number)
            return pick.choice(known if field.enum_type.is_closed else [*known, 77, -5])
        return pick.choice(_numbers(kind))

    def bytes_of(self, message_class: Any) -> bytes:
        """Return an encoding of a message: fields in any order, often twice, unknown ones."""
        pick, message = self.random, message_class()
        self.fill(message)
        data: bytes = message.SerializeToString(deterministic=pick.random() < 0.5)
        if pick.random() < 0.5:
            other = message_class()
            self.fill(other)
            fields = [*fields_of(data), *fields_of(other.SerializeToString())]
            pick.shuffle(fields)
            data = b"".join(fields)
        if pick.random() < 0.3:
            data = (
                pick.choice([b"\xf8\x3f\x01", b"\x83\x40\x08\x01\x84\x40", b"\x85\x40abcd"]) + data
            )
        return data


@lru_cache
def _numbers(kind: int) -> list[int]:
    """Return the numbers that a type of integers has."""
    bits = 64 if kind in (3, 4, 6, 16, 18) else 32
    low, high = (0, 2**bits) if kind in (4, 6, 7, 13) else (-(2 ** (bits - 1)), 2 ** (bits - 1))
    return [one for one in _NUMBERS if low <= one < high]


def fields_of(data: bytes) -> Iterator[bytes]:
    """Yield the encoded fields of a valid message."""
    at = 0
    while at < len(data):
        end = _end_of_field(data, at)
        yield data[at:end]
        at = end


def _end_of_field(data: bytes, at: int) -> int:
    tag, at = _varint(data, at)
    kind = tag & 7
    if kind == 0:
        return _varint(data, at)[1]
    if kind in (1, 5):
        return at + (8 if kind == 1 else 4)
    if kind == 2:
        size, at = _varint(data, at)
        return at + size
    while True:  # a group
        inner, after = _varint(data, at)
        if inner & 7 == 4:
            return after
        at = _end_of_field(data, at)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        number |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return number, at


@lru_cache
def _well_known_files() -> list[bytes]:
    found = (protobuf_schema.well_known(f"google/protobuf/{name}.proto") for name in _WELL_KNOWN)
    return [one.SerializeToString() for one in found]


def message_classes(file: FileDescriptorProto) -> list[Any]:
    """Return classes of a file's messages."""
    pool = descriptor_pool.DescriptorPool()
    for known in _well_known_files():
        pool.AddSerializedFile(known)
    pool.AddSerializedFile(file.SerializeToString())
    found = pool.FindFileByName(file.name).message_types_by_name.values()
    return [message_factory.GetMessageClass(one) for one in found]
