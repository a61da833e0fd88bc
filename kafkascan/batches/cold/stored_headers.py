"""Request the headers of an object of a store ahead of a walk, many at the same time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.cold.index_starts import starts_of
from kafkascan.format.layout import OFFSET_INDEX_ENTRY
from kafkascan.io.sources import Source

# Bytes below which an object is read in order: a few requests fetch all of it.
_SMALLEST_OBJECT = 1 << 22
# Headers that are requested ahead: at first, and then.
_FIRST_REQUESTED, _REQUESTED = 16, 1024
# An index is dense if it contains at least 2 of 3 batches: a walk waits for each of the others.
_BATCHES_PER_HINT = 1.5


class StoredHeaders:
    """
    Requests headers at positions from the ``.index`` of a log, which are hints.

    The walk reads the rows from batch to batch, so that they are the same with any hints.

    Parameters
    ----------
    source : Source
    """

    def __init__(self, source: Source) -> None:
        self._ahead = source.ahead if source.size >= _SMALLEST_OBJECT else None
        self._hints: NDArray[np.int64] | None = None
        self._requested_to = -1
        self._again_from = 0
        self._count = _FIRST_REQUESTED
        self._batches_left = 0  # more batches before `_again_from` than that: a sparse index

    def request(self, position: int, stop: int) -> None:
        """Request the next headers of a walk that is at a position."""
        if self._ahead is None or position < self._again_from:
            return
        if self._hints is None:
            self._hints = _positions_in(self._ahead.read_index())
        first, last = np.searchsorted(self._hints, (position, stop)).tolist()
        found = self._hints[first : min(last, first + self._count)]
        if len(found) < 2 or not self._ahead.is_worth(int(found[-1] - found[0]) // len(found)):
            self._ahead = None
            return
        self._ahead.request(found[found > self._requested_to].tolist())
        self._requested_to = int(found[-1])
        self._again_from = int(found[len(found) // 2])
        self._batches_left = int(_BATCHES_PER_HINT * (len(found) // 2)) + 2
        self._count = _REQUESTED

    def note(self, batches: int) -> None:
        """Take the number of batches that the walk found."""
        self._batches_left -= batches
        if self._batches_left < 0:
            self._ahead = None


def _positions_in(index: bytes | None) -> NDArray[np.int64]:
    count = 0 if index is None else len(index) // OFFSET_INDEX_ENTRY.itemsize
    return starts_of(np.frombuffer(index or b"", OFFSET_INDEX_ENTRY, count))
