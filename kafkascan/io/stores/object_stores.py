"""Object stores, through fsspec or pyarrow: list, read in blocks, and upload."""

from __future__ import annotations

import errno
import glob
import inspect
import uuid
from typing import Any, NamedTuple, Protocol

from kafkascan.io.stores.object_reader import ObjectReader

# Bytes of a part of an upload.
_PART = 1 << 23
# Schemes of stores where an object appears when its upload is complete. Other schemes name file
# systems, where a file is renamed when it is complete.
_UPLOADS = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "wasb", "wasbs"})


class Listed(NamedTuple):
    """
    An object that a listing shows.

    Attributes
    ----------
    url : str
    size : int
    modified_ns : int or None
        Time of modification, in nanoseconds since the epoch.
    etag : str
        The store's identifier of this content; empty if it has none.
    """

    url: str
    size: int
    modified_ns: int | None
    etag: str = ""


class ObjectStore(Protocol):
    """A store of one URL scheme."""

    def list(self, url: str) -> tuple[bool, list[Listed]]:
        """Return whether the URL names objects themselves, and these objects or those below it."""

    def listed_url(self, url: str) -> str:
        """Return a URL in the form that `list` returns."""

    def open(self, url: str, size: int, bulk_stop: int = 0) -> ObjectReader:
        """Open an object of a known size; see `ObjectReader` for `bulk_stop`."""

    def put(self, path: str, url: str) -> None:
        """Copy a local file to a URL, where it appears only when it is complete."""

    def remove(self, url: str) -> None:
        """Delete an object."""


class FsspecStore:
    """
    A store through fsspec (``s3fs``, ``gcsfs``, ``adlfs``, …).

    Parameters
    ----------
    scheme : str
        Of the store's URLs.
    fs : fsspec.AbstractFileSystem
    """

    def __init__(self, scheme: str, fs: Any) -> None:
        self._scheme = scheme
        self._fs = fs

    @classmethod
    def connect(cls, scheme: str, settings: dict[str, Any]) -> FsspecStore:
        """Return the store of a scheme; `settings` are arguments of its file system."""
        import fsspec

        fs = fsspec.filesystem(scheme, **settings)
        fs.invalidate_cache()  # fsspec caches instances, with their listings
        return cls(scheme, fs)

    def list(self, url: str) -> tuple[bool, list[Listed]]:
        """See `ObjectStore.list`. The URL may be a glob."""
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

    def listed_url(self, url: str) -> str:
        """See `ObjectStore.listed_url`."""
        return f"{self._scheme}://{self._fs._strip_protocol(url)}"

    def _listed(self, info: dict[str, Any]) -> Listed:
        modified: Any = info.get("LastModified") or info.get("mtime") or info.get("created")
        seconds = modified.timestamp() if hasattr(modified, "timestamp") else modified
        modified_ns = int(seconds * 1e9) if isinstance(seconds, (int, float)) else None
        etag = str(info.get("ETag") or info.get("etag") or "").strip('"')
        return Listed(f"{self._scheme}://{info['name']}", int(info["size"]), modified_ns, etag)

    def open(self, url: str, size: int, bulk_stop: int = 0) -> ObjectReader:
        """See `ObjectStore.open`."""
        path = self._fs._strip_protocol(url)

        def read(position: int, count: int) -> bytes:
            try:
                data: bytes = self._fs.cat_file(path, start=position, end=position + count)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                return b""  # S3's InvalidRange: the object is shorter than it was
            return data

        return ObjectReader(url, size, read, bulk_stop)

    def put(self, path: str, url: str) -> None:
        """See `ObjectStore.put`. A multipart upload is completed after its last part."""
        target = self._fs._strip_protocol(url)
        upload = getattr(self._fs, "_put_file", self._fs.put_file)
        known = inspect.signature(upload).parameters
        # Without these limits, s3fs holds a hundred megabytes in memory.
        limits = {name: _UPLOAD_LIMITS[name] for name in _UPLOAD_LIMITS if name in known}
        if self._scheme in _UPLOADS:
            self._fs.put_file(path, target, **limits)
            return
        temporary = _temporary_path(target)
        self._fs.makedirs(target.rpartition("/")[0], exist_ok=True)
        self._fs.put_file(path, temporary, **limits)
        self._fs.mv(temporary, target)

    def remove(self, url: str) -> None:
        """See `ObjectStore.remove`."""
        self._fs.rm_file(self._fs._strip_protocol(url))


