"""Salvage of logs that another process changes meanwhile: what was planned is compared."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.recovery.salvaging import log_salvage
from tests.support.command_line import run
from tests.support.segments import T0

_BATCHES = [
    ks.build_batches(offset=number, timestamp=[T0], value=[b"value %d" % number])
    for number in range(10)
]
_WHOLE = b"".join(_BATCHES)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "orders-0" / f"{0:020}.log"
    path.parent.mkdir(parents=True)
    path.write_bytes(_WHOLE)
    return path


def _shrink(log: Path) -> None:
    os.truncate(log, sum(map(len, _BATCHES[:4])))


def _grow(log: Path) -> None:
    with log.open("ab") as file:
        file.write(ks.build_batches(offset=10, timestamp=[T0], value=[b"later"]))


def _replace(log: Path) -> None:
    new = log.with_suffix(".new")
    new.write_bytes(b"".join(_BATCHES[:4]))
    new.rename(log)


def _roll(log: Path) -> None:
    log.with_name(f"{10:020}.log").write_bytes(
        ks.build_batches(offset=10, timestamp=[T0], value=[b"later"])
    )


_CHANGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "shrink": (_shrink, "it shrank from"),
    "grow": (_grow, "it grew from"),
    "replace": (_replace, "another file replaced it"),
    "roll": (_roll, "it appeared"),
}


def _change_at(
    step: str, change: Callable[[Path], None], log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Change a log after a step of a salvage."""
    original = getattr(log_salvage, step)

    def changed(*given: object, **options: object) -> object:
        result = original(*given, **options)
        change(log)
        monkeypatch.setattr(log_salvage, step, original)
        return result

    monkeypatch.setattr(log_salvage, step, changed)


@pytest.mark.parametrize("step", ["_as_read", "find_bounds", "_copy_segment"])
@pytest.mark.parametrize("name", _CHANGES)
@pytest.mark.parametrize("is_copied", [True, False])
def test_a_change_is_a_problem(
    step: str,
    name: str,
    is_copied: bool,
    log: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    change, reason = _CHANGES[name]
    _change_at(step, change, log, monkeypatch)
    report, copy = tmp_path / "report.json", [tmp_path / "copy"] if is_copied else []
    result = run("salvage", log.parent, *copy, "--report", report)
    assert result.returncode == 1
    assert reason in result.stderr
    assert "[FILE_CHANGED]" in result.stderr
    assert "nothing lost\n" not in result.stderr
    assert "1 file changed meanwhile" in result.stderr
    saved = json.loads(report.read_text())
    assert not saved["is_complete"]
    assert [reason in one for one in saved["partitions"][0]["changed"]] == [True]


def test_a_file_that_is_replaced_after_it_was_read_is_not_copied(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The offsets that each segment keeps are planned by what was read."""
    _roll(log)
    _change_at("find_bounds", _replace, log, monkeypatch)
    result = run("salvage", log.parent, tmp_path / "copy")
    assert result.returncode == 3
    assert "another file replaced it" in result.stderr


def test_a_tar_that_changes_is_a_problem(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "data.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(log.parent.parent, arcname="data")
    _change_at("_as_read", _grow, archive, monkeypatch)
    (problem,) = ks.salvage(archive, tmp_path / "copy").problems
    assert (problem.symbol, problem.path) == ("FILE_CHANGED", str(archive))


def test_a_single_segment_that_changes_is_a_problem(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = Path(shutil.copy(log, tmp_path / "alone.log"))
    _change_at("_as_read", _shrink, alone, monkeypatch)
    (problem,) = ks.salvage(alone, tmp_path / "copy").problems
    assert (problem.symbol, problem.path) == ("FILE_CHANGED", str(alone))


def test_what_stands_still_loses_nothing(log: Path, tmp_path: Path) -> None:
    result = run("salvage", log.parent, tmp_path / "copy")
    assert (result.returncode, result.stderr.endswith("nothing lost\n")) == (0, True)
