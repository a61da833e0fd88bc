"""Records of streams groups in ``__consumer_offsets`` (KIP-1071)."""

from __future__ import annotations

from kafkascan.format.schemas.group_messages import GROUP_ID, MEMBER_ID
from kafkascan.format.schemas.message_decoder import Array, Field, Schema

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
_TOPIC_INFO = Schema(
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
        Field("state_changelog_topics", Array(_TOPIC_INFO)),
        Field("repartition_sink_topics", Array("string")),
        Field("repartition_source_topics", Array(_TOPIC_INFO)),
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
