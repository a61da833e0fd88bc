"""Rows of Kafka's own topics: a task reads the state in one data dir."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafkascan.broker_state.checkpoints import META_PROPERTIES, read_meta_properties
from kafkascan.format.errors import CorruptCheckpointError
from kafkascan.internal_topics.consumer_groups import read_groups
from kafkascan.internal_topics.metadata.metadata_reading import read_metadata
from kafkascan.internal_topics.remote_storage.remote_segments import read_remote_segments
from kafkascan.internal_topics.share_groups.share_states import read_share_state
from kafkascan.internal_topics.topic_replay import AsOf
from kafkascan.internal_topics.transaction_states import read_transaction_state
from kafkascan.io.folders import SideFileTooLargeError
from kafkascan.spark.options.state_schemas import (
    CLUSTER_ID,
    DATA_DIR,
    state_columns,
)
from kafkascan.spark.options.view_schemas import arrow_schema
from kafkascan.spark.rows.arrow_columns import LATEST_MS
from kafkascan.spark.rows.damage_modes import logger
from kafkascan.tables.schema import Field, require_pyarrow
from kafkascan.tables.table import PROBLEM_SCHEMA, AnyTable, arrow_column
from kafkascan.tables.table_set import TableSet

if TYPE_CHECKING:
    import pyarrow as pa

_READERS: Mapping[str, Callable[..., TableSet]] = {
    "groups": read_groups,
    "transaction_state": read_transaction_state,
    "metadata": read_metadata,
    "remote_segments": read_remote_segments,
    "share_state": read_share_state,
}
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
    answer = _READERS[query.view](data_dir, as_of=query.as_of)
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
        columns |= {one: _spark_values(one, table[one.name][start:stop]) for one in table.schema}
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


def _spark_values(column: Field, values: list[Any]) -> list[Any]:
    """Return values without the times that a timestamp of Spark does not have."""
    if column.type != "time":
        return values
    return [None if one is None or not 0 <= one <= LATEST_MS else one for one in values]
