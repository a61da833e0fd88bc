"""Folders that are built under a temporary name, and renamed when they are complete.

A broker refuses to start if its data directory contains a folder that is not named as Kafka names
partitions, also a hidden one. So a staged folder is inside a folder with the name of a partition
that is being deleted. A broker that starts after a killed run loads that one as an empty log,
ignores the folder in it, and deletes both.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from kafkascan.io.atomic_files import (
    behind_link,
    give_owner_and_mode,
    is_locked_by_another,
    sync_folder,
    try_lock,
)

# Kafka's suffix is the 32 digits of a UUID (LogManager.asyncDelete). These ones begin with
# "kafkascan" in ASCII, which is not the version of a UUID.
_MARK = b"kafkascan".hex()
_RANDOM_BYTES = 7
_ATTEMPTS = 100
_STAGING_NAME = re.compile(rf"kafkascan-0\.{_MARK}[0-9a-f]{{{2 * _RANDOM_BYTES}}}-delete")


@dataclass
class StagedFolder:
    """
    A folder that is being built; as a context, it is published unless an error is raised.

    Attributes
    ----------
    path : Path
        The folder; it has the name of its target.
    target : Path
    abandoned : list of Path
        The folders of killed runs that were next to it, and were removed as far as possible.
    """

    path: Path
    target: Path
    abandoned: list[Path] = field(default_factory=list)
    _lock: int | None = None
    """Descriptor of `path`. It is locked as long as this process builds the folder."""

    def lock(self) -> None:
        """
        Lock the folder, so that no other process removes it.

        Raises
        ------
        FileNotFoundError
            If another process has removed it, or is about to: that one holds the lock.
        """
        self._lock = os.open(self.path, os.O_RDONLY)
        if is_locked_by_another(self._lock) or not self.path.exists():
            self.discard()
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.path))

    def __enter__(self) -> Path:
        return self.path

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.discard()
            return
        try:
            self.publish()
        except BaseException:
            self.discard()
            raise

    def publish(self) -> None:
        """
        Make the names in the folder durable, rename it to its target, and make that durable.

        Raises
        ------
        OSError
            If the target exists, except as an empty folder.
        """
        sync_folder(self.path)
        os.replace(self.path, self.target)
        sync_folder(self.target.parent)
        self.discard()

    def discard(self) -> None:
        """Remove the folder, unless it was renamed."""
        shutil.rmtree(self.path.parent, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


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
    abandoned = remove_abandoned_folders(target.parent)
    for _ in range(_ATTEMPTS):
        name = f"kafkascan-0.{_MARK}{secrets.token_hex(_RANDOM_BYTES)}-delete"
        staging = target.parent / name
        staged = StagedFolder(staging / target.name, target, abandoned)
        # Until it is locked, another process may remove it.
        with contextlib.suppress(FileNotFoundError):
            _create_like(target.parent, staging)
            _create_like(target.parent, staged.path)
            staged.lock()
            return staged
    raise FileNotFoundError(errno.ENOENT, "another process removes the folder", str(staging))


def remove_abandoned_folders(parent: Path) -> list[Path]:
    """Remove the staged folders in a folder whose processes have ended; return their paths."""
    with os.scandir(parent) as entries:
        found = [Path(one.path) for one in entries if _STAGING_NAME.fullmatch(one.name)]
    abandoned = []
    for path in found:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            try:
                is_in_use = not _remove_abandoned(path)
            except PermissionError:
                is_in_use = False
            abandoned += [] if is_in_use else [path]
    return abandoned


def _remove_abandoned(staging: Path) -> bool:
    """
    Remove a staging folder, unless the folder in it is locked; a broker may add files.

    A folder that its process creates meanwhile stays, because only an empty folder is removed.
    Return False if a process uses it.
    """
    found = list(staging.iterdir())
    with contextlib.ExitStack() as opened:
        for path in (path for path in found if path.is_dir()):
            lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            opened.callback(os.close, lock)
            if not try_lock(lock):
                return False
        for path in found:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            staging.rmdir()
    return bool(found)


def _create_like(parent: Path, folder: Path) -> None:
    folder.mkdir()
    give_owner_and_mode(folder, like=parent)
