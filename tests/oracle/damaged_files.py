"""Kinds of damage to indexes, snapshots and checkpoints of a partition."""

from __future__ import annotations

import random
import re
import shutil
import struct
from collections.abc import Iterable
from pathlib import Path

from tests.oracle.damaged_logs import base_of, flip, logs, split
from tests.support.segments import T0

_INDEX_SIZES = {".index": 4096, ".timeindex": 4092}
_INDEXES = (".index", ".timeindex", ".txnindex")


# ---- indexes -----------------------------------------------------------------------------


def missing_index(directory: Path, dice: random.Random) -> None:
    dice.choice(logs(directory)).with_suffix(dice.choice(_INDEXES)).unlink(missing_ok=True)


def missing_indexes(directory: Path, dice: random.Random) -> None:
    suffix = dice.choice([".index", ".timeindex", ".txnindex", "index"])
    for index in directory.glob(f"*{suffix}"):
        index.unlink()


def preallocated_index(directory: Path, dice: random.Random) -> None:
    """Preallocated, as those of the active segment when a broker is killed."""
    log = dice.choice([logs(directory)[-1], dice.choice(logs(directory))])
    for suffix, size in _INDEX_SIZES.items():
        index = log.with_suffix(suffix)
        data = index.read_bytes() if index.exists() and dice.random() < 0.7 else b""
        index.write_bytes(data[:size].ljust(size, b"\0"))


def lying_index(directory: Path, dice: random.Random) -> None:
    """Random bytes, an odd size, entries that exceed the log or do not ascend."""
    index = dice.choice(logs(directory)).with_suffix(dice.choice(_INDEXES))
    data = index.read_bytes() if index.exists() else b""
    lies = [
        dice.randbytes(dice.choice([8, 12, 34, 68, 100])),
        data + dice.randbytes(dice.randrange(1, 12)),
        data[: dice.randrange(len(data) + 1)],
        data + struct.pack(">ii", 1000, 2**30),
        data + struct.pack(">qi", T0 + 10**9, 5),
        data + struct.pack(">hqqqq", 0, 5, 0, 10**6, 10**6),
        data + struct.pack(">hqqqq", 0, 5, 0, -1, 3),
        data + struct.pack(">hqqqq", 256, 5, 0, 10**6, 10**6),
        data[::-1],
    ]
    index.write_bytes(dice.choice(lies))


def index_of_another(directory: Path, dice: random.Random) -> None:
    suffix = dice.choice(_INDEXES)
    one, other = (dice.choice(logs(directory)).with_suffix(suffix) for _ in range(2))
    if one.exists() and one != other:
        shutil.copy(one, other)


def orphaned_index(directory: Path, dice: random.Random) -> None:
    offset = dice.randrange(5, 5000)
    suffix = dice.choice(_INDEXES)
    (directory / f"{offset:020}{suffix}").write_bytes(bytes(24))


# ---- snapshots and checkpoints -----------------------------------------------------------


def corrupt_snapshot(directory: Path, dice: random.Random) -> None:
    for snapshot in _some(directory.glob("*.snapshot"), dice):
        data = bytearray(snapshot.read_bytes())
        if data:
            flip(data, dice)
        cut = data[: dice.randrange(len(data) + 1)]
        snapshot.write_bytes(bytes(dice.choice([data, cut, bytearray(), data + bytes(48)])))


def missing_snapshot(directory: Path, dice: random.Random) -> None:
    for snapshot in _some(directory.glob("*.snapshot"), dice):
        snapshot.unlink()


def missing_snapshots(directory: Path, dice: random.Random) -> None:
    del dice
    for snapshot in directory.glob("*.snapshot"):
        snapshot.unlink()


def stray_snapshot(directory: Path, dice: random.Random) -> None:
    """A snapshot of another offset: inside a segment, or after the log's end."""
    snapshots = sorted(directory.glob("*.snapshot"))
    if snapshots:
        offset = dice.choice([dice.randrange(200), dice.randrange(10**5), 0])
        shutil.copy(dice.choice(snapshots), directory / f"{offset:020}.snapshot")


def other_epochs(directory: Path, dice: random.Random) -> None:
    """A checkpoint that is missing, stale, ahead of the log, malformed or being replaced."""
    checkpoint = directory / "leader-epoch-checkpoint"
    checkpoint.unlink(missing_ok=True)
    text = dice.choice(
        ["", "0\n0\n", "0\n1\n0 0\n", "0\n2\n0 0\n7 3\n", "0\n2\n0 0\n9 1000000\n", "0\n1\n3 50\n",
         "0\n3\n0 0\n1 10\n2 20\n", "1\n1\n0 0\n", "0\n2\n0 0\n", "0\n1\nx y\n", "0\n1\n5 0\n",
         None]
    )  # fmt: skip
    if text is not None:
        checkpoint.write_text(text)
    if dice.random() < 0.2:
        (directory / "leader-epoch-checkpoint.tmp").write_text("0\n1\n9 9\n")


# ---- leftovers ---------------------------------------------------------------------------


def deleted_files(directory: Path, dice: random.Random) -> None:
    log = dice.choice(logs(directory))
    for path in sorted(directory.glob(f"{log.stem}.*")):
        if dice.random() < 0.7 and not path.name.endswith((".deleted", ".swap", ".cleaned")):
            shutil.copy(path, path.with_name(f"{path.name}.deleted"))


def swapped_files(directory: Path, dice: random.Random) -> None:
    """The cleaner was about to replace a segment; or two, by the content of the first."""
    _replace(directory, dice, ".swap", keeps_original=dice.random() < 0.5)


def cleaned_files(directory: Path, dice: random.Random) -> None:
    """The cleaner was not finished."""
    _replace(directory, dice, ".cleaned", keeps_original=True)


def empty_segment(directory: Path, dice: random.Random) -> None:
    """A segment that was just rolled, after all others."""
    offset = max(base_of(log) for log in logs(directory)) + dice.choice([1, 50, 10**4])
    (directory / f"{offset:020}.log").write_bytes(b"")
    if dice.random() < 0.7:
        (directory / f"{offset:020}.index").write_bytes(b"")
        (directory / f"{offset:020}.timeindex").write_bytes(b"")


def _replace(directory: Path, dice: random.Random, suffix: str, *, keeps_original: bool) -> None:
    log = dice.choice(logs(directory))
    if dice.random() < 0.3:
        batches = split(log)
        log.write_bytes(b"".join(batches[:: dice.randrange(1, 3)]))
    for path in sorted(directory.glob(f"{log.stem}.*")):
        if re.fullmatch(r"\d+\.(log|index|timeindex|txnindex)", path.name):
            shutil.copy(path, path.with_name(f"{path.name}{suffix}"))
            if not keeps_original and path != log:
                path.unlink()
    if not keeps_original:
        log.unlink()
    if dice.random() < 0.2:
        (directory / f"{base_of(log) + 1:020}.index{suffix}").write_bytes(b"")


def _some(paths: Iterable[Path], dice: random.Random) -> list[Path]:
    found = sorted(paths)
    return dice.sample(found, dice.randrange(1, len(found) + 1)) if found else []
