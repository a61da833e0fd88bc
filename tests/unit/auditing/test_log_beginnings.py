"""Transactions that began before the log does."""

from __future__ import annotations

from pathlib import Path

import pytest

import kafkascan as ks
from tests.support.audit_damage import edit
from tests.support.audits import symbols
from tests.support.logs import ABORT, COMMIT
from tests.support.partitions import NOW, HealthyPartition


def without_first_segment(
    partition: HealthyPartition, *, end: int | None, begins_later: bool = False
) -> Path:
    """Write a log in which producer 8 has a transaction open when the second segment begins."""
    if not begins_later:
        partition.data(8, transactional=True)
    partition.batches.append([])
    if begins_later:
        partition.data(8, transactional=True)
    partition.data(9)
    if end is not None:
        partition.end(8, end)
    partition.data(9)
    partition.write()
    for number in range(len(partition.batches) - 1):
        for path in partition.folder.glob(f"{partition.log(number).stem}.*"):
            path.unlink()
    return partition.log(len(partition.batches) - 1)


@pytest.mark.parametrize("end", [ABORT, COMMIT])
def test_a_transaction_that_began_before_the_log_does(
    end: int, partition: HealthyPartition
) -> None:
    begin = partition.offset
    log = without_first_segment(partition, end=end)
    assert ks.audit(partition.folder).findings == []
    found = ks.read_transactions(partition.folder)
    (span,) = found.spans
    assert (span["first_offset"], span["marker_offset"]) == (begin, begin + 6)
    assert (span["batches"], span["first_timestamp"], span["last_offset"]) == (0, -1, begin + 2)
    assert not found.is_empty.any()
    index = log.with_suffix(".txnindex")
    assert index.exists() == (end == ABORT)
    if end == ABORT:
        assert found.aborted().tobytes() == index.read_bytes()
        index.unlink()
        assert symbols(partition.folder) == {"TXN_INDEX_MISMATCH"}
    (row,) = ks.count_records(partition.folder).counts
    assert (row["open_records"], row["committed_records"], row["records"]) == (0, 6, 6)
    # Without the snapshot, only its marker is known of the transaction.
    log.with_suffix(".snapshot").unlink()
    assert ks.read_transactions(partition.folder).is_empty.tolist() == [True]
    assert symbols(partition.folder) == {"EMPTY_TRANSACTIONS"}


def test_a_transaction_that_hangs_since_before_the_log_begins(partition: HealthyPartition) -> None:
    begin = partition.offset
    log = without_first_segment(partition, end=None)
    late = NOW + 3_600_000
    (hanging,) = ks.audit(partition.folder, now_ms=late).findings
    assert (hanging.symbol, hanging.offset, hanging.file) == (
        "HANGING_TRANSACTION", begin, log.name
    )  # fmt: skip
    found = ks.read_transactions(partition.folder, now_ms=late)
    assert found.is_hanging.tolist() == [True]
    # A read_committed consumer gets no records, though no transaction is open here.
    assert found.last_stable_offsets.tolist() == [begin + 3]
    (row,) = ks.count_records(partition.folder).counts
    assert (row["open_records"], row["committed_records"], row["records"]) == (0, 0, 6)
    # A snapshot that is damaged says nothing, as to a broker.
    edit(len(partition.batches) - 1, ".snapshot", 20, b"\xff")(partition)
    assert len(ks.read_transactions(partition.folder)) == 0
    assert symbols(partition.folder, now_ms=late) == {"BAD_SNAPSHOT"}


def test_a_transaction_continues_from_a_snapshot(partition: HealthyPartition) -> None:
    begin = partition.offset
    partition.data(8, transactional=True)
    partition.batches.append([])
    partition.data(8, transactional=True)
    partition.end(8, ABORT)
    partition.write()
    for path in partition.folder.glob("*.log"):
        if path != partition.log(3):
            path.unlink()
    (span,) = ks.read_transactions(partition.folder).spans
    assert (span["first_offset"], span["last_offset"]) == (begin, begin + 5)
    assert (span["batches"], span["records"]) == (1, 3)
    (row,) = ks.count_records(partition.folder).counts
    assert (row["aborted_records"], row["committed_records"]) == (3, 0)


def test_snapshots_know_where_a_transaction_began_before_the_log(
    partition: HealthyPartition,
) -> None:
    """The log alone shows a later beginning, if the snapshot at its start is missing."""
    for _ in range(3):
        partition.data(8, transactional=True)
        partition.batches.append([])
    partition.end(8, COMMIT)
    partition.write()
    first, *later = (partition.log(number).stem for number in (3, 4, 5))
    for path in partition.folder.glob("0*"):
        if path.stem not in (first, *later) or path.name == f"{first}.snapshot":
            path.unlink()
    entries = ks.broker_state.read_producer_snapshot(partition.folder / f"{later[0]}.snapshot")
    (opened,) = entries[entries["current_txn_first_offset"] >= 0]
    assert opened["current_txn_first_offset"] < int(first)
    assert ks.audit(partition.folder).findings == []


def test_a_producer_of_which_a_snapshot_has_only_a_marker(partition: HealthyPartition) -> None:
    """A broker that loads its snapshots drops idle producers; a marker makes them known again."""
    partition.write()
    for path in partition.folder.glob("*.snapshot"):
        entries = ks.broker_state.read_producer_snapshot(path)
        row = entries["producer_id"] == 8
        entries["last_sequence"][row] = entries["last_offset"][row] = -1
        entries["offset_delta"][row] = 0
        ks.broker_state.write_producer_snapshot(path, entries)
    assert ks.audit(partition.folder).findings == []
