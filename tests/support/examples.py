"""How many examples a property is tried with."""

from __future__ import annotations

import os

from hypothesis import settings

_GIVEN = os.environ.get("KAFKASCAN_EXAMPLES", "6")
FEWER = 1 if _GIVEN == "all" else int(_GIVEN)
"""One of how many examples is tried."""
_LEAST = 25


def examples(count: int) -> settings:
    """Return settings for `count` examples in `make test-slow`, and a sixth of them otherwise."""
    return settings(max_examples=max(count // FEWER, min(count, _LEAST)))


def seeds(count: int, least: int = _LEAST // 5) -> range:
    """Return as many seeds as `examples` tries examples, and at least some of them."""
    return range(max(count // FEWER, min(count, least)))
