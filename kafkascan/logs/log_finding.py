"""Find logs: in a data dir, the folder of a partition, a tar, or below a URL."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

from kafkascan.format.arguments import require_items
from kafkascan.format.errors import NoLogsError
from kafkascan.format.file_kinds import why_not_a_log
from kafkascan.format.file_names import parse_segment_name
from kafkascan.format.shown_places import shown_url
from kafkascan.io.folders import DiskFolder, Folder, FolderTree
from kafkascan.io.stores.store_folders import UrlFolder, list_folder
from kafkascan.io.stores.stored_objects import is_web_url, open_object
from kafkascan.io.stores.urls import ObjectUrl, Place, UrlPath, as_path, is_url, path_or_url
from kafkascan.logs.log_dir import LogDir, PartitionDir, SegmentKinds, select_segments

SomePlace = TypeVar("SomePlace", bound=Place)

# "<topic>-<partition>", or with ".<uuid>-<state>" while a broker moves or drops it
# (LocalLog.parseTopicPartitionName in Kafka).
_PARTITION_DIR = re.compile(
    r"(?P<topic>.+)-(?P<partition>\d+)(?:\.[0-9a-f]{32}-(?P<state>delete|stray|future))?",
    re.DOTALL,
)
# Subfolders that are examined for a message about a folder without logs, and partitions of each.
_MOST_FOLDERS, _MOST_PARTITIONS = 256, 64


class RemoteLogs(Protocol):
    """Logs in remote storage, such as `TieredLogs`."""

    def join(self, local: LogDir, /) -> LogDir:
        """Return local logs with the remote segments before them."""


def open_log_dir(
    path: Place,
    /,
    *,
    storage_options: Mapping[str, object] | None = None,
    tier: RemoteLogs | Place | None = None,
) -> LogDir:
    """
    List the partitions of a broker's data dir, of one partition's folder, or of a tar of them.

    Parameters
    ----------
    path : path or URL
        A folder that contains segments is a partition, whatever its name. Of another folder,
        the subfolders that contain segments or are named as partitions are listed; files next
        to them (KRaft's ``bootstrap.checkpoint``) come first, as a partition without a topic.
        A folder with nothing in it is a partition only if it is named as one. A tar is searched
        at any depth, and is not unpacked. The folders of a store are prefixes, listed once:
        objects that are replaced or deleted later are errors when they are read.
    storage_options : mapping, optional
        Options of the store, for a URL; see `ObjectUrl`. If `path` is none, those of `tier`.
    tier : TieredLogs, path or URL, optional
        Result of `open_tiered`, or its first argument: the segments in remote storage before the
        first local one are part of each log; see `TieredLogs.join`.

    Returns
    -------
    LogDir

    Raises
    ------
    NoLogsError
        If there is no partition; it names subfolders that contain some.
    ArchiveError
        If the tar is compressed, or cannot be read.
    SourceReadError
        If the store does not answer.
    NotADirectoryError, FileNotFoundError, PermissionError
    """
    if isinstance(tier, (str, os.PathLike, ObjectUrl)):
        is_for_tier = is_url(tier) and not isinstance(path, ObjectUrl) and not is_url(path)
        tier = _open_tier(tier, storage_options if is_for_tier else None)
        storage_options = None if is_for_tier else storage_options
    place = path_or_url(path, storage_options)
    found = find_log_dir(place)
    if found is not None:
        return found if tier is None else tier.join(found)
    if isinstance(place, ObjectUrl):
        raise _not_a_prefix(place)
    return _tree_of(DiskFolder(place))  # raises: it is no folder


def _open_tier(path: Place, storage_options: Mapping[str, object] | None) -> RemoteLogs:
    # The only import from a room above: a log in two places needs no more than two places.
    from kafkascan.tiered import open_tiered

    return open_tiered(path, storage_options=storage_options)


def find_log_dir(path: Place, /) -> LogDir | None:
    """
    Return what `open_log_dir` returns of a folder or a tar; None for any other path.

    Raises
    ------
    As `open_log_dir`.
    """
    place = path_or_url(path)
    if isinstance(place, ObjectUrl):
        listed = list_folder(place)
        return None if listed is None else _tree_of(listed)
    if place.is_dir():
        return _tree_of(DiskFolder(place))
    archive = _open_archive(place) if parse_segment_name(place.name) is None else None
    if archive is None and place.is_dir():  # a broker has moved it here meanwhile
        return _tree_of(DiskFolder(place))
    return archive


def find_partition(path: Place, /) -> PartitionDir | None:
    """
    Return the partition whose folder a path names; None if it is no folder.

    Raises
    ------
    NoLogsError
        If there are no live segments.
    IsADirectoryError
        If it is the folder of several partitions.
    As `open_log_dir`.
    """
    found = find_log_dir(path)
    if found is None:
        return None
    if not any(one.log_segments for one in found.partitions):
        raise no_logs(found.path, found.partitions)
    if not found.is_partition:
        reason = (
            f"{len(found.partitions)} partitions: give one of open_log_dir(…).partitions, or read"
            " the records of all with kafkascan.polars.scan_records"
        )
        raise IsADirectoryError(errno.EISDIR, reason, str(found.path))
    return found.partitions[0]


def _not_a_prefix(url: ObjectUrl) -> OSError:
    """Return the error for a URL that is not one of a prefix."""
    if is_web_url(url.url):
        reason = "a web server lists nothing; give the URL of a segment"
        return NotADirectoryError(errno.ENOTDIR, reason, shown_url(url.url))
    try:
        stored = open_object(url.url, url.storage_options)
    except FileNotFoundError as error:
        return error
    return NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), stored.path)


def _tree_of(root: FolderTree) -> LogDir:
    partitions = _find_partitions(root)
    if not partitions:
        raise no_logs(root.path, root=root)
    return LogDir(root.path, partitions)


def _find_partitions(root: FolderTree) -> list[PartitionDir]:
    here = partition_of(root)
    segments = here.segments
    if any(segment.name.base_offset is not None for segment in segments):
        return [here]
    found = [partition_of(one) for one in root.folders()]
    partitions = [one for one in found if one.topic is not None or _has_segments(one)]
    # KRaft stores bootstrap.checkpoint next to the partitions.
    is_here = bool(segments) or (here.topic is not None and not partitions)
    return [here] * is_here + sorted(partitions, key=_topic_order)


def no_logs(
    path: Path, partitions: Sequence[PartitionDir] = (), *, root: FolderTree | None = None
) -> NoLogsError:
    """
    Return the error for a directory or archive without logs to read.

    Parameters
    ----------
    path : Path
    partitions : sequence of PartitionDir
        What it contains instead: partitions without live segments, or that are being dropped.
    root : FolderTree, optional
        The directory, if it is not on disk.
    """
    tree = root or DiskFolder(path)
    moving = sum(one.is_moving for one in partitions)
    # A segment that a broker would read by now was not there when the logs were listed.
    unread = SegmentKinds.ALL ^ SegmentKinds.LOG
    others = sum(
        len(select_segments(one, unread) if one.is_log else one.segments) for one in partitions
    )
    if moving:
        copies = "a copy" if moving == 1 else f"{moving} copies"
        reason = f"no logs to read, only {copies} that a broker is moving here (-future)"
    elif others:
        files = "1 file" if others == 1 else f"{others} files"
        reason = f"no live segments, only {files} that a broker does not read as logs"
    else:
        reason = _foreign_log(tree) or "no logs here"
    return NoLogsError(str(path), reason, _with_logs(tree))


def _foreign_log(folder: FolderTree) -> str | None:
    """Return what a file is that another system than Kafka names as a log."""
    try:
        names = [name for name in folder.names() if ".log" in name]
    except OSError:
        return None
    found = ((name, why_not_a_log(name, b"")) for name in names)
    return next((f"{name}: {reason}" for name, reason in found if reason is not None), None)


def _with_logs(root: FolderTree) -> tuple[str, ...]:
    """Return the subfolders with logs that a broker reads, of the first level that has some."""
    level, examined = [root], 0
    while level and examined < _MOST_FOLDERS:
        level = [inner for one in level for inner in _inner(one)][: _MOST_FOLDERS - examined]
        examined += len(level)
        found = [one.path for one in level if _has_logs(one)]
        if found:
            return tuple(sorted(str(one.relative_to(root.path)) for one in found))
    return ()


def _inner(folder: FolderTree) -> Sequence[FolderTree]:
    try:
        return folder.folders()
    except OSError:
        return []


def _has_logs(folder: FolderTree) -> bool:
    return any(_is_read(partition_of(one)) for one in _inner(folder)[:_MOST_PARTITIONS])


def _open_archive(path: Path) -> LogDir | None:
    from kafkascan.io.archives import TarFolder, is_archive, open_archive

    if not is_archive(path):
        return None
    archive = open_archive(path)
    found = [partition_of(TarFolder(archive, name), name) for name in archive.folders]
    partitions = [one for one in found if one.topic is not None or one.segments]
    if not partitions:
        raise no_logs(path)
    return LogDir(path, sorted(partitions, key=_topic_order))


def _is_read(partition: PartitionDir) -> bool:
    """Return whether a broker reads segments of a folder."""
    try:
        return bool(select_segments(partition))
    except OSError:
        return False


def _has_segments(folder: PartitionDir) -> bool:
    """Return whether a folder contains segments; ``lost+found`` does not."""
    try:
        return bool(folder.segments)
    except OSError:
        return False


def partition_dir(path: str | os.PathLike[str], /) -> PartitionDir:
    """Return the partition that a folder's name stands for, whether or not it exists."""
    return partition_of(folder_at(as_path(path)))


def folder_at(path: Path) -> Folder:
    """Return the folder of a path or URL, which is asked at every call."""
    return UrlFolder(ObjectUrl(os.fspath(path))) if isinstance(path, UrlPath) else DiskFolder(path)


def partition_of(folder: Folder, path: str | None = None) -> PartitionDir:
    """Return the partition of a folder, by the folder's name or another one."""
    # The name of a link counts, not that of its target.
    name = os.path.basename(os.path.abspath(folder.path) if path is None else path)
    match = _PARTITION_DIR.fullmatch(name)
    if match is None:
        return PartitionDir(folder.path, None, None, None, folder)
    partition = int(match["partition"])
    return PartitionDir(folder.path, match["topic"], partition, match["state"], folder)


def _topic_order(partition: PartitionDir) -> tuple[str, int, str]:
    return partition.topic or "", partition.partition or 0, str(partition.path)


@dataclass(frozen=True)
class PartitionFilter:
    """
    The partitions to read in directories and archives.

    Attributes
    ----------
    topics : frozenset of str, or None
    numbers : frozenset of int, or None
        Each is all, if it is None.
    """

    topics: frozenset[str] | None = None
    numbers: frozenset[int] | None = None

    @classmethod
    def of(
        cls, topics: Collection[str] | None = None, partitions: Collection[int] | None = None
    ) -> PartitionFilter:
        """
        Return the filter of arguments.

        Raises
        ------
        TypeError
            If they are no collections of str and int.
        """
        require_items(str, topics=topics)
        require_items(int, partitions=partitions)
        return cls(
            None if topics is None else frozenset(topics),
            None if partitions is None else frozenset(partitions),
        )

    @property
    def is_given(self) -> bool:
        """Whether it may leave out a partition."""
        return self.topics is not None or self.numbers is not None

    def has(self, topic: str | None, number: int | None) -> bool:
        """Return whether a partition is to be read."""
        is_topic = self.topics is None or topic in self.topics
        return is_topic and (self.numbers is None or number in self.numbers)

    def partitions(self, log_dir: LogDir) -> LogDir:
        """
        Return the wanted partitions of a directory or archive.

        Raises
        ------
        NoLogsError
            If the filter leaves out all of them.
        """
        if not self.is_given:
            return log_dir
        found = [one for one in log_dir.partitions if self.has(one.topic, one.partition)]
        if not found:
            raise self.nothing_in(str(log_dir.path))
        return replace(log_dir, partitions=found)

    def nothing_in(self, path: str) -> NoLogsError:
        """Return the error that none of the wanted partitions is in a place."""
        numbers = (f"number {one}" for one in sorted(self.numbers or ()))
        names = ", ".join([*sorted(self.topics or ()), *numbers]) or "no topic or number"
        return NoLogsError(path, f"no partitions of {names} here")

    def select(self, place: SomePlace) -> SomePlace | LogDir:
        """Return the place, or the wanted `partitions` of a directory or archive."""
        log_dir = find_log_dir(place) if self.is_given else None
        return place if log_dir is None else self.partitions(log_dir)


ALL_PARTITIONS = PartitionFilter()
