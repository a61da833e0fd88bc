"""The system's page cache: what it holds of a file, and ways to read that suit it.

Cold files: reads that fetch only what they need. Cached ones: a map or reads, by their time.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from kafkascan._core.cold_reads import LogFile
from kafkascan.io.source_protocols import OPEN_FLAGS
from kafkascan.io.sources import Source

# Size of the pieces of a file that are dropped, or not.
_PIECE = 1 << 22
_HEAD = 1 << 18
_SAMPLES, _SAMPLE = 8, 1 << 12

CAN_READ_CACHED = sys.platform == "linux"
"""Whether the system has what reads of cached bytes into a buffer, beside a map, need."""


class DropBehind:
    """
    Drops what one read of a file brought into the page cache, but nothing that was there before.

    It drops the pieces of 4 MiB that had no page in the cache when this was created. A program
    that has read other pages of such a piece in the meantime reads them again. If the system does
    not report what is cached, nothing is dropped: Linux does since 6.5, to the owner of a file.

    Parameters
    ----------
    source : Source
    everything : bool, default False
        Drop all pages, also those that were there before.
    """

    def __init__(self, source: Source, *, everything: bool = False) -> None:
        self._source = source
        self._ranges = None if everything else _uncached_ranges(source)

    def drop(self) -> None:
        """Drop the pages; call this after the read, before the source is closed."""
        if self._ranges != []:
            self._source.drop_cache(self._ranges)


def _uncached_ranges(source: Source) -> list[tuple[int, int]]:
    """Return position and size of the ranges of a file that have no page in the page cache."""
    if not source.has_file or source.size == 0:
        return []
    with source.borrowed_descriptor() as descriptor:
        file = LogFile(descriptor, source.file_start, source.size)
        # Counting the pages of a cached file takes milliseconds for each GiB.
        samples = range(0, source.size, max(_SAMPLE, source.size // _SAMPLES))
        is_large = source.size > _HEAD
        if is_large and all(file.count_cached(position, _SAMPLE) != 0 for position in samples):
            return []
        # The first bytes were read to find out what the file is.
        size = source.size
        bounds = sorted({min(_HEAD, size), *range(0, size, _PIECE), size})
        pieces = [(start, stop - start) for start, stop in itertools.pairwise(bounds)]
        uncached = [piece for piece in pieces if file.count_cached(*piece) == 0]
    ranges: list[tuple[int, int]] = []
    for position, size in uncached:
        if ranges and sum(ranges[-1]) == position:
            ranges[-1] = (ranges[-1][0], ranges[-1][1] + size)
        else:
            ranges.append((position, size))
    return ranges


class SelectiveReads:
    """
    A second descriptor of a source's file, for reads that are far apart.

    The system reads ahead on the descriptor of a source. On this one it reads no page that was
    not requested.

    Parameters
    ----------
    source : Source
    descriptor : int
        Closed with this object.
    """

    def __init__(self, source: Source, descriptor: int) -> None:
        self._source = source
        self._descriptor = descriptor

    @contextmanager
    def open(self) -> Iterator[LogFile]:
        """Provide the log, while its source is open."""
        with self._source.borrowed_descriptor():
            yield LogFile(self._descriptor, self._source.file_start, self._source.size)

    def __del__(self) -> None:
        os.close(self._descriptor)


def open_selective(source: Source) -> SelectiveReads | None:
    """Return a descriptor for single reads; None if the system provides none."""
    if not (source.has_file and hasattr(os, "posix_fadvise")):
        return None
    with source.borrowed_descriptor() as opened:
        try:
            # By its path, the file may be another one by now.
            descriptor = os.open(f"/proc/self/fd/{opened}", OPEN_FLAGS)
        except OSError:
            return None
    reads = SelectiveReads(source, descriptor)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    except OSError:
        return None
    return reads


def page_faults() -> int:
    """Return the number of page faults of this thread that needed no disk."""
    import resource  # for large tables only

    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt


# A measurement of less than this share of the time before is repeated with twice as much.
_FINAL_SHARE = 0.75
# The most by which the ratio of the times multiplies how long a way is kept.
_MOST_RATIO = 4


class MapOrReads:
    """
    Chooses by their time whether cached bytes of a file are taken from its map or read.

    A fault of a map of pages of 4 KiB takes several times as long as a read; where the pages are
    large, or are mapped already, a map is faster.

    Parameters
    ----------
    measured : int
        Headers or bytes of the first measurement of a way, with cold caches of the CPU.
    kept : int
        After so many the other way is measured again.
    fast_ns : float, default 0
        Time of one in a map up to which reads are not tried.

    Attributes
    ----------
    are_read : bool
        Whether to read the next ones.
    left : int
        Most to take before `note` is called.
    """

    def __init__(self, measured: int, kept: int, *, fast_ns: float = 0) -> None:
        self._measured, self._kept, self._fast_ns = measured, kept, fast_ns
        self._other_ns = 0.0  # of one in the other way; 0 if unknown
        self._before_ns = math.inf  # of one in the last measurement; 0 if this is none
        self._taken, self._taken_ns = 0, 0
        self.are_read = False
        self.left = measured

    def note(self, count: int, taken_ns: int, *, has_small_pages: bool = False) -> None:
        """
        Take the number of headers or bytes that were taken, and their time.

        Reads are tried at once if page faults show small pages. Cold caches of the CPU, which
        make a first measurement slow, are no reason for that.
        """
        self._taken += count
        self._taken_ns += taken_ns
        self.left -= count
        if self.left > 0 and not has_small_pages:
            return
        ns, taken = self._taken_ns / self._taken, self._taken
        self._taken, self._taken_ns = 0, 0
        is_final = has_small_pages or ns >= _FINAL_SHARE * self._before_ns
        if not self.are_read and ns <= self._fast_ns:
            self._other_ns, self._before_ns, self.left = 0.0, 0.0, sys.maxsize
        elif self._other_ns > 0 and (is_final or ns < self._other_ns):
            # One that is faster at once needs no second measurement: that would be faster still.
            ratio = ns / self._other_ns
            self.are_read ^= ratio > 1
            self._other_ns, self._before_ns = 0.0, 0.0
            self.left = int(self._kept * min(max(ratio, 1 / ratio), _MOST_RATIO))
        elif not is_final:
            self._before_ns, self.left = ns, 2 * taken
        else:
            self._other_ns, self._before_ns = ns, math.inf
            self.are_read, self.left = not self.are_read, self._measured
