"""Streams of a running broker's files into Iceberg and Delta: each record exactly once."""

from __future__ import annotations

import json
import random
import re
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.oracle.brokers import KafkaBroker, remote_storage
from tests.oracle.build import ClassPaths
from tests.oracle.clients import JavaClients
from tests.oracle.jvm import wait_until
from tests.oracle.live_writer import LiveWriter
from tests.oracle.spark_kafka import SparkBeside, lake_conf
from tests.oracle.stage import Stage
from tests.support.examples import seeds

pytestmark = pytest.mark.oracle

_BROKER = {
    "log.retention.check.interval.ms": "300",
    "log.segment.delete.delay.ms": "100",
    "log.initial.task.delay.ms": "100",
}
_KILLS = len(seeds(3, least=2))
_STEADY_SECONDS = 8

Row = tuple[str, int, int]
"""Topic, partition and offset."""


@pytest.fixture(scope="module")
def stage(class_paths: ClassPaths, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    directory = tmp_path_factory.mktemp("lakes")
    config = remote_storage(directory / "remote") | _BROKER
    with KafkaBroker(directory, class_paths, config) as broker:
        log_file = directory / "clients.log"
        with JavaClients(class_paths.broker, broker.bootstrap_servers, log_file) as java:
            yield Stage(broker, java)


class Lakes:
    """Queries that write into tables, in drivers that die."""

    def __init__(self, folder: Path, stage: Stage) -> None:
        self.log_file = folder / "spark.log"
        self.queries: dict[str, dict[str, Any]] = {}
        self._folder, self._stage = folder, stage

    def add(self, sink: str, topic: str, **options: str) -> None:
        """Add a query of a topic's files into a table of its own."""
        given = {"path": str(self._stage.broker.data_dir), "subscribe": topic}
        self.add_source("kafkascan", sink, topic, given | options)

    def add_source(self, source: str, sink: str, topic: str, options: dict[str, str]) -> None:
        """Add a query of a source."""
        name = f"{sink}_{topic}"
        self.queries[name] = {
            "source": source,
            "options": {"startingOffsets": "earliest"} | options,
            "sink": sink,
            "table": f"ice.db.{topic}" if sink == "iceberg" else f"{self._folder}/{name}",
            "checkpoint": f"{self._folder}/checkpoints/{name}",
        }

    def driver(self) -> SparkBeside:
        """Start a driver that repeats tasks that fail."""
        # Without it, Spark before 4.2 ends after a micro-batch that an earlier driver began.
        whole = {"spark.sql.streaming.triggerAvailableNowWrapper.enabled": "true"}
        conf = lake_conf(self._folder) | whole
        return SparkBeside("local[2,8]", self.log_file, **conf)

    def run(self, spark: SparkBeside) -> None:
        """Start all queries, and wait until each of them has finished a micro-batch."""
        spark.ask("start", queries=self.queries)

        def have_begun() -> bool:
            batches = spark.ask("progress")
            assert all(isinstance(one, int) for one in batches.values()), batches
            return all(number >= 0 for number in batches.values())

        wait_until("micro-batches", have_begun)

    def rows(self, spark: SparkBeside, name: str) -> list[str]:
        """Return all rows of a query's table."""
        query = self.queries[name]
        found = spark.ask("rows", source=query["sink"], options={"path": query["table"]})
        return list(found["rows"])

    def values(self, spark: SparkBeside, name: str) -> list[tuple[Row, bytes]]:
        """Return the values of a query's table in Iceberg."""
        columns = "topic, partition, offset, cast(value as string)"
        found = spark.ask("sql", text=f"select {columns} from {self.queries[name]['table']}")
        return [((topic, int(one), int(at)), text.encode()) for topic, one, at, text in found]


def kill_drivers(lakes: Lakes, times: random.Random) -> None:
    """Kill drivers at random times after their first micro-batches."""
    for _ in range(_KILLS):
        with lakes.driver() as spark:
            lakes.run(spark)
            time.sleep(times.uniform(0, 3))
            spark.kill()


def kill_workers(lakes: Lakes, spark: SparkBeside, times: random.Random) -> int:
    """Kill the Python workers of a running driver; return their number."""
    killed = 0
    for _ in range(4):
        killed += spark.ask("kill_python", module="pyspark.daemon", parent="pyspark.daemon")
        time.sleep(times.uniform(0, 2))
    batches = spark.ask("progress").values()
    assert all(isinstance(one, int) for one in batches), f"tasks are repeated: {batches}"
    # The queries fail without the processes that know the offsets; restarted, they go on.
    planners = spark.ask("kill_python", module="streaming_source_runner", parent="java")
    assert planners == len(lakes.queries)
    wait_until(
        "the end of the queries",
        lambda: all(isinstance(one, str) for one in spark.ask("progress").values()),
    )
    lakes.run(spark)
    return killed + planners


def consumed(spark: SparkBeside, stage: Stage, topic: str, **options: str) -> list[str]:
    """Return the rows that a consumer gets, by Spark's Kafka source."""
    given = {"kafka.bootstrap.servers": stage.broker.bootstrap_servers, "subscribe": topic}
    return list(spark.ask("rows", source="kafka", options=given | options)["rows"])


def lags(spark: SparkBeside, lakes: Lakes, name: str, since: int) -> str:
    """Return the time from a record's timestamp to the commit that contains it, in a sentence."""
    table = lakes.queries[name]["table"]
    if lakes.queries[name]["sink"] == "iceberg":
        records = f"select _file, unix_millis(timestamp) from {table}"
        committed = f"""select data_file.file_path, unix_millis(committed_at)
            from {table}.entries join {table}.snapshots using (snapshot_id)"""
        commits = dict(spark.ask("sql", text=committed))
    else:
        records = f"select _metadata.file_name, unix_millis(timestamp) from delta.`{table}`"
        commits = dict(_delta_commits(Path(table)))
    found = [commits[file] - at for file, at in spark.ask("sql", text=records) if at >= since]
    middle = statistics.median(found)
    return f"{name}: {len(found)} records, lag median {middle:.0f} ms, longest {max(found)} ms"


def _delta_commits(table: Path) -> Iterator[tuple[str, int]]:
    """Yield the files of a table in Delta with the times of their commits."""
    for log in (table / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        (committed,) = [one["commitInfo"]["timestamp"] for one in actions if "commitInfo" in one]
        for one in actions:
            if "add" in one:
                yield one["add"]["path"], committed


def require_named(log: str, topic: str, kept: set[Row], missing: set[Row]) -> None:
    """Require that warnings name all offsets that were deleted before they were read."""
    # A file may be deleted before the plan of a micro-batch, or after it.
    pattern = rf"{topic}-(\d+)(?:/\d+\.log,|:) offsets (\d+) to (\d+)"
    named = {
        (topic, int(partition), offset)
        for partition, first, last in re.findall(pattern, log)
        for offset in range(int(first), int(last) + 1)
    }
    # What was deleted before the first query began is not lost.
    starts = {row[1]: row[2] for row in sorted(kept | named, reverse=True)}
    lost = {row for row in missing if row[2] >= starts[row[1]]}
    assert lost
    assert lost <= named, sorted(lost - named)[:10]


@pytest.mark.slow
def test_each_record_exactly_once(stage: Stage, tmp_path: Path) -> None:
    """Segments roll and are deleted, transactions are open, drivers and workers are killed."""
    stage.create_topic("killed", partitions=3, internal_segment_bytes="80000")
    stage.create_topic("decided", partitions=2, internal_segment_bytes="20000")
    small = {"internal_segment_bytes": "24000", "retention_bytes": "80000"}
    stage.create_topic("deleted", partitions=2, file_delete_delay_ms="100", **small)
    lakes = Lakes(tmp_path, stage)
    for sink in ("iceberg", "delta"):
        lakes.add(sink, "killed", maxOffsetsPerTrigger="2000")
    lakes.add("delta", "decided", isolationLevel="read_committed")
    lakes.add("iceberg", "deleted", failOnDataLoss="false")
    servers = stage.broker.bootstrap_servers
    seed = time.time_ns()
    print(f"seed {seed}")
    times = random.Random(seed)
    writers = ExitStack()
    with ExitStack() as running, writers:
        writer = writers.enter_context(LiveWriter(servers, {"killed": 3, "deleted": 2}))
        writers.enter_context(LiveWriter(servers, {"decided": 2}, 100, "decided"))
        kill_drivers(lakes, times)
        spark = running.enter_context(lakes.driver())
        lakes.run(spark)
        workers = kill_workers(lakes, spark, times)
        since = int(time.time() * 1000)
        time.sleep(_STEADY_SECONDS)
        writers.close()
        spark.ask("finish", queries=lakes.queries)
        for name in ("iceberg_killed", "delta_killed"):
            print(lags(spark, lakes, name, since))
        expected = consumed(spark, stage, "killed")
        written = {row for row in writer.written if row[0] == "killed"}
        assert len(expected) == len(written) > 1000
        assert lakes.rows(spark, "iceberg_killed") == expected
        assert lakes.rows(spark, "delta_killed") == expected
        committed = consumed(spark, stage, "decided", **{"kafka.isolation.level": "read_committed"})
        assert 100 < len(committed) < len(consumed(spark, stage, "decided"))
        assert lakes.rows(spark, "delta_decided") == committed
        found = lakes.values(spark, "iceberg_deleted")
    values = {row: value for row, value in writer.written.items() if row[0] == "deleted"}
    kept = dict(found)
    assert len(kept) == len(found), "an offset is there twice"
    assert kept == {row: values[row] for row in kept}
    assert 0 < len(kept) < len(values), "some were deleted before they were read"
    require_named(lakes.log_file.read_text(), "deleted", set(kept), values.keys() - kept.keys())
    print(f"killed: {_KILLS} drivers, {workers} processes of Python")
    print(f"records: {len(written)}, {len(committed)} committed, {len(kept)} of {len(values)} kept")


def test_a_backfill_from_files_and_a_live_query(stage: Stage, tmp_path: Path) -> None:
    """The live query reads from exactly the offsets where the read of the files ended."""
    small = {"internal_segment_bytes": "40000"}
    stage.create_topic("moved", partitions=3, **small)
    stage.create_topic("agreed", partitions=2, **small)
    remote = {"remote_storage_enable": "true", "local_retention_bytes": "1"}
    stage.create_topic("remote", partitions=2, segment_bytes="1048576", **remote)
    servers = stage.broker.bootstrap_servers
    data = {"path": str(stage.broker.data_dir)}
    files = {
        "moved": data,
        "agreed": data | {"isolationLevel": "read_committed"},
        "remote": {"path": str(stage.broker.directory / "remote"), "tieredLayout": "local"},
    }
    lakes = Lakes(tmp_path, stage)
    writers = ExitStack()
    with lakes.driver() as spark, writers:
        writers.enter_context(LiveWriter(servers, {"moved": 3}))
        writers.enter_context(LiveWriter(servers, {"remote": 2}, 8000))
        writers.enter_context(LiveWriter(servers, {"agreed": 2}, 100, "agreed"))
        tier = stage.broker.directory / "remote"
        wait_until("remote segments", lambda: len(list(tier.rglob("*.log"))) > 3)
        starts = {}
        for topic, options in files.items():
            given = options | {"topics": topic}
            ends = starts[topic] = str(spark.ask("end_offsets", options=given))
            time.sleep(1)  # the logs grow
            reading = {"source": "kafkascan", "options": given | {"endingOffsets": ends}}
            spark.ask("append", table=f"ice.db.{topic}", **reading)
            live = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": ends}
            live["kafka.isolation.level"] = options.get("isolationLevel", "read_uncommitted")
            lakes.add_source("kafka", "iceberg", topic, live)
        lakes.run(spark)
        time.sleep(3)
        writers.close()
        spark.ask("drain")
        for topic, ends in starts.items():
            level = lakes.queries[f"iceberg_{topic}"]["options"]["kafka.isolation.level"]
            expected = consumed(spark, stage, topic, **{"kafka.isolation.level": level})
            found = lakes.rows(spark, f"iceberg_{topic}")
            assert found == expected, topic
            at = json.loads(ends)[topic]
            assert all(at.values())
            print(f"{topic}: {len(found)} records, live from {at}")
