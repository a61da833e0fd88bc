"""Rewrites in place of logs that another process changes meanwhile: nothing is replaced."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kafkascan as ks
from kafkascan.rewrite.log_rewriter import LogRewriter
from tests.support.command_line import run
from tests.support.files import contents
from tests.support.paths import GOLDEN
from tests.support.segments import T0

_DATA = GOLDEN / "kafka-4.4.0/data"
_COMMANDS = {
    "convert": ["--compression-type", "zstd"],
    "restamp": ["--partition-leader-epoch", "7"],
    "scrub": ["--from-offset", "1", "--to-offset", "3"],
}
_BATCH = ks.build_batches(offset=1000, timestamp=[T0], value=[b"it arrived"])


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    return Path(shutil.copytree(_DATA / "transactions-0", tmp_path / "data" / "transactions-0"))


def _append(log: Path) -> None:
    with log.open("ab") as file:
        file.write(_BATCH)


def _replace(log: Path) -> None:
    """As rsync replaces a file, with the same size and times."""
    status, new = log.stat(), log.with_suffix(".new")
    new.write_bytes(bytes(reversed(log.read_bytes())))
    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
    new.rename(log)


def _write(log: Path) -> None:
    """As into a preallocated file, later than the clock of the file system ticks."""
    status = log.stat()
    with log.open("r+b") as file:
        file.write(b"\1")
    os.utime(log, ns=(status.st_atime_ns, status.st_mtime_ns + 1))


def _cut(log: Path) -> None:
    os.truncate(log, log.stat().st_size - 1)


def _roll(log: Path) -> None:
    log.with_name(f"{1000:020}.log").write_bytes(_BATCH)


_CHANGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "append": (_append, "grew from"),
    "replace": (_replace, "another file replaced it"),
    "write": (_write, "its bytes were written"),
    "cut": (_cut, "shrank from"),
    "delete": (Path.unlink, "it vanished"),
    "roll": (_roll, "it appeared"),
}


def _change_after(
    name: str, change: Callable[[Path], Any], log: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, bytes]:
    """Change a log once after a method of the rewriter; return a dictionary for the files then."""
    after: dict[str, bytes] = {}
    original = getattr(LogRewriter, name)

    def method(self: LogRewriter[Any], *given: Any, **options: Any) -> Any:
        result = original(self, *given, **options)
        if not after:
            change(log)
            after.update(contents(log.parent))
        return result

    monkeypatch.setattr(LogRewriter, name, method)
    return after


def _without_temporary(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in files.items() if not name.endswith(".part")}


@pytest.mark.parametrize("verb", _COMMANDS)
@pytest.mark.parametrize("name", _CHANGES)
def test_a_log_that_changed_is_not_replaced(
    verb: str, name: str, partition: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, reason = _CHANGES[name]
    after = _change_after("_verified", change, min(partition.glob("*.log")), monkeypatch)
    result = run(verb, partition, "--in-place", *_COMMANDS[verb])
    assert result.returncode == 3
    assert reason in result.stderr
    assert str(partition) in result.stderr
    assert contents(partition) == _without_temporary(after)


@pytest.mark.parametrize("name", [name for name in _CHANGES if name != "roll"])
def test_a_single_log_that_changed_is_not_replaced(
    name: str, partition: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, (change, reason) = min(partition.glob("*.log")), _CHANGES[name]
    after = _change_after("_verified", change, log, monkeypatch)
    with pytest.raises(ks.format.FileChangedError, match=reason) as caught:
        ks.convert_log(log, in_place=True, compression_type="zstd")
    assert caught.value.path == str(log)
    assert contents(partition) == _without_temporary(after)


def test_a_batch_that_arrives_while_a_filter_runs_is_kept(partition: Path) -> None:
    """Also if the log needs no change itself: the batch may hold what the caller removes."""
    log = max(partition.glob("*.log"))

    def keep(records: ks.RecordTable) -> np.ndarray:
        if not log.read_bytes().endswith(_BATCH):
            _append(log)
        return np.ones(len(records), np.bool_)

    with pytest.raises(ks.format.FileChangedError, match="grew"):
        ks.scrub_log(partition, keep=keep, in_place=True)
    assert log.read_bytes().endswith(_BATCH)


def test_a_log_that_changes_as_its_side_files_go_is_not_replaced(
    partition: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run completes the work."""
    log = max(partition.glob("*.log"))
    _change_after("_remove_side_files", _append, log, monkeypatch)
    with pytest.raises(ks.format.FileChangedError, match="grew"):
        ks.convert_log(partition, in_place=True, compression_type="zstd")
    monkeypatch.undo()
    assert log.read_bytes().endswith(_BATCH)
    assert not log.with_suffix(".index").exists(), "a broker rebuilds it"
    result = ks.convert_log(partition, in_place=True, compression_type="zstd")
    assert "COMPLETED" in {one.symbol for one in result.findings}
    (outcome,) = ks.recover(partition, recovery_point=0).partitions
    assert outcome.changes == []
    assert ks.read_records(log)["offset"][-1] == 1000
