"""An iterator that runs ahead, in a thread of its own."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Generator, Iterator
from typing import TypeVar

Item = TypeVar("Item")


class _Stopped(Exception):  # noqa: N818 - it is no error
    """Nobody wants more."""


def prefetched(items: Iterator[Item], ahead: int) -> Generator[Item]:
    """
    Yield items that a thread gets, some of them ahead.

    What `items` raises is raised here, behind the items before it. When this is closed, so is
    `items`, and the thread has ended.

    Parameters
    ----------
    items : iterator
        Used by the thread alone.
    ahead : int
        Items that may wait; with 0 there is no thread.
    """
    if ahead == 0:
        yield from items
        return
    waiting: queue.Queue[tuple[Item | None, BaseException | None]] = queue.Queue(ahead)
    is_stopped = threading.Event()

    def put(item: Item | None, error: BaseException | None = None) -> None:
        while not is_stopped.is_set():
            try:
                return waiting.put((item, error), timeout=0.1)
            except queue.Full:
                continue
        raise _Stopped

    def run() -> None:
        try:
            for item in items:
                put(item)
            put(None, StopIteration())
        except _Stopped:
            pass
        except BaseException as error:
            with contextlib.suppress(_Stopped):
                put(None, error)
        finally:
            close = getattr(items, "close", None)
            if close is not None:
                close()

    thread = threading.Thread(target=run, name="kafkascan-prefetch", daemon=True)
    thread.start()
    try:
        while True:
            item, error = waiting.get()
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield item  # type: ignore[misc]
    finally:
        is_stopped.set()
        thread.join()
