"""Scenarios of segments, indexes, partitions and leader epochs."""

from __future__ import annotations

from tests.oracle.stage import Stage, messages, scenario

_BOTH = ("java", "librdkafka")


@scenario(
    topics=["small-segments"],
    writers=_BOTH,
    promises={
        "many segments": lambda e: len(e.dumps) >= 10,
        "many index entries": lambda e: e.index_entries >= 60,
        "segments with several batches": lambda e: len(e.batches) >= 4 * len(e.dumps),
    },
)
def small_segments(stage: Stage) -> None:
    """Segments of 4 KiB with an index entry every 200 bytes."""
    stage.create_topic("small-segments", internal_segment_bytes="4096", index_interval_bytes="200")
    writers = (
        stage.java_producer(),
        stage.librdkafka_producer(),
        stage.java_producer(compression_type="snappy"),
    )
    for number in range(120):
        writers[number % 3].write(
            messages("small-segments", 4, start=4 * number, size=40 + number % 7 * 40)
        )
    for writer in writers:
        writer.close()


@scenario(
    topics=["partitions"],
    writers=_BOTH,
    promises={"three partitions": lambda e: len({log.parent for log in e.dumps}) == 3},
)
def partitions(stage: Stage) -> None:
    """Several partitions, one of them without a single record."""
    stage.create_topic("partitions", partitions=3)
    for writer in (stage.java_producer(), stage.librdkafka_producer()):
        for partition in (0, 2):
            writer.write(messages("partitions", 5, partition=partition))
        writer.close()


@scenario(
    topics=["leader-epochs"],
    writers=_BOTH,
    promises={"at least three leader epochs": lambda e: len(e.values("partitionLeaderEpoch")) >= 3},
)
def leader_epochs(stage: Stage) -> None:
    """Batches of several leader epochs: the broker is restarted twice in between."""
    stage.create_topic("leader-epochs")
    for restarts in range(3):
        if restarts:
            stage.broker.restart()
        for writer in (stage.java_producer(), stage.librdkafka_producer()):
            writer.write(messages("leader-epochs", 3, start=10 * restarts))
            writer.close()
