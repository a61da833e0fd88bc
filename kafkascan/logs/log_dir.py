"""Directories of logs: a broker's data dir, the folder of a partition, or a tar of them."""

from __future__ import annotations

import enum
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kafkascan.batches.columns import next_offset
from kafkascan.batches.scan import scan_batches
from kafkascan.broker_state.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT,
    PARTITION_METADATA,
    LeaderEpoch,
    parse_leader_epochs,
    parse_partition_metadata,
)
from kafkascan.broker_state.offset_checkpoints import read_offsets
from kafkascan.format.errors import NoLogsError
from kafkascan.format.file_names import SegmentName, parse_segment_name
from kafkascan.io.archives import TarFolder, is_archive, open_archive
from kafkascan.io.folders import DiskFolder, Folder
from kafkascan.logs.segment import SegmentFile

# "<topic>-<partition>", or with ".<uuid>-<state>" while a broker moves or drops it
# (LocalLog.parseTopicPartitionName in Kafka).
_PARTITION_DIR = re.compile(
    r"(?P<topic>.+)-(?P<partition>\d+)(?:\.[0-9a-f]{32}-(?P<state>delete|stray|future))?",
    re.DOTALL,
)
# Offsets are below this; file names may contain larger numbers.
_OFFSETS = 1 << 63
# Subfolders that are examined for a message about a folder without logs.
_MOST_FOLDERS = 256


class SegmentKinds(enum.Flag):
    """Which files of partition folders `select_segments` returns."""

    LOG = enum.auto()
    """Live ``.log`` files: what a broker reads as the log."""

    KRAFT_SNAPSHOTS = enum.auto()
    """Snapshots of a metadata log (``.checkpoint``)."""

    LEFTOVERS = enum.auto()
    """Files on their way out or in (``.deleted``, ``.cleaned``, ``.swap``, ``.part``), and logs
    whose names have an offset that no log can have."""

    DROPPED_LOGS = enum.auto()
    """Files of partitions that are being deleted or are stray, as far as other flags select
    them."""

    ALL = LOG | KRAFT_SNAPSHOTS | LEFTOVERS | DROPPED_LOGS


@dataclass(frozen=True)
class PartitionDir:
    """
    The folder of one partition.

    Attributes
    ----------
    path : pathlib.Path
    topic : str or None
    partition : int or None
        Both are None if the folder is not named as Kafka names partition folders.
    state : str or None
        ``future``, ``delete`` or ``stray`` for a log that is being moved or dropped.
    folder : Folder
        Reads its files.
    """

    path: Path
    topic: str | None
    partition: int | None
    state: str | None
    folder: Folder

    @property
    def segments(self) -> list[SegmentFile]:
        """
        All segments in log order.

        Leftovers (``.deleted``, ``.cleaned``, ``.swap``) follow the live segment of their
        offset; KRaft snapshots come last.
        """
        return select_segments(self, SegmentKinds.ALL)

    @property
    def log_segments(self) -> list[SegmentFile]:
        """The segments that a broker would read as the log, in order."""
        return select_segments(self, SegmentKinds.LOG | SegmentKinds.DROPPED_LOGS)

    @property
    def kraft_snapshots(self) -> list[SegmentFile]:
        """The snapshots of a metadata log, in order; each is a log of its own."""
        return select_segments(self, SegmentKinds.KRAFT_SNAPSHOTS | SegmentKinds.DROPPED_LOGS)

    @property
    def is_log(self) -> bool:
        """Whether a broker would load the log; it is not being deleted, nor stray."""
        return self.state in (None, "future")

    @property
    def topic_id(self) -> str | None:
        """
        The topic id in ``partition.metadata``; None if the file is missing (KIP-516).

        Raises
        ------
        CorruptCheckpointError
        """
        data = self.folder.read(PARTITION_METADATA)
        if data is None:
            return None
        path = str(self.path / PARTITION_METADATA)
        return parse_partition_metadata(data, path).topic_id

    @property
    def leader_epochs(self) -> list[LeaderEpoch] | None:
        """
        The entries of ``leader-epoch-checkpoint``; None if the file is missing.

        Raises
        ------
        CorruptCheckpointError
        """
        data = self.folder.read(LEADER_EPOCH_CHECKPOINT)
        path = str(self.path / LEADER_EPOCH_CHECKPOINT)
        return None if data is None else parse_leader_epochs(data, path)

    @property
    def log_start_offset(self) -> int | None:
        """
        The first offset that a broker serves; None without segments.

        It is the larger one of the first segment's base offset and the offset in the data
        dir's ``log-start-offset-checkpoint``.

        Raises
        ------
        CorruptCheckpointError
        """
        return self.start_offset(read_offsets(self.folder.parent, LOG_START_CHECKPOINT))

    def start_offset(self, checkpoint: dict[tuple[str, int], int]) -> int | None:
        """Return `log_start_offset` by the offsets of a checkpoint that was read already."""
        first = self.log_segments[:1]
        if not first:
            return None
        known = checkpoint.get((self.topic or "", self.partition or 0), 0)
        return max(first[0].name.base_offset or 0, known)

    def find_end_offset(self) -> int | None:
        """
        Return the offset after the last batch, from the headers of the last segment.

        Returns
        -------
        int or None
            None without segments.
        """
        segments = self.log_segments
        for segment in reversed(segments):
            with segment.open() as source:
                batches = scan_batches(source, on_corrupt="stop").batches
            if len(batches):
                return int(next_offset(batches[-1:])[0])
        return segments[-1].name.base_offset if segments else None


