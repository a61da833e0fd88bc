"""A driver of its own: does what lines of JSON on stdin say, and prints what it found as JSON.

python -m tests.spark.driver MASTER
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from pyspark.sql import SparkSession

from kafkascan.spark import frames, jobs, register
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
    conf = {"spark.executor.memory": "500m", "spark.cores.max": "2"}
    for name, value in (LOCAL | conf | json.loads(os.environ["SPARK_TEST_CONF"])).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main() -> None:
    spark = session(sys.argv[1])
    for line in sys.stdin:
        verb, *arguments = json.loads(line)
        work = {"export": export, "shipped": shipped, "views": views}[verb]
        print(json.dumps(work(spark, *arguments)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
