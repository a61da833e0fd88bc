"""Read batch headers in the way that suits their source: its map, windows, or single headers.

The rows are the same in any way. `header_reader_of` chooses by the kind of source, `FileHeaders`
by what is cached of a file.
"""

from __future__ import annotations

import time
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import batches as _core
from kafkascan._core.cold_reads import LogFile
from kafkascan.batches.columns import BatchTable
from kafkascan.batches.header_reading.cold_headers import ColdHeaders, open_cold_headers
from kafkascan.batches.header_reading.known_starts import BATCHES_PER_HINT, known_starts
from kafkascan.format.layout import HEADER_SIZE_UP_TO_MAGIC
from kafkascan.io.page_cache import CAN_READ_CACHED, MapOrReads, page_faults
from kafkascan.io.sources import Source, read_bytes
from kafkascan.io.stores.prefetching_reader import PrefetchingReader

Filled: TypeAlias = tuple[int, int, int]
"""Status, number of rows and position, as `_core.batches.scan_into` returns them."""


class HeaderReader(Protocol):
    """One way to read the batch headers of a source, on behalf of one walk."""

    def fill(self, position: int, stop: int, rows: BatchTable) -> Filled:
        """
        Fill rows with headers from a position on.

        Parameters
        ----------
        position : int
            Of the next batch.
        stop : int
            Position at which to pause for signals. A reader that waits for each header pauses
            after some headers instead.
        rows : ndarray of BATCH_DTYPE
            Not all of them may be filled.
        """


def header_reader_of(
    source: Source, walk_stop: int, window: int, *, is_in_order: bool
) -> HeaderReader:
    """
    Choose how to read the headers of a source.

    Parameters
    ----------
    source : Source
    walk_stop : int
        Where the walk ends: headers are requested up to there.
    window : int
        Bytes to read first, if the source is read in windows.
    is_in_order : bool
        Whether everything between the headers is read, too, and was announced.
    """
    if source.has_file and not is_in_order:
        return FileHeaders(source, walk_stop, window)
    if source.is_in_memory:
        return MappedHeaders(source, in_chains=not is_in_order)
    if source.ahead is None or is_in_order or source.size < _SMALLEST_OBJECT:
        return WindowedHeaders(source, window)
    return StoredHeaders(source, walk_stop, window)


class MappedHeaders:
    """Headers in a map or a buffer, in chains from known or guessed starts or in one walk."""

    def __init__(
        self, source: Source, *, in_chains: bool, starts: NDArray[np.int64] | None = None
    ) -> None:
        self._source, self._in_chains, self._starts = source, in_chains, starts

    def fill(self, position: int, stop: int, rows: BatchTable) -> Filled:
        """See `HeaderReader`."""
        size = self._source.size
        with self._source.window(0, size) as window:
            # The system's read-ahead follows one walk through a cold map, not several.
            return _core.scan_into(
                window, 0, size, position, stop, rows,
                in_chains=self._in_chains, known_starts=self._starts,
            )  # fmt: skip


# Bytes that are read at a time from a source that is not in memory: many batches if they are
# small on average, little more than a header if they are large.
LARGE_WINDOW = 1 << 18
_SMALL_WINDOW = 1 << 12
_LARGE_BATCH = 1 << 15


def window_for(batches: int, size: int) -> int:
    """Return the bytes to read at a time, by number and bytes of the batches before."""
    batches_are_small = batches > 0 and size <= batches * _LARGE_BATCH
    return LARGE_WINDOW if batches_are_small else _SMALL_WINDOW


class WindowedHeaders:
    """Headers of a source that is read in windows, whose size follows from that of the batches."""

    def __init__(self, source: Source, window: int) -> None:
        self._source, self._window = source, window

    def fill(self, position: int, stop: int, rows: BatchTable) -> Filled:
        """See `HeaderReader`."""
        with self._source.window(position, self._window) as window:
            filled = _core.scan_into(
                window, position, self._source.size, position, stop, rows,
                keeps_gil=len(window) <= _SMALL_WINDOW,
            )  # fmt: skip
        _, count, end = filled
        self._window = window_for(count, end - position)
        return filled