def select_segments(
    partition: PartitionDir, include: SegmentKinds = SegmentKinds.LOG
) -> list[SegmentFile]:
    """
    Return the segments of a partition that a command or function reads.

    Parameters
    ----------
    partition : PartitionDir
    include : SegmentKinds, default SegmentKinds.LOG
        The default is what a broker reads: nothing of a log that is being dropped.

    Returns
    -------
    list of SegmentFile
        In log order: by base offset, leftovers after the live segment of their offset, KRaft
        snapshots last.

    Raises
    ------
    OSError
        If the folder cannot be listed.
    """
    if not partition.is_log and SegmentKinds.DROPPED_LOGS not in include:
        return []
    found = []
    for name in partition.folder.names():
        parsed = parse_segment_name(name)
        if parsed is not None and _kind_of(parsed) in include:
            base_offset = -1 if parsed.base_offset is None else parsed.base_offset
            found.append((parsed.kind != "log", base_offset, name, parsed))
    found.sort(key=lambda one: one[:3])
    return [SegmentFile(name, parsed, partition.folder) for *_, name, parsed in found]


def require_segments(partition: PartitionDir) -> list[SegmentFile]:
    """
    Return the live segments of a partition.

    Raises
    ------
    NoLogsError
        If there are none.
    OSError
        If the folder cannot be listed.
    """
    segments = partition.log_segments
    if not segments:
        raise no_logs(partition.path, [partition])
    return segments


def _kind_of(name: SegmentName) -> SegmentKinds:
    if name.state is not None:
        return SegmentKinds.LEFTOVERS
    if name.kind == "checkpoint":
        return SegmentKinds.KRAFT_SNAPSHOTS
    is_possible = (name.base_offset or 0) < _OFFSETS
    return SegmentKinds.LOG if is_possible else SegmentKinds.LEFTOVERS


@dataclass(frozen=True)
class LogDir:
    """
    A broker's data dir, the folder of one partition, or a tar of them.

    Attributes
    ----------
    path : pathlib.Path
    partitions : list of PartitionDir
        By topic and partition.
    """

    path: Path
    partitions: list[PartitionDir]

    @property
    def is_partition(self) -> bool:
        """Whether the path is the folder of a partition."""
        return [one.path for one in self.partitions] == [self.path]

    def segments(self) -> Iterator[tuple[PartitionDir, SegmentFile]]:
        """Every segment of every partition, in order."""
        return self.select(SegmentKinds.ALL)

    def log_segments(self) -> Iterator[tuple[PartitionDir, SegmentFile]]:
        """The segments of the logs that a broker would load, in order."""
        return self.select(SegmentKinds.LOG)

    def select(self, include: SegmentKinds) -> Iterator[tuple[PartitionDir, SegmentFile]]:
        """
        Yield the segments that `select_segments` returns of each partition, in order.

        The log of a partition whose folder is the path is selected even if it is being dropped.
        """
        for partition in self.partitions:
            for segment in select_segments(partition, self.kinds(include)):
                yield partition, segment

    def kinds(self, include: SegmentKinds) -> SegmentKinds:
        """Return the kinds to select, with dropped logs if the path is that of a partition."""
        return include | SegmentKinds.DROPPED_LOGS if self.is_partition else include


