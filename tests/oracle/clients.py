"""The two families of clients: Kafka's Java clients (behind a pipe) and librdkafka."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from confluent_kafka import Producer

from tests.oracle.jvm import Closing, JsonProgram, java_command
from tests.support.waiting import HANG_SECONDS

_METADATA_SECONDS = 0.3

_PRODUCER_CONFIG = {
    "acks": "all",
    "enable.idempotence": "false",
    # Only a flush sends: the records of one call become one batch per partition.
    "linger.ms": "30000",
    "batch.size": "900000",
}


@dataclass(frozen=True)
class Message:
    """One record to write; `timestamp` None lets the client choose."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    timestamp: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int = 0


class Writer(Protocol):
    """A producer of either family."""

    def write(self, messages: Sequence[Message]) -> None:
        """Write one batch per partition and wait for it."""

    def begin(self) -> None:
        """Begin a transaction."""

    def commit(self) -> None:
        """Commit the transaction."""

    def abort(self) -> None:
        """Abort the transaction."""

    def close(self) -> None:
        """Close the producer."""


class JavaClients(Closing):
    """A JVM with Kafka's Java clients that runs commands, see ClientDriver.java."""

    def __init__(self, class_path: str, bootstrap_servers: str, log_file: Path) -> None:
        command = java_command(class_path, "kafkascan.oracle.ClientDriver", [bootstrap_servers])
        self._program = JsonProgram(command, log_file)
        self._producers = 0

    def close(self) -> None:
        """End the JVM."""
        self._program.close()

    def call(self, command: str, **arguments: object) -> Any:
        """Run one command of the driver and return its result."""
        return self._program.call(command, **arguments).get("result")

    def producer(self, config: Mapping[str, str]) -> JavaProducer:
        """Open a producer."""
        self._producers += 1
        name = f"producer-{self._producers}"
        self.call("openProducer", producer=name, config=_producer_config(config))
        return JavaProducer(self, name)


class JavaProducer:
    """A `Writer` over Kafka's Java producer."""

    def __init__(self, clients: JavaClients, name: str) -> None:
        self._clients = clients
        self._name = name

    def write(self, messages: Sequence[Message]) -> None:
        self._call("write", records=[_as_json(message) for message in messages])

    def begin(self) -> None:
        self._call("beginTransaction")

    def send_offsets(self, group: str, topic: str, offset: int) -> None:
        """Commit a group's offset in the transaction."""
        self._call("sendOffsets", group=group, topic=topic, partition=0, offset=offset)

    def commit(self) -> None:
        self._call("commitTransaction")

    def abort(self) -> None:
        self._call("abortTransaction")

    def close(self) -> None:
        self._call("closeProducer")

    def _call(self, command: str, **arguments: object) -> None:
        self._clients.call(command, producer=self._name, **arguments)


class LibrdkafkaProducer:
    """A `Writer` over librdkafka."""

    def __init__(self, bootstrap_servers: str, config: Mapping[str, str]) -> None:
        settings = {
            **_producer_config(config),
            "bootstrap.servers": bootstrap_servers,
            "log_level": "0",
        }
        self._producer = Producer(settings)
        self._known_topics: set[str] = set()
        if "transactional.id" in config:
            self._producer.init_transactions()

    def write(self, messages: Sequence[Message]) -> None:
        failures: list[str] = []
        for message in messages:
            self._produce(message, failures.append)
        self._settle({message.topic for message in messages})
        waiting = self._producer.flush(HANG_SECONDS)
        if failures or waiting:
            raise RuntimeError(f"librdkafka: {waiting} messages not sent, failures: {failures}")

    def _settle(self, topics: set[str]) -> None:
        """Wait for a new topic's metadata: an earlier flush cuts batches at random."""
        if not topics <= self._known_topics:
            time.sleep(_METADATA_SECONDS)
            self._known_topics |= topics

    def _produce(self, message: Message, failed: Callable[[str], None]) -> None:
        def delivered(error: object, _: object) -> None:
            if error is not None:
                failed(str(error))

        arguments: dict[str, Any] = {
            "key": message.key,
            "value": message.value,
            "partition": message.partition,
        }
        if message.timestamp is not None:
            arguments["timestamp"] = message.timestamp
        if message.headers:
            arguments["headers"] = list(message.headers)
        self._producer.produce(message.topic, on_delivery=delivered, **arguments)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.flush(HANG_SECONDS)


def _producer_config(config: Mapping[str, str]) -> dict[str, str]:
    idempotence = {"enable.idempotence": "true"} if "transactional.id" in config else {}
    return {**_PRODUCER_CONFIG, **idempotence, **config}


def _as_json(message: Message) -> dict[str, object]:
    return {
        "topic": message.topic,
        "partition": message.partition,
        "timestamp": message.timestamp,
        "key": _base64(message.key),
        "value": _base64(message.value),
        "headers": [[key, _base64(value)] for key, value in message.headers],
    }


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
