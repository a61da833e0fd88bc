"""States of transactional ids, and open transactions that contradict them."""

from __future__ import annotations

from pathlib import Path

import pytest

import kafkascan as ks
from tests.support.internal_topics import TRANSACTION_STATUSES, TopicLog, transaction
from tests.support.segments import T0


@pytest.fixture
def topic(tmp_path: Path) -> TopicLog:
    return TopicLog(tmp_path / "__transaction_state-0")


def test_rows(topic: TopicLog) -> None:
    topic.add(transaction("b", 8, "Empty"), transaction("b", 8, "Ongoing", ("orders", 2), epoch=3))
    topic.add(transaction("a", 9, "CompleteAbort"))
    found = ks.read_transaction_state(topic.write().parent)
    first, second = found.transactions.rows()
    assert (first["transactional_id"], first["status"]) == ("a", "CompleteAbort")
    assert second == {
        "transactional_id": "b", "producer_id": 8, "producer_epoch": 3, "status": "Ongoing",
        "partitions": [{"topic": "orders", "topic_id": None, "partitions": [2]}],
        "timeout_ms": 60_000, "start_timestamp": T0 - 1, "update_timestamp": T0,
        "previous_producer_id": -1, "next_producer_id": -1, "next_producer_epoch": -1,
        "client_transaction_version": 0, "coordinator_partition": 0, "record_offset": 1,
        "is_exact": True,
    }  # fmt: skip
    earlier = ks.read_transaction_state(topic.folder.parent, as_of=1)
    assert earlier.transactions["status"] == ["Empty"]
    assert earlier.is_exact


def test_all_statuses(topic: TopicLog) -> None:
    topic.add(*(transaction(f"t{n}", n, one) for n, one in enumerate(TRANSACTION_STATUSES)))
    found = ks.read_transaction_state(topic.write().parent)
    assert found.transactions["status"] == list(TRANSACTION_STATUSES)


def test_compacted_states_are_named(topic: TopicLog) -> None:
    topic.add(transaction("a", 8, "Empty"), transaction("a", 8, "Empty")).without([0])
    folder = topic.add(transaction("b", 9, "Empty")).write()
    (folder.parent / "cleaner-offset-checkpoint").write_text("0\n1\n__transaction_state 0 2\n")
    found = ks.read_transaction_state(folder.parent, as_of=1)
    (row,) = found.transactions.rows()
    assert (row["transactional_id"], row["status"], row["is_exact"]) == ("a", None, False)
    assert [one.symbol for one in found.problems] == ["COMPACTED"]


@pytest.mark.parametrize(
    ("status", "partition", "epoch", "symbol"),
    [
        ("Ongoing", 0, 0, None),
        ("PrepareCommit", 0, 0, None),
        ("PrepareAbort", 0, 1, None),
        ("Ongoing", 1, 0, "PARTITION_NOT_ADDED"),
        ("Ongoing", 0, 1, "OTHER_EPOCH"),
        ("CompleteCommit", 0, 0, "TRANSACTION_ENDED"),
        ("Empty", 0, 0, "TRANSACTION_ENDED"),
        (None, 0, 0, "UNKNOWN_PRODUCER"),
    ],
)
def test_contradictions(
    topic: TopicLog, status: str | None, partition: int, epoch: int, symbol: str | None
) -> None:
    topic.add(transaction("other", 1, "Empty"))
    if status is not None:
        topic.add(transaction("t", 8, status, ("orders", partition), epoch=epoch))
    root = topic.write().parent
    TopicLog(root / "orders-0").add((b"k", b"v"), producer_id=8).write()
    states = ks.read_transaction_state(root)
    found = ks.analysis.find_contradictions(states, ks.read_transactions(root))
    assert found["symbol"] == ([] if symbol is None else [symbol])
    if symbol is not None:
        assert found["message"][0].startswith("orders-0: the transaction of producer 8 is open")
    ended = TopicLog(root / "orders-0").add((b"k", b"v"), producer_id=8).end(8)
    ended.write()
    assert len(ks.analysis.find_contradictions(states, ks.read_transactions(root))) == 0
