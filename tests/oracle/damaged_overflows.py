"""Partitions with segments whose offsets lie too far apart (KAFKA-6264), as old brokers wrote them.

The same seed gives the same directories.
"""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from pathlib import Path

from tests.oracle import damaged_files as files, damaged_logs as logs
from tests.oracle.damaged_dirs import DamagedDir, damaged_dir
from tests.oracle.rebuild import Rebuild

_TOO_FAR = 2**31
_DAMAGE: list[logs.Damage] = [
    logs.torn_tail, logs.zero_tail, logs.flipped_byte, logs.dropped_batch, logs.swapped_batches,
    logs.repeated_batches, files.missing_index, files.missing_indexes, files.lying_index,
    files.corrupt_snapshot, files.missing_snapshots, files.stray_snapshot, files.other_epochs,
    files.orphaned_index, files.swapped_files, files.cleaned_files,
]  # fmt: skip


def overflowed(root: Path, rebuild: Rebuild, seed: str) -> DamagedDir:
    """Create one directory, damaged or not, with one or several jumps of offsets."""
    dice = random.Random(seed)
    one = damaged_dir(root, rebuild, seed=f"overflow {seed}", is_intact=dice.random() < 0.7)
    what = list(one.what)
    for _ in range(dice.choice([1, 1, 1, 2, 3])):
        far = _TOO_FAR * dice.choice([1, 1, 1, 2, 5]) + dice.choice([0, -1, 1, -50, 10**6])
        what.append(_jump(one.directory, dice, far))
    for damage in dice.choices(_DAMAGE, k=dice.choice([0, 0, 0, 1, 1, 2])):
        if logs.logs(one.directory):
            damage(one.directory, dice)
            what.append(damage.__name__)
    bases = [logs.base_of(log) for log in logs.logs(one.directory)] or [0]
    arguments = replace(
        one.arguments,
        clean_shutdown=False,
        recovery_point=0 if dice.random() < 0.6 else dice.choice([*bases, 50, bases[-1] + 10**12]),
        log_start_offset=0 if dice.random() < 0.9 else dice.choice(bases),
    )
    return DamagedDir(one.directory, arguments, tuple(what))


def _jump(directory: Path, dice: random.Random, far: int) -> str:
    """Raise the offsets from a batch on, inside a segment or at its start."""
    if not logs.logs(directory):
        return "nothing jumps"
    log = dice.choice(logs.logs(directory))
    batches = logs.split(log)
    first = dice.randrange(len(batches)) if batches else 0
    for later in logs.logs(directory)[::-1]:
        if logs.base_of(later) > logs.base_of(log):
            later.write_bytes(b"".join(_moved(batch, far) for batch in logs.split(later)))
            _rename(later, logs.base_of(later) + far)
    log.write_bytes(b"".join([*batches[:first], *(_moved(one, far) for one in batches[first:])]))
    return f"jump by {far} in {logs.base_of(log)} at batch {first} of {len(batches)}"


def _moved(batch: bytes, far: int) -> bytes:
    (offset,) = struct.unpack_from(">q", batch)
    return struct.pack(">q", offset + far) + batch[8:]


def _rename(log: Path, base: int) -> None:
    for path in log.parent.glob(f"{log.stem}.*"):
        path.rename(path.with_name(f"{base:020}{path.name[20:]}"))
