"""Judge the offsets of a range of a file, as the library judges those of a log."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kafkascan.batches.columns import BatchTable, next_offset
from kafkascan.batches.walks import BatchWalk
from kafkascan.format.errors import CHANGED_WHILE_READ, CorruptBatchError, KafkaScanError
from kafkascan.format.layout import BATCH_DTYPE
from kafkascan.io.stores.urls import ObjectUrl, is_url
from kafkascan.logs.log_dir import PartitionDir
from kafkascan.logs.log_problems import (
    OFFSET_GAP,
    OFFSET_OUT_OF_SEGMENT,
    OFFSET_OVERLAP,
    LogChecks,
    LogProblems,
)
from kafkascan.logs.opened_logs import LogView
from kafkascan.logs.segment import segment_at
from kafkascan.logs.walking.batch_offsets import BatchOffsets, SegmentOffsets
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.planning.file_listing import list_logs
from kafkascan.spark.planning.planned_logs import (
    NO_PARTITION,
    PlannedSegment,
    open_file,
    store_settings,
)
from kafkascan.spark.planning.range_walk import RangeWalk
from kafkascan.spark.planning.task_plan import ScanRange

OFFSET_SYMBOLS = frozenset({OFFSET_GAP, OFFSET_OUT_OF_SEGMENT, OFFSET_OVERLAP})
"""What the judge says of offsets; the batches are intact."""

_ROWS = 1 << 14
# The cleaner works from the start of a log on, so its first segments show whether it did.
_MOST_SEGMENTS = 16


class WrongOffsetsError(CorruptBatchError):
    """
    Offsets of a log are missing, go back, or are of another segment; the batches are intact.

    Attributes
    ----------
    offset : int or None
        The first of them.
    """

    def __init__(
        self, path: str, position: int, offset: int | None, reason: str, symbol: str
    ) -> None:
        super().__init__(path, position, None, reason, symbol)
        self.offset = offset

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.path, self.position, self.offset, self.reason, self.symbol)


_CHANGED = "offsets are missing, and the file was replaced or deleted while it was read"


class CompactedLogs:
    """
    Whether the cleaner has worked on logs, by the segments of each; for the ranges of a task.

    Parameters
    ----------
    options : Options
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._known: dict[str, bool] = {}

    def has(self, file: PlannedSegment) -> bool:
        """Return whether one of the first segments of a file's log was compacted."""
        if file.tier is not None or self._options.tiered_layout is not None:
            return False  # a topic with remote storage is not compacted
        if file.folder not in self._known:
            place = self._options.replace(paths=(file.folder,), ignore_missing_files=True)
            files = [segment for log in list_logs(place) for segment in log.segments]
            self._known[file.folder] = any(map(self._is_cleaned, files[:_MOST_SEGMENTS]))
        return self._known[file.folder]

    def _is_cleaned(self, file: PlannedSegment) -> bool:
        offsets, table = BatchOffsets(), np.empty(_ROWS, BATCH_DTYPE)
        try:
            source = open_file(file, self._options)
            walk = BatchWalk(source, 0, source.size)
            while walk.end is None and not offsets.is_cleaned:
                offsets.add(table[: walk.fill(table)])
        except (OSError, KafkaScanError):  # it is another task's
            return False
        return offsets.is_cleaned


class RangeOffsets:
    """
    The offsets of a file, for the judge of logs.

    A file that is given as such is read as a source of its own: offsets must ascend, and not be
    below the one in its name. In a log, none may be missing unless the cleaner has removed them.

    The last range of a local file answers for all of it, as its walk begins at the first batch:
    so rows do not depend on where a file is cut. Objects are cut only where damage fails the read,
    and each range answers for what its walk passes.

    Parameters
    ----------
    one : ScanRange
    options : Options
    compacted : CompactedLogs
    """

    def __init__(self, one: ScanRange, options: Options, compacted: CompactedLogs) -> None:
        self._range, self._options, self._compacted = one, options, compacted
        self._is_judged = one.stop >= one.file.size or not one.file.is_local
        # What is below the name belongs to segments before this one.
        first = max(one.start_offset or 0, one.file.base_offset, 0)
        self._log = _log_of(one, options)
        self._offsets = SegmentOffsets(self._log.segments[0], first, is_whole=True)

    def add(self, table: BatchTable) -> None:
        """Add the next batches that the walk passes."""
        offsets = self._offsets
        if not self._is_judged:
            return
        if offsets.reached is None and table["position"][0] > 0:
            offsets.add_loss()  # the walk began in the file
        offsets.add(offsets.unread(self._requested(table)))

    def errors(self, walk: RangeWalk, *, is_whole: bool) -> Iterator[CorruptBatchError]:
        """
        Yield what is wrong with the offsets, after all batches were added.

        Parameters
        ----------
        walk : RangeWalk
        is_whole : bool
            Whether the walk reached the end of the file, and the file is not damaged.
        """
        if not self._is_judged:
            return
        one, offsets, problems = self._range, self._offsets, LogProblems()
        file = one.file
        if offsets.end_offset is None:  # no batch is requested
            offsets.end_offset = walk.next_offset
        checks = LogChecks(self._log, problems, expected=file.first_offset or None)
        checks.add_offsets(offsets)
        is_complete = not file.is_named and self._options.path_glob_filter is None
        if is_whole and is_complete and one.next_base is not None and not self._ends_before():
            checks.add_following(one.next_base, walk.position)
        if checks.has_gaps and (file.is_named or self._compacted.has(file)):
            checks.forgive_gaps()
        if checks.has_gaps and not file.is_in_place():
            checks.forgive_gaps()
            yield WrongOffsetsError(
                file.path, walk.position, offsets.end_offset, _CHANGED, CHANGED_WHILE_READ
            )
        checks.finish()
        for found in problems.found:
            if found.symbol in OFFSET_SYMBOLS:
                yield WrongOffsetsError(
                    file.path, found.position or 0, found.offset, found.message, found.symbol
                )

    def _requested(self, table: BatchTable) -> BatchTable:
        """Return the batches that begin before the end of the requested offsets, or show a gap."""
        stop = self._range.stop_offset
        if stop is None:
            return table
        is_after = table["base_offset"] >= stop
        if not is_after.any():
            return table
        count = int(np.argmax(is_after))
        end = int(next_offset(table[count - 1 : count])[0]) if count else self._offsets.end_offset
        return table[: count if end is None or end >= stop else count + 1]

    def _ends_before(self) -> bool:
        """Return whether no offset is requested that follows those of the file."""
        stop, end = self._range.stop_offset, self._offsets.reached
        return stop is not None and end is not None and stop <= end


def _log_of(one: ScanRange, options: Options) -> LogView:
    """Return a log of the file alone; the data dir of its folder has the cleaner's checkpoint."""
    path = one.file.path
    segment = segment_at(ObjectUrl(path, store_settings(options)) if is_url(path) else path)
    topic, partition = one.partition
    number = None if partition == NO_PARTITION else partition
    place = PartitionDir(segment.folder.path, topic or None, number, None, segment.folder)
    return LogView(place, (segment,), one.start_offset or 0)
