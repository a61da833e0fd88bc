"""A segment with offsets below the one in its name, also as a file that is given by itself."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.format.findings import Severity
from kafkascan.tables.table import Problems
from tests.support.command_line import DATA, run
from tests.support.records import RecordV2, batch_of

_NAMED = f"{10:020}.log"
_ALL_KINDS = [_NAMED, f"{_NAMED}.deleted", f"{_NAMED}.swap"]


def _foreign(folder: Path, name: str = _NAMED) -> Path:
    """Return a file with offsets from 0 on."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_bytes(b"".join(batch_of([RecordV2()], base_offset=row) for row in range(20)))
    return path


@pytest.mark.parametrize("verb", ["info", "batches", "records", "verify"])
@pytest.mark.parametrize("folder", ["orders-0", "copies"])
def test_commands_on_a_file_say_what_those_on_its_folder_do(
    verb: str, folder: str, tmp_path: Path
) -> None:
    path = _foreign(tmp_path / folder)
    by_itself, in_folder = run(verb, path), run(verb, path.parent)
    assert by_itself.returncode == in_folder.returncode == 1
    assert "position 0: offset 0 is below the base offset in the file's name" in by_itself.stderr
    assert by_itself.stderr == in_folder.stderr


@pytest.mark.parametrize("name", _ALL_KINDS)
def test_files_of_all_kinds_are_compared_with_their_names(name: str, tmp_path: Path) -> None:
    path = _foreign(tmp_path / "orders-0", name)
    for done in (run("info", path), run("info", path.parent, "--all")):
        assert done.returncode == 1
        assert done.stderr.count("OFFSET_OUT_OF_SEGMENT") == 1


@pytest.mark.parametrize(
    "read",
    [
        lambda path: ks.read_records(path).problems,
        lambda path: Problems(one for table in ks.iter_records(path) for one in table.problems),
    ],
)
def test_records_of_a_file(read: Callable[[Path], Problems], tmp_path: Path) -> None:
    (found,) = read(_foreign(tmp_path / "copies"))
    assert (found.symbol, found.severity) == ("OFFSET_OUT_OF_SEGMENT", Severity.ERROR)
    assert (found.position, found.rows_missing) == (0, False)
    for name in ("10.log", "copy.log", f"{0:020}.log", f"{10:020}.bin"):
        assert not len(read(_foreign(tmp_path / "copies", name)))


def test_snapshots_have_offsets_below_their_names(tmp_path: Path) -> None:
    """Their names say the offset after the last one."""
    name = f"{127:020}-{2:010}.checkpoint"
    path = Path(shutil.copy(DATA / "__cluster_metadata-0" / name, tmp_path))
    assert run("info", path).returncode == 0
    assert not len(ks.read_records(path).problems)
