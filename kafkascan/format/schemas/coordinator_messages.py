"""Messages of coordinators: groups (KIP-848), share groups, Streams groups and transactions."""

from __future__ import annotations

from kafkascan.format.schemas.message_decoder import (
    EMPTY,
    NO_UUID,
    Array,
    MessageField,
    MessageSchema,
)

GROUP_ID = (MessageField("group_id", "string"),)
MEMBER_ID = (MessageField("group_id", "string"), MessageField("member_id", "string"))
_GROUP = (MessageField("group", "string"),)
_COMMITTED_PARTITION = (
    MessageField("group", "string"),
    MessageField("topic", "string"),
    MessageField("partition", "int32"),
)
_REGULAR_EXPRESSION = (
    MessageField("group_id", "string"),
    MessageField("regular_expression", "string"),
)
LEGACY_OFFSET_COMMIT_VALUE = MessageSchema(
    "LegacyOffsetCommitValue",
    (
        MessageField("offset", "int64"),
        MessageField("metadata", "string"),
        MessageField("commit_timestamp", "int64"),
    ),
)
OFFSET_COMMIT_VALUE = MessageSchema(
    "OffsetCommitValue",
    (
        MessageField("offset", "int64"),
        MessageField("leader_epoch", "int32", since=3, default=-1),
        MessageField("metadata", "string"),
        MessageField("commit_timestamp", "int64"),
        MessageField("expire_timestamp", "int64", since=1, until=1, default=-1),
        MessageField("topic_id", "uuid", since=4, tag=0, default=NO_UUID),
    ),
    flexible_since=4,
    newest=4,
)
_MEMBER_METADATA = MessageSchema(
    "MemberMetadata",
    (
        MessageField("member_id", "string"),
        MessageField("group_instance_id", "string", since=3, nullable_since=3),
        MessageField("client_id", "string"),
        MessageField("client_host", "string"),
        MessageField("rebalance_timeout", "int32", since=1, default=-1),
        MessageField("session_timeout", "int32"),
        MessageField("subscription", "bytes"),
        MessageField("assignment", "bytes"),
    ),
)
GROUP_METADATA_VALUE = MessageSchema(
    "GroupMetadataValue",
    (
        MessageField("protocol_type", "string"),
        MessageField("generation", "int32"),
        MessageField("protocol", "string", nullable_since=0),
        MessageField("leader", "string", nullable_since=0),
        MessageField("current_state_timestamp", "int64", since=2, default=-1),
        MessageField("members", Array(_MEMBER_METADATA)),
    ),
    flexible_since=4,
    newest=4,
)
CONSUMER_GROUP_METADATA_VALUE = MessageSchema(
    "ConsumerGroupMetadataValue",
    (MessageField("epoch", "int32"), MessageField("metadata_hash", "int64", tag=0, default=0)),
    flexible_since=0,
)
_PARTITION_METADATA = MessageSchema(
    "PartitionMetadata",
    (MessageField("partition", "int32"), MessageField("racks", Array("string"))),
)
_TOPIC_METADATA = MessageSchema(
    "TopicMetadata",
    (
        MessageField("topic_id", "uuid"),
        MessageField("topic_name", "string"),
        MessageField("num_partitions", "int32"),
        MessageField("partition_metadata", Array(_PARTITION_METADATA)),
    ),
)
CONSUMER_GROUP_PARTITION_METADATA_VALUE = MessageSchema(
    "ConsumerGroupPartitionMetadataValue",
    (MessageField("topics", Array(_TOPIC_METADATA)),),
    flexible_since=0,
)
_CLASSIC_PROTOCOL = MessageSchema(
    "ClassicProtocol", (MessageField("name", "string"), MessageField("metadata", "bytes"))
)
_CLASSIC_MEMBER_METADATA = MessageSchema(
    "ClassicMemberMetadata",
    (
        MessageField("session_timeout_ms", "int32"),
        MessageField("supported_protocols", Array(_CLASSIC_PROTOCOL)),
    ),
)
CONSUMER_GROUP_MEMBER_METADATA_VALUE = MessageSchema(
    "ConsumerGroupMemberMetadataValue",
    (
        MessageField("instance_id", "string", nullable_since=0),
        MessageField("rack_id", "string", nullable_since=0),
        MessageField("client_id", "string"),
        MessageField("client_host", "string"),
        MessageField("subscribed_topic_names", Array("string")),
        MessageField("subscribed_topic_regex", "string", nullable_since=0),
        MessageField("rebalance_timeout_ms", "int32", default=-1),
        MessageField("server_assignor", "string", nullable_since=0),
        MessageField(
            "classic_member_metadata",
            _CLASSIC_MEMBER_METADATA,
            nullable_since=0,
            tag=0,
            default=EMPTY,
        ),
    ),
    flexible_since=0,
)
CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE = MessageSchema(
    "ConsumerGroupTargetAssignmentMetadataValue",
    (
        MessageField("assignment_epoch", "int32"),
        MessageField("assignment_timestamp", "int64", tag=0, default=0),
    ),
    flexible_since=0,
)
_TOPIC_PARTITION = MessageSchema(
    "TopicPartition", (MessageField("topic_id", "uuid"), MessageField("partitions", Array("int32")))
)
CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE = MessageSchema(
    "ConsumerGroupTargetAssignmentMemberValue",
    (MessageField("topic_partitions", Array(_TOPIC_PARTITION)),),
    flexible_since=0,
)
_OWNED_PARTITIONS = MessageSchema(
    "TopicPartitions",
    (
        MessageField("topic_id", "uuid"),
        MessageField("partitions", Array("int32")),
        MessageField("assignment_epochs", Array("int32"), nullable_since=0, tag=0, default=()),
    ),
)
CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE = MessageSchema(
    "ConsumerGroupCurrentMemberAssignmentValue",
    (
        MessageField("member_epoch", "int32"),
        MessageField("previous_member_epoch", "int32"),
        MessageField("state", "int8"),
        MessageField("assigned_partitions", Array(_OWNED_PARTITIONS)),
        MessageField("partitions_pending_revocation", Array(_OWNED_PARTITIONS)),
    ),
    flexible_since=0,
)
CONSUMER_GROUP_REGULAR_EXPRESSION_VALUE = MessageSchema(
    "ConsumerGroupRegularExpressionValue",
    (
        MessageField("topics", Array("string")),
        MessageField("version", "int64"),
        MessageField("timestamp", "int64"),
    ),
    flexible_since=0,
)

