"""Inputs of a `Source`: buffers, file ranges, protocols, regular files."""

from __future__ import annotations

import errno
import os
import stat
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np

from kafkascan.format.errors import FileGoneError
from kafkascan.format.file_names import DELETED_SUFFIX, OFFSETS, live_base_offset


@runtime_checkable
class ReadsAt(Protocol):
    """
    Bytes that are neither a file nor memory, such as an object in a store.

    Attributes
    ----------
    path : str
        Its name in error messages.
    size : int
        In bytes.
    """

    path: str
    size: int

    def read_at(self, position: int, size: int) -> bytes:
        """
        Return the bytes from a position on: at least one, at most `size`.

        An empty result means that there are no bytes at the position. Several threads may call
        it concurrently.
        """


@dataclass(frozen=True)
class FileRange:
    """
    A range of a file that contains a log, such as a member of a tar.

    Attributes
    ----------
    file : str
        Path of the file.
    start, size : int
        Position of the first byte, and number of bytes.
    path : str
        Its name in error messages.
    """

    file: str
    start: int
    size: int
    path: str


@dataclass
class FilePins:
    """
    The files of a folder as they were when it was listed.

    Attributes
    ----------
    inodes : dict of str to int
        By name.
    sizes, times : dict of str to int
        Sizes in bytes and times of modification, in nanoseconds since the epoch, of segments by
        name. A file has neither that was gone when it was looked at, or is a link that leads
        nowhere.
    opened : set of str
        Names of the files that were opened.
    are_stable : bool
        Whether a file has the same inode each time, which some network file systems do not keep:
        then names alone identify files.
    """

    inodes: dict[str, int]
    sizes: dict[str, int] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)
    opened: set[str] = field(default_factory=set)
    are_stable: bool = True

    def is_file(self, name: str, inode: int) -> bool:
        """Return whether an inode is that of the file with a name."""
        return not self.are_stable or inode == self.inodes.get(name)

    def has_size(self, name: str, size: int) -> bool:
        """Return whether a file has the size that it had, or a broker has appended to it."""
        listed = self.sizes.get(name, size)
        return size == listed or (size > listed and name == self._growing)

    def adopt(self, name: str, status: os.stat_result) -> None:
        """Take an opened file for the one that had a name."""
        self.inodes[name] = status.st_ino
        if name in self.sizes:
            self.sizes[name], self.times[name] = status.st_size, status.st_mtime_ns
        self.opened.add(name)

    @cached_property
    def _growing(self) -> str | None:
        """Name of the segment that a broker appends to; it changes the size of no other one."""
        if len(self.sizes) == 1:  # whatever its name is
            return next(iter(self.sizes))
        found = ((live_base_offset(name), name) for name in self.sizes)
        live = [(base, name) for base, name in found if base is not None and base < OFFSETS]
        return max(live)[1] if live else None


@dataclass
class FolderReads:
    """
    What one answer has read of a folder.

    Attributes
    ----------
    segments : set of str
        Names of the segments of which it has batches.
    has_cut : bool
        Whether a file was cut off while it was read.
    has_gone : bool
        Whether a file was gone when it was to be opened.
    """

    segments: set[str] = field(default_factory=set)
    has_cut: bool = False
    has_gone: bool = False


_ADOPTION = threading.Lock()


