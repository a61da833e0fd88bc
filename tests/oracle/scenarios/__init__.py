"""Everything that happens on a broker, in the order in which it happens."""

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
from tests.oracle.scenarios.own_topics import cluster_metadata, consumer_groups, transaction_state
from tests.oracle.scenarios.producers import idempotent, transactions
from tests.oracle.scenarios.records import (
    codecs_java,
    codecs_librdkafka,
    headers,
    log_append_time,
    nulls_and_empties,
    timestamps,
)
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
"""On the broker that is stopped cleanly; what looks at its own topics comes last."""

KILLED_SCENARIOS: tuple[Scenario, ...] = (preallocated, being_written)
"""On the broker that is killed; the last one does it."""

LEGACY_SCENARIOS: tuple[Scenario, ...] = (
    magic_0,
    magic_1,
    magic_1_log_append_time,
    magic_mixed,
    magic_small_segments,
    magic_1_compacted,
)
"""On the old broker, which is stopped cleanly."""
