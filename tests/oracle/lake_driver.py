"""A driver with tables of Iceberg and Delta: JSON lines in and out.

It prints each statement of SQL before and after it runs.

python -m tests.oracle.lake_driver FOLDER JARS
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.oracle.lake_session import lake_session


def say(**answer: Any) -> None:
    print(json.dumps(answer, default=repr), flush=True)


def main() -> None:
    folder, jars = map(Path, sys.argv[1:])
    spark = lake_session(folder, sorted(jars.glob("*.jar")))
    from kafkascan.spark import jobs

    run = spark.sql

    def announced(statement: str, *arguments: Any, **keywords: Any) -> Any:
        say(before=statement.split(None, 1)[0])
        found = run(statement, *arguments, **keywords)
        say(after=statement.split(None, 1)[0])
        return found

    def write_table(**arguments: Any) -> Any:
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
        exec(compile(text, "snippet", "exec"), names)

    names: dict[str, Any] = {"spark": spark}
    spark.sql = announced  # type: ignore[method-assign]
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
