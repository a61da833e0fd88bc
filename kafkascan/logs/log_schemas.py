"""The columns of tables of logs, which help texts name: they need no NumPy."""

from __future__ import annotations

from kafkascan.batches.batch_schemas import BATCH_SCHEMA
from kafkascan.tables.schema import PARTITION, SEGMENT, TOPIC, Field, Schema, Shown

LOG_BATCH_SCHEMA = BATCH_SCHEMA.with_first((TOPIC, PARTITION, SEGMENT)).named("log_batches")
"""The columns of `LogBatches`: those of `BATCH_SCHEMA`, and where a batch is."""

_PATH = Field("path", "string", "path of the segment", "command", nullable=False,
              shown=Shown.BELOW)  # fmt: skip
_POSITION = Field("position", "int64", "byte position of the batch", nullable=False)

BATCH_LOCATION_SCHEMA = Schema(
    "batch_location",
    (
        _PATH,
        _POSITION,
        Field("size_in_bytes", "int64", "size of the batch", nullable=False),
        Field("base_offset", "int64", "first offset of the batch", nullable=False),
        Field("last_offset", "int64", "last offset of the batch", nullable=False),
    ),
)
"""The fields of a `BatchLocation`."""

RECORD_LOCATION_SCHEMA = Schema(
    "record_location",
    (
        _PATH,
        _POSITION,
        Field("offset", "int64", "offset of the record", nullable=False),
        Field("timestamp", "time", "timestamp of the record"),
        Field("partition_leader_epoch", "int32", "leader epoch of the batch; null without one"),
    ),
)
"""The fields of a `RecordLocation`."""
