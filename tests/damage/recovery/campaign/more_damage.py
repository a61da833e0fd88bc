"""More kinds of damage: pages, stale tails of other histories, several headers at once."""

from __future__ import annotations

import random
import struct

from tests.damage.recovery.campaign.damage_kinds import KINDS, Damage, flip
from tests.damage.recovery.campaign.known_logs import KnownBatch, KnownLog, TrackedBytes

_PAGE = 4096


def zeroed_edge(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    """A page of zeros that reaches into the next segment, or from the previous one."""
    size = min(len(bytes_.data), choice.choice([8, 60, 61, 512, _PAGE, choice.randrange(2000)]))
    bytes_.put(choice.choice([0, len(bytes_.data) - size]), bytes(size))


def zeroed_page(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    start = choice.randrange(0, len(bytes_.data) + 1, choice.choice([512, _PAGE]))
    bytes_.put(start, bytes(_PAGE))


def stale_blocks(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    """Blocks of different ages in a preallocated tail."""
    for _ in range(choice.choice([2, 2, 3])):
        bytes_.insert(len(bytes_.data), choice.choice([b"", bytes(512), b"\1", b"\1" * 8]))
        history = choice.choice([log.batches, log.older, log.cut or log.older])
        first = choice.randrange(len(history))
        block = b"".join(one.data for one in history[first : first + choice.choice([1, 3, 20])])
        bytes_.insert(len(bytes_.data), block[choice.choice([0, 0, choice.randrange(90)]) :])


def older_bytes_after_the_end(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    """A truncation that reached the disk in part: from a byte on, the file is an older one."""
    older = [*log.batches[: log.cut_row], *log.cut] if log.cut else log.older
    data = b"".join(one.data for one in older)
    at = choice.choice([one.position for one in log.batches] + [choice.randrange(len(data) + 1)])
    bytes_.cut(min(at, len(bytes_.data)), len(bytes_.data))
    bytes_.insert(len(bytes_.data), data[at:])


def flipped_headers(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    """One bit of a length, and one of the header that follows."""
    row = choice.randrange(len(log.batches))
    start = log.batches[row].position
    flip(choice, bytes_, start + 8, start + 12)
    if row + 1 < len(log.batches):
        start = log.batches[row + 1].position
        flip(choice, bytes_, start, start + 17)


def stuck_bit(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    """The same bit of consecutive headers."""
    first = choice.randrange(len(log.batches))
    at, bit = choice.randrange(17), 1 << choice.randrange(8)
    for one in log.batches[first : first + choice.choice([2, 3])]:
        if one.position + at < len(bytes_.data):
            bytes_.put(one.position + at, bytes([bytes_.data[one.position + at] | bit]))


def shifted_offsets(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    """Consecutive batches with other offsets, as after a copy by hand."""
    first = choice.randrange(len(log.batches))
    shift = choice.choice([-1, 1, -5, 5, 100])
    for one in log.batches[first : first + choice.choice([1, 2, 5])]:
        _put_offset(bytes_, one, max(0, one.first + shift))


def swapped_offsets(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    one, other = choice.choices(log.batches, k=2)
    _put_offset(bytes_, one, other.first)
    _put_offset(bytes_, other, one.first)


def cut_sector(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    size = choice.choice([64, 512])
    start = choice.randrange(0, len(bytes_.data) + 1, size)
    bytes_.cut(start, min(len(bytes_.data), start + size))


def inserted_sector(choice: random.Random, log: KnownLog, bytes_: TrackedBytes) -> None:
    """A sector of the same log, between others."""
    size = choice.choice([64, 512])
    start, target = (choice.randrange(0, len(bytes_.data) + 1, size) for _ in range(2))
    bytes_.insert(target, *bytes_.copy(start, start + size))


MORE_KINDS: dict[str, Damage] = KINDS | {
    "zero edge": zeroed_edge,
    "zero page": zeroed_page,
    "stale blocks": stale_blocks,
    "older bytes after the end": older_bytes_after_the_end,
    "flip length and next header": flipped_headers,
    "stuck bit": stuck_bit,
    "shift offsets": shifted_offsets,
    "swap offsets": swapped_offsets,
    "cut sector": cut_sector,
    "insert sector": inserted_sector,
}


def _put_offset(bytes_: TrackedBytes, one: KnownBatch, offset: int) -> None:
    bytes_.put(min(one.position, len(bytes_.data)), struct.pack(">q", offset))