@dataclass(frozen=True)
class PinnedFile:
    """
    A file of a folder as it was when the folder was listed; a path of it.

    A broker renames a file to ``.deleted`` some time before it removes it, and the cleaner gives
    its name to another one. A follower of a new leader cuts off the end of a log.

    Attributes
    ----------
    path, name : str
    pins : FilePins
        Of the folder.
    reads : FolderReads
        Of the answer that reads the file.
    is_listed : bool
        Whether only the bytes are read that it had when the folder was listed.
    """

    path: str
    name: str
    pins: FilePins = field(repr=False, compare=False)
    reads: FolderReads = field(default_factory=FolderReads, repr=False, compare=False)
    is_listed: bool = False

    @classmethod
    def of(cls, path: str) -> PinnedFile:
        """Return a file as it is now; raise OSError if it is missing."""
        status, name = os.stat(path), os.path.basename(path)
        pins = FilePins(
            inodes={name: status.st_ino},
            sizes={name: status.st_size},
            times={name: status.st_mtime_ns},
            opened={name},  # another one with its name is another file
        )
        return cls(path, name, pins, is_listed=True)

    def __fspath__(self) -> str:
        return self.path

    def open(self) -> int:
        """
        Return a descriptor of the file, also if it was renamed.

        If it was replaced and cannot be found any more, it is the one with its name now, unless
        the replaced one was opened before: its positions mean nothing in another file.

        Raises
        ------
        FileGoneError
            If it was deleted, replaced or cut off since the folder was listed.
        OSError
        """
        descriptor = self._open_listed()
        if descriptor is None:
            with _ADOPTION:  # another thread may have opened the file with its name meanwhile
                descriptor = self._open_listed()
                return self._open_named() if descriptor is None else descriptor
        return descriptor

    def _open_listed(self) -> int | None:
        """Return a descriptor of the file that was listed, or of the one that was opened."""
        for path in (self.path, self.path + DELETED_SUFFIX):
            try:
                descriptor = os.open(path, OPEN_FLAGS)
            except FileNotFoundError:
                continue
            status = os.fstat(descriptor)
            if not self.pins.is_file(self.name, status.st_ino):
                os.close(descriptor)
                continue
            if self.is_listed and not self.pins.has_size(self.name, status.st_size):
                os.close(descriptor)
                raise self._gone()
            self.pins.opened.add(self.name)
            return descriptor
        return None

    def _open_named(self) -> int:
        """Return a descriptor of the file with the name, if no other one was opened before."""
        if self.name not in self.pins.opened:
            with suppress(FileNotFoundError):
                descriptor = os.open(self.path, OPEN_FLAGS)
                status = os.fstat(descriptor)
                self.pins.are_stable = status.st_ino == os.stat(self.path).st_ino
                self.pins.adopt(self.name, status)
                return descriptor
        if os.path.islink(self.path) and not os.path.exists(self.path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.path)
        raise self._gone()

    def _gone(self) -> FileGoneError:
        self.reads.has_gone = True
        return FileGoneError(self.path)

    def status(self) -> os.stat_result:
        """
        Return the status of the file now.

        Raises
        ------
        As `open`.
        """
        descriptor = self.open()
        try:
            return os.fstat(descriptor)
        finally:
            os.close(descriptor)


OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
"""Flags for paths that may be FIFOs: opening one must not wait for a writer."""


def next_data(descriptor: int, position: int) -> int | None:
    """Return where the next bytes are that are not in a hole; None if there are none."""
    if not hasattr(os, "SEEK_DATA"):
        return position
    try:
        return os.lseek(descriptor, position, os.SEEK_DATA)
    except OSError as error:
        return None if error.errno == errno.ENXIO else position


def regular_size(descriptor: int, path: str) -> int:
    """
    Return the size of an open file.

    Raises
    ------
    OSError
        If it is not a regular file.
    """
    status = os.fstat(descriptor)
    if stat.S_ISDIR(status.st_mode):
        reason = (
            "a directory, not a segment; scan_log_dir reads the batch headers of directories,"
            " read_records the records of a partition"
        )
        raise IsADirectoryError(errno.EISDIR, reason, path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)
    return status.st_size


def bytes_view(data: Any) -> memoryview:
    """Return a read-only view of a contiguous buffer as bytes."""
    try:
        view = memoryview(data)
    except TypeError:
        raise TypeError(
            f"expected a path, a bytes-like object or a Source, not {type(data).__name__}"
        ) from None
    if not view.c_contiguous:
        raise ValueError("the buffer is not contiguous")
    if isinstance(data, np.ndarray) and data.dtype.hasobject:
        raise TypeError("an array of objects is not a buffer of bytes")
    if view.nbytes == 0:
        return memoryview(b"")
    # NumPy casts what memoryview.cast refuses: structured items.
    return np.frombuffer(view, np.uint8).data.toreadonly()
