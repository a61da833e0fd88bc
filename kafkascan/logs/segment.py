"""One segment: a ``.log`` file, or a KRaft snapshot, and its side files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from kafkascan.format.file_names import (
    INDEX_KINDS,
    SegmentName,
    parse_segment_name,
    sibling_name,
)
from kafkascan.io.folders import DiskFolder, Folder, PinnedFolder, SingleFileFolder
from kafkascan.io.sources import READ_AT_ONCE, Source, SourceLike, borrowed_source
from kafkascan.io.stores.store_folders import UrlFolder
from kafkascan.io.stores.urls import ObjectUrl, Place, as_path, path_or_url

_UNNAMED = SegmentName(None, None, "log", None)


# Offsets in a segment and its indexes are relative to its base offset, as int32.
_MOST_OFFSETS = 1 << 31


# A data dir may have 100 000 of them: without a dictionary and a path, the garbage collector has
# less to visit.
@dataclass(unsafe_hash=True, repr=False, slots=True)
class SegmentFile:
    """
    One ``.log`` file (also ``.log.deleted``, ``.cleaned``, ``.swap``) or KRaft snapshot.

    Every function that takes a source takes it. Segments that `open_segment` returns are open
    until they are closed. Those of a `PartitionDir` are not: each function opens and closes the
    file, unless a ``with`` statement keeps it open.

    Threads may share a segment as they may share a `Source`, but not its ``with`` statement, the
    end of which closes the file for all of them.

    Attributes
    ----------
    file_name : str
        The name of the file.
    name : SegmentName
        Its parts. A file that is not named as Kafka names segments is a ``log`` without a base
        offset.
    folder : Folder
        The folder that contains it.
    opened : Source or None
        The source that `open_segment` or a ``with`` statement opened.
    """

    file_name: str
    name: SegmentName
    folder: Folder
    opened: Source | None = field(default=None, compare=False)

    @property
    def path(self) -> Path:
        """The path of the file. Inside a tar, it is not a file of the system; use `open`."""
        return self.folder.path / self.file_name

    @property
    def source(self) -> Source:
        """
        The bytes of an open segment; closed with the segment.

        Raises
        ------
        ValueError
            If the segment is not open.
        """
        if self.opened is None:
            raise ValueError(f"{self.path}: the segment is not open; use `with` or `open()`")
        return self.opened

    @property
    def base_offset(self) -> int | None:
        """Base offset by the file's name; None if the name has none."""
        return self.name.base_offset

    @property
    def size(self) -> int:
        """Size of the file now, in bytes."""
        return self.folder.size(self.file_name)

    def current_size(self) -> int:
        """Return `size`, or 0 if the file cannot be found: brokers delete segments."""
        try:
            return self.size
        except OSError:
            return 0

    @property
    def is_listed(self) -> bool:
        """Whether its folder was listed: a newer listing may explain that the file is gone."""
        return isinstance(self.folder, PinnedFolder)

    def is_in_place(self) -> bool:
        """Return whether its folder still has the file that was listed; True if none was."""
        return not isinstance(self.folder, PinnedFolder) or self.folder.still_has(self.file_name)

    def as_source(self) -> SourceLike:
        """Return the open source, or the input for a new `Source`."""
        return self.folder.source(self.file_name) if self.opened is None else self.opened

    def listed_size(self) -> int:
        """
        Return the size of the file when its folder was listed.

        Raises
        ------
        FileGoneError
            If it was deleted, replaced or cut off since.
        """
        if isinstance(self.folder, PinnedFolder):
            return self.folder.listed_size(self.file_name)
        return self.size

    def listed_status(self) -> tuple[int, int, int] | None:
        """Return what `PinnedFolder.listed_status` does; None if its folder was not pinned."""
        folder = self.folder
        return folder.listed_status(self.file_name) if isinstance(folder, PinnedFolder) else None

    def listed(self) -> SourceLike:
        """Return `as_source`, without what was appended to the file since its folder was listed."""
        if self.opened is None and isinstance(self.folder, PinnedFolder):
            return self.folder.listed_source(self.file_name)
        return self.as_source()

    def open(
        self, *, memory_map: bool = True, read_below: int = 0, max_size: int | None = None
    ) -> Source:
        """Return a new source of its bytes, as `Source` opens it; the caller closes it."""
        place = self.folder.source(self.file_name)
        return Source(place, memory_map=memory_map, read_below=read_below, max_size=max_size)

    def borrow(self) -> borrowed_source:
        """Return a context of its bytes, which closes what it opens."""
        return borrowed_source(self.as_source(), read_below=READ_AT_ONCE)

    def sibling(self, kind: str) -> Path | None:
        """
        Return the path of a side file of this segment, if it exists.

        Parameters
        ----------
        kind : {"index", "timeindex", "txnindex", "snapshot"}
        """
        if kind not in INDEX_KINDS:
            raise ValueError(f"kind must be one of {', '.join(INDEX_KINDS)}, not {kind!r}")
        return self.siblings.get(kind)

    @property
    def siblings(self) -> dict[str, Path]:
        """Existing side files, by kind."""
        names = {kind: sibling_name(self.file_name, kind) for kind in INDEX_KINDS}
        present = set(self.folder.names())
        return {
            kind: self.folder.path / name
            for kind, name in names.items()
            if name is not None and name in present
        }

    def read_sibling(self, kind: str) -> tuple[Path, bytes] | None:
        """
        Return path and bytes of a side file of this segment; None if it is missing.

        Parameters
        ----------
        kind : {"index", "timeindex", "txnindex", "snapshot"}
        """
        name = sibling_name(self.file_name, kind)
        data = None if name is None else self.folder.read(name)
        return None if name is None or data is None else (self.folder.path / name, data)

    def close(self) -> None:
        """Close the source, if the segment is open; see `Source.close`."""
        if self.opened is not None:
            self.opened.close()

    def __enter__(self) -> Self:
        if self.opened is None or self.opened.closed:
            self.opened = self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.opened is not None:
            self.opened.__exit__()

    def __repr__(self) -> str:
        size = "" if self.opened is None else f": {self.opened.size} bytes"
        return f"<SegmentFile {self.path}{size}>"


