"""The offsets of batches: gaps, disorder, offsets that were read before, or below a file's name."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches import screening
from kafkascan.batches.columns import (
    BatchTable,
    delete_horizon_ms,
    next_offset,
    offset_after,
    rows_from,
)
from kafkascan.batches.screening import screen
from kafkascan.logs.segment import SegmentFile

_MAGIC_V2 = 2
_LOWEST, _GREATEST = -(2**63), 2**63 - 1


@dataclass(kw_only=True)
class BatchOffsets:
    """
    The offsets of a source's batches, which are added table by table.

    Attributes
    ----------
    is_cleaned : bool
        Whether the cleaner has removed records of a batch.
    end_offset : int or None
        The offset after the last batch; None without batches.
    first : (int, int, bool) or None
        Offset and position of the first batch, and whether it is a compressed message of magic 0
        or 1, of which only the last offset is known; None also if lost bytes are before it.
    gaps, missing : int
        Number of gaps between batches, and of the offsets in them.
    gap : (int, int, int) or None
        The first one: its first offset, the offset after it, and the position of the batch there.
    disorder : (int, int) or None
        Offset and position of the first batch that does not follow the one before it.
    is_after_loss : bool
        Whether bytes were lost after the last batch.
    """

    is_cleaned: bool = False
    end_offset: int | None = None
    first: tuple[int, int, bool] | None = None
    gaps: int = 0
    missing: int = 0
    gap: tuple[int, int, int] | None = None
    disorder: tuple[int, int] | None = None
    is_after_loss: bool = False

    def add_loss(self) -> None:
        """Add lost bytes: the offsets between the batches around them are no gap."""
        self.is_after_loss = True

    def add_around(self, losses: Sequence[int], tables: Iterable[BatchTable]) -> None:
        """Add the next batches, with the positions of lost bytes before, among and after them."""
        starts, at = np.unique(losses), 0
        for batches in tables:
            if not len(batches):
                continue
            stop = int(np.searchsorted(starts, batches["position"][-1], "right"))
            rows = np.searchsorted(batches["position"], starts[at:stop]).tolist()
            self.add(batches[: rows[0] if rows else None])
            for row, end in itertools.pairwise([*rows, len(batches)]):
                self.add_loss()
                self.add(batches[row:end])
            at = stop
        if at < len(starts):
            self.add_loss()

    def add(self, batches: BatchTable, flags: int | None = None) -> None:
        """Add the next batches, of which `screen` may have returned the flags already."""
        if not len(batches):
            return
        is_after_loss, self.is_after_loss = self.is_after_loss, False
        flags = screen(batches) if flags is None else flags
        # Numbers of single rows: most segments of many logs have few batches.
        head, tail = batches[0], batches[-1]
        if is_after_loss:
            pass
        elif self.end_offset is None:
            is_wrapper = bool(head["magic"] < _MAGIC_V2 and head["records_count"] < 0)
            self.first = int(head["base_offset"]), int(head["position"]), is_wrapper
        elif head["base_offset"] != self.end_offset:
            self._check(batches[:1], np.array([self.end_offset]))
        if flags & screening.OFFSETS:
            self._check(batches[1:], next_offset(batches[:-1]))
        if flags & screening.COUNTS and not self.is_cleaned:
            self.is_cleaned = _are_cleaned(batches)
        end_offset = int(tail["base_offset"]) + int(tail["last_offset_delta"]) + 1
        self.end_offset = min(end_offset, _GREATEST)

    def take(self, batches: BatchTable) -> BatchTable:
        """Add the next batches, and return those of them that are to be read."""
        self.add(batches)
        return batches

    def _check(self, batches: BatchTable, expected: NDArray[np.int64]) -> None:
        """Find gaps and disorder among batches, by the offsets that each should have."""
        bases = batches["base_offset"]
        early = np.flatnonzero(bases < expected)
        if len(early) and self.disorder is None:
            self.disorder = int(bases[early[0]]), int(batches["position"][early[0]])
        # Of a compressed message of magic 0 and 1, only the last offset is known.
        is_wrapper = (batches["magic"] < _MAGIC_V2) & (batches["records_count"] < 0)
        late = np.flatnonzero((bases > expected) & ~is_wrapper)
        if len(late) and self.gap is None:
            row = late[0]
            self.gap = int(expected[row]), int(bases[row]), int(batches["position"][row])
        self.gaps += len(late)
        # Differences of any offsets are exact without a sign.
        missing = bases[late].astype(np.uint64) - expected[late].astype(np.uint64)
        self.missing += int(missing.sum(dtype=np.uint64))


@dataclass(kw_only=True)
class SegmentOffsets(BatchOffsets):
    """
    The offsets of a segment of a log, and which of its batches the segments before it contain.

    Every batch is compared with the file's name, also one that is not read: it shows that the file
    is a copy, or of another log.

    Attributes
    ----------
    segment : SegmentFile
    first_offset : int
        The first offset that is read: the end of the segments before it, see `OffsetCursor`. By
        default, all are read.
    is_whole : bool
        Whether it was read to its end without damage, by a caller that answers for its end itself.
    reached : int or None
        The offset after the last batch, also if `unread` leaves it out.
    misplaced : (int, int) or None
        Offset and position of the first batch below the offset in the file's name.
    """

    segment: SegmentFile = field(kw_only=False)
    first_offset: int = field(default=_LOWEST, kw_only=False)
    is_whole: bool = False
    reached: int | None = None
    misplaced: tuple[int, int] | None = None
    _is_begun: bool = False

    def unread(self, batches: BatchTable) -> BatchTable:
        """Return the next batches without those at the segment's start that were read before."""
        if not len(batches):
            return batches
        self.reached = offset_after(batches)
        if self._is_begun:
            return batches
        found = rows_from(batches, self.first_offset)
        self._is_begun = len(found) > 0
        if len(found) < len(batches):
            self._compare_with_name(batches[: len(batches) - len(found)])
        return found

    def take(self, batches: BatchTable) -> BatchTable:
        """Add the next batches, and return those of them that were not read before."""
        unread = self.unread(batches)
        self.add(unread)
        return unread

    def add(self, batches: BatchTable, flags: int | None = None) -> None:
        """Add the next batches that are read; see `BatchOffsets.add`."""
        if not len(batches):
            return
        flags = screen(batches) if flags is None else flags
        super().add(batches, flags)
        self.reached = self.end_offset
        named = self.segment.base_offset
        # Offsets that follow each other are not below the first one.
        if named is not None and (flags & screening.OFFSETS or batches["base_offset"][0] < named):
            self._compare_with_name(batches)

    def _compare_with_name(self, batches: BatchTable) -> None:
        self.misplaced = self.misplaced or misplaced_batch(self.segment, batches)


def misplaced_batch(segment: SegmentFile, batches: BatchTable) -> tuple[int, int] | None:
    """Return offset and position of the first batch below the offset in a file's name."""
    named = segment.base_offset
    if named is None or segment.name.kind != "log" or not len(batches):
        return None
    is_below = batches["base_offset"] < named
    row = int(is_below.argmax())
    if not is_below[row]:
        return None
    return int(batches["base_offset"][row]), int(batches["position"][row])


def below_name(offset: int) -> str:
    """Return the sentence about a `misplaced_batch`."""
    return f"offset {offset} is below the base offset in the file's name"


def _are_cleaned(batches: BatchTable) -> bool:
    """Return whether the cleaner has removed records of a batch, or keeps it for some time."""
    counts, slots = batches["records_count"], batches["last_offset_delta"].astype(np.int64) + 1
    is_cleaned = (counts >= 0) & (counts < slots) | (delete_horizon_ms(batches) >= 0)
    return bool((is_cleaned & (batches["magic"] >= _MAGIC_V2)).any())
