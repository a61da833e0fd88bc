"""The tools of a scenario: a running broker, both clients, and its expectations."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.oracle.brokers import Broker
from tests.oracle.clients import JavaClients, JavaProducer, LibrdkafkaProducer, Message
from tests.support.kafka_dump import LogDump

T0 = 1_714_000_000_000
"""The time of the scenarios, in milliseconds: 2024-04-24T23:06:40Z."""


@dataclass
class Stage:
    """A running broker with clients."""

    broker: Broker
    java: JavaClients

    def create_topic(self, topic: str, partitions: int = 1, **config: str) -> None:
        """Create a topic; `segment_ms="5"` stands for `segment.ms=5`."""
        self.java.call("createTopic", topic=topic, partitions=partitions, config=_dotted(config))

    def alter_topic(self, topic: str, **config: str) -> None:
        """Change a topic's configuration."""
        self.java.call("alterTopic", topic=topic, config=_dotted(config))
        # The log follows later, and no request reports when.
        time.sleep(1.0)

    def cleaned_up_to(self, topic: str) -> int:
        """Return the offset up to which the cleaner has cleaned, from the broker's checkpoint."""
        checkpoint = self.broker.data_dir / "cleaner-offset-checkpoint"
        # A broker that has just started writes it later.
        lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
        for line in lines:
            if line.startswith(f"{topic} 0 "):
                return int(line.split()[2])
        return 0

    def java_producer(self, **config: str) -> JavaProducer:
        """Open a producer of Kafka's Java client."""
        return self.java.producer(_dotted(config))

    def librdkafka_producer(self, **config: str) -> LibrdkafkaProducer:
        """Open a producer of librdkafka."""
        return LibrdkafkaProducer(self.broker.bootstrap_servers, _dotted(config))


@dataclass
class Evidence:
    """Kafka's description of the files of a scenario's topics."""

    batches: list[dict[str, Any]] = field(default_factory=list)
    """BatchFields' rows of all segments, each with its `file`."""
    ends: dict[Path, str] = field(default_factory=dict)
    """The end state of each segment."""
    dumps: dict[Path, LogDump] = field(default_factory=dict)
    """The output of DumpLogSegments for each segment."""
    index_entries: int = 0
    """Entries of all offset indexes."""

    def add(self, log: Path, fields: str, dump: LogDump, index_entries: int) -> None:
        """Add one segment."""
        *rows, end = [json.loads(line) for line in fields.splitlines()]
        self.batches += [{**row, "file": log} for row in rows]
        self.ends[log] = end["end"]
        self.dumps[log] = dump
        self.index_entries += index_entries

    def data_batches(self) -> list[dict[str, Any]]:
        """Return the batches with records of clients."""
        return [batch for batch in self.batches if not batch["isControlBatch"]]

    def values(self, name: str) -> set[Any]:
        """Return the distinct values of one field."""
        return {batch[name] for batch in self.batches}

    def record_texts(self) -> Iterator[str]:
        """Yield every record line of the dump."""
        for dump in self.dumps.values():
            for batch in dump.batches:
                yield from (record.text for record in batch.records)

    def words(self, name: str) -> set[str]:
        """Return each distinct `name: word` of the record lines."""
        pattern = re.compile(rf"\b{name}: \S+")
        return {word for text in self.record_texts() for word in pattern.findall(text)}


@dataclass(frozen=True)
class Promise:
    """A condition on the files that shows that the scenario happened."""

    text: str
    holds: Callable[[Evidence], object]


@dataclass(frozen=True)
class Scenario:
    """A sequence of actions on a broker, and the expected content of the files."""

    name: str
    description: str
    topics: tuple[str, ...]
    writers: tuple[str, ...]
    promises: tuple[Promise, ...]
    play: Callable[[Stage], None]


def scenario(
    *,
    topics: Sequence[str],
    promises: dict[str, Callable[[Evidence], object]],
    writers: Sequence[str] = ("java",),
) -> Callable[[Callable[[Stage], None]], Scenario]:
    """Turn a documented function into a scenario of the same name."""

    def decorate(play: Callable[[Stage], None]) -> Scenario:
        return Scenario(
            name=play.__name__.replace("_", "-"),
            description=" ".join((play.__doc__ or "").split()),
            topics=tuple(topics),
            writers=tuple(writers),
            promises=tuple(Promise(text, holds) for text, holds in promises.items()),
            play=play,
        )

    return decorate


def messages(
    topic: str, count: int, *, start: int = 0, size: int = 12, partition: int = 0
) -> list[Message]:
    """Return `count` keyed messages, one millisecond apart; the same in each call."""
    return [
        Message(
            topic,
            value=filler(f"{topic}/{number}", size),
            key=f"key-{number}".encode(),
            timestamp=T0 + number,
            partition=partition,
        )
        for number in range(start, start + count)
    ]


def filler(seed: str, size: int) -> bytes:
    """Return `size` printable characters, half random, half constant: compressible."""
    text = "".join(
        hashlib.sha256(f"{seed}/{n}".encode()).hexdigest()[:16] + "-" * 16
        for n in range(size // 32 + 1)
    )
    return text[:size].encode()


def _dotted(config: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in config.items()}
