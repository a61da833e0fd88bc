"""Copies that a broker with several data dirs is moving (`-future`): named, and not read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.format.errors import NoLogsError
from kafkascan.tables.table import IncompleteTableWarning
from tests.support.command_line import run
from tests.support.internal_topics import TopicLog, commit
from tests.support.partitions import HealthyPartition

_UUID = "0123456789abcdef" * 2


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A data dir with a log, and a copy of another partition of its topic."""
    HealthyPartition(tmp_path / "orders-1").write()
    HealthyPartition(tmp_path / f"orders-0.{_UUID}-future").write()
    return tmp_path


def test_counts(disk: Path) -> None:
    found = ks.count_records(disk)
    assert found.to_columns()["partition"] == [1]
    (note,) = found.problems
    assert (note.symbol, note.severity, note.topic, note.partition) == (
        "FUTURE_LOG", ks.Severity.NOTE, "orders", 0,
    )  # fmt: skip
    assert note.path == str(disk / f"orders-0.{_UUID}-future")
    assert not note.rows_missing
    assert found.is_exact.all()


def test_headers_of_a_data_dir(disk: Path) -> None:
    batches = ks.scan_log_dir(disk)
    assert {partition.partition for partition, _ in batches.segments} == {1}
    assert sum(map(len, batches)) > 0
    assert [one.symbol for one in batches.problems] == ["FUTURE_LOG"]
    everything = ks.scan_log_dir(disk, include="all")
    assert {partition.partition for partition, _ in everything.segments} == {0, 1}


@pytest.mark.parametrize("verb", ["count", "info", "records", "batches", "txns"])
def test_commands(disk: Path, verb: str) -> None:
    alone = run(verb, disk / "orders-1", "--format", "jsonl")
    done = run(verb, disk, "--format", "jsonl")
    assert (done.returncode, done.stdout) == (alone.returncode, alone.stdout)
    assert f"orders-0.{_UUID}-future: a broker is moving the log here" in done.stderr
    assert done.stderr.count("FUTURE_LOG") == 1


def test_queries(disk: Path) -> None:
    done = run("sql", "SELECT DISTINCT partition FROM records", disk, "--format", "jsonl")
    assert (done.returncode, done.stdout) == (0, '{"partition": 1}\n')
    assert done.stderr.count("FUTURE_LOG") == 1


def test_a_copy_is_read_by_its_own_path(disk: Path) -> None:
    copy = ks.count_records(disk / f"orders-0.{_UUID}-future")
    assert copy.counts["records"].tolist() == ks.count_records(disk).counts["records"].tolist()
    assert len(copy.problems) == 0


def test_frames(disk: Path) -> None:
    with pytest.warns(IncompleteTableWarning, match=r"-future: .*FUTURE_LOG"):
        frame = ks.polars.scan_records(disk)
    assert frame.collect()["partition"].unique().to_list() == [1]


def test_groups_are_those_of_served_logs(tmp_path: Path) -> None:
    TopicLog(tmp_path / "__consumer_offsets-0").add(commit("a", 0, 5)).write()
    TopicLog(tmp_path / f"__consumer_offsets-1.{_UUID}-future").add(commit("b", 0, 7)).write()
    found = ks.read_groups(tmp_path)
    assert found.offsets["group"] == ["a"]
    assert [one.symbol for one in found.problems] == ["FUTURE_LOG"]


def test_differences(disk: Path, tmp_path: Path) -> None:
    done = run("diff", disk, disk / "orders-1")
    assert (done.returncode, done.stderr.count("FUTURE_LOG")) == (0, 1)
    found = ks.diff_logs(disk, disk)
    assert [one.symbol for one in found.problems] == ["FUTURE_LOG"]
    assert found.is_same
    saved = tmp_path / "left.parquet"
    read = ks.analysis.read_fingerprints(disk)
    read.save(saved)
    assert [one.symbol for one in read.problems] == ["FUTURE_LOG"]
    assert list(ks.diff_logs(saved, disk / "orders-1").problems) == list(read.problems)


def test_salvage_copies_it(disk: Path) -> None:
    copy = disk.parent / f"{disk.name} copy"
    ks.salvage(disk, copy)
    assert sorted(one.name for one in copy.iterdir()) == [
        f"orders-0.{_UUID}-future", "orders-1",
    ]  # fmt: skip


def test_nothing_but_a_copy(disk: Path) -> None:
    shutil.rmtree(disk / "orders-1")
    with pytest.raises(NoLogsError, match="a copy that a broker is moving here"):
        ks.count_records(disk)
    assert run("count", disk).returncode == 3
