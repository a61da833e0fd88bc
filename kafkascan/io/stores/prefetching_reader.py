"""Read an object with several requests in flight, and only the ranges that are needed."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING

from kafkascan.io.stores.stored_objects import StoredObject

if TYPE_CHECKING:
    from concurrent.futures import Future

REQUESTS_AT_ONCE = 192
"""Requests of a process that are in flight at the same time; others wait."""

_Job = tuple["Future[bytes]", Callable[[], bytes]]


class RequestThreads:
    """
    Runs requests in the background; all readers of a process share one.

    The threads are daemons: a store that does not answer does not keep a program from ending.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._lock = threading.Lock()
        self._count = 0

    def start(self, request: Callable[[], bytes]) -> Future[bytes]:
        """Start a request; its result, or error, is that of the future."""
        from concurrent.futures import Future

        future: Future[bytes] = Future()
        self._jobs.put((future, request))
        with self._lock:
            is_one_more = not self._jobs.empty() and self._count < REQUESTS_AT_ONCE
            self._count += is_one_more
        if is_one_more:
            self._start_thread()
        return future

    def _start_thread(self) -> None:
        try:
            threading.Thread(target=self._run, name="kafkascan-request", daemon=True).start()
        except RuntimeError:  # the system has no more threads
            with self._lock:
                self._count -= 1
                is_alone = self._count == 0
            if is_alone:
                self._run_next()

    def _run(self) -> None:
        while True:
            self._run_next()

    def _run_next(self) -> None:
        future, request = self._jobs.get()
        try:
            future.set_result(request())
        except BaseException as error:
            future.set_exception(error)


_threads = RequestThreads()


def request_threads() -> RequestThreads:
    """Return the threads of this process."""
    return _threads


def _replace_after_fork() -> None:
    # The child has none of its parent's threads.
    global _threads
    _threads = RequestThreads()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_replace_after_fork)


# Bytes of a large request, and of the small one that reads a header.
_BLOCK = 1 << 23
_HEADER = 1 << 12
_FIRST = 1 << 14
# Requests that follow each other grow by this factor, up to a block; then so many are in flight.
_GROWTH = 8
_BLOCKS_AHEAD = 3
# Bytes that stay in memory, and headers. A table of batches, with a batch of some megabytes at its
# end, is walked, verified and decoded from them.
_KEPT_BYTES = (5 + _BLOCKS_AHEAD) * _BLOCK
_KEPT_HEADERS = 4096
# Measured times of requests of these sizes say what a request, and a byte, costs.
_SMALL, _LARGE = 1 << 16, 1 << 20
_WEIGHT = 0.2
# Seconds of CPU time that a request takes.
_WORK = 2e-4


@dataclass
class RequestCost:
    """
    What requests cost, by those so far; at first, what is usual for stores of objects.

    Attributes
    ----------
    latency : float
        Seconds until the first byte.
    bandwidth : float
        Bytes per second of one request.
    """

    latency: float = 0.02
    bandwidth: float = 1e8

    def add(self, size: int, seconds: float) -> None:
        """Take a request into account."""
        if size <= _SMALL:
            self.latency += _WEIGHT * (min(max(seconds, 2e-4), 1.0) - self.latency)
        elif size >= _LARGE:
            speed = size / max(seconds - self.latency, 1e-4)
            self.bandwidth += _WEIGHT * (min(max(speed, 1e6), 1e10) - self.bandwidth)

    def bytes_of_a_request(self, at_once: int = 1) -> int:
        """Return how many bytes take as long as a request, of which some are in flight."""
        return int(max(self.latency / at_once, _WORK) * self.bandwidth)


@dataclass(frozen=True)
class _Range:
    """A range that was requested, and its bytes when they have arrived."""

    start: int
    stop: int
    data: Future[bytes]


