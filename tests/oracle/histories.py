"""Random partitions as a leader writes them: logs of random batches, split into segments."""

from __future__ import annotations

import gzip
import random
import struct
from dataclasses import dataclass, field

from tests.support.records import RecordV2, batch_of
from tests.support.segments import T0, message_v0, message_v1

_TRANSACTIONAL, _CONTROL = 16, 32
_ABORT, _COMMIT, _LEADER_CHANGE = 0, 1, 2
_GZIP = 1
_SEQUENCES = 2**31

Logs = dict[int, bytes]
"""The segments of a partition by their base offsets."""


@dataclass
class _Producer:
    """The state of a producer and its coordinator."""

    id: int
    is_transactional: bool
    epoch: int = 0
    sequence: int = 0
    coordinator_epoch: int = 0
    is_in_transaction: bool = False


@dataclass
class _Writer:
    """A leader that appends random batches."""

    dice: random.Random
    has_legacy: bool
    producers: list[_Producer]
    logs: Logs = field(default_factory=lambda: {0: b""})
    base: int = 0
    next_offset: int = 0
    leader_epoch: int = 0
    timestamp: int = T0

    def step(self) -> None:
        """Append one batch, or change the state of a producer or the leader."""
        steps = [
            (self._data, 10),
            (self._end_of_transaction, 4),
            (self._legacy, 6 if self.has_legacy else 0),
            (self._leader_change, 1),
            (self._hole, 1),
            (self._empty_batch, 1),
            (self._epoch_bump, 1),
        ]
        doers, weights = zip(*steps, strict=True)
        self.dice.choices(doers, weights)[0]()

    def roll(self) -> None:
        """Start a segment at the log's end."""
        self.base = self.next_offset
        self.logs.setdefault(self.base, b"")

    def _data(self) -> None:
        producer = self.dice.choice([None, *self.producers])
        count = self.dice.randrange(1, 6)
        records = [
            RecordV2(
                key=f"key-{self.dice.randrange(9)}".encode(),
                value=bytes(self.dice.choices(b"abc", k=self.dice.choice([0, 5, 30, 200]))),
                offset_delta=number,
            )
            for number in range(count)
        ]
        if producer is None:
            self._append(records)
        else:
            self._append(records, **_sent_by(producer, count))

    def _end_of_transaction(self) -> None:
        open_ones = [one for one in self.producers if one.is_in_transaction]
        # An empty transaction leaves a marker only.
        candidates = open_ones or [one for one in self.producers if one.is_transactional]
        if not candidates:
            return
        producer = self.dice.choice(candidates)
        producer.is_in_transaction = False
        if self.dice.random() < 0.1:
            producer.coordinator_epoch += 1
        if self.dice.random() < 0.3:  # as since KIP-890
            producer.epoch, producer.sequence = producer.epoch + 1, 0
        kind = self.dice.choice([_ABORT, _COMMIT])
        fields = {
            "attributes": _TRANSACTIONAL | _CONTROL,
            "producer_id": producer.id,
            "producer_epoch": producer.epoch,
        }
        self._append([control_record(kind, producer.coordinator_epoch)], **fields)

    def _leader_change(self) -> None:
        self.leader_epoch += self.dice.randrange(1, 3)
        if self.dice.random() < 0.5:  # a record of it is written by KRaft only
            record = control_record(_LEADER_CHANGE, 1)
            self._append([record], attributes=_CONTROL)

    def _hole(self) -> None:
        """Return a batch as the cleaner leaves it."""
        self.next_offset += self.dice.randrange(1, 20)

    def _empty_batch(self) -> None:
        """Return the empty batch that the cleaner keeps for a producer's last sequence."""
        producer = self.dice.choice([None, *self.producers])
        fields = {} if producer is None else _sent_by(producer, 1)
        self._append([], **(fields | {"last_offset_delta": self.dice.randrange(4)}))

    def _epoch_bump(self) -> None:
        idle = [one for one in self.producers if not one.is_in_transaction]
        if idle:
            producer = self.dice.choice(idle)
            producer.epoch, producer.sequence = producer.epoch + 1, 0

    def _legacy(self) -> None:
        """Return a message of format 0 or 1, or a wrapper of several."""
        magic, count = self.dice.choice([0, 1]), self.dice.choice([1, 1, 3])
        at = self._tick()
        last = self.next_offset + count - 1
        values = [bytes(self.dice.choices(b"xyz", k=self.dice.randrange(60))) for _ in range(count)]
        if count == 1:
            message = _message(magic, last, at, values[0])
        else:
            # Inside a wrapper of format 1, offsets start at 0.
            first = self.next_offset if magic == 0 else 0
            inner = [_message(magic, first + n, at, value) for n, value in enumerate(values)]
            message = _message(magic, last, at, gzip.compress(b"".join(inner), mtime=0), _GZIP)
        self._add(message, last)

    def _append(self, records: list[RecordV2], **fields: int) -> None:
        at = self._tick()
        defaults = {
            "base_offset": self.next_offset,
            "partition_leader_epoch": self.leader_epoch,
            "base_timestamp": at,
            "max_timestamp": at,
        }
        last = fields.get("last_offset_delta", records[-1].offset_delta if records else 0)
        self._add(batch_of(records, **(defaults | fields)), self.next_offset + last)

    def _add(self, batch: bytes, last_offset: int) -> None:
        self.logs[self.base] += batch
        self.next_offset = last_offset + 1

    def _tick(self) -> int:
        """Return a timestamp: mostly later, sometimes earlier, rarely none."""
        self.timestamp += self.dice.choice([0, 1, 1, 5, 1000, -3, -2000])
        return -1 if self.dice.random() < 0.03 else self.timestamp


