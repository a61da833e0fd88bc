"""Prefixes of an object store as folders."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from kafkascan.format.file_names import parse_segment_name, sibling_name
from kafkascan.io.folders import Folder, missing_file, require_side_file_size
from kafkascan.io.sources import Source, SourceLike, read_bytes
from kafkascan.io.stores.prefetching_reader import PrefetchingReader
from kafkascan.io.stores.stored_objects import (
    ObjectInfo,
    StoredObject,
    StoredPrefix,
    is_web_url,
    open_object,
    open_prefix,
)
from kafkascan.io.stores.urls import LARGEST_HINTS, ObjectUrl, UrlPath


class UrlFolder:
    """
    A prefix of a store as a `Folder`; every call asks the store.

    Parameters
    ----------
    url : ObjectUrl
    """

    def __init__(self, url: ObjectUrl) -> None:
        self.path: Path = UrlPath(url.url)
        self._url = url.url.rstrip("/")
        self._options = url.storage_options

    @property
    def parent(self) -> Folder:
        """The prefix above this one."""
        return UrlFolder(ObjectUrl(os.fspath(self.path.parent), self._options))

    def folder(self, name: str) -> UrlFolder:
        """Return a folder in it, whether or not it exists."""
        return UrlFolder(ObjectUrl(f"{self._url}/{name}", self._options))

    @property
    def _is_root(self) -> bool:
        """Whether this is what is above a bucket."""
        return "://" not in self._url

    @property
    def can_list(self) -> bool:
        """Whether the store says what is in it; a web server does not."""
        return not is_web_url(self._url)

    def names(self) -> list[str]:
        """
        Return the names of the objects in it, sorted.

        Raises
        ------
        NotADirectoryError
            If the store does not say them; see `can_list`.
        """
        if self._is_root:
            return []
        if not self.can_list:
            raise NotADirectoryError(errno.ENOTDIR, "a web server lists nothing", str(self.path))
        found = open_prefix(self._url, self._options).objects(recursive=False)
        return sorted(one.key for one in found if one.key)

    def _open(self, name: str) -> StoredObject:
        if self._is_root:
            raise missing_file(self.path / name)
        return open_object(f"{self._url}/{name}", self._options)

    def size(self, name: str) -> int:
        """Return the size of an object now, in bytes."""
        return self._open(name).size

    def source(self, name: str) -> SourceLike:
        """Return the URL of an object."""
        return ObjectUrl(f"{self._url}/{name}", self._options)

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a side file; None if it is missing."""
        try:
            stored = self._open(name)
        except FileNotFoundError:
            return None
        return read_stored(stored)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (ObjectUrl(self._url, self._options),)  # refused if there are options

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UrlFolder) and other.path == self.path

    def __hash__(self) -> int:
        return hash(self.path)

    def __repr__(self) -> str:
        return f"UrlFolder({str(self.path)!r})"


class StoreListing:
    """
    The objects below a prefix, as one listing has them.

    Parameters
    ----------
    prefix : StoredPrefix
    parent : Folder
        What is above the prefix.
    found : iterable of ObjectInfo
    """

    def __init__(self, prefix: StoredPrefix, parent: Folder, found: Iterable[ObjectInfo]) -> None:
        self.prefix = prefix
        self.parent = parent
        self.files: dict[str, dict[str, ObjectInfo]] = {}
        self.inner: dict[str, list[str]] = {}
        for one in found:
            folder, _, name = one.key.rpartition("/")
            self._add_folder(folder)
            if name:  # some tools store an empty object for a folder
                self.files[folder][name] = one

    def _add_folder(self, key: str) -> None:
        while key not in self.files:
            self.files[key] = {}
            above, _, name = key.rpartition("/")
            if not name:
                return
            self.inner.setdefault(above, []).append(key)
            key = above


