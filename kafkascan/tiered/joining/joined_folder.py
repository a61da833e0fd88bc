"""A folder with the local files of a partition, and the remote ones before them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kafkascan.io.folders import Folder, require_side_file_size
from kafkascan.io.source_protocols import FileRange, ReadsAt
from kafkascan.io.sources import SourceLike, borrowed_source
from kafkascan.tiered.tier_files import TierFile


@dataclass(frozen=True)
class PrefixOfFile:
    """
    The beginning of a remote log whose rest is in the next segment.

    Attributes
    ----------
    whole : TierFile
    path : str
        Its name in messages.
    size : int
        Bytes of the beginning.
    """

    whole: TierFile
    path: str
    size: int

    def source(self) -> SourceLike:
        """Return the input for a `Source` that ends after the beginning."""
        place = self.whole.source()
        if isinstance(place, str):
            return FileRange(place, 0, self.size, place)
        if isinstance(place, ReadsAt):
            return _Beginning(place.path, self.size, place)
        raise TypeError(f"{self.path}: not a stored object, but {type(place).__name__}")

    def read(self) -> bytes:
        """Return the beginning, if it is small."""
        require_side_file_size(self.size, self.path)
        with borrowed_source(self.source()) as source:
            return bytes(source.window(0, self.size))


@dataclass
class _Beginning:
    """A `ReadsAt` of the first bytes of another one."""

    path: str
    size: int
    whole: ReadsAt

    def read_at(self, position: int, size: int) -> bytes:
        """Return bytes of the beginning; see `ReadsAt`."""
        size = min(size, self.size - position)
        return self.whole.read_at(position, size) if size > 0 else b""


class JoinedFolder:
    """
    A `Folder` of the files of a partition, on a broker's disk and in remote storage.

    Parameters
    ----------
    local : Folder
    remote : mapping of str to TierFile
        By the names that a broker gives them; no local file has one of them.
    """

    def __init__(self, local: Folder, remote: Mapping[str, TierFile]) -> None:
        self.path: Path = local.path
        self._local = local
        self._remote = remote

    @property
    def parent(self) -> Folder:
        """The local parent folder, which has the log start offsets."""
        return self._local.parent

    def names(self) -> list[str]:
        """Return the names of the files, sorted."""
        return sorted({*self._local.names(), *self._remote})

    def size(self, name: str) -> int:
        """Return the size of a file now, in bytes."""
        return self._remote[name].size if name in self._remote else self._local.size(name)

    def source(self, name: str) -> SourceLike:
        """Return the input for a `Source` of a file."""
        return self._remote[name].source() if name in self._remote else self._local.source(name)

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a side file; None if it is missing."""
        return self._remote[name].read() if name in self._remote else self._local.read(name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JoinedFolder) and other.path == self.path

    def __hash__(self) -> int:
        return hash(self.path)

    def __repr__(self) -> str:
        return f"JoinedFolder({str(self.path)!r})"
