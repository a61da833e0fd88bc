"""Logs of producers that write, commit and abort, with the state that a broker has at their end."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field

from tests.support.records import RecordV2, batch_of
from tests.support.segments import T0

TRANSACTIONAL, CONTROL = 0x10, 0x20
ABORT, COMMIT = 0, 1


def marker(
    kind: int, *, coordinator_epoch: int = 0, timestamp_delta: int = 0, **fields: int
) -> bytes:
    """Return the control batch that ends a transaction."""
    record = RecordV2(
        key=struct.pack(">hh", 0, kind),
        value=struct.pack(">hi", 0, coordinator_epoch),
        timestamp_delta=timestamp_delta,
    )
    defaults = {"attributes": TRANSACTIONAL | CONTROL, "producer_id": 1, "producer_epoch": 0}
    return batch_of([record], **(defaults | fields))


@dataclass
class KnownProducer:
    """An entry of a producer snapshot, as a broker writes it."""

    epoch: int = -1
    last_sequence: int = -1
    last_offset: int = -1
    offset_delta: int = 0
    timestamp: int = -1
    coordinator_epoch: int = -1
    first_offset: int = -1

    def enter(self, epoch: int) -> None:
        if self.epoch != epoch:
            self.epoch = epoch
            self.last_sequence = self.last_offset = -1
            self.offset_delta = 0


@dataclass
class WrittenLog:
    """
    A log of several producers, and the broker's state at its end.

    `starts` has the base offset of each batch; `aborted` has producer, first offset, marker's
    offset, last stable offset.
    """

    random: random.Random
    base_offset: int = 0
    batches: list[bytes] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    producers: dict[int, KnownProducer] = field(default_factory=dict)
    aborted: list[tuple[int, int, int, int]] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    next_offset: int = -1
    leader_epoch: int = 0

    def __post_init__(self) -> None:
        self.next_offset = self.base_offset

    @property
    def log(self) -> bytes:
        return b"".join(self.batches)

    def segment(self, start: int, stop: int | None = None) -> tuple[int, bytes]:
        """Return base offset and bytes of a range of batches."""
        return self.starts[start], b"".join(self.batches[start:stop])

    def _add(self, batch: bytes, count: int) -> None:
        if not self.epochs or self.epochs[-1][0] < self.leader_epoch:
            self.epochs.append((self.leader_epoch, self.next_offset))
        self.batches.append(batch)
        self.starts.append(self.next_offset)
        self.next_offset += count

    def _place(self) -> dict[str, int]:
        return {
            "base_offset": self.next_offset,
            "partition_leader_epoch": self.leader_epoch,
            "base_timestamp": T0 + self.next_offset,
            "max_timestamp": T0 + self.next_offset + self.random.randrange(50),
        }

    def data(self, producer_id: int, epoch: int = 0, *, transactional: bool = False) -> None:
        count = self.random.randrange(1, 4)
        sequence = self.random.choice([0, 7, 2**31 - 1, 2**31 - 2])
        place = self._place()
        records = [
            RecordV2(value=self.random.randbytes(self.random.randrange(80)), offset_delta=delta)
            for delta in range(count)
        ]
        records[-1].timestamp_delta = place["max_timestamp"] - place["base_timestamp"]
        batch = batch_of(
            records,
            attributes=TRANSACTIONAL if transactional else 0,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            **place,
        )
        if producer_id >= 0:
            known = self.producers.setdefault(producer_id, KnownProducer())
            known.enter(epoch)
            last = sequence + count - 1
            known.last_sequence = last if last < 2**31 else last - 2**31
            known.last_offset = self.next_offset + count - 1
            known.offset_delta = count - 1
            known.timestamp = place["max_timestamp"]
            if transactional and known.first_offset < 0:
                known.first_offset = self.next_offset
        self._add(batch, count)

    def end(self, producer_id: int, kind: int, epoch: int = 0) -> None:
        place = self._place()
        place["max_timestamp"] = place["base_timestamp"] + 3
        coordinator_epoch = self.random.randrange(5)
        batch = marker(
            kind,
            coordinator_epoch=coordinator_epoch,
            timestamp_delta=3,
            producer_id=producer_id,
            producer_epoch=epoch,
            **place,
        )
        known = self.producers.setdefault(producer_id, KnownProducer())
        if known.first_offset >= 0 and kind == ABORT:
            others = [
                one.first_offset
                for other, one in self.producers.items()
                if other != producer_id and one.first_offset >= 0
            ]
            stable = min(others, default=self.next_offset + 1)
            self.aborted.append((producer_id, known.first_offset, self.next_offset, stable))
        known.enter(epoch)
        known.first_offset = -1
        known.coordinator_epoch = coordinator_epoch
        known.timestamp = place["base_timestamp"] + 3
        self._add(batch, 1)

    def write(self, steps: int, ids: list[int]) -> WrittenLog:
        """Append the batches of random, valid actions of producers."""
        for _ in range(steps):
            producer_id = self.random.choice(ids)
            known = self.producers.get(producer_id, KnownProducer())
            epoch = max(known.epoch, 0) + (self.random.random() < 0.1)
            what = self.random.random()
            if what < 0.1:
                self.data(-1)
            elif what < 0.2:
                self.leader_epoch += self.random.randrange(2)
            elif what < 0.45 and (known.first_offset >= 0 or self.random.random() < 0.2):
                self.end(producer_id, self.random.choice([ABORT, COMMIT]), epoch)
            else:
                may_be_plain = known.first_offset < 0
                is_plain = may_be_plain and self.random.random() < 0.5
                self.data(producer_id, epoch, transactional=not is_plain)
        return self
