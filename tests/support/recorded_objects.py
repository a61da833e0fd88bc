"""Objects of a store in memory, with a record of the ranges that were requested."""

from __future__ import annotations

import threading
from collections.abc import Callable

from kafkascan.io.stores.prefetching_reader import RequestCost

_PATIENCE_S = 0.5


class UsualCost(RequestCost):
    """What requests usually cost, however long those take that wait for others."""

    def add(self, size: int, seconds: float) -> None:
        """Do nothing."""


class RecordedObject:
    """
    An object; a `StoredObject`.

    Parameters
    ----------
    data : bytes
    together : int
        Requests are answered when so many were in flight at the same time once, or when no other
        one follows for a while: what a reader requests at the same time is seen on a busy machine,
        too.
    fault : callable, optional
        Called with each range before it is answered; it may raise.

    Attributes
    ----------
    ranges : list of (int, int)
        Position and size of each request.
    most_in_flight : int
        Requests at the same time.
    """

    path = "memory://recorded/topic-0/00000000000000000000.log"

    def __init__(
        self,
        data: bytes,
        together: int = 1,
        fault: Callable[[int, int], None] = lambda position, size: None,
    ) -> None:
        self.size = len(data)
        self.ranges: list[tuple[int, int]] = []
        self.most_in_flight = 0
        self._in_flight = 0
        self._data = data
        self._together = together
        self._fault = fault
        self._changed = threading.Condition()

    def read(self, position: int, size: int) -> bytes:
        """Return a range."""
        assert 0 <= position < position + size <= self.size
        with self._changed:
            self.ranges.append((position, size))
            self._in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self._in_flight)
            self._changed.notify_all()
            while self.most_in_flight < self._together and self._is_followed():
                pass
        try:
            self._fault(position, size)
            return self._data[position : position + size]
        finally:
            with self._changed:
                self._in_flight -= 1

    def _is_followed(self) -> bool:
        """Wait for another request; return whether one came."""
        count = len(self.ranges)
        return self._changed.wait_for(lambda: len(self.ranges) > count, _PATIENCE_S)

    @property
    def requested_bytes(self) -> int:
        """Bytes of all requests."""
        return sum(size for _, size in self.ranges)

    def is_each_byte_requested_once(self) -> bool:
        """Whether the requests are the whole object, and do not overlap."""
        end = 0
        for position, size in sorted(self.ranges):
            if position != end:
                return False
            end += size
        return end == self.size
