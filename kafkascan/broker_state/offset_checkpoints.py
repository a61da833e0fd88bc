"""Read the offset checkpoints of data directories, which hold an offset for each partition."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from kafkascan.broker_state.checkpoints import parse_offset_checkpoint
from kafkascan.format.errors import CorruptCheckpointError
from kafkascan.io.folders import Folder


class NamedPartition(Protocol):
    """A partition in a data dir; None if the folder's name is not topic-partition."""

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
    OSError
        If it cannot be read: it is not a regular file, for example.
    """
    try:
        data = data_dir.read(name)
    except NotADirectoryError:
        data = None
    return {} if data is None else parse_offset_checkpoint(data, str(data_dir.path / name))


class CheckpointWarning(UserWarning):
    """An offset checkpoint cannot be read and is ignored, as by brokers."""


def _warn(path: Path, error: Exception) -> None:
    warnings.warn(f"{path} is ignored: {error}", CheckpointWarning, stacklevel=4)


class CheckpointReader:
    """
    Reads the offset checkpoints of data dirs, each once.

    Parameters
    ----------
    on_ignored : callable, optional
        Called with the path and error of each file that cannot be read. By default, that is a
        `CheckpointWarning`.
    """

    def __init__(self, on_ignored: Callable[[Path, Exception], object] = _warn) -> None:
        self._on_ignored = on_ignored
        self._known: dict[tuple[str, str], dict[tuple[str, int], int]] = {}

    def offset_of(self, partition: NamedPartition, name: str) -> int:
        """Return a partition's offset in a checkpoint of its data dir; 0 if it has none there."""
        if partition.topic is None or partition.partition is None:
            return 0
        # Not `Folder.parent`: data dirs have thousands of partitions, and a `Path` takes longer.
        key = os.path.dirname(os.path.abspath(partition.folder.path)), name
        if key not in self._known:
            try:
                self._known[key] = read_offsets(partition.folder.parent, name)
            except (OSError, CorruptCheckpointError) as error:  # brokers ignore such a file
                self._known[key] = {}
                self._on_ignored(partition.folder.parent.path / name, error)
        return self._known[key].get((partition.topic, partition.partition), 0)
