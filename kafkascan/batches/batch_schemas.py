"""
The columns of tables of batches and segments.

They need no NumPy, as those of the other rooms, so that help texts can name them.
"""

from __future__ import annotations

from kafkascan.tables.schema import COUNTS_BY_NAME, PARTITION, SEGMENT, TOPIC, Field, Schema, Shown

_ALWAYS, _WIDE = Shown.ALWAYS, Shown.WIDE

BATCH_SCHEMA = Schema(
    "batches",
    (
        Field("position", "int64", "byte position in the segment", nullable=False, shown=_ALWAYS),
        Field("base_offset", "int64", "offset of the first record", nullable=False, shown=_ALWAYS),
        Field("batch_length", "int32", "size in bytes, less 12", nullable=False, shown=_WIDE),
        Field("partition_leader_epoch", "int32", "epoch of the leader that appended it; -1 if it"
              " is not known", nullable=False, shown=_WIDE),
        Field("magic", "int8", "version of the message format: 0, 1 or 2", nullable=False,
              shown=_WIDE),
        Field("crc", "uint32", "stored checksum: CRC-32C, of magic 0 and 1 CRC-32", nullable=False,
              shown=_WIDE),
        Field("attributes", "int16", "bits of codec, timestamp type, transaction and control",
              nullable=False, shown=_WIDE),
        Field("last_offset_delta", "int32", "last offset, less the base offset", nullable=False,
              shown=_WIDE),
        Field("base_timestamp", "time", "timestamp of the first record, or the delete horizon",
              shown=_WIDE),
        Field("max_timestamp", "time", "latest timestamp of a record"),
        Field("producer_id", "int64", "id of the producer; -1 without one", nullable=False),
        Field("producer_epoch", "int16", "epoch of the producer; -1 without one", nullable=False,
              shown=_WIDE),
        Field("base_sequence", "int32", "sequence number of the first record; -1 without one",
              nullable=False, shown=_WIDE),
        Field("records_count", "int32", "number of records; -1 of a compressed message of magic 0"
              " and 1", nullable=False, shown=_ALWAYS),
        Field("last_offset", "int64", "offset of the last record, also if it was compacted away",
              nullable=False, shown=_ALWAYS),
        Field("next_offset", "int64", "offset after the last record", nullable=False, shown=_WIDE),
        Field("size_in_bytes", "int64", "size in the file, header included", nullable=False,
              shown=_ALWAYS),
        Field("last_sequence", "int32", "sequence number of the last record; -1 without one",
              nullable=False, shown=_WIDE),
        Field("compression_type", "string", "codec of the records", nullable=False),
        Field("timestamp_type", "string", "who set the timestamps: CreateTime or LogAppendTime",
              nullable=False, shown=_WIDE),
        Field("is_transactional", "bool", "whether it belongs to a transaction", nullable=False,
              shown=_WIDE),
        Field("is_control", "bool", "whether it contains control records", nullable=False,
              shown=_WIDE),
        Field("delete_horizon_ms", "time", "time from which on compaction may remove tombstones",
              shown=_WIDE),
    ),
)  # fmt: skip
"""The columns of a table of batches: stored ones in Kafka's order, then derived ones."""

ROLLUP_KEYS = ("codec", "magic", "producer", "day", "hour")
"""What `BatchRollup` can group by; days and hours are those of ``max_timestamp``, in UTC."""

ROLLUP_SCHEMA = Schema(
    "totals",
    (
        TOPIC,
        PARTITION,
        SEGMENT,
        Field("codec", "string", "codec of the batches", shown=Shown.ALWAYS),
        Field("magic", "int8", "message format of the batches", shown=Shown.ALWAYS),
        Field("producer", "int64", "producer id of the batches; -1 without one",
              shown=Shown.ALWAYS),
        Field("day", "string", "day of the max_timestamp, in UTC", shown=Shown.ALWAYS),
        Field("hour", "string", "hour of the max_timestamp, in UTC", shown=Shown.ALWAYS),
        Field("batches", "int64", "batches", nullable=False),
        Field("records", "int64", "records of the batches whose headers contain a number",
              nullable=False),
        Field("uncounted_batches", "int64", "compressed messages of magic 0 and 1",
              nullable=False),
        Field("size", "int64", "size of the batches, and of bytes that are in no batch",
              "bytes", nullable=False),
        Field("share", "float64", "their part of all bytes", nullable=False),
        Field("codecs", COUNTS_BY_NAME, "batches by codec", nullable=False),
    ),
)  # fmt: skip
"""The columns of totals: what the batches have in common, and their totals."""

SEGMENT_SCHEMA = Schema(
    "segments",
    (
        TOPIC,
        PARTITION,
        SEGMENT,
        Field("size", "int64", "size of the file", "bytes", nullable=False, shown=Shown.ALWAYS),
        Field("batches", "int64", "batches in the file", nullable=False, shown=Shown.ALWAYS),
        Field("records", "int64", "records of the batches whose headers contain a number",
              nullable=False),
        Field("uncounted_batches", "int64", "compressed messages of magic 0 and 1, whose headers"
              " do not contain the number of records", nullable=False, shown=Shown.WIDE),
        Field("bad_checksums", "int64", "batches with a wrong checksum", nullable=False,
              shown=Shown.ALWAYS),
        Field("first_offset", "int64", "base offset of the first batch"),
        Field("last_offset", "int64", "last offset of the last batch"),
        Field("first_timestamp", "time", "earliest timestamp of a batch's first record; later"
              " records of a batch may be earlier", shown=Shown.WIDE),
        Field("max_timestamp", "time", "latest timestamp of a batch", shown=Shown.WIDE),
        Field("codecs", COUNTS_BY_NAME, "batches by codec", nullable=False),
        Field("magics", COUNTS_BY_NAME, "batches by message format", nullable=False,
              shown=Shown.WIDE),
        Field("transactional_batches", "int64", "batches of transactions", nullable=False,
              shown=Shown.WIDE),
        Field("control_batches", "int64", "batches of control records", nullable=False,
              shown=Shown.WIDE),
        Field("end", "string", "how the file ends: CLEAN, TORN_TAIL, ZERO_TAIL or CORRUPT",
              nullable=False, shown=Shown.ALWAYS,
              alarms={"CORRUPT": "red", "TORN_TAIL": "yellow", "ZERO_TAIL": "yellow"}),
        Field("valid_bytes", "int64", "bytes up to the end of the last batch", nullable=False,
              shown=Shown.WIDE),
        Field("trailing_bytes", "int64", "bytes after the last batch", nullable=False),
    ),
)  # fmt: skip
"""What there is to know of a segment from its batch headers and checksums."""
