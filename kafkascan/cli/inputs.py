"""The segment files that paths name, and the columns that identify them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from kafkascan.broker_state.checkpoints import LOG_START_CHECKPOINT
from kafkascan.broker_state.offset_checkpoints import CheckpointReader
from kafkascan.format.errors import NoLogsError
from kafkascan.io.page_cache import DropBehind
from kafkascan.io.sources import Source
from kafkascan.logs.log_dir import LogDir, PartitionDir, SegmentKinds, select_segments
from kafkascan.logs.log_finding import find_log_dir, no_logs, partition_of
from kafkascan.logs.log_problems import LogChecks, LogProblems, SegmentOffsets
from kafkascan.logs.opened_logs import Log, OffsetCursor
from kafkascan.logs.segment import SegmentFile, segment_at
from kafkascan.tables.schema import PARTITION, SEGMENT, TOPIC
from kafkascan.tables.table import NO_PROBLEMS, Problems

SEGMENT_FIELDS = (TOPIC, PARTITION, SEGMENT)
"""The columns that identify a segment."""

OnUnreadable = Callable[[str, OSError], None]


@dataclass(frozen=True)
class PartitionFilter:
    """
    The partitions to read in directories and archives.

    Attributes
    ----------
    topics : frozenset of str
    numbers : frozenset of int
        Each is all, if it is empty.
    """

    topics: frozenset[str] = frozenset()
    numbers: frozenset[int] = frozenset()

    @property
    def is_given(self) -> bool:
        """Whether it may leave out a partition."""
        return bool(self.topics or self.numbers)

    def has(self, partition: PartitionDir) -> bool:
        """Return whether a partition is to be read."""
        is_topic = not self.topics or partition.topic in self.topics
        return is_topic and (not self.numbers or partition.partition in self.numbers)

    def select(self, path: Path) -> Path | LogDir:
        """
        Return the path, or the wanted partitions of a directory or archive.

        Raises
        ------
        NoLogsError
            If there are none.
        """
        log_dir = find_log_dir(path) if self.is_given else None
        if log_dir is None:
            return path
        found = [one for one in log_dir.partitions if self.has(one)]
        if not found:
            raise self.nothing_in(path)
        return replace(log_dir, partitions=found)

    def nothing_in(self, path: Path) -> NoLogsError:
        """Return the error that a directory has none of the partitions."""
        names = [*sorted(self.topics), *(f"number {one}" for one in sorted(self.numbers))]
        return NoLogsError(str(path), f"no partitions of {', '.join(names)} here")


ALL_PARTITIONS = PartitionFilter()


@dataclass(frozen=True)
class SegmentPaths:
    """
    The arguments of a command that reads segment files.

    Attributes
    ----------
    paths : list of Path
        Segment files, partition directories, data directories, tar archives.
    include : SegmentKinds
        Which files of directories and archives to read. A path of a file is read whatever its
        name is.
    log_start_offset : int or None
        First offset of the logs of directories and archives; None: as a broker has it.
    memory_map : bool
        Whether to map files into memory; otherwise they are read.
    drop_cache : bool or None
        Whether to drop the pages of each file from the page cache after it was read; None: those
        that were not there before.
    wanted : PartitionFilter
        The partitions to read in directories and archives.
    """

    paths: list[Path]
    include: SegmentKinds
    log_start_offset: int | None
    memory_map: bool
    drop_cache: bool | None
    wanted: PartitionFilter = field(default_factory=lambda: ALL_PARTITIONS)

    def from_first_offset(self) -> SegmentPaths:
        """Return the paths of the same files, and of those before the log start offset."""
        return replace(self, log_start_offset=0)

    def find(self, on_unreadable: OnUnreadable) -> list[SegmentInput]:
        """
        Return the segment files of all paths, in the order of the paths.

        Parameters
        ----------
        on_unreadable : callable
            Called for each path that cannot be read or contains no segments; the search
            continues with the next one.
        """
        found = []
        for path in self.paths:
            try:
                log_dir = find_log_dir(path)
            except OSError as error:
                on_unreadable(str(path), error)
                continue
            is_served = self.include is SegmentKinds.LOG and log_dir is not None
            for partition, segment, start in self._segments(path, log_dir, on_unreadable):
                try:
                    size = segment.size
                except OSError as error:  # a broker may have deleted it since it was listed
                    on_unreadable(str(segment.path), error)
                    continue
                found.append(
                    SegmentInput(
                        partition, segment, start, is_served, size, self.memory_map, self.drop_cache
                    )
                )
        return found

    def _segments(
        self, path: Path, log_dir: LogDir | None, on_unreadable: OnUnreadable
    ) -> Iterator[tuple[PartitionDir, SegmentFile, int]]:
        """Yield the segments of a path, each with the first offset to read."""
        if log_dir is None:
            segment = segment_at(path)
            yield partition_of(segment.folder), segment, 0
            return
        is_empty, checkpoints = True, CheckpointReader()
        for partition in log_dir.partitions:
            if not self.wanted.has(partition):
                continue
            try:
                segments = select_segments(partition, log_dir.kinds(self.include))
            except OSError as error:
                on_unreadable(str(partition.path), error)
                is_empty = False
                continue
            start = self.log_start_offset
            if start is None:
                start = checkpoints.offset_of(partition, LOG_START_CHECKPOINT)
            # With files of other kinds, the segments are not in the order of their offsets.
            wanted = Log(partition, segments, start).served_segments if start else segments
            for segment in wanted:
                is_empty = False
                yield partition, segment, start
        if is_empty and self.wanted.is_given:
            on_unreadable(str(path), self.wanted.nothing_in(path))
        elif is_empty:
            on_unreadable(str(path), no_logs(path, log_dir.partitions))


class InputCursor:
    """The first offset that is read of each input, and what is wrong with the offsets of logs."""

    def __init__(self) -> None:
        self._cursor = OffsetCursor()
        self._problems = LogProblems()
        self._checks: LogChecks | None = None
        self._before: SegmentInput | None = None

    def start_of(self, one: SegmentInput) -> int:
        """Return the first offset to read of the next input."""
        if not one.is_served:
            return one.start_offset
        self._begin_log(one)
        return max(one.start_offset, self._cursor.position)

    def add(self, one: SegmentInput, offsets: SegmentOffsets) -> Problems:
        """Add the next input with the offsets of its batches; return what is wrong so far."""
        name = one.segment.name
        if name.kind != "log" or name.state is not None:
            return NO_PROBLEMS
        self._begin_log(one)
        self._before = one
        overlaps = self._cursor.add(one.segment, offsets.end_offset)
        self._problems.add_overlaps(one.partition, overlaps)
        if one.is_served:  # files that are given one by one may be any selection
            if self._checks is None:
                self._checks = LogChecks(Log(one.partition, [], one.start_offset), self._problems)
            if one.start_position:
                offsets.first = None
            self._checks.add_offsets(offsets)
        return self._problems.take()

    def finish(self) -> Problems:
        """Return what is wrong with the last log."""
        self._end_log()
        return self._problems.take()

    def _begin_log(self, one: SegmentInput) -> None:
        """Forget the inputs before one that does not follow them in its log."""
        before = self._before
        if before is None or before.partition.path != one.partition.path:
            self._end_log()
        elif (before.segment.base_offset or 0) >= (one.segment.base_offset or 0):
            self._end_log()  # a path was given twice

    def _end_log(self) -> None:
        self._cursor = OffsetCursor()
        if self._checks is not None:
            self._checks.finish()
        self._checks = None


@dataclass(frozen=True)
class SegmentInput:
    """
    One segment file that a command reads.

    Attributes
    ----------
    partition : PartitionDir
    segment : SegmentFile
    start_offset : int
        The log start offset: batches that end before it are not listed, nor records before it.
    is_served : bool
        Whether it is read as a part of its log, in which each offset is read once.
    size : int
    memory_map, drop_cache
        As in `SegmentPaths`.
    start_position : int
        Byte position of the first batch to read.
    """

    partition: PartitionDir
    segment: SegmentFile
    start_offset: int
    is_served: bool
    size: int
    memory_map: bool
    drop_cache: bool | None
    start_position: int = 0

    @property
    def path(self) -> Path:
        """Path of the file, for messages."""
        return self.segment.path

    @property
    def labels(self) -> dict[str, object]:
        """The values of `SEGMENT_FIELDS`, by name."""
        return {
            TOPIC.name: self.partition.topic,
            PARTITION.name: self.partition.partition,
            SEGMENT.name: self.path.name,
        }

    def open(self) -> Source:
        """Return the bytes of the file; the caller closes them."""
        return self.segment.open(memory_map=self.memory_map)

    def drop_behind(self, source: Source) -> DropBehind | None:
        """Return what to drop from the page cache after a read that begins now; None: nothing."""
        if self.drop_cache is False:
            return None
        return DropBehind(source, everything=self.drop_cache is True)
