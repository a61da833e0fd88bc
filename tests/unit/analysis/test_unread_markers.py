"""Markers that cannot be read, or are none: who counts them says that some are missing."""

from __future__ import annotations

from pathlib import Path

import pytest

import kafkascan as ks
from tests.support.command_line import run
from tests.support.partitions import HealthyPartition

# Bytes of the only record of a control batch: its length, and the low byte of its type.
LENGTH, TYPE = 61, 69


@pytest.fixture
def partition(tmp_path: Path) -> HealthyPartition:
    return HealthyPartition(tmp_path / "orders-0").write()


def _spoil(log: Path, at: int, *, most: int = 1) -> list[int]:
    """Change a byte of the first markers of a segment; return the positions of their batches."""
    batches, data = ks.scan_batches(log).batches, bytearray(log.read_bytes())
    starts: list[int] = batches["position"][ks.batches.is_control(batches)].tolist()[:most]
    for start in starts:
        data[start + at] ^= 0x55
    log.write_bytes(data)
    return starts


@pytest.mark.parametrize("at", [LENGTH, TYPE])
def test_the_marker_is_not_counted_and_named(partition: HealthyPartition, at: int) -> None:
    whole = ks.read_producers(partition.folder)
    assert whole.is_complete
    (start,) = _spoil(partition.log(1), at)
    found = ks.read_producers(partition.folder)
    (problem,) = found.problems
    assert (problem.path, problem.position) == (str(partition.log(1)), start)
    assert (problem.topic, problem.partition) == ("orders", 0)
    assert problem.rows_missing
    assert problem.message.endswith("; the marker is not counted")
    assert found.counts["markers"].sum() == whole.counts["markers"].sum() - 1
    for name in ("batches", "records", "sequence_gaps", "duplicates"):
        assert found.counts[name].tolist() == whole.counts[name].tolist()


def test_one_problem_has_the_number_of_markers(partition: HealthyPartition) -> None:
    whole = ks.read_producers(partition.folder)
    count = len(
        [start for log in map(partition.log, range(3)) for start in _spoil(log, LENGTH, most=99)]
    )
    assert count == whole.counts["markers"].sum()
    found = ks.read_producers(partition.folder)
    (problem,) = found.problems
    assert problem.message.endswith(f"; {count} such markers are not counted")
    assert not found.counts["markers"].any()


@pytest.mark.parametrize("command", ["producers", "txns", "count"])
@pytest.mark.parametrize("at", [LENGTH, TYPE])
def test_commands_end_with_1(partition: HealthyPartition, command: str, at: int) -> None:
    _spoil(partition.log(1), at)
    done = run(command, partition.folder)
    assert done.returncode == 1
    assert str(partition.folder) in done.stderr


def test_a_deleted_marker_is_not_missed(partition: HealthyPartition) -> None:
    _spoil(partition.log(0), LENGTH, most=99)
    first = int(partition.log(1).stem)
    assert ks.read_producers(partition.folder, log_start_offset=first).is_complete
