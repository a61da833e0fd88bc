"""A file that is written beside its place, and put there when it is whole."""

from __future__ import annotations

import os
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

    Attributes
    ----------
    stream : binary file
    """

    def __init__(self, path: Path) -> None:
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
        mask = os.umask(0)
        os.umask(mask)
        os.fchmod(self.stream.fileno(), 0o666 & ~mask)
        os.replace(self._temporary, self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
