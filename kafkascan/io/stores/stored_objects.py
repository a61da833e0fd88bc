"""List, read and upload objects of stores: through obstore, or fsspec.

Each request names the content that was there at first by its ETag. An object that was replaced is
an error, so the bytes of two contents are never mixed.
"""

from __future__ import annotations

import errno
import os
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast
from urllib.parse import unquote, urlsplit

from kafkascan.format.errors import CHANGED_WHILE_READ, SourceReadError
from kafkascan.format.optional_modules import require_module
from kafkascan.format.shown_places import shown_url, without_secrets

if TYPE_CHECKING:
    from datetime import datetime

    from obstore import GetOptions, ObjectMeta

_WEB = frozenset({"http", "https"})
# Other schemes are those of fsspec: memory, sftp, hdfs, …
_OBSTORE_SCHEMES = _WEB | {"s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss"}
# Libraries also name objects by their paths alone.
_QUERY = re.compile(r"(?<=[\w/])\?[^\s\"']+")
# Shorter values of options, such as "true", are parts of words.
_SHORTEST_SECRET = 6
_LONGEST_REASON = 300
# Bytes of a part of an upload.
_PART = 1 << 23

Answer = TypeVar("Answer")


class ObjectInfo(NamedTuple):
    """
    An object that a listing shows.

    Attributes
    ----------
    key : str
        Its name below the prefix that was listed, with slashes.
    size : int
        In bytes.
    etag : str or None
        The store's identifier of this content.
    modified : datetime, float, str or None
        When it was stored, as the store reports it.
    """

    key: str
    size: int
    etag: str | None = None
    modified: object = None


class StoredObject(Protocol):
    """
    An object, with the size and content that it had when it was opened.

    Attributes
    ----------
    path : str
        Its URL, without a password or query.
    size : int
    info : ObjectInfo
    """

    path: str
    size: int
    info: ObjectInfo

    def read(self, position: int, size: int) -> bytes:
        """
        Return a range inside of the object.

        Raises
        ------
        SourceReadError
            If the object was replaced or deleted, or the store did not answer completely.
        """


class StoredPrefix(Protocol):
    """
    The objects below a URL.

    Attributes
    ----------
    path : str
        The URL, without a slash at its end.
    """

    path: str

    def objects(self, *, recursive: bool = True) -> Iterator[ObjectInfo]:
        """
        List the objects, in no particular order; none of a prefix that does not exist.

        Parameters
        ----------
        recursive : bool, default True
            Whether keys may have slashes.

        Raises
        ------
        PermissionError
        SourceReadError
            If the store does not answer.
        """

    def open(self, listed: ObjectInfo) -> StoredObject:
        """Return an object with the content that was listed."""

    def put(self, key: str, path: str) -> None:
        """Upload a file as an object, which appears only when it is complete."""

    def remove(self, key: str) -> None:
        """Delete an object."""


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
    if not _is_for_obstore(url):
        return FsspecObject(url, options)
    obstore = require_module("obstore", extra="store")
    path = shown_url(url)
    root, key = _split_root(url)
    store = _ask(lambda: _connect(root, options), path, options)
    info = _ask(lambda: _info_of(obstore.head(store, key), key), path, options)
    return ObstoreObject(store, key, path, info, options)


def open_prefix(url: str, options: Mapping[str, object]) -> StoredPrefix:
    """Return the objects below a URL; this asks for nothing. It raises what `open_object` does."""
    if not _is_for_obstore(url):
        return FsspecPrefix(url, options)
    require_module("obstore", extra="store")
    root, key = _split_root(url)
    store = _ask(lambda: _connect(root, options), shown_url(url), options)
    return ObstorePrefix(store, key.strip("/"), shown_url(url).rstrip("/"), options)


def is_web_url(url: str) -> bool:
    """Whether a URL is one of a web server, which lists nothing."""
    return urlsplit(url).scheme in _WEB


def _is_for_obstore(url: str) -> bool:
    # A query is a signature; obstore has no place for it.
    parts = urlsplit(url)
    return parts.scheme in _OBSTORE_SCHEMES and not (parts.scheme in _WEB and parts.query)


