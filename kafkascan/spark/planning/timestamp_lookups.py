"""Look up the offsets of timestamps, as a broker does (``ListOffsets``)."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from kafkascan.batches.columns import last_offset
from kafkascan.logs.reading import iter_records
from kafkascan.spark.options.option_values import EARLIEST, LATEST
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.planning.file_listing import FoundFile, open_file
from kafkascan.spark.planning.range_walk import RangeWalk
from kafkascan.spark.planning.task_plan import (
    Bounds,
    bounds_of,
    logs_of,
    select_files,
    served_files,
    start_of,
)

_THREADS = 8
_ROWS = 1 << 14
_AFTER_ALL = 2**63 - 1


def resolve_times(files: Sequence[FoundFile], options: Options) -> Bounds:
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
    logs = logs_of(select_files(files, options))
    with ThreadPoolExecutor(_THREADS) as pool:
        found = pool.map(lambda log: _bounds(log, options), logs.values())
        return dict(zip(logs, found, strict=True))


def _bounds(log: Sequence[FoundFile], options: Options) -> tuple[int | None, int | None]:
    partition = (log[0].topic, log[0].partition)
    start, stop = bounds_of(options, partition)
    starting, ending = options.starting_time(partition), options.ending_time(partition)
    if starting is not None and starting != EARLIEST:
        start = starting_offset_at(log, starting, options)
        start = _AFTER_ALL if start is None else start
    if ending == EARLIEST:
        stop = start_of(log)
    elif ending is not None and ending != LATEST:
        stop = first_offset_at(log, ending, options)
    return start, stop


def starting_offset_at(log: Sequence[FoundFile], timestamp: int, options: Options) -> int | None:
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
            f"{log[0].folder}: no record is at or after startingTimestamp {timestamp}; with"
            " startingOffsetsByTimestampStrategy=latest, the read starts at the end of the log"
        )
    return found


def first_offset_at(log: Sequence[FoundFile], timestamp: int, options: Options) -> int | None:
    """Return the offset of the first record at or after a timestamp; None if there is none."""
    log_start = start_of(log)
    for file in served_files(log):
        start = max(log_start, file.first_offset)
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
