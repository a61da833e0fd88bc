"""Run the same queries on Spark's Kafka source and on kafkascan: JSON lines in and out.

python -m tests.oracle.spark_driver MASTER JARS CONF
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from kafkascan import spark as kspark
from kafkascan.spark.jobs.lake_tables import create_table, lake_table
from kafkascan.spark.jobs.table_jobs import parse_table_options
from kafkascan.spark.readers import frames
from kafkascan.tables.schema import Field

Spec = dict[str, Any]
"""A format and its options; ``frame`` is kafkascan's function for the data frame of a view."""


def read(spark: SparkSession, source: str, options: Spec) -> DataFrame:
    if source == "frame":
        given = dict(options)
        return frames.view(spark, given.pop("view", "records"), given.pop("path"), **given)
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


def sql(spark: SparkSession, text: str) -> list[list[Any]]:
    """Run a statement; return its rows."""
    return [list(row) for row in spark.sql(text).collect()]


def start(spark: SparkSession, queries: dict[str, Spec]) -> None:
    """Start streams by name: a source with its options, and a sink with table and checkpoint."""
    for name, query in queries.items():
        _started[name] = _write(spark, name, query, processingTime="200 milliseconds")


def finish(spark: SparkSession, queries: dict[str, Spec]) -> None:
    """Stop the running queries, and read what is left with Trigger.AvailableNow."""
    for query in spark.streams.active:
        query.stop()
    for name, spec in queries.items():
        _write(spark, name, spec, availableNow=True).awaitTermination()


def drain(spark: SparkSession) -> None:
    """Stop the running queries when they have read everything."""
    for query in spark.streams.active:
        query.processAllAvailable()
        query.stop()


def _write(spark: SparkSession, name: str, query: Spec, **trigger: Any) -> StreamingQuery:
    frame = spark.readStream.format(query["source"]).options(**query["options"]).load()
    writer = frame.writeStream.format(query["sink"]).queryName(name).trigger(**trigger)
    writer = writer.option("checkpointLocation", query["checkpoint"])
    if query["sink"] == "delta":
        return writer.start(query["table"])
    return writer.toTable(query["table"])


def progress(spark: SparkSession) -> dict[str, int | str]:
    """Return the last batch of each query, -1 before the first one, or why the query failed."""
    found: dict[str, int | str] = {}
    for name, query in _started.items():
        last = query.lastProgress
        error = None if query.isActive else str(query.exception())
        found[name] = error or (-1 if last is None else int(last["batchId"]))
    return found


_started: dict[str, StreamingQuery] = {}


def kill_python(spark: SparkSession, module: str, parent: str) -> int:
    """Kill the Python processes that run a module below a parent; return their number."""
    found = [
        pid
        for pid, fields in processes().items()
        if module in _command(pid) and parent in _command(int(fields[1]))
    ]
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return len(found)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def end_offsets(spark: SparkSession, options: Spec) -> str:
    """Return where a batch read with options ends."""
    given = dict(options)
    return kspark.end_offsets(given.pop("path"), **given)


def append(spark: SparkSession, source: str, options: Spec, table: str) -> None:
    """Append a batch read to a table of Iceberg, which is created before."""
    frame = read(spark, source, options)
    # Spark's Kafka source declares no column as NOT NULL.
    columns = frame.schema.toDDL().replace(" NOT NULL", "")
    spark.sql(f"create table if not exists {table} ({columns}) using iceberg")
    frame.writeTo(table).append()


def run(
    spark: SparkSession, sink: str, source: str, options: Spec, target: str, codec: str = "snappy"
) -> None:
    """Read everything into a sink: nowhere, a number, files, or a table like that of a job."""
    frame = read(spark, source, options)
    if sink == "noop":
        frame.write.format("noop").mode("overwrite").save()
    elif sink == "count":
        frame.count()
    elif sink == "sum":
        frame.agg({frame.columns[0]: "sum"}).collect()
    elif sink == "parquet":
        frame.write.option("compression", codec).mode("overwrite").parquet(target)
    else:
        create_table(spark, lake_table(spark, target, sink), table_fields())
        frame.select(*(one.name for one in table_fields())).writeTo(target).append()


def table_fields() -> tuple[Field, ...]:
    """Return the columns of the tables that `jobs.write_table` fills."""
    return parse_table_options("logs", "c.d.t", "iceberg", {})[0].schema()


def write_table(spark: SparkSession, **arguments: Any) -> Any:
    return kspark.jobs.write_table(spark, **arguments).summary


def export(spark: SparkSession, **arguments: Any) -> Any:
    return kspark.jobs.export(spark, **arguments).summary


def processes() -> dict[int, list[str]]:
    """Return the fields of ``/proc/PID/stat`` of this process and those below it."""
    below: dict[int, list[int]] = {}
    known: dict[int, list[str]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        pid = int(path.parent.name)
        below.setdefault(int(fields[1]), []).append(pid)
        known[pid] = fields
    found, waiting = {}, [os.getpid()]
    while waiting:
        pid = waiting.pop()
        found[pid] = known[pid]
        waiting += below.get(pid, [])
    return found


_VERBS: tuple[Callable[..., Any], ...] = (
    *(rows, sql, append, end_offsets, run, write_table, export),
    *(follow, start, progress, drain, finish, kill_python),
)


def main() -> None:
    master, jars, conf = sys.argv[1:]
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # the JVM prints warnings there
    builder = SparkSession.builder.master(master).config("spark.jars", jars)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2",
    }
    for name, value in (kspark.recommended_conf() | settings | json.loads(conf)).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    kspark.register(spark)
    verbs: dict[str, Callable[..., Any]] = {work.__name__: work for work in _VERBS}
    for line in sys.stdin:
        verb, arguments = json.loads(line)
        try:
            answer = {"result": verbs[verb](spark, **arguments)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
