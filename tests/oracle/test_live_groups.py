"""Groups and offsets that are read from files equal those that a running broker reports."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

import kafkascan as ks
from kafkascan.format.file_names import GROUPS_TOPIC
from tests.oracle.brokers import KafkaBroker
from tests.oracle.build import ClassPaths
from tests.oracle.clients import JavaClients
from tests.oracle.jvm import wait_until
from tests.oracle.live_tools import reset_offsets, transactions_tool
from tests.oracle.stage import Stage, messages
from tests.support.command_line import run
from tests.support.waiting import HANG_SECONDS

pytestmark = pytest.mark.oracle

_TOPIC, _PARTITIONS = "orders", 3
_CONFIG = {"log.segment.bytes": "1048576", "offsets.topic.segment.bytes": "1048576"}

Offsets = dict[tuple[str, str, int], tuple[int, str]]


@dataclass
class Moment:
    """The end of ``__consumer_offsets`` and the offsets that the broker reported there."""

    end_offset: int
    offsets: Offsets


@dataclass
class Live:
    """A running broker with groups, and what it reported in between."""

    broker: KafkaBroker
    moments: list[Moment] = field(default_factory=list)

    # It answers only while it is referred to.
    @functools.cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.broker.bootstrap_servers, "log_level": 0})

    @property
    def end_offset(self) -> int:
        end = ks.open_log_dir(self.broker.data_dir / f"{GROUPS_TOPIC}-0").partitions[0]
        return end.find_end_offset() or 0

    def note(self) -> None:
        """Note what the broker reports now."""
        self.moments.append(Moment(self.end_offset, reported_offsets(self.admin)))


def group_names(admin: AdminClient) -> list[str]:
    listed = admin.list_consumer_groups().result(HANG_SECONDS)
    return sorted(one.group_id for one in listed.valid)


def reported_offsets(admin: AdminClient) -> Offsets:
    found = {}
    for group in group_names(admin):
        asked = [ConsumerGroupTopicPartitions(group)]
        (answer,) = admin.list_consumer_group_offsets(asked).values()
        for one in answer.result(HANG_SECONDS).topic_partitions:
            found[group, one.topic, one.partition] = (one.offset, one.metadata or "")
    return found


def read_offsets(groups: ks.internal_topics.Groups) -> Offsets:
    return {
        # librdkafka commits metadata with its terminator, and reads texts up to it.
        (row["group"], row["topic"], row["partition"]): (
            row["offset"],
            row["metadata"].rstrip("\0"),
        )
        for row in groups.offsets.rows()
    }


@pytest.fixture(scope="module")
def live(class_paths: ClassPaths, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    directory = tmp_path_factory.mktemp("live-groups")
    with KafkaBroker(directory, class_paths, _CONFIG) as broker:
        servers, log_file = broker.bootstrap_servers, directory / "clients.log"
        with JavaClients(class_paths.broker, servers, log_file) as java:
            found = Live(broker)
            members = list(_play(Stage(broker, java), found))
            yield found
            for member in members:
                member.close()


def _play(stage: Stage, live: Live) -> Iterator[Consumer]:
    stage.create_topic(_TOPIC, partitions=_PARTITIONS)
    writer = stage.java_producer()
    for partition in range(_PARTITIONS):
        writer.write(messages(_TOPIC, 20, partition=partition))
    for protocol in ("classic", "consumer"):
        config = {"group.id": f"java-{protocol}", "group.protocol": protocol}
        stage.java.call("consumeAndCommit", topic=_TOPIC, count=60, config=config)
        live.note()
    for protocol in ("classic", "consumer"):
        yield _member(stage.broker.bootstrap_servers, f"staying-{protocol}", protocol)
        live.note()
    committed, open_one = (stage.java_producer(transactional_id=f"t{n}") for n in range(2))
    committed.begin()
    committed.send_offsets("transactional", _TOPIC, 7)
    live.note()
    committed.commit()
    wait_until("the marker", lambda: ("transactional", _TOPIC, 0) in reported_offsets(live.admin))
    live.note()
    committed.begin()
    committed.send_offsets("transactional", _TOPIC, 9)
    committed.abort()
    _commit(stage.broker.bootstrap_servers, "java-classic", 3)
    live.note()
    open_one.begin()
    open_one.send_offsets("transactional", _TOPIC, 11)
    live.admin.delete_consumer_groups(["java-consumer"])["java-consumer"].result(HANG_SECONDS)
    live.note()


def _member(servers: str, group: str, protocol: str) -> Consumer:
    """Return a member of a group that has its assignment and has committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers, "group.id": group, "client.id": f"client-{group}",
            "group.protocol": protocol, "auto.offset.reset": "earliest",
            "enable.auto.commit": False, "log_level": 0,
        }
    )  # fmt: skip
    consumer.subscribe([_TOPIC])
    seen = 0
    for _ in range(120):
        seen += len(consumer.consume(60 - seen, timeout=1.0))
        if seen == 60:
            break
    consumer.commit(asynchronous=False)
    return consumer


