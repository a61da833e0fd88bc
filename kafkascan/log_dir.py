"""Folders of logs: a broker's data dir, the folder of one partition, or a tar of them."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kafkascan.archives import Archive, TarFolder, is_archive
from kafkascan.batch_columns import next_offset
from kafkascan.batches import scan_batches
from kafkascan.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT,
    PARTITION_METADATA,
    LeaderEpoch,
    parse_leader_epochs,
    parse_offset_checkpoint,
    parse_partition_metadata,
)
from kafkascan.folders import DiskFolder, Folder
from kafkascan.names import SegmentName, parse_segment_name, sibling_name
from kafkascan.sources import Source, borrowed_source

# "<topic>-<partition>", or with ".<uuid>-<state>" while a broker moves or drops it
# (LocalLog.parseTopicPartitionName in Kafka).
_PARTITION_DIR = re.compile(
    r"(?P<topic>.+)-(?P<partition>\d+)(?:\.[0-9a-f]{32}-(?P<state>delete|stray|future))?",
    re.DOTALL,
)
# How many there can be; file names may say more.
_OFFSETS = 1 << 63
# Mapping a file takes longer than reading so many bytes of it.
_READ_AT_ONCE = 1 << 14


@dataclass(frozen=True)
class SegmentFile:
    """
    A segment that is not opened.

    Attributes
    ----------
    path : pathlib.Path
        Inside of a tar, no file of the system has it; see `open`.
    name : SegmentName
    folder : Folder
        What it lies in.
    """

    path: Path
    name: SegmentName
    folder: Folder

    @property
    def size(self) -> int:
        """Size of the file now, in bytes."""
        return self.folder.size(self.path.name)

    def open(self, *, memory_map: bool = True) -> Source:
        """Return its bytes; whoever opens them closes them."""
        source = self.folder.source(self.path.name)
        return Source(source, memory_map=memory_map)

    def borrow(self) -> borrowed_source:
        """Return a context of its bytes, which closes what it opens."""
        return borrowed_source(self.folder.source(self.path.name), read_below=_READ_AT_ONCE)

    def read_sibling(self, kind: str) -> tuple[Path, bytes] | None:
        """
        Return path and bytes of the file that accompanies it, None if there is none.

        Parameters
        ----------
        kind : {"index", "timeindex", "txnindex", "snapshot"}
        """
        name = sibling_name(self.path.name, kind)
        data = None if name is None else self.folder.read(name)
        return None if name is None or data is None else (self.path.with_name(name), data)


@dataclass(frozen=True)
class PartitionDir:
    """
    The folder of one partition.

    Attributes
    ----------
    path : pathlib.Path
    topic : str or None
    partition : int or None
        None, both, if the folder is not named as Kafka names partition folders.
    state : str or None
        ``future``, ``delete`` or ``stray`` for a log that is being moved or dropped.
    folder : Folder
        What reads its files.
    """

    path: Path
    topic: str | None
    partition: int | None
    state: str | None
    folder: Folder

    @property
    def segments(self) -> list[SegmentFile]:
        """
        Segments in log order.

        Those on their way out or in (``.deleted``, ``.cleaned``, ``.swap``) stand behind
        the live one of their offset; KRaft snapshots stand last.
        """
        return self._segments(lambda name: True)

    @property
    def log_segments(self) -> list[SegmentFile]:
        """The segments that a broker would read as the log, in order."""
        return self._segments(lambda name: name.is_live and (name.base_offset or 0) < _OFFSETS)

    @property
    def kraft_snapshots(self) -> list[SegmentFile]:
        """The snapshots of a metadata log, in order; each is a log of its own."""
        return self._segments(lambda name: name.kind == "checkpoint" and name.state is None)

    def _segments(self, is_wanted: Callable[[SegmentName], bool]) -> list[SegmentFile]:
        """Return some of the segments in log order; paths are made of those only."""
        found = []
        for name in self.folder.names():
            parsed = parse_segment_name(name)
            if parsed is not None and is_wanted(parsed):
                base_offset = -1 if parsed.base_offset is None else parsed.base_offset
                found.append((parsed.kind != "log", base_offset, name, parsed))
        found.sort(key=lambda one: one[:3])
        return [SegmentFile(self.path / name, parsed, self.folder) for *_, name, parsed in found]

    @property
    def is_log(self) -> bool:
        """Whether a broker would load it: it is not being dropped (it may be moved in)."""
        return self.state in (None, "future")

    @property
    def topic_id(self) -> str | None:
        """
        What ``partition.metadata`` says, None if it is not there (KIP-516).

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
        What ``leader-epoch-checkpoint`` says, None if it is not there.

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

        What the data dir's ``log-start-offset-checkpoint`` says, but not before the first
        segment.

        Raises
        ------
        CorruptCheckpointError
        """
        return self.start_offset(read_offsets(self.folder.parent, LOG_START_CHECKPOINT))

    def start_offset(self, checkpoint: dict[tuple[str, int], int]) -> int | None:
        """Return `log_start_offset`, for those who have read the checkpoint."""
        first = self.log_segments[:1]
        if not first:
            return None
        known = checkpoint.get((self.topic or "", self.partition or 0), 0)
        return max(first[0].name.base_offset or 0, known)

    def find_end_offset(self) -> int | None:
        """
        Return the offset that follows the last batch, from the headers of the last segment.

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


