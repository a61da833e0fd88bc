"""Jobs on fleets of logs: the tasks do the work, and a manifest is returned.

Each job plans and runs once. The files that a task writes depend only on its input and appear
atomically, so retries, speculative attempts and abandoned tasks are harmless.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkascan.broker_state.indexes import DEFAULT_INTERVAL_BYTES
from kafkascan.spark.jobs.export_tasks import (
    COMPRESSIONS,
    WRITTEN_COLUMNS,
    ExportTarget,
    with_damage_apart,
    with_finished,
    write_outputs,
)
from kafkascan.spark.jobs.index_tasks import INDEX_COLUMNS, IndexTarget, rebuild_task
from kafkascan.spark.jobs.job_runs import (
    parsed_options,
    planned_tasks,
    run_tasks,
    sums,
)
from kafkascan.spark.jobs.output_folders import (
    OutputFolder,
    finish_folder,
    output_folder,
    prepare_folder,
    remove_leftovers,
    resume_folder,
)
from kafkascan.spark.jobs.planned_outputs import (
    FinishedOutput,
    plan_catalog,
    plan_exports,
    without_finished,
)
from kafkascan.spark.options.option_values import parse_choice, parse_storage_options
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.options.view_schemas import Row
from kafkascan.spark.planning.read_plan import plan_read
from kafkascan.spark.planning.segment_ends import find_overlaps
from kafkascan.spark.rows.damage_modes import OFFSET_OVERLAP
from kafkascan.spark.rows.task_scan import scan_task

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from kafkascan.spark.readers.frames import Paths

# Log bytes of a task that writes Parquet.
_TASK_BYTES = 1 << 29


@dataclass(frozen=True)
class JobReport:
    """
    The result of a job.

    Attributes
    ----------
    job : str
        Name of the job.
    manifest : pyarrow.Table
        A row per item that was checked or written.
    summary : dict
        Totals by name.
    findings : list of str
        Messages about damage and risks, with paths and positions.
    unread_files : int
        Number of files that could not be read at all.
    """

    job: str
    manifest: pa.Table
    summary: dict[str, int]
    findings: list[str] = field(default_factory=list)
    unread_files: int = 0

    @property
    def exit_code(self) -> int:
        """0 without findings, 1 with findings, 3 if a file could not be read."""
        if self.unread_files:
            return 3
        return 1 if self.findings else 0

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {count:,}" for name, count in self.summary.items())
        return f"{self.job}: {counts}"


def verify(spark: SparkSession, path: Paths, **options: Any) -> JobReport:
    """
    Verify the checksum of every batch.

    Parameters
    ----------
    spark : SparkSession
    path : path, or a sequence of them
    **options
        Options of the data source.

    Returns
    -------
    JobReport
        A row per file. Findings are damage, wrong checksums, trailing bytes, and offsets that
        several segments of a log contain.
    """
    parsed = parsed_options("verify", path, options)
    # The manifest shows all overlaps, not only those that the plan found.
    tasks = plan_read(parsed, on_overlap=lambda overlap: None)
    manifest = run_tasks(spark, tasks, scan_task, parsed, parsed.schema())
    rows = manifest.to_pylist()
    findings = [
        row["error"] for row in rows if row["error"] is not None and row["status"] != OFFSET_OVERLAP
    ]
    findings += map(str, find_overlaps(_end_of(row) for row in rows))
    findings += [
        f"{row['path']}: position {row['validBytes']}: {row['trailingBytes']} bytes after the"
        f" last batch [{row['endState']}]"
        for row in rows
        if row["error"] is None and row["trailingBytes"] > 0
    ]
    summary = sums(manifest, "size", "batches", "badChecksums")
    unread = sum(row["status"] == "UNREADABLE" for row in rows)
    return JobReport("verify", manifest, {"files": len(rows)} | summary, findings, unread)


def _end_of(row: Row) -> tuple[str, int, int | None]:
    path, base_offset, last = row["path"], row["segment"], row["lastOffset"]
    assert isinstance(path, str)
    assert isinstance(base_offset, int)
    return path, base_offset, last + 1 if isinstance(last, int) else None


def catalog(
    spark: SparkSession,
    path: Paths,
    output: str,
    *,
    compression: str = "zstd",
    overwrite: bool = False,
    resume: bool = False,
    output_storage_options: Mapping[str, Any] | str | None = None,
    **options: Any,
) -> JobReport:
    """
    Write every batch header to Parquet: the view ``batches`` of a fleet.

    Parameters
    ----------
    spark, path, options
        See `verify`.
    output : str
        A folder that all executors can access, or a URL of an object store. It must not contain
        Parquet files, except those that `overwrite` or `resume` replaces.
    compression : {"zstd", "snappy", "gzip", "lz4", "brotli", "none"}
        Codec of the Parquet files.
    overwrite : bool, default False
        Before the job starts, delete the files of an earlier export or catalog in `output`, also
        of one that failed. Other Parquet files are an error.
    resume : bool, default False
        Keep the files in `output` that an earlier run finished from the same sources (path, size,
        time of modification, ETag) with the same options, and write the others. Files of earlier
        runs that this run would not write are deleted. The result is that of a run that was not
        interrupted.
    output_storage_options : mapping, or JSON, optional
        Settings of the output's store; by default, the option ``storageOptions``.

    Returns
    -------
    JobReport
        A row per written file; with `resume`, also of those that are kept, whose number is
        ``summary["kept"]``. Findings are damage that did not fail the job, by the option
        ``mode``, and offsets that several segments contain, which are written once.

    Raises
    ------
    FileExistsError
        If the output already contains Parquet files.
    ValueError
        If both `overwrite` and `resume` are set.
    """
    target = _Target(output, compression, overwrite, resume, output_storage_options)
    return _written("catalog", spark, path, target, options)


def export(
    spark: SparkSession,
    path: Paths,
    output: str,
    *,
    compression: str = "zstd",
    overwrite: bool = False,
    resume: bool = False,
    output_storage_options: Mapping[str, Any] | str | None = None,
    **options: Any,
) -> JobReport:
    """
    Write records to Parquet: ``topic=…/partition=…/<segment>-<position>.parquet``.

    Parameters, result and errors are those of `catalog`.
    """
    target = _Target(output, compression, overwrite, resume, output_storage_options)
    return _written("export", spark, path, target, options)


@dataclass(frozen=True)
class _Target:
    output: str
    compression: str
    overwrite: bool
    resume: bool
    storage_options: Mapping[str, Any] | str | None

    def folder(self, options: Options) -> OutputFolder:
        """Return the output folder; `options` are those of the input's store."""
        store = options
        if self.storage_options is not None:
            store = options.but(storage_options=parse_storage_options(self.storage_options))
        is_url = "://" in self.output
        return output_folder(self.output if is_url else os.path.abspath(self.output), store)


