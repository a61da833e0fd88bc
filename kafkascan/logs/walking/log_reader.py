"""Read the segments of a log in turn: each offset once, and what is wrong is a problem of the log.

Who reads the segments of a log decides only what it does with their batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from kafkascan.format.errors import FileGoneError, KafkaScanError, detached
from kafkascan.logs.log_dir import attempts_to_open
from kafkascan.logs.log_problems import LogChecks, LogProblems, SegmentOffsets, SegmentTail
from kafkascan.logs.opened_logs import Log, OffsetCursor
from kafkascan.logs.segment import SegmentFile


def every_segment(_: SegmentFile) -> bool:
    """Return True."""
    return True


@dataclass(eq=False)
class SegmentReading:
    """
    One segment of a `LogReader`: the context in which it is read.

    Its end takes an error of reading, after which the next segment is read; unless the reader is to
    raise errors.

    Attributes
    ----------
    segment : SegmentFile
    start_offset : int
        The first offset to read of it; 0 for all of its batches.
    offsets : SegmentOffsets
        To be given its batches, in order; see `SegmentOffsets.take`.
    goes_on : bool
        Whether to take errors.
    is_first : bool
        Whether the log has no segment before it: those that were read are deleted by now.
    end : SegmentTail or None
        How it ends, once it was read to its end.
    error : Exception or None
        Why it could not be read, or not to its end.
    """

    segment: SegmentFile
    start_offset: int
    offsets: SegmentOffsets
    goes_on: bool
    is_first: bool
    end: SegmentTail | None = None
    error: Exception | None = None

    def new_offsets(self) -> SegmentOffsets:
        """Return what `offsets` was before any batch."""
        return SegmentOffsets(self.segment, self.offsets.first_offset)

    @property
    def is_gone(self) -> bool:
        """Whether the file was deleted or replaced before it could be read."""
        return isinstance(self.error, FileGoneError)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if not isinstance(error, (OSError, KafkaScanError)):
            return False
        self.error = detached(error)
        return self.goes_on or self.is_gone


class LogReader:
    """
    Yields the segments of a log in turn, to be read in their contexts; see `OffsetCursor`.

    A segment that is gone is looked for in a newer listing; see `attempts_to_open`.

    Parameters
    ----------
    log : Log
    problems : LogProblems
        Receives what is wrong; complete after the last segment.
    goes_on : bool
        Whether to read on after damage. Otherwise, the first error is raised, and so is the first
        problem because of which rows are missing.
    segments : sequence of SegmentFile, optional
        Those to read; by default those that may contain the start offset of the log.
    is_wanted : callable, optional
        Returns whether the offsets of a listed segment are read.
    is_alone : bool, default False
        Whether the log is one file, of which it is not known what a broker has made of its log.
    """

    def __init__(
        self,
        log: Log,
        problems: LogProblems,
        *,
        goes_on: bool,
        segments: Sequence[SegmentFile] | None = None,
        is_wanted: Callable[[SegmentFile], bool] = every_segment,
        is_alone: bool = False,
    ) -> None:
        self._log, self._problems, self._goes_on = log, problems, goes_on
        self._segments, self._is_wanted, self._is_alone = segments, is_wanted, is_alone
        self._checks, self._cursor = LogChecks(log, problems), OffsetCursor()

    def __iter__(self) -> Iterator[SegmentReading]:
        segments = self._log.served_segments if self._segments is None else self._segments
        is_first = True
        for listed in segments:
            if not self._is_wanted(listed):
                self._checks.skip()
                continue
            for segment in attempts_to_open(listed):
                reading = self._reading(segment, listed, is_first)
                yield reading
                if not reading.is_gone:
                    self._add(reading)
                    is_first = False
                    break
            else:  # retention has deleted it, and all before it
                self._checks.skip()
                is_first = True
        if not self._is_alone:
            self._checks.finish()
        self._require_complete()

    def _reading(self, segment: SegmentFile, listed: SegmentFile, is_first: bool) -> SegmentReading:
        """Return the reading of a segment that has the offsets of a listed one."""
        log, position = self._log, self._cursor.position
        start_offset = log.start_offset if log.has_deleted_offsets else 0
        first = max(start_offset, position, listed.base_offset or 0)
        first = first if first > (segment.base_offset or 0) else 0
        offsets = SegmentOffsets(segment, position)
        return SegmentReading(segment, first, offsets, self._goes_on, is_first)

    def _add(self, reading: SegmentReading) -> None:
        """Add what is wrong with a segment that was read."""
        if reading.error is not None:
            self._checks.add_error(reading.segment, reading.error)
        elif reading.end is not None:
            self._checks.add(reading.offsets, reading.end)
        overlaps = self._cursor.add(reading.segment, reading.offsets.reached)
        self._problems.add_overlaps(self._log.partition, overlaps)
        self._require_complete()

    def _require_complete(self) -> None:
        if not self._goes_on:
            self._problems.require_complete()
