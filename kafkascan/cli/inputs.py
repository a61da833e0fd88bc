"""What the arguments name: files, partition folders, data dirs → segments."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kafkascan import PartitionDir, open_log_dir, partition_dir

PLACE_COLUMNS = ("topic", "partition", "segment")

OnUnreadable = Callable[[str, OSError], None]


@dataclass(frozen=True)
class Input:
    """One segment file, and what its place says about it."""

    path: Path
    partition: PartitionDir
    size: int

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
        partitions = open_log_dir(path).partitions if path.is_dir() else None
    except OSError as error:
        on_unreadable(str(error.filename or path), error)
        return
    if partitions is None:
        yield from _input(path, partition_dir(path.parent), on_unreadable)
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
            yield from _input(segment.path, partition, on_unreadable)
    if not found:
        on_unreadable(str(path), FileNotFoundError(errno.ENOENT, "no segments in this folder"))


def _input(path: Path, partition: PartitionDir, on_unreadable: OnUnreadable) -> Iterator[Input]:
    try:
        yield Input(path, partition, path.stat().st_size)
    except OSError as error:  # a broker may have deleted it since it was listed
        on_unreadable(str(path), error)
