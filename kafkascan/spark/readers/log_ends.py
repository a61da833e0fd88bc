"""End offsets of growing logs and admission limits of a stream. Runs on the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from kafkascan.batches.columns import BatchTable, next_offset, size_in_bytes
from kafkascan.batches.verify import verify_rows
from kafkascan.batches.walks import BatchWalk
from kafkascan.format.layout import BATCH_DTYPE, BATCH_HEADER_SIZE, ScanEnd
from kafkascan.io.sources import Source, read_bytes
from kafkascan.logs.read_committed import CommittedView
from kafkascan.spark.options.option_values import TopicPartition
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.planning.file_listing import list_logs, warn_of_problem
from kafkascan.spark.planning.planned_logs import (
    NO_BASE_OFFSET,
    NO_PARTITION,
    PlannedLog,
    PlannedSegment,
    open_current,
    read_hints,
)
from kafkascan.spark.planning.range_walk import RangeWalk
from kafkascan.spark.planning.read_plan import require_selected, stop_of
from kafkascan.spark.planning.segment_ends import (
    SegmentEnds,
    position_near_end,
    read_once,
)
from kafkascan.spark.planning.task_plan import list_selected
from kafkascan.spark.rows.committed_views import CommittedViews
from kafkascan.spark.rows.damage_modes import logger

_ROWS = 1 << 14
# Bytes that a table covers where the first batches are enough.
_TABLE_BYTES = 1 << 22
# A broker never deletes the last segment of a log, but a topic, or a folder that it has moved.
_ATTEMPTS = 5

Positions = dict[TopicPartition, int]
"""Offsets by partition."""


@dataclass(frozen=True)
class FileEnd:
    """
    The end of the complete batches of a file.

    Attributes
    ----------
    position : int
        Position after the last complete batch.
    next_offset : int
        The offset after that batch.
    last_position : int
        Position where that batch starts.
    last_header : bytes
        The header of that batch, to detect that the file was replaced.
    """

    position: int
    next_offset: int
    last_position: int = 0
    last_header: bytes = b""

    def is_in(self, source: Source) -> bool:
        """Whether the file is still the same; it is not if its topic was deleted and recreated."""
        header = read_bytes(source, self.last_position, len(self.last_header))
        return self.position <= source.size and header == self.last_header


class LogEnds:
    """
    Track the ends of the logs that the options select.

    Each call walks only the batches that were appended since the last one.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._ends: dict[str, FileEnd] = {}
        self._tails: dict[str, str] = {}
        self._segment_ends = SegmentEnds(options)
        self._views: CommittedViews | None = None
        if options.isolation_level == "read_committed":
            self._views = CommittedViews(options)

    def logs(self) -> dict[TopicPartition, PlannedLog]:
        """
        List the current logs.

        Raises
        ------
        ValueError
            If two folders contain the same partition, or a folder is not named topic-partition.
        """
        found: dict[TopicPartition, PlannedLog] = {}
        everything = self._options.replace(ignore_missing_files=True)
        listed = list_logs(everything, warn_of_problem)
        for log in read_once(listed, self._options, self._segment_ends, warn_of_problem):
            (topic, partition), first = log.partition, log.segments[0]
            if partition == NO_PARTITION or first.base_offset == NO_BASE_OFFSET:
                raise ValueError(f"{first.path}: a stream needs folders named topic-partition")
            if log.partition in found:
                other = found[log.partition].folder
                raise ValueError(f"{topic}-{partition} is in {other} and in {log.folder}")
            found[log.partition] = log
        self._forget({file.path for log in found.values() for file in log.segments})
        return found

    def _forget(self, paths: set[str]) -> None:
        self._ends = {path: end for path, end in self._ends.items() if path in paths}
        self._tails = {path: text for path, text in self._tails.items() if path in paths}
        self._segment_ends.keep(paths)
        if self._views is not None:
            self._views.keep(paths)

    def ends_of_read(self) -> Positions:
        """Return the offsets at which a batch read with the options ends."""
        for _ in range(_ATTEMPTS):
            list_selected(self._options)  # raises if a path or a topic is missing
            found, logs = self._ends_of_read()
            if logs and all(log.segments[-1].path in self._ends for log in logs):
                break
        return found

    def _ends_of_read(self) -> tuple[Positions, list[PlannedLog]]:
        logs = self.logs()
        require_selected(set(logs), self._options)
        found: Positions = {}
        for partition, log in logs.items():
            stop, found[partition] = stop_of(log, self._options), self.end_of(log)
            if stop is not None:
                found[partition] = max(min(stop, found[partition]), log.start_offset)
        return found, list(logs.values())

    def end_of(self, log: PlannedLog) -> int:
        """
        Return the offset up to which a stream may read.

        This is the offset after the last complete batch. A torn tail, and a last batch whose
        checksum does not match yet, are still being written. With ``read_committed``, it is at
        most the last stable offset: records of an open transaction wait for its marker, and so do
        all later records. It is not before the log start offset, as in a broker.
        """
        file_end = self._file_end(log)
        end = file_end.next_offset
        if self._views is not None:
            stable = self._views.view(log, file_end.position).last_stable_offset
            end = min(end, stable)
        return max(end, log.start_offset, log.segments[-1].first_offset)

    def view_of(self, log: PlannedLog) -> CommittedView | None:
        """Return how the transactions of a log ended; None unless the options need it."""
        if self._views is None:
            return None
        return self._views.view(log, self._file_end(log).position)

    def written_end_of(self, log: PlannedLog) -> int:
        """Return the offset after the last complete batch."""
        return max(self._file_end(log).next_offset, log.segments[-1].first_offset)

    def _file_end(self, log: PlannedLog) -> FileEnd:
        file = log.segments[-1]
        try:
            source = open_current(file, self._options)
        except FileNotFoundError:  # deleted by retention
            return FileEnd(0, file.base_offset)
        known = self._ends.get(file.path)
        if known is None or not known.is_in(source):
            # Damage before that position ends a stream in other modes without an error.
            is_near = not file.is_local and self._options.fails_fast
            position = position_near_end(file, source, self._options) if is_near else 0
            known = FileEnd(position, file.base_offset)
            if self._views is not None:
                self._views.forget(file)
        self._ends[file.path] = self._walk_on(source, known)
        return self._ends[file.path]

    def unread_tails(self) -> list[str]:
        """
        Return a message for each file whose last bytes are no complete batches.

        They are still being written, or damaged; zeros of a preallocated file are neither.
        """
        return list(self._tails.values())

    def _walk_on(self, source: Source, known: FileEnd) -> FileEnd:
        walk = BatchWalk(source, known.position, source.size)
        table = np.empty(_ROWS, BATCH_DTYPE)
        before, end, last = known, known, table[:0]
        while walk.end is None:
            batches = table[: walk.fill(table)]
            for batch in (batches[-2:-1], batches[-1:]):
                if len(batch):
                    before, end, last = end, _end_of_batch(batch), batch.copy()
        if walk.error is not None and self._options.fails_fast:
            raise walk.error
        if walk.error is not None:
            logger.warning("the stream waits before the damage: %s", walk.error)
        complete = end if verify_rows(source, last).all() else before
        self._tails.pop(source.path, None)
        if complete is not end or walk.end not in (ScanEnd.CLEAN, ScanEnd.ZERO_TAIL):
            reason = "the bytes from here on are no complete batches, and were not read"
            self._tails[source.path] = f"{source.path}: position {complete.position}: {reason}"
        if complete is known:
            return known
        return replace(
            complete,
            last_header=read_bytes(source, complete.last_position, BATCH_HEADER_SIZE),
        )

    def offset_after(self, log: PlannedLog, start: int, size: int) -> int:
        """Return the offset after the batches of about `size` bytes from `start`; at least one."""
        for file, follower in zip(log.segments, [*log.segments[1:], None], strict=True):
            if follower is not None and follower.base_offset <= start:
                continue
            begin = max(start, file.first_offset)
            hints = None if file.is_local else read_hints(file, self._options)
            if hints is None:
                found, size = self._walk_after(file, begin, size)
            else:
                found = hints.offset_after(begin, size)
                size -= file.size - hints.position_of(begin)
            if found is not None:
                return found
            if size <= 0 and follower is not None:
                return follower.base_offset
        return 2**63 - 1

    def _walk_after(self, file: PlannedSegment, start: int, size: int) -> tuple[int | None, int]:
        """Return the offset after the batches of a size, if the file has as many; and the rest."""
        source = open_current(file, self._options)
        walk = RangeWalk(source, 0, source.size, min(size, _TABLE_BYTES))
        for table in walk.tables(_ROWS):
            batches = table[next_offset(table) > start]
            if not len(batches):
                continue
            sizes = np.cumsum(size_in_bytes(batches))
            row = int(np.searchsorted(sizes, size))
            if row < len(batches):
                return _end_of_batch(batches[row : row + 1]).next_offset, 0
            size -= int(sizes[-1])
        return None, size


def _end_of_batch(batch: BatchTable) -> FileEnd:
    (position,) = batch["position"].tolist()
    (size,) = size_in_bytes(batch).tolist()
    return FileEnd(position + size, int(next_offset(batch)[0]), position)


def limit_offsets(limit: int, start: Mapping[TopicPartition, int], end: Positions) -> Positions:
    """
    Return end offsets so that all partitions together advance by about `limit` offsets.

    Each partition gets its share of the waiting offsets, as in Spark's Kafka source, and at least
    one.
    """
    sizes = {partition: end[partition] - start[partition] for partition in end}
    total = sum(size for size in sizes.values() if size > 0)
    if total <= limit:
        return dict(end)
    return {
        partition: start[partition] + min(size, max(1, limit * size // total))
        if size > 0
        else end[partition]
        for partition, size in sizes.items()
    }
