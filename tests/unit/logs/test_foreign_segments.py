"""Segments with offsets below their names: copies, or of another log. Every reader names them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.logs import LogFollower, log_chunks
from kafkascan.logs.log_dir import SegmentKinds
from kafkascan.logs.queries.index_seek import RowAnchor, seek_rows
from kafkascan.logs.queries.segment_inputs import SegmentPaths
from kafkascan.tables.table import Problem, Problems
from tests.support.internal_topics import TopicLog, commit
from tests.support.overlaps import Segments, segment, write_indexes, write_segments
from tests.support.schema_topics import schema

OWN = {base: segment("A", base, base + 10, step=2) for base in (0, 10, 20)}
SHAPES: dict[str, Segments] = {
    "the last one is a copy": {0: OWN[0], 10: OWN[0]},
    "its own offsets follow": {0: OWN[0], 10: OWN[0] + OWN[10]},
    "one in the middle": {0: OWN[0], 10: OWN[0] + OWN[10], 20: OWN[20]},
    "one in the middle is a copy": {0: OWN[0], 10: OWN[0], 20: OWN[20]},
    "the first one": {10: OWN[0] + OWN[10], 20: OWN[20]},
}
LOWEST, NAME = 0, f"{10:020}.log"


def _scanned(path: Path) -> Problems:
    table = ks.scan_log_dir(path)
    for _ in table:
        pass
    return table.problems


def _iterated(path: Path) -> Problems:
    *_, last = ks.iter_records(path, on_corrupt="stop")
    return last.problems


def _read(path: Path, isolation: ks.logs.Isolation = "read_uncommitted") -> Problems:
    return ks.read_records(path, isolation=isolation, on_corrupt="stop").problems


READERS: dict[str, Callable[[Path], Problems]] = {
    "count_records": lambda path: ks.count_records(path).problems,
    "count_records deep": lambda path: ks.count_records(path, deep=True).problems,
    "read_transactions": lambda path: ks.read_transactions(path).problems,
    "read_producers": lambda path: ks.read_producers(path).problems,
    "advise": lambda path: ks.advise(path, sample=1, choices=["none"]).problems,
    "scan_log_dir": _scanned,
    "read_fingerprints": lambda path: ks.analysis.read_fingerprints(path).problems,
    "diff_logs": lambda path: ks.diff_logs(path, path).problems,
    "read_records": _read,
    "read_committed": lambda path: _read(path, "read_committed"),
    "read_committed_view": lambda path: (
        ks.logs.read_committed_view(path, on_corrupt="stop").problems
    ),
    "iter_records": _iterated,
}


@pytest.fixture(params=SHAPES)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write_segments(tmp_path / "t-0", SHAPES[request.param])


def misplaced(problems: Problems) -> list[Problem]:
    """Return the problems of offsets below a name."""
    return [one for one in problems if one.symbol == "OFFSET_OUT_OF_SEGMENT"]


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_names_the_segment(reader: str, folder: Path) -> None:
    found = misplaced(READERS[reader](folder))
    assert {Path(one.path).name for one in found} == {NAME}
    assert {one.position for one in found} == {0}
    assert all(f"offset {LOWEST} is below" in one.message for one in found)
    assert all(one.severity is ks.Severity.ERROR for one in found)


def test_each_offset_is_read_once(folder: Path) -> None:
    table = ks.read_records(folder, on_corrupt="stop")
    offsets = table["offset"].tolist()
    assert offsets == sorted(set(offsets))
    (row,) = ks.count_records(folder).counts
    assert row["records"] == len(offsets)
    tables = ks.iter_records(folder, on_corrupt="stop")
    assert [one for part in tables for one in part["offset"].tolist()] == offsets


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("per_job", [1, 2, 64])
def test_on_any_number_of_threads(
    folder: Path, threads: int, per_job: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_chunks, "_SEGMENTS_PER_JOB", per_job)
    monkeypatch.setattr(log_chunks, "are_small", lambda sizes: False)
    counted = ks.count_records(folder, threads=threads)
    assert len(misplaced(counted.problems)) == 1
    assert not counted.is_exact.any()
    for found in (
        ks.read_transactions(folder, threads=threads),
        ks.read_producers(folder, threads=threads),
    ):
        assert len(misplaced(found.problems)) == 1


@pytest.mark.parametrize("rows", [1, 4, 5, 6, 4096])
def test_lower_offsets_after_higher_ones(
    rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are named wherever a table of batches begins."""
    monkeypatch.setattr(log_chunks, "_FIRST_ROWS", rows)
    segments = {0: OWN[0], 10: OWN[10] + OWN[0]}
    folder = write_segments(tmp_path / "t-0", segments)
    problems = ks.count_records(folder).problems
    assert [one.position for one in misplaced(problems)] == [len(OWN[10])]
    assert "OFFSET_OVERLAP" in {one.symbol for one in problems}


def test_no_segment_is_named_in_a_healthy_log(tmp_path: Path) -> None:
    folder = write_segments(tmp_path / "t-0", OWN)
    for read in READERS.values():
        assert not read(folder)


def test_a_query_warns(tmp_path: Path) -> None:
    pytest.importorskip("polars")
    folder = write_segments(tmp_path / "t-0", SHAPES["its own offsets follow"])
    with pytest.warns(ks.tables.IncompleteTableWarning, match="OFFSET_OUT_OF_SEGMENT"):
        frame = ks.polars.scan_records(folder).collect()
    assert frame["offset"].to_list() == list(range(20))


def test_a_follower_reports_it(folder: Path) -> None:
    follower = LogFollower(folder)
    for _ in range(3):
        list(follower.poll())
    assert sum(f"{NAME}: position 0: offset 0 is below" in one for one in follower.messages) == 1


def test_an_index_does_not_lead_past_it(tmp_path: Path) -> None:
    """A read from an entry on would not see the first batches of the segment."""
    for shape, is_found in (("its own offsets follow", False), ("healthy", True)):
        segments = SHAPES.get(shape, OWN)
        folder = write_segments(tmp_path / shape / "t-0", segments)
        write_indexes(folder)
        paths = SegmentPaths([folder], SegmentKinds.LOG, None, memory_map=True, drop_cache=None)
        inputs = paths.find(lambda *_: None, lambda _: None)
        found = seek_rows(inputs, RowAnchor(offset=15, time=None, count=1))
        assert (found is not None) is is_found


def _with_foreign_segment(log: TopicLog) -> None:
    """Copy the only segment of a log to the name after its last offset."""
    folder = log.write()
    first = folder / f"{0:020}.log"
    (folder / f"{log.offset:020}.log").write_bytes(first.read_bytes())


def test_groups(tmp_path: Path) -> None:
    log = TopicLog(tmp_path / "__consumer_offsets-0")
    log.add(commit("g", 0, 5), commit("g", 0, 6))
    _with_foreign_segment(log)
    assert misplaced(ks.read_groups(tmp_path).problems)


def test_schemas_and_their_usage(tmp_path: Path) -> None:
    log = TopicLog(tmp_path / "_schemas-0")
    log.add(schema("s", 1, 1, '"string"'))
    _with_foreign_segment(log)
    registry = ks.schemas.open_registry(tmp_path)
    assert misplaced(registry.problems)
    folder = write_segments(tmp_path / "t-0", SHAPES["its own offsets follow"])
    assert misplaced(ks.analysis.read_schema_usage(folder, registry).problems)
