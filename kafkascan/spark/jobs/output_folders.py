"""Output folders of jobs, local or in an object store. Files appear only when they are complete."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol
from urllib.parse import unquote, urlsplit

from kafkascan.io.atomic_files import AtomicFile
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.planning.file_listing import store_of
from kafkascan.spark.planning.object_stores import is_temporary_name

_DONE = "_SUCCESS"
# The names of the files that `export_task` and `catalog_task` write.
_OURS = re.compile(
    r"(topic=[^/]*/partition=-?\d+/\d{20}-\d{12}|batches-[^/]*-[0-9a-f]{8})\.parquet", re.DOTALL
)


class OutputFolder(Protocol):
    """A folder that tasks write files into; names may contain slashes."""

    def prepare(self, *, overwrite: bool) -> None:
        """
        Create the folder, and remove the files of an earlier job if `overwrite` is set.

        Raises
        ------
        FileExistsError
            If the folder contains Parquet files, or with `overwrite`, Parquet files that no job
            wrote.
        """

    def write(self, name: str) -> AbstractContextManager[IO[bytes]]:
        """Open a file that appears when the context ends without an exception."""

    def finish(self, names: Iterable[str]) -> None:
        """Remove temporary files of killed tasks and write ``_SUCCESS``."""


def output_folder(url: str, options: Options) -> OutputFolder:
    """
    Return the output folder of a path or URL.

    Parameters
    ----------
    url : str
    options : Options
        `filesystem` and `storage_options` of the store.
    """
    scheme = urlsplit(url).scheme if "://" in url else ""
    if scheme in ("", "file"):
        return LocalFolder(unquote(urlsplit(url).path) if scheme else url)
    return StoreFolder(url.rstrip("/"), options)


@dataclass(frozen=True)
class LocalFolder:
    """A local folder, or one on a file system that all executors share."""

    path: str

    def prepare(self, *, overwrite: bool) -> None:
        """See `OutputFolder.prepare`."""
        folder = Path(self.path)
        folder.mkdir(parents=True, exist_ok=True)
        names = [path.relative_to(folder).as_posix() for path in folder.rglob("*")]
        _remove_earlier(self.path, names, lambda name: (folder / name).unlink(), overwrite)

    @contextmanager
    def write(self, name: str) -> Iterator[IO[bytes]]:
        """See `OutputFolder.write`: a temporary file in the same folder is renamed."""
        path = Path(self.path) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with AtomicFile(path) as file:
            yield file.stream

    def finish(self, names: Iterable[str]) -> None:
        """See `OutputFolder.finish`."""
        remove_leftovers(Path(self.path) / name for name in names)
        (Path(self.path) / _DONE).touch()


def _remove_earlier(
    folder: str, names: Sequence[str], remove: Callable[[str], None], overwrite: bool
) -> None:
    """Remove the files of an earlier job if `overwrite` is set; refuse other Parquet files."""
    found = [name for name in names if name.endswith(".parquet")]
    ours = [name for name in found if _OURS.fullmatch(name)]
    if found and not overwrite:
        is_done = _DONE in names
        raise FileExistsError(
            f"{folder} already contains Parquet files"
            f"{'' if is_done else ', but no _SUCCESS: the job that wrote them did not finish'};"
            " overwrite=True replaces the files of an earlier job"
        )
    if len(ours) < len(found):
        other = next(name for name in found if name not in set(ours))
        raise FileExistsError(f"{folder} contains {other}, which no job of kafkascan wrote")
    if overwrite:
        # First the mark of a complete output, because a removal may be interrupted.
        for name in [name for name in names if name == _DONE] + ours + _leftovers(names):
            remove(name)


def _leftovers(names: Iterable[str]) -> list[str]:
    """Return the temporary files that the killed tasks of a job left."""
    found = []
    for name in names:
        folder, slash, file = name.rpartition("/")
        if is_temporary_name(file) and _OURS.fullmatch(folder + slash + _intended_name(file)):
            found.append(name)
    return found


def _intended_name(temporary: str) -> str:
    """Return the name that a temporary file ``.<name>.<random>.part`` would get."""
    return temporary[1:].rsplit(".", 2)[0]


def remove_leftovers(paths: Iterable[Path]) -> None:
    """Remove the temporary files that killed tasks left next to these files."""
    folders: dict[Path, set[str]] = {}
    for path in paths:
        folders.setdefault(path.parent, set()).add(path.name)
    for folder, names in folders.items():
        for leftover in folder.glob(".*.part"):
            if _intended_name(leftover.name) in names:
                leftover.unlink(missing_ok=True)


@dataclass(frozen=True)
class StoreFolder:
    """
    A folder in an object store.

    A file is written to a temporary file of the executor and then uploaded; a store shows an
    object when its upload is complete. On a file system such as HDFS, the file is uploaded under
    a hidden name and renamed.
    """

    url: str
    options: Options

    def prepare(self, *, overwrite: bool) -> None:
        """See `OutputFolder.prepare`."""
        store = store_of(self.url, self.options)
        prefix = f"{store.listed_url(self.url)}/"
        names = [url.removeprefix(prefix) for url, _, _ in store.list(self.url)[1]]
        _remove_earlier(self.url, names, lambda name: store.remove(prefix + name), overwrite)

    @contextmanager
    def write(self, name: str) -> Iterator[IO[bytes]]:
        """See `OutputFolder.write`: the upload starts when the file is complete."""
        with tempfile.NamedTemporaryFile(dir=_spark_local_dir(), prefix="kafkascan-") as file:
            yield file
            file.flush()
            store_of(self.url, self.options).put(file.name, f"{self.url}/{name}")

    def finish(self, names: Iterable[str]) -> None:
        """See `OutputFolder.finish`."""
        store = store_of(self.url, self.options)
        for url, _, _ in store.list(self.url)[1]:
            if is_temporary_name(url.rpartition("/")[2]):
                store.remove(url)
        with self.write(_DONE):
            pass


def _spark_local_dir() -> str | None:
    """Return the executor's scratch folder, which Spark removes when the application ends."""
    folders = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    return next((folder for folder in folders if os.path.isdir(folder)), None)
