"""The objects below one place of a store: list them, open them, read small ones."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from kafkascan.io.folders import read_regular
from kafkascan.io.sources import SourceLike
from kafkascan.io.stores.store_folders import read_stored
from kafkascan.io.stores.stored_objects import ListedObject, StoredPrefix, open_prefix
from kafkascan.io.stores.url_paths import UrlPath
from kafkascan.io.stores.urls import ObjectUrl, object_reader


class TierObject(NamedTuple):
    """
    An object that a listing shows.

    Attributes
    ----------
    key : str
        Its name below the place that was listed, with slashes.
    size : int
        In bytes.
    """

    key: str
    size: int


class TierStore(Protocol):
    """
    The objects below a URL.

    Attributes
    ----------
    path : pathlib.Path
        The place, as messages name it.
    reads_at_once : int or None
        How many objects to read at the same time; None: one per CPU.
    """

    path: Path
    reads_at_once: int | None

    def objects(self) -> Iterator[TierObject]:
        """Return all objects, in no particular order."""

    def open(self, key: str, size: int) -> SourceLike:
        """Return the input for a `Source` of an object of a known size."""

    def read(self, key: str) -> bytes:
        """
        Return the bytes of an object.

        Raises
        ------
        SideFileTooLargeError
            If it has more than 64 MiB.
        OSError
        """


class PrefixStore:
    """
    Objects below a URL, as they were when they were listed.

    Parameters
    ----------
    prefix : StoredPrefix
    listed : iterable of ListedObject
    """

    reads_at_once: int | None = 32

    def __init__(self, prefix: StoredPrefix, listed: Iterable[ListedObject]) -> None:
        self.path: Path = UrlPath(prefix.path)
        self._prefix = prefix
        self._listed = {one.key: one for one in listed}

    def objects(self) -> Iterator[TierObject]:
        """Return all objects."""
        return (TierObject(one.key, one.size) for one in self._listed.values())

    def open(self, key: str, size: int) -> SourceLike:
        """Return a reader of the object that was listed."""
        return object_reader(self._prefix.open(self._listed[key]))

    def read(self, key: str) -> bytes:
        """Return the bytes of the object that was listed."""
        return read_stored(self._prefix.open(self._listed[key]))


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

    def objects(self) -> Iterator[TierObject]:
        """Return all regular files; links are not followed."""
        yield from self._below(os.fspath(self.path), "")

    def _below(self, folder: str, prefix: str) -> Iterator[TierObject]:
        folders = []
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry)
                elif stat.S_ISREG((status := entry.stat(follow_symlinks=False)).st_mode):
                    yield TierObject(prefix + entry.name, status.st_size)
        for inner in folders:
            yield from self._below(inner.path, f"{prefix}{inner.name}/")

    def open(self, key: str, size: int) -> SourceLike:
        """Return the path of the file."""
        return os.path.join(self.path, key)

    def read(self, key: str) -> bytes:
        """Return the bytes of the file."""
        return read_regular(os.path.join(self.path, key))


def store_at(place: Path | ObjectUrl) -> TierStore:
    """
    Return the objects below a folder or URL; a URL is listed now.

    Raises
    ------
    As `StoredPrefix.objects`.
    """
    if isinstance(place, Path):
        return FolderStore(place)
    prefix = open_prefix(place.url, place.storage_options)
    return PrefixStore(prefix, prefix.objects())
