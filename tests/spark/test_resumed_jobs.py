"""Jobs that run again after a failure: finished outputs are kept, and the result is the same."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from kafkascan.spark import jobs
from kafkascan.spark.jobs.output_folders import LocalFolder, output_folder
from kafkascan.spark.jobs.planned_outputs import is_record, plan_exports
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.planning.planned_logs import PlannedLog, PlannedSegment
from kafkascan.spark.planning.task_plan import plan
from tests.spark.logs import COMMIT, DATA, data, marker, plain_batch, s3_of, segment_path

pytest.importorskip("pyspark")

CUT: dict[str, Any] = {"maxPartitionBytes": 3000}
TOPICS = {"topics": "small-segments,headers"}


class Killed(Exception):  # noqa: N818 - not an error
    """The end of a process."""


@dataclass
class Runs:
    """Runs the tasks of jobs in this process, and records the outputs that they write."""

    written: list[str] = field(default_factory=list)
    most: int = 1 << 30

    def wrote(self, name: str) -> None:
        if len(self.written) == self.most:
            raise Killed
        self.written.append(name)


class Frame:
    """Stands in for a DataFrame."""

    def __init__(self, batches: list[Any]) -> None:
        self._batches = batches

    def toArrow(self) -> Any:  # noqa: N802 - Spark's name
        return pyarrow.Table.from_batches(self._batches)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    from kafkascan.spark.jobs import export_tasks, fleet_jobs

    found = Runs()
    write_file = export_tasks._write_file

    def counted(output: Any, target: Any) -> Any:
        found.wrote(output.name)
        return write_file(output, target)

    def map_tasks(spark: Any, tasks: Any, work: Any, argument: Any, schema: str) -> Frame:
        return Frame([batch for task in tasks for batch in work(task, argument)])

    monkeypatch.setattr(export_tasks, "_write_file", counted)
    monkeypatch.setattr(fleet_jobs, "map_tasks", map_tasks)
    return found


def run(job: str, path: Path | str, output: Path | str, **options: Any) -> jobs.JobReport:
    found: jobs.JobReport = getattr(jobs, job)(None, path, str(output), **(CUT | options))
    return found


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def outputs(folder: Path) -> dict[str, bytes]:
    return {name: data for name, data in files(folder).items() if name.endswith(".parquet")}


def small_logs(folder: Path) -> Path:
    """Three logs; the segments are less than a task, and become an output each."""
    for partition in range(3):
        for base_offset in (0, 10):
            path = segment_path(folder, "topic", partition, base_offset)
            path.write_bytes(plain_batch(base_offset, 10))
    return folder


@pytest.mark.parametrize(
    ("job", "share"), [("export", 0.0), ("export", 0.6), ("export", 1.0), ("catalog", 0.6)]
)
def test_a_killed_job_goes_on(runs: Runs, tmp_path: Path, job: str, share: float) -> None:
    """Byte for byte the output of a run that was not interrupted; nothing is written twice."""
    expected = run(job, DATA, tmp_path / "whole", **TOPICS)
    total = len(runs.written)
    assert total > 20
    runs.written.clear()
    runs.most = int(total * share)
    if share < 1:
        with pytest.raises(Killed):
            run(job, DATA, tmp_path / "out", **TOPICS)
        assert not (tmp_path / "out" / "_SUCCESS").exists()
    else:
        run(job, DATA, tmp_path / "out", **TOPICS)
    runs.most, kept = 1 << 30, len(outputs(tmp_path / "out"))
    report = run(job, DATA, tmp_path / "out", resume=True, **TOPICS)
    assert files(tmp_path / "out") == files(tmp_path / "whole")
    assert sorted(runs.written) == sorted(set(runs.written)), "nothing is done twice"
    assert len(runs.written) == total
    assert report.manifest.equals(expected.manifest)
    assert report.summary == expected.summary | {"kept": kept}


def test_half_files_are_not_trusted(runs: Runs, tmp_path: Path) -> None:
    """An output is kept if its size is that of its record, and if it has one."""
    source, out = small_logs(tmp_path / "in"), tmp_path / "out"
    run("export", source, tmp_path / "whole")
    run("export", source, out)
    half, empty, gone, unknown, longer, kept = sorted(outputs(out))
    os.truncate(out / half, 100)
    os.truncate(out / empty, 0)
    (out / gone).unlink()
    (record,) = (out / "_finished" / unknown).parent.glob(f"{Path(unknown).name}.*")
    record.unlink()
    with (out / longer).open("ab") as file:
        file.write(b"x")
    leftover = out / half
    leftover = leftover.with_name(f".{leftover.name}.x1.part")
    leftover.touch()
    before = (out / kept).stat()
    runs.written.clear()
    run("export", source, out, resume=True)
    assert sorted(runs.written) == [half, empty, gone, unknown, longer]
    assert files(out) == files(tmp_path / "whole")
    after = (out / kept).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_sources_that_changed(runs: Runs, tmp_path: Path) -> None:
    """Their outputs are written again, and those of deleted sources are removed."""
    source, out = small_logs(tmp_path / "in"), tmp_path / "out"
    run("export", source, out)
    with segment_path(source, "topic", 0, 10).open("ab") as file:
        file.write(plain_batch(20, 10))
    touched = segment_path(source, "topic", 1, 10)
    touched.write_bytes(plain_batch(10, 10, base_timestamp=5))
    os.utime(touched, ns=(1, 10**18))
    segment_path(source, "topic", 2, 0).unlink()
    runs.written.clear()
    report = run("export", source, out, resume=True)
    name = f"{10:020d}-{0:012d}.parquet"
    assert runs.written == [f"topic=topic/partition={n}/{name}" for n in (0, 1)]
    assert report.summary["kept"] == 3
    run("export", source, tmp_path / "whole")
    assert files(out) == files(tmp_path / "whole")


@pytest.mark.parametrize(
    "change",
    [
        {"compression": "snappy"},
        {"includeHeaders": "true"},
        {"columns": "offset,value"},
        {"where": "partition < 9"},
        {"verify": "false"},
    ],
)
def test_options_that_change_the_content(
    runs: Runs, tmp_path: Path, change: dict[str, Any]
) -> None:
    source, out = small_logs(tmp_path / "in"), tmp_path / "out"
    run("export", source, out)
    run("export", source, tmp_path / "whole", **change)
    runs.written.clear()
    run("export", source, out, resume=True, **change)
    assert len(runs.written) == 6
    assert files(out) == files(tmp_path / "whole")


def test_options_that_do_not_change_the_content(runs: Runs, tmp_path: Path) -> None:
    source, out = small_logs(tmp_path / "in"), tmp_path / "out"
    run("export", source, out)
    runs.written.clear()
    for given in ({"prefetch": "0"}, {"topics": "topic"}, {"storageOptions": {"key": "new"}}):
        assert run("export", source, out, resume=True, **given).summary["kept"] == 6
    report = run("export", source, out, resume=True, partitions="0")
    assert report.summary["kept"] == len(outputs(out)) == 2, "it is the output of this selection"
    given = {"startingOffsets": '{"topic":{"0":3}}', "partitions": "0"}
    assert run("export", source, out, resume=True, **given).summary["kept"] == 0
    assert len(runs.written) == 2


def test_ranges_without_rows_are_not_read_again(runs: Runs, tmp_path: Path) -> None:
    path = segment_path(tmp_path / "in", "a")
    path.write_bytes(marker(0, 7, COMMIT))
    segment_path(tmp_path / "in", "b").write_bytes(plain_batch(0))
    out = tmp_path / "out"
    run("export", tmp_path / "in", out)
    assert len(runs.written) == 2
    assert len(outputs(out)) == 1
    report = run("export", tmp_path / "in", out, resume=True)
    assert len(runs.written) == 2
    assert report.summary == {
        "files": 1, "rows": 2, "bytes": report.summary["bytes"], "kept": 1
    }  # fmt: skip


def test_committed_records_depend_on_the_whole_log(runs: Runs, tmp_path: Path) -> None:
    """A marker in the last segment decides about records in the first one."""
    first = segment_path(tmp_path / "in", "a")
    first.write_bytes(data(0, 7, 5))
    last = segment_path(tmp_path / "in", "a", base_offset=5)
    last.write_bytes(plain_batch(5))
    segment_path(tmp_path / "in", "other").write_bytes(plain_batch(0))
    given = {"isolationLevel": "read_committed"}
    assert run("export", tmp_path / "in", tmp_path / "out", **given).summary["rows"] == 2
    with last.open("ab") as file:
        file.write(marker(7, 7, COMMIT))
    report = run("export", tmp_path / "in", tmp_path / "out", resume=True, **given)
    assert (report.summary["rows"], report.summary["kept"]) == (9, 1)


def test_missing_files_are_not_finished(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be back when the job runs again."""
    source, out = small_logs(tmp_path / "in"), tmp_path / "out"
    hidden, lenient = tmp_path / "hidden", {"ignoreMissingFiles": "true"}

    def vanish(*arguments: Any, **keywords: Any) -> list[Any]:
        tasks = list(plan_exports(*arguments, **keywords))
        segment_path(source, "topic").rename(hidden)
        return tasks

    from kafkascan.spark.jobs import fleet_jobs

    with monkeypatch.context() as patch:
        patch.setattr(fleet_jobs, "plan_exports", vanish)
        assert run("export", source, out, **lenient).summary["rows"] == 50
    hidden.rename(segment_path(source, "topic"))
    report = run("export", source, out, resume=True, **lenient)
    assert (report.summary["rows"], report.summary["kept"]) == (60, 5)


