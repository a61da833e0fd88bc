"""Records of ``__remote_log_metadata`` (KIP-405)."""

from __future__ import annotations

from kafkascan.format.schemas.message_decoder import Array, Field, Schema

_TOPIC_ID_PARTITION_ENTRY = Schema(
    "TopicIdPartitionEntry",
    (Field("name", "string"), Field("id", "uuid"), Field("partition", "int32")),
)
_REMOTE_LOG_SEGMENT_ID_ENTRY = Schema(
    "RemoteLogSegmentIdEntry",
    (Field("topic_id_partition", _TOPIC_ID_PARTITION_ENTRY), Field("id", "uuid")),
)
_SEGMENT_LEADER_EPOCH_ENTRY = Schema(
    "SegmentLeaderEpochEntry", (Field("leader_epoch", "int32"), Field("offset", "int64"))
)
REMOTE_LOG_SEGMENT_METADATA = Schema(
    "RemoteLogSegmentMetadataRecord",
    (
        Field("remote_log_segment_id", _REMOTE_LOG_SEGMENT_ID_ENTRY),
        Field("start_offset", "int64"),
        Field("end_offset", "int64"),
        Field("broker_id", "int32"),
        Field("max_timestamp_ms", "int64"),
        Field("event_timestamp_ms", "int64"),
        Field("segment_leader_epochs", Array(_SEGMENT_LEADER_EPOCH_ENTRY)),
        Field("segment_size_in_bytes", "int32"),
        Field("custom_metadata", "bytes", nullable_since=0),
        Field("remote_log_segment_state", "int8"),
        Field("txn_index_empty", "bool", tag=0, default=False),
    ),
    flexible_since=0,
)
REMOTE_LOG_SEGMENT_METADATA_UPDATE = Schema(
    "RemoteLogSegmentMetadataUpdateRecord",
    (
        Field("remote_log_segment_id", _REMOTE_LOG_SEGMENT_ID_ENTRY),
        Field("broker_id", "int32"),
        Field("event_timestamp_ms", "int64"),
        Field("custom_metadata", "bytes", nullable_since=0),
        Field("remote_log_segment_state", "int8"),
    ),
    flexible_since=0,
)
REMOTE_PARTITION_DELETE_METADATA = Schema(
    "RemotePartitionDeleteMetadataRecord",
    (
        Field("topic_id_partition", _TOPIC_ID_PARTITION_ENTRY),
        Field("broker_id", "int32"),
        Field("event_timestamp_ms", "int64"),
        Field("remote_partition_delete_state", "int8"),
    ),
    flexible_since=0,
)
REMOTE_LOG_SEGMENT_METADATA_SNAPSHOT = Schema(
    "RemoteLogSegmentMetadataSnapshotRecord",
    (
        Field("segment_id", "uuid"),
        Field("start_offset", "int64"),
        Field("end_offset", "int64"),
        Field("broker_id", "int32"),
        Field("max_timestamp_ms", "int64"),
        Field("event_timestamp_ms", "int64"),
        Field("segment_leader_epochs", Array(_SEGMENT_LEADER_EPOCH_ENTRY)),
        Field("segment_size_in_bytes", "int32"),
        Field("custom_metadata", "bytes", nullable_since=0),
        Field("remote_log_segment_state", "int8"),
        Field("txn_index_empty", "bool", tag=0, default=False),
    ),
    flexible_since=0,
)

REMOTE_LOG_RECORDS: dict[int, Schema] = {
    0: REMOTE_LOG_SEGMENT_METADATA,
    1: REMOTE_LOG_SEGMENT_METADATA_UPDATE,
    2: REMOTE_PARTITION_DELETE_METADATA,
    3: REMOTE_LOG_SEGMENT_METADATA_SNAPSHOT,
}
"""Schemas by the type of the record."""
