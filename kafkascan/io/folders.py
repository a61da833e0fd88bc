"""Folders that contain the files of a log: on disk, inside a tar, in an object store."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Protocol, runtime_checkable

from kafkascan.format.errors import FileGoneError, KafkaScanError
from kafkascan.format.file_names import OFFSETS, SWAP_SUFFIX, live_base_offset
from kafkascan.io.source_protocols import (
    OPEN_FLAGS,
    FilePins,
    FolderReads,
    PinnedFile,
    regular_size,
)
from kafkascan.io.sources import Source, SourceLike, borrowed_source, read_bytes
from kafkascan.io.stores.urls import is_url

# Room for five million index entries, or a million producers: far more than brokers keep.
_LARGEST_SIDE_FILE = 1 << 26


class SideFileTooLargeError(KafkaScanError, OSError):
    """
    A side file of a log is larger than any that a broker writes, and was not read.

    Attributes
    ----------
    path : str
    position : int
        The largest size that is read, in bytes.
    size : int
        Size of the file, in bytes.
    """

    def __init__(self, path: str, size: int, limit: int) -> None:
        reason = f"the file has {size} bytes; more than {limit} are not read"
        super().__init__(errno.EFBIG, reason)
        self.filename = path
        self.path = path
        self.size = size
        self.position = limit
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: position {self.position}: {self.reason} [SIDE_FILE_TOO_LARGE]"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.path, self.size, self.position)


class Folder(Protocol):
    """
    Files by name: on disk, inside a tar, in an object store.

    Attributes
    ----------
    path : pathlib.Path
        Its name in messages: inside a tar, the tar's path followed by the folder's; in a store, its
        URL.
    """

    path: Path

    @property
    def parent(self) -> Folder:
        """The parent folder."""

    def names(self) -> list[str]:
        """Return the names of the files in it, sorted."""

    def size(self, name: str) -> int:
        """Return the size of a file now, in bytes."""

    def source(self, name: str) -> SourceLike:
        """Return the input for a `Source` of a file."""

    def read(self, name: str) -> bytes | None:
        """
        Return the bytes of a side file; None if it is missing.

        Raises
        ------
        SideFileTooLargeError
            If it has more than 64 MiB, holes included: brokers write no such file.
        OSError
        """


@runtime_checkable
class FolderTree(Folder, Protocol):
    """A folder whose inner folders are known."""

    def folders(self) -> Sequence[FolderTree]:
        """Return the folders in it, by name."""


class DiskFolder:
    """
    A folder on disk; every call reads its current state.

    Parameters
    ----------
    path : path
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path if isinstance(path, Path) else Path(path)
        self._prefix = os.path.join(os.fspath(path), "")
        self._parent: DiskFolder | None = None

    @property
    def parent(self) -> DiskFolder:
        """The parent folder."""
        if self._parent is None:
            self._parent = DiskFolder(os.path.dirname(os.path.abspath(self.path)))
        return self._parent

    def folder(self, name: str) -> DiskFolder:
        """Return a folder in it, whether or not it exists."""
        return DiskFolder(self.path / name)

    def names(self) -> list[str]:
        """Return the names of the files in it, sorted; links to folders count as files."""
        return list(files_in(self.path).inodes)

    def folders(self) -> list[DiskFolder]:
        """
        Return the folders in it, by name, and the links to folders.

        A link that leads nowhere is one, too: listing it is an error, and it hides no other one.
        """
        with os.scandir(self.path) as entries:
            found = [
                DiskFolder(path) for path in sorted(one.path for one in entries if _is_dir(one))
            ]
        parent = DiskFolder(os.path.abspath(self.path))
        for one in found:
            one._parent = parent
        return found

    def status(self, name: str) -> os.stat_result:
        """Return the status of a file now."""
        return os.stat(self._prefix + name)

    def size(self, name: str) -> int:
        """Return the size of a file now, in bytes."""
        return self.status(name).st_size

    def source(self, name: str) -> SourceLike:
        """Return the path of a file."""
        return self._prefix + name

    def read(self, name: str) -> bytes | None:
        """
        Return the bytes of a side file; None if it is missing.

        Raises
        ------
        SideFileTooLargeError
            If it has more than 64 MiB, holes included: brokers write no such file.
        OSError
        """
        try:
            return read_regular(self._prefix + name)
        except FileNotFoundError:
            return None

    def pinned(self) -> PinnedFolder:
        """Return the folder with the files that are in it now."""
        return PinnedFolder(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DiskFolder) and other.path == self.path

    def __hash__(self) -> int:
        return hash(self.path)

    def __repr__(self) -> str:
        return f"DiskFolder({str(self.path)!r})"


