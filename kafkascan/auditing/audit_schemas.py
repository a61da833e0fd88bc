"""The columns of audits, which help texts name: they need no NumPy."""

from __future__ import annotations

from kafkascan.tables.schema import PARTITION, TOPIC, Field, Schema, Shown

FINDING_SCHEMA = Schema(
    "findings",
    (
        Field("severity", "string", "note, warning or error", nullable=False, shown=Shown.ALWAYS,
              alarms={"error": "red", "warning": "yellow"}),
        Field("symbol", "string", "greppable name of the kind of finding", nullable=False,
              shown=Shown.ALWAYS),
        TOPIC,
        PARTITION,
        Field("file", "string", "file in the folder of the log; null, if it is about all of it",
              "file"),
        Field("position", "int64", "byte position of the first one in the file"),
        Field("offset", "int64", "offset of the first one"),
        Field("count", "int64", "how many there are", nullable=False),
        Field("message", "string", "one sentence", nullable=False, shown=Shown.BELOW),
        Field("command", "string", "a command of Kafka that does so", "command",
              shown=Shown.BELOW),
        Field("advice", "string", "what it causes, and what to do", nullable=False,
              shown=Shown.BELOW),
        Field("path", "string", "file or folder", "path", nullable=False, shown=Shown.WIDE),
    ),
)  # fmt: skip
"""The columns of `Audit`, with a row per kind of finding and file."""
