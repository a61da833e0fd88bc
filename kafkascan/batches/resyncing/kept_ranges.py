"""Ranges of the batches that a damaged log keeps, and which of them are doubtful."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, join_tables, last_offset, size_in_bytes
from kafkascan.batches.resyncing.gaps import DamagedRange
from kafkascan.batches.walks import read_bytes, row_of_header
from kafkascan.format.layout import BATCH_HEADER_SIZE, NO_PRODUCER_ID, NO_SEQUENCE
from kafkascan.io.sources import Source

NEIGHBOURS = 64
"""Number of batches before and after a range that are evidence about it."""

# Rows that are searched for such neighbours.
_SEARCHED = 64 * NEIGHBOURS
# Batches are not doubtful if they are so many times as many as those that contradict them.
_CLEAR_MAJORITY = 8
# Batches at the end of a log that show whether its offsets have gaps.
_AT_END = 9
# Producers that may write at the rate of one whose sequences are compared.
_MOST_PRODUCERS = 16


@dataclass(frozen=True)
class KeptRange:
    """
    Consecutive batches that are kept.

    Attributes
    ----------
    position, size : int
        In bytes.
    batches : int
    first_offset, last_offset : int
    is_doubtful : bool
        Whether only checksums and offsets indicate that the range belongs to the log. The bytes
        before it are damaged, and neither its offsets, nor a header before it, nor sequences of
        its producers continue the log: old data in a tail, and copies of batches within the value
        of a damaged record, look the same. Or valid batches that are not kept contradict it, and
        the kept ones are not clearly more, or have the same offsets. Or it is the last batch,
        after the only gap in the offsets, and one flipped bit explains the gap. After a salvage,
        also if adjacent batches, or a copy, contradict its leader epoch.
    """

    position: int
    size: int
    batches: int
    first_offset: int
    last_offset: int
    is_doubtful: bool


def kept_ranges(
    source: Source,
    start: int,
    batches: BatchTable,
    damaged: list[DamagedRange],
    dropped: BatchTable,
    copies: BatchTable,
    is_contested: NDArray[np.bool_] | None = None,
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
    damaged : list of DamagedRange
    dropped : ndarray of BATCH_DTYPE
        Batches with valid checksums that are not kept, because their offsets contradict kept
        ones; sorted by position, without copies of kept batches.
    copies : ndarray of BATCH_DTYPE
        Copies of kept batches, at other positions.
    is_contested : array of bool, shape (n,), optional
        Batches that are doubtful for another reason.
    """
    starts, stops = batches["position"], batches["position"] + size_in_bytes(batches)
    ends, is_odd = last_offset(batches), _are_rivalled(batches, dropped, copies)
    is_odd |= _are_after_copies(batches, copies)
    is_odd[-1:] |= _has_odd_end(batches)
    if is_contested is not None:
        is_odd |= is_contested
    is_head = np.append(True, (starts[1:] != stops[:-1]) | (is_odd[1:] != is_odd[:-1]))
    heads = np.flatnonzero(is_head[: len(batches)])
    bounds = np.append(heads, len(batches))
    values = zip(
        itertools.pairwise(bounds.tolist()),
        starts[heads].tolist(),
        stops[bounds[1:] - 1].tolist(),
        batches["base_offset"][heads].tolist(),
        ends[bounds[1:] - 1].tolist(),
        is_odd[heads].tolist(),
        strict=True,
    )
    evidence = _Evidence(source, batches, damaged)
    is_confirmed, found, previous = True, [], start
    for (head, following), position, end, first, last, is_contradicted in values:
        if position != previous:
            is_confirmed = evidence.confirms(head, following)
        is_doubtful = not is_confirmed or is_contradicted
        evidence.is_sure[head:following] = not is_doubtful
        size, previous = end - position, end
        found.append(KeptRange(position, size, following - head, first, last, is_doubtful))
    return found


