"""Copy batches out of a source, many together."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.walks import read_into
from kafkascan.io import result_memory
from kafkascan.io.sources import Source

# Bytes that are copied out of the source together, and rows that are considered for it.
_MAX_COPY_SIZE = 1 << 20
_MAX_COPY_ROWS = 1 << 12
# Bytes of a gap between rows that take less time to copy than a copy of its own: the header of the
# next batch, or other small batches.
_CHEAP_GAP = 1 << 10


def copy_rows(
    source: Source, starts: NDArray[np.int64], sizes: NDArray[np.int64]
) -> Iterator[tuple[int, int, NDArray[np.uint8]]]:
    """
    Copy the bytes of rows out of a source, neighbouring rows together.

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
    first, room = 0, np.empty(0, np.uint8)
    while first < len(starts):
        last = first + _count_near(starts[first:], stops[first:], sizes[first:])
        start = int(starts[first])
        size = int(stops[first:last].max()) - start
        if size > len(room):
            room = result_memory.empty(max(size, _MAX_COPY_SIZE), np.uint8)
        data = room[:size]
        read_into(source, start, data)
        source.require_unshrunk()  # Past a new end of file, its last page reads as zeros.
        yield last, start, data
        first = last


def _count_near(
    starts: NDArray[np.int64], stops: NDArray[np.int64], sizes: NDArray[np.int64]
) -> int:
    """Return how many of the first rows are close enough to be copied together."""
    starts, stops, sizes = (rows[:_MAX_COPY_ROWS] for rows in (starts, stops, sizes))
    covered = stops - starts[0]
    is_near = (starts >= starts[0]) & (covered <= _MAX_COPY_SIZE)
    # At least half of the copy is needed, except for small gaps.
    is_near &= covered <= np.cumsum(2 * sizes + _CHEAP_GAP)
    return max(1, len(is_near) if is_near.all() else int(np.argmin(is_near)))
