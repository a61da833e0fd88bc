"""
Histories of a partition's folder: what a broker, or a copy of its files, does to it step by step.

Each step is what a reader can see between two of its system calls: a part of a batch that was
written, a file that was renamed. The order of the steps is Kafka's: `LocalLog.replaceSegments`,
`UnifiedLog.deleteOldSegments`, `maybeIncrementLogStartOffset`, `truncateTo`, `LogManager`.
"""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import kafkascan as ks
from tests.moving import recorded, segments
from tests.moving.segments import AbortedTransaction, Steps
from tests.moving.snapshots import Files, Snapshot
from tests.spark.logs import ABORT, COMMIT, data, marker, plain_batch

TOPIC, PARTITION = "orders", 0
NAME = f"{TOPIC}-{PARTITION}"
START_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
EPOCH_CHECKPOINT = "leader-epoch-checkpoint"


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
    epochs : dict
        First offsets by leader epoch.
    open_since : dict
        First offsets of the open transactions, by producer.
    """

    data_dir: Path
    dice: random.Random
    folder: Path = field(init=False)
    path: Path = field(init=False)
    end_offset: int = 0
    epoch: int = 0
    epochs: dict[int, int] = field(default_factory=dict)
    open_since: dict[int, int] = field(default_factory=dict)

    def begin(self) -> None:
        """Create the folder, and let the log grow."""
        self.data_dir.mkdir(parents=True)
        for _ in self._create_folder():
            pass
        for _ in range(self.dice.randrange(2, 25)):
            for _ in self.grow():
                pass

    # ---- what all histories are made of ----

    def append(self) -> Steps:
        """Write a batch, in one write or in two, and the entries of indexes."""
        yield from segments.preallocate(self.path)
        if self.epoch not in self.epochs:
            self.epochs[self.epoch] = self.end_offset
            yield from self._write_epochs()
        batch, aborted = self._next_batch()
        cut = self.dice.choice((0, 0, self.dice.randrange(len(batch))))
        yield from segments.append(self.path, batch, cut)
        if aborted is not None:
            with self.path.with_suffix(".txnindex").open("ab", buffering=0) as file:
                file.write(aborted.encode())
            yield
        if segments.is_full(self.path):
            yield from self.roll()

    def roll(self) -> Steps:
        """End the last segment, begin the next one, and write the state of producers."""
        if not self.path.stat().st_size:
            return
        yield from segments.trim(self.path)
        self._begin_segment()
        yield
        producers = ks.analysis.read_producer_state(self.folder)
        ks.broker_state.write_producer_snapshot(self.path.with_suffix(".snapshot"), producers)
        yield

    def grow(self) -> Steps:
        """Append or roll."""
        yield from self.roll() if self.dice.random() < 0.2 else self.append()

    # ---- what takes something away, or puts something in its place ----

    def retention(self) -> Steps:
        """Delete the first segments, or all, and say so in the checkpoint some time later."""
        if self.dice.random() < 0.2:
            yield from self.roll()
        paths = self._segments()
        gone = paths[: self.dice.randrange(1, len(paths))] if len(paths) > 1 else []
        yield from self._drop(gone)
        if gone:
            yield from self._checkpoint(START_CHECKPOINT, int(self._segments()[0].stem))

    def delete_records(self) -> Steps:
        """Raise the log start offset (``DeleteRecords``), and delete the segments before it."""
        first = int(self._segments()[0].stem)
        start = self.dice.randrange(first, self.end_offset + 1)
        yield from self._checkpoint(START_CHECKPOINT, start)
        before = [
            path
            for path, following in itertools.pairwise(self._segments())
            if int(following.stem) <= start
        ]
        yield from self._drop(before)

    def clean(self) -> Steps:
        """Replace the first segments by one that has some of their batches."""
        closed = self._segments()[:-1]
        if not closed:
            return
        old = closed[: self.dice.randrange(1, len(closed) + 1)]
        yield from self._write_cleaned(old)
        yield from _rename_suffix(old[0], ".cleaned", ".swap")
        renamed = yield from self._rename(itertools.chain(*map(segments.files_of, old)))
        yield from _rename_suffix(old[0], ".swap", "")
        snapshots = [path.with_suffix(".snapshot") for path in old[1:]]
        renamed += yield from self._rename(path for path in snapshots if path.exists())
        yield from _remove(renamed)
        yield from self._checkpoint(CLEANER_CHECKPOINT, int(self._segments()[-1].stem))

    def truncate(self) -> Steps:
        """Remove the last offsets, as a follower of a new leader does, and get other ones."""
        path = self.dice.choice(self._segments()[-2:])
        later = [other for other in self._segments() if other.name > path.name]
        renamed = yield from self._rename(itertools.chain(*map(segments.files_of, later)))
        batches = ks.scan_batches(path.read_bytes()).batches
        row = self.dice.randrange(len(batches) + 1)
        if row < len(batches):
            position, end = int(batches["position"][row]), int(batches["base_offset"][row])
        else:
            position = path.stat().st_size
            end = self.end_offset if not later else int(later[0].stem)
        yield from segments.truncate(path, position, end)
        self.path, self.end_offset, self.epoch = path, end, self.epoch + 1
        self.epochs = {epoch: first for epoch, first in self.epochs.items() if first < end}
        yield from self._write_epochs()
        self.open_since = self._open_transactions()
        yield from _remove(file for file in self.folder.glob("*.snapshot") if int(file.stem) > end)
        yield from _remove(renamed)

    def move_between_disks(self) -> Steps:
        """Put a copy in the place of the folder, as a broker with several data dirs does."""
        future = self.data_dir / f"{NAME}.{'f' * 32}-future"
        future.mkdir()
        yield
        for file in sorted(self.folder.iterdir()):
            shutil.copyfile(file, future / file.name)
            yield
        dropped = self.folder.rename(self.data_dir / f"{NAME}.{'d' * 32}-delete")
        yield
        future.rename(self.folder)
        yield
        yield from _remove_folder(dropped)

    def create_again(self) -> Steps:
        """Delete the topic and create another one with its name."""
        dropped = self.folder.rename(
            self.data_dir / f"{NAME}.{self.dice.randbytes(16).hex()}-delete"
        )
        yield
        yield from self._checkpoint(START_CHECKPOINT, None)
        yield from self._checkpoint(CLEANER_CHECKPOINT, None)
        self.end_offset, self.epoch, self.epochs, self.open_since = 0, 0, {}, {}
        yield from self._create_folder()
        for _ in range(3):
            yield from self.append()
        yield from _remove_folder(dropped)

    def copy_again(self) -> Steps:
        """Bring the files up to date with those of another host, as rsync does."""
        new = self._files_of_another_host()
        old = Snapshot.of(self.data_dir).files
        gone = [self.data_dir / name for name in old if name not in new]
        is_deleted_before = self.dice.random() < 0.5  # --delete-before, or --delete-after
        yield from _remove(gone if is_deleted_before else [])
        for name in sorted(new, key=lambda name: (name.count("/"), name)):
            if name not in old or new[name].content != old[name].content:
                yield from self._receive(self.data_dir / name, new[name].content)
        yield from _remove([] if is_deleted_before else gone)

    # ---- files ----

    def _files_of_another_host(self) -> Files:
        """Let the log go on in a copy of the data dir, and return the files there."""
        here = self.data_dir
        self._work_in(here.parent / "another host")
        shutil.copytree(here, self.data_dir)
        changes = (self.grow, self.retention, self.clean, self.truncate)
        for change in self.dice.choices(changes, (6, 1, 1, 1), k=4):
            for _ in change():
                pass
        files = Snapshot.of(self.data_dir).files
        shutil.rmtree(self.data_dir)
        self._work_in(here)
        return files

    def _receive(self, path: Path, content: bytes) -> Steps:
        """Replace a file by a temporary one, as rsync does."""
        new = path.with_name(f".{path.name}.Xq9Zrt")
        with new.open("wb", buffering=0) as file:
            cut = self.dice.randrange(len(content) + 1)
            file.write(content[:cut])
            yield
            file.write(content[cut:])
        yield
        new.rename(path)
        yield

    def _work_in(self, data_dir: Path) -> None:
        self.data_dir, self.folder = data_dir, data_dir / NAME
        self.path = self.folder / self.path.name

    def _create_folder(self) -> Steps:
        self.folder = self.data_dir / NAME
        self.folder.mkdir()
        yield
        self._begin_segment()
        yield
        topic_id = self.dice.randbytes(16).hex()[:22]
        yield from _replace(
            self.folder / "partition.metadata", f"version: 0\ntopic_id: {topic_id}\n"
        )

    def _begin_segment(self) -> None:
        self.path = self.folder / f"{self.end_offset:020d}.log"
        self.path.touch()

    def _segments(self) -> list[Path]:
        return sorted(self.folder.glob("*.log"))

    def _drop(self, paths: list[Path]) -> Steps:
        """Rename segments and their snapshots, and delete them later."""
        files = [*itertools.chain(*map(segments.files_of, paths))]
        files += [file for path in paths if (file := path.with_suffix(".snapshot")).exists()]
        renamed = yield from self._rename(files)
        yield from _remove(renamed)

    def _rename(self, files: Iterable[Path]) -> Generator[None, None, list[Path]]:
        """Rename files that are to be deleted, and return them."""
        renamed = []
        for file in list(files):
            renamed.append(file.rename(file.with_name(f"{file.name}.deleted")))
            yield
        return renamed

    def _write_cleaned(self, old: list[Path]) -> Steps:
        """Write the files that replace segments."""
        kept = b"".join(map(self._kept, old))
        base_offset = int(old[0].stem)
        contents = {".log": kept, **segments.entries_of(kept, base_offset, is_closed=True)}
        aborted = [path.with_suffix(".txnindex") for path in old]
        if any(path.exists() for path in aborted):
            contents[".txnindex"] = b"".join(path.read_bytes() for path in aborted if path.exists())
        for kind, content in contents.items():
            old[0].with_suffix(f"{kind}.cleaned").write_bytes(content)
            yield

    def _kept(self, path: Path) -> bytes:
        """Return the batches of a segment that the cleaner keeps."""
        content = path.read_bytes()
        return b"".join(
            content[int(row["position"]) :][: int(row["batch_length"]) + 12]
            for row in ks.scan_batches(content).batches
            if row["producer_id"] >= 0 or self.dice.random() < 0.6
        )

    def _checkpoint(self, name: str, offset: int | None) -> Steps:
        """Write an offset checkpoint with the offset of the partition, or without one."""
        entries = [] if offset is None else [f"{TOPIC} {PARTITION} {offset}"]
        yield from _replace(self.data_dir / name, _lines(entries))

    def _write_epochs(self) -> Steps:
        entries = [f"{epoch} {first}" for epoch, first in self.epochs.items()]
        yield from _replace(self.folder / EPOCH_CHECKPOINT, _lines(entries))

    # ---- batches ----

    def _next_batch(self) -> tuple[bytes, AbortedTransaction | None]:
        """Return a batch, and the transaction that it aborts."""
        offset, epoch = self.end_offset, {"partition_leader_epoch": self.epoch}
        kind = self.dice.choice(("plain", "data", "data", "end", "end", "end"))
        producer = self.dice.randrange(1, 4)
        if kind == "end" and producer in self.open_since:
            return self._end_transaction(producer)
        count = self.dice.randrange(1, 4)
        self.end_offset += count
        if kind == "plain":
            return plain_batch(offset, count, size=self.dice.randrange(40), **epoch), None
        self.open_since.setdefault(producer, offset)
        return data(offset, producer, count, **epoch), None

    def _end_transaction(self, producer: int) -> tuple[bytes, AbortedTransaction | None]:
        offset, first = self.end_offset, self.open_since.pop(producer)
        epoch = {"partition_leader_epoch": self.epoch}
        self.end_offset += 1
        if self.dice.random() < 0.5:
            return marker(offset, producer, COMMIT, **epoch), None
        stable = min(self.open_since.values(), default=offset + 1)
        aborted = AbortedTransaction(producer, first, offset, stable)
        return marker(offset, producer, ABORT, **epoch), aborted

    def _open_transactions(self) -> dict[int, int]:
        """Return the first offsets of the transactions that are open at the end of the files."""
        found: dict[int, int] = {}
        for path in self._segments():
            for row in ks.scan_batches(path.read_bytes()).batches:
                producer = int(row["producer_id"])
                if producer >= 0 and row["attributes"] & 0x20:
                    found.pop(producer, None)
                elif producer >= 0:
                    found.setdefault(producer, int(row["base_offset"]))
        known = self.open_since
        return {one: min(first, known.get(one, first)) for one, first in found.items()}


def _lines(entries: list[str]) -> str:
    return "".join(f"{line}\n" for line in ("0", str(len(entries)), *entries))


def _replace(path: Path, text: str) -> Steps:
    """Write a file beside its place, and rename it."""
    new = path.with_name(f"{path.name}.tmp")
    new.write_text(text)
    yield
    new.rename(path)
    yield


def _rename_suffix(path: Path, old: str, new: str) -> Steps:
    for kind in segments.KINDS:
        file = path.with_suffix(f"{kind}{old}")
        if file.exists():
            file.rename(path.with_suffix(f"{kind}{new}"))
            yield


def _remove(files: Iterable[Path]) -> Steps:
    for file in list(files):
        file.unlink()
        yield


def _remove_folder(folder: Path) -> Steps:
    yield from _remove(folder.iterdir())
    folder.rmdir()
    yield


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


HISTORIES = (*CHANGES, *recorded.NAMES)
"""Names of all histories: those that are generated, and those of live brokers."""


def begin(data_dir: Path, history: str, dice: random.Random) -> Steps:
    """Write a partition to a data dir, and return what happens to it then."""
    if history in recorded.NAMES:
        return recorded.begin(data_dir, recorded.NAMES[history], dice)
    partition = MovingPartition(data_dir, dice)
    partition.begin()
    return _steps_of(partition, CHANGES[history])


def _steps_of(partition: MovingPartition, change: Change) -> Steps:
    """Make one change again and again, while the log grows."""
    while True:
        for _ in range(partition.dice.randrange(3)):
            yield from partition.grow()
        yield from change(partition)