class ObstoreObject:
    """
    An object that obstore reads; see `StoredObject`.

    obstore repeats requests that a store throttles (503) or that break off, with pauses.
    """

    def __init__(
        self, store: Any, key: str, path: str, info: ObjectInfo, options: Mapping[str, object]
    ) -> None:
        self.path = path
        self.size = info.size
        self.info = info
        self._store = store
        self._key = key
        self._etag = _quoted(info.etag)
        self._options = options

    def read(self, position: int, size: int) -> bytes:
        """See `StoredObject.read`."""
        data = _ask(lambda: self._read(position, size), self.path, self._options, position)
        _require_complete(self.path, position, size, data)
        return data

    def _read(self, position: int, size: int) -> bytes:
        import obstore

        conditions: GetOptions = {"range": (position, position + size)}
        if self._etag is not None and not self._etag.startswith("W/"):
            conditions["if_match"] = self._etag
        result = obstore.get(self._store, self._key, options=conditions)
        self._require_same(result.meta, position)
        return bytes(result.bytes())

    def _require_same(self, meta: Mapping[str, Any], position: int) -> None:
        """Compare what the answer says about the object: some servers ignore conditions."""
        etag = _quoted(meta["e_tag"])
        if self._etag is not None and etag is not None:
            is_same = etag == self._etag
        else:  # a listing has milliseconds, an answer has seconds
            times = (meta["last_modified"], cast("datetime", self.info.modified))
            is_same = len({time.replace(microsecond=0) for time in times}) == 1
        if not is_same or meta["size"] != self.size:
            raise _replaced(self.path, position)


class ObstorePrefix:
    """A prefix that obstore lists; see `StoredPrefix`."""

    def __init__(self, store: Any, key: str, path: str, options: Mapping[str, object]) -> None:
        self.path = path
        self._store = store
        self._key = key
        self._options = options

    def objects(self, *, recursive: bool = True) -> Iterator[ObjectInfo]:
        """See `StoredPrefix.objects`."""
        import obstore

        start, prefix = len(self._key) + 1 if self._key else 0, self._key or None

        def first() -> Iterator[Sequence[ObjectMeta]]:
            if recursive:
                return iter(obstore.list(self._store, prefix))
            return iter([obstore.list_with_delimiter(self._store, prefix)["objects"]])

        pages = _ask(first, self.path, self._options)
        while page := _ask(lambda: next(pages, ()), self.path, self._options):
            for meta in page:
                yield _info_of(meta, meta["path"][start:])

    def open(self, listed: ObjectInfo) -> StoredObject:
        """See `StoredPrefix.open`."""
        path = f"{self.path}/{listed.key}"
        return ObstoreObject(self._store, self._full(listed.key), path, listed, self._options)

    def put(self, key: str, path: str) -> None:
        """See `StoredPrefix.put`. A multipart upload is completed after its last part."""
        import obstore

        def put() -> None:
            full = self._full(key)
            obstore.put(self._store, full, Path(path), chunk_size=_PART, max_concurrency=2)

        _ask(put, f"{self.path}/{key}", self._options)

    def remove(self, key: str) -> None:
        """See `StoredPrefix.remove`."""
        import obstore

        target = self._full(key)
        _ask(lambda: obstore.delete(self._store, target), f"{self.path}/{key}", self._options)

    def _full(self, key: str) -> str:
        return f"{self._key}/{key}" if self._key else key


def _info_of(meta: ObjectMeta, key: str) -> ObjectInfo:
    return ObjectInfo(key, int(meta["size"]), meta["e_tag"], meta["last_modified"])


class FsspecObject:
    """
    An object that fsspec reads; see `StoredObject`.

    fsspec has no conditional requests, so each range is followed by a question for the state of
    the object.
    """

    def __init__(self, url: str, options: Mapping[str, object]) -> None:
        fsspec = require_module("fsspec", extra="store")
        self.path = shown_url(url)
        self._options = options
        self._fs, self._key = _ask(lambda: fsspec.url_to_fs(url, **options), self.path, options)
        self.info = _ask(self._read_info, self.path, options)
        self.size = self.info.size

    def _read_info(self) -> ObjectInfo:
        self._fs.invalidate_cache()
        found = self._fs.info(self._key)
        if found["type"] != "file":
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), self.path)
        return _fsspec_info(found, self._key)

    def read(self, position: int, size: int) -> bytes:
        """See `StoredObject.read`."""

        def read() -> tuple[bytes, ObjectInfo]:
            with _connection_of(self._fs):
                data = self._fs.cat_file(self._key, start=position, end=position + size)
                return bytes(data), self._read_info()

        data, info = _ask(read, self.path, self._options, position)
        if info != self.info:
            raise _replaced(self.path, position)
        _require_complete(self.path, position, size, data)
        return data


_one_connection = threading.Lock()


def _connection_of(fs: Any) -> AbstractContextManager[object]:
    """Return a lock, for file systems with one connection, such as those over FTP and SSH."""
    return nullcontext() if fs.async_impl else _one_connection


def _replace_after_fork() -> None:
    global _one_connection
    _one_connection = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_replace_after_fork)