GROUP_RECORDS: dict[int, tuple[MessageSchema, MessageSchema]] = {
    0: (MessageSchema("LegacyOffsetCommitKey", _COMMITTED_PARTITION), LEGACY_OFFSET_COMMIT_VALUE),
    1: (MessageSchema("OffsetCommitKey", _COMMITTED_PARTITION), OFFSET_COMMIT_VALUE),
    2: (MessageSchema("GroupMetadataKey", _GROUP), GROUP_METADATA_VALUE),
    3: (MessageSchema("ConsumerGroupMetadataKey", GROUP_ID), CONSUMER_GROUP_METADATA_VALUE),
    4: (
        MessageSchema("ConsumerGroupPartitionMetadataKey", GROUP_ID),
        CONSUMER_GROUP_PARTITION_METADATA_VALUE,
    ),
    5: (
        MessageSchema("ConsumerGroupMemberMetadataKey", MEMBER_ID),
        CONSUMER_GROUP_MEMBER_METADATA_VALUE,
    ),
    6: (
        MessageSchema("ConsumerGroupTargetAssignmentMetadataKey", GROUP_ID),
        CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE,
    ),
    7: (
        MessageSchema("ConsumerGroupTargetAssignmentMemberKey", MEMBER_ID),
        CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE,
    ),
    8: (
        MessageSchema("ConsumerGroupCurrentMemberAssignmentKey", MEMBER_ID),
        CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE,
    ),
    16: (
        MessageSchema("ConsumerGroupRegularExpressionKey", _REGULAR_EXPRESSION),
        CONSUMER_GROUP_REGULAR_EXPRESSION_VALUE,
    ),
}
"""Schemas of keys and values by the type of the record."""


# ---- transactions: ``__transaction_state`` ------------------------------------------------------

_TRANSACTIONAL_ID = (MessageField("transactional_id", "string"),)
_PARTITIONS_SCHEMA = MessageSchema(
    "PartitionsSchema",
    (MessageField("topic", "string"), MessageField("partition_ids", Array("int32"))),
)
TRANSACTION_LOG_VALUE = MessageSchema(
    "TransactionLogValue",
    (
        MessageField("producer_id", "int64"),
        MessageField("previous_producer_id", "int64", since=1, tag=0, default=-1),
        MessageField("next_producer_id", "int64", since=1, tag=1, default=-1),
        MessageField("producer_epoch", "int16"),
        MessageField("next_producer_epoch", "int16", since=1, tag=3, default=-1),
        MessageField("transaction_timeout_ms", "int32"),
        MessageField("transaction_status", "int8"),
        MessageField("transaction_partitions", Array(_PARTITIONS_SCHEMA), nullable_since=0),
        MessageField("transaction_last_update_timestamp_ms", "int64"),
        MessageField("transaction_start_timestamp_ms", "int64"),
        MessageField("client_transaction_version", "int16", since=1, tag=2, default=0),
    ),
    flexible_since=1,
    newest=1,
)

