"""Files that are written beside their place, and put there when they are whole."""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import IO, Self

# Files that are on their way to the disk at once, and open meanwhile.
_SYNCED_AT_ONCE = 64
# Nobody waits for the writer of a pipe that has the name of a file.
_READ_ONLY = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
# Asked for once: there is no way to ask without changing it for all threads.
_MASK = os.umask(0)
os.umask(_MASK)


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
        self._path = behind_link(path)
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
                self.sync()
                self.put_in_place()
                sync_folder(self.folder)
        finally:
            self.discard()

    @property
    def folder(self) -> Path:
        """Where the file lies; that of its target, if the path is a link."""
        return self._path.parent

    @property
    def written(self) -> Path:
        """Where the bytes are until they are put in place."""
        return Path(self._temporary)

    def start_sync(self) -> None:
        """Let the system write the bytes while others are being written, where it can be told."""
        self.stream.flush()
        if hasattr(os, "posix_fadvise"):
            # Linux starts to write what is not to stay in its memory, and does not wait for it.
            with contextlib.suppress(OSError):  # it is advice, which not all file systems take
                os.posix_fadvise(self.stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def sync(self) -> None:
        """Let the bytes, the owner and the mode outlive a crash; there will be no more bytes."""
        self.stream.flush()
        self._set_owner_and_mode()
        os.fsync(self.stream.fileno())
        self.stream.close()

    def put_in_place(self) -> None:
        """Replace what is there; the folder is to be synced afterwards."""
        os.replace(self._temporary, self._path)

    def discard(self) -> None:
        """Close the file; it is taken away unless it is in its place."""
        with contextlib.suppress(OSError):  # a full disk does not take what is still to be written
            self.stream.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._temporary)

    def _set_owner_and_mode(self) -> None:
        mode, descriptor = 0o666 & ~_MASK, self.stream.fileno()
        if self._like is not None:
            like = os.stat(self._like)
            if stat.S_ISREG(like.st_mode):
                mode = stat.S_IMODE(like.st_mode)
            _give_to_owner_of(like, descriptor)
        os.fchmod(descriptor, mode)


def replace_files(
    files: Iterable[tuple[Path, bytes, Path]], before: Callable[[Path], object]
) -> None:
    """
    Replace some files, each of them at once; what they wait for, they wait for together.

    Parameters
    ----------
    files : iterable of (Path, bytes, Path)
        Their paths, their bytes, and files or folders whose owner and mode they get.
    before : callable
        Called with each path before the file there is replaced, when all are written.
    """
    written: list[tuple[Path, AtomicFile]] = []
    left = iter(files)
    try:
        # Those that are open at once are few: a process may have no more than some hundreds.
        while some := list(itertools.islice(left, _SYNCED_AT_ONCE)):
            start = len(written)
            for path, data, like in some:
                written.append((path, AtomicFile(path, like=like).__enter__()))
                written[-1][1].stream.write(data)
                written[-1][1].start_sync()
            for _, file in written[start:]:
                file.sync()
        for path, file in written:
            before(path)
            file.put_in_place()
    finally:
        for _, file in written:
            file.discard()
        # What `before` kept of a file behind a link is beside the link.
        for folder in {folder for path, file in written for folder in (path.parent, file.folder)}:
            sync_folder(folder)


def read_up_to(path: str, size: int) -> bytes:
    """Return the first bytes of a file; for the small ones, it takes a third of `open`."""
    descriptor = os.open(path, _READ_ONLY)
    try:
        pieces = [os.read(descriptor, size)]
        while pieces[-1] and (missing := size - sum(map(len, pieces))) > 0:
            pieces.append(os.read(descriptor, missing))
    finally:
        os.close(descriptor)
    return b"".join(pieces)


def holds(path: str, data: bytes) -> bool:
    """Tell whether a file has these bytes and no others; False if there is no file."""
    try:
        descriptor = os.open(path, _READ_ONLY)
    except FileNotFoundError:
        return False
    try:
        found = os.read(descriptor, len(data) + 1)
        while found and (more := os.read(descriptor, max(0, len(data) + 1 - len(found)))):
            found += more
    finally:
        os.close(descriptor)
    return found == data


def behind_link(path: Path) -> Path:
    """Return what a link points to, which is what is replaced; other paths as they are."""
    return Path(os.path.realpath(path)) if os.path.islink(path) else path


def give_to_owner_of(path: Path, descriptor: int) -> None:
    """Whoever repairs files as root must leave them to those who use them."""
    _give_to_owner_of(os.stat(path), descriptor)


def _give_to_owner_of(like: os.stat_result, descriptor: int) -> None:
    now = os.fstat(descriptor)
    if (like.st_uid, like.st_gid) == (now.st_uid, now.st_gid):
        return
    try:
        os.fchown(descriptor, like.st_uid, like.st_gid)
    except PermissionError:  # only root gives files away, but all may to a group they are in
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, -1, like.st_gid)


def adopt_folder(folder: Path, *, like: Path) -> None:
    """
    Give a folder that was made as a temporary one the mode of any folder that is created.

    It and its files get the owner of another one, as far as the system lets us, and are durable.
    """
    for path in (*folder.iterdir(), folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            give_to_owner_of(like, descriptor)
        finally:
            os.close(descriptor)
    folder.chmod(0o777 & ~_MASK)
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Let what was renamed or removed in a folder outlive a crash."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
