"""Concurrent jobs with bounded results, ordered and unordered; shares of work."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kafkascan.io import worker_threads
from kafkascan.io.concurrency import (
    allocate_threads,
    are_small,
    group_by_bytes,
    map_ordered,
    map_parts,
    map_unordered,
    require_threads,
    split_by_bytes,
)
from kafkascan.io.worker_threads import ChunkSizer
from tests.support.waiting import HANG_SECONDS, no_new_threads, wait_until


@pytest.fixture
def threads_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a busy machine take longer than the second that `ThreadPool.dismiss` waits."""
    monkeypatch.setattr(worker_threads, "_GRACE", HANG_SECONDS)


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_results_come_in_the_order_of_the_jobs(threads: int) -> None:
    def work(job: int) -> Iterator[tuple[int, int]]:
        time.sleep(0.002 * (job % 3))
        for number in range(job % 5):
            yield job, number

    expected = [(job, number) for job in range(40) for number in range(job % 5)]
    assert list(map_ordered(range(40), work, threads)) == expected


def test_an_error_is_raised_after_earlier_results() -> None:
    def work(job: int) -> Iterator[int]:
        yield job
        if job == 5:
            raise KeyError(job)

    found: list[int] = []
    with pytest.raises(KeyError):
        found.extend(map_ordered(range(100), work, 4))
    assert found == [0, 1, 2, 3, 4, 5]


@pytest.mark.usefixtures("threads_are_waited_for")
def test_jobs_do_not_run_ahead_and_end_with_their_reader() -> None:
    begun = []

    def work(job: int) -> Iterator[bytes]:
        begun.append(job)
        for _ in range(1000):
            yield bytes(10)

    with no_new_threads():
        results = map_ordered(range(1000), work, 2)
        for _ in range(5):
            next(results)
        results.close()  # type: ignore[attr-defined]
    assert len(begun) <= 10


def test_an_interrupt_while_a_thread_starts_leaves_no_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def start_interrupted(thread: threading.Thread) -> None:
        start(thread)
        started.append(thread)
        if len(started) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", start_interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(map_ordered(range(10), lambda job: [job], 4))
    for thread in started:
        thread.join(HANG_SECONDS)
        assert not thread.is_alive()


@pytest.mark.parametrize("threads", [1, 2])
def test_work_that_fails_before_it_gives_anything(threads: int) -> None:
    def work(job: int) -> list[int]:
        if job == 3:
            raise ValueError("three")
        return [job]

    found: list[int] = []
    with pytest.raises(ValueError, match="three"):
        found.extend(map_ordered(range(10), work, threads))
    assert found == [0, 1, 2]


def made_while_the_first_is_held(
    expected: int, run: Callable[..., Iterator[Any]], threads: int, **options: int
) -> int:
    """Wait for a number of results while the first job gives none; return how many are made."""
    made: dict[int, int] = {}
    is_held = threading.Event()

    def work(job: int) -> Iterator[int]:
        if job == 0:
            is_held.wait()
        for number in range(1000):
            made[job] = number + 1
            yield number

    results = run(range(1000), work, threads, **options)
    reader = threading.Thread(target=lambda: next(results))
    reader.start()
    wait_until(lambda: sum(list(made.values())) >= expected)
    time.sleep(0.3)  # for more than expected
    found = sum(made.values())
    is_held.set()
    reader.join()
    results.close()  # type: ignore[attr-defined]
    return found


def test_waiting_results_are_bounded_over_all_jobs() -> None:
    # Each job holds one more result, for which there is no room yet.
    expected = 8 * 3 + 2
    assert made_while_the_first_is_held(expected, map_ordered, 3) == expected
    expected = 2 * 3 + 2
    assert made_while_the_first_is_held(expected, map_ordered, 3, results_ahead=2) == expected


def test_the_first_job_always_goes_on() -> None:
    def work(job: int) -> Iterator[tuple[int, int]]:
        if job == 0:
            time.sleep(0.2)
        for number in range(100):
            yield job, number

    expected = [(job, number) for job in range(6) for number in range(100)]
    assert list(map_ordered(range(6), work, 3, results_ahead=1)) == expected


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_all_results_come(threads: int) -> None:
    def work(job: int) -> Iterator[tuple[int, int]]:
        time.sleep(0.002 * (job % 3))
        for number in range(job % 5):
            yield job, number

    found = list(map_unordered(range(40), work, threads))
    expected = [(job, number) for job in range(40) for number in range(job % 5)]
    assert sorted(found) == expected
    for job in range(40):  # in the order in which it gave them
        assert [one for one in found if one[0] == job] == [(job, n) for n in range(job % 5)]


