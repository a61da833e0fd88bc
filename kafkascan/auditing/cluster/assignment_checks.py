"""Audit checks of a data dir against the cluster's metadata: unassigned and missing logs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kafkascan.auditing.finding_kinds import FoundInLog, LogFinding
from kafkascan.broker_state.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    META_PROPERTIES,
    parse_meta_properties,
)
from kafkascan.format.errors import KafkaScanError
from kafkascan.internal_topics.metadata.metadata_reading import (
    METADATA_TOPIC,
    Metadata,
    read_metadata,
)
from kafkascan.io.folders import DiskFolder
from kafkascan.logs.log_dir import LogDir, PartitionDir
from kafkascan.logs.reading import read_records

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
    directory_id: str | None

    @classmethod
    def of(cls, log_dir: LogDir) -> DataDirOwner | None:
        """Return the owner from ``meta.properties``; None if the file does not name it."""
        for one in log_dir.partitions:
            path = one.folder.parent.path / META_PROPERTIES
            try:
                data = one.folder.parent.read(META_PROPERTIES)
                known = parse_meta_properties(data or b"", str(path))
                return cls(int(known["node.id"]), known.get("directory.id"))
            except (OSError, KafkaScanError, KeyError, ValueError):
                return None
        return None


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
    here = {
        (one.topic, one.partition): one
        for one in log_dir.partitions
        if one.state is None and one.is_log and one.topic is not None and one.partition is not None
    }
    for place, one in here.items():
        reason = after.foreign(place, one)
        if reason and before.foreign(place, one) and not _is_gone(one):
            yield from _finding("UNASSIGNED_LOG", place, one.path, reason)
    data_dir = log_dir.partitions[0].folder.parent.path
    future = {(one.topic, one.partition) for one in log_dir.partitions if one.state == "future"}
    for place in after.expected & before.expected:
        path = data_dir / f"{place[0]}-{place[1]}"
        if place not in here and place not in future and not path.exists():
            yield from _finding(
                "MISSING_LOG", place, path,
                f"the metadata assigns the partition to broker {owner.node_id} and this directory",
            )  # fmt: skip


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
    folder = next(one for one in log_dir.partitions if one.topic == METADATA_TOPIC)
    last = read_records(folder, columns=("timestamp",), control="include", on_corrupt="stop")
    if not len(last):
        return now
    moment = np.datetime64(int(last["timestamp"].max()) - _GRACE_MS, "ms")
    return read_metadata(log_dir.path, as_of=moment)


def _finding(symbol: str, place: Place, path: Path, message: str) -> list[LogFinding]:
    found = FoundInLog()
    found.add(symbol, None, message)
    return found.findings(*place, path)
