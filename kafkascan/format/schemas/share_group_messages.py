"""Records of share groups in ``__consumer_offsets`` (KIP-932)."""

from __future__ import annotations

from kafkascan.format.schemas.group_messages import GROUP_ID, MEMBER_ID
from kafkascan.format.schemas.message_decoder import Array, Field, Schema

SHARE_GROUP_MEMBER_METADATA_VALUE = Schema(
    "ShareGroupMemberMetadataValue",
    (
        Field("rack_id", "string", nullable_since=0),
        Field("client_id", "string"),
        Field("client_host", "string"),
        Field("subscribed_topic_names", Array("string")),
    ),
    flexible_since=0,
)
SHARE_GROUP_METADATA_VALUE = Schema(
    "ShareGroupMetadataValue",
    (Field("epoch", "int32"), Field("metadata_hash", "int64")),
    flexible_since=0,
)
SHARE_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE = Schema(
    "ShareGroupTargetAssignmentMetadataValue",
    (Field("assignment_epoch", "int32"), Field("assignment_timestamp", "int64", tag=0, default=0)),
    flexible_since=0,
)
_TOPIC_PARTITION = Schema(
    "TopicPartition", (Field("topic_id", "uuid"), Field("partitions", Array("int32")))
)
SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE = Schema(
    "ShareGroupTargetAssignmentMemberValue",
    (Field("topic_partitions", Array(_TOPIC_PARTITION)),),
    flexible_since=0,
)
_TOPIC_PARTITIONS = Schema(
    "TopicPartitions", (Field("topic_id", "uuid"), Field("partitions", Array("int32")))
)
SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE = Schema(
    "ShareGroupCurrentMemberAssignmentValue",
    (
        Field("member_epoch", "int32"),
        Field("previous_member_epoch", "int32"),
        Field("state", "int8"),
        Field("assigned_partitions", Array(_TOPIC_PARTITIONS)),
    ),
    flexible_since=0,
)
_TOPIC_PARTITIONS_INFO = Schema(
    "TopicPartitionsInfo",
    (Field("topic_id", "uuid"), Field("topic_name", "string"), Field("partitions", Array("int32"))),
)
_TOPIC_INFO = Schema("TopicInfo", (Field("topic_id", "uuid"), Field("topic_name", "string")))
SHARE_GROUP_STATE_PARTITION_METADATA_VALUE = Schema(
    "ShareGroupStatePartitionMetadataValue",
    (
        Field("initializing_topics", Array(_TOPIC_PARTITIONS_INFO)),
        Field("initialized_topics", Array(_TOPIC_PARTITIONS_INFO)),
        Field("deleting_topics", Array(_TOPIC_INFO)),
    ),
    flexible_since=0,
)

SHARE_GROUP_RECORDS: dict[int, tuple[Schema, Schema]] = {
    10: (Schema("ShareGroupMemberMetadataKey", MEMBER_ID), SHARE_GROUP_MEMBER_METADATA_VALUE),
    11: (Schema("ShareGroupMetadataKey", GROUP_ID), SHARE_GROUP_METADATA_VALUE),
    12: (
        Schema("ShareGroupTargetAssignmentMetadataKey", GROUP_ID),
        SHARE_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE,
    ),
    13: (
        Schema("ShareGroupTargetAssignmentMemberKey", MEMBER_ID),
        SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE,
    ),
    14: (
        Schema("ShareGroupCurrentMemberAssignmentKey", MEMBER_ID),
        SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE,
    ),
    15: (
        Schema("ShareGroupStatePartitionMetadataKey", GROUP_ID),
        SHARE_GROUP_STATE_PARTITION_METADATA_VALUE,
    ),
}
"""Schemas of keys and values by the type of the record."""
