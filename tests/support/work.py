"""Bounds of work that do not depend on how fast or busy a machine is."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import FrameType

# A ratio of quadratic work is 16, of linear work 4; other processes change single rounds only.
_TIMES_LARGER, _LARGEST_RATIO, _ROUNDS = 4, 9, 30


def count_calls(action: Callable[[], object]) -> int:
    """Return how many functions are called from Python while an action runs."""
    count = 0

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


def require_linear_time(small: Callable[[], object], large: Callable[[], object]) -> None:
    """
    Fail if an action on four times the input takes far more than four times as long.

    The least CPU times of up to 30 rounds are compared, so a busy machine does not matter.
    """
    shortest = [float("inf")] * 2
    for _ in range(_ROUNDS):
        for row, action in enumerate((small, large)):
            before = time.process_time()
            action()
            shortest[row] = min(shortest[row], time.process_time() - before)
        # Below a millisecond, the fixed cost of a call is most of it.
        if shortest[1] < _LARGEST_RATIO * max(shortest[0], 0.001):
            return
    raise AssertionError(f"{_TIMES_LARGER} times the input took {shortest[1] / shortest[0]} times")
