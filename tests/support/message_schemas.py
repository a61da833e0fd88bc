"""All schemas of messages that logs contain, by Kafka's names."""

from __future__ import annotations

from kafkascan.format.schemas import coordinator_messages, metadata_messages, remote_log_messages
from kafkascan.format.schemas.message_decoder import MessageSchema
from kafkascan.records import control

_PAIRS = (
    coordinator_messages.GROUP_RECORDS,
    coordinator_messages.SHARE_GROUP_RECORDS,
    coordinator_messages.STREAMS_GROUP_RECORDS,
    coordinator_messages.TRANSACTION_RECORDS,
    coordinator_messages.SHARE_STATE_RECORDS,
)
_VALUES = (metadata_messages.METADATA_RECORDS, remote_log_messages.REMOTE_LOG_RECORDS)
_OTHERS = (
    coordinator_messages.SUBSCRIPTION,
    coordinator_messages.ASSIGNMENT,
    control.LEADER_CHANGE,
    control.SNAPSHOT_HEADER,
    control.SNAPSHOT_FOOTER,
    control.KRAFT_VERSION,
    control.KRAFT_VOTERS,
)

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
        *_OTHERS,
        *(schema for records in _PAIRS for pair in records.values() for schema in pair),
        *(schema for records in _VALUES for schema in records.values()),
    )
}
"""Schemas of messages, keys and values."""
