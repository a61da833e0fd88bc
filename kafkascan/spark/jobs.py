"""Jobs: work that is done in the tasks, of which a manifest comes back.

Each runs its plan once. What tasks write depends on nothing but their input and appears at
once, so that retries, speculation and tasks that nobody waits for any more do no harm.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkascan.arrow import require_pyarrow
from kafkascan.indexes import DEFAULT_INTERVAL_BYTES
from kafkascan.spark.exports import WRITTEN_COLUMNS, Output, catalog_task, export_task
from kafkascan.spark.files import list_files
from kafkascan.spark.frames import map_tasks, spread
from kafkascan.spark.header_work import (
    PRODUCER_COLUMNS,
    PRODUCER_JOINS,
    PRODUCER_KEYS,
    TIMESTAMP_COLUMNS,
    TimeLimits,
    producers_task,
    timestamps_task,
)
from kafkascan.spark.index_work import INDEX_COLUMNS, IndexTarget, rebuild_task
from kafkascan.spark.option_values import parse_storage_options
from kafkascan.spark.options import Options
from kafkascan.spark.outputs import output_folder, remove_leftovers
from kafkascan.spark.plan import ScanTask, plan
from kafkascan.spark.scan import scan_task
from kafkascan.spark.schemas import Column, arrow_schema, ddl
from kafkascan.spark.times import resolve_times

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from kafkascan.spark.frames import Paths

_HOUR_MS = 3_600_000

VERIFY_COLUMNS = (
    "topic", "partition", "segment", "path", "size", "batches", "badChecksums", "endState",
    "validBytes", "trailingBytes", "status", "error",
)  # fmt: skip


@dataclass(frozen=True)
class Report:
    """
    What a job found.

    Attributes
    ----------
    job : str
    manifest : pyarrow.Table
        A row for each thing that was looked at or written.
    summary : dict
        Counts.
    findings : list of str
        What is not as it should be, with paths and positions.
    """

    job: str
    manifest: pa.Table
    summary: dict[str, int]
    findings: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 if all is well, 1 if there are findings."""
        return 1 if self.findings else 0

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {count:,}" for name, count in self.summary.items())
        return f"{self.job}: {counts}"


def verify(spark: SparkSession, path: Paths, **options: Any) -> Report:
    """
    Verify the checksum of every batch.

    Parameters
    ----------
    spark : SparkSession
    path : path, or a sequence of them
    **options
        By the names of the data source.

    Returns
    -------
    Report
        A row per file. Damage, wrong checksums and tails are findings.
    """
    given = {"view": "segments", "columns": list(VERIFY_COLUMNS), "checkCrcs": True} | options
    parsed = _parsed(path, given)
    manifest = _run(spark, parsed, scan_task, parsed, parsed.schema())
    rows = manifest.to_pylist()
    findings = [row["error"] for row in rows if row["error"] is not None]
    findings += [
        f"{row['path']}: position {row['validBytes']}: {row['trailingBytes']} bytes behind the"
        f" last batch [{row['endState']}]"
        for row in rows
        if row["error"] is None and row["trailingBytes"] > 0
    ]
    summary = _sums(manifest, "size", "batches", "badChecksums")
    return Report("verify", manifest, {"files": len(rows)} | summary, findings)


def catalog(
    spark: SparkSession,
    path: Paths,
    output: str,
    *,
    compression: str = "zstd",
    output_storage_options: Mapping[str, Any] | str | None = None,
    **options: Any,
) -> Report:
    """
    Write every batch header to Parquet: the `batches` view of a fleet.

    Parameters
    ----------
    spark, path, options
        As of `verify`.
    output : str
        A folder that all executors see, or a URL of an object store; it must hold no Parquet
        files yet.
    compression : str, default "zstd"
    output_storage_options : mapping, or JSON, optional
        Of the store that is written to; by default, the option ``storageOptions``.

    Returns
    -------
    Report
        A row per file that was written.

    Raises
    ------
    FileExistsError
        If there are Parquet files.
    """
    target = _Target(output, compression, output_storage_options)
    return _written("catalog", spark, path, target, {"view": "batches"} | options)


def export(
    spark: SparkSession,
    path: Paths,
    output: str,
    *,
    compression: str = "zstd",
    output_storage_options: Mapping[str, Any] | str | None = None,
    **options: Any,
) -> Report:
    """
    Write records to Parquet: ``topic=…/partition=…/<segment>-<position>.parquet``.

    Parameters, result
        As of `catalog`.
    """
    target = _Target(output, compression, output_storage_options)
    return _written("export", spark, path, target, {"view": "records"} | options)


@dataclass(frozen=True)
class _Target:
    output: str
    compression: str
    storage_options: Mapping[str, Any] | str | None


def _written(
    job: str, spark: SparkSession, path: Paths, target: _Target, given: dict[str, Any]
) -> Report:
    parsed = _parsed(path, given)
    where = parsed
    if target.storage_options is not None:
        where = parsed.but(storage_options=parse_storage_options(target.storage_options))
    is_url = "://" in target.output
    folder = output_folder(target.output if is_url else os.path.abspath(target.output), where)
    folder.prepare()
    work = export_task if job == "export" else catalog_task
    output = Output(folder, parsed, target.compression)
    manifest = _run(spark, parsed, work, output, WRITTEN_COLUMNS)
    folder.finish(manifest["output"].to_pylist())
    return Report(job, manifest, {"files": len(manifest)} | _sums(manifest, "rows", "bytes"))


