"""Audit checks of logs against their coordinators: committed offsets and open transactions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from kafkascan.analysis.transaction_contradictions import UNKNOWN_PRODUCER, contradiction, owners
from kafkascan.auditing.finding_kinds import FoundInLog, LogFinding
from kafkascan.format.findings import Severity
from kafkascan.internal_topics.consumer_groups import read_groups
from kafkascan.internal_topics.transaction_states import (
    TRANSACTIONS_TOPIC,
    read_transaction_state,
)
from kafkascan.logs.log_dir import LogDir, PartitionDir


class OpenTransaction(NamedTuple):
    """An open transaction of a log; it hangs if it has been idle for too long."""

    partition: PartitionDir
    span: np.void
    is_hanging: bool


def check_committed_offsets(log_dir: LogDir) -> Iterator[LogFinding]:
    """
    Yield findings about offsets that groups have committed beyond the ends of logs.

    The ends are read after the offsets: a broker may write both meanwhile.
    """
    groups = read_groups(log_dir.path)
    beyond: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for row in groups.offsets.rows():
        if row["lag"] is not None and row["lag"] < 0:
            beyond[row["topic"], row["partition"]].append(row)
    partitions = _partitions(log_dir)
    for place, rows in beyond.items():
        furthest = max(rows, key=lambda row: int(row["offset"]))
        found = FoundInLog()
        found.add(
            "COMMITTED_BEYOND_END",
            None,
            f"the log ends at offset {furthest['log_end_offset']}, but group"
            f" {furthest['group']!r} has committed offset {furthest['offset']}",
            offset=furthest["log_end_offset"],
            count=len(rows),
        )
        yield from found.findings(*place, partitions[place].path)


def check_transactions(
    log_dir: LogDir, opened: Iterable[OpenTransaction], *, knows_all_states: bool
) -> Iterator[LogFinding]:
    """
    Yield findings about open transactions that no coordinator will end.

    Parameters
    ----------
    log_dir : LogDir
    opened : iterable of OpenTransaction
    knows_all_states : bool
        Whether all partitions of ``__transaction_state`` are in the data dir. Otherwise a producer
        that none of them knows is not a finding.
    """
    states = owners(read_transaction_state(log_dir.path))
    for one in opened:
        partition, span = one.partition, one.span
        owner = states.get(int(span["producer_id"]))
        contradicting = contradiction(owner, partition.topic, partition.partition, span)
        if contradicting is None:
            continue
        symbol, reason = contradicting
        if symbol == UNKNOWN_PRODUCER and not knows_all_states:
            continue
        found = FoundInLog()
        found.add(
            "FORGOTTEN_TRANSACTION",
            None,
            f"the transaction of producer {span['producer_id']} is open since offset"
            f" {span['first_offset']}, but {reason}",
            offset=int(span["first_offset"]),
            # A copy of a running broker's files may contain them as of different moments.
            severity=None if one.is_hanging else Severity.NOTE,
        )
        yield from found.findings(partition.topic, partition.partition, partition.path)


def has_all_states(log_dir: LogDir, partition_counts: Mapping[str, int] | None) -> bool:
    """Return whether all partitions of ``__transaction_state`` are in a data dir."""
    count = (partition_counts or {}).get(TRANSACTIONS_TOPIC)
    here = {number for topic, number in _partitions(log_dir) if topic == TRANSACTIONS_TOPIC}
    return count is not None and here == set(range(count))


def _partitions(log_dir: LogDir) -> dict[tuple[str, int], PartitionDir]:
    return {
        (one.topic, one.partition): one
        for one in log_dir.partitions
        if one.state is None and one.topic is not None and one.partition is not None
    }
