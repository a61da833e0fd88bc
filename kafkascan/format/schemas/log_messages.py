"""Schemas of the messages in Kafka's own topics."""

from __future__ import annotations

from collections.abc import Mapping

from kafkascan.format.file_names import GROUPS_TOPIC, SHARE_TOPIC, TRANSACTIONS_TOPIC
from kafkascan.format.schemas.message_decoder import MessageSchema
from kafkascan.format.schemas.message_files import read_messages

CoordinatorSchemas = Mapping[int, tuple[MessageSchema, MessageSchema]]


def _coordinator_schemas(topic: str) -> CoordinatorSchemas:
    messages = read_messages(topic)
    pairs = zip(messages[::2], messages[1::2], strict=True)
    return {key.type: (key.schema, value.schema) for key, value in pairs}


COORDINATOR_RECORDS: dict[str, CoordinatorSchemas] = {
    GROUPS_TOPIC: _coordinator_schemas("consumer_offsets"),
    TRANSACTIONS_TOPIC: _coordinator_schemas("transaction_state"),
    SHARE_TOPIC: _coordinator_schemas("share_group_state"),
}
"""Schemas of keys and values, by the type of the record, of the topics of coordinators."""

METADATA_RECORDS: dict[int, MessageSchema] = dict(read_messages("cluster_metadata"))
"""Schemas of the metadata log by the type of the record."""

REMOTE_LOG_RECORDS: dict[int, MessageSchema] = dict(read_messages("remote_log_metadata"))
"""Schemas of ``__remote_log_metadata`` by the type of the record."""

SUBSCRIPTION, ASSIGNMENT = (schema for _, schema in read_messages("consumer_protocol"))
