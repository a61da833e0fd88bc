"""Views of Kafka's own topics: their tables, and the columns of these in Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafkascan.format.suggestions import suggestion
from kafkascan.internal_topics.consumer_groups import GROUPS_TOPIC, OFFSET_KINDS
from kafkascan.internal_topics.coordinator_records import UNKNOWN_KINDS
from kafkascan.internal_topics.group_members import GROUP_KINDS, MEMBER_KINDS
from kafkascan.internal_topics.metadata.metadata_reading import METADATA_TOPIC
from kafkascan.internal_topics.metadata.metadata_tables import TABLE_KINDS
from kafkascan.internal_topics.remote_storage.remote_segments import (
    DELETION_KINDS,
    REMOTE_TOPIC,
    SEGMENT_KINDS,
)
from kafkascan.internal_topics.share_groups.share_states import (
    SHARE_BATCH_KINDS,
    SHARE_PARTITION_KINDS,
    SHARE_TOPIC,
)
from kafkascan.internal_topics.state_tables import PARTITIONS, TASKS
from kafkascan.internal_topics.transaction_states import TRANSACTION_KINDS, TRANSACTIONS_TOPIC
from kafkascan.spark.options.view_schemas import Column

Kinds = Mapping[str, str]

WARNINGS = "warnings"
"""The table of sentences about everything that makes an answer incomplete."""

_OF_ALL: dict[str, Kinds] = {"unknown": UNKNOWN_KINDS, WARNINGS: {"warning": "string"}}


@dataclass(frozen=True)
class StateView:
    """
    A view of one of Kafka's own topics.

    Attributes
    ----------
    topic : str
    tables : mapping of str
        The columns of its tables and their kinds, as in a `StateTable`.
    """

    topic: str
    tables: Mapping[str, Kinds]


STATE_VIEWS: Mapping[str, StateView] = {
    "groups": StateView(
        GROUPS_TOPIC,
        {
            "offsets": OFFSET_KINDS,
            "groups": GROUP_KINDS,
            "members": MEMBER_KINDS,
            "pending": OFFSET_KINDS,
        }
        | _OF_ALL,
    ),
    "transaction_state": StateView(
        TRANSACTIONS_TOPIC, {"transactions": TRANSACTION_KINDS} | _OF_ALL
    ),
    "metadata": StateView(METADATA_TOPIC, dict(TABLE_KINDS) | _OF_ALL),
    "remote_segments": StateView(
        REMOTE_TOPIC, {"segments": SEGMENT_KINDS, "deletions": DELETION_KINDS} | _OF_ALL
    ),
    "share_state": StateView(
        SHARE_TOPIC, {"partitions": SHARE_PARTITION_KINDS, "batches": SHARE_BATCH_KINDS} | _OF_ALL
    ),
}

DATA_DIR = Column("dataDir", "string")
CLUSTER_ID = Column("clusterId", "string", nullable=True)

_SPARK_TYPES = {
    "bool": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "float64": "double",
    "time": "timestamp",
    "list<int32>": "array<int>",
    "list<string>": "array<string>",
    PARTITIONS: "array<struct<topic:string,topicId:string,partitions:array<int>>>",
    TASKS: "array<struct<role:string,subtopology:string,partitions:array<int>>>",
}


def require_table(view: str, table: str) -> None:
    """Raise `ValueError` if a view does not have a table."""
    tables = STATE_VIEWS[view].tables
    if table not in tables:
        raise ValueError(f"{view} has no table {table!r}{suggestion(table, list(tables))}")


def state_columns(view: str, table: str) -> tuple[Column, ...]:
    """Return the columns of a table in Spark: its data dir and cluster, then those of the table."""
    kinds = STATE_VIEWS[view].tables[table]
    found = [
        Column(spark_name(name), _SPARK_TYPES.get(kind, kind), nullable=True)
        for name, kind in kinds.items()
    ]
    return (DATA_DIR, CLUSTER_ID, *found)


def spark_name(name: str) -> str:
    """Return the name of a column in Spark: ``leaderEpoch`` for ``leader_epoch``."""
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
