"""A slow reference reader of batch headers.

It is written with `struct` from the description of the format. It shares no code, no
constant and no dtype with the package.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

import crc32c as crc32c_package

FIELDS = [
    "position", "base_offset", "batch_length", "partition_leader_epoch", "magic", "crc",
    "attributes", "last_offset_delta", "base_timestamp", "max_timestamp", "producer_id",
    "producer_epoch", "base_sequence", "records_count",
]  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """Rows as tuples in the order of `FIELDS`, and how the log ended."""

    rows: list[tuple[int, ...]]
    end: str
    symbol: str | None
    valid_bytes: int


def read(log: bytes, start: int = 0) -> Reading:
    rows: list[tuple[int, ...]] = []
    position = start
    while position < len(log):
        verdict = _next(log, position)
        if isinstance(verdict, str):
            end = "TORN_TAIL" if verdict == "TORN_TAIL" else "CORRUPT"
            symbol = None if end == "TORN_TAIL" else verdict
            if log[position:].count(0) == len(log) - position:
                end, symbol = "ZERO_TAIL", None
            return Reading(rows, end, symbol, position - start)
        rows.append(verdict)
        position += 12 + verdict[2]
    return Reading(rows, "CLEAN", None, position - start)


def _next(log: bytes, position: int) -> tuple[int, ...] | str:
    """Return the row at a position, or the symbol of the error there."""
    if len(log) - position < 17:
        return "TORN_TAIL"
    offset, length, _, magic = struct.unpack_from(">qiib", log, position)
    if length < 14:
        return "BAD_LENGTH"
    if magic not in (0, 1, 2):
        return "BAD_MAGIC"
    if length < {0: 14, 1: 22, 2: 49}[magic]:
        return "BAD_LENGTH"
    if position + 12 + length > len(log):
        return "TORN_TAIL"
    if magic == 2:
        return (position, *struct.unpack_from(">qiibIhiqqqhii", log, position))
    crc, _, attributes = struct.unpack_from(">IbB", log, position + 12)
    timestamp = struct.unpack_from(">q", log, position + 18)[0] if magic == 1 else -1
    if attributes & 7:
        first_timestamp, count = -1, -1
    else:
        first_timestamp, count = timestamp, 1
    return (
        position, offset, length, -1, magic, crc, attributes, 0, first_timestamp, timestamp,
        -1, -1, -1, count,
    )  # fmt: skip


def crc_is_valid(log: bytes, row: tuple[int, ...]) -> bool:
    position, length, magic, stored = row[0], row[2], row[4], row[5]
    stop = position + 12 + length
    if magic == 2:
        return crc32c_package.crc32c(log[position + 21 : stop]) == stored
    return zlib.crc32(log[position + 16 : stop]) == stored
