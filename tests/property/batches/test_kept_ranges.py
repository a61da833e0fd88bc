"""Which kept batches are doubtful, against a slow twin."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from hypothesis import given, strategies as st
from numpy.typing import NDArray

import kafkascan as ks
from kafkascan.batches.columns import BatchTable, last_offset
from kafkascan.batches.resyncing.gaps import DamagedRanges, damaged_batches
from kafkascan.batches.resyncing.kept_ranges import kept_ranges
from kafkascan.batches.resyncing.offset_evidence import are_copies

SIZE = 100

Row: TypeAlias = tuple[int, int, int]
Positions: TypeAlias = NDArray[np.int64]

rows_of_a_log = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=30)
rows_elsewhere = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 8)), max_size=6)


def table(rows: list[tuple[int, int, int]]) -> BatchTable:
    batches = np.zeros(len(rows), ks.BATCH_DTYPE)
    for batch, (position, first, delta) in zip(batches, rows, strict=True):
        batch["position"], batch["base_offset"] = position, first
        batch["last_offset_delta"], batch["batch_length"] = delta, SIZE - 12
        batch["crc"] = first % 3
    return batches


@given(rows_of_a_log, rows_elsewhere, st.integers(0, 4), st.data())
def test_batches_with_rivals(
    kept: list[tuple[int, int]],
    other: list[tuple[int, int]],
    copies: int,
    data: st.DataObject,
) -> None:
    """A dropped batch, or those between the same two kept ones, against what they contradict."""
    copied = data.draw(st.lists(st.integers(0, len(kept) - 1), max_size=copies)) if kept else []
    kinds = [*["kept"] * len(kept), *["dropped"] * len(other), *["copy"] * len(copied)]
    offset, log, dropped, again = 0, list[Row](), list[Row](), list[Row]()
    order, places = data.draw(st.permutations(kinds)), list[int]()
    ranges = [(offset := offset + gap, offset := offset + delta) for gap, delta in kept]
    inner, outer, twins = iter(ranges), iter(other), iter(copied)
    for row, kind in enumerate(order):
        if kind == "kept":
            first, last = next(inner)
            log.append((row * SIZE, len(log) + first, last - first))
        elif kind == "dropped":
            first, delta = next(outer)
            dropped.append((row * SIZE, first, delta))
            places.append(len(log))
        else:
            at = next(twins)
            first, last = ranges[at]
            again.append((row * SIZE, at + first, last - first))
    groups = [[one] for one in range(len(dropped))]
    groups += [[one for one in range(len(dropped)) if places[one] == at] for at in set(places)]
    expected = set[int]()
    for group in groups:
        spared = spared_rows(log, dropped, again, places, places[group[0]])
        against: set[int] = set()
        for one in group:
            _, first, delta = dropped[one]
            against |= {
                row
                for row, (_, low, size) in enumerate(log)
                if (row < places[one] and low + size >= first)
                or (row >= places[one] and low <= first + delta)
            }
        if len(against - spared) <= 8 * len(group):
            expected |= against - spared
    for place, (_, first, delta) in zip(places, dropped, strict=True):
        same = {
            row
            for row, (_, low, size) in enumerate(log)
            if low <= first + delta and low + size >= first
        }
        same -= spared_rows(log, dropped, again, places, place)
        if len(same) <= 8:
            expected |= same
    expected |= after_copies(again, log)
    found = doubtful_rows(table(log), table(dropped), table(again))
    if len(log) < 9:  # the last offset of a longer log may be odd, too
        assert found == expected
    assert found - {len(log) - 1} == expected - {len(log) - 1}


def spared_rows(
    log: list[Row], dropped: list[Row], copies: list[Row], places: list[int], place: int
) -> set[int]:
    """Return the rows with a copy at a place that is in order with all batches dropped there."""
    here = [one for one, at in zip(dropped, places, strict=True) if at == place]
    found = set[int]()
    for position, first, delta in copies:
        if sum(at < position for at, _, _ in log) == place and all(
            other + size < first if at < position else other > first + delta
            for at, other, size in here
        ):
            found |= {row for row, one in enumerate(log) if one[1] == first}
    return found


def after_copies(copies: list[Row], log: list[Row]) -> set[int]:
    """Return the rows between copies at a place and later rows with these batches."""
    places = [sum(at < position for at, _, _ in log) for position, _, _ in copies]
    rows = [next(row for row, one in enumerate(log) if one[1] == copy[1]) for copy in copies]
    found, copied = set[int](), set[int]()
    for place, row in zip(places, rows, strict=True):
        if place < row <= place + 8 * places.count(place):
            found |= set(range(place, row))
            copied.add(row)
    return found - copied


def doubtful_rows(batches: BatchTable, dropped: BatchTable, copies: BatchTable) -> set[int]:
    noise = DamagedRanges("log", damaged_batches(dropped, "OFFSETS_NOT_ASCENDING"))
    empty = batches.copy()  # without bytes between batches, only rivals make one doubtful
    empty["position"] = np.arange(len(batches)) * SIZE
    # Those at a place are between the first bytes of the batch after it and the batch before.
    moved, twins = (
        between(batches, one, np.concatenate([dropped["position"], copies["position"]]))
        for one in (dropped, copies)
    )
    ranges = kept_ranges(ks.Source(bytes(SIZE * 50)), 0, empty, noise, moved, twins)
    starts = np.cumsum([0, *(one.batches for one in ranges)]).tolist()
    assert starts[-1] == len(batches)
    return {
        row
        for start, one in zip(starts, ranges, strict=False)
        for row in range(start, start + one.batches)
        if one.is_doubtful
    }


def between(batches: BatchTable, others: BatchTable, all_positions: Positions) -> BatchTable:
    """Move batches to the end of the batch before them, in their order."""
    places = np.searchsorted(batches["position"], others["position"])
    moved = others.copy()
    ranks = np.searchsorted(np.sort(all_positions), others["position"])
    moved["position"] = places * SIZE - SIZE + 1 + ranks
    return moved


@given(rows_elsewhere, rows_elsewhere)
def test_copies(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    batches, others = (table([(0, *row) for row in rows]) for rows in (one, other))
    names = ["base_offset", "batch_length", "crc"]
    expected = [row in others[names].tolist() for row in batches[names].tolist()]
    assert are_copies(batches, others).tolist() == expected
    both = are_copies(batches, others, ("last_offset_delta",))
    assert both.tolist() == [row in other for row in one]
    assert (last_offset(batches) >= batches["base_offset"]).all()
