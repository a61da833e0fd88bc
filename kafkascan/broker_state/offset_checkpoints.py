"""Read the offset checkpoints of data directories, which hold an offset for each partition."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Protocol

from kafkascan.broker_state.checkpoints import parse_offset_checkpoint
from kafkascan.format.errors import CorruptCheckpointError
from kafkascan.io.folders import Folder


class NamedPartition(Protocol):
    """A partition in a data dir; None stands for a folder that is not named as one."""

    @property
    def topic(self) -> str | None:
        """Name of the topic."""

    @property
    def partition(self) -> int | None:
        """Number of the partition."""

    @property
    def folder(self) -> Folder:
        """The folder of the partition, inside of the data dir."""


def read_offsets(data_dir: Folder, name: str) -> dict[tuple[str, int], int]:
    """
    Read an offset checkpoint of a data dir; the result is empty if the file is missing.

    Raises
    ------
    CorruptCheckpointError
    """
    try:
        data = data_dir.read(name)
    except OSError as error:
        if error.errno not in (errno.EISDIR, errno.ENOTDIR, errno.EINVAL):  # not a regular file
            raise
        data = None
    return {} if data is None else parse_offset_checkpoint(data, str(data_dir.path / name))


class CheckpointReader:
    """Reads the offset checkpoints of data dirs, each once."""

    def __init__(self) -> None:
        self._known: dict[Path, dict[tuple[str, int], int]] = {}

    def offset_of(self, partition: NamedPartition, name: str) -> int:
        """Return a partition's offset in a checkpoint of its data dir; 0 if it has none there."""
        if partition.topic is None or partition.partition is None:
            return 0
        data_dir = partition.folder.parent
        path = data_dir.path / name
        if path not in self._known:
            try:
                self._known[path] = read_offsets(data_dir, name)
            except (OSError, CorruptCheckpointError):  # brokers ignore such a file
                self._known[path] = {}
        return self._known[path].get((partition.topic, partition.partition), 0)
