"""The identity of a file that was read, to stop before a changed file is replaced or truncated.

A writer that ignores locks (rsync, a broker of another host) may change a file after it was read.
What it wrote would be lost with the file. Each step that replaces a file compares it right before,
so what remains is the time between that comparison and one system call.
"""

from __future__ import annotations

import os
from typing import NamedTuple, Self

from kafkascan.format.errors import FileChangedError

_COMPARED_BYTES = 1 << 12


class FileIdentity(NamedTuple):
    """
    A file as it was before it was read.

    Attributes
    ----------
    path : str
    device, inode : int
    size : int
        In bytes.
    mtime_ns : int
        Time of the last modification.
    position : int
        Position of `data`.
    data : bytes
        Bytes that are compared, too: in a preallocated file, a write keeps the size, and the clock
        of a file system has ticks.
    """

    path: str
    device: int
    inode: int
    size: int
    mtime_ns: int
    position: int = 0
    data: bytes = b""

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> Self:
        """Return the identity of a file; take it before the file is opened to be read."""
        return cls.of_stat(path, os.stat(path))

    @classmethod
    def of_stat(cls, path: str | os.PathLike[str], found: os.stat_result) -> Self:
        """Return the identity of a file by its status."""
        facts = found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
        return cls(os.fspath(path), *facts)

    def with_bytes_at(self, position: int) -> Self:
        """Return the identity with the first bytes from a position on, which are read now."""
        return self._replace(position=position, data=_read_at(self.path, position))

    def require_unchanged(self) -> None:
        """
        Raise an error if the file is not the one that was read, or was written since.

        Raises
        ------
        FileChangedError
        """
        try:
            now = FileIdentity.of(self.path)
            data = _read_at(self.path, self.position) if self.data else b""
        except FileNotFoundError:
            raise FileChangedError(self.path, "it vanished") from None
        if (now.device, now.inode) != (self.device, self.inode):
            raise FileChangedError(self.path, "another file replaced it")
        if now.size != self.size:
            verb = "grew" if now.size > self.size else "shrank"
            reason = f"it {verb} from {self.size} to {now.size} bytes"
            raise FileChangedError(self.path, reason, min(now.size, self.size))
        if now.mtime_ns != self.mtime_ns or data != self.data:
            raise FileChangedError(self.path, "its bytes were written")


def _read_at(path: str, position: int) -> bytes:
    with open(path, "rb") as file:
        return os.pread(file.fileno(), _COMPARED_BYTES, position)


def require_missing(path: str | os.PathLike[str]) -> None:
    """Raise `FileChangedError` if a file exists that did not when its folder was read."""
    if os.path.lexists(path):
        raise FileChangedError(os.fspath(path), "it appeared")