class PinnedFolder(DiskFolder):
    """
    A folder on disk whose files are those that it had when it was listed; see `PinnedFile`.

    It belongs to one answer, and knows what that has read; `again` is for the next one.

    Parameters
    ----------
    folder : DiskFolder
    pins : FilePins, optional
        Its files; by default those that it has now.

    Attributes
    ----------
    newer : PinnedFolder or None
        Its latest listing since, if `listed_again` made one: a file was gone.
    gone : str or None
        Name of the first such file.
    """

    def __init__(self, folder: DiskFolder, pins: FilePins | None = None) -> None:
        super().__init__(folder.path)
        self._parent = folder._parent
        self._pins = _settled_files(self.path) if pins is None else pins
        self._reads = FolderReads()
        self.newer: PinnedFolder | None = None
        self.gone: str | None = None
        self._has_read_of_newer = False

    def again(self) -> PinnedFolder:
        """Return the folder with the same files, of which nothing was read yet."""
        return PinnedFolder(self, self._pins)

    def listed_again(self, gone: str) -> PinnedFolder:
        """
        Return the folder, of which a file is gone, as it is now; without files if it is gone.

        A broker that moves a log between disks renames the folder, and then the copy.
        """
        self.gone = self.gone or gone
        newer = self._listed_now()
        if self.newer is not None and self.newer._reads.segments:
            self._has_read_of_newer = True
        self.newer = newer  # at once: another thread may read it
        return newer

    def _listed_now(self) -> PinnedFolder:
        for seconds in SWAP_WAITS_S:
            with suppress(FileNotFoundError):
                return PinnedFolder(self)
            time.sleep(seconds)
        return PinnedFolder(self, FilePins({}))

    @cached_property
    def live_logs(self) -> list[tuple[int, str]]:
        """Base offsets and names of the segments that a broker reads, in the order of offsets."""
        found = ((live_base_offset(name), name) for name in self._pins.inodes)
        return sorted((base, name) for base, name in found if base is not None and base < OFFSETS)

    def names(self) -> list[str]:
        """Return the names that the files had, sorted."""
        return list(self._pins.inodes)

    def source(self, name: str) -> SourceLike:
        """Return the file that had a name."""
        return self._file(name)

    def listed_source(self, name: str) -> PinnedFile:
        """Return the segment that had a name, to read it without what was appended to it since."""
        return PinnedFile(self._prefix + name, name, self._pins, self._reads, is_listed=True)

    def listed_size(self, name: str) -> int:
        """Return the size that a segment had; raise FileGoneError if it is gone, or was cut off."""
        size_now = self.listed_source(name).status().st_size
        return self._pins.sizes.get(name, size_now)

    def listed_status(self, name: str) -> tuple[int, int, int] | None:
        """
        Return size, time of modification and inode that a segment had.

        None if it was gone already, or is a link that leads nowhere.
        """
        pins = self._pins
        if name not in pins.sizes:
            return None
        return pins.sizes[name], pins.times[name], pins.inodes[name]

    def _file(self, name: str) -> PinnedFile:
        return PinnedFile(self._prefix + name, name, self._pins, self._reads)

    def status(self, name: str) -> os.stat_result:
        """Return the status of the file that had a name, now."""
        return self._file(name).status()

    def read(self, name: str) -> bytes | None:
        """Return the bytes of the side file that had a name; None if it is missing."""
        if name not in self._pins.inodes:
            return super().read(name)
        try:
            return read_regular(self._file(name))
        except FileGoneError:  # replaced after an earlier read; nothing refers to its positions
            return super().read(name)
        except FileNotFoundError:
            return None

    def still_has(self, name: str) -> bool:
        """Return whether the file that had a name is still in its place."""
        path, pins = self._prefix + name, self._pins
        try:
            # File systems of layers may list other inodes than those of opened files.
            is_known = name in pins.opened or name in pins.sizes
            found = os.stat(path) if is_known else os.lstat(path)
        except OSError:
            return False
        return pins.is_file(name, found.st_ino)

    def has_same(self, name: str, other: PinnedFolder) -> bool:
        """Return whether another listing has the same file with a name, or neither has one."""
        return self._pins.inodes.get(name) == other._pins.inodes.get(name)

    def is_replaced_by(self, newer: PinnedFolder) -> bool:
        """Return whether a newer listing has none of the segments, and neither was read."""
        has_read = self._reads.segments or newer._reads.segments or self._has_read_of_newer
        has_common = any(self.has_same(name, newer) for _, name in self.live_logs)
        return not has_read and not has_common

    @property
    def has_bytes(self) -> bool:
        """Whether a segment that a broker reads was not empty."""
        return any(self._pins.sizes.get(name) for _, name in self.live_logs)

    def has_all_read(self, other: PinnedFolder) -> bool:
        """Return whether another listing has all segments that were read of this one."""
        pins, sizes = self._pins, other._pins.sizes
        return not self._reads.has_cut and all(
            self.has_same(name, other) and pins.has_size(name, sizes.get(name, -1))
            for name in self._reads.segments
        )

    @property
    def is_stale(self) -> bool:
        """Whether a file was gone, or was cut off while it was read."""
        return self._reads.has_gone or self._reads.has_cut

    @property
    def has_cut(self) -> bool:
        """Whether a segment was cut off while it was read."""
        return self._reads.has_cut


