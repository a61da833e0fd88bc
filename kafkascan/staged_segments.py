"""A segment of a log that is being loaded, and where it stands among the others."""

from __future__ import annotations

import bisect
import functools
from collections.abc import Iterator
from dataclasses import dataclass

from kafkascan.batch_columns import BatchTable, next_offset
from kafkascan.batches import BatchScan, scan_batches
from kafkascan.errors import SENTENCES, STATUS, CorruptLogError
from kafkascan.segment_recovery import RecoveredSegment
from kafkascan.sources import Source
from kafkascan.staged_files import StagedFiles

_DIGITS = 20
# Loading asks what a name says several times; of this many files of a folder, it is remembered.
_NAMES_KNOWN = 4096
# Reading a file takes less than mapping it, up to about this size.
_READ_AT_ONCE = 1 << 17


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
    """A segment of the log. Its batches are read when they are asked for, and not kept."""

    def __init__(self, files: StagedFiles, base_offset: int) -> None:
        self.base_offset = base_offset
        self._stem = f"{base_offset:020}"
        self.name = self.sibling("log")
        self._source = files.source(self.name)
        self.path = self._source if isinstance(self._source, str) else self._source.path
        self.size = self.valid_bytes = files.size(self.name)
        self.reason: str | None = None
        self.is_recovered = self.is_emptied = False
        self._known: tuple[int, int] | None = None

    def sibling(self, kind: str) -> str:
        """Return the name of a file that belongs to it."""
        return f"{self._stem}.{kind}"

    def open(self) -> Source:
        """Open the log where it is now."""
        return Source(self._source, read_below=_READ_AT_ONCE)

    def note(self, recovered: RecoveredSegment) -> None:
        """Take over what a recovery found."""
        self.is_recovered = True
        self.is_emptied = recovered.is_emptied
        self.valid_bytes = recovered.valid_bytes
        self.reason = recovered.reason
        self._known = _count_and_end(recovered.batches, self.base_offset)

    def misfit(self) -> CorruptLogError:
        """Say that the offsets do not ascend."""
        symbol = "OFFSETS_NOT_ASCENDING"
        return CorruptLogError(self.path, 0, self.base_offset, SENTENCES[STATUS[symbol]], symbol)

    def scan(self) -> BatchScan:
        """Read the headers of what is valid."""
        with self.open() as source:
            return scan_batches(source, stop=self.valid_bytes, on_corrupt="stop")

    @property
    def next_offset(self) -> int:
        """The offset behind the last batch."""
        return self._count_and_end()[1]

    def _count_and_end(self) -> tuple[int, int]:
        if self._known is None:
            self._known = _count_and_end(self.scan().batches, self.base_offset)
        return self._known

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
        self._stem = f"{base_offset:020}"
        self.name = self.sibling("log")
        self.size = self.valid_bytes = 0
        self.reason = None
        self.is_recovered = self.is_emptied = False
        self._known = 0, base_offset

    def open(self) -> Source:
        """Give a log of no bytes."""
        return Source(b"")


def _count_and_end(batches: BatchTable, base_offset: int) -> tuple[int, int]:
    if not len(batches):
        return 0, base_offset
    return len(batches), int(next_offset(batches[-1:])[0])


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
