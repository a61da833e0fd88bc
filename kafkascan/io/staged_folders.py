"""Folders that are built under a temporary name, and renamed when they are complete.

A broker refuses to start if its data directory contains a folder that is not named as Kafka names
partitions, also a hidden one. So a staged folder is inside a folder with the name of a partition
that is being deleted. A broker that starts after a killed run loads that one as an empty log,
ignores the folder in it, and deletes both.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kafkascan.io.atomic_files import behind_link, give_to_owner_of, sync_folder

# Kafka's suffix is the 32 digits of a UUID (LogManager.asyncDelete). These ones begin with
# "kafkascan" in ASCII, which is not the version of a UUID.
_MARK = b"kafkascan".hex()
_RANDOM_BYTES = 7
_STAGING_NAME = re.compile(rf"kafkascan-0\.{_MARK}[0-9a-f]{{{2 * _RANDOM_BYTES}}}-delete")


@dataclass
class StagedFolder:
    """
    A folder that is being built.

    Attributes
    ----------
    path : Path
        The folder; it has the name of its target.
    target : Path
    """

    path: Path
    target: Path
    _lock: int
    """Descriptor of the folder around `path`. It is locked as long as this process builds it."""

    def publish(self) -> None:
        """
        Rename the folder to its target, and make that durable.

        Raises
        ------
        OSError
            If the target exists, except as an empty folder.
        """
        os.replace(self.path, self.target)
        sync_folder(self.target.parent)
        self.discard()

    def discard(self) -> None:
        """Remove the folder, unless it was renamed."""
        shutil.rmtree(self.path.parent, ignore_errors=True)
        os.close(self._lock)


def stage_folder(target: Path) -> StagedFolder:
    """
    Create a folder next to its target, and remove what killed runs left there.

    Parameters
    ----------
    target : Path
        May be a link; the folder is created next to the target of the link.

    Returns
    -------
    StagedFolder
        The folder has the owner and mode of the target's parent, as far as the system permits:
        brokers write to folders in their data directory.
    """
    target = behind_link(target)
    with _locked(target.parent):
        remove_abandoned_folders(target.parent)
        name = f"kafkascan-0.{_MARK}{secrets.token_hex(_RANDOM_BYTES)}-delete"
        staging = target.parent / name
        _create_like(target.parent, staging)
        lock = os.open(staging, os.O_RDONLY)
        _try_lock(lock)
    staged = StagedFolder(staging / target.name, target, lock)
    try:
        _create_like(target.parent, staged.path)
    except BaseException:
        staged.discard()
        raise
    return staged


def remove_abandoned_folders(parent: Path) -> None:
    """Remove the staged folders in a folder whose processes have ended."""
    with os.scandir(parent) as entries:
        found = [Path(one.path) for one in entries if _STAGING_NAME.fullmatch(one.name)]
    for path in found:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if _try_lock(lock):
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Exclude other processes between the creation of a staged folder and its lock."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # not all file systems have locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    """Lock an open folder; return False if another process has, or where there are no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _create_like(parent: Path, folder: Path) -> None:
    folder.mkdir()
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        give_to_owner_of(parent, descriptor)
        with contextlib.suppress(PermissionError):  # the owner may be another user already
            shutil.copymode(parent, folder)
    finally:
        os.close(descriptor)
