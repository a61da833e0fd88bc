"""Rewritten header fields equal Kafka's, byte for byte."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import kafkascan as ks
from tests.oracle.rewrites import Rewrites
from tests.support.log_corpus import random_log
from tests.support.segments import T0

pytestmark = pytest.mark.oracle

_GOLDEN = sorted(Path(__file__).parents[1].glob("golden/*/data/*/*.log"))
_ROUNDS = 150


def _logs() -> list[bytes]:
    dice = random.Random("restamping")
    found = [random_log(dice, batches=12) for _ in range(_ROUNDS)]
    golden = [path.read_bytes() for path in _GOLDEN]
    assert len(golden) > 40
    return found + [data for data in golden if 0 < len(data) < 1 << 20]


def test_offsets(rewrites: Rewrites) -> None:
    dice = random.Random("offsets")
    for data in _logs():
        batches = ks.scan_batches(data, on_corrupt="stop").batches
        offsets = ks.batches.last_offset(batches) + dice.choice([1, 77, 1 << 40])
        whole = data[: int(ks.batches.size_in_bytes(batches).sum())]
        ours = ks.restamp(whole, batches, last_offset=offsets)
        assert ours.tobytes() == rewrites.restamp(whole, lastOffsets=offsets.tolist())
        assert ours.tobytes() != whole


def test_leader_epochs(rewrites: Rewrites) -> None:
    dice = random.Random("epochs")
    for _ in range(_ROUNDS):
        data = random_log(dice, magics=(2,), batches=12)
        batches = ks.scan_batches(data).batches
        epochs = [dice.choice([-1, 0, 5, 2**31 - 1]) for _ in batches]
        ours = ks.restamp(data, partition_leader_epoch=epochs).tobytes()
        assert ours == rewrites.restamp(data, leaderEpochs=epochs)


def test_times(rewrites: Rewrites) -> None:
    dice = random.Random("times")
    changed = 0
    for _ in range(_ROUNDS):
        data = random_log(dice, magics=(1, 2), batches=12)
        batches = ks.scan_batches(data).batches
        now = batches["max_timestamp"].tolist()
        times = [dice.choice([old, T0 + dice.randrange(9), -1, 2**62]) for old in now]
        types = [dice.randrange(2) for _ in times]
        ours = ks.restamp(data, max_timestamp=times, timestamp_type=types)
        assert ours.tobytes() == rewrites.restamp(data, maxTimestamps=times, timestampTypes=types)
        after = ks.scan_batches(ours).batches
        assert ks.verify_crcs(ours, after).all()
        changed += int(np.count_nonzero(after["crc"] != batches["crc"]))
    assert changed > _ROUNDS


def test_bits_without_a_meaning_are_dropped_where_kafka_drops_them(rewrites: Rewrites) -> None:
    data = bytearray(random_log(random.Random(3), magics=(2,), batches=1))
    data[21] |= 0xF0
    data[22] |= 0x80
    times = [T0 + 123]
    ours = ks.restamp(bytes(data), max_timestamp=times[0]).tobytes()
    assert ours == rewrites.restamp(bytes(data), maxTimestamps=times)
    assert ours[21] == 0
