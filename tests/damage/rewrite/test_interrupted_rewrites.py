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


@pytest.mark.parametrize("name", ["recovery-point", "log-start"])
@pytest.mark.parametrize("verb", _VERBS)
def test_a_checkpoint_that_cannot_be_read_is_found_before_anything_is_replaced(
    verb: str, name: str, tmp_path: Path
) -> None:
    folder = _copy("transactions-0", tmp_path)
    (tmp_path / f"{name}-offset-checkpoint").write_text("nonsense\n")
    before = contents(folder)
    with pytest.raises(ks.format.CorruptCheckpointError):
        _action(verb, folder)()
    assert contents(folder) == before
