"""The log start offset (DeleteRecords): the same answers as the library's, in every view."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kafkascan as ks
from kafkascan.broker_state.checkpoints import LOG_START_CHECKPOINT
from kafkascan.broker_state.offset_checkpoints import CheckpointWarning
from kafkascan.logs.opened_logs import open_logs
from kafkascan.spark import jobs
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.planning.file_listing import list_logs
from kafkascan.spark.readers import frames
from tests.spark.logs import DATA, damaged_log, multiset, plain_batch, rows, s3_of, segment_path
from tests.spark.test_stream import Follower
from tests.support.segments import T0

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# In the middle of a batch of brokers, at the start of a segment, and after all records.
STARTS = {("small-segments", 0): 101, ("transactions", 0): 30, ("compacted", 0): 48}
TOPICS = {"topics": ",".join(topic for topic, _ in STARTS)}
SMALL = DATA / "small-segments-0"


def delete_records(data_dir: Path, starts: dict[tuple[str, int], int]) -> None:
    """Let logs start at offsets, as a broker does before it deletes segments."""
    ks.broker_state.write_offset_checkpoint(data_dir / LOG_START_CHECKPOINT, starts)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs of a broker that start inside of segments."""
    folder = tmp_path_factory.mktemp("deleted") / "data"
    for topic, partition in STARTS:
        name = f"{topic}-{partition}"
        shutil.copytree(DATA / name, folder / name)
    delete_records(folder, STARTS)
    return folder


def library_offsets(folder: Path, **options: Any) -> dict[tuple[str, int], list[int]]:
    return {
        (topic, partition): ks.read_records(folder / f"{topic}-{partition}", **options)[
            "offset"
        ].tolist()
        for topic, partition in STARTS
    }


def spark_offsets(path: Path | str, **options: Any) -> dict[tuple[str, int], list[int]]:
    found: dict[tuple[str, int], list[int]] = {one: [] for one in STARTS}
    for row in rows(path=str(path), **options):
        found[row["topic"], row["partition"]].append(row["offset"])
    return found


@pytest.mark.parametrize("start", [None, 0, 107])
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_records(folder: Path, isolation: Any, start: int | None) -> None:
    expected = library_offsets(folder, isolation=isolation, log_start_offset=start)
    given = {"isolationLevel": isolation, "logStartOffset": start}
    for size in (None, 400):
        found = spark_offsets(folder, **given, maxPartitionBytes=size)
        assert found == expected
    if start is None:
        assert expected["small-segments", 0][0] == 101
        assert expected["compacted", 0] == [] or expected["compacted", 0][0] >= 48


def test_batches(folder: Path) -> None:
    for start in (None, 0):
        table = ks.scan_log_dir(folder, log_start_offset=start).to_arrow(["topic", "base_offset"])
        expected = [tuple(row.values()) for row in table.to_pylist()]
        found = rows(path=str(folder), view="batches", logStartOffset=start)
        assert sorted((row["topic"], row["base_offset"]) for row in found) == sorted(expected)


def test_segments(folder: Path) -> None:
    """Whole segments, from the one that contains the start on; indexes belong to all of them."""
    found = rows(path=str(folder), view="segments", **TOPICS)
    everything = rows(path=str(folder), view="segments", logStartOffset="0")
    assert multiset(everything) == multiset(
        [row for file in folder.glob("*/*.log") for row in rows(path=str(file), view="segments")]
    )
    expected = [
        row
        for row in everything
        if any(
            segment.path == Path(row["path"])
            for log in open_logs(folder)
            for segment in log.served_segments
        )
    ]
    assert multiset(found) == multiset(expected)
    assert 0 < len(found) < len(everything)


def test_files_that_are_given_as_such(folder: Path) -> None:
    path = folder / SMALL.name / f"{0:020d}.log"
    assert rows(path=str(path))[0]["offset"] == 0
    assert rows(path=str(path), logStartOffset=5)[0]["offset"] == 5


