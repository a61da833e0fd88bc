"""What the arguments name: files, partition folders, data dirs → segments."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kafkascan import PartitionDir, SegmentFile, SegmentName, open_log_dir, partition_dir
from kafkascan.log_dir import is_log_dir
from kafkascan.sources import SourceLike

PLACE_COLUMNS = ("topic", "partition", "segment")

_NO_NAME = SegmentName(None, None, "log", None)
OnUnreadable = Callable[[str, OSError], None]


@dataclass(frozen=True)
class Input:
    """One segment file, and what its place says about it."""

    path: Path
    partition: PartitionDir
    size: int
    source: SourceLike

    @property
    def place(self) -> dict[str, object]:
        """Where rows come from: the values of `PLACE_COLUMNS`."""
        values = (self.partition.topic, self.partition.partition, self.path.name)
        return dict(zip(PLACE_COLUMNS, values, strict=True))


def find_inputs(path: Path, on_unreadable: OnUnreadable) -> Iterator[Input]:
    """
    Return the segments that a path stands for.

    Whatever cannot be looked at, or holds no segments at all, is told to `on_unreadable`;
    the rest goes on.
    """
    try:
        partitions = open_log_dir(path).partitions if is_log_dir(path) else None
    except OSError as error:
        on_unreadable(str(error.filename or path), error)
        return
    if partitions is None:
        here = partition_dir(path.parent)
        yield from _input(SegmentFile(path, _NO_NAME, here.folder), here, on_unreadable)
        return
    found = False
    for partition in partitions:
        try:
            segments = partition.segments
        except OSError as error:
            on_unreadable(str(partition.path), error)
            found = True
            continue
        for segment in segments:
            found = True
            yield from _input(segment, partition, on_unreadable)
    if not found:
        on_unreadable(str(path), FileNotFoundError(errno.ENOENT, "no segments in this folder"))


def _input(
    segment: SegmentFile, partition: PartitionDir, on_unreadable: OnUnreadable
) -> Iterator[Input]:
    try:
        source = segment.folder.source(segment.path.name)
        yield Input(segment.path, partition, segment.size, source)
    except OSError as error:  # a broker may have deleted it since it was listed
        on_unreadable(str(segment.path), error)
