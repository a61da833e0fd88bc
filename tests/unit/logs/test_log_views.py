"""A view of a log: several answers about the same moment, while the log goes on."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kafkascan as ks
from kafkascan.format.errors import FileGoneError, NoLogsError
from kafkascan.logs import LogView, open_view
from tests.support.moving_logs import cleaner_ends, cleaner_swaps, retention_begins, retention_ends
from tests.support.partitions import HealthyPartition
from tests.support.records import RecordV2, batch_of

CHANGED = {"CHANGED_WHILE_READ", "FILE_GONE"}


@pytest.fixture
def partition(tmp_path: Path) -> HealthyPartition:
    """Five segments of 23 offsets: batches of three records, and transactions."""
    return HealthyPartition(tmp_path / "data" / "orders-0", segments=5).write()


def append(partition: HealthyPartition, batches: int = 5) -> None:
    """Append batches to the last segment, and entries to its indexes."""
    log = sorted(partition.folder.glob("*.log"))[-1]
    with log.open("ab") as file:
        for number in range(batches):
            file.write(batch_of([RecordV2()], base_offset=partition.offset + number))
    batches_now, base = ks.scan_batches(log).batches, int(log.stem)
    ks.build_offset_index(batches_now, base_offset=base, interval_bytes=1).tofile(
        log.with_suffix(".index")
    )
    ks.build_time_index(batches_now, base_offset=base, interval_bytes=1).tofile(
        log.with_suffix(".timeindex")
    )


def rows_of(table: Any) -> object:
    return repr(list(table.rows())), tuple(table.problems)


ANSWERS: dict[str, Callable[[LogView], object]] = {
    "read_records": lambda view: ks.read_records(view)["offset"].tolist(),
    "committed": lambda view: ks.read_records(view, isolation="read_committed")["offset"].tolist(),
    "iter_records": lambda view: [
        table["offset"].tolist() for table in ks.iter_records(view, batch_size=7)
    ],
    "read_committed_view": lambda view: ks.logs.read_committed_view(view).last_stable_offset,
    "count_records": lambda view: rows_of(ks.count_records(view, deep=True)),
    "read_transactions": lambda view: rows_of(ks.read_transactions(view)),
    "read_producers": lambda view: rows_of(ks.read_producers(view)),
    "scan_log_dir": lambda view: ks.scan_log_dir(view).to_arrow().to_pylist(),
    "diff_logs": lambda view: ks.diff_logs(view, view).to_json(),
    "lookup_offset": lambda view: [ks.lookup_offset(view, offset) for offset in (0, 113, 116)],
    "lookup_offset by index": lambda view: [
        ks.lookup_offset(view, offset, trust_index=True) for offset in (0, 113, 116, 118)
    ],
    "lookup_timestamp": lambda view: ks.lookup_timestamp(view, 2**50),
    "scan_records": lambda view: ks.polars.scan_records(view).collect().rows(),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_about_a_view_does_not_grow(partition: HealthyPartition, name: str) -> None:
    view = open_view(partition.folder)
    before = ANSWERS[name](view)
    append(partition)
    assert ANSWERS[name](view) == before
    assert ANSWERS[name](pickle.loads(pickle.dumps(view))) == before


def test_a_new_view_has_what_was_appended(partition: HealthyPartition) -> None:
    view = open_view(partition.folder)
    records = len(ks.read_records(view))
    append(partition)
    assert len(ks.read_records(open_view(partition.folder))) == records + 5
    assert len(ks.read_records(view)) == records
    assert ks.count_records(view).counts["end_offset"].tolist() == [partition.offset]


@pytest.mark.parametrize("change", [retention_begins, cleaner_swaps])
def test_renamed_files_of_a_view_are_read(
    partition: HealthyPartition, change: Callable[[Path], None]
) -> None:
    view = open_view(partition.folder)
    before = ks.read_records(view)["offset"].tolist()
    change(partition.folder)
    table = ks.read_records(view)
    assert table["offset"].tolist() == before
    assert not table.problems


@pytest.mark.parametrize("change", [retention_ends, cleaner_ends])
def test_files_that_are_gone_are_looked_for_in_a_newer_listing(
    partition: HealthyPartition, change: Callable[[Path], None]
) -> None:
    view = open_view(partition.folder)
    change(partition.folder)
    now = ks.read_records(partition.folder, on_corrupt="stop")["offset"].tolist()
    for _ in range(2):  # an answer does not depend on the one before
        table = ks.read_records(view, on_corrupt="stop")
        assert table["offset"].tolist() == now or CHANGED & {one.symbol for one in table.problems}


@pytest.mark.parametrize("change", [retention_ends, cleaner_ends])
@pytest.mark.parametrize("trust_index", [False, True])
def test_lookups_in_files_that_are_gone_are_those_of_a_newer_listing(
    partition: HealthyPartition, change: Callable[[Path], None], trust_index: bool
) -> None:
    view = open_view(partition.folder)
    change(partition.folder)
    now = partition.folder
    for offset in (0, 25, 60, 113):
        expected = ks.lookup_offset(now, offset, trust_index=trust_index)
        assert ks.lookup_offset(view, offset, trust_index=trust_index) == expected
    for timestamp in (0, *ks.read_records(now, on_corrupt="stop")["timestamp"][[0, -1]].tolist()):
        expected_record = ks.lookup_timestamp(now, timestamp, trust_index=trust_index)
        assert ks.lookup_timestamp(view, timestamp, trust_index=trust_index) == expected_record


def test_a_view_of_a_file_is_of_that_file(partition: HealthyPartition) -> None:
    log = partition.log(4)
    view = open_view(log)
    before = ks.read_records(view)["offset"].tolist()
    append(partition)
    for same in (view, pickle.loads(pickle.dumps(view))):
        assert ks.read_records(same)["offset"].tolist() == before
        committed = ks.read_records(same, isolation="read_committed")["offset"]
        assert set(committed.tolist()) <= set(before)
        assert sum(map(len, ks.scan_log_dir(same))) == len(ks.scan_batches(log)) - 5


@pytest.mark.parametrize("change", ["replaced", "deleted", "cut"])
def test_a_view_of_a_file_notices_another_file(partition: HealthyPartition, change: str) -> None:
    log = partition.log(4)
    view, data = open_view(log), log.read_bytes()
    if change == "cut":
        os.truncate(log, len(data) // 2)
    else:
        log.unlink()
        if change == "replaced":
            log.with_name("other").write_bytes(data)  # takes the inode
            log.write_bytes(data)
    for isolation in ("read_uncommitted", "read_committed"):
        with pytest.raises(FileGoneError):
            ks.read_records(view, isolation=isolation, on_corrupt="stop")
    with pytest.raises(FileGoneError):
        ks.lookup_offset(view, 0)
    chunks = ks.scan_log_dir(view)
    assert chunks.to_arrow().num_rows == 0
    assert [one.symbol for one in chunks.problems] == ["FILE_GONE"]


def test_a_view_of_a_file_is_read_as_the_file_is(partition: HealthyPartition) -> None:
    log = partition.log(1)
    batches = ks.scan_batches(log).batches
    data, second = log.read_bytes(), slice(*batches["position"][[1, 3]].tolist())
    log.write_bytes(data[: second.start] + data[second.stop :])  # a gap
    view, path = open_view(log), str(log)
    for options in ({}, {"log_start_offset": 30}, {"on_corrupt": "stop"}):
        found, expected = (ks.read_records(one, **options) for one in (view, path))  # type: ignore[arg-type]
        assert found["offset"].tolist() == expected["offset"].tolist()
        assert not found.problems
        found = ks.lookup_offset(view, 7, log_start_offset=options.get("log_start_offset"))  # type: ignore[arg-type]
        assert found == ks.lookup_offset(path, 7, log_start_offset=options.get("log_start_offset"))  # type: ignore[arg-type]
    later = open_view(log, log_start_offset=33)
    assert ks.read_records(later)["offset"].min() == 33
    assert ks.count_records(later).counts["start_offset"].tolist() == [33]


def test_transactions_of_a_view_of_a_file_are_those_in_it(partition: HealthyPartition) -> None:
    log = partition.log(4)
    view = open_view(log)
    before = ks.read_records(view, isolation="read_committed")["offset"].tolist()
    append(partition)
    assert ks.read_records(view, isolation="read_committed")["offset"].tolist() == before
    retention_begins(partition.folder)
    log.rename(log.with_name(log.name + ".deleted"))
    assert ks.read_records(view, isolation="read_committed")["offset"].tolist() == before


def test_answers_about_a_view_do_not_share_what_they_noticed(partition: HealthyPartition) -> None:
    view = open_view(partition.folder)
    first, second = (ks.iter_records(view, batch_size=1, on_corrupt="stop") for _ in range(2))
    next(first)
    retention_ends(partition.folder)
    assert {one.symbol for table in second for one in table.problems} == {"CHANGED_WHILE_READ"}
    other = ks.iter_records(open_view(partition.log(4)), on_corrupt="stop")
    assert not any(table.problems for table in other)


def test_an_answer_of_a_newer_listing_says_so(partition: HealthyPartition) -> None:
    view = open_view(partition.folder)
    partition.log(4).unlink()
    table = ks.read_records(view, on_corrupt="stop")
    assert [one.symbol for one in table.problems] == ["CHANGED_WHILE_READ"]


def test_offsets_before_a_segment_of_a_newer_listing_are_missing(
    partition: HealthyPartition,
) -> None:
    """A copy is made again: its last segment is deleted, a later one is copied in between."""
    view = open_view(partition.folder)
    last = sorted(partition.folder.glob("*.log"))[-1]
    first, later = int(last.stem), partition.offset + 10
    last.unlink()
    (partition.folder / f"{later:020}.log").write_bytes(batch_of([RecordV2()], base_offset=later))
    with pytest.raises(ks.IncompleteLogError, match=f"offsets from {first} to {later - 1} are"):
        ks.read_records(view)
    table = ks.read_records(view, on_corrupt="stop")
    assert table["offset"][-1] < first
    gap = next(problem for problem in table.problems if problem.symbol == "OFFSET_GAP")
    assert (gap.offset, gap.count, Path(gap.path).stem) == (first, later - first, f"{later:020}")


def test_a_view_of_bytes_and_of_an_open_source(partition: HealthyPartition) -> None:
    data = partition.log(0).read_bytes()
    expected = ks.read_records(data)["offset"].tolist()
    assert ks.read_records(open_view(data))["offset"].tolist() == expected
    with ks.Source(partition.log(0)) as source:
        assert ks.read_records(open_view(source))["offset"].tolist() == expected


def test_a_view_begins_where_it_is_asked_to(partition: HealthyPartition) -> None:
    view = open_view(partition.folder, log_start_offset=30)
    assert view.start_offset == 30
    assert ks.read_records(view)["offset"].min() == 30
    assert ks.read_records(view, log_start_offset=0)["offset"].min() == 0


def test_a_view_cannot_be_changed(partition: HealthyPartition) -> None:
    view = open_view(partition.folder)
    with pytest.raises(AttributeError):
        view.start_offset = 3  # type: ignore[misc]
    assert isinstance(view.segments, tuple)


def test_a_view_is_of_one_log(partition: HealthyPartition) -> None:
    HealthyPartition(partition.folder.parent / "orders-1").write()
    with pytest.raises(IsADirectoryError, match="2 partitions"):
        open_view(partition.folder.parent)
    with pytest.raises(ValueError, match="of a directory"):
        ks.count_records(open_view(partition.folder), topics=["orders"])
    with pytest.raises(FileNotFoundError):
        open_view(partition.folder / "missing.log")
    empty = partition.folder.parent / "orders-2"
    empty.mkdir()
    with pytest.raises(NoLogsError):
        open_view(empty)
