"""The segment files that paths name, in the order in which they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from kafkascan.batches.walks import require_log
from kafkascan.format.errors import FileGoneError, NotALogError
from kafkascan.format.file_names import parse_segment_name
from kafkascan.io.folders import DiskFolder
from kafkascan.io.page_cache import DropBehind
from kafkascan.io.sources import Source
from kafkascan.logs.log_dir import LogDir, PartitionDir, SegmentKinds
from kafkascan.logs.log_finding import (
    ALL_PARTITIONS,
    PartitionFilter,
    find_log_dir,
    no_logs,
    partition_of,
)
from kafkascan.logs.log_problems import LogProblems, notes_of_moving
from kafkascan.logs.opened_logs import LogView, list_logs, live_logs
from kafkascan.logs.segment import SegmentFile, segment_at
from kafkascan.logs.walking.log_reader import LogReader
from kafkascan.tables.schema import PARTITION, SEGMENT, TOPIC
from kafkascan.tables.table import Problems

SEGMENT_FIELDS = (TOPIC, PARTITION, SEGMENT)
"""The columns that identify a segment."""

OnUnreadable = Callable[[str, Exception], None]


@dataclass(frozen=True)
class SegmentInput:
    """
    One segment file to read.

    Attributes
    ----------
    log : LogView
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

    log: LogView
    segment: SegmentFile
    start_offset: int
    is_served: bool
    size: int = 0
    memory_map: bool = True
    drop_cache: bool | None = False
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
            except (OSError, NotALogError) as error:
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
                        size = 0  # the reader finds what has its offsets now
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

    def _logs(self, log_dir: LogDir) -> list[LogView]:
        """Return the logs to read of a directory or archive; raise NoLogsError if none are."""
        log_dir = self.wanted.partitions(log_dir)
        logs: list[LogView]
        if self.include is SegmentKinds.LOG:
            logs = live_logs(log_dir, self.log_start_offset)
        else:  # with files of other kinds, the segments are not in the order of their offsets
            logs = list_logs(log_dir, self.include)
        if not logs:
            raise no_logs(log_dir.path, log_dir.partitions)
        return logs


def _alone(path: Path) -> LogView:
    """Return a log of one file; raise NotALogError if it is known to be of another kind."""
    segment = segment_at(path)
    if parse_segment_name(path.name) is None:
        with segment.borrow() as source:
            require_log(source)
    return LogView(partition_of(segment.folder), (segment,), segment.base_offset or 0)


def group_by_log(inputs: Sequence[SegmentInput]) -> Iterator[list[SegmentInput]]:
    """
    Yield the inputs of each log; a path that was given twice is two logs.

    Files of a folder that are given one by one are a log of their own, beside that of the folder.
    """
    for _, given in groupby(inputs, lambda segment: (segment.partition.path, segment.is_served)):
        group: list[SegmentInput] = []
        last_base = -1
        for segment in given:
            is_live = segment.segment.name.is_live
            if is_live and segment.base_offset <= last_base:
                yield group
                group, last_base = [], -1
            group.append(segment)
            last_base = segment.base_offset if is_live else last_base
        yield group


def inputs_of(log: LogView) -> list[SegmentInput]:
    """Return the segments of a log that may contain its start offset or later ones."""
    return [SegmentInput(log, one, log.start_offset, True) for one in log.served_segments]


def rewrite_problems(inputs: Iterable[SegmentInput]) -> Problems:
    """Return the problem of each log whose rewrite in place did not end."""
    problems = LogProblems()
    for log in {id(one.log): one.log for one in inputs}.values():
        problems.add_rewrite(log)
    return problems.found


def reader_of(
    inputs: Sequence[SegmentInput], problems: LogProblems, *, is_selection: bool = False
) -> LogReader:
    """
    Return the reader of a log's inputs, which goes on after damage.

    Parameters
    ----------
    inputs : sequence of SegmentInput
        Of one log, as `group_by_log` yields them.
    problems : LogProblems
        Receives what is wrong with the log.
    is_selection : bool, default False
        Whether each segment is to be judged by itself, as are files that are given one by one.
    """
    first, segments = inputs[0], [one.segment for one in inputs]
    is_selection = is_selection or not first.is_served
    log = LogView(first.partition, tuple(segments)) if is_selection else first.log
    return LogReader(
        log, problems, goes_on=True, segments=segments, start_position=first.start_position,
        is_selection=is_selection,
    )  # fmt: skip
