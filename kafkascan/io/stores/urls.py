"""URLs of objects, as sources: ``s3://``, ``gs://``, ``az://``, ``https://``, ``memory://``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PosixPath
from typing import TypeAlias, TypeGuard, TypeVar
from urllib.parse import unquote, urlsplit

from kafkascan.format.file_names import sibling_name
from kafkascan.format.shown_places import shown_url
from kafkascan.io.source_protocols import ReadsAt
from kafkascan.io.stores.prefetching_reader import PrefetchingReader
from kafkascan.io.stores.stored_objects import open_object


class UrlPath(PosixPath):
    """
    A URL whose parts are those of a path: ``name``, ``parent``, ``/``.

    ``os.fspath`` returns the URL, ``str`` the URL without secrets, for messages. It names no file
    of the system: what asks the system about it finds none.
    """

    __slots__ = ()

    @property
    def name(self) -> str:
        """The last part of the URL, without a query."""
        return str(self).rpartition("/")[2]

    def __str__(self) -> str:
        return shown_url(os.fspath(self))

    def __fspath__(self) -> str:
        scheme, colon, rest = super().__str__().partition(":/")
        return f"{scheme}://{rest}" if colon else scheme


def is_url(path: object) -> TypeGuard[str]:
    """Whether a text is a URL."""
    return isinstance(path, str) and "://" in path and urlsplit(path).scheme != ""


def as_path(path: str | os.PathLike[str]) -> Path:
    """Return a path; of a URL, the path that keeps it."""
    text = os.fspath(path)
    return UrlPath(text) if is_url(text) else Path(text)


T = TypeVar("T")

LARGEST_HINTS = 1 << 24
"""Bytes of an index that are read as hints: more than Kafka's default segment.index.bytes."""


@dataclass(frozen=True)
class ObjectUrl:
    """
    The URL of an object, with the options of its store; a source.

    Neither its `repr` nor a message contains the options, or a secret of the URL. It cannot be
    pickled with options, because they may be credentials.

    Parameters
    ----------
    url : str
    storage_options : mapping, optional
        Arguments of the store: of ``obstore.store.from_url``, or of the file system of fsspec
        for schemes that obstore does not read. By default, both take credentials from the
        environment.
    """

    url: str
    storage_options: Mapping[str, object] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        return f"ObjectUrl({shown_url(self.url)!r})"

    def __reduce__(self) -> tuple[object, ...]:
        if self.storage_options:
            raise TypeError("storage_options may be credentials, and are not pickled")
        return type(self), (self.url,)


Place: TypeAlias = str | os.PathLike[str] | ObjectUrl
"""A path, a URL or an `ObjectUrl`."""
"""A path, or the URL of an object or prefix."""


def as_object_url(
    source: T, storage_options: Mapping[str, object] | None = None
) -> T | str | ObjectUrl:
    """Return the path of a ``file://`` URL, and any other URL with the options of its store."""
    url = os.fspath(source) if isinstance(source, UrlPath) else source
    if not is_url(url):
        found: T | str = source
    elif urlsplit(url).scheme == "file":
        found = unquote(urlsplit(url).path)
    else:
        return url if storage_options is None else ObjectUrl(url, storage_options)
    if storage_options is not None:
        raise TypeError("storage_options are for URLs of stores")
    return found


def path_or_url(
    path: Place, storage_options: Mapping[str, object] | None = None
) -> Path | ObjectUrl:
    """Return the path of a file or folder, or the URL of an object or prefix."""
    found = as_object_url(path, storage_options)
    if isinstance(found, ObjectUrl):
        return found
    return ObjectUrl(found) if is_url(found) else Path(found)


def disk_path(path: Place) -> Path:
    """
    Return the path of files that are written.

    Raises
    ------
    ValueError
        If it is the URL of a store.
    """
    found = path_or_url(path)
    if isinstance(found, ObjectUrl):
        raise ValueError(f"{shown_url(found.url)}: files are written, which must be on a disk")
    return found


def resolved_url(source: T) -> T | str | ReadsAt:
    """Return the reader of an object for its URL, the path for a ``file://`` URL."""
    found = as_object_url(source)
    if is_url(found):
        found = ObjectUrl(found)
    if not isinstance(found, ObjectUrl):
        return found
    return PrefetchingReader(
        open_object(found.url, found.storage_options), partial(_index_beside, found)
    )


def _index_beside(log: ObjectUrl) -> bytes | None:
    """Return the bytes of the index beside a log, as far as it can be read: they are hints."""
    folder, _, name = log.url.rpartition("/")
    index = sibling_name(name, "index")
    if index is None:
        return None
    try:
        stored = open_object(f"{folder}/{index}", log.storage_options)
        return stored.read(0, min(stored.size, LARGEST_HINTS)) if stored.size else None
    except (OSError, ValueError):
        return None
