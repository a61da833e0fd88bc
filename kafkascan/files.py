"""Files that are written beside their place, and put there when they are whole."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path
from types import TracebackType
from typing import IO, Self


class AtomicFile:
    """
    Context of a file that replaces `path` at the end, unless an error ends it.

    Parameters
    ----------
    path : Path
        A folder that exists, and a name in it.
    like : Path, optional
        A file or folder whose owner, and if it is a file whose mode, the new file gets, as
        far as the system lets us; by default they are those of any file that is created.

    Attributes
    ----------
    stream : binary file
    """

    def __init__(self, path: Path, *, like: Path | None = None) -> None:
        self._like = like
        # What a link points to is replaced, not the link.
        self._path = Path(os.path.realpath(path))
        self.stream: IO[bytes]

    def __enter__(self) -> Self:
        descriptor, self._temporary = tempfile.mkstemp(
            prefix=f".{self._path.name}.", suffix=".part", dir=self._path.parent
        )
        self.stream = os.fdopen(descriptor, "wb")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._put_in_place()
        finally:
            try:
                self.stream.close()
            finally:
                if os.path.exists(self._temporary):
                    os.unlink(self._temporary)

    def _put_in_place(self) -> None:
        self.stream.flush()
        os.fsync(self.stream.fileno())
        self._set_owner_and_mode()
        os.replace(self._temporary, self._path)
        sync_folder(self._path.parent)

    def _set_owner_and_mode(self) -> None:
        mask = os.umask(0)
        os.umask(mask)
        mode = 0o666 & ~mask
        if self._like is not None:
            if self._like.is_file():
                mode = stat.S_IMODE(self._like.stat().st_mode)
            give_to_owner_of(self._like, self.stream.fileno())
        os.fchmod(self.stream.fileno(), mode)


def give_to_owner_of(path: Path, descriptor: int) -> None:
    """Whoever repairs files as root must leave them to those who use them."""
    owner = path.stat()
    with contextlib.suppress(PermissionError):
        os.fchown(descriptor, owner.st_uid, owner.st_gid)


def sync_folder(folder: Path) -> None:
    """Let what was renamed or removed in a folder outlive a crash."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
