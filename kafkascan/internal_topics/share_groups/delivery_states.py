"""Delivery states of records in share groups, and the states of offsets in several batches."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable
from typing import NamedTuple

_DELIVERY_STATES = {
    0: "Available", 1: "Acquired", 2: "Acknowledged", 3: "Archiving", 4: "Archived",
}  # fmt: skip


class StateBatch(NamedTuple):
    """The delivery state of the records from the first to the last offset."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


def delivery_state_name(code: int) -> str:
    """Return Kafka's name of a delivery state (``RecordState``)."""
    return _DELIVERY_STATES.get(code, f"unknown({code})")


def combine_batches(batches: Iterable[StateBatch]) -> list[StateBatch]:
    """
    Return the state of each offset that any batch contains, as the fewest batches.

    Of the batches that contain an offset, the one with the highest delivery count applies, and
    among these the one with the highest state (``PersisterStateBatchCombiner``). Batches whose last
    offset is before their first one are ignored.
    """
    ordered = sorted(one for one in batches if one.first_offset <= one.last_offset)
    bounds = {bound for one in ordered for bound in (one.first_offset, one.last_offset + 1)}
    upcoming = iter(ordered)
    following = next(upcoming, None)
    # A heap of the batches at the offset, and of ended ones that have not been its first item.
    current: list[tuple[int, int, int]] = []
    combined: list[StateBatch] = []
    for start, stop in itertools.pairwise(sorted(bounds)):
        while following is not None and following.first_offset <= start:
            rank = -following.delivery_count, -following.delivery_state
            heapq.heappush(current, (*rank, following.last_offset))
            following = next(upcoming, None)
        while current and current[0][2] < start:
            heapq.heappop(current)
        if current:
            _append(combined, StateBatch(start, stop - 1, -current[0][1], -current[0][0]))
    return combined


def _append(combined: list[StateBatch], batch: StateBatch) -> None:
    """Append a batch, or extend the last one if it is adjacent and has the same state."""
    if combined and combined[-1] == (combined[-1][0], batch.first_offset - 1, *batch[2:]):
        combined[-1] = combined[-1]._replace(last_offset=batch.last_offset)
    else:
        combined.append(batch)


def batches_from(batches: Iterable[StateBatch], start_offset: int) -> list[StateBatch]:
    """Return what batches contain from an offset on; -1 is no offset."""
    return [
        one._replace(first_offset=max(one.first_offset, start_offset))
        for one in batches
        if one.last_offset >= start_offset or start_offset == -1
    ]
