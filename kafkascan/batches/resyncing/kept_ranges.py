"""Ranges of the batches that a damaged log keeps, and which of them are doubtful."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, join_tables, last_offset, size_in_bytes
from kafkascan.batches.resyncing.batch_runs import NEIGHBOURS, BatchRuns
from kafkascan.batches.resyncing.gaps import DamagedRanges
from kafkascan.batches.resyncing.ranges import KeptRange
from kafkascan.batches.scattered_reads import read_headers, rows_of_headers
from kafkascan.format.layout import NO_PRODUCER_ID, NO_SEQUENCE
from kafkascan.io.sources import Source

AT_END = 9
"""Number of batches at the end of a log that show whether its offsets have gaps."""

# Rows that are searched for such neighbours.
_SEARCHED = 64 * NEIGHBOURS
# Batches are not doubtful if they are so many times as many as those that contradict them.
_CLEAR_MAJORITY = 8
# Producers that may write at the rate of one whose sequences are compared.
_MOST_PRODUCERS = 16


def kept_ranges(
    source: Source,
    start: int,
    batches: BatchTable,
    damaged: DamagedRanges,
    dropped: BatchTable,
    copies: BatchTable,
    is_contested: NDArray[np.bool_] | None = None,
    runs: BatchRuns | None = None,
) -> list[KeptRange]:
    """
    Return the ranges of consecutive batches, and whether they are doubtful.

    Parameters
    ----------
    source : Source
    start : int
        Position at which the log begins.
    batches : ndarray of BATCH_DTYPE, shape (n,)
        Sorted by position, with ascending offsets.
    damaged : DamagedRanges
    dropped : ndarray of BATCH_DTYPE
        Batches with valid checksums that are not kept, because their offsets contradict kept
        ones; sorted by position, without copies of kept batches.
    copies : ndarray of BATCH_DTYPE
        Copies of kept batches, at other positions.
    is_contested : array of bool, shape (n,), optional
        Batches that are doubtful for another reason.
    runs : BatchRuns, optional
        Of all these batches; by default, each has a row.
    """
    runs = BatchRuns.none(source) if runs is None else runs
    numbers = _total(runs.counts(batches))
    starts, stops = batches["position"], batches["position"] + size_in_bytes(batches)
    ends, is_odd = (
        last_offset(batches),
        _are_rivalled(batches, dropped, copies, numbers, runs.counts(dropped)),
    )
    is_odd |= _are_after_copies(batches, copies, numbers, runs.counts(copies))
    is_odd[-1:] |= has_odd_end(batches)
    if is_contested is not None:
        is_odd |= is_contested
    is_head = np.append(True, (starts[1:] != stops[:-1]) | (is_odd[1:] != is_odd[:-1]))
    heads = np.flatnonzero(is_head[: len(batches)])
    bounds = np.append(heads, len(batches))
    first, position, end = batches["base_offset"][heads], starts[heads], stops[bounds[1:] - 1]
    is_new = position != np.append(start, end)[: len(heads)]
    is_clear = _are_continued(batches, damaged)[heads]
    is_clear |= is_new & _are_announced(source, batches, damaged, heads)
    is_doubtful = _doubtful(batches, bounds.tolist(), is_new, is_clear, is_odd[heads], numbers)
    columns = position, end - position, np.diff(numbers[bounds]), first, ends[bounds[1:] - 1]
    return list(map(KeptRange, *(one.tolist() for one in columns), is_doubtful))


def are_doubtful(batches: BatchTable, kept: list[KeptRange]) -> NDArray[np.bool_]:
    """Return which batches are in doubtful ranges."""
    doubtful = [one for one in kept if one.is_doubtful]
    starts = np.array([one.position for one in doubtful], np.int64)
    stops = starts + np.array([one.size for one in doubtful], np.int64)
    changes = np.zeros(len(batches) + 1, np.int64)
    np.add.at(changes, np.searchsorted(batches["position"], starts), 1)
    np.add.at(changes, np.searchsorted(batches["position"], stops), -1)
    is_doubtful: NDArray[np.bool_] = np.cumsum(changes)[:-1] > 0
    return is_doubtful


def _total(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of batches before each row, and of all."""
    return np.append(0, np.cumsum(counts))


