"""Decode Kafka's generated messages by their schemas.

The encoding is the one of ``MessageDataGenerator`` and ``MessageUtil``: big-endian numbers; sizes
as int16 or int32, or, in the flexible versions of KIP-482, as unsigned varints of the size plus
one; tagged fields at the end of every structure.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from kafkascan.format.texts import java_string


class SchemaError(ValueError):
    """The bytes do not encode the message; the error text contains the reason and position."""


@dataclass(frozen=True)
class Array:
    """A list of values of one type."""

    element: Type


@dataclass(frozen=True)
class MessageField:
    """
    One field of a structure.

    Attributes
    ----------
    name : str
        Kafka's name, in snake case.
    type : str, Array or MessageSchema
        A number (``int8`` … ``uint32``, ``float64``), ``bool``, ``uuid``, ``string`` or
        ``bytes``; a list; a structure.
    since, until : int
        First and last version that have the field.
    nullable_since : int or None
        First version in which the field may be null.
    tag : int or None
        Number of a tagged field; tagged fields follow the others and are optional.
    default : object
        Value of a field that is left out, or that the version does not have. `EMPTY` is a
        structure of defaults, and a tuple an empty list.
    """

    name: str
    type: Type
    since: int = 0
    until: int = 2**15
    nullable_since: int | None = None
    tag: int | None = None
    default: object = None

    def is_in(self, version: int) -> bool:
        """Whether a version has the field."""
        return self.since <= version <= self.until

    def is_nullable(self, version: int) -> bool:
        """Whether a version allows a null."""
        return self.nullable_since is not None and version >= self.nullable_since


@dataclass(frozen=True)
class MessageSchema:
    """
    A structure.

    Attributes
    ----------
    name : str
    fields : tuple of MessageField
    flexible_since : int
        First version with the compact encoding and tagged fields.
    newest : int
        Newest version of a message that these fields describe.
    """

    name: str
    fields: tuple[MessageField, ...]
    flexible_since: int = 2**15
    newest: int = 0


Type = str | Array | MessageSchema

EMPTY = object()
"""The default of a structure: all its fields have their defaults."""

NO_UUID = uuid.UUID(int=0)
"""The default of an id."""

NUMBERS: dict[str, struct.Struct] = {
    name: struct.Struct(">" + code)
    for name, code in {
        "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q",
        "float64": "d", "bool": "?",
    }.items()
}  # fmt: skip
"""Numeric types and their encodings."""

_MAX_UVARINT_SIZE = 5
_FRAME_VERSION = 1
_MAX_SHORT = 2**15 - 1
_MAX_INT = 2**31 - 1


class MessageFrame(NamedTuple):
    """
    What precedes a message in the metadata log and in ``__remote_log_metadata``.

    Attributes
    ----------
    type : int
        Kafka's number of the type.
    version : int
    size : int
        Bytes in front of the message.
    """

    type: int
    version: int
    size: int


def read_message_frame(value: bytes) -> MessageFrame:
    """
    Read the frame of a message, as ``AbstractApiMessageSerde`` does.

    Parameters
    ----------
    value : bytes
        Value of a record: a frame version, the type of the message and its version, as unsigned
        varints, and then the message.

    Returns
    -------
    MessageFrame

    Raises
    ------
    SchemaError
        If the frame is incomplete, its version is not 1, or a number exceeds an int16, which
        one of more than 31 bits does not: Kafka takes its lower 16 bits.
    """
    reader = _Reader(value, 0, is_flexible=True)
    frame_version = reader.short("the frame version")
    if frame_version != _FRAME_VERSION:
        raise SchemaError(f"the frame version is {frame_version}, not {_FRAME_VERSION}")
    code, version = reader.short("the type"), reader.short("the version")
    # To Kafka's classes, a negative version has the fields of the first one.
    return MessageFrame(code, max(0, version), reader.at)


def decode(schema: MessageSchema, data: bytes, version: int) -> dict[str, Any]:
    """
    Decode a message.

    Parameters
    ----------
    schema : MessageSchema
    data : bytes
        Trailing bytes are ignored, as by Kafka's classes.
    version : int

    Returns
    -------
    dict
        Values by field name. Structures are dicts, lists are lists, ids are `uuid.UUID`. A
        field that the version does not have has its default.

    Raises
    ------
    SchemaError
    """
    return decode_prefix(schema, data, version).fields


class UnknownTag(NamedTuple):
    """
    A tagged field that a schema does not have: a later version or another vendor wrote it.

    Attributes
    ----------
    structure : str
        Name of the structure that has the field.
    tag : int
    value : bytes
    """

    structure: str
    tag: int
    value: bytes


class DecodedMessage(NamedTuple):
    """A message with its encoded size, and the tagged fields that were skipped."""

    fields: dict[str, Any]
    size: int
    unknown_tags: tuple[UnknownTag, ...]


def decode_prefix(schema: MessageSchema, data: bytes, version: int) -> DecodedMessage:
    """Decode a message that other bytes may follow."""
    reader = _Reader(data, version, is_flexible=version >= schema.flexible_since)
    fields = reader.structure(schema)
    return DecodedMessage(fields, reader.at, tuple(reader.unknown_tags))


def default_of(field: MessageField) -> Any:
    """Return the value of a field that is left out."""
    if field.default is EMPTY:
        return _empty_value(replace(field, default=None, nullable_since=None))
    return list(field.default) if isinstance(field.default, tuple) else field.default


def _empty_value(field: MessageField) -> Any:
    """Return what a field has in a structure of defaults: without its own, the type's."""
    if field.default is not None or field.nullable_since is not None:
        return default_of(field)
    if isinstance(field.type, Array):
        return []
    if isinstance(field.type, MessageSchema):
        return {one.name: _empty_value(one) for one in field.type.fields}
    return _EMPTY_VALUES.get(field.type, 0)


