"""Views as DataFrames by ``mapInArrow``: the fast door, with the schemas of the data source."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kafkascan.spark.files import FoundFile, list_files
from kafkascan.spark.options import Options
from kafkascan.spark.plan import ScanTask, plan
from kafkascan.spark.scan import scan_task
from kafkascan.spark.schemas import ddl
from kafkascan.spark.times import resolve_times
from kafkascan.spark.worker import begin_task

if TYPE_CHECKING:
    import os

    from pyspark.sql import DataFrame, SparkSession

    Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

# A task is not made smaller than this for the sake of others.
_SMALLEST_SHARE = 1 << 22
# Nor larger than this, unless its view asks for no more than headers.
_LARGEST_SHARE = 1 << 29
# For each slot, so that none waits long for the last one.
_TASKS_PER_SLOT = 3
_UNKNOWN_SLOTS = 8

Work = Callable[[ScanTask, Any], Iterator[Any]]


def records(
    spark: SparkSession,
    path: Paths,
    *,
    columns: Sequence[str] | str | None = None,
    where: str | None = None,
    **options: Any,
) -> DataFrame:
    """
    Return the records of logs.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    path : path, or a sequence of them
        Files, globs, folders of partitions, brokers' data dirs, URLs of objects.
    columns : sequence of str, optional
        Of the view; what is not named is not decoded.
    where : str, optional
        A condition on batches, see `kafkascan.spark.where`; what it rules out is not decoded.
    **options
        By the names of the data source, such as ``startingOffsets=…``.

    Returns
    -------
    pyspark.sql.DataFrame
        The files as they are listed now; a new one looks again.

    Raises
    ------
    ValueError
        If an option is none.
    FileNotFoundError
        If a path is not there.
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
    Return one row per batch header.

    Parameters, result and errors as of `records`.
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
    Return one row per file.

    Parameters, result and errors as of `records`; `where` may ask for topic, partition and
    segment.
    """
    return view(spark, "segments", path, columns=columns, where=where, **options)


def view(spark: SparkSession, name: str, path: Paths, **options: Any) -> DataFrame:
    """Return the view of a name; parameters as of `records`."""
    import os

    paths = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    given = {"paths": [os.fspath(one) for one in paths], "view": name}
    parsed = Options.parse(given | options)
    files = list_files(parsed)
    parsed = spread(spark, parsed, files)
    tasks = plan(files, parsed, resolve_times(files, parsed))
    return map_tasks(spark, tasks, scan_task, parsed, ddl(parsed.schema()))


def spread(spark: SparkSession, options: Options, files: Sequence[FoundFile]) -> Options:
    """Return options with tasks small enough for all slots of a cluster to get some."""
    if options.min_partitions > 1:
        return options
    total = sum(file.size for file in files)
    share = max(_SMALLEST_SHARE, -(-total // (_TASKS_PER_SLOT * _slots(spark))))
    # A data source does not know how many slots there are, and makes smaller tasks.
    most = options.max_partition_bytes or max(options.task_bytes, _LARGEST_SHARE)
    return options.but(max_partition_bytes=min(most, share))


def _slots(spark: SparkSession) -> int:
    """How many tasks may run at once, as far as that is known."""
    try:
        return max(1, spark.sparkContext.defaultParallelism)
    except Exception:  # Connect knows no context, and says so in ways of its own
        return _UNKNOWN_SLOTS


def map_tasks(
    spark: SparkSession, tasks: Sequence[ScanTask], work: Work, argument: Any, schema: str
) -> DataFrame:
    """
    Return what `work` makes of tasks, each one in a task of Spark's.

    Parameters
    ----------
    spark : SparkSession
    tasks : sequence of ScanTask
    work : callable
        A function of a module: gets a task and `argument`, yields RecordBatches.
    argument : object
        Something that can be pickled.
    schema : str
        As Spark's SQL declares it.
    """
    # Each for itself: a task of Spark's gets all of them, and unpacks its own.
    packed = [zlib.compress(pickle.dumps(task), 1) for task in tasks]

    def run(ids: Iterator[Any]) -> Iterator[Any]:
        begin_task()
        for batch in ids:
            for number in batch.column(0).to_pylist():
                yield from work(pickle.loads(zlib.decompress(packed[number])), argument)

    numbers = spark.range(0, len(packed), 1, max(1, len(packed)))
    return numbers.mapInArrow(run, schema)
