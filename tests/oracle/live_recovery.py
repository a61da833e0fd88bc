"""Real data directories for recovery: filled, killed, restarted, read back."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.oracle.brokers import KafkaBroker
from tests.oracle.build import ClassPaths
from tests.oracle.stage import T0, filler
from tests.support.waiting import HANG_SECONDS

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

SHORT_SESSIONS = {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "200"}
"""The controller accepts a broker again after the session of the killed one has ended."""
_CLEAN = ".kafka_cleanshutdown"
_METADATA = "__cluster_metadata"

Partition = tuple[str, int]
Records = dict[Partition, dict[int, tuple[bytes | None, bytes | None]]]
"""Key and value by partition and offset."""


@dataclass(frozen=True)
class Load:
    """The written records: every topic gets the same number, in rounds."""

    partitions: int = 4
    """Of each topic; there is one topic per codec and a transactional one."""
    rounds: int = 5
    records_per_round: int = 200
    """Of each partition."""
    value_bytes: int = 100
    topic_config: Mapping[str, str] = field(
        default_factory=lambda: {"segment.bytes": "1048576", "index.interval.bytes": "4096"}
    )


@dataclass
class Written:
    """A data directory whose broker was killed, with the state of its clients."""

    data_dir: Path
    broker_epoch: int = -1
    """The broker's epoch when it was killed."""
    acknowledged: Records = field(default_factory=dict)
    """All confirmed records, including those of aborted and open transactions."""
    aborted: Records = field(default_factory=dict)
    """Confirmed records of transactions that were aborted or did not end."""

    def committed(self) -> Records:
        """Return the records that a read_committed consumer must get."""
        return {
            partition: {
                offset: record
                for offset, record in records.items()
                if offset not in self.aborted.get(partition, {})
            }
            for partition, records in self.acknowledged.items()
        }


def fill_and_kill(
    directory: Path, class_paths: ClassPaths, load: Load, config: Mapping[str, str] | None = None
) -> Written:
    """Start a broker, write with several producers, kill it while producers write."""
    with KafkaBroker(directory, class_paths, {**SHORT_SESSIONS, **(config or {})}) as broker:
        written = Written(broker.data_dir)
        servers = broker.bootstrap_servers
        _create_topics(servers, load)
        idempotent = [_Writer(servers, f"idempotent-{codec}", codec, written) for codec in CODECS]
        transactional = _TransactionalWriter(servers, "transactional", "lz4", written)
        for number in range(load.rounds):
            for writer in idempotent:
                writer.write(load, number)
                writer.flush()
            transactional.write_transaction(load, number)
        # Records in flight may arrive or not; only a confirmation is a promise.
        for writer in idempotent:
            writer.write(load, load.rounds)
        transactional.leave_open(load, load.rounds)
        broker.kill()
    written.broker_epoch = _broker_epoch(broker.log_file.read_text(errors="replace"))
    return written


class _Writer:
    """An idempotent producer of one topic."""

    def __init__(self, servers: str, topic: str, codec: str, written: Written) -> None:
        self._topic = topic
        self._written = written
        self.producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "compression.type": codec,
                "linger.ms": 5,
                "log_level": 0,
                **self._config(),
            }
        )

    def _config(self) -> dict[str, str]:
        return {}

    def write(self, load: Load, number: int) -> None:
        """Send the records of one round."""
        for at in range(number * load.records_per_round, (number + 1) * load.records_per_round):
            value = filler(f"{self._topic}/{at}", load.value_bytes)
            for partition in range(load.partitions):
                self.producer.produce(
                    self._topic,
                    value,
                    f"key-{at % 50}",
                    partition=partition,
                    timestamp=T0 + at * 10,
                    on_delivery=self._delivered,
                )
            self.producer.poll(0)

    def flush(self) -> None:
        """Wait until all records are confirmed."""
        if waiting := self.producer.flush(HANG_SECONDS):
            raise RuntimeError(f"{self._topic}: {waiting} records are not confirmed")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            _add(self._written.acknowledged, message)


