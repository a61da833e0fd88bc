"""Read the offset checkpoints of data directories, which hold an offset for each partition."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING

from kafkascan.broker_state.checkpoints import parse_offset_checkpoint
from kafkascan.format.errors import CorruptCheckpointError
from kafkascan.io.folders import Folder

if TYPE_CHECKING:
    from kafkascan.logs.log_dir import PartitionDir


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

    def offset_of(self, partition: PartitionDir, name: str) -> int:
        """Return a partition's offset in a checkpoint of its data dir; 0 if it has none there."""
        if partition.topic is None or partition.partition is None:
            return 0
        data_dir = partition.folder.parent
        path = data_dir.path / name
        if path not in self._known:
            try:
                self._known[path] = read_offsets(data_dir, name)
            except CorruptCheckpointError:  # of the data dir, not of this log
                self._known[path] = {}
        return self._known[path].get((partition.topic, partition.partition), 0)
