"""Commands that follow the logs of a running broker show what consumers get."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

import kafkascan as ks
from tests.cli.test_following import following
from tests.oracle.brokers import KafkaBroker
from tests.oracle.build import ClassPaths
from tests.oracle.clients import JavaClients
from tests.oracle.jvm import wait_until
from tests.oracle.stage import Stage, messages
from tests.support.waiting import HANG_SECONDS

pytestmark = pytest.mark.oracle

_CONFIG = {
    "log.segment.bytes": "1048576",
    "log.retention.check.interval.ms": "300",
    "log.segment.delete.delay.ms": "100",
    "log.initial.task.delay.ms": "100",
}


@pytest.fixture(scope="module")
def stage(class_paths: ClassPaths, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    directory = tmp_path_factory.mktemp("following")
    with KafkaBroker(directory, class_paths, _CONFIG) as broker:
        log_file = directory / "clients.log"
        with JavaClients(class_paths.broker, broker.bootstrap_servers, log_file) as java:
            yield Stage(broker, java)


def is_gone(path: Path) -> bool:
    return not path.exists()


def segments_of(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.log"))


@pytest.mark.parametrize("preallocate", ["false", "true"])
def test_rolls_and_retention(stage: Stage, preallocate: str) -> None:
    topic = f"rolled-{preallocate}"
    stage.create_topic(topic, preallocate=preallocate)
    folder, writer = stage.broker.data_dir / f"{topic}-0", stage.java_producer()
    with following("records", folder, "--format", "jsonl", "--columns", "offset,key") as command:
        for start in range(0, 60, 3):
            writer.write(messages(topic, 3, start=start, size=60_000))
            # A segment that is deleted before it is read is a finding, and no error.
            assert command.offsets(3) == [start, start + 1, start + 2]
            if start == 30:
                first, second, *_ = segments_of(folder)
                assert first < second
                admin = AdminClient({"bootstrap.servers": stage.broker.bootstrap_servers})
                (done,) = admin.delete_records([TopicPartition(topic, 0, start)]).values()
                done.result(HANG_SECONDS)
                wait_until("deleted segments", partial(is_gone, folder / first))
        assert len(segments_of(folder)) > 1
        assert command.interrupt() == (0, "")


def test_transactions(stage: Stage) -> None:
    topic = "decided"
    stage.create_topic(topic)
    folder = stage.broker.data_dir / f"{topic}-0"
    committed, aborted = (stage.java_producer(transactional_id=f"follow-{n}") for n in range(2))
    arguments = ("--format", "jsonl", "--isolation", "read_committed")
    shown: list[int] = []
    with following("records", folder, *arguments) as command:
        for _ in range(3):
            committed.begin()
            committed.write(messages(topic, 2))
            aborted.begin()
            aborted.write(messages(topic, 3))
            committed.commit()
            aborted.abort()
            stage.java_producer().write(messages(topic, 1))
            shown += command.offsets(3)
        assert command.interrupt() == (0, "")
    expected = ks.read_records(folder, isolation="read_committed")["offset"].tolist()
    assert shown == expected
    assert len(shown) == 9


def test_it_is_never_far_behind(stage: Stage) -> None:
    """Print how long batches take from the acknowledgement to the line; docs give the goal."""
    topic = "prompt"
    stage.create_topic(topic)
    folder, writer = stage.broker.data_dir / f"{topic}-0", stage.java_producer()
    writer.write(messages(topic, 1))
    delays = []
    with following("records", folder, "--format", "jsonl") as command:
        command.offsets(1)
        for number in range(1, 51):
            writer.write(messages(topic, 1, start=number))
            start = time.perf_counter()
            assert command.offsets(1) == [number]
            delays.append(time.perf_counter() - start)
        command.interrupt()
    delays.sort()
    print(f"median {delays[25] * 1000:.0f} ms, longest {delays[-1] * 1000:.0f} ms")
