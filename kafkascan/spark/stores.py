"""Object stores, through fsspec or pyarrow: what is there, reading it in blocks, and writing."""

from __future__ import annotations

import glob
import inspect
import threading
import uuid
from collections.abc import Callable
from typing import Any, Protocol

# Read at once; two of these are kept.
_BLOCK = 1 << 23
_BLOCKS_KEPT = 2
# Objects that are uploaded take their place when they are whole. Elsewhere, files do by a move.
_UPLOADS = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "wasb", "wasbs"})

Listed = tuple[str, int, "int | None"]
"""URL, size, and when it was modified, in nanoseconds."""


class Store(Protocol):
    """An object store."""

    def list(self, url: str) -> tuple[bool, list[Listed]]:
        """Return whether objects themselves are named, and all of them or those below."""

    def reader(self, url: str) -> Callable[[int, int], bytes]:
        """Return what reads (position, size) of an object."""

    def open(self, url: str, size: int) -> ObjectReader:
        """Open an object."""

    def put(self, path: str, url: str) -> None:
        """Copy a local file to where an object is to appear, at once and whole."""

    def remove(self, url: str) -> None:
        """Take an object away."""


class FsspecStore:
    """Objects through fsspec (``s3fs``, ``gcsfs``, ``adlfs``, …)."""

    def __init__(self, scheme: str, settings: dict[str, Any]) -> None:
        import fsspec

        self._scheme = scheme
        self._fs = fsspec.filesystem(scheme, **settings)
        self._fs.invalidate_cache()  # a listing shows what is there now

    def list(self, url: str) -> tuple[bool, list[Listed]]:
        """As `Store.list`."""
        path = self._fs._strip_protocol(url)
        if glob.has_magic(path):
            matches = self._fs.glob(path, detail=True).values()
            files = [self._listed(info) for info in matches if info["type"] == "file"]
            if files:
                return True, files
            folders = [info["name"] for info in matches]
        elif self._fs.isfile(path):
            return True, [self._listed(self._fs.info(path))]
        else:
            folders = [path]
        below = [self._fs.find(folder, detail=True) for folder in folders]
        return False, [self._listed(info) for found in below for info in found.values()]

    def _listed(self, info: dict[str, Any]) -> Listed:
        modified: Any = info.get("LastModified") or info.get("mtime") or info.get("created")
        seconds = modified.timestamp() if hasattr(modified, "timestamp") else modified
        modified_ns = int(seconds * 1e9) if isinstance(seconds, (int, float)) else None
        return f"{self._scheme}://{info['name']}", int(info["size"]), modified_ns

    def reader(self, url: str) -> Callable[[int, int], bytes]:
        """As `Store.reader`."""
        path = self._fs._strip_protocol(url)

        def read(position: int, size: int) -> bytes:
            data: bytes = self._fs.cat_file(path, start=position, end=position + size)
            return data

        return read

    def open(self, url: str, size: int) -> ObjectReader:
        """As `Store.open`."""
        return ObjectReader(url, size, self.reader(url))

    def put(self, path: str, url: str) -> None:
        """As `Store.put`; what is uploaded in parts is put together when all are there."""
        target = self._fs._strip_protocol(url)
        upload = getattr(self._fs, "_put_file", self._fs.put_file)
        known = inspect.signature(upload).parameters
        # Else, a hundred megabytes are held in memory.
        limits = {name: _UPLOAD_LIMITS[name] for name in _UPLOAD_LIMITS if name in known}
        if self._scheme in _UPLOADS:
            self._fs.put_file(path, target, **limits)
            return
        hidden = _hidden(target)
        self._fs.makedirs(target.rpartition("/")[0], exist_ok=True)
        self._fs.put_file(path, hidden, **limits)
        self._fs.mv(hidden, target)

    def remove(self, url: str) -> None:
        """As `Store.remove`."""
        self._fs.rm_file(self._fs._strip_protocol(url))


class PyArrowStore:
    """Objects through ``pyarrow.fs``."""

    def __init__(self, scheme: str, settings: dict[str, Any]) -> None:
        from pyarrow import fs

        kinds = {"s3": "S3FileSystem", "gs": "GcsFileSystem", "abfs": "AzureFileSystem"}
        self._scheme = scheme
        if scheme in kinds:
            self._fs = getattr(fs, kinds[scheme])(**settings)
        else:
            self._fs = fs.FileSystem.from_uri(f"{scheme}://{settings.get('host', '')}/")[0]

    def _path(self, url: str) -> str:
        return url.partition("://")[2]

    def list(self, url: str) -> tuple[bool, list[Listed]]:
        """As `Store.list`; globs are fsspec's."""
        from pyarrow import fs

        (info,) = self._fs.get_file_info([self._path(url)])
        if info.type == fs.FileType.File:
            return True, [self._listed(info)]
        selector = fs.FileSelector(self._path(url), recursive=True, allow_not_found=True)
        found = self._fs.get_file_info(selector)
        return False, [self._listed(info) for info in found if info.type == fs.FileType.File]

    def _listed(self, info: Any) -> Listed:
        return f"{self._scheme}://{info.path}", info.size, info.mtime_ns

    def reader(self, url: str) -> Callable[[int, int], bytes]:
        """As `Store.reader`."""
        file = self._fs.open_input_file(self._path(url))

        def read(position: int, size: int) -> bytes:
            data: bytes = file.read_at(size, position)
            return data

        return read

    def open(self, url: str, size: int) -> ObjectReader:
        """As `Store.open`."""
        return ObjectReader(url, size, self.reader(url))

    def put(self, path: str, url: str) -> None:
        """As `Store.put`."""
        from pyarrow import fs

        target = self._path(url)
        is_upload = self._scheme in _UPLOADS
        place = target if is_upload else _hidden(target)
        if not is_upload:
            self._fs.create_dir(target.rpartition("/")[0])
        fs.copy_files(
            path, place, source_filesystem=fs.LocalFileSystem(), destination_filesystem=self._fs
        )
        if not is_upload:
            self._fs.move(place, target)

    def remove(self, url: str) -> None:
        """As `Store.remove`."""
        self._fs.delete_file(self._path(url))


HIDDEN = (".", ".part")
"""How the name of a file begins and ends that is on its way."""

_UPLOAD_LIMITS = {"chunksize": _BLOCK, "max_concurrency": 2}


def _hidden(path: str) -> str:
    folder, _, name = path.rpartition("/")
    before, behind = HIDDEN
    return f"{folder}/{before}{name}.{uuid.uuid4().hex}{behind}"


class ObjectReader:
    """
    An object that is read in large blocks, of which the last ones are kept.

    Parameters
    ----------
    path : str
    size : int
    read : callable
        Gets a position and a size.
    """

    def __init__(self, path: str, size: int, read: Callable[[int, int], bytes]) -> None:
        self.path = path
        self.size = size
        self._read = read
        self._blocks: list[tuple[int, bytes]] = []
        self._lock = threading.Lock()

    def read_at(self, position: int, size: int) -> bytes:
        """As `ReadsAt.read_at`."""
        with self._lock:
            for start, block in self._blocks:
                if start <= position < start + len(block):
                    return block[position - start : position - start + size]
            wanted = min(max(size, _BLOCK), self.size - position)
            block = self._read(position, wanted)
            if len(block) <= _BLOCK:
                self._blocks = [*self._blocks, (position, block)][-_BLOCKS_KEPT:]
        return block[:size]
