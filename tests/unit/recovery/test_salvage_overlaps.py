"""Salvage of segments that overlap: each offset is kept once, and no copy of it is a loss."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.recovery import PartitionSalvage
from tests.support.overlaps import HIDDEN_END, SHAPES, Segments, segment, write_segments

COMPACTED = SHAPES["the first of three stale ones was replaced"]


def salvaged(tmp_path: Path, segments: Segments) -> tuple[PartitionSalvage, Path]:
    """Write and salvage a log; return the result and the copy."""
    folder = write_segments(tmp_path / "t-0", segments)
    (one,) = ks.salvage(folder, tmp_path / "out").partitions
    assert one.error is None
    return one, tmp_path / "out"


def values(folder: Path) -> Counter[str]:
    """Return the number of records from each segment, by its name."""
    records = ks.read_records(folder, on_corrupt="stop")  # a log may have gaps
    return Counter(value.decode() for value in records.to_numpy()["value"])


@pytest.mark.parametrize("shape", [*SHAPES, "hidden end"])
def test_the_copy_has_the_records_of_the_log(shape: str, tmp_path: Path) -> None:
    segments = SHAPES.get(shape, HIDDEN_END)
    one, copy = salvaged(tmp_path, segments)
    assert one.lost_bytes == 0
    assert one.overlaps
    expected, found = ks.read_records(tmp_path / "t-0"), ks.read_records(copy)
    assert "OFFSET_OVERLAP" in expected.problems["symbol"]
    # A part of a batch is kept in both segments, as no batch is split.
    overlaps = [one for one in found.problems if one.symbol == "OFFSET_OVERLAP"]
    assert len(overlaps) == (shape == "part of a batch")
    assert found["offset"].tolist() == expected["offset"].tolist()
    assert found.to_numpy()["value"].tolist() == expected.to_numpy()["value"].tolist()
    left_out = sum(range_.size for part in one.segments for range_ in part.duplicates)
    kept = sum(part.kept_bytes for part in one.segments)
    assert kept + left_out == sum(map(len, segments.values()))
    assert all(range_.kept_in for part in one.segments for range_ in part.duplicates)


def test_duplicates_name_the_segment_that_keeps_them(tmp_path: Path) -> None:
    one, copy = salvaged(tmp_path, COMPACTED)
    assert sorted(path.name for path in copy.glob("*.log")) == [f"{0:020}.log", f"{300:020}.log"]
    (first,) = one.segments[1].duplicates
    assert (first.first_offset, first.last_offset, first.kept_in) == (100, 199, f"{0:020}.log")
    again = ks.salvage(tmp_path / "t-0")
    (row, _) = again.rows()
    assert (row["outcome"], row["reason"]) == ("duplicate", f"{0:020}.log keeps these offsets")
    assert again.is_complete
    problem = next(one for one in again.problems if one.symbol == "DUPLICATE")
    assert str(problem) == (
        f"{tmp_path / 't-0' / f'{100:020}.log'}: position 0: a range with offsets 100 to 199, which"
        f" {0:020}.log keeps, is left out [DUPLICATE]"
    )


def test_a_segment_that_is_kept_in_part_begins_at_its_first_batch(tmp_path: Path) -> None:
    one, copy = salvaged(tmp_path, SHAPES["part of a segment"])
    assert one.segments[1].copied_as == f"{160:020}.log"
    assert sorted(int(path.stem) for path in copy.glob("*.log")) == [0, 160, 200]
    (piece,) = one.segments[1].pieces
    assert (piece.first_offset, piece.last_offset, piece.batches) == (160, 199, 2)


def damaged(data: bytes, batch: int) -> bytes:
    """Return a log with a flipped bit in the records of a batch."""
    changed = bytearray(data)
    changed[int(ks.scan_batches(data).batches["position"][batch]) + 65] ^= 1
    return bytes(changed)


def test_lost_batches_are_problems(tmp_path: Path) -> None:
    log = damaged(segment("A", 0, 100), 3)
    found = ks.salvage(write_segments(tmp_path / "t-0", {0: log}))
    (row,) = found.rows()
    (problem,) = found.problems
    assert (problem.symbol, problem.position) == ("CHECKSUM_MISMATCH", row["position"])
    assert problem.message == f"{row['size']} bytes lost, offsets 30 to 39"
    assert (problem.topic, problem.partition, problem.rows_missing) == ("t", 0, True)


def test_zeros_before_another_segment_are_a_problem(tmp_path: Path) -> None:
    log = segment("A", 0, 100)
    last = int(ks.scan_batches(log).batches["position"][-1])
    segments = {0: log[:last] + bytes(len(log) - last), 100: segment("B", 100, 200)}
    found = ks.salvage(write_segments(tmp_path / "t-0", segments))
    assert found.lost_bytes == 0
    assert [(one.symbol, one.position) for one in found.problems] == [("CUT_SEGMENT", last)]
    torn = segments | {0: log[:last] + b"\1" * 40}
    found = ks.salvage(write_segments(tmp_path / "u-0", torn))
    assert [(one.symbol, one.position) for one in found.problems] == [("TORN_TAIL", last)]


def test_damage_before_the_overlap(tmp_path: Path) -> None:
    """The stale segments are intact: what follows the damage is kept there."""
    one, copy = salvaged(tmp_path, COMPACTED | {0: damaged(COMPACTED[0], 3)})
    (loss,) = [loss for part in one.segments for loss in part.losses]
    assert loss.symbol == "CHECKSUM_MISMATCH"
    assert (loss.claimed_first_offset, loss.claimed_last_offset) == (30, 39)
    found = values(copy)
    assert (found["B"], found["C"], found["D"]) == (100, 100, 40)
    copies = one.segments[0].duplicates
    assert (copies[0].first_offset, copies[-1].last_offset) == (100, 299)


def test_damage_within_the_overlap(tmp_path: Path) -> None:
    """The compacted segment keeps what is before its damage, the last stale one the rest."""
    one, copy = salvaged(tmp_path, COMPACTED | {0: damaged(COMPACTED[0], 24)})
    offsets = ks.read_records(copy)["offset"].tolist()
    assert offsets == sorted(set(offsets))
    assert values(copy) == {"A": 35, "C": 60, "D": 40}
    assert set(range(240, 340)) <= set(offsets)
    assert [part.copied_as for part in one.segments] == [None, None, f"{240:020}.log", None]


def test_an_offset_that_was_flipped_is_no_overlap(tmp_path: Path) -> None:
    """One batch beyond the end of its segment is damaged: no checksum covers its offset."""
    log = bytearray(segment("A", 0, 100))
    last = int(ks.scan_batches(bytes(log)).batches["position"][-1])
    log[last + 6] ^= 1  # 90 becomes 346
    one, copy = salvaged(
        tmp_path, {0: bytes(log), 100: segment("B", 100, 200), 200: segment("C", 200, 300)}
    )
    assert one.overlaps == []
    (repair,) = one.segments[0].repairs
    assert (repair.field, repair.old, repair.new) == ("base_offset", 346, 90)
    assert values(copy) == {"A": 100, "B": 100, "C": 100}


@pytest.mark.parametrize("gap", [0, 20])
def test_one_batch_too_many_is_a_duplicate(gap: int, tmp_path: Path) -> None:
    """It is neither lost, nor moved to offsets that are missing before it."""
    first = segment("A", 0, 100 - gap) + segment("A", 100, 110)
    one, copy = salvaged(tmp_path, {0: first, 100: segment("B", 100, 200)})
    assert [part.losses + part.repairs for part in one.segments] == [[], []]
    (found,) = one.segments[0].duplicates
    assert (found.first_offset, found.last_offset, found.kept_in) == (100, 109, f"{100:020}.log")
    assert values(copy) == {"A": 100 - gap, "B": 100}
