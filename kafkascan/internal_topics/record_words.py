"""Keys and values of Kafka's own topics as plain objects, for people and for JSON."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from kafkascan.format.file_names import METADATA_TOPIC, REMOTE_TOPIC
from kafkascan.format.schemas.log_messages import METADATA_RECORDS, REMOTE_LOG_RECORDS
from kafkascan.format.schemas.message_decoder import MessageSchema
from kafkascan.format.schemas.message_json import json_of
from kafkascan.internal_topics.coordinator_records import require_known_version
from kafkascan.internal_topics.topic_messages import (
    COORDINATOR_RECORDS,
    Message,
    decode_coordinator_record,
    decode_framed_message,
)

_FRAMED: Mapping[str, Mapping[int, MessageSchema]] = {
    METADATA_TOPIC: METADATA_RECORDS,
    REMOTE_TOPIC: REMOTE_LOG_RECORDS,
}


def describe_record(
    topic: str, key: bytes | None, value: bytes | None
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """
    Return the key and value of a record as plain objects.

    Parameters
    ----------
    topic : str
        One of `COORDINATOR_RECORDS` or `_FRAMED`.
    key, value : bytes or None

    Returns
    -------
    key, value : dict or None
        With ``type``, ``version`` and Kafka's JSON of the message, whose names are in camel case;
        ``unknownTags`` are tagged fields that its schema does not have. The value of a tombstone
        is None. A key whose layout is not known is ``{"bytes": …}``, in base64.

    Raises
    ------
    SchemaError
        If the type or version is not known, or the bytes do not encode a message.
    """
    if topic in _FRAMED:
        of_key = None if key is None else {"bytes": _base64(key)}
        if key is not None and value is None:
            return of_key, None
        message = decode_framed_message(_FRAMED[topic], value or b"")
        require_known_version(message)
        return of_key, _words(message)
    known, of_value = decode_coordinator_record(COORDINATOR_RECORDS[topic], key or b"", value)
    if of_value is None:
        return _words(known), None
    require_known_version(of_value)
    return _words(known), _words(of_value)


def _words(message: Message) -> dict[str, Any]:
    words = {
        "type": message.schema.name,
        "version": message.version,
        "data": json_of(message.schema, message.fields, message.version),
    }
    tags = [
        {"structure": one.structure, "tag": one.tag, "bytes": _base64(one.value)}
        for one in message.unknown_tags
    ]
    return words | {"unknownTags": tags} if tags else words


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
