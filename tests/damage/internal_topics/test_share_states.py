"""Damaged states of share groups: a row or a warning, never a crash."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import kafkascan as ks
from tests.damage.internal_topics.test_groups import mutated
from tests.support.internal_topics import TopicLog, share_snapshot, share_update

_TOPIC = "__share_group_state-0"


@pytest.mark.parametrize("seed", range(40))
def test_mutated_records_are_rows_or_problems(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    topic = TopicLog(tmp_path / _TOPIC)
    for number in range(12):
        batches = [(number, number + 5, dice.choice((0, 2, 4)), 1)]
        record = share_update if number % 4 else share_snapshot
        key, value = record("g", 0, start=number, batches=batches)
        topic.add((mutated(dice, key or b""), mutated(dice, value or b"")))
    found = ks.read_share_state(topic.write().parent)
    assert len(found.unknown) <= len(found.problems)
    for table in found.tables.values():
        assert table.arrow_table().num_rows == len(table)


def test_a_batch_with_a_wrong_checksum_is_skipped_and_named(tmp_path: Path) -> None:
    topic = TopicLog(tmp_path / _TOPIC).add(share_snapshot("g", 0), share_update("g", 0, start=3))
    topic.batches[1] = topic.batches[1][:-1] + b"\xff"
    found = ks.read_share_state(topic.write().parent)
    assert (found.partitions["start_offset"], found.partitions["is_exact"]) == ([0], [False])
    assert [one.symbol for one in found.problems] == ["CHECKSUM_MISMATCH"]
    assert not found.is_exact


def test_offsets_at_the_limits_are_rows(tmp_path: Path) -> None:
    last = 2**63 - 1
    topic = TopicLog(tmp_path / _TOPIC)
    batches = [(-(2**63), last, 2, 1), (last, last, 4, 1)]
    topic.add(share_snapshot("g", 0, start=-1, batches=batches))
    found = ks.read_share_state(topic.write())
    for table in (found.partitions, found.batches):
        assert table.to_arrow().num_rows == len(table)
