"""Transactions, producers and counts of a running broker's files equal those of its tools."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import kafkascan as ks
from tests.oracle.brokers import KafkaBroker
from tests.oracle.build import ClassPaths
from tests.oracle.clients import JavaClients, LibrdkafkaProducer, Message, Writer
from tests.oracle.live_lookups import consume_all
from tests.oracle.live_recovery import SHORT_SESSIONS, Partition
from tests.oracle.live_tools import end_offsets, last_stable_offsets, transactions_tool
from tests.oracle.runs import RUNS
from tests.oracle.stage import Stage
from tests.oracle.test_live import Finished

pytestmark = pytest.mark.oracle

_TOPIC = "many-transactions"
_PARTITIONS: list[Partition] = [(_TOPIC, 0), (_TOPIC, 1)]
_STEPS = 220


@dataclass
class Play:
    """Producers with random, valid actions, and their open transactions."""

    writers: list[Writer]
    dice: random.Random
    begun: set[int] = field(default_factory=set)
    number: int = 0

    def step(self) -> None:
        at = self.dice.randrange(len(self.writers))
        writer = self.writers[at]
        if at not in self.begun:
            writer.begin()
            self.begun.add(at)
        what = self.dice.random()
        if what < 0.7:
            writer.write(self._messages())
        elif what < 0.85:
            writer.commit()
            self.begun.discard(at)
        else:
            writer.abort()
            self.begun.discard(at)

    def _messages(self) -> list[Message]:
        found = []
        for _ in range(self.dice.randrange(1, 5)):
            self.number += 1
            value = b"v" * self.dice.randrange(200)
            partition = self.dice.randrange(2)
            key = b"%d" % self.number
            found.append(Message(_TOPIC, value, key, partition=partition))
        return found


@dataclass
class Live:
    broker: KafkaBroker
    class_paths: ClassPaths

    @property
    def servers(self) -> str:
        return self.broker.bootstrap_servers

    def folder(self, partition: int) -> Path:
        return self.broker.data_dir / f"{_TOPIC}-{partition}"


@pytest.fixture(scope="module")
def live(class_paths: ClassPaths, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    directory = tmp_path_factory.mktemp("live-logs")
    with KafkaBroker(directory, class_paths, SHORT_SESSIONS) as broker:
        servers, log_file = broker.bootstrap_servers, directory / "clients.log"
        with JavaClients(class_paths.broker, servers, log_file) as java:
            stage = Stage(broker, java)
            stage.create_topic(_TOPIC, partitions=2, internal_segment_bytes="8192")
            long = {"transaction_timeout_ms": "900000"}
            writers: list[Writer] = [
                stage.java_producer(transactional_id=f"java-{n}", compression_type=codec, **long)
                for n, codec in enumerate(("none", "lz4", "zstd"))
            ]
            writers += [
                stage.librdkafka_producer(transactional_id=f"librdkafka-{n}", **long)
                for n in range(2)
            ]
            plain = stage.java_producer(enable_idempotence="true")
            play = Play(writers, random.Random(8))
            for step in range(_STEPS):
                play.step()
                if step % 20 == 0:
                    plain.write(play._messages())
            while len(play.begun) < 2:
                play.step()
            for at in sorted(play.begun)[:2]:
                play.writers[at].write([Message(_TOPIC, b"left", b"open", partition=at % 2)])
            yield Live(broker, class_paths)
            for writer in writers:
                if isinstance(writer, LibrdkafkaProducer):
                    writer._producer.purge()


def test_transactions_end_as_the_broker_says(live: Live) -> None:
    found = ks.read_transactions(ks.open_log_dir(live.broker.data_dir))
    logs = {(log.partition.topic, log.partition.partition): n for n, log in enumerate(found.logs)}
    ends = end_offsets(live.class_paths, live.servers, _TOPIC)
    stable = last_stable_offsets(live.servers, _PARTITIONS)
    for one in _PARTITIONS:
        number = logs[one]
        assert found.end_offsets[number] == ends[one]
        assert found.last_stable_offsets[number] == stable[one]
        written = [path.read_bytes() for path in sorted(live.folder(one[1]).glob("*.txnindex"))]
        assert found.aborted(number).tobytes() == b"".join(written)
        assert len(found.aborted(number)) >= 5
    assert any(stable[one] < ends[one] for one in _PARTITIONS)
    assert found.is_open.sum() >= 2


def test_producers_are_those_of_describe_producers(live: Live) -> None:
    for topic, partition in _PARTITIONS:
        rows = transactions_tool(
            live.class_paths, live.servers, "describe-producers",
            "--topic", topic, "--partition", str(partition),
        )  # fmt: skip
        expected = {
            int(row["ProducerId"]): (
                int(row["ProducerEpoch"]),
                int(row["LatestCoordinatorEpoch"]),
                int(row["LastSequence"]),
                int(row["LastTimestamp"]),
                row["CurrentTransactionStartOffset"].replace("None", "-1"),
            )
            for row in rows
        }
        state = ks.analysis.read_producer_state(live.folder(partition))
        ours = {
            int(one["producer_id"]): (
                int(one["producer_epoch"]),
                int(one["coordinator_epoch"]),
                int(one["last_sequence"]),
                int(one["timestamp"]),
                str(one["current_txn_first_offset"]),
            )
            for one in state
        }
        assert ours == expected
        assert len(ours) >= 5
        census = ks.read_producers(live.folder(partition)).counts
        for column in ("sequence_gaps", "duplicates", "fenced"):
            assert census[column].sum() == 0


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_records_and_counts_are_those_of_a_consumer(live: Live, isolation: str) -> None:
    is_committed = isolation == "read_committed"
    theirs = consume_all(live.servers, _PARTITIONS, committed_only=is_committed)
    for one in _PARTITIONS:
        ours = {}
        for segment in sorted(live.folder(one[1]).glob("*.log")):
            table = ks.read_records(segment, isolation=isolation)  # type: ignore[arg-type]
            streamed = list(ks.iter_records(segment, isolation=isolation))  # type: ignore[arg-type]
            assert sum(map(len, streamed)) == len(table)
            ours |= {record.offset: (record.key, record.value) for record in table}
        assert ours == theirs[one]
        counts = ks.count_records(live.folder(one[1])).counts[0]
        assert counts["committed_records" if is_committed else "records"] == len(ours)
        assert len(ours) > 50


def test_a_live_data_dir_gives_no_alarm(live: Live) -> None:
    found = ks.audit(live.broker.data_dir, deep=True)
    assert found.alarms == []
    assert found.batches > 300
    assert found.segments > 10


def test_a_data_dir_that_is_written_to_gives_no_alarm(live: Live) -> None:
    done = threading.Event()

    def write(number: int) -> None:
        config = {"transactional.id": f"busy-{number}", "transaction.timeout.ms": "60000"}
        writer = LibrdkafkaProducer(live.servers, config)
        for step in range(10_000):
            if done.is_set() and step > 20:
                return
            writer.begin()
            value = b"v" * (step % 5000)
            messages = [Message(_TOPIC, value, b"k", partition=n % 2) for n in range(step % 7 + 1)]
            writer.write(messages)
            writer.abort() if step % 3 == number else writer.commit()

    with ThreadPoolExecutor(2) as pool:
        writers = [pool.submit(write, number) for number in range(2)]
        try:
            audits = [ks.audit(live.broker.data_dir, deep=number % 2 == 0) for number in range(30)]
        finally:
            done.set()
        for writer in writers:
            writer.result()
    assert [one.alarms for one in audits] == [[]] * 30
    assert audits[-1].batches > audits[0].batches + 20


_TRUE_ALARMS = {
    ("timestamps", "FUTURE_TIMESTAMP"),
    ("timestamps", "PAST_TIMESTAMP"),
    ("transactions", "HANGING_TRANSACTION"),
}
"""Intended findings of scenarios."""


@pytest.mark.parametrize("run_name", [run.name for run in RUNS])
def test_what_brokers_left_gives_no_false_alarm(run_name: str, finished: Finished) -> None:
    found = ks.audit(finished(run_name).data_dir, deep=True)
    assert {(one.topic, one.symbol) for one in found.alarms} <= _TRUE_ALARMS
    assert found.batches >= 15


def test_a_transaction_that_hangs_and_what_ends_it(live: Live) -> None:
    """The last test, because it deletes the coordinator's state."""
    tool = (live.class_paths, live.servers)
    at_once = ("--max-transaction-timeout", "0", "--topic", _TOPIC)
    assert transactions_tool(*tool, "find-hanging", *at_once) == []
    live.broker.stop()
    for path in (live.broker.data_dir / "__transaction_state-0").iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    live.broker.start()
    rows = transactions_tool(*tool, "find-hanging", *at_once)
    found = ks.read_transactions(live.broker.data_dir, timeout_ms=0)
    found = found.select(found.is_hanging)
    names = (
        "Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset",
        "LastTimestamp",
    )  # fmt: skip
    columns = found.to_columns()
    ours = zip(
        columns["topic"], columns["partition"], columns["producer_id"], columns["producer_epoch"],
        columns["coordinator_epoch"], columns["first_offset"], columns["last_timestamp"],
        strict=True,
    )  # fmt: skip
    expected = [tuple(row[name] for name in names) for row in rows]
    assert sorted(tuple(map(str, one)) for one in ours) == sorted(expected)
    assert len(expected) >= 2
    alarms = ks.audit(live.broker.data_dir, timeout_ms=0).alarms
    # Of the coordinator's own log, which was emptied, it says that its end is lost.
    assert {(one.topic, one.symbol) for one in alarms} >= {(_TOPIC, "HANGING_TRANSACTION")}
    symbols = {one.symbol for one in alarms if one.topic == _TOPIC}
    assert symbols == {"HANGING_TRANSACTION", "FORGOTTEN_TRANSACTION"}
    for row in range(len(found)):
        command = found.abort_command(row, bootstrap_server=live.servers)
        assert command is not None
        name, _, _, *arguments = command.split()
        assert name == "kafka-transactions.sh"
        transactions_tool(*tool, *arguments)
    _wait_for_markers(live)
    ended = ks.read_transactions(live.broker.data_dir)
    assert not ended.is_open.any()
    starts = set(found.spans["first_offset"].tolist())
    aborted = ended.spans[ended.spans["state"] == ks.broker_state.TransactionState.ABORTED]
    assert starts <= set(aborted["first_offset"].tolist())
    stable = last_stable_offsets(live.servers, _PARTITIONS)
    assert [stable[one] for one in _PARTITIONS] == [
        end_offsets(live.class_paths, live.servers, _TOPIC)[one] for one in _PARTITIONS
    ]


def _wait_for_markers(live: Live) -> None:
    for _ in range(100):
        if not ks.read_transactions(live.broker.data_dir).is_open.any():
            return
        time.sleep(0.1)
