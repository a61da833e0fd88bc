"""Several jobs at once, never many of their results: in the order of the jobs or as they come."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")

# Results that wait to be asked for: of the job whose turn it is, and for each thread of all jobs.
_OF_FIRST, _RESULTS_AHEAD = 2, 8
# Jobs that are begun, or waited for, for each thread: small ones end before their turn comes.
_JOBS_AHEAD = 4


class _Abandoned(BaseException):
    """Nobody wants the results any more."""


class _Room:
    """What jobs under way share: room for results that wait for the turn of their job."""

    def __init__(self, size: int) -> None:
        lock = threading.Lock()
        self.is_filled = threading.Condition(lock)
        self.is_taken = threading.Condition(lock)
        self.size = size
        self.first: _Running | None = None
        self.is_abandoned = False

    def abandon(self) -> None:
        """Let all jobs end where they would hand over their next result."""
        with self.is_taken:
            self.is_abandoned = True
            self.is_taken.notify_all()


class _Running:
    """A job in a thread of its own, whose results are handed over one by one."""

    def __init__(self, room: _Room) -> None:
        self._room = room
        self._results: deque[tuple[Any, bool]] = deque()
        # Room of its own, when it is the first: so it goes on, whatever the others have filled.
        self._own = _OF_FIRST
        self._is_done = False
        self._error: BaseException | None = None

    def run(self, work: Callable[[Any], Iterable[Any]], job: Any) -> None:
        try:
            for result in work(job):
                self._put(result)
        except _Abandoned:
            return
        except BaseException as error:
            self._error = error
        with self._room.is_filled:
            self._is_done = True
            self._room.is_filled.notify()

    def _put(self, result: Any) -> None:
        room = self._room
        with room.is_taken:
            while not room.is_abandoned:
                is_own = room.first is self and self._own > 0
                if is_own or room.size:
                    break
                room.is_taken.wait()
            else:
                raise _Abandoned
            if is_own:
                self._own -= 1
            else:
                room.size -= 1
            self._results.append((result, is_own))
            room.is_filled.notify()

    def results(self) -> Iterator[Any]:
        """Yield the results, now that it is the first."""
        room = self._room
        with room.is_taken:
            room.first = self
            room.is_taken.notify_all()
        while True:
            with room.is_filled:
                while not self._results and not self._is_done:
                    room.is_filled.wait()
                if not self._results:
                    break
                result, is_own = self._results.popleft()
                if is_own:
                    self._own += 1
                else:
                    room.size += 1
                room.is_taken.notify_all()
            yield result
        if self._error is not None:
            raise self._error


def in_order(
    jobs: Iterable[Job],
    work: Callable[[Job], Iterable[Result]],
    threads: int | None,
    results_ahead: int = _RESULTS_AHEAD,
) -> Iterator[Result]:
    """
    Work on jobs, several at once, and yield what they give in the order of the jobs.

    Parameters
    ----------
    jobs : iterable
        Taken one by one, little before their turn comes.
    work : callable
        Gives the results of a job; it runs in a thread, and goes on as they are asked for.
    threads : int, optional
        At most this many; by default one per CPU. With one, all is done in the caller's.
    results_ahead : int
        Results for each thread that may wait in memory, besides two of the job whose turn it is.

    Yields
    ------
    Result

    Raises
    ------
    ValueError
        If `threads` is below 1.
    What `work` raises, when its turn comes.
    """
    threads = thread_count(threads)
    if threads == 1:
        for job in jobs:
            yield from work(job)
        return
    room = _Room(results_ahead * threads)
    waiting: deque[_Running] = deque()
    todo = iter(jobs)
    with ThreadPoolExecutor(threads) as pool:
        try:
            while True:
                while len(waiting) < _JOBS_AHEAD * threads:
                    try:
                        job = next(todo)
                    except StopIteration:
                        break
                    running = _Running(room)
                    waiting.append(running)
                    pool.submit(running.run, work, job)
                if not waiting:
                    return
                yield from waiting.popleft().results()
        finally:
            room.abandon()
            pool.shutdown(wait=True, cancel_futures=True)


def as_they_come(
    jobs: Iterable[Job], work: Callable[[Job], Iterable[Result]], threads: int | None
) -> Iterator[Result]:
    """
    Work on jobs, several at once, and yield whatever any of them gives.

    Parameters
    ----------
    jobs : iterable
        Of all of them, not so many that they could not wait in memory.
    work, threads
        As of `in_order`.

    Yields
    ------
    Result
        Those of one job in their order; at most eight for each thread wait in memory.

    Raises
    ------
    ValueError
        If `threads` is below 1.
    What `work` raises first; then the other jobs end at their next result.
    """
    threads = thread_count(threads)
    if threads == 1:
        for job in jobs:
            yield from work(job)
        return
    results: queue.Queue[Any] = queue.Queue(_RESULTS_AHEAD * threads)
    is_abandoned = threading.Event()

    def put(result: Any) -> None:
        while not is_abandoned.is_set():
            with contextlib.suppress(queue.Full):
                return results.put(result, timeout=0.1)
        raise _Abandoned

    def run(job: Job) -> None:
        ended = _Ended()
        try:
            for result in work(job):
                put(result)
        except _Abandoned:
            return
        except BaseException as error:
            ended.error = error
        with contextlib.suppress(_Abandoned):
            put(ended)

    with ThreadPoolExecutor(threads) as pool:
        try:
            left = len([pool.submit(run, job) for job in jobs])
            while left:
                result = results.get()
                if not isinstance(result, _Ended):
                    yield result
                elif result.error is not None:
                    raise result.error
                else:
                    left -= 1
        finally:
            is_abandoned.set()
            pool.shutdown(wait=True, cancel_futures=True)


class _Ended:
    """Stands behind the last result of a job."""

    error: BaseException | None = None


class Share(NamedTuple):
    """A job, by its number, and how many threads work on it."""

    job: int
    threads: int


def share_out(sizes: Sequence[int], threads: int) -> tuple[list[Share], int]:
    """
    Share threads out to jobs by their sizes, so that none is at work long after the others.

    Returns
    -------
    shares : list of Share
        The largest job first.
    at_once : int
        How many of these to work on at once, in order not to use more threads.
    """
    total = max(1, sum(sizes))
    largest_first = sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True)
    shares = [Share(job, max(1, threads * sizes[job] // total)) for job in largest_first]
    return shares, threads - sum(one.threads - 1 for one in shares)


def thread_count(threads: int | None) -> int:
    """Return how many threads to use: by default one per CPU."""
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if threads < 1:
        raise ValueError("threads must be at least 1")
    return threads