def are_doubtful(batches: BatchTable, kept: list[KeptRange]) -> NDArray[np.bool_]:
    """Return which batches are in doubtful ranges."""
    ranges = [(one.position, one.position + one.size) for one in kept if one.is_doubtful]
    bounds = np.searchsorted(batches["position"], np.array(ranges, np.int64).reshape(-1, 2))
    changes = np.zeros(len(batches) + 1, np.int64)
    np.add.at(changes, bounds[:, 0], 1)
    np.add.at(changes, bounds[:, 1], -1)
    is_doubtful: NDArray[np.bool_] = np.cumsum(changes)[:-1] > 0
    return is_doubtful


def _are_rivalled(
    batches: BatchTable, dropped: BatchTable, copies: BatchTable
) -> NDArray[np.bool_]:
    """
    Return which batches are contradicted by dropped ones that are not far fewer.

    A dropped batch counts by itself, and together with all that are dropped at the same place. It
    contradicts the batches with its offsets, whatever is between. A batch that has a copy among
    those at the same place, in order with them, does not count: it would be kept with them, too.
    """
    if not len(dropped):
        return np.zeros(len(batches), np.bool_)
    place = np.searchsorted(batches["position"], dropped["position"])
    places, heads, sizes = np.unique(place, return_index=True, return_counts=True)
    low = np.searchsorted(last_offset(batches), dropped["base_offset"])
    high = np.searchsorted(batches["base_offset"], last_offset(dropped), "right")
    group_low, group_high = np.minimum.reduceat(low, heads), np.maximum.reduceat(high, heads)
    start = np.concatenate([low, np.minimum(low, place), np.minimum(group_low, places)])
    stop = np.concatenate([high, np.maximum(high, place), np.maximum(group_high, places)])
    rivals = np.append(np.ones(2 * len(dropped), np.int64), sizes)
    # Rows at a place, in the order of both.
    at_place = np.concatenate([place, place, places]) * (len(batches) + 1)
    spared = _copied_rows(batches, copies[_are_in_order(batches, copies, dropped)])
    has_copy = np.searchsorted(spared, [at_place + start, at_place + stop])
    is_close = start < stop
    is_close &= stop - start - (has_copy[1] - has_copy[0]) <= _CLEAR_MAJORITY * rivals
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
    table, is_copy = table[order], (np.arange(len(table)) >= len(dropped))[order]
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


def _are_after_copies(batches: BatchTable, copies: BatchTable) -> NDArray[np.bool_]:
    """
    Return which batches follow copies of later ones that are not far fewer.

    If the copy is where the batch was written, those between it and the kept one are not the log's.
    """
    row = np.searchsorted(batches["base_offset"], copies["base_offset"])
    place = np.searchsorted(batches["position"], copies["position"])
    _, group, sizes = np.unique(place, return_inverse=True, return_counts=True)
    is_close = (place < row) & (row - place <= _CLEAR_MAJORITY * sizes[group])
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


def _has_odd_end(batches: BatchTable) -> bool:
    """Return whether the last offset follows the only gap, and one flipped bit explains it."""
    end = batches[-_AT_END:]
    stops = end["position"] + size_in_bytes(end)
    gaps = (end["base_offset"][1:] ^ (last_offset(end)[:-1] + 1)).tolist()
    return (
        len(end) == _AT_END
        and not any(gaps[:-1])
        and gaps[-1].bit_count() == 1
        and bool(end["position"][-1] == stops[-2])
    )


