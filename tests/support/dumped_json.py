"""Make the lines of kafka-dump-log from the objects of `kafkascan dump-log --format jsonl`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import Any

Fields = dict[str, Any]

_OPTIONAL = ("deleteHorizonMs", "currentTxnFirstOffset")


def lines_of(objects: Iterable[Fields]) -> Iterator[str]:
    """Yield the lines that the tool prints to its standard output for objects."""
    timestamp_type = ""
    for fields in objects:
        kind, rest = fields["kind"], {name: fields[name] for name in fields if name != "kind"}
        if kind == "file":
            yield f"Dumping {fields['file']}"
            if "title" in fields:
                yield fields["title"]
        elif kind == "record":
            yield _record_line(rest, timestamp_type)
        elif kind == "message":
            yield fields["text"]
        elif kind == "finding":
            if "count" in fields:
                name = PurePath(fields["file"]).name
                yield f"Found {fields['count']} invalid bytes at the end of {name}"
        else:
            timestamp_type = fields.get("timestampType", timestamp_type)
            yield " ".join(_pairs(rest))


def _pairs(fields: Fields) -> Iterator[str]:
    for name, value in fields.items():
        if name == "timestampType":
            yield f"{value}: {fields['maxTimestamp']}"
        elif name in _OPTIONAL:
            yield f"{name}: OptionalLong" + (".empty" if value is None else f"[{value}]")
        elif name != "maxTimestamp":
            yield f"{name}: {str(value).lower() if isinstance(value, bool) else value}"


def _record_line(fields: Fields, timestamp_type: str) -> str:
    line = f"| offset: {fields['offset']} {timestamp_type}: {fields['timestamp']}"
    line += f" keySize: {fields['keySize']} valueSize: {fields['valueSize']}"
    if "isValid" in fields:
        line += f" isValid: {str(fields['isValid']).lower()} crc: {fields['crc']}"
    else:
        line += f" sequence: {fields['sequence']} headerKeys: [{','.join(fields['headerKeys'])}]"
    line += "" if fields.get("key") is None else f" key: {fields['key']}"
    line += "" if fields.get("payload") is None else f" payload: {fields['payload']}"
    return line + (f" {fields['control']}" if "control" in fields else "")
