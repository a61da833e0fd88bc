"""Kafka's own topics as DataFrames: the state in the data dirs of a fleet."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkascan.broker_state.checkpoints import META_PROPERTIES, read_meta_properties
from kafkascan.format.errors import CorruptCheckpointError, NoLogsError
from kafkascan.format.file_names import (
    GROUPS_TOPIC,
    METADATA_TOPIC,
    REMOTE_TOPIC,
    SHARE_TOPIC,
    TRANSACTIONS_TOPIC,
)
from kafkascan.format.suggestions import suggestion
from kafkascan.internal_topics.consumer_groups import Groups, read_groups
from kafkascan.internal_topics.metadata.metadata_reading import (
    Metadata,
    read_metadata,
)
from kafkascan.internal_topics.remote_segments import (
    RemoteSegments,
    read_remote_segments,
)
from kafkascan.internal_topics.share_states import ShareState, read_share_state
from kafkascan.internal_topics.transaction_states import (
    TransactionStates,
    read_transaction_state,
)
from kafkascan.io.folders import SideFileTooLargeError
from kafkascan.logs.log_dir import PartitionDir
from kafkascan.logs.log_finding import open_log_dir
from kafkascan.logs.topic_records import AsOf
from kafkascan.spark.options.view_schemas import arrow_schema, ddl
from kafkascan.spark.readers.frames import map_tasks
from kafkascan.spark.rows.damage_modes import logger
from kafkascan.tables.schema import Field, Schema, require_pyarrow, schemas_by_name
from kafkascan.tables.table import PROBLEM_SCHEMA, AnyTable, arrow_column
from kafkascan.tables.table_set import TableSet

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from kafkascan.spark.readers.frames import Paths


class StateView(NamedTuple):
    """A view of one of Kafka's own topics: topic, schemas of the tables by name, and reader."""

    topic: str
    schemas: Mapping[str, Schema]
    read: Callable[..., TableSet]


STATE_VIEWS: Mapping[str, StateView] = {
    name: StateView(topic, result.schemas | schemas_by_name(PROBLEM_SCHEMA), read)
    for name, topic, result, read in (
        ("groups", GROUPS_TOPIC, Groups, read_groups),
        ("transaction_state", TRANSACTIONS_TOPIC, TransactionStates, read_transaction_state),
        ("metadata", METADATA_TOPIC, Metadata, read_metadata),
        ("remote_segments", REMOTE_TOPIC, RemoteSegments, read_remote_segments),
        ("share_state", SHARE_TOPIC, ShareState, read_share_state),
    )
}

DATA_DIR = Field("data_dir", "string", "data dir of the row", nullable=False)
CLUSTER_ID = Field("cluster_id", "string", "id of the cluster, from meta.properties")


def require_table(view: str, table: str) -> None:
    """Raise `ValueError` if a view does not have a table."""
    schemas = STATE_VIEWS[view].schemas
    if table not in schemas:
        raise ValueError(f"{view} has no table {table!r}{suggestion(table, list(schemas))}")


def state_columns(view: str, table: str) -> Schema:
    """Return the columns of a table in Spark: its data dir and cluster, then those of the table."""
    return STATE_VIEWS[view].schemas[table].with_first((DATA_DIR, CLUSTER_ID))


_ROWS = 1 << 14


@dataclass(frozen=True)
class StateQuery:
    """
    A table of a view of state.

    Attributes
    ----------
    view, table : str
        Names in `STATE_VIEWS`.
    as_of : int, mapping, str, datetime, or None
        As in `read_groups`.
    """

    view: str
    table: str
    as_of: AsOf | None


def state_task(data_dir: str, query: StateQuery) -> Iterator[pa.RecordBatch]:
    """
    Yield the rows of a table for one data dir.

    Problems are logged, because an answer without rows cannot show that it is incomplete.
    """
    answer = STATE_VIEWS[query.view].read(data_dir, as_of=query.as_of)
    for problem in answer.problems:
        logger.warning("%s: %s", data_dir, problem)
    table = _table(answer, query.table)
    schema = arrow_schema(state_columns(query.view, query.table))
    place = {DATA_DIR: data_dir, CLUSTER_ID: _cluster_id(data_dir)}
    for start in range(0, len(table), _ROWS):
        stop = min(start + _ROWS, len(table))
        columns: dict[Field, list[Any]] = {
            one: [value] * (stop - start) for one, value in place.items()
        }
        columns |= {one: table[one.name][start:stop] for one in table.schema}
        arrays = [arrow_column(one, values, is_spark=True) for one, values in columns.items()]
        yield require_pyarrow().RecordBatch.from_arrays(arrays, schema=schema)


def _table(answer: TableSet, table: str) -> AnyTable:
    return answer.problems if table == PROBLEM_SCHEMA.name else answer.tables[table]


def _cluster_id(data_dir: str) -> str | None:
    """Return the id of the cluster to which a data dir belongs, if its ``meta.properties`` has."""
    try:
        found = read_meta_properties(os.path.join(data_dir, META_PROPERTIES))
    except (FileNotFoundError, NotADirectoryError):  # a copy of some partitions, or a tar
        return None
    except (CorruptCheckpointError, SideFileTooLargeError) as error:
        logger.warning("%s: the id of the cluster is not known: %s", data_dir, error)
        return None
    return found.get("cluster.id")


