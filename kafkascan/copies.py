"""Bytes copied out of a source, many batches at once, and the memory that they go to."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kafkascan._core.unpacking import PIECE_SIZE
from kafkascan.sources import Source
from kafkascan.walks import read_into

_MOST_POOLED = 8
# Compressed bytes are copied out of the source this many at once.
_COPIED_AT_ONCE = 1 << 20
_LOOKED_AT = 1 << 12


class PiecePool:
    """
    Memory of tables that are gone, for those that come.

    Fresh memory costs the system as much as decompressing into it does.
    """

    def __init__(self) -> None:
        self._pieces: list[NDArray[np.uint8]] = []
        self._scratch: NDArray[np.uint8] | None = None

    def scratch(self, size: int) -> NDArray[np.uint8]:
        """Return room for bytes that nobody looks at once the next ask for it."""
        if size > _COPIED_AT_ONCE:
            return np.empty(size, np.uint8)
        if self._scratch is None:
            self._scratch = np.empty(_COPIED_AT_ONCE, np.uint8)
        return self._scratch[:size]

    def take(self, size: int) -> NDArray[np.uint8]:
        """Return a piece of at least a size."""
        try:
            piece = self._pieces.pop()
        except IndexError:
            return np.empty(size, np.uint8)
        return piece if len(piece) >= size else np.empty(size, np.uint8)

    def give_back(self, pieces: list[NDArray[np.uint8]]) -> None:
        """Keep some pieces that nobody looks at any more."""
        room = _MOST_POOLED - len(self._pieces)
        self._pieces += [piece for piece in pieces if len(piece) == PIECE_SIZE][: max(0, room)]


def copy_rows(
    source: Source, starts: NDArray[np.int64], sizes: NDArray[np.int64], pool: PiecePool
) -> Iterator[tuple[int, int, NDArray[np.uint8]]]:
    """
    Yield the bytes of some rows, copied: libraries know nothing of maps whose files shrink.

    Neighbours are copied at once. Besides the bytes, it says up to which row they are and
    where in the source they begin. They are gone when the next are asked for.
    """
    stops = starts + sizes
    first = 0
    while first < len(starts):
        last = first + _count_near(starts[first:], stops[first:], sizes[first:])
        start = int(starts[first])
        data = pool.scratch(int(stops[first:last].max()) - start)
        read_into(source, start, data)
        source.require_unshrunk()  # what lies behind a new end reads as zeros, up to its page
        yield last, start, data
        first = last


def _count_near(
    starts: NDArray[np.int64], stops: NDArray[np.int64], sizes: NDArray[np.int64]
) -> int:
    """Return how many of the first lie so near to each other that they are copied at once."""
    starts, stops, sizes = starts[:_LOOKED_AT], stops[:_LOOKED_AT], sizes[:_LOOKED_AT]
    covered = stops - starts[0]
    is_near = (starts >= starts[0]) & (covered <= _COPIED_AT_ONCE)
    is_near &= covered <= 2 * np.cumsum(sizes)  # most of it is wanted
    return max(1, len(is_near) if is_near.all() else int(np.argmin(is_near)))
