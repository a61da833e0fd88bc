"""Find where to begin to read a log by its index files, and check what they lead to."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import last_offset
from kafkascan.batches.resyncing.offset_evidence import HIGHEST_OFFSET
from kafkascan.batches.scan import iter_batches
from kafkascan.batches.verify import verify_rows
from kafkascan.broker_state.indexes import IndexEntries, parse_index
from kafkascan.format.errors import KafkaScanError
from kafkascan.format.layout import ScanEnd
from kafkascan.logs.queries.conditions import Condition, Span, Spans
from kafkascan.logs.queries.segment_inputs import SegmentInput
from kafkascan.logs.segment import SegmentFile
from kafkascan.logs.walking.batch_offsets import misplaced_batch

_ROWS = 8192
# After its last entry, an index says nothing of about 4 KiB of batches (index.interval.bytes).
_ROWS_AFTER_INDEX = 64
# The headers of a file of this size are read as fast as those after an entry of its index.
_SMALL_FILE = 1 << 14


def read_entries(segment: SegmentFile | None, kind: str) -> IndexEntries | None:
    """
    Return the entries of a side file of a segment.

    Parameters
    ----------
    segment : SegmentFile or None
    kind : {"index", "timeindex", "txnindex"}

    Returns
    -------
    ndarray or None
        None if the file is missing, or the segment's name has no offset, to which entries are
        relative.

    Raises
    ------
    CorruptIndexError
        If the size is not a multiple of an entry's.
    """
    found = None if segment is None or segment.base_offset is None else segment.read_sibling(kind)
    return None if found is None else parse_index(found[1], found[0])


def ends_before(segment: SegmentFile, offset: int) -> bool:
    """
    Return whether the offsets of a segment end before an offset, if that can be read cheaply.

    The last entry of the ``.index`` is where the batches are read that it does not contain. Without
    such an entry, unless the file is small, or if batches do not follow it to the end of the file,
    the answer is False.

    Parameters
    ----------
    segment : SegmentFile
    offset : int
    """
    try:
        start = _last_indexed_position(segment)
        if start is None:
            return False
        with segment.borrow() as source:
            tail = iter_batches(source, rows=_ROWS_AFTER_INDEX, start=start, on_corrupt="stop")
            is_below = all(bool((last_offset(table) < offset).all()) for table in tail)
            return is_below and tail.end is ScanEnd.CLEAN
    except (OSError, KafkaScanError):
        return False  # a reader of the whole segment says what is wrong with it


def segments_to_read(
    segments: Sequence[SegmentFile], condition: Condition, place: Spans | None = None
) -> frozenset[SegmentFile]:
    """
    Return the segments of a log without those whose offsets a condition rules out.

    A segment ends where the next one begins, but segments may overlap: it is left out if its index
    leads to batches that end there.

    Parameters
    ----------
    segments : sequence of SegmentFile
        In their order.
    condition : Condition
    place : mapping, optional
        The spans of what all records have in common.
    """

    def may_hold(first: int, last: int) -> bool:
        return bool(condition.may_hold({**(place or {}), "offset": Span(first, last)}))

    def is_read(segment: SegmentFile, following: SegmentFile | None) -> bool:
        first = segment.base_offset or 0
        if following is None or not may_hold(first, HIGHEST_OFFSET):
            return may_hold(first, HIGHEST_OFFSET)
        end = following.base_offset or 0
        return may_hold(first, end - 1) or not ends_before(segment, end)

    pairs = zip_longest(segments, segments[1:])
    return frozenset(segment for segment, following in pairs if is_read(segment, following))


def _last_indexed_position(segment: SegmentFile) -> int | None:
    """Return the position of the last entry of a segment's index; 0 for a small file."""
    entries, size = read_entries(segment, "index"), segment.current_size()
    position = int(entries["position"][-1]) if entries is not None and len(entries) else 0
    return position if 0 < position < size or (size <= _SMALL_FILE and position == 0) else None


