"""Kinds of damage to the logs of a partition."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import kafkascan as ks
from tests.oracle.histories import control_record
from tests.support.records import batch_of
from tests.support.segments import T0, V2_FIELDS, sign

Damage = Callable[[Path, random.Random], None]

_OVERFLOW = 2**31
_CONTROL = 32


def logs(directory: Path) -> list[Path]:
    """The segments of a directory, in order."""
    return sorted(directory.glob("*.log"))


def base_of(log: Path) -> int:
    """The offset in a file's name."""
    return int(log.name.partition(".")[0])


def torn_tail(directory: Path, dice: random.Random) -> None:
    log = dice.choice([logs(directory)[-1], dice.choice(logs(directory))])
    data = log.read_bytes()
    log.write_bytes(data[: -dice.randrange(1, 80)] if data else b"")


def zero_tail(directory: Path, dice: random.Random) -> None:
    log = dice.choice([logs(directory)[-1], dice.choice(logs(directory))])
    log.write_bytes(log.read_bytes() + bytes(dice.choice([1, 16, 17, 100, 5000])))


def garbage_tail(directory: Path, dice: random.Random) -> None:
    log = logs(directory)[-1]
    log.write_bytes(log.read_bytes() + dice.randbytes(dice.randrange(1, 200)))


def flipped_byte(directory: Path, dice: random.Random) -> None:
    """Flip a bit in a batch: the checksum or the length becomes invalid."""
    _change_batch(directory, dice, flip)


def flipped_and_signed(directory: Path, dice: random.Random) -> None:
    """Flip a bit in a batch and update the checksum."""

    def flip_and_sign(batch: bytearray, dice: random.Random) -> None:
        at = dice.randrange(17, len(batch))
        batch[at] ^= 1 << dice.randrange(8)
        sign(batch)

    _change_batch(directory, dice, flip_and_sign)


def other_field(directory: Path, dice: random.Random) -> None:
    """Change a header field and update the checksum: decreasing offsets, epochs, …."""
    names = sorted(V2_FIELDS.keys() - {"batch_length", "magic", "crc"})

    def set_field(batch: bytearray, dice: random.Random) -> None:
        at, code = V2_FIELDS[dice.choice(names)]
        if batch[16] != 2:
            at, code = 0, "q"
        (old,) = struct.unpack_from(f">{code}", batch, at)
        new = dice.choice([old + 1, old - 1, old + 5, old - 5, 0, -1])
        largest = 2 ** (8 * struct.calcsize(code) - 1) - 1
        struct.pack_into(f">{code}", batch, at, max(-largest - 1, min(largest, new)))
        sign(batch)

    _change_batch(directory, dice, set_field)


def swapped_batches(directory: Path, dice: random.Random) -> None:
    log = dice.choice(logs(directory))
    batches = split(log)
    if len(batches) > 1:
        at = dice.randrange(len(batches) - 1)
        batches[at : at + 2] = batches[at + 1], batches[at]
        log.write_bytes(b"".join(batches))


def repeated_batches(directory: Path, dice: random.Random) -> None:
    """Repeat batches: offsets overlap."""
    log = dice.choice(logs(directory))
    batches = split(log)
    if batches:
        first = dice.randrange(len(batches))
        batches += batches[first : first + dice.randrange(1, 30)]
        log.write_bytes(b"".join(batches))


def dropped_batch(directory: Path, dice: random.Random) -> None:
    """Remove batches: the indexes and the producer state contain more than the log."""
    log = dice.choice(logs(directory))
    batches = split(log)
    if batches:
        del batches[dice.randrange(len(batches))]
        log.write_bytes(b"".join(batches))


def odd_control_batch(directory: Path, dice: random.Random) -> None:
    """Add a control batch: no end marker, empty, unreadable, or of a fenced producer."""
    log = dice.choice(logs(directory))
    batches = split(log)
    record = control_record(dice.choice([0, 1, 2, 3, 6, 7, 99, -1]), dice.choice([-1, 0, 5]))
    if dice.random() < 0.3:
        record.key = dice.choice([None, b"", b"\x00", b"\x00\x01\x00\x01", b"\x00\x00\x00"])
    if dice.random() < 0.3:
        record.value = dice.choice([None, b"", b"\x00\x00", b"\x00\x05\x00\x00\x00\x01"])
    if dice.random() < 0.2:
        record.offset_delta = 1
    at = dice.randrange(len(batches) + 1)
    offset = ks.scan_batches(batches[at]).batches["base_offset"][0] if at < len(batches) else None
    fields = {
        "base_offset": base_of(log) + 500 if offset is None else int(offset),
        "attributes": _CONTROL | 16 | (dice.random() < 0.1),
        "producer_id": dice.choice([-1, 0, 1, 16, 77]),
        "producer_epoch": dice.choice([-1, 0, 3]),
        "base_timestamp": T0,
        "max_timestamp": T0,
    }
    batches.insert(at, batch_of([record] if dice.random() < 0.9 else [], **fields))
    log.write_bytes(b"".join(batches))


def offset_overflow(directory: Path, dice: random.Random) -> None:
    """A batch too far from its segment's base: Kafka splits the segment."""
    log = logs(directory)[-1]
    batch = bytearray(batch_of([control_record(0, 0)], attributes=0))
    struct.pack_into(">q", batch, 0, base_of(log) + _OVERFLOW + dice.randrange(-1, 3))
    log.write_bytes(log.read_bytes() + bytes(batch))


def emptied_log(directory: Path, dice: random.Random) -> None:
    dice.choice(logs(directory)).write_bytes(b"")


def lost_log(directory: Path, dice: random.Random) -> None:
    """Remove a log; its indexes and snapshot remain."""
    if len(logs(directory)) > 1:
        dice.choice(logs(directory)).unlink()


def flip(batch: bytearray, dice: random.Random) -> None:
    batch[dice.randrange(len(batch))] ^= 1 << dice.randrange(8)


def _change_batch(
    directory: Path, dice: random.Random, change: Callable[[bytearray, random.Random], None]
) -> None:
    log = dice.choice(logs(directory))
    batches = split(log)
    if batches:
        at = dice.randrange(len(batches))
        batch = bytearray(batches[at])
        change(batch, dice)
        batches[at] = bytes(batch)
        log.write_bytes(b"".join(batches))


def split(log: Path) -> list[bytes]:
    """Split a log into batches; the unreadable remainder is the last item."""
    data = log.read_bytes()
    parts, at = [], 0
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at + 8) if len(data) >= at + 17 else (-1,)
        end = at + 12 + size if 14 <= size <= len(data) - at - 12 else len(data)
        parts.append(data[at:end])
        at = end
    return [part for part in parts if ks.scan_batches(part, on_corrupt="stop").batches.size == 1]
