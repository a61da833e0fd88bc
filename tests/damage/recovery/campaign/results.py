"""The batches of a result, and the order of their offsets."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

import kafkascan as ks
from kafkascan.batches.columns import BatchTable, last_offset, size_in_bytes
from tests.damage.recovery.campaign.known_logs import KnownBatch


@dataclass(frozen=True)
class Kept:
    """A batch of a result. `row` is the batch of the undamaged log that it equals, or None."""

    position: int
    size: int
    first: int
    last: int
    row: int | None
    is_doubtful: bool = False
    is_repaired: bool = False
    epoch: int | None = None

    @property
    def stop(self) -> int:
        return self.position + self.size


def offsets_and_sizes(batches: BatchTable) -> Iterator[tuple[int, int, int, int]]:
    return zip(
        batches["position"].tolist(),
        size_in_bytes(batches).tolist(),
        batches["base_offset"].tolist(),
        last_offset(batches).tolist(),
        strict=True,
    )


def contradict(position: int, batch: KnownBatch, kept: Kept) -> bool:
    if position < kept.position:
        return batch.last >= kept.first or position + len(batch.data) > kept.position
    return batch.first <= kept.last or position < kept.stop


def most_in_order(instances: list[tuple[int, KnownBatch]]) -> int:
    """Return the size of the largest selection whose offsets ascend."""
    ends: list[int] = []  # the lowest last offset of a selection of each size
    for _, batch in instances:
        at = bisect.bisect_left(ends, batch.first)
        if at == len(ends):
            ends.append(batch.last)
        else:
            ends[at] = min(ends[at], batch.last)
    return len(ends)


def crcs_are_valid(data: bytes, batches: BatchTable) -> bool:
    return bool(np.all(ks.verify_crcs(data, batches))) if len(batches) else True
