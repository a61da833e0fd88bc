"""Parse and build the names of segment files and their side files; names of Kafka's own topics."""

from __future__ import annotations

import re
from typing import NamedTuple

# Kafka writes 20 digits (LogFileUtils.filenamePrefixFromOffset); fewer are accepted.
_NAME = re.compile(
    r"""(?:(?P<base>\d+)(?:-(?P<epoch>\d+))?|bootstrap)
        \.(?P<kind>log|checkpoint)
        (?P<state>\.deleted|\.cleaned|\.swap|\.part)?""",
    re.VERBOSE,
)

_LIVE_SUFFIX = ".log"

DELETED_SUFFIX, SWAP_SUFFIX = ".deleted", ".swap"
"""What a broker adds to the name of a file before it deletes it, and while it replaces others."""

# Files of a broker's data directory, by their names.
_OF_BROKERS = re.compile(
    r"""(?:\d+(?:-\d+)?|bootstrap)\.(?:log|checkpoint|index|timeindex|txnindex|snapshot)(?:\..*)?
        |.*-checkpoint|partition\.metadata|meta\.properties|quorum-state
        |\.lock|\.kafka_cleanshutdown""",
    re.VERBOSE | re.DOTALL,
)

REWRITE_SUFFIX = ".rewriting"
REWRITE_MARK = re.compile(rf"\..*{re.escape(REWRITE_SUFFIX)}")
"""Matches the names of empty files beside logs that are being rewritten in place."""

INTERRUPTED_REWRITE = (
    "a rewrite in place (convert, restamp, scrub) did not end: some segments are new and others"
    " old, such as those with records to erase, and side files may be missing"
)

METADATA_TOPIC = "__cluster_metadata"
GROUPS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_TOPIC = "__share_group_state"
REMOTE_TOPIC = "__remote_log_metadata"
LATER_TOPICS = {"__mirror_state": "the topic is one of cluster mirroring (KIP-1279)"}
"""Kafka's own topics of later versions, whose records are not known, and what they belong to."""

_DIGITS_OF_BROKERS = 20
OFFSETS = 1 << 63
"""Offsets are below this; names may contain larger numbers, which Kafka does not parse."""

BROKERS_TOPICS = frozenset({METADATA_TOPIC, GROUPS_TOPIC, TRANSACTIONS_TOPIC, SHARE_TOPIC})
"""Topics to which only brokers append: those of ``Topic.isInternal``, and the metadata."""

INDEX_KINDS = ("index", "timeindex", "txnindex", "snapshot")


class SegmentName(NamedTuple):
    """
    The parts of the name of a segment file.

    Attributes
    ----------
    base_offset : int or None
        Smallest offset that the segment may contain; for a KRaft snapshot, the offset after
        its last one. None for ``bootstrap.checkpoint``.
    epoch : int or None
        Leader epoch of a KRaft snapshot.
    kind : str
        ``log`` or ``checkpoint`` (a KRaft snapshot, which consists of batches, too).
    state : str or None
        ``deleted``, ``cleaned``, ``swap`` or ``part`` for a file that is being removed or added.
    """

    base_offset: int | None
    epoch: int | None
    kind: str
    state: str | None

    @property
    def is_live(self) -> bool:
        """Whether a broker reads the file as part of the log."""
        return self.state is None and self.kind == "log"


def parse_segment_name(name: str) -> SegmentName | None:
    """Return the parts of a file name, or None if it is not the name of a segment."""
    live = live_base_offset(name)
    if live is not None:
        return SegmentName(live, None, "log", None)
    # Most files of a log are not segments: a quick check avoids the regular expression.
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


def live_base_offset(name: str) -> int | None:
    """Return the base offset in the name of a live log segment; None for any other name."""
    stem = name.removesuffix(_LIVE_SUFFIX)
    return int(stem) if stem is not name and stem.isdecimal() else None


def offset_in_full_name(name: str) -> int | None:
    """
    Return the base offset in the name of a log segment as brokers write it; None for other names.

    It has 20 digits. Other names of digits stand for segments in folders of logs only.
    """
    found = parse_segment_name(name)
    if found is None or found.kind != "log" or name.find(".") != _DIGITS_OF_BROKERS:
        return None
    return found.base_offset


def leading_offset(name: str) -> int | None:
    """Return the offset with which the name of a file begins; None if there is none, as in Java."""
    digits = name.partition(".")[0]
    return int(digits) if digits.isdecimal() and int(digits) < OFFSETS else None


def is_name_of_brokers(name: str) -> bool:
    """Return whether a broker gives such a name to a file in a data directory."""
    return _OF_BROKERS.fullmatch(name) is not None


def sibling_name(name: str, kind: str) -> str | None:
    """
    Return the name of a side file of a segment.

    Parameters
    ----------
    name : str
        Name of the segment file.
    kind : str
        One of `INDEX_KINDS`.

    Returns
    -------
    str or None
        None if the name is not the name of a log segment.
    """
    parsed = parse_segment_name(name)
    if parsed is None or parsed.kind != "log":
        return None
    prefix, _, suffix = name.partition(".log")
    return f"{prefix}.{kind}{suffix}"
