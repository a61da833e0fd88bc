"""Compare kafkascan's records with those of Kafka's own readers, field by field.

The reference is RecordFields (one JSON object per record, see `tests/oracle`).
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import kafkascan
from kafkascan.format.texts import java_string
from tests.support.compare import TIMESTAMP_TYPES, assert_same_end

_MAX_SHOWN = 20


class RecordFields(NamedTuple):
    """The fields of a record in Kafka and kafkascan; `position` is that of its batch."""

    position: int
    offset: int
    timestamp: int
    timestamp_type: int
    sequence: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]


@dataclass
class KafkaReading:
    """The output of RecordFields for a segment."""

    records: list[RecordFields] = field(default_factory=list)
    refusals: dict[int, str] = field(default_factory=dict)
    """By the batch's position: the exception, and its message."""
    end: dict[str, Any] = field(default_factory=dict)

    def by_batch(self) -> dict[int, list[RecordFields]]:
        """Group the records by the position of their batch."""
        batches: dict[int, list[RecordFields]] = {}
        for record in self.records:
            batches.setdefault(record.position, []).append(record)
        return batches


def read_lines(path: Path) -> str:
    """Read the output of RecordFields from its gzip file."""
    return gzip.decompress(path.read_bytes()).decode("utf-8")


def parse_records(jsonl: str) -> KafkaReading:
    """Parse the output of RecordFields."""
    *lines, end = [json.loads(line) for line in jsonl.splitlines()]
    reading = KafkaReading(end=end)
    for line in lines:
        if "exception" in line:
            reading.refusals[line["position"]] = f"{line['exception']}: {line['message']}"
        else:
            reading.records.append(_record_of(line))
    return reading


def our_records(tables: Iterable[kafkascan.RecordTable]) -> Iterator[RecordFields]:
    """Yield the same fields from kafkascan's tables; keys of headers are strings in Kafka."""
    for table in tables:
        positions = table.batches["position"].tolist()
        for record in table:
            assert record.offset is not None
            assert record.timestamp is not None
            assert record.sequence is not None
            yield RecordFields(
                positions[record.batch], record.offset, record.timestamp,
                int(record.timestamp_type), record.sequence, record.key, record.value,
                [(java_string(key).encode(), value) for key, value in record.headers],
            )  # fmt: skip


def compare_records(log: Path, records_jsonl: str) -> int:
    """Assert that kafkascan reads the same records from `log` as Kafka; return their number.

    Parameters
    ----------
    log
        The segment, or a metadata snapshot. Kafka has to accept all of its batches.
    records_jsonl
        The output of RecordFields for it.
    """
    kafka = parse_records(records_jsonl)
    assert not kafka.refusals, f"{log}: Kafka itself refuses batches: {kafka.refusals}"
    scan = kafkascan.scan_batches(log, on_corrupt="stop")
    assert_same_end(log, scan, kafka.end)
    table = kafkascan.read_records(log, scan.batches, control="include", verify=True)
    _assert_same(log, "read_records", kafka.records, list(our_records([table])))
    # Tables of few records, so that there are several of them.
    tables = kafkascan.iter_records(log, scan.batches, control="include", batch_size=7)
    _assert_same(log, "iter_records", kafka.records, list(our_records(tables)))
    return len(kafka.records)


def compare_all_records(segments: Sequence[tuple[Path, str]]) -> int:
    """Compare several segments; fail if they contain no record at all."""
    compared = sum(compare_records(*segment) for segment in segments)
    assert compared > 0, f"no record was compared in {len(segments)} files"
    return compared


def differences(kafka: Sequence[RecordFields], ours: Sequence[RecordFields]) -> Iterator[str]:
    """Yield a line for each field that differs, in the order of the records."""
    for number, (theirs, our) in enumerate(zip(kafka, ours, strict=False)):
        for name, their_value, our_value in zip(theirs._fields, theirs, our, strict=True):
            if their_value != our_value:
                where = f"record {number} (position {theirs.position}, offset {theirs.offset})"
                yield f"{where}: {name} is {their_value!r} in Kafka, {our_value!r} in kafkascan"
    if len(kafka) != len(ours):
        yield f"{len(kafka)} records in Kafka, {len(ours)} in kafkascan"


def _assert_same(
    log: Path, reader: str, kafka: Sequence[RecordFields], ours: Sequence[RecordFields]
) -> None:
    found = list(differences(kafka, ours))
    shown = "\n".join(found[:_MAX_SHOWN])
    assert not found, f"{log}: {len(found)} differences of {reader}\n{shown}"


def _record_of(line: Mapping[str, Any]) -> RecordFields:
    return RecordFields(
        position=line["position"],
        offset=line["offset"],
        timestamp=line["timestamp"],
        timestamp_type=TIMESTAMP_TYPES[line["timestampType"]],
        sequence=line["sequence"],
        key=_bytes_of(line["key"]),
        value=_bytes_of(line["value"]),
        headers=[(base64.b64decode(key), _bytes_of(value)) for key, value in line["headers"]],
    )


def _bytes_of(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
