"""Where jobs write: a folder, or a place in an object store. Files appear when they are whole."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol
from urllib.parse import unquote, urlsplit

from kafkascan.files import AtomicFile
from kafkascan.spark.files import store_of
from kafkascan.spark.options import Options
from kafkascan.spark.stores import HIDDEN

_DONE = "_SUCCESS"


class Folder(Protocol):
    """Where files are written, by names with slashes in them."""

    def prepare(self) -> None:
        """Make the folder; raise `FileExistsError` if it holds Parquet files."""

    def write(self, name: str) -> AbstractContextManager[IO[bytes]]:
        """Return the context of a file that appears at its end, unless an error ends it."""

    def finish(self, names: Iterable[str]) -> None:
        """Take away what killed tasks left, and say that all is there."""


def output_folder(url: str, options: Options) -> Folder:
    """
    Return what writes to a path or URL.

    Parameters
    ----------
    url : str
    options : Options
        `filesystem` and `storage_options` are of the store.
    """
    scheme = urlsplit(url).scheme if "://" in url else ""
    if scheme in ("", "file"):
        return LocalFolder(unquote(urlsplit(url).path) if scheme else url)
    return StoreFolder(url.rstrip("/"), options)


@dataclass(frozen=True)
class LocalFolder:
    """A folder that all executors see."""

    path: str

    def prepare(self) -> None:
        """As `Folder.prepare`."""
        folder = Path(self.path)
        if next(folder.rglob("*.parquet"), None) is not None:
            raise FileExistsError(f"{folder} holds Parquet files already")
        folder.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def write(self, name: str) -> Iterator[IO[bytes]]:
        """As `Folder.write`: a file beside it is renamed."""
        path = Path(self.path) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with AtomicFile(path) as file:
            yield file.stream

    def finish(self, names: Iterable[str]) -> None:
        """As `Folder.finish`."""
        remove_leftovers(Path(self.path) / name for name in names)
        (Path(self.path) / _DONE).touch()


def remove_leftovers(paths: Iterable[Path]) -> None:
    """Take away what tasks that were killed left beside files."""
    folders: dict[Path, set[str]] = {}
    for path in paths:
        folders.setdefault(path.parent, set()).add(path.name)
    for folder, names in folders.items():
        for left in folder.glob(".*.part"):
            # .<name>.<anything>.part
            if left.name[1:].rsplit(".", 2)[0] in names:
                left.unlink(missing_ok=True)


@dataclass(frozen=True)
class StoreFolder:
    """
    A place in an object store.

    Files are made in a temporary one of the executor, and then uploaded: a store shows an object
    when all of it is there. Where there are files rather than objects (HDFS), they are uploaded
    under a hidden name, and moved.
    """

    url: str
    options: Options

    def prepare(self) -> None:
        """As `Folder.prepare`."""
        _, listed = store_of(self.url, self.options).list(self.url)
        if any(url.endswith(".parquet") for url, _, _ in listed):
            raise FileExistsError(f"{self.url} holds Parquet files already")

    @contextmanager
    def write(self, name: str) -> Iterator[IO[bytes]]:
        """As `Folder.write`: an upload that ends when all of it is there."""
        with tempfile.NamedTemporaryFile(dir=_local_dir(), prefix="kafkascan-") as file:
            yield file
            file.flush()
            store_of(self.url, self.options).put(file.name, f"{self.url}/{name}")

    def finish(self, names: Iterable[str]) -> None:
        """As `Folder.finish`."""
        store = store_of(self.url, self.options)
        before, behind = HIDDEN
        for url, _, _ in store.list(self.url)[1]:
            name = url.rpartition("/")[2]
            if name.startswith(before) and name.endswith(behind):
                store.remove(url)
        with self.write(_DONE):
            pass


def _local_dir() -> str | None:
    """Where Spark lets executors have files: they go when the application ends."""
    folders = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    return next((folder for folder in folders if os.path.isdir(folder)), None)