class ListedFolder:
    """
    A prefix of a store as a `Folder`, as it was when it was listed.

    Objects have the size and content of that time: one that was replaced is an error when it is
    read.

    Parameters
    ----------
    listing : StoreListing
    key : str, default ""
        The folder, below the prefix that was listed.
    """

    def __init__(self, listing: StoreListing, key: str = "") -> None:
        self._listing = listing
        self._key = key
        self.path: Path = UrlPath(listing.prefix.path, key)

    @property
    def parent(self) -> Folder:
        """The folder above; above the prefix that was listed, one that asks the store."""
        if not self._key:
            return self._listing.parent
        return ListedFolder(self._listing, self._key.rpartition("/")[0])

    def folders(self) -> list[ListedFolder]:
        """Return the folders in it, by name."""
        keys = self._listing.inner.get(self._key, [])
        return [ListedFolder(self._listing, key) for key in sorted(keys)]

    @property
    def _files(self) -> Mapping[str, ObjectInfo]:
        return self._listing.files.get(self._key, {})

    def tree(self) -> Iterator[ListedFolder]:
        """Yield this folder and all folders below it."""
        yield self
        for folder in self.folders():
            yield from folder.tree()

    def names(self) -> list[str]:
        """Return the names of the objects in it, sorted."""
        return sorted(self._files)

    def info(self, name: str) -> ObjectInfo:
        """Return what the listing shows of an object."""
        if name not in self._files:
            raise missing_file(self.path / name)
        return self._files[name]

    def _open(self, name: str) -> StoredObject:
        return self._listing.prefix.open(self.info(name))

    def size(self, name: str) -> int:
        """Return the size of an object, in bytes."""
        return self.info(name).size

    def source(self, name: str) -> SourceLike:
        """Return a reader of an object."""
        return PrefetchingReader(self._open(name), partial(self._hints_for, name))

    def _hints_for(self, name: str) -> bytes | None:
        index = sibling_name(name, "index")
        if (
            index is None
            or index not in self._files
            or not 0 < self._files[index].size <= LARGEST_HINTS
        ):
            return None
        try:
            return self._open(index).read(0, self._files[index].size)
        except OSError:
            return None

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a side file; None if it is missing."""
        return read_stored(self._open(name)) if name in self._files else None

    def __deepcopy__(self, memo: object) -> ListedFolder:
        return self  # as a listing, it does not change

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError(f"{self.path}: a listing is not pickled; open the URL again")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ListedFolder) and other.path == self.path

    def __hash__(self) -> int:
        return hash(self.path)

    def __repr__(self) -> str:
        return f"ListedFolder({str(self.path)!r})"


def list_folder(url: ObjectUrl) -> ListedFolder | None:
    """
    List everything below a URL; None if it is the URL of an object.

    A URL whose last part is the name of a segment is one of an object, as is one of a web server,
    which lists nothing. A URL that ends with a slash is one of a prefix. For any other URL, the
    store is asked.

    Raises
    ------
    FileNotFoundError
        If there is nothing below a URL that ends with a slash.
    PermissionError
    SourceReadError
        If the store does not answer.
    """
    is_prefix = url.url.endswith("/")
    if not is_prefix and parse_segment_name(url.url.rpartition("/")[2]) is not None:
        return None
    if is_web_url(url.url):
        return None
    prefix = open_prefix(url.url, url.storage_options)
    listing = StoreListing(prefix, UrlFolder(url).parent, prefix.objects())
    if listing.files:
        return ListedFolder(listing)
    if is_prefix:
        raise missing_file(UrlPath(url.url))
    return None


def read_stored(stored: StoredObject) -> bytes:
    """
    Return the bytes of a side file.

    Raises
    ------
    SideFileTooLargeError
        If it has more than 64 MiB.
    SourceReadError
        If it was replaced, or the store did not answer.
    """
    require_side_file_size(stored.size, stored.path)
    with Source(PrefetchingReader(stored)) as source:
        return read_bytes(source, 0, source.size)