_EMPTY_VALUES = {"string": "", "bytes": b"", "uuid": NO_UUID, "bool": False, "float64": 0.0}


class _Reader:
    def __init__(self, data: bytes, version: int, *, is_flexible: bool) -> None:
        self.data = data
        self.version = version
        self.is_flexible = is_flexible
        self.at = 0
        self.unknown_tags: list[UnknownTag] = []

    def structure(self, schema: MessageSchema) -> dict[str, Any]:
        found: dict[str, Any] = {}
        tagged: dict[int, MessageField] = {}
        for field in schema.fields:
            found[field.name] = default_of(field)
            if not field.is_in(self.version):
                continue
            if field.tag is not None:
                tagged[field.tag] = field
            else:
                found[field.name] = self.value(field)
        if self.is_flexible:
            self.tagged_section(schema.name, tagged, found)
        return found

    def tagged_section(
        self, structure: str, fields: dict[int, MessageField], found: dict[str, Any]
    ) -> None:
        for _ in range(self.uvarint("the number of tagged fields")):
            tag, size = self.uvarint("a tag"), self.uvarint("a tagged field's size")
            field = fields.get(tag)
            if field is None:
                value = self.take(size, f"tagged field {tag}")
                self.unknown_tags.append(UnknownTag(structure, tag, value))
            else:
                found[field.name] = self.tagged_value(field)

    def tagged_value(self, field: MessageField) -> Any:
        # A nullable structure begins with a flag.
        if isinstance(field.type, MessageSchema) and field.is_nullable(self.version):
            return self.structure(field.type) if self.uvarint(field.name) else None
        return self.value(field)

    def value(self, field: MessageField) -> Any:
        value = self.typed(field.type, field)
        if value is None and not field.is_nullable(self.version):
            raise SchemaError(f"{field.name} must not be null")
        return value

    def typed(self, kind: Type, field: MessageField) -> Any:
        if isinstance(kind, MessageSchema):
            is_untagged_nullable = field.is_nullable(self.version) and field.type is kind
            if is_untagged_nullable and field.tag is None and self.number("int8", field.name) < 0:
                return None
            return self.structure(kind)
        if isinstance(kind, Array):
            return self.array(kind, field)
        if kind in NUMBERS:
            return self.number(kind, field.name)
        return _READ_BYTES[kind](self, field.name)

    def array(self, kind: Array, field: MessageField) -> list[Any] | None:
        count = self.size("int32", field.name)
        if count is None:
            return None
        # Every element takes at least one byte, except for structures without fields.
        if count > len(self.data) - self.at:
            raise SchemaError(f"{field.name} cannot have {count} elements at byte {self.at}")
        return [self.typed(kind.element, field) for _ in range(count)]

    def number(self, kind: str, name: str) -> Any:
        number = NUMBERS[kind]
        return number.unpack(self.take(number.size, name))[0]

    def read_uuid(self, name: str) -> uuid.UUID:
        return uuid.UUID(bytes=self.take(16, name))

    def read_string(self, name: str) -> str | None:
        size = self.size("int16", name)
        return None if size is None else java_string(self.take(size, name))

    def read_bytes(self, name: str) -> bytes | None:
        size = self.size("int32", name)
        return None if size is None else self.take(size, name)

    def size(self, plain_kind: str, name: str) -> int | None:
        """Read a size or count; None for a null."""
        size: int
        size = self.uvarint(name) - 1 if self.is_flexible else self.number(plain_kind, name)
        return None if size < 0 else size

    def uvarint(self, name: str) -> int:
        number = 0
        for at in range(_MAX_UVARINT_SIZE):
            (byte,) = self.take(1, name)
            number |= (byte & 0x7F) << 7 * at
            if byte < 0x80:
                return number & 0xFFFFFFFF
        raise SchemaError(f"{name}: varint is too long at byte {self.at}")

    def short(self, name: str) -> int:
        """Read a number as ``AbstractApiMessageSerde``: a negative int loses its upper bytes."""
        number = self.uvarint(name)
        if _MAX_SHORT < number <= _MAX_INT:
            raise SchemaError(f"{name} {number} exceeds {_MAX_SHORT}")
        return (number & 0xFFFF ^ 0x8000) - 0x8000

    def take(self, size: int, name: str) -> bytes:
        if size > len(self.data) - self.at:
            left = len(self.data) - self.at
            raise SchemaError(f"{name} needs {size} bytes at byte {self.at}, but {left} remain")
        self.at += size
        return self.data[self.at - size : self.at]


_READ_BYTES: dict[str, Callable[[_Reader, str], Any]] = {
    "uuid": _Reader.read_uuid,
    "string": _Reader.read_string,
    "bytes": _Reader.read_bytes,
}