def _written(
    job: str, spark: SparkSession, path: Paths, target: _Target, options: dict[str, Any]
) -> JobReport:
    if target.overwrite and target.resume:
        raise ValueError("overwrite and resume cannot be combined")
    parsed = parsed_options(job, path, options)
    codec = parse_compression(target.compression)
    # Larger tasks than for rows, because the size of files depends on that of tasks.
    sized = parsed.but(max_partition_bytes=parsed.max_partition_bytes or _TASK_BYTES)
    tasks, findings = planned_tasks(sized)
    plan_outputs = plan_exports if job == "export" else plan_catalog
    planned = list(plan_outputs(tasks, parsed, codec))
    folder = target.folder(parsed)
    # After the plan: if there is nothing to read, earlier files stay.
    finished: dict[str, FinishedOutput] = {}
    if target.resume:
        finished = resume_folder(folder, [one for task in planned for one in task.outputs])
    else:
        prepare_folder(folder, overwrite=target.overwrite)
    left = list(without_finished(planned, finished))
    outputs = ExportTarget(folder, parsed, codec)
    found = run_tasks(spark, left, write_outputs, outputs, WRITTEN_COLUMNS)
    written, damage = with_damage_apart(found)
    manifest = with_finished(written, planned, finished)
    finish_folder(folder, manifest["output"].to_pylist())
    summary = {"files": len(manifest)} | sums(manifest, "rows", "bytes")
    if target.resume:
        summary["kept"] = sum(one.rows > 0 for one in finished.values())
    return JobReport(job, manifest, summary, findings + damage)


def parse_compression(codec: str) -> str:
    """Return the name of a codec of Parquet files; raise `ValueError` if there is none."""
    try:
        return str(parse_choice(*COMPRESSIONS)(codec))
    except ValueError as error:
        raise ValueError(f"compression={codec!r}: {error}") from None


def rebuild_indexes(
    spark: SparkSession,
    path: Paths,
    target: str | None = None,
    *,
    next_to_segments: bool = False,
    force: bool = False,
    interval_bytes: int = DEFAULT_INTERVAL_BYTES,
    **options: Any,
) -> JobReport:
    """
    Rebuild ``.index`` and ``.timeindex`` files as Kafka's recovery does.

    Parameters
    ----------
    spark, path, options
        See `verify`.
    target : str, optional
        Output folder that all executors can access; it gets a subfolder per partition.
    next_to_segments : bool, default False
        Write the files next to the segments instead. No broker may have the logs open.
    force : bool, default False
        Include the last (active) segment of each log.
    interval_bytes : int, default 4096
        Kafka's ``index.interval.bytes``.

    Returns
    -------
    JobReport
        A row per index, with the action: WRITTEN, or IDENTICAL to the existing file; SKIPPED or
        DAMAGED for a segment whose indexes were not built.
    """
    if (target is None) != next_to_segments:
        raise ValueError("give either a target folder or next_to_segments=True")
    parsed = parsed_options("rebuild_indexes", path, options)
    folder = None if target is None else str(Path(target).absolute())
    argument = IndexTarget(folder, force, interval_bytes, parsed)
    tasks, findings = planned_tasks(parsed)
    manifest = run_tasks(spark, tasks, rebuild_task, argument, INDEX_COLUMNS)
    rows = manifest.to_pylist()
    remove_leftovers(Path(row["output"]) for row in rows if row["action"] == "WRITTEN")
    actions = [row["action"] for row in rows]
    summary = {name.lower(): actions.count(name) for name in dict.fromkeys(actions)}
    findings += [row["error"] for row in rows if row["action"] == "DAMAGED"]
    return JobReport("rebuild-indexes", manifest, {"indexes": len(rows)} | summary, findings)
