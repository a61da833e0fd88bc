"""Bounds that hold on slow and busy machines: for hangs, CPU time and threads that end."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

HANG_SECONDS = 600
"""
A process or thread that takes longer hangs. The number says nothing about speed: a busy machine
may take a hundred times as long as a quiet one.
"""

IS_SANITIZED = "libasan" in os.environ.get("LD_PRELOAD", "")
"""Whether AddressSanitizer runs, whose allocator takes memory and time of its own."""


def wait_until(is_true: Callable[[], object]) -> None:
    """Wait until a condition is true; fail if it hangs."""
    until = time.monotonic() + HANG_SECONDS
    while not is_true():
        assert time.monotonic() < until, "it hangs"
        time.sleep(0.01)


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a running process, which does not depend on other processes."""
    # What clock_getcpuclockid(3) returns on Linux.
    return time.clock_gettime((~pid << 3) | 2)


@contextmanager
def no_new_threads() -> Iterator[None]:
    """Fail if threads that were started inside the block are alive at its end."""
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before
