"""Decode the records of Kafka's own topics.

The framing of keys and values of coordinators is that of ``CoordinatorRecordSerde``: a type or
version, then a message.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafkascan.format.schemas.log_messages import (
    COORDINATOR_RECORDS as COORDINATOR_RECORDS,
    CoordinatorSchemas,
)
from kafkascan.format.schemas.message_decoder import (
    MessageSchema,
    SchemaError,
    UnknownTag,
    decode_prefix,
    read_message_frame,
)

_SHORT = struct.Struct(">h")


class UnknownRecordTypeError(SchemaError):
    """The type of a record is not known; a later Kafka version may have written it."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(f"unknown record type {code}")


@dataclass(frozen=True)
class Message:
    """
    One message of a record: its key or its value.

    Attributes
    ----------
    type : int
        Kafka's number of the type.
    schema : MessageSchema
    version : int
    fields : dict
        Values by field name, see `decode`.
    unknown_tags : tuple of UnknownTag
        Tagged fields that the schema does not have; Kafka skips them, too.
    """

    type: int
    schema: MessageSchema
    version: int
    fields: dict[str, Any]
    unknown_tags: tuple[UnknownTag, ...] = ()


def decode_coordinator_record(
    schemas: CoordinatorSchemas, key: bytes, value: bytes | None
) -> tuple[Message, Message | None]:
    """
    Decode a record of a coordinator's topic.

    Parameters
    ----------
    schemas : mapping
        One of `COORDINATOR_RECORDS`.
    key : bytes
    value : bytes or None

    Returns
    -------
    key : Message
    value : Message or None
        None for a tombstone, which deletes the key.

    Raises
    ------
    UnknownRecordTypeError
        If the type is not known.
    SchemaError
        If the bytes do not encode the messages. Bytes behind a message are ignored, as by Kafka.
    """
    code, body = _prefixed(key, "the key")
    if code not in schemas:
        raise UnknownRecordTypeError(code)
    of_key, of_value = schemas[code]
    fields, _, unknown_tags = decode_prefix(of_key, body, 0)
    return Message(code, of_key, 0, fields, unknown_tags), _decode_value(code, of_value, value)


def _decode_value(code: int, schema: MessageSchema, value: bytes | None) -> Message | None:
    if value is None:
        return None
    version, body = _prefixed(value, "the value")
    fields, _, unknown_tags = decode_prefix(schema, body, version)
    return Message(code, schema, version, fields, unknown_tags)


def decode_framed_message(schemas: Mapping[int, MessageSchema], value: bytes) -> Message:
    """
    Decode a record of the metadata log or of ``__remote_log_metadata``.

    Parameters
    ----------
    schemas : mapping
        ``METADATA_RECORDS`` or ``REMOTE_LOG_RECORDS``.
    value : bytes

    Returns
    -------
    Message

    Raises
    ------
    UnknownRecordTypeError
        If the type is not known.
    SchemaError
        If the bytes do not encode a message, or bytes follow it.
    """
    code, version, start = read_message_frame(value)
    if code not in schemas:
        raise UnknownRecordTypeError(code)
    fields, size, unknown_tags = decode_prefix(schemas[code], value[start:], version)
    if garbage := len(value) - start - size:
        raise SchemaError(f"{garbage} bytes follow the message")
    return Message(code, schemas[code], version, fields, unknown_tags)


def _prefixed(data: bytes, what: str) -> tuple[int, bytes]:
    if len(data) < _SHORT.size:
        raise SchemaError(f"{what} has {len(data)} bytes, fewer than {_SHORT.size}")
    return int(_SHORT.unpack_from(data)[0]), data[_SHORT.size :]
