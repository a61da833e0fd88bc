"""Committed offsets, groups and members as a coordinator loads them."""

from __future__ import annotations

import datetime
import struct
import uuid
from pathlib import Path
from typing import Any

import pytest

import kafkascan as ks
from kafkascan.format.schemas.log_messages import ASSIGNMENT, SUBSCRIPTION
from kafkascan.format.schemas.message_encoder import encode
from kafkascan.format.schemas.message_json import uuid_text
from kafkascan.tables import IncompleteTableWarning
from tests.support.internal_topics import KeyValue, TopicLog, commit, coordinator_record
from tests.support.logs import ABORT, COMMIT
from tests.support.partitions import HealthyPartition
from tests.support.segments import T0

TOPIC_ID = uuid.UUID(int=7)


@pytest.fixture
def topic(tmp_path: Path) -> TopicLog:
    return TopicLog(tmp_path / "__consumer_offsets-3")


def offsets(folder: Path, **options: Any) -> dict[tuple[str, int], int | None]:
    found = ks.read_groups(folder.parent, **options).offsets
    return {(row["group"], row["partition"]): row["offset"] for row in found.rows()}


def group_record(code: int, value: dict[str, Any] | None, member: str | None = None) -> KeyValue:
    key = {"group_id": "g"} if member is None else {"group_id": "g", "member_id": member}
    return coordinator_record("__consumer_offsets", code, key, value)


def test_the_last_commit_counts(topic: TopicLog) -> None:
    topic.add(commit("a", 0, 5), commit("a", 1, 6), commit("b", 0, 1), commit("a", 0, 7, version=1))
    topic.add(commit("b", 0, None))
    found = ks.read_groups(topic.write().parent)
    first, second = found.offsets.rows()
    assert first == {
        "group": "a", "topic": "orders", "partition": 0, "offset": 7, "leader_epoch": -1,
        "metadata": "m", "commit_timestamp": T0, "expire_timestamp": T0 + 5, "topic_id": None,
        "log_end_offset": None, "lag": None, "producer_id": -1, "coordinator_partition": 3,
        "record_offset": 3, "is_exact": True,
    }  # fmt: skip
    assert (second["partition"], second["offset"], second["leader_epoch"]) == (1, 6, 3)
    (group,) = found.groups.rows()
    assert (group["group"], group["type"], group["state"], group["epoch"]) == (
        "a", "Classic", "Empty", -1,
    )  # fmt: skip
    assert found.is_exact
    assert list(found.problems) == []


def test_keys_of_both_types_stand_for_one_partition(topic: TopicLog) -> None:
    key = {"group": "a", "topic": "orders", "partition": 0}
    value = {"offset": 9, "metadata": "", "commit_timestamp": T0}
    topic.add(commit("a", 0, 5))
    topic.add(coordinator_record("__consumer_offsets", 0, key, value))
    assert offsets(topic.write()) == {("a", 0): 9}


@pytest.mark.parametrize("first", [0, 8])
def test_transactional_commits_count_after_their_marker(topic: TopicLog, first: int) -> None:
    topic.add(commit("a", 0, 1))
    topic.add(commit("a", 0, 2), commit("a", 1, 2), producer_id=first)
    topic.add(commit("a", 0, 3), producer_id=9)
    topic.end(9, ABORT)  # offset 4
    topic.add(commit("a", 1, 4))  # offset 5: later than the pending one
    topic.end(first, COMMIT)
    folder = topic.write()
    assert offsets(folder, as_of=6) == {("a", 0): 1, ("a", 1): 4}
    assert offsets(folder) == {("a", 0): 2, ("a", 1): 4}
    pending = ks.read_groups(folder.parent, as_of=4).pending
    assert [(row["partition"], row["offset"], row["producer_id"]) for row in pending.rows()] == [
        (0, 2, first), (0, 3, 9), (1, 2, first),
    ]  # fmt: skip
    assert ks.read_groups(folder.parent).offsets["producer_id"] == [first, -1]