TRANSACTION_RECORDS: dict[int, tuple[MessageSchema, MessageSchema]] = {
    0: (MessageSchema("TransactionLogKey", _TRANSACTIONAL_ID), TRANSACTION_LOG_VALUE),
}
"""Schemas of keys and values by the type of the record."""


# ---- share state: ``__share_group_state`` (KIP-932) ---------------------------------------------

_SHARE_PARTITION = (
    MessageField("group_id", "string"),
    MessageField("topic_id", "uuid"),
    MessageField("partition", "int32"),
)
_STATE_BATCH = MessageSchema(
    "StateBatch",
    (
        MessageField("first_offset", "int64"),
        MessageField("last_offset", "int64"),
        MessageField("delivery_state", "int8"),
        MessageField("delivery_count", "int16"),
    ),
)
SHARE_SNAPSHOT_VALUE = MessageSchema(
    "ShareSnapshotValue",
    (
        MessageField("snapshot_epoch", "int32"),
        MessageField("state_epoch", "int32"),
        MessageField("leader_epoch", "int32"),
        MessageField("start_offset", "int64"),
        MessageField("delivery_complete_count", "int32", tag=0, default=-1),
        MessageField("create_timestamp", "int64"),
        MessageField("write_timestamp", "int64"),
        MessageField("state_batches", Array(_STATE_BATCH)),
    ),
    flexible_since=0,
)
SHARE_UPDATE_VALUE = MessageSchema(
    "ShareUpdateValue",
    (
        MessageField("snapshot_epoch", "int32"),
        MessageField("leader_epoch", "int32"),
        MessageField("start_offset", "int64"),
        MessageField("delivery_complete_count", "int32", tag=0, default=-1),
        MessageField("state_batches", Array(_STATE_BATCH)),
    ),
    flexible_since=0,
)

SHARE_STATE_RECORDS: dict[int, tuple[MessageSchema, MessageSchema]] = {
    0: (MessageSchema("ShareSnapshotKey", _SHARE_PARTITION), SHARE_SNAPSHOT_VALUE),
    1: (MessageSchema("ShareUpdateKey", _SHARE_PARTITION), SHARE_UPDATE_VALUE),
}
"""Schemas of keys and values by the type of the record."""


# ---- share groups: ``__consumer_offsets`` (KIP-932) ---------------------------------------------

SHARE_GROUP_MEMBER_METADATA_VALUE = MessageSchema(
    "ShareGroupMemberMetadataValue",
    (
        MessageField("rack_id", "string", nullable_since=0),
        MessageField("client_id", "string"),
        MessageField("client_host", "string"),
        MessageField("subscribed_topic_names", Array("string")),
    ),
    flexible_since=0,
)
SHARE_GROUP_METADATA_VALUE = MessageSchema(
    "ShareGroupMetadataValue",
    (MessageField("epoch", "int32"), MessageField("metadata_hash", "int64")),
    flexible_since=0,
)
SHARE_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE = MessageSchema(
    "ShareGroupTargetAssignmentMetadataValue",
    (
        MessageField("assignment_epoch", "int32"),
        MessageField("assignment_timestamp", "int64", tag=0, default=0),
    ),
    flexible_since=0,
)
SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE = MessageSchema(
    "ShareGroupTargetAssignmentMemberValue",
    (MessageField("topic_partitions", Array(_TOPIC_PARTITION)),),
    flexible_since=0,
)
_TOPIC_PARTITIONS = MessageSchema(
    "TopicPartitions",
    (MessageField("topic_id", "uuid"), MessageField("partitions", Array("int32"))),
)
SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE = MessageSchema(
    "ShareGroupCurrentMemberAssignmentValue",
    (
        MessageField("member_epoch", "int32"),
        MessageField("previous_member_epoch", "int32"),
        MessageField("state", "int8"),
        MessageField("assigned_partitions", Array(_TOPIC_PARTITIONS)),
    ),
    flexible_since=0,
)
_TOPIC_PARTITIONS_INFO = MessageSchema(
    "TopicPartitionsInfo",
    (
        MessageField("topic_id", "uuid"),
        MessageField("topic_name", "string"),
        MessageField("partitions", Array("int32")),
    ),
)
_TOPIC_INFO = MessageSchema(
    "TopicInfo", (MessageField("topic_id", "uuid"), MessageField("topic_name", "string"))
)
SHARE_GROUP_STATE_PARTITION_METADATA_VALUE = MessageSchema(
    "ShareGroupStatePartitionMetadataValue",
    (
        MessageField("initializing_topics", Array(_TOPIC_PARTITIONS_INFO)),
        MessageField("initialized_topics", Array(_TOPIC_PARTITIONS_INFO)),
        MessageField("deleting_topics", Array(_TOPIC_INFO)),
    ),
    flexible_since=0,
)

