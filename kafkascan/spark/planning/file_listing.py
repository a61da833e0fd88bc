"""List and open segment files in local folders and object stores."""

from __future__ import annotations

import errno
import fnmatch
import glob
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from urllib.parse import unquote, urlsplit

from kafkascan.format.errors import NoLogsError, SourceReadError
from kafkascan.format.file_names import SegmentName, parse_segment_name, sibling_name
from kafkascan.io.folders import DiskFolder
from kafkascan.io.sources import Source, SourceLike
from kafkascan.io.stores.object_stores import FsspecStore, Listed, ObjectStore, PyArrowStore
from kafkascan.logs.log_dir import PartitionDir
from kafkascan.logs.log_finding import open_log_dir, partition_dir
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.planning.index_hints import IndexHints
from kafkascan.spark.planning.log_starts import LogStarts
from kafkascan.spark.planning.tiered_files import (
    ObjectTierStore,
    listed_store,
    local_store,
    open_chunked,
    read_listed,
)
from kafkascan.tiered.tier_files import ChunkedFile, PlainFile
from kafkascan.tiered.tier_listing import TieredLogs
from kafkascan.tiered.tier_store import TierStore

NO_TOPIC, NO_PARTITION, NO_BASE_OFFSET = "", -1, -1
"""Values for a file whose folder is not named topic-partition, or whose name is not an offset."""


@dataclass(frozen=True, slots=True)
class FoundFile:
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
    index_size : int
        Size of the ``.index`` object next to an object; 0 if it was not listed.
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
    """

    path: str
    topic: str
    partition: int
    base_offset: int
    size: int
    modified_ns: int | None
    index_size: int = 0
    log_start_offset: int = 0
    etag: str = ""
    is_named: bool = False
    first_offset: int = 0
    end_offset: int | None = None
    tier: str | None = None
    stored_size: int = 0

    @property
    def folder(self) -> str:
        """The folder that contains the file."""
        return self.path.rpartition("/")[0]

    @property
    def is_local(self) -> bool:
        """Whether the file is in a file system of this machine, not in an object store."""
        return "://" not in self.path and self.tier is None


def list_files(options: Options) -> list[FoundFile]:
    """
    List the segments that the options' paths select, ordered by log and base offset.

    A folder selects its live segments, as a broker would load them. A path or glob of files
    selects them whatever their names are. No file is opened.

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
    found: dict[str, FoundFile] = {}
    starts = LogStarts(options)
    for path in options.paths:
        try:
            listed = list(_list_path(path, options, starts))
            if not listed:
                raise NoLogsError(path, "no live segments")
        except FileNotFoundError:
            if not options.ignore_missing_files:
                raise
        else:
            found |= {file.path: file for file in listed if file.path not in found}
    pattern = options.path_glob_filter
    selected: Iterable[FoundFile] = found.values()
    if pattern is not None:
        selected = [
            one for one in selected if fnmatch.fnmatchcase(os.path.basename(one.path), pattern)
        ]
    return sorted(selected, key=lambda one: (one.topic, one.partition, one.folder, one.base_offset))


def open_file(file: FoundFile, options: Options, bulk_stop: int = 0) -> Source:
    """
    Open a file with the size it had when it was listed; bytes appended since are not visible.

    Parameters
    ----------
    file : FoundFile
    options : Options
    bulk_stop : int, default 0
        Up to this position, the caller reads all bytes and not only headers. This matters for
        objects of stores.

    Raises
    ------
    FileNotFoundError
        If it was deleted.
    SourceReadError
        If it was truncated: a cut between two batches looks like the end of the log.
    """
    source = open_current(file, options, bulk_stop)
    if source.size < file.size:
        reason = f"the file was truncated from {file.size} to {source.size} bytes since the listing"
        raise SourceReadError(file.path, source.size, reason)
    return source


def open_current(file: FoundFile, options: Options, bulk_stop: int = 0) -> Source:
    """Open a file as `open_file` does, but also if it was truncated since it was listed."""
    if file.tier is not None:
        return Source(_open_chunked(file, file.tier, options))
    if not file.is_local:
        return Source(store_of(file.path, options).open(file.path, file.size, bulk_stop))
    try:
        return Source(file.path, max_size=file.size)
    except OSError as error:
        # spark.executor.pyspark.memory limits the address space, so a map may not fit.
        if error.errno != errno.ENOMEM:
            raise
    return Source(file.path, memory_map=False, max_size=file.size)


def _list_path(path: str, options: Options, starts: LogStarts) -> Iterator[FoundFile]:
    scheme = urlsplit(path).scheme if "://" in path else ""
    if scheme not in ("", "file"):
        listed = _list_objects if options.tiered_layout is None else _list_stored_tier
        return listed(path, options, starts)
    local = unquote(urlsplit(path).path) if scheme else path.removeprefix("file:")
    if options.tiered_layout is not None:
        tier = read_listed(local_store(os.path.abspath(local)), options)
        return _tier_files(tier, {}, starts)
    return _list_local(os.path.abspath(local), starts)


# ---- local -------------------------------------------------------------------------------


