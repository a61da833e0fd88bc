"""Split segments whose range of offsets is too large, as Kafka does (KAFKA-6264).

The parts are written as ``.cleaned`` files and renamed to ``.swap`` files, whose rules Kafka's
loading and `kafkascan.recovery.loading.log_loader` know, so that a split can be interrupted
anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kafkascan.batches.columns import BatchTable, last_offset, offset_after, size_in_bytes
from kafkascan.batches.scan import scan_batches
from kafkascan.broker_state.indexes import IndexEntries, build_indexes
from kafkascan.format.errors import BatchTableError, CorruptLogError, IndexOverflowError
from kafkascan.format.layout import ScanEnd
from kafkascan.io.sources import Source
from kafkascan.recovery.loading.offset_search import base_offset_of, find_offset

_SYMBOL = "OFFSET_OVERFLOW"
_MOST_RELATIVE = 2**31 - 1
_FIRST_ROWS = 64


@dataclass
class SegmentPart:
    """
    A byte range of a segment that becomes a segment of its own.

    Attributes
    ----------
    base_offset : int
    start, stop : int
        Positions of its first byte and of the byte after its last.
    offset_index, time_index : ndarray
        Entries of the index files that Kafka writes for it.
    """

    base_offset: int
    start: int
    stop: int
    offset_index: IndexEntries
    time_index: IndexEntries


def split_segment(
    source: Source, base_offset: int, indexed: IndexEntries, interval_bytes: int
) -> list[SegmentPart]:
    """
    Split a segment where Kafka splits it (``LocalLog.splitOverflowedSegment``).

    Parameters
    ----------
    source : Source
    base_offset : int
        The base offset of the segment.
    indexed : array of OFFSET_INDEX_ENTRY
        Its index so far: the entries of the batches before the first one that does not fit.
    interval_bytes : int
        Kafka's ``index.interval.bytes``.

    Returns
    -------
    list of SegmentPart
        Consecutive parts that cover the whole segment.

    Raises
    ------
    CorruptLogError
        If Kafka fails to split the segment, and does not load the log; or if an offset is
        negative: Kafka would write a file name that starts with a minus.
    """
    scan = scan_batches(source, on_corrupt="stop")
    if scan.end is not ScanEnd.CLEAN or not len(scan.batches):
        raise _refused(source, scan.valid_bytes, None, "bytes after the last valid batch")
    _require_overflow(source, scan.batches, base_offset, indexed)
    parts = [
        _part(source, scan.batches[first:last], base, interval_bytes)
        for base, first, last in _cuts(source, scan.batches)
    ]
    if len({part.base_offset for part in parts}) < len(parts):
        raise _refused(source, 0, base_offset, "two parts would have the same base offset")
    return parts


def _refused(source: Source, position: int, offset: int | None, why: str) -> CorruptLogError:
    reason = f"the range of offsets is too large for one segment, which cannot be split: {why}"
    return CorruptLogError(source.path, position, offset, reason, _SYMBOL)


def _require_overflow(
    source: Source, batches: BatchTable, base_offset: int, indexed: IndexEntries
) -> None:
    """Raise where Kafka fails: it checks whether the last batch is too far from the base offset."""
    target, position = base_offset, 0
    if len(indexed):
        target += int(indexed["relative_offset"][-1])
        position = int(indexed["position"][-1])
    end = offset_after(batches)
    is_found = find_offset(source, position, target) is not None
    if not is_found or end <= base_offset or _fits(end - 1 - base_offset):
        raise _refused(source, 0, base_offset, "its last batch is within the range")


def _fits(relative: int) -> bool:
    return 0 <= relative <= _MOST_RELATIVE


def _cuts(source: Source, batches: BatchTable) -> Iterator[tuple[int, int, int]]:
    """Yield base offset, first row and the row after the last of each part."""
    ends, first = last_offset(batches), 0
    while first < len(batches):
        base = base_offset_of(source, batches[first : first + 1])
        last = _first_misfit(ends, first, base)
        row = batches[first]
        if base < 0:
            raise _refused(source, int(row["position"]), base, "an offset is negative")
        if last == first:
            raise _refused(
                source, int(row["position"]), base, "a batch ends before its first offset"
            )
        yield base, first, last
        first = last


def _first_misfit(ends: np.ndarray[tuple[int], np.dtype[np.int64]], first: int, base: int) -> int:
    """Return the first row, from `first` on, that a segment of this base offset cannot contain."""
    size = _FIRST_ROWS  # doubled below: there may be many parts, or long ones
    while first < len(ends):
        relative = ends[first : first + size] - base
        misfits = (relative < 0) | (relative > _MOST_RELATIVE)
        if misfits.any():
            return first + int(misfits.argmax())
        first, size = first + size, 2 * size
    return len(ends)


def _part(source: Source, batches: BatchTable, base: int, interval_bytes: int) -> SegmentPart:
    start = int(batches["position"][0])
    stop = int(batches["position"][-1]) + int(size_in_bytes(batches[-1:])[0])
    moved = batches.copy()
    moved["position"] -= start
    try:
        indexes = build_indexes(moved, base, interval_bytes)
    except (IndexOverflowError, BatchTableError):
        raise _refused(source, start, base, "offsets do not ascend") from None
    return SegmentPart(base, start, stop, *indexes)
