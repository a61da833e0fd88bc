"""The partitions that a recovery works on, and the data directories that contain them."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from kafkascan.broker_state.checkpoints import CLEAN_SHUTDOWN_FILE
from kafkascan.format.errors import NoLogsError
from kafkascan.logs.data_dir_lock import as_data_dir, data_dirs_of, parents_of
from kafkascan.logs.log_dir import LogDir, PartitionDir
from kafkascan.logs.log_finding import no_logs, open_log_dir, partition_dir
from kafkascan.logs.metadata_log import METADATA_PARTITION

# Brokers load the metadata log separately, at every start and in full (KafkaRaftLog).
_METADATA_TOPIC = METADATA_PARTITION.rpartition("-")[0]


@dataclass(frozen=True)
class Target:
    """
    The partitions of a path, and the data directories that contain them.

    Attributes
    ----------
    path : Path
    partitions : list of PartitionDir
    locked : list of Path
        The directories to lock: links may lead to partitions of other brokers.
    data_dir : Path or None
        The data directory with the checkpoints and the metadata log.
    is_complete : bool
        Whether the partitions are all logs of the data directory: no directory has another name
        than that of a partition.
    """

    path: Path
    partitions: list[PartitionDir]
    locked: list[Path]
    data_dir: Path | None
    is_complete: bool

    @property
    def had_clean_shutdown(self) -> bool:
        """Whether the data directory is marked as cleanly shut down."""
        return self.data_dir is not None and (self.data_dir / CLEAN_SHUTDOWN_FILE).exists()


def find_targets(paths: list[Path]) -> list[Target]:
    """
    Return the partitions of data directories and partition directories.

    Raises
    ------
    NoLogsError
        If a path contains no logs. A data directory may be empty if others are not.
    OSError
        If a directory cannot be listed.
    """
    if len(paths) == 1:
        return [_target_of(paths[0])]
    targets, empty = list[Target](), list[NoLogsError]()
    for path in paths:
        try:
            targets.append(_target_of(path))
        except NoLogsError as error:
            if as_data_dir(path) is None:
                raise
            empty.append(error)
            targets.append(Target(path, [], [path], path, True))
    if len(empty) == len(targets):
        raise empty[0]
    return targets


def find_duplicates(targets: list[Target]) -> dict[Path, Path]:
    """
    Return directories that are of the same partition, each with another one of them.

    A broker does not start if two data directories contain the same log.
    """
    found: dict[tuple[str | None, int | None, str | None], list[Path]] = {}
    for target in targets:
        for one in target.partitions:
            found.setdefault((one.topic, one.partition, one.state), []).append(one.path)
    return {
        path: paths[0] if path != paths[0] else paths[1]
        for paths in found.values()
        if len(paths) > 1
        for path in paths
    }


def require_different(targets: list[Target]) -> None:
    """Raise `ValueError` if a directory is named twice, or is inside another one that is named."""
    if len(targets) < 2:
        return
    paths = [os.path.realpath(one.path) for one in targets]
    inside = [os.path.realpath(one.path) for target in targets for one in target.partitions]
    for found in (paths, inside):
        for path, count in Counter(found).items():
            if count > 1:
                raise ValueError(f"{path} is named {count} times")


def _target_of(path: Path) -> Target:
    log_dir = open_log_dir(path)
    found = log_dir.partitions
    if _is_partition(log_dir):
        one = _without_link(path)
        data_dirs = data_dirs_of(one.path)
        return Target(path, [one], parents_of(one.path), data_dirs[0] if data_dirs else None, False)
    partitions = _loaded_by_broker(found)
    data_dir = as_data_dir(path)
    if not partitions:
        reason = "no logs to recover: brokers load the metadata log separately"
        raise NoLogsError(str(path), reason)
    if data_dir is None and not any(one.segments for one in partitions):
        raise no_logs(path)
    linked = [one.path for one in partitions if one.path.is_symlink()]
    locked = [path, *(parent for one in linked for parent in parents_of(one))]
    has_others = any(one.topic is None and one.path != path for one in found)
    return Target(path, partitions, locked, data_dir, path == data_dir and not has_others)


def _is_partition(log_dir: LogDir) -> bool:
    """Return whether a directory has the name of a partition, or contains segments."""
    if not log_dir.is_partition or as_data_dir(log_dir.path) is not None:
        return False
    (here,) = log_dir.partitions
    return here.topic is not None or any(one.name.kind == "log" for one in here.segments)


def _without_link(path: Path) -> PartitionDir:
    """Return a partition under the name that its broker uses; a link may have any name."""
    here, there = Path(os.path.abspath(path)), Path(os.path.realpath(path))
    is_elsewhere = as_data_dir(here.parent) is None and as_data_dir(there.parent) is not None
    return partition_dir(there if is_elsewhere else path)


def _loaded_by_broker(partitions: list[PartitionDir]) -> list[PartitionDir]:
    return [one for one in partitions if one.topic not in (None, _METADATA_TOPIC) and one.is_log]
