"""Find the data dirs of a fleet that have a topic of Kafka."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence

from kafkascan.format.errors import NoLogsError
from kafkascan.logs.log_dir import PartitionDir
from kafkascan.logs.log_finding import open_log_dir

# Levels of folders above the data dirs: a cluster, a broker, its disks.
_LEVELS = 3


def find_data_dirs(paths: Sequence[str], topic: str) -> list[str]:
    """
    Return the data dirs that have partitions of a topic.

    Parameters
    ----------
    paths : sequence of str
        Data dirs, folders that contain data dirs, tars, and globs of them.
    topic : str

    Raises
    ------
    FileNotFoundError
        If a path does not exist; `NoLogsError` if it contains no data dir with this topic.
    ValueError
        If a path is the URL of an object store.
    """
    found: dict[str, None] = {}
    for path in paths:
        if "://" in path:
            raise ValueError(f"{path}: state is read from local folders, not from object stores")
        listed = [one for named in _named(path) for one in _below(named, topic, _LEVELS)]
        if not listed:
            raise NoLogsError(path, f"no data dir with partitions of {topic}")
        found |= dict.fromkeys(os.path.abspath(one) for one in listed)
    return list(found)


def _named(path: str) -> list[str]:
    if glob.has_magic(path) and not os.path.lexists(path):
        return sorted(glob.glob(path))
    return [path]


def _below(path: str, topic: str, levels: int) -> Iterator[str]:
    """Yield the data dirs at a path and below it; folders in a data dir are partitions."""
    try:
        partitions: Sequence[PartitionDir] = open_log_dir(path).partitions
    except NoLogsError:
        partitions = ()
    if any(one.topic == topic for one in partitions):
        yield path
    elif levels and not any(one.segments for one in partitions):
        # A data dir may be named as a partition is: broker-1.
        with os.scandir(path) as entries:
            inner = sorted(entry.path for entry in entries if entry.is_dir())
        for one in inner:
            yield from _below(one, topic, levels - 1)