def _list_local(path: str, starts: LogStarts) -> Iterator[FoundFile]:
    named = [path]
    if glob.has_magic(path) and not os.path.lexists(path):
        named = sorted(glob.glob(path))
        if not named:
            raise FileNotFoundError(errno.ENOENT, "no file matches", path)
    for one in named:
        if os.path.isdir(one):
            yield from _list_folder(one, starts)
        else:
            folder, status = partition_dir(os.path.dirname(one)), os.stat(one)
            name = parse_segment_name(os.path.basename(one))
            found = _found(one, folder, name, status.st_size, status.st_mtime_ns)
            yield replace(found, log_start_offset=starts.of_named_file(), is_named=True)


def _list_folder(path: str, starts: LogStarts) -> Iterator[FoundFile]:
    for partition in open_log_dir(path).partitions:
        if partition.state is not None:
            continue
        log_start_offset = starts.of_folder(partition)
        with os.scandir(partition.path) as entries:
            for entry in entries:
                name = parse_segment_name(entry.name)
                if name is None or not name.is_live or not entry.is_file():
                    continue
                try:
                    status = entry.stat()
                except FileNotFoundError:  # deleted by a broker since the folder was read
                    continue
                times = (status.st_size, status.st_mtime_ns)
                yield _found(entry.path, partition, name, *times, log_start_offset)


def _found(
    path: str,
    place: PartitionDir,
    name: SegmentName | None,
    size: int,
    modified_ns: int | None,
    log_start_offset: int = 0,
) -> FoundFile:
    base_offset = None if name is None else name.base_offset
    return FoundFile(
        path,
        NO_TOPIC if place.topic is None else place.topic,
        NO_PARTITION if place.partition is None else place.partition,
        NO_BASE_OFFSET if base_offset is None else base_offset,
        size,
        modified_ns,
        log_start_offset=log_start_offset,
    )


# ---- object stores -----------------------------------------------------------------------


def _list_objects(url: str, options: Options, starts: LogStarts) -> Iterator[FoundFile]:
    store = store_of(url, options)
    are_named, listed = store.list(url)
    if not listed:
        raise FileNotFoundError(errno.ENOENT, "no object exists at", url)
    sizes = {one.url: one.size for one in listed}
    starts.add_listing(store.listed_url(url), sizes)
    for one in listed:
        folder, _, name = one.url.rpartition("/")
        parsed = parse_segment_name(name)
        place = partition_dir("/" + folder.rpartition("/")[2])
        is_live = parsed is not None and parsed.is_live and place.state is None
        if are_named or is_live:
            start = starts.of_named_file() if are_named else starts.of_objects(store, folder, place)
            found = _found(one.url, place, parsed, one.size, one.modified_ns, start)
            index_size = sizes.get(_index_of(one.url), 0)
            yield replace(found, index_size=index_size, etag=one.etag, is_named=are_named)


def _list_stored_tier(url: str, options: Options, starts: LogStarts) -> Iterator[FoundFile]:
    store, listed = listed_store(store_of(url, options), url)
    return _tier_files(read_listed(store, options), listed, starts)


def _tier_files(
    tier: TieredLogs, listed: Mapping[str, Listed], starts: LogStarts
) -> Iterator[FoundFile]:
    """Yield the logs in remote storage: objects with the bytes of a log, and chunked ones."""
    for one in tier.remote_segments:
        stored = one.log.stored if isinstance(one.log, ChunkedFile) else one.log
        assert isinstance(stored, PlainFile)
        key = stored.item.key
        known = listed.get(key)
        yield FoundFile(
            path=f"{tier.path}/{key}",
            topic=one.topic,
            partition=one.partition,
            base_offset=one.base_offset,
            size=one.size,
            modified_ns=None if known is None else known.modified_ns,
            log_start_offset=starts.of_named_file(),
            etag="" if known is None else known.etag,
            tier=None if stored is one.log else str(tier.path),
            stored_size=stored.item.size,
        )


def _open_chunked(file: FoundFile, tier: str, options: Options) -> SourceLike:
    key = file.path.removeprefix(f"{tier}/")
    store: TierStore = local_store(tier)
    if "://" in tier:
        store = ObjectTierStore(store_of(tier, options), tier, {})
    return open_chunked(store, key, file.stored_size, options)


def _index_of(url: str) -> str:
    folder, slash, name = url.rpartition("/")
    return f"{folder}{slash}{sibling_name(name, 'index')}"


def read_hints(file: FoundFile, options: Options) -> IndexHints | None:
    """Read the index next to a file; None if it has none, or one that is damaged."""
    if file.base_offset == NO_BASE_OFFSET:
        return None
    try:
        data = _read_index(file, options)
    except OSError:  # there is none, or no longer: a walk from the beginning needs no index
        return None
    return IndexHints.parse(data, file.base_offset) if data else None


def _read_index(file: FoundFile, options: Options) -> bytes | None:
    index = _index_of(file.path)
    if file.is_local:
        folder, _, name = index.rpartition("/")
        return DiskFolder(folder).read(name)
    if not file.index_size:
        return None
    reader = store_of(index, options).open(index, file.index_size, file.index_size)
    return bytes(Source(reader).window(0, file.index_size))


def store_of(url: str, options: Options) -> ObjectStore:
    """Return the object store of a URL."""
    scheme = urlsplit(url).scheme
    settings = json.loads(options.storage_options)
    if options.filesystem == "pyarrow":
        return PyArrowStore.connect(scheme, settings)
    return FsspecStore.connect(scheme, settings)
