"""Views as DataFrames by ``mapInArrow``: faster than the data source, with the same schemas."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.options.view_schemas import ddl
from kafkascan.spark.planning.read_plan import plan_read
from kafkascan.spark.rows.task_scan import scan_task
from kafkascan.spark.rows.worker_setup import prepare_worker

if TYPE_CHECKING:
    import os

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

Task = TypeVar("Task")
Argument = TypeVar("Argument")
Work: TypeAlias = "Callable[[Task, Argument], Iterator[pa.RecordBatch]]"
"""A function of a module that a task runs: it gets its input and an argument."""


def records(
    spark: SparkSession,
    path: Paths,
    *,
    columns: Sequence[str] | str | None = None,
    where: str | None = None,
    **options: Any,
) -> DataFrame:
    """
    Return a DataFrame of the records of logs.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    path : path, or a sequence of them
        Files, globs, partition directories, brokers' data directories, URLs of objects.
    columns : sequence of str, optional
        Columns of the view; other columns are not decoded.
    where : str, optional
        A condition on batches, see `kafkascan.spark.options.where_clause`. Batches that do not
        match are not decoded.
    **options
        Options of the data source, such as ``startingOffsets=…``.

    Returns
    -------
    pyspark.sql.DataFrame
        The rows of the files that exist now; a new DataFrame lists the files again.

    Raises
    ------
    ValueError
        If an option is unknown or invalid.
    FileNotFoundError
        If a path does not exist.
    """
    return view(spark, "records", path, columns=columns, where=where, **options)


def batches(
    spark: SparkSession,
    path: Paths,
    *,
    columns: Sequence[str] | str | None = None,
    where: str | None = None,
    **options: Any,
) -> DataFrame:
    """
    Return a DataFrame with a row per batch header.

    Parameters, result and errors are those of `records`.
    """
    return view(spark, "batches", path, columns=columns, where=where, **options)


def segments(
    spark: SparkSession,
    path: Paths,
    *,
    columns: Sequence[str] | str | None = None,
    where: str | None = None,
    **options: Any,
) -> DataFrame:
    """
    Return a DataFrame with a row per file.

    Parameters, result and errors are those of `records`; `where` may use topic, partition and
    segment.
    """
    return view(spark, "segments", path, columns=columns, where=where, **options)


def view(spark: SparkSession, name: str, path: Paths, **options: Any) -> DataFrame:
    """Return a DataFrame of a view by name; the parameters are those of `records`."""
    import os

    paths = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    given = {"paths": [os.fspath(one) for one in paths], "view": name}
    parsed = Options.parse(given | options)
    return map_tasks(spark, plan_read(parsed), scan_task, parsed, ddl(parsed.schema()))


def map_tasks(
    spark: SparkSession,
    tasks: Sequence[Task],
    work: Work[Task, Argument],
    argument: Argument,
    schema: str,
) -> DataFrame:
    """
    Return a DataFrame of the rows that `work` yields for tasks; each runs as a task of Spark.

    Parameters
    ----------
    spark : SparkSession
    tasks : sequence
        The input of each task: any picklable value, such as a `ScanTask`.
    work : callable
        A function of a module that takes a task's input and `argument`, and yields record batches.
    argument : object
        Any picklable value.
    schema : str
        The schema of the rows, as a declaration in Spark SQL.
    """
    # Packed separately, because each task of Spark receives all of them and unpacks only its own.
    packed = [zlib.compress(pickle.dumps(task), 1) for task in tasks]

    def run(ids: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_worker()
        for batch in ids:
            for number in batch.column(0).to_pylist():
                yield from work(pickle.loads(zlib.decompress(packed[number])), argument)

    numbers = spark.range(0, len(packed), 1, max(1, len(packed)))
    return numbers.mapInArrow(run, schema)
