"""One segment: a ``.log`` file and its siblings by name."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Self

from kafkascan.names import INDEX_KINDS, parse_segment_name, sibling_name
from kafkascan.sources import Source


class Segment:
    """
    One ``.log`` file (also ``.log.deleted``, ``.cleaned``, ``.swap``) or KRaft snapshot.

    Parameters
    ----------
    path : path
        Any file name is accepted; what it says is in `name`.
    memory_map : bool, default True
        As in `Source`.

    Attributes
    ----------
    path : pathlib.Path
    name : SegmentName or None
        None if the file is not named as Kafka names segments.
    """

    def __init__(self, path: str | os.PathLike[str], /, *, memory_map: bool = True) -> None:
        self.path = Path(path)
        self.name = parse_segment_name(self.path.name)
        self._source = Source(self.path, memory_map=memory_map)

    @property
    def source(self) -> Source:
        """The bytes of the log; closed with the segment."""
        return self._source

    @property
    def base_offset(self) -> int | None:
        """Base offset by the file's name; None if the name does not say one."""
        return None if self.name is None else self.name.base_offset

    def sibling(self, kind: str) -> Path | None:
        """
        Return the path of the file that accompanies this log, if it exists.

        Parameters
        ----------
        kind : {"index", "timeindex", "txnindex", "snapshot"}
        """
        if kind not in INDEX_KINDS:
            raise ValueError(f"kind must be one of {', '.join(INDEX_KINDS)}, not {kind!r}")
        name = sibling_name(self.path.name, kind)
        if name is None:
            return None
        path = self.path.with_name(name)
        return path if path.exists() else None

    @property
    def siblings(self) -> dict[str, Path]:
        """The accompanying files that exist, by kind."""
        found = {kind: self.sibling(kind) for kind in INDEX_KINDS}
        return {kind: path for kind, path in found.items() if path is not None}

    def close(self) -> None:
        """Close the source; see `Source.close`."""
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Segment {self.path}: {self._source.size} bytes>"


def open_segment(path: str | os.PathLike[str], /, *, memory_map: bool = True) -> Segment:
    """
    Open one segment.

    Parameters
    ----------
    path : path
        Of the ``.log`` file or the KRaft snapshot.
    memory_map : bool, default True
        As in `Source`.

    Returns
    -------
    Segment
        A context manager, and a source for every function that takes one.

    Raises
    ------
    OSError
        If the file cannot be opened.
    """
    return Segment(path, memory_map=memory_map)
