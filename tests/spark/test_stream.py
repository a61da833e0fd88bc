"""Streams: offsets, admission, deleted segments and damage."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kafkascan as ks
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.planning.read_plan import plan_read
from kafkascan.spark.rows.task_scan import scan_task
from tests.spark.logs import damaged_log, plain_batch, segment_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")
KNOWS_LIMITS = importlib.util.find_spec("pyspark.sql.streaming.datasource") is not None


class Follower:
    """A model of Spark's micro-batches: get offsets, plan, read, and keep the end."""

    def __init__(self, folder: Path, start: dict[str, Any] | None = None, **options: Any) -> None:
        from kafkascan.spark.readers.stream_reader import StreamReader

        given = {"path": str(folder), "startingOffsets": "earliest"} | options
        parsed = Options.parse(given)
        self.reader = StreamReader(parsed, parsed.schema())
        self.at = self.reader.initialOffset() if start is None else start
        # Before 4.2, Spark knows no limits, and asks for none.
        self.limit: Any = self.reader.getDefaultReadLimit() if KNOWS_LIMITS else None

    def read(self) -> list[tuple[str, int, int]]:
        """The records of the next micro-batch: topic, partition, offset."""
        end = self.reader.latestOffset(self.at, self.limit)
        found = self.between(self.at, end)
        self.at = end
        return found

    def between(self, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[str, int, int]]:
        return sorted(
            (row["topic"], row["partition"], row["offset"])
            for partition in self.reader.partitions(start, end)
            for batch in self.reader.read(partition)
            for row in batch.to_pylist()
        )


def append(path: Path, *parts: bytes) -> None:
    with path.open("ab") as file:
        for part in parts:
            file.write(part)


def test_a_log_that_grows(tmp_path: Path) -> None:
    path = segment_path(tmp_path, "a")
    append(path, plain_batch(0), plain_batch(2))
    stream = Follower(tmp_path)
    assert stream.at == {"a": {"0": 0}}
    assert stream.read() == [("a", 0, n) for n in range(4)]
    assert stream.at == {"a": {"0": 4}}
    assert stream.read() == []
    append(path, plain_batch(4))
    append(segment_path(tmp_path, "a", base_offset=6), plain_batch(6))
    append(segment_path(tmp_path, "b", 10), plain_batch(0, 1))
    assert stream.read() == [("a", 0, 4), ("a", 0, 5), ("a", 0, 6), ("a", 0, 7), ("b", 10, 0)]
    assert stream.at == {"a": {"0": 8}, "b": {"10": 1}}
    assert stream.reader.reportLatestOffset() == stream.at


def test_starting_offsets(tmp_path: Path) -> None:
    append(segment_path(tmp_path, "a"), plain_batch(0), plain_batch(2))
    append(segment_path(tmp_path, "b", base_offset=7), plain_batch(7))
    both = {"a": {"0": 4}, "b": {"0": 9}}
    assert Follower(tmp_path, startingOffsets=None).at == both
    assert Follower(tmp_path, startingOffsets="latest").at == both
    assert Follower(tmp_path, startingOffsets="earliest").at == {"a": {"0": 0}, "b": {"0": 7}}
    given = '{"a":{"0":1},"b":{"0":-1}}'
    assert Follower(tmp_path, startingOffsets=given).at == {"a": {"0": 1}, "b": {"0": 9}}
    late = Follower(tmp_path, startingOffsets=None, startingTimestamp=1_714_000_000_003)
    assert late.at == {"a": {"0": 3}, "b": {"0": 7}}
    times = '{"a":{"0":1714000000003},"b":{"0":-1}}'
    assert Follower(tmp_path, startingOffsetsByTimestamp=times).at == {"a": {"0": 3}, "b": {"0": 9}}
    times = '{"a":{"0":-2}}'
    assert Follower(tmp_path, startingOffsetsByTimestamp=times).at == {"a": {"0": 0}, "b": {"0": 7}}
    with pytest.raises(ValueError, match="no record is at or after"):
        Follower(tmp_path, startingTimestamp=1_714_000_000_008)
    lenient = {"startingOffsetsByTimestampStrategy": "latest"}
    assert Follower(tmp_path, startingTimestamp=1_714_000_000_008, **lenient).at["a"] == {"0": 4}


