"""Subscriptions and assignments of classic consumers, embedded in groups' records."""

from __future__ import annotations

from kafkascan.format.schemas.message_decoder import Array, Field, Schema

_OWNED_PARTITIONS = Schema(
    "TopicPartition",
    (Field("topic", "string", since=1), Field("partitions", Array("int32"), since=1)),
)
SUBSCRIPTION = Schema(
    "ConsumerProtocolSubscription",
    (
        Field("topics", Array("string")),
        Field("user_data", "bytes", nullable_since=0),
        Field("owned_partitions", Array(_OWNED_PARTITIONS), since=1),
        Field("generation_id", "int32", since=2, default=-1),
        Field("rack_id", "string", since=3, nullable_since=3),
    ),
    newest=3,
)
_ASSIGNED_PARTITIONS = Schema(
    "TopicPartition", (Field("topic", "string"), Field("partitions", Array("int32")))
)
ASSIGNMENT = Schema(
    "ConsumerProtocolAssignment",
    (
        Field("assigned_partitions", Array(_ASSIGNED_PARTITIONS)),
        Field("user_data", "bytes", nullable_since=0),
    ),
    newest=3,
)
