"""Logs whose bytes are tracked: after any damage it is known which batches are intact.

Nothing here uses the package. Each byte of a log carries its position in the undamaged log, or -1
if it was changed or does not come from there.
"""

from __future__ import annotations

import itertools
import random
import struct
import zlib
from dataclasses import dataclass, field

import crc32c as crc32c_package
import numpy as np
from numpy.typing import NDArray

from tests.support.logs import marker
from tests.support.segments import T0, batch_v2, message_v0, message_v1

_SIZES = (0, 7, 30, 30, 30, 90, 200)


@dataclass(frozen=True)
class KnownBatch:
    """A batch of the undamaged log, and where it was."""

    data: bytes
    first: int
    last: int
    position: int = 0

    @property
    def stop(self) -> int:
        return self.position + len(self.data)


@dataclass
class KnownLog:
    """
    An undamaged log.

    `older` has the batches of an earlier generation of the log: those that compaction removed
    since, and those that are still there. `cut` has those that another leader wrote from row
    `cut_row` on, before a truncation. `highest` is the last offset before the next segment.
    """

    base_offset: int
    batches: list[KnownBatch] = field(default_factory=list)
    older: list[KnownBatch] = field(default_factory=list)
    epochs: set[int] = field(default_factory=set)
    zero_tail: int = 0
    cut: list[KnownBatch] = field(default_factory=list)
    cut_row: int = 0
    highest: int = 2**63 - 1


