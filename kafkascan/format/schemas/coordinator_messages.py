"""Messages of coordinators: groups (KIP-848), share groups, Streams groups and transactions."""

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


_TRANSACTIONAL_ID = (Field("transactional_id", "string"),)
_PARTITIONS_SCHEMA = Schema(
    "PartitionsSchema", (Field("topic", "string"), Field("partition_ids", Array("int32")))
)
TRANSACTION_LOG_VALUE = Schema(
    "TransactionLogValue",
    (
        Field("producer_id", "int64"),
        Field("previous_producer_id", "int64", since=1, tag=0, default=-1),
        Field("next_producer_id", "int64", since=1, tag=1, default=-1),
        Field("producer_epoch", "int16"),
        Field("next_producer_epoch", "int16", since=1, tag=3, default=-1),
        Field("transaction_timeout_ms", "int32"),
        Field("transaction_status", "int8"),
        Field("transaction_partitions", Array(_PARTITIONS_SCHEMA), nullable_since=0),
        Field("transaction_last_update_timestamp_ms", "int64"),
        Field("transaction_start_timestamp_ms", "int64"),
        Field("client_transaction_version", "int16", since=1, tag=2, default=0),
    ),
    flexible_since=1,
    newest=1,
)

TRANSACTION_RECORDS: dict[int, tuple[Schema, Schema]] = {
    0: (Schema("TransactionLogKey", _TRANSACTIONAL_ID), TRANSACTION_LOG_VALUE),
}
"""Schemas of keys and values by the type of the record."""


_SHARE_PARTITION = (
    Field("group_id", "string"),
    Field("topic_id", "uuid"),
    Field("partition", "int32"),
)
_STATE_BATCH = Schema(
    "StateBatch",
    (
        Field("first_offset", "int64"),
        Field("last_offset", "int64"),
        Field("delivery_state", "int8"),
        Field("delivery_count", "int16"),
    ),
)
SHARE_SNAPSHOT_VALUE = Schema(
    "ShareSnapshotValue",
    (
        Field("snapshot_epoch", "int32"),
        Field("state_epoch", "int32"),
        Field("leader_epoch", "int32"),
        Field("start_offset", "int64"),
        Field("delivery_complete_count", "int32", tag=0, default=-1),
        Field("create_timestamp", "int64"),
        Field("write_timestamp", "int64"),
        Field("state_batches", Array(_STATE_BATCH)),
    ),
    flexible_since=0,
)
SHARE_UPDATE_VALUE = Schema(
    "ShareUpdateValue",
    (
        Field("snapshot_epoch", "int32"),
        Field("leader_epoch", "int32"),
        Field("start_offset", "int64"),
        Field("delivery_complete_count", "int32", tag=0, default=-1),
        Field("state_batches", Array(_STATE_BATCH)),
    ),
    flexible_since=0,
)

SHARE_STATE_RECORDS: dict[int, tuple[Schema, Schema]] = {
    0: (Schema("ShareSnapshotKey", _SHARE_PARTITION), SHARE_SNAPSHOT_VALUE),
    1: (Schema("ShareUpdateKey", _SHARE_PARTITION), SHARE_UPDATE_VALUE),
}
"""Schemas of keys and values by the type of the record."""


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


