"""Messages of the metadata log that describe topics, partitions and brokers (KIP-631)."""

from __future__ import annotations

from kafkascan.format.schemas.message_decoder import Field, Schema

_ALWAYS = 0

REGISTER_BROKER = Schema(
    "RegisterBrokerRecord",
    (
        Field("broker_id", "int32"),
        Field("is_migrating_zk_broker", "bool", since=2),
        Field("incarnation_id", "uuid"),
        Field("broker_epoch", "int64"),
    ),
)
"""Only the first fields of the message; the others differ between versions."""

TOPIC = Schema("TopicRecord", (Field("name", "string"), Field("topic_id", "uuid")), _ALWAYS)
REMOVE_TOPIC = Schema("RemoveTopicRecord", (Field("topic_id", "uuid"),), _ALWAYS)
CONFIG = Schema(
    "ConfigRecord",
    (
        Field("resource_type", "int8"),
        Field("resource_name", "string"),
        Field("name", "string"),
        Field("value", "string", nullable_since=0),
    ),
    _ALWAYS,
)
