"""Records of classic and consumer groups in ``__consumer_offsets`` (KIP-848)."""

from __future__ import annotations

from kafkascan.format.schemas.message_decoder import EMPTY, NO_UUID, Array, Field, Schema

GROUP_ID = (Field("group_id", "string"),)
MEMBER_ID = (Field("group_id", "string"), Field("member_id", "string"))
_GROUP = (Field("group", "string"),)
_COMMITTED_PARTITION = (
    Field("group", "string"),
    Field("topic", "string"),
    Field("partition", "int32"),
)
_REGULAR_EXPRESSION = (Field("group_id", "string"), Field("regular_expression", "string"))
LEGACY_OFFSET_COMMIT_VALUE = Schema(
    "LegacyOffsetCommitValue",
    (Field("offset", "int64"), Field("metadata", "string"), Field("commit_timestamp", "int64")),
)
OFFSET_COMMIT_VALUE = Schema(
    "OffsetCommitValue",
    (
        Field("offset", "int64"),
        Field("leader_epoch", "int32", since=3, default=-1),
        Field("metadata", "string"),
        Field("commit_timestamp", "int64"),
        Field("expire_timestamp", "int64", since=1, until=1, default=-1),
        Field("topic_id", "uuid", since=4, tag=0, default=NO_UUID),
    ),
    flexible_since=4,
    newest=4,
)
_MEMBER_METADATA = Schema(
    "MemberMetadata",
    (
        Field("member_id", "string"),
        Field("group_instance_id", "string", since=3, nullable_since=3),
        Field("client_id", "string"),
        Field("client_host", "string"),
        Field("rebalance_timeout", "int32", since=1, default=-1),
        Field("session_timeout", "int32"),
        Field("subscription", "bytes"),
        Field("assignment", "bytes"),
    ),
)
GROUP_METADATA_VALUE = Schema(
    "GroupMetadataValue",
    (
        Field("protocol_type", "string"),
        Field("generation", "int32"),
        Field("protocol", "string", nullable_since=0),
        Field("leader", "string", nullable_since=0),
        Field("current_state_timestamp", "int64", since=2, default=-1),
        Field("members", Array(_MEMBER_METADATA)),
    ),
    flexible_since=4,
    newest=4,
)
CONSUMER_GROUP_METADATA_VALUE = Schema(
    "ConsumerGroupMetadataValue",
    (Field("epoch", "int32"), Field("metadata_hash", "int64", tag=0, default=0)),
    flexible_since=0,
)
_PARTITION_METADATA = Schema(
    "PartitionMetadata", (Field("partition", "int32"), Field("racks", Array("string")))
)
_TOPIC_METADATA = Schema(
    "TopicMetadata",
    (
        Field("topic_id", "uuid"),
        Field("topic_name", "string"),
        Field("num_partitions", "int32"),
        Field("partition_metadata", Array(_PARTITION_METADATA)),
    ),
)
CONSUMER_GROUP_PARTITION_METADATA_VALUE = Schema(
    "ConsumerGroupPartitionMetadataValue",
    (Field("topics", Array(_TOPIC_METADATA)),),
    flexible_since=0,
)
_CLASSIC_PROTOCOL = Schema("ClassicProtocol", (Field("name", "string"), Field("metadata", "bytes")))
_CLASSIC_MEMBER_METADATA = Schema(
    "ClassicMemberMetadata",
    (Field("session_timeout_ms", "int32"), Field("supported_protocols", Array(_CLASSIC_PROTOCOL))),
)
CONSUMER_GROUP_MEMBER_METADATA_VALUE = Schema(
    "ConsumerGroupMemberMetadataValue",
    (
        Field("instance_id", "string", nullable_since=0),
        Field("rack_id", "string", nullable_since=0),
        Field("client_id", "string"),
        Field("client_host", "string"),
        Field("subscribed_topic_names", Array("string")),
        Field("subscribed_topic_regex", "string", nullable_since=0),
        Field("rebalance_timeout_ms", "int32", default=-1),
        Field("server_assignor", "string", nullable_since=0),
        Field(
            "classic_member_metadata",
            _CLASSIC_MEMBER_METADATA,
            nullable_since=0,
            tag=0,
            default=EMPTY,
        ),
    ),
    flexible_since=0,
)
CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE = Schema(
    "ConsumerGroupTargetAssignmentMetadataValue",
    (Field("assignment_epoch", "int32"), Field("assignment_timestamp", "int64", tag=0, default=0)),
    flexible_since=0,
)
_TOPIC_PARTITION = Schema(
    "TopicPartition", (Field("topic_id", "uuid"), Field("partitions", Array("int32")))
)
CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE = Schema(
    "ConsumerGroupTargetAssignmentMemberValue",
    (Field("topic_partitions", Array(_TOPIC_PARTITION)),),
    flexible_since=0,
)
_OWNED_PARTITIONS = Schema(
    "TopicPartitions",
    (
        Field("topic_id", "uuid"),
        Field("partitions", Array("int32")),
        Field("assignment_epochs", Array("int32"), nullable_since=0, tag=0, default=()),
    ),
)
CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE = Schema(
    "ConsumerGroupCurrentMemberAssignmentValue",
    (
        Field("member_epoch", "int32"),
        Field("previous_member_epoch", "int32"),
        Field("state", "int8"),
        Field("assigned_partitions", Array(_OWNED_PARTITIONS)),
        Field("partitions_pending_revocation", Array(_OWNED_PARTITIONS)),
    ),
    flexible_since=0,
)
CONSUMER_GROUP_REGULAR_EXPRESSION_VALUE = Schema(
    "ConsumerGroupRegularExpressionValue",
    (Field("topics", Array("string")), Field("version", "int64"), Field("timestamp", "int64")),
    flexible_since=0,
)

GROUP_RECORDS: dict[int, tuple[Schema, Schema]] = {
    0: (Schema("LegacyOffsetCommitKey", _COMMITTED_PARTITION), LEGACY_OFFSET_COMMIT_VALUE),
    1: (Schema("OffsetCommitKey", _COMMITTED_PARTITION), OFFSET_COMMIT_VALUE),
    2: (Schema("GroupMetadataKey", _GROUP), GROUP_METADATA_VALUE),
    3: (Schema("ConsumerGroupMetadataKey", GROUP_ID), CONSUMER_GROUP_METADATA_VALUE),
    4: (
        Schema("ConsumerGroupPartitionMetadataKey", GROUP_ID),
        CONSUMER_GROUP_PARTITION_METADATA_VALUE,
    ),
    5: (Schema("ConsumerGroupMemberMetadataKey", MEMBER_ID), CONSUMER_GROUP_MEMBER_METADATA_VALUE),
    6: (
        Schema("ConsumerGroupTargetAssignmentMetadataKey", GROUP_ID),
        CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE,
    ),
    7: (
        Schema("ConsumerGroupTargetAssignmentMemberKey", MEMBER_ID),
        CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE,
    ),
    8: (
        Schema("ConsumerGroupCurrentMemberAssignmentKey", MEMBER_ID),
        CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE,
    ),
    16: (
        Schema("ConsumerGroupRegularExpressionKey", _REGULAR_EXPRESSION),
        CONSUMER_GROUP_REGULAR_EXPRESSION_VALUE,
    ),
}
"""Schemas of keys and values by the type of the record."""
