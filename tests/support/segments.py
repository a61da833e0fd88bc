"""Write segments for tests, damage their bytes, update checksums.

The golden and oracle tests compare the package with files that Kafka wrote.
"""

from __future__ import annotations

import struct
import zlib

import crc32c as crc32c_package

from kafkascan.batches.scan import BatchScan, scan_batches

T0 = 1_714_000_000_000

# field: (offset in the batch, struct code)
V2_FIELDS = {
    "base_offset": (0, "q"),
    "batch_length": (8, "i"),
    "partition_leader_epoch": (12, "i"),
    "magic": (16, "b"),
    "crc": (17, "I"),
    "attributes": (21, "h"),
    "last_offset_delta": (23, "i"),
    "base_timestamp": (27, "q"),
    "max_timestamp": (35, "q"),
    "producer_id": (43, "q"),
    "producer_epoch": (51, "h"),
    "base_sequence": (53, "i"),
    "records_count": (57, "i"),
}


def batch_v2(payload: bytes = b"", **fields: int) -> bytes:
    """Return a batch of magic 2. The payload may be any bytes: scans read headers only."""
    values = {
        "base_offset": 0, "batch_length": 49 + len(payload), "partition_leader_epoch": 0,
        "magic": 2, "crc": 0, "attributes": 0, "last_offset_delta": 0,
        "base_timestamp": T0, "max_timestamp": T0, "producer_id": -1, "producer_epoch": -1,
        "base_sequence": -1, "records_count": 1,
    } | fields  # fmt: skip
    batch = bytearray(struct.pack(">qiibIhiqqqhii", *values.values()) + payload)
    if "crc" not in fields:
        sign(batch)
    return bytes(batch)


def message_v1(
    key: bytes | None = None,
    value: bytes | None = b"v",
    *,
    offset: int = 0,
    attributes: int = 0,
    timestamp: int = T0,
) -> bytes:
    return _message(offset, 1, struct.pack(">BBq", 1, attributes, timestamp), key, value)


def message_v0(
    key: bytes | None = None,
    value: bytes | None = b"v",
    *,
    offset: int = 0,
    attributes: int = 0,
) -> bytes:
    return _message(offset, 0, struct.pack(">BB", 0, attributes), key, value)


def _message(offset: int, magic: int, head: bytes, key: bytes | None, value: bytes | None) -> bytes:
    body = head + _sized(key) + _sized(value)
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def _sized(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def sign(batch: bytearray) -> None:
    """Write the checksum of the current bytes into the header."""
    if batch[16] == 2:
        struct.pack_into(">I", batch, 17, crc32c_package.crc32c(bytes(batch[21:])))
    else:
        struct.pack_into(">I", batch, 12, zlib.crc32(bytes(batch[16:])))


class Rig:
    """A log whose batches can be damaged individually."""

    def __init__(self) -> None:
        self.parts: list[bytearray] = []
        self.tail = b""

    def add(self, part: bytes) -> Rig:
        self.parts.append(bytearray(part))
        return self

    def batch(self, payload: bytes = b"payload", **fields: int) -> Rig:
        return self.add(batch_v2(payload, **({"base_offset": len(self.parts)} | fields)))

    def batches(self, count: int, payload: bytes = b"payload") -> Rig:
        for _ in range(count):
            self.batch(payload)
        return self

    def set(self, index: int, field: str, value: int) -> Rig:
        at, code = V2_FIELDS[field]
        struct.pack_into(">" + code, self.parts[index], at, value)
        return self

    def flip(self, index: int, byte: int, bit: int = 0) -> Rig:
        self.parts[index][byte] ^= 1 << bit
        return self

    def sign(self, index: int) -> Rig:
        sign(self.parts[index])
        return self

    def end_with(self, tail: bytes) -> Rig:
        self.tail = tail
        return self

    def size_of(self, index: int) -> int:
        return len(self.parts[index])

    def position_of(self, index: int) -> int:
        return sum(len(part) for part in self.parts[:index])

    @property
    def log(self) -> bytes:
        return b"".join(self.parts) + self.tail

    def scan(self) -> BatchScan:
        return scan_batches(self.log, on_corrupt="stop")
