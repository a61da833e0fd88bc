"""Several jobs at once, never many of their results: in the order of the jobs or as they come."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")

# Results that wait to be asked for: of the job whose turn it is, and for each thread of all jobs.
_OF_FIRST, _RESULTS_AHEAD = 2, 8
# Jobs that are begun, or waited for, for each thread: small ones end before their turn comes.
_JOBS_AHEAD = 4
# Seconds: between looks whether anybody wants results still, and for threads to end.
_LOOK, _GRACE = 0.1, 1.0


class _Abandoned(BaseException):
    """Nobody wants the results any more."""


class _Team:
    """
    Threads that work on jobs until nobody wants the results any more.

    An iterator that lies in a reference cycle is ended by the garbage collector: in any thread,
    one of the team's as well, whatever locks that holds. So to dismiss waits for no lock, and
    for nobody for ever. Nor does the interpreter when it ends: the threads are daemons.

    Parameters
    ----------
    size : int
        Threads, at most.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._threads: list[threading.Thread] = []
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.is_dismissed = False

    def begin(self, job: Callable[[], None]) -> None:
        """Work on something when a thread is free."""
        self._jobs.put(job)
        if len(self._threads) < self._size:
            thread = threading.Thread(target=self._work, name="kafkascan", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # The system gives no more: those that are there will do.
                if not self._threads:
                    raise
                return
            self._threads.append(thread)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if not self.is_dismissed:
                job()

    def dismiss(self, lock: threading.Lock, *waiting: threading.Condition) -> None:
        """
        Let all end where they would hand over their next result; wait some time for that.

        Those that wait for room look by themselves after a while, if they cannot be woken.
        """
        self.is_dismissed = True
        for _ in self._threads:
            self._jobs.put(None)
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


class _Room:
    """What jobs under way share: room for results that wait for the turn of their job."""

    def __init__(self, size: int, team: _Team) -> None:
        self.lock = threading.Lock()
        self.is_filled = threading.Condition(self.lock)
        self.first_may_go_on = threading.Condition(self.lock)
        self.others_may_go_on = threading.Condition(self.lock)
        self.size = size
        self.team = team
        self.first: _Running | None = None


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
        with self._room.lock:
            self._is_done = True
            self._room.is_filled.notify()

    def _put(self, result: Any) -> None:
        room = self._room
        with room.lock:
            while not room.team.is_dismissed:
                is_first = room.first is self
                is_own = is_first and self._own > 0
                if is_own or room.size:
                    break
                may_go_on = room.first_may_go_on if is_first else room.others_may_go_on
                may_go_on.wait(_LOOK)
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
        with room.lock:
            room.first = self
            room.others_may_go_on.notify_all()
        while True:
            with room.lock:
                while not self._results and not self._is_done:
                    room.is_filled.wait()
                if not self._results:
                    break
                result, is_own = self._results.popleft()
                if is_own:
                    self._own += 1
                else:
                    room.size += 1
                    room.others_may_go_on.notify()
                room.first_may_go_on.notify()
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
    team = _Team(threads)
    room = _Room(results_ahead * threads, team)
    waiting: deque[_Running] = deque()
    todo = iter(jobs)
    try:
        while True:
            while len(waiting) < _JOBS_AHEAD * threads:
                try:
                    job = next(todo)
                except StopIteration:
                    break
                running = _Running(room)
                waiting.append(running)
                team.begin(partial(running.run, work, job))
            if not waiting:
                return
            yield from waiting.popleft().results()
    finally:
        team.dismiss(room.lock, room.first_may_go_on, room.others_may_go_on)


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
    team = _Team(threads)
    gathered = _Gathered(_RESULTS_AHEAD * threads, team)

    def run(job: Job) -> None:
        ended = _Ended()
        try:
            for result in work(job):
                gathered.put(result)
        except _Abandoned:
            return
        except BaseException as error:
            ended.error = error
        with contextlib.suppress(_Abandoned):
            gathered.put(ended)

    left = 0
    try:
        for job in jobs:
            team.begin(partial(run, job))
            left += 1
        while left:
            result = gathered.take()
            if not isinstance(result, _Ended):
                yield result
            elif result.error is not None:
                raise result.error
            else:
                left -= 1
    finally:
        team.dismiss(gathered.lock, gathered.may_go_on)


class _Gathered:
    """Results of all jobs, as they come."""

    def __init__(self, size: int, team: _Team) -> None:
        self.lock = threading.Lock()
        self.may_go_on = threading.Condition(self.lock)
        self._is_filled = threading.Condition(self.lock)
        self._size = size
        self._team = team
        self._results: deque[Any] = deque()

    def put(self, result: Any) -> None:
        """Hand a result over when there is room for it."""
        with self.lock:
            while not self._team.is_dismissed:
                if len(self._results) < self._size:
                    break
                self.may_go_on.wait(_LOOK)
            else:
                raise _Abandoned
            self._results.append(result)
            self._is_filled.notify()

    def take(self) -> Any:
        """Return the next result."""
        with self.lock:
            while not self._results:
                self._is_filled.wait()
            self.may_go_on.notify()
            return self._results.popleft()


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