def test_unordered_results_do_not_wait_for_a_slow_job() -> None:
    is_released = threading.Event()

    def work(job: int) -> Iterator[int]:
        if job == 0:
            is_released.wait()
        yield job

    results = map_unordered(range(5), work, 2)
    assert sorted(next(results) for _ in range(4)) == [1, 2, 3, 4]
    is_released.set()
    assert list(results) == [0]


@pytest.mark.usefixtures("threads_are_waited_for")
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("error", [KeyError("five"), StopIteration("five"), SystemExit()])
def test_an_error_ends_all(threads: int, error: BaseException) -> None:
    def work(job: int) -> Iterator[int]:
        if job == 5:
            raise error
        return iter([job] * 1000)

    with no_new_threads(), pytest.raises((type(error), RuntimeError)):
        list(map_unordered(range(1000), work, threads))


@pytest.mark.usefixtures("threads_are_waited_for")
def test_jobs_end_with_their_reader() -> None:
    with no_new_threads():
        results = map_unordered(range(1000), lambda job: iter([bytes(10)] * 1000), 2)
        for _ in range(5):
            next(results)
        results.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("run", [map_ordered, map_unordered])
def test_any_thread_may_collect_an_iterator(run: Callable[..., Any]) -> None:
    class Holder:
        pass

    before = set(threading.enumerate())
    threshold = gc.get_threshold()
    gc.collect()
    gc.freeze()  # the many collections inspect the objects of this test only
    gc.set_threshold(5, 10, 10)
    try:
        for _ in range(60):
            holder: Any = Holder()
            holder.results = run(range(16), lambda job: ((job, n) for n in range(100)), 4)
            holder.itself = holder
            next(holder.results)
            del holder
    finally:
        gc.set_threshold(*threshold)
        gc.unfreeze()
    wait_until(lambda: gc.collect() >= 0 and set(threading.enumerate()) <= before)


