"""Rewrites that are killed at any step: the files until then, and those after another run."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import kafkascan as ks
from tests.support.dying import run_dying, states_at_kills
from tests.support.files import contents
from tests.support.paths import GOLDEN

_DATA = GOLDEN / "kafka-4.4.0/data"
_VERBS = {
    "convert": "ks.convert_log(folder{target}, compression_type='zstd')",
    "convert to magic 1": "ks.convert_log(folder{target}, compression_type='gzip', to_magic=1)",
    "restamp": "ks.restamp_log(folder{target}, partition_leader_epoch=7)",
    "scrub": "ks.scrub_log(folder{target}, keep=ks.rewrite.without_offsets(1, 12))",
}


def _action(verb: str, path: Path, target: Path | None = None) -> Callable[[], object]:
    code = _code(verb, target)
    return lambda: eval(code, {"ks": ks, "folder": str(path)})


def _code(verb: str, target: Path | None = None) -> str:
    given = ", in_place=True" if target is None else f", {str(target)!r}"
    return _VERBS[verb].format(target=given)


def _copy(name: str, data_dir: Path) -> Path:
    return Path(shutil.copytree(_DATA / name, data_dir / name))


def _completed(verb: str, name: str, data_dir: Path) -> dict[str, bytes]:
    """Files of a partition after a rewrite in place that is not killed."""
    folder = _copy(name, data_dir)
    _action(verb, folder)()
    return contents(folder)


@pytest.mark.parametrize("verb", _VERBS)
@pytest.mark.parametrize(
    ("name", "stride"),
    [
        ("transactions-0", 1),
        ("small-segments-0", 201),
        pytest.param("small-segments-0", 20, marks=pytest.mark.slow),
    ],
)
def test_a_rerun_completes_a_killed_rewrite_in_place(
    verb: str, name: str, stride: int, tmp_path: Path
) -> None:
    before = contents(_DATA / name)
    expected = _completed(verb, name, tmp_path / "complete")
    assert expected != before
    folder = _copy(name, tmp_path / "data")
    rewrite = _action(verb, folder)
    for step in states_at_kills(rewrite, folder.parent, tmp_path / "states", stride):
        _require_whole_files(folder, before, expected)
        rewrite()
        assert contents(folder) == expected, step
    assert step > 20


def _require_whole_files(
    folder: Path, before: dict[str, bytes], expected: dict[str, bytes]
) -> None:
    """Each log is the old or the new one; a broker trusts the indexes that exist."""
    left = contents(folder)
    for log in (one for one in before if one.endswith(".log")):
        assert left[log] in (before[log], expected[log]), log
    for path in folder.glob("*.log"):
        batches = ks.scan_batches(path).batches
        for kind in ("index", "timeindex"):
            if (index := path.with_suffix(f".{kind}")).exists():
                assert ks.check_index(index, batches) == []


@pytest.mark.parametrize(
    ("verb", "stride"),
    [("convert", 17), *(pytest.param(verb, 1, marks=pytest.mark.slow) for verb in _VERBS)],
)
def test_a_rerun_completes_a_rewrite_after_a_real_kill(
    verb: str, stride: int, tmp_path: Path
) -> None:
    name = "transactions-0"
    before = contents(_DATA / name)
    expected = _completed(verb, name, tmp_path / "complete")
    for step in itertools.count(2, stride):
        folder = _copy(name, tmp_path / f"step-{step}")
        exit_code = run_dying(_code(verb), folder, step)
        _require_whole_files(folder, before, expected)
        assert run_dying(_code(verb), folder, -1) == 0
        assert contents(folder) == expected, step
        if exit_code == 0:
            break
        assert exit_code == -signal.SIGKILL
    assert step > 20


@pytest.mark.parametrize("verb", _VERBS)
def test_a_rerun_completes_a_killed_rewrite_of_one_log(verb: str, tmp_path: Path) -> None:
    name = "transactions-0"
    log = min((_DATA / name).glob("*.log")).name
    complete = _copy(name, tmp_path / "complete")
    _action(verb, complete / log)()
    expected = contents(complete)
    folder = _copy(name, tmp_path / "data")
    rewrite = _action(verb, folder / log)
    for step in states_at_kills(rewrite, folder.parent, tmp_path / "states"):
        rewrite()
        assert contents(folder) == expected, step
    assert step > 8


@pytest.mark.parametrize("verb", _VERBS)
@pytest.mark.parametrize("is_folder", [True, False])
def test_a_rerun_removes_what_a_killed_one_left_next_to_its_target(
    verb: str, is_folder: bool, tmp_path: Path
) -> None:
    source = _DATA / "transactions-0"
    source = source if is_folder else min(source.glob("*.log"))
    target = tmp_path / "data" / ("new-0" if is_folder else source.name)
    target.parent.mkdir()
    rewrite = _action(verb, source, target)
    rewrite()
    expected = contents(target.parent)
    shutil.rmtree(target.parent)
    target.parent.mkdir()
    for step in states_at_kills(rewrite, target.parent, tmp_path / "states"):
        assert not (is_folder and target.exists()) or contents(target) == {
            name.partition("/")[2]: data for name, data in expected.items()
        }
        if target.exists():
            shutil.rmtree(target) if is_folder else target.unlink()
        rewrite()
        assert contents(target.parent) == expected, step
    assert step > 8


def test_another_verb_completes_a_killed_one(tmp_path: Path) -> None:
    """The side files of the rewrite that was killed are rebuilt, too."""
    folder = _copy("transactions-0", tmp_path / "data")
    ks.recover(folder, write=True, recovery_point=0, backup=False)
    convert = _action("convert to magic 1", folder)
    for step in states_at_kills(convert, folder.parent, tmp_path / "states"):
        result = ks.scrub_log(folder, keep=ks.without_keys([b"nobody's"]), in_place=True)
        assert not [one for one in os.listdir(folder) if one.startswith(".")]
        (outcome,) = ks.recover(folder, recovery_point=0).partitions
        assert outcome.changes == [], step
        # Logs that were converted until then have no other format than magic 1.
        known = {"COMPLETED", "NOTHING_REMOVED", "CONVERTED", "LOG_END_MOVED"}
        assert {one.symbol for one in result.findings} <= known
    assert "COMPLETED" not in {one.symbol for one in result.findings}
