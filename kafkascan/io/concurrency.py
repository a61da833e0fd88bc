"""Run jobs on threads with bounded results, and split work into shares."""

from __future__ import annotations

import contextlib
import itertools
import operator
import os
import queue
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan.io.worker_threads import (
    POLL,
    Cancelled,
    Job,
    OrderedJob,
    Result,
    ResultLimit,
    ThreadPool,
)

# A result of an unordered job (in a tuple), its error, or None at its end.
_Message: TypeAlias = "tuple[Result] | BaseException | None"

# Results for each thread that may wait to be read.
_RESULTS_AHEAD = 8
# Jobs for each thread that are started ahead: small jobs end before their results are read.
_JOBS_AHEAD = 4
# Below this size, the interpreter takes longer for a file than several threads save.
_SMALL_FILE = 1 << 20


def map_ordered(
    jobs: Iterable[Job],
    work: Callable[[Job], Iterable[Result]],
    threads: int | None,
    results_ahead: int = _RESULTS_AHEAD,
) -> Iterator[Result]:
    """
    Work on jobs concurrently, and yield their results in the order of the jobs.

    Parameters
    ----------
    jobs : iterable
        Read one by one, shortly before each job starts.
    work : callable
        Returns the results of a job. It runs in a thread, and continues as they are read.
    threads : int, optional
        Largest number of threads; by default one per CPU. With one, the caller's thread works.
    results_ahead : int
        Results for each thread that may wait in memory, besides two of the first job.

    Yields
    ------
    Result

    Raises
    ------
    ValueError
        If `threads` is below 1.
    The error of a job, after the results before it.
    """
    threads = require_threads(threads)
    if threads == 1:
        for job in jobs:
            yield from work(job)
        return
    team = ThreadPool(threads)
    limit = ResultLimit(results_ahead * threads, team)
    waiting: deque[OrderedJob[Result]] = deque()
    todo = iter(jobs)
    try:
        while True:
            while len(waiting) < _JOBS_AHEAD * threads:
                try:
                    job = next(todo)
                except StopIteration:
                    break
                running: OrderedJob[Result] = OrderedJob(limit)
                waiting.append(running)
                team.begin(partial(running.run, work, job))
            if not waiting:
                return
            yield from waiting.popleft().results()
    finally:
        team.dismiss(limit.lock, limit.first_may_go_on, limit.others_may_go_on)


def map_unordered(
    jobs: Iterable[Job], work: Callable[[Job], Iterable[Result]], threads: int | None
) -> Iterator[Result]:
    """
    Work on jobs concurrently, and yield their results as they become available.

    Parameters
    ----------
    jobs : iterable
        All jobs wait in memory.
    work, threads
        See `map_ordered`.

    Yields
    ------
    Result
        Results of one job in their order; at most eight for each thread wait in memory.

    Raises
    ------
    ValueError
        If `threads` is below 1.
    The first error of a job; the other jobs end at their next result.
    """
    threads = require_threads(threads)
    if threads == 1:
        for job in jobs:
            yield from work(job)
        return
    team = ThreadPool(threads)
    messages: queue.Queue[_Message[Result]] = queue.Queue(_RESULTS_AHEAD * threads)

    def put(message: _Message[Result]) -> None:
        while True:
            team.require_wanted()
            with contextlib.suppress(queue.Full):
                messages.put(message, timeout=POLL)
                return

    def take() -> _Message[Result]:
        while True:
            team.require_wanted()
            with contextlib.suppress(queue.Empty):
                return messages.get(timeout=POLL)

    def run(job: Job) -> None:
        try:
            for result in work(job):
                put((result,))
            put(None)
        except Cancelled:
            return
        except BaseException as error:
            with contextlib.suppress(Cancelled):
                put(error)

    left = 0
    try:
        for job in jobs:
            team.begin(partial(run, job))
            left += 1
        while left:
            message = take()
            if isinstance(message, BaseException):
                raise message
            if message is None:
                left -= 1
            else:
                yield message[0]
    finally:
        team.dismiss(messages.mutex, messages.not_full)