def test_starting_offsets_of_a_partition_that_does_not_exist(tmp_path: Path) -> None:
    append(segment_path(tmp_path, "a"), plain_batch(0))
    with pytest.raises(ValueError, match=r"startingOffsets contains partitions .*: b-0"):
        Follower(tmp_path, startingOffsets='{"b":{"0":1}}')


def test_a_topic_that_does_not_exist_yet(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    append(segment_path(tmp_path, "a"), plain_batch(0))
    stream = Follower(tmp_path, topics="a,b")
    assert caplog.messages == ["no log of the topic b exists yet"]
    append(segment_path(tmp_path, "b"), plain_batch(0, 1))
    assert stream.read() == [("a", 0, 0), ("a", 0, 1), ("b", 0, 0)]


def test_incomplete_batches_wait(tmp_path: Path) -> None:
    path = segment_path(tmp_path, "a")
    batch = plain_batch(2)
    append(path, plain_batch(0), batch[:-1])
    stream = Follower(tmp_path)
    assert len(stream.read()) == 2
    append(path, batch[-1:])
    assert len(stream.read()) == 2
    # A preallocated file: the header is there, the rest is still zeros.
    third = plain_batch(4)
    with path.open("r+b") as file:
        file.seek(0, 2)
        position = file.tell()
        file.write(third[:80] + bytes(len(third) - 80 + 500))
    assert stream.read() == []
    with path.open("r+b") as file:
        file.seek(position)
        file.write(third)
    assert stream.read() == [("a", 0, 4), ("a", 0, 5)]


def test_a_micro_batch_is_the_same_when_it_is_read_again(tmp_path: Path) -> None:
    path = segment_path(tmp_path, "a")
    append(path, plain_batch(0), plain_batch(2, 5))
    stream = Follower(tmp_path)
    start, end = {"a": {"0": 1}}, {"a": {"0": 4}}
    found = stream.between(start, end)
    assert found == [("a", 0, 1), ("a", 0, 2), ("a", 0, 3)]
    append(path, plain_batch(7))
    assert Follower(tmp_path, start=start).between(start, end) == found


def test_admission(tmp_path: Path) -> None:
    append(segment_path(tmp_path, "a"), *[plain_batch(n, 1) for n in range(30)])
    append(segment_path(tmp_path, "b"), *[plain_batch(n, 1) for n in range(10)])
    everything = [("a", 0, n) for n in range(30)] + [("b", 0, n) for n in range(10)]
    for options in (
        {"maxOffsetsPerTrigger": 8},
        {"maxBytesPerTrigger": 8 * len(plain_batch(0, 1))},
    ):
        stream = Follower(tmp_path, **options)
        found, sizes = [], []
        while rows := stream.read():
            found += rows
            sizes.append(len(rows))
        assert sorted(found) == everything, options
        assert max(sizes) <= 10
        assert len(sizes) >= 4


def test_available_now_stops_at_its_end(tmp_path: Path) -> None:
    path = segment_path(tmp_path, "a")
    append(path, plain_batch(0))
    stream = Follower(tmp_path)
    stream.reader.prepareForTriggerAvailableNow()
    append(path, plain_batch(2))
    assert len(stream.read()) == 2
    assert stream.read() == []


def test_deleted_segments(tmp_path: Path) -> None:
    for base_offset in (0, 10, 20):
        append(segment_path(tmp_path, "a", base_offset=base_offset), plain_batch(base_offset, 10))
    stream = Follower(tmp_path)
    stream.at = {"a": {"0": 10}}
    segment_path(tmp_path, "a").rename(tmp_path / "a-0" / f"{0:020d}.log.deleted")
    assert len(stream.read()) == 20, "segments that were read may be deleted"
    segment_path(tmp_path, "a", base_offset=10).unlink()
    with pytest.raises(ValueError, match=r"a-0: offsets 10 to 19 no longer exist .*failOnDataLoss"):
        Follower(tmp_path, start={"a": {"0": 10}}).read()
    careless = Follower(tmp_path, start={"a": {"0": 10}}, failOnDataLoss="false")
    assert careless.read() == [("a", 0, n) for n in range(20, 30)]
    segment_path(tmp_path, "a", base_offset=20).unlink()
    with pytest.raises(ValueError, match="no longer exists"):
        Follower(tmp_path, start={"a": {"0": 30}}).read()


def test_a_partition_that_is_gone_for_some_time(tmp_path: Path) -> None:
    """Spark before 4.2 does not pass the start: what is there again is not read twice."""
    append(segment_path(tmp_path, "a"), plain_batch(0, 10))
    append(segment_path(tmp_path, "b"), plain_batch(0, 10))
    streams = [Follower(tmp_path, failOnDataLoss=value) for value in ("true", "false")]
    both = {"a": {"0": 10}, "b": {"0": 10}}
    assert [stream.reader.latestOffset() for stream in streams] == [both, both]
    (tmp_path / "a-0").rename(tmp_path / "a-0.0123456789abcdef0123456789abcdef-future")
    careful, careless = (stream.reader for stream in streams)
    with pytest.raises(ValueError, match="a-0 no longer exists; the stream was at offset 10"):
        careful.latestOffset()
    append(segment_path(tmp_path, "b"), plain_batch(10, 1))
    end = {"a": {"0": 10}, "b": {"0": 11}}
    assert careless.latestOffset() == end
    assert streams[1].between(both, end) == [("b", 0, 10)]
    # A query that goes on from a checkpoint finds out with the start of its first micro-batch.
    with pytest.raises(ValueError, match="a-0 no longer exists"):
        Follower(tmp_path, start=both).between(both, {"b": {"0": 11}})


def test_a_segment_deleted_after_the_plan(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A warning names the offsets that the task no longer finds."""
    for base_offset in (0, 10, 20):
        append(segment_path(tmp_path, "a", base_offset=base_offset), plain_batch(base_offset, 10))
    careless = Follower(tmp_path, failOnDataLoss="false")
    end = careless.reader.latestOffset(careless.at, careless.limit)
    partitions = careless.reader.partitions({"a": {"0": 4}}, end)
    path = segment_path(tmp_path, "a", base_offset=0)
    path.unlink()
    read = [rows for one in partitions for rows in careless.reader.read(one)]
    found = [offset for rows in read for offset in rows["offset"].to_pylist()]
    assert found == list(range(10, 30))
    assert caplog.messages == [f"ignored missing file: {path}, offsets 4 to 9"]


def test_damage(tmp_path: Path) -> None:
    path = segment_path(tmp_path, "a")
    path.write_bytes(damaged_log().set(5, "magic", 9).log)
    with pytest.raises(ks.CorruptBatchError, match=f"{path}: position"):
        Follower(tmp_path).read()
    waiting = Follower(tmp_path, mode="PERMISSIVE")
    assert len(waiting.read()) == 10
    assert waiting.read() == []
    append(segment_path(tmp_path, "a", base_offset=24), plain_batch(24))
    assert [offset for _, _, offset in waiting.read()] == [10, 24, 25], "one row for what is lost"
    assert waiting.read() == []


def test_a_recreated_topic(tmp_path: Path) -> None:
    path = segment_path(tmp_path, "a")
    append(path, plain_batch(0), plain_batch(2))
    stream = Follower(tmp_path, failOnDataLoss="false")
    assert len(stream.read()) == 4
    path.write_bytes(b"".join(plain_batch(n, 1, 33) for n in range(9)))
    assert stream.read() == [("a", 0, n) for n in range(4, 9)], "as Kafka's source goes on"


def test_ends_of_a_batch_read(tmp_path: Path) -> None:
    """Where a read ends, another one starts; what a broker is writing belongs to the later one."""
    from kafkascan.spark import end_offsets

    path = segment_path(tmp_path, "a")
    append(path, plain_batch(0), plain_batch(2), plain_batch(4)[:70])
    append(segment_path(tmp_path, "b", base_offset=7), plain_batch(7))
    assert json.loads(end_offsets(tmp_path)) == {"a": {"0": 4}, "b": {"0": 9}}
    assert end_offsets([tmp_path], topics="b") == '{"b": {"0": 9}}'
    given = '{"a":{"0":3},"b":{"0":2}}'
    assert json.loads(end_offsets(tmp_path, endingOffsets=given)) == {"a": {"0": 3}, "b": {"0": 7}}
    ends = end_offsets(str(tmp_path), topics="a")
    append(path, plain_batch(4)[70:], plain_batch(6))

    def offsets(**bounds: str) -> list[int]:
        given = {"path": str(tmp_path), "topics": "a", "columns": "offset"}
        options = Options.parse(given | bounds)
        rows = [rows for task in plan_read(options) for rows in scan_task(task, options)]
        return [offset for one in rows for offset in one["offset"].to_pylist()]

    assert offsets(endingOffsets=ends) == [0, 1, 2, 3]
    assert offsets(startingOffsets=ends) == [4, 5, 6, 7]
    assert end_offsets(tmp_path, topics="a", endingOffsets=ends) == ends
    for missing in ({"topics": "c"}, {"topics": "a,c"}):
        with pytest.raises(FileNotFoundError, match="no segments of the selected topics"):
            end_offsets(tmp_path, **missing)
    with pytest.raises(FileNotFoundError):
        end_offsets(tmp_path / "nowhere")


def test_unsupported_options(tmp_path: Path) -> None:
    for options in ({"view": "batches"}, {"endingOffsets": '{"a":{"0":3}}'}):
        with pytest.raises(ValueError, match=r"a stream (has|requires)"):
            Follower(tmp_path, **options)
    append(segment_path(tmp_path / "one", "a"), plain_batch(0))
    append(segment_path(tmp_path / "two", "a"), plain_batch(0))
    with pytest.raises(ValueError, match=r"a-0 is in .*one.* and in .*two"):
        Follower(tmp_path, path=None, paths=[str(tmp_path / "one"), str(tmp_path / "two")])
    odd = tmp_path / "odd" / "folder"
    odd.mkdir(parents=True)
    (odd / f"{0:020d}.log").write_bytes(plain_batch(0))
    with pytest.raises(ValueError, match="folders named topic-partition"):
        Follower(odd)


def test_spark_restarts_from_a_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    logs, out, checkpoint = (str(tmp_path / name) for name in ("logs", "out", "checkpoint"))
    path = segment_path(tmp_path / "logs", "a")
    append(path, *[plain_batch(n, 1) for n in range(10)])

    def run() -> list[int]:
        query = (
            spark.readStream.format("kafkascan")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "6")
            .load(logs)
            .writeStream.format("parquet")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start(out)
        )
        assert query.awaitTermination(120)
        return [progress["numInputRows"] for progress in query.recentProgress]

    assert run() == ([6, 4] if KNOWS_LIMITS else [10])
    append(path, plain_batch(10, 1))
    append(segment_path(tmp_path / "logs", "b", 3), plain_batch(0, 2))
    assert sum(run()) == 3
    found = spark.read.parquet(out).select("topic", "partition", "offset").collect()
    expected = [("a", 0, n) for n in range(11)] + [("b", 3, 0), ("b", 3, 1)]
    assert sorted(map(tuple, found)) == expected
    offsets = sorted(
        (tmp_path / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda p: int(p.name)
    )
    assert offsets[-1].read_text().splitlines()[-1] == '{"a": {"0": 11}, "b": {"3": 2}}'
