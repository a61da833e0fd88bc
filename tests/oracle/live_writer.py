"""A producer that writes to topics of a running broker all the time, in a thread."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

from confluent_kafka import Message, Producer

from tests.support.waiting import HANG_SECONDS

_PAUSE = 0.04
_RECORDS = 2


class LiveWriter:
    """
    Writes records to the partitions of topics until the end of its `with` block.

    Parameters
    ----------
    bootstrap_servers : str
    partitions : dict
        Number of partitions by topic.
    size : int
        Bytes of a value.
    transactional_id : str, optional
        Write in transactions of some records, of which each third one is aborted.

    Attributes
    ----------
    written : dict
        Value by (topic, partition, offset), of acknowledged records.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        partitions: dict[str, int],
        size: int = 600,
        transactional_id: str | None = None,
    ) -> None:
        self.written: dict[tuple[str, int, int], bytes] = {}
        self._partitions = [(one, n) for one in partitions for n in range(partitions[one])]
        self._size = size
        config = {"bootstrap.servers": bootstrap_servers, "linger.ms": 5, "acks": "all"}
        self._is_transactional = transactional_id is not None
        if self._is_transactional:
            config["transactional.id"] = transactional_id
        self._producer = Producer(config)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        number = 0
        if self._is_transactional:
            self._producer.init_transactions(HANG_SECONDS)
        while not self._ends.wait(_PAUSE):
            if self._is_transactional:
                self._producer.begin_transaction()
            for _ in range(_RECORDS):
                number += 1
                self._send(number)
                if self._is_transactional:  # the files show open transactions
                    self._producer.flush(HANG_SECONDS)
                    time.sleep(_PAUSE)
            if self._is_transactional and number % 3:
                self._producer.commit_transaction(HANG_SECONDS)
            elif self._is_transactional:
                self._producer.abort_transaction(HANG_SECONDS)
            self._producer.poll(0)
        self._producer.flush(HANG_SECONDS)

    def _send(self, number: int) -> None:
        for topic, partition in self._partitions:
            value = f"{topic}/{partition}/{number} ".encode().ljust(self._size, b".")
            self._producer.produce(
                topic, value, str(number), partition, on_delivery=self._acknowledged
            )

    def _acknowledged(self, error: object, message: Message) -> None:
        assert error is None, error
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None
        assert partition is not None
        assert offset is not None
        self.written[topic, partition, offset] = bytes(message.value() or b"")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ends.set()
        self._thread.join(HANG_SECONDS)