class PyArrowStore:
    """
    A store through ``pyarrow.fs``.

    Parameters
    ----------
    scheme : str
        Of the store's URLs.
    fs : pyarrow.fs.FileSystem
    """

    def __init__(self, scheme: str, fs: Any) -> None:
        self._scheme = scheme
        self._fs = fs

    @classmethod
    def connect(cls, scheme: str, settings: dict[str, Any]) -> PyArrowStore:
        """Return the store of a scheme; `settings` are arguments of its file system."""
        from pyarrow import fs

        kinds = {"s3": "S3FileSystem", "gs": "GcsFileSystem", "abfs": "AzureFileSystem"}
        if scheme in kinds:
            return cls(scheme, getattr(fs, kinds[scheme])(**settings))
        found, _ = fs.FileSystem.from_uri(f"{scheme}://{settings.get('host', '')}/")
        return cls(scheme, found)

    def _path(self, url: str) -> str:
        return url.partition("://")[2]

    def list(self, url: str) -> tuple[bool, list[Listed]]:
        """See `ObjectStore.list`. Globs need fsspec."""
        from pyarrow import fs

        (info,) = self._fs.get_file_info([self._path(url)])
        if info.type == fs.FileType.File:
            return True, [self._listed(info)]
        selector = fs.FileSelector(self._path(url), recursive=True, allow_not_found=True)
        found = self._fs.get_file_info(selector)
        return False, [self._listed(info) for info in found if info.type == fs.FileType.File]

    def listed_url(self, url: str) -> str:
        """See `ObjectStore.listed_url`."""
        return f"{self._scheme}://{self._path(url)}"

    def _listed(self, info: Any) -> Listed:
        return Listed(f"{self._scheme}://{info.path}", info.size, info.mtime_ns)

    def open(self, url: str, size: int, bulk_stop: int = 0) -> ObjectReader:
        """See `ObjectStore.open`."""
        file = self._fs.open_input_file(self._path(url))

        def read(position: int, count: int) -> bytes:
            data: bytes = file.read_at(count, position)
            return data

        return ObjectReader(url, size, read, bulk_stop)

    def put(self, path: str, url: str) -> None:
        """See `ObjectStore.put`."""
        from pyarrow import fs

        target = self._path(url)
        is_upload = self._scheme in _UPLOADS
        destination = target if is_upload else _temporary_path(target)
        if not is_upload:
            self._fs.create_dir(target.rpartition("/")[0])
        fs.copy_files(
            path,
            destination,
            source_filesystem=fs.LocalFileSystem(),
            destination_filesystem=self._fs,
        )
        if not is_upload:
            self._fs.move(destination, target)

    def remove(self, url: str) -> None:
        """See `ObjectStore.remove`."""
        self._fs.delete_file(self._path(url))


_UPLOAD_LIMITS = {"chunksize": _PART, "max_concurrency": 2}
_PREFIX, _SUFFIX = ".", ".part"


def _temporary_path(path: str) -> str:
    """Return the path of a file while it is written; readers ignore its hidden name."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/{_PREFIX}{name}.{uuid.uuid4().hex}{_SUFFIX}"


def is_temporary_name(name: str) -> bool:
    """Whether a file has the name of one that was not completed."""
    return name.startswith(_PREFIX) and name.endswith(_SUFFIX)
