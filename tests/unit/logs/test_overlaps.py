"""A stale segment beside the one that replaced it: named, and nothing is called exact."""

from __future__ import annotations

from pathlib import Path

import pytest

import kafkascan as ks
from tests.support.command_line import rows, run
from tests.support.partitions import HealthyPartition


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The cleaner merged three segments into the first; a backup kept the others."""
    partition = HealthyPartition(tmp_path / "orders-0").write()
    paths = [partition.log(number) for number in range(3)]
    paths[0].write_bytes(b"".join(path.read_bytes() for path in paths))
    return partition.folder


def test_healthy_logs_have_none(tmp_path: Path) -> None:
    folder = HealthyPartition(tmp_path / "orders-0").write().folder
    assert ks.count_records(folder).is_exact.all()
    for verb in ("info", "records", "count", "producers"):
        assert run(verb, folder).stderr == ""


def test_results_name_the_segments(folder: Path) -> None:
    counted = ks.count_records(folder)
    assert counted.is_exact.tolist() == [False]
    for found in (counted, ks.read_transactions(folder), ks.read_producers(folder)):
        (one,) = found.overlaps[0]
        first, second, _ = sorted(folder.glob("*.log"))
        assert (one.path, one.following) == (first, second)
        assert (one.first_offset, one.last_offset) == (int(second.stem), int(second.stem) * 3 - 1)


@pytest.mark.parametrize("verb", ["info", "records", "count", "producers", "txns"])
def test_commands_report_them(folder: Path, verb: str) -> None:
    done = run(verb, folder)
    assert done.returncode == 1
    first, second, _ = sorted(folder.glob("*.log"))
    assert f"{first}: offsets {int(second.stem)} to" in done.stderr
    assert f"are also in {second.name}" in done.stderr
    if verb == "count":
        assert rows(verb, folder, code=1)[0]["is_exact"] is False


def test_the_end_of_a_segment_in_a_chunk_of_its_own(tmp_path: Path) -> None:
    """A table that is full when the log ends: the end comes without batches."""
    from tests.support.segments import batch_v2

    base = 4096
    log = b"".join(batch_v2(base_offset=offset) for offset in range(base))
    (tmp_path / f"{0:020}.log").write_bytes(log)
    for following, is_exact in ((base - 1, False), (base, True)):
        (tmp_path / f"{following:020}.log").write_bytes(batch_v2(base_offset=following))
        assert ks.count_records(tmp_path).is_exact.tolist() == [is_exact]
        (tmp_path / f"{following:020}.log").unlink()