def test_tombstones_remove_commits_of_open_transactions(topic: TopicLog) -> None:
    topic.add(commit("a", 0, 2), producer_id=8)
    topic.add(commit("a", 0, None))
    topic.end(8)
    assert offsets(topic.write()) == {}


def test_as_of_offsets_and_times(topic: TopicLog) -> None:
    topic.add(*(commit("a", 0, number) for number in range(5)))
    folder = topic.write()
    assert offsets(folder, as_of=0) == {}
    assert offsets(folder, as_of=3) == {("a", 0): 2}
    assert offsets(folder, as_of={3: 2}) == {("a", 0): 1}
    assert offsets(folder, as_of={0: 2}) == {("a", 0): 4}  # of another partition
    at = datetime.datetime.fromtimestamp((T0 + 3) / 1000, datetime.UTC)
    assert offsets(folder, as_of=at) == {("a", 0): 3}
    assert offsets(folder, as_of=at.isoformat()) == {("a", 0): 3}
    with pytest.raises(ValueError, match="after the last offset, 5"):
        offsets(folder, as_of=T0)


def test_what_compaction_may_have_removed_is_named(topic: TopicLog) -> None:
    topic.add(commit("a", 0, 1), commit("b", 0, 1), commit("c", 0, 1), commit("b", 0, 2))
    topic.add(commit("d", 0, 1))
    folder = topic.without([1]).write()
    (folder.parent / "cleaner-offset-checkpoint").write_text("0\n1\n__consumer_offsets 3 4\n")
    now, before = ks.read_groups(folder.parent), ks.read_groups(folder.parent, as_of=3)
    assert now.is_exact
    assert not before.is_exact
    assert offsets(folder, as_of=3) == {("a", 0): 1, ("b", 0): None, ("c", 0): 1}
    assert before.offsets["is_exact"] == [True, False, True]
    (problem,) = before.problems
    assert (problem.symbol, problem.topic, problem.partition) == (
        "COMPACTED", "__consumer_offsets", 3,
    )  # fmt: skip
    assert problem.path == str(folder)
    assert problem.message == (
        "the state before offset 3 is not exact, because records before it have been removed"
    )
    assert not before.is_complete
    assert before.offsets.problems is before.problems
    assert ks.read_groups(folder.parent, as_of=4).is_exact
    # Nothing was removed before offset 1.
    assert ks.read_groups(folder.parent, as_of=1).is_exact
    assert before.reset_plan() == "a,orders,0,1\nc,orders,0,1\n"


def test_lag_of_logs_in_the_same_data_dir(topic: TopicLog) -> None:
    partition = HealthyPartition(topic.folder.parent / "orders-1").write()
    folder = topic.add(commit("a", 0, 5), commit("a", 1, 5)).write()
    found = ks.read_groups(folder.parent)
    assert found.offsets["lag"] == [None, partition.offset - 5]
    assert found.offsets["log_end_offset"] == [None, partition.offset]
    assert ks.read_groups(folder.parent, as_of=2).offsets["lag"] == [None, None]


NULL = b"\xff\xff\xff\xff"
ORDERS = b"\0\0\0\x01\0\x06orders"
PARTITIONS = b"\0\0\0\x02\0\0\0\0\0\0\0\x02"


