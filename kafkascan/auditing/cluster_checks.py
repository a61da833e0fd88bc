"""Compare the logs of a data dir with Kafka's own topics in it."""

from __future__ import annotations

import functools
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kafkascan.analysis.transaction_contradictions import UNKNOWN_PRODUCER, contradiction, owners
from kafkascan.auditing.finding_kinds import FoundInLog, LogFinding
from kafkascan.broker_state.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    META_PROPERTIES,
    parse_meta_properties,
)
from kafkascan.format.errors import KafkaScanError
from kafkascan.format.file_names import GROUPS_TOPIC, METADATA_TOPIC, TRANSACTIONS_TOPIC
from kafkascan.format.findings import Severity
from kafkascan.io.folders import DiskFolder, Folder
from kafkascan.io.stores.urls import disk_path
from kafkascan.logs.log_dir import LogDir, PartitionDir
from kafkascan.logs.log_table import LogDirLike
from kafkascan.logs.metadata_log import METADATA_PARTITION
from kafkascan.logs.reading import read_records

if TYPE_CHECKING:  # what reads a topic is imported if the topic is there
    from kafkascan.internal_topics.metadata.metadata_reading import Metadata

# A broker creates and renames folders after it has read the records about them.
_GRACE_MS = 60_000
# The ids 0 and 1: a log of before Kafka 3.7, or one that its broker has not placed (`DirectoryId`).
_ANY_DIR = ("AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAQ")
_NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"

Place = tuple[str, int]


@dataclass(frozen=True)
class DataDirOwner:
    """The broker that a data dir belongs to; ``directory_id`` is None before Kafka 3.7."""

    node_id: int
    cluster_id: str | None
    directory_id: str | None

    @classmethod
    def of(cls, data_dir: Folder) -> DataDirOwner | None:
        """Return the owner from ``meta.properties``; None if the file does not name it."""
        try:
            data = data_dir.read(META_PROPERTIES)
            known = parse_meta_properties(data or b"", str(data_dir.path / META_PROPERTIES))
            return cls(int(known["node.id"]), known.get("cluster.id"), known.get("directory.id"))
        except (OSError, KafkaScanError, LookupError, ValueError):
            return None

    def is_same_broker(self, other: DataDirOwner) -> bool:
        """Return whether another data dir belongs to the same broker."""
        return (self.node_id, self.cluster_id) == (other.node_id, other.cluster_id)


class AuditedDirs(Iterable[LogDirLike]):
    """
    The data dirs that are audited together; each is looked at once, if the first one is asked for.

    Parameters
    ----------
    paths : iterable of path, URL or LogDir
        Of the paths, only data dirs on disk count: brokers have no others.
    """

    def __init__(self, paths: Iterable[LogDirLike]) -> None:
        self._paths = list(paths)

    def __iter__(self) -> Iterator[LogDirLike]:
        return iter(self._paths)

    @functools.cached_property
    def _known(self) -> list[tuple[DataDirOwner, bool]]:
        """Their owners, and whether the metadata log is in each."""
        return [one for path in self if (one := _look_at(path)) is not None]

    def of_same_broker(self, owner: DataDirOwner) -> list[tuple[str | None, bool]]:
        """Return the ids of a broker's data dirs, and whether the metadata log is in each."""
        return [
            (other.directory_id, has_metadata)
            for other, has_metadata in self._known
            if owner.is_same_broker(other)
        ]


def _look_at(data_dir: LogDirLike) -> tuple[DataDirOwner, bool] | None:
    """Return the owner of a data dir, and whether the metadata log is in it, if it names one."""
    try:
        if isinstance(data_dir, LogDir):
            is_needed = bool(data_dir.partitions) and not data_dir.is_partition
            owner = DataDirOwner.of(data_dir.partitions[-1].folder.parent) if is_needed else None
            has_metadata = any(one.topic == METADATA_TOPIC for one in data_dir.partitions)
        else:
            path = disk_path(data_dir)
            owner = DataDirOwner.of(DiskFolder(path))
            has_metadata = os.path.isdir(path / METADATA_PARTITION)
    except Exception:  # of any kind: what is wrong with a data dir is in its own audit
        return None
    return None if owner is None else (owner, has_metadata)


def partition_counts(metadata: Metadata) -> dict[str, int]:
    """Return the number of partitions of each topic."""
    return {row["topic"]: row["partitions"] for row in metadata["topics"].rows()}


