"""Plan tasks: select files, cut them into ranges and pack ranges into tasks.

Planning opens no files. A range of a file owns the batches that start in it, so a file can be cut
anywhere; the scan of a range finds its first batch (`RangeWalk`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from kafkascan.format.errors import NoLogsError
from kafkascan.io.concurrency import group_by_bytes
from kafkascan.logs.read_committed import CommittedView
from kafkascan.spark.options.option_values import EARLIEST, LATEST, TopicPartition
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.options.view_schemas import Row
from kafkascan.spark.planning.file_listing import OnProblem, list_logs
from kafkascan.spark.planning.planned_logs import NO_TOPIC, PlannedLog, PlannedSegment, read_hints
from kafkascan.spark.planning.range_walk import IndexHints

# Without minPartitions: the number of tasks to aim at, and bytes that are worth a task, which costs
# 10 to 60 ms.
_TASKS = 8
_SMALLEST_TASK = 1 << 25
# Bytes that could be read while a file is opened, as in Spark's file sources.
_OPEN_COST = 1 << 20
# Minimum bytes of a range, also with a large minPartitions.
_SMALLEST_RANGE = 1 << 16
# Topics that a message names.
_NAMED_TOPICS = 5


@dataclass(frozen=True, slots=True)
class ScanRange:
    """
    The batches that start in ``[start, stop)`` of a file.

    Attributes
    ----------
    partition : tuple of str and int
        The topic and the partition of its log.
    file : PlannedSegment
    start, stop : int
        Byte positions.
    start_offset, stop_offset : int or None
        Only records in ``[start_offset, stop_offset)`` are requested; None is no limit.
    next_base : int or None
        Base offset of the next segment of the log; None for the last one.
    """

    partition: TopicPartition
    file: PlannedSegment
    start: int
    stop: int
    start_offset: int | None = None
    stop_offset: int | None = None
    next_base: int | None = None

    @property
    def file_values(self) -> Row:
        """The values of the columns that identify the file (`FILE_FIELDS`)."""
        topic, partition = self.partition
        names = {"segment": self.file.name, "path": self.file.path}
        return {"topic": topic, "partition": partition} | names

    @property
    def is_last(self) -> bool:
        """Whether the file is the last one of its log, which may have a torn tail."""
        return self.next_base is None

    @property
    def first_offset(self) -> int | None:
        """
        The first offset of the batches that are read; None is no limit.

        Batches of a log's segment that are below the offset in its name belong to another segment,
        or to another log. The library leaves them out only where a segment before has their
        offsets, which no task knows.
        """
        if self.file.is_named or self.file.base_offset <= 0:
            return self.start_offset
        return max(self.start_offset or 0, self.file.base_offset)


@dataclass(frozen=True, slots=True)
class ScanTask:
    """
    The input of one task.

    Attributes
    ----------
    ranges : tuple of ScanRange
    logs : dict
        For ``read_committed``: logs by folder, from which the task reads how transactions ended.
    views : dict
        For ``read_committed``: how transactions ended by folder, if the driver knows it.
    has_stops : bool
        Whether the driver found the stop offsets in the logs, so that it is an error if a walk to
        the end of a log does not arrive there.
    """

    ranges: tuple[ScanRange, ...]
    logs: Logs = field(default_factory=lambda: _NO_LOGS)
    views: Views = field(default_factory=lambda: _NO_VIEWS)
    has_stops: bool = False


Bounds = dict[str, tuple["int | None", "int | None"]]
"""Start offset (inclusive) and stop offset (exclusive) of logs, by folder."""

Logs: TypeAlias = "Mapping[str, PlannedLog]"
"""Logs by folder."""

Views: TypeAlias = "Mapping[str, CommittedView]"
"""How the transactions of logs ended, by folder."""

# Shared, because plans have a hundred thousand tasks.
_NO_LOGS: Logs = {}
_NO_VIEWS: Views = {}


def plan(
    logs: Sequence[PlannedLog],
    options: Options,
    times: Bounds | None = None,
    views: Views | None = None,
) -> list[ScanTask]:
    """
    Plan the tasks of a read.

    Parameters
    ----------
    logs : sequence of PlannedLog
    options : Options
    times : dict, optional
        Offsets of the options' timestamps, by folder.
    views : dict, optional
        How the transactions of logs ended, by folder. Tasks read the other logs themselves.

    Returns
    -------
    list of ScanTask
    """
    ranges = list(_cut(list(_bounded(logs, options, times or {})), options))
    tasks = [ScanTask(one) for one in _packed(ranges, options)]
    if options.isolation_level == "read_committed":
        tasks = _with_logs(tasks, logs, views or {})
    return tasks


def concurrent_files(task: ScanTask, options: Options) -> int:
    """
    Return the number of files that a task with few output rows scans concurrently.

    A slot of Spark is a JVM thread and a Python process. The JVM thread is idle while there are
    few rows, so a second local file is scanned in its time. Objects of stores are read one at a
    time, because each is read ahead in blocks that need memory.
    """
    is_local = all(one.file.is_local for one in task.ranges)
    return 2 if options.prefetch and is_local else 1


def list_selected(
    options: Options, on_problem: OnProblem = lambda problem: None
) -> list[PlannedLog]:
    """
    List the logs of the requested topics and partitions, for a batch query.

    Raises
    ------
    NoLogsError
        If no file is of such a topic or partition and `ignore_missing_files` is false.
    As `list_logs`.
    """
    selected = list_logs(options, on_problem)
    if not selected and not options.ignore_missing_files:
        everything = list_logs(options.of_all_partitions())
        topics = sorted({log.partition[0] for log in everything} - {NO_TOPIC})
        known = f"; the topics are {', '.join(topics[:_NAMED_TOPICS])}" if topics else ""
        known += f" and {len(topics) - _NAMED_TOPICS} more" if len(topics) > _NAMED_TOPICS else ""
        reason = f"no segments of the selected topics, partitions and files{known}"
        raise NoLogsError(", ".join(options.paths), reason)
    return selected


def bounds_of(options: Options, partition: TopicPartition) -> tuple[int | None, int | None]:
    """Return the start and stop offsets that the options give for a partition, besides times."""
    start = None if options.starts_at_times else options.starting_offsets
    stop = None if options.ends_at_times else options.ending_offsets
    return _bound(start, partition, EARLIEST), _bound(stop, partition, LATEST)


def _bound(offsets: object, partition: TopicPartition, unlimited: int) -> int | None:
    if not isinstance(offsets, dict):
        return None
    offset = offsets.get(partition, unlimited)
    if offset < 0 and offset != unlimited:
        which = "endingOffsets cannot be -2 (earliest)"
        if unlimited == EARLIEST:
            which = "startingOffsets cannot be -1 (latest) in a batch query"
        raise ValueError(f"{which}: {partition[0]}-{partition[1]}")
    return None if offset < 0 else int(offset)


def _bounded(logs: Sequence[PlannedLog], options: Options, times: Bounds) -> Iterator[ScanRange]:
    """Yield whole files as ranges, except files that cannot contain requested offsets."""
    if options.starting_offsets == "latest" and not options.starts_at_times:
        raise ValueError("startingOffsets=latest requires a stream")
    for log in logs:
        bounds = times.get(log.folder) or bounds_of(options, log.partition)
        for file, follower in zip(log.segments, [*log.segments[1:], None], strict=True):
            one = _bounded_file(log, file, _next_base(file, follower), bounds)
            if one is not None and _may_match(one, options):
                yield one


def _bounded_file(
    log: PlannedLog,
    file: PlannedSegment,
    next_base: int | None,
    bounds: tuple[int | None, int | None],
) -> ScanRange | None:
    """Return a file as a range; None if it cannot contain requested offsets."""
    start, stop = bounds
    if next_base is not None:
        # A broker does not serve the segments before its log start offset, whatever they contain.
        end = next_base if file.end_offset is None else max(next_base, file.end_offset)
        if next_base <= log.log_start_offset or (start is not None and end <= start):
            return None
    if log.log_start_offset > max(file.base_offset, 0):
        start = max(start or 0, log.log_start_offset)
    if file.first_offset:
        start = max(start or 0, file.first_offset)
    if stop is not None and max(file.base_offset, start or 0) >= stop:
        return None
    return ScanRange(log.partition, file, 0, file.size, start, stop, next_base)


def _may_match(one: ScanRange, options: Options) -> bool:
    return options.where is None or options.where.may_match_file(one.file_values)


def _next_base(file: PlannedSegment, follower: PlannedSegment | None) -> int | None:
    """
    Return the base offset of the next segment of a log, if `follower` is that.

    It is not if it is the same segment in another state, or if a name contains no offset.
    """
    is_next = follower is not None and 0 <= file.base_offset < follower.base_offset
    return follower.base_offset if follower is not None and is_next else None


def _cut(ranges: list[ScanRange], options: Options) -> Iterator[ScanRange]:
    """Cut the ranges that are larger than a task."""
    max_bytes = _task_bytes(ranges, options)
    for one in ranges:
        if options.view == "segments":
            yield one
        elif one.file.size > 0 or one.file.is_broken_link or one.next_base is not None:
            yield from cut_range(one, max_bytes, options)


def cut_range(one: ScanRange, max_bytes: int, options: Options) -> Iterator[ScanRange]:
    """
    Cut a range into parts of at most `max_bytes` bytes.

    An object is cut only if it has an index, because each part would be read from the beginning
    otherwise. And only if damage fails the read: a part does not know of damage before it, after
    which a sequential scan would end.
    """
    size = one.stop - one.start
    is_cut = one.file.is_local or (one.file.has_index and options.fails_fast)
    parts = -(-size // max_bytes) if is_cut else 1
    if parts <= 1:
        yield one
        return
    cuts = [one.start + size * part // parts for part in range(parts + 1)]
    for start, stop in itertools.pairwise(cuts):
        yield replace(one, start=start, stop=stop)


def hints_of(one: ScanRange, options: Options) -> IndexHints | None:
    """Return the index of an object, if a scan of the range does not begin at its first byte."""
    if one.file.is_local:
        return None
    starts_late = one.start_offset is not None and one.start_offset > one.file.base_offset
    is_part = one.start > 0 or one.stop < one.file.size
    return read_hints(one.file, options) if is_part or starts_late else None


def _task_bytes(ranges: Sequence[ScanRange], options: Options) -> int:
    """
    Return the bytes of a task, as Spark's file sources do (``FilePartition.maxSplitBytes``).

    The number of slots is not used: the planner of a data source does not know it, it changes
    with dynamic allocation, and a plan should not depend on the API.
    """
    total = sum(one.file.size + _OPEN_COST for one in ranges)
    wanted, smallest = options.min_partitions, _SMALLEST_RANGE
    if wanted is None:
        wanted, smallest = _TASKS, _SMALLEST_TASK
    return min(options.task_bytes, max(-(-total // wanted), smallest))


def _packed(ranges: Sequence[ScanRange], options: Options) -> Iterator[tuple[ScanRange, ...]]:
    """Pack consecutive ranges into tasks."""
    sizes = np.fromiter((one.stop - one.start for one in ranges), np.int64, len(ranges))
    costs = sizes + _OPEN_COST
    for group in group_by_bytes(costs, _task_bytes(ranges, options)):
        yield tuple(ranges[group])


def _with_logs(tasks: list[ScanTask], listed: Sequence[PlannedLog], views: Views) -> list[ScanTask]:
    logs = {log.folder: log for log in listed}
    found = []
    for task in tasks:
        folders = dict.fromkeys(one.file.folder for one in task.ranges)
        known = {folder: views[folder] for folder in folders if folder in views}
        unknown = {folder: logs[folder] for folder in folders if folder not in views}
        found.append(ScanTask(task.ranges, unknown, known))
    return found