SHARE_GROUP_RECORDS: dict[int, tuple[MessageSchema, MessageSchema]] = {
    10: (
        MessageSchema("ShareGroupMemberMetadataKey", MEMBER_ID),
        SHARE_GROUP_MEMBER_METADATA_VALUE,
    ),
    11: (MessageSchema("ShareGroupMetadataKey", GROUP_ID), SHARE_GROUP_METADATA_VALUE),
    12: (
        MessageSchema("ShareGroupTargetAssignmentMetadataKey", GROUP_ID),
        SHARE_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE,
    ),
    13: (
        MessageSchema("ShareGroupTargetAssignmentMemberKey", MEMBER_ID),
        SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE,
    ),
    14: (
        MessageSchema("ShareGroupCurrentMemberAssignmentKey", MEMBER_ID),
        SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE,
    ),
    15: (
        MessageSchema("ShareGroupStatePartitionMetadataKey", GROUP_ID),
        SHARE_GROUP_STATE_PARTITION_METADATA_VALUE,
    ),
}
"""Schemas of keys and values by the type of the record."""


# ---- Streams groups: ``__consumer_offsets`` (KIP-1071) ------------------------------------------

_LAST_ASSIGNMENT_CONFIG = MessageSchema(
    "LastAssignmentConfig", (MessageField("key", "string"), MessageField("value", "string"))
)
STREAMS_GROUP_METADATA_VALUE = MessageSchema(
    "StreamsGroupMetadataValue",
    (
        MessageField("epoch", "int32"),
        MessageField("metadata_hash", "int64"),
        MessageField("validated_topology_epoch", "int32", tag=0, default=-1),
        MessageField(
            "last_assignment_configs",
            Array(_LAST_ASSIGNMENT_CONFIG),
            nullable_since=0,
            tag=1,
            default=(),
        ),
        MessageField("stored_description_topology_epoch", "int32", tag=2, default=-1),
        MessageField("failed_description_topology_epoch", "int32", tag=3, default=-1),
    ),
    flexible_since=0,
)
_ENDPOINT = MessageSchema(
    "Endpoint", (MessageField("host", "string"), MessageField("port", "uint16"))
)
_KEY_VALUE = MessageSchema(
    "KeyValue", (MessageField("key", "string"), MessageField("value", "string"))
)
STREAMS_GROUP_MEMBER_METADATA_VALUE = MessageSchema(
    "StreamsGroupMemberMetadataValue",
    (
        MessageField("instance_id", "string", nullable_since=0),
        MessageField("rack_id", "string", nullable_since=0),
        MessageField("client_id", "string"),
        MessageField("client_host", "string"),
        MessageField("rebalance_timeout_ms", "int32", default=-1),
        MessageField("topology_epoch", "int32"),
        MessageField("process_id", "string"),
        MessageField("user_endpoint", _ENDPOINT, nullable_since=0),
        MessageField("client_tags", Array(_KEY_VALUE)),
    ),
    flexible_since=0,
)
STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE = MessageSchema(
    "StreamsGroupTargetAssignmentMetadataValue",
    (
        MessageField("assignment_epoch", "int32"),
        MessageField("assignment_timestamp", "int64", tag=0, default=0),
    ),
    flexible_since=0,
)
_TASK_IDS = MessageSchema(
    "TaskIds",
    (MessageField("subtopology_id", "string"), MessageField("partitions", Array("int32"))),
)
STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE = MessageSchema(
    "StreamsGroupTargetAssignmentMemberValue",
    (
        MessageField("active_tasks", Array(_TASK_IDS)),
        MessageField("standby_tasks", Array(_TASK_IDS)),
        MessageField("warmup_tasks", Array(_TASK_IDS)),
    ),
    flexible_since=0,
)
_OWNED_TASK_IDS = MessageSchema(
    "TaskIds",
    (
        MessageField("subtopology_id", "string"),
        MessageField("partitions", Array("int32")),
        MessageField("assignment_epochs", Array("int32"), nullable_since=0, tag=0, default=()),
    ),
)
STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE = MessageSchema(
    "StreamsGroupCurrentMemberAssignmentValue",
    (
        MessageField("member_epoch", "int32"),
        MessageField("previous_member_epoch", "int32"),
        MessageField("state", "int8"),
        MessageField("active_tasks", Array(_OWNED_TASK_IDS)),
        MessageField("standby_tasks", Array(_OWNED_TASK_IDS)),
        MessageField("warmup_tasks", Array(_OWNED_TASK_IDS)),
        MessageField("active_tasks_pending_revocation", Array(_OWNED_TASK_IDS)),
        MessageField("standby_tasks_pending_revocation", Array(_OWNED_TASK_IDS)),
        MessageField("warmup_tasks_pending_revocation", Array(_OWNED_TASK_IDS)),
    ),
    flexible_since=0,
)
_TOPIC_CONFIG = MessageSchema(
    "TopicConfig", (MessageField("key", "string"), MessageField("value", "string"))
)
_STREAMS_TOPIC_INFO = MessageSchema(
    "TopicInfo",
    (
        MessageField("name", "string"),
        MessageField("partitions", "int32"),
        MessageField("replication_factor", "int16"),
        MessageField("topic_configs", Array(_TOPIC_CONFIG)),
    ),
)
_COPARTITION_GROUP = MessageSchema(
    "CopartitionGroup",
    (
        MessageField("source_topics", Array("int16")),
        MessageField("source_topic_regex", Array("int16")),
        MessageField("repartition_source_topics", Array("int16")),
    ),
)
_SUBTOPOLOGY = MessageSchema(
    "Subtopology",
    (
        MessageField("subtopology_id", "string"),
        MessageField("source_topics", Array("string")),
        MessageField("source_topic_regex", Array("string")),
        MessageField("state_changelog_topics", Array(_STREAMS_TOPIC_INFO)),
        MessageField("repartition_sink_topics", Array("string")),
        MessageField("repartition_source_topics", Array(_STREAMS_TOPIC_INFO)),
        MessageField("copartition_groups", Array(_COPARTITION_GROUP)),
    ),
)
STREAMS_GROUP_TOPOLOGY_VALUE = MessageSchema(
    "StreamsGroupTopologyValue",
    (MessageField("epoch", "int32"), MessageField("subtopologies", Array(_SUBTOPOLOGY))),
    flexible_since=0,
)

