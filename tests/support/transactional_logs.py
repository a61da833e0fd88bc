"""Logs of transactions that grow step by step, and what a consumer sees of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.spark.logs import ABORT, COMMIT, data, marker, plain_batch, segment_path

Step = tuple[str, int]
"""What happens next (plain, data, commit, abort or roll), and the producer."""


class Consumer:
    """A model of a broker and a read_committed consumer."""

    def __init__(self) -> None:
        self.log: list[tuple[int, int | None, int | None]] = []  # offset, producer, marker

    def add(self, offset: int, producer: int | None, kind: int | None) -> None:
        self.log.append((offset, producer, kind))

    def seen(self) -> list[int]:
        opened: dict[int, list[int]] = {}
        hidden: set[int] = set()
        for offset, producer, kind in self.log:
            if producer is not None and kind is None:
                opened.setdefault(producer, []).append(offset)
            elif producer is not None:
                ended = opened.pop(producer, [])
                hidden |= set(ended) if kind == ABORT else set()
        stable = min((offsets[0] for offsets in opened.values()), default=2**63)
        return [
            offset
            for offset, _, kind in self.log
            if kind is None and offset not in hidden and offset < stable
        ]


class TransactionalLog:
    """
    A partition to which steps are written: batches of one record, markers, rolls.

    Attributes
    ----------
    path : Path
        The last segment.
    moments : list of list of int
        The offsets that a consumer saw at the beginning, and after each step.
    """

    def __init__(self, data_dir: Path, topic: str = "topic") -> None:
        self._data_dir, self._topic = data_dir, topic
        self._consumer, self._offset = Consumer(), 0
        self.moments: list[list[int]] = [[]]
        self._roll()

    @property
    def folder(self) -> Path:
        """The folder of the partition."""
        return self.path.parent

    def write(self, steps: Sequence[Step]) -> None:
        """Write the next steps."""
        for step, producer in steps:
            if step == "roll":
                self._roll()
            else:
                self._append(step, producer)
            self.moments.append(self._consumer.seen())

    def _roll(self) -> None:
        self.path = segment_path(self._data_dir, self._topic, base_offset=self._offset)
        self.path.touch()

    def _append(self, step: str, producer: int) -> None:
        kind = {"commit": COMMIT, "abort": ABORT}.get(step)
        if step == "plain":
            batch, writer = plain_batch(self._offset, 1), None
        elif kind is None:
            batch, writer = data(self._offset, producer), producer
        else:
            batch, writer = marker(self._offset, producer, kind), producer
        with self.path.open("ab") as file:
            file.write(batch)
        self._consumer.add(self._offset, writer, kind)
        self._offset += 1