def test_sources_without_a_version_are_written_again() -> None:
    """A store may know neither the time nor the ETag of an object."""
    options = Options.parse({})
    for modified, etag, is_known in ((None, "", False), (1, "", True), (None, "x", True)):
        file = PlannedSegment("s3://x/t-0/0.log", 0, 9, modified, etag=etag)
        (task,) = plan_exports(plan([PlannedLog(("t", 0), (file,))], options), options, "zstd")
        assert bool(task.outputs[0].digest) == is_known


def test_wrong_uses(runs: Runs, tmp_path: Path) -> None:
    source, out = small_logs(tmp_path / "in"), tmp_path / "out"
    with pytest.raises(ValueError, match="overwrite and resume cannot be combined"):
        run("export", source, out, resume=True, overwrite=True)
    assert not out.exists()
    out.mkdir()
    (out / "mine.parquet").touch()
    with pytest.raises(FileExistsError, match=r"mine\.parquet, which no job of kafkascan wrote"):
        run("export", source, out, resume=True)
    (out / "mine.parquet").unlink()
    run("export", source, out, resume=True)
    with pytest.raises(FileExistsError, match="resume=True keeps"):
        run("export", source, out)
    run("export", source, out, overwrite=True)
    assert len(runs.written) == 12


def test_long_names_of_topics(runs: Runs, tmp_path: Path) -> None:
    segment_path(tmp_path / "in", "t" * 249).write_bytes(plain_batch(0))
    for job in ("export", "catalog"):
        for resume in (False, True):
            report = run(job, tmp_path / "in", tmp_path / job, resume=resume)
            assert report.summary["files"] == 1
    assert len(runs.written) == 2


