"""Compare kafkascan's batch table with the output of Kafka's own tools, field by field.

There are two references: the text of DumpLogSegments, and the rows of BatchFields (one JSON object
per batch, see `tests/oracle`), which also have the base timestamp. Each of them is converted to the
table that kafkascan should return, and every column is compared for every batch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import kafkascan
from tests.support.kafka_dump import DumpedBatch, parse_log

Columns = dict[str, np.ndarray]

_CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
TIMESTAMP_TYPES = {"CreateTime": 0, "LogAppendTime": 1, "NoTimestampType": -1}
_LOG_OVERHEAD = 12
_MAX_SHOWN = 20


@dataclass(frozen=True)
class Difference:
    """One field of one batch on which kafkascan and Kafka do not agree."""

    reference: str
    position: int
    field: str
    kafka: object
    kafkascan: object

    def __str__(self) -> str:
        where = f"position {self.position}: {self.field}"
        return f"{where} is {self.kafka} in {self.reference}, {self.kafkascan} in kafkascan"


def compare_segment(log: Path, dump_text: str, fields_jsonl: str) -> int:
    """Assert that kafkascan reads `log` as Kafka does; return the number of compared batches.

    Parameters
    ----------
    log
        The segment, or a metadata snapshot.
    dump_text
        The output of DumpLogSegments for it.
    fields_jsonl
        The output of BatchFields for it.
    """
    *rows, end = [json.loads(line) for line in fields_jsonl.splitlines()]
    dump = parse_log(dump_text)
    scan = kafkascan.scan_batches(log, on_corrupt="stop")
    assert len(rows) == len(dump.batches), (
        f"{log}: the references disagree about the number of batches"
    )
    assert len(scan.batches) == len(rows), (
        f"{log}: {len(rows)} batches in Kafka, {len(scan.batches)} in kafkascan"
    )
    assert_same_end(log, scan, end)
    ours = our_columns(log, scan.batches)
    differences = [
        *_differences("BatchFields", columns_from_fields(rows), ours),
        *_differences("DumpLogSegments", columns_from_dump(dump.batches), ours),
    ]
    shown = "\n".join(str(difference) for difference in differences[:_MAX_SHOWN])
    assert not differences, f"{log}: {len(differences)} differences\n{shown}"
    return len(rows)


def compare_segments(segments: Sequence[tuple[Path, str, str]]) -> int:
    """Compare several segments; fail if they contain no batch at all."""
    compared = sum(compare_segment(*segment) for segment in segments)
    assert compared > 0, f"nothing was compared in {len(segments)} files"
    return compared


def our_columns(log: Path, batches: np.ndarray) -> Columns:
    """Return every stored and derived field of kafkascan's table."""
    stored: Columns = {name: batches[name] for name in batches.dtype.names or ()}
    derived: Columns = {
        "last_offset": kafkascan.batches.last_offset(batches),
        "last_sequence": kafkascan.batches.last_sequence(batches),
        "size_in_bytes": kafkascan.batches.size_in_bytes(batches),
        "compression_type": kafkascan.batches.compression_type(batches),
        "timestamp_type": kafkascan.batches.timestamp_type(batches),
        "is_transactional": kafkascan.batches.is_transactional(batches),
        "is_control": kafkascan.batches.is_control(batches),
        "delete_horizon_ms": kafkascan.batches.delete_horizon_ms(batches),
        "is_valid": kafkascan.verify_crcs(log, batches),
    }
    return {**stored, **derived}


def columns_from_fields(rows: Sequence[Mapping[str, Any]]) -> Columns:
    """Convert BatchFields' rows, which have every field, to columns."""
    return _columns([_row_from_fields(row) for row in rows])


def columns_from_dump(batches: Sequence[DumpedBatch]) -> Columns:
    """Convert DumpLogSegments' lines, which lack the base timestamp, to columns."""
    return _columns([_row_from_dump(batch) for batch in batches])


def _row_from_fields(row: Mapping[str, Any]) -> dict[str, int]:
    known = {
        "position": row["position"],
        "size_in_bytes": row["sizeInBytes"],
        "batch_length": row["sizeInBytes"] - _LOG_OVERHEAD,
        "magic": row["magic"],
        "crc": row["checksum"],
        "is_valid": row["isValid"],
        "last_offset": row["lastOffset"],
        "max_timestamp": row["maxTimestamp"],
        "compression_type": _CODECS[row["compressionType"]],
        "timestamp_type": TIMESTAMP_TYPES[row["timestampType"]],
        "partition_leader_epoch": row["partitionLeaderEpoch"],
        "producer_id": row["producerId"],
        "producer_epoch": row["producerEpoch"],
        "base_sequence": row["baseSequence"],
        "last_sequence": row["lastSequence"],
        "is_transactional": row["isTransactional"],
        "is_control": row["isControlBatch"],
        "delete_horizon_ms": _or_sentinel(row["deleteHorizonMs"]),
    }
    if row["magic"] < 2:
        return {**known, **_legacy_rules(known)}
    return {
        **known,
        "attributes": _attributes(known),
        "base_offset": row["baseOffset"],
        "last_offset_delta": row["lastOffset"] - row["baseOffset"],
        "base_timestamp": row["baseTimestamp"],
        "records_count": row["countOrNull"],
    }