@pytest.mark.parametrize("run", ["map_ordered", "map_unordered"])
def test_the_interpreter_ends_though_results_are_waited_for_no_more(run: str) -> None:
    program = (
        f"from kafkascan.io.concurrency import {run} as run\n"
        "results = run(range(100), lambda job: iter([1] * 1000), 4)\n"
        "next(results)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=HANG_SECONDS)


@pytest.mark.parametrize("run", [map_ordered, map_unordered])
@pytest.mark.parametrize("given", [0, 1, 2])
def test_threads_that_the_system_does_not_give(
    run: Callable[..., Any], given: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [None] * given
    start = threading.Thread.start

    def start_if_there_are_any(thread: threading.Thread) -> None:
        if not left:
            raise RuntimeError("can't start new thread")
        left.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_if_there_are_any)
    if given:
        assert sorted(run(range(50), lambda job: [job], 4)) == list(range(50))
    else:
        with pytest.raises(RuntimeError, match="start"):
            list(run(range(50), lambda job: [job], 4))


def test_threads_are_asked_for() -> None:
    for run in (map_ordered, map_unordered):
        with pytest.raises(ValueError, match="threads"):
            list(run([1], lambda job: [job], 0))


@pytest.mark.parametrize(
    ("sizes", "threads", "expected"),
    [
        ((100,), 4, ([4], 1)),
        ((50, 50), 4, ([2, 2], 2)),
        ((25, 25, 25, 25), 4, ([1, 1, 1, 1], 4)),
        ((97, 1, 1, 1), 4, ([3, 1, 1, 1], 2)),
        ((1, 1, 97, 1), 4, ([3, 1, 1, 1], 2)),
        ((80, 20), 2, ([1, 1], 2)),
        ((0, 0), 2, ([1, 1], 2)),
        ((7,) * 30, 8, ([1] * 30, 8)),
        ((), 8, ([], 8)),
        ((5, 5), 1, ([1, 1], 1)),
    ],
)
def test_threads_go_to_jobs_by_their_sizes(
    sizes: tuple[int, ...], threads: int, expected: tuple[list[int], int]
) -> None:
    shares, at_once = allocate_threads(sizes, threads)
    assert ([one.threads for one in shares], at_once) == expected
    assert sorted(one.log_index for one in shares) == list(range(len(sizes)))
    # However they fall together, no more threads than were asked for.
    most = sorted((one.threads for one in shares), reverse=True)[:at_once]
    assert sum(most) <= threads


def test_number_of_threads() -> None:
    assert require_threads(None) >= 1
    assert require_threads(None, default=1) == 1
    assert require_threads(3, default=1) == 3
    with pytest.raises(ValueError, match="threads must be at least 1"):
        require_threads(0)
    for number in ("2", 2.5):
        with pytest.raises(TypeError, match="integer"):
            require_threads(number)  # type: ignore[arg-type]


def test_files_are_small_on_average() -> None:
    assert are_small([1 << 19, (1 << 20) + 5])
    assert not are_small([1 << 19, 3 << 19])
    assert not are_small([])


def groups(sizes: list[int], limit: int, **options: Any) -> list[list[int]]:
    return [sizes[group] for group in group_by_bytes(sizes, limit, **options)]


def test_groups_of_bounded_size() -> None:
    assert groups([], 10) == []
    assert groups([3, 4, 3, 1, 12, 5], 10) == [[3, 4, 3], [1], [12], [5]]
    assert groups([3, 4, 3, 1, 12, 5], 10, exceed=True) == [[3, 4, 3], [1, 12], [5]]
    assert groups([5, 0, 0], 5) == [[5, 0, 0]]
    assert groups([5, 0, 0], 6, exceed=True) == [[5, 0, 0]]
    assert groups([-5, 9, 1, 1], 10) == [[-5, 9, 1], [1]]
    assert groups([1, 2, 3], 1 << 70) == [[1, 2, 3]]


@pytest.mark.parametrize("exceed", [False, True])
def test_groups_of_bounded_count(exceed: bool) -> None:
    assert groups([1] * 5, 100, most=2, exceed=exceed) == [[1, 1], [1, 1], [1]]
    assert groups([9, 9, 1, 1], 18, most=3, exceed=exceed) == [[9, 9], [1, 1]]


def test_parts_of_about_the_same_size() -> None:
    sizes = [10] * 8
    assert split_by_bytes(sizes, 1) == [slice(0, 8)]
    assert [len(sizes[part]) for part in split_by_bytes(sizes, 4)] == [1, 2, 2, 3]
    assert len(split_by_bytes(sizes, 4, least=40)) == 2
    assert split_by_bytes(sizes, 4, least=81) == [slice(0, 8)]
    assert split_by_bytes([], 3) == [slice(0, 0)]
    # Negative sizes do not make a part miss an item.
    parts = split_by_bytes([10, -25, 10, 10], 2)
    assert [index for part in parts for index in range(4)[part]] == [0, 1, 2, 3]


# ---- pieces of long loops ---------------------------------------------------------------------


def test_pieces_take_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(worker_threads, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    pace = ChunkSizer(8)
    sizes = []
    for taken in (0.0, 0.01, 0.03, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0):
        sizes.append(pace.next_size())
        clock[0] += taken
    assert sizes == [8, 64, 128, 128, 64, 32, 16, 8, 4, 2, 1]


def test_parts_on_threads() -> None:
    assert map_parts([], str) == []
    assert map_parts([1, 2, 3], str) == map_parts([1, 2, 3], str, 2) == ["1", "2", "3"]
    with pytest.raises(ZeroDivisionError):
        map_parts([1, 0], lambda part: 1 // part)


@pytest.mark.usefixtures("threads_are_waited_for")
def test_an_error_ends_the_loops_of_other_parts() -> None:
    """Also those of teams that a worker made."""

    def run_long(_: int) -> None:
        pace = ChunkSizer(1)
        while True:
            pace.next_size()
            time.sleep(0.001)

    def work(part: int) -> None:
        if part == 0:
            time.sleep(0.1)
            raise KeyError(part)
        map_parts([1, 2], run_long)

    with no_new_threads(), pytest.raises(KeyError):
        map_parts([0, 1, 2], work)
