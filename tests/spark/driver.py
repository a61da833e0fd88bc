"""A driver in a process of its own: receives commands as lines of JSON and answers in JSON.

spark-submit … driver.py PORT
python -m tests.spark.driver sc://HOST:PORT PORT
"""

from __future__ import annotations

import json
import runpy
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession

from kafkascan.spark import jobs, register
from kafkascan.spark.jobs import fleet_jobs
from kafkascan.spark.jobs.export_tasks import write_outputs
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.options.view_schemas import ddl
from kafkascan.spark.planning.file_listing import list_logs
from kafkascan.spark.planning.task_plan import plan
from kafkascan.spark.readers import frames, state_frames
from kafkascan.spark.rows.task_scan import scan_task
from tests.spark.logs import VIEWS, multiset


def views(spark: SparkSession, path: str) -> dict[str, Any]:
    """Every view by both APIs; on a cluster, Spark discovers the data source by itself."""
    found: dict[str, Any] = {}
    for view, options in VIEWS.items():
        reader = spark.read.format("kafkascan").options(view=view, **options)
        source = reader.load(path)
        frame = frames.view(spark, view, path, **options)
        found[f"{view} by source"] = multiset(source.toArrow().to_pylist())
        found[f"{view} by frame"] = multiset(frame.toArrow().to_pylist())
    report = jobs.verify(spark, path)
    found["verify"] = report.summary
    return found


def state(spark: SparkSession, view: str, path: str, table: str) -> dict[str, int]:
    """A table of Kafka's own topics, in the data dirs of a fleet."""
    frame = getattr(state_frames, view)(spark, path, table=table)
    return dict(multiset(frame.toArrow().to_pylist()))


def export(spark: SparkSession, path: str, output: str, resume: bool = False) -> dict[str, Any]:
    """Export in many tasks."""
    cut = {"maxPartitionBytes": 400_000}
    report = jobs.export(spark, path, output, resume=resume, **cut)
    return {"summary": report.summary, "outputs": sorted(report.manifest["output"].to_pylist())}


def resumed(spark: SparkSession, path: str, output: str) -> dict[str, Any]:
    """Export what an earlier run did not finish."""
    return export(spark, path, output, resume=True)


def speculated(spark: SparkSession, path: str, output: str, marks: str) -> dict[str, Any]:
    """Rows and an export, where one task finishes its work and then does not end."""

    def slow(work: Any, name: str) -> Any:
        def run(task: Any, argument: Any) -> Iterator[Any]:
            context = TaskContext.get()
            assert context is not None
            yield from work(task, argument)
            number, attempt = context.partitionId(), context.attemptNumber()
            (Path(marks) / f"{name}-{number}-{attempt}").touch()
            if (number, attempt) == (0, 0):
                time.sleep(600)

        return run

    options = Options.parse({"path": path, "maxPartitionBytes": 400_000})
    tasks = plan(list_logs(options), options)
    rows = frames.map_tasks(spark, tasks, slow(scan_task, "rows"), options, ddl(options.schema()))
    found = multiset(rows.toArrow().to_pylist())
    fleet_jobs.write_outputs = slow(write_outputs, "export")
    try:
        return {"rows": found} | export(spark, path, output)
    finally:
        fleet_jobs.write_outputs = write_outputs


def shipped(spark: SparkSession, path: str) -> dict[str, Any]:
    """The path that executors import kafkascan from, and a count of records."""

    def find(batches: Any) -> Any:
        import kafkascan

        for batch in batches:
            yield batch.from_pydict({"file": [kafkascan.__file__]})

    (row,) = spark.range(1).mapInArrow(find, "file string").collect()
    return {"file": row.file, "rows": frames.records(spark, path).count()}


def from_py_files(spark: SparkSession, path: str) -> dict[str, int]:
    """Count the records per topic, whose names a module of ``--py-files`` changes."""

    def shout(batches: Iterator[Any]) -> Iterator[Any]:
        import shouting

        for batch in batches:
            names = [shouting.loud(name) for name in batch.column("topic").to_pylist()]
            yield batch.from_pydict({"topic": names})

    frame = spark.read.format("kafkascan").load(path).select("topic")
    counts = frame.mapInArrow(shout, "topic string").groupBy("topic").count().collect()
    return {row["topic"]: row["count"] for row in counts}


def job(spark: SparkSession, main: str, path: str) -> None:
    """Run a job as spark-submit runs it; it prints its manifest, and ends the process."""
    sys.argv = [main, "verify", "--format", "jsonl", path]
    runpy.run_path(main, run_name="__main__")


VERBS: dict[str, Callable[..., Any]] = {
    work.__name__: work
    for work in (export, from_py_files, job, resumed, shipped, speculated, state, views)
}


def main() -> None:
    *remote, port = sys.argv[1:]
    if remote:
        spark = SparkSession.builder.remote(remote[0]).getOrCreate()
        register(spark)  # a Connect server discovers no data sources
    else:
        spark = SparkSession.builder.getOrCreate()
    with socket.create_connection(("127.0.0.1", int(port))) as server:
        stream = server.makefile("rw")
        for line in stream:
            verb, *arguments = json.loads(line)
            stream.write(json.dumps(VERBS[verb](spark, *arguments)) + "\n")
            stream.flush()
    spark.stop()


if __name__ == "__main__":
    main()
