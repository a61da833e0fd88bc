"""Reconstruct damaged base offsets, which no checksum covers.

A batch with a valid checksum may have offsets that contradict the log because its base offset is
damaged, or because it is intact and was moved or copied here. Only the first is repaired. The
repair needs neighbours that leave exactly the offsets for it, and a stored value that no batch of
the log can have.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, join_tables, last_offset, size_in_bytes
from kafkascan.batches.resyncing.gaps import DamagedRanges
from kafkascan.batches.resyncing.offset_evidence import differ_in_one_bit

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
    certain : frozenset of int
        Positions of the batches whose new base offset is certain.
    """

    batches: BatchTable
    dropped: BatchTable
    certain: frozenset[int]

    def are_certain(self, batches: BatchTable) -> NDArray[np.bool_]:
        """Return which batches have their stored base offset, or a certain one."""
        are: NDArray[np.bool_] = ~np.isin(batches["position"], self.batches["position"])
        return are | np.isin(batches["position"], list(self.certain))


class OffsetRepair:
    """
    Repair of base offsets in one segment.

    Parameters
    ----------
    batches : ndarray of BATCH_DTYPE
        The batches of the log, sorted, with ascending offsets.
    dropped : ndarray of BATCH_DTYPE
        Other batches with valid checksums, sorted; none is a copy of a batch of the log.
    damaged : DamagedRanges
        Bytes that are in neither.
    lowest, highest : int
        Range of the offsets that the segment may contain, inclusive.
    """

    def __init__(
        self,
        batches: BatchTable,
        dropped: BatchTable,
        damaged: DamagedRanges,
        lowest: int,
        highest: int,
    ) -> None:
        self._batches, self._dropped = batches, dropped
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
        names = ["base_offset", "batch_length", "crc"]
        _, batch_of, counts = np.unique(dropped[names], return_inverse=True, return_counts=True)
        self._repeated = dropped["position"][counts[batch_of] > 1]
        self._contents = _contents(batches)
        # There may also be copies, and batches without a place.
        self._has_bytes_before = self._is_damaged_before.copy()
        self._has_bytes_before[:-1] |= self._starts != np.append(0, self._stops)[:-1]

    def place(self) -> Placement:
        """Return the batches that have offsets in the log, and the others."""
        placed, certain, kept = [], set[int](), np.zeros(len(self._dropped), np.bool_)
        for rows in self._groups():
            group = self._dropped[rows]
            fitted = self._fitted(group)
            if fitted is None:
                continue
            placed.append(fitted)
            kept[rows] = True
            is_certain = [
                self._is_certain(*pair)
                for pair in zip(group, fitted["base_offset"].tolist(), strict=True)
            ]
            if all(is_certain):
                certain.update(group["position"].tolist())
        if not kept.all():  # the batches that contradict those without a place may be wrong
            certain.clear()
        batches = join_tables(placed) if placed else self._dropped[:0]
        return Placement(batches, self._dropped[~kept], frozenset(certain))

    def _groups(self) -> Iterator[slice]:
        """Yield consecutive batches that fill the bytes between two batches of the log."""
        following = np.searchsorted(self._starts, self._dropped["position"])
        bounds = [*np.flatnonzero(np.diff(following, prepend=-1)).tolist(), len(following)]
        sizes = size_in_bytes(self._dropped)
        for start, stop in itertools.pairwise(bounds):
            row = int(following[start])
            begin = int(self._stops[row - 1]) if row else 0
            is_filled = (
                int(self._dropped["position"][start]) == begin
                and not (self._is_damaged_before[row])
            )
            if row < len(self._starts):
                is_filled &= int(sizes[start:stop].sum()) == int(self._starts[row]) - begin
            if is_filled:
                yield slice(start, stop)

    def _fitted(self, group: BatchTable) -> BatchTable | None:
        """Return a group with the only offsets that it can have; None if there are none."""
        row = int(np.searchsorted(self._starts, group["position"][0]))
        low = int(self._last[row - 1]) + 1 if row else self._lowest
        counts = group["last_offset_delta"].astype(np.int64) + 1
        if not ((group["magic"] == 2) | (group["records_count"] >= 0)).all() or counts.min() < 1:
            return None
        offsets = low + np.cumsum(counts) - counts
        is_last = row == len(self._first)
        end = self._highest + 1 if is_last else int(self._first[row])
        is_possible = int(counts.sum()) == end - low or (is_last and self._is_end(group, low))
        is_moved = [
            self._may_be_intact(*pair) for pair in zip(group, offsets.tolist(), strict=True)
        ]
        is_taken = self._is_claimed(group, low, int(offsets[-1] + counts[-1]))
        is_taken |= bool(np.isin(group["position"], self._repeated).any())
        if not is_possible or any(is_moved) or is_taken or self._has_wrong_times(group, row):
            return None
        fitted = group.copy()
        fitted["base_offset"] = offsets
        return fitted

    def _is_end(self, group: BatchTable, low: int) -> bool:
        """
        Return whether a group is one batch at the end of the log, with one flipped bit.

        There, the last batches have to follow each other without gaps.
        """
        first = int(group["base_offset"][0])
        is_flipped = differ_in_one_bit(first, low)
        is_dense = bool((self._first[1:][-_AT_END:] == self._last[:-1][-_AT_END:] + 1).all())
        contradicting = len(self._last) - int(np.searchsorted(self._last, first))
        return (
            len(group) == 1
            and is_flipped
            and is_dense
            and len(self._first) > 2
            and contradicting >= 2
        )

    def _may_be_intact(self, batch: np.void, offset: int) -> bool:
        """
        Return whether a batch may be intact, and its neighbours are wrong or it was moved here.

        Its offsets are possible if damaged bytes are where it would have to be, or if the only
        batch that contradicts it may be the damaged one.
        """
        first, last = _offsets(batch)
        if first == offset:
            return False
        if first < self._lowest or last > self._highest or last < first:
            return False
        row = int(np.searchsorted(self._starts, batch["position"]))
        low = int(np.searchsorted(self._last, first))
        high = int(np.searchsorted(self._first, last, "right"))
        contradicting = [*range(low, row), *range(row, high)]
        is_flipped = differ_in_one_bit(first, offset)
        fits = is_flipped and self._has_fitting_epoch(batch)
        if not contradicting or (self._may_be_later(first) and not fits):
            return True
        if not (is_flipped or self._has_fitting_epoch(batch)):
            return True  # two fields would be wrong; rather it is of another history
        if len(contradicting) == 1 and not (
            self._is_dense_around(row) and self._has_no_room(contradicting[0], first, last, row)
        ):
            return True
        is_free = low == high
        if is_free and low < len(self._first):
            return True  # it may have been moved here from a gap in the offsets
        is_twin = not is_free and self._first[low] == first and self._last[low] == last
        if is_twin and not is_flipped:
            return True  # it may have been moved here, and the one of its offsets is damaged
        if not is_free and self._is_damaged_between(row, low):
            return True  # the one of its offsets may be of another log
        if not is_flipped and self._may_be_shifted(row, offset - first):
            return True
        if is_flipped and low == len(self._first):
            return False  # too far after the log's end for an offset that it lost there
        return is_free and (bool(self._has_bytes_before[low]) or len(self._dropped) > 1)

    def _may_be_shifted(self, row: int, shift: int) -> bool:
        """
        Return whether the batches before or from `row` on may be those with wrong offsets.

        They would end, or begin, with a gap, unless they are the last ones of the log.
        """
        if shift > 0:
            return bool((self._gaps[:row] >= shift).any())
        return len(self._first) - row <= _AT_END or bool((self._gaps[row + 1 :] >= -shift).any())

    def _has_unexplained_gap(self, row: int) -> bool:
        """
        Return whether offsets before a row have a gap between two batches that touch each other.

        Compaction leaves such gaps; so does a change of all following offsets by as much.
        """
        is_gap = (self._gaps > 0) & ~self._has_bytes_before[:-1]
        return bool(is_gap[:row].any())

    def _may_be_later(self, first: int) -> bool:
        """Return whether the lost end of the log may have had an offset."""
        return 0 < first - int(self._last[-1:].max(initial=-1)) < _LOST_OFFSETS

    def _has_fitting_epoch(self, batch: np.void) -> bool:
        """Return whether the leader epoch of a batch is between those of its new neighbours."""
        row = int(np.searchsorted(self._starts, batch["position"]))
        epochs = self._batches["partition_leader_epoch"][max(0, row - 1) : row + 1].tolist()
        epochs.insert(row > 0, int(batch["partition_leader_epoch"]))
        return bool(epochs == sorted(epochs))

    def _is_damaged_between(self, row: int, other: int) -> bool:
        """Return whether bytes are damaged between the place before a row and another row."""
        between = slice(row + 1, other + 1) if other >= row else slice(other + 1, row)
        return bool(self._is_damaged_before[between].any())

    def _is_dense_around(self, row: int) -> bool:
        """
        Return whether the batches before and from `row` on follow each other without gaps.

        A run of batches whose offsets are all wrong by as much would begin or end with a gap.
        """
        start, stop = max(0, row - _AT_END), min(len(self._first), row + _AT_END)
        is_start = start > 0 or row > _AT_END or bool(self._first[0] == self._lowest)
        inner = [one for one in range(start + 1, stop) if one != row]
        return is_start and row + 1 < stop and all(map(self._follows, inner))

    def _has_no_room(self, rival: int, first: int, last: int, row: int) -> bool:
        """Return whether a batch that contradicts these offsets could not have had others."""
        size = int(self._last[rival]) - int(self._first[rival]) + 1
        if rival < row:
            low = int(self._last[rival - 1]) + 1 if rival else self._lowest
            return first - low < size
        high = int(self._first[rival + 1]) if rival + 1 < len(self._first) else self._highest
        return high - last <= size

    def _is_claimed(self, group: BatchTable, low: int, high: int) -> bool:
        """Return whether a batch elsewhere, which has no place, has offsets in ``[low, high)``."""
        first, last = self._dropped["base_offset"], last_offset(self._dropped)
        is_other = ~np.isin(self._dropped["position"], group["position"])
        return bool((is_other & (first < high) & (last >= low)).any())

    def _is_certain(self, batch: np.void, offset: int) -> bool:
        """Return whether the neighbours are sure, and one flipped bit explains the offset."""
        stored = int(batch["base_offset"])
        row = int(np.searchsorted(self._starts, batch["position"]))
        is_zeroed = stored == 0  # zeros over any value look like a flipped bit of some
        is_flipped = differ_in_one_bit(stored, offset) and not is_zeroed
        is_known = is_flipped and not self._may_be_later(stored) and self._are_sure(row)
        is_known = is_known and not self._has_unexplained_gap(row)
        return stored == offset or (is_known and not self._may_be_moved(batch, offset))

    def _may_be_moved(self, batch: np.void, offset: int) -> bool:
        """
        Return whether the log has the same bytes, or a batch with the stored base offset.

        The second may be the damaged one if the times of both do not show their order.
        """
        if (self._contents == _contents(batch.reshape(1))).any():
            return True
        row = int(np.searchsorted(self._first, batch["base_offset"]))
        twin = self._batches[row : row + 1]
        if not len(twin) or twin["base_offset"][0] != batch["base_offset"]:
            return False
        if sum(twin[name][0] == batch[name] for name in _SIMILAR) >= len(_SIMILAR) - 1:
            return True
        is_later = int(batch["max_timestamp"]) - int(twin["max_timestamp"][0])
        return is_later * (offset - int(batch["base_offset"])) <= 0

    def _are_sure(self, row: int) -> bool:
        """
        Return whether the two batches before `row` follow each other in bytes and offsets, and the
        two from it on: one with a wrong offset would not.
        """
        if not self._follows(row + 1):
            return False
        if row >= 2:
            return self._follows(row - 1)
        return row == 0 or bool(self._first[0] == self._lowest)

    def _follows(self, row: int) -> bool:
        """Return whether there is a row that continues the one before it."""
        return (
            row < len(self._first)
            and bool(self._first[row] == self._last[row - 1] + 1)
            and bool(self._starts[row] == self._stops[row - 1])
        )

    def _has_wrong_times(self, group: BatchTable, row: int) -> bool:
        """Return whether a group at the end of the log was written before the batches before it."""
        if row < len(self._first):
            return False
        before = self._batches["max_timestamp"][row - 1 : row]
        return bool(len(before)) and int(group["max_timestamp"].min()) < int(before[0])


def _contents(batches: BatchTable) -> NDArray[np.int64]:
    """Return a number per batch that is equal where lengths and checksums are."""
    contents: NDArray[np.int64] = batches["crc"].astype(np.int64) << 32 | batches["batch_length"]
    return contents


def _offsets(batch: np.void) -> tuple[int, int]:
    first = int(batch["base_offset"])
    return first, first + int(batch["last_offset_delta"])
