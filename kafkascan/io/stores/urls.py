"""URLs of objects, as sources: ``s3://``, ``gs://``, ``az://``, ``https://``, ``memory://``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeGuard, TypeVar
from urllib.parse import unquote, urlsplit

from kafkascan.io.source_protocols import ReadsAt
from kafkascan.io.stores.object_reader import ObjectReader
from kafkascan.io.stores.stored_objects import open_object

T = TypeVar("T")


@dataclass(frozen=True)
class ObjectUrl:
    """
    The URL of an object, with the options of its store; a source.

    Neither its `repr` nor a message contains the options. It cannot be pickled with options,
    because they may be credentials.

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

    def __reduce__(self) -> tuple[object, ...]:
        if self.storage_options:
            raise TypeError("storage_options may be credentials, and are not pickled")
        return type(self), (self.url,)


def is_url(path: object) -> TypeGuard[str]:
    """Whether a path is a URL."""
    return isinstance(path, str) and "://" in path and urlsplit(path).scheme != ""


def located(source: T, storage_options: Mapping[str, object] | None = None) -> T | str | ObjectUrl:
    """Return the path of a ``file://`` URL, and any other URL with the options of its store."""
    if not is_url(source):
        found: T | str = source
    elif urlsplit(source).scheme == "file":
        found = unquote(urlsplit(source).path)
    else:
        return source if storage_options is None else ObjectUrl(source, storage_options)
    if storage_options is not None:
        raise TypeError("storage_options are for URLs of stores")
    return found


def resolved_url(source: T) -> T | str | ReadsAt:
    """Return the reader of an object for its URL, the path for a ``file://`` URL."""
    place = located(source)
    if is_url(place):
        place = ObjectUrl(place)
    if not isinstance(place, ObjectUrl):
        return place
    found = open_object(place.url, place.storage_options)
    return ObjectReader(found.path, found.size, found.read)
