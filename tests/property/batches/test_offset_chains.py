"""The selection of batches whose offsets ascend, against all possible selections."""

from __future__ import annotations

import itertools
from typing import TypeAlias

import numpy as np
from hypothesis import example, given, strategies as st

import kafkascan as ks
from kafkascan.batches.columns import BatchTable
from kafkascan.batches.resyncing.offset_chains import are_ascending, select_ascending

SIZE = 100

Row: TypeAlias = tuple[int, int, bool]

rows = st.tuples(st.integers(0, 9), st.integers(0, 2), st.booleans())
logs = st.lists(rows, min_size=1, max_size=9)


def table(log: list[Row], start: int) -> BatchTable:
    """Return batches of (base_offset, last_offset_delta, whether bytes before it are damaged)."""
    batches = np.zeros(len(log), ks.BATCH_DTYPE)
    position = start
    for batch, (first, delta, is_apart) in zip(batches, log, strict=True):
        position += is_apart
        batch["position"], batch["base_offset"] = position, first
        batch["last_offset_delta"], batch["batch_length"] = delta, SIZE - 12
        batch["crc"] = delta  # batches with the same offsets are copies
        position += SIZE
    return batches


def largest(batches: BatchTable, pinned: set[tuple[int, int]]) -> int:
    """Return the size of the largest selection that contains batches with these contents."""
    sizes = [0]
    for chosen in itertools.product([False, True], repeat=len(batches)):
        some = batches[np.array(chosen)]
        if are_ascending(some) and pinned <= contents(some):
            sizes.append(len(some))
    return max(sizes)


def contents(batches: BatchTable) -> set[tuple[int, int]]:
    return set(batches[["base_offset", "last_offset_delta"]].tolist())


@given(logs, st.integers(0, 5))
@example([(1, 0, False), (0, 0, True), (1, 1, False), (1, 0, False)], 0)
def test_the_selection_is_the_largest_one(log: list[Row], start: int) -> None:
    """It is at least as large as any other selection that contains the valid prefix."""
    batches = table(log, start)
    is_joined = np.array([not is_apart for _, _, is_apart in log])
    kept = batches[select_ascending(batches, is_joined, start)]
    assert are_ascending(kept)
    stop = int(np.append(is_joined, False).argmin())
    prefix = batches[: next(n for n in range(stop, -1, -1) if are_ascending(batches[:n]))]
    assert len(kept) >= largest(batches, contents(prefix))


@given(logs, logs)
def test_batches_after_damage_do_not_displace_the_prefix(first: list[Row], rest: list[Row]) -> None:
    """The prefix has no gaps, so that no batch of it may have a wrong offset."""
    offset, log = 0, list[Row]()
    for _, delta, _ in first:
        log.append((offset, delta, False))
        offset += delta + 1
    head, *others = rest
    batches = table([*log, (head[0], head[1], True), *others], 0)
    is_joined = np.array([True] * len(log) + [False] + [not one[2] for one in others])
    kept = batches[select_ascending(batches, is_joined)]
    assert len(first) == 1 or contents(batches[: len(log)]) <= contents(kept)
