"""A driver with tables of Iceberg and Delta: JSON lines in and out.

It prints each statement of SQL, INSERT for an append, and CREATE of a table of Delta, before and
after it runs.

python -m tests.oracle.lake_driver FOLDER MASTER
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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
    # Classes that Spark generates for each statement take longer to compile than its rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.executor.memory": "500m",
    "spark.executor.cores": "1",
    "spark.driver.extraJavaOptions": _QUICK_JVM,
    "spark.executor.extraJavaOptions": _QUICK_JVM,
}


_OUT, _SAYING = sys.stdout, threading.Lock()


def lake_session(folder: Path, master: str) -> SparkSession:
    """Start a session whose catalogs are in a folder; over Spark Connect, if `master` says so."""
    remote = master.removeprefix("connect:")
    is_remote = remote != master
    builder = (
        SparkSession.builder.remote(remote) if is_remote else SparkSession.builder.master(master)
    )
    jars = ",".join(sorted(str(path) for path in jar_folder().glob("*.jar")))
    ours = _QUICK | lake_conf(folder) | {"spark.jars": jars}
    ours["spark.executorEnv.PYTHONPATH"] = os.environ["PYTHONPATH"]
    for name, value in recommended_conf(ours).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def say(**answer: Any) -> None:
    with _SAYING:
        print(json.dumps(answer, default=repr), file=_OUT, flush=True)


def main() -> None:
    spark = lake_session(Path(sys.argv[1]), sys.argv[2])

    writer = type(spark.range(0).writeTo("a_table"))
    run, append, create = type(spark).sql, writer.append, DeltaTable.create

    def announced(word: str, statement: Callable[[], Any]) -> Any:
        if word in overtaking:
            jobs.write_table(spark, **overtaking.pop(word))
        say(before=word)
        found = statement()
        say(after=word)
        return found

    def announced_sql(session: Any, statement: str, *arguments: Any, **keywords: Any) -> Any:
        word = statement.split(None, 1)[0]
        return announced(word, lambda: run(session, statement, *arguments, **keywords))

    def announced_create(table: DeltaTable, columns: str) -> None:
        announced("CREATE", lambda: create(table, columns))

    def announced_append(one: Any) -> None:
        announced("INSERT", lambda: append(one))

    def write_table(overtaken_before: str = "", **arguments: Any) -> Any:
        if overtaken_before:
            overtaking[overtaken_before] = arguments
        report = jobs.write_table(spark, **arguments)
        return {
            "summary": report.summary,
            "findings": report.findings,
            "manifest": report.manifest.to_pylist(),
        }

    def write_tables(tables: list[dict[str, Any]]) -> Any:
        """Write tables at once, each in a thread."""
        with ThreadPoolExecutor(len(tables)) as threads:
            return list(threads.map(lambda arguments: write_table(**arguments), tables))

    def query(text: str) -> Any:
        return [row.asDict(recursive=True) for row in run(spark, text).collect()]

    def table_offsets(**arguments: Any) -> Any:
        return json.loads(jobs.table_offsets(spark, **arguments))

    def snippet(text: str) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(text, "snippet", "exec"), names)

    names: dict[str, Any] = {"spark": spark}
    # The same job again, by the first word of the statement before which it runs.
    overtaking: dict[str, dict[str, Any]] = {}
    type(spark).sql = announced_sql  # type: ignore[method-assign]
    writer.append = announced_append  # type: ignore[method-assign]
    DeltaTable.create = announced_create  # type: ignore[method-assign]
    verbs = {
        "write_table": write_table,
        "write_tables": write_tables,
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
