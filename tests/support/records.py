"""Encode records field by field, and decode them with a slow reference reader.

It shares no code with the package; docs/format.md is its specification.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from tests.support.segments import batch_v2


def varint(number: int) -> bytes:
    """Encode a varint or varlong: zig-zag, base 128, minimal size."""
    rest = (number << 1) ^ (number >> 63)
    rest &= (1 << 64) - 1
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


@dataclass
class RecordV2:
    """The fields of a record of magic 2."""

    key: bytes | None = None
    value: bytes | None = b"value"
    headers: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    offset_delta: int = 0
    timestamp_delta: int = 0
    attributes: int = 0

    def encode(self) -> bytes:
        body = bytes([self.attributes]) + varint(self.timestamp_delta) + varint(self.offset_delta)
        body += _sized(self.key) + _sized(self.value) + varint(len(self.headers))
        for key, value in self.headers:
            body += _sized(key) + _sized(value)
        return varint(len(body)) + body


def _sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def batch_of(records: list[RecordV2], **fields: int) -> bytes:
    """Return an uncompressed batch of these records."""
    payload = b"".join(record.encode() for record in records)
    last = records[-1].offset_delta if records else 0
    defaults = {"records_count": len(records), "last_offset_delta": last}
    return batch_v2(payload, **(defaults | fields))


def zstd_of_repeated_value(size: int) -> bytes:
    """Return a Zstandard frame of one record whose value is one block: a byte, repeated."""
    record = RecordV2(value=b"v" * size).encode()
    head = record.index(b"v")
    pieces = ((0, record[:head]), (1, record[head:-1]), (0, record[-1:]))
    frame = struct.pack("<IBB", 0xFD2FB528, 0, 0x58)
    for number, (kind, piece) in enumerate(pieces):
        header = len(piece) << 3 | kind << 1 | (number == 2)
        frame += header.to_bytes(3, "little") + (piece[:1] if kind else piece)
    return frame


class NotRecordsError(Exception):
    """The bytes are not the records that the batch header declares."""


def read_slowly(batch: bytes) -> list[tuple[object, ...]]:
    """Return (offset, timestamp, key, value, headers) of an uncompressed batch of magic 2."""
    (base_offset,) = struct.unpack_from(">q", batch, 0)
    attributes, _, base_timestamp, max_timestamp = struct.unpack_from(">hiqq", batch, 21)
    (count,) = struct.unpack_from(">i", batch, 57)
    if count < 0:
        raise NotRecordsError
    reader = _Reader(batch[61:])
    found = []
    for _ in range(count):
        length = reader.number(5)
        record = _Reader(reader.take(length))
        record.take(1)
        timestamp = _wrapped(base_timestamp + record.number(10))
        offset = _wrapped(base_offset + record.number(5))
        key, value = record.sized(), record.sized()
        headers = []
        for _ in range(record.count()):
            header_key = record.sized()
            if header_key is None:
                raise NotRecordsError
            headers.append((header_key, record.sized()))
        if record.rest:
            raise NotRecordsError
        found.append((offset, max_timestamp if attributes & 8 else timestamp, key, value, headers))
    if count and reader.rest:
        raise NotRecordsError
    return found


def _wrapped(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


class _Reader:
    def __init__(self, rest: bytes) -> None:
        self.rest = rest

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.rest):
            raise NotRecordsError
        taken, self.rest = self.rest[:size], self.rest[size:]
        return taken

    def number(self, most: int) -> int:
        bits = 0
        for at in range(most):
            (byte,) = self.take(1)
            bits |= (byte & 0x7F) << 7 * at
            if byte < 0x80:
                bits &= (1 << (64 if most == 10 else 32)) - 1
                return bits >> 1 if bits % 2 == 0 else -(bits >> 1) - 1
        raise NotRecordsError

    def sized(self) -> bytes | None:
        size = self.number(5)
        return None if size < 0 else self.take(size)

    def count(self) -> int:
        count = self.number(5)
        if not 0 <= count <= len(self.rest):
            raise NotRecordsError
        return count


def log_without_its_marker() -> bytes:
    """A producer wrote in a transaction, whose marker is lost, and then outside of one."""
    producer = {"producer_id": 7, "producer_epoch": 0}
    return b"".join([
        batch_of([RecordV2()], base_offset=0, attributes=0x10, base_sequence=0, **producer),
        batch_of([RecordV2()], base_offset=2, base_sequence=1, **producer),
    ])  # fmt: skip
