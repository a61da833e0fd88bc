"""What spark-submit is given: a script with a module of its own (``--py-files``), and then a job.

spark-submit … tests/spark/submitted.py PATH MAIN
"""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession


def main() -> None:
    path, job = sys.argv[1:]
    spark = SparkSession.builder.appName("submitted").getOrCreate()

    def shout(batches: Iterator[Any]) -> Iterator[Any]:
        import shouting  # of --py-files

        for batch in batches:
            names = [shouting.loud(name) for name in batch.column("topic").to_pylist()]
            yield batch.from_pydict({"topic": names})

    frame = spark.read.format("kafkascan").load(path).select("topic")
    counts = frame.mapInArrow(shout, "topic string").groupBy("topic").count().collect()
    print(json.dumps({row["topic"]: row["count"] for row in counts}), flush=True)
    sys.argv = [job, "verify", "--format", "jsonl", path]
    runpy.run_path(job, run_name="__main__")


if __name__ == "__main__":
    main()
