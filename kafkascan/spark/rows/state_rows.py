"""Rows of Kafka's own topics: a task reads the state in one data dir."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafkascan.broker_state.checkpoints import META_PROPERTIES, read_meta_properties
from kafkascan.format.errors import CorruptCheckpointError
from kafkascan.format.texts import with_escaped_bytes
from kafkascan.internal_topics.consumer_groups import read_groups
from kafkascan.internal_topics.metadata.metadata_reading import Metadata, read_metadata
from kafkascan.internal_topics.remote_storage.remote_segments import read_remote_segments
from kafkascan.internal_topics.share_groups.share_states import read_share_state
from kafkascan.internal_topics.state_tables import StateTable
from kafkascan.internal_topics.topic_replay import AsOf
from kafkascan.internal_topics.transaction_states import read_transaction_state
from kafkascan.io.folders import SideFileTooLargeError
from kafkascan.spark.options.state_schemas import (
    CLUSTER_ID,
    DATA_DIR,
    STATE_VIEWS,
    WARNINGS,
    spark_name,
    state_columns,
)
from kafkascan.spark.options.view_schemas import arrow_schema
from kafkascan.spark.rows.arrow_columns import LATEST_MS
from kafkascan.spark.rows.damage_modes import logger
from kafkascan.tables.schema import require_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

_READERS: Mapping[str, Callable[..., Any]] = {
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

    Warnings are logged, because an answer without rows cannot show that it is incomplete.
    """
    answer = _READERS[query.view](data_dir, as_of=query.as_of)
    for warning in answer.warnings:
        logger.warning("%s: %s", data_dir, warning)
    table = _table(answer, query)
    schema = arrow_schema(state_columns(query.view, query.table))
    place = {DATA_DIR.name: data_dir, CLUSTER_ID.name: _cluster_id(data_dir)}
    for start in range(0, len(table), _ROWS):
        columns = {
            spark_name(name): _spark_values(table.kinds[name], values[start : start + _ROWS])
            for name, values in table.columns.items()
        }
        count = min(_ROWS, len(table) - start)
        columns |= {name: [value] * count for name, value in place.items()}
        yield require_pyarrow().RecordBatch.from_pydict(columns, schema=schema)


def _table(answer: Any, query: StateQuery) -> StateTable:
    if query.table == WARNINGS:
        kinds = STATE_VIEWS[query.view].tables[WARNINGS]
        return StateTable(WARNINGS, kinds, {"warning": list(answer.warnings)})
    if isinstance(answer, Metadata) and query.table in answer.tables:
        return answer[query.table]
    table: StateTable = getattr(answer, query.table)
    return table


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


def _spark_values(kind: str, values: list[Any]) -> list[Any]:
    """Return values as Spark has them: times in microseconds, names of fields in its spelling."""
    if kind == "time":
        return [_microseconds(value) for value in values]
    if kind == "string":
        return [None if value is None else with_escaped_bytes(value) for value in values]
    return [_renamed(value) for value in values]


def _microseconds(milliseconds: int | None) -> int | None:
    is_time = milliseconds is not None and 0 <= milliseconds <= LATEST_MS
    return milliseconds * 1000 if milliseconds is not None and is_time else None


def _renamed(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_renamed(one) for one in value]
    if isinstance(value, Mapping):
        return {spark_name(name): _renamed(one) for name, one in value.items()}
    return value
