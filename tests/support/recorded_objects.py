"""Objects of a store in memory, with a record of the ranges that were requested."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class RecordedObject:
    """
    An object; a `StoredObject`.

    Parameters
    ----------
    data : bytes
    latency : float
        Seconds that each request takes.
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
        latency: float = 0.0,
        fault: Callable[[int, int], None] = lambda position, size: None,
    ) -> None:
        self.size = len(data)
        self.ranges: list[tuple[int, int]] = []
        self.most_in_flight = 0
        self._in_flight = 0
        self._data = data
        self._latency = latency
        self._fault = fault
        self._lock = threading.Lock()

    def read(self, position: int, size: int) -> bytes:
        """Return a range."""
        assert 0 <= position < position + size <= self.size
        with self._lock:
            self.ranges.append((position, size))
            self._in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self._in_flight)
        try:
            time.sleep(self._latency)
            self._fault(position, size)
            return self._data[position : position + size]
        finally:
            with self._lock:
                self._in_flight -= 1

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
