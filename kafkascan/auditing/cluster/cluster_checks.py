"""Compare the logs of a data dir with Kafka's own topics in it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from kafkascan.analysis.transaction_contradictions import UNKNOWN_PRODUCER, contradiction, owners
from kafkascan.auditing.cluster.assignment_checks import (
    DataDirOwner,
    check_assignments,
    partition_counts,
)
from kafkascan.auditing.finding_kinds import FoundInLog, LogFinding
from kafkascan.format.errors import KafkaScanError
from kafkascan.format.findings import Severity
from kafkascan.internal_topics.consumer_groups import GROUPS_TOPIC, read_groups
from kafkascan.internal_topics.metadata.metadata_reading import (
    METADATA_TOPIC,
    Metadata,
    read_metadata,
)
from kafkascan.internal_topics.transaction_states import (
    TRANSACTIONS_TOPIC,
    read_transaction_state,
)
from kafkascan.logs.log_dir import LogDir, PartitionDir

_SUBJECTS = {
    GROUPS_TOPIC: "committed offsets",
    TRANSACTIONS_TOPIC: "the coordinators of open transactions",
    METADATA_TOPIC: "the assignment of partitions",
}


class OpenTransaction(NamedTuple):
    """An open transaction of a log; it hangs if it has been idle for too long."""

    partition: PartitionDir
    span: np.void
    is_hanging: bool


@dataclass
class ClusterChecks:
    """
    Findings of a comparison with what the cluster knows.

    Attributes
    ----------
    findings : list of LogFinding
    unchecked : list of str
        Sentences about the checks that could not be made, with the reason.
    """

    findings: list[LogFinding] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)

    def add(self, topic: str, findings: Iterator[LogFinding]) -> None:
        """Add the findings of a check, which reads a topic."""
        try:
            self.findings += findings
        except (KafkaScanError, OSError) as error:
            self.skip(topic, str(error))

    def skip(self, topic: str, reason: str) -> None:
        """Add the sentence about a check that was not made."""
        self.unchecked.append(f"{_SUBJECTS[topic]}: not checked: {reason}")


def check_cluster(log_dir: LogDir, opened: Iterable[OpenTransaction]) -> ClusterChecks:
    """
    Compare the logs of a data dir with the topics of coordinators and with the metadata in it.

    Parameters
    ----------
    log_dir : LogDir
        The folder of a partition, or a tar of several data dirs, has no findings.
    opened : iterable of OpenTransaction
    """
    checks = ClusterChecks()
    parents = {one.folder.parent.path for one in log_dir.partitions}
    if len(parents) != 1 or log_dir.partitions[0].path == log_dir.path:
        return checks
    topics = {one.topic for one in log_dir.partitions if one.state is None}
    metadata = None
    for topic in (METADATA_TOPIC, GROUPS_TOPIC, TRANSACTIONS_TOPIC):
        if topic not in topics:
            checks.skip(topic, f"there is no partition of {topic} in {log_dir.path}")
        elif topic == METADATA_TOPIC:
            metadata = _check_metadata(log_dir, checks)
        elif topic == GROUPS_TOPIC:
            checks.add(topic, _check_committed_offsets(log_dir))
        else:
            counts = {} if metadata is None else partition_counts(metadata)
            knows_all = _has_all_states(log_dir, counts)
            checks.add(topic, _check_transactions(log_dir, opened, knows_all_states=knows_all))
    return checks


def _check_metadata(log_dir: LogDir, checks: ClusterChecks) -> Metadata | None:
    """Check the assignment of partitions; return the metadata if it is complete."""
    owner = DataDirOwner.of(log_dir)
    try:
        metadata = read_metadata(log_dir.path)
    except (KafkaScanError, OSError) as error:
        checks.skip(METADATA_TOPIC, str(error))
        return None
    if not metadata.is_exact:
        checks.skip(METADATA_TOPIC, str(next(iter(metadata.problems))))
        return None
    if owner is None:
        checks.skip(METADATA_TOPIC, f"meta.properties in {log_dir.path} does not name the broker")
    else:
        checks.add(METADATA_TOPIC, check_assignments(log_dir, owner, metadata))
    return metadata


def _check_committed_offsets(log_dir: LogDir) -> Iterator[LogFinding]:
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


def _check_transactions(
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


def _has_all_states(log_dir: LogDir, counts: Mapping[str, int]) -> bool:
    """Return whether all partitions of ``__transaction_state`` are in a data dir."""
    count = counts.get(TRANSACTIONS_TOPIC)
    here = {number for topic, number in _partitions(log_dir) if topic == TRANSACTIONS_TOPIC}
    return count is not None and here == set(range(count))


def _partitions(log_dir: LogDir) -> dict[tuple[str, int], PartitionDir]:
    return {
        (one.topic, one.partition): one
        for one in log_dir.partitions
        if one.state is None and one.topic is not None and one.partition is not None
    }
