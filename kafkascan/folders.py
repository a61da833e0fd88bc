"""Where the files of a log lie: a folder on disk, or one inside of a tar."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Protocol

from kafkascan.sources import OPEN_FLAGS, SourceLike, regular_size


class Folder(Protocol):
    """
    Files by name, wherever they are.

    Attributes
    ----------
    path : pathlib.Path
        What messages call it; inside of a tar, the tar's path and the folder's in it.
    """

    path: Path

    @property
    def parent(self) -> Folder:
        """The folder around it."""

    def names(self) -> list[str]:
        """Return the names of the files in it, sorted."""

    def size(self, name: str) -> int:
        """Return the size of a file now, in bytes."""

    def source(self, name: str) -> SourceLike:
        """Return what a `Source` is made of."""

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a small file, None if it is not there."""


class DiskFolder:
    """
    A folder on disk; what lies in it is looked up when it is asked for.

    Parameters
    ----------
    path : path
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._prefix = os.path.join(os.fspath(path), "")

    @property
    def parent(self) -> DiskFolder:
        """The folder around it."""
        return DiskFolder(Path(os.path.abspath(self.path)).parent)

    def names(self) -> list[str]:
        """Return the names of the files in it, sorted; links to folders count as files."""
        with os.scandir(self.path) as entries:
            return sorted(one.name for one in entries if not one.is_dir(follow_symlinks=False))

    def size(self, name: str) -> int:
        """Return the size of a file now, in bytes."""
        return os.stat(self._prefix + name).st_size

    def source(self, name: str) -> SourceLike:
        """Return the path of a file."""
        return self._prefix + name

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a small file, None if it is not there."""
        path = self._prefix + name
        try:
            descriptor = os.open(path, OPEN_FLAGS)
        except FileNotFoundError:
            return None
        try:
            size = regular_size(descriptor, path)
            data = os.read(descriptor, size)
            while len(data) < size and (piece := os.read(descriptor, size - len(data))):
                data += piece
            return data
        finally:
            os.close(descriptor)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DiskFolder) and other.path == self.path

    def __hash__(self) -> int:
        return hash(self.path)

    def __repr__(self) -> str:
        return f"DiskFolder({str(self.path)!r})"


def missing_file(path: Path) -> FileNotFoundError:
    """Return the error for a file that a folder does not have."""
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
