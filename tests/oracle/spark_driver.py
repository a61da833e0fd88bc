"""Run the same queries on Spark's Kafka source and on kafkascan: JSON lines in and out.

python -m tests.oracle.spark_driver MASTER JARS CONF
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from kafkascan.spark import recommended_conf, register
from kafkascan.spark.readers import frames

Spec = dict[str, Any]
"""A format and its options; ``frame`` is kafkascan's data frame function."""


def read(spark: SparkSession, source: str, options: Spec) -> DataFrame:
    if source == "frame":
        given = dict(options)
        return frames.records(spark, given.pop("path"), **given)
    return spark.read.format(source).options(**options).load()


def rows(spark: SparkSession, source: str, options: Spec) -> Any:
    """Return the schema and the sorted rows."""
    frame = read(spark, source, options)
    return {"schema": frame.schema.simpleString(), "rows": comparable(frame)}


def comparable(frame: DataFrame) -> list[str]:
    """Format values: times in microseconds UTC, bytes as Python literals."""
    found = []
    for row in frame.selectExpr("*", "unix_micros(timestamp) as micros").collect():
        values = row.asDict(recursive=True)
        headers = values.pop("headers", None)
        values["headers"] = headers and [(pair["key"], _bytes(pair["value"])) for pair in headers]
        values["key"], values["value"] = _bytes(row.key), _bytes(row.value)
        del values["timestamp"]
        found.append(repr(sorted(values.items())))
    return sorted(found)


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def follow(
    spark: SparkSession, source: str, options: Spec, out: str, checkpoint: str
) -> dict[str, Any]:
    """Run a stream over the available data; return all rows and the current offsets."""
    query = (
        spark.readStream.format(source)
        .options(**options)
        .load()
        .writeStream.format("parquet")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(out)
    )
    query.awaitTermination()
    offsets = max((Path(checkpoint) / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    at = json.loads(offsets.read_text().splitlines()[-1])
    return {"rows": comparable(spark.read.parquet(out)), "at": at}


def measure(spark: SparkSession, specs: list[tuple[str, Spec]], rounds: int) -> Any:
    """Return wall and CPU seconds of reading everything; the specs take turns."""
    found: list[list[tuple[float, float]]] = [[] for _ in specs]
    for number in range(rounds + 1):
        for times, (source, options) in zip(found, specs, strict=True):
            cpu, start = cpu_seconds(), time.perf_counter()
            read(spark, source, options).write.format("noop").mode("overwrite").save()
            took = time.perf_counter() - start, cpu_seconds() - cpu
            if number:  # the first round is for the JVM to get warm
                times.append(took)
    return found


def cpu_seconds() -> float:
    """Return the CPU time of this process, the JVM and the Python workers."""
    below: dict[int, list[int]] = {}
    used: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        pid = int(path.parent.name)
        below.setdefault(int(fields[1]), []).append(pid)
        # User and system time, including that of ended children.
        used[pid] = sum(map(int, fields[11:15]))
    total, waiting = 0, [os.getpid()]
    while waiting:
        pid = waiting.pop()
        total += used.get(pid, 0)
        waiting += below.get(pid, [])
    return total / os.sysconf("SC_CLK_TCK")


def main() -> None:
    master, jars, conf = sys.argv[1:]
    builder = SparkSession.builder.master(master).config("spark.jars", jars)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2",
    }
    for name, value in (recommended_conf() | settings | json.loads(conf)).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    verbs = {"rows": rows, "follow": follow, "measure": measure}
    for line in sys.stdin:
        verb, arguments = json.loads(line)
        try:
            answer = {"result": verbs[verb](spark, **arguments)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