def _row_from_dump(batch: DumpedBatch) -> dict[str, int]:
    known = {
        "position": batch.position,
        "size_in_bytes": batch.size,
        "batch_length": batch.size - _LOG_OVERHEAD,
        "magic": batch.magic,
        "crc": batch.crc,
        "is_valid": batch.is_valid,
        "last_offset": batch.last_offset,
        "max_timestamp": batch.max_timestamp,
        "compression_type": _CODECS[batch.compression],
        "timestamp_type": TIMESTAMP_TYPES[batch.timestamp_type],
        "partition_leader_epoch": _or_sentinel(batch.partition_leader_epoch),
        "producer_id": _or_sentinel(batch.producer_id),
        "producer_epoch": _or_sentinel(batch.producer_epoch),
        "base_sequence": _or_sentinel(batch.base_sequence),
        "last_sequence": _or_sentinel(batch.last_sequence),
        "is_transactional": bool(batch.is_transactional),
        "is_control": bool(batch.is_control),
        "delete_horizon_ms": _or_sentinel(batch.delete_horizon_ms),
    }
    if batch.magic < 2:
        rules = _legacy_rules(known)
        del rules["base_timestamp"]
        return {**known, **rules}
    assert batch.base_offset is not None
    assert batch.count is not None
    return {
        **known,
        "attributes": _attributes(known),
        "base_offset": batch.base_offset,
        "last_offset_delta": batch.last_offset - batch.base_offset,
        "records_count": batch.count,
    }


def _legacy_rules(known: Mapping[str, int]) -> dict[str, int]:
    """Return the values of fields that message formats 0 and 1 do not have."""
    wrapper = known["compression_type"] != 0
    return {
        "attributes": known["compression_type"] | max(known["timestamp_type"], 0) << 3,
        "base_offset": known["last_offset"],
        "last_offset_delta": 0,
        "base_timestamp": -1 if wrapper else known["max_timestamp"],
        "records_count": -1 if wrapper else 1,
    }


def _attributes(known: Mapping[str, int]) -> int:
    """Combine the flags into the attributes field."""
    return (
        known["compression_type"]
        | known["timestamp_type"] << 3
        | known["is_transactional"] << 4
        | known["is_control"] << 5
        | (known["delete_horizon_ms"] >= 0) << 6
    )


def _or_sentinel(value: int | None) -> int:
    """Return Kafka's sentinel -1 for a missing value."""
    return -1 if value is None else value


def _columns(rows: Sequence[Mapping[str, int]]) -> Columns:
    names = rows[0].keys() if rows else {"position"}
    assert all(row.keys() == names for row in rows), "rows of one table have the same fields"
    return {name: np.array([row[name] for row in rows], dtype=np.int64) for name in names}


def _differences(reference: str, theirs: Columns, ours: Columns) -> list[Difference]:
    """Compare each column of a reference; a column that kafkascan lacks raises KeyError."""
    return [
        Difference(
            reference, int(theirs["position"][row]), name, int(column[row]), int(ours[name][row])
        )
        for name, column in theirs.items()
        for row in np.flatnonzero(column != ours[name].astype(np.int64))
    ]


def assert_same_end(log: Path, scan: Any, end: Mapping[str, Any]) -> None:
    """Compare how reading ended with the last line of BatchFields or RecordFields."""
    found = (scan.end, scan.valid_bytes, scan.trailing_bytes)
    expected = (_expected_end(end["end"]), end["validBytes"], end["trailingBytes"])
    assert found == expected, f"{log}: ends with {expected} in Kafka, {found} in kafkascan"


def _expected_end(end: str) -> Any:
    """Translate Kafka's end. Kafka has no zero tail: it fails on the size 0."""
    if end == "clean":
        return kafkascan.ScanEnd.CLEAN
    if end == "partial":
        return kafkascan.ScanEnd.TORN_TAIL
    if "size 0 " in end:
        return kafkascan.ScanEnd.ZERO_TAIL
    return kafkascan.ScanEnd.CORRUPT
