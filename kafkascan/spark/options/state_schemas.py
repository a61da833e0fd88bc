"""Views of Kafka's own topics: their tables, and the columns of these in Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kafkascan.format.suggestions import suggestion
from kafkascan.internal_topics.consumer_groups import GROUPS_TOPIC, Groups
from kafkascan.internal_topics.metadata.metadata_reading import METADATA_TOPIC, Metadata
from kafkascan.internal_topics.remote_segments import REMOTE_TOPIC, RemoteSegments
from kafkascan.internal_topics.share_states import SHARE_TOPIC, ShareState
from kafkascan.internal_topics.transaction_states import TRANSACTIONS_TOPIC, TransactionStates
from kafkascan.tables.schema import Field, Schema, schemas_by_name
from kafkascan.tables.table import PROBLEM_SCHEMA


class StateView(NamedTuple):
    """A view of one of Kafka's own topics: the topic, and the schemas of the tables by name."""

    topic: str
    schemas: Mapping[str, Schema]


STATE_VIEWS: Mapping[str, StateView] = {
    name: StateView(topic, result.schemas | schemas_by_name(PROBLEM_SCHEMA))
    for name, topic, result in (
        ("groups", GROUPS_TOPIC, Groups),
        ("transaction_state", TRANSACTIONS_TOPIC, TransactionStates),
        ("metadata", METADATA_TOPIC, Metadata),
        ("remote_segments", REMOTE_TOPIC, RemoteSegments),
        ("share_state", SHARE_TOPIC, ShareState),
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
