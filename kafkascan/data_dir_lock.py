"""A broker's data dir, and the lock that says who uses it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
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


@contextlib.contextmanager
def locked(data_dir: Path | None) -> Iterator[None]:
    """Hold the lock that a broker holds while it uses the folder (``FileLock``)."""
    if data_dir is None:
        yield
        return
    with open(data_dir / LOCK_FILE, "ab") as file:
        give_to_owner_of(data_dir, file.fileno())
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
            raise LogDirInUseError(os.fspath(data_dir)) from error
        yield
