"""Audit checks on where logs are: in several data dirs, moved to another one, dropped."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from kafkascan.auditing.finding_kinds import FoundInLog, LogFinding
from kafkascan.broker_state.checkpoints import META_PROPERTIES, parse_meta_properties
from kafkascan.format.errors import CorruptCheckpointError
from kafkascan.format.file_names import LATER_TOPICS
from kafkascan.format.texts import printable
from kafkascan.io.folders import DiskFolder, Folder
from kafkascan.logs.log_dir import LogDir, PartitionDir
from kafkascan.logs.log_finding import find_log_dir

_STATES = {
    "delete": ("DROPPED_LOG", "log that is being deleted"),
    "stray": ("STRAY_LOG", "stray log"),
    "future": ("FUTURE_LOG", "log that is being moved here"),
}
# As ``LogManager.loadLogs`` and ``LocalLog.parseTopicPartitionName``.
_FOLDER_OF_BROKERS = re.compile(
    r".+-\d+(?:\.\S+-(?:delete|stray|future))?|remote-log-index-cache", re.DOTALL
)


def check_folders(log_dir: LogDir) -> Iterator[LogFinding]:
    """Yield findings about folders in a data dir with which no broker starts."""
    root = DiskFolder(log_dir.path)
    if log_dir.is_partition or not os.path.exists(root.path / META_PROPERTIES):
        return
    for one in root.folders():
        if not _FOLDER_OF_BROKERS.fullmatch(one.path.name):
            name = printable(one.path.name)
            message = f"the folder {name} in the data directory is not named as one of a partition"
            yield FoundInLog(folder=one.path).add("FOREIGN_NAME", None, message)


def check_states(partitions: Iterable[PartitionDir]) -> Iterator[LogFinding]:
    """Yield findings about folders whose names mark logs as moved or dropped."""
    for one in partitions:
        if one.state is not None:
            symbol, state = _STATES[one.state]
            message = f"the folder's name marks a {state}, of {_size(one.folder):,} bytes"
            yield FoundInLog.of(one).add(symbol, None, message)


def check_topics(partitions: Iterable[PartitionDir]) -> Iterator[LogFinding]:
    """Yield a note about each log of a topic of Kafka's own whose records are not known."""
    for one in partitions:
        if one.topic in LATER_TOPICS and one.is_log:
            message = f"the layout of the records is not known: {LATER_TOPICS[one.topic]}"
            yield FoundInLog.of(one).add("UNKNOWN_TOPIC", None, message)


def _size(folder: Folder) -> int:
    try:
        return sum(folder.size(name) for name in folder.names())
    except OSError:  # a broker deletes the files
        return 0


def check_duplicates(partitions: Iterable[PartitionDir]) -> Iterator[LogFinding]:
    """Yield findings about logs that one broker has in several of its data dirs."""
    brokers: dict[Path, tuple[str, str] | None] = {}
    first: dict[tuple[object, ...], PartitionDir] = {}
    for one in partitions:
        data_dir = one.folder.parent
        if data_dir.path not in brokers:
            brokers[data_dir.path] = _broker_of(data_dir)
        if brokers[data_dir.path] is None or one.topic is None or one.state in ("delete", "stray"):
            continue
        other = first.setdefault((brokers[data_dir.path], one.topic, one.partition, one.state), one)
        if other is not one and os.path.realpath(other.path) != os.path.realpath(one.path):
            message = f"the same broker has this log in {other.path}"
            yield FoundInLog.of(one).add("DUPLICATE_LOG", None, message)


def _broker_of(data_dir: Folder) -> tuple[str, str] | None:
    """Return the ids of the cluster and the broker that a data dir belongs to, if it has them."""
    try:
        data = data_dir.read(META_PROPERTIES)
        known = parse_meta_properties(data or b"", str(data_dir.path / META_PROPERTIES))
    except (OSError, CorruptCheckpointError):
        return None
    node = known.get("node.id", known.get("broker.id"))
    return None if node is None else (known.get("cluster.id", ""), node)


class UnreadCheckpoints:
    """
    Findings about the offset checkpoints of data dirs that cannot be read.

    Attributes
    ----------
    findings : list of LogFinding
    """

    def __init__(self) -> None:
        self.findings: list[LogFinding] = []

    def add(self, path: Path, error: Exception) -> None:
        """Add the finding about a file."""
        reason = error.reason if isinstance(error, CorruptCheckpointError) else str(error)
        message = f"a broker takes all of its offsets for 0: {reason}"
        self.findings.append(FoundInLog(folder=path.parent).add("UNREADABLE", path.name, message))


def find_duplicate_logs(*data_dirs: str | os.PathLike[str] | LogDir) -> list[LogFinding]:
    """
    Find logs that one broker has in several of its data dirs.

    Parameters
    ----------
    *data_dirs : path or LogDir
        Data dirs, of one or several brokers. Their ``meta.properties`` say which broker they
        belong to; without that file, a data dir has no duplicates. Segment files are ignored.

    Returns
    -------
    list of LogFinding
        With the symbol ``DUPLICATE_LOG``. A future replica is no duplicate of the one it replaces.

    Raises
    ------
    As `open_log_dir`.

    Examples
    --------
    >>> ks.auditing.find_duplicate_logs("/data-1/kafka", "/data-2/kafka")
    []
    """
    opened = (one if isinstance(one, LogDir) else find_log_dir(one) for one in data_dirs)
    found = (partition for one in opened if one is not None for partition in one.partitions)
    return list(check_duplicates(found))
