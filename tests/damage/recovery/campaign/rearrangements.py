"""Damage that rearranges or shifts whole parts of a log."""

from __future__ import annotations

import random
import struct

from tests.damage.recovery.campaign.damage_kinds import Damage, flip
from tests.damage.recovery.campaign.known_logs import KnownBatch, KnownLog, TrackedBytes
from tests.damage.recovery.campaign.more_damage import MORE_KINDS

FIRST_REARRANGED = 2_000_000_000
_UNCOVERED_BYTES = 17


def moved_range(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    """Consecutive batches at another place."""
    moved = _some(choice, log, [1, 2, 5, 10, 30])
    start, stop = moved[0].position, moved[-1].stop
    target = choice.choice([*(one.position for one in log.batches), log.batches[-1].stop])
    target = min(target, len(bytes_.data))
    if stop > len(bytes_.data) or start < target < stop:
        return
    copy = bytes_.copy(start, stop)
    bytes_.cut(start, stop)
    bytes_.insert(target if target <= start else target - (stop - start), *copy)


def reversed_range(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    """Consecutive batches in the opposite order."""
    some = _some(choice, log, [2, 3, 6])
    if some[-1].stop > len(bytes_.data):
        return
    copies = [bytes_.copy(one.position, one.stop) for one in some]
    bytes_.cut(some[0].position, some[-1].stop)
    for copy in copies:
        bytes_.insert(some[0].position, *copy)


def repeated_each(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    """Consecutive batches, each of them twice, as after retries of writes."""
    for one in reversed(_some(choice, log, [2, 5, 20])):
        if one.stop <= len(bytes_.data):
            bytes_.insert(one.position, *bytes_.copy(one.position, one.stop))


def log_twice(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    """The whole log a second time, at once, after zeros or after noise."""
    copy = bytes_.copy(0, len(bytes_.data))
    bytes_.insert(len(bytes_.data), choice.choice([b"", bytes(512), b"\1" * 8, b"\1"]))
    bytes_.insert(len(bytes_.data), *copy)


def restarted_copy(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    """The start of the log, and then the whole log: a copy that began again."""
    copy = bytes_.copy(0, len(bytes_.data))
    bytes_.cut(choice.randrange(len(bytes_.data) + 1), len(bytes_.data))
    bytes_.insert(len(bytes_.data), *copy)


def repeated_sectors(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    """Several sectors with the bytes of others."""
    for _ in range(choice.choice([2, 4, 8])):
        size = choice.choice([64, 128, 512])
        start, target = (choice.randrange(0, len(bytes_.data) + 1, size) for _ in range(2))
        bytes_.put(target, *bytes_.copy(start, start + size))


def older_page(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    """A write that was lost: a page has the bytes of an older generation or history."""
    older = [*log.batches[: log.cut_row], *log.cut] if log.cut else log.older
    data = b"".join(one.data for one in older)
    size = choice.choice([64, 512, 4096])
    start = choice.randrange(0, len(bytes_.data) + 1, size)
    bytes_.put(start, data[start : start + size])


def older_batches(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    """Batches of an older generation or history, anywhere."""
    history = choice.choice([log.older, log.cut or log.older])
    first = choice.randrange(len(history))
    data = b"".join(one.data for one in history[first : first + choice.choice([1, 3, 12])])
    target = min(choice.choice(log.batches).position, len(bytes_.data))
    choice.choice([bytes_.put, bytes_.insert])(target, data)


def flipped_many(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    """One bit of several headers, in bytes that no checksum covers."""
    for _ in range(choice.choice([3, 6, 12])):
        start = choice.choice(log.batches).position
        flip(choice, bytes_, start, start + _UNCOVERED_BYTES)


def zeroed_offsets(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    for one in _some(choice, log, [1, 2, 4]):
        _put_offset(bytes_, one, 0)


def little_endian_offset(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    one = choice.choice(log.batches)
    bytes_.put(min(one.position, len(bytes_.data)), struct.pack("<q", one.first))


def relative_offsets(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    """Offsets that count from the start of the segment."""
    for one in _some(choice, log, [1, 3, 100]):
        _put_offset(bytes_, one, one.first - log.base_offset)


def shifted_rest(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    """All batches from one on with other offsets."""
    first = choice.randrange(len(log.batches))
    shift = choice.choice([1, 7, 100, 2**16, 2**31, 2**40, -1, -50])
    for one in log.batches[first:]:
        _put_offset(bytes_, one, max(0, one.first + shift))


REARRANGEMENTS: dict[str, Damage] = {
    "move range": moved_range,
    "reverse range": reversed_range,
    "repeat each": repeated_each,
    "log twice": log_twice,
    "restarted copy": restarted_copy,
    "repeat sectors": repeated_sectors,
    "older page": older_page,
    "older batches": older_batches,
    "flip many": flipped_many,
    "zero offsets": zeroed_offsets,
    "little-endian offset": little_endian_offset,
    "relative offsets": relative_offsets,
    "shift rest": shifted_rest,
}


def rearranged(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> list[str]:
    """Damage a log in one of these ways, and maybe in another one; return the kinds."""
    known = MORE_KINDS | REARRANGEMENTS
    kinds = [choice.choice(list(REARRANGEMENTS))]
    if choice.random() < 0.5:
        kinds.append(choice.choice(list(known)))
    choice.shuffle(kinds)
    for kind in kinds:
        known[kind](choice, log, bytes_)
    return kinds


def _some(choice: random.Random, log: KnownLog, sizes: list[int]) -> list[KnownBatch]:
    first = choice.randrange(len(log.batches))
    return log.batches[first : first + choice.choice(sizes)]


def _put_offset(bytes_: TrackedBytes, one: KnownBatch, offset: int) -> None:
    bytes_.put(min(one.position, len(bytes_.data)), struct.pack(">q", offset))
