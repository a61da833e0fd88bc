"""Logs that lack their end, or whole files; the offsets at which damage is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

import kafkascan as ks
from tests.support.audits import alarms
from tests.support.partitions import HealthyPartition


@pytest.mark.parametrize(("number", "symbol"), [(0, "OFFSET_GAP"), (1, "OFFSET_GAP"),
                                                (2, "ENDS_EARLY")])  # fmt: skip
@pytest.mark.parametrize("has_indexes", [True, False])
def test_a_log_file_of_zero_bytes(
    number: int, symbol: str, has_indexes: bool, partition: HealthyPartition
) -> None:
    partition.write()
    log = partition.log(number)
    log.write_bytes(b"")
    if not has_indexes:
        for kind in ("index", "timeindex", "txnindex"):
            log.with_suffix(f".{kind}").unlink(missing_ok=True)
    assert symbol in alarms(partition.folder)


def test_files_of_zero_bytes_before_an_empty_last_one(partition: HealthyPartition) -> None:
    """Nothing follows that would have a wrong offset."""
    partition.write()
    for path in partition.folder.glob("*.*index"):
        path.unlink()
    for number in range(3):
        partition.log(number).write_bytes(b"")
    for path in partition.folder.glob("*.snapshot"):
        path.unlink()
    (partition.folder / "leader-epoch-checkpoint").write_text("0\n0\n")
    found = ks.audit(partition.folder).alarms
    first, second = (int(partition.log(number).stem) for number in (1, 2))
    assert {one.symbol for one in found} == {"OFFSET_GAP"}
    gaps = [one.message.partition(" are missing")[0] for one in found]
    assert gaps == [f"offsets from 0 to {first - 1}", f"offsets from {first} to {second - 1}"]


def test_a_log_that_ends_before_its_last_snapshot(partition: HealthyPartition) -> None:
    """The end was cut off between two batches."""
    partition.write()
    log = partition.log(2)
    log.write_bytes(b"".join(partition.batches[2][:4]))
    for kind in ("index", "timeindex", "txnindex"):
        log.with_suffix(f".{kind}").unlink(missing_ok=True)
    (found,) = ks.audit(partition.folder).alarms
    assert found.symbol == "ENDS_EARLY"
    assert f"has a producer snapshot at {partition.offset}" in found.message


@pytest.mark.parametrize("offset", [0, 10, 23, 25, 46, 69, 80])
def test_a_damaged_snapshot_is_found_before_in_and_after_the_log(
    offset: int, partition: HealthyPartition
) -> None:
    """The log has the offsets from 23 to 68 in two segments, and a snapshot at each end."""
    without_segment_0(partition, snapshot=True)
    assert alarms(partition.folder) == set()
    path = partition.folder / f"{offset:020}.snapshot"
    path.write_bytes(b"damaged")
    found = [
        one.file for one in ks.audit(partition.folder).findings if one.symbol == "BAD_SNAPSHOT"
    ]
    assert found == [path.name]


def without_segment_0(partition: HealthyPartition, *, snapshot: bool) -> None:
    partition.write()
    partition.log(0).unlink()
    for kind in ("index", "timeindex", "txnindex"):
        partition.log(0).with_suffix(f".{kind}").unlink(missing_ok=True)
    if not snapshot:
        partition.log(1).with_suffix(".snapshot").unlink()


def change(path: Path, target: Path, **values: int) -> None:
    """Write a snapshot with other values in all entries."""
    entries = ks.broker_state.read_producer_snapshot(path)
    for name, value in values.items():
        entries[name] = value
    ks.broker_state.write_producer_snapshot(target, entries)


def test_a_snapshot_at_the_last_batch_is_compared(partition: HealthyPartition) -> None:
    """The end of the log is after that batch, a marker."""
    partition.write()
    last = partition.folder / f"{partition.offset - 1:020}.snapshot"
    change(partition.log(2).with_suffix(".snapshot"), last)
    (found,) = ks.audit(partition.folder).alarms
    assert (found.symbol, found.file) == ("SNAPSHOT_MISMATCH", last.name)
    assert found.count == 2


def test_transactions_are_not_compared_if_the_state_before_the_log_is_not_known(
    partition: HealthyPartition,
) -> None:
    partition.data(8, transactional=True)
    without_segment_0(partition, snapshot=False)
    at_end = partition.folder / f"{partition.offset:020}.snapshot"
    change(at_end, at_end, current_txn_first_offset=5)
    assert "SNAPSHOT_MISMATCH" not in alarms(partition.folder)
    without_segment_0(partition, snapshot=True)
    change(at_end, at_end, current_txn_first_offset=5)
    assert "SNAPSHOT_MISMATCH" in alarms(partition.folder)


@pytest.mark.parametrize("row", [0, 1, 5])
@pytest.mark.parametrize("number", [0, 1])
def test_a_zeroed_page_is_reported_at_the_offset_that_is_missing(
    row: int, number: int, partition: HealthyPartition
) -> None:
    partition.write()
    before = partition.batches[number][:row]
    data = bytearray(partition.log(number).read_bytes())
    start = sum(map(len, before))
    data[start : start + 300] = bytes(300)
    partition.log(number).write_bytes(data)
    (found,) = [one for one in ks.audit(partition.folder).findings if one.symbol == "CORRUPT"]
    first = int.from_bytes(partition.batches[number][row][:8], "big")
    assert (found.position, found.offset) == (start, first)


def test_files_beside_the_log_are_one_finding(partition: HealthyPartition) -> None:
    partition.write()
    for number in range(30):
        for kind in ("log", "index", "timeindex"):
            (partition.folder / f"{number:020}.{kind}.deleted").touch()
    (partition.folder / f"{7:020}.log.swap").touch()
    (found,) = ks.audit(partition.folder).findings
    assert (found.symbol, found.file, found.count) == ("LEFTOVER", None, 91)
    assert "90 marked for deletion, which a broker completes; 1 of a complete" in found.message


@pytest.mark.parametrize("index", [None, 0, 4096])
def test_a_log_of_zeros_alone(index: int | None, tmp_path: Path) -> None:
    """Only a preallocated segment that a broker uses has no batch, and a preallocated index."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (folder / f"{0:020}.log").write_bytes(bytes(4096))
    if index is not None:
        (folder / f"{0:020}.index").write_bytes(bytes(index))
    assert alarms(folder) == (set() if index else {"NO_BATCHES"})
    (problem,) = ks.count_records(folder).problems
    assert (problem.symbol, problem.severity) == ("ZERO_TAIL", ks.Severity.WARNING)
    assert "contains no complete batch, only 4,096 zeros" in problem.message
