"""Segments that overlap: each offset is read once, and nothing is called exact."""

from __future__ import annotations

import random
import re
from pathlib import Path

import numpy as np
import pytest

import kafkascan as ks
from kafkascan.logs import log_chunks, open_log_dir
from kafkascan.logs.opened_logs import OffsetCursor
from kafkascan.tables.table import Problems
from tests.support.overlaps import HIDDEN_END, SHAPES, Segments, segment, write_segments
from tests.support.partitions import HealthyPartition
from tests.support.segments import batch_v2

# Which segments the offsets come from: names, first and last offsets.
EXPECTED = {
    "the first of three stale ones was replaced": [("A", 0, 294), ("D", 300, 339)],
    "a stale one in the middle": [("A", 0, 99), ("B", 105, 294), ("D", 300, 339)],
    "part of a segment": [("A", 0, 159), ("B", 160, 199), ("C", 200, 239)],
    "part of a batch": [("A", 0, 149), ("B", 150, 199), ("C", 200, 239)],
    "an identical copy": [("A", 0, 99), ("C", 100, 139)],
    "longer than the log": [("A", 0, 399)],
    "a middle one longer than the log": [("A", 0, 99), ("B", 100, 399)],
    "an empty one": [("A", 0, 299), ("D", 300, 339)],
    "an empty one at the end": [("A", 0, 299)],
    "a hidden end": [("A", 0, 299), ("B", 300, 499), ("D", 500, 539)],
}
# The pairs of segments, and the offsets that both contain.
OVERLAPS = {
    "the first of three stale ones was replaced": [(0, 100, 100, 199), (0, 200, 200, 299)],
    "a stale one in the middle": [(100, 200, 200, 299)],
    "part of a segment": [(0, 100, 100, 159)],
    "part of a batch": [(0, 100, 100, 149)],
    "an identical copy": [(0, 50, 50, 99)],
    "longer than the log": [(0, 100, 100, 199), (0, 200, 200, 249)],
    "a middle one longer than the log": [(100, 200, 200, 249)],
    "an empty one": [(0, 100, 100, 299)],
    "an empty one at the end": [(0, 100, 100, 299)],
    "a hidden end": [(0, 100, 100, 299), (100, 200, 200, 249)],
}
LOGS: dict[str, Segments] = SHAPES | {"a hidden end": HIDDEN_END}


