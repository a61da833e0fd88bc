"""Layouts whose objects are a broker's files, byte for byte."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kafkascan.format.file_names import INDEX_KINDS
from kafkascan.io.stores.stored_objects import ObjectInfo
from kafkascan.tiered.tier_files import PlainFile
from kafkascan.tiered.tier_segments import TierContent, TierSegment, can_be_a_segment
from kafkascan.tiered.tier_store import TierStore

_ID = "[A-Za-z0-9_-]{22}"
LOCAL_KEY = re.compile(
    rf"(?:.*/)?(?P<topic>[^/]+)-(?P<partition>[0-9]{{1,10}})-(?P<topic_id>{_ID})/"
    rf"(?P<base>[0-9]{{20,}})-(?P<segment_id>{_ID})\.(?P<suffix>[a-z_]+)",
    re.DOTALL,
)
"""Kafka's ``LocalTieredStorage``: ``<topic>-<partition>-<topic id>/<base offset>-<id>.log``
(``RemoteLogSegmentFileset``)."""

PINTEREST_KEY = re.compile(
    r"(?:.*/)?(?P<topic>[^/]+)-(?P<partition>[0-9]{1,10})/"
    r"(?P<base>[0-9]{20,})\.(?P<suffix>log|index|timeindex|txnindex)",
    re.DOTALL,
)
"""Pinterest's uploader, and any copy of a data directory:
``<topic>-<partition>/<base offset>.log``."""

_KINDS = {kind: kind for kind in INDEX_KINDS} | {
    "leader_epoch_checkpoint": "leader-epoch-checkpoint"
}
# Files beside the segments that say nothing about them.
_OTHER_FILES = re.compile(
    r"(?:.*/)?(?:offset\.wm|_metadata|partition\.metadata|leader-epoch-checkpoint"
    r"|[0-9]{20}\.snapshot)",
    re.DOTALL,
)


def read_plain(
    store: TierStore, objects: Iterable[ObjectInfo], pattern: re.Pattern[str]
) -> TierContent:
    """
    Return the segments of a store whose objects are a broker's files.

    Parameters
    ----------
    store : TierStore
    objects : iterable of ObjectInfo
        The listing.
    pattern : re.Pattern
        `LOCAL_KEY` or `PINTEREST_KEY`.
    """
    content = TierContent()
    uploads: dict[str, dict[str, ObjectInfo]] = {}
    parts: dict[str, dict[str, str]] = {}
    for item in objects:
        match = _match(pattern, item.key)
        if match is None:
            if _OTHER_FILES.fullmatch(item.key) is None:
                content.add_problem("UNKNOWN_OBJECT", item.key, "not the name of a segment's file")
            continue
        name = item.key.removesuffix(f".{match['suffix']}")
        uploads.setdefault(name, {})[match["suffix"]] = item
        parts[name] = match.groupdict()
    for name in sorted(uploads):
        if "log" in uploads[name]:
            content.segments.append(_segment(store, parts[name], uploads[name]))
            continue
        for item in uploads[name].values():
            content.add_problem(
                "MISSING_OBJECT", f"{name}.log", f"{item.key} is there, not the log"
            )
    return content


def _match(pattern: re.Pattern[str], key: str) -> re.Match[str] | None:
    """Return the parts of the name of a segment's file; None for any other name."""
    match = pattern.fullmatch(key)
    if match is None or match["suffix"] not in ("log", *_KINDS):
        return None
    return match if can_be_a_segment(match["base"], match["partition"]) else None


def _segment(
    store: TierStore, parts: dict[str, str], objects: dict[str, ObjectInfo]
) -> TierSegment:
    return TierSegment(
        topic=parts["topic"],
        topic_id=parts.get("topic_id"),
        partition=int(parts["partition"]),
        base_offset=int(parts["base"]),
        segment_id=parts.get("segment_id"),
        log=PlainFile(store, objects["log"]),
        side_files={
            _KINDS[suffix]: PlainFile(store, item)
            for suffix, item in objects.items()
            if suffix != "log"
        },
        stored_size=sum(one.size for one in objects.values()),
    )
