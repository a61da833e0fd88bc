"""Scenarios of internal topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from tests.oracle.clients import JavaProducer
from tests.oracle.jvm import wait_until
from tests.oracle.stage import Evidence, Stage, messages, scenario
from tests.support.waiting import HANG_SECONDS

_BOTH = ("java", "librdkafka")
_DELETED = "tiered-deleted"


@scenario(
    topics=["__consumer_offsets"],
    writers=_BOTH,
    promises={
        "commits of groups of all kinds": lambda e: all(
            any(f'"group":"{group}","topic":"consumed"' in text for text in e.record_texts())
            for group in ("oracle-java-classic", "oracle-java-consumer", "oracle-librdkafka")
        ),
        "a transactional commit with its marker": lambda e: any(
            batch["isControlBatch"] for batch in e.batches
        ),
    },
)
def consumer_groups(stage: Stage) -> None:
    """Groups of the classic and of the new protocol commit offsets, once in a transaction."""
    _commit_as_groups(stage, "classic", "consumer")


@scenario(
    topics=["__consumer_offsets"],
    writers=_BOTH,
    promises={
        "commits of the groups of both clients": lambda e: all(
            any(f'"group":"{group}","topic":"consumed"' in text for text in e.record_texts())
            for group in ("oracle-java-classic", "oracle-librdkafka")
        ),
        "a transactional commit with its marker": lambda e: any(
            batch["isControlBatch"] for batch in e.batches
        ),
    },
)
def classic_groups(stage: Stage) -> None:
    """Groups of the classic protocol commit offsets, once in a transaction."""
    _commit_as_groups(stage, "classic")


def _commit_as_groups(stage: Stage, *protocols: str) -> None:
    stage.create_topic("consumed")
    writer = stage.java_producer()
    writer.write(messages("consumed", 10))
    writer.close()
    for protocol in protocols:
        config = {"group.id": f"oracle-java-{protocol}", "group.protocol": protocol}
        stage.java.call("consumeAndCommit", topic="consumed", count=10, config=config)
    _consume_with_librdkafka(stage.broker.bootstrap_servers)
    transactional = stage.java_producer(transactional_id="consume-and-produce")
    transactional.begin()
    transactional.send_offsets("oracle-java-transactional", "consumed", 7)
    transactional.commit()
    transactional.close()


def _consume_with_librdkafka(bootstrap_servers: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "oracle-librdkafka",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["consumed"])
    seen = 0
    for _ in range(60):
        seen += len(consumer.consume(10 - seen, timeout=1.0))
        if seen == 10:
            break
    consumer.commit(asynchronous=False)
    consumer.close()


@scenario(
    topics=["__transaction_state"],
    promises={
        "states of transactions": lambda e: any(
            "transactionalId" in text for text in e.record_texts()
        ),
        "more than ten batches": lambda e: len(e.batches) > 10,
    },
)
def transaction_state(stage: Stage) -> None:
    """The transaction coordinator's topic after all other scenarios."""


@scenario(
    topics=["__cluster_metadata"],
    promises={
        "a snapshot of a later offset": lambda e: any(
            log.suffix == ".checkpoint" and int(log.name[:20]) > 0 for log in e.dumps
        ),
        "a leader change": lambda e: any("LeaderChange" in text for text in e.record_texts()),
        "a snapshot's header and footer": lambda e: (
            {"SnapshotHeader", "SnapshotFooter"}
            <= {word for text in e.record_texts() for word in text.split()}
        ),
        "several leader epochs": lambda e: len(e.values("partitionLeaderEpoch")) >= 3,
    },
)
def cluster_metadata(stage: Stage) -> None:
    """The metadata log and its snapshots after all other scenarios."""


def _contains(*words: str) -> Callable[[Evidence], bool]:
    """Return a promise that each word is in the text of a record."""
    return lambda evidence: all(
        any(word in text for text in evidence.record_texts()) for word in words
    )


