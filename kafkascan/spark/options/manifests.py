"""The columns of the manifests of jobs on Spark, by the job's name in Python."""

from __future__ import annotations

from dataclasses import replace

from kafkascan.spark.options.view_schemas import FILE_FIELDS, STATUS, VIEWS
from kafkascan.tables.schema import Field, Schema, Shown, schemas_by_name

_OUTPUT = Field("output", "string", "file that was written", "path", nullable=False,
                shown=Shown.ALWAYS)  # fmt: skip
_ERROR = Field("error", "string", "why the file was not read or written", shown=Shown.BELOW)

_VERIFY = Schema(
    "verify",
    (
        *FILE_FIELDS[:3],
        replace(FILE_FIELDS[3], shown=Shown.ALWAYS),
        *VIEWS["segments"].select(
            ("size", "batches", "bad_checksums", "end", "valid_bytes", "trailing_bytes",
             "last_offset")
        ),
        STATUS,
        _ERROR,
    ),
)  # fmt: skip
_EXPORT = Schema(
    "export",
    (
        *FILE_FIELDS,
        _OUTPUT,
        Field("rows", "int64", "rows of this file", nullable=False),
        Field("bytes", "int64", "size of this file", "bytes", nullable=False),
        Field("damaged_batches", "int64", "batches that were not written", nullable=False),
        _ERROR,
    ),
)
_REBUILD_INDEXES = Schema(
    "rebuild_indexes",
    (
        *FILE_FIELDS,
        replace(_OUTPUT, meaning="index file"),
        Field("entries", "int64", "entries of the index", nullable=False),
        Field("crc32", "int64", "CRC-32 of the index", nullable=False, shown=Shown.WIDE),
        Field("action", "string", "what was done", nullable=False, shown=Shown.ALWAYS),
        _ERROR,
    ),
)

_TABLE = Schema(
    "table",
    (
        Field("table", "string", "name of the table", nullable=False, shown=Shown.ALWAYS),
        Field("version", "int64", "version or snapshot of the commit", nullable=False,
              shown=Shown.WIDE),
        *FILE_FIELDS[:2],
        Field("first_offset", "int64", "offset from which the commit continues; null if the table"
              " had none", "offset"),
        Field("next_offset", "int64", "offset after the commit", "offset", nullable=False),
    ),
)  # fmt: skip

MANIFESTS = schemas_by_name(_VERIFY, _EXPORT.named("catalog"), _EXPORT, _REBUILD_INDEXES, _TABLE)
