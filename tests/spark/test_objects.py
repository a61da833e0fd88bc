"""Segments in object stores: the same rows, read in bounded windows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.fs
import pyarrow.parquet
import pytest

import kafkascan as ks
from kafkascan.io.stores.stored_objects import open_prefix
from kafkascan.spark import jobs
from kafkascan.spark.jobs.output_folders import finish_folder, output_folder
from kafkascan.spark.jobs.planned_outputs import is_record
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.planning.read_plan import plan_read
from kafkascan.spark.rows.task_scan import scan_task
from tests.spark.logs import (
    DATA,
    KILLED_DATA,
    OLD_DATA,
    cut_batches,
    damaged_log,
    multiset,
    plain_batch,
    rows,
    segment_path,
    tasks,
    write_planned,
)
from tests.support.segments import Rig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Object:
    """An object that returns at most some bytes per read."""

    def __init__(self, data: bytes, most: int = 1 << 30) -> None:
        self.path, self.size = "store://bucket/object", len(data)
        self._data, self._most = data, most
        self.reads: list[tuple[int, int]] = []

    def read_at(self, position: int, size: int) -> bytes:
        self.reads.append((position, size))
        return self._data[position : position + min(size, self._most)]


@pytest.mark.parametrize("most", [1, 13, 1 << 20])
def test_a_source_that_is_read_at_positions(most: int) -> None:
    for log in (*OLD_DATA.glob("*/*.log"), *KILLED_DATA.glob("*/*.log")):
        data = log.read_bytes()
        if most == 1 and len(data) > 3000:
            continue
        with ks.Source(Object(data, most)) as source:
            assert (source.is_file, source.is_in_memory) == (False, False)
            scan, expected = ks.scan_batches(source), ks.scan_batches(data)
            assert (scan.batches == expected.batches).all()
            assert (scan.end, scan.valid_bytes) == (expected.end, expected.valid_bytes)
            assert ks.verify_crcs(source, scan.batches).all()
            found, records = ks.read_records(source), ks.read_records(data)
            assert found.to_arrow().equals(records.to_arrow())


def test_an_object_shorter_than_its_size() -> None:
    log = Rig().batches(5).log
    short = Object(log)
    short.size += 100
    with (
        ks.Source(short) as source,
        pytest.raises(ks.format.SourceReadError, match="store://bucket"),
    ):
        ks.scan_batches(source)
    assert len(ks.scan_batches(ks.Source(Object(log), max_size=len(log) - 1))) == 4


def test_a_limited_size(tmp_path: Path) -> None:
    path, log = tmp_path / "x.log", Rig().batches(5).log
    path.write_bytes(log)
    for memory_map in (True, False):
        with ks.Source(path, memory_map=memory_map, max_size=len(log) // 5 * 2) as source:
            assert source.size == len(log) // 5 * 2
            assert len(ks.scan_batches(source)) == 2
    assert ks.Source(path, max_size=10**9).size == len(log)
    with pytest.raises(TypeError):
        ks.Source(log, max_size=1)
    with pytest.raises(ValueError, match="negative"):
        ks.Source(path, max_size=-1)


def for_pyarrow(store: dict[str, Any]) -> dict[str, Any]:
    return {
        "access_key": store["aws_access_key_id"],
        "secret_key": store["aws_secret_access_key"],
        "endpoint_override": store["endpoint"],
        "region": "us-east-1",
    }


def test_an_s3_server(store: dict[str, Any]) -> None:
    settings = json.dumps(store)
    for view in ("records", "batches"):
        expected = multiset(rows(path=str(DATA), view=view))
        given = {"view": view, "storageOptions": settings, "path": "s3://logs/data"}
        assert multiset(rows(**given)) == expected
    one = "s3://logs/data/headers-0/00000000000000000000.log"
    expected = multiset(rows(path=str(DATA / "headers-0")))
    for path in (one, "s3://logs/data/head*-0", "s3://logs/data/headers-0/*.log"):
        assert multiset(rows(path=path, storageOptions=settings)) == expected
    with pytest.raises(FileNotFoundError):
        rows(path="s3://logs/nothing", storageOptions=settings)
    (task,) = tasks(path=one, storageOptions=settings, maxPartitionBytes=1000)
    assert len(task.ranges) == 1, "an object is not cut"


@pytest.mark.parametrize("view", ["records", "batches", "segments"])
def test_an_object_that_was_truncated(store: dict[str, Any], view: str) -> None:
    """Between two batches, after it was listed."""
    fs = pyarrow.fs.S3FileSystem(**for_pyarrow(store))
    log = b"".join(plain_batch(n, 1, 1000) for n in range(100))

    def put(data: bytes) -> None:
        with fs.open_output_stream(f"logs/truncated/topic-0/{0:020d}.log") as stream:
            stream.write(data)

    put(log)
    given = {"path": "s3://logs/truncated", "view": view, "mode": "FAILFAST", "prefetch": "0"}
    options = Options.parse(given | {"storageOptions": store})
    (task,) = plan_read(options)
    put(log[: len(log) // 2])
    with pytest.raises(ks.format.SourceReadError, match="the file was truncated"):
        list(scan_task(task, options))


def stored(store: dict[str, Any], folder: str) -> dict[str, bytes]:
    """The objects below a folder of a bucket, read by another library than the writer's."""
    fs = pyarrow.fs.S3FileSystem(**for_pyarrow(store))
    found = fs.get_file_info(pyarrow.fs.FileSelector(folder, recursive=True, allow_not_found=True))
    return {
        info.path.removeprefix(f"{folder}/"): fs.open_input_file(info.path).read()
        for info in found
        if info.type == pyarrow.fs.FileType.File
    }


