"""A broker loads a log whose replacement was interrupted by a kill."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkascan as ks
from kafkascan.io.atomic_files import AtomicFile
from kafkascan.rewrite import log_rewriter as log_rewriting
from tests.oracle.build import ClassPaths
from tests.oracle.rebuild import LoadArguments, Rebuild

pytestmark = pytest.mark.oracle

_GOLDEN = Path(__file__).parents[1] / "golden/kafka-4.4.0/data"


class KilledError(BaseException):
    """Derives from BaseException, so that no handler catches it."""


@pytest.fixture(scope="module")
def rebuild(class_paths: ClassPaths, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rebuild]:
    with Rebuild(class_paths.broker, tmp_path_factory.mktemp("rebuild")) as running:
        yield running


def _dying(function: Any, at: int) -> Any:
    """Return the function with an exception in place of its n-th call."""
    calls = 0

    def call(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at:
            raise KilledError
        return function(*arguments, **options)

    return call


@pytest.mark.parametrize("name", ["small-segments-0", "transactions-0"])
@pytest.mark.parametrize("step", ["put_in_place", "write_index", "recover"])
@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("options", [{"compression_type": "zstd"}, {"to_magic": 1}])
def test_what_is_left_is_loaded(
    name: str,
    step: str,
    at: int,
    options: dict[str, Any],
    rebuild: Rebuild,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    directory = Path(shutil.copytree(_GOLDEN / name, tmp_path / name))
    if step == "put_in_place":
        monkeypatch.setattr(AtomicFile, step, _dying(AtomicFile.put_in_place, at))
    else:
        monkeypatch.setattr(log_rewriting, step, _dying(getattr(log_rewriting, step), at))
    is_killed = step != "recover" or at == 1
    if "compression_type" not in options:
        options = options | {"compression_type": "gzip"}
    if is_killed:
        with pytest.raises(KilledError):
            ks.convert_log(directory, in_place=True, **options)
    else:
        ks.convert_log(directory, in_place=True, **options)
    monkeypatch.undo()
    logs = {log.name: log.read_bytes() for log in directory.glob("*.log")}
    outcome = rebuild.outcome_of_load(directory, LoadArguments(clean_shutdown=True))
    assert not outcome.is_refused, outcome.answer
    assert {file: data for file, data in outcome.files.items() if file in logs} == logs
    for file, data in logs.items():
        batches = ks.scan_batches(data).batches
        for kind in ("index", "timeindex"):
            index = tmp_path / f"{file[:-4]}.{kind}"
            index.write_bytes(outcome.files[index.name])
            assert [one for one in ks.check_index(index, batches) if one.severity == "error"] == []
