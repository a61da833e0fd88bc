"""All schemas of messages that logs contain, by Kafka's names."""

from __future__ import annotations

from kafkascan.format.schemas import (
    consumer_protocol,
    control_messages,
    group_messages,
    metadata_messages,
    remote_log_messages,
    share_group_messages,
    share_state_messages,
    streams_group_messages,
    transaction_messages,
)
from kafkascan.format.schemas.message_decoder import Schema

_PAIRS = (
    group_messages.GROUP_RECORDS,
    share_group_messages.SHARE_GROUP_RECORDS,
    streams_group_messages.STREAMS_GROUP_RECORDS,
    transaction_messages.TRANSACTION_RECORDS,
    share_state_messages.SHARE_STATE_RECORDS,
)
_VALUES = (metadata_messages.METADATA_RECORDS, remote_log_messages.REMOTE_LOG_RECORDS)
_OTHERS = (
    consumer_protocol.SUBSCRIPTION,
    consumer_protocol.ASSIGNMENT,
    control_messages.LEADER_CHANGE,
    control_messages.SNAPSHOT_HEADER,
    control_messages.SNAPSHOT_FOOTER,
    control_messages.KRAFT_VERSION,
    control_messages.KRAFT_VOTERS,
)

TYPES = {
    schema.name: code
    for records in (*_PAIRS, *({k: (v,) for k, v in one.items()} for one in _VALUES))
    for code, schemas in records.items()
    for schema in schemas
}
"""The number of the type of each record."""

SCHEMAS: dict[str, Schema] = {
    schema.name: schema
    for schema in (
        *_OTHERS,
        *(schema for records in _PAIRS for pair in records.values() for schema in pair),
        *(schema for records in _VALUES for schema in records.values()),
    )
}
"""Schemas of messages, keys and values."""
