"""Records of a schema registry's topic, as Confluent's registry and Redpanda write them."""

from __future__ import annotations

import json
from typing import Any

from tests.support.internal_topics import KeyValue

AVRO = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}'
AVRO_2 = (
    '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},'
    '{"name":"note","type":["null","string"],"default":null}]}'
)
PROTO = 'syntax = "proto3";\nimport "money.proto";\nmessage Order { Money price = 1; }\n'
MONEY = 'syntax = "proto3";\nmessage Money { int64 units = 1; }\n'
JSON_SCHEMA = '{"type":"object","properties":{"id":{"type":"integer"}}}'

NOOP: KeyValue = (b'{"keytype":"NOOP","magic":0}', None)


def compact(value: object) -> bytes:
    """Return JSON as Jackson writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "backslashreplace"
    )


def schema(
    subject: str, version: int, number: int, text: str, *, deleted: bool = False, **more: Any
) -> KeyValue:
    """Return the registration of a version; `more` are fields that come before the text."""
    value = {"subject": subject, "version": version, "id": number, **more, "schema": text}
    return schema_key(subject, version), compact({**value, "deleted": deleted})


def schema_key(subject: str, version: int, **more: Any) -> bytes:
    """Return the key of a version."""
    key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
    return compact({**key, **more})


def setting(kind: str, subject: str | None, value: dict[str, Any] | None) -> KeyValue:
    """Return a record with a key of a subject: CONFIG, MODE, DELETE_SUBJECT, CLEAR_SUBJECT."""
    key = compact({"keytype": kind, "subject": subject, "magic": 0})
    return key, None if value is None else compact(value)


def delete_subject(subject: str, version: int) -> KeyValue:
    """Return the soft deletion of the versions of a subject up to one."""
    return setting("DELETE_SUBJECT", subject, {"subject": subject, "version": version})