@pytest.mark.parametrize("user_data", [NULL, b"\0\0\0\0", b"\0\0\0\x03abc"])
@pytest.mark.parametrize(
    ("version", "fields", "rack_id"),
    [
        (0, b"", None),
        (1, ORDERS + PARTITIONS, None),
        (2, ORDERS + PARTITIONS + b"\0\0\0\x04", None),
        (3, ORDERS + PARTITIONS + b"\0\0\0\x04\0\x02r1", "r1"),
        (3, ORDERS + PARTITIONS + b"\0\0\0\x04\xff\xff", None),
        # Later versions are read as the newest that is known; their fields end alike here.
        (4, ORDERS + PARTITIONS + b"\0\0\0\x04\0\x02r1", "r1"),
    ],
)
def test_every_version_of_a_subscription_and_an_assignment(
    topic: TopicLog, version: int, fields: bytes, rack_id: str | None, user_data: bytes
) -> None:
    """Bytes as of ConsumerProtocolSubscription.json and ConsumerProtocolAssignment.json."""
    number = struct.pack(">h", version)
    member = {
        "member_id": "m1", "group_instance_id": None, "client_id": "c", "client_host": "/h",
        "rebalance_timeout": 300, "session_timeout": 45,
        "subscription": number + ORDERS + user_data + fields,
        "assignment": number + ORDERS + PARTITIONS + user_data,
    }  # fmt: skip
    value = {"protocol_type": "consumer", "generation": 5, "protocol": "range", "leader": "m1"}
    value |= {"current_state_timestamp": T0, "members": [member]}
    topic.add(coordinator_record("__consumer_offsets", 2, {"group": "g"}, value, 3))
    found = ks.read_groups(topic.write().parent)
    assert list(found.problems) == []
    (row,) = found.members.rows()
    assert (row["subscription"], row["rack_id"]) == (["orders"], rack_id)
    assert row["assignment"] == [{"topic": "orders", "topic_id": None, "partitions": [0, 2]}]
    member["subscription"] = member["subscription"][:-1]
    topic.add(coordinator_record("__consumer_offsets", 2, {"group": "g"}, value, 3))
    damaged = ks.read_groups(topic.write().parent)
    (problem,) = damaged.problems
    assert problem.symbol == "BAD_MEMBER"
    assert "group g, member m1" in problem.message
    assert damaged.is_complete


def test_classic_groups(topic: TopicLog) -> None:
    subscription = {"topics": ["orders"], "user_data": None, "owned_partitions": []}
    subscription |= {"generation_id": 4, "rack_id": "r1"}
    assignment = {"assigned_partitions": [{"topic": "orders", "partitions": [0, 2]}]}
    assignment |= {"user_data": None}
    member = {
        "member_id": "m1", "group_instance_id": "i1", "client_id": "c", "client_host": "/h",
        "rebalance_timeout": 300, "session_timeout": 45,
        "subscription": struct.pack(">h", 3) + encode(SUBSCRIPTION, subscription, 3),
        "assignment": struct.pack(">h", 3) + encode(ASSIGNMENT, assignment, 3),
    }  # fmt: skip
    value = {"protocol_type": "consumer", "generation": 5, "protocol": "range", "leader": "m1"}
    value |= {"current_state_timestamp": T0, "members": [member]}
    topic.add(coordinator_record("__consumer_offsets", 2, {"group": "g"}, value, 3))
    folder = topic.write()
    found = ks.read_groups(folder.parent)
    (group,) = found.groups.rows()
    assert group == {
        "group": "g", "type": "Classic", "state": "Stable", "protocol_type": "consumer",
        "protocol": "range", "leader": "m1", "epoch": 5, "assignment_epoch": -1, "members": 1,
        "state_timestamp": T0, "coordinator_partition": 3, "is_exact": True,
    }  # fmt: skip
    (row,) = found.members.rows()
    assert row["assignment"] == [{"topic": "orders", "topic_id": None, "partitions": [0, 2]}]
    assert (row["subscription"], row["rack_id"], row["instance_id"]) == (["orders"], "r1", "i1")
    member["assignment"] = b"\0\3\xff"
    topic.add(coordinator_record("__consumer_offsets", 2, {"group": "g"}, value, 3)).write()
    damaged = ks.read_groups(folder.parent)
    assert damaged.members["assignment"] == [[]]
    assert "group g, member m1" in str(next(iter(damaged.problems)))
    value["protocol_type"] = "connect"
    topic.add(coordinator_record("__consumer_offsets", 2, {"group": "g"}, value, 3)).write()
    assert list(ks.read_groups(folder.parent).problems) == []


