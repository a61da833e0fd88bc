"""The columns of tables of records, which help texts name: they need no NumPy."""

from __future__ import annotations

from kafkascan.tables.schema import Field, Schema, Shown

RECORD_SCHEMA = Schema(
    "records",
    (
        Field("offset", "int64", "offset of the record", nullable=False, shown=Shown.ALWAYS),
        Field("timestamp", "time", "timestamp of the record", shown=Shown.ALWAYS),
        Field("key", "binary", "key; null without one", shown=Shown.ALWAYS),
        Field("value", "binary", "value; null of a tombstone", shown=Shown.ALWAYS),
        Field("headers", "list<struct<key:string,value:binary>>", "headers, in order",
              nullable=False),
        Field("sequence", "int32", "sequence number of the record; -1 without one",
              nullable=False, shown=Shown.WIDE),
        Field("batch", "int32", "row of the record's batch in `RecordTable.batches`",
              nullable=False, shown=Shown.WIDE),
    ),
)  # fmt: skip
"""The columns of a table of records; those of `BATCH_SCHEMA` are also columns of it."""

RAW_SCHEMA = Schema(
    "records",
    (
        Field("key_raw", "binary", "bytes of the key, where `key` is typed"),
        Field("value_raw", "binary", "bytes of the value, where `value` is typed"),
    ),
)
"""Columns of a table of records that only a request names."""
