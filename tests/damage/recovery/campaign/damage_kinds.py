"""Damage to a log: what disks, file systems, memory and hands do to its bytes."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

from tests.damage.recovery.campaign.known_logs import KnownLog, TrackedBytes
from tests.support.segments import batch_v2, sign

Damage = Callable[[random.Random, KnownLog, TrackedBytes], None]
_SECTORS = (64, 128, 512)
# Header fields of magic 2: position and size.
_HEADER_FIELDS = {
    "base_offset": (0, 8),
    "length": (8, 4),
    "epoch": (12, 4),
    "magic": (16, 1),
    "covered": (17, 44),
}


def flipped(field: str) -> Damage:
    """One bit of a header field of one batch."""
    at, size = _HEADER_FIELDS[field]

    def damage(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
        start = choice.choice(log.batches).position + at
        flip(choice, bytes_, start, start + size)

    return damage


def flipped_low(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    """One of the low bits of a base offset: the value stays near its neighbours."""
    start = choice.choice(log.batches).position
    bytes_.put(start + 7, bytes([_byte(bytes_, start + 7) ^ 1 << choice.randrange(8)]))


def flipped_at_end(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    """One bit in one of the last headers, where no batch follows that would contradict it."""
    start = choice.choice(log.batches[-3:]).position
    flip(choice, bytes_, start, start + 17)


def flipped_anywhere(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    for _ in range(choice.choice([1, 1, 3])):
        flip(choice, bytes_, 0, len(bytes_.data))


def overwritten_offset(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    start = choice.choice(log.batches).position
    value = choice.choice([
        choice.randrange(64), log.base_offset + choice.randrange(200), choice.randrange(2**31),
        choice.getrandbits(63), 0, 2**64 - 1,
    ])  # fmt: skip
    bytes_.put(start, struct.pack(">Q", value))


def zeroed(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    start = choice.randrange(len(bytes_.data) + 1)
    bytes_.put(start, bytes(choice.choice([1, 4, 8, 40, 100, 500])))


def zeroed_sector(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    start, size = _sector(choice, bytes_)
    bytes_.put(start, bytes(size))


def zeroed_into_the_last_offset(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    stop = log.batches[-1].position + choice.randrange(1, 9)
    start = max(0, stop - choice.choice([8, 20, 100]))
    bytes_.put(start, bytes(stop - start))


def noise(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    start = choice.randrange(len(bytes_.data) + 1)
    bytes_.put(start, choice.randbytes(choice.choice([1, 8, 60, 300])))


def repeated_sector(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    """A sector was written to the place of another one."""
    start, size = _sector(choice, bytes_)
    target = choice.randrange(0, len(bytes_.data) + 1, size)
    bytes_.put(target, *bytes_.copy(start, start + size))


def repeated_batches(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    """Whole batches, a second time: over others, or inserted."""
    start, stop = _batch_range(choice, log)
    copy = bytes_.copy(start, stop)
    target = choice.choice(log.batches).position
    choice.choice([bytes_.put, bytes_.insert])(min(target, len(bytes_.data)), *copy)


def stale_end(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    """A preallocated tail that holds batches of this log, after zeros, noise or nothing."""
    head = choice.choice([bytes(512), bytes(100), b"\1" * 8, b"", choice.randbytes(40)])
    start, stop = _batch_range(choice, log)
    if choice.random() < 0.5:
        start = min(stop, start + choice.randrange(60))
    bytes_.insert(len(bytes_.data), head)
    bytes_.insert(len(bytes_.data), *bytes_.copy(start, stop))


def older_end(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    """A preallocated tail that holds batches from before the last compaction."""
    bytes_.insert(len(bytes_.data), choice.choice([bytes(64), b"\1" * 8, choice.randbytes(40)]))
    first = choice.randrange(len(log.older))
    older = log.older[first : first + choice.choice([1, 3, 12])]
    bytes_.insert(len(bytes_.data), b"".join(one.data for one in older))


def foreign_sector(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    """A block of another log, anywhere."""
    offset = choice.choice([0, log.batches[0].first, log.batches[-1].last + 1, 5000])
    offset += choice.randrange(60)
    data = b"".join(
        batch_v2(choice.randbytes(30), base_offset=offset + row, partition_leader_epoch=0)
        for row in range(choice.choice([1, 2, 6]))
    )
    data = data[choice.choice([0, 30]) :]
    position = choice.randrange(len(bytes_.data) + 1)
    choice.choice([bytes_.put, bytes_.insert])(position, data)


def swapped_batches(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    rows = sorted(choice.choices(range(len(log.batches)), k=2))
    one, other = (log.batches[row] for row in rows)
    if one == other or other.stop > len(bytes_.data):
        return
    first, second = bytes_.copy(one.position, one.stop), bytes_.copy(other.position, other.stop)
    bytes_.cut(other.position, other.stop)
    bytes_.insert(other.position, *first)
    bytes_.cut(one.position, one.stop)
    bytes_.insert(one.position, *second)


def swapped_sectors(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    start, size = _sector(choice, bytes_)
    other, _ = choice.randrange(0, len(bytes_.data) + 1, size), size
    first, second = bytes_.copy(start, start + size), bytes_.copy(other, other + size)
    if abs(other - start) >= size and len(first[0]) == len(second[0]):
        bytes_.put(start, *second)
        bytes_.put(other, *first)


def cut_out(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    start = choice.randrange(len(bytes_.data) + 1)
    bytes_.cut(start, min(len(bytes_.data), start + choice.choice([1, 8, 70, 300])))


def cut_off(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    bytes_.cut(choice.randrange(len(bytes_.data) + 1), len(bytes_.data))


def inserted_noise(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    data = choice.choice([choice.randbytes, bytes])(choice.choice([1, 8, 61, 200]))
    bytes_.insert(choice.randrange(len(bytes_.data) + 1), data)


def resigned(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    """One bit of a batch, under a checksum that was computed afterwards."""
    row = choice.randrange(len(log.batches))
    one = log.batches[row]
    if bytes(bytes_.data[one.position : one.stop]) != one.data:
        return
    batch = bytearray(one.data)
    at = choice.randrange(21 if batch[16] == 2 else 16, len(batch))
    batch[at] ^= 1 << choice.randrange(8)
    sign(batch)
    bytes_.put(one.position, bytes(batch))
    bytes_.resigned.add(row)


KINDS: dict[str, Damage] = {
    "flip base offset": flipped("base_offset"),
    "flip length": flipped("length"),
    "flip leader epoch": flipped("epoch"),
    "flip magic": flipped("magic"),
    "flip covered header": flipped("covered"),
    "flip low offset bit": flipped_low,
    "flip last headers": flipped_at_end,
    "flip anywhere": flipped_anywhere,
    "overwrite base offset": overwritten_offset,
    "zero range": zeroed,
    "zero sector": zeroed_sector,
    "zeros into last offset": zeroed_into_the_last_offset,
    "noise": noise,
    "repeat sector": repeated_sector,
    "repeat batches": repeated_batches,
    "stale end": stale_end,
    "older end": older_end,
    "foreign block": foreign_sector,
    "swap batches": swapped_batches,
    "swap sectors": swapped_sectors,
    "cut out": cut_out,
    "cut off": cut_off,
    "insert noise": inserted_noise,
    "re-signed flip": resigned,
}


def flip(choice: random.Random, bytes_: TrackedBytes, start: int, stop: int) -> None:
    """Flip one bit in a range of bytes."""
    stop = min(stop, len(bytes_.data))
    if start < stop:
        at = choice.randrange(start, stop)
        bytes_.put(at, bytes([bytes_.data[at] ^ 1 << choice.randrange(8)]))


def _byte(bytes_: TrackedBytes, position: int) -> int:
    return bytes_.data[position] if position < len(bytes_.data) else 0


def _sector(choice: random.Random, bytes_: TrackedBytes) -> tuple[int, int]:
    size = choice.choice(_SECTORS)
    return choice.randrange(0, len(bytes_.data) + 1, size), size


def _batch_range(choice: random.Random, log: KnownLog) -> tuple[int, int]:
    first = choice.randrange(len(log.batches))
    last = min(len(log.batches) - 1, first + choice.choice([0, 0, 2, 6, 20]))
    return log.batches[first].position, log.batches[last].stop
