"""Run a job: parse its options, plan, run its tasks, and sum up its manifest."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.options.view_schemas import Column, arrow_schema, ddl
from kafkascan.spark.planning.read_plan import plan_read
from kafkascan.spark.planning.task_plan import ScanTask
from kafkascan.spark.readers.frames import Argument, Task, Work, map_tasks
from kafkascan.tables.schema import require_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from kafkascan.spark.readers.frames import Paths

VERIFY_COLUMNS = (
    "topic", "partition", "segment", "path", "size", "batches", "badChecksums", "endState",
    "validBytes", "trailingBytes", "lastOffset", "status", "error",
)  # fmt: skip

_JOB_OPTIONS: dict[str, dict[str, Any]] = {
    "verify": {"view": "segments", "columns": VERIFY_COLUMNS, "checkcrcs": True},
    "catalog": {"view": "batches"},
    "export": {"view": "records"},
    # As in a broker's recovery: indexes of all bytes on disk.
    "rebuild_indexes": {"view": "segments", "logstartoffset": 0},
}


def parse_job_options(job: str, options: Mapping[str, Any]) -> Options:
    """
    Parse the options of a job, which sets some of them itself.

    Raises
    ------
    ValueError
        If an option is unknown or invalid, or one that the job sets.
    """
    ours = _JOB_OPTIONS[job]
    for name in options:
        if name.lower() in ours:
            raise ValueError(f"the job {job} does not take the option {name!r}")
    parsed = Options.parse({**ours, **options})
    if job == "verify" and parsed.mode == "DROPMALFORMED":
        raise ValueError("verify reports damaged files, which mode=DROPMALFORMED would drop")
    return parsed


def parsed_options(job: str, path: Paths, options: dict[str, Any]) -> Options:
    """Parse the paths and options of a job."""
    paths: Sequence[Any] = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    return parse_job_options(job, {"paths": [os.fspath(one) for one in paths]} | options)


def planned_tasks(options: Options) -> tuple[list[ScanTask], list[str]]:
    """Plan the tasks of a job; return them, and a finding for each overlap of two segments."""
    findings: list[str] = []
    tasks = plan_read(options, lambda overlap: findings.append(str(overlap)))
    return tasks, findings


def run_tasks(
    spark: SparkSession,
    tasks: Sequence[Task],
    work: Work[Task, Argument],
    argument: Argument,
    columns: Sequence[Column],
) -> pa.Table:
    """Run the tasks of a job and return their rows."""
    if not tasks:
        return require_pyarrow().Table.from_batches([], arrow_schema(columns))
    return map_tasks(spark, tasks, work, argument, ddl(columns)).toArrow()


def sums(manifest: pa.Table, *names: str) -> dict[str, int]:
    """Return the sums of columns by name."""
    import pyarrow.compute

    return {name: pyarrow.compute.sum(manifest[name]).as_py() or 0 for name in names}
