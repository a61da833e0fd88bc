"""Records of ``__remote_log_metadata`` (KIP-405)."""

from __future__ import annotations

from kafkascan.format.schemas.message_decoder import Array, MessageField, MessageSchema

_TOPIC_ID_PARTITION_ENTRY = MessageSchema(
    "TopicIdPartitionEntry",
    (
        MessageField("name", "string"),
        MessageField("id", "uuid"),
        MessageField("partition", "int32"),
    ),
)
_REMOTE_LOG_SEGMENT_ID_ENTRY = MessageSchema(
    "RemoteLogSegmentIdEntry",
    (MessageField("topic_id_partition", _TOPIC_ID_PARTITION_ENTRY), MessageField("id", "uuid")),
)
_SEGMENT_LEADER_EPOCH_ENTRY = MessageSchema(
    "SegmentLeaderEpochEntry",
    (MessageField("leader_epoch", "int32"), MessageField("offset", "int64")),
)
REMOTE_LOG_SEGMENT_METADATA = MessageSchema(
    "RemoteLogSegmentMetadataRecord",
    (
        MessageField("remote_log_segment_id", _REMOTE_LOG_SEGMENT_ID_ENTRY),
        MessageField("start_offset", "int64"),
        MessageField("end_offset", "int64"),
        MessageField("broker_id", "int32"),
        MessageField("max_timestamp_ms", "int64"),
        MessageField("event_timestamp_ms", "int64"),
        MessageField("segment_leader_epochs", Array(_SEGMENT_LEADER_EPOCH_ENTRY)),
        MessageField("segment_size_in_bytes", "int32"),
        MessageField("custom_metadata", "bytes", nullable_since=0),
        MessageField("remote_log_segment_state", "int8"),
        MessageField("txn_index_empty", "bool", tag=0, default=False),
    ),
    flexible_since=0,
)
REMOTE_LOG_SEGMENT_METADATA_UPDATE = MessageSchema(
    "RemoteLogSegmentMetadataUpdateRecord",
    (
        MessageField("remote_log_segment_id", _REMOTE_LOG_SEGMENT_ID_ENTRY),
        MessageField("broker_id", "int32"),
        MessageField("event_timestamp_ms", "int64"),
        MessageField("custom_metadata", "bytes", nullable_since=0),
        MessageField("remote_log_segment_state", "int8"),
    ),
    flexible_since=0,
)
REMOTE_PARTITION_DELETE_METADATA = MessageSchema(
    "RemotePartitionDeleteMetadataRecord",
    (
        MessageField("topic_id_partition", _TOPIC_ID_PARTITION_ENTRY),
        MessageField("broker_id", "int32"),
        MessageField("event_timestamp_ms", "int64"),
        MessageField("remote_partition_delete_state", "int8"),
    ),
    flexible_since=0,
)
REMOTE_LOG_SEGMENT_METADATA_SNAPSHOT = MessageSchema(
    "RemoteLogSegmentMetadataSnapshotRecord",
    (
        MessageField("segment_id", "uuid"),
        MessageField("start_offset", "int64"),
        MessageField("end_offset", "int64"),
        MessageField("broker_id", "int32"),
        MessageField("max_timestamp_ms", "int64"),
        MessageField("event_timestamp_ms", "int64"),
        MessageField("segment_leader_epochs", Array(_SEGMENT_LEADER_EPOCH_ENTRY)),
        MessageField("segment_size_in_bytes", "int32"),
        MessageField("custom_metadata", "bytes", nullable_since=0),
        MessageField("remote_log_segment_state", "int8"),
        MessageField("txn_index_empty", "bool", tag=0, default=False),
    ),
    flexible_since=0,
)

REMOTE_LOG_RECORDS: dict[int, MessageSchema] = {
    0: REMOTE_LOG_SEGMENT_METADATA,
    1: REMOTE_LOG_SEGMENT_METADATA_UPDATE,
    2: REMOTE_PARTITION_DELETE_METADATA,
    3: REMOTE_LOG_SEGMENT_METADATA_SNAPSHOT,
}
"""Schemas by the type of the record."""
