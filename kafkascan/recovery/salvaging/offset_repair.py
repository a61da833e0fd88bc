"""Reconstruct damaged base offsets, which no checksum covers.

A batch with a valid checksum may have offsets that contradict the log because its base offset is
damaged, or because it is intact and was moved or copied here. Only the first is repaired. The
repair needs neighbours that leave exactly the offsets for it, and a stored value that no batch of
the log can have.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, last_offset, size_in_bytes
from kafkascan.batches.resyncing.batch_runs import BatchRuns
from kafkascan.batches.resyncing.gaps import DamagedRanges
from kafkascan.batches.resyncing.offset_evidence import by_content

# Batches at the end of a log whose offsets show whether the log has gaps.
_AT_END = 8
# If all of these but one are equal, two batches may be copies, and one of them damaged.
_SIMILAR = ("batch_length", "base_timestamp", "max_timestamp", "base_sequence")
# Offsets that the lost end of a log may have had.
_LOST_OFFSETS = 1 << 20


@dataclass(frozen=True)
class Placement:
    """
    Batches with repaired base offsets, and those that were not repaired.

    Attributes
    ----------
    batches : ndarray of BATCH_DTYPE
        With their new base offsets.
    dropped : ndarray of BATCH_DTYPE
    certain : ndarray of int64
        Positions of the batches whose new base offset is certain.
    """

    batches: BatchTable
    dropped: BatchTable
    certain: NDArray[np.int64]

    def are_certain(self, batches: BatchTable) -> NDArray[np.bool_]:
        """Return which batches have their stored base offset, or a certain one."""
        are: NDArray[np.bool_] = ~np.isin(batches["position"], self.batches["position"])
        return are | np.isin(batches["position"], self.certain)


class OffsetRepair:
    """
    Repair of base offsets in one segment.

    Parameters
    ----------
    batches : ndarray of BATCH_DTYPE
        The batches of the log, sorted, with ascending offsets.
    dropped : ndarray of BATCH_DTYPE
        Other batches with valid checksums, sorted: either all of them are copies of batches of the
        log, or none is.
    damaged : DamagedRanges
        Bytes that are in neither.
    runs : BatchRuns
        Of all these batches; none has offsets of dropped batches that it is not a copy of.
    lowest, highest : int
        Range of the offsets that the segment may contain, inclusive.
    """

    def __init__(
        self,
        batches: BatchTable,
        dropped: BatchTable,
        damaged: DamagedRanges,
        runs: BatchRuns,
        lowest: int,
        highest: int,
    ) -> None:
        self._batches, self._dropped, self._runs = batches, dropped, runs
        self._lowest, self._highest = lowest, highest
        self._first, self._last = batches["base_offset"], last_offset(batches)
        # Number of offsets that are missing before each row.
        self._gaps = self._first - np.append(np.int64(lowest - 1), self._last[:-1]) - 1
        self._starts = batches["position"]
        self._stops = self._starts + size_in_bytes(batches)
        # Rows before which bytes are damaged: offsets in such gaps may be those of lost batches.
        rows = np.searchsorted(self._starts, damaged.rows["position"])
        self._is_damaged_before = np.zeros(len(batches) + 1, np.bool_)
        self._is_damaged_before[rows] = True
        # Of two copies, at least one is not where it was written.
        order, is_next = by_content(dropped)
        self._repeated = dropped["position"][order[~(is_next & np.append(is_next[1:], True))]]
        # There may also be copies, and batches without a place.
        self._has_bytes_before = self._is_damaged_before.copy()
        self._has_bytes_before[:-1] |= self._starts != np.append(0, self._stops)[:-1]
        # Rows that continue the one before in bytes and in offsets.
        self._follows = np.zeros(len(batches) + 1, np.bool_)
        self._follows[1:-1] = (self._first[1:] == self._last[:-1] + 1) & (
            self._starts[1:] == self._stops[:-1]
        )
        self._end = int(self._last[-1:].max(initial=-1))
        self._has_several = int(runs.counts(dropped).sum()) > 1

    def may_place_runs(self) -> bool:
        """Return whether batches in runs may have offsets that `place` gives them."""
        at, runs = self._runs.find(self._dropped)
        most = self._dropped["last_offset_delta"].astype(np.int64) + 1
        fewest, are_runs = most.copy(), np.zeros(len(most), np.int64)
        are_runs[at] = 1
        fewest[at] = np.where(runs["is_dense"], most[at], runs["batches"])
        heads, sizes, row_of = self._groups()
        have_runs, fewest, most = (
            total[heads + sizes] - total[heads]
            for total in (np.append(0, np.cumsum(values)) for values in (are_runs, fewest, most))
        )
        room = self._room_at(row_of)
        may_fill = (fewest - 1 <= room) & (room <= most - 1)
        return bool((have_runs.astype(np.bool_) & (may_fill | (sizes == 1))).any())

    def place(self) -> Placement:
        """Return the batches that have offsets in the log, and the others."""
        heads, sizes, row_of = self._groups()
        if not len(heads):
            return Placement(self._dropped[:0], self._dropped, np.empty(0, np.int64))
        group_of = np.repeat(np.arange(len(heads)), sizes)
        starts = np.cumsum(sizes) - sizes  # of the groups among their batches
        members = np.arange(len(group_of)) + (heads - starts)[group_of]
        batches, rows = self._dropped.take(members), row_of[group_of]
        counts = batches["last_offset_delta"].astype(np.int64) + 1
        before = np.cumsum(counts) - counts
        low = np.append(np.int64(self._lowest - 1), self._last)[row_of] + 1
        offsets = (low - before[starts])[group_of] + before
        have_place = ((batches["magic"] == 2) | (batches["records_count"] >= 0)) & (counts >= 1)
        have_place &= ~self._may_be_intact(batches, rows, offsets)
        have_place &= ~np.isin(batches["position"], self._repeated)
        high = low + np.add.reduceat(counts, starts)
        is_placed = np.logical_and.reduceat(have_place, starts) & ~self._are_claimed(
            low, high, heads, sizes
        )
        is_placed &= ~self._have_wrong_times(batches, starts, row_of)
        is_placed &= self._are_filled(low, high, row_of) | self._are_end(
            batches, starts, low, row_of
        )
        kept = np.zeros(len(self._dropped), np.bool_)
        kept[members] = is_placed[group_of]
        are_certain = np.logical_and.reduceat(self._are_certain(batches, rows, offsets), starts)
        if not kept.all():  # the batches that contradict those without a place may be wrong
            are_certain[:] = False
        is_kept = is_placed[group_of]
        certain = batches["position"][is_kept & are_certain[group_of]]
        batches["base_offset"] = offsets
        return Placement(batches.compress(is_kept), self._dropped.compress(~kept), certain)

    def _groups(self) -> tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.intp]]:
        """
        Return consecutive batches that fill the bytes between two batches of the log.

        Returns
        -------
        heads : ndarray of int, shape (n,)
            First of each group.
        sizes : ndarray of int, shape (n,)
            Number of batches.
        row_of : ndarray of int, shape (n,)
            Row that follows each.
        """
        following = np.searchsorted(self._starts, self._dropped["position"])
        heads = np.flatnonzero(np.diff(following, prepend=-1))
        row_of = following[heads]
        begin = np.append(0, self._stops)[row_of]
        is_filled = (self._dropped["position"][heads] == begin) & ~self._is_damaged_before[row_of]
        room = np.append(self._starts, 0)[row_of] - begin
        is_last = row_of == len(self._starts)
        is_filled &= is_last | (np.add.reduceat(size_in_bytes(self._dropped), heads) == room)
        sizes = np.diff(heads, append=len(following))
        return heads[is_filled], sizes[is_filled], row_of[is_filled]

    def _are_filled(
        self, low: NDArray[np.int64], high: NDArray[np.int64], row_of: NDArray[np.intp]
    ) -> NDArray[np.bool_]:
        """Return which groups have exactly the offsets between their neighbours."""
        are: NDArray[np.bool_] = high - low - 1 == self._room_at(row_of)
        return are

    def _room_at(self, row_of: NDArray[np.intp]) -> NDArray[np.int64]:
        """Return the number of offsets between rows and those before them, less one."""
        ends = np.append(np.int64(self._lowest - 1), self._last)
        room: NDArray[np.int64] = np.append(self._first - 1, np.int64(self._highest))[row_of]
        return room - (ends[row_of] + 1)

    def _are_end(
        self,
        batches: BatchTable,
        starts: NDArray[np.int64],
        low: NDArray[np.int64],
        row_of: NDArray[np.intp],
    ) -> NDArray[np.bool_]:
        """
        Return which groups are one batch at the end of the log, with one flipped bit.

        There, the last batches have to follow each other without gaps.
        """
        first = batches["base_offset"][starts]
        are = _differ_in_bit(first, low)
        are &= np.diff(starts, append=len(batches)) == 1
        are &= (row_of == len(self._first)) & (len(self._first) > 2)
        are &= bool((self._first[1:][-_AT_END:] == self._last[:-1][-_AT_END:] + 1).all())
        are &= len(self._last) - np.searchsorted(self._last, first) >= 2
        return are

    def _may_be_intact(
        self, batches: BatchTable, rows: NDArray[np.intp], offsets: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """
        Return which batches may be intact, and their neighbours are wrong or they were moved here.

        The offsets of a batch are possible if damaged bytes are where it would have to be, or if
        the only batch that contradicts it may be the damaged one.
        """
        first, last, count = batches["base_offset"], last_offset(batches), len(self._first)
        low, high = np.searchsorted(self._last, first), np.searchsorted(self._first, last, "right")
        number = np.append(0, np.cumsum(self._runs.counts(self._batches)))
        contradicting = np.maximum(number[rows] - number[low], 0)
        contradicting += np.maximum(number[high] - number[rows], 0)
        rival = np.where(low < rows, low, rows)
        are_flipped, fit = _differ_in_bit(first, offsets), self._have_fitting_epoch(batches, rows)
        are_free, is_at_end = low == high, low == count
        at = np.minimum(low, max(count - 1, 0))
        are_twins = np.zeros(len(batches), np.bool_)
        if count:
            are_twins = ~are_free & (self._first[at] == first) & (self._last[at] == last)
        # The first of these that is true decides.
        decisions = [
            (first == offsets, False),
            ((first < self._lowest) | (last > self._highest) | (last < first), False),
            (contradicting == 0, True),
            (self._may_be_later(first) & ~(are_flipped & fit), True),
            # Two fields would be wrong; rather it is of another history.
            (~(are_flipped | fit), True),
            ((contradicting == 1) & ~(
                self._are_dense_around(rows) & self._have_no_room(rival, first, last, rows)
            ), True),
            # It may have been moved here from a gap in the offsets.
            (are_free & ~is_at_end, True),
            # It may have been moved here, and the one of its offsets is damaged.
            (are_twins & ~are_flipped, True),
            # The one of its offsets may be of another log.
            (~are_free & self._are_damaged_between(rows, low), True),
            (~are_flipped & self._may_be_shifted(rows, offsets - first), True),
            # Too far after the log's end for an offset that it lost there.
            (are_flipped & is_at_end, False),
            (are_free & (self._has_bytes_before[low] | self._has_several), True),
        ]  # fmt: skip
        conditions, verdicts = zip(*decisions, strict=True)
        may_be: NDArray[np.bool_] = np.select(conditions, verdicts, False)
        return may_be

    def _may_be_shifted(
        self, rows: NDArray[np.intp], shifts: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """
        Return whether the batches before or from rows on may be those with wrong offsets.

        They would end, or begin, with a gap, unless they are the last ones of the log.
        """
        none = np.iinfo(np.int64).min
        largest_before = np.append(none, np.maximum.accumulate(self._gaps))[rows]
        largest_after = np.maximum.accumulate(np.append([none, none], self._gaps[::-1]))[::-1]
        may_be: NDArray[np.bool_] = np.where(
            shifts > 0,
            largest_before >= shifts,
            (len(self._first) - rows <= _AT_END) | (largest_after[rows + 1] >= -shifts),
        )
        return may_be

    def _have_unexplained_gap(self, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """
        Return whether offsets before rows have a gap between two batches that touch each other.

        Compaction leaves such gaps; so does a change of all following offsets by as much.
        """
        is_gap = (self._gaps > 0) & ~self._has_bytes_before[:-1]
        have: NDArray[np.bool_] = np.append(0, np.cumsum(is_gap))[rows] > 0
        return have

    def _may_be_later(self, first: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which offsets the lost end of the log may have had."""
        may_be: NDArray[np.bool_] = (first > self._end) & (first - _LOST_OFFSETS < self._end)
        return may_be

    def _have_fitting_epoch(self, batches: BatchTable, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return which leader epochs are between those of the new neighbours."""
        ends = np.iinfo(np.int32)
        epochs = np.concatenate(
            [[ends.min], self._batches["partition_leader_epoch"], [ends.max]], dtype=np.int32
        )
        mine = batches["partition_leader_epoch"]
        have: NDArray[np.bool_] = (epochs[rows] <= mine) & (mine <= epochs[rows + 1])
        return have

    def _are_damaged_between(
        self, rows: NDArray[np.intp], others: NDArray[np.intp]
    ) -> NDArray[np.bool_]:
        """Return whether bytes are damaged between the place before rows and other rows."""
        before = np.append(0, np.cumsum(self._is_damaged_before))
        start, stop = np.minimum(rows, others) + 1, np.where(others >= rows, others + 1, rows)
        are: NDArray[np.bool_] = before[np.maximum(start, stop)] > before[start]
        return are

    def _are_dense_around(self, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """
        Return whether the batches before and from rows on follow each other without gaps.

        A run of batches whose offsets are all wrong by as much would begin or end with a gap.
        """
        count = len(self._first)
        start, stop = np.maximum(rows - _AT_END, 0), np.minimum(rows + _AT_END, count)
        breaks = np.append(0, np.cumsum(~self._follows))
        inner = breaks[np.maximum(stop, start + 1)] - breaks[start + 1]
        inner -= (rows > start) & (rows < stop) & ~self._follows[rows]
        is_start = (start > 0) | bool((self._first[:1] == self._lowest).any())
        are: NDArray[np.bool_] = is_start & (rows + 1 < stop) & (inner == 0)
        return are

    def _have_no_room(
        self,
        rivals: NDArray[np.intp],
        first: NDArray[np.int64],
        last: NDArray[np.int64],
        rows: NDArray[np.intp],
    ) -> NDArray[np.bool_]:
        """Return whether batches that contradict these offsets could not have had others."""
        ends = np.append(np.int64(self._lowest - 1), self._last)
        starts = np.append(self._first, np.int64(self._highest))
        sizes = ends[1:] - self._first + 1
        rivals = np.minimum(rivals, max(len(sizes) - 1, 0))
        if not len(sizes):
            return np.zeros(len(rows), np.bool_)
        have_none: NDArray[np.bool_] = np.where(
            rivals < rows,
            first - ends[rivals] - 1 < sizes[rivals],
            starts[rivals + 1] - last <= sizes[rivals],
        )
        return have_none

    def _are_claimed(
        self,
        low: NDArray[np.int64],
        high: NDArray[np.int64],
        heads: NDArray[np.intp],
        sizes: NDArray[np.int64],
    ) -> NDArray[np.bool_]:
        """Return whether batches elsewhere, without a place, have offsets in ``[low, high)``."""
        first, last = self._dropped["base_offset"], last_offset(self._dropped)
        is_odd = last < first
        group_of = np.repeat(np.arange(len(heads)), sizes)
        here = np.arange(len(group_of)) + (heads - (np.cumsum(sizes) - sizes))[group_of]
        mine = (first[here] < high[group_of]) & (last[here] >= low[group_of]) & ~is_odd[here]
        claims = np.searchsorted(np.sort(first[~is_odd]), high)
        claims -= np.searchsorted(np.sort(last[~is_odd]), low)
        claims -= np.bincount(group_of, mine, len(heads)).astype(np.int64)
        # Those that end before they begin: the greatest end of those with a lower first offset.
        order = np.argsort(first[is_odd])
        ends = np.append(np.iinfo(np.int64).min, np.maximum.accumulate(last[is_odd][order]))
        odd_end = ends[np.searchsorted(first[is_odd][order], high)]
        are: NDArray[np.bool_] = (claims > 0) | (odd_end >= low)
        return are

    def _are_certain(
        self, batches: BatchTable, rows: NDArray[np.intp], offsets: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Return where the neighbours are sure, and one flipped bit explains the offset."""
        stored = batches["base_offset"]
        # Zeros over any value look like a flipped bit of some.
        are: NDArray[np.bool_] = _differ_in_bit(stored, offsets)
        are &= (stored != 0) & ~self._may_be_later(stored)
        are &= self._are_sure(rows) & ~self._have_unexplained_gap(rows)
        are &= ~self._may_be_moved(batches, offsets)
        are |= stored == offsets
        return are

    def _may_be_moved(self, batches: BatchTable, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """
        Return whether the log has the same bytes, or a batch with the stored base offset.

        The second may be the damaged one if the times of both do not show their order.
        """
        may_be, contents = np.zeros(len(batches), np.bool_), _contents(batches)
        for table in self._runs.tables(self._batches):
            may_be |= np.isin(contents, _contents(table))
        first = batches["base_offset"]
        row = np.searchsorted(self._first, first)
        has_twin = np.flatnonzero(row < len(self._first))
        has_twin = has_twin[self._first[row[has_twin]] == first[has_twin]]
        one, twin = batches.take(has_twin), self._batches.take(row[has_twin])
        equal = sum((one[name] == twin[name]).astype(np.int64) for name in _SIMILAR)
        is_later, is_earlier = (
            compare(one["max_timestamp"], twin["max_timestamp"])
            for compare in (np.greater, np.less)
        )
        is_before = first[has_twin] < offsets[has_twin]
        is_in_order = np.where(is_before, is_later, is_earlier)
        may_be[has_twin] |= (equal >= len(_SIMILAR) - 1) | ~is_in_order
        return may_be

    def _are_sure(self, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """
        Return whether the two batches before rows follow each other in bytes and offsets, and the
        two from them on: one with a wrong offset would not.
        """
        is_start = (rows == 0) | bool((self._first[:1] == self._lowest).any())
        before = np.where(rows >= 2, self._follows[np.maximum(rows - 1, 0)], is_start)
        are: NDArray[np.bool_] = before & np.append(self._follows, False)[rows + 1]
        return are

    def _have_wrong_times(
        self, batches: BatchTable, starts: NDArray[np.int64], row_of: NDArray[np.intp]
    ) -> NDArray[np.bool_]:
        """Return which groups at the end of the log were written before the batches before it."""
        written = np.append(self._batches["max_timestamp"], 0)[row_of - 1]
        earliest = np.minimum.reduceat(batches["max_timestamp"], starts)
        have: NDArray[np.bool_] = (row_of == len(self._first)) & (row_of > 0) & (earliest < written)
        return have


def _differ_in_bit(values: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return where one flipped bit explains the difference of two values."""
    changed = (values ^ others).view(np.uint64)
    differ: NDArray[np.bool_] = (changed != 0) & (changed & (changed - np.uint64(1)) == 0)
    return differ


def _contents(batches: BatchTable) -> NDArray[np.int64]:
    """Return a number per batch that is equal where lengths and checksums are."""
    contents: NDArray[np.int64] = batches["crc"].astype(np.int64) << 32 | batches["batch_length"]
    return contents