@scenario(
    topics=["__remote_log_metadata"],
    promises={
        "copied segments": _contains("COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED"),
        "deleted segments": _contains("DELETE_SEGMENT_STARTED", "DELETE_SEGMENT_FINISHED"),
        "segments with transactions, and without": _contains(
            "txnIdxEmpty=false", "txnIdxEmpty=true"
        ),
    },
)
def remote_segments(stage: Stage) -> None:
    """Segments in remote storage, some with aborted transactions; a topic that is deleted."""
    for topic in ("tiered", _DELETED):
        stage.create_topic(
            topic, remote_storage_enable="true", internal_segment_bytes="4096",
            local_retention_bytes="1",
        )  # fmt: skip
        plain = stage.java_producer()
        _write_segments(plain, topic, 0)
        plain.close()
    transactional = stage.java_producer(transactional_id="tiered")
    for start in range(20, 60, 20):
        transactional.begin()
        _write_segments(transactional, "tiered", start)
        transactional.abort() if start == 20 else transactional.commit()
    transactional.close()
    for topic, offset in (("tiered", 40), (_DELETED, 1)):
        _wait_for_local_start(stage, topic, offset)
    admin = AdminClient({"bootstrap.servers": stage.broker.bootstrap_servers, "log_level": 0})
    admin.delete_topics([_DELETED])[_DELETED].result(HANG_SECONDS)
    wait_until(
        "deleted files to be removed, also from remote storage",
        lambda: not any(_deleted_files(stage.broker.directory)),
        seconds=HANG_SECONDS,
    )


def _deleted_files(directory: Path) -> Iterator[Path]:
    yield from directory.glob("data/*/*.deleted")
    for pattern in (f"remote/*/{_DELETED}-0-*/*.log", f"data/{_DELETED}-0*"):
        yield from directory.glob(pattern)


def _write_segments(writer: JavaProducer, topic: str, start: int) -> None:
    """Write 20 messages in five batches, of which two fit into a segment."""
    for number in range(start, start + 20, 4):
        writer.write(messages(topic, 4, start=number, size=400))


def _wait_for_local_start(stage: Stage, topic: str, offset: int) -> None:
    """Wait until the segments before an offset are in remote storage only."""
    folder = stage.broker.data_dir / f"{topic}-0"
    wait_until(
        f"the first segments of {topic} to be remote only",
        lambda: min(int(log.stem) for log in folder.glob("*.log")) >= offset,
        seconds=HANG_SECONDS,
    )


@scenario(
    topics=["__share_group_state"],
    promises={
        "snapshots and updates": _contains('"snapshotEpoch":1', 'key: {"type":"1"'),
        "acknowledged and archived records": _contains('"deliveryState":2', '"deliveryState":4'),
        "the states of a deleted group": _contains('"groupId":"deleted"', "payload: <DELETE>"),
    },
)
def share_groups(stage: Stage) -> None:
    """Share groups that accept, release and reject records; one of them is deleted."""
    stage.create_topic("shared", partitions=2)
    writer = stage.java_producer()
    for partition in range(2):
        for start in range(0, 40, 5):
            writer.write(messages("shared", 5, start=start, partition=partition))
    writer.close()
    _share("readers", stage, 20, "ACCEPT")
    _share("readers", stage, 20, "ACCEPT", "RELEASE", "REJECT")
    _share("deleted", stage, 10, "ACCEPT")
    stage.java.call("shareDelete", group="deleted")
    _share("readers", stage, 10, "REJECT", "ACCEPT")
    config = {"group.id": "oracle-java-classic", "group.protocol": "classic"}
    stage.java.call("consumeAndCommit", topic="shared", count=10, config=config)


def _share(group: str, stage: Stage, count: int, *types: str) -> None:
    config = {"group.id": group, "max.poll.records": "5"}
    stage.java.call(
        "shareConsume", topic="shared", count=count, acknowledge=list(types), config=config
    )
