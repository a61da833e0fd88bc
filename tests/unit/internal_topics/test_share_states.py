"""Start offsets and delivery states of share groups."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.internal_topics.share_states import StateBatch, combine_batches
from tests.support.internal_topics import TopicLog, share_snapshot, share_update
from tests.support.segments import T0

_TOPIC_ID = uuid.UUID(int=7)


@pytest.fixture
def topic(tmp_path: Path) -> TopicLog:
    return TopicLog(tmp_path / "__share_group_state-0")


def test_updates_change_the_last_snapshot(topic: TopicLog) -> None:
    topic.add(
        share_snapshot("g", 3, start=10, batches=[(10, 19, 2, 1)], state_epoch=4),
        share_update("g", 3, start=-1, batches=[(15, 24, 0, 2)]),
        share_update("g", 3, start=12, batches=[]),
    )
    orders = topic.folder.parent / "orders-3"
    orders.mkdir()
    (orders / f"{0:020}.log").write_bytes(b"")
    (orders / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABw\n")
    found = ks.read_share_state(topic.write().parent)
    assert found.is_exact
    (row,) = found.partitions.rows()
    assert row == {
        "group": "g", "topic": "orders", "partition": 3, "start_offset": 12, "available": 10,
        "acknowledged": 3, "archived": 0, "delivery_complete_count": -1, "state_epoch": 4,
        "leader_epoch": 1, "snapshot_epoch": 0, "create_timestamp": T0, "write_timestamp": T0 + 1,
        "topic_id": "AAAAAAAAAAAAAAAAAAAABw", "coordinator_partition": 0, "record_offset": 2,
        "is_exact": True,
    }  # fmt: skip
    assert [
        (one["first_offset"], one["last_offset"], one["delivery_state"], one["delivery_count"])
        for one in found.batches.rows()
    ] == [(12, 14, "Acknowledged", 1), (15, 24, "Available", 2)]
    earlier = ks.read_share_state(topic.folder, as_of=1)
    assert earlier.is_exact
    assert (earlier.partitions["start_offset"], earlier.partitions["topic"]) == ([10], [None])


def test_tombstones_delete_states(topic: TopicLog) -> None:
    topic.add(share_snapshot("g", 0), share_snapshot("h", 0), share_snapshot("g", 0, deleted=True))
    found = ks.read_share_state(topic.write())
    assert found.partitions["group"] == ["h"]
    assert len(found.select({"g"}).partitions) == 0
    assert ks.read_share_state(topic.folder, as_of=2).partitions["group"] == ["g", "h"]


def test_states_whose_records_were_deleted_are_named(topic: TopicLog) -> None:
    topic.add(share_snapshot("old", 0), share_snapshot("kept", 0, epoch=1))
    topic.add(share_update("cut", 0, start=5), share_snapshot("old", 0, epoch=1))
    topic.add(share_snapshot("gone", 0, deleted=True), share_snapshot("new", 0))
    folder = topic.write()
    (folder.parent / "log-start-offset-checkpoint").write_text("0\n1\n__share_group_state 0 1\n")
    found = ks.read_share_state(folder.parent, as_of=3)
    rows = {row["group"]: (row["start_offset"], row["is_exact"]) for row in found.partitions.rows()}
    assert rows == {
        "kept": (0, True),
        "cut": (5, False),
        "old": (None, False),
        "gone": (None, False),
    }
    (problem,) = found.problems
    assert problem.symbol == "DELETED_RECORDS"
    assert "is not exact" in problem.message
    assert len(ks.read_share_state(folder.parent, as_of=1).problems)
    # An update without its snapshot shows that a record is missing that is needed at the end.
    assert not ks.read_share_state(folder.parent).is_exact
    topic.batches.clear()
    topic.offset = 1
    topic.add(share_snapshot("kept", 0, epoch=1), share_snapshot("old", 0, epoch=1))
    topic.add(share_snapshot("gone", 0, deleted=True), share_snapshot("new", 0)).write()
    assert ks.read_share_state(folder.parent).is_exact


def test_unknown_records_are_kept(topic: TopicLog) -> None:
    key, value = share_snapshot("g", 0)
    update, _ = share_update("g", 0)
    assert value is not None
    topic.add((b"\0\x09x", b"\0\0"), (key, b"\0\x05" + value[2:]), (update, None), (key, value))
    found = ks.read_share_state(topic.write())
    assert found.unknown["type"] == [9, 0, 1]
    assert len(found.partitions) == 1
    assert not found.is_exact


def test_states_before_a_start_offset_are_dropped_for_good(topic: TopicLog) -> None:
    topic.add(share_snapshot("g", 0, start=30, batches=[(14, 21, 2, 1)]), share_update("g", 0))
    topic.add(share_update("g", 0, start=13))
    assert ks.read_share_state(topic.write()).batches["first_offset"] == []
    topic.batches.pop(1)
    assert ks.read_share_state(topic.write()).batches["first_offset"] == [14]


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ([], []),
        ([(5, 4, 0, 1)], []),
        ([(0, 9, 0, 1), (3, 5, 2, 1)], [(0, 2, 0, 1), (3, 5, 2, 1), (6, 9, 0, 1)]),
        ([(0, 9, 2, 1), (3, 5, 0, 2)], [(0, 2, 2, 1), (3, 5, 0, 2), (6, 9, 2, 1)]),
        ([(0, 9, 4, 3), (3, 5, 0, 2)], [(0, 9, 4, 3)]),
        ([(0, 4, 2, 1), (5, 9, 2, 1), (11, 12, 2, 1)], [(0, 9, 2, 1), (11, 12, 2, 1)]),
    ],
)
def test_combined_batches(
    batches: list[tuple[int, int, int, int]], expected: list[tuple[int, int, int, int]]
) -> None:
    assert combine_batches(StateBatch(*one) for one in batches) == expected
