"""The damage matrix: the exact result for each kind of damage."""

from __future__ import annotations

import numpy as np
import pytest

import kafkascan as ks
from tests.support import reference
from tests.support.segments import Rig, message_v0, message_v1

# Bytes of a batch of magic 2 that its checksum does not cover.
UNCOVERED = {
    **dict.fromkeys(range(8), "base_offset"),
    **dict.fromkeys(range(8, 12), "batch_length"),
    **dict.fromkeys(range(12, 16), "partition_leader_epoch"),
    16: "magic",
}


def mixed() -> Rig:
    rig = Rig().batches(2).add(message_v1(b"key", b"value", offset=2)).batch()
    return rig.add(message_v0(None, b"value", offset=4)).batch(b"")


def agree_with_reference(log: bytes) -> ks.BatchScan:
    scan = ks.scan_batches(log, on_corrupt="stop")
    reading = reference.read(log)
    assert [tuple(row) for row in scan.batches.tolist()] == reading.rows
    assert (scan.end, scan.valid_bytes) == (reading.end, reading.valid_bytes)
    assert scan.valid_bytes + scan.trailing_bytes == len(log)
    assert (scan.error.symbol if scan.error else None) == reading.symbol
    verdicts = ks.verify_crcs(log, scan.batches)
    assert verdicts.tolist() == [reference.crc_is_valid(log, row) for row in reading.rows]
    return scan


def test_every_bit_of_a_batch() -> None:
    """The checksum detects a flipped bit, or does not cover its byte."""
    for byte in range(Rig().batches(3).size_of(1)):
        for bit in range(8):
            rig = Rig().batches(3).flip(1, byte, bit)
            scan = agree_with_reference(rig.log)
            if byte in UNCOVERED:
                continue
            assert ks.verify_crcs(rig.log, scan.batches).tolist() == [True, False, True]


def test_every_bit_of_legacy_messages() -> None:
    for index in (2, 4):
        for byte in range(mixed().size_of(index)):
            for bit in range(8):
                rig = mixed().flip(index, byte, bit)
                scan = agree_with_reference(rig.log)
                if byte >= 12 and scan.end == "CLEAN" and len(scan) == len(rig.parts):
                    assert not ks.verify_crcs(rig.log, scan.batches)[index]


def test_truncation_at_every_byte() -> None:
    rig = mixed()
    log = rig.log
    starts = {rig.position_of(index) for index in range(len(rig.parts))} | {len(log)}
    for size in range(len(log) + 1):
        scan = agree_with_reference(log[:size])
        assert (scan.end == "CLEAN") == (size in starts)


def test_a_zero_tail_that_starts_at_every_byte() -> None:
    """Preallocated space after a partially written batch."""
    log = mixed().log
    for size in range(len(log)):
        agree_with_reference(log[:size] + bytes(200))


@pytest.mark.parametrize("length", [-(2**31), -100, -12, -1, 0, 13, 14, 48, 2**31 - 1])
@pytest.mark.parametrize("magic", [-128, -1, 0, 1, 2, 3, 127])
@pytest.mark.parametrize("index", [0, 2, 5])
def test_lengths_and_magics(length: int, magic: int, index: int) -> None:
    rig = mixed().set(index, "batch_length", length).set(index, "magic", magic)
    agree_with_reference(rig.log)


def test_a_bad_header_with_a_right_checksum() -> None:
    """Impossible header fields that the checksum covers are reported unchanged."""
    rig = Rig().batches(3)
    for field, value in (
        ("last_offset_delta", -5), ("records_count", -7), ("records_count", 2**31 - 1),
        ("attributes", 0x7F), ("max_timestamp", -(2**63)),
    ):  # fmt: skip
        rig.set(1, field, value)
    rig.sign(1)
    scan = agree_with_reference(rig.log)
    assert ks.verify_crcs(rig.log, scan.batches).all()
    assert scan.batches["records_count"][1] == 2**31 - 1
    repr(scan)


def test_random_bytes() -> None:
    rng = np.random.default_rng(11)
    for _ in range(300):
        agree_with_reference(rng.bytes(int(rng.integers(0, 400))))


def test_a_payload_that_looks_like_batches_is_a_payload() -> None:
    inner = Rig().batches(5).log
    scan = agree_with_reference(Rig().batch(inner).batch(b"").log)
    assert len(scan) == 2
