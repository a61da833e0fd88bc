"""The objects below one place of a store: list them, open them, read small ones."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from kafkascan.io.folders import read_regular
from kafkascan.io.sources import SourceLike
from kafkascan.io.stores.prefetching_reader import PrefetchingReader
from kafkascan.io.stores.store_folders import read_stored
from kafkascan.io.stores.stored_objects import (
    ObjectInfo,
    StoredObject,
    open_object,
    open_prefix,
)
from kafkascan.io.stores.urls import ObjectUrl, UrlPath


class PrefixStore:
    """
    Objects below a URL.

    Parameters
    ----------
    url : ObjectUrl
    is_listed : bool, default True
        Whether the objects are listed now, and read as they were then.

    Attributes
    ----------
    path : pathlib.Path
        The place, as messages name it.
    reads_at_once : int or None
        How many objects to read at the same time.
    """

    reads_at_once: int | None = 32

    def __init__(self, url: ObjectUrl, *, is_listed: bool = True) -> None:
        self._options = url.storage_options
        self._prefix = open_prefix(url.url, url.storage_options)
        self.path: Path = UrlPath(self._prefix.path)
        found = self._prefix.objects() if is_listed else ()
        self._listed = {one.key: one for one in found}

    def objects(self) -> Iterator[ObjectInfo]:
        """Return all objects."""
        return iter(self._listed.values())

    def _open(self, key: str) -> StoredObject:
        if key in self._listed:
            return self._prefix.open(self._listed[key])
        return open_object(f"{self.path}/{key}", self._options)

    def open(self, key: str) -> SourceLike:
        """Return a reader of an object."""
        return PrefetchingReader(self._open(key))

    def read(self, key: str) -> bytes:
        """Return the bytes of an object."""
        return read_stored(self._open(key))


class FolderStore:
    """
    Objects that are files below a folder, such as a mounted NFS tier.

    Parameters
    ----------
    path : path
    """

    reads_at_once: int | None = None

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def objects(self) -> Iterator[ObjectInfo]:
        """
        Return all files; links to folders are not followed.

        Links are objects, also those that lead nowhere, and a folder that cannot be listed is one:
        what cannot be read must not look as if it were not there.
        """
        yield from self._below(os.fspath(self.path), "")

    def _below(self, folder: str, prefix: str) -> Iterator[ObjectInfo]:
        folders = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry)
                    elif entry.is_file() or entry.is_symlink():
                        size = _size_of(entry)
                        if size is not None:
                            yield ObjectInfo(prefix + entry.name, size)
        except OSError:
            if not prefix:
                raise
            yield ObjectInfo(prefix, 0)
        for inner in folders:
            yield from self._below(inner.path, f"{prefix}{inner.name}/")

    def open(self, key: str) -> SourceLike:
        """Return the path of the file."""
        return os.path.join(self.path, key)

    def read(self, key: str) -> bytes:
        """Return the bytes of the file."""
        return read_regular(os.path.join(self.path, key))


def _size_of(entry: os.DirEntry[str]) -> int | None:
    """Return the size of a file, 0 of a link that leads nowhere; None if it is deleted by now."""
    try:
        return entry.stat().st_size
    except OSError:
        return 0 if os.path.lexists(entry.path) else None


TierStore: TypeAlias = PrefixStore | FolderStore
"""The objects below a place; ``reads_at_once`` of None: one per CPU."""


def store_at(place: Path | ObjectUrl) -> TierStore:
    """
    Return the objects below a folder or URL; a URL is listed now.

    Raises
    ------
    As `StoredPrefix.objects`.
    """
    if isinstance(place, Path):
        return FolderStore(place)
    return PrefixStore(place)
