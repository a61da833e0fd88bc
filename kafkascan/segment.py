"""One segment: a ``.log`` file and its siblings by name."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from kafkascan.sources import Source

# Kafka writes 20 digits (LogFileUtils.filenamePrefixFromOffset); fewer are read, too.
_NAME = re.compile(
    r"""(?:(?P<base>\d+)(?:-(?P<epoch>\d+))?|bootstrap)
        \.(?P<kind>log|checkpoint)
        (?P<state>\.deleted|\.cleaned|\.swap|\.part)?""",
    re.VERBOSE,
)

INDEX_KINDS = ("index", "timeindex", "txnindex", "snapshot")


@dataclass(frozen=True)
class SegmentName:
    """
    What the name of a segment file says.

    Attributes
    ----------
    base_offset : int or None
        First offset that the segment may hold; of a KRaft snapshot, the offset that it
        ends before. None for ``bootstrap.checkpoint``.
    epoch : int or None
        Leader epoch of a KRaft snapshot.
    kind : str
        ``log`` or ``checkpoint`` (a KRaft snapshot, which holds batches as well).
    state : str or None
        ``deleted``, ``cleaned`` or ``swap`` for a segment that is on its way out or in.
    """

    base_offset: int | None
    epoch: int | None
    kind: str
    state: str | None

    @property
    def is_live(self) -> bool:
        """Whether a broker would read it as part of the log."""
        return self.state is None and self.kind == "log"


def parse_segment_name(name: str) -> SegmentName | None:
    """Return what a file name says, or None if it is not that of a segment."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    base, epoch, kind, state = match["base"], match["epoch"], match["kind"], match["state"]
    is_snapshot = kind == "checkpoint"
    if (epoch is not None) != (is_snapshot and base is not None) or (
        base is None and not is_snapshot
    ):
        return None
    return SegmentName(
        base_offset=None if base is None else int(base),
        epoch=None if epoch is None else int(epoch),
        kind=kind,
        state=None if state is None else state[1:],
    )


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
        if self.name is None or self.name.kind != "log":
            return None
        prefix, _, suffix = self.path.name.partition(".log")
        path = self.path.with_name(f"{prefix}.{kind}{suffix}")
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
