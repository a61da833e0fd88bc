"""Logs of more shapes: heavy compaction, many epochs, wrappers, nested copies, older histories.

Numbers below `FIRST_NUMBER` do not use them, so that each still stands for the same log.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.damage.recovery.campaign.known_logs import KnownBatch, KnownLog
from tests.support.logs import marker
from tests.support.segments import T0, batch_v2, message_v0, message_v1

FIRST_NUMBER = 1_000_000_000
_GZIP = 1


@dataclass
class _Writer:
    """The state of a log that is being written."""

    choice: random.Random
    magics: tuple[int, ...]
    producers: tuple[int, ...]
    clock: int
    epochs_per_batch: float
    sequences: dict[int, int]
    values: list[bytes]
    offset: int
    epoch: int

    def write(self, progress: float) -> KnownBatch:
        """Return the next batch; `progress` is the part of the log that is written."""
        if self.epoch >= 0 and self.choice.random() < self.epochs_per_batch:
            self.epoch += self.choice.choice([1, 1, 2, 9])
        magic = self.magics[int(progress * len(self.magics))]
        value = self.choice.randbytes(self.choice.choice([0, 7, 30, 30, 90, 700]))
        if self.values and self.choice.random() < 0.1:  # a topic with copies of logs
            value = b"".join(self.choice.choices(self.values, k=self.choice.choice([1, 3])))
        data, first = self._batch(magic, value)
        one = KnownBatch(data, first, self.offset - 1)
        self.values.append(data)
        return one

    def _batch(self, magic: int, value: bytes) -> tuple[bytes, int]:
        first, count = self.offset, self.choice.choice([1, 1, 2, 5, 40])
        if magic < 2:
            message = message_v1 if magic == 1 else message_v0
            # A compressed message has the offset of its last record.
            codec = self.choice.choice([0, 0, _GZIP])
            self.offset += count if codec else 1
            last = self.offset - 1
            return message(None, value, offset=last, attributes=codec), last
        time = self.clock + first if self.clock != T0 else T0 + self.choice.randrange(10**6)
        place = {
            "base_offset": first, "partition_leader_epoch": self.epoch,
            "base_timestamp": max(-1, time), "max_timestamp": max(-1, time),
        }  # fmt: skip
        if self.producers and self.choice.random() < 0.2:
            self.offset += 1
            data = marker(self.choice.choice([0, 1]), producer_id=self.producers[0], **place)
            return data, first
        # The cleaner removes records within a batch, or all but its header.
        place |= {"records_count": self.choice.choice([count, count, 1, 0])}
        place |= {"last_offset_delta": count - 1}
        self.offset += count
        if self.producers:
            one = self.choice.choice(self.producers)
            place |= {"producer_id": one, "producer_epoch": 0, "attributes": 0x10}
            place |= {"base_sequence": self.sequences[one]}
            self.sequences[one] += count
        return batch_v2(value, **place), first


def log_of_more_shapes(choice: random.Random) -> KnownLog:
    """Return a log, with the batches of an earlier generation and of a history that was cut."""
    log = KnownLog(choice.choice([0, 77, 1_000_000, 2**40, 2**62]))
    producers = choice.choice([(), (7,), (7, 8, 9)])
    writer = _Writer(
        choice,
        magics=choice.choice([(2,), (2,), (2,), (1, 2), (0, 1)]),
        producers=producers,
        clock=choice.choice([T0, T0 + 1, -(2**40)]),
        epochs_per_batch=choice.choice([0, 0.1, 0.5]),
        sequences=dict.fromkeys(producers, 0),
        values=[],
        offset=log.base_offset,
        epoch=choice.choice([-1, 0, 5]),
    )
    count = choice.choice([1, 2, 5, 12, 12, 30, 30, 100])
    removed, cut = choice.choice([0, 0, 0.3, 0.8]), choice.randrange(count + 1)
    position = 0
    for step in range(count):
        if step == cut:
            log.cut_row, log.cut = len(log.batches), _cut_history(writer, step / count)
            writer.epoch += writer.epoch >= 0
        one = writer.write(step / count)
        log.older.append(one)
        if log.batches and choice.random() < removed:
            continue
        log.batches.append(KnownBatch(one.data, one.first, one.last, position))
        position += len(one.data)
        if one.data[16] == 2 and writer.epoch >= 0:
            log.epochs.add(writer.epoch)
    if choice.random() < 0.5:
        log.highest = log.older[-1].last
    log.zero_tail = choice.choice([0, 0, 40, 3000])
    return log


def _cut_history(writer: _Writer, progress: float) -> list[KnownBatch]:
    """Return what a leader of the same epoch wrote, and the next leader's followers truncated."""
    offset, sequences = writer.offset, dict(writer.sequences)
    found = [writer.write(progress) for _ in range(writer.choice.choice([1, 4, 15]))]
    writer.offset, writer.sequences = offset, sequences
    return found
