"""Scenarios of internal topics."""

from __future__ import annotations

from confluent_kafka import Consumer

from tests.oracle.stage import Stage, messages, scenario

_BOTH = ("java", "librdkafka")


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
