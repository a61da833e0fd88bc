"""List and open segment files in local folders and object stores."""

from __future__ import annotations

import errno
import fnmatch
import glob
import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

from kafkascan.broker_state.checkpoints import LOG_START_CHECKPOINT
from kafkascan.broker_state.offset_checkpoints import CheckpointReader
from kafkascan.format.errors import CHANGED_WHILE_READ, FileGoneError, NoLogsError, SourceReadError
from kafkascan.format.file_names import (
    SegmentName,
    live_base_offset,
    parse_segment_name,
    sibling_name,
)
from kafkascan.io.folders import DiskFolder
from kafkascan.io.source_protocols import FilePins, PinnedFile
from kafkascan.io.sources import Source, SourceLike
from kafkascan.io.stores.prefetching_reader import PrefetchingReader
from kafkascan.io.stores.store_folders import list_folder, read_stored
from kafkascan.io.stores.stored_objects import ObjectInfo, open_object
from kafkascan.io.stores.urls import ObjectUrl, as_object_url, is_url
from kafkascan.logs.log_dir import LogDir, PartitionDir
from kafkascan.logs.log_finding import open_log_dir, partition_dir, partition_of
from kafkascan.logs.log_problems import rewrite_problems
from kafkascan.logs.opened_logs import Log, live_logs
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.planning.range_walk import IndexHints
from kafkascan.tables.table import IncompleteTableWarning, Problem
from kafkascan.tiered.aiven_layout import open_chunked_log
from kafkascan.tiered.data_keys import KeyRing
from kafkascan.tiered.tier_files import ChunkedFile, PlainFile
from kafkascan.tiered.tier_listing import read_tier
from kafkascan.tiered.tier_store import FolderStore, PrefixStore, TierStore, store_at

NO_TOPIC, NO_PARTITION, NO_BASE_OFFSET = "", -1, -1
"""Values for a file whose folder is not named topic-partition, or whose name is not an offset."""

LogStarts: TypeAlias = "Callable[[PartitionDir], int]"
"""Returns the log start offset of a partition."""

OnProblem: TypeAlias = "Callable[[Problem], object]"
"""Called with what is wrong with a log, as far as the driver sees it."""


class TieredStorageWarning(UserWarning):
    """Remote storage has objects that are not read, or that contradict each other."""


class ListedSegment(NamedTuple):
    """
    A segment file that was listed and is not open.

    Attributes
    ----------
    path : str
        Path of a local file, or URL of an object.
    topic, partition, base_offset
        From the names of the folder and file, or `NO_TOPIC`, `NO_PARTITION`, `NO_BASE_OFFSET`.
    size : int
        Size in bytes when it was listed.
    modified_ns : int or None
        Time of modification, in nanoseconds since the epoch.
    has_index : bool
        Whether an ``.index`` object was listed next to an object.
    log_start_offset : int
        The log start offset (``DeleteRecords``): a broker serves no record before it. 0 for a
        file that is given as such, and for a log whose data dir has no such offset.
    etag : str
        The store's identifier of the content of an object, if it has one.
    is_named : bool
        Whether the file is given as such, and not found in a folder: all of it is read.
    first_offset : int
        Offsets before it are read from segments before this one; see `read_once`.
    end_offset : int or None
        The offset after the last batch, if the driver looked it up.
    tier : str or None
        Path or URL of the remote storage, if the object is compressed or encrypted: its manifest
        says how.
    stored_size : int
        Size of such an object.
    inode : int
        Of a local file in a folder; 0 for others.
    """

    path: str
    topic: str
    partition: int
    base_offset: int
    size: int
    modified_ns: int | None
    has_index: bool = False
    log_start_offset: int = 0
    etag: str = ""
    is_named: bool = False
    first_offset: int = 0
    end_offset: int | None = None
    tier: str | None = None
    stored_size: int = 0
    inode: int = 0

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.path.rpartition("/")[2]

    @property
    def folder(self) -> str:
        """The folder that contains the file."""
        return self.path.rpartition("/")[0]

    @property
    def is_local(self) -> bool:
        """Whether the file is in a file system of this machine, not in an object store."""
        return "://" not in self.path and self.tier is None

    @property
    def is_broken_link(self) -> bool:
        """Whether it is a link that leads nowhere."""
        return self.is_local and self.modified_ns is None


def warn_of_problem(problem: Problem) -> None:
    """Warn of what is wrong with a log, such as two segments that contain the same offsets."""
    warnings.warn(str(problem), IncompleteTableWarning, stacklevel=3)


