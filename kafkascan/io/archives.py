"""Read log directories inside tar archives without unpacking them.

A member of a tar is a range of the tar's file, and is mapped as such. A sparse member, of which
GNU tar stores no holes, is reassembled while it is read. A compressed tar has no random access
and is refused.
"""

from __future__ import annotations

import bisect
import os
from pathlib import Path

from kafkascan.format.errors import ArchiveError
from kafkascan.io.folders import missing_file, require_side_file_size
from kafkascan.io.source_protocols import FileRange
from kafkascan.io.sources import Source, SourceLike, read_bytes
from kafkascan.io.tar_headers import BLOCK, TarEntry, TarHeaders, is_header

_MAGIC_AT = 257
_MAGIC = b"ustar"
_COMPRESSED = {
    b"\x1f\x8b": "gunzip",
    b"\x28\xb5\x2f\xfd": "unzstd",
    b"\xfd7zXZ\x00": "unxz",
    b"BZh": "bunzip2",
    b"\x04\x22\x4d\x18": "unlz4",
}
_SUFFIXES = (".tar", ".tgz", ".tzst", ".txz", ".tbz2")


def is_archive(path: Path) -> bool:
    """
    Return whether a file is a tar.

    Raises
    ------
    ArchiveError
        If it is a compressed tar.
    OSError
    """
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(BLOCK)
    if head[_MAGIC_AT:].startswith(_MAGIC) and is_header(head):
        return True
    is_named_so = path.name.endswith(_SUFFIXES) or ".tar." in path.name
    for magic, tool in _COMPRESSED.items():
        if is_named_so and head.startswith(magic):
            reason = f"a compressed tar cannot be read at positions; decompress it ({tool}) first"
            raise ArchiveError(str(path), 0, reason)
    return is_named_so and len(head) == BLOCK


class Archive:
    """
    The files of a tar by folder; `open_archive` returns it.

    It takes about 700 bytes of memory for each file. The tar must not change.

    Attributes
    ----------
    path : Path
    folders : dict of str to dict of str to TarEntry
        Names of folders do not end with a slash; that of the top folder is empty.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folders: dict[str, dict[str, TarEntry]] = {}

    def add(self, entry: TarEntry) -> None:
        """Add a folder, a file or a hard link."""
        name = _normal(entry.name)
        if entry.kind == "folder":
            self.folders.setdefault(name, {})
            return
        folder, _, base = name.rpartition("/")
        if entry.kind == "link":
            target = _normal(entry.link).rpartition("/")
            known = self.folders.get(target[0], {}).get(target[2])
            if known is None:
                return
            entry = known
        self.folders.setdefault(folder, {})[base] = entry


def open_archive(path: Path) -> Archive:
    """
    Read the headers of a tar.

    Raises
    ------
    ArchiveError
        If the file is truncated, damaged, or not a tar.
    OSError
    """
    archive = Archive(path)
    with path.open("rb") as file:
        for entry in TarHeaders(path, file, os.fstat(file.fileno()).st_size):
            archive.add(entry)
    return archive


def _normal(name: str) -> str:
    """Return a name within the tar: ``..`` does not lead out of its top folder, which is empty."""
    return os.path.normpath("/" + name).lstrip("/")


class TarFolder:
    """
    A folder inside a tar.

    Parameters
    ----------
    archive : Archive
    name : str
        Name of one of its folders.
    """

    def __init__(self, archive: Archive, name: str) -> None:
        self._archive = archive
        self._name = name
        self.path = archive.path / name

    @property
    def parent(self) -> TarFolder:
        """The parent folder."""
        return TarFolder(self._archive, self._name.rpartition("/")[0])

    def folders(self) -> list[TarFolder]:
        """Return the folders in it, by name."""
        inner = sorted(name for name in self._archive.folders if name)
        return [
            TarFolder(self._archive, name)
            for name in inner
            if name.rpartition("/")[0] == self._name
        ]

    def names(self) -> list[str]:
        """Return the names of the files in it, sorted."""
        return sorted(self._archive.folders.get(self._name, {}))

    def _member(self, name: str) -> TarEntry:
        try:
            return self._archive.folders[self._name][name]
        except KeyError:
            raise missing_file(self.path / name) from None

    def size(self, name: str) -> int:
        """Return the size of a file, in bytes."""
        return self._member(name).size

    def source(self, name: str) -> SourceLike:
        """Return the range of a file in the tar; of a sparse file, its reader."""
        member = self._member(name)
        path = str(self.path / name)
        if member.extents is None:
            return FileRange(str(self._archive.path), member.start, member.size, path)
        return SparseMember(str(self._archive.path), member, path)

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a side file; None if it is missing."""
        if name not in self._archive.folders.get(self._name, {}):
            return None
        size = self._member(name).size
        require_side_file_size(size, str(self.path / name))
        source = Source(self.source(name), memory_map=False)
        try:
            return read_bytes(source, 0, size)
        finally:
            source.close()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TarFolder) and other.path == self.path

    def __hash__(self) -> int:
        return hash(self.path)

    def __repr__(self) -> str:
        return f"TarFolder({str(self.path)!r})"


class SparseMember:
    """
    Reader of a sparse file, of which a tar stores only the extents; a `ReadsAt`.

    Parameters
    ----------
    file : str
        The tar.
    member : TarEntry
    path : str
    """

    def __init__(self, file: str, member: TarEntry, path: str) -> None:
        extents = member.extents or ()
        stored = sum(size for _, size in extents)
        self.path, self.size = path, member.size
        self._data = Source(FileRange(file, member.start, stored, path), memory_map=False)
        self._starts = [at for at, _ in extents]
        self._sizes = [size for _, size in extents]
        self._stored_at = [0]
        for size in self._sizes:
            self._stored_at.append(self._stored_at[-1] + size)

    def read_at(self, position: int, size: int) -> bytes:
        """Return bytes from a position on: of one extent, or of one hole."""
        size = min(size, self.size - position)
        row = bisect.bisect_right(self._starts, position) - 1
        if row >= 0 and position < self._starts[row] + self._sizes[row]:
            within = position - self._starts[row]
            size = min(size, self._sizes[row] - within)
            return read_bytes(self._data, self._stored_at[row] + within, size)
        following = self._starts[row + 1] if row + 1 < len(self._starts) else self.size
        return bytes(max(0, min(size, following - position)))

    def skip_hole(self, position: int) -> int:
        """Return the position of the next bytes that the tar stores."""
        row = bisect.bisect_right(self._starts, position) - 1
        if row >= 0 and position < self._starts[row] + self._sizes[row]:
            return position
        return self._starts[row + 1] if row + 1 < len(self._starts) else self.size
