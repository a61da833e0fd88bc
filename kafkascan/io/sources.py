"""The owner of a log's bytes: a mapped file, a file that is read, or a buffer in memory.

A `Source` owns the bytes; everything else borrows them. Its size is fixed when it is opened, so
that bytes which a broker appends later are not seen.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import guard as _guard
from kafkascan._core.cold_reads import LogFile
from kafkascan.format.errors import (
    CHANGED_WHILE_READ,
    STATUS,
    SourceInUseError,
    SourceReadError,
)
from kafkascan.io import result_memory
from kafkascan.io.source_protocols import (
    OPEN_FLAGS,
    FileRange,
    FolderReads,
    PinnedFile,
    ReadsAt,
    bytes_view,
    next_data,
    regular_size,
)
from kafkascan.io.stores.prefetching_reader import PrefetchingReader
from kafkascan.io.stores.urls import ObjectUrl, resolved_url

READ_AT_ONCE = 1 << 17
"""Bytes of a file below which reading it takes less time than mapping it."""


@runtime_checkable
class HasSource(Protocol):
    """An object whose bytes are read through a source, such as a `SegmentFile`."""

    def as_source(self) -> SourceLike:
        """Return its open source, or the input for a new `Source`."""


class Source:
    """
    Bytes of one log, with a size that is fixed when it is opened.

    Parameters
    ----------
    data : path, bytes-like or ReadsAt
        ``str`` and ``os.PathLike`` are paths, or a ``str`` the URL of an object; ``bytes``,
        ``bytearray``, ``memoryview``, NumPy arrays and other contiguous buffers are the log
        itself. A `ReadsAt` is read in windows; its creator closes it. A `FileRange` is a part of
        a file, an `ObjectUrl` a URL with options.
    memory_map : bool, default True
        Map the file. With False it is read in windows: slower, but it takes no address space
        and works where mapping does not.
    read_below : int, default 0
        Read a file that is smaller than this into memory, instead of mapping it.
    max_size : int, optional
        Only the first `max_size` bytes of a file are used, even if it has grown.

    Attributes
    ----------
    path : str
        The file, or a description of the bytes in memory such as ``<bytes>``.
    size : int
        In bytes.
    is_file : bool
        Whether the source is a whole file, with the path `path`.
    file_start : int
        Position of its first byte in the file that it is a part of; 0 for a whole file.
    is_in_memory : bool
        Whether all bytes are addressable: mapped, or given as a buffer.
    has_file : bool
        Whether the bytes are those of an open file, mapped or read.

    Raises
    ------
    OSError
        If the file cannot be opened or is not a regular one: FileNotFoundError,
        PermissionError, IsADirectoryError, …
    ValueError
        If the buffer is not contiguous.

    Notes
    -----
    Views keep the source's memory alive, also beyond the source itself. `close` fails with
    `SourceInUseError` while views of a map live, or while another thread reads. The end of a
    ``with`` block does not fail: the last view releases the memory, the last reader the file.
    A source that is closed raises a ValueError wherever bytes are asked for.

    Threads may share a source: every function that takes one may run in several threads at the same
    time.

    A scan or verification of a mapped file that is truncated meanwhile raises
    `SourceReadError`. Bytes reached through `as_array` are plain memory: touching them
    after their file was truncated kills the process, as with any map.
    """

    def __init__(
        self,
        data: SourceLike,
        /,
        *,
        memory_map: bool = True,
        read_below: int = 0,
        max_size: int | None = None,
    ) -> None:
        if max_size is not None and max_size < 0:
            raise ValueError("max_size must not be negative")
        self._descriptor: int | None = None
        self._reader: ReadsAt | None = None
        self._reads_of_folder: FolderReads | None = None
        self._view: memoryview | None = None
        self._map: mmap.mmap | None = None
        self._closed = False
        self._lock = threading.Lock()
        self._reads = 0  # running reads, which need the descriptor
        self.file_start = 0
        self.size = 0
        self.is_file = False
        data = data if isinstance(data, PinnedFile) else resolved_url(data)
        if isinstance(data, (str, os.PathLike)):
            self.path = os.fspath(data)
            self._open_file(data, memory_map, read_below, max_size)
            self.is_file = self._descriptor is not None
        elif isinstance(data, FileRange):
            self.path, self.file_start = data.path, data.start
            most = data.size if max_size is None else min(data.size, max_size)
            self._open_file(data.file, memory_map, read_below, most)
            if self.size < most:
                raise self.fault_error(self.size)
        elif isinstance(data, ReadsAt):
            self.path, self._reader = data.path, data
            self.size = data.size if max_size is None else min(data.size, max_size)
        elif max_size is not None:
            raise TypeError("max_size is for files; slice a buffer instead")
        else:
            self.path = f"<{type(data).__name__}>"
            self._view = bytes_view(data)
            self.size = self._view.nbytes
        self.is_in_memory, self.has_file = self._view is not None, self._descriptor is not None

    def _open_file(
        self,
        file: str | os.PathLike[str],
        memory_map: bool,
        read_below: int,
        max_size: int | None,
    ) -> None:
        listed = file if isinstance(file, PinnedFile) and file.is_listed else None
        if isinstance(file, PinnedFile):
            descriptor, self._reads_of_folder = file.open(), file.reads
            if listed is not None:
                file.reads.segments.add(file.name)
                max_size = file.pins.sizes.get(file.name) if max_size is None else max_size
        else:
            descriptor = os.open(file, OPEN_FLAGS)
        try:
            self.size = max(0, regular_size(descriptor, os.fspath(file)) - self.file_start)
            if listed is not None and not listed.pins.has_size(listed.name, self.size):
                raise self._truncated_at_open()
            if max_size is not None:
                self.size = min(self.size, max_size)
            if self.size < read_below:
                self._view = memoryview(self._read_file(descriptor))
            elif memory_map and self.size > 0:
                self._map = self._map_file(descriptor)
                self._view = self._view_of(self._map)
        except BaseException:
            os.close(descriptor)
            raise
        if self._view is not None and self._map is None:
            os.close(descriptor)
        else:
            self._descriptor = descriptor

    def _read_file(self, descriptor: int) -> bytes:
        if self.file_start:
            os.lseek(descriptor, self.file_start, os.SEEK_SET)
        data = bytearray()
        while len(data) < self.size:
            part = os.read(descriptor, self.size - len(data))
            if not part:
                raise self._truncated_at_open()
            if len(part) == self.size:
                return part
            data += part
        return bytes(data)

    def _map_file(self, descriptor: int) -> mmap.mmap:
        before = self.file_start % mmap.ALLOCATIONGRANULARITY
        try:
            return mmap.mmap(
                descriptor,
                before + self.size,
                access=mmap.ACCESS_READ,
                offset=self.file_start - before,
            )
        except ValueError:  # mmap: the file was truncated since its size was read
            raise self._truncated_at_open() from None

    def _truncated_at_open(self) -> SourceReadError:
        reason = f"the file was truncated from {self.size} bytes while it was opened"
        self._note_cut()
        return SourceReadError(self.path, self.size, reason, CHANGED_WHILE_READ)

    def _view_of(self, mapped: mmap.mmap) -> memoryview:
        return memoryview(mapped)[self.file_start % mmap.ALLOCATIONGRANULARITY :]

    @property
    def ahead(self) -> PrefetchingReader | None:
        """The reader of the bytes, if it reads several ranges at the same time."""
        return self._reader if isinstance(self._reader, PrefetchingReader) else None

    @property
    def closed(self) -> bool:
        """Whether the source was closed."""
        return self._closed

    def window(self, position: int, size: int) -> memoryview:
        """
        Return bytes of the source, without a copy if they are in memory.

        Parameters
        ----------
        position, size : int
            The window is truncated at the end of the source.

        Returns
        -------
        memoryview
            Read-only, of bytes. It keeps the memory alive.

        Raises
        ------
        SourceReadError
            If the file was truncated since it was opened.
        """
        if position < 0 or size < 0:
            raise ValueError("position and size must not be negative")
        size = max(0, min(size, self.size - position))
        with self._lock:
            self._require_open()
            if self._view is not None:
                return self._view[position : position + size]
        return memoryview(self._read(position, size))

    def read_into(self, position: int, out: memoryview) -> None:
        """Fill a buffer with bytes of the file, which may be mapped; see `window`."""
        count = 0
        with self.borrowed_descriptor() as descriptor:
            while count < len(out):
                at = self.file_start + position + count
                try:
                    part = os.preadv(descriptor, [out[count:]], at)
                except OSError:
                    raise self.fault_error(position + count) from None
                if part == 0:
                    raise self.fault_error(position + count)
                count += part

    def _read(self, position: int, size: int) -> bytes | memoryview:
        parts: list[bytes | memoryview] = []
        missing = size
        while missing > 0:
            part = self._read_once(position + size - missing, missing)
            if not part:
                raise self.fault_error(position + size - missing)
            parts.append(part)
            missing -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _read_once(self, position: int, size: int) -> bytes | memoryview:
        if self._reader is not None:
            return self._reader.read_at(position, size)
        with self.borrowed_descriptor() as descriptor:
            return result_memory.read_file(descriptor, self.file_start + position, size)

    @contextmanager
    def borrowed_descriptor(self) -> Iterator[int]:
        """Provide the descriptor of the file, which is not closed meanwhile; see `has_file`."""
        with self._lock:
            self._require_open()
            assert self._descriptor is not None
            self._reads += 1
        try:
            yield self._descriptor
        finally:
            with self._lock:
                self._reads -= 1
                if self._closed:
                    self._close_file()

    def as_array(self) -> NDArray[np.uint8]:
        """
        Return all bytes as a read-only array, without a copy.

        Returns
        -------
        ndarray of uint8, shape (size,)

        Raises
        ------
        ValueError
            If the source was opened with ``memory_map=False``.
        """
        with self._lock:
            self._require_open()
            if self.size == 0:
                return np.empty(0, np.uint8)
            if self._view is None:
                raise ValueError(f"{self.path}: opened with memory_map=False; it has no array")
            array = np.frombuffer(self._view, np.uint8)
        array.flags.writeable = False
        return array

    def skip_hole(self, position: int) -> int:
        """
        Return the position of the next bytes that are not in a hole.

        Preallocated and sparse files have holes, which contain zeros and need not be read.
        """
        # A sparse file in a tar has one.
        skip_hole: Callable[[int], int] | None = getattr(self._reader, "skip_hole", None)
        if skip_hole is not None:
            return min(skip_hole(position), self.size)
        if self._descriptor is None:
            return position
        with self.borrowed_descriptor() as descriptor:
            found = next_data(descriptor, self.file_start + position)
        return self.size if found is None else min(found - self.file_start, self.size)

    def is_cached(self, start: int, stop: int, samples: int = 2) -> bool:
        """
        Return whether sampled pages of a range are in memory, without reading those that are not.

        True also if the system does not say: only Linux does, and not for every file system.
        """
        with self._lock:
            self._require_open()
            if self._descriptor is None:
                return True
            file = LogFile(self._descriptor, self.file_start, self.size)
            return file.is_cached(start, stop, samples)

    def announce_order(self) -> bool:
        """
        Announce to the system that the bytes will be read in order; False if it takes no advice.

        It then reads the next bytes of a map while the ones before are worked on. Otherwise it
        reads around each page that is missing.
        """
        with self._lock:
            if self._map is None or not hasattr(mmap, "MADV_SEQUENTIAL"):
                return False
            self._map.madvise(mmap.MADV_SEQUENTIAL)
            return True

    def drop_cache(self, ranges: Sequence[tuple[int, int]] | None = None) -> None:
        """
        Ask the system to drop the file's pages from its cache, on systems that support it.

        This saves the memory of a machine that reads many cold files; a broker that serves
        from the same file has to read it again.

        Parameters
        ----------
        ranges : sequence of (int, int), optional
            Position and size of the ranges to drop; by default everything.
        """
        if self._descriptor is not None and hasattr(os, "posix_fadvise"):
            if self._map is not None and hasattr(mmap, "MADV_DONTNEED"):
                self._map.madvise(mmap.MADV_DONTNEED)  # otherwise mapped pages stay
            with self.borrowed_descriptor() as descriptor:
                # A size of 0 means up to the end.
                for start, size in ranges or [(0, 0 if self.is_file else self.size)]:
                    at = self.file_start + start
                    os.posix_fadvise(descriptor, at, size, os.POSIX_FADV_DONTNEED)

    def require_unshrunk(self) -> None:
        """Raise `SourceReadError` if the file was truncated since it was opened."""
        size_now = self._size_now()
        if size_now < self.size:
            raise self.fault_error(size_now)

    def has_grown(self) -> bool:
        """Return whether the file is larger than what was opened of it; False for other sources."""
        if self._descriptor is not None:
            return self._size_now() > self.size
        try:  # a small file was read and closed
            return os.stat(self.path).st_size > self.size
        except OSError:
            return False

    def fault_error(self, position: int) -> SourceReadError:
        """Return the error for a byte position that could not be read."""
        size_now, symbol = self._size_now(), "SOURCE_FAULT"
        if self._reader is not None:
            reason = "the bytes are gone; was the object replaced while it was read?"
        elif self._descriptor is None:
            reason = "the memory could not be read"
        elif size_now < self.size:
            self._note_cut()
            symbol = CHANGED_WHILE_READ
            reason = (
                f"the file was truncated from {self.size} to {size_now} bytes while it was read"
            )
        else:
            reason = "the file could not be read; is the disk failing?"
        return SourceReadError(self.path, position, reason, symbol)

    def _note_cut(self) -> None:
        if self._reads_of_folder is not None:
            self._reads_of_folder.has_cut = True

    def _size_now(self) -> int:
        if self._descriptor is None:
            return self.size
        with self.borrowed_descriptor() as descriptor:
            return max(0, os.fstat(descriptor).st_size - self.file_start)

    def close(self) -> None:
        """
        Release the memory and the file.

        Raises
        ------
        SourceInUseError
            If a view of a map (a window, an array) is still alive, or another thread reads.
        """
        with self._lock:
            if self._closed:
                return
            if self._reads:
                raise SourceInUseError(f"{self.path}: another thread is reading")
            self._unmap()
            self._closed = True
            self._close_file()

    def _close_file(self) -> None:
        if self._descriptor is not None and not self._reads:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)

    def _unmap(self) -> None:
        try:
            if self._view is not None:
                self._view.release()
            if self._map is not None:
                self._map.close()
        except BufferError:
            if self._map is not None:
                self._view = self._view_of(self._map)
            raise SourceInUseError(
                f"{self.path}: views of the bytes are still alive; drop them before closing"
            ) from None
        self._view = self._map = None

    def _require_open(self) -> None:
        if self._closed:
            raise ValueError(f"{self.path}: the source is closed")

    def __enter__(self) -> Self:
        self._require_open()
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self.close()
        except SourceInUseError:
            # Views and readers keep what they need. An error here would replace the caller's.
            with self._lock:
                self._view, self._map, self._closed = None, None, True
                self._close_file()

    def __del__(self) -> None:
        # The map is closed with its last view, the descriptor with this object.
        descriptor = getattr(self, "_descriptor", None)
        if descriptor is not None:
            os.close(descriptor)

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self.size} bytes"
        return f"<Source {self.path}: {state}>"


SourceLike: TypeAlias = (
    str | os.PathLike[str] | bytes | bytearray | memoryview | NDArray[Any] | mmap.mmap
    | ReadsAt | FileRange | ObjectUrl | Source | HasSource
)  # fmt: skip
"""The bytes of a log: a path, a URL, bytes, bytearray, memoryview, mmap, an array of bytes, a
`FileRange`, an `ObjectUrl`, a `Source`, a `SegmentFile`, or an object that reads at positions
(`ReadsAt`)."""


class borrowed_source:  # noqa: N801 - used like a function
    """
    Context that provides a `Source` for any input that `Source` accepts.

    A `Source` is borrowed; anything else is opened, and closed at the end. With
    ``close=False``, it stays open as long as something refers to it or to a view of it. Files
    smaller than `read_below` are read into memory.
    """

    def __init__(self, source: SourceLike, *, close: bool = True, read_below: int = 0) -> None:
        # An isinstance check of a protocol takes longer than opening a small file.
        owner: SourceLike = source
        if not isinstance(source, (Source, str, os.PathLike, FileRange)) and isinstance(
            source, HasSource
        ):
            owner = source.as_source()
        self._is_opened_here = close and not isinstance(owner, Source)
        self._source = owner if isinstance(owner, Source) else Source(owner, read_below=read_below)

    def __enter__(self) -> Source:
        return self._source

    def __exit__(self, *error: object) -> None:
        if self._is_opened_here:
            self._source.__exit__()


def read_bytes(source: Source, position: int, size: int) -> bytes:
    """
    Return a copy of bytes of a source, which may be a map of a file that shrinks.

    Only this copy is guarded: `bytes(source.window(...))` ends the process if the file was
    truncated.

    Parameters
    ----------
    source : Source
    position, size : int
        As in `Source.window`.

    Raises
    ------
    SourceReadError
        If the file was truncated since it was opened.
    """
    with source.window(position, size) as window:
        status, copy, fault = _guard.copy_bytes(window)
    if status == STATUS["SOURCE_FAULT"]:
        raise source.fault_error(position + fault)
    return copy


def read_into(source: Source, position: int, out: NDArray[np.uint8]) -> None:
    """Fill a buffer with bytes of a source, as `read_bytes` does."""
    with source.window(position, len(out)) as window:
        status, fault = _guard.copy_into(out, window)
    if status == STATUS["SOURCE_FAULT"]:
        raise source.fault_error(position + fault)


# Bytes that are searched at a time for one that is not zero.
_ZERO_SEARCH_WINDOW = 1 << 22


def is_all_zero(source: Source, position: int) -> bool:
    """Check whether all bytes from a position on are zero; stops at the first other byte."""
    while (position := source.skip_hole(position)) < source.size:
        with source.window(position, _ZERO_SEARCH_WINDOW) as window:
            status, all_zero, fault = _guard.all_zero(window)
            size = len(window)
        if status == STATUS["SOURCE_FAULT"]:
            raise source.fault_error(position + fault)
        if not all_zero:
            return False
        position += size
    return True
