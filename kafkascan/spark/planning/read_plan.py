"""Plan a batch read: the one planner of DataFrames, the data source and jobs."""

from __future__ import annotations

from collections.abc import Mapping

from kafkascan.format.errors import NoLogsError
from kafkascan.spark.options.option_values import TopicPartition
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.planning.segment_ends import (
    OnOverlap,
    SegmentEnds,
    read_once,
    warn_of_overlap,
)
from kafkascan.spark.planning.task_plan import ScanTask, list_selected, plan
from kafkascan.spark.planning.timestamp_lookups import resolve_times

# Names that a message lists.
_NAMES_SHOWN = 5


def plan_read(options: Options, on_overlap: OnOverlap = warn_of_overlap) -> list[ScanTask]:
    """
    List the files of a batch read and plan its tasks.

    Parameters
    ----------
    options : Options
    on_overlap : callable, optional
        Called with segments that contain the same offsets; by default, this is a
        `SegmentOverlapWarning`.

    Raises
    ------
    NoLogsError
        If a path contains no segments, or no log is of a topic that the options name, and
        `ignore_missing_files` is false.
    ValueError
        If options give offsets of partitions that the read does not find.
    """
    files = list_selected(options)
    missing = missing_topics({one.topic for one in files}, options)
    if missing and not options.ignore_missing_files:
        reason = f"no segments of the selected topics {', '.join(missing[:_NAMES_SHOWN])}"
        raise NoLogsError(", ".join(options.paths), reason)
    partitions = {(one.topic, one.partition) for one in files}
    if options.assign is not None and not options.ignore_missing_files:
        _require_partitions("assign", set(options.assign), partitions)
    require_partitions(partitions, options)
    files = read_once(files, options, SegmentEnds(options), on_overlap)
    return plan(files, options, resolve_times(files, options))


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
