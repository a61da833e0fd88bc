"""Inputs of a `Source`: buffers, file ranges, protocols, regular files."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np


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
