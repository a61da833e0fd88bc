"""Plan a batch read: the one planner of DataFrames, the data source and jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from kafkascan.batches.columns import last_offset
from kafkascan.format.errors import NoLogsError
from kafkascan.logs.log_dir import read_again_if_changed
from kafkascan.logs.reading import iter_records
from kafkascan.spark.options.option_values import EARLIEST, LATEST, TopicPartition
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.planning.file_listing import OnProblem, warn_of_problem
from kafkascan.spark.planning.planned_logs import PlannedLog, open_file
from kafkascan.spark.planning.range_walk import RangeWalk
from kafkascan.spark.planning.segment_ends import (
    SegmentEnds,
    read_once,
)
from kafkascan.spark.planning.task_plan import (
    Bounds,
    ScanTask,
    bounds_of,
    list_selected,
    plan,
)
from kafkascan.tables.table import Problem

_THREADS = 8
_ROWS = 1 << 14
_AFTER_ALL = 2**63 - 1


def resolve_times(logs: Sequence[PlannedLog], options: Options) -> Bounds:
    """
    Look up the offsets of the options' timestamps, if they have any.

    This reads batch headers, from the start of each log up to the record that is found.

    Returns
    -------
    dict
        Start and stop offsets by folder.

    Raises
    ------
    ValueError
        If a log has no record at or after the starting timestamp, and
        ``startingOffsetsByTimestampStrategy`` is ``error``.
    """
    if not (options.starts_at_times or options.ends_at_times):
        return {}
    with ThreadPoolExecutor(_THREADS) as pool:
        found = pool.map(lambda log: _bounds(log, options), logs)
        return dict(zip((log.folder for log in logs), found, strict=True))


def _bounds(log: PlannedLog, options: Options) -> tuple[int | None, int | None]:
    start, _ = bounds_of(options, log.partition)
    starting = options.starting_time(log.partition)
    if starting is not None and starting != EARLIEST:
        start = starting_offset_at(log, starting, options)
        start = _AFTER_ALL if start is None else start
    return start, stop_of(log, options)


def stop_of(log: PlannedLog, options: Options) -> int | None:
    """Return the offset where the options end a read of a log; None is the end of the log."""
    ending = options.ending_time(log.partition)
    if ending == EARLIEST:
        return log.start_offset
    if ending is not None and ending != LATEST:
        return first_offset_at(log, ending, options)
    return bounds_of(options, log.partition)[1]


def starting_offset_at(log: PlannedLog, timestamp: int, options: Options) -> int | None:
    """
    Return the offset where a read of a log starts at a timestamp; None is the end of the log.

    Raises
    ------
    ValueError
        If no record is late enough, and ``startingOffsetsByTimestampStrategy`` is ``error``.
    """
    if timestamp == LATEST:
        return None
    found = first_offset_at(log, timestamp, options)
    if found is None and options.starting_offsets_by_timestamp_strategy == "error":
        raise ValueError(
            f"{log.folder}: no record is at or after startingTimestamp {timestamp}; with"
            " startingOffsetsByTimestampStrategy=latest, the read starts at the end of the log"
        )
    return found


def first_offset_at(log: PlannedLog, timestamp: int, options: Options) -> int | None:
    """Return the offset of the first record at or after a timestamp; None if there is none."""
    for file in log.served_segments:
        start = max(log.start_offset, file.first_offset)
        source = open_file(file, options)
        for table in RangeWalk(source, 0, source.size).tables(_ROWS):
            rows = table[(table["max_timestamp"] >= timestamp) & (last_offset(table) >= start)]
            if not len(rows):
                continue
            tables = iter_records(
                source, rows, columns=["offset", "timestamp"], control="include", batch_size=1
            )
            for records in tables:
                is_late = (records["timestamp"] >= timestamp) & (records["offset"] >= start)
                late = np.flatnonzero(is_late)
                if len(late):
                    return int(records["offset"][late[0]])
    return None


# Names that a message lists.
_NAMES_SHOWN = 5


def plan_read(options: Options, on_problem: OnProblem = warn_of_problem) -> list[ScanTask]:
    """
    List the files of a batch read and plan its tasks, again if a file of the plan changes.

    Parameters
    ----------
    options : Options
    on_problem : callable, optional
        Called with segments that contain the same offsets, and with marks of rewrites in place
        that did not end; by default, each is an `IncompleteTableWarning`.

    Raises
    ------
    NoLogsError
        If a path contains no segments, or no log is of a topic that the options name, and
        `ignore_missing_files` is false.
    ValueError
        If options give offsets of partitions that the read does not find.
    """
    tasks, problems = read_again_if_changed(lambda: _plan(options))
    for problem in problems:
        on_problem(problem)
    return tasks


def _plan(options: Options) -> tuple[list[ScanTask], list[Problem]]:
    """Return the tasks of a read, and what is wrong with its logs."""
    problems: list[Problem] = []
    logs = list_selected(options, problems.append)
    require_selected({log.partition for log in logs}, options)
    logs = read_once(logs, options, SegmentEnds(options), problems.append)
    return plan(logs, options, resolve_times(logs, options)), problems


def require_selected(known: set[TopicPartition], options: Options) -> None:
    """Raise an error, as `plan_read` does, if options name topics or partitions without logs."""
    require_topics(known, options)
    if options.assign is not None and not options.ignore_missing_files:
        _require_partitions("assign", set(options.assign), known)
    require_partitions(known, options)


def require_topics(known: set[TopicPartition], options: Options) -> None:
    """Raise `NoLogsError` if no log is of a topic that the options name."""
    missing = missing_topics({topic for topic, _ in known}, options)
    if missing and not options.ignore_missing_files:
        reason = f"no segments of the selected topics {', '.join(missing[:_NAMES_SHOWN])}"
        raise NoLogsError(", ".join(options.paths), reason)


def missing_topics(known: set[str], options: Options) -> list[str]:
    """Return the topics that the options name and that have no files."""
    named = options.topics or dict.fromkeys(topic for topic, _ in options.assign or ())
    return [topic for topic in named if topic not in known]


def require_partitions(known: set[TopicPartition], options: Options) -> None:
    """Raise `ValueError` if options give offsets of partitions that do not exist."""
    for name, offsets in (
        ("startingOffsets", options.starting_offsets),
        ("endingOffsets", options.ending_offsets),
        ("startingOffsetsByTimestamp", options.starting_offsets_by_timestamp),
        ("endingOffsetsByTimestamp", options.ending_offsets_by_timestamp),
    ):
        if isinstance(offsets, Mapping):
            _require_partitions(name, set(offsets), known)


def _require_partitions(
    option: str, given: set[TopicPartition], known: set[TopicPartition]
) -> None:
    unknown = [f"{topic}-{partition}" for topic, partition in sorted(given - known)]
    if unknown:
        more = f" and {len(unknown) - _NAMES_SHOWN} more" if len(unknown) > _NAMES_SHOWN else ""
        raise ValueError(
            f"{option} contains partitions that the read does not find:"
            f" {', '.join(unknown[:_NAMES_SHOWN])}{more}"
        )
