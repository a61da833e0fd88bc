"""All scenarios, in the order in which they are performed."""

from __future__ import annotations

from tests.oracle.scenarios.cleaner import compacted
from tests.oracle.scenarios.killed import being_written, preallocated
from tests.oracle.scenarios.legacy import (
    magic_0,
    magic_1,
    magic_1_compacted,
    magic_1_log_append_time,
    magic_mixed,
    magic_small_segments,
)
from tests.oracle.scenarios.logs import leader_epochs, partitions, small_segments
from tests.oracle.scenarios.own_topics import (
    classic_groups,
    cluster_metadata,
    consumer_groups,
    remote_segments,
    share_groups,
    transaction_state,
)
from tests.oracle.scenarios.producers import idempotent, transactions
from tests.oracle.scenarios.records import (
    codecs_java,
    codecs_librdkafka,
    headers,
    log_append_time,
    nulls_and_empties,
    timestamps,
)
from tests.oracle.scenarios.registry import framed_records, registry
from tests.oracle.scenarios.typed import typed_topics
from tests.oracle.stage import Scenario

STOPPED_SCENARIOS: tuple[Scenario, ...] = (
    codecs_java,
    codecs_librdkafka,
    nulls_and_empties,
    headers,
    timestamps,
    log_append_time,
    idempotent,
    transactions,
    compacted,
    small_segments,
    partitions,
    consumer_groups,
    leader_epochs,
    transaction_state,
    cluster_metadata,
)
"""Scenarios of the broker that is stopped cleanly; those about internal topics come last."""

KILLED_SCENARIOS: tuple[Scenario, ...] = (preallocated, being_written)
"""Scenarios of the broker that is killed by the last one."""

LEGACY_SCENARIOS: tuple[Scenario, ...] = (
    magic_0,
    magic_1,
    magic_1_log_append_time,
    magic_mixed,
    magic_small_segments,
    magic_1_compacted,
)
"""Scenarios of the old broker, which is stopped cleanly."""

TIERED_SCENARIOS: tuple[Scenario, ...] = (remote_segments, share_groups)
"""Scenarios of the broker with remote storage, which is stopped cleanly."""

EARLIER_SCENARIOS: tuple[Scenario, ...] = (
    nulls_and_empties,
    idempotent,
    transactions,
    consumer_groups,
    leader_epochs,
    transaction_state,
    cluster_metadata,
)
"""Scenarios of the brokers between: topics, and what they write to their own topics."""

LEGACY_GROUP_SCENARIOS: tuple[Scenario, ...] = (transactions, classic_groups, transaction_state)
"""Scenarios of the old broker's own topics."""

SCHEMA_SCENARIOS: tuple[Scenario, ...] = (registry, framed_records)
"""Scenarios of a schema registry's topic, and of records that name schemas."""

TYPED_SCENARIOS: tuple[Scenario, ...] = (typed_topics,)
"""Scenarios of values with types, which have a registry's topic of their own."""
