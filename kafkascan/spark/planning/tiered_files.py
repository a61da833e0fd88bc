"""Logs in remote storage (KIP-405), listed by the driver and opened by tasks."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

from kafkascan.io.folders import require_side_file_size
from kafkascan.io.sources import Source, SourceLike
from kafkascan.io.stores.object_stores import Listed, ObjectStore
from kafkascan.io.stores.url_paths import UrlPath
from kafkascan.spark.options.reader_options import Options
from kafkascan.tiered.aiven_layout import open_chunked_log
from kafkascan.tiered.data_keys import KeyRing
from kafkascan.tiered.tier_listing import TieredLogs, read_tier
from kafkascan.tiered.tier_store import FolderStore, TierObject, TierStore

_READS_AT_ONCE = 32


class TieredStorageWarning(UserWarning):
    """Remote storage has objects that are not read, or that contradict each other."""


class ObjectTierStore:
    """
    The objects below a URL, through the store of a data source; a `TierStore`.

    Parameters
    ----------
    store : ObjectStore
    url : str
        Without a slash at its end, as the store lists it.
    listed : mapping of str to Listed
        Objects by key. Of objects that are not in it, the store is asked.
    """

    reads_at_once: int | None = _READS_AT_ONCE

    def __init__(self, store: ObjectStore, url: str, listed: Mapping[str, Listed]) -> None:
        self.path: Path = UrlPath(url)
        self._store = store
        self._url = url
        self._listed = listed

    def objects(self) -> Iterator[TierObject]:
        """Return the objects that were listed."""
        return (TierObject(key, one.size) for key, one in self._listed.items())

    def open(self, key: str, size: int) -> SourceLike:
        """Return the reader of an object of a known size."""
        return self._store.open(f"{self._url}/{key}", size)

    def read(self, key: str) -> bytes:
        """Return the bytes of an object."""
        url = f"{self._url}/{key}"
        known = self._listed.get(key)
        if known is None:
            is_object, found = self._store.list(url)
            if not is_object:
                raise FileNotFoundError(2, "no object exists at", url)
            (known,) = found
        require_side_file_size(known.size, url)
        with Source(self._store.open(url, known.size, known.size)) as source:
            return bytes(source.window(0, known.size))


def listed_store(store: ObjectStore, url: str) -> tuple[ObjectTierStore, Mapping[str, Listed]]:
    """List the objects below a URL."""
    root = store.listed_url(url).rstrip("/")
    _, found = store.list(url)
    listed = {one.url.removeprefix(f"{root}/"): one for one in found}
    return ObjectTierStore(store, root, listed), listed


def read_listed(store: TierStore, options: Options) -> TieredLogs:
    """
    Return the segments of a store, with a warning if it has problems.

    Raises
    ------
    As `open_tiered`.
    """
    assert options.tiered_layout is not None
    found = read_tier(store, layout=options.tiered_layout, keys=_keys(options))
    if found.problems:
        count, first = len(found.problems), found.problems[0]
        message = f"{found.path}: {count} problems of the remote storage, such as {first}"
        warnings.warn(message, TieredStorageWarning, stacklevel=2)
    return found


def open_chunked(store: TierStore, key: str, size: int, options: Options) -> SourceLike:
    """Return the reader of a log that is compressed or encrypted; `size` is that of the object."""
    return open_chunked_log(store, TierObject(key, size), KeyRing(_keys(options)))


def local_store(path: str) -> FolderStore:
    """Return the objects below a folder."""
    return FolderStore(path)


def _keys(options: Options) -> dict[str, str]:
    keys: dict[str, str] = json.loads(options.tiered_keys)
    return keys
