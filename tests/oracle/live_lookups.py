"""Records, offsets of timestamps and fetch positions that clients get from a running broker."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from typing import NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec

from tests.oracle.live_recovery import Partition, Records
from tests.support.waiting import HANG_SECONDS

_AT_ONCE = 200
_ASKED_BY_ONE = 1000
_TRIES = 3


class FoundOffset(NamedTuple):
    """A broker's answer to ListOffsets; -1 means no offset."""

    offset: int
    timestamp: int
    leader_epoch: int


def consume_all(
    servers: str, partitions: Iterable[Partition], *, committed_only: bool = False
) -> Records:
    """Read every record of partitions, from their start to their end."""
    consumer = _consumer(servers, committed_only=committed_only)
    open_ones = set(partitions)
    found: Records = {partition: {} for partition in open_ones}
    consumer.assign([TopicPartition(*one, OFFSET_BEGINNING) for one in open_ones])
    deadline = time.monotonic() + HANG_SECONDS
    try:
        while open_ones:
            messages = consumer.consume(_AT_ONCE, 0.2)
            if messages:
                deadline = time.monotonic() + HANG_SECONDS
            elif time.monotonic() > deadline:
                raise TimeoutError(f"the broker gives nothing of {sorted(open_ones)}")
            for message in messages:
                partition = (str(message.topic()), int(message.partition() or 0))
                error = message.error()
                if error is None:
                    at = int(message.offset() or 0)
                    found[partition][at] = (message.key(), message.value())
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_ones.discard(partition)
                else:
                    raise RuntimeError(f"{partition}: {error}")
    finally:
        consumer.close()
    return found


def list_offsets(servers: str, questions: Iterable[tuple[Partition, int]]) -> Iterator[FoundOffset]:
    """Return the first offset at or after each timestamp; takes thousands of timestamps.

    The special times of the protocol are negative: -1 the end, -2 the beginning, -3 the largest
    timestamp.
    """
    remaining = iter(questions)
    while some := list(islice(remaining, _ASKED_BY_ONE)):
        yield from _asked_apart(servers, some)


def _asked_apart(servers: str, questions: list[tuple[Partition, int]]) -> list[FoundOffset]:
    """Ask in another process: the library crashes once in thousands of requests.

    A starved broker takes longer to look into its remote segments than it lets a request last.
    """
    for _ in range(_TRIES - 1):
        try:
            return _asked_once(servers, questions)
        except (BrokenProcessPool, TimeoutError):
            continue
    return _asked_once(servers, questions)


def _asked_once(servers: str, questions: list[tuple[Partition, int]]) -> list[FoundOffset]:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_ask, servers, questions).result()


def _ask(servers: str, questions: list[tuple[Partition, int]]) -> list[FoundOffset]:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    found = []
    for first in range(0, len(questions), _AT_ONCE):
        asked = [
            admin.list_offsets({TopicPartition(*partition): _spec(timestamp)})
            for partition, timestamp in questions[first : first + _AT_ONCE]
        ]
        for futures in asked:
            (future,) = futures.values()
            info = _answer(future)
            epoch = -1 if info.leader_epoch is None else info.leader_epoch
            found.append(FoundOffset(info.offset, info.timestamp, epoch))
    return found


def _answer(future: Future[ListOffsetsResultInfo]) -> ListOffsetsResultInfo:
    """Return the answer; the library's own errors cannot be sent to another process."""
    try:
        return future.result(HANG_SECONDS)
    except KafkaException as exc:
        error = exc.args[0]
        if error.code() == KafkaError.REQUEST_TIMED_OUT:
            raise TimeoutError(error.str()) from None
        raise RuntimeError(error.str()) from None


def first_offsets_of_fetches(
    servers: str, partition: Partition, offsets: Sequence[int]
) -> list[int]:
    """Fetch at offsets below the end; return the offset of the first record of each."""
    consumer = _consumer(servers, committed_only=False)
    found = []
    try:
        consumer.assign([TopicPartition(*partition, offsets[0])])
        for offset in offsets:
            consumer.seek(TopicPartition(*partition, offset))
            message = consumer.poll(HANG_SECONDS)
            if message is None or message.error() is not None:
                raise RuntimeError(f"{partition}, offset {offset}: {message and message.error()}")
            found.append(int(message.offset() or 0))
    finally:
        consumer.close()
    return found


def _spec(timestamp: int) -> OffsetSpec:
    special = {-1: OffsetSpec.latest, -2: OffsetSpec.earliest, -3: OffsetSpec.max_timestamp}
    return special[timestamp]() if timestamp in special else OffsetSpec.for_timestamp(timestamp)


def _consumer(servers: str, *, committed_only: bool) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "kafkascan-oracle",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed_only else "read_uncommitted",
            "fetch.wait.max.ms": 10,
            "check.crcs": True,
            "log_level": 0,
        }
    )
