"""Folders of logs: a broker's data dir, or the folder of one partition."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kafkascan.names import SegmentName, parse_segment_name

# "<topic>-<partition>", or with ".<uuid>-<state>" while a broker moves or drops it
# (LocalLog.parseTopicPartitionName in Kafka).
_PARTITION_DIR = re.compile(
    r"(?P<topic>.+)-(?P<partition>\d+)(?:\.[0-9a-f]{32}-(?P<state>delete|stray|future))?",
    re.DOTALL,
)


@dataclass(frozen=True)
class SegmentFile:
    """A segment on disk that is not opened."""

    path: Path
    name: SegmentName

    @property
    def size(self) -> int:
        """Size of the file now, in bytes."""
        return self.path.stat().st_size


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
    """

    path: Path
    topic: str | None
    partition: int | None
    state: str | None

    @property
    def segments(self) -> list[SegmentFile]:
        """
        Segments in log order.

        Those on their way out or in (``.deleted``, ``.cleaned``, ``.swap``) stand behind
        the live one of their offset; KRaft snapshots stand last.
        """
        found = []
        for entry in os.scandir(self.path):
            name = parse_segment_name(entry.name)
            if name is not None and not entry.is_dir(follow_symlinks=False):
                found.append(SegmentFile(Path(entry.path), name))
        return sorted(found, key=_log_order)


def _log_order(segment: SegmentFile) -> tuple[bool, int, str]:
    name = segment.name
    base_offset = -1 if name.base_offset is None else name.base_offset
    return name.kind != "log", base_offset, str(segment.path)


@dataclass(frozen=True)
class LogDir:
    """
    A broker's data dir, or one partition's folder taken for itself.

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


def open_log_dir(path: str | os.PathLike[str], /) -> LogDir:
    """
    Look at a broker's data dir or at the folder of one partition.

    Parameters
    ----------
    path : path
        A folder that holds segments is taken as a partition, whatever its name; otherwise
        its folders that hold segments or are named as partitions are. What stands beside
        those (KRaft's ``bootstrap.checkpoint``) comes first, as of the folder itself.

    Returns
    -------
    LogDir

    Raises
    ------
    NotADirectoryError, FileNotFoundError, PermissionError
    """
    root = Path(path)
    here = partition_dir(root)
    segments = here.segments
    if any(segment.name.base_offset is not None for segment in segments):
        return LogDir(root, [here])
    found = [partition_dir(entry.path) for entry in os.scandir(root) if entry.is_dir()]
    partitions = [one for one in found if one.topic is not None or _holds_segments(one)]
    # KRaft keeps its bootstrap.checkpoint beside the partitions.
    return LogDir(root, [here] * bool(segments) + sorted(partitions, key=_topic_order))


def _holds_segments(folder: PartitionDir) -> bool:
    """Tell whether a folder of any name is a partition's; lost+found, say, is not."""
    try:
        return bool(folder.segments)
    except PermissionError:
        return False


def partition_dir(path: str | os.PathLike[str], /) -> PartitionDir:
    """Return what the name of a folder says, whether or not it exists."""
    path = Path(path)
    # The name of a link counts, not that of what it leads to.
    match = _PARTITION_DIR.fullmatch(os.path.basename(os.path.abspath(path)))
    if match is None:
        return PartitionDir(path, None, None, None)
    return PartitionDir(path, match["topic"], int(match["partition"]), match["state"])


def _topic_order(partition: PartitionDir) -> tuple[str, int, str]:
    return partition.topic or "", partition.partition or 0, str(partition.path)