SWAP_WAITS_S = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032)
"""Renames of a broker that replaces segments, or moves a log, take less, also of many."""
_SWAPPED_LOG = ".log" + SWAP_SUFFIX


def _settled_files(path: Path) -> FilePins:
    """
    Return the files in a folder when no broker is replacing or deleting segments there.

    A broker first renames the new ones to ``.swap``, then the old ones to ``.deleted``, then
    removes ``.swap``. Meanwhile, the offsets of both seem to be missing.
    """
    for seconds in SWAP_WAITS_S:
        pins = files_in(path)
        if not (_has_swap(pins) or _has_vanished(path, pins)):
            return pins
        time.sleep(seconds)
    return files_in(path)  # a broker was killed meanwhile, and completes it when it starts


def _has_swap(pins: FilePins) -> bool:
    """Return whether a broker is putting a segment in its place."""
    return any(
        name.endswith(_SWAPPED_LOG) and name.removesuffix(SWAP_SUFFIX) not in pins.inodes
        for name in pins.inodes
    )


def _has_vanished(path: Path, pins: FilePins) -> bool:
    """Return whether a segment, or its folder, was renamed or deleted while it was listed."""
    unknown = [name for name in pins.inodes if name.endswith(".log") and name not in pins.sizes]
    return any(map(_is_gone_or_back, (path / name for name in unknown)))


def _is_gone_or_back(path: Path) -> bool:
    """Return whether a file is gone that was listed, or another one has its name by now."""
    try:
        path.stat()
    except FileNotFoundError:
        return not path.is_symlink()
    except OSError:  # the folder may be listed, and not entered
        return False
    return True


def files_in(path: Path) -> FilePins:
    """Return the files in a folder, by their names, sorted."""
    with os.scandir(path) as entries:
        files = [one for one in entries if not one.is_dir(follow_symlinks=False)]
    pins = FilePins({one.name: one.inode() for one in sorted(files, key=attrgetter("name"))})
    # After all names: a segment that has a successor is complete.
    for one in files:
        if one.name.endswith(".log"):
            with suppress(OSError):  # gone, or a link that leads nowhere
                status = one.stat()
                pins.inodes[one.name] = status.st_ino  # of the file that a link leads to
                pins.sizes[one.name], pins.times[one.name] = status.st_size, status.st_mtime_ns
    return pins


def pinned_folder(folder: Folder) -> Folder:
    """Return a folder whose files are those that it has now; see `PinnedFolder`."""
    return folder.pinned() if isinstance(folder, DiskFolder) else folder


def _is_dir(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir() or (entry.is_symlink() and not os.path.exists(entry.path))
    except OSError:  # the target is in a folder that may not be entered
        return True


def require_side_file_size(size: int, path: str, limit: int = _LARGEST_SIDE_FILE) -> None:
    """Raise `SideFileTooLargeError` for a file that is too large to be read."""
    if size > limit:
        raise SideFileTooLargeError(path, size, limit)


def read_regular(path: str | os.PathLike[str]) -> bytes:
    """
    Return the bytes of a side file, also of a URL; never wait for the writer of a FIFO.

    Raises
    ------
    SideFileTooLargeError
        If it has more than 64 MiB.
    OSError
        If it cannot be read, or is not a regular file.
    """
    name = os.fspath(path)
    if is_url(name):
        return _read_object(name)
    descriptor = path.open() if isinstance(path, PinnedFile) else os.open(name, OPEN_FLAGS)
    try:
        size = regular_size(descriptor, name)
        require_side_file_size(size, name)
        data = os.read(descriptor, size)
        while len(data) < size and (part := os.read(descriptor, size - len(data))):
            data += part
        return data
    finally:
        os.close(descriptor)


def _read_object(url: str) -> bytes:
    with Source(url) as source:
        require_side_file_size(source.size, source.path)
        return read_bytes(source, 0, source.size)


class SingleFileFolder:
    """
    A `Folder` with a single known source.

    Parameters
    ----------
    source : SourceLike
    path : Path
        Of the source.
    """

    def __init__(self, source: SourceLike, path: Path) -> None:
        self._source = source
        self.path = path.parent

    @property
    def parent(self) -> SingleFileFolder:
        """The parent folder, whose files are not known either."""
        return SingleFileFolder(self._source, self.path)

    def names(self) -> list[str]:
        """Return an empty list: other files of the folder are not read."""
        return []

    def size(self, name: str) -> int:
        """Return the size of the source, in bytes."""
        with borrowed_source(self._source) as source:
            return source.size

    def source(self, name: str) -> SourceLike:
        """Return the source."""
        return self._source

    def read(self, name: str) -> bytes | None:
        """Return None: other files are not read."""
        return None


def missing_file(path: Path) -> FileNotFoundError:
    """Return the error for a file that is missing in a folder."""
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