def test_a_store(runs: Runs, store: dict[str, Any], tmp_path: Path) -> None:
    """From a store and into a store; credentials may change meanwhile."""
    s3 = s3_of(store)
    s3.mkdir("resumed")
    s3.put(f"{small_logs(tmp_path)}/", "resumed/in/", recursive=True)
    given: dict[str, Any] = {"storageOptions": store}
    runs.most = 4
    with pytest.raises(Killed):
        run("export", "s3://resumed/in", "s3://resumed/out", **given)
    s3.pipe_file("resumed/out/topic=topic/partition=0/" + f"{0:020d}-{0:012d}.parquet", b"half")
    runs.most = 1 << 30
    rewritten = {
        "storageOptions": store | {"client_options": {"allow_http": True, "timeout": "60s"}}
    }
    report = run("export", "s3://resumed/in", "s3://resumed/out", resume=True, **rewritten)
    assert report.summary["kept"] == 3
    run("export", "s3://resumed/in", "s3://resumed/whole", **given)
    both = [
        output_folder(f"s3://resumed/{name}", Options.parse(given)).sizes()
        for name in ("out", "whole")
    ]
    assert both[0] == both[1]
    s3.pipe_file(f"resumed/in/topic-2/{0:020d}.log", plain_batch(0, 10)[:-1] + b"\7")
    with pytest.raises(Exception, match="CHECKSUM"):
        run("export", "s3://resumed/in", "s3://resumed/out", resume=True, **given)


def test_records_are_hidden_from_readers(runs: Runs, tmp_path: Path) -> None:
    import pyarrow.dataset

    run("export", small_logs(tmp_path / "in"), tmp_path / "out")
    assert len([n for n in LocalFolder(str(tmp_path / "out")).sizes() if is_record(n)]) == 6
    found = pyarrow.dataset.dataset(tmp_path / "out", partitioning="hive")
    assert found.count_rows() == 60
    polars = pytest.importorskip("polars")
    assert polars.scan_parquet(tmp_path / "out").collect().height == 60
    shutil.rmtree(tmp_path / "out" / "_finished")
    assert found.count_rows() == 60
