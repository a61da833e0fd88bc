"""Find the ends of segments, so that each offset is read once. Runs on the driver."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from kafkascan.batches.columns import next_offset
from kafkascan.batches.walks import BatchWalk
from kafkascan.format.findings import Severity
from kafkascan.format.layout import BATCH_DTYPE
from kafkascan.io.sources import Source
from kafkascan.logs.log_problems import OFFSET_OVERLAP
from kafkascan.logs.opened_logs import OffsetCursor, SegmentOverlap
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.planning.file_listing import OnProblem
from kafkascan.spark.planning.planned_logs import (
    NO_BASE_OFFSET,
    PlannedLog,
    PlannedSegment,
    open_current,
    read_hints,
)
from kafkascan.tables.table import Problem

_THREADS = 8
_ROWS = 1 << 10
# A walk over the headers of a smaller file takes less time than its index.
_SMALL_FILE = 1 << 21
# Files that were modified so close to each other may have been copied in any order.
_CLOSE_MS = 60_000
# Such files whose ends are looked up: 0.1 s of planning.
_MOST_CLOSE = 1000
_NS_PER_MS = 1_000_000


class SegmentEnds:
    """
    Looks up the offsets after the last batches of segments, once for each file and size.

    Parameters
    ----------
    options : Options
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._known: dict[PlannedSegment, int | None] = {}

    def look_up(self, files: Sequence[PlannedSegment]) -> None:
        """Look up the ends of files concurrently."""
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(self.of, files))

    def of(self, file: PlannedSegment) -> int | None:
        """Return the offset after the last batch of a file; None without batches."""
        if file not in self._known:
            self._known[file] = self._find(file)
        return self._known[file]

    def keep(self, paths: set[str]) -> None:
        """Forget the ends of the files that are not among these paths."""
        self._known = {file: end for file, end in self._known.items() if file.path in paths}

    def _find(self, file: PlannedSegment) -> int | None:
        try:
            source = open_current(file, self._options)
            return _end_of(source, position_near_end(file, source, self._options))
        except OSError:  # deleted, truncated or unreadable: the task that reads it will say so
            return None


def position_near_end(file: PlannedSegment, source: Source, options: Options) -> int:
    """
    Return the position of a batch that the index of a file names, near its end.

    A batch inside of a record can pass for one of the log, so tasks must check that their walk
    arrives at the offset that was found. Without an index, the position is 0.
    """
    hints = read_hints(file, options) if source.size > _SMALL_FILE else None
    position = 0 if hints is None else hints.last_before(source.size - 1)
    return position if hints is not None and hints.is_proven(source, position) else 0


def _end_of(source: Source, position: int) -> int | None:
    """Return the offset after the last batch of a file, by a walk from the position of a batch."""
    walk = BatchWalk(source, position, source.size)
    table, end = np.empty(_ROWS, BATCH_DTYPE), None
    while walk.end is None:
        count = walk.fill(table)
        end = int(next_offset(table[count - 1 : count])[0]) if count else end
    return end


def read_once(
    logs: Sequence[PlannedLog], options: Options, ends: SegmentEnds, on_problem: OnProblem
) -> list[PlannedLog]:
    """
    Return logs with the first offset that is read of each segment: the end of those before it.

    This is the rule of the library (`OffsetCursor`) for the segments of folders. Only the ends of
    segments show that they overlap. Looking up all of them would take longer than the plan, so
    this function looks at the times of modification. The segments of a log are modified one after
    the other, but a stale segment is older than the one before it, which has replaced it. So the
    ends of segments are looked up that are not older than a later one, and of a limited number of
    local ones that are hardly older: they may have been copied. With the option ``findOverlaps``,
    all ends are looked up. A task that finds an overlap of which the plan does not know reports it
    as damage.

    Parameters
    ----------
    logs : sequence of PlannedLog
    options : Options
    ends : SegmentEnds
    on_problem : callable
        Called with each pair of segments that contain the same offsets.
    """
    listed = [log for log in logs if _is_listed(log)]
    doubtful = set(_doubtful(listed, options))
    ends.look_up(list(doubtful))
    return [
        log if doubtful.isdisjoint(log.segments) else _in_turn(log, doubtful, ends, on_problem)
        for log in logs
    ]


def _is_listed(log: PlannedLog) -> bool:
    """Whether files are the live segments of a folder, of which a broker reads each offset once."""
    is_whole = len(log.segments) > 1 and not any(file.is_named for file in log.segments)
    return is_whole and log.segments[0].base_offset != NO_BASE_OFFSET


def _doubtful(logs: Iterable[PlannedLog], options: Options) -> Iterator[PlannedSegment]:
    """Yield the segments that may contain offsets of later ones, by their times."""
    left = _MOST_CLOSE
    for log in logs:
        *earlier, last = log.served_segments
        following = _milliseconds(last)
        for file in reversed(earlier):
            modified = _milliseconds(file)
            is_older = modified < following
            is_close = file.is_local and following - modified < _CLOSE_MS and left > 0
            if options.find_overlaps or not is_older:
                yield file
            elif is_close:
                left -= 1
                yield file
            following = min(following, modified)


def _milliseconds(file: PlannedSegment) -> int:
    # The cleaner sets the times of segments in milliseconds.
    return (file.modified_ns or 0) // _NS_PER_MS


def _in_turn(
    log: PlannedLog, doubtful: set[PlannedSegment], ends: SegmentEnds, on_problem: OnProblem
) -> PlannedLog:
    cursor, (topic, partition) = OffsetCursor(), log.partition
    served = log.served_segments
    segments = list(log.segments[: -len(served)])
    for file in served:
        first = cursor.position if cursor.position > file.base_offset else 0
        end = ends.of(file) if first or file in doubtful else None
        segments.append(file._replace(first_offset=first, end_offset=end))
        for overlap in cursor.add(file, end):
            on_problem(
                Problem(
                    OFFSET_OVERLAP, overlap.reason, str(overlap.path), Severity.ERROR,
                    None, topic or None, partition, False, overlap.first_offset,
                    overlap.last_offset + 1 - overlap.first_offset,
                )
            )  # fmt: skip
    return replace(log, segments=tuple(segments))


def find_overlaps(ends: Iterable[tuple[PlannedSegment, int | None]]) -> Iterator[SegmentOverlap]:
    """
    Yield the overlaps of segments whose ends are known.

    Parameters
    ----------
    ends : iterable of (PlannedSegment, int or None)
        Each segment, and the offset after its last batch.
    """
    by_folder = sorted(ends, key=lambda one: (one[0].folder, one[0].base_offset))
    for _, log in itertools.groupby(by_folder, lambda one: one[0].folder):
        cursor = OffsetCursor()
        for segment, end in log:
            if segment.base_offset != NO_BASE_OFFSET:
                yield from cursor.add(segment, end)
