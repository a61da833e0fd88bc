"""What brokers did to the files of their data dirs, as `tests.oracle.recording` recorded it."""

from __future__ import annotations

import base64
import gzip
import json
import os
import random
import tempfile
from collections.abc import Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from tests.moving.segments import Steps
from tests.moving.snapshots import Snapshot

RECORDED = Path(__file__).parent / "recorded"
NAMES = {f"recorded {path.name.removesuffix('.jsonl.gz')}": path for path in RECORDED.glob("*.gz")}

Change = tuple[Any, ...]
"""``mkdir``, ``rmdir`` or ``remove`` with a path; ``rename`` with two; ``truncate`` with a path and
a size; ``write`` with a path, a position and bytes. Paths are those below the data dir."""
BEGIN: Change = ("begin", "")
"""Stands before the first change that is replayed."""
_SNAPSHOT_EVERY = 100


def write_changes(path: Path, changes: Sequence[Change]) -> None:
    """Write changes to a file."""
    lines = [json.dumps([_as_text(one) for one in change]) for change in changes]
    path.write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))


def _as_text(one: object) -> object:
    return base64.b64encode(one).decode() if isinstance(one, bytes) else one


@cache
def read_changes(path: Path) -> list[Change]:
    """Read the changes in a file."""
    found = []
    for line in gzip.decompress(path.read_bytes()).decode().splitlines():
        kind, *rest = json.loads(line)
        if kind == "write":
            rest[-1] = base64.b64decode(rest[-1])
        found.append((kind, *rest))
    return found


def begin(data_dir: Path, path: Path, dice: random.Random) -> Steps:
    """Write a data dir as it was at some time in a recording, and return what happened then."""
    changes = read_changes(path)
    snapshots = _snapshots(path)
    start = dice.randrange(changes.index(BEGIN), len(changes))
    number = start // _SNAPSHOT_EVERY
    snapshots[number].write(data_dir)
    for _ in islice(replayed(data_dir, changes[number * _SNAPSHOT_EVERY : start]), None):
        pass
    return replayed(data_dir, changes[start:])


def replayed(data_dir: Path, changes: Sequence[Change]) -> Steps:
    """Change the files of a data dir, step by step."""
    for kind, name, *rest in changes:
        path = data_dir / name
        match kind:
            case "mkdir":
                path.mkdir()
            case "rmdir":
                path.rmdir()
            case "remove":
                path.unlink()
            case "rename":
                path.rename(data_dir / rest[0])
            case "truncate":
                os.truncate(path, rest[0])
            case "write":
                position, content = rest
                with open(path, "r+b" if path.exists() else "wb", buffering=0) as file:
                    file.seek(position)
                    file.write(content)
        yield


@cache
def _snapshots(path: Path) -> list[Snapshot]:
    """Return the data dir before each hundredth change."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        data_dir = Path(folder)
        steps = replayed(data_dir, read_changes(path))
        for number, _ in enumerate(read_changes(path)):
            if number % _SNAPSHOT_EVERY == 0:
                found.append(Snapshot.of(data_dir))
            next(steps)
    return found
