"""What is read after DeleteRecords equals what a running broker serves."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

import kafkascan as ks
from kafkascan.broker_state.checkpoints import LOG_START_CHECKPOINT
from kafkascan.logs.reading import Isolation
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.planning.read_plan import plan_read
from kafkascan.spark.rows.task_scan import scan_task
from tests.oracle.brokers import KafkaBroker
from tests.oracle.build import ClassPaths
from tests.oracle.clients import JavaClients, Message
from tests.oracle.live_lookups import consume_all, list_offsets
from tests.oracle.live_recovery import Partition
from tests.oracle.live_tools import last_stable_offsets
from tests.oracle.stage import T0, Stage
from tests.support.waiting import HANG_SECONDS

pytestmark = pytest.mark.oracle

_PLAIN, _TRANSACTIONS = "deleted-plain", "deleted-transactions"
_CONFIG = {
    "log.flush.start.offset.checkpoint.interval.ms": "300",
    # Segments before the start stay on disk.
    "log.retention.check.interval.ms": "3600000",
}
# In the middle of batches, at their starts, and at the end of the log.
_SHARES = (0.1, 0.37, 0.61, 0.8, 1.0)


@dataclass
class Deleted:
    """A running broker that has deleted records."""

    broker: KafkaBroker
    starts: dict[Partition, int]

    def folder(self, partition: Partition) -> Path:
        return self.broker.data_dir / f"{partition[0]}-{partition[1]}"


@pytest.fixture(scope="module")
def deleted(class_paths: ClassPaths, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deleted]:
    directory = tmp_path_factory.mktemp("live-deletes")
    with KafkaBroker(directory, class_paths, _CONFIG) as broker:
        servers, log_file = broker.bootstrap_servers, directory / "clients.log"
        with JavaClients(class_paths.broker, servers, log_file) as java:
            _write(Stage(broker, java))
        partitions = [(topic, n) for topic in (_PLAIN, _TRANSACTIONS) for n in range(len(_SHARES))]
        ends = list(list_offsets(servers, [(one, -1) for one in partitions]))
        starts = {
            one: max(1, int(end.offset * _SHARES[one[1]]))
            for one, end in zip(partitions, ends, strict=True)
        }
        _delete(servers, starts)
        _wait_for_checkpoint(broker, starts)
        yield Deleted(broker, starts)


def _write(stage: Stage) -> None:
    partitions, dice = len(_SHARES), random.Random(4)
    for topic in (_PLAIN, _TRANSACTIONS):
        stage.create_topic(topic, partitions=partitions, internal_segment_bytes="2048")
    codecs = ("none", "gzip", "lz4", "zstd")
    plain = [stage.java_producer(compression_type=codec) for codec in codecs]
    begun = [stage.java_producer(transactional_id=f"deleted-{n}") for n in range(3)]
    number = 0

    def messages(topic: str) -> list[Message]:
        nonlocal number
        number += 20
        return [
            Message(topic, b"v" * dice.randrange(80), b"%d" % n, T0 + n, partition=partition)
            for partition in range(partitions)
            for n in range(number, number + dice.randrange(2, 9))
        ]

    for _ in range(10):
        for producer in plain:
            producer.write(messages(_PLAIN))
        for producer in begun:
            producer.begin()
            producer.write(messages(_TRANSACTIONS))
        for producer in begun:
            producer.write(messages(_TRANSACTIONS))
            producer.commit() if dice.random() < 0.6 else producer.abort()
    begun[0].begin()
    begun[0].write(messages(_TRANSACTIONS))
    plain[0].write(messages(_TRANSACTIONS))


def _delete(servers: str, starts: dict[Partition, int]) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    asked = [TopicPartition(*one, offset) for one, offset in starts.items()]
    for one, answer in admin.delete_records(asked).items():
        assert answer.result(30).low_watermark == starts[str(one.topic), int(one.partition)]


def _wait_for_checkpoint(broker: KafkaBroker, starts: dict[Partition, int]) -> None:
    path = broker.data_dir / LOG_START_CHECKPOINT
    deadline = time.monotonic() + HANG_SECONDS
    while time.monotonic() < deadline:
        if path.exists() and starts.items() <= ks.broker_state.read_offset_checkpoint(path).items():
            return
        time.sleep(0.2)
    raise TimeoutError(f"{path} does not contain {starts}")


def _records(folder: Path, isolation: Isolation) -> dict[int, tuple[bytes | None, bytes | None]]:
    table = ks.read_records(folder, isolation=isolation)
    keys, values = table.to_numpy()["key"].tolist(), table.to_numpy()["value"].tolist()
    found = zip(table["offset"].tolist(), keys, values, strict=True)
    return {offset: (key, value) for offset, key, value in found}


def test_records_and_counts(deleted: Deleted) -> None:
    servers, partitions = deleted.broker.bootstrap_servers, list(deleted.starts)
    served = consume_all(servers, partitions)
    committed = consume_all(servers, partitions, committed_only=True)
    stable = last_stable_offsets(servers, partitions)
    hidden = straddling = 0
    for one in partitions:
        folder, start = deleted.folder(one), deleted.starts[one]
        assert _records(folder, "read_uncommitted") == served[one]
        assert _records(folder, "read_committed") == committed[one]
        (counted,) = ks.count_records(folder).counts
        assert (counted["records"], counted["start_offset"]) == (len(served[one]), start)
        assert counted["committed_records"] == len(committed[one])
        assert counted["last_stable_offset"] == stable[one]
        assert ks.read_transactions(folder).last_stable_offsets[0] == stable[one]
        on_disk = ks.count_records(folder, log_start_offset=0).counts["records"][0]
        hidden += on_disk - counted["records"]
        batches = ks.scan_log_dir(folder).to_arrow(["base_offset"])["base_offset"].to_pylist()
        straddling += bool(batches) and batches[0] < start
    assert hidden > 100
    assert straddling >= 3


def test_spark_scans(deleted: Deleted) -> None:
    """The rows of Spark's tasks, of the whole data dir: what consumers get of each partition."""
    servers, partitions = deleted.broker.bootstrap_servers, list(deleted.starts)
    for is_committed in (False, True):
        served = consume_all(servers, partitions, committed_only=is_committed)
        isolation = "read_committed" if is_committed else "read_uncommitted"
        given = {"path": str(deleted.broker.data_dir), "topics": f"{_PLAIN},{_TRANSACTIONS}"}
        options = Options.parse(given | {"isolationLevel": isolation, "maxPartitionBytes": 3000})
        found: dict[Partition, dict[int, tuple[bytes, bytes]]] = {one: {} for one in partitions}
        for task in plan_read(options):
            for row in (row for batch in scan_task(task, options) for row in batch.to_pylist()):
                found[row["topic"], row["partition"]][row["offset"]] = row["key"], row["value"]
        assert found == {one: served[one] for one in partitions}


def test_lookups(deleted: Deleted) -> None:
    questions = [
        (one, T0 + time) for one in deleted.starts for time in (-1, 5, 200, 700, 1100, 10**6)
    ]
    answers = list_offsets(deleted.broker.bootstrap_servers, questions)
    for (partition, timestamp), answer in zip(questions, answers, strict=True):
        found = ks.lookup_timestamp(deleted.folder(partition), timestamp)
        assert (-1 if found is None else found.offset) == answer.offset, (partition, timestamp)


def test_after_a_restart(deleted: Deleted) -> None:
    """A broker loads the start offsets from the checkpoint, and an empty log if all is deleted."""
    deleted.broker.restart()
    servers = deleted.broker.bootstrap_servers
    for one, start in deleted.starts.items():
        (beginning,) = list_offsets(servers, [(one, -2)])
        assert beginning.offset == start
        assert ks.count_records(deleted.folder(one)).counts["start_offset"][0] == start
