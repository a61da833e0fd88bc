"""A broker's data dir, and the lock that says who uses it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from kafkascan.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from kafkascan.errors import LogDirInUseError
from kafkascan.files import give_to_owner_of

LOCK_FILE = ".lock"
_DATA_DIR_FILES = (
    LOCK_FILE,
    "meta.properties",
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_CHECKPOINT,
    CLEAN_SHUTDOWN_FILE,
)


def as_data_dir(folder: Path) -> Path | None:
    """Return the folder if it is a broker's data dir, by what lies in it."""
    is_one = any((folder / name).exists() for name in _DATA_DIR_FILES)
    return folder if is_one else None


def data_dirs_of(partition: Path) -> list[Path]:
    """Return the data dirs that a partition's folder is in: that of a link, that of its target."""
    parents = (os.path.dirname(of(partition)) for of in (os.path.abspath, os.path.realpath))
    return [one for parent in parents if (one := as_data_dir(Path(parent))) is not None]


@contextlib.contextmanager
def locked(*data_dirs: Path | None) -> Iterator[None]:
    """Hold the locks that brokers hold while they use these folders (``FileLock``)."""
    with contextlib.ExitStack() as locks:
        for folder in _different(one for one in data_dirs if one is not None):
            locks.enter_context(_locked(folder))
        yield


def _different(folders: Iterable[Path]) -> list[Path]:
    return list({os.path.realpath(folder): folder for folder in folders}.values())


# A process is not kept out by its own locks, and gives them up with any file that it closes.
# So each folder has one holder, a thread, which may ask again.
_holders: dict[str, int] = {}
_looking = threading.Lock()


@contextlib.contextmanager
def _locked(data_dir: Path) -> Iterator[None]:
    real, me = os.path.realpath(data_dir), threading.get_ident()
    with _looking:
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
