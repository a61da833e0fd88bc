"""Objects whose content does not change while they are read: through obstore, or fsspec.

Each request names the content that was there at first by its ETag. An object that was replaced is
an error, so the bytes of two contents are never mixed.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit, urlunsplit

from kafkascan.format.errors import SourceReadError

if TYPE_CHECKING:
    from obstore import GetOptions

_WEB = frozenset({"http", "https"})
# Other schemes are those of fsspec: memory, sftp, hdfs, …
_OBSTORE_SCHEMES = _WEB | {"s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss"}
_QUERY = re.compile(r"(?<=[\w/])\?[^\s\"']+")
_USER = re.compile(r"(?<=://)[^/\s\"'@]+:[^/\s\"'@]*@")
# Shorter values of options, such as "true", are parts of words.
_SHORTEST_SECRET = 6
_LONGEST_REASON = 300


class StoredObject(Protocol):
    """
    An object, with the size and content that it had when it was opened.

    Attributes
    ----------
    path : str
        Its URL, without a password or query.
    size : int
    """

    path: str
    size: int

    def read(self, position: int, size: int) -> bytes:
        """
        Return a range inside of the object.

        Raises
        ------
        SourceReadError
            If the object was replaced or deleted, or the store did not answer completely.
        """


def open_object(url: str, options: Mapping[str, object]) -> StoredObject:
    """
    Open the object of a URL; this asks for its size, not for its bytes.

    Raises
    ------
    FileNotFoundError, PermissionError
    SourceReadError
        If the store does not answer.
    ValueError
        If the store does not have such options.
    ImportError
        If no library for the scheme is installed.
    """
    parts = urlsplit(url)
    # A query is a signature; obstore has no place for it.
    if parts.scheme in _OBSTORE_SCHEMES and not (parts.scheme in _WEB and parts.query):
        return ObstoreObject(url, options)
    return FsspecObject(url, options)


def shown_url(url: str) -> str:
    """Return a URL for messages: without user, password and query, where signatures are."""
    parts = urlsplit(url)
    if parts.scheme not in _WEB:
        return url
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


class ObstoreObject:
    """
    An object that obstore reads; see `StoredObject`.

    obstore repeats requests that a store throttles (503) or that break off, with pauses.
    """

    def __init__(self, url: str, options: Mapping[str, object]) -> None:
        import obstore

        self.path = shown_url(url)
        self._options = options
        root, self._key = _split_root(url)
        with _named_errors(self.path, 0, options):
            self._store = _connect(root, options)
            meta = obstore.head(self._store, self._key)
        self.size = int(meta["size"])
        self._etag = meta["e_tag"]
        self._modified = meta["last_modified"]

    def read(self, position: int, size: int) -> bytes:
        """See `StoredObject.read`."""
        import obstore
        from obstore.exceptions import PreconditionError

        conditions: GetOptions = {"range": (position, position + size)}
        if self._etag is not None and not self._etag.startswith("W/"):
            conditions["if_match"] = self._etag
        with _named_errors(self.path, position, self._options):
            try:
                result = obstore.get(self._store, self._key, options=conditions)
                self._require_same(result.meta, position)
                data = bytes(result.bytes())
            except PreconditionError:
                raise _replaced(self.path, position) from None
            except FileNotFoundError:
                reason = "the object was deleted while it was read"
                raise SourceReadError(self.path, position, reason) from None
        _require_complete(self.path, position, size, data)
        return data

    def _require_same(self, meta: Mapping[str, Any], position: int) -> None:
        """Compare what the answer says about the object: some servers ignore conditions."""
        if self._etag is not None and meta["e_tag"] is not None:
            is_same = meta["e_tag"] == self._etag
        else:
            is_same = meta["last_modified"] == self._modified
        if not is_same or meta["size"] != self.size:
            raise _replaced(self.path, position)


class FsspecObject:
    """
    An object that fsspec reads; see `StoredObject`.

    fsspec has no conditional requests, so each range is followed by a question for the state of
    the object.
    """

    def __init__(self, url: str, options: Mapping[str, object]) -> None:
        import fsspec

        self.path = shown_url(url)
        self._options = options
        with _named_errors(self.path, 0, options):
            self._fs = fsspec.filesystem(urlsplit(url).scheme, **options)
            self._key = self._fs._strip_protocol(url)
            self._state = self._read_state()
        self.size: int = self._state[0]

    def _read_state(self) -> tuple[Any, ...]:
        self._fs.invalidate_cache()
        info = self._fs.info(self._key)
        if info["type"] != "file":
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), self.path)
        names = ("size", "ETag", "etag", "LastModified", "mtime", "created")
        return tuple(info.get(name) for name in names)

    def read(self, position: int, size: int) -> bytes:
        """See `StoredObject.read`."""
        with _named_errors(self.path, position, self._options):
            try:
                data = bytes(self._fs.cat_file(self._key, start=position, end=position + size))
                state = self._read_state()
            except FileNotFoundError:
                reason = "the object was deleted while it was read"
                raise SourceReadError(self.path, position, reason) from None
        if state != self._state:
            raise _replaced(self.path, position)
        _require_complete(self.path, position, size, data)
        return data


def _split_root(url: str) -> tuple[str, str]:
    """Return the URL of the bucket or server, and the key in it."""
    parts = urlsplit(url)
    if parts.scheme in _WEB:
        return f"{parts.scheme}://{parts.netloc}", unquote(parts.path).lstrip("/")
    scheme, _, rest = url.partition("://")
    bucket, _, key = rest.partition("/")
    return f"{scheme}://{bucket}", key


def _connect(root: str, options: Mapping[str, Any]) -> Any:
    from obstore.store import HTTPStore, from_url

    scheme = urlsplit(root).scheme
    if scheme not in _WEB:
        return from_url(root, **options)
    client = dict(options.get("client_options", {}))
    client.setdefault("allow_http", scheme == "http")
    return HTTPStore.from_url(root, **{**options, "client_options": client})


@contextmanager
def _named_errors(path: str, position: int, options: Mapping[str, object]) -> Iterator[None]:
    """Raise the errors of both libraries as ours, without secrets."""
    try:
        yield
    except (SourceReadError, ImportError):
        raise
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "no object exists at", path) from None
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # obstore's PanicException is no Exception
        kind = type(error).__name__
        reason = _without_secrets(str(error), options)
        if kind in ("PermissionDeniedError", "UnauthenticatedError", "PermissionError"):
            raise PermissionError(errno.EACCES, reason, path) from None
        if kind in ("UnknownConfigurationKeyError", "TypeError", "ValueError", "PanicException"):
            raise ValueError(f"{path}: storage_options: {reason}") from None
        if isinstance(error, IsADirectoryError):
            raise
        raise SourceReadError(path, position, f"the store failed: {reason}") from None


def _without_secrets(text: str, options: Mapping[str, object]) -> str:
    """Return one line of a library's message without queries, passwords and options."""
    text = text.partition("\n\nDebug source")[0]
    text = _USER.sub("", _QUERY.sub("", " ".join(text.split())))
    for secret in _texts(options):
        text = text.replace(secret, "…")
    return text[:_LONGEST_REASON]


def _texts(options: Mapping[str, object]) -> Iterator[str]:
    for value in options.values():
        if isinstance(value, Mapping):
            yield from _texts(value)
        elif isinstance(value, str) and len(value) >= _SHORTEST_SECRET:
            yield value


def _replaced(path: str, position: int) -> SourceReadError:
    return SourceReadError(path, position, "the object was replaced while it was read")


def _require_complete(path: str, position: int, size: int, data: bytes) -> None:
    if len(data) != size:
        reason = f"the store returned {len(data)} of {size} bytes"
        raise SourceReadError(path, position + len(data), reason)
