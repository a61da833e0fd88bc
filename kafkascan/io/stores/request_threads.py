"""Threads that wait for answers of stores: a request takes milliseconds, and no CPU."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue

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
