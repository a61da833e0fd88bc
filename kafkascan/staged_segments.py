"""A segment of a log that is being loaded, and where it stands among the others."""

from __future__ import annotations

import bisect
import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kafkascan.batch_columns import BatchTable, join_tables, next_offset
from kafkascan.batches import scan_batches
from kafkascan.errors import (
    SENTENCES,
    STATUS,
    CorruptBatchError,
    CorruptIndexError,
    CorruptLogError,
)
from kafkascan.layout import OFFSET_INDEX_ENTRY
from kafkascan.offset_search import find_offset, framed_batches, is_batch_at
from kafkascan.segment_recovery import RecoveredSegment
from kafkascan.sources import Source
from kafkascan.staged_files import StagedFiles

_DIGITS = 20
# Loading asks what a name says several times; of this many files of a folder, it is remembered.
_NAMES_KNOWN = 4096
# Reading a file takes less than mapping it, up to about this size.
_READ_AT_ONCE = 1 << 17
_ROWS_AT_ONCE = 1 << 16
# Of an index, Kafka searches its last entries first (``AbstractIndex.warmEntries``).
_WARM_BYTES = 8192


@dataclass
class SegmentReport:
    """
    What became of one segment.

    Attributes
    ----------
    name : str
        Of the log file.
    base_offset, next_offset : int
    batches : int
        Those that are valid, or, of a segment that is given up, those that are there.
    size, valid_bytes : int
    is_recovered : bool
        Whether it was read in full; segments before the recovery point are not.
    reason : str or None
        Why it is cut at `valid_bytes`, or left out.
    """

    name: str
    base_offset: int
    next_offset: int
    batches: int
    size: int
    valid_bytes: int
    is_recovered: bool
    reason: str | None

    @property
    def truncated_bytes(self) -> int:
        """What is behind the last valid batch."""
        return self.size - self.valid_bytes


class StagedSegment:
    """
    A segment of the log. Its batches are read when they are asked for, and not kept.

    Parameters
    ----------
    files : StagedFiles
    base_offset : int
    suffix : str
        Behind the names of its files, if they do not have these names yet.
    """

    def __init__(self, files: StagedFiles, base_offset: int, suffix: str = "") -> None:
        self.base_offset = base_offset
        self._files = files
        self._stem, self._suffix = f"{base_offset:020}", suffix
        self.name = self.sibling("log")
        self._source = files.source(self.name)
        self.path = self._source if isinstance(self._source, str) else self._source.path
        self.size = self.valid_bytes = files.size(self.name)
        self.reason: str | None = None
        self.is_recovered = self.is_emptied = False
        self._known: tuple[int, int] | None = None
        self._end: int | None = None

    def sibling(self, kind: str) -> str:
        """Return the name of a file that belongs to it."""
        return f"{self._stem}.{kind}{self._suffix}"

    def open(self) -> Source:
        """Open the log where it is now."""
        return Source(self._source, read_below=_READ_AT_ONCE)

    def note(self, recovered: RecoveredSegment) -> None:
        """Take over what a recovery found."""
        self.is_recovered = True
        self.is_emptied = recovered.is_emptied
        self.valid_bytes = recovered.valid_bytes
        self.reason = recovered.reason
        self._end = None
        self._known = _count_and_end(recovered.batches, self.base_offset)

    def misfit(self) -> CorruptLogError:
        """Say that the offsets do not ascend."""
        symbol = "OFFSETS_NOT_ASCENDING"
        return CorruptLogError(self.path, 0, self.base_offset, SENTENCES[STATUS[symbol]], symbol)

    def _open_valid(self) -> Source:
        return Source(self._source, read_below=_READ_AT_ONCE, max_size=self.valid_bytes)

    def _count_and_end(self) -> tuple[int, int]:
        if self._known is None:
            with self._open_valid() as source:
                batches = scan_batches(source, on_corrupt="stop").batches
            self._known = _count_and_end(batches, self.base_offset)
        return self._known

    # ---- what Kafka finds in it -------------------------------------------------------------

    @property
    def next_offset(self) -> int:
        """
        The offset behind the last batch, as Kafka finds it (``LogSegment.readNextOffset``).

        Raises
        ------
        CorruptLogError
            If Kafka fails on the way there, and does not load the log.
        """
        if self._end is None:
            self._end = self._read_next_offset()
        return self._end

    def _read_next_offset(self) -> int:
        entries = self._entries()
        last = self.base_offset + (int(entries["relative_offset"][-1]) if len(entries) else 0)
        position = self.find(last)
        if position is None:
            return self.base_offset
        end = self.base_offset
        for batches in self._framed(position, self.valid_bytes):
            end = int(next_offset(batches[-1:])[0])
        return end

    def find(self, offset: int) -> int | None:
        """
        Return where Kafka begins to read for an offset (``LogSegment.translateOffset``).

        Raises
        ------
        CorruptLogError
            If Kafka fails on the way there, and does not load the log.
        """
        entries = self._entries()
        row = _slot(entries["relative_offset"], offset - self.base_offset)
        start = 0 if row < 0 else int(entries["position"][row])
        with self._open_valid() as source:
            try:
                if start >= 0:
                    return find_offset(source, start, offset)
                reason = "a negative position"
            except CorruptBatchError:
                if is_batch_at(source, start):
                    raise
                reason = f"position {start}, where no batch is"
        path, place = self._files.path(self.sibling("index")), row * entries.itemsize
        reason = (
            f"for offset {offset} it leads brokers to {reason}; delete it, and it is built anew"
        )
        raise CorruptIndexError(path, place, offset, reason, "WRONG_POSITION")

    def batches(self, start: int, stop: int) -> BatchTable:
        """Return the batches from one position to another; as `find`."""
        return join_tables(list(self._framed(start, stop)))

    def _framed(self, start: int, stop: int) -> Iterator[BatchTable]:
        with Source(self._source, read_below=_READ_AT_ONCE, max_size=stop) as source:
            yield from framed_batches(source, start, rows=_ROWS_AT_ONCE)

    def _entries(self) -> NDArray[np.void]:
        """Return all of the offset index, with the zeros that Kafka takes for entries."""
        name = self.sibling("index")
        data = self._files.read(name) if name in self._files else b""
        whole = len(data) - len(data) % OFFSET_INDEX_ENTRY.itemsize
        return np.frombuffer(data[:whole], OFFSET_INDEX_ENTRY)

    # ---- what is told of it -----------------------------------------------------------------

    def report(self, reason: str | None = None) -> SegmentReport:
        """Describe it; a reason says why all of it is given up."""
        count, next_offset = self._count_and_end()
        return SegmentReport(
            name=self.name,
            base_offset=self.base_offset,
            next_offset=next_offset,
            batches=count,
            size=self.size,
            valid_bytes=0 if reason else self.valid_bytes,
            is_recovered=self.is_recovered,
            reason=reason or self.reason,
        )


