"""Scenarios of a killed broker."""

from __future__ import annotations

import threading

from confluent_kafka import KafkaException

from tests.oracle.stage import Stage, messages, scenario
from tests.support.waiting import HANG_SECONDS


@scenario(
    topics=["preallocated"],
    promises={
        "a zero tail": lambda e: any("size 0 " in end for end in e.ends.values()),
        "batches before it": lambda e: len(e.batches) >= 5,
    },
)
def preallocated(stage: Stage) -> None:
    """A preallocated segment of a killed broker, which is not trimmed."""
    stage.create_topic("preallocated", preallocate="true", internal_segment_bytes="65536")
    writer = stage.java_producer()
    for number in range(5):
        writer.write(messages("preallocated", 20, start=20 * number))
    writer.close()


@scenario(
    topics=["being-written"],
    writers=["librdkafka"],
    promises={"batches": lambda e: len(e.batches) >= 20},
)
def being_written(stage: Stage) -> None:
    """A topic that is written while its broker is killed."""
    stage.create_topic("being-written", index_interval_bytes="200")
    writer = stage.librdkafka_producer(message_timeout_ms="5000", linger_ms="0")
    enough = threading.Event()

    def write_until_the_end() -> None:
        try:
            for number in range(100_000):
                writer.write(messages("being-written", 4, start=4 * number, size=100))
                if number == 30:
                    enough.set()
        except (RuntimeError, KafkaException):
            return

    thread = threading.Thread(target=write_until_the_end, daemon=True)
    thread.start()
    enough.wait(HANG_SECONDS)
    stage.broker.kill()
    thread.join(30)