def open_log_dir(path: str | os.PathLike[str], /) -> LogDir:
    """
    List the partitions of a broker's data dir, of one partition's folder, or of a tar of them.

    Parameters
    ----------
    path : path
        A folder that contains segments is a partition, whatever its name. Of another folder,
        the subfolders that contain segments or are named as partitions are listed; files next
        to them (KRaft's ``bootstrap.checkpoint``) come first, as a partition without a topic.
        A folder with nothing in it is a partition only if it is named as one. A tar is searched
        at any depth, and is not unpacked.

    Returns
    -------
    LogDir

    Raises
    ------
    NoLogsError
        If there is no partition; it names subfolders that contain some.
    ArchiveError
        If the tar is compressed, or cannot be read.
    NotADirectoryError, FileNotFoundError, PermissionError
    """
    root = Path(path)
    if is_archive(root):
        return _open_archive(root)
    partitions = _find_partitions(root)
    if not partitions:
        raise no_logs(root)
    return LogDir(root, partitions)


def _find_partitions(root: Path) -> list[PartitionDir]:
    here = partition_dir(root)
    segments = here.segments
    if any(segment.name.base_offset is not None for segment in segments):
        return [here]
    with os.scandir(root) as entries:
        found = [partition_dir(entry.path) for entry in entries if entry.is_dir()]
    partitions = [one for one in found if one.topic is not None or _has_segments(one)]
    # KRaft stores bootstrap.checkpoint next to the partitions.
    is_here = bool(segments) or (here.topic is not None and not partitions)
    return [here] * is_here + sorted(partitions, key=_topic_order)


def no_logs(path: Path, partitions: Sequence[PartitionDir] = ()) -> NoLogsError:
    """
    Return the error for a directory or archive without logs to read.

    Parameters
    ----------
    path : Path
    partitions : sequence of PartitionDir
        What it contains instead: partitions without live segments, or that are being dropped.
    """
    others = sum(len(one.segments) for one in partitions)
    if others:
        reason = f"no live segments, only {others} files that a broker does not read as logs"
        return NoLogsError(str(path), reason)
    return NoLogsError(str(path), "no logs here", _subfolders_with_logs(path))


def _subfolders_with_logs(root: Path) -> tuple[str, ...]:
    """Return subfolders that `open_log_dir` could read, from the first level that has some."""
    folders, examined = [root], 0
    while folders and examined < _MOST_FOLDERS:
        inner = [Path(path) for one in folders for path in _subfolders(one)]
        inner = inner[: _MOST_FOLDERS - examined]
        examined += len(inner)
        found = [one for one in inner if _has_logs(one)]
        if found:
            return tuple(sorted(str(one.relative_to(root)) for one in found))
        folders = inner
    return ()


def _subfolders(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(one.path for one in entries if one.is_dir(follow_symlinks=False))
    except OSError:
        return []


def _has_logs(folder: Path) -> bool:
    try:
        return any(one.segments for one in _find_partitions(folder))
    except OSError:
        return False


def is_log_dir(path: Path) -> bool:
    """
    Return whether a path is a folder or a tar.

    Raises
    ------
    ArchiveError
        If it is a compressed tar.
    """
    return path.is_dir() or is_archive(path)


def _open_archive(path: Path) -> LogDir:
    archive = open_archive(path)
    found = [_named(TarFolder(archive, name), name) for name in archive.folders]
    partitions = [one for one in found if one.topic is not None or one.segments]
    if not partitions:
        raise no_logs(path)
    return LogDir(path, sorted(partitions, key=_topic_order))


def _has_segments(folder: PartitionDir) -> bool:
    """Return whether a folder contains segments; ``lost+found`` does not."""
    try:
        return bool(folder.segments)
    except PermissionError:
        return False


def partition_dir(path: str | os.PathLike[str], /) -> PartitionDir:
    """Return the partition that a folder's name stands for, whether or not it exists."""
    # The name of a link counts, not that of its target.
    return _named(DiskFolder(path), os.path.abspath(path))


def _named(folder: Folder, path: str) -> PartitionDir:
    match = _PARTITION_DIR.fullmatch(os.path.basename(path))
    if match is None:
        return PartitionDir(folder.path, None, None, None, folder)
    partition = int(match["partition"])
    return PartitionDir(folder.path, match["topic"], partition, match["state"], folder)


def _topic_order(partition: PartitionDir) -> tuple[str, int, str]:
    return partition.topic or "", partition.partition or 0, str(partition.path)
