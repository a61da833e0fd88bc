"""Worker threads, and the bounded results of ordered jobs."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")

# Results that the first job in order may buffer beyond the shared limit.
_OF_FIRST = 2
# Seconds between checks whether results are still read, and seconds to wait for threads to end.
POLL, _GRACE = 0.1, 1.0
# Seconds that a piece of a long loop may take: Ctrl-C waits for it.
_PIECE_TIME, _LARGEST_PIECE = 0.05, 1 << 40


class Cancelled(BaseException):
    """Raised in a worker when its results are no longer read."""


class _Worker(threading.local):
    """The team that the current thread works for; None in other threads."""

    team: ThreadPool | None = None


_worker = _Worker()


class ChunkSizer:
    """
    Sizes of the pieces of one long loop, so that each takes about 50 ms.

    Between the pieces, Python handles signals in the main thread, and a worker ends whose
    results are no longer read.

    Parameters
    ----------
    size : int
        Size of the first piece, in the unit of the loop.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._began: float | None = None

    def next_size(self) -> int:
        """
        Return the size of the next piece, by the time that the last one took.

        Raises
        ------
        Cancelled
            In a worker thread that may end.
        """
        if _worker.team is not None:
            _worker.team.require_wanted()
        now = time.monotonic()
        if self._began is not None:
            taken = now - self._began
            if taken < _PIECE_TIME / 16:
                self._size = min(8 * self._size, _LARGEST_PIECE)
            elif taken < _PIECE_TIME / 2:
                self._size = min(2 * self._size, _LARGEST_PIECE)
            elif taken > _PIECE_TIME:
                self._size = max(1, self._size // 2)
        self._began = now
        return self._size


class ThreadPool:
    """
    Threads that run jobs until the team is dismissed.

    A team that was made by a worker is dismissed with the worker's team.

    The garbage collector may end an iterator in a reference cycle in any thread, also in one of
    the team, whatever locks that thread holds. So `dismiss` waits for no lock, and for no thread
    forever. Nor does the interpreter at exit: the threads are daemons.

    Parameters
    ----------
    size : int
        Largest number of threads.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._threads: list[threading.Thread] = []
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._is_dismissed = False
        self._parent = _worker.team

    @property
    def is_dismissed(self) -> bool:
        """Whether the results of the team are no longer read."""
        return self._is_dismissed or (self._parent is not None and self._parent.is_dismissed)

    def require_wanted(self) -> None:
        """Raise `Cancelled` if the team is dismissed."""
        if self.is_dismissed:
            raise Cancelled

    def begin(self, job: Callable[[], None]) -> None:
        """Run a job when a thread is free."""
        self._jobs.put(job)
        if len(self._threads) < self._size:
            thread = threading.Thread(target=self._work, name="kafkascan", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the system has no more threads: use the existing ones
                if not self._threads:
                    raise
                return
            self._threads.append(thread)

    def _work(self) -> None:
        _worker.team = self
        while (job := self._jobs.get()) is not None:
            if not self.is_dismissed:
                job()
        # For the next thread. Ctrl-C may start one that is not in the list.
        self._jobs.put(None)

    def cancel(self) -> None:
        """End all jobs at their next result, without waiting for them."""
        self._is_dismissed = True
        self._jobs.put(None)

    def dismiss(self, lock: threading.Lock, *waiting: threading.Condition) -> None:
        """
        End all jobs at their next result, and wait a limited time for the threads.

        Workers that wait for a condition poll, in case that they cannot be notified.
        """
        self.cancel()
        if lock.acquire(blocking=False):
            try:
                for one in waiting:
                    one.notify_all()
            finally:
                lock.release()
        until = time.monotonic() + _GRACE
        if threading.current_thread() not in self._threads:
            for thread in self._threads:
                thread.join(max(0.0, until - time.monotonic()))


def current_team() -> ThreadPool | None:
    """Return the team that the current thread works for; None in other threads."""
    return _worker.team


class ResultLimit:
    """
    Limit on the results of concurrent ordered jobs that wait to be read.

    Parameters
    ----------
    size : int
        Largest number of results, besides those of the first job.
    team : ThreadPool
    """

    def __init__(self, size: int, team: ThreadPool) -> None:
        self.lock = threading.Lock()
        self.is_filled = threading.Condition(self.lock)
        self.first_may_go_on = threading.Condition(self.lock)
        self.others_may_go_on = threading.Condition(self.lock)
        self.size = size
        self.team = team
        self.first: OrderedJob[Any] | None = None


class OrderedJob(Generic[Result]):
    """
    A job whose results are read one by one, after those of the jobs before it.

    Parameters
    ----------
    limit : ResultLimit
        Shared by all jobs.
    """

    def __init__(self, limit: ResultLimit) -> None:
        self._limit = limit
        self._results: deque[tuple[Result, bool]] = deque()
        # Reserved for the first job: it always goes on, whatever the others have buffered.
        self._reserved = _OF_FIRST
        self._is_done = False
        self._error: BaseException | None = None

    def run(self, work: Callable[[Job], Iterable[Result]], job: Job) -> None:
        """Work on the job, in a thread of the team."""
        try:
            for result in work(job):
                self._put(result)
        except Cancelled:
            return
        except BaseException as error:
            self._error = error
        with self._limit.lock:
            self._is_done = True
            self._limit.is_filled.notify()

    def _put(self, result: Result) -> None:
        limit = self._limit
        with limit.lock:
            while not limit.team.is_dismissed:
                is_first = limit.first is self
                is_reserved = is_first and self._reserved > 0
                if is_reserved or limit.size:
                    break
                may_go_on = limit.first_may_go_on if is_first else limit.others_may_go_on
                may_go_on.wait(POLL)
            else:
                raise Cancelled
            if is_reserved:
                self._reserved -= 1
            else:
                limit.size -= 1
            self._results.append((result, is_reserved))
            limit.is_filled.notify()

    def results(self) -> Iterator[Result]:
        """Yield the results; the job is the first one from now on."""
        limit = self._limit
        with limit.lock:
            limit.first = self
            limit.others_may_go_on.notify_all()
        while True:
            with limit.lock:
                while not self._results and not self._is_done:
                    limit.team.require_wanted()
                    limit.is_filled.wait(POLL)
                if not self._results:
                    break
                result, is_reserved = self._results.popleft()
                if is_reserved:
                    self._reserved += 1
                else:
                    limit.size += 1
                    limit.others_may_go_on.notify()
                limit.first_may_go_on.notify()
            yield result
        if self._error is not None:
            raise self._error
