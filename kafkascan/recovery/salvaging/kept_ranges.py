"""Kept ranges of a salvaged segment: those of the log, doubtful ones, foreign ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, join_tables, last_offset, size_in_bytes
from kafkascan.batches.offset_chains import DamagedRange, heaviest_ascending
from kafkascan.batches.walks import read_bytes, row_of_header
from kafkascan.format.errors import record_error
from kafkascan.format.layout import BATCH_HEADER_SIZE, NO_PRODUCER_ID, NO_SEQUENCE
from kafkascan.io.sources import Source
from kafkascan.recovery.salvaging.header_repair import RepairedLog

Doubtful: TypeAlias = Literal["keep", "drop"]

# Number of batches before and after a range whose leader epochs limit those of the range.
_NEIGHBOURS = 64
# Batches are not doubtful if they are so many times as many as those that contradict them.
_CLEAR_MAJORITY = 8
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
        the kept ones are not clearly more.
    """

    position: int
    size: int
    batches: int
    first_offset: int
    last_offset: int
    is_doubtful: bool


# ---- ranges that do not belong to the log -----------------------------------------------------


def without_foreign(
    log: RepairedLog, source: Source, *, doubtful: Doubtful
) -> tuple[RepairedLog, list[KeptRange]]:
    """Count ranges that do not belong to the log as damaged; return the kept ranges, too."""
    kept, foreign = list[KeptRange](), list[DamagedRange]()
    is_kept = np.ones(len(log.batches), np.bool_)
    is_in_prefix = True  # Kafka's recovery keeps the first batches
    ranges = list(_ranges(log, source))
    is_sure = ~are_doubtful(log.batches, [one for _, _, one in ranges])
    for start, stop, one in ranges:
        is_in_prefix &= one.position == (kept[-1].position + kept[-1].size if kept else 0)
        is_dropped = one.is_doubtful and not is_in_prefix
        if is_dropped and (doubtful == "drop" or _is_foreign(log.batches, is_sure, start, stop)):
            is_kept[start:stop] = False
            error = record_error("NESTED", source.path, log.batches[start])
            foreign.append(DamagedRange(one.position, one.position + one.size, error))
        else:
            kept.append(one)
    if not foreign:
        return log, kept
    dropped = set(log.batches["position"][~is_kept].tolist())
    damaged = sorted([*log.damaged, *foreign], key=lambda one: one.start)
    repairs = [one for one in log.repairs if one.position not in dropped]
    return replace(log, batches=log.batches[is_kept], damaged=damaged, repairs=repairs), kept


def with_fitting(log: RepairedLog, lowest: int, highest: int) -> RepairedLog | None:
    """Add the dropped batches that nothing contradicts any more; return None without any."""
    first, last = log.batches["base_offset"], last_offset(log.batches)
    rows = np.searchsorted(log.batches["position"], log.dropped["position"])
    low = np.append(np.int64(lowest), last + 1)[rows]
    high = np.append(first - 1, np.int64(highest))[rows]
    fits = (low <= log.dropped["base_offset"]) & (last_offset(log.dropped) <= high)
    fits &= last_offset(log.dropped) >= log.dropped["base_offset"]
    candidates = log.dropped[fits]
    fits[fits] = heaviest_ascending(
        candidates["base_offset"], last_offset(candidates), np.ones(len(candidates), np.int64)
    )
    if not fits.any():
        return None
    batches = join_tables([log.batches, log.dropped[fits]])
    restored = set(log.dropped["position"][fits].tolist())
    return replace(
        log,
        batches=batches[np.argsort(batches["position"], kind="stable")],
        damaged=[one for one in log.damaged if one.start not in restored],
        dropped=log.dropped[~fits],
    )


def are_doubtful(batches: BatchTable, kept: list[KeptRange]) -> NDArray[np.bool_]:
    """Return which batches are in doubtful ranges."""
    is_doubtful = np.zeros(len(batches), np.bool_)
    starts = batches["position"]
    for one in kept:
        if one.is_doubtful:
            first, stop = np.searchsorted(starts, [one.position, one.position + one.size])
            is_doubtful[first:stop] = True
    return is_doubtful


def _ranges(log: RepairedLog, source: Source) -> Iterator[tuple[int, int, KeptRange]]:
    """Yield ranges of consecutive batches: first row, row after the last, range of bytes."""
    batches = log.batches
    starts, stops = batches["position"], batches["position"] + size_in_bytes(batches)
    ends, is_rivalled = last_offset(batches), _are_rivalled(log)
    is_head = np.append(True, (starts[1:] != stops[:-1]) | (is_rivalled[1:] != is_rivalled[:-1]))
    bounds = [*np.flatnonzero(is_head[: len(batches)]).tolist(), len(batches)]
    is_sure = np.zeros(len(batches), np.bool_)
    is_confirmed = True
    for start, stop in itertools.pairwise(bounds):
        position, end = int(starts[start]), int(stops[stop - 1])
        first, last = int(batches["base_offset"][start]), int(ends[stop - 1])
        if position != (int(stops[start - 1]) if start else 0):
            is_confirmed = _is_confirmed(source, log, is_sure[:start], stop)
        is_doubtful = not is_confirmed or bool(is_rivalled[start])
        is_sure[start:stop] = not is_doubtful
        size = end - position
        yield start, stop, KeptRange(position, size, stop - start, first, last, is_doubtful)


