"""Read the offset checkpoints of data directories, which hold an offset for each partition."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from kafkascan.broker_state.checkpoints import parse_offset_checkpoint
from kafkascan.format.errors import CorruptCheckpointError
from kafkascan.io.folders import DiskFolder, Folder


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
    warnings.warn(f"{path} is ignored: {error}", CheckpointWarning, stacklevel=6)


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
        self._folders: dict[str, Folder] = {}

    def offset_of(self, partition: NamedPartition, name: str) -> int:
        """Return a partition's offset in a checkpoint of its data dir; 0 if it has none there."""
        return self.offsets_of(partition, name)[0]

    def offsets_of(self, partition: NamedPartition, *names: str) -> list[int]:
        """Return a partition's offsets in several checkpoints; as `offset_of`."""
        if partition.topic is None or partition.partition is None:
            return [0] * len(names)
        # Not `Folder.parent`: data dirs have thousands of partitions, and a `Path` takes longer.
        data_dir = os.path.dirname(os.path.abspath(partition.folder.path))
        log, found = (partition.topic, partition.partition), []
        for name in names:
            offsets = self._known.get((data_dir, name))
            if offsets is None:
                folder = self._folders[data_dir] = partition.folder.parent
                offsets = self._known[data_dir, name] = self._read(folder, name)
            found.append(offsets.get(log, 0))
        return found

    def have_moved(self) -> bool:
        """Return whether a checkpoint on disk has other offsets by now."""
        now = CheckpointReader(lambda path, error: None)  # which was called for it already
        return any(
            now._read(folder, name) != offsets
            for (data_dir, name), offsets in self._known.items()
            if isinstance(folder := self._folders[data_dir], DiskFolder)
        )

    def _read(self, data_dir: Folder, name: str) -> dict[tuple[str, int], int]:
        try:
            return read_offsets(data_dir, name)
        except (OSError, CorruptCheckpointError) as error:  # brokers ignore such a file
            self._on_ignored(data_dir.path / name, error)
            return {}
