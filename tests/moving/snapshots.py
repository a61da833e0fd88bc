"""The files of a data dir as they were at a moment, in memory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

# The clock replaces them while a reader runs.
_open, _read, _close, _walk, _fstat = os.open, os.read, os.close, os.scandir, os.fstat


class File(NamedTuple):
    """The content of a file, and when it was written."""

    content: bytes
    time: int


Files = dict[str, File]


@dataclass(frozen=True)
class Snapshot:
    """
    The files of a data dir at a moment.

    Attributes
    ----------
    folders : set of str
    files : dict
        By their paths below the data dir.
    """

    folders: frozenset[str]
    files: Files

    @classmethod
    def of(cls, data_dir: Path) -> Self:
        """Return the files of a data dir as they are now."""
        folders, files = set(), {}
        with _walk(data_dir) as entries:
            for entry in entries:
                if not entry.is_dir():
                    files[entry.name] = _file(entry.path)
                    continue
                folders.add(entry.name)
                with _walk(entry.path) as inner:
                    files.update({f"{entry.name}/{one.name}": _file(one.path) for one in inner})
        return cls(frozenset(folders), files)

    def write(self, data_dir: Path) -> None:
        """Write the files to a data dir."""
        data_dir.mkdir(parents=True)
        for name in self.folders:
            (data_dir / name).mkdir()
        for name, file in self.files.items():
            path = data_dir / name
            path.write_bytes(file.content)
            os.utime(path, ns=(file.time, file.time))


def _file(path: str) -> File:
    descriptor = _open(path, os.O_RDONLY)
    try:
        status = _fstat(descriptor)
        return File(_read(descriptor, status.st_size), status.st_mtime_ns)
    finally:
        _close(descriptor)