# Bytes below which an object is read in order: a few requests fetch all of it.
_SMALLEST_OBJECT = 1 << 22
# Headers that are requested ahead: at first, and then.
_FIRST_REQUESTED, _REQUESTED = 16, 1024


class StoredHeaders:
    """Headers of an object in a store, requested ahead where a dense index has their positions."""

    def __init__(self, source: Source, walk_stop: int, window: int) -> None:
        self._source, self._walk_stop = source, walk_stop
        self._windows = WindowedHeaders(source, window)
        self._ahead = source.ahead  # None: nothing more is requested
        self._starts: NDArray[np.int64] | None = None
        self._requested_to = -1
        self._again_from = 0
        self._count = _FIRST_REQUESTED
        self._batches_left = 0  # more batches before `_again_from` than that: a sparse index

    def fill(self, position: int, stop: int, rows: BatchTable) -> Filled:
        """See `HeaderReader`."""
        if self._ahead is not None and position >= self._again_from:
            self._request(self._ahead, position)
        filled = self._windows.fill(position, stop, rows)
        self._batches_left -= filled[1]
        if self._batches_left < 0:
            self._ahead = None
        return filled

    def _request(self, ahead: PrefetchingReader, position: int) -> None:
        if self._starts is None:
            self._starts = known_starts(self._source)
        first, last = np.searchsorted(self._starts, (position, self._walk_stop)).tolist()
        next_starts = self._starts[first : min(last, first + self._count)]
        count = len(next_starts)
        if count < 2 or not ahead.should_skip_gap(int(next_starts[-1] - next_starts[0]) // count):
            self._ahead = None
            return
        ahead.request(next_starts[next_starts > self._requested_to].tolist())
        self._requested_to = int(next_starts[-1])
        self._again_from = int(next_starts[count // 2])
        self._batches_left = int(BATCHES_PER_HINT * (count // 2)) + 2
        self._count = _REQUESTED


# Bytes below which a piece is read as if it were cached: a few requests fetch all of it.
_SMALLEST_PIECE = 1 << 20
# Bytes after which the page cache is sampled again: of a cached piece, and of a cold one.
_CACHED_PIECE, _COLD_PIECE = 1 << 30, 1 << 26
# Headers of a cold file may be cached, so a few pages are sampled.
_BYTES_PER_SAMPLE, _FEWEST_SAMPLES = 1 << 28, 3


class FileHeaders:
    """Headers of a file, of which each piece is cached, or cold with large or small batches."""

    def __init__(self, source: Source, walk_stop: int, window: int) -> None:
        self._source, self._walk_stop = source, walk_stop
        self._in_order: HeaderReader = (
            MappedHeaders(source, in_chains=False)
            if source.is_in_memory
            else WindowedHeaders(source, window)
        )
        self._cached: HeaderReader | None = None
        self._cold: ColdHeaders | None = None
        self._is_cold = False
        self._checked_to = -1  # what is cached was sampled up to there
        self._batch_size = 0  # of the last batches, on average; 0 if unknown

    def fill(self, position: int, stop: int, rows: BatchTable) -> Filled:
        """See `HeaderReader`."""
        filled = self._reader_at(position).fill(position, stop, rows)
        _, count, end = filled
        if count:
            self._batch_size = max(1, (end - position) // count)
        return filled

    def _reader_at(self, position: int) -> HeaderReader:
        # Pages that were read to guess would make a piece look cached.
        is_followed = self._cold is not None and position < self._cold.followed_to
        if position >= self._checked_to and not is_followed:
            self._check(position)
        if self._is_cold and self._cold is not None:
            return self._cold if self._cold.is_for(self._batch_size) else self._in_order
        if not self._source.is_in_memory:
            return self._in_order
        if self._cached is None:
            self._cached = _cached_reader(self._source, position)
        return self._cached

    def _check(self, position: int) -> None:
        """Sample whether the next piece is cached: a large one if it is, else a smaller one."""
        stop, is_cached = self._walk_stop, self._source.is_cached
        large = min(stop, position + _CACHED_PIECE)
        samples = _FEWEST_SAMPLES + (large - position) // _BYTES_PER_SAMPLE
        if large - position < _SMALLEST_PIECE or is_cached(position, large, samples):
            self._is_cold, self._checked_to = False, large
            return
        self._checked_to = min(stop, position + _COLD_PIECE)
        self._is_cold = not is_cached(position, self._checked_to, 1 + _FEWEST_SAMPLES)
        if self._is_cold and self._cold is None:
            self._cold = open_cold_headers(self._source, self._walk_stop)


def _cached_reader(source: Source, position: int) -> HeaderReader:
    """Choose how to read cached headers of a mapped file, from a position on."""
    if source.size <= LARGE_WINDOW:  # an index or a measurement would take longer
        return MappedHeaders(source, in_chains=True)
    mapped = MappedHeaders(source, in_chains=True, starts=_legacy_starts(source, position))
    return MapOrReadHeaders(source, mapped) if CAN_READ_CACHED else mapped


def _legacy_starts(source: Source, position: int) -> NDArray[np.int64] | None:
    """
    Return batch positions from the index, for a log whose positions cannot be guessed.

    A guess is cheaper than reading an index, but the headers of magic 0 and 1 have too few
    fields for it.
    """
    if not source.is_file:
        return None
    size = min(HEADER_SIZE_UP_TO_MAGIC, source.size - position)
    header: bytes | bytearray = bytearray(size)
    if CAN_READ_CACHED:  # without a page fault, which is measured later
        source.read_into(position, memoryview(header))
    else:
        header = read_bytes(source, position, size)
    is_legacy = size == HEADER_SIZE_UP_TO_MAGIC and header[-1] < 2
    return known_starts(source) if is_legacy else None


# Headers by which map and reads are compared at first, and those of them that show whether each of
# a map takes a fault. A fault maps the pages of 4 KiB around it, with the headers of small batches.
_MEASURED, _FEWEST_MEASURED, _FAULT_AROUND = 16, 3, 1 << 16


class MapOrReadHeaders:
    """
    Headers of a cached file, from its map or by a read of each: whichever takes less time.

    A new map costs a page fault each few headers, which may take longer than a read of each.
    """

    def __init__(self, source: Source, mapped: HeaderReader) -> None:
        self._source, self._mapped = source, mapped
        self._way = MapOrReads(_MEASURED, kept=2_048, fast_ns=500)

    def fill(self, position: int, stop: int, rows: BatchTable) -> Filled:
        """See `HeaderReader`."""
        way = self._way
        is_first = way.left == _MEASURED and not way.are_read
        rows = rows[: _FEWEST_MEASURED if is_first else way.left]
        rows[:_FEWEST_MEASURED].view(np.uint8)[:] = 0  # their memory must not take a fault later
        fill = self._read if way.are_read else self._mapped.fill
        faults, began_ns = page_faults(), time.perf_counter_ns()
        filled = fill(position, stop, rows)
        taken_ns, faults = time.perf_counter_ns() - began_ns, page_faults() - faults
        _, count, end = filled
        has_small_pages = 0 < count <= min(faults, (end - position) // _FAULT_AROUND)
        way.note(count, taken_ns, has_small_pages=has_small_pages)
        return filled

    def _read(self, position: int, stop: int, rows: BatchTable) -> Filled:
        with self._source.borrowed_descriptor() as descriptor:
            file = LogFile(descriptor, self._source.file_start, self._source.size)
            return file.scan_into(position, stop, rows)
