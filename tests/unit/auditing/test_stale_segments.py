"""Segments that overlap: each one that begins below the end of any earlier segment is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import kafkascan as ks
from tests.support.overlaps import HIDDEN_END, SHAPES, segment, write_segments

OVERLAPS = {
    "the first of three stale ones was replaced": [100, 200],
    "a stale one in the middle": [200],
    "part of a segment": [100],
    "part of a batch": [100],
    "an identical copy": [50],
    "longer than the log": [100, 200],
    "a middle one longer than the log": [200],
    "an empty one": [],
    "an empty one at the end": [],
}
"""Base offsets of the segments that begin within an earlier one, by shape."""


def found(folder: Path, symbol: str) -> list[int]:
    """Return the base offsets of the segments with a finding."""
    findings = ks.audit(folder).findings
    return sorted(int(Path(one.file).stem) for one in findings if one.symbol == symbol)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_overlap_is_found(shape: str, tmp_path: Path) -> None:
    folder = write_segments(tmp_path / "t-0", SHAPES[shape])
    assert found(folder, "OFFSET_OVERLAP") == OVERLAPS[shape]


def test_a_segment_is_compared_with_all_before_it(tmp_path: Path) -> None:
    folder = write_segments(tmp_path / "t-0", HIDDEN_END)
    assert found(folder, "OFFSET_OVERLAP") == [100, 200]
    # 250 to 499 are in B, two segments before: not missing.
    assert found(folder, "OFFSET_GAP") == []


def following_of(message: str) -> Path:
    """The segment that a message names: the one that begins before the end of another."""
    return Path(message.partition("are also in ")[2].partition(":")[0])


def test_the_same_overlaps_are_named_by_counts(tmp_path: Path) -> None:
    for number, segments in enumerate((*SHAPES.values(), HIDDEN_END)):
        folder = write_segments(tmp_path / str(number) / "t-0", segments)
        overlaps = ks.count_records(folder).problems["message"]
        named = {int(following.stem) for following in map(following_of, overlaps)}
        empty = {base for base, data in segments.items() if not data}
        assert named - empty == set(found(folder, "OFFSET_OVERLAP"))


def test_a_damaged_offset_is_not_the_end_of_a_segment(tmp_path: Path) -> None:
    """No checksum covers it: the segments that follow do not overlap."""
    damaged = bytearray(segment("A", 0, 100))
    last = int(ks.scan_batches(bytes(damaged)).batches["position"][-1])
    damaged[last : last + 8] = np.array([1 << 40], ">i8").tobytes()
    folder = write_segments(
        tmp_path / "t-0",
        {0: bytes(damaged), 100: segment("B", 100, 200), 200: segment("C", 200, 300)},
    )
    assert found(folder, "OFFSET_OVERLAP") == [100]


def test_the_advice_covers_both_kinds(tmp_path: Path) -> None:
    folder = write_segments(tmp_path / "t-0", SHAPES["part of a segment"])
    (one,) = [one for one in ks.audit(folder).findings if one.symbol == "OFFSET_OVERLAP"]
    assert "A broker loads both" in one.advice