def segment_file(path: Path, folder: Folder, name: SegmentName | None = None) -> SegmentFile:
    """
    Return a segment that is not open.

    Parameters
    ----------
    path : Path
    folder : Folder
        The folder that contains it.
    name : SegmentName, optional
        By default that of the path; any file name is accepted.
    """
    return SegmentFile(path.name, name or parse_segment_name(path.name) or _UNNAMED, folder)


def open_segment(
    path: str | os.PathLike[str],
    /,
    *,
    memory_map: bool = True,
    storage_options: Mapping[str, object] | None = None,
) -> SegmentFile:
    """
    Open one segment.

    Parameters
    ----------
    path : path or URL
        Of the ``.log`` file or the KRaft snapshot. Any file name is accepted.
    memory_map : bool, default True
        As in `Source`.
    storage_options : mapping, optional
        Options of the store, for a URL; see `ObjectUrl`.

    Returns
    -------
    SegmentFile
        A context manager, and a source for every function that takes one.

    Raises
    ------
    OSError
        If the file cannot be opened.
    """
    place = path_or_url(path, storage_options)
    opened = Source(place, memory_map=memory_map)
    segment = segment_at(place)
    segment.opened = opened
    return segment


def segment_at(path: Place) -> SegmentFile:
    """Return the segment of a path or URL, which is not open, with the folder that contains it."""
    place = path_or_url(path)
    if isinstance(place, Path):
        return segment_file(place, DiskFolder(place.parent))
    name = as_path(place.url.partition("?")[0])
    if os.fspath(name) != place.url:  # the query is a signature of this object alone
        return segment_file(name, SingleFileFolder(place, name))
    return segment_file(name, UrlFolder(ObjectUrl(os.fspath(name.parent), place.storage_options)))


def position_after(position: int, base_offset: int, end_offset: int | None) -> int:
    """
    Return the first offset that is read of the segments after a segment.

    Parameters
    ----------
    position : int
        The end of the segments before it.
    base_offset : int
        Of the segment.
    end_offset : int or None
        See `SegmentEnd`. An offset that is too large for the segment is damage, which must not
        hide the segments that follow.
    """
    if end_offset is None or end_offset - base_offset > _MOST_OFFSETS:
        return position
    return max(position, end_offset)
