"""Find the problems of logs from the chunks of their segments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from kafkascan.batches import screening
from kafkascan.format.layout import ScanEnd
from kafkascan.logs.log_chunks import EndChecks, InspectedChunk, LogChunk, SegmentEnd
from kafkascan.logs.log_dir import PartitionDir
from kafkascan.logs.log_problems import LogChecks, LogProblems
from kafkascan.logs.opened_logs import LogView, SegmentOverlap
from kafkascan.logs.segment import SegmentFile
from kafkascan.logs.walking.batch_offsets import SegmentOffsets


@dataclass(eq=False)
class ScreenedRows:
    """
    The result of an inspector for a table of batches.

    Attributes
    ----------
    flags : int
        Properties of the batches, as `screen` returns them.
    """

    flags: int


Screened = TypeVar("Screened", bound=ScreenedRows)


class ChunkChecks:
    """
    Finds the problems of logs from the chunks of their segments, which are added in order.

    Parameters
    ----------
    logs : sequence of LogView
    segments : sequence of (PartitionDir, SegmentFile)
        The segments that are read.
    problems : LogProblems
        Receives them.
    """

    def __init__(
        self,
        logs: Sequence[LogView],
        segments: Sequence[tuple[PartitionDir, SegmentFile]],
        problems: LogProblems,
    ) -> None:
        self._log_of = {id(log.partition): log for log in logs}
        self._segments = segments
        self._problems = problems
        self._checks: LogChecks | None = None
        self._offsets: SegmentOffsets | None = None

    def add(
        self,
        chunk: InspectedChunk[Screened, EndChecks],
        overlaps: Iterable[SegmentOverlap],
    ) -> None:
        """Add the next chunk, with the overlaps of the segments that end in it."""
        if not overlaps and self._follow(chunk):
            return
        ended = 0
        bounds = [*(row for row, _ in chunk.tables), len(chunk)]
        for (row, table), stop in zip(chunk.tables, bounds[1:], strict=True):
            number = int(chunk.segment[row])
            while ended < len(chunk.ends) and chunk.ends[ended].segment < number:
                self._end(chunk.ends[ended])
                ended += 1
            self._offsets_of(number).add(chunk.batches[row:stop], table.flags)
        for end in chunk.ends[ended:]:
            self._end(end)
        if overlaps and self._checks is not None:
            self._problems.add_overlaps(self._checks.log.partition, overlaps)

    def _follow(self, chunk: InspectedChunk[Screened, EndChecks]) -> bool:
        """
        Add a chunk of whole segments that follow each other; return False for any other one.

        Logs of small segments have many of them: one by one, they would take as long as a good part
        of reading them.
        """
        flags, numbers = 0, [end.segment for end in chunk.ends]
        for _, table in chunk.tables:
            flags |= table.flags
        starts = [row for row, _ in chunk.tables]
        if (
            flags & (screening.OFFSETS | screening.COUNTS)
            or self._offsets is not None
            or not numbers
            or chunk.segment[starts].tolist() != numbers
            or any(end.end is not ScanEnd.CLEAN or end.misplaced for end in chunk.ends)
        ):
            return False
        checks = self._checks_of(numbers[0])
        named = [self._segments[number][1].base_offset for number in numbers]
        ends = [end.end_offset for end in chunk.ends]
        first = named[0] if checks.expected is None else checks.expected
        if not chunk.batches["base_offset"][starts].tolist() == named == [first, *ends[:-1]]:
            return False
        checks.expected, checks.last = ends[-1], self._segments[numbers[-1]][1]
        return True

    def add_errors(self, chunk: LogChunk) -> None:
        """Add only what could not be read of a chunk, whose segments are not in order."""
        for end in chunk.ends:
            if end.error is not None:
                partition, segment = self._segments[end.segment]
                self._problems.add_error(partition, segment.path, end.error)

    def _offsets_of(self, number: int) -> SegmentOffsets:
        if self._offsets is None:
            self._offsets = SegmentOffsets(self._segments[number][1])
        return self._offsets

    def _checks_of(self, number: int) -> LogChecks:
        partition = self._segments[number][0]
        if self._checks is None or self._checks.log.partition is not partition:
            self.finish()
            self._checks = LogChecks(self._log_of[id(partition)], self._problems)
        return self._checks

    def _end(self, end: SegmentEnd) -> None:
        offsets = self._offsets_of(end.segment)
        offsets.misplaced = end.misplaced or offsets.misplaced
        self._offsets = None
        if end.is_gone:
            self._checks_of(end.segment).skip()
        else:
            self._checks_of(end.segment).add(offsets, end)

    def finish(self) -> None:
        """Complete the last log."""
        if self._checks is not None:
            self._checks.finish()
