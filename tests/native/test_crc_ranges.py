"""Checksums of ranges from stored sums, compared with other packages."""

from __future__ import annotations

import itertools
import zlib

import crc32c as crc32c_package
import numpy as np
import pytest

from kafkascan._core import search
from kafkascan.batches.resyncing.offset_chains import heaviest_ascending

DATA = np.random.default_rng(32).bytes(70_000)
STEP = search.SUM_STEP
EDGES = [0, 1, 7, STEP - 1, STEP, STEP + 1, 2 * STEP, 2 * STEP + 1, 3 * STEP + 5, 65_536, 70_000]


@pytest.mark.parametrize("start", [0, 1, STEP, 1000])
def test_ranges(start: int) -> None:
    room = np.empty(search.sums_for(len(DATA)), np.uint32)
    numbers = np.random.default_rng(start).integers(start, len(DATA), 400).tolist()
    places = sorted({one for one in [*EDGES, *numbers] if one >= start})
    for first in places[::7] + EDGES:
        for last in places:
            if start <= first <= last:
                part = DATA[first:last]
                assert search.crc_of_range(DATA, start, first, last, room) == (
                    crc32c_package.crc32c(part)
                )
                assert search.crc_of_range(DATA, start, first, last, room, True) == zlib.crc32(part)


def test_positions_outside() -> None:
    room = np.empty(search.sums_for(100), np.uint32)
    for places in [(5, 3, 10), (0, 10, 5), (0, 0, len(DATA) + 1), (-1, 0, 1)]:
        with pytest.raises(ValueError, match="positions"):
            search.crc_of_range(DATA, *places, room)
    with pytest.raises(ValueError, match="positions"):
        search.crc_of_range(DATA, 0, 0, 70_000, room[:3])
    searcher = search.Searcher(room, room)
    for places in [(0, 99, 0, 50), (-1, 100, 0, 50), (0, 100, 0, 101), (0, 100, 101, 101)]:
        with pytest.raises(ValueError, match="positions"):
            searcher.find(DATA[:100], places[0], places[1], places[2], places[3], 0, 9)


def test_choices_that_ascend() -> None:
    """Against all subsets."""
    rng = np.random.default_rng(5)
    for _ in range(300):
        count = int(rng.integers(0, 9))
        first = rng.integers(0, 12, count)
        last = first + rng.integers(0, 4, count)
        weight = rng.integers(1, 5, count)
        best = 0
        for mask in range(1 << count):
            rows = [row for row in range(count) if mask >> row & 1]
            pairs = itertools.pairwise(rows)
            if all(last[one] < first[other] for one, other in pairs):
                best = max(best, int(weight[rows].sum()))
        keep = heaviest_ascending(first, last, weight)
        rows = np.flatnonzero(keep)
        assert (last[rows][:-1] < first[rows][1:]).all()
        assert int(weight[rows].sum()) == best