class _Evidence:
    """
    Evidence that ranges belong to the log.

    Attributes
    ----------
    is_sure : ndarray of bool, shape (n,)
        Batches in ranges that do.
    """

    def __init__(self, source: Source, batches: BatchTable, damaged: list[DamagedRange]) -> None:
        self._source, self._batches = source, batches
        self._damaged_before = {one.stop: one for one in damaged}
        is_noise = [one.error.symbol != "OFFSETS_NOT_ASCENDING" for one in damaged]
        noise_starts = np.array([one.start for one in damaged], np.int64)[is_noise]
        self._ends = np.append(0, batches["position"] + size_in_bytes(batches))
        noise_before = np.searchsorted(noise_starts, batches["position"])
        has_noise = noise_before != np.searchsorted(noise_starts, self._ends[:-1])
        self._continues = ~has_noise
        self._continues[:1] = False
        self._continues[1:] &= last_offset(batches)[:-1] + 1 == batches["base_offset"][1:]
        self._sequences_before = np.append(0, np.cumsum(batches["producer_id"] > NO_PRODUCER_ID))
        self.is_sure = np.zeros(len(batches), np.bool_)

    def confirms(self, start: int, stop: int) -> bool:
        """Return whether offsets, a header or sequences show that a range belongs to the log."""
        batches, searched = self._batches, max(0, start - _SEARCHED)
        is_after_sure = start == 0 or bool(self.is_sure[start - 1])
        if self._have_sequences(start, stop):
            sure = searched + np.flatnonzero(self.is_sure[searched:start])[-NEIGHBOURS:]
            inside = batches[start : min(stop, start + NEIGHBOURS)]
            before = batches[max(0, start - 1) : start]
            # A history that was truncated has such sequences, too, but a lower leader epoch.
            if _continues_sequences(batches[sure], inside) and not _falls(before, inside):
                return True
        return is_after_sure and (
            bool(self._continues[start])
            or self._is_announced(int(batches["position"][start]), int(self._ends[start]))
        )

    def _have_sequences(self, start: int, stop: int) -> bool:
        """Return whether one of the first batches of a range is of an idempotent producer."""
        stop = min(stop, start + NEIGHBOURS)
        return bool(self._sequences_before[start] < self._sequences_before[stop])

    def _is_announced(self, position: int, end: int) -> bool:
        """
        Return whether the header of the damaged batch before a range claims to end where it starts.

        A batch of another log proves nothing, nor does a valid one that is not kept, unless it is
        the only one since `end`, the end of the range before; 0 if there is none.
        """
        one = self._damaged_before.get(position)
        if one is None or one.error.symbol == "NESTED":
            return False
        if one.error.symbol == "OFFSETS_NOT_ASCENDING" and (end == 0 or one.start != end):
            return False
        if one.is_framed:
            return True
        row = header_at(self._source, one.start)
        return bool(len(row)) and one.start + int(size_in_bytes(row)[0]) == position


def _continues_sequences(before: BatchTable, inside: BatchTable) -> bool:
    """Return whether a producer's first sequence in a range can follow its last one before it."""
    for one in inside[inside["producer_id"] > NO_PRODUCER_ID]:
        mine = of_same_producer(before, one)
        if len(mine) and int(one["base_sequence"]) > NO_SEQUENCE:
            offsets = int(one["base_offset"]) - int(mine["base_offset"][-1])
            records = int(one["base_sequence"]) - int(mine["base_sequence"][-1])
            return 0 < records <= offsets <= _MOST_PRODUCERS * records
    return False


def _falls(before: BatchTable, inside: BatchTable) -> bool:
    """Return whether the leader epoch of the first batch in a range is below that before it."""
    last, first = (one["partition_leader_epoch"][one["magic"] == 2] for one in (before, inside[:1]))
    return bool((first < last).any()) if len(first) and len(last) else False


def of_same_producer(batches: BatchTable, one: np.void) -> BatchTable:
    """Return the batches with sequences of the producer of a batch."""
    is_same = batches["producer_id"] == one["producer_id"]
    is_same &= batches["producer_epoch"] == one["producer_epoch"]
    is_same &= batches["base_sequence"] > NO_SEQUENCE
    found: BatchTable = batches[is_same]
    return found


def header_at(source: Source, position: int) -> BatchTable:
    """Return the row of a plausible header, regardless of its length and checksum."""
    header = read_bytes(source, position, BATCH_HEADER_SIZE)
    return row_of_header(header, position, max(source.size - position, len(header)))
