"""Copy batches out of a source into pooled buffers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kafkascan._core.unpacking import PIECE_SIZE
from kafkascan.batches.walks import read_into
from kafkascan.io.sources import Source

_MAX_POOLED = 8
# Bytes that are copied out of the source together, and rows that are considered for it.
_MAX_COPY_SIZE = 1 << 20
_MAX_COPY_ROWS = 1 << 12


class BufferPool:
    """
    Reuses the buffers of discarded tables.

    Page faults in fresh memory take as long as the decompression into it.
    """

    def __init__(self) -> None:
        self._buffers: list[NDArray[np.uint8]] = []
        self._scratch: NDArray[np.uint8] | None = None

    def scratch(self, size: int) -> NDArray[np.uint8]:
        """Return a buffer whose content is valid until the next call."""
        if size > _MAX_COPY_SIZE:
            return np.empty(size, np.uint8)
        if self._scratch is None:
            self._scratch = np.empty(_MAX_COPY_SIZE, np.uint8)
        return self._scratch[:size]

    def take(self, size: int) -> NDArray[np.uint8]:
        """Return a buffer of at least `size` bytes."""
        try:
            buffer = self._buffers.pop()
        except IndexError:
            return np.empty(size, np.uint8)
        return buffer if len(buffer) >= size else np.empty(size, np.uint8)

    def give_back(self, buffers: list[NDArray[np.uint8]]) -> None:
        """Keep buffers that are no longer referenced, up to a limit."""
        room = _MAX_POOLED - len(self._buffers)
        usual = [buffer for buffer in buffers if len(buffer) == PIECE_SIZE]
        self._buffers += usual[: max(0, room)]


def copy_rows(
    source: Source, starts: NDArray[np.int64], sizes: NDArray[np.int64], pool: BufferPool
) -> Iterator[tuple[int, int, NDArray[np.uint8]]]:
    """
    Copy the bytes of rows out of a source, adjacent rows together.

    Codec libraries get copies because they would crash on a mapped file that is truncated.

    Yields
    ------
    stop : int
        Number of rows that have been copied so far.
    start : int
        Position of the bytes in the source.
    data : ndarray of uint8
        Valid until the next ones are requested.
    """
    stops = starts + sizes
    first = 0
    while first < len(starts):
        last = first + _count_adjacent(starts[first:], stops[first:], sizes[first:])
        start = int(starts[first])
        data = pool.scratch(int(stops[first:last].max()) - start)
        read_into(source, start, data)
        source.require_unshrunk()  # Past a new end of file, its last page reads as zeros.
        yield last, start, data
        first = last


def _count_adjacent(
    starts: NDArray[np.int64], stops: NDArray[np.int64], sizes: NDArray[np.int64]
) -> int:
    """Return how many of the first rows are close enough to be copied together."""
    starts, stops, sizes = (rows[:_MAX_COPY_ROWS] for rows in (starts, stops, sizes))
    covered = stops - starts[0]
    is_near = (starts >= starts[0]) & (covered <= _MAX_COPY_SIZE)
    is_near &= covered <= 2 * np.cumsum(sizes)  # At least half of the copy is needed.
    return max(1, len(is_near) if is_near.all() else int(np.argmin(is_near)))
