"""Scenarios of producers: ids, epochs, sequences, transactions."""

from __future__ import annotations

from tests.oracle.clients import Writer
from tests.oracle.stage import Evidence, Stage, messages, scenario

_BOTH = ("java", "librdkafka")


@scenario(
    topics=["idempotent"],
    writers=_BOTH,
    promises={
        "two producer ids": lambda e: len(e.values("producerId")) == 2,
        "sequences that go on from batch to batch": lambda e: (
            {(0, 3), (4, 7), (8, 11)}
            <= {(batch["baseSequence"], batch["lastSequence"]) for batch in e.batches}
        ),
        "not transactional": lambda e: e.values("isTransactional") == {False},
    },
)
def idempotent(stage: Stage) -> None:
    """Idempotent producers: producer ids, epochs and sequences without transactions."""
    stage.create_topic("idempotent")
    for writer in (
        stage.java_producer(enable_idempotence="true"),
        stage.librdkafka_producer(enable_idempotence="true"),
    ):
        for start in (0, 4, 8):
            writer.write(messages("idempotent", 4, start=start))
        writer.close()


@scenario(
    topics=["transactions"],
    writers=_BOTH,
    promises={
        "a COMMIT and an ABORT marker": lambda e: (
            {"COMMIT", "ABORT"}
            <= {
                text.split("endTxnMarker: ")[1].split()[0]
                for text in e.record_texts()
                if "endTxnMarker" in text
            }
        ),
        "control batches without a sequence": lambda e: (
            {batch["baseSequence"] for batch in e.batches if batch["isControlBatch"]} == {-1}
        ),
        "interleaved transactions": lambda e: _interleaved(e),
        "no marker without data: the empty transactions leave none": lambda e: _markers_have_data(
            e
        ),
        "a transaction left open": lambda e: _left_open(e) != set(),
        "transactions in compressed batches": lambda e: (
            {"none", "lz4"} <= e.values("compressionType")
        ),
        "batches outside of transactions": lambda e: -1 in e.values("producerId"),
    },
)
def transactions(stage: Stage) -> None:
    """Transactions: committed, aborted, interleaved, empty, open."""
    stage.create_topic("transactions")
    _transactions_one_after_the_other(stage.java_producer(transactional_id="java"))
    _transactions_one_after_the_other(stage.librdkafka_producer(transactional_id="librdkafka"))
    _transactions_interleaved(
        stage.java_producer(transactional_id="interleaved-1", compression_type="lz4"),
        stage.java_producer(transactional_id="interleaved-2"),
    )
    plain = stage.java_producer()
    open_end = stage.java_producer(transactional_id="left-open", transaction_timeout_ms="900000")
    open_end.begin()
    open_end.write(messages("transactions", 2))
    plain.write(messages("transactions", 2))
    plain.close()


def _transactions_one_after_the_other(writer: Writer) -> None:
    writer.begin()
    writer.write(messages("transactions", 3))
    writer.write(messages("transactions", 2, start=3))
    writer.commit()
    writer.begin()
    writer.write(messages("transactions", 3, start=10))
    writer.abort()
    writer.begin()
    writer.commit()
    writer.begin()
    writer.write(messages("transactions", 1, start=20))
    writer.commit()
    writer.close()


def _transactions_interleaved(first: Writer, second: Writer) -> None:
    first.begin()
    second.begin()
    first.write(messages("transactions", 2))
    second.write(messages("transactions", 2))
    first.write(messages("transactions", 2, start=2))
    first.abort()
    second.write(messages("transactions", 2, start=2))
    first.begin()
    first.write(messages("transactions", 2, start=4))
    second.abort()
    first.commit()
    first.close()
    second.close()


def _interleaved(evidence: Evidence) -> bool:
    """Return whether a producer writes during the transaction of another one."""
    open_now: set[int] = set()
    for batch in evidence.batches:
        if batch["isControlBatch"]:
            open_now.discard(batch["producerId"])
        elif batch["isTransactional"]:
            open_now.add(batch["producerId"])
            if len(open_now) == 2:
                return True
    return False


def _markers_have_data(evidence: Evidence) -> bool:
    """Return whether each marker ends a transaction with records."""
    open_now: set[int] = set()
    for batch in evidence.batches:
        if not batch["isControlBatch"]:
            open_now.add(batch["producerId"])
        elif batch["producerId"] not in open_now:
            return False
        else:
            open_now.remove(batch["producerId"])
    return True


def _left_open(evidence: Evidence) -> set[int]:
    """Return the producers without a marker after their last transactional batch."""
    open_now: set[int] = set()
    for batch in evidence.batches:
        if batch["isControlBatch"]:
            open_now.discard(batch["producerId"])
        elif batch["isTransactional"]:
            open_now.add(batch["producerId"])
    return open_now
