"""Real data directories to be recovered: filled, killed, started again, read back."""

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

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_FLUSH_SECONDS = 120.0

SHORT_SESSIONS = {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "200"}
"""The controller waits for the session of a killed broker to end before it takes the next one."""
_CLEAN = ".kafka_cleanshutdown"
_METADATA = "__cluster_metadata"

Partition = tuple[str, int]
Records = dict[Partition, dict[int, tuple[bytes | None, bytes | None]]]
"""Key and value by partition and offset."""


@dataclass(frozen=True)
class Load:
    """What is written: every topic gets the same number of records, in rounds."""

    partitions: int = 4
    """Of each of the topics, of which there is one per codec and a transactional one."""
    rounds: int = 5
    records_per_round: int = 200
    """Of each partition."""
    value_bytes: int = 100
    topic_config: Mapping[str, str] = field(
        default_factory=lambda: {"segment.bytes": "1048576", "index.interval.bytes": "4096"}
    )


@dataclass
class Written:
    """A data directory whose broker was killed, and what its clients know."""

    data_dir: Path
    broker_epoch: int = -1
    """Under which the broker was registered when it was killed."""
    acknowledged: Records = field(default_factory=dict)
    """What the broker confirmed, also of aborted and open transactions."""
    aborted: Records = field(default_factory=dict)
    """What of it belongs to transactions that were aborted, or never ended."""

    def committed(self) -> Records:
        """What a reader of committed records has to get."""
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
    """Start a broker, write with several producers, kill it while some of them still write."""
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
        # What is on its way at the end may arrive or not; only a confirmation promises anything.
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
        """Hand one round's records over."""
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
        """Wait until all is confirmed."""
        if waiting := self.producer.flush(_FLUSH_SECONDS):
            raise RuntimeError(f"{self._topic}: {waiting} records are not confirmed")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            _add(self._written.acknowledged, message)


class _TransactionalWriter(_Writer):
    """A producer whose transactions are committed, aborted, and in the end left open."""

    def __init__(self, servers: str, topic: str, codec: str, written: Written) -> None:
        super().__init__(servers, topic, codec, written)
        self._undecided: list[Message] = []
        self.producer.init_transactions(_FLUSH_SECONDS)

    def _config(self) -> dict[str, str]:
        return {"transactional.id": f"of-{self._topic}"}

    def write_transaction(self, load: Load, number: int) -> None:
        """Write a round; every third one is aborted."""
        self.producer.begin_transaction()
        self.write(load, number)
        self.flush()
        if number % 3 == 2:
            self.producer.abort_transaction(_FLUSH_SECONDS)
            self._give_up()
        else:
            self.producer.commit_transaction(_FLUSH_SECONDS)
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
    """Copy a data directory to where a `KafkaBroker` in `directory` looks for it.

    With `clean_epoch`, the broker's epoch, the copy gets the file that says that the broker had
    been stopped: it then takes the logs as they are. With an epoch that the controller does not
    know, the logs are taken, too, but each partition's leader is elected anew, uncleanly.
    """
    directory.mkdir(parents=True, exist_ok=True)
    copy = shutil.copytree(data_dir, directory / "data")
    (copy / _CLEAN).unlink(missing_ok=True)
    if clean_epoch is not None:
        (copy / _CLEAN).write_text(f'{{"version":0,"brokerEpoch":{clean_epoch}}}')
    return copy


@dataclass(frozen=True)
class Start:
    """How a broker came up, by its own log and by a clock outside."""

    serving_seconds: float
    """From the start of the process until a client got metadata; the JVM's start is in it."""
    loading_seconds: float
    """What the broker says that it spent on loading its logs."""
    logs: int
    """How many logs those were."""
    recovered_logs: int
    """How many of them it held for unclean."""
    recovered_segments: int
    unclean_elections: int
    """Of leaders of partitions, by the controller."""
    lines: tuple[str, ...]
    """What the broker logs about it; not of KRaft's log, which is recovered at every start."""


def start_and_time(broker: KafkaBroker) -> Start:
    """Start a broker on what its data directory holds; it is left running."""
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
    """Find the last epoch that a broker got, in its log."""
    *_, epoch = re.findall(r"Successfully registered broker \d+ with broker epoch (\d+)", text)
    return int(epoch)


def _create_topics(servers: str, load: Load) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    names = [*(f"idempotent-{codec}" for codec in CODECS), "transactional"]
    topics = [NewTopic(name, load.partitions, 1, config=dict(load.topic_config)) for name in names]
    for created in admin.create_topics(topics).values():
        created.result(_FLUSH_SECONDS)
    time.sleep(1.0)


def _add(records: Records, message: Message) -> None:
    partition = (str(message.topic()), int(message.partition() or 0))
    found = records.setdefault(partition, {})
    found[int(message.offset() or 0)] = (message.key(), message.value())