def list_files(
    options: Options, on_problem: OnProblem = lambda problem: None
) -> list[ListedSegment]:
    """
    List the segments of the requested partitions, ordered by log and base offset.

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
    found: dict[str, ListedSegment] = {}
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
            found |= {file.path: file for file in listed if file.path not in found}
    pattern = options.path_glob_filter
    selected: Iterable[ListedSegment] = found.values()
    if pattern is not None:
        selected = [
            one for one in selected if fnmatch.fnmatchcase(os.path.basename(one.path), pattern)
        ]
    return sorted(selected, key=lambda one: (one.topic, one.partition, one.folder, one.base_offset))


def _has_segments(path: str, options: Options) -> bool:
    """Whether a path has live segments of any partition."""
    everything = options.of_all_partitions()
    found = _list_path(path, everything, lambda partition: 0, lambda problem: None)
    return any(True for _ in found)


def open_file(file: ListedSegment, options: Options, bulk_stop: int = 0) -> Source:
    """
    Open a file with the size it had when it was listed; bytes appended since are not visible.

    Parameters
    ----------
    file : ListedSegment
    options : Options
    bulk_stop : int, default 0
        Up to this position, the caller reads all bytes and not only headers. This matters for
        objects of stores.

    Raises
    ------
    FileNotFoundError
        If it was deleted.
    SourceReadError
        If it was truncated: a cut between two batches looks like the end of the log. If another
        file took its place, as the cleaner's do: it has other offsets, at other positions.
    """
    source = open_current(file, options, bulk_stop)
    if source.size < file.size:
        reason = f"the file was truncated from {file.size} to {source.size} bytes since the listing"
        raise SourceReadError(file.path, source.size, reason, CHANGED_WHILE_READ)
    return source


def open_current(file: ListedSegment, options: Options, bulk_stop: int = 0) -> Source:
    """Open a file as `open_file` does, but also if it was truncated since it was listed."""
    if file.tier is not None:
        return Source(_open_chunked(file, file.tier, options))
    if not file.is_local:
        stored = open_object(file.path, store_settings(options))
        read_index = None if bulk_stop else partial(_read_index, file, options)
        reader = PrefetchingReader(stored, read_index, bulk_stop=bulk_stop)
        return Source(reader, max_size=file.size)
    place = _as_listed(file)
    try:
        return Source(place, max_size=file.size)
    except FileGoneError as error:
        if not os.path.lexists(file.path):
            raise
        reason = "another file took its place since the listing, as of a cleaner"
        raise SourceReadError(file.path, 0, reason, CHANGED_WHILE_READ) from error
    except OSError as error:
        # spark.executor.pyspark.memory limits the address space, so a map may not fit.
        if error.errno != errno.ENOMEM:
            raise
    return Source(place, memory_map=False, max_size=file.size)


def _as_listed(file: ListedSegment) -> SourceLike:
    """Return a local file that was listed, also if a broker renames it until it is opened."""
    if not file.inode:  # in remote storage, which does not change files
        return file.path
    pins = FilePins({file.name: file.inode}, opened={file.name})
    with suppress(FileNotFoundError):
        now = os.stat(file.path)
        if _is_same(file, now):
            pins.inodes[file.name] = now.st_ino
        # Some network file systems give a file another inode each time.
        pins.are_stable = now.st_ino == file.inode or os.stat(file.path).st_ino == now.st_ino
    return PinnedFile(file.path, file.name, pins)


def is_in_place(file: ListedSegment) -> bool:
    """Return whether a local file that was listed still has its name."""
    try:
        return _is_same(file, os.stat(file.path))
    except OSError:
        return False


def _is_same(file: ListedSegment, now: os.stat_result) -> bool:
    """Return whether a status is that of a listed file, or of its copy on another host."""
    is_copy = (now.st_size, now.st_mtime_ns) == (file.size, file.modified_ns)
    return is_copy or file.inode in (0, now.st_ino)


def store_settings(options: Options) -> dict[str, object]:
    """Return the options of the store, for URLs."""
    settings: dict[str, object] = json.loads(options.storage_options)
    return settings


def _log_starts(options: Options) -> LogStarts:
    given = options.log_start_offset
    if given is not None:
        return lambda partition: given
    reader = CheckpointReader()
    return lambda partition: reader.offset_of(partition, LOG_START_CHECKPOINT)


def _list_path(
    path: str, options: Options, starts: LogStarts, on_problem: OnProblem
) -> Iterator[ListedSegment]:
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


def _list_local(path: str, options: Options, on_problem: OnProblem) -> Iterator[ListedSegment]:
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
        name = parse_segment_name(os.path.basename(one))
        if _is_selected(folder, options):
            found = _found(one, folder, name, status.st_size, status.st_mtime_ns)
            yield _named(found._replace(inode=status.st_ino), options)
    read = [one for one in partitions if one.state is None and _is_selected(one, options)]
    for log in live_logs(LogDir(Path(path), read), options.log_start_offset):
        if log.error is not None:
            raise log.error
        _report_marks(log.partition, log.names, on_problem)
        yield from _segments_of(log)


def _segments_of(log: Log) -> Iterator[ListedSegment]:
    """Yield the segments of a log as they were when it was listed."""
    folder, place = os.path.join(log.partition.path, ""), _place_of(log.partition)
    for segment in log.segments:
        size, modified_ns, inode = segment.listed_status() or (0, None, 0)
        yield ListedSegment(
            folder + segment.file_name, *place, segment.base_offset or 0, size, modified_ns,
            log_start_offset=log.start_offset, inode=inode,
        )  # fmt: skip


def _report_marks(place: PartitionDir, names: Sequence[str], on_problem: OnProblem) -> None:
    """Report the marks of rewrites in place that did not end."""
    for problem in rewrite_problems(place, names):
        on_problem(problem)


def _is_selected(place: PartitionDir, options: Options) -> bool:
    return options.selects(*_place_of(place))


def _place_of(place: PartitionDir) -> tuple[str, int]:
    """Return the topic and partition of a folder, or the values for one without these."""
    topic = NO_TOPIC if place.topic is None else place.topic
    return topic, NO_PARTITION if place.partition is None else place.partition


def _found(
    path: str,
    place: PartitionDir,
    name: SegmentName | None,
    size: int,
    modified_ns: int | None,
) -> ListedSegment:
    base_offset = None if name is None else name.base_offset
    known = NO_BASE_OFFSET if base_offset is None else base_offset
    return ListedSegment(path, *_place_of(place), known, size, modified_ns)


def _named(file: ListedSegment, options: Options) -> ListedSegment:
    """Return a file that is given as such: by default, it is read from its first record."""
    return file._replace(log_start_offset=options.log_start_offset or 0, is_named=True)


# ---- object stores -----------------------------------------------------------------------


def _list_objects(
    url: ObjectUrl, options: Options, starts: LogStarts, on_problem: OnProblem
) -> Iterator[ListedSegment]:
    base, pattern = _split_glob(url.url)
    root = list_folder(replace(url, url=f"{base}/") if pattern else url)
    if root is None:
        stored = open_object(url.url, url.storage_options)
        parent, _, name = stored.path.rpartition("/")
        if _is_selected(partition_dir(parent), options):
            yield _named(_found_object(stored.info, name, partition_dir(parent)), options)
        return
    below, named = [], []
    for folder in root.tree():
        partition = partition_of(folder)
        if not _is_selected(partition, options):
            continue
        names = folder.names()
        _report_marks(partition, names, on_problem)
        inner = folder.path.relative_to(root.path).parts
        for name in names:
            key = (*inner, name)
            if not _matches(key, pattern):
                continue
            found = _found_object(folder.info(name), name, partition)
            found = found._replace(has_index=sibling_name(name, "index") in names)
            if pattern and len(key) == len(pattern):
                named.append(_named(found, options))
            elif live_base_offset(name) is not None and partition.state is None:
                below.append(found._replace(log_start_offset=starts(partition)))
    if pattern and not named and not below and options == options.of_all_partitions():
        raise FileNotFoundError(errno.ENOENT, "no object exists at", url.url)
    yield from named or below


def _found_object(info: ObjectInfo, name: str, partition: PartitionDir) -> ListedSegment:
    path = f"{partition.path}/{name}"
    found = _found(path, partition, parse_segment_name(name), info.size, _nanoseconds(info))
    return found._replace(etag=info.etag or "")


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


def _list_tier(place: Path | ObjectUrl, options: Options) -> Iterator[ListedSegment]:
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
        yield ListedSegment(
            path=f"{tier.path}/{stored.item.key}",
            topic=one.topic,
            partition=one.partition,
            base_offset=one.base_offset,
            size=one.size,
            modified_ns=_nanoseconds(stored.item),
            log_start_offset=options.log_start_offset or 0,
            etag=stored.item.etag or "",
            tier=None if stored is one.log else str(tier.path),
            stored_size=stored.item.size,
        )


def _open_chunked(file: ListedSegment, tier: str, options: Options) -> SourceLike:
    store: TierStore = FolderStore(tier)
    if is_url(tier):
        store = PrefixStore(ObjectUrl(tier, store_settings(options)), is_listed=False)
    item = ObjectInfo(file.path.removeprefix(f"{tier}/"), file.stored_size)
    return open_chunked_log(store, item, KeyRing(json.loads(options.tiered_keys)))


# ---- indexes -----------------------------------------------------------------------------


def read_hints(file: ListedSegment, options: Options) -> IndexHints | None:
    """Read the index next to a file; None if it has none, or one that is damaged."""
    if file.base_offset == NO_BASE_OFFSET:
        return None
    data = _read_index(file, options)
    return IndexHints.parse(data, file.base_offset) if data else None


def _read_index(file: ListedSegment, options: Options) -> bytes | None:
    folder, _, name = file.path.rpartition("/")
    index = sibling_name(name, "index") or ""
    try:
        if file.is_local:
            return DiskFolder(folder).read(index)
        if file.has_index:
            return read_stored(open_object(f"{folder}/{index}", store_settings(options)))
    except OSError:  # there is none, or no longer: a walk from the beginning needs no index
        pass
    return None
