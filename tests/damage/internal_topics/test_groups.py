"""Damaged and hostile records of Kafka's own topics: a row or a warning, never a crash."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import kafkascan as ks
from tests.support.internal_topics import TopicLog, commit
from tests.support.paths import GOLDEN

_TOPIC = "__consumer_offsets-0"
_GOLDEN = GOLDEN / "kafka-4.4.0" / "data" / _TOPIC


def golden_records() -> list[tuple[bytes, bytes | None]]:
    table = ks.read_records(_GOLDEN, columns=("key", "value"))
    return [
        (key or b"", value)
        for key, value in zip(table.items("key"), table.items("value"), strict=True)
    ]


@pytest.mark.parametrize("seed", range(40))
def test_mutated_records_are_rows_or_problems(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    topic = TopicLog(tmp_path / _TOPIC)
    for key, value in golden_records():
        topic.add((mutated(dice, key), None if value is None else mutated(dice, value)))
    found = ks.read_groups(topic.write().parent)
    assert len(found.unknown) <= len(found.problems)
    for table in found.tables.values():
        assert table.arrow_table().num_rows == len(table)


def mutated(dice: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(dice.randrange(3)):
        if changed:
            changed[dice.randrange(len(changed))] = dice.randrange(256)
    return bytes(changed[: dice.randrange(len(changed) + 1)] if dice.random() < 0.2 else changed)


@pytest.mark.parametrize("seed", range(40))
def test_flipped_bytes_of_the_log_are_reported(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    folder = tmp_path / _TOPIC
    folder.mkdir()
    data = bytearray((_GOLDEN / f"{0:020}.log").read_bytes())
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    (folder / f"{0:020}.log").write_bytes(data)
    found = ks.read_groups(tmp_path)
    healthy = ks.read_groups(_GOLDEN)
    if found.offsets.rows() != healthy.offsets.rows():
        assert len(found.problems)


def test_a_batch_with_a_wrong_checksum_is_skipped_and_named(tmp_path: Path) -> None:
    topic = TopicLog(tmp_path / _TOPIC).add(commit("a", 0, 1), commit("a", 0, 2), commit("b", 0, 3))
    topic.batches[1] = topic.batches[1][:-1] + b"\xff"
    found = ks.read_groups(topic.write().parent)
    assert found.offsets["offset"] == [1, 3]
    assert found.offsets["is_exact"] == [False, False]
    assert not found.is_exact
    assert [one.symbol for one in found.problems] == ["CHECKSUM_MISMATCH"]
