"""Run an iterator ahead of its consumer, in a thread of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterator
from typing import TypeAlias, TypeVar

Item = TypeVar("Item")

# An item (in a tuple), the exception that ended the iterator, or None at its end.
_Message: TypeAlias = "tuple[Item] | BaseException | None"
_Messages: TypeAlias = "queue.Queue[_Message[Item]]"

# Seconds between two checks whether the consumer has stopped.
_CHECK_INTERVAL = 0.1


def prefetched(items: Iterator[Item], ahead: int) -> Generator[Item]:
    """
    Yield the items of an iterator that runs ahead in a thread.

    An exception of `items` is raised here, after the items before it. Closing this generator
    closes `items` and ends the thread.

    Parameters
    ----------
    items : iterator
        Only the thread uses it.
    ahead : int
        Number of items that may wait for the consumer; 0 runs `items` without a thread.
    """
    if ahead == 0:
        yield from items
        return
    messages: _Messages[Item] = queue.Queue(ahead)
    is_closed = threading.Event()
    thread = threading.Thread(
        target=_run, args=(items, messages, is_closed), name="kafkascan-prefetch", daemon=True
    )
    thread.start()
    try:
        while (message := messages.get()) is not None:
            if isinstance(message, BaseException):
                raise message
            yield message[0]
    finally:
        is_closed.set()
        thread.join()


def _run(items: Iterator[Item], messages: _Messages[Item], is_closed: threading.Event) -> None:
    """Send all items, then the end or the exception."""
    try:
        for item in items:
            if not _send((item,), messages, is_closed):
                return
        _send(None, messages, is_closed)
    except BaseException as error:
        _send(error, messages, is_closed)
    finally:
        close = getattr(items, "close", None)
        if close is not None:
            close()


def _send(message: _Message[Item], messages: _Messages[Item], is_closed: threading.Event) -> bool:
    """Wait for room and send a message; return False if the consumer has stopped."""
    while not is_closed.is_set():
        try:
            messages.put(message, timeout=_CHECK_INTERVAL)
            return True
        except queue.Full:
            continue
    return False