@dataclass(frozen=True)
class LogDir:
    """
    A broker's data dir, one partition's folder taken for itself, or a tar of them.

    Attributes
    ----------
    path : pathlib.Path
    partitions : list of PartitionDir
        By topic and partition.
    """

    path: Path
    partitions: list[PartitionDir]

    def segments(self) -> Iterator[tuple[PartitionDir, SegmentFile]]:
        """Every segment of every partition, in order."""
        for partition in self.partitions:
            for segment in partition.segments:
                yield partition, segment

    def log_segments(self) -> Iterator[tuple[PartitionDir, SegmentFile]]:
        """The segments of the logs that a broker would load, in order."""
        for partition in self.partitions:
            if partition.is_log:
                for segment in partition.log_segments:
                    yield partition, segment


def open_log_dir(path: str | os.PathLike[str], /) -> LogDir:
    """
    Look at a broker's data dir, at the folder of one partition, or at a tar of them.

    Parameters
    ----------
    path : path
        A folder that holds segments is taken as a partition, whatever its name; otherwise
        its folders that hold segments or are named as partitions are. What stands beside
        those (KRaft's ``bootstrap.checkpoint``) comes first, as of the folder itself. Of a
        tar, which is read where it lies, all folders are looked at, however deep they are.

    Returns
    -------
    LogDir

    Raises
    ------
    ArchiveError
        If the tar is compressed, or cannot be read.
    NotADirectoryError, FileNotFoundError, PermissionError
    """
    root = Path(path)
    if is_archive(root):
        return _open_archive(root)
    here = partition_dir(root)
    segments = here.segments
    if any(segment.name.base_offset is not None for segment in segments):
        return LogDir(root, [here])
    with os.scandir(root) as entries:
        found = [partition_dir(entry.path) for entry in entries if entry.is_dir()]
    partitions = [one for one in found if one.topic is not None or _holds_segments(one)]
    # KRaft keeps its bootstrap.checkpoint beside the partitions.
    return LogDir(root, [here] * bool(segments) + sorted(partitions, key=_topic_order))


def is_log_dir(path: Path) -> bool:
    """
    Tell whether a path is that of a folder or of a tar.

    Raises
    ------
    ArchiveError
        If it is that of a compressed tar.
    """
    return path.is_dir() or is_archive(path)


def _open_archive(path: Path) -> LogDir:
    archive = Archive(path)
    found = [_named(TarFolder(archive, name), name) for name in archive.folders]
    partitions = [one for one in found if one.topic is not None or one.segments]
    return LogDir(path, sorted(partitions, key=_topic_order))


def _holds_segments(folder: PartitionDir) -> bool:
    """Tell whether a folder of any name is a partition's; lost+found, say, is not."""
    try:
        return bool(folder.segments)
    except PermissionError:
        return False


def partition_dir(path: str | os.PathLike[str], /) -> PartitionDir:
    """Return what the name of a folder says, whether or not it exists."""
    # The name of a link counts, not that of what it leads to.
    return _named(DiskFolder(path), os.path.abspath(path))


def _named(folder: Folder, path: str) -> PartitionDir:
    match = _PARTITION_DIR.fullmatch(os.path.basename(path))
    if match is None:
        return PartitionDir(folder.path, None, None, None, folder)
    partition = int(match["partition"])
    return PartitionDir(folder.path, match["topic"], partition, match["state"], folder)


def _topic_order(partition: PartitionDir) -> tuple[str, int, str]:
    return partition.topic or "", partition.partition or 0, str(partition.path)


def read_offsets(data_dir: Folder, name: str) -> dict[tuple[str, int], int]:
    """
    Return an offset checkpoint of a data dir; empty if it is not there.

    Raises
    ------
    CorruptCheckpointError
    """
    try:
        data = data_dir.read(name)
    except OSError as error:
        if error.errno not in (errno.EISDIR, errno.ENOTDIR, errno.EINVAL):  # no regular file
            raise
        data = None
    return {} if data is None else parse_offset_checkpoint(data, str(data_dir.path / name))
