"""Where to begin to read a log for the rows around an offset or a time, by its indexes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

import numpy as np

from kafkascan.batches.columns import next_offset
from kafkascan.batches.resyncing.offset_evidence import HIGHEST_OFFSET
from kafkascan.batches.scan import iter_batches
from kafkascan.batches.verify import verify_crcs
from kafkascan.broker_state.indexes import IndexEntries, parse_index
from kafkascan.cli.inputs import SegmentInput
from kafkascan.cli.run import READ_ERRORS
from kafkascan.format.layout import ScanEnd

Inputs = Sequence[SegmentInput]

_ROWS = 8192


@dataclass(frozen=True)
class Place:
    """
    An offset or a time, and the number of rows to show before it and from it on.

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
    def of(cls, around: int | np.datetime64, count: int) -> Place:
        """Return the place that the options --around and --context name."""
        if isinstance(around, int):
            return cls(around, None, count)
        return cls(None, int(around.astype(np.int64)), count)

    @classmethod
    def end(cls, count: int) -> Place:
        """Return the place after the last row of a log."""
        return cls(HIGHEST_OFFSET, None, count)


def logs_of(inputs: Inputs) -> Iterator[list[SegmentInput]]:
    """Yield the inputs of each log."""
    for _, one in groupby(inputs, lambda one: one.partition.path):
        yield list(one)


def indexed_start(inputs: Inputs, place: Place) -> list[SegmentInput] | None:
    """
    Return the inputs of a log to read: from an index entry in front of the rows before a place.

    An entry of the offset index counts only if the entries of its file are in order, and a batch
    with a right checksum and a fitting offset is at its position. What is before it is not read,
    but for a time: a time index that is in order may be wrong, so the headers of all batches
    before the place are.

    Returns
    -------
    list of SegmentInput or None
        None if no entry is far enough before the place, or segments overlap: read all inputs.
    """
    if not _are_segments_of_a_log(inputs):
        return None
    try:
        if not all(_ends_before(*pair) for pair in pairwise(inputs)):
            return None  # which segment has an offset depends on all before it
        number, offset = _reached(inputs, place)
        # From each entry on, there is a batch, and at least a row of it.
        missing = place.count + 1
        for one in reversed(inputs[: number + 1]):
            entries = _entries(one, "index")
            relative = offset - _base_of(one)
            known = int(np.searchsorted(entries["relative_offset"], relative, "right"))
            if known >= missing:
                entry = entries[known - missing]
                return _from_entry(inputs, number, entry) if _leads_to_batch(one, entry) else None
            missing, number = missing - known, number - 1
    except (*READ_ERRORS, ValueError):
        pass
    return None


def _are_segments_of_a_log(inputs: Inputs) -> bool:
    names = [one.segment.name for one in inputs]
    bases = [name.base_offset for name in names if name.base_offset is not None]
    return (
        len(bases) == len(inputs)
        and all(first < second for first, second in pairwise(bases))
        and all(name.kind == "log" and name.state is None for name in names)
    )


def _ends_before(one: SegmentInput, following: SegmentInput) -> bool:
    """Return whether the offsets of a segment end before those of the next one."""
    entries = _entries(one, "index")
    start = int(entries["position"][-1]) if len(entries) else 0
    with one.open() as source:
        tables = iter_batches(source, start=start, on_corrupt="stop")
        end = max((int(next_offset(table).max()) for table in tables), default=0)
        return tables.end is ScanEnd.CLEAN and end <= _base_of(following)


def _base_of(one: SegmentInput) -> int:
    return one.segment.base_offset or 0


def _reached(inputs: Inputs, place: Place) -> tuple[int, int]:
    """Return the number of the input that reaches a place, and an offset before the place."""
    if place.offset is not None:
        bases = [_base_of(one) for one in inputs]
        number = max(0, bisect_right(bases, place.offset) - 1)
        return number, place.offset - place.count
    assert place.time is not None
    for number, one in enumerate(inputs):
        offset, reaches = _offset_of_time(one, place.time)
        if reaches:
            return number, offset - place.count
    return len(inputs) - 1, offset - place.count


def _offset_of_time(one: SegmentInput, time: int) -> tuple[int, bool]:
    """
    Return the offset of the first batch that reaches a time, and True, or the last one, and False.

    Raises
    ------
    ValueError
        If the segment is damaged before it.
    """
    offset, reaches = _base_of(one), False
    with one.open() as source:
        behind = one.drop_behind(source)
        tables = iter_batches(source, rows=_ROWS, on_corrupt="stop")
        for table in tables:
            reached = table["max_timestamp"] >= time
            reaches = bool(reached.any())
            offset = int(table["base_offset"][reached.argmax() if reaches else -1])
            if reaches:
                break
        if behind is not None:
            behind.drop()
        if tables.end is ScanEnd.CORRUPT and not reaches:
            raise ValueError(f"{one.path} is damaged")
    return offset, reaches


def _entries(one: SegmentInput, kind: str) -> IndexEntries:
    """Return the entries of an index file; raise ValueError if they are not in order."""
    found = one.segment.read_sibling(kind)
    if found is None:
        raise ValueError(f"{one.path} has no {kind}")
    entries = parse_index(found[1], found[0])
    for name in entries.dtype.names or ():
        if (np.diff(entries[name]) < 0).any():
            raise ValueError(f"the {kind} of {one.path} is not in order")
    return entries


def _leads_to_batch(one: SegmentInput, entry: np.void) -> bool:
    with one.open() as source:
        batch = next(iter_batches(source, rows=1, start=int(entry["position"])), None)
        return (
            batch is not None
            and _base_of(one) <= batch["base_offset"][0]
            # Of an append of several batches, the entry has the last offset.
            and batch["base_offset"][0] <= _base_of(one) + int(entry["relative_offset"])
            and bool(verify_crcs(source, batch)[0])
        )


def _from_entry(inputs: Inputs, number: int, entry: np.void) -> list[SegmentInput]:
    first = replace(inputs[number], start_position=int(entry["position"]))
    return [first, *inputs[number + 1 :]]
