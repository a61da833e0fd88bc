"""Metadata logs that define topics and settings."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from pathlib import Path

from kafkascan.format.schemas.log_messages import METADATA_RECORDS
from kafkascan.format.schemas.message_encoder import encode
from tests.support.partitions import NOW
from tests.support.records import RecordV2, batch_of

TOPIC, BROKER = 2, 4
"""Types of resources that have settings."""
_TOPIC_RECORD, _CONFIG_RECORD = 2, 4


def metadata_record(kind: str, version: int = 0, /, **fields: object) -> bytes:
    """Return a record of the metadata log; ``kind`` is its type without ``Record``."""
    code, schema = next(
        (code, one) for code, one in METADATA_RECORDS.items() if one.name == f"{kind}Record"
    )
    return bytes([1, code, version]) + encode(schema, fields, version)


def write_configs(
    data_dir: Path,
    *configs: tuple[int, str, str, str | None],
    topics: Iterable[str] = (),
    garbage: bytes = b"",
) -> None:
    """Write a metadata log that creates topics and sets values; garbage ends the last record."""
    values = [
        _message(_TOPIC_RECORD, {"name": name, "topic_id": uuid.UUID(int=number)})
        for number, name in enumerate(topics, 1)
    ]
    names = ("resource_type", "resource_name", "name", "value")
    values += [_message(_CONFIG_RECORD, dict(zip(names, one, strict=True))) for one in configs]
    values[-1] += garbage
    records = [RecordV2(value=value, offset_delta=number) for number, value in enumerate(values)]
    folder = data_dir / "__cluster_metadata-0"
    folder.mkdir(exist_ok=True)
    batch = batch_of(records, base_timestamp=NOW, max_timestamp=NOW)
    (folder / f"{0:020}.log").write_bytes(batch)


def _message(kind: int, fields: dict[str, object]) -> bytes:
    return bytes([1, kind, 0]) + encode(METADATA_RECORDS[kind], fields, 0)
