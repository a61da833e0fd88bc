"""What the names of segment files say, and how a segment's files are named alike."""

from __future__ import annotations

import re
from dataclasses import dataclass

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
    # Most files of a log are beside its segments.
    match = _NAME.fullmatch(name) if ".log" in name or ".checkpoint" in name else None
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


def sibling_name(name: str, kind: str) -> str | None:
    """
    Return the name of the file that accompanies a log.

    Parameters
    ----------
    name : str
        Of the log.
    kind : str
        One of `INDEX_KINDS`.

    Returns
    -------
    str or None
        None if the name is not that of a log.
    """
    parsed = parse_segment_name(name)
    if parsed is None or parsed.kind != "log":
        return None
    prefix, _, suffix = name.partition(".log")
    return f"{prefix}.{kind}{suffix}"


def printable(text: str) -> str:
    """Return a text in which control characters are escaped: names may hold anything."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