def test_given_offsets_are_limited(folder: Path) -> None:
    def found(start: int, stop: int) -> list[int]:
        at = {"startingOffsets": start, "endingOffsets": stop}
        given = {name: json.dumps({"small-segments": {"0": at[name]}}) for name in at}
        return spark_offsets(folder, **given, topics="small-segments")["small-segments", 0]

    assert found(0, 110) == list(range(101, 110))
    assert found(105, 110) == list(range(105, 110))
    assert found(0, 101) == found(0, 50) == []


def test_timestamps_are_looked_up_after_the_start(tmp_path: Path) -> None:
    """A broker finds no deleted record: the time of offset 3 is found at the log start."""
    for base_offset in (0, 20, 40):
        parts = [plain_batch(base_offset + n, 5) for n in range(0, 20, 5)]
        segment_path(tmp_path, "a", base_offset=base_offset).write_bytes(b"".join(parts))
    delete_records(tmp_path, {("a", 0): 27})
    path = str(tmp_path)
    for time in (T0 + 3, T0 + 27, T0 + 28, T0 + 59):
        found = ks.lookup_timestamp(tmp_path / "a-0", time)
        assert found is not None
        by_time = rows(path=path, startingTimestamp=time)
        assert by_time[0]["offset"] == found.offset == max(27, time - T0)
        until = [row["offset"] for row in rows(path=path, endingTimestamp=time)]
        assert until == list(range(27, found.offset))
    assert rows(path=path, endingTimestamp=-2) == []
    assert rows(path=path, startingTimestamp=T0, logStartOffset=0)[0]["offset"] == 0


def test_damage_before_the_start_hides_records(tmp_path: Path) -> None:
    """Nothing is found after damaged headers, so records after the start are missing."""
    segment_path(tmp_path, "a").write_bytes(damaged_log().set(3, "magic", 9).log)
    delete_records(tmp_path, {("a", 0): 15})
    with pytest.raises(ks.CorruptBatchError):
        rows(path=str(tmp_path))
    (lost,) = rows(path=str(tmp_path), mode="PERMISSIVE")
    assert "position" in lost["_corrupt_record"]
    given = {"startingOffsets": '{"a":{"0":15}}', "logStartOffset": 0}
    with pytest.raises(ks.CorruptBatchError):
        rows(path=str(tmp_path), **given)
    assert rows(path=str(tmp_path), endingOffsets='{"a":{"0":4}}', logStartOffset=0)


@pytest.mark.parametrize("text", ["garbage", "0\n1\n", "0\n1\nsmall-segments 0 x\n"])
def test_a_checkpoint_that_brokers_ignore(folder: Path, tmp_path: Path, text: str) -> None:
    shutil.copytree(SMALL, tmp_path / SMALL.name)
    (tmp_path / LOG_START_CHECKPOINT).write_text(text)
    with pytest.warns(CheckpointWarning, match="is ignored"):
        assert rows(path=str(tmp_path))[0]["offset"] == 0
    fs = pytest.importorskip("fsspec").filesystem("memory")
    fs.put(f"{tmp_path}/", "/ignored/data/", recursive=True)
    with pytest.warns(CheckpointWarning, match="memory://.* is ignored"):
        assert rows(path="memory://ignored/data")[0]["offset"] == 0
    fs.store.clear()


def test_a_store(folder: Path, store: dict[str, Any]) -> None:
    """A checkpoint next to the partitions, also if only a partition is listed."""
    s3 = s3_of(store)
    bucket = "deleted"
    s3.mkdir(bucket)
    s3.put(f"{folder}/", f"{bucket}/data/", recursive=True)
    given = {"storageOptions": json.dumps(store)}
    url = f"s3://{bucket}/data"
    assert spark_offsets(url, **given) == library_offsets(folder)
    everything = library_offsets(folder, log_start_offset=0)
    assert spark_offsets(url, logStartOffset=0, **given) == everything
    paths = [f"{url}/small-segments-0", f"{url}/small-segments-0/"]
    for path in [*paths, f"{url}/small-seg*"]:
        assert rows(path=path, **given)[0]["offset"] == 101
    named = f"{url}/small-segments-0/{0:020d}.log"
    assert rows(path=named, **given)[0]["offset"] == 0


