"""The columns of rewrites, which help texts name: they need no NumPy."""

from __future__ import annotations

from kafkascan.tables.schema import Field, Schema, Shown

_SEGMENT_FIELDS = (
    Field("path", "string", "the segment that was read", "path", nullable=False,
          shown=Shown.ALWAYS),
    Field("target", "string", "the segment that was written", "path", nullable=False,
          shown=Shown.WIDE),
    Field("size", "int64", "size before", "bytes", nullable=False),
    Field("new_size", "int64", "size after", "bytes", nullable=False),
    Field("is_changed", "bool", "whether the files differ", nullable=False, shown=Shown.WIDE),
    Field("batches", "int64", "batches that were read", nullable=False),
)  # fmt: skip

CONVERSION_SCHEMA = Schema(
    "conversion",
    (
        *_SEGMENT_FIELDS,
        Field("copied", "int64", "batches that were copied unchanged", nullable=False),
        Field("recompressed", "int64", "batches that were compressed again", nullable=False),
        Field("converted", "int64", "batches of another message format", nullable=False),
        Field("dropped", "int64", "batches that the new format cannot represent",
              nullable=False),
    ),
)  # fmt: skip

RESTAMP_SCHEMA = Schema(
    "restamp",
    (
        *_SEGMENT_FIELDS,
        Field("signed", "int64", "batches that got a new checksum", nullable=False),
    ),
)  # fmt: skip

SCRUB_SCHEMA = Schema(
    "scrub",
    (
        *_SEGMENT_FIELDS,
        Field("copied", "int64", "batches that were copied unchanged", nullable=False,
              shown=Shown.WIDE),
        Field("rewritten", "int64", "batches of which some records stay", nullable=False),
        Field("emptied", "int64", "batches that stay without records, as their producer's last",
              nullable=False, shown=Shown.WIDE),
        Field("dropped", "int64", "batches that were removed", nullable=False),
        Field("records", "int64", "records that were read", nullable=False),
        Field("kept_records", "int64", "records that stay", nullable=False),
        Field("first_dropped_offset", "int64", "first offset that was removed",
              shown=Shown.WIDE),
        Field("last_dropped_offset", "int64", "last offset that was removed", shown=Shown.WIDE),
    ),
)  # fmt: skip
