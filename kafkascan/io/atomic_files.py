"""Atomic file replacement: write to a temporary file, fsync, rename."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from kafkascan.io.file_identity import FileIdentity

# Number of files that are synced concurrently, and open meanwhile.
_SYNCED_TOGETHER = 64
# Opening a FIFO must not wait for a writer.
_READ_ONLY = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_NEW_FILE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
# Number of processes that may write the same file at the same time.
_WRITERS = 100


class AtomicFile:
    """
    Context of a file that replaces `path` at the end, unless an error is raised.

    Parameters
    ----------
    path : Path
        A name in an existing folder; of a regular file if it exists.
    like : Path, optional
        The new file gets the owner of this file or folder, and the mode of a file, as far as
        the system permits. By default both are those of any new file.
    made_from : FileIdentity, optional
        The file from which this one is made, as it was read: if it changed, nothing is replaced.

    Attributes
    ----------
    stream : binary file
    """

    def __init__(
        self, path: Path, *, like: Path | None = None, made_from: FileIdentity | None = None
    ) -> None:
        self._like, self._made_from = like, made_from
        self._path = behind_link(path)
        self._is_in_place = False
        self.stream: IO[bytes]

    def __enter__(self) -> Self:
        _require_replaceable(self._path)
        like = None if self._like is None else os.stat(self._like)
        try:
            mode = stat.S_IMODE(like.st_mode) if like and stat.S_ISREG(like.st_mode) else None
            self._temporary, descriptor = _create_temporary(self._path, is_private=mode is not None)
        except OSError as error:
            error.filename = str(self._path)  # users do not know the temporary name
            raise
        try:
            if like is not None:
                _give_to_owner_of(like, descriptor)
            if mode is not None:
                os.fchmod(descriptor, mode)
            self.stream = os.fdopen(descriptor, "wb")
        except BaseException:
            os.unlink(self._temporary)
            os.close(descriptor)
            raise
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
        """The folder of the file; if the path is a link, that of its target."""
        return self._path.parent

    @property
    def written(self) -> Path:
        """Path of the temporary file."""
        return Path(self._temporary)

    def start_sync(self) -> None:
        """Ask the system to start writing the bytes to disk, without waiting."""
        self.stream.flush()
        if hasattr(os, "posix_fadvise"):
            # Linux starts to write pages that are not needed in its cache.
            with contextlib.suppress(OSError):  # not all file systems support it
                os.posix_fadvise(self.stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def sync(self) -> None:
        """Make bytes, owner and mode durable."""
        self.stream.flush()
        os.fsync(self.stream.fileno())

    def close(self) -> None:
        """
        Close the file before it is renamed, which ends its lock.

        For those who write many files, and keep other processes from writing the same ones.
        """
        self.stream.close()

    def put_in_place(self) -> None:
        """Rename the file to its path; sync the folder afterwards."""
        if self._made_from is not None:
            self._made_from.require_unchanged()
        os.replace(self._temporary, self._path)
        self._is_in_place = True

    def discard(self) -> None:
        """Remove the file unless it was renamed, and close it."""
        # In this order: once it is unlocked, or renamed, another process may have the name.
        if not self._is_in_place:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._temporary)
        with contextlib.suppress(OSError):  # buffered bytes may not fit on a full disk
            self.stream.close()


def _require_replaceable(path: Path) -> None:
    """Raise `OSError` for a folder, a pipe or a device: a rename would remove these two."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))


def replace_files(
    files: Iterable[tuple[Path, bytes, Path]], before: Callable[[Path], object]
) -> None:
    """
    Replace files, each atomically; their bytes are synced to disk concurrently.

    Parameters
    ----------
    files : iterable of (Path, bytes, Path)
        Path, bytes, and the file or folder whose owner and mode the new file gets.
    before : callable
        Called with each path before its file is replaced, after all files are written.
    """
    written: list[tuple[Path, AtomicFile]] = []
    left = iter(files)
    try:
        # A process may have only some hundred files open.
        while group := list(itertools.islice(left, _SYNCED_TOGETHER)):
            start = len(written)
            for path, data, like in group:
                written.append((path, AtomicFile(path, like=like).__enter__()))
                written[-1][1].stream.write(data)
                written[-1][1].start_sync()
            for _, file in written[start:]:
                file.sync()
                file.close()
        for path, file in written:
            before(path)
            file.put_in_place()
    finally:
        for _, file in written:
            file.discard()
        # `before` may have kept a copy next to a link, not next to its target.
        for folder in {folder for path, file in written for folder in (path.parent, file.folder)}:
            sync_folder(folder)


