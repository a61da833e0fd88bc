"""Rewrites and validation of damaged logs and wrong tables end without a crash."""

from __future__ import annotations

import random

import numpy as np
import pytest

import kafkascan as ks
from tests.support.log_corpus import NONE, random_log
from tests.support.segments import V2_FIELDS, Rig, sign

LOG = random_log(random.Random(23), batches=5)
PLAIN = random_log(random.Random(29), magics=(2,), codecs=(NONE,), batches=3)


def attempt_all(log: bytes, batches: np.ndarray) -> int:
    """Try every operation on a log; return how many refused it."""
    refused = 0
    for work in (
        lambda: ks.filter_records(log, batches, keep=ks.rewrite.without_offsets(None, 3)),
        lambda: ks.convert_records(log, batches, to_magic=2, compression_type="lz4"),
        lambda: ks.convert_records(log, batches, to_magic=0, compression_type="gzip"),
        lambda: ks.restamp(log, batches, last_offset=2**40),
        lambda: ks.validate_batches(log, batches, now_ms=0),
    ):
        try:
            work()
        except ks.KafkaScanError:
            refused += 1
    return refused


def test_flipped_bits() -> None:
    dice = random.Random(31)
    refused = 0
    for _ in range(400):
        data = bytearray(LOG)
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        batches = ks.scan_batches(data, on_corrupt="stop").batches
        refused += attempt_all(bytes(data), batches)
    assert refused > 400


def test_changed_bytes_with_correct_checksums() -> None:
    dice = random.Random(37)
    for _ in range(400):
        batches = ks.scan_batches(PLAIN).batches
        row = batches[dice.randrange(len(batches))]
        first, size = int(row["position"]), int(row["batch_length"]) + 12
        batch = bytearray(PLAIN[first : first + size])
        batch[dice.randrange(21, len(batch))] = dice.choice([0, 1, 0x7F, 0x80, 0xFF])
        sign(batch)
        data = PLAIN[:first] + bytes(batch) + PLAIN[first + size :]
        attempt_all(data, ks.scan_batches(data, on_corrupt="stop").batches)


@pytest.mark.parametrize(
    "field",
    ["last_offset_delta", "records_count", "base_timestamp", "max_timestamp", "base_offset"],
)
@pytest.mark.parametrize("value", [-(2**31), -1, 2**31 - 1])
def test_fields_at_their_limits(field: str, value: int) -> None:
    data = bytearray(PLAIN)
    at, code = V2_FIELDS[field]
    data[at : at + np.dtype(f">{code}").itemsize] = np.array(value, f">{code}").tobytes()
    (first, *_) = ks.scan_batches(PLAIN).batches
    batch = bytearray(data[: int(first["batch_length"]) + 12])
    sign(batch)
    data[: len(batch)] = batch
    attempt_all(bytes(data), ks.scan_batches(data, on_corrupt="stop").batches)


def test_wrong_tables() -> None:
    dice = random.Random(41)
    refused = 0
    for _ in range(300):
        batches = ks.scan_batches(LOG).batches.copy()
        name = dice.choice(["position", "batch_length", "magic", "crc"])
        limits = np.iinfo(batches.dtype[name])
        batches[name][dice.randrange(len(batches))] = dice.choice(
            [limits.min, limits.max, 0, 1, dice.randrange(limits.max)]
        )
        refused += attempt_all(LOG, batches) == 5
    assert refused > 200


def test_a_repeated_row_is_refused() -> None:
    data = bytearray(Rig().batches(2).log)
    twice = ks.scan_batches(data).batches[[0, 0]]
    with pytest.raises(ks.format.BatchTableError):
        ks.rewrite.restamp_in_place(data, twice, max_timestamp=[1, 2])
    ks.rewrite.restamp_in_place(data, ks.scan_batches(data).batches, max_timestamp=7)


def test_random_bytes() -> None:
    rng = np.random.default_rng(43)
    for _ in range(100):
        data = rng.bytes(int(rng.integers(0, 400)))
        attempt_all(data, ks.scan_batches(data, on_corrupt="stop").batches)