def random_log(choice: random.Random) -> KnownLog:
    """Return a log of one of the shapes that brokers leave."""
    log = KnownLog(choice.choice([0, 0, 77, 1_000_000]))
    # Kafka writes magic 2 only since 3.0; older logs may start with magic 0 or 1.
    magics = choice.choice([(2,), (2,), (2,), (2,), (1, 2), (0, 1), (1,)])
    count = choice.choice([3, 8, 15, 25, 40])
    is_compacted = choice.random() < 0.35
    sizes = choice.choice([_SIZES, _SIZES, (30,), (30, 30, 30, 90)])
    producers = choice.choice([(), (), (7,), (7, 8)])
    sequences = dict.fromkeys(producers, 0)
    # Most producers' clocks ascend; some write no time.
    clock = choice.choice([T0, T0, -(2**40)])
    offset, epoch, position = log.base_offset, choice.choice([-1, 0, 5]), 0
    for step in range(count):
        if epoch >= 0 and choice.random() < 0.08:
            epoch += choice.choice([1, 1, 3])
        magic = magics[min(len(magics) - 1, step * len(magics) // count)]
        data, records = _batch(choice, magic, offset, epoch, sizes, sequences, clock)
        one = KnownBatch(data, offset, offset + records - 1)
        log.older.append(one)
        is_removed = is_compacted and log.batches and choice.random() < 0.3
        if not is_removed:
            log.batches.append(KnownBatch(data, one.first, one.last, position))
            position += len(data)
            if magic == 2 and epoch >= 0:
                log.epochs.add(epoch)
        offset += records
    if choice.random() < 0.4:
        log.zero_tail = choice.choice([40, 512, 3000])
    return log


def _batch(
    choice: random.Random,
    magic: int,
    offset: int,
    epoch: int,
    sizes: tuple[int, ...],
    sequences: dict[int, int],
    clock: int,
) -> tuple[bytes, int]:
    value = choice.randbytes(choice.choice(sizes))
    if magic < 2:
        message = message_v1 if magic == 1 else message_v0
        return message(choice.choice([None, b"key"]), value, offset=offset), 1
    time = max(-1, clock + offset)
    place = {
        "base_offset": offset, "partition_leader_epoch": epoch,
        "base_timestamp": time, "max_timestamp": time,
    }  # fmt: skip
    if not sequences:
        count = choice.choice([1, 1, 1, 2, 5])
        counts = {"last_offset_delta": count - 1, "records_count": count}
        return batch_v2(value, **place, **counts), count
    producer = choice.choice(sorted(sequences))
    if choice.random() < 0.1:
        return marker(choice.choice([0, 1]), producer_id=producer, **place), 1
    count, sequence = choice.choice([1, 1, 3]), sequences[producer]
    sequences[producer] += count
    data = batch_v2(
        value, **place, last_offset_delta=count - 1, records_count=count, attributes=0x10,
        producer_id=producer, producer_epoch=0, base_sequence=sequence,
    )  # fmt: skip
    return data, count


@dataclass
class TrackedBytes:
    """The bytes of a log, with the origin of each byte."""

    data: bytearray
    origin: NDArray[np.int64]
    resigned: set[int] = field(default_factory=set)  # rows whose checksum was made valid again

    @classmethod
    def of(cls, log: KnownLog) -> TrackedBytes:
        data = bytearray(b"".join(one.data for one in log.batches))
        return cls(data, np.arange(len(data)))

    def put(self, position: int, data: bytes, origin: NDArray[np.int64] | None = None) -> None:
        """Overwrite bytes; a byte that keeps its value keeps its origin."""
        size = max(0, min(len(data), len(self.data) - position))
        old = np.frombuffer(bytes(self.data[position : position + size]), np.uint8)
        new = np.frombuffer(data[:size], np.uint8)
        here = self.origin[position : position + size]
        if origin is None:
            here[old != new] = -1
        else:
            here[:] = origin[:size]
        self.data[position : position + size] = data[:size]

    def insert(self, position: int, data: bytes, origin: NDArray[np.int64] | None = None) -> None:
        added = np.full(len(data), -1, np.int64) if origin is None else origin
        self.data[position:position] = data
        self.origin = np.concatenate([self.origin[:position], added, self.origin[position:]])

    def cut(self, start: int, stop: int) -> None:
        del self.data[start:stop]
        self.origin = np.concatenate([self.origin[:start], self.origin[stop:]])

    def copy(self, start: int, stop: int) -> tuple[bytes, NDArray[np.int64]]:
        return bytes(self.data[start:stop]), self.origin[start:stop].copy()

    def instances(self, batches: list[KnownBatch]) -> dict[int, int]:
        """Return the position of each intact batch in the damaged bytes, and its row."""
        if not len(self.origin):
            return {}
        breaks = np.flatnonzero(np.diff(self.origin) != 1) + 1
        bounds = [0, *breaks.tolist(), len(self.origin)]
        starts = [one.position for one in batches]
        found = {}
        for here, after in itertools.pairwise(bounds):
            first = int(self.origin[here])
            if first < 0:
                continue
            for row in range(int(np.searchsorted(starts, first)), len(batches)):
                if batches[row].stop > first + after - here:
                    break
                found[here + batches[row].position - first] = row
        return found


# ---- what Kafka's recovery keeps ---------------------------------------------------------------


@dataclass(frozen=True)
class ReadBatch:
    """A batch with a valid checksum, as the slow reader finds it."""

    position: int
    size: int
    first: int
    last: int


def read_batch(data: bytes, position: int) -> ReadBatch | None:
    """Return the batch at a position if its size is plausible and its checksum is valid."""
    if position + 17 > len(data):
        return None
    first, length = struct.unpack_from(">qi", data, position)
    magic, stop = data[position + 16], position + 12 + length
    if stop > len(data) or first < 0 or magic > 2 or length < (49 if magic == 2 else 14):
        return None
    if magic < 2:
        (crc,) = struct.unpack_from(">I", data, position + 12)
        is_valid = zlib.crc32(data[position + 16 : stop]) == crc
        return ReadBatch(position, stop - position, first, first) if is_valid else None
    crc, _, delta = struct.unpack_from(">Ihi", data, position + 17)
    if delta < 0 or crc32c_package.crc32c(data[position + 21 : stop]) != crc:
        return None
    return ReadBatch(position, stop - position, first, first + delta)


def valid_prefix(data: bytes, base_offset: int, highest: int) -> list[ReadBatch]:
    """
    Return the batches before the first one that is invalid or whose offsets do not ascend.

    `LogSegment.recover` keeps them, also beyond `highest`, where the next segment begins; a log
    cannot have these offsets twice.
    """
    found: list[ReadBatch] = []
    position, lowest = 0, base_offset
    while (one := read_batch(data, position)) is not None:
        if one.first < lowest or one.last > min(highest, base_offset + 2**31 - 1):
            break
        found.append(one)
        position, lowest = position + one.size, one.last + 1
    return found
