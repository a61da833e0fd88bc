"""Partition directories for recovery: golden and random ones, intact and damaged.

The same seed gives the same directories, each with what a broker would know beside it.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import kafkascan as ks
from tests.oracle import damaged_files as files, damaged_logs as logs
from tests.oracle.histories import history
from tests.oracle.rebuild import LoadArguments, Rebuild
from tests.support.segments import T0

_GOLDEN = Path(__file__).resolve().parent.parent / "golden"

_DAY_MS = 86_400_000
_SMALL_INDEX = 4096

_LOG_DAMAGE: list[logs.Damage] = [
    logs.torn_tail, logs.torn_tail, logs.zero_tail, logs.garbage_tail, logs.flipped_byte,
    logs.flipped_and_signed, logs.flipped_and_signed, logs.other_field, logs.other_field,
    logs.swapped_batches, logs.repeated_batches, logs.dropped_batch, logs.odd_control_batch,
    logs.odd_control_batch, logs.emptied_log, logs.lost_log,
]  # fmt: skip
_FILE_DAMAGE: list[logs.Damage] = [
    files.missing_index, files.missing_index, files.missing_indexes, files.preallocated_index,
    files.preallocated_index, files.lying_index, files.lying_index, files.index_of_another,
    files.orphaned_index, files.corrupt_snapshot, files.corrupt_snapshot, files.missing_snapshot,
    files.missing_snapshots, files.stray_snapshot, files.other_epochs, files.other_epochs,
    files.deleted_files, files.swapped_files, files.cleaned_files, files.empty_segment,
]  # fmt: skip


@dataclass(frozen=True)
class DamagedDir:
    """A directory that Kafka and kafkascan must recover to the same files."""

    directory: Path
    """Its name is that of its partition."""
    arguments: LoadArguments
    what: tuple[str, ...]
    """Its origin, and its damage."""

    def __str__(self) -> str:
        return f"{self.directory}: {', '.join(self.what)}; {self.arguments}"


def damaged_dirs(root: Path, rebuild: Rebuild, count: int, seed: int = 0) -> Iterator[DamagedDir]:
    """Create directories below a root; Kafka writes indexes and snapshots of the random ones."""
    for number in range(count):
        yield damaged_dir(root / str(number), rebuild, seed=f"{seed}/{number}")


def damaged_dir(root: Path, rebuild: Rebuild, seed: str, *, is_intact: bool = False) -> DamagedDir:
    """Create one directory; an intact one is as its broker left it."""
    dice = random.Random(seed)
    arguments = _environment(dice)
    if dice.random() < 0.4:
        directory, what = _golden_copy(root, dice)
    else:
        directory, what = _written(root, rebuild, arguments, dice)
    done = [what] if is_intact else [what, *_damaged(directory, dice)]
    return DamagedDir(directory, _point_of_view(directory, arguments, dice), tuple(done))


def golden_directories() -> list[Path]:
    """Return all partition directories in `tests/golden`."""
    return sorted({log.parent for log in _GOLDEN.glob("*/data/*/*.log")})


def _environment(dice: random.Random) -> LoadArguments:
    return LoadArguments(
        interval_bytes=dice.choice([0, 1, 100, 500, 4096]),
        max_index_bytes=_SMALL_INDEX,
        # Whether producers of old snapshots have not expired.
        now=T0 + dice.choice([_DAY_MS // 2, _DAY_MS // 2, 10 * _DAY_MS]),
    )


def _golden_copy(root: Path, dice: random.Random) -> tuple[Path, str]:
    original = dice.choice(golden_directories())
    directory = shutil.copytree(original, root / original.name)
    return directory, str(original.relative_to(_GOLDEN))


def _written(
    root: Path, rebuild: Rebuild, arguments: LoadArguments, dice: random.Random
) -> tuple[Path, str]:
    directory = root / "random-0"
    directory.mkdir(parents=True)
    for base, log in history(dice).items():
        (directory / f"{base:020}.log").write_bytes(log)
    answer = rebuild.load(directory, arguments)
    if "exception" in answer:
        raise AssertionError(f"Kafka does not load what is not damaged yet: {directory}: {answer}")
    loaded = directory.with_name(f"{directory.name}.loaded")
    if dice.random() < 0.4:
        shutil.rmtree(directory)
        loaded.rename(directory)
        return directory, "random, killed"
    shutil.rmtree(loaded)
    return directory, "random, closed"


def _damaged(directory: Path, dice: random.Random) -> Iterator[str]:
    damage = [
        *(dice.choices(_LOG_DAMAGE, k=dice.choice([0, 0, 1, 1, 2]))),
        *(dice.choices(_FILE_DAMAGE, k=dice.choice([0, 1, 1, 2, 3]))),
    ]
    if dice.random() < 0.03:
        damage.append(logs.offset_overflow)
    for one in damage:
        if logs.logs(directory):
            one(directory, dice)
            yield one.__name__


def _point_of_view(directory: Path, arguments: LoadArguments, dice: random.Random) -> LoadArguments:
    """Choose checkpoints; in most of them, no offset was flushed or deleted."""
    bases = [logs.base_of(log) for log in logs.logs(directory)] or [0]
    end = bases[-1] + _offsets_in(directory, bases[-1])
    points = [*bases, dice.randrange(end + 1), end, end + 5]
    return replace(
        arguments,
        clean_shutdown=dice.random() < 0.2,
        recovery_point=0 if dice.random() < 0.5 else dice.choice(points),
        log_start_offset=0 if dice.random() < 0.8 else dice.choice(points),
    )


def _offsets_in(directory: Path, base: int) -> int:
    """Return the end offset of the readable part of the last segment."""
    path = directory / f"{base:020}.log"
    data = path.read_bytes() if path.exists() else b""
    batches = ks.scan_batches(data, on_corrupt="stop").batches
    if not batches.size:
        return 0
    return max(0, min(int(ks.batches.last_offset(batches)[-1]) + 1 - base, 10**9))
