"""A driver of its own: does what lines of JSON on stdin say, and prints what it found as JSON.

python -m tests.spark.driver MASTER
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession

from kafkascan.spark import frames, jobs, register
from kafkascan.spark.exports import export_task
from kafkascan.spark.files import list_files
from kafkascan.spark.options import Options
from kafkascan.spark.plan import plan
from kafkascan.spark.scan import scan_task
from kafkascan.spark.schemas import ddl
from tests.spark.conftest import LOCAL
from tests.spark.logs import multiset

_VIEWS: dict[str, dict[str, Any]] = {
    "records": {"includeHeaders": True, "maxPartitionBytes": 150_000, "openCostInBytes": 1000},
    "batches": {"checkCrcs": True},
}


def views(spark: SparkSession, path: str) -> dict[str, Any]:
    """Every view by both doors; on a cluster, Spark finds the data source by itself."""
    found: dict[str, Any] = {}
    for view, options in _VIEWS.items():
        reader = spark.read.format("kafkascan").options(view=view, **options)
        source = reader.load(path)
        frame = frames.view(spark, view, path, **options)
        found[f"{view} by source"] = multiset(source.toArrow().to_pylist())
        found[f"{view} by frame"] = multiset(frame.toArrow().to_pylist())
    report = jobs.verify(spark, path)
    found["verify"] = report.summary
    return found


def export(spark: SparkSession, path: str, output: str) -> dict[str, Any]:
    """Export in many tasks."""
    report = jobs.export(spark, path, output, maxPartitionBytes=400_000, openCostInBytes=1000)
    return {"summary": report.summary, "outputs": sorted(report.manifest["output"].to_pylist())}


def speculated(spark: SparkSession, path: str, output: str, marks: str) -> dict[str, Any]:
    """Rows and an export, where one task does all its work and then does not end."""

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

    options = Options.parse({"path": path, "maxPartitionBytes": 400_000, "openCostInBytes": 1000})
    tasks = plan(list_files(options), options)
    rows = frames.map_tasks(spark, tasks, slow(scan_task, "rows"), options, ddl(options.schema()))
    found = multiset(rows.toArrow().to_pylist())
    jobs.export_task = slow(export_task, "export")
    try:
        return {"rows": found} | export(spark, path, output)
    finally:
        jobs.export_task = export_task


def shipped(spark: SparkSession, path: str) -> dict[str, Any]:
    """Where the executors take kafkascan from, and what it finds there."""

    def find(batches: Any) -> Any:
        import kafkascan

        for batch in batches:
            yield batch.from_pydict({"file": [kafkascan.__file__]})

    (row,) = spark.range(1).mapInArrow(find, "file string").collect()
    return {"file": row.file, "rows": frames.records(spark, path).count()}


def session(master: str) -> SparkSession:
    """A session on a cluster, or of Spark Connect."""
    if master.startswith("connect:"):
        spark = SparkSession.builder.remote(master.removeprefix("connect:")).getOrCreate()
        register(spark)  # there, Spark finds no data source by itself
        return spark
    builder = SparkSession.builder.master(master)
    conf = {"spark.executor.memory": "500m", "spark.cores.max": "2", "spark.executor.cores": "1"}
    # A task that takes longer than others is started again, on the other worker.
    conf |= {"spark.speculation": "true", "spark.speculation.interval": "100ms"}
    conf |= {"spark.speculation.quantile": "0.5", "spark.speculation.minTaskRuntime": "2s"}
    for name, value in (LOCAL | conf | json.loads(os.environ["SPARK_TEST_CONF"])).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main() -> None:
    spark = session(sys.argv[1])
    for line in sys.stdin:
        verb, *arguments = json.loads(line)
        work = {"export": export, "shipped": shipped, "speculated": speculated, "views": views}[
            verb
        ]
        print(json.dumps(work(spark, *arguments)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
