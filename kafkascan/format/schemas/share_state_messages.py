"""Records of ``__share_group_state`` (KIP-932)."""

from __future__ import annotations

from kafkascan.format.schemas.message_decoder import Array, Field, Schema

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