def consumer_member(state: int = 0, epoch: int = 2) -> list[KeyValue]:
    partitions = [{"topic_id": TOPIC_ID, "partitions": [1]}]
    owned = [one | {"assignment_epochs": None} for one in partitions]
    return [
        group_record(
            5,
            {
                "instance_id": None, "rack_id": None, "client_id": "c", "client_host": "/h",
                "subscribed_topic_names": [], "subscribed_topic_regex": "ord.*",
                "rebalance_timeout_ms": 9, "server_assignor": None,
                "classic_member_metadata": None,
            },
            "m",
        ),
        group_record(3, {"epoch": 2, "metadata_hash": 0}),
        group_record(6, {"assignment_epoch": 2, "assignment_timestamp": 0}),
        group_record(7, {"topic_partitions": partitions}, "m"),
        group_record(
            8,
            {
                "member_epoch": epoch, "previous_member_epoch": 1, "state": state,
                "assigned_partitions": owned, "partitions_pending_revocation": [],
            },
            "m",
        ),
    ]  # fmt: skip


def test_consumer_groups(topic: TopicLog) -> None:
    partition = HealthyPartition(topic.folder.parent / "orders-1").write()
    metadata = ks.broker_state.PartitionMetadata(0, uuid_text(TOPIC_ID))
    ks.broker_state.write_partition_metadata(partition.folder / "partition.metadata", metadata)
    folder = topic.add(*consumer_member()).write()
    found = ks.read_groups(folder.parent)
    (group,), (member,) = found.groups.rows(), found.members.rows()
    assert (group["type"], group["state"], group["epoch"], group["assignment_epoch"]) == (
        "Consumer", "Stable", 2, 2,
    )  # fmt: skip
    owned = [{"topic": "orders", "topic_id": uuid_text(TOPIC_ID), "partitions": [1]}]
    assert (member["assignment"], member["target"]) == (owned, owned)
    assert (member["subscription_regex"], member["epoch"], member["state"]) == (
        "ord.*", 2, "Stable",
    )  # fmt: skip
    states = [ks.read_groups(folder.parent, as_of=n).groups["state"] for n in range(1, 6)]
    assert states == [["Reconciling"], ["Assigning"], ["Reconciling"], ["Reconciling"], ["Stable"]]


@pytest.mark.parametrize(
    ("member", "state"), [((0, 2), "Stable"), ((1, 2), "Reconciling"), ((0, 1), "Reconciling")]
)
def test_states_of_consumer_groups(topic: TopicLog, member: tuple[int, int], state: str) -> None:
    topic.add(*consumer_member(*member))
    assert ks.read_groups(topic.write().parent).groups["state"] == [state]


def test_share_groups(topic: TopicLog) -> None:
    topic.add(
        group_record(11, {"epoch": 4, "metadata_hash": 1}),
        group_record(
            10,
            {"rack_id": None, "client_id": "c", "client_host": "/h",
             "subscribed_topic_names": ["orders"]},
            "m",
        ),
    )  # fmt: skip
    found = ks.read_groups(topic.write().parent)
    assert (found.groups["type"], found.groups["state"]) == (["Share"], ["Stable"])
    assert found.members["subscription"] == [["orders"]]


def streams_member(state: int) -> list[KeyValue]:
    owned = [{"subtopology_id": "s", "partitions": [3], "assignment_epochs": None}]
    wanted = [{"subtopology_id": "s", "partitions": [3, 4]}]
    none: dict[str, list[object]] = {
        f"{role}_tasks{suffix}": []
        for role in ("active", "standby", "warmup")
        for suffix in ("", "_pending_revocation")
    }
    return [
        group_record(17, {"epoch": 2, "metadata_hash": 0, "validated_topology_epoch": 6}),
        group_record(
            19,
            {"instance_id": None, "rack_id": None, "client_id": "c", "client_host": "/h",
             "topology_epoch": 6, "process_id": "p", "user_endpoint": None, "client_tags": []},
            "m",
        ),
        group_record(20, {"assignment_epoch": 2}),
        group_record(
            21, {"active_tasks": wanted, "standby_tasks": [], "warmup_tasks": wanted}, "m"
        ),
        group_record(
            22,
            none | {"member_epoch": 2, "previous_member_epoch": 1, "state": state,
                    "active_tasks": owned},
            "m",
        ),
        group_record(23, {"epoch": 6, "subtopologies": []}),
    ]  # fmt: skip


