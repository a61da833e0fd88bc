"""Compare the logs of a data dir with Kafka's own topics in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kafkascan.auditing.cluster.assignment_checks import (
    DataDirOwner,
    check_assignments,
    partition_counts,
)
from kafkascan.auditing.cluster.coordinator_checks import (
    OpenTransaction,
    check_committed_offsets,
    check_transactions,
    has_all_states,
)
from kafkascan.auditing.finding_kinds import LogFinding
from kafkascan.format.errors import KafkaScanError
from kafkascan.internal_topics.consumer_groups import GROUPS_TOPIC
from kafkascan.internal_topics.metadata.metadata_reading import (
    METADATA_TOPIC,
    Metadata,
    read_metadata,
)
from kafkascan.internal_topics.transaction_states import TRANSACTIONS_TOPIC
from kafkascan.logs.log_dir import LogDir

_SUBJECTS = {
    GROUPS_TOPIC: "committed offsets",
    TRANSACTIONS_TOPIC: "the coordinators of open transactions",
    METADATA_TOPIC: "the assignment of partitions",
}


@dataclass
class ClusterChecks:
    """
    Findings of `check_cluster`.

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
            checks.add(topic, check_committed_offsets(log_dir))
        else:
            counts = None if metadata is None else partition_counts(metadata)
            knows_all = has_all_states(log_dir, counts)
            checks.add(topic, check_transactions(log_dir, opened, knows_all_states=knows_all))
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
