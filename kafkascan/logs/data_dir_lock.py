"""Detect and take the lock of a broker's data directory."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from kafkascan.broker_state.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from kafkascan.format.errors import LogDirInUseError
from kafkascan.io.atomic_files import give_to_owner_of

LOCK_FILE = ".lock"
_DATA_DIR_FILES = (
    LOCK_FILE,
    "meta.properties",
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_CHECKPOINT,
    CLEAN_SHUTDOWN_FILE,
)


def as_data_dir(folder: Path) -> Path | None:
    """Return the folder if it contains files of a broker's data dir, else None."""
    is_data_dir = any((folder / name).exists() for name in _DATA_DIR_FILES)
    return folder if is_data_dir else None


def data_dirs_of(partition: Path) -> list[Path]:
    """Return the data dirs of a partition's folder: of a link, and of its target."""
    parents = (os.path.dirname(of(partition)) for of in (os.path.abspath, os.path.realpath))
    return [one for parent in parents if (one := as_data_dir(Path(parent))) is not None]


@contextlib.contextmanager
def locked(*data_dirs: Path | None) -> Iterator[None]:
    """Hold the locks of data dirs, which brokers take as well (``FileLock``)."""
    with contextlib.ExitStack() as locks:
        # Links may lead to the same folder.
        different = {os.path.realpath(one): one for one in data_dirs if one is not None}
        for folder in different.values():
            locks.enter_context(_locked(folder))
        yield


# File locks do not exclude the process that holds them, and end when it closes any descriptor of
# the file. So one thread of the process holds a folder's lock, and may take it repeatedly.
_holders: dict[str, int] = {}
_holders_lock = threading.Lock()


@contextlib.contextmanager
def _locked(data_dir: Path) -> Iterator[None]:
    real, me = os.path.realpath(data_dir), threading.get_ident()
    with _holders_lock:
        holder = _holders.get(real)
        if holder is None:
            _holders[real] = me
    if holder == me:
        yield
        return
    if holder is not None:
        raise LogDirInUseError(os.fspath(data_dir))
    try:
        with _locked_file(data_dir):
            yield
    finally:
        del _holders[real]


@contextlib.contextmanager
def _locked_file(data_dir: Path) -> Iterator[None]:
    with open(data_dir / LOCK_FILE, "ab") as file:
        give_to_owner_of(data_dir, file.fileno())
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
            raise LogDirInUseError(os.fspath(data_dir)) from error
        yield