def check_assignments(log_dir: LogDir, owner: DataDirOwner, now: Metadata) -> Iterator[LogFinding]:
    """
    Yield findings about logs that the metadata does not assign to the data dir, and missing ones.

    A running broker follows the metadata with a delay, and a copy of its files contains them as of
    different moments. Unless it was shut down cleanly, only what has been so for a minute counts.
    """
    earlier = now if _is_stopped(log_dir) else _earlier(log_dir, now)
    before, after = (_Assignments(one, owner) for one in (earlier, now))
    here = {place: one for place, one in _partitions(log_dir).items() if one.is_log}
    for place, one in here.items():
        reason = after.foreign(place, one)
        if reason and before.foreign(place, one) and not _is_gone(one):
            yield FoundInLog.of(one).add("UNASSIGNED_LOG", None, reason)
    data_dir = log_dir.partitions[0].folder.parent.path
    future = {(one.topic, one.partition) for one in log_dir.partitions if one.state == "future"}
    for place in after.expected & before.expected:
        path = data_dir / f"{place[0]}-{place[1]}"
        if place not in here and place not in future and not path.exists():
            at = f"broker {owner.node_id} and this directory"
            message = f"the metadata assigns the partition to {at}"
            yield FoundInLog(*place, path).add("MISSING_LOG", None, message)


class _Assignments:
    """The partitions that metadata assigns to the broker of a data dir."""

    def __init__(self, metadata: Metadata, owner: DataDirOwner) -> None:
        self._owner = owner
        self._topic_ids = {row["topic"]: row["topic_id"] for row in metadata["topics"].rows()}
        self._rows: dict[Place, dict[str, Any]] = {
            (row["topic"], row["partition"]): row for row in metadata["partitions"].rows()
        }
        self._has_one_dir = any(
            row["broker_id"] == owner.node_id and len(row["log_dirs"]) == 1
            for row in metadata["brokers"].rows()
        )
        self.expected = {place for place, row in self._rows.items() if self._is_here(row)}

    def _is_here(self, row: dict[str, Any]) -> bool:
        """Return whether a partition is certainly assigned to the data dir."""
        if self._owner.node_id not in row["replicas"]:
            return False
        at = row["replicas"].index(self._owner.node_id)
        assigned = row["directories"][at] if at < len(row["directories"]) else _ANY_DIR[0]
        if self._owner.directory_id is not None and assigned == self._owner.directory_id:
            return True
        return assigned in _ANY_DIR and self._has_one_dir

    def foreign(self, place: Place, one: PartitionDir) -> str | None:
        """Return why a log of the data dir is not assigned to its broker, or None."""
        if place[0] == METADATA_TOPIC:
            return None
        topic_id = self._topic_ids.get(place[0])
        if topic_id is None:
            return f"the metadata does not know the topic {place[0]}"
        if _topic_id_of(one) not in (None, _NO_TOPIC_ID, topic_id):
            return f"the topic was created again: its id is {topic_id}, not {_topic_id_of(one)}"
        row = self._rows.get(place)
        if row is None or self._owner.node_id not in row["replicas"]:
            return f"the metadata does not assign the partition to broker {self._owner.node_id}"
        return None


def _topic_id_of(one: PartitionDir) -> str | None:
    try:
        return one.topic_id
    except (KafkaScanError, OSError):
        return None  # another check reports the file


def _is_gone(one: PartitionDir) -> bool:
    """Return whether a broker has removed the folder since it was listed."""
    return isinstance(one.folder, DiskFolder) and not one.path.exists()


def _is_stopped(log_dir: LogDir) -> bool:
    return any(CLEAN_SHUTDOWN_FILE in one.folder.parent.names() for one in log_dir.partitions[:1])


def _earlier(log_dir: LogDir, now: Metadata) -> Metadata:
    """Return the metadata of a minute before its last record."""
    from kafkascan.internal_topics.metadata.metadata_reading import read_metadata

    folder = next(one for one in log_dir.partitions if one.topic == METADATA_TOPIC)
    last = read_records(folder, columns=("timestamp",), control="include", on_corrupt="stop")
    if not len(last):
        return now
    moment = np.datetime64(int(last["timestamp"].max()) - _GRACE_MS, "ms")
    return read_metadata(log_dir.path, as_of=moment)


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

    def skip_other_dirs(self, owner: DataDirOwner, reason: str) -> None:
        """Add that the broker has other data dirs, whose logs are not those of this audit."""
        self.unchecked.append(
            f"the other data directories of broker {owner.node_id}: not checked here: {reason}"
            f" (directory.id of this one: {owner.directory_id})"
        )