class _TransactionalWriter(_Writer):
    """A producer that commits and aborts transactions, and leaves the last one open."""

    def __init__(self, servers: str, topic: str, codec: str, written: Written) -> None:
        super().__init__(servers, topic, codec, written)
        self._undecided: list[Message] = []
        self.producer.init_transactions(HANG_SECONDS)

    def _config(self) -> dict[str, str]:
        return {"transactional.id": f"of-{self._topic}"}

    def write_transaction(self, load: Load, number: int) -> None:
        """Write a round; every third one is aborted."""
        self.producer.begin_transaction()
        self.write(load, number)
        self.flush()
        if number % 3 == 2:
            self.producer.abort_transaction(HANG_SECONDS)
            self._give_up()
        else:
            self.producer.commit_transaction(HANG_SECONDS)
        self._undecided.clear()

    def leave_open(self, load: Load, number: int) -> None:
        """Write a round whose transaction does not end."""
        self.producer.begin_transaction()
        self.write(load, number)
        self.flush()
        self._give_up()

    def _give_up(self) -> None:
        for message in self._undecided:
            _add(self._written.aborted, message)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        super()._delivered(error, message)
        if error is None:
            self._undecided.append(message)


def copy_data_dir(data_dir: Path, directory: Path, *, clean_epoch: int | None = None) -> Path:
    """Copy a data directory to the path that a `KafkaBroker` in `directory` uses.

    With `clean_epoch`, the broker's epoch, the copy gets the file that says that the broker had
    been stopped: it then takes the logs as they are. With an epoch that the controller does not
    know, the logs are accepted, too, but each partition's leader is elected again, uncleanly.
    """
    directory.mkdir(parents=True, exist_ok=True)
    copy = shutil.copytree(data_dir, directory / "data")
    (copy / _CLEAN).unlink(missing_ok=True)
    if clean_epoch is not None:
        (copy / _CLEAN).write_text(f'{{"version":0,"brokerEpoch":{clean_epoch}}}')
    return copy


@dataclass(frozen=True)
class Start:
    """The start of a broker: its log lines and the measured time."""

    serving_seconds: float
    """From the start of the process, including the JVM's, until a client got metadata."""
    loading_seconds: float
    """The time for loading logs that the broker reports."""
    logs: int
    """The number of loaded logs."""
    recovered_logs: int
    """The number of logs that it recovered."""
    recovered_segments: int
    unclean_elections: int
    """Elections of partition leaders by the controller."""
    lines: tuple[str, ...]
    """The broker's log lines, without KRaft's log, which is recovered at every start."""


def start_and_time(broker: KafkaBroker) -> Start:
    """Start a broker on its data directory; it keeps running."""
    already = broker.log_file.stat().st_size if broker.log_file.exists() else 0
    begin = time.monotonic()
    broker.start()
    seconds = time.monotonic() - begin
    with broker.log_file.open("rb") as log:
        log.seek(already)
        return _parse(log.read().decode(errors="replace"), seconds)


def _parse(text: str, seconds: float) -> Start:
    said = re.search(r"Loaded (\d+) logs in (\d+) ?ms", text)
    if said is None:
        raise RuntimeError("the broker does not say how long it loaded its logs")
    loading = re.compile(r"storage\.internals\.log\.(LogManager|LogLoader|UnifiedLog|LogSegment)\)")
    lines = [line for line in text.splitlines() if loading.search(line) and _METADATA not in line]
    return Start(
        serving_seconds=seconds,
        loading_seconds=int(said[2]) / 1000,
        logs=int(said[1]),
        recovered_logs=sum(int(n) for n in re.findall(r"Recovering (\d+) logs from", text)),
        recovered_segments=sum("Recovering unflushed segment" in line for line in lines),
        unclean_elections=text.count("using an unclean election"),
        lines=tuple(lines),
    )


def _broker_epoch(text: str) -> int:
    """Return the last broker epoch in a broker's log."""
    *_, epoch = re.findall(r"Successfully registered broker \d+ with broker epoch (\d+)", text)
    return int(epoch)


def _create_topics(servers: str, load: Load) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    names = [*(f"idempotent-{codec}" for codec in CODECS), "transactional"]
    topics = [NewTopic(name, load.partitions, 1, config=dict(load.topic_config)) for name in names]
    for created in admin.create_topics(topics).values():
        created.result(HANG_SECONDS)
    time.sleep(1.0)


def _add(records: Records, message: Message) -> None:
    partition = (str(message.topic()), int(message.partition() or 0))
    found = records.setdefault(partition, {})
    found[int(message.offset() or 0)] = (message.key(), message.value())