def _are_rivalled(
    batches: BatchTable,
    dropped: BatchTable,
    copies: BatchTable,
    numbers: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """
    Return which batches are contradicted by dropped ones that are not far fewer.

    A dropped batch counts by itself, and together with all that are dropped at the same place. It
    contradicts the batches with its offsets, whatever is between. A batch that has a copy among
    those at the same place, in order with them, does not count: it would be kept with them, too.
    `counts` has the number of batches of which each dropped row consists.
    """
    if not len(dropped):
        return np.zeros(len(batches), np.bool_)
    place = np.searchsorted(batches["position"], dropped["position"])
    places, heads = np.unique(place, return_index=True)
    sizes = np.add.reduceat(counts, heads)
    low = np.searchsorted(last_offset(batches), dropped["base_offset"])
    high = np.searchsorted(batches["base_offset"], last_offset(dropped), "right")
    group_low, group_high = np.minimum.reduceat(low, heads), np.maximum.reduceat(high, heads)
    start = np.concatenate([low, np.minimum(low, place), np.minimum(group_low, places)])
    stop = np.concatenate([high, np.maximum(high, place), np.maximum(group_high, places)])
    rivals = np.append(np.ones(2 * len(dropped), np.int64), sizes)
    # Rows at a place, in the order of both.
    at_place = np.concatenate([place, place, places]) * (len(batches) + 1)
    spared = _copied_rows(batches, copies[_are_in_order(batches, copies, dropped)])
    count_of_spared = _total(np.diff(numbers)[spared % (len(batches) + 1)])
    has_copy = count_of_spared[np.searchsorted(spared, [at_place + start, at_place + stop])]
    is_close = start < stop
    contradicted = numbers[stop] - numbers[start] - (has_copy[1] - has_copy[0])
    is_close &= contradicted <= _CLEAR_MAJORITY * rivals
    changes = np.zeros(len(batches) + 1, np.int64)
    np.add.at(changes, start[is_close], 1)
    np.add.at(changes, stop[is_close], -1)
    count = np.cumsum(changes)[:-1]
    starts, stops = (np.sort((at_place + one)[is_close]) for one in (start, stop))
    sparing = np.searchsorted(starts, spared, "right") - np.searchsorted(stops, spared, "right")
    np.subtract.at(count, spared % (len(batches) + 1), sparing)
    rivalled: NDArray[np.bool_] = count > 0
    return rivalled


def _are_in_order(
    batches: BatchTable, copies: BatchTable, dropped: BatchTable
) -> NDArray[np.bool_]:
    """Return which copies are in order with all dropped batches between the same two batches."""
    table = join_tables([dropped, copies])
    order = np.argsort(table["position"], kind="stable")
    table, is_copy = table.take(order), (np.arange(len(table)) >= len(dropped))[order]
    first, last = table["base_offset"], last_offset(table)
    # Ranks, so that a place and an offset are one number, which ascends with the position.
    offsets = np.unique(np.append(first, last))
    count = len(offsets) + 2
    place = np.searchsorted(batches["position"], table["position"]) * count
    low, high = (1 + np.searchsorted(offsets, one) for one in (first, last))
    highest = np.maximum.accumulate(place + np.where(is_copy, 0, high))
    lowest = np.minimum.accumulate((place + np.where(is_copy, count - 1, low))[::-1])[::-1]
    are: NDArray[np.bool_] = (highest < place + low) & (place + high < lowest)
    return are[is_copy]


def _are_after_copies(
    batches: BatchTable,
    copies: BatchTable,
    numbers: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """
    Return which batches follow copies of later ones that are not far fewer.

    If the copy is where the batch was written, those between it and the kept one are not the log's.
    """
    row = np.searchsorted(batches["base_offset"], copies["base_offset"])
    place = np.searchsorted(batches["position"], copies["position"])
    _, group = np.unique(place, return_inverse=True)
    sizes = np.bincount(group, counts).astype(np.int64)
    is_close = (place < row) & (numbers[row] - numbers[place] <= _CLEAR_MAJORITY * sizes[group])
    changes = np.zeros(len(batches) + 1, np.int64)
    np.add.at(changes, place[is_close], 1)
    np.add.at(changes, row[is_close], -1)
    are: NDArray[np.bool_] = np.cumsum(changes)[:-1] > 0
    are[row[is_close]] = False
    return are


def _copied_rows(batches: BatchTable, copies: BatchTable) -> NDArray[np.int64]:
    """Return the rows that have copies, as ``place * (len(batches) + 1) + row``, sorted."""
    row = np.searchsorted(batches["base_offset"], copies["base_offset"])
    place = np.searchsorted(batches["position"], copies["position"])
    is_row = row < len(batches)
    is_row[is_row] = batches["base_offset"][row[is_row]] == copies["base_offset"][is_row]
    rows: NDArray[np.int64] = np.unique((place * (len(batches) + 1) + row)[is_row])
    return rows


def has_odd_end(batches: BatchTable) -> bool:
    """Return whether the last offset follows the only gap, and one flipped bit explains it."""
    end = batches[-AT_END:]
    stops = end["position"] + size_in_bytes(end)
    gaps = (end["base_offset"][1:] ^ (last_offset(end)[:-1] + 1)).tolist()
    return (
        len(end) == AT_END
        and not any(gaps[:-1])
        and gaps[-1].bit_count() == 1
        and bool(end["position"][-1] == stops[-2])
    )


def _are_continued(batches: BatchTable, damaged: DamagedRanges) -> NDArray[np.bool_]:
    """Return which batches continue the offsets of the one before, without noise in between."""
    noise = damaged.rows["position"][~damaged.have("OFFSETS_NOT_ASCENDING")]
    ends = _ends_before(batches)
    are: NDArray[np.bool_] = np.searchsorted(noise, batches["position"]) == np.searchsorted(
        noise, ends
    )
    are[:1] = False
    are[1:] &= last_offset(batches)[:-1] + 1 == batches["base_offset"][1:]
    return are


def _are_announced(
    source: Source, batches: BatchTable, damaged: DamagedRanges, heads: NDArray[np.intp]
) -> NDArray[np.bool_]:
    """
    Return before which rows the header of a damaged batch claims to end where they start.

    A batch of another log proves nothing, nor does a valid one that is not kept, unless it is the
    only one since the batch before.
    """
    rows = damaged.rows.take(np.argsort(damaged.rows["stop"], kind="stable"))
    position = batches["position"][heads]
    before = np.searchsorted(rows["stop"], position, "right") - 1
    has_damage = np.flatnonzero(before >= 0)
    has_damage = has_damage[rows["stop"][before[has_damage]] == position[has_damage]]
    one = replace(damaged, rows=rows.take(before[has_damage]))
    end = _ends_before(batches)[heads[has_damage]]
    start = one.rows["position"]
    may_be = ~one.have("NESTED")
    may_be &= ~one.have("OFFSETS_NOT_ASCENDING") | ((end != 0) & (start == end))
    are_framed = one.rows["is_framed"] != 0
    open_ = np.flatnonzero(may_be & ~are_framed)
    headers, are_plausible = headers_at(source, start[open_])
    claims = are_plausible & (start[open_] + size_in_bytes(headers) == one.rows["stop"][open_])
    are_framed[open_] = claims
    announced = np.zeros(len(heads), np.bool_)
    announced[has_damage] = may_be & are_framed
    return announced


def _ends_before(batches: BatchTable) -> NDArray[np.int64]:
    """Return where the batch before each one ends; 0 before the first."""
    ends: NDArray[np.int64] = np.append(0, batches["position"] + size_in_bytes(batches))
    return ends[:-1]


def _doubtful(
    batches: BatchTable,
    bounds: list[int],
    is_new: NDArray[np.bool_],
    is_clear: NDArray[np.bool_],
    is_odd: NDArray[np.bool_],
    numbers: NDArray[np.int64],
) -> list[bool]:
    """
    Return which ranges are doubtful.

    One that does not touch the range before belongs to the log if that does, and offsets or a
    header show that it follows, or if sequences do.
    """
    sequences, found = _Sequences(batches, numbers), list[bool]()
    is_confirmed = is_sure = True
    columns = (one.tolist() for one in (is_new, is_clear, is_odd))
    for (start, stop), new, clear, odd in zip(itertools.pairwise(bounds), *columns, strict=True):
        if new:
            is_confirmed = (is_sure and clear) or sequences.confirm(start, stop)
        is_sure = is_confirmed and not odd
        found.append(not is_sure)
        if is_sure:
            sequences.add(start, stop)
    return found


class _Sequences:
    """Sequences of the last batches that belong to the log."""

    def __init__(self, batches: BatchTable, numbers: NDArray[np.int64]) -> None:
        self._batches, self._numbers = batches, numbers
        self._has_any = bool((batches["producer_id"] > NO_PRODUCER_ID).any())
        self._columns = batches[["producer_id", "producer_epoch", "base_sequence", "base_offset"]]
        self._count = 0
        # Of the last batch of each producer: the row, the number of batches before it, and what
        # it has in the two columns.
        self._last = dict[tuple[int, int], tuple[int, int, int, int]]()

    def add(self, start: int, stop: int) -> None:
        """Add a range that belongs to the log."""
        if not self._has_any:
            return
        first = max(start, stop - NEIGHBOURS)
        for row, one in enumerate(self._columns[first:stop].tolist(), first):
            producer, epoch, sequence, offset = one
            if sequence > NO_SEQUENCE:
                self._last[producer, epoch] = row, self._count + row - start, sequence, offset
        self._count += stop - start

    def confirm(self, start: int, stop: int) -> bool:
        """Return whether a producer's first sequence in a range can follow its last one before."""
        if not self._has_any:
            return False
        inside = self._columns[start : min(stop, start + NEIGHBOURS)]
        for producer, epoch, sequence, offset in inside.tolist():
            last = self._last.get((producer, epoch))
            if producer <= NO_PRODUCER_ID or sequence <= NO_SEQUENCE or last is None:
                continue
            row, number, last_sequence, last_offset_ = last
            is_far = self._numbers[row] < self._numbers[start] - _SEARCHED
            if is_far or self._count - number > NEIGHBOURS:
                continue
            offsets, records = offset - last_offset_, sequence - last_sequence
            is_next = 0 < records <= offsets <= _MOST_PRODUCERS * records
            # A history that was truncated has such sequences, too, but a lower leader epoch.
            return is_next and not self._falls(start)
        return False

    def _falls(self, row: int) -> bool:
        """Return whether the leader epoch of a batch is below that of the batch before it."""
        pair = self._batches[max(0, row - 1) : row + 1]
        epochs = pair["partition_leader_epoch"]
        return len(pair) == 2 and bool((pair["magic"] == 2).all()) and bool(epochs[1] < epochs[0])


def headers_at(
    source: Source, positions: NDArray[np.int64]
) -> tuple[BatchTable, NDArray[np.bool_]]:
    """Return rows of headers, regardless of checksums, and which of them are plausible."""
    left = source.size - positions
    return rows_of_headers(read_headers(source, positions), positions, left)
