"""
Histories of a partition's folder: what a broker, or a copy of its files, does to it step by step.

Each step is what a reader can see between two of its system calls: a part of a batch that was
written, a file that was renamed. The order of the steps is Kafka's: `LocalLog.replaceSegments`,
`UnifiedLog.deleteOldSegments`, `maybeIncrementLogStartOffset`, `truncateTo`, `LogManager`.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import kafkascan as ks
from tests.spark.logs import ABORT, COMMIT, data, marker, plain_batch

TOPIC, PARTITION = "orders", 0
NAME = f"{TOPIC}-{PARTITION}"
START_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
_KINDS = (".log", ".index", ".timeindex", ".txnindex")

Steps = Iterator[None]
"""Makes the next change each time that it is advanced."""


@dataclass
class MovingPartition:
    """
    The folder of a partition in a data dir, as its broker writes it.

    Parameters
    ----------
    data_dir : Path
    dice : random.Random

    Attributes
    ----------
    folder, path : Path
        Of the partition, and of its last segment.
    end_offset, epoch : int
        Of the next batch.
    open_since : dict
        First offsets of the open transactions, by producer.
    """

    data_dir: Path
    dice: random.Random
    folder: Path = field(init=False)
    path: Path = field(init=False)
    end_offset: int = 0
    epoch: int = 0
    open_since: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self._create_folder(NAME)

    # ---- what all histories are made of ----

    def append(self) -> Steps:
        """Write a batch, in one write or in two."""
        batch = self._next_batch()
        cut = self.dice.choice((0, 0, self.dice.randrange(len(batch))))
        with self.path.open("ab", buffering=0) as file:
            if cut:
                file.write(batch[:cut])
                yield
            file.write(batch[cut:])
        yield

    def roll(self) -> Steps:
        """Begin the next segment."""
        self._begin_segment()
        yield

    def grow(self) -> Steps:
        """Append or roll."""
        yield from self.roll() if self.dice.random() < 0.2 else self.append()

    # ---- what takes something away, or puts something in its place ----

    def retention(self) -> Steps:
        """Delete the first segments, and say so in the checkpoint some time later."""
        segments = self._segments()
        gone = segments[: self.dice.randrange(1, len(segments))] if len(segments) > 1 else []
        yield from self._drop(gone)
        if gone:
            self._checkpoint(START_CHECKPOINT, int(self._segments()[0].stem))
            yield

    def delete_records(self) -> Steps:
        """Raise the log start offset (``DeleteRecords``), and delete the segments before it."""
        first = int(self._segments()[0].stem)
        start = self.dice.randrange(first, self.end_offset + 1)
        self._checkpoint(START_CHECKPOINT, start)
        yield
        segments = self._segments()
        before = [
            path for path, following in itertools.pairwise(segments) if int(following.stem) <= start
        ]
        yield from self._drop(before)

    def clean(self) -> Steps:
        """Replace the first segments by one that has some of their batches."""
        closed = self._segments()[:-1]
        if not closed:
            return
        old = closed[: self.dice.randrange(1, len(closed) + 1)]
        cleaned = old[0].with_suffix(".log.cleaned")
        cleaned.write_bytes(b"".join(self._kept(path) for path in old))
        yield
        swap = cleaned.rename(old[0].with_suffix(".log.swap"))
        yield
        renamed = yield from self._rename(old)
        swap.rename(old[0])
        yield
        for file in renamed:
            file.unlink()
        yield
        self._checkpoint(CLEANER_CHECKPOINT, int(self._segments()[-1].stem))
        yield

    def truncate(self) -> Steps:
        """Remove the last offsets, as a follower of a new leader does, and get other ones."""
        path = self.dice.choice(self._segments()[-2:])
        later = yield from self._rename([one for one in self._segments() if one.name > path.name])
        batches = ks.scan_batches(path.read_bytes()).batches
        row = self.dice.randrange(len(batches) + 1)
        size = path.stat().st_size
        position = int(batches["position"][row]) if row < len(batches) else size
        self.path, self.epoch = path, self.epoch + 1
        self.end_offset = (
            int(batches["base_offset"][row]) if row < len(batches) else self.end_offset
        )
        if not len(batches):
            self.end_offset = int(path.stem)
        self.open_since = {
            producer: first
            for producer, first in self.open_since.items()
            if first < self.end_offset
        }
        os.truncate(path, position)
        yield
        for file in later:
            file.unlink()
        yield

    def move_between_disks(self) -> Steps:
        """Put a copy in the place of the folder, as a broker with several data dirs does."""
        future = self.data_dir / f"{NAME}.{'f' * 32}-future"
        shutil.copytree(self.folder, future)
        yield
        dropped = self.folder.rename(self.data_dir / f"{NAME}.{'d' * 32}-delete")
        yield
        future.rename(self.folder)
        yield
        shutil.rmtree(dropped)
        yield

    def create_again(self) -> Steps:
        """Delete the topic and create another one with its name."""
        dropped = self.folder.rename(
            self.data_dir / f"{NAME}.{self.dice.randbytes(16).hex()}-delete"
        )
        yield
        self.end_offset, self.epoch, self.open_since = 0, 0, {}
        self._create_folder(NAME)
        yield
        for _ in range(3):
            yield from self.append()
        shutil.rmtree(dropped)
        yield

    def copy_again(self) -> Steps:
        """Replace a file by a newer copy, as rsync does."""
        path = self.dice.choice(self._segments())
        new = path.with_name(f".{path.name}.Xq9Zrt")
        new.write_bytes(path.read_bytes())
        yield
        new.rename(path)
        yield

    # ---- files ----

    def _create_folder(self, name: str) -> None:
        self.folder = self.data_dir / name
        self.folder.mkdir()
        topic_id = self.dice.randbytes(16).hex()[:22]
        (self.folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
        self._begin_segment()

    def _begin_segment(self) -> None:
        self.path = self.folder / f"{self.end_offset:020d}.log"
        for kind in (".index", ".timeindex"):
            self.path.with_suffix(kind).touch()
        self.path.touch()

    def _segments(self) -> list[Path]:
        return sorted(self.folder.glob("*.log"))

    def _drop(self, segments: list[Path]) -> Steps:
        """Rename segments, and delete them later."""
        renamed = yield from self._rename(segments)
        for file in renamed:
            file.unlink()
        if renamed:
            yield

    def _rename(self, segments: list[Path]) -> Generator[None, None, list[Path]]:
        """Rename the files of segments, and return them."""
        renamed = []
        for path in segments:
            for kind in _KINDS:
                file = path.with_suffix(kind)
                if file.exists():
                    renamed.append(file.rename(file.with_name(f"{file.name}.deleted")))
                    yield
        return renamed

    def _kept(self, path: Path) -> bytes:
        """Return the batches of a segment that the cleaner keeps."""
        content = path.read_bytes()
        return b"".join(
            content[int(row["position"]) :][: int(row["batch_length"]) + 12]
            for row in ks.scan_batches(content).batches
            if row["producer_id"] >= 0 or self.dice.random() < 0.6
        )

    def _checkpoint(self, name: str, offset: int) -> None:
        new = self.data_dir / f"{name}.tmp"
        new.write_text(f"0\n1\n{TOPIC} {PARTITION} {offset}\n")
        new.rename(self.data_dir / name)

    def _next_batch(self) -> bytes:
        offset, epoch = self.end_offset, {"partition_leader_epoch": self.epoch}
        kind = self.dice.choice(("plain", "data", "data", "end", "end", "end"))
        producer = self.dice.randrange(1, 4)
        if kind == "end" and producer in self.open_since:
            del self.open_since[producer]
            self.end_offset += 1
            return marker(offset, producer, self.dice.choice((ABORT, COMMIT)))
        count = self.dice.randrange(1, 4)
        self.end_offset += count
        if kind == "plain":
            return plain_batch(offset, count, size=self.dice.randrange(40), **epoch)
        self.open_since.setdefault(producer, offset)
        return data(offset, producer, count, **epoch)


Change = Callable[[MovingPartition], Steps]

CHANGES: dict[str, Change] = {
    change.__name__: change
    for change in (
        MovingPartition.grow,
        MovingPartition.retention,
        MovingPartition.delete_records,
        MovingPartition.clean,
        MovingPartition.truncate,
        MovingPartition.move_between_disks,
        MovingPartition.create_again,
        MovingPartition.copy_again,
    )
}


def steps_of(partition: MovingPartition, change: Change) -> Steps:
    """Make one change again and again, while the log grows."""
    while True:
        for _ in range(partition.dice.randrange(3)):
            yield from partition.grow()
        yield from change(partition)
