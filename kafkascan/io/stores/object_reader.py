"""Read an object of a store: in large blocks, or only the ranges that a header walk needs."""

from __future__ import annotations

import threading
from collections.abc import Callable

# Bytes of a large request, and of the small one that reads a header after a jump.
_BLOCK = 1 << 23
_SMALL = 1 << 14
# A gap that is read rather than skipped: as long as a request takes, so many bytes arrive.
_GAP = 1 << 19
# Bytes that stay in memory. A table of batches, with a batch of some megabytes at its end, is
# walked, verified and decoded from them.
_KEPT = 3 * _BLOCK


class ObjectReader:
    """
    Read an object in few requests, and each byte once.

    Requests that follow each other are enlarged up to 8 MiB. After a jump, such as from one header
    of a large batch to the next, only a few bytes are requested.

    Parameters
    ----------
    path : str
    size : int
    read : callable
        Returns the bytes at a position, given the position and a size.
    bulk_stop : int, optional
        All bytes up to this position will be read in order, so jumps are not skipped.
    """

    def __init__(
        self,
        path: str,
        size: int,
        read: Callable[[int, int], bytes],
        bulk_stop: int = 0,
    ) -> None:
        self.path = path
        self.size = size
        self._read = read
        self._bulk_stop = min(bulk_stop, size)
        self._extents: list[tuple[int, bytes]] = []
        self._next = -_BLOCK  # the position after the last request; at first, far from any
        self._last_size = 0
        self._lock = threading.Lock()

    def read_at(self, position: int, size: int) -> bytes:
        """See `ReadsAt.read_at`."""
        with self._lock:
            extent = self._extent_at(position)
            if extent is None:
                start, stop = self._request(position, size)
                extent = (start, self._read(start, stop - start))
                self._keep(extent)
        start, data = extent
        return data[position - start : position - start + size]

    def _extent_at(self, position: int) -> tuple[int, bytes] | None:
        for start, data in reversed(self._extents):
            if start <= position < start + len(data):
                return start, data
        return None

    def _request(self, position: int, size: int) -> tuple[int, int]:
        """Choose the range to request for a range whose first byte is not in memory."""
        start, stop = position, position + max(min(size, _BLOCK), _SMALL)
        gap = position - self._next
        if position < self._bulk_stop:
            start = self._next if 0 <= gap < _BLOCK else position
            stop = min(max(start + _BLOCK, position + 1), self._bulk_stop)
        elif self._bulk_stop:
            stop = position + size  # only the end of the last batch
        elif 0 <= gap <= _GAP:
            start = self._next
            stop = max(stop, start + min(2 * self._last_size, _BLOCK))
        known = (one for one, data in self._extents if one > position and len(data) > _SMALL)
        return start, min(stop, self.size, *known)

    def _keep(self, extent: tuple[int, bytes]) -> None:
        start, data = extent
        self._next, self._last_size = start + len(data), len(data)
        self._extents.append(extent)
        while sum(len(one) for _, one in self._extents) > _KEPT:
            del self._extents[0]