def _message(magic: int, offset: int, timestamp: int, value: bytes, attributes: int = 0) -> bytes:
    key = None if attributes else b"k"
    if magic == 0:
        return message_v0(key, value, offset=offset, attributes=attributes)
    return message_v1(key, value, offset=offset, attributes=attributes, timestamp=timestamp)


def control_record(kind: int, coordinator_epoch: int) -> RecordV2:
    """Return a control record with the value of an end marker, which other kinds ignore."""
    key = struct.pack(">hh", 0, kind)
    return RecordV2(key=key, value=struct.pack(">hi", 0, coordinator_epoch))


def history(dice: random.Random) -> Logs:
    """Write 1 to 4 segments; transactions may end in later segments."""
    writer = _Writer(dice, has_legacy=dice.random() < 0.3, producers=_producers(dice))
    for number in range(dice.choice([1, 2, 2, 3, 3, 4])):
        if number:
            writer.roll()
        for _ in range(dice.choice([0, 1, 5, 12, 25, 40])):
            writer.step()
    return writer.logs


def _producers(dice: random.Random) -> list[_Producer]:
    """Return ids, some of which share a bucket of a hash map."""
    ids = [0, 1, 2, 16, 17, 32, 1000, 1016, 2**32, 2**32 + 1, 2**40 + 7, 2**63 - 1]
    # More ids than a map of 16 buckets holds without growing.
    count = dice.choice([0, 1, 3, 6, 12, 30])
    chosen = dice.sample(ids, min(count, len(ids))) + [5000 + 7 * n for n in range(count - 12)]
    return [_Producer(one, is_transactional=dice.random() < 0.6) for one in chosen]


def _sent_by(producer: _Producer, count: int) -> dict[str, int]:
    fields = {
        "attributes": _TRANSACTIONAL if producer.is_transactional else 0,
        "producer_id": producer.id,
        "producer_epoch": producer.epoch,
        "base_sequence": producer.sequence,
    }
    producer.sequence = (producer.sequence + count) % _SEQUENCES
    producer.is_in_transaction = producer.is_transactional
    return fields