def _create_temporary(path: Path, *, is_private: bool) -> tuple[str, int]:
    """
    Create the temporary file of a path, in place of one that a killed process left.

    It is locked as long as its process writes it, so that no other process takes it for such a
    one. A process that writes the same file meanwhile uses the next name.
    """
    for number in range(_WRITERS):
        temporary = str(path.parent / f".{path.name}.{number}.part")
        descriptor = _create_locked(temporary, 0o600 if is_private else 0o666)
        if descriptor is not None:
            return temporary, descriptor
    raise FileExistsError(errno.EEXIST, "many processes write it", str(path))


def _create_locked(temporary: str, mode: int) -> int | None:
    """Create and lock a file; None if another process has it."""
    try:
        descriptor = os.open(temporary, _NEW_FILE, mode)
    except FileExistsError:
        _remove_abandoned(temporary)
        try:
            descriptor = os.open(temporary, _NEW_FILE, mode)
        except FileExistsError:
            return None
    except BaseException:  # a signal may raise an exception as soon as the file exists
        _remove_abandoned(temporary)
        raise
    # Until it was locked, another process may have taken it for an abandoned one.
    if is_locked_by_another(descriptor) or not _is_at(temporary, descriptor):
        os.close(descriptor)
        return None
    return descriptor


def _remove_abandoned(temporary: str) -> None:
    """Remove the file of a process that was killed; one that is locked stays."""
    try:
        descriptor = os.open(temporary, _READ_ONLY | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        if try_lock(descriptor) and _is_at(temporary, descriptor):
            os.unlink(temporary)
    finally:
        os.close(descriptor)


def _is_at(path: str, descriptor: int) -> bool:
    """Return whether a path leads to an open file."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def try_lock(descriptor: int) -> bool:
    """Lock an open file or folder; return False if it is locked, or cannot be locked."""
    return _lock(descriptor) is True


def is_locked_by_another(descriptor: int) -> bool:
    """Lock an open file or folder where the file system has locks; True if another process did."""
    return _lock(descriptor) is False


def _lock(descriptor: int) -> bool | None:
    """Return whether a file or folder could be locked; None if the file system has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def read_up_to(path: str, size: int) -> bytes:
    """Return the first bytes of a file; for small files, in a third of the time of `open`."""
    descriptor = os.open(path, _READ_ONLY)
    try:
        parts = [os.read(descriptor, size)]
        while parts[-1] and (missing := size - sum(map(len, parts))) > 0:
            parts.append(os.read(descriptor, missing))
    finally:
        os.close(descriptor)
    return b"".join(parts)


def holds(path: str, data: bytes) -> bool:
    """Return whether a file exists and contains exactly these bytes."""
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
    """Return the target of a link, which is the file to replace; other paths unchanged."""
    return Path(os.path.realpath(path)) if os.path.islink(path) else path


def give_to_owner_of(path: Path, descriptor: int) -> None:
    """Give an open file the owner of a path: files repaired by root stay usable."""
    _give_to_owner_of(os.stat(path), descriptor)


def _give_to_owner_of(like: os.stat_result, descriptor: int) -> None:
    now = os.fstat(descriptor)
    if (like.st_uid, like.st_gid) == (now.st_uid, now.st_gid):
        return
    try:
        os.fchown(descriptor, like.st_uid, like.st_gid)
    except PermissionError:  # only root changes owners; others may use their own groups
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, -1, like.st_gid)


def give_owner(path: Path, *, like: Path) -> None:
    """Give a path the owner of another one, as far as the system permits."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        give_to_owner_of(like, descriptor)
    finally:
        os.close(descriptor)


def give_owner_and_mode(folder: Path, *, like: Path) -> None:
    """Give a folder the owner and the mode of another one, as far as the system permits."""
    give_owner(folder, like=like)
    with contextlib.suppress(PermissionError):  # the owner may be another user already
        _copy_mode(like, folder)


def adopt_folder(folder: Path, *, like: Path) -> None:
    """
    Give a temporary folder the mode of a new folder, and make its files durable.

    The folder and its files get the owner of `like`, as far as the system permits.
    """
    for path in (*folder.iterdir(), folder):
        give_owner(path, like=like)
    new = folder.with_name("new")
    new.mkdir()
    _copy_mode(new, folder)
    new.rmdir()
    sync_folder(folder)


def _copy_mode(old: Path, new: Path) -> None:
    new.chmod(stat.S_IMODE(old.stat().st_mode))


def sync_folder(folder: Path) -> None:
    """Make renames and removals in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