def read_back(files: dict[str, bytes], *columns: str) -> list[dict[str, Any]]:
    found = []
    for name, data in files.items():
        if name.endswith(".parquet"):
            place = dict(part.split("=") for part in name.split("/")[:-1])
            table = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(data)).read(columns)
            found += [
                place | row | {"partition": int(place.get("partition", -1))}
                for row in table.to_pylist()
            ]
    return found


def test_jobs_write_into_a_store(spark: SparkSession, store: dict[str, Any]) -> None:
    """From local logs and from the store; the files are equal to those of a local folder."""
    given = {"storageOptions": json.dumps(store)}
    target = "s3://logs/out"
    for path in (str(DATA), "s3://logs/data"):
        output = f"{target}/{len(path)}"
        report = jobs.export(spark, path, output, topics="headers,transactions", **given)
        files = stored(store, output.removeprefix("s3://"))
        names = {name for name in files if not is_record(name)}
        assert names == {*report.manifest["output"].to_pylist(), "_SUCCESS"}
        assert all(len(files[row["output"]]) == row["bytes"] for row in report.manifest.to_pylist())
        names = ("topic", "partition", "offset", "value")
        expected = rows(path=str(DATA), topics="headers,transactions", columns=",".join(names))
        found = [{name: row[name] for name in names} for row in read_back(files, "offset", "value")]
        assert multiset(found) == multiset(expected)
        with pytest.raises(FileExistsError, match="s3://logs/out"):
            jobs.export(spark, path, output, **given)
    catalog = jobs.catalog(spark, str(DATA), f"{target}/catalog", verify=True, **given)
    files = stored(store, "logs/out/catalog")
    assert len(read_back(files, "crc_is_valid")) == catalog.summary["rows"] > 300


def test_the_store_that_is_written_to_may_be_another(
    spark: SparkSession, store: dict[str, Any]
) -> None:
    report = jobs.export(
        spark,
        DATA / "headers-0",
        "s3://logs/other",
        output_storage_options=store,
        storageOptions={"endpoint": "http://127.0.0.1:1"},
    )
    names = {name for name in stored(store, "logs/other") if not is_record(name)}
    assert names == {*report.manifest["output"].to_pylist(), "_SUCCESS"}


def test_an_object_appears_whole_or_not_at_all(
    store: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_batches(monkeypatch, 8)
    segment_path(tmp_path, "bad").write_bytes(damaged_log(40).flip(35, 70).log)
    given = {"path": str(tmp_path), "storageOptions": store}
    output = output_folder("s3://logs/whole", Options.parse(given))
    with pytest.raises(ks.ChecksumMismatchError):
        write_planned(output, **given)
    assert stored(store, "logs/whole") == {}
    segment_path(tmp_path, "bad").write_bytes(damaged_log(40).log)
    write_planned(output, **given)
    first = stored(store, "logs/whole")
    write_planned(output, **given)
    assert first == stored(store, "logs/whole"), "another attempt writes the same again"
    assert len(first) == 2, "a file, and the record that it is finished"


def test_files_are_renamed_on_file_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on HDFS: the file has a hidden name first."""
    local = pytest.importorskip("fsspec.implementations.local")
    (tmp_path / "data").write_bytes(b"x" * 1000)
    target = tmp_path / "out" / "topic=a" / "data.parquet"
    move, moved = local.LocalFileSystem.mv, []

    def watched(self: Any, source: str, *arguments: Any, **keywords: Any) -> None:
        moved.append(Path(source).name)
        move(self, source, *arguments, **keywords)

    monkeypatch.setattr(local.LocalFileSystem, "mv", watched)
    for _ in range(2):
        store = open_prefix(f"local://{tmp_path}/out", {})
        store.put("topic=a/data.parquet", str(tmp_path / "data"))
        assert moved[-1].startswith(".data.parquet.")
        assert moved[-1].endswith(".part")
        assert [path.name for path in target.parent.iterdir()] == ["data.parquet"]
    assert target.read_bytes() == b"x" * 1000


def test_leftovers_in_a_store_are_removed(tmp_path: Path) -> None:
    options = Options.parse({"path": "x"})
    folder = output_folder(f"local://{tmp_path}", options)
    (tmp_path / ".data.parquet.0123.part").touch()
    with folder.write("topic=a/data.parquet") as stream:
        stream.write(b"x")
    finish_folder(folder, ["topic=a/data.parquet"])
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert found == ["_SUCCESS", "topic=a", "topic=a/data.parquet"]
