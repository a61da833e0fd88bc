"""Workers collect no garbage of what was imported, once; nobody else is touched."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

from kafkascan.spark import worker
from kafkascan.spark.frames import map_tasks


def frozen_objects(task: Any, argument: Any) -> Iterator[Any]:
    import pyarrow as pa

    yield pa.RecordBatch.from_pydict({"frozen": pa.array([gc.get_freeze_count()], pa.int64())})


def test_the_first_tasks_of_a_worker_freeze(spark: SparkSession) -> None:
    frame = map_tasks(spark, [None] * 8, frozen_objects, None, "frozen bigint")  # type: ignore[list-item]
    counts = [row.frozen for row in frame.collect()]
    assert min(counts) > 10_000
    # Not each of them: what a task leaves in cycles would never be collected.
    assert len(set(counts)) <= 6


def test_other_processes_are_left_alone() -> None:
    before = gc.get_freeze_count()
    worker.begin_task()
    assert gc.get_freeze_count() == before
