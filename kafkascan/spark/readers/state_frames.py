"""Kafka's own topics as DataFrames: the state in the data dirs of a fleet."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kafkascan.internal_topics.topic_replay import AsOf
from kafkascan.spark.options.state_schemas import STATE_VIEWS, require_table, state_columns
from kafkascan.spark.options.view_schemas import ddl
from kafkascan.spark.planning.data_dirs import find_data_dirs
from kafkascan.spark.readers.frames import map_tasks
from kafkascan.spark.rows.state_rows import StateQuery, state_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kafkascan.spark.readers.frames import Paths


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
