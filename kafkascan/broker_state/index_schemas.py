"""The columns of checks of index files, which help texts name: they need no NumPy."""

from __future__ import annotations

from dataclasses import replace

from kafkascan.tables.schema import PARTITION, SEGMENT, TOPIC, Field, Schema, Shown

DEFAULT_INTERVAL_BYTES = 4096
"""Kafka's ``index.interval.bytes``."""

_INDEX_FIELDS = (
    TOPIC,
    PARTITION,
    replace(SEGMENT, shown=Shown.WIDE),
    Field("file", "string", "the index file", "file", nullable=False, shown=Shown.ALWAYS),
    Field("entries", "int64", "its entries", shown=Shown.ALWAYS),
    Field("size", "int64", "its size", "bytes", nullable=False),
)

INDEX_CHECK_SCHEMA = Schema(
    "index_checks",
    (
        *_INDEX_FIELDS,
        Field("errors", "int64", "entries that make readers miss records", nullable=False,
              shown=Shown.ALWAYS),
        Field("warnings", "int64", "entries that a broker would not write", nullable=False),
        Field("notes", "int64", "what is expected, such as the zeros of an active segment",
              nullable=False),
    ),
)  # fmt: skip
"""The columns of the verdicts on index files."""

INDEX_BUILD_SCHEMA = Schema(
    "built_indexes",
    (
        *_INDEX_FIELDS,
        Field("verdict", "string", "same, differs or missing; written, if it was",
              nullable=False, shown=Shown.ALWAYS, alarms={"differs": "red", "missing": "yellow"}),
    ),
)  # fmt: skip
"""The columns of indexes that were built, and how the existing files compare."""