@pytest.fixture(params=LOGS)
def shape(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def folder(shape: str, tmp_path: Path) -> Path:
    return write_segments(tmp_path / "t-0", LOGS[shape])


def ranges_of(table: ks.records.RecordTable) -> list[tuple[str, int, int]]:
    """Return the ranges of records with the same value."""
    values = [value.decode() for value in table.to_numpy()["value"]]
    offsets = table["offset"].tolist()
    assert offsets == sorted(set(offsets))
    return [
        (name, *[min(found), max(found)])
        for name in dict.fromkeys(values)
        if (found := [at for at, value in zip(offsets, values, strict=True) if value == name])
    ]


def pairs_of(problems: Problems) -> list[tuple[int, int, int, int]]:
    """Return the names of the two segments, and the offsets that both have."""
    found = []
    for one in problems:
        if one.symbol == "OFFSET_OVERLAP":
            first, last, following = map(int, re.findall(r"\d+", one.message))
            found.append((int(Path(one.path).stem), following, first, last))
    return found


def test_records(folder: Path, shape: str) -> None:
    table = ks.read_records(folder)
    assert ranges_of(table) == EXPECTED[shape]
    assert pairs_of(table.problems) == OVERLAPS[shape]
    tables = list(ks.iter_records(folder))
    assert (len(tables[-1]), tables[-1].problems.rows()) == (0, table.problems.rows())
    assert [one for part in tables for one in part["offset"].tolist()] == table["offset"].tolist()


def test_committed_records(folder: Path, shape: str) -> None:
    assert ranges_of(ks.read_records(folder, isolation="read_committed")) == EXPECTED[shape]


@pytest.mark.parametrize("threads", [1, 3])
def test_tables_of_whole_logs(
    folder: Path, shape: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for per_job in (1, 2, 64):  # what a job reads before it is known where the others end
        monkeypatch.setattr(log_chunks, "_SEGMENTS_PER_JOB", per_job)
        monkeypatch.setattr(log_chunks, "are_small", lambda sizes: False)
        scan = ks.scan_log_dir(folder, threads=threads)
        bases = np.concatenate([chunk.batches["base_offset"] for chunk in scan])
        assert (np.diff(bases) > 0).all() or shape == "part of a batch"
        assert pairs_of(scan.problems) == OVERLAPS[shape]
        counted = ks.count_records(folder, threads=threads)
        assert pairs_of(counted.problems) == OVERLAPS[shape]
        assert counted.counts["end_offset"].tolist() == [EXPECTED[shape][-1][2] + 1]
        assert not counted.is_exact.any()
        for found in (ks.read_transactions(folder), ks.read_producers(folder, threads=threads)):
            assert pairs_of(found.problems) == OVERLAPS[shape]


def test_counts_are_those_of_the_records(folder: Path, shape: str) -> None:
    if shape == "part of a batch":  # it is counted completely
        return
    records = len(ks.read_records(folder))
    (row,) = ks.count_records(folder).counts
    assert row["records"] == records
    assert ks.read_producers(folder).counts["records"].tolist() == [records]


def test_everything_on_disk(folder: Path, shape: str) -> None:
    scan = ks.scan_log_dir(folder, include="all")
    batches = sum(len(chunk) for chunk in scan)
    assert batches == sum(len(ks.scan_batches(log).batches) for log in folder.glob("*.log"))
    assert not scan.problems


def test_several_partitions(tmp_path: Path) -> None:
    """The end of one log says nothing about the next one."""
    for number, segments in enumerate(LOGS.values()):
        write_segments(tmp_path / f"t-{number}", segments)
    counted = ks.count_records(tmp_path)
    for number, shape in enumerate(LOGS):
        of_log = Problems(one for one in counted.problems if one.partition == number)
        assert pairs_of(of_log) == OVERLAPS[shape]
    scan = ks.scan_log_dir(open_log_dir(tmp_path))
    rows = sum(len(chunk) for chunk in scan)
    assert rows == counted.counts["batches"].sum()
    assert len(pairs_of(scan.problems)) == sum(map(len, OVERLAPS.values()))


def test_healthy_logs_have_none(tmp_path: Path) -> None:
    folder = HealthyPartition(tmp_path / "orders-0").write().folder
    assert ks.count_records(folder).is_exact.all()
    assert ks.read_records(folder)["offset"].max() > 0  # a warning would be an error


def test_transactions_are_followed_once(tmp_path: Path) -> None:
    partition = HealthyPartition(tmp_path / "orders-0").write()
    expected = ks.read_transactions(partition.folder)
    paths = [partition.log(number) for number in range(3)]
    paths[0].write_bytes(b"".join(path.read_bytes() for path in paths))
    found = ks.read_transactions(partition.folder)
    assert found.spans.tolist() == expected.spans.tolist()
    assert {one.symbol for one in found.problems} == {"OFFSET_OVERLAP"}
    view, known = (
        ks.logs.read_committed_view(partition.folder),
        ks.logs.read_committed_view(paths[0]),
    )
    assert view.first_offsets.tolist() == known.first_offsets.tolist()


def test_the_end_of_a_segment_in_a_chunk_of_its_own(tmp_path: Path) -> None:
    """A table that is full when the log ends: the end comes without batches."""
    base = 4096
    log = b"".join(batch_v2(base_offset=offset) for offset in range(base))
    (tmp_path / f"{0:020}.log").write_bytes(log)
    for following, is_exact in ((base - 1, False), (base, True)):
        (tmp_path / f"{following:020}.log").write_bytes(batch_v2(base_offset=following))
        assert ks.count_records(tmp_path).is_exact.tolist() == [is_exact]
        (tmp_path / f"{following:020}.log").unlink()


def test_an_impossible_offset_hides_no_segment(tmp_path: Path) -> None:
    """A segment holds 2**31 offsets: one flipped bit must not make the rest a duplicate."""
    damaged = segment("A", 0, 90) + batch_v2(base_offset=1 << 40)
    segments = {0: damaged, 100: segment("B", 100, 200), 200: segment("C", 200, 300)}
    folder = write_segments(tmp_path / "t-0", segments)
    counted = ks.count_records(folder)
    assert counted.counts["records"].tolist() == [90 + 1 + 200]
    assert counted.is_exact.tolist() == [False]


def test_the_cursor_by_itself(tmp_path: Path) -> None:
    folder = write_segments(tmp_path / "t-0", SHAPES["part of a segment"])
    (partition,) = open_log_dir(folder).partitions
    first, second, third = partition.log_segments
    cursor = OffsetCursor()
    assert cursor.add(first, 160) == []
    (overlap,) = cursor.add(second, 200)
    assert str(overlap) == (
        f"{first.path}: offsets 100 to 159 are also in {second.path.name}: one of the segments is"
        " stale [OFFSET_OVERLAP]"
    )
    assert cursor.position == 200
    assert cursor.add(third, None) == []
    assert cursor.position == 200


@pytest.mark.parametrize("seed", range(12))
def test_many_segments_in_jobs_of_any_size(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule, offset by offset: a segment is read from the end of the earlier ones on."""
    dice = random.Random(seed)
    bases = sorted(dice.sample(range(0, 600, 10), 9))
    ends = [base + 10 * dice.choice((0, 1, 3, 8, 20)) for base in bases]
    segments = {base: segment("x", base, end) for base, end in zip(bases, ends, strict=True)}
    folder = write_segments(tmp_path / "t-0", segments)
    expected, position = list[int](), 0
    for base, end in zip(bases, ends, strict=True):
        expected += range(max(base, position), end, 10)
        position = max(position, end if end > base else 0)
    monkeypatch.setattr(log_chunks, "are_small", lambda sizes: False)
    for per_job, threads in ((1, 1), (1, 3), (2, 2), (4, 3), (64, 1)):
        monkeypatch.setattr(log_chunks, "_SEGMENTS_PER_JOB", per_job)
        scan = ks.scan_log_dir(folder, threads=threads)
        found = [base for chunk in scan for base in chunk.batches["base_offset"].tolist()]
        assert found == expected
        assert ks.count_records(folder, threads=threads).counts["records"] == 10 * len(expected)