STREAMS_GROUP_RECORDS: dict[int, tuple[MessageSchema, MessageSchema]] = {
    17: (MessageSchema("StreamsGroupMetadataKey", GROUP_ID), STREAMS_GROUP_METADATA_VALUE),
    19: (
        MessageSchema("StreamsGroupMemberMetadataKey", MEMBER_ID),
        STREAMS_GROUP_MEMBER_METADATA_VALUE,
    ),
    20: (
        MessageSchema("StreamsGroupTargetAssignmentMetadataKey", GROUP_ID),
        STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE,
    ),
    21: (
        MessageSchema("StreamsGroupTargetAssignmentMemberKey", MEMBER_ID),
        STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE,
    ),
    22: (
        MessageSchema("StreamsGroupCurrentMemberAssignmentKey", MEMBER_ID),
        STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE,
    ),
    23: (MessageSchema("StreamsGroupTopologyKey", GROUP_ID), STREAMS_GROUP_TOPOLOGY_VALUE),
}
"""Schemas of keys and values by the type of the record."""


# ---- subscriptions and assignments of classic consumers, within the records of groups -----------

_PROTOCOL_PARTITIONS = MessageSchema(
    "TopicPartition",
    (MessageField("topic", "string", since=1), MessageField("partitions", Array("int32"), since=1)),
)
SUBSCRIPTION = MessageSchema(
    "ConsumerProtocolSubscription",
    (
        MessageField("topics", Array("string")),
        MessageField("user_data", "bytes", nullable_since=0),
        MessageField("owned_partitions", Array(_PROTOCOL_PARTITIONS), since=1),
        MessageField("generation_id", "int32", since=2, default=-1),
        MessageField("rack_id", "string", since=3, nullable_since=3),
    ),
    newest=3,
)
_ASSIGNED_PARTITIONS = MessageSchema(
    "TopicPartition", (MessageField("topic", "string"), MessageField("partitions", Array("int32")))
)
ASSIGNMENT = MessageSchema(
    "ConsumerProtocolAssignment",
    (
        MessageField("assigned_partitions", Array(_ASSIGNED_PARTITIONS)),
        MessageField("user_data", "bytes", nullable_since=0),
    ),
    newest=3,
)
