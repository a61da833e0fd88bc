"""Logs that real brokers wrote, for the campaign."""

from __future__ import annotations

import functools
import random

from tests.damage.recovery.campaign.known_logs import KnownBatch, KnownLog, read_batch
from tests.support.paths import GOLDEN

FIRST_OF_BROKERS = 3_000_000_000
"""Seeds from here on damage logs of brokers."""

_MOST_BATCHES = 60
_MOST_BYTES = 1 << 16


def log_of_a_broker(choice: random.Random) -> KnownLog:
    """Return a copy of one of the golden segments, or of its first batches."""
    base_offset, parts = choice.choice(_segments())
    count = choice.choice([len(parts), len(parts), choice.randint(3, len(parts))])
    log = KnownLog(base_offset, list(parts[:count]))
    log.older = list(parts)
    log.epochs = {
        int.from_bytes(one.data[12:16], signed=True) for one in log.batches if one.data[16] == 2
    } - {-1}
    if choice.random() < 0.4:
        log.zero_tail = choice.choice([40, 512, 3000])
    return log


@functools.cache
def _segments() -> list[tuple[int, tuple[KnownBatch, ...]]]:
    found = []
    for path in sorted(GOLDEN.glob("*/data/*/*.log")):
        parts = tuple(_batches(path.read_bytes()))
        if len(parts) >= 3:
            found.append((int(path.stem), parts))
    return found


def _batches(data: bytes) -> list[KnownBatch]:
    parts: list[KnownBatch] = []
    position = 0
    while len(parts) < _MOST_BATCHES and (one := read_batch(data, position)) is not None:
        if position + one.size > _MOST_BYTES or (parts and one.first <= parts[-1].last):
            break
        stop = position + one.size
        parts.append(KnownBatch(data[position:stop], one.first, one.last, position))
        position = stop
    return parts
