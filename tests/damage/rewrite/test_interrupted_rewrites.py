"""Rewrites that are killed at any step: the files until then, and those after another run."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkascan as ks
from tests.support.dying import DyingRuns
from tests.support.files import contents
from tests.support.paths import GOLDEN

_DATA = GOLDEN / "kafka-4.4.0/data"
_VERBS = {
    "convert": "ks.convert_log(folder{target}, compression_type='zstd')",
    "convert to magic 1": "ks.convert_log(folder{target}, compression_type='gzip', to_magic=1)",
    "restamp": "ks.restamp_log(folder{target}, partition_leader_epoch=7)",
    "scrub": "ks.scrub_log(folder{target}, keep=ks.rewrite.without_offsets(1, 12))",
}


@pytest.fixture(scope="module")
def dying() -> Iterator[DyingRuns]:
    with DyingRuns() as runs:
        yield runs


def _code(verb: str, target: Path | None = None) -> str:
    given = ", in_place=True" if target is None else f", {str(target)!r}"
    return _VERBS[verb].format(target=given)


def _copies(name: str, tmp_path: Path) -> Iterator[Path]:
    """Yield copies of a golden partition without end; each is removed before the next one."""
    while True:
        folder = tmp_path / "copy" / name
        shutil.copytree(_DATA / name, folder)
        yield folder
        shutil.rmtree(folder.parent)


@pytest.mark.parametrize("verb", _VERBS)
@pytest.mark.parametrize(("name", "stride"), [("transactions-0", 1), ("small-segments-0", 67)])
def test_a_rerun_completes_a_killed_rewrite_in_place(
    verb: str, name: str, stride: int, dying: DyingRuns, tmp_path: Path
) -> None:
    before = contents(_DATA / name)
    complete = shutil.copytree(_DATA / name, tmp_path / "complete" / name)
    assert dying.run(_code(verb), complete, -1) == 0
    expected = contents(complete)
    assert expected != before
    for step, folder in zip(itertools.count(1, stride), _copies(name, tmp_path), strict=False):
        exit_code = dying.run(_code(verb), folder, step)
        _require_valid_side_files(folder)
        left = contents(folder)
        for log in (one for one in before if one.endswith(".log")):
            assert left[log] in (before[log], expected[log]), (step, log)
        assert dying.run(_code(verb), folder, -1) == 0
        assert contents(folder) == expected, step
        if exit_code == 0:
            break
        assert exit_code == -signal.SIGKILL
    assert step > 20


def _require_valid_side_files(folder: Path) -> None:
    """A broker trusts the indexes that exist."""
    for log in folder.glob("*.log"):
        batches = ks.scan_batches(log).batches
        for kind in ("index", "timeindex"):
            if (index := log.with_suffix(f".{kind}")).exists():
                assert ks.check_index(index, batches) == []


@pytest.mark.parametrize("verb", _VERBS)
def test_a_rerun_completes_a_killed_rewrite_of_one_log(
    verb: str, dying: DyingRuns, tmp_path: Path
) -> None:
    name = "transactions-0"
    log = min((_DATA / name).glob("*.log")).name
    complete = shutil.copytree(_DATA / name, tmp_path / "complete" / name)
    assert dying.run(_code(verb), complete / log, -1) == 0
    expected = contents(complete)
    for step, folder in enumerate(_copies(name, tmp_path), 1):
        exit_code = dying.run(_code(verb), folder / log, step)
        assert dying.run(_code(verb), folder / log, -1) == 0
        assert contents(folder) == expected, step
        if exit_code == 0:
            break
    assert step > 8


@pytest.mark.parametrize("verb", _VERBS)
@pytest.mark.parametrize("is_folder", [True, False])
def test_a_rerun_removes_what_a_killed_one_left_next_to_its_target(
    verb: str, is_folder: bool, dying: DyingRuns, tmp_path: Path
) -> None:
    source = _DATA / "transactions-0"
    source = source if is_folder else min(source.glob("*.log"))
    target = tmp_path / "data" / ("new-0" if is_folder else source.name)
    target.parent.mkdir()
    assert dying.run(_code(verb, target), source, -1) == 0
    expected = contents(target.parent)
    for step in itertools.count(1):
        shutil.rmtree(target.parent)
        target.parent.mkdir()
        exit_code = dying.run(_code(verb, target), source, step)
        assert not (is_folder and target.exists()) or contents(target) == {
            name.partition("/")[2]: data for name, data in expected.items()
        }
        if target.exists():
            shutil.rmtree(target) if is_folder else target.unlink()
        assert dying.run(_code(verb, target), source, -1) == 0
        assert contents(target.parent) == expected, step
        if exit_code == 0:
            break
    assert step > 8


def test_another_verb_completes_a_killed_one(dying: DyingRuns, tmp_path: Path) -> None:
    """The side files of the rewrite that was killed are rebuilt, too."""
    for step, folder in enumerate(_copies("transactions-0", tmp_path), 1):
        ks.recover(folder, write=True, recovery_point=0, backup=False)
        exit_code = dying.run(_code("convert to magic 1"), folder, step)
        result = ks.scrub_log(folder, keep=ks.without_keys([b"nobody's"]), in_place=True)
        assert not [one for one in os.listdir(folder) if one.startswith(".")]
        (outcome,) = ks.recover(folder, recovery_point=0).partitions
        assert outcome.changes == [], step
        if exit_code == 0:
            break
        # Logs that were converted until then have no other format than magic 1.
        known = {"COMPLETED", "NOTHING_REMOVED", "CONVERTED", "LOG_END_MOVED"}
        assert {one.symbol for one in result.findings} <= known
    assert "COMPLETED" not in {one.symbol for one in result.findings}
