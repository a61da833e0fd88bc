"""The columns of the manifests of jobs on Spark, by the job's name in Python."""

from __future__ import annotations

from kafkascan.tables.schema import PARTITION, TOPIC, Field, Schema, Shown

_FILE = (
    TOPIC,
    PARTITION,
    Field("segment", "int64", "base offset of the segment", shown=Shown.WIDE),
    Field("path", "string", "path of the segment", "path", shown=Shown.WIDE),
)
_ERROR = Field("error", "string", "why the file was not read or written", shown=Shown.BELOW)


def _written(name: str) -> Schema:
    fields = (
        Field("output", "string", "file that was written", "path", shown=Shown.ALWAYS),
        Field("rows", "int64", "rows of this file"),
        Field("bytes", "int64", "size of this file", "bytes"),
        Field("damagedBatches", "int64", "batches that were not written"),
        _ERROR,
    )
    return Schema(name, (*_FILE, *fields))


MANIFESTS = {
    "verify": Schema(
        "verify",
        (
            *_FILE[:3],
            Field("path", "string", "path of the segment", "path", shown=Shown.ALWAYS),
            Field("size", "int64", "size of the segment", "bytes"),
            Field("batches", "int64", "batches in the segment"),
            Field("badChecksums", "int64", "batches with a wrong checksum", shown=Shown.ALWAYS),
            Field("endState", "string", "how the segment ends", shown=Shown.ALWAYS),
            Field("validBytes", "int64", "bytes up to the end of the last batch",
                  shown=Shown.WIDE),
            Field("trailingBytes", "int64", "bytes after the last batch"),
            Field("lastOffset", "int64", "last offset of the last batch", shown=Shown.WIDE),
            Field("status", "string", "ok, damaged or unreadable", shown=Shown.WIDE),
            _ERROR,
        ),
    ),
    "catalog": _written("catalog"),
    "export": _written("export"),
    "rebuild_indexes": Schema(
        "rebuild_indexes",
        (
            *_FILE,
            Field("output", "string", "index file", "path", shown=Shown.ALWAYS),
            Field("entries", "int64", "entries of the index"),
            Field("crc32", "int64", "CRC-32 of the index", shown=Shown.WIDE),
            Field("action", "string", "what was done", shown=Shown.ALWAYS),
            _ERROR,
        ),
    ),
}  # fmt: skip