@dataclass(frozen=True)
class RowAnchor:
    """
    An offset or a time, and the number of rows to return before it and from it on.

    Attributes
    ----------
    offset : int or None
    time : int or None
        In milliseconds since the epoch.
    count : int
    """

    offset: int | None
    time: int | None
    count: int

    @classmethod
    def at(cls, place: int | np.datetime64, count: int) -> RowAnchor:
        """Return the anchor at an offset, or at a time."""
        if isinstance(place, int):
            return cls(place, None, count)
        return cls(None, int(place.astype("datetime64[ms]").astype(np.int64)), count)

    @classmethod
    def at_end(cls, count: int) -> RowAnchor:
        """Return the anchor after the last row of a log."""
        return cls(HIGHEST_OFFSET, None, count)

    def is_reached(self, offsets: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which rows with these offsets and times reach the anchor."""
        if self.time is not None:
            return times >= self.time
        assert self.offset is not None
        return offsets >= self.offset


def seek_rows(inputs: Sequence[SegmentInput], anchor: RowAnchor) -> list[SegmentInput] | None:
    """
    Return the inputs to read for the rows around an anchor: from an index entry before them on.

    An entry of the offset index counts only if the entries of its file are sorted, a batch with a
    valid checksum and a fitting offset is at its position, and the offset of the file's first batch
    fits its name. Batches before the entry are not read. For a
    time, the headers of all batches before the anchor are read: a time index that is sorted may be
    wrong.

    Parameters
    ----------
    inputs : sequence of SegmentInput
        Of a log.
    anchor : RowAnchor

    Returns
    -------
    list of SegmentInput, or None
        None if no entry is far enough before the anchor, or if segments overlap: read all inputs.
    """
    if not _are_of_a_log(inputs):
        return None
    if not all(ends_before(one.segment, later.base_offset) for one, later in pairwise(inputs)):
        return None  # which segment has an offset depends on all before it
    try:
        number, offset = _anchor_place(inputs, anchor)
        # From each entry on, there is a batch, and at least a row of it.
        missing = anchor.count + 1
        for index in range(number, -1, -1):
            one = inputs[index]
            entries = _sorted_entries(one.segment)
            relative = offset - one.base_offset
            known = int(np.searchsorted(entries["relative_offset"], relative, "right"))
            if known >= missing:
                entry = entries[known - missing]
                first = replace(one, start_position=int(entry["position"]))
                return [first, *inputs[index + 1 :]] if _leads_to_batch(one, entry) else None
            missing -= known
    except (OSError, KafkaScanError, ValueError):
        pass
    return None


def _are_of_a_log(inputs: Sequence[SegmentInput]) -> bool:
    are_live = (one.segment.name.is_live and one.segment.base_offset is not None for one in inputs)
    are_sorted = (one.base_offset < later.base_offset for one, later in pairwise(inputs))
    return all(are_live) and all(are_sorted)


def _anchor_place(inputs: Sequence[SegmentInput], anchor: RowAnchor) -> tuple[int, int]:
    """Return the index of the segment that reaches an anchor, and an offset before its rows."""
    if anchor.time is None:
        offset = anchor.offset or 0
        bases = [one.base_offset for one in inputs]
        return max(0, bisect_right(bases, offset) - 1), offset - anchor.count
    number = offset = 0
    for number, one in enumerate(inputs):
        offset = one.base_offset
        with one.open() as source:
            tables = iter_batches(source, rows=_ROWS, on_corrupt="stop")
            for table in tables:
                reached = table["max_timestamp"] >= anchor.time
                if reached.any():
                    return number, int(table["base_offset"][reached.argmax()]) - anchor.count
                offset = int(table["base_offset"][-1])
        if tables.end is ScanEnd.CORRUPT:
            raise ValueError(f"{one.path} is damaged before the anchor")
    return number, offset - anchor.count


def _sorted_entries(one: SegmentFile) -> IndexEntries:
    """Return the entries of an offset index; raise ValueError if they are missing or unsorted."""
    entries = read_entries(one, "index")
    if entries is None:
        raise ValueError(f"{one.path} has no index")
    if any((np.diff(entries[name]) < 0).any() for name in entries.dtype.names or ()):
        raise ValueError(f"the index of {one.path} is not sorted")
    return entries


def _leads_to_batch(one: SegmentInput, entry: np.void) -> bool:
    with one.open() as source:
        first = next(iter_batches(source, rows=1), None)
        batch = next(iter_batches(source, rows=1, start=int(entry["position"])), None)
        return (
            first is not None
            and misplaced_batch(one.segment, first) is None
            and batch is not None
            and one.base_offset <= batch["base_offset"][0]
            # Of an append of several batches, the entry has the last offset.
            and batch["base_offset"][0] <= one.base_offset + int(entry["relative_offset"])
            and bool(verify_rows(source, batch)[0])
        )
