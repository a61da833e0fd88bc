"""The columns of recovery, salvage and restore, which help texts name: they need no NumPy."""

from __future__ import annotations

from kafkascan.tables.schema import PARTITION, SEGMENT, TOPIC, Field, Schema, Shown

RECOVERY_SCHEMA = Schema(
    "recovery",
    (
        TOPIC,
        PARTITION,
        Field("log_start_offset", "int64", "first offset; null, if the log cannot be loaded"),
        Field("log_end_offset", "int64", "offset after the last batch"),
        Field("segments", "int64", "segments of the log", nullable=False, shown=Shown.WIDE),
        Field("recovered", "int64", "segments that a broker recovers", nullable=False),
        Field("truncated_bytes", "int64", "bytes that a broker discards", nullable=False,
              shown=Shown.ALWAYS),
        Field("discarded_records", "int64", "records in these bytes, by their offsets, so"
              " that damaged batches count, too, and gaps in a compacted log: up to the next"
              " segment or the last intact batch; null, if no offset is known",
              shown=Shown.ALWAYS),
        Field("changes", "int64", "changes that a broker makes", nullable=False,
              shown=Shown.ALWAYS),
        Field("changes_made", "int64", "of the changes, those that were made", nullable=False),
        Field("findings", "int64", "what is wrong and stays, as a broker does not notice it",
              nullable=False),
        Field("error", "string", "why the log cannot be loaded, or why a change failed",
              shown=Shown.BELOW),
    ),
)  # fmt: skip
"""The columns of `Recovery`, with a row per partition."""

SALVAGE_SCHEMA = Schema(
    "salvage",
    (
        TOPIC,
        PARTITION,
        SEGMENT,
        Field("outcome", "string", "lost, duplicate or repaired", nullable=False,
              shown=Shown.ALWAYS, alarms={"lost": "red"}),
        Field("symbol", "string", "greppable name of the damage, or the repaired field",
              nullable=False),
        Field("position", "int64", "byte position in the segment", nullable=False,
              shown=Shown.ALWAYS),
        Field("size", "int64", "size of the range in bytes"),
        Field("first_offset", "int64", "first offset of the range, by what is around it"),
        Field("last_offset", "int64", "last offset of the range"),
        Field("claimed_first_offset", "int64", "first offset, by its damaged header",
              shown=Shown.WIDE),
        Field("claimed_last_offset", "int64", "last offset, by its damaged header",
              shown=Shown.WIDE),
        Field("claimed_records", "int64", "number of records, by its damaged header",
              shown=Shown.WIDE),
        Field("zero_bytes", "int64", "bytes of the range that are zeros", shown=Shown.WIDE),
        Field("reason", "string", "what is wrong, or what was repaired", nullable=False,
              shown=Shown.BELOW),
    ),
)  # fmt: skip
"""The columns of `Salvage`, with a row per range."""

RESTORE_SCHEMA = Schema(
    "restore",
    (
        TOPIC,
        Field("topic_id", "string", "id of the topic", shown=Shown.WIDE),
        PARTITION,
        Field("segments", "int64", "segments of the copy", nullable=False),
        Field("size", "int64", "size of the segments", "bytes", nullable=False),
        Field("start_offset", "int64", "first offset of the copy", nullable=False),
        Field("end_offset", "int64", "offset after the last batch; null, if it is not known"
              " without reading"),
        Field("gaps", "int64", "ranges of offsets that no segment contains", nullable=False),
        Field("rebuilt", "int64", "index files that were missing or wrong in remote storage",
              nullable=False),
        Field("destination", "string", "folder that was written", "path", shown=Shown.WIDE),
        Field("error", "string", "why the partition was not copied", shown=Shown.BELOW),
    ),
)  # fmt: skip
"""The columns of `Restore`, with a row per partition."""