class PrefetchingReader:
    """
    Read an object; a `ReadsAt`.

    Requests that follow each other are enlarged, and then several are in flight. After a jump,
    such as from one header of a large batch to the next, only a few bytes are requested, unless
    the bytes between cost less than a request.

    Parameters
    ----------
    stored : StoredObject
    read_index : callable, optional
        Returns the bytes of the ``.index`` of a log, or None.
    cost : RequestCost, optional
    bulk_stop : int, default 0
        Announces that all bytes before this position will be read in order, and few after it.
    """

    def __init__(
        self,
        stored: StoredObject,
        read_index: Callable[[], bytes | None] | None = None,
        cost: RequestCost | None = None,
        *,
        bulk_stop: int = 0,
    ) -> None:
        self.path = stored.path
        self.size = stored.size
        self._stored = stored
        self._read_index = read_index
        self._cost = RequestCost() if cost is None else cost
        self._expected = bulk_stop  # the position before which all bytes will be read
        self._ahead_stop = bulk_stop or self.size
        self._begin()

    def with_index(self, read_index: Callable[[], bytes | None]) -> PrefetchingReader:
        """Return a new reader of the same object; `read_index` is as above."""
        return PrefetchingReader(self._stored, read_index, self._cost)

    def _begin(self) -> None:
        self._threads = request_threads()
        self._lock = threading.Lock()
        self._blocks: list[_Range] = []  # the one that was used last is the last one
        self._headers: OrderedDict[int, Future[bytes]] = OrderedDict()
        self._next = -1  # the position after the last request

    def _require_threads(self) -> None:
        # In the child of a fork, requests of the parent are never answered.
        if self._threads is not request_threads():
            self._begin()

    def read_at(self, position: int, size: int) -> bytes:
        """See `ReadsAt.read_at`."""
        self._require_threads()
        with self._lock:
            header = self._headers.get(position)
            block = None if header is not None else self._block_at(position)
            if header is None:
                block = block or self._request(position, size)
                self._request_following(block)
        if block is None:
            assert header is not None
            return header.result()[:size]
        try:
            data = block.data.result()
        except BaseException:
            self._forget(block)
            raise
        return data[position - block.start : position - block.start + size]

    def read_index(self) -> bytes | None:
        """Return the bytes of the ``.index`` beside a log; None if there is none to read."""
        return None if self._read_index is None else self._read_index()

    def expect(self, stop: int) -> None:
        """Announce that the bytes before `stop` will be read; 0 if that is not known."""
        self._expected = stop

    def should_skip_gap(self, gap: int) -> bool:
        """Return whether it takes less time to request headers than the gaps between them."""
        return gap > _HEADER + self._cost.bytes_of_a_request(REQUESTS_AT_ONCE)

    def request(self, positions: Iterable[int]) -> None:
        """Start to read the headers at positions, without waiting for them."""
        self._require_threads()
        with self._lock:
            for position in positions:
                if position not in self._headers and self._block_at(position) is None:
                    stop = min(position + _HEADER, self.size)
                    self._headers[position] = self._start(position, stop)
            while len(self._headers) > _KEPT_HEADERS:
                self._headers.popitem(last=False)

    def _forget(self, block: _Range) -> None:
        """Request the range again if it is read again."""
        with self._lock:
            self._blocks = [one for one in self._blocks if one is not block]

    def _block_at(self, position: int) -> _Range | None:
        for number in range(len(self._blocks) - 1, -1, -1):
            block = self._blocks[number]
            if block.start <= position < block.stop:
                self._blocks.append(self._blocks.pop(number))
                return block
        return None

    def _request(self, position: int, size: int) -> _Range:
        """Request a range whose first byte was not requested yet."""
        start, stop = position, position + max(min(size, _BLOCK), _HEADER)
        if position < self._expected:
            stop = max(stop, min(start + _BLOCK, self._expected))
        elif self._next < 0:
            stop = max(stop, start + _FIRST)
        before = [one for one in self._blocks if one.stop <= position]
        if before:
            nearest = max(before, key=lambda one: one.stop)
            is_expected = position <= min(self._expected, nearest.stop + _BLOCK)
            if is_expected or position - nearest.stop <= self._cost.bytes_of_a_request():
                start, size = nearest.stop, nearest.stop - nearest.start
                grown = start + min(_GROWTH * size, _BLOCK)
                stop = max(stop, min(grown, self._ahead_stop))
        return self._add(start, stop)

    def _request_following(self, block: _Range) -> None:
        """Request the next blocks, if the reads are in order."""
        if block.stop - block.start < _BLOCK:
            return
        starts = {one.start: one for one in self._blocks}
        chain = [block]
        while chain[-1].stop in starts:
            chain.append(starts[chain[-1].stop])
        if chain[-1].stop != self._next or len(chain) > _BLOCKS_AHEAD:
            return
        # The blocks ahead are needed more than those that were used last.
        self._blocks = [one for one in self._blocks if one not in chain] + chain[::-1]
        for _ in range(len(chain), _BLOCKS_AHEAD + 1):
            if self._next < self._ahead_stop:
                self._add(self._next, min(self._next + _BLOCK, self._ahead_stop))

    def _add(self, start: int, stop: int) -> _Range:
        known = (one.start for one in self._blocks if one.start > start)
        stop = min(stop, self.size, *known)
        block = _Range(start, stop, self._start(start, stop))
        self._next = stop
        self._blocks.append(block)
        while sum(one.stop - one.start for one in self._blocks) > _KEPT_BYTES:
            del self._blocks[0]
        return block

    def _start(self, start: int, stop: int) -> Future[bytes]:
        def read() -> bytes:
            begin = time.monotonic()
            data = self._stored.read(start, stop - start)
            self._cost.add(stop - start, time.monotonic() - begin)
            return data

        return self._threads.start(read)