# Levels of folders above the data dirs: a cluster, a broker, its disks.
_LEVELS = 3


def find_data_dirs(paths: Sequence[str], topic: str) -> list[str]:
    """
    Return the data dirs that have partitions of a topic.

    Parameters
    ----------
    paths : sequence of str
        Data dirs, folders that contain data dirs, tars, and globs of them.
    topic : str

    Raises
    ------
    FileNotFoundError
        If a path does not exist; `NoLogsError` if it contains no data dir with this topic.
    ValueError
        If a path is the URL of an object store.
    """
    found: dict[str, None] = {}
    for path in paths:
        if "://" in path:
            raise ValueError(f"{path}: state is read from local folders, not from object stores")
        listed = [one for named in _named(path) for one in _below(named, topic, _LEVELS)]
        if not listed:
            raise NoLogsError(path, f"no data dir with partitions of {topic}")
        found |= dict.fromkeys(os.path.abspath(one) for one in listed)
    return list(found)


def _named(path: str) -> list[str]:
    if glob.has_magic(path) and not os.path.lexists(path):
        return sorted(glob.glob(path))
    return [path]


def _below(path: str, topic: str, levels: int) -> Iterator[str]:
    """Yield the data dirs at a path and below it; folders in a data dir are partitions."""
    try:
        partitions: Sequence[PartitionDir] = open_log_dir(path).partitions
    except NoLogsError:
        partitions = ()
    if any(one.topic == topic for one in partitions):
        yield path
    elif levels and not any(one.segments for one in partitions):
        # A data dir may be named as a partition is: broker-1.
        with os.scandir(path) as entries:
            inner = sorted(entry.path for entry in entries if entry.is_dir())
        for one in inner:
            yield from _below(one, topic, levels - 1)


def groups(
    spark: SparkSession, path: Paths, *, table: str = "offsets", as_of: AsOf | None = None
) -> DataFrame:
    """
    Return a DataFrame of consumer groups, as `kafkascan.read_groups` reads them.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    path : path, or a sequence of them
        Data dirs, folders that contain data dirs (up to three levels down), tars, and globs of
        them. Driver and executors must have access to them; URLs of object stores are an error.
    table : str, default "offsets"
        ``offsets``, ``groups``, ``members``, ``pending``; for each view, also ``unknown`` and
        ``problems``: everything that makes the answer of a data dir incomplete.
    as_of : int, mapping, str or datetime, optional
        As in `kafkascan.read_groups`, for each data dir.

    Returns
    -------
    pyspark.sql.DataFrame
        The columns ``data_dir`` and ``cluster_id`` (from ``meta.properties``), and those of the
        library's table. Replicas in several data dirs are not merged.

    Raises
    ------
    NoLogsError
        If a path contains no data dir with partitions of the topic.
    ValueError
        If the table is unknown, or a path is a URL.
    """
    return _state_frame(spark, "groups", path, table, as_of)


def transaction_state(
    spark: SparkSession, path: Paths, *, table: str = "transactions", as_of: AsOf | None = None
) -> DataFrame:
    """
    Return a DataFrame of transactional ids, as `kafkascan.read_transaction_state` reads them.

    The table is ``transactions``; parameters, result and errors are those of `groups`.
    """
    return _state_frame(spark, "transaction_state", path, table, as_of)


def metadata(
    spark: SparkSession, path: Paths, *, table: str = "partitions", as_of: AsOf | None = None
) -> DataFrame:
    """
    Return a DataFrame of clusters' metadata, as `kafkascan.read_metadata` reads it.

    The tables are ``brokers``, ``controllers``, ``topics``, ``partitions``, ``configs``,
    ``features``, ``scram``, ``acls``, ``quotas``, ``tokens``, without secrets. Parameters, result
    and errors are those of `groups`.
    """
    return _state_frame(spark, "metadata", path, table, as_of)


def remote_segments(
    spark: SparkSession, path: Paths, *, table: str = "segments", as_of: AsOf | None = None
) -> DataFrame:
    """
    Return a DataFrame of segments in remote storage, as `kafkascan.read_remote_segments` reads it.

    The tables are ``segments`` and ``deletions``; parameters, result and errors are those of
    `groups`.
    """
    return _state_frame(spark, "remote_segments", path, table, as_of)


def share_state(
    spark: SparkSession, path: Paths, *, table: str = "partitions", as_of: AsOf | None = None
) -> DataFrame:
    """
    Return a DataFrame of the state of share groups, as `kafkascan.read_share_state` reads it.

    The tables are ``partitions`` and ``batches``; parameters, result and errors are those of
    `groups`.
    """
    return _state_frame(spark, "share_state", path, table, as_of)


def _state_frame(
    spark: SparkSession, view: str, path: Paths, table: str, as_of: AsOf | None
) -> DataFrame:
    require_table(view, table)
    paths = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    data_dirs = find_data_dirs([os.fspath(one) for one in paths], STATE_VIEWS[view].topic)
    query = StateQuery(view, table, as_of)
    return map_tasks(spark, data_dirs, state_task, query, ddl(state_columns(view, table)))
