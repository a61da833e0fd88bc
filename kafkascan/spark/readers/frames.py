"""Views as DataFrames by ``mapInArrow``: faster than the data source, with the same schemas."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pickle
import socket
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from kafkascan.spark.options.option_values import format_offsets
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.options.view_schemas import ddl
from kafkascan.spark.planning.read_plan import plan_read
from kafkascan.spark.readers.log_ends import LogEnds
from kafkascan.spark.rows.task_scan import scan_task

if TYPE_CHECKING:
    import os

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

# The first task imports further modules while its rows are sent to the JVM, so the second task
# freezes again.
_TASKS_THAT_IMPORT = 2

# Large enough for a RecordBatch; the kernel may grant less (net.core.wmem_max).
_SEND_BUFFER = 4 << 20

_begun = 0


def prepare_worker() -> None:
    """
    Tune the process that runs a task, if it is a Python worker of Spark. Call it first in a task.

    The worker collects garbage after each task (``pyspark/daemon.py``), which traverses all
    objects of pandas and other modules: 30 to 50 ms, several times the rest of a task's overhead.
    So the objects that exist when the first two tasks begin are frozen (`gc.freeze`). The process
    would keep them until its end anyway, except for reference cycles that lose their last user
    later.

    Data for the JVM waits in the kernel while the JVM processes earlier rows. The default send
    buffer holds a twentieth of a RecordBatch, and each part of the rest wakes a sleeping process
    on one side. So the send buffers are enlarged to hold a whole RecordBatch.
    """
    global _begun
    if _begun < _TASKS_THAT_IMPORT and _is_worker():
        _begun += 1
        gc.freeze()
        for descriptor in _open_descriptors():
            _enlarge_send_buffer(descriptor)


def _is_worker() -> bool:
    """Whether this process is a Python worker of Spark."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name in ("pyspark.daemon", "pyspark.worker")


def _open_descriptors() -> list[int]:
    """Return the file descriptors of this process; empty if the system does not list them."""
    with contextlib.suppress(OSError):
        return [int(name) for name in os.listdir("/dev/fd")]
    return []


def _enlarge_send_buffer(descriptor: int) -> None:
    """Enlarge the send buffer of a Unix socket: Spark's worker sends rows to the JVM by those."""
    try:
        one = socket.socket(fileno=descriptor)
    except OSError:  # not a socket, or closed meanwhile
        return
    try:
        # TCP buffers grow automatically unless they are set.
        if one.family == getattr(socket, "AF_UNIX", None):
            size = one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
            if size < _SEND_BUFFER:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
    except OSError:  # The kernel refuses. Rows are sent more slowly then.
        pass
    finally:
        one.detach()


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
        A condition on batches, see `kafkascan.spark.options.reader_options`. Batches that do not
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


def end_offsets(path: Paths, **options: Any) -> str:
    """
    Return the offsets at which a batch read of records ends now, as Spark's Kafka source has them.

    A batch read with ``endingOffsets`` of this value returns the records before these offsets, also
    when the logs have grown, and a query with ``startingOffsets`` of this value those from there
    on: of kafkascan, or of Spark's Kafka source on the broker that writes the logs.

    Parameters
    ----------
    path : path, or a sequence of them
        As in `records`.
    **options
        Options of the data source. With ``isolationLevel="read_committed"``, a log ends at its
        last stable offset at most.

    Returns
    -------
    str
        JSON, such as ``{"orders": {"0": 1234}}``, with all selected partitions. It is the offset
        after the last complete batch, unless ``endingOffsets`` or a timestamp ends the read before.

    Raises
    ------
    ValueError
        If an option is unknown or invalid, or two folders contain the same partition.
    FileNotFoundError
        If a path does not exist, or a selected topic has no logs.
    """
    parsed = _parsed("records", path, options)
    return json.dumps(format_offsets(LogEnds(parsed).ends_of_read()))


def _parsed(view: str, path: Paths, options: Mapping[str, Any]) -> Options:
    paths = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    return Options.parse({"paths": [os.fspath(one) for one in paths], "view": view, **options})


def view(spark: SparkSession, name: str, path: Paths, **options: Any) -> DataFrame:
    """Return a DataFrame of a view by name; the parameters are those of `records`."""
    parsed = _parsed(name, path, options)
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