def map_parts(
    parts: Sequence[Job], work: Callable[[Job], Result], threads: int | None = None
) -> list[Result]:
    """
    Call a function with each part, on several threads.

    Parameters
    ----------
    parts : sequence
    work : callable
        Its long loops have a `ChunkSizer`, so that an error or Ctrl-C ends them soon.
    threads : int, optional
        Largest number of threads; by default one for each part.

    Returns
    -------
    list
        The results, in the order of the parts.

    Raises
    ------
    The error of a part.
    """
    threads = min(threads or len(parts), len(parts)) or 1
    return list(map_ordered(parts, lambda part: (work(part),), threads))


class Share(NamedTuple):
    """A log by its index in a sequence, and the number of threads that work on it."""

    log_index: int
    threads: int


def allocate_threads(sizes: Sequence[int], threads: int) -> tuple[list[Share], int]:
    """
    Allocate threads to jobs by size, so that all jobs end at about the same time.

    Returns
    -------
    shares : list of Share
        The largest job first.
    concurrent_jobs : int
        Number of jobs to work on concurrently, so that `threads` threads are used.
    """
    total = max(1, sum(sizes))
    largest_first = sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True)
    shares = [Share(job, max(1, threads * sizes[job] // total)) for job in largest_first]
    return shares, threads - sum(one.threads - 1 for one in shares)


def require_threads(threads: int | None, default: int | None = None) -> int:
    """
    Return the number of threads to use.

    Parameters
    ----------
    threads : int or None
        What the caller asked for.
    default : int, optional
        Returned where `threads` is None; by default the number of CPUs that this process may use.

    Raises
    ------
    ValueError
        If `threads` is below 1.
    TypeError
        If `threads` is not an integer.
    """
    if threads is not None and operator.index(threads) < 1:
        raise ValueError("threads must be at least 1")
    if threads is not None or default is not None:
        return threads or default or 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def are_small(sizes: Collection[int]) -> bool:
    """
    Return whether files are small on average: below 1 MiB.

    The interpreter bounds work on small files, so that threads only wait for each other.
    """
    return sum(sizes) < _SMALL_FILE * len(sizes)


def group_by_bytes(
    sizes: Sequence[int] | NDArray[np.int64],
    limit: int,
    *,
    most: int | None = None,
    exceed: bool = False,
) -> Iterator[slice]:
    """
    Yield slices that split a sequence of items into groups of bounded size.

    Parameters
    ----------
    sizes : sequence of int
        Bytes of each item; negative sizes count as 0.
    limit : int
        Bytes of a group. An item that is larger is a group of its own.
    most : int, optional
        Largest number of items in a group.
    exceed : bool, default False
        Whether the item that reaches a limit ends its group; by default an item that would
        exceed it begins the next group.

    Yields
    ------
    slice
        In order; none is empty.
    """
    sums = np.cumsum(np.maximum(sizes, 0), dtype=np.int64)
    first = 0
    while first < len(sizes):
        before = int(sums[first - 1]) if first else 0
        target = min(before + limit, int(sums[-1]) + 1)
        end = int(np.searchsorted(sums, target, "left" if exceed else "right")) + exceed
        last = min(len(sizes), max(end, first + 1))
        if most is not None:
            last = min(last, first + max(most, 1))
        yield slice(first, last)
        first = last


def split_by_bytes(
    sizes: Sequence[int] | NDArray[np.int64], parts: int, least: int = 1
) -> list[slice]:
    """
    Return slices that split a sequence of items into parts of about the same number of bytes.

    Parameters
    ----------
    sizes : sequence of int
        Bytes of each item; negative sizes count as 0.
    parts : int
        Number of parts, at most.
    least : int, default 1
        Bytes of a part, at least; small inputs give fewer parts.
    """
    if parts > 1:
        sums = np.cumsum(np.maximum(sizes, 0), dtype=np.int64)
        total = int(sums[-1]) if len(sums) else 0
        parts = min(parts, total // least)
    if parts <= 1:
        return [slice(0, len(sizes))]
    targets = [total * part // parts for part in range(1, parts)]
    cuts = [0, *np.searchsorted(sums, targets).tolist(), len(sizes)]
    return [slice(first, last) for first, last in itertools.pairwise(cuts)]
