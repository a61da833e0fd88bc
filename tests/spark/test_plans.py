"""The plan of a read: one for DataFrames, the data source and jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkascan.spark import jobs
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.options.view_schemas import arrow_schema
from kafkascan.spark.planning.planned_logs import PlannedLog, PlannedSegment
from kafkascan.spark.planning.task_plan import ScanTask, plan
from kafkascan.spark.readers import frames
from tests.spark.logs import plain_batch, rows, segment_path


class Planned(Exception):  # noqa: N818 - not an error
    """Ends a job when its tasks are planned."""


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The tasks that the functions of DataFrames and jobs would run."""
    from kafkascan.spark.jobs import fleet_jobs

    found: list[Any] = []

    def record(spark: Any, tasks: list[ScanTask], *arguments: Any) -> None:
        found.append(tasks)
        raise Planned

    monkeypatch.setattr(frames, "map_tasks", record)
    monkeypatch.setattr(fleet_jobs, "map_tasks", record)
    return found


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 3 000 small files."""
    folder = tmp_path_factory.mktemp("many")
    for partition in range(3000):
        segment_path(folder, "topic", partition).write_bytes(plain_batch(0))
    return folder


@pytest.mark.parametrize(("view", "expected"), [("records", 24), ("batches", 8), ("segments", 8)])
def test_all_apis_plan_the_same_tasks(
    many: Path, planned: list[Any], view: str, expected: int
) -> None:
    pytest.importorskip("pyspark")
    from kafkascan.spark.readers.data_source import ScanReader

    options = Options.parse({"path": str(many), "view": view})
    by_source = [one.task for one in ScanReader(options, options.schema()).partitions()]
    assert len(by_source) == expected, "opening a file counts as 1 MiB"
    with pytest.raises(Planned):
        frames.view(None, view, many)  # type: ignore[arg-type]
    if view == "segments":
        with pytest.raises(Planned):
            jobs.verify(None, many)  # type: ignore[arg-type]
    assert planned == [by_source] * len(planned)


def logs_of_one_segment(count: int, size: int) -> list[PlannedLog]:
    return [
        PlannedLog(("t", n), (PlannedSegment(f"/data/t-{n}/{0:020d}.log", 0, size),))
        for n in range(count)
    ]


@pytest.mark.parametrize(
    ("count", "size", "given", "expected"),
    [
        (20_000, 100, {}, 157),
        (20_000, 100, {"view": "batches"}, 20),
        (20_000, 100, {"view": "batches", "minPartitions": 100}, 100),
        (1, 100, {}, 1),
        (1, 20 << 20, {}, 1),
        (1, 1 << 30, {}, 9),
        (1, 1 << 30, {"view": "segments"}, 1),
        (100, 1 << 30, {"view": "segments"}, 100),
        (10, 1 << 30, {"maxPartitionBytes": "1g"}, 11),
        (10, 1 << 30, {"maxPartitionBytes": "4g"}, 10),
    ],
)
def test_number_of_tasks(count: int, size: int, given: dict[str, Any], expected: int) -> None:
    planned = plan(logs_of_one_segment(count, size), Options.parse(given))
    assert abs(len(planned) - expected) <= 1 + expected // 50
    covered = sum(one.stop - one.start for task in planned for one in task.ranges)
    assert covered == count * size


def test_offsets_of_unknown_partitions(tmp_path: Path) -> None:
    for partition in range(2):
        segment_path(tmp_path, "a", partition).write_bytes(plain_batch(0))
    path = str(tmp_path)
    for name in ("startingOffsets", "endingOffsets"):
        for json, missing in (
            ('{"b":{"0":1}}', "b-0"),
            ('{"a":{"0":0,"7":1,"8":1}}', "a-7, a-8"),
            ({"b": {str(n): 1 for n in range(9)}}, "b-0, b-1, b-2, b-3, b-4 and 4 more"),
        ):
            message = f"{name} contains partitions that the read does not find: {missing}"
            with pytest.raises(ValueError, match=message):
                frames.plan_read(Options.parse({"path": path, name: json}))
    with pytest.raises(ValueError, match="does not find: a-1"):
        frames.plan_read(
            Options.parse({"path": path, "partitions": "0", "startingOffsets": '{"a":{"1":0}}'})
        )
    assert len(rows(path=path, startingOffsets='{"a":{"0":1}}')) == 3


def test_memory_of_a_plan() -> None:
    """A plan of 100,000 tasks takes 24 MiB besides the listed files: 250 bytes a task."""
    import tracemalloc

    count = 10_000
    files = [
        PlannedSegment(f"/data/topic-0/{n * 1000:020d}.log", n * 1000, 1 << 30, 0)
        for n in range(count)
    ]
    log = PlannedLog(("topic", 0), tuple(files))
    options = Options.parse({"path": "/data", "view": "batches"})
    tracemalloc.start()
    try:
        planned = plan([log], options)
        size, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(planned) == count
    assert size < 230 * count
    assert peak < 270 * count


@pytest.mark.parametrize(
    ("size", "options", "warns"),
    [
        (1 << 30, {}, True),
        (1 << 29, {}, False),
        (1 << 30, {"columns": "topic,offset"}, False),
        (1 << 30, {"where": "segment = 'x'"}, False),
        (1 << 30, {"view": "batches"}, False),
    ],
)
def test_a_large_read_of_all_columns_is_warned_of(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    size: int,
    options: dict[str, str],
    warns: bool,
) -> None:
    pandas_types = pytest.importorskip("pyspark.sql.pandas.types")
    from kafkascan.spark.readers.data_source import KafkaScanSource

    with segment_path(tmp_path, "topic").open("wb") as file:
        file.truncate(size)
    given = {"path": str(tmp_path)} | options
    schema = pandas_types.from_arrow_schema(arrow_schema(Options.parse(given).schema()))
    KafkaScanSource(given).reader(schema).partitions()
    assert len(caplog.messages) == warns
    assert all("option columns" in message for message in caplog.messages)


def test_a_schema_names_columns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    types = pytest.importorskip("pyspark.sql.types")
    from kafkascan.spark.readers.data_source import KafkaScanSource

    with segment_path(tmp_path, "topic").open("wb") as file:
        file.truncate(1 << 30)
    offset = types.StructType([types.StructField("offset", types.LongType())])
    KafkaScanSource({"path": str(tmp_path)}).reader(offset).partitions()
    assert caplog.messages == []


def test_options_of_sparks_kafka_source_are_explained_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pandas_types = pytest.importorskip("pyspark.sql.pandas.types")
    from kafkascan.spark.readers.data_source import KafkaScanSource

    schema = pandas_types.from_arrow_schema(arrow_schema(Options.parse({}).schema()))
    files = {"path": str(tmp_path), "subscribe": "x"}
    connection = {"kafka.bootstrap.servers": "x:9092", "groupidprefix": "y"}
    KafkaScanSource(files).reader(schema)
    assert caplog.messages == []
    KafkaScanSource(files | connection).reader(schema)
    (message,) = caplog.messages
    assert message.endswith("are ignored: groupIdPrefix, kafka.bootstrap.servers")
    KafkaScanSource(files | connection).streamReader(schema)
    assert caplog.messages == [message] * 2
    with pytest.raises(ValueError, match="no option 'groupIdPrefixes'"):
        KafkaScanSource(files | {"groupIdPrefixes": "y"})
