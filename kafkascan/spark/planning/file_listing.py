"""List the logs of local folders, object stores and remote storage."""

from __future__ import annotations

import errno
import fnmatch
import glob
import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from operator import attrgetter
from pathlib import Path
from typing import TypeAlias

from kafkascan.broker_state.checkpoints import LOG_START_CHECKPOINT
from kafkascan.broker_state.offset_checkpoints import CheckpointReader
from kafkascan.format.errors import NoLogsError
from kafkascan.format.file_names import (
    live_base_offset,
    parse_segment_name,
    sibling_name,
)
from kafkascan.io.stores.store_folders import list_folder
from kafkascan.io.stores.stored_objects import ObjectInfo, open_object
from kafkascan.io.stores.urls import ObjectUrl, as_object_url, is_url
from kafkascan.logs.log_dir import LogDir, PartitionDir
from kafkascan.logs.log_finding import open_log_dir, partition_dir, partition_of
from kafkascan.logs.log_problems import rewrite_problems
from kafkascan.logs.opened_logs import live_logs
from kafkascan.spark.options.option_values import TopicPartition
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.planning.planned_logs import (
    NO_BASE_OFFSET,
    NO_PARTITION,
    NO_TOPIC,
    PlannedLog,
    PlannedSegment,
    store_settings,
)
from kafkascan.tables.table import IncompleteTableWarning, Problem
from kafkascan.tiered.tier_files import ChunkedFile, PlainFile
from kafkascan.tiered.tier_listing import read_tier
from kafkascan.tiered.tier_store import store_at

LogStarts: TypeAlias = "Callable[[PartitionDir], int]"
"""Returns the log start offset of a partition."""

OnProblem: TypeAlias = "Callable[[Problem], object]"
"""Called with what is wrong with a log, as far as the driver sees it."""


class TieredStorageWarning(UserWarning):
    """Remote storage has objects that are not read, or that contradict each other."""


def warn_of_problem(problem: Problem) -> None:
    """Warn of what is wrong with a log, such as two segments that contain the same offsets."""
    warnings.warn(str(problem), IncompleteTableWarning, stacklevel=3)


def list_logs(options: Options, on_problem: OnProblem = lambda problem: None) -> list[PlannedLog]:
    """
    List the logs of the requested partitions, in order.

    A folder selects its live segments, as a broker would load them. A path or glob of files
    selects them whatever their names are. No file is opened, and nothing is listed below folders
    of other partitions.

    Parameters
    ----------
    options : Options
    on_problem : callable, optional
        Called with each mark of a rewrite in place that did not end.

    Raises
    ------
    FileNotFoundError
        If a path does not exist or contains no segments, and `ignore_missing_files` is false.
    """
    if not options.paths:
        raise ValueError(
            "no path is given: use load(path) or the option path; in SQL, a temporary view, because"
            " Spark does not pass the options of a table when it is read"
        )
    found: list[PlannedLog] = []
    starts = _log_starts(options)
    for path in options.paths:
        try:
            listed = list(_list_path(path, options, starts, on_problem))
            if not (listed or options.ignore_missing_files or _has_segments(path, options)):
                raise NoLogsError(path, "no live segments")
        except FileNotFoundError:
            if not options.ignore_missing_files:
                raise
        else:
            found += listed
    return list(_joined(found, options.path_glob_filter))


def _joined(found: Sequence[PlannedLog], pattern: str | None) -> Iterator[PlannedLog]:
    """
    Yield one log for each folder, of files whose names match; each file is in one log, once.

    Files that are given as such are a log of their own, beside that of their folder.
    """
    in_folders = {file.path for view in found for file in view.segments if not file.is_named}
    by_log: dict[tuple[TopicPartition, str, bool], list[PlannedLog]] = {}
    for view in found:
        key = view.partition, view.folder, view.segments[0].is_named
        by_log.setdefault(key, []).append(view)
    for (partition, _, is_given), views in sorted(by_log.items()):
        files = {file.path: file for view in reversed(views) for file in view.segments}
        selected = [
            file
            for path, file in files.items()
            if (pattern is None or fnmatch.fnmatchcase(file.name, pattern))
            and not (is_given and path in in_folders)
        ]
        if selected:
            segments = sorted(selected, key=attrgetter("base_offset", "path"))
            start = max(view.log_start_offset for view in views)
            yield PlannedLog(partition, tuple(segments), start)


def _has_segments(path: str, options: Options) -> bool:
    """Whether a path has live segments of any partition."""
    everything = options.of_all_partitions()
    found = _list_path(path, everything, lambda partition: 0, lambda problem: None)
    return any(True for _ in found)


def _log_starts(options: Options) -> LogStarts:
    given = options.log_start_offset
    if given is not None:
        return lambda partition: given
    reader = CheckpointReader()
    return lambda partition: reader.offset_of(partition, LOG_START_CHECKPOINT)


def _list_path(
    path: str, options: Options, starts: LogStarts, on_problem: OnProblem
) -> Iterator[PlannedLog]:
    path = str(as_object_url(path if "://" in path else path.removeprefix("file:")))
    place: Path | ObjectUrl = Path(os.path.abspath(path))
    if is_url(path):
        place = ObjectUrl(path, store_settings(options))
    if options.tiered_layout is not None:
        return _list_tier(place, options)
    if isinstance(place, ObjectUrl):
        return _list_objects(place, options, starts, on_problem)
    return _list_local(os.fspath(place), options, on_problem)


# ---- local -------------------------------------------------------------------------------