def test_streams_groups(topic: TopicLog) -> None:
    folder = topic.add(*streams_member(1)).write()
    found = ks.read_groups(folder.parent)
    assert (found.groups["type"], found.groups["state"]) == (["Streams"], ["Stable"])
    assert found.members["tasks"] == [[{"role": "active", "subtopology": "s", "partitions": [3]}]]
    assert found.members["target_tasks"] == [
        [{"role": role, "subtopology": "s", "partitions": [3, 4]} for role in ("active", "warmup")]
    ]
    assert ks.read_groups(folder.parent, as_of=5).groups["state"] == ["NotReady"]


@pytest.mark.parametrize(
    ("code", "state", "of_group"),
    [
        (0, "Unknown", "Reconciling"),
        (1, "Stable", "Stable"),
        (2, "UnrevokedTasks", "Reconciling"),
        (3, "UnreleasedTasks", "Reconciling"),
    ],
)
def test_states_of_members_of_streams_groups(
    topic: TopicLog, code: int, state: str, of_group: str
) -> None:
    topic.add(*streams_member(code))
    found = ks.read_groups(topic.write().parent)
    assert (found.members["state"], found.groups["state"]) == ([state], [of_group])


def test_unknown_records_keep_their_bytes_and_are_named(topic: TopicLog) -> None:
    obsolete = struct.pack(">h", 9) + b"\0\1g", b"\0\0abc"
    key, value = commit("a", 0, 5)
    assert value is not None
    newer = key, b"\0\5" + value[2:]
    topic.add(obsolete, newer, (b"\0", b"x"))
    found = ks.read_groups(topic.write().parent)
    assert len(found.offsets) == 0
    assert not found.is_exact
    assert [(row["type"], row["key"], row["value"]) for row in found.unknown.rows()] == [
        (9, *obsolete), (1, *newer), (None, b"\0", b"x"),
    ]  # fmt: skip
    first, second, _ = found.problems
    assert str(first) == (
        f"{topic.folder}: offset 0: the record is ignored: unknown record type 9 [UNKNOWN_RECORD]"
    )
    assert "version 5 of OffsetCommitValue is not known, only 0 to 4" in second.message


def test_reset_plans_are_quoted_as_csv(topic: TopicLog) -> None:
    folder = topic.add(commit('-a,"b"', 0, 5)).write()
    assert ks.read_groups(folder.parent).reset_plan() == '"-a,""b""",orders,0,5\n'
    topic.add(commit("a\nb", 0, 5)).write()
    with pytest.raises(ValueError, match="line break"):
        ks.read_groups(folder.parent).reset_plan()


def test_tables(topic: TopicLog) -> None:
    folder = topic.add(*consumer_member(), commit("a", 0, 5), (b"\0", b"x")).write()
    found = ks.read_groups(folder)  # the folder of the partition
    for table in found.tables.values():
        with pytest.warns(IncompleteTableWarning, match="UNKNOWN_RECORD"):
            frame = table.to_pandas()
        assert list(frame.columns) == list(table.schema.names)
        assert len(frame) == len(table)
        assert table._repr_html_()
    assert repr(found).startswith("<Groups: 1 offsets, 2 groups, 1 members, 1 unknown, not exact>")
    assert "1 problems: " in repr(found)
    assert found._repr_html_().count("<table") == 4
    with pytest.raises(ks.format.UnknownColumnError, match="offsets"):
        found["ofsets"]
    found = ks.read_groups(topic.without([len(topic.batches) - 1]).write())
    assert found.offsets.to_polars()["commit_timestamp"].to_list()[0].year == 2024
    assert found.members.to_arrow()["assignment"].to_pylist()[0][0]["partitions"] == [1]
    assert found.select(["a"]).groups["group"] == ["a"]
    with pytest.raises(ks.format.UnknownColumnError, match="lag"):
        found.offsets["lagg"]


def test_a_dir_without_the_topic(tmp_path: Path) -> None:
    HealthyPartition(tmp_path / "orders-1").write()
    with pytest.raises(ks.format.NoLogsError, match="no partitions of __consumer_offsets here"):
        ks.read_groups(tmp_path)
