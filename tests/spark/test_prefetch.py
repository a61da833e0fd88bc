"""Prefetching keeps order, errors and the end of an iterator."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from kafkascan.spark.rows.prefetch import prefetched


def threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name == "kafkascan-prefetch"]


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_order_and_errors(ahead: int) -> None:
    def items() -> Iterator[int]:
        yield from range(100)
        raise KeyError("at last")

    running = prefetched(items(), ahead)
    assert [next(running) for _ in range(100)] == list(range(100))
    with pytest.raises(KeyError):
        next(running)
    assert threads() == []


def test_an_iterator_that_cannot_be_closed() -> None:
    assert list(prefetched(iter([1, 2]), 1)) == [1, 2]


def test_closing_early_ends_the_thread() -> None:
    closed = []

    def items() -> Iterator[int]:
        try:
            yield from range(10**9)
        finally:
            closed.append(True)

    source = items()
    running = prefetched(source, 2)
    assert next(running) == 0
    assert threads()
    running.close()
    assert threads() == []
    assert closed == [True]