def _list_local(path: str, options: Options, on_problem: OnProblem) -> Iterator[PlannedLog]:
    named = [path]
    if glob.has_magic(path) and not os.path.lexists(path):
        named = sorted(glob.glob(path))
        if not named:
            raise FileNotFoundError(errno.ENOENT, "no file matches", path)
    partitions: list[PartitionDir] = []
    for one in named:
        if os.path.isdir(one):
            partitions += open_log_dir(one).partitions
            continue
        folder, status = partition_dir(os.path.dirname(one)), os.stat(one)
        if _is_selected(folder, options):
            listed = status.st_size, status.st_mtime_ns, status.st_ino
            yield _given(folder, [PlannedSegment(one, _base_offset(one), *listed)], options)
    read = [one for one in partitions if one.state is None and _is_selected(one, options)]
    for log in live_logs(LogDir(Path(path), read), options.log_start_offset):
        if log.error is not None:
            raise log.error
        _report_marks(log.partition, log.names, on_problem)
        prefix = os.path.join(log.partition.path, "")
        segments = (
            PlannedSegment(
                prefix + one.file_name, one.base_offset or 0, *(one.listed_status() or (0,))
            )
            for one in log.segments
        )
        yield PlannedLog(_place_of(log.partition), tuple(segments), log.start_offset)


def _report_marks(place: PartitionDir, names: Sequence[str], on_problem: OnProblem) -> None:
    """Report the marks of rewrites in place that did not end."""
    for problem in rewrite_problems(place, names):
        on_problem(problem)


def _is_selected(place: PartitionDir, options: Options) -> bool:
    return options.selects(*_place_of(place))


def _place_of(place: PartitionDir) -> TopicPartition:
    """Return the topic and partition of a folder, or the values for one without these."""
    partition = NO_PARTITION if place.partition is None else place.partition
    return place.topic or NO_TOPIC, partition


def _base_offset(path: str) -> int:
    name = parse_segment_name(os.path.basename(path))
    return NO_BASE_OFFSET if name is None or name.base_offset is None else name.base_offset


def _given(place: PartitionDir, files: Iterable[PlannedSegment], options: Options) -> PlannedLog:
    """Return a log of files that are given as such: by default, all of their records are read."""
    segments = tuple(file._replace(is_named=True) for file in files)
    return PlannedLog(_place_of(place), segments, options.log_start_offset or 0)


# ---- object stores -----------------------------------------------------------------------


def _list_objects(
    url: ObjectUrl, options: Options, starts: LogStarts, on_problem: OnProblem
) -> Iterator[PlannedLog]:
    base, pattern = _split_glob(url.url)
    root = list_folder(replace(url, url=f"{base}/") if pattern else url)
    if root is None:
        stored = open_object(url.url, url.storage_options)
        parent, _, name = stored.path.rpartition("/")
        partition = partition_dir(parent)
        if _is_selected(partition, options):
            file = _object_view(f"{partition.path}/{name}", stored.info)
            yield _given(partition, [file], options)
        return
    below, named = [], []
    for folder in root.tree():
        partition = partition_of(folder)
        if not _is_selected(partition, options):
            continue
        names = folder.names()
        _report_marks(partition, names, on_problem)
        inner = folder.path.relative_to(root.path).parts
        known, is_named = set(names), len(inner) + 1 == len(pattern)
        files = [
            _object_view(f"{partition.path}/{name}", folder.info(name))._replace(
                has_index=sibling_name(name, "index") in known
            )
            for name in names
            if _matches((*inner, name), pattern)
            and (is_named or (live_base_offset(name) is not None and partition.state is None))
        ]
        if files and is_named:
            named.append(_given(partition, files, options))
        elif files:
            below.append(PlannedLog(_place_of(partition), tuple(files), starts(partition)))
    if pattern and not named and not below and options == options.of_all_partitions():
        raise FileNotFoundError(errno.ENOENT, "no object exists at", url.url)
    yield from named or below


def _object_view(path: str, info: ObjectInfo) -> PlannedSegment:
    modified_ns, etag = _nanoseconds(info), info.etag or ""
    return PlannedSegment(path, _base_offset(path), info.size, modified_ns, etag=etag)


def _nanoseconds(info: ObjectInfo) -> int | None:
    """Return when an object was stored, in nanoseconds since the epoch."""
    time = info.modified
    seconds = time.timestamp() if isinstance(time, datetime) else time
    return int(seconds * 1e9) if isinstance(seconds, (int, float)) else None


def _split_glob(url: str) -> tuple[str, list[str]]:
    """Return the URL before the first part with a wildcard, and the parts from there on."""
    parts = url.rstrip("/").split("/")
    first = next((n for n, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    return "/".join(parts[:first]), parts[first:]


def _matches(key: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a glob matches an object, or a folder that it is in."""
    return len(key) >= len(pattern) and all(map(fnmatch.fnmatchcase, key, pattern))


def _list_tier(place: Path | ObjectUrl, options: Options) -> Iterator[PlannedLog]:
    """Yield the logs in remote storage: objects with the bytes of a log, and chunked ones."""
    keys = json.loads(options.tiered_keys)
    tier = read_tier(store_at(place), layout=options.tiered_layout or "auto", keys=keys)
    if tier.problems:
        count, first = len(tier.problems), tier.problems[0]
        message = f"{tier.path}: {count} problems of the remote storage, such as {first}"
        warnings.warn(message, TieredStorageWarning, stacklevel=2)
    for one in tier.remote_segments:
        stored = one.log.stored if isinstance(one.log, ChunkedFile) else one.log
        assert isinstance(stored, PlainFile)
        if not options.selects(one.topic, one.partition):
            continue
        segment = _object_view(f"{tier.path}/{stored.item.key}", stored.item)._replace(
            base_offset=one.base_offset,
            size=one.size,
            tier=None if stored is one.log else str(tier.path),
        )
        yield PlannedLog((one.topic, one.partition), (segment,), options.log_start_offset or 0)
