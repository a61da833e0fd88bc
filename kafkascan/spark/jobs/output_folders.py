"""Output folders of jobs, local or in an object store. Files appear only when they are complete."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeAlias
from urllib.parse import unquote, urlsplit

from kafkascan.io.atomic_files import AtomicFile
from kafkascan.io.stores.stored_objects import StoredPrefix, open_prefix
from kafkascan.spark.jobs.planned_outputs import (
    FinishedOutput,
    PlannedOutput,
    find_finished,
    is_record,
)
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.planning.planned_logs import store_settings

_DONE = "_SUCCESS"
# The names of the files that `write_outputs` writes.
_OURS = re.compile(
    r"(topic=[^/]*/partition=-?\d+/\d{20}-\d{12}|batches-[^/]*-[0-9a-f]{8})\.parquet", re.DOTALL
)
# Requests to a store at once.
_THREADS = 16


def output_folder(url: str, options: Options) -> OutputFolder:
    """
    Return the output folder of a path or URL.

    Parameters
    ----------
    url : str
    options : Options
        `storage_options` of the store.
    """
    scheme = urlsplit(url).scheme if "://" in url else ""
    if scheme in ("", "file"):
        return LocalFolder(unquote(urlsplit(url).path) if scheme else url)
    return StoreFolder(url.rstrip("/"), options)


# ---- before and after a job ------------------------------------------------------------------


def prepare_folder(folder: OutputFolder, *, overwrite: bool) -> None:
    """
    Prepare a folder for a job that writes everything.

    Parameters
    ----------
    folder : OutputFolder
    overwrite : bool
        Remove the files of an earlier job.

    Raises
    ------
    FileExistsError
        If the folder contains Parquet files, or with `overwrite`, Parquet files that no job
        wrote.
    """
    folder.create()
    sizes = folder.sizes()
    if not overwrite and (found := _outputs_in(sizes)):
        is_done = _DONE in sizes
        raise FileExistsError(
            f"{folder.location} already contains Parquet files, such as {found[0]}"
            f"{'' if is_done else ', but no _SUCCESS: the job that wrote them did not finish'};"
            " resume=True keeps those that are finished, overwrite=True replaces the files of an"
            " earlier job"
        )
    _require_ours(folder, sizes)
    _remove(folder, sizes, keep=set())


def resume_folder(
    folder: OutputFolder, planned: Sequence[PlannedOutput]
) -> dict[str, FinishedOutput]:
    """
    Return the planned outputs that are finished; remove all other files of earlier jobs.

    Raises
    ------
    FileExistsError
        If the folder contains Parquet files that no job wrote.
    """
    folder.create()
    sizes = folder.sizes()
    _require_ours(folder, sizes)
    finished = find_finished(planned, sizes)
    _remove(folder, sizes, keep={*finished, *(record for record, _ in finished.values())})
    return {name: numbers for name, (_, numbers) in finished.items()}


def finish_folder(folder: OutputFolder, outputs: Iterable[str]) -> None:
    """Remove temporary files of killed tasks and write ``_SUCCESS``."""
    folder.remove_temporary(outputs)
    folder.mark(_DONE)


def _outputs_in(names: Iterable[str]) -> list[str]:
    return [name for name in names if name.endswith(".parquet")]


def _require_ours(folder: OutputFolder, names: Iterable[str]) -> None:
    for name in _outputs_in(names):
        if _OURS.fullmatch(name) is None:
            raise FileExistsError(
                f"{folder.location} contains {name}, which no job of kafkascan wrote"
            )


def _remove(folder: OutputFolder, sizes: Mapping[str, int], keep: set[str]) -> None:
    """
    Remove the files of earlier jobs.

    A removal may be interrupted: first goes the mark of a complete output, then the records, and
    then the outputs, so that no record of a missing or an old output is left.
    """
    steps = [
        [name for name in sizes if name == _DONE],
        [name for name in sizes if is_record(name) and name not in keep],
        [name for name in _outputs_in(sizes) if name not in keep] + _leftovers(sizes),
    ]
    with ThreadPoolExecutor(_THREADS) as pool:
        for names in steps:
            list(pool.map(folder.remove, names))


def _leftovers(names: Iterable[str]) -> list[str]:
    """Return the temporary files that the killed tasks of a job left."""
    found = []
    for name in names:
        folder, slash, file = name.rpartition("/")
        if is_temporary_name(file) and _OURS.fullmatch(folder + slash + _intended_name(file)):
            found.append(name)
    return found


def is_temporary_name(name: str) -> bool:
    """Whether a file has the name ``.<name>.<random>.part`` of one that was not completed."""
    return name.startswith(".") and name.endswith(".part")


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


# ---- places ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LocalFolder:
    """A local folder, or one on a file system that all executors share."""

    location: str

    def create(self) -> None:
        """Create the folder."""
        Path(self.location).mkdir(parents=True, exist_ok=True)

    def sizes(self) -> dict[str, int]:
        """Return the sizes of all files by name; the folder need not exist."""
        folder = Path(self.location)
        files = (path for path in folder.rglob("*") if path.is_file())
        return {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}

    def remove(self, name: str) -> None:
        """Remove a file."""
        (Path(self.location) / name).unlink(missing_ok=True)

    @contextmanager
    def write(self, name: str) -> Iterator[IO[bytes]]:
        """Open a file that appears when the context ends without an exception."""
        path = Path(self.location) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with AtomicFile(path) as file:
            yield file.stream

    def mark(self, name: str) -> None:
        """Create an empty file."""
        path = Path(self.location) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def remove_temporary(self, names: Iterable[str]) -> None:
        """Remove the temporary files that killed tasks left instead of files with these names."""
        remove_leftovers(Path(self.location) / name for name in names)


@dataclass(frozen=True)
class StoreFolder:
    """
    A folder in an object store.

    A file is written to a temporary file of the executor and then uploaded; a store shows an
    object when its upload is complete. On a file system such as HDFS, the file is uploaded under
    a hidden name and renamed.
    """

    location: str
    options: Options

    @property
    def _prefix(self) -> StoredPrefix:
        return open_prefix(self.location, store_settings(self.options))

    def create(self) -> None:
        """Do nothing: stores have no folders, and file systems create them with a file."""

    def sizes(self) -> dict[str, int]:
        """See `LocalFolder.sizes`."""
        return {one.key: one.size for one in self._prefix.objects()}

    def remove(self, name: str) -> None:
        """See `LocalFolder.remove`."""
        self._prefix.remove(name)

    @contextmanager
    def write(self, name: str) -> Iterator[IO[bytes]]:
        """See `LocalFolder.write`: the upload starts when the file is complete."""
        with tempfile.NamedTemporaryFile(dir=_spark_local_dir(), prefix="kafkascan-") as file:
            yield file
            file.flush()
            self._prefix.put(name, file.name)

    def mark(self, name: str) -> None:
        """See `LocalFolder.mark`."""
        with self.write(name):
            pass

    def remove_temporary(self, names: Iterable[str]) -> None:
        """See `LocalFolder.remove_temporary`; a folder of a job contains no other ones."""
        for name in self.sizes():
            if is_temporary_name(name.rpartition("/")[2]):
                self.remove(name)


OutputFolder: TypeAlias = LocalFolder | StoreFolder
"""A folder that tasks write files into; names may contain slashes."""


def _spark_local_dir() -> str | None:
    """Return the executor's scratch folder, which Spark removes when the application ends."""
    folders = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    return next((folder for folder in folders if os.path.isdir(folder)), None)
