"""Several jobs at once, their results in the order of the jobs, and never many of them."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")

# Results of a job that wait to be asked for.
_WAITING = 2
_JOBS_AHEAD = 4
_END = object()


class _Abandoned(BaseException):
    """Nobody wants the results any more."""


class _Running:
    """A job in a thread of its own, whose results are handed over one by one."""

    def __init__(self, abandoned: threading.Event) -> None:
        self._results: queue.Queue[Any] = queue.Queue(_WAITING)
        self._abandoned = abandoned
        self._error: BaseException | None = None

    def run(self, work: Callable[[Any], Iterable[Any]], job: Any) -> None:
        try:
            for result in work(job):
                self._put(result)
        except _Abandoned:
            return
        except BaseException as error:
            self._error = error
        with contextlib.suppress(_Abandoned):
            self._put(_END)

    def _put(self, result: Any) -> None:
        while not self._abandoned.is_set():
            with contextlib.suppress(queue.Full):
                self._results.put(result, timeout=0.1)
                return
        raise _Abandoned

    def results(self) -> Iterator[Any]:
        while (result := self._results.get()) is not _END:
            yield result
        if self._error is not None:
            raise self._error


def in_order(
    jobs: Iterable[Job],
    work: Callable[[Job], Iterable[Result]],
    threads: int | None,
    jobs_ahead: int = _JOBS_AHEAD,
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
    jobs_ahead : int
        Jobs that are begun, or waited for, for each thread: small ones end before their turn
        comes, and of each there may be results in memory.

    Yields
    ------
    Result
        At most a few of each job that is under way wait in memory.

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
    abandoned = threading.Event()
    waiting: deque[_Running] = deque()
    todo = iter(jobs)
    with ThreadPoolExecutor(threads) as pool:
        try:
            while True:
                while len(waiting) < jobs_ahead * threads:
                    try:
                        job = next(todo)
                    except StopIteration:
                        break
                    running = _Running(abandoned)
                    waiting.append(running)
                    pool.submit(running.run, work, job)
                if not waiting:
                    return
                yield from waiting.popleft().results()
        finally:
            abandoned.set()
            pool.shutdown(wait=True, cancel_futures=True)


def thread_count(threads: int | None) -> int:
    """Return how many threads to use: by default one per CPU."""
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if threads < 1:
        raise ValueError("threads must be at least 1")
    return threads
