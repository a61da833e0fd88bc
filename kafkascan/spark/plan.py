"""Files to tasks: which files may hold what is asked for, and how they are shared out.

Nothing is opened here. A range of a file owns the batches that start in it, so that files can
be cut anywhere; whoever scans a range finds its first batch.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from kafkascan.committed import CommittedView
from kafkascan.spark.files import FoundFile
from kafkascan.spark.option_values import EARLIEST, LATEST, TopicPartition
from kafkascan.spark.options import Options

# A range is not made smaller than this, whatever minPartitions asks for.
_SMALLEST_RANGE = 1 << 16


@dataclass(frozen=True, slots=True)
class ScanRange:
    """
    Batches that start in ``[start, stop)`` of a file.

    Attributes
    ----------
    file : FoundFile
    start, stop : int
        Byte positions.
    start_offset, stop_offset : int or None
        Records before and from these offsets on are left out; None is no limit.
    is_last : bool
        Whether the log goes on in no other file: then its end may be torn.
    """

    file: FoundFile
    start: int
    stop: int
    start_offset: int | None = None
    stop_offset: int | None = None
    is_last: bool = True


@dataclass(frozen=True, slots=True)
class ScanTask:
    """
    What one task scans.

    Attributes
    ----------
    ranges : tuple of ScanRange
    logs : dict
        By folder: all files of the log, where a range cannot be understood by itself.
    views : dict
        By folder: what those would tell, where it is known already.
    """

    ranges: tuple[ScanRange, ...]
    logs: dict[str, tuple[FoundFile, ...]] = field(default_factory=dict)
    views: Views = field(default_factory=dict)


Bounds = dict[str, tuple["int | None", "int | None"]]
"""By folder: offsets to start from and to stop before."""

Views = dict[str, CommittedView]
"""By folder: how the transactions of a log ended."""


def plan(
    files: Sequence[FoundFile],
    options: Options,
    times: Bounds | None = None,
    views: Views | None = None,
) -> list[ScanTask]:
    """
    Share files out.

    Parameters
    ----------
    files : sequence of FoundFile
        In the order of their logs.
    options : Options
    times : dict, optional
        By folder, what timestamps were found to stand for.
    views : dict, optional
        By folder, how the transactions of logs ended; tasks read the logs where it is not given.

    Returns
    -------
    list of ScanTask
    """
    wanted = select_files(files, options)
    ranges = list(_bounded(wanted, options, times or {}))
    tasks = [ScanTask(tuple(one)) for one in _packed(_cut(ranges, options), options)]
    if options.isolation_level == "read_committed":
        tasks = _with_logs(tasks, wanted, views or {})
    return tasks


def files_at_once(task: ScanTask, options: Options) -> int:
    """
    Return how many files of a task to go through at once, where little is handed over for each.

    What Spark's own sources take is a thread of the JVM's and a Python process, and the former
    has nothing to do then. Objects are read ahead each for itself, in pieces that take memory.
    """
    is_local = all(one.file.is_local for one in task.ranges)
    return 2 if options.prefetch and is_local else 1


def select_files(files: Iterable[FoundFile], options: Options) -> list[FoundFile]:
    """Return the files of the topics and partitions that are asked for."""
    pattern = None if options.topic_pattern is None else re.compile(options.topic_pattern)
    wanted = []
    for file in files:
        if options.topics is not None and file.topic not in options.topics:
            continue
        if pattern is not None and not pattern.fullmatch(file.topic):
            continue
        if options.partitions is not None and file.partition not in options.partitions:
            continue
        wanted.append(file)
    return wanted


def logs_of(files: Iterable[FoundFile]) -> dict[str, tuple[FoundFile, ...]]:
    """Return files by folder: each is the log of a partition."""
    logs: dict[str, list[FoundFile]] = {}
    for file in files:
        logs.setdefault(file.folder, []).append(file)
    return {folder: tuple(log) for folder, log in logs.items()}


def bounds_of(options: Options, partition: TopicPartition) -> tuple[int | None, int | None]:
    """Return the offsets that the options name for a partition."""
    return (
        _bound(options.starting_offsets, partition, EARLIEST),
        _bound(options.ending_offsets, partition, LATEST),
    )


def _bound(offsets: object, partition: TopicPartition, unlimited: int) -> int | None:
    if not isinstance(offsets, dict):
        return None
    offset = offsets.get(partition, unlimited)
    if offset < 0 and offset != unlimited:
        which = "endingOffsets cannot be -2 (earliest)"
        if unlimited == EARLIEST:
            which = "startingOffsets cannot be -1 (latest) where there is no stream"
        raise ValueError(f"{which}: {partition[0]}-{partition[1]}")
    return None if offset < 0 else int(offset)


def _bounded(files: Sequence[FoundFile], options: Options, times: Bounds) -> Iterator[ScanRange]:
    """Yield files whole, without those that cannot hold the offsets asked for."""
    if options.starting_offsets == "latest":
        raise ValueError("startingOffsets=latest is for streams")
    for file, follower in zip(files, [*files[1:], None], strict=False):
        start, stop = times.get(file.folder) or bounds_of(options, (file.topic, file.partition))
        next_base = None if follower is None else _next_base(file, follower)
        if start is not None and next_base is not None and next_base <= start:
            continue
        if stop is not None and file.base_offset >= stop:
            continue
        place = {"topic": file.topic, "partition": file.partition, "segment": file.base_offset}
        if options.where is not None and not options.where.may_hold_in(place):
            continue
        yield ScanRange(file, 0, file.size, start, stop, next_base is None)


def _next_base(file: FoundFile, follower: FoundFile) -> int | None:
    """Return the offset that all of a file's lie before, if the next file tells.

    Two states of one segment do not, nor does a name without an offset.
    """
    goes_on = follower.folder == file.folder and 0 <= file.base_offset < follower.base_offset
    return follower.base_offset if goes_on else None


def _cut(ranges: list[ScanRange], options: Options) -> Iterator[ScanRange]:
    """Cut what is larger than a task, where that costs little: not in object stores."""
    most = _task_bytes(ranges, options)
    for one in ranges:
        if options.view == "segments":
            yield one
        elif one.file.size > 0:
            yield from cut_range(one, most)


def cut_range(one: ScanRange, most: int) -> Iterator[ScanRange]:
    """Yield parts of a range of at most so many bytes; one of an object store is left whole."""
    size = one.stop - one.start
    parts = -(-size // most) if one.file.is_local else 1
    if parts <= 1:
        yield one
        return
    cuts = [one.start + size * part // parts for part in range(parts + 1)]
    for start, stop in itertools.pairwise(cuts):
        yield replace(one, start=start, stop=stop)


def _task_bytes(ranges: list[ScanRange], options: Options) -> int:
    """As Spark's own files are cut (``FilePartition.maxSplitBytes``)."""
    total = sum(one.file.size + options.open_cost_in_bytes for one in ranges)
    share = total // options.min_partitions
    if options.min_partitions == 1:
        return options.task_bytes
    return max(1, min(options.task_bytes, max(share, _SMALLEST_RANGE)))


def _packed(ranges: Iterable[ScanRange], options: Options) -> Iterator[list[ScanRange]]:
    """Put neighbours into one task, as long as they fit."""
    ranges = list(ranges)
    most = _task_bytes(ranges, options)
    task: list[ScanRange] = []
    size = 0
    for one in ranges:
        cost = one.stop - one.start + options.open_cost_in_bytes
        if task and size + cost > most:
            yield task
            task, size = [], 0
        task.append(one)
        size += cost
    if task:
        yield task


def _with_logs(tasks: list[ScanTask], files: list[FoundFile], views: Views) -> list[ScanTask]:
    logs = logs_of(files)
    found = []
    for task in tasks:
        folders = dict.fromkeys(one.file.folder for one in task.ranges)
        known = {folder: views[folder] for folder in folders if folder in views}
        unknown = {folder: logs[folder] for folder in folders if folder not in views}
        found.append(ScanTask(task.ranges, unknown, known))
    return found