class FsspecPrefix:
    """A prefix that fsspec lists; see `StoredPrefix`."""

    def __init__(self, url: str, options: Mapping[str, object]) -> None:
        fsspec = require_module("fsspec", extra="store")
        self.path = shown_url(url).rstrip("/")
        self._url = url.rstrip("/")
        self._options = options
        self._fs, key = _ask(lambda: fsspec.url_to_fs(url, **options), self.path, options)
        self._key = key.rstrip("/")

    def objects(self, *, recursive: bool = True) -> Iterator[ObjectInfo]:
        """See `StoredPrefix.objects`."""

        def find() -> Mapping[str, Mapping[str, Any]]:
            self._fs.invalidate_cache()  # fsspec caches instances, with their listings
            try:
                found = self._fs.find(self._key, maxdepth=None if recursive else 1, detail=True)
            except FileNotFoundError:
                return {}
            return cast("Mapping[str, Mapping[str, Any]]", found)

        found = _ask(find, self.path, self._options)
        for name, info in found.items():
            key = name[len(self._key) :].lstrip("/")
            if key:  # otherwise, the URL is that of an object
                yield _fsspec_info(info, key)

    def open(self, listed: ObjectInfo) -> StoredObject:
        """See `StoredPrefix.open`. The content is the one at this moment."""
        return FsspecObject(f"{self._url}/{listed.key}", self._options)

    def put(self, key: str, path: str) -> None:
        """See `StoredPrefix.put`: as on HDFS, the file has a hidden name first."""
        target = f"{self._key}/{key}"
        folder, _, name = target.rpartition("/")
        temporary = f"{folder}/.{name}.{uuid.uuid4().hex}.part"

        def put() -> None:
            self._fs.makedirs(folder, exist_ok=True)
            self._fs.put_file(path, temporary)
            self._fs.mv(temporary, target)

        _ask(put, f"{self.path}/{key}", self._options)

    def remove(self, key: str) -> None:
        """See `StoredPrefix.remove`."""
        target = f"{self._key}/{key}"
        _ask(lambda: self._fs.rm_file(target), f"{self.path}/{key}", self._options)


def _fsspec_info(found: Mapping[str, Any], key: str) -> ObjectInfo:
    etag = found.get("ETag") or found.get("etag")
    modified = found.get("LastModified") or found.get("mtime") or found.get("created")
    return ObjectInfo(key, int(found["size"]), None if etag is None else str(etag), modified)


def _quoted(etag: str | None) -> str | None:
    """Return an ETag as answers have it; Azure lists them without quotation marks."""
    return etag if etag is None or etag.endswith('"') else f'"{etag}"'


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


def _ask(
    call: Callable[[], Answer],
    path: str,
    options: Mapping[str, object],
    position: int | None = None,
) -> Answer:
    """
    Return the answer of a store; raise the errors of both libraries as ours, without secrets.

    Parameters
    ----------
    call : callable
    path : str
        Names the object in errors.
    options : dict
        Its texts are secrets.
    position : int, optional
        Where the object is read.
    """
    try:
        return call()
    except (SourceReadError, ImportError, IsADirectoryError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # obstore's PanicException is no Exception
        named = _named(error, path, options, position)
    # Raised here, it has no context: the text of the library's error may contain secrets.
    raise named


def _named(
    error: BaseException, path: str, options: Mapping[str, object], position: int | None
) -> Exception:
    kind, cause = type(error).__name__, error.__cause__
    is_unreachable = isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError)
    if isinstance(error, FileNotFoundError) and not is_unreachable:
        if position is None:
            return FileNotFoundError(errno.ENOENT, "no object exists at", path)
        return SourceReadError(
            path, position, "the object was deleted while it was read", CHANGED_WHILE_READ
        )
    if kind == "PreconditionError":
        return _replaced(path, position or 0)
    # fsspec has no object if a server cannot be reached; the cause says so.
    reason = _without_secrets(str(cause or error), options)
    if kind in ("PermissionDeniedError", "UnauthenticatedError", "PermissionError"):
        return PermissionError(errno.EACCES, reason, path)
    if kind in ("UnknownConfigurationKeyError", "TypeError", "ValueError", "PanicException"):
        about = "storage_options: " if options else ""
        return ValueError(f"{path}: {about}{reason}")
    return SourceReadError(path, position or 0, f"the store failed: {reason}")


def _without_secrets(text: str, options: Mapping[str, object]) -> str:
    """Return one line of a library's message without queries, passwords and options."""
    text = text.partition("\n\nDebug source")[0]
    text = _QUERY.sub("", without_secrets(" ".join(text.split())))
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
    return SourceReadError(
        path, position, "the object was replaced while it was read", CHANGED_WHILE_READ
    )


def _require_complete(path: str, position: int, size: int, data: bytes) -> None:
    if len(data) != size:
        reason = f"the store returned {len(data)} of {size} bytes"
        raise SourceReadError(path, position + len(data), reason)
