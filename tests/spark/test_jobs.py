"""Jobs: manifests, findings and the files that tasks write."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet
import pytest

import kafkascan as ks
from kafkascan.spark import jobs
from kafkascan.spark.jobs.export_tasks import ExportTarget, catalog_task, export_task
from kafkascan.spark.jobs.header_tasks import producers_task
from kafkascan.spark.jobs.index_tasks import IndexTarget, rebuild_task
from kafkascan.spark.jobs.output_folders import LocalFolder
from kafkascan.spark.options.reader_options import Options
from tests.spark.logs import (
    DATA,
    KILLED_DATA,
    damaged_log,
    multiset,
    plain_batch,
    rows,
    segment_path,
    tasks,
)
from tests.support.segments import T0

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_verify(spark: SparkSession, tmp_path: Path) -> None:
    clean = jobs.verify(spark, DATA)
    assert (clean.exit_code, clean.summary["files"], clean.summary["badChecksums"]) == (0, 42, 0)
    assert "42" in str(clean)
    path = segment_path(tmp_path, "bad")
    path.write_bytes(damaged_log().flip(5, 70).end_with(b"\x7f" * 99).log)
    shutil.copytree(KILLED_DATA / "preallocated-0", tmp_path / "preallocated-0")
    report = jobs.verify(spark, tmp_path)
    assert report.exit_code == 1
    assert report.summary["badChecksums"] == 1
    assert len(report.findings) == 2
    assert f"{path}: position" in report.findings[0]
    assert "ZERO_TAIL" in report.findings[1]


def test_export_and_catalog(spark: SparkSession, tmp_path: Path) -> None:
    report = jobs.export(spark, DATA, str(tmp_path / "out"), includeHeaders=True)
    expected = rows(path=str(DATA), includeHeaders="true")
    assert report.summary["rows"] == len(expected)
    assert (tmp_path / "out" / "_SUCCESS").exists()
    frame = spark.read.parquet(str(tmp_path / "out"))
    ours = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
    found = frame.select(*ours).toArrow().to_pylist()
    assert multiset(found) == multiset(expected)
    assert sorted(set(report.manifest["output"].to_pylist()))[0].startswith("topic=")
    with pytest.raises(FileExistsError):
        jobs.export(spark, DATA, str(tmp_path / "out"))
    catalog = jobs.catalog(spark, DATA, str(tmp_path / "catalog"), checkCrcs=True)
    table = pyarrow.parquet.read_table(tmp_path / "catalog")
    batches = rows(path=str(DATA), view="batches", checkCrcs="true")
    assert catalog.summary["rows"] == len(table) == len(batches)
    assert multiset(table.to_pylist()) == multiset(batches)


def test_repeated_attempts_write_the_same_files(tmp_path: Path) -> None:
    options = Options.parse({"path": str(DATA), "maxPartitionBytes": 3000, "openCostInBytes": 10})
    written = []
    for attempt in ("first", "second"):
        for work in (export_task, catalog_task):
            view = "records" if work is export_task else "batches"
            target = ExportTarget(
                LocalFolder(str(tmp_path / attempt / view)), options.but(view=view), "zstd"
            )
            given = {"maxPartitionBytes": 3000, "openCostInBytes": 10, "view": view}
            for task in tasks(path=str(DATA), **given):
                list(work(task, target))
        found = sorted((tmp_path / attempt).rglob("*"))
        files = {
            str(p.relative_to(tmp_path / attempt)): p.read_bytes() for p in found if p.is_file()
        }
        written.append(files)
    assert written[0] == written[1]
    assert len(written[0]) > 60
    assert not [name for name in written[0] if ".part" in name]


def test_damage_leaves_no_partial_file(tmp_path: Path) -> None:
    segment_path(tmp_path / "in", "bad").write_bytes(damaged_log(40).flip(35, 70).log)
    options = Options.parse({"path": str(tmp_path / "in"), "batchRows": 8})
    (task,) = tasks(path=str(tmp_path / "in"))
    with pytest.raises(ks.ChecksumMismatchError):
        list(export_task(task, ExportTarget(LocalFolder(str(tmp_path / "out")), options, "zstd")))
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == []


def test_rebuild_indexes(spark: SparkSession, tmp_path: Path) -> None:
    """Rebuilt indexes are equal to those that brokers wrote for closed segments."""
    data = DATA / "small-segments-0"
    report = jobs.rebuild_indexes(spark, data, str(tmp_path / "new"), interval_bytes=200)
    closed = sorted(path.stem for path in data.glob("*.log"))[:-1]
    assert len(closed) > 5
    for name in closed:
        for kind in ("index", "timeindex"):
            built = (tmp_path / "new" / data.name / f"{name}.{kind}").read_bytes()
            assert built == (data / f"{name}.{kind}").read_bytes()
    assert report.exit_code == 0
    assert report.summary == {"indexes": 2 * len(closed) + 2, "written": 2 * len(closed) + 2}
    again = jobs.rebuild_indexes(spark, data, str(tmp_path / "new"), interval_bytes=200)
    assert again.summary["identical"] == again.summary["indexes"]


def test_indexes_next_to_segments(tmp_path: Path) -> None:
    for base_offset in (0, 200):
        path = segment_path(tmp_path, "topic", base_offset=base_offset)
        path.write_bytes(b"".join(plain_batch(base_offset + n, 1, 3000) for n in range(9)))
    options = Options.parse({"path": str(tmp_path), "view": "segments"})
    (task,) = tasks(path=str(tmp_path), view="segments")

    def rebuild(**how: bool) -> list[str]:
        target = IndexTarget(None, how.get("force", False), 4096, options)
        return [row for batch in rebuild_task(task, target) for row in batch["action"].to_pylist()]

    assert rebuild() == ["WRITTEN", "WRITTEN", "SKIPPED"]
    assert rebuild(force=True) == ["IDENTICAL", "IDENTICAL", "WRITTEN", "WRITTEN"]
    index = segment_path(tmp_path, "topic").with_suffix(".index")
    whole = index.read_bytes()
    index.write_bytes(whole[:5])
    states = [row["indexState"] for row in rows(path=str(tmp_path), view="segments")]
    assert states == ["DAMAGED", "OK"]
    index.write_bytes(whole[:4] + b"\0\0\0\1" + whole[8:])
    states = [row["indexState"] for row in rows(path=str(tmp_path), view="segments")]
    assert states == ["WRONG", "OK"]
    assert rebuild() == ["WRITTEN", "IDENTICAL", "SKIPPED"]
    assert index.read_bytes() == whole
    segment_path(tmp_path, "topic").write_bytes(damaged_log().set(3, "magic", 9).log)
    assert rebuild() == ["DAMAGED", "SKIPPED"]


def test_producers(spark: SparkSession) -> None:
    report = jobs.producer_stats(spark, DATA)
    batches = rows(path=str(DATA), view="batches")
    found = {
        (row["topic"], row["partition"], row["producerId"]): row
        for row in report.manifest.to_pylist()
    }
    assert set(found) == {(b["topic"], b["partition"], b["producerId"]) for b in batches}
    for key, row in found.items():
        mine = [b for b in batches if (b["topic"], b["partition"], b["producerId"]) == key]
        assert row["batches"] == len(mine)
        assert row["records"] == sum(b["recordCount"] for b in mine)
        assert row["bytes"] == sum(b["sizeInBytes"] for b in mine)
        assert row["lastOffset"] == max(b["lastOffset"] for b in mine)
        assert row["maxTimestampMs"] == max(b["maxTimestampMs"] for b in mine)
        assert row["transactionalBatches"] == sum(b["isTransactional"] for b in mine)
    assert len(found) > 15


def test_producers_of_several_tables(tmp_path: Path) -> None:
    log = b"".join(plain_batch(n, 1, 1, producer_id=n % 3) for n in range(70_000))
    segment_path(tmp_path, "topic").write_bytes(log)
    (task,) = tasks(path=str(tmp_path), view="batches")
    found = list(producers_task(task, Options.parse({"view": "batches"})))
    assert len(found) == 2, "two tables, joined by the job"
    counts = np.sum([batch["batches"].to_numpy() for batch in found], axis=0)
    assert counts.tolist() == [23_334, 23_333, 23_333]


def test_timestamps(spark: SparkSession, tmp_path: Path) -> None:
    log = plain_batch(0) + plain_batch(2, max_timestamp=2**62) + plain_batch(4, max_timestamp=-1)
    path = segment_path(tmp_path, "bad")
    path.write_bytes(log)
    segment_path(tmp_path, "good").write_bytes(plain_batch(0))
    report = jobs.bad_timestamps(spark, tmp_path)
    (row,) = report.manifest.to_pylist()
    assert (row["lateBatches"], row["earlyBatches"], row["missingBatches"]) == (1, 0, 1)
    assert (row["firstBadOffset"], row["maxTimestampMs"]) == (2, 2**62)
    assert report.exit_code == 1
    assert f"{path}: position" in report.findings[0]
    assert jobs.bad_timestamps(spark, tmp_path, earliest_ms=T0 + 9).summary["earlyBatches"] == 2


def test_jobs_without_files(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "empty-0").mkdir()
    assert jobs.verify(spark, tmp_path).summary["files"] == 0
    assert len(jobs.producer_stats(spark, tmp_path).manifest) == 0
    with pytest.raises(ValueError, match="either a target folder"):
        jobs.rebuild_indexes(spark, tmp_path)
