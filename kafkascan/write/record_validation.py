"""Validate the records of batches as a broker does before it appends them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, compression_type, timestamp_type
from kafkascan.batches.scan import scan_batches
from kafkascan.batches.verify import verify_crcs
from kafkascan.format.errors import CorruptBatchError
from kafkascan.format.findings import BatchFinding, Severity
from kafkascan.format.layout import NO_TIMESTAMP, CompressionType, TimestampType
from kafkascan.io.sources import Source
from kafkascan.records.decoding import iter_decoded
from kafkascan.records.payloads import load_payloads
from kafkascan.records.read_options import ReadOptions
from kafkascan.records.record_table import RecordTable

CORRUPT = "CorruptRecordException"
INVALID = "InvalidRecordException"
INVALID_TIMESTAMP = "InvalidTimestampException"


@dataclass(frozen=True)
class Append:
    """Options of `validate_batches`: writer, topic and limits of an append."""

    origin: str
    as_append: bool
    compacted: bool
    timestamp_type: TimestampType
    oldest: int  # how much earlier than now a timestamp may be
    newest: int  # how much later
    now_ms: int
    max_message_bytes: int
    leader_epoch: int | None
    to_magic: int
    max_decompressed_size: int
    threads: int | None

    @property
    def assigns_offsets(self) -> bool:
        """Whether the broker assigns offsets; only then does it validate records."""
        return self.origin in ("client", "coordinator")


def batch_finding(
    batches: BatchTable,
    row: int,
    symbol: str,
    exception: str,
    message: str,
    offset: int | None = None,
    count: int = 1,
) -> BatchFinding:
    """Return a finding about one row."""
    position = int(batches["position"][row])
    return BatchFinding(
        symbol, Severity.ERROR, message, row, position, exception, offset, count=count
    )


def record_findings(
    source: Source, batches: BatchTable, append: Append
) -> dict[int, list[BatchFinding]]:
    """Decode all records; return findings by row."""
    by_row: dict[int, list[BatchFinding]] = {}
    order = np.argsort(batches["position"], kind="stable")
    positions = batches["position"][order]

    def row_of(position: int) -> int:
        return int(order[np.searchsorted(positions, position)])

    def note(error: CorruptBatchError) -> None:
        row = row_of(error.position)
        exception = _thrown_for(error, int(batches["magic"][row]))
        finding = batch_finding(batches, row, error.symbol, exception, error.reason)
        by_row.setdefault(row, []).append(finding)

    known = np.flatnonzero(compression_type(batches) <= CompressionType.ZSTD)
    readable = batches if len(known) == len(batches) else batches.take(known)
    of_other_magic: dict[int, NDArray[np.bool_]] = {}
    for row in _wrapper_rows(batches):
        inside = _messages_inside(source, batches[row : row + 1], append)
        if inside is not None:
            by_row[row] = list(_wrapped_findings(batches, row, *inside))
            of_other_magic[row] = inside[0]
    options = ReadOptions(
        columns=("offset", "timestamp", "key", "value", "headers"),
        control="include",
        on_damage=note,
        max_decompressed_size=append.max_decompressed_size,
    )
    for table in iter_decoded(source, readable, options):
        rows = order[np.searchsorted(positions, table.batches["position"])]
        for row, finding in _record_checks(table, rows, batches, of_other_magic, append):
            by_row.setdefault(row, []).append(finding)
    return by_row


def _thrown_for(error: CorruptBatchError, magic: int) -> str:
    """Return the exception that Kafka throws for the same damage."""
    is_codec = error.symbol in ("BAD_COMPRESSED_DATA", "OUTPUT_TOO_LARGE")
    if is_codec:
        return "KafkaException"
    return CORRUPT if error.symbol == "INNER_TOO_SMALL" and magic < 2 else INVALID


def _record_checks(
    table: RecordTable,
    rows: NDArray[np.intp],
    batches: BatchTable,
    of_other_magic: dict[int, NDArray[np.bool_]],
    append: Append,
) -> Iterator[tuple[int, BatchFinding]]:
    """Check records like ``LogValidator.validateKey`` and ``validateTimestamp``."""
    batch, offsets = table.columns["batch"], table.columns["offset"]
    is_checked = _of_one_magic(batch, rows, of_other_magic)
    is_keyless = (table.columns["key_size"] < 0) & append.compacted & is_checked
    is_timed = is_checked & ~is_keyless
    stamps = table.columns["timestamp"]
    has_time = (stamps != NO_TIMESTAMP) & (append.timestamp_type is TimestampType.CREATE_TIME)
    difference = np.int64(append.now_ms) - stamps
    is_late = (difference > append.oldest) | (-difference > append.newest)
    is_appended = timestamp_type(table.batches)[batch] == TimestampType.LOG_APPEND_TIME
    for symbol, exception, wrong, message in (
        ("TIMESTAMP_OUT_OF_RANGE", INVALID_TIMESTAMP, is_timed & has_time & is_late,
         "the timestamp is too far from the current time"),
        ("LOG_APPEND_TIME", INVALID_TIMESTAMP, is_timed & ~has_time & is_appended,
         "producers must not set LogAppendTime"),
        ("NO_KEY", INVALID, is_keyless, "records of a compacted topic need keys"),
    ):  # fmt: skip
        found = np.flatnonzero(wrong)
        of_batch, first, counts = np.unique(batch[found], return_index=True, return_counts=True)
        for one, at, count in zip(of_batch.tolist(), first.tolist(), counts.tolist(), strict=True):
            row, offset = int(rows[one]), int(offsets[found[at]])
            text = (
                f"record {offset}" + (f" and {count - 1} more: " if count > 1 else ": ") + message
            )
            yield row, batch_finding(batches, row, symbol, exception, text, offset, count)


def _wrapper_rows(batches: BatchTable) -> list[int]:
    codecs = compression_type(batches)
    readable = (codecs != CompressionType.NONE) & (codecs < CompressionType.ZSTD)
    return np.flatnonzero((batches["magic"] < 2) & readable).tolist()


def _of_one_magic(
    batch: NDArray[np.int32], rows: NDArray[np.intp], of_other_magic: dict[int, NDArray[np.bool_]]
) -> NDArray[np.bool_]:
    """Return a mask of the inner records with the magic of their wrapper."""
    result = np.ones(len(batch), np.bool_)
    for one, row in enumerate(rows.tolist()):
        if row in of_other_magic and of_other_magic[row].any():
            records, is_other = np.flatnonzero(batch == one), of_other_magic[row]
            result[records[: len(is_other)]] = ~is_other[: len(records)]
    return result


def _messages_inside(
    source: Source, batch: BatchTable, append: Append
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]] | None:
    """Return masks of inner messages with another magic, and with a wrong checksum."""
    try:
        loaded = load_payloads(source, batch, append.max_decompressed_size)
    except CorruptBatchError:
        return None  # Decoding the records reports it.
    start = int(loaded.position[0])
    buffer = loaded.buffers[int(loaded.buffer_index[0]) - 1]
    inside = buffer[start : start + int(loaded.size[0])]
    messages = scan_batches(inside, on_corrupt="stop").batches
    is_other = messages["magic"] != batch["magic"][0]
    return is_other, ~is_other & ~verify_crcs(inside, messages, threads=1)


def _wrapped_findings(
    batches: BatchTable, row: int, is_other: NDArray[np.bool_], is_bad: NDArray[np.bool_]
) -> Iterator[BatchFinding]:
    for symbol, exception, wrong, message in (
        ("INNER_CHECKSUM_MISMATCH", CORRUPT, is_bad, "the checksum of an inner message is wrong"),
        ("INNER_MAGIC", INVALID, is_other, "the magic of an inner message differs"),
    ):
        count = int(np.count_nonzero(wrong))
        if count:
            yield batch_finding(batches, row, symbol, exception, message, None, count)