def rebuild_indexes(
    spark: SparkSession,
    path: Paths,
    target: str | None = None,
    *,
    next_to_segments: bool = False,
    force: bool = False,
    interval_bytes: int = DEFAULT_INTERVAL_BYTES,
    **options: Any,
) -> Report:
    """
    Build ``.index`` and ``.timeindex`` files anew, as Kafka's recovery would.

    Parameters
    ----------
    spark, path, options
        As of `verify`.
    target : str, optional
        A folder that all executors see, which gets a folder for each partition.
    next_to_segments : bool, default False
        Write there instead: for logs that no broker has open.
    force : bool, default False
        Next to the last segment of a log, too.
    interval_bytes : int, default 4096
        Kafka's ``index.interval.bytes``.

    Returns
    -------
    Report
        A row per index: WRITTEN, or IDENTICAL to what was there; SKIPPED, or DAMAGED, for a
        segment whose indexes were not built.
    """
    if (target is None) != next_to_segments:
        raise ValueError("name a target folder, or say next_to_segments")
    parsed = _parsed(path, {"view": "segments"} | options)
    folder = None if target is None else str(Path(target).absolute())
    argument = IndexTarget(folder, force, interval_bytes, parsed)
    manifest = _run(spark, parsed, rebuild_task, argument, INDEX_COLUMNS)
    rows = manifest.to_pylist()
    remove_leftovers(Path(row["output"]) for row in rows if row["action"] == "WRITTEN")
    actions = [row["action"] for row in rows]
    summary = {name.lower(): actions.count(name) for name in dict.fromkeys(actions)}
    findings = [row["error"] for row in rows if row["action"] == "DAMAGED"]
    return Report("rebuild-indexes", manifest, {"indexes": len(rows)} | summary, findings)


def producer_stats(spark: SparkSession, path: Paths, **options: Any) -> Report:
    """
    Sum up what each producer wrote to each partition, from headers alone.

    Parameters
    ----------
    spark, path, options
        As of `verify`.

    Returns
    -------
    Report
        A row per topic, partition and producer id; -1 for batches without one.
    """
    parsed = _parsed(path, {"view": "batches"} | options)
    partial = _run(spark, parsed, producers_task, parsed, PRODUCER_COLUMNS)
    grouped = partial.group_by(list(PRODUCER_KEYS)).aggregate(list(PRODUCER_JOINS.items()))
    names = {f"{name}_{how}": name for name, how in PRODUCER_JOINS.items()}
    manifest = grouped.rename_columns([names.get(name, name) for name in grouped.column_names])
    manifest = manifest.select([column.name for column in PRODUCER_COLUMNS])
    manifest = manifest.sort_by([(name, "ascending") for name in PRODUCER_KEYS])
    summary = _sums(manifest, "batches", "records", "bytes")
    return Report("producer-stats", manifest, {"producers": len(manifest)} | summary)


def bad_timestamps(
    spark: SparkSession,
    path: Paths,
    *,
    earliest_ms: int = 0,
    latest_ms: int | None = None,
    **options: Any,
) -> Report:
    """
    Find segments with timestamps that cannot be true: a late one keeps retention from them.

    Parameters
    ----------
    spark, path, options
        As of `verify`.
    earliest_ms : int, default 0
        Milliseconds since the epoch; earlier ones are bad.
    latest_ms : int, optional
        Later ones are bad; by default, an hour from now.

    Returns
    -------
    Report
        A row for each range of a file that has some, and a finding.
    """
    parsed = _parsed(path, {"view": "batches"} | options)
    latest = int(time.time() * 1000) + _HOUR_MS if latest_ms is None else latest_ms
    limits = TimeLimits(earliest_ms, latest, parsed)
    manifest = _run(spark, parsed, timestamps_task, limits, TIMESTAMP_COLUMNS)
    findings = [
        f"{row['path']}: position {row['firstBadPosition']} (base_offset {row['firstBadOffset']}):"
        f" the first of {row['lateBatches']} late, {row['earlyBatches']} early and"
        f" {row['missingBatches']} missing timestamps"
        for row in manifest.to_pylist()
    ]
    counts = ("lateBatches", "earlyBatches", "missingBatches")
    summary = {"segments": len(set(manifest["path"].to_pylist()))} | _sums(manifest, *counts)
    return Report("bad-timestamps", manifest, summary, findings)


# ---- how they run ------------------------------------------------------------------------


def _parsed(path: Paths, given: dict[str, Any]) -> Options:
    paths: Sequence[Any] = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    return Options.parse({"paths": [os.fspath(one) for one in paths]} | given)


def _run(
    spark: SparkSession,
    options: Options,
    work: Callable[[ScanTask, Any], Iterator[Any]],
    argument: Any,
    columns: Sequence[Column],
) -> pa.Table:
    """Plan, and run once; what the tasks yield comes back."""
    files = list_files(options)
    options = spread(spark, options, files)
    tasks = plan(files, options, resolve_times(files, options))
    if not tasks:
        return require_pyarrow().Table.from_batches([], arrow_schema(columns))
    return map_tasks(spark, tasks, work, argument, ddl(columns)).toArrow()


def _sums(manifest: pa.Table, *names: str) -> dict[str, int]:
    import pyarrow.compute

    return {name: pyarrow.compute.sum(manifest[name]).as_py() or 0 for name in names}
