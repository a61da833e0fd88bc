"""Verbs that write files, on a disk with faults; ``tests/simulation/simulator.py`` says how."""

from __future__ import annotations

import errno
import os
import random
import shutil
import stat
from pathlib import Path
from unittest import mock

import pytest

import kafkascan as ks
from tests.simulation.disk import (
    ROOT,
    Disk,
    Names,
    Operation,
    Sync,
    Write,
    after_kill,
    after_power_loss,
)
from tests.simulation.simulator import LOGS, ViolationError, run_once, simulate
from tests.simulation.verbs import NOW, build
from tests.support.files import contents
from tests.support.partitions import HealthyPartition

SEEDS, GROUPS = 200, 8


def _try(seeds: range) -> None:
    failed = []
    for seed in seeds:
        try:
            simulate(seed)
        except ViolationError as error:
            failed.append(f"python -m tests.simulation.run {seed}  # {error}")
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("group", range(GROUPS))
def test_faults(group: int) -> None:
    _try(range(group, SEEDS, GROUPS))


@pytest.mark.slow
@pytest.mark.parametrize("group", range(GROUPS))
def test_many_faults(group: int) -> None:
    _try(range(SEEDS + group, 1000, GROUPS))


@pytest.mark.parametrize("log", range(LOGS))
def test_a_recovery_without_truncation_keeps_what_a_broker_keeps(log: int, tmp_path: Path) -> None:
    """An index of a segment that will be truncated would make a broker drop the next segments."""
    (tmp_path / "one").mkdir()
    build(tmp_path / "one", random.Random(log))
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    found = []
    for name, truncations in (("one", [True]), ("other", [False, True])):
        for truncate in truncations:
            data = tmp_path / name / "data"
            ks.recover(data, write=True, truncate=truncate, backup=False, now_ms=NOW)
        found.append({path: data for path, data in contents(data).items() if "/" in path})
    assert found[0] == found[1]


def test_a_split_is_not_completed_by_its_first_part(tmp_path: Path) -> None:
    """A broker completes it if the later part has no file of an unfinished one."""
    whole = run_once("recover without backups", 3)
    (at,) = (number for number, one in enumerate(whole.trace) if _names(one, "0100.log.swap"))
    assert any(_names(one, "3748.log.swap") for one in whole.trace[:at])
    for seed in range(100):
        start, trace = whole.start, list(whole.trace[: at + 1])
        after_power_loss(start, trace, random.Random(seed)).write_to(tmp_path / str(seed))
        names = {path.name for path in (tmp_path / str(seed) / "data" / "old-0").iterdir()}
        if f"{100:020}.log.swap" in names:
            assert f"{100 + 2**31:020}.log.cleaned" not in names


def _names(operation: Operation, name: str) -> bool:
    """Return whether an operation gives a file a name that ends like this."""
    is_new = isinstance(operation, Names) and operation.changes[-1]
    return bool(is_new and is_new[2] is not None and is_new[1].endswith(name))


def test_a_folder_that_cannot_be_synced_is_an_error(tmp_path: Path) -> None:
    """All files of the folder are written then, but not durable."""
    partition = HealthyPartition(tmp_path / "orders-0").write()
    (partition.folder / f"{0:020}.index").unlink()
    fsync = os.fsync

    def fail(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, "Input/output error")
        fsync(descriptor)

    with mock.patch.object(os, "fsync", fail):
        (done,) = ks.recover(tmp_path, write=True, backup=False, threads=1).partitions
    assert isinstance(done.error, OSError)


# ---- the disk --------------------------------------------------------------------------------

_FILE = 1
_CREATED = Names(((ROOT, "a.part", _FILE),))
_RENAMED = Names(((ROOT, "a.part", None), (ROOT, "a", _FILE)))
_WRITTEN = [_CREATED, Write(_FILE, 0, b"x" * 2000)]


def _after_loss(trace: list[object]) -> set[tuple[tuple[str, ...], bytes]]:
    """Return the names and the bytes of the file, on all disks that are tried."""
    found = set()
    for seed in range(300):
        disk = after_power_loss(Disk(), trace, random.Random(seed))  # type: ignore[arg-type]
        found.add((tuple(disk.folders[ROOT]), bytes(disk.files.get(_FILE, b""))))
    return found


def test_a_kill_loses_nothing() -> None:
    disk = after_kill(Disk(), [*_WRITTEN, _RENAMED])
    assert (disk.folders[ROOT], disk.files) == ({"a": _FILE}, {_FILE: b"x" * 2000})


def test_a_power_loss_tears_what_was_not_synced() -> None:
    found = _after_loss([*_WRITTEN, _RENAMED])
    names = {names for names, _ in found}
    assert names == {(), ("a.part",), ("a",)}
    assert len({data for _, data in found}) > 4


def test_a_power_loss_keeps_what_was_synced() -> None:
    synced = [*_WRITTEN, Sync(_FILE), _RENAMED, Sync(ROOT)]
    assert _after_loss(synced) == {(("a",), b"x" * 2000)}
    assert {names for names, _ in _after_loss(synced[:-1])} == {(), ("a.part",), ("a",)}
    assert all(data == b"x" * 2000 for _, data in _after_loss(synced[:-1]))
