"""Encode Kafka's generated messages by their schemas."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping
from typing import Any

from kafkascan.format.schemas.message_decoder import (
    NUMBERS,
    Array,
    MessageField,
    MessageSchema,
    SchemaError,
    Type,
    default_of,
)


def encode(schema: MessageSchema, message: Mapping[str, Any], version: int) -> bytes:
    """
    Encode a message.

    Parameters
    ----------
    schema : MessageSchema
    message : mapping
        Values by field name, as `decode` returns them. A missing field has its default.
    version : int

    Returns
    -------
    bytes

    Raises
    ------
    SchemaError
        If a field is missing or unknown, or cannot be encoded.
    """
    writer = _Writer(version, is_flexible=version >= schema.flexible_since)
    writer.structure(schema, message)
    return bytes(writer.out)


class _Writer:
    def __init__(self, version: int, *, is_flexible: bool) -> None:
        self.version = version
        self.is_flexible = is_flexible
        self.out = bytearray()

    def structure(self, schema: MessageSchema, message: Mapping[str, Any]) -> None:
        if not isinstance(message, Mapping):
            raise SchemaError(f"{schema.name} must be a mapping, not {type(message).__name__}")
        if unknown := set(message) - {field.name for field in schema.fields}:
            raise SchemaError(f"{schema.name} has no field {min(unknown)!r}")
        tagged: dict[int, bytes] = {}
        for field in schema.fields:
            if not field.is_in(self.version):
                continue
            default = default_of(field)
            value = message.get(field.name, default)
            if field.tag is None:
                self.value(field, value)
            elif value != default:
                tagged[field.tag] = self.tagged_value(field, value)
        if self.is_flexible:
            self.tagged_section(tagged)

    def tagged_section(self, fields: dict[int, bytes]) -> None:
        self.uvarint(len(fields))
        for tag, data in sorted(fields.items()):
            self.uvarint(tag)
            self.uvarint(len(data))
            self.out += data

    def tagged_value(self, field: MessageField, value: Any) -> bytes:
        inner = _Writer(self.version, is_flexible=self.is_flexible)
        if isinstance(field.type, MessageSchema) and field.is_nullable(self.version):
            inner.uvarint(0 if value is None else 1)
            if value is not None:
                inner.structure(field.type, value)
        else:
            inner.value(field, value)
        return bytes(inner.out)

    def value(self, field: MessageField, value: Any) -> None:
        if value is None and not field.is_nullable(self.version):
            raise SchemaError(f"{field.name} is missing")
        self.typed(field.type, field, value)

    def typed(self, kind: Type, field: MessageField, value: Any) -> None:
        if isinstance(kind, MessageSchema):
            if field.is_nullable(self.version) and field.type is kind and field.tag is None:
                self.number("int8", field.name, -1 if value is None else 1)
            if value is not None:
                self.structure(kind, value)
        elif isinstance(kind, Array):
            self.size("int32", field.name, value)
            for element in value or ():
                self.typed(kind.element, field, element)
        elif kind in NUMBERS:
            self.number(kind, field.name, value)
        elif kind == "uuid":
            self.out += _uuid(field.name, value).bytes
        else:
            data = value.encode() if isinstance(value, str) else value
            self.size("int16" if kind == "string" else "int32", field.name, data)
            self.out += data or b""

    def number(self, kind: str, name: str, value: Any) -> None:
        try:
            self.out += NUMBERS[kind].pack(value)
        except struct.error as error:
            raise SchemaError(f"{name} cannot be {value!r}: {error}") from None

    def size(self, plain_kind: str, name: str, value: Any) -> None:
        """Write the size or count of a value; -1 for a null."""
        count = -1 if value is None else len(value)
        if self.is_flexible:
            self.uvarint(count + 1)
        else:
            self.number(plain_kind, name, count)

    def uvarint(self, number: int) -> None:
        while number > 0x7F:
            self.out.append(number & 0x7F | 0x80)
            number >>= 7
        self.out.append(number)


def _uuid(name: str, value: Any) -> uuid.UUID:
    if not isinstance(value, uuid.UUID):
        raise SchemaError(f"{name} must be a uuid.UUID, not {type(value).__name__}")
    return value
