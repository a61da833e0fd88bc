"""Detect and take the lock of a broker's data directory."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kafkascan.broker_state.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
)
from kafkascan.format.errors import LinkedFileError, LogDirInUseError
from kafkascan.format.times import milliseconds_or_now
from kafkascan.io.atomic_files import give_to_owner_of
from kafkascan.io.folders import DiskFolder
from kafkascan.io.source_protocols import regular_size
from kafkascan.logs.log_dir import PartitionDir

LOCK_FILE = ".lock"
_DATA_DIR_FILES = (
    LOCK_FILE,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_CHECKPOINT,
    CLEAN_SHUTDOWN_FILE,
)

UNCLEAN_SHUTDOWN = (
    f"not shut down cleanly, or copied from a running broker (no {CLEAN_SHUTDOWN_FILE})"
)


def had_clean_shutdown(folder: Path) -> bool | None:
    """Return whether a broker shut down cleanly; None of a folder that is no data dir."""
    if not (folder / META_PROPERTIES).is_file():
        return None
    return (folder / CLEAN_SHUTDOWN_FILE).is_file()


def as_data_dir(folder: Path) -> Path | None:
    """Return the folder if it contains files of a broker's data dir, else None."""
    is_data_dir = any((folder / name).exists() for name in _DATA_DIR_FILES)
    return folder if is_data_dir else None


def data_dirs_of(partition: Path) -> list[Path]:
    """Return the data dirs of a partition's folder: of a link, and of its target."""
    return [one for parent in parents_of(partition) if (one := as_data_dir(parent)) is not None]


def parents_of(partition: Path) -> list[Path]:
    """Return the folders that contain a partition's folder: that of a link, and of its target."""
    parents = (os.path.dirname(of(partition)) for of in (os.path.abspath, os.path.realpath))
    return [Path(parent) for parent in dict.fromkeys(parents)]


@contextlib.contextmanager
def locked(*data_dirs: Path | None, shared: bool = False) -> Iterator[None]:
    """
    Hold the locks of data dirs, which brokers take as well (``FileLock``).

    Of a folder without a broker's files, the folder itself is locked. That excludes other runs of
    kafkascan, and leaves no lock file in a folder that may be anyone's.

    Parameters
    ----------
    *data_dirs : Path or None
    shared : bool, default False
        Exclude brokers and holders that are not shared, but not each other: for new partitions.

    Raises
    ------
    LogDirInUseError
    """
    with contextlib.ExitStack() as locks:
        # Links may lead to the same folder.
        different = {os.path.realpath(one): one for one in data_dirs if one is not None}
        for folder in different.values():
            locks.enter_context(_locked(folder, shared=shared))
        yield


@contextlib.contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """
    Exclude other runs that change the files of a folder, also where there is no data dir.

    Raises
    ------
    LogDirInUseError
    """
    descriptor = _lock_folder(folder, shared=False)
    try:
        yield
    finally:
        os.close(descriptor)


@dataclass
class _Holder:
    """The lock of a data dir: of one thread, or (thread None) shared between threads."""

    thread: int | None
    descriptor: int
    count: int = 0


# File locks do not exclude the process that holds them, and end when it closes any descriptor of
# the file. So the process has one descriptor per folder. The thread that holds a folder's lock may
# take it repeatedly.
_holders: dict[str, _Holder] = {}
# Reentrant: the garbage collector may release a lock at any time.
_holders_lock = threading.RLock()


@contextlib.contextmanager
def _locked(data_dir: Path, *, shared: bool) -> Iterator[None]:
    real, me = os.path.realpath(data_dir), threading.get_ident()
    with _holders_lock:
        holder = _holders.get(real)
        if holder is None:
            lock = _lock_folder if as_data_dir(data_dir) is None else _lock_file
            descriptor = lock(data_dir, shared=shared)
            holder = _holders[real] = _Holder(None if shared else me, descriptor)
        if holder.thread != me and not (shared and holder.thread is None):
            raise LogDirInUseError(os.fspath(data_dir))
        holder.count += 1
    try:
        yield
    finally:
        with _holders_lock:
            holder.count -= 1
            if holder.count == 0:
                del _holders[real]
                os.close(holder.descriptor)


def _lock_file(data_dir: Path, *, shared: bool) -> int:
    """Open and lock the lock file of a data dir; return its descriptor."""
    # Neither the target of a link, which may be anywhere, nor a wait for a FIFO's other end.
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    path = data_dir / LOCK_FILE
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise LinkedFileError(os.fspath(path)) from error
        raise
    try:
        regular_size(descriptor, os.fspath(path))
        give_to_owner_of(data_dir, descriptor)
        fcntl.lockf(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if error.errno not in (errno.EACCES, errno.EAGAIN):
            raise
        raise LogDirInUseError(os.fspath(data_dir)) from error
    return descriptor


def _lock_folder(folder: Path, *, shared: bool) -> int:
    """Lock a folder itself; return its descriptor."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise LogDirInUseError(os.fspath(folder)) from error
    except OSError:  # not all file systems lock folders
        pass
    return descriptor


# struct flock on 64-bit Linux: type, whence, start, size and process of a lock.
_FLOCK = struct.Struct("hhxxxxqqixxxx")


def is_locked(data_dir: Path) -> bool:
    """
    Return whether a process holds the lock of a data dir, such as a running broker.

    Nothing is locked or created. On systems other than Linux, and if the broker runs on another
    host, the lock is not seen.
    """
    if os.path.realpath(data_dir) in _holders:  # closing the file would end this process's lock
        return True
    if sys.platform != "linux" or sys.maxsize < 2**32:
        return False
    try:
        descriptor = os.open(data_dir / LOCK_FILE, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        wanted = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        held = fcntl.fcntl(descriptor, fcntl.F_GETLK, wanted)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return bool(_FLOCK.unpack(held)[0] != fcntl.F_UNLCK)


class LogClocks:
    """
    The times relative to which open transactions of logs are old.

    A copy of a log has stopped: its transactions are as old as they were at its latest write. Only
    the data dir of a running broker has a current time.

    Parameters
    ----------
    now_ms : int, optional
        The time for all logs; by default that of each log.
    """

    def __init__(self, now_ms: int | None = None) -> None:
        self._now_ms = now_ms
        self._is_locked: dict[Path, bool] = {}

    def time_of(self, partition: PartitionDir) -> int | None:
        """Return the given time, or now if a broker runs; None for the log's latest write."""
        if self._now_ms is not None:
            return self._now_ms
        if not isinstance(partition.folder, DiskFolder):
            return None
        data_dir = partition.folder.parent.path
        if data_dir not in self._is_locked:
            self._is_locked[data_dir] = is_locked(data_dir)
        return milliseconds_or_now() if self._is_locked[data_dir] else None
