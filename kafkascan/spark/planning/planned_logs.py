"""Logs as of one moment: the driver lists them, and every pass over them reads these files.

A view is plain data, without credentials of stores, and small: the plan of a fleet has a hundred
thousand segments, of which each task has its own.
"""

from __future__ import annotations

import errno
import json
import os
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from kafkascan.format.errors import CHANGED_WHILE_READ, FileGoneError, SourceReadError
from kafkascan.format.file_names import sibling_name
from kafkascan.io.folders import DiskFolder
from kafkascan.io.source_protocols import FilePins, PinnedFile
from kafkascan.io.sources import Source, SourceLike
from kafkascan.io.stores.prefetching_reader import PrefetchingReader
from kafkascan.io.stores.store_folders import read_stored
from kafkascan.io.stores.stored_objects import open_object
from kafkascan.io.stores.urls import ObjectUrl, is_url
from kafkascan.spark.options.option_values import TopicPartition
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.planning.range_walk import IndexHints
from kafkascan.tiered.aiven_layout import open_chunked_log
from kafkascan.tiered.data_keys import KeyRing
from kafkascan.tiered.tier_store import FolderStore, PrefixStore, TierStore

NO_TOPIC, NO_PARTITION, NO_BASE_OFFSET = "", -1, -1
"""Values for a file whose folder is not named topic-partition, or whose name is not an offset."""


class PlannedSegment(NamedTuple):
    """
    A segment file of a log as of one moment; it is not open.

    Attributes
    ----------
    path : str
        Path of a local file, or URL of an object.
    base_offset : int
        From its name, or `NO_BASE_OFFSET`.
    size : int
        Size in bytes when it was listed.
    modified_ns : int or None
        Time of modification, in nanoseconds since the epoch.
    inode : int
        Of a local file; 0 for others.
    etag : str
        The store's identifier of the content of an object, if it has one.
    has_index : bool
        Whether an ``.index`` object was listed next to an object.
    tier : str or None
        Path or URL of the remote storage, if the object is compressed or encrypted: its manifest
        says how.
    is_named : bool
        Whether the file is given as such, and not found in a folder: all of it is read.
    first_offset : int
        Offsets before it are read from segments before this one; see `read_once`.
    end_offset : int or None
        The offset after the last batch, if the driver looked it up.
    """

    path: str
    base_offset: int
    size: int
    modified_ns: int | None = None
    inode: int = 0
    etag: str = ""
    has_index: bool = False
    tier: str | None = None
    is_named: bool = False
    first_offset: int = 0
    end_offset: int | None = None

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

    def is_in_place(self) -> bool:
        """Return whether a local file still has its name; True if a store has it, or had it."""
        try:
            return not self.is_local or self.is_of(os.stat(self.path))
        except OSError:
            return False

    def is_of(self, now: os.stat_result) -> bool:
        """Return whether a status is that of the file, or of its copy on another host."""
        is_copy = (now.st_size, now.st_mtime_ns) == (self.size, self.modified_ns)
        return is_copy or self.inode in (0, now.st_ino)


@dataclass(frozen=True, slots=True)
class PlannedLog:
    """
    A log as of one moment: of a folder, a store or remote storage, or files that are given.

    Attributes
    ----------
    partition : tuple of str and int
        The topic and the partition, or `NO_TOPIC` and `NO_PARTITION`.
    segments : tuple of PlannedSegment
        At least one, in offset order.
    log_start_offset : int
        The log start offset (``DeleteRecords``): a broker serves no record before it. 0 for
        files that are given as such, and for a log whose data dir has no such offset.
    """

    partition: TopicPartition
    segments: tuple[PlannedSegment, ...]
    log_start_offset: int = 0

    @property
    def folder(self) -> str:
        """The folder that contains the files."""
        return self.segments[0].folder

    @property
    def start_offset(self) -> int:
        """The first offset that is read: by default, as a broker has it."""
        return max(self.segments[0].base_offset, self.log_start_offset)

    @property
    def served_segments(self) -> Sequence[PlannedSegment]:
        """The segments that may contain the start offset or later ones."""
        bases = [segment.base_offset for segment in self.segments]
        return self.segments[max(0, bisect_right(bases, self.start_offset) - 1) :]


def open_file(file: PlannedSegment, options: Options, bulk_stop: int = 0) -> Source:
    """
    Open a file with the size it had when it was listed; bytes appended since are not visible.

    Parameters
    ----------
    file : PlannedSegment
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


def open_current(file: PlannedSegment, options: Options, bulk_stop: int = 0) -> Source:
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


def _as_listed(file: PlannedSegment) -> SourceLike:
    """Return a local file that was listed, also if a broker renames it until it is opened."""
    if not file.inode:  # in remote storage, which does not change files
        return file.path
    pins = FilePins({file.name: file.inode}, opened={file.name})
    with suppress(FileNotFoundError):
        now = os.stat(file.path)
        if file.is_of(now):
            pins.inodes[file.name] = now.st_ino
        # Some network file systems give a file another inode each time.
        pins.are_stable = now.st_ino == file.inode or os.stat(file.path).st_ino == now.st_ino
    return PinnedFile(file.path, file.name, pins)


def store_settings(options: Options) -> dict[str, object]:
    """Return the options of the store, for URLs."""
    settings: dict[str, object] = json.loads(options.storage_options)
    return settings


def _open_chunked(file: PlannedSegment, tier: str, options: Options) -> SourceLike:
    store: TierStore = FolderStore(tier)
    if is_url(tier):
        store = PrefixStore(ObjectUrl(tier, store_settings(options)), is_listed=False)
    key = file.path.removeprefix(f"{tier}/")
    return open_chunked_log(store, key, KeyRing(json.loads(options.tiered_keys)))


def read_hints(file: PlannedSegment, options: Options) -> IndexHints | None:
    """Read the index next to a file; None if it has none, or one that is damaged."""
    if file.base_offset == NO_BASE_OFFSET:
        return None
    data = _read_index(file, options)
    return IndexHints.parse(data, file.base_offset) if data else None


def _read_index(file: PlannedSegment, options: Options) -> bytes | None:
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
