"""Producers that write transactions to a partition of a running broker, and abort some."""

from __future__ import annotations

import random
import threading
import time
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.support.waiting import HANG_SECONDS

_PAUSE = 0.002


class TransactionWriters:
    """
    Writes transactions of several producers, which overlap, until the end of its `with` block.

    Attributes
    ----------
    decided_at : dict
        By offset of each record that was committed: when its producer began to commit, as
        `time.monotonic` tells it. Complete after the block.
    """

    def __init__(self, bootstrap_servers: str, topic: str, producers: int) -> None:
        self.decided_at: dict[int, float] = {}
        self._servers, self._topic = bootstrap_servers, topic
        self._ends = threading.Event()
        self._failures: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(number,)) for number in range(producers)
        ]

    def _run(self, number: int) -> None:
        try:
            self._write(number)
        except BaseException as error:
            self._failures.append(error)

    def _write(self, number: int) -> None:
        config = {
            "bootstrap.servers": self._servers,
            "transactional.id": f"{self._topic}-{number}",
            "linger.ms": "0",
        }
        producer, choice = Producer(config), random.Random(number)
        producer.init_transactions(HANG_SECONDS)
        while not self._ends.wait(_PAUSE):
            offsets: list[int] = []

            def note(error: object, message: Message, offsets: list[int] = offsets) -> None:
                assert error is None, error
                offset = message.offset()
                assert offset is not None
                offsets.append(offset)

            producer.begin_transaction()
            for _ in range(choice.randrange(1, 4)):
                producer.produce(self._topic, b"value", b"key", 0, on_delivery=note)
                producer.flush(HANG_SECONDS)  # so that the log shows the open transaction
            if choice.random() < 0.4:
                producer.abort_transaction(HANG_SECONDS)
                continue
            begin = time.monotonic()
            producer.commit_transaction(HANG_SECONDS)
            self.decided_at |= dict.fromkeys(offsets, begin)

    def __enter__(self) -> Self:
        for one in self._threads:
            one.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ends.set()
        for one in self._threads:
            one.join(HANG_SECONDS)
        if value is None and self._failures:
            raise self._failures[0]


def consumed_offsets(bootstrap_servers: str, topic: str) -> list[int]:
    """Return the offsets that a read_committed consumer gets of partition 0, up to its end."""
    config = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": "of-no-group",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    consumer, offsets = Consumer(config), list[int]()
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            message = consumer.poll(HANG_SECONDS)
            assert message is not None, f"{topic}: nothing after {offsets[-1:]}"
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                return offsets
            assert error is None, error
            offset = message.offset()
            assert offset is not None
            offsets.append(offset)
    finally:
        consumer.close()
