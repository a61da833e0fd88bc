"""Share groups that are read from files equal those of Kafka's share coordinator."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.format.file_names import SHARE_TOPIC
from kafkascan.internal_topics.share_states import (
    StateBatch,
    batches_from,
    combine_batches,
)
from tests.oracle.brokers import KafkaBroker
from tests.oracle.build import ClassPaths
from tests.oracle.clients import JavaClients
from tests.oracle.jvm import java_command, wait_until
from tests.oracle.stage import Stage, messages
from tests.support.internal_topics import KeyValue, TopicLog, share_snapshot, share_update

pytestmark = pytest.mark.oracle

_TOPIC, _PARTITIONS, _COUNT = "orders", 2, 40
_CONFIG = {
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.snapshot.update.records.per.snapshot": "3",
}
_PRUNING = {"share.coordinator.state.topic.prune.interval.ms": "500"}

# Group, topic id and partition; then numbers, and batches.
States = dict[tuple[str, str, int], tuple[tuple[int, ...], list[StateBatch]]]


def replayed_by_kafka(class_paths: ClassPaths, logs: list[list[KeyValue]]) -> list[States]:
    """Return the states after each log, as Kafka's coordinator loads it."""
    lines = []
    for log in logs:
        lines += [
            f"{key.hex()} {'-' if value is None else value.hex()}" for key, value in log if key
        ]
        lines += ["?", "!"]
    printed = subprocess.run(
        java_command(class_paths.broker, "kafkascan.oracle.ShareReplay"),
        input="\n".join(lines), capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    answers = printed.split("\n\n")[:-1] if not printed.startswith("\n") else [""]
    return [dict(_state(line) for line in one.splitlines() if line) for one in answers]


def _state(line: str) -> tuple[tuple[str, str, int], tuple[tuple[int, ...], list[StateBatch]]]:
    group, topic_id, partition, *numbers, batches = line.split("\t")
    start = int(numbers[0])
    listed = [StateBatch(*map(int, one.split(":"))) for one in batches.split(",") if one]
    return (group, topic_id, int(partition)), (
        tuple(map(int, numbers)),
        # The coordinator may leave adjacent batches of the same state apart.
        combine_batches(batches_from(listed, start)),
    )


_STATES = {"Available": 0, "Acquired": 1, "Acknowledged": 2, "Archiving": 3, "Archived": 4}
_NUMBERS = (
    "start_offset", "state_epoch", "leader_epoch", "snapshot_epoch", "delivery_complete_count",
    "create_timestamp", "write_timestamp",
)  # fmt: skip


def read_states(found: ks.internal_topics.ShareState) -> States:
    states: States = {
        (row["group"], row["topic_id"], row["partition"]): (
            tuple(row[name] for name in _NUMBERS),
            [],
        )
        for row in found.partitions.rows()
    }
    for row in found.batches.rows():
        states[row["group"], row["topic_id"], row["partition"]][1].append(
            StateBatch(
                row["first_offset"], row["last_offset"], _STATES[row["delivery_state"]],
                row["delivery_count"],
            )
        )  # fmt: skip
    return states


def start_offsets(found: ks.internal_topics.ShareState) -> dict[str, int]:
    # Brokers report no partition before its first fetch.
    rows = [row for row in found.partitions.rows() if row["start_offset"] != -1]
    return {f"{row['topic']}-{row['partition']}": row["start_offset"] for row in rows}


def log_records(folder: Path) -> list[KeyValue]:
    table = ks.read_records(folder, columns=("key", "value"))
    return list(zip(table.items("key"), table.items("value"), strict=True))


def test_random_logs(class_paths: ClassPaths, tmp_path: Path) -> None:
    logs = [random_log(random.Random(seed)) for seed in range(300)]
    for number, (log, expected) in enumerate(
        zip(logs, replayed_by_kafka(class_paths, logs), strict=True)
    ):
        folder = TopicLog(tmp_path / str(number) / f"{SHARE_TOPIC}-0").add(*log).write()
        assert read_states(ks.read_share_state(folder)) == expected, number


def random_log(dice: random.Random) -> list[KeyValue]:
    log = [share_snapshot("g0", 0)]
    known = {("g0", 0)}
    for _ in range(dice.randrange(1, 40)):
        place = f"g{dice.randrange(2)}", dice.randrange(2)
        start = dice.choice([-1, dice.randrange(60)])
        batches = [random_batch(dice) for _ in range(dice.randrange(5))]
        if place not in known or dice.random() < 0.1:
            log.append(
                share_snapshot(*place, start=start, batches=batches, epoch=dice.randrange(9))
            )
            known.add(place)
        elif dice.random() < 0.05:
            log.append(share_snapshot(*place, deleted=True))
            known.discard(place)
        else:
            log.append(share_update(*place, start=start, batches=batches))
    return log


def random_batch(dice: random.Random) -> tuple[int, int, int, int]:
    first = dice.randrange(60)
    return first, first + dice.randrange(15), dice.choice([0, 2, 4]), dice.randrange(1, 4)


@dataclass
class Live:
    """A running broker with share groups, and the start offsets that it reported in between."""

    broker: KafkaBroker
    java: JavaClients
    moments: list[tuple[int, dict[str, int]]]

    @property
    def folder(self) -> Path:
        return self.broker.data_dir / f"{SHARE_TOPIC}-0"

    def reported(self, group: str) -> dict[str, int]:
        starts: dict[str, int] = self.java.call("shareOffsets", group=group)
        return starts

    def consume(self, group: str, count: int, *types: str) -> None:
        seen = self.java.call(
            "shareConsume", topic=_TOPIC, count=count, acknowledge=list(types),
            config={"group.id": group, "max.poll.records": "5"},
        )  # fmt: skip
        assert seen >= count
        end = ks.open_log_dir(self.folder).partitions[0].find_end_offset() or 0
        self.moments.append((end, self.reported("g")))


@pytest.fixture(scope="module")
def live(class_paths: ClassPaths, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    directory = tmp_path_factory.mktemp("share-groups")
    with KafkaBroker(directory, class_paths, _CONFIG) as broker:
        log_file = directory / "clients.log"
        with JavaClients(class_paths.broker, broker.bootstrap_servers, log_file) as java:
            found = Live(broker, java, [])
            stage = Stage(broker, java)
            stage.create_topic(_TOPIC, partitions=_PARTITIONS)
            writer = stage.java_producer()
            for partition in range(_PARTITIONS):
                for start in range(0, _COUNT, 5):
                    writer.write(messages(_TOPIC, 5, start=start, partition=partition))
            found.consume("g", 20, "ACCEPT")
            found.consume("g", 20, "ACCEPT", "RELEASE", "REJECT")
            found.consume("deleted", 10, "ACCEPT")
            java.call("shareDelete", group="deleted")
            found.consume("g", 10, "REJECT", "ACCEPT")
            yield found


def test_states(live: Live, class_paths: ClassPaths) -> None:
    found = ks.read_share_state(live.broker.data_dir)
    assert list(found.problems) == []
    records = log_records(live.folder)
    types = {key[:2] for key, _ in records if key}
    assert types == {b"\0\0", b"\0\1"}
    (expected,) = replayed_by_kafka(class_paths, [records])
    assert read_states(found) == expected
    assert start_offsets(found) == live.reported("g")
    assert set(found.partitions["group"]) == {"g"}


def test_states_as_of_earlier_moments(live: Live) -> None:
    for end, reported in live.moments:
        found = ks.read_share_state(live.broker.data_dir, as_of=end)
        assert found.is_exact
        assert start_offsets(found.select({"g"})) == reported


def test_states_of_a_pruned_log(class_paths: ClassPaths, tmp_path: Path) -> None:
    with KafkaBroker(tmp_path, class_paths, _CONFIG | _PRUNING) as broker:
        log_file = tmp_path / "clients.log"
        with JavaClients(class_paths.broker, broker.bootstrap_servers, log_file) as java:
            live, stage = Live(broker, java, []), Stage(broker, java)
            stage.create_topic(_TOPIC)
            for start in range(0, 200, 5):
                stage.java_producer().write(messages(_TOPIC, 5, start=start))
            for _ in range(8):
                live.consume("g", 15, "ACCEPT", "REJECT")
            wait_until("deleted records", lambda: log_start(live.broker.data_dir) > 0)
            reported = live.reported("g")
        broker.stop()
        start = log_start(broker.data_dir)
        found = ks.read_share_state(broker.data_dir)
        assert found.is_exact
        assert found.partitions["start_offset"] == [reported[f"{_TOPIC}-0"]]
        assert not ks.read_share_state(broker.data_dir, as_of=start).is_exact


def log_start(data_dir: Path) -> int:
    checkpoint = data_dir / "log-start-offset-checkpoint"
    if not checkpoint.exists():
        return 0
    offsets = ks.broker_state.read_offset_checkpoint(checkpoint)
    return next((offset for (topic, _), offset in offsets.items() if topic == SHARE_TOPIC), 0)
