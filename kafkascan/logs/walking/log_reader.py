"""Read the segments of a log in turn: each offset once, and what is wrong is a problem of the log.

Who reads the segments of a log decides only what it does with their batches.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from kafkascan.format.errors import FileGoneError, KafkaScanError, detached
from kafkascan.logs.log_dir import attempts_to_open
from kafkascan.logs.log_problems import LogChecks, LogProblems
from kafkascan.logs.opened_logs import LogView, OffsetCursor
from kafkascan.logs.segment import SegmentFile
from kafkascan.logs.walking.batch_offsets import SegmentOffsets
from kafkascan.logs.walking.segment_tails import LogEnd


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
    offsets : SegmentOffsets
        To be given its batches, in order; see `SegmentOffsets.take`.
    start_offset : int
        The first offset to read of it; 0 for all of its batches.
    start_position : int
        The position of the first batch to read.
    goes_on : bool
        Whether to take errors.
    is_first : bool
        Whether the log has no segment before it: those that were read are deleted by now.
    end : LogEnd or None
        How it ends, once it was read to its end.
    error : Exception or None
        Why it could not be read, or not to its end.
    """

    segment: SegmentFile
    offsets: SegmentOffsets
    start_offset: int = 0
    start_position: int = 0
    goes_on: bool = True
    is_first: bool = False
    end: LogEnd | None = None
    error: Exception | None = None

    def new_offsets(self) -> SegmentOffsets:
        """Return what `offsets` was before any batch."""
        return SegmentOffsets(self.segment, self.offsets.first_offset)

    @property
    def is_gone(self) -> bool:
        """Whether the file was gone, and a newer listing may have its offsets."""
        return isinstance(self.error, FileGoneError) and self.segment.is_listed

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
    log : LogView
    problems : LogProblems
        Receives what is wrong; complete after the last segment.
    goes_on : bool
        Whether to read on after damage. Otherwise, the first error is raised, and so is the first
        problem because of which rows are missing.
    segments : sequence of SegmentFile, optional
        Those to read; by default those that may contain the start offset of the log.
    is_wanted : callable, optional
        Returns whether the offsets of a listed segment are read.
    start_position : int, default 0
        Position in the first of them of the first batch to read.
    is_selection : bool, default False
        Whether the segments are files that somebody has chosen: each is read as a whole, and others
        of their log may be missing.
    """

    def __init__(
        self,
        log: LogView,
        problems: LogProblems,
        *,
        goes_on: bool,
        segments: Sequence[SegmentFile] | None = None,
        is_wanted: Callable[[SegmentFile], bool] = every_segment,
        start_position: int = 0,
        is_selection: bool = False,
    ) -> None:
        self._log, self._problems, self._goes_on = log, problems, goes_on
        self._segments, self._is_wanted = segments, is_wanted
        self._start_position, self._is_selection = start_position, is_selection
        self._checks = LogChecks(log, problems, is_selection=is_selection)
        self._cursor = OffsetCursor()

    def __iter__(self) -> Generator[SegmentReading]:
        segments = self._log.served_segments if self._segments is None else self._segments
        is_first = True
        for listed in segments:
            if not self._is_wanted(listed):
                self._checks.skip()
                continue
            for segment in attempts_to_open(listed, by_name=self._is_selection):
                reading = self._reading(segment, listed, is_first)
                if segment is segments[0] and self._start_position:
                    reading.start_position = self._start_position
                    reading.offsets.add_loss()
                try:
                    yield reading
                except GeneratorExit:  # the caller has enough records
                    self.add(reading)
                    raise
                if not reading.is_gone:
                    self.add(reading)
                    self._require_complete()
                    is_first = False
                    break
            else:  # retention has deleted it, and all before it
                self._checks.skip()
                is_first = True
        self.finish()
        self._require_complete()

    def _reading(self, segment: SegmentFile, listed: SegmentFile, is_first: bool) -> SegmentReading:
        """Return the reading of a segment that has the offsets of a listed one."""
        if self._is_selection:
            return SegmentReading(segment, SegmentOffsets(segment), goes_on=self._goes_on)
        log, position = self._log, self._cursor.position
        start_offset = log.start_offset if log.has_deleted_offsets else 0
        first = max(start_offset, position, listed.base_offset or 0)
        first = first if first > (segment.base_offset or 0) else 0
        offsets = SegmentOffsets(segment, position)
        return SegmentReading(segment, offsets, first, goes_on=self._goes_on, is_first=is_first)

    def add(self, reading: SegmentReading) -> None:
        """Add what is wrong with the next segment, as far as it was read."""
        segment = reading.segment
        if reading.error is not None:
            self._checks.add_error(segment, reading.error)
        elif reading.end is not None:
            self._checks.add(reading.offsets, reading.end)
        else:
            self._checks.add_offsets(reading.offsets)
        if segment.name.is_live:
            overlaps = self._cursor.add(segment, reading.offsets.reached)
            self._problems.add_overlaps(self._log.partition, overlaps)

    def finish(self) -> None:
        """Add what is wrong with the log, after the last segment."""
        segments = self._log.served_segments if self._segments is None else self._segments
        if segments and not self._is_selection and self._checks.last != segments[-1]:
            self._checks.add_newer(segments[-1].folder)
        self._checks.finish()

    def _require_complete(self) -> None:
        if not self._goes_on:
            self._problems.require_complete()
