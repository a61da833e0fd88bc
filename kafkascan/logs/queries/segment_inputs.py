"""The segment files that paths name, in the order in which they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from kafkascan.format.errors import FileGoneError
from kafkascan.io.folders import DiskFolder, PinnedFolder
from kafkascan.io.page_cache import DropBehind
from kafkascan.io.sources import Source
from kafkascan.logs.log_dir import LogDir, PartitionDir, SegmentKinds, attempts_to_open
from kafkascan.logs.log_finding import (
    ALL_PARTITIONS,
    PartitionFilter,
    find_log_dir,
    no_logs,
    partition_of,
)
from kafkascan.logs.log_problems import (
    LogChecks,
    LogProblems,
    SegmentOffsets,
    notes_of_moving,
)
from kafkascan.logs.opened_logs import Log, OffsetCursor, list_logs, live_logs
from kafkascan.logs.segment import SegmentFile, segment_at
from kafkascan.tables.schema import PARTITION, SEGMENT, TOPIC
from kafkascan.tables.table import Problems

SEGMENT_FIELDS = (TOPIC, PARTITION, SEGMENT)
"""The columns that identify a segment."""

OnUnreadable = Callable[[str, OSError], None]


@dataclass(frozen=True)
class SegmentInput:
    """
    One segment file to read.

    Attributes
    ----------
    log : Log
    segment : SegmentFile
    start_offset : int
        The log start offset: batches that end before it are not read, nor records before it.
    is_served : bool
        Whether it is read as a part of its log, in which each offset is read once.
    size : int
    memory_map, drop_cache
        As in `SegmentPaths`.
    start_position : int
        Byte position of the first batch to read.
    """

    log: Log
    segment: SegmentFile
    start_offset: int
    is_served: bool
    size: int
    memory_map: bool
    drop_cache: bool | None
    start_position: int = 0

    @property
    def partition(self) -> PartitionDir:
        """The partition whose folder contains it."""
        return self.log.partition

    @property
    def is_on_disk(self) -> bool:
        """Whether it is a file of the system."""
        return isinstance(self.segment.folder, DiskFolder)

    @property
    def path(self) -> Path:
        """Path of the file, for messages."""
        return self.segment.path

    @property
    def base_offset(self) -> int:
        """The offset in its name; 0 without one."""
        return self.segment.base_offset or 0

    @property
    def labels(self) -> dict[str, object]:
        """The values of `SEGMENT_FIELDS`, by name."""
        return {
            TOPIC.name: self.partition.topic,
            PARTITION.name: self.partition.partition,
            SEGMENT.name: self.segment.file_name,
        }

    def attempts_to_open(self, *, by_name: bool) -> Iterator[SegmentInput]:
        """
        Yield the input, then those that have its offsets now; see `log_dir.attempts_to_open`.

        Parameters
        ----------
        by_name : bool
            Whether only a file with the same name counts.
        """
        first = max(self.start_offset, self.base_offset)
        for segment in attempts_to_open(self.segment, by_name=by_name):
            is_listed = segment is self.segment
            yield (
                self if is_listed
                else replace(self, segment=segment, start_offset=first, start_position=0)
            )  # fmt: skip

    def current(self) -> SegmentInput | None:
        """
        Return the input, or one with its offsets if a broker has replaced the file since.

        Returns
        -------
        SegmentInput or None
            None if its offsets were deleted.
        """
        if not isinstance(self.segment.folder, PinnedFolder):
            return self
        for one in self.attempts_to_open(by_name=not self.is_served):
            with suppress(FileGoneError):
                size = one.segment.listed_size()
                return one if one is self else replace(one, size=size)
        return None

    def is_same_file(self, other: SegmentInput) -> bool:
        """Return whether another input is the same file of the same listing."""
        one, folder = self.segment, other.segment.folder
        return one.folder is folder and one.file_name == other.segment.file_name

    @contextmanager
    def open(self, *, close: bool = True, is_listed: bool = False) -> Iterator[Source]:
        """
        Open the file; after a read without an error, drop it from the page cache if it is to be.

        Parameters
        ----------
        close : bool, default True
            False leaves the source open: results may be views into it.
        is_listed : bool, default False
            Whether to leave out what was appended since its folder was listed.
        """
        place = self.segment.listed() if is_listed else self.segment.as_source()
        source = Source(place, memory_map=self.memory_map)
        try:
            everything = self.drop_cache is True
            drop = None if self.drop_cache is False else DropBehind(source, everything=everything)
            yield source
            if drop is not None:
                drop.drop()
        finally:
            if close:
                source.close()


@dataclass(frozen=True)
class SegmentPaths:
    """
    Paths of segment files, and how to read them.

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
    wanted: PartitionFilter = ALL_PARTITIONS

    def from_first_offset(self) -> SegmentPaths:
        """Return the paths of the same files, and of those before the log start offset."""
        return replace(self, log_start_offset=0)

    def find(
        self, on_unreadable: OnUnreadable, on_notes: Callable[[Problems], None]
    ) -> list[SegmentInput]:
        """
        Return the segment files of all paths, in the order of the paths.

        Parameters
        ----------
        on_unreadable : callable
            Called for each path that cannot be read or contains no segments; the search
            continues with the next one.
        on_notes : callable
            Called with notes about the logs of a path.
        """
        found = []
        for path in self.paths:
            try:
                log_dir = find_log_dir(path)
                logs = [_alone(path)] if log_dir is None else self._logs(log_dir)
            except OSError as error:
                on_unreadable(str(path), error)
                continue
            on_notes(notes_of_moving(logs))
            is_served = self.include is SegmentKinds.LOG and log_dir is not None
            for log in logs:
                if log.error is not None:
                    on_unreadable(str(log.partition.path), log.error)
                start = log.start_offset if log.has_deleted_offsets else 0
                for segment in log.served_segments if start else log.segments:
                    try:
                        size = segment.size
                    except FileGoneError:
                        size = 0  # see `SegmentInput.current`
                    except OSError as error:
                        on_unreadable(str(segment.path), error)
                        continue
                    found.append(
                        SegmentInput(
                            log, segment, start, is_served, size,
                            self.memory_map, self.drop_cache,
                        )
                    )  # fmt: skip
        return found

    def _logs(self, log_dir: LogDir) -> list[Log]:
        """Return the logs to read of a directory or archive; raise NoLogsError if none are."""
        log_dir = self.wanted.partitions(log_dir)
        logs: list[Log]
        if self.include is SegmentKinds.LOG:
            logs = live_logs(log_dir, self.log_start_offset)
        else:  # with files of other kinds, the segments are not in the order of their offsets
            logs = list_logs(log_dir, self.include)
        if not logs:
            raise no_logs(log_dir.path, log_dir.partitions)
        return logs


