"""All schemas of messages that logs contain, by Kafka's names."""

from __future__ import annotations

from kafkascan.format.schemas.log_messages import (
    ASSIGNMENT,
    COORDINATOR_RECORDS,
    METADATA_RECORDS,
    REMOTE_LOG_RECORDS,
    SUBSCRIPTION,
)
from kafkascan.format.schemas.message_decoder import MessageSchema
from kafkascan.records.control import ControlRecordType, control_schema

_PAIRS = tuple(COORDINATOR_RECORDS.values())
_VALUES = (METADATA_RECORDS, REMOTE_LOG_RECORDS)
_CONTROL = [
    control_schema(kind) for kind in ControlRecordType if kind >= ControlRecordType.LEADER_CHANGE
]

TYPES = {
    schema.name: code
    for records in (*_PAIRS, *({k: (v,) for k, v in one.items()} for one in _VALUES))
    for code, schemas in records.items()
    for schema in schemas
}
"""The number of the type of each record."""

SCHEMAS: dict[str, MessageSchema] = {
    schema.name: schema
    for schema in (
        SUBSCRIPTION,
        ASSIGNMENT,
        *_CONTROL,
        *(schema for records in _PAIRS for pair in records.values() for schema in pair),
        *(schema for records in _VALUES for schema in records.values()),
    )
}
"""Schemas of messages, keys and values."""