def _are_rivalled(log: RepairedLog) -> NDArray[np.bool_]:
    """Return which batches are contradicted by others that are not kept and not far fewer."""
    rivalled = np.zeros(len(log.batches), np.bool_)
    first, last = log.batches["base_offset"], last_offset(log.batches)
    following = np.searchsorted(log.batches["position"], log.dropped["position"])
    for row in np.unique(following).tolist():
        rivals = log.dropped[following == row]
        low = int(np.searchsorted(last, rivals["base_offset"].min()))
        high = int(np.searchsorted(first, last_offset(rivals).max(), "right"))
        before, after = slice(min(low, row), row), slice(row, max(row, high))
        count = before.stop - before.start + after.stop - after.start
        if count <= _CLEAR_MAJORITY * len(rivals):
            rivalled[before] = rivalled[after] = True
    return rivalled


def _is_confirmed(source: Source, log: RepairedLog, is_sure: NDArray[np.bool_], stop: int) -> bool:
    """
    Return whether offsets, a header or sequences show that a range belongs to the log.

    `is_sure` has the batches before the range that do.
    """
    batches, start = log.batches, len(is_sure)
    first = int(batches["base_offset"][start])
    sure = np.flatnonzero(is_sure)[-_NEIGHBOURS:]
    inside = batches[start : min(stop, start + _NEIGHBOURS)]
    if _continues_sequences(batches[sure], inside):
        return True
    if start > 0 and not is_sure[-1]:
        return False
    before = batches[max(0, start - 1) : start]
    is_next = bool((last_offset(before) + 1 == first).any())
    end = int((before["position"] + size_in_bytes(before)).max(initial=0))
    position = int(batches["position"][start])
    return is_next or _is_announced(source, log.damaged, position, first, end)


def _continues_sequences(before: BatchTable, inside: BatchTable) -> bool:
    """Return whether a producer's first sequence in a range can follow its last one before it."""
    for one in inside[inside["producer_id"] > NO_PRODUCER_ID]:
        mine = _of_same_producer(before, one)
        if len(mine) and int(one["base_sequence"]) > NO_SEQUENCE:
            offsets = int(one["base_offset"]) - int(mine["base_offset"][-1])
            records = int(one["base_sequence"]) - int(mine["base_sequence"][-1])
            return 0 < records <= offsets <= _MOST_PRODUCERS * records
    return False


def header_at(source: Source, position: int) -> BatchTable:
    """Return the row of a plausible header, regardless of its length and checksum."""
    header = read_bytes(source, position, BATCH_HEADER_SIZE)
    return row_of_header(header, position, max(source.size - position, len(header)))


def _is_announced(
    source: Source, damaged: list[DamagedRange], position: int, first: int, end: int
) -> bool:
    """
    Return whether the header of the damaged batch before a range claims to end where it starts.

    The end is a byte position (by the batch length) or an offset (by the last offset). A valid
    batch that is not kept proves nothing, unless it is the only one since `end`, the end of the
    range before.
    """
    for one in damaged:
        if one.stop == position:
            if one.error.symbol == "OFFSETS_NOT_ASCENDING" and one.start != end:
                return False
            row = header_at(source, one.start)
            return bool(len(row)) and (
                int(last_offset(row)[0]) + 1 == first
                or one.start + int(size_in_bytes(row)[0]) == position
            )
    return False


def _is_foreign(batches: BatchTable, is_sure: NDArray[np.bool_], start: int, stop: int) -> bool:
    """Return whether leader epochs or sequences show that a range does not belong to the log."""
    sure = np.flatnonzero(is_sure)
    row = int(np.searchsorted(sure, start))
    inside = batches[start:stop]
    before = batches[sure[max(0, row - _NEIGHBOURS) : row]]
    after = batches[sure[row : row + _NEIGHBOURS]]
    return _has_other_epochs(inside, before, after) or _has_other_sequences(inside, before, after)


def _has_other_epochs(inside: BatchTable, before: BatchTable, after: BatchTable) -> bool:
    """Return whether all leader epochs of a range are below or above those of its neighbours."""

    def epochs(table: BatchTable) -> NDArray[np.int32]:
        found: NDArray[np.int32] = table["partition_leader_epoch"][table["magic"] == 2]
        return found

    mine, low, high = epochs(inside), epochs(before), epochs(after)
    if not len(mine):
        return False
    # The epoch of a single batch may be the damaged one.
    is_below = len(low) > 1 and int(mine.max()) < int(low.min())
    is_above = len(high) > 1 and int(mine.min()) > int(high.max())
    return bool(is_below or is_above)


def _has_other_sequences(inside: BatchTable, before: BatchTable, after: BatchTable) -> bool:
    """Return whether a producer's sequence is not between those of its neighbouring batches."""
    is_of_producer = (inside["producer_id"] > NO_PRODUCER_ID) & (
        inside["base_sequence"] > NO_SEQUENCE
    )
    if not is_of_producer.any():
        return False
    one = inside[is_of_producer][0]
    last = _of_same_producer(before, one)
    following = _of_same_producer(after, one)
    if not (len(last) and len(following)):
        return False
    low, high = int(last["base_sequence"][-1]), int(following["base_sequence"][0])
    return low < high and not low < int(one["base_sequence"]) < high


def _of_same_producer(batches: BatchTable, one: np.void) -> BatchTable:
    is_same = batches["producer_id"] == one["producer_id"]
    is_same &= batches["producer_epoch"] == one["producer_epoch"]
    is_same &= batches["base_sequence"] > NO_SEQUENCE
    found: BatchTable = batches[is_same]
    return found