def _alone(path: Path) -> Log:
    """Return a log of one file."""
    segment = segment_at(path)
    return Log(partition_of(segment.folder), [segment], segment.base_offset or 0)


def group_by_log(inputs: Sequence[SegmentInput]) -> Iterator[list[SegmentInput]]:
    """Yield the inputs of each log; a path that was given twice is two logs."""
    group: list[SegmentInput] = []
    last_base = -1
    for one in inputs:
        is_live = one.segment.name.is_live
        is_again = is_live and one.base_offset <= last_base
        if group and (is_again or one.partition.path != group[-1].partition.path):
            yield group
            group, last_base = [], -1
        group.append(one)
        last_base = one.base_offset if is_live else last_base
    if group:
        yield group


def rewrite_problems(inputs: Iterable[SegmentInput]) -> Problems:
    """Return the problem of each log whose rewrite in place did not end."""
    problems = LogProblems()
    for log in {id(one.log): one.log for one in inputs}.values():
        problems.add_rewrite(log)
    return problems.found


class InputChecks:
    """The first offset that is read of each input of a log, and what is wrong with its offsets."""

    def __init__(self) -> None:
        self._cursor = OffsetCursor()
        self._problems = LogProblems()
        self._checks: LogChecks | None = None

    def start_of(self, one: SegmentInput) -> int:
        """Return the first offset to read of the next input."""
        return max(one.start_offset, self._cursor.position) if one.is_served else one.start_offset

    def add(self, one: SegmentInput, offsets: SegmentOffsets) -> Problems:
        """Add the next input with the offsets of its batches; return the new problems."""
        if one.segment.name.is_live:
            overlaps = self._cursor.add(one.segment, offsets.end_offset)
            self._problems.add_overlaps(one.partition, overlaps)
        if not one.is_served:  # files that are given one by one may be any selection
            self._problems.add_offsets(str(one.path), offsets)
        else:
            if one.start_position:
                offsets.first = None
            self._checks_of(one).add_offsets(offsets)
        return self._problems.take()

    def add_gone(self, one: SegmentInput) -> None:
        """Add the next input, whose offsets were deleted."""
        self._checks_of(one)

    def skip(self, one: SegmentInput) -> None:
        """Leave out the next input, and do not compare its offsets with those around it."""
        self._checks_of(one).skip()

    def _checks_of(self, one: SegmentInput) -> LogChecks:
        if self._checks is None:  # `rewrite_problems` has the marks of rewrites
            log = replace(one.log, start_offset=one.start_offset, rewrite_marks=[])
            self._checks = LogChecks(log, self._problems)
        return self._checks

    def finish(self) -> Problems:
        """Return the problems that are known after the last input."""
        if self._checks is not None:
            self._checks.finish()
        return self._problems.take()