def check_cluster(
    log_dir: LogDir, opened: Iterable[OpenTransaction], others: AuditedDirs
) -> ClusterChecks:
    """
    Compare the logs of a data dir with the topics of coordinators and with the metadata in it.

    Parameters
    ----------
    log_dir : LogDir
        The folder of a partition, or a tar of several data dirs, has no findings.
    opened : iterable of OpenTransaction
    others : AuditedDirs
        Data dirs that are audited, too.
    """
    checks = ClusterChecks()
    # A data dir of KRaft counts as a partition itself: bootstrap.checkpoint is in it.
    folders = [one for one in log_dir.partitions if one.path != log_dir.path]
    if len({one.folder.parent.path for one in folders}) != 1:
        return checks
    log_dir = replace(log_dir, partitions=folders)
    topics = {one.topic for one in log_dir.partitions if one.state is None}
    owner, metadata = DataDirOwner.of(log_dir.partitions[0].folder.parent), None
    of_owner = [] if owner is None else others.of_same_broker(owner)
    has_metadata = METADATA_TOPIC in topics or any(has_it for _, has_it in of_owner)
    if not has_metadata and owner is not None and owner.directory_id is not None:
        checks.skip_other_dirs(owner, "the metadata log is in one of them, or it was not copied")
    for topic in (METADATA_TOPIC, GROUPS_TOPIC, TRANSACTIONS_TOPIC):
        if topic not in topics:
            checks.skip(
                topic, f"there is no partition of {topic} among the audited logs in {log_dir.path}"
            )
        elif topic == METADATA_TOPIC:
            audited = {directory_id for directory_id, _ in of_owner}
            metadata = _check_metadata(log_dir, owner, audited, checks)
        elif topic == GROUPS_TOPIC:
            checks.add(topic, _check_committed_offsets(log_dir))
        else:
            counts = {} if metadata is None else partition_counts(metadata)
            knows_all = _has_all_states(log_dir, counts)
            checks.add(topic, _check_transactions(log_dir, opened, knows_all_states=knows_all))
    return checks


def _check_metadata(
    log_dir: LogDir, owner: DataDirOwner | None, audited: Set[str | None], checks: ClusterChecks
) -> Metadata | None:
    """Check the assignment of partitions; return the metadata if it is complete."""
    from kafkascan.internal_topics.metadata.metadata_reading import read_metadata

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
        if others := [one for one in _other_dirs(owner, metadata) if one not in audited]:
            plural = "ies" if len(others) > 1 else "y"
            ids = ", ".join(others)
            checks.skip_other_dirs(owner, f"the metadata has the director{plural} {ids}")
    return metadata


def _other_dirs(owner: DataDirOwner, metadata: Metadata) -> list[str]:
    """Return the ids of the other data dirs with which the broker of a data dir registered."""
    if owner.directory_id is None:
        return []
    return [
        one
        for row in metadata["brokers"].rows()
        if row["broker_id"] == owner.node_id
        for one in row["log_dirs"]
        if one != owner.directory_id
    ]


def _check_committed_offsets(log_dir: LogDir) -> Iterator[LogFinding]:
    """
    Yield findings about offsets that groups have committed beyond the ends of logs.

    The ends are read after the offsets: a broker may write both meanwhile.
    """
    from kafkascan.internal_topics.consumer_groups import read_groups

    groups = read_groups(log_dir.path)
    beyond: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for row in groups.offsets.rows():
        if row["lag"] is not None and row["lag"] < 0:
            beyond[row["topic"], row["partition"]].append(row)
    partitions = _partitions(log_dir)
    for place, rows in beyond.items():
        furthest = max(rows, key=lambda row: int(row["offset"]))
        yield FoundInLog.of(partitions[place]).add(
            "COMMITTED_BEYOND_END",
            None,
            f"the log ends at offset {furthest['log_end_offset']}, but group"
            f" {furthest['group']!r} has committed offset {furthest['offset']}",
            offset=furthest["log_end_offset"],
            count=len(rows),
        )


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
    from kafkascan.internal_topics.transaction_states import read_transaction_state

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
        yield FoundInLog.of(partition).add(
            "FORGOTTEN_TRANSACTION",
            None,
            f"the transaction of producer {span['producer_id']} is open since offset"
            f" {span['first_offset']}, but {reason}",
            offset=int(span["first_offset"]),
            # A copy of a running broker's files may contain them as of different moments.
            severity=None if one.is_hanging else Severity.NOTE,
        )


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