def _commit(servers: str, group: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "log_level": 0})
    place = TopicPartition(_TOPIC, 1, offset, metadata="rewound")
    consumer.commit(offsets=[place], asynchronous=False)
    consumer.close()


def test_offsets(live: Live) -> None:
    found = ks.read_groups(live.broker.data_dir)
    assert found.is_exact
    assert list(found.problems) == []
    assert read_offsets(found) == reported_offsets(live.admin)
    assert len(found.pending) == 1
    assert (found.pending["group"], found.pending["offset"]) == (["transactional"], [11])
    lags = {row["lag"] for row in found.offsets.rows() if row["group"] == "staying-classic"}
    assert lags == {0}


def test_offsets_as_of_earlier_moments(live: Live) -> None:
    assert len(live.moments) >= 7
    for moment in live.moments:
        found = ks.read_groups(live.broker.data_dir, as_of=moment.end_offset)
        assert found.is_exact
        assert read_offsets(found) == moment.offsets


def test_groups_and_members(live: Live) -> None:
    found = ks.read_groups(live.broker.data_dir)
    names = group_names(live.admin)
    assert found.groups["group"] == names
    described = live.admin.describe_consumer_groups(names)
    for name in names:
        expected = described[name].result(HANG_SECONDS)
        (group,) = found.groups.where(group=name).rows()
        assert group["type"].upper() == expected.type.name
        assert group["state"].upper() == expected.state.name
        assert (group["protocol"] or "") == (
            expected.partition_assignor if group["type"] == "Classic" else ""
        )
        members = found.members.where(group=name).rows()
        assert sorted(map(_member_of, members)) == sorted(
            (
                one.member_id, one.client_id, one.host,
                sorted((at.topic, at.partition) for at in one.assignment.topic_partitions),
            )
            for one in expected.members
        )  # fmt: skip
    assert set(found.groups["state"]) == {"Empty", "Stable"}


def _member_of(row: dict[str, Any]) -> tuple[object, ...]:
    owned = [(one["topic"], number) for one in row["assignment"] for number in one["partitions"]]
    return row["member_id"], row["client_id"], row["client_host"], sorted(owned)


def test_transactional_ids(live: Live, class_paths: ClassPaths) -> None:
    found = ks.read_transaction_state(live.broker.data_dir)
    expected = transactions_tool(class_paths, live.broker.bootstrap_servers, "list")
    rows = found.transactions.rows()
    assert [(row["transactional_id"], str(row["producer_id"]), row["status"]) for row in rows] == (
        sorted((row["TransactionalId"], row["ProducerId"], row["TransactionState"])
               for row in expected)
    )  # fmt: skip
    assert [row["status"] for row in rows] == ["CompleteAbort", "Ongoing"]
    assert rows[1]["partitions"] == [{"topic": GROUPS_TOPIC, "topic_id": None, "partitions": [0]}]
    transactions = ks.read_transactions(live.broker.data_dir)
    assert transactions.is_open.sum() == 1
    assert len(ks.analysis.find_contradictions(found, transactions)) == 0


def test_offsets_are_restored_into_another_cluster(
    live: Live, class_paths: ClassPaths, tmp_path: Path
) -> None:
    """The recipe of docs/kafka-state.md."""
    plan = tmp_path / "plan.csv"
    done = run("groups", live.broker.data_dir, "--format", "csv", "--output", plan)
    assert done.returncode == 0, done.stderr
    groups = ["java-classic", "staying-consumer", "transactional"]
    with KafkaBroker(tmp_path / "new", class_paths, _CONFIG) as broker:
        servers = broker.bootstrap_servers
        with JavaClients(class_paths.broker, servers, tmp_path / "clients.log") as java:
            stage = Stage(broker, java)
            stage.create_topic(_TOPIC, partitions=_PARTITIONS)
            for partition in range(_PARTITIONS):
                stage.java_producer().write(messages(_TOPIC, 20, partition=partition))
            reset_offsets(class_paths, servers, groups, plan)
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        restored = {place: offset for place, (offset, _) in reported_offsets(admin).items()}
    expected = {
        place: offset
        for place, (offset, _) in reported_offsets(live.admin).items()
        if place[0] in groups
    }
    assert restored == expected
    assert restored["transactional", _TOPIC, 0] == 7