def test_a_store_without_a_checkpoint(folder: Path) -> None:
    fs = pytest.importorskip("fsspec").filesystem("memory")
    fs.put(f"{folder}/", "/plain/data/", recursive=True)
    fs.rm(f"/plain/data/{LOG_START_CHECKPOINT}")
    for path in ("memory://plain/data", "memory://plain/data/small-segments-0"):
        logs = list_logs(Options.parse({"path": path}))
        assert {log.log_start_offset for log in logs} == {0}
    fs.store.clear()


# ---- streams -----------------------------------------------------------------------------------


def test_a_stream_begins_at_the_log_start(folder: Path) -> None:
    pytest.importorskip("pyspark")
    for isolation in ("read_uncommitted", "read_committed"):
        stream = Follower(folder, isolationLevel=isolation, **TOPICS)
        assert stream.at["small-segments"] == {"0": 101}
        found = stream.read()
        for one, expected in library_offsets(folder, isolation=isolation).items():
            assert [offset for *name, offset in found if tuple(name) == one] == expected
    stream = Follower(folder, logStartOffset=0, **TOPICS)
    assert {next(iter(offsets.values())) for offsets in stream.at.values()} == {0}


def test_a_stream_whose_records_are_deleted(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    segment_path(tmp_path, "a").write_bytes(b"".join(plain_batch(n, 1) for n in range(30)))
    stream = Follower(tmp_path, maxOffsetsPerTrigger=5)
    assert len(stream.read()) == 5
    delete_records(tmp_path, {("a", 0): 5})
    assert stream.read() == [("a", 0, n) for n in range(5, 10)], "what was read may be deleted"
    delete_records(tmp_path, {("a", 0): 22})
    with pytest.raises(ValueError, match=r"a-0: offsets 10 to 21 no longer exist .*failOnDataLoss"):
        stream.read()
    with pytest.raises(ValueError, match="offsets 10 to 21 no longer exist"):
        stream.between({"a": {"0": 10}}, {"a": {"0": 30}})
    careless = Follower(tmp_path, start=stream.at, failOnDataLoss="false", maxOffsetsPerTrigger=5)
    assert careless.read() == [("a", 0, n) for n in range(22, 27)]
    on_disk = Follower(tmp_path, start=stream.at, logStartOffset=0)
    assert on_disk.read() == [("a", 0, n) for n in range(10, 30)]


def test_a_stream_of_a_log_whose_records_are_all_deleted(tmp_path: Path) -> None:
    """Its end is the log start, also if the segment is cut before it."""
    pytest.importorskip("pyspark")
    path = segment_path(tmp_path, "a")
    path.write_bytes(plain_batch(0) + plain_batch(2))
    delete_records(tmp_path, {("a", 0): 9})
    for options in ({}, {"isolationLevel": "read_committed"}):
        stream = Follower(tmp_path, **options)
        assert stream.at == Follower(tmp_path, startingOffsets="latest").at == {"a": {"0": 9}}
        assert stream.read() == []
        assert stream.at == {"a": {"0": 9}}
    segment_path(tmp_path, "a", base_offset=9).write_bytes(plain_batch(9))
    assert stream.read() == [("a", 0, 9), ("a", 0, 10)]


# ---- Spark -------------------------------------------------------------------------------------


def test_spark(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    """The data source, DataFrames, a stream and an export."""
    expected = library_offsets(folder)
    total = sum(map(len, expected.values()))
    source = spark.read.format("kafkascan").load(str(folder))
    assert source.count() == frames.records(spark, folder).count() == total
    everything = spark.read.format("kafkascan").option("logStartOffset", "0").load(str(folder))
    on_disk = library_offsets(folder, log_start_offset=0)
    assert everything.count() == sum(map(len, on_disk.values()))
    query = (
        spark.readStream.format("kafkascan")
        .option("startingOffsets", "earliest")
        .load(str(folder))
        .writeStream.format("memory")
        .queryName("log_starts")
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert spark.table("log_starts").count() == total
    report = jobs.export(spark, folder, str(tmp_path / "out"))
    assert report.summary["rows"] == total
