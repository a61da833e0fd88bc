"""Jobs on fleets of logs: the tasks do the work, and a manifest is returned.

Each job plans and runs once. The files that a task writes depend only on its input and appear
atomically, so retries, speculative attempts and abandoned tasks are harmless.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkascan.batches.columns import join_tables
from kafkascan.broker_state.index_schemas import DEFAULT_INTERVAL_BYTES
from kafkascan.broker_state.indexes import (
    build_offset_index,
    build_time_index,
)
from kafkascan.format.errors import KafkaScanError
from kafkascan.format.file_names import sibling_name
from kafkascan.io.atomic_files import AtomicFile
from kafkascan.io.stores.urls import as_path
from kafkascan.logs.log_problems import OFFSET_GAP, OFFSET_OVERLAP
from kafkascan.logs.opened_logs import SegmentOverlap
from kafkascan.logs.walking.segment_tails import is_preallocated
from kafkascan.spark.jobs.export_tasks import (
    COMPRESSIONS,
    ExportTarget,
    with_damage_apart,
    with_finished,
    write_outputs,
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
from kafkascan.spark.options.manifests import MANIFESTS
from kafkascan.spark.options.option_values import parse_choice, parse_storage_options
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.options.view_schemas import Row, arrow_schema, ddl
from kafkascan.spark.planning.planned_logs import PlannedSegment
from kafkascan.spark.planning.range_walk import RangeWalk
from kafkascan.spark.planning.read_plan import plan_read
from kafkascan.spark.planning.segment_ends import find_overlaps
from kafkascan.spark.planning.task_plan import ScanRange, ScanTask
from kafkascan.spark.readers.frames import Argument, Task, Work, map_tasks
from kafkascan.spark.rows.arrow_columns import record_batch_of_rows
from kafkascan.spark.rows.segment_rows import SCAN_ROWS
from kafkascan.spark.rows.task_scan import open_present, scan_task
from kafkascan.tables.schema import Field, require_pyarrow
from kafkascan.tables.table import Problem

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from kafkascan.spark.readers.frames import Paths


@dataclass(frozen=True)
class IndexTarget:
    """
    Output location and settings of index files.

    Attributes
    ----------
    folder : str or None
        The output folder; None writes next to the segments.
    force : bool
        Also write next to the last segment of a log, which a broker may be appending to.
    interval_bytes : int
        Kafka's ``index.interval.bytes``.
    options : Options
    """

    folder: str | None
    force: bool
    interval_bytes: int
    options: Options


def rebuild_task(task: ScanTask, target: IndexTarget) -> Iterator[pa.RecordBatch]:
    """Build the indexes of each segment, and write those that differ from existing files."""
    for one in task.ranges:
        yield record_batch_of_rows(list(_rebuild(one, target)), MANIFESTS["rebuild_indexes"])


def _rebuild(one: ScanRange, target: IndexTarget) -> Iterator[Row]:
    row: Row = {"output": "", "entries": 0, "crc32": 0, "error": None}
    row |= one.file_values
    if target.folder is None and one.is_last and not target.force:
        yield row | {"action": "SKIPPED", "error": "the last segment of its log"}
        return
    source = open_present(one, target.options)
    if source is None:
        return
    walk = RangeWalk(source, 0, source.size)
    batches = join_tables(list(walk.tables(SCAN_ROWS)))
    damage = walk.damage(is_last=one.is_last)
    source.require_unshrunk()
    if damage is not None:
        yield row | {"action": "DAMAGED", "error": str(damage)}
        return
    for kind, build in (("index", build_offset_index), ("timeindex", build_time_index)):
        try:
            entries = build(
                batches, base_offset=one.file.base_offset, interval_bytes=target.interval_bytes
            )
        except KafkaScanError as error:
            yield row | {"action": "DAMAGED", "error": f"{one.file.path}: {error}"}
            return
        data = entries.tobytes()
        path = _index_path(one, kind, target)
        written: Row = {"output": str(path), "entries": len(entries), "crc32": zlib.crc32(data)}
        yield row | written | {"action": _write_changed(path, data)}


def _index_path(one: ScanRange, kind: str, target: IndexTarget) -> Path:
    folder, name = os.path.split(one.file.path)
    sibling = sibling_name(name, kind) or f"{name}.{kind}"
    if target.folder is None:
        return Path(folder) / sibling
    return Path(target.folder) / os.path.basename(folder) / sibling


def _write_changed(path: Path, data: bytes) -> str:
    """Write a file atomically unless it already has this content; return the action."""
    try:
        if path.read_bytes() == data:
            return "IDENTICAL"
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
    with AtomicFile(path) as file:
        file.stream.write(data)
    return "WRITTEN"


_JOB_OPTIONS: dict[str, dict[str, Any]] = {
    "verify": {"view": "segments", "columns": MANIFESTS["verify"].names, "verify": True},
    "catalog": {"view": "batches"},
    "export": {"view": "records"},
    # As in a broker's recovery: indexes of all bytes on disk.
    "rebuild_indexes": {"view": "segments", "logstartoffset": 0},
    "table": {"view": "records"},
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
    if job in ("verify", "table") and parsed.mode == "DROPMALFORMED":
        raise ValueError(f"{job} reports damage, which mode=DROPMALFORMED would drop")
    return parsed


def parsed_options(job: str, path: Paths, options: dict[str, Any]) -> Options:
    """Parse the paths and options of a job."""
    paths: Sequence[Any] = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    return parse_job_options(job, {"paths": [os.fspath(one) for one in paths]} | options)


def planned_tasks(options: Options) -> tuple[list[ScanTask], list[str]]:
    """Plan the tasks of a job; return them, and findings such as an overlap of two segments."""
    findings: list[str] = []
    tasks = plan_read(options, lambda problem: findings.append(str(problem)))
    return tasks, findings


def run_tasks(
    spark: SparkSession,
    tasks: Sequence[Task],
    work: Work[Task, Argument],
    argument: Argument,
    columns: Iterable[Field],
) -> pa.Table:
    """Run the tasks of a job and return their rows."""
    if not tasks:
        return require_pyarrow().Table.from_batches([], arrow_schema(columns))
    return map_tasks(spark, tasks, work, argument, ddl(columns)).toArrow()


def sums(manifest: pa.Table, *names: str) -> dict[str, int]:
    """Return the sums of columns by name."""
    import pyarrow.compute

    return {name: pyarrow.compute.sum(manifest[name]).as_py() or 0 for name in names}


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
    problems: list[Problem] = []
    tasks = plan_read(parsed, problems.append)
    manifest = run_tasks(spark, tasks, scan_task, parsed, parsed.schema())
    rows = manifest.to_pylist()
    files = {one.file.path: one.file for task in tasks for one in task.ranges}
    overlaps = list(find_overlaps(_end_of(row, files) for row in rows))
    # The manifest shows all overlaps, not only those that the plan found.
    findings = [str(one) for one in problems if one.symbol != OFFSET_OVERLAP]
    findings += [row["error"] for row in rows if _is_finding(row, overlaps)]
    findings += map(str, overlaps)
    findings += [
        f"{row['path']}: position {row['valid_bytes']}: {row['trailing_bytes']} bytes after the"
        f" last batch [{row['end']}]"
        for row in rows
        if row["error"] is None
        and row["trailing_bytes"] > 0
        and not is_preallocated(row["end"], row["valid_bytes"])
    ]
    summary = sums(manifest, "size", "batches", "bad_checksums")
    unread = sum(row["status"] == "UNREADABLE" for row in rows)
    return JobReport("verify", manifest, {"files": len(rows)} | summary, findings, unread)


def _is_finding(row: Row, overlaps: Sequence[SegmentOverlap]) -> bool:
    """Whether the error of a row is not about offsets that an overlap of segments explains."""
    path, status = str(row["path"]), row["status"]
    if status == OFFSET_OVERLAP:
        return path not in {str(one.path) for one in overlaps}
    if status == OFFSET_GAP:  # the segments before it may have them
        return as_path(path).parent not in {one.path.parent for one in overlaps}
    return row["error"] is not None


def _end_of(row: Row, files: Mapping[str, PlannedSegment]) -> tuple[PlannedSegment, int | None]:
    last = row["last_offset"]
    return files[str(row["path"])], last + 1 if isinstance(last, int) else None


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
            store = options.replace(storage_options=parse_storage_options(self.storage_options))
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
    sized = parsed.replace(max_partition_bytes=parsed.max_partition_bytes or _TASK_BYTES)
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
    found = run_tasks(spark, left, write_outputs, outputs, MANIFESTS[job])
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
    manifest = run_tasks(spark, tasks, rebuild_task, argument, MANIFESTS["rebuild_indexes"])
    rows = manifest.to_pylist()
    remove_leftovers(Path(row["output"]) for row in rows if row["action"] == "WRITTEN")
    actions = [row["action"] for row in rows]
    summary = {name.lower(): actions.count(name) for name in dict.fromkeys(actions)}
    findings += [row["error"] for row in rows if row["action"] == "DAMAGED"]
    return JobReport("rebuild-indexes", manifest, {"indexes": len(rows)} | summary, findings)
