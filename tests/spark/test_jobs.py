"""Jobs: manifests, findings and the files that tasks write."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet
import pytest

import kafkascan as ks
from kafkascan.format.errors import NoLogsError
from kafkascan.spark import jobs
from kafkascan.spark.jobs.fleet_jobs import IndexTarget, rebuild_task
from kafkascan.spark.jobs.output_folders import LocalFolder, finish_folder, prepare_folder
from kafkascan.spark.jobs.planned_outputs import is_record
from kafkascan.spark.options.reader_options import Options
from tests.spark.logs import (
    DATA,
    KILLED_DATA,
    cut_batches,
    damaged_log,
    multiset,
    plain_batch,
    rows,
    segment_path,
    tasks,
    write_planned,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_verify(spark: SparkSession, tmp_path: Path) -> None:
    clean = jobs.verify(spark, DATA)
    assert (clean.exit_code, clean.summary["files"], clean.summary["bad_checksums"]) == (0, 42, 0)
    assert "42" in str(clean)
    path = segment_path(tmp_path, "bad")
    path.write_bytes(damaged_log().flip(5, 70).end_with(b"\x7f" * 99).log)
    shutil.copytree(KILLED_DATA / "preallocated-0", tmp_path / "preallocated-0")
    report = jobs.verify(spark, tmp_path)
    assert report.exit_code == 1
    assert report.summary["bad_checksums"] == 1
    assert len(report.findings) == 1, "zeros of a preallocated file are none"
    assert f"{path}: position" in report.findings[0]
    ends = report.manifest["end"].to_pylist()
    assert "ZERO_TAIL" in ends


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
    catalog = jobs.catalog(spark, DATA, str(tmp_path / "catalog"), verify=True)
    table = pyarrow.parquet.read_table(tmp_path / "catalog")
    batches = rows(path=str(DATA), view="batches", verify="true")
    assert catalog.summary["rows"] == len(table) == len(batches)
    assert multiset(table.to_pylist()) == multiset(batches)


def test_repeated_attempts_write_the_same_files(tmp_path: Path) -> None:
    written, topics = [], "small-segments,transactions,headers,compacted"
    for attempt in ("first", "second"):
        for view in ("records", "batches"):
            folder = LocalFolder(str(tmp_path / attempt / view))
            given = {"maxPartitionBytes": 3000, "view": view}
            write_planned(folder, path=str(DATA), topics=topics, **given)
        found = sorted((tmp_path / attempt).rglob("*"))
        files = {
            str(p.relative_to(tmp_path / attempt)): p.read_bytes() for p in found if p.is_file()
        }
        written.append(files)
    assert written[0] == written[1]
    assert len(written[0]) > 60
    assert not [name for name in written[0] if ".part" in name]


def test_damage_leaves_no_partial_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_batches(monkeypatch, 8)
    segment_path(tmp_path / "in", "bad").write_bytes(damaged_log(40).flip(35, 70).log)
    with pytest.raises(ks.ChecksumMismatchError):
        write_planned(LocalFolder(str(tmp_path / "out")), path=str(tmp_path / "in"))
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


def test_indexes_of_a_segment_that_was_deleted(tmp_path: Path) -> None:
    path = segment_path(tmp_path, "topic")
    path.write_bytes(plain_batch(0))
    given = {"path": str(tmp_path), "view": "segments", "ignoreMissingFiles": "true"}
    (task,) = tasks(**given)
    path.unlink()
    target = IndexTarget(None, True, 4096, Options.parse(given))
    assert [one.num_rows for one in rebuild_task(task, target)] == [0]


def test_indexes_next_to_segments(tmp_path: Path) -> None:
    for base_offset in (0, 200):
        path = segment_path(tmp_path, "topic", base_offset=base_offset)
        path.write_bytes(b"".join(plain_batch(base_offset + n, 1, 3000) for n in range(9)))
    options = Options.parse({"path": str(tmp_path), "view": "segments"})

    def rebuild(**how: bool) -> list[str]:
        (task,) = tasks(path=str(tmp_path), view="segments")
        target = IndexTarget(None, how.get("force", False), 4096, options)
        return [row for batch in rebuild_task(task, target) for row in batch["action"].to_pylist()]

    assert rebuild() == ["WRITTEN", "WRITTEN", "SKIPPED"]
    assert rebuild(force=True) == ["IDENTICAL", "IDENTICAL", "WRITTEN", "WRITTEN"]
    index = segment_path(tmp_path, "topic").with_suffix(".index")
    whole = index.read_bytes()
    index.write_bytes(whole[:5])
    states = [row["index_state"] for row in rows(path=str(tmp_path), view="segments")]
    assert states == ["DAMAGED", "OK"]
    index.write_bytes(whole[:4] + b"\0\0\0\1" + whole[8:])
    states = [row["index_state"] for row in rows(path=str(tmp_path), view="segments")]
    assert states == ["WRONG", "OK"]
    assert rebuild() == ["WRITTEN", "IDENTICAL", "SKIPPED"]
    assert index.read_bytes() == whole
    segment_path(tmp_path, "topic").write_bytes(damaged_log().set(3, "magic", 9).log)
    assert rebuild() == ["DAMAGED", "SKIPPED"]


JOBS: dict[str, dict[str, Any]] = {
    "verify": {},
    "catalog": {"output": "out"},
    "export": {"output": "out"},
    "rebuild_indexes": {"target": "out"},
}


@pytest.mark.parametrize("job", JOBS)
def test_jobs_without_logs(tmp_path: Path, job: str) -> None:
    """A job that finds nothing fails; it needs no Spark for that, and writes nothing."""
    (tmp_path / "parent" / "empty-0").mkdir(parents=True)
    segment_path(tmp_path / "broker", "orders").write_bytes(plain_batch(0))
    given = {name: str(tmp_path / value) for name, value in JOBS[job].items()}

    def run(path: Path, **options: Any) -> None:
        getattr(jobs, job)(None, path, **given, **options)

    with pytest.raises(NoLogsError, match="NO_LOGS"):
        run(tmp_path / "parent")
    with pytest.raises(NoLogsError, match="there are logs in"):
        run(tmp_path)
    with pytest.raises(NoLogsError, match="NO_LOGS"):
        run([DATA, tmp_path / "parent"])
    with pytest.raises(NoLogsError, match="no segments of the selected topics absent"):
        run(DATA, topics="headers,absent")
    for nothing in ({"topics": "headres"}, {"topicPattern": "no.*"}, {"partitions": "77"}):
        with pytest.raises(NoLogsError, match="no segments of the selected topics"):
            run(DATA, **nothing)
    assert not (tmp_path / "out").exists()


def test_jobs_that_may_find_nothing(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "empty-0").mkdir()
    lenient = {"ignoreMissingFiles": True}
    assert jobs.verify(spark, tmp_path, **lenient).summary["files"] == 0
    with pytest.raises(ValueError, match="either a target folder"):
        jobs.rebuild_indexes(spark, tmp_path)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"compression": "nope"}, "compression='nope': expected one of zstd, snappy"),
        ({"compression": "ztsd"}, "did you mean 'zstd'"),
        (
            {"maxPartitionBytes": 0},
            "option maxPartitionBytes=0: expected a size",
        ),
        ({"view": "batches"}, "the job export does not take the option 'view'"),
        ({"startingOffsets": '{"absent":{"0":1}}'}, "does not find: absent-0"),
    ],
)
def test_wrong_arguments_of_jobs(tmp_path: Path, given: dict[str, Any], message: str) -> None:
    """They are found without Spark, and before anything is written."""
    with pytest.raises(ValueError, match=message):
        jobs.export(None, DATA, str(tmp_path / "out"), **given)  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


def test_a_failed_export_is_run_again(spark: SparkSession, tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    segment_path(source, "good").write_bytes(plain_batch(0))
    bad = segment_path(source, "zbad")
    bad.write_bytes(damaged_log(40).flip(35, 70).log)
    given = {"maxPartitionBytes": 1000}
    with pytest.raises(Exception, match="CHECKSUM_MISMATCH"):
        jobs.export(spark, source, str(out), **given)
    assert list(out.rglob("*.parquet")), "a part of the output exists"
    leftover = out / "topic=good" / "partition=0" / f".{0:020d}-{0:012d}.parquet.x1.part"
    leftover.parent.mkdir(parents=True, exist_ok=True)
    leftover.touch()
    with pytest.raises(FileExistsError, match=r"did not finish; resume=True"):
        jobs.export(spark, source, str(out), **given)
    bad.write_bytes(damaged_log(40).log)
    for compression in ("zstd", "snappy"):
        report = jobs.export(spark, source, str(out), overwrite=True, compression=compression)
        found = sorted(name for name in LocalFolder(str(out)).sizes() if not is_record(name))
        assert found == sorted(["_SUCCESS", *report.manifest["output"].to_pylist()])
        assert report.summary == {"files": 2, "rows": 82, "bytes": report.summary["bytes"]}
    with pytest.raises(FileExistsError, match="already contains Parquet files, such"):
        jobs.export(spark, source, str(out))


def test_files_of_others_are_not_overwritten(tmp_path: Path) -> None:
    folder = LocalFolder(str(tmp_path))
    with folder.write("topic=a/partition=0/00000000000000000000-000000000000.parquet") as stream:
        stream.write(b"x")
    finish_folder(folder, [])
    other = tmp_path / "mine" / "batches-a-0-01234567.parquet"
    other.parent.mkdir()
    other.touch()
    with pytest.raises(FileExistsError, match=r"contains mine/batches-a-0-01234567\.parquet, wh"):
        prepare_folder(folder, overwrite=True)
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 3
    other.unlink()
    prepare_folder(folder, overwrite=True)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