class EmptySegment(StagedSegment):
    """The one that a log begins anew with."""

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self._stem, self._suffix = f"{base_offset:020}", ""
        self.name = self.sibling("log")
        self.size = self.valid_bytes = 0
        self.reason = None
        self.is_recovered = self.is_emptied = False
        self._known = 0, base_offset

    @property
    def next_offset(self) -> int:
        """Its own: nothing is in it."""
        return self.base_offset

    def find(self, offset: int) -> int | None:
        """Find nothing."""
        del offset
        return None


def _count_and_end(batches: BatchTable, base_offset: int) -> tuple[int, int]:
    if not len(batches):
        return 0, base_offset
    return len(batches), int(next_offset(batches[-1:])[0])


def _slot(keys: NDArray[np.int32], key: int) -> int:
    """
    Return the last entry that is not behind a key, -1 if there is none.

    What a binary search finds among entries that do not ascend depends on how it goes about it:
    ``AbstractIndex.largestLowerBoundSlotFor``.
    """
    if not len(keys):
        return -1
    low, high = 0, len(keys) - 1
    warm = max(0, high - _WARM_BYTES // OFFSET_INDEX_ENTRY.itemsize)
    if keys[warm] < key:
        low = warm
    elif keys[0] > key:
        return -1
    else:
        high = warm
    while low < high:
        middle = (low + high + 1) // 2
        if keys[middle] > key:
            high = middle - 1
        elif keys[middle] < key:
            low = middle
        else:
            return middle
    return low


def floor(segments: list[StagedSegment], offset: int) -> int:
    """Return the place of the segment that an offset belongs to, -1 if there is none."""
    return bisect.bisect_right(segments, offset, key=lambda one: one.base_offset) - 1


def overlapping(segments: list[StagedSegment], start: int, stop: int) -> Iterator[StagedSegment]:
    """Segments from the one that holds an offset on (``LogSegments.values``)."""
    for segment in segments[max(0, floor(segments, start)) :]:
        if segment.base_offset >= stop:
            return
        yield segment


@functools.lru_cache(_NAMES_KNOWN)
def offset_of(name: str) -> int | None:
    """Return the offset that a file is named by, in as many digits as Kafka writes."""
    digits = name.partition(".")[0]
    if len(digits) != _DIGITS or not (digits.isascii() and digits.isdigit()):
        return None
    return offset if (offset := int(digits)) < 1 << 63 else None
