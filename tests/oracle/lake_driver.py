"""A driver with tables of Iceberg and Delta: JSON lines in and out.

It prints each statement of SQL, and CREATE of a table of Delta, before and after it runs.

python -m tests.oracle.lake_driver FOLDER MASTER
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from kafkascan.spark import jobs, recommended_conf
from kafkascan.spark.jobs.lake_tables import DeltaTable
from tests.oracle.spark_kafka import jar_folder, lake_conf

_QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# The JVM starts sooner, and tables have few rows.
_QUICK = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "OFF",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.executor.memory": "500m",
    "spark.executor.cores": "1",
    "spark.driver.extraJavaOptions": _QUICK_JVM,
    "spark.executor.extraJavaOptions": _QUICK_JVM,
}


_OUT = sys.stdout


def lake_session(folder: Path, master: str) -> SparkSession:
    """Start a session whose catalogs are in a folder."""
    builder = SparkSession.builder.master(master)
    jars = ",".join(sorted(str(path) for path in jar_folder().glob("*.jar")))
    ours = _QUICK | lake_conf(folder) | {"spark.jars": jars}
    ours["spark.executorEnv.PYTHONPATH"] = os.environ["PYTHONPATH"]
    for name, value in recommended_conf(ours).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def say(**answer: Any) -> None:
    print(json.dumps(answer, default=repr), file=_OUT, flush=True)


def main() -> None:
    spark = lake_session(Path(sys.argv[1]), sys.argv[2])

    run, create = spark.sql, DeltaTable.create

    def announced(word: str, statement: Callable[[], Any]) -> Any:
        if word in overtaking:
            jobs.write_table(spark, **overtaking.pop(word))
        say(before=word)
        found = statement()
        say(after=word)
        return found

    def announced_sql(statement: str, *arguments: Any, **keywords: Any) -> Any:
        word = statement.split(None, 1)[0]
        return announced(word, lambda: run(statement, *arguments, **keywords))

    def announced_create(table: DeltaTable, columns: str) -> None:
        announced("CREATE", lambda: create(table, columns))

    def write_table(overtaken_before: str = "", **arguments: Any) -> Any:
        if overtaken_before:
            overtaking[overtaken_before] = arguments
        report = jobs.write_table(spark, **arguments)
        return {
            "summary": report.summary,
            "findings": report.findings,
            "manifest": report.manifest.to_pylist(),
        }

    def query(text: str) -> Any:
        return [row.asDict(recursive=True) for row in run(text).collect()]

    def table_offsets(**arguments: Any) -> Any:
        return json.loads(jobs.table_offsets(spark, **arguments))

    def snippet(text: str) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(text, "snippet", "exec"), names)

    names: dict[str, Any] = {"spark": spark}
    # The same job again, by the first word of the statement before which it runs.
    overtaking: dict[str, dict[str, Any]] = {}
    spark.sql = announced_sql  # type: ignore[method-assign]
    DeltaTable.create = announced_create  # type: ignore[method-assign]
    verbs = {
        "write_table": write_table,
        "query": query,
        "table_offsets": table_offsets,
        "snippet": snippet,
    }
    say(ready=True)
    for line in sys.stdin:
        verb, arguments = json.loads(line)
        try:
            answer = verbs[verb](**arguments)
        except Exception as error:
            say(error=f"{type(error).__name__}: {error}"[:4000])
        else:
            say(result=answer)


if __name__ == "__main__":
    main()