_LAST_ASSIGNMENT_CONFIG = Schema(
    "LastAssignmentConfig", (Field("key", "string"), Field("value", "string"))
)
STREAMS_GROUP_METADATA_VALUE = Schema(
    "StreamsGroupMetadataValue",
    (
        Field("epoch", "int32"),
        Field("metadata_hash", "int64"),
        Field("validated_topology_epoch", "int32", tag=0, default=-1),
        Field(
            "last_assignment_configs",
            Array(_LAST_ASSIGNMENT_CONFIG),
            nullable_since=0,
            tag=1,
            default=(),
        ),
        Field("stored_description_topology_epoch", "int32", tag=2, default=-1),
        Field("failed_description_topology_epoch", "int32", tag=3, default=-1),
    ),
    flexible_since=0,
)
_ENDPOINT = Schema("Endpoint", (Field("host", "string"), Field("port", "uint16")))
_KEY_VALUE = Schema("KeyValue", (Field("key", "string"), Field("value", "string")))
STREAMS_GROUP_MEMBER_METADATA_VALUE = Schema(
    "StreamsGroupMemberMetadataValue",
    (
        Field("instance_id", "string", nullable_since=0),
        Field("rack_id", "string", nullable_since=0),
        Field("client_id", "string"),
        Field("client_host", "string"),
        Field("rebalance_timeout_ms", "int32", default=-1),
        Field("topology_epoch", "int32"),
        Field("process_id", "string"),
        Field("user_endpoint", _ENDPOINT, nullable_since=0),
        Field("client_tags", Array(_KEY_VALUE)),
    ),
    flexible_since=0,
)
STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE = Schema(
    "StreamsGroupTargetAssignmentMetadataValue",
    (Field("assignment_epoch", "int32"), Field("assignment_timestamp", "int64", tag=0, default=0)),
    flexible_since=0,
)
_TASK_IDS = Schema(
    "TaskIds", (Field("subtopology_id", "string"), Field("partitions", Array("int32")))
)
STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE = Schema(
    "StreamsGroupTargetAssignmentMemberValue",
    (
        Field("active_tasks", Array(_TASK_IDS)),
        Field("standby_tasks", Array(_TASK_IDS)),
        Field("warmup_tasks", Array(_TASK_IDS)),
    ),
    flexible_since=0,
)
_OWNED_TASK_IDS = Schema(
    "TaskIds",
    (
        Field("subtopology_id", "string"),
        Field("partitions", Array("int32")),
        Field("assignment_epochs", Array("int32"), nullable_since=0, tag=0, default=()),
    ),
)
STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE = Schema(
    "StreamsGroupCurrentMemberAssignmentValue",
    (
        Field("member_epoch", "int32"),
        Field("previous_member_epoch", "int32"),
        Field("state", "int8"),
        Field("active_tasks", Array(_OWNED_TASK_IDS)),
        Field("standby_tasks", Array(_OWNED_TASK_IDS)),
        Field("warmup_tasks", Array(_OWNED_TASK_IDS)),
        Field("active_tasks_pending_revocation", Array(_OWNED_TASK_IDS)),
        Field("standby_tasks_pending_revocation", Array(_OWNED_TASK_IDS)),
        Field("warmup_tasks_pending_revocation", Array(_OWNED_TASK_IDS)),
    ),
    flexible_since=0,
)
_TOPIC_CONFIG = Schema("TopicConfig", (Field("key", "string"), Field("value", "string")))
_STREAMS_TOPIC_INFO = Schema(
    "TopicInfo",
    (
        Field("name", "string"),
        Field("partitions", "int32"),
        Field("replication_factor", "int16"),
        Field("topic_configs", Array(_TOPIC_CONFIG)),
    ),
)
_COPARTITION_GROUP = Schema(
    "CopartitionGroup",
    (
        Field("source_topics", Array("int16")),
        Field("source_topic_regex", Array("int16")),
        Field("repartition_source_topics", Array("int16")),
    ),
)
_SUBTOPOLOGY = Schema(
    "Subtopology",
    (
        Field("subtopology_id", "string"),
        Field("source_topics", Array("string")),
        Field("source_topic_regex", Array("string")),
        Field("state_changelog_topics", Array(_STREAMS_TOPIC_INFO)),
        Field("repartition_sink_topics", Array("string")),
        Field("repartition_source_topics", Array(_STREAMS_TOPIC_INFO)),
        Field("copartition_groups", Array(_COPARTITION_GROUP)),
    ),
)
STREAMS_GROUP_TOPOLOGY_VALUE = Schema(
    "StreamsGroupTopologyValue",
    (Field("epoch", "int32"), Field("subtopologies", Array(_SUBTOPOLOGY))),
    flexible_since=0,
)

STREAMS_GROUP_RECORDS: dict[int, tuple[Schema, Schema]] = {
    17: (Schema("StreamsGroupMetadataKey", GROUP_ID), STREAMS_GROUP_METADATA_VALUE),
    19: (Schema("StreamsGroupMemberMetadataKey", MEMBER_ID), STREAMS_GROUP_MEMBER_METADATA_VALUE),
    20: (
        Schema("StreamsGroupTargetAssignmentMetadataKey", GROUP_ID),
        STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE,
    ),
    21: (
        Schema("StreamsGroupTargetAssignmentMemberKey", MEMBER_ID),
        STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE,
    ),
    22: (
        Schema("StreamsGroupCurrentMemberAssignmentKey", MEMBER_ID),
        STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE,
    ),
    23: (Schema("StreamsGroupTopologyKey", GROUP_ID), STREAMS_GROUP_TOPOLOGY_VALUE),
}
"""Schemas of keys and values by the type of the record."""


_PROTOCOL_PARTITIONS = Schema(
    "TopicPartition",
    (Field("topic", "string", since=1), Field("partitions", Array("int32"), since=1)),
)
SUBSCRIPTION = Schema(
    "ConsumerProtocolSubscription",
    (
        Field("topics", Array("string")),
        Field("user_data", "bytes", nullable_since=0),
        Field("owned_partitions", Array(_PROTOCOL_PARTITIONS), since=1),
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
