"""Segments in remote storage (KIP-405) as logs, without a broker."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import NamedTuple

from kafkascan.format.errors import NoLogsError
from kafkascan.format.file_names import INDEX_KINDS
from kafkascan.io.stores.stored_objects import ObjectInfo
from kafkascan.io.stores.urls import Place, path_or_url
from kafkascan.logs.log_dir import LogDir, PartitionDir
from kafkascan.tiered.aiven_layout import KEY as AIVEN_KEY, read_aiven
from kafkascan.tiered.data_keys import KeyPairs, KeyRing
from kafkascan.tiered.joined_logs import JoinedLogs, join_logs
from kafkascan.tiered.tier_errors import UnknownLayoutError
from kafkascan.tiered.tier_files import PlainFile
from kafkascan.tiered.tier_segments import (
    TierContent,
    TierFolder,
    TierProblem,
    TierSegment,
    Upload,
    broker_files,
    can_be_a_segment,
    group_uploads,
)
from kafkascan.tiered.tier_store import TierStore, store_at

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
    uploads, others = group_uploads(objects, partial(_match, pattern))
    for item in others:
        if _OTHER_FILES.fullmatch(item.key) is None:
            content.add_problem("UNKNOWN_OBJECT", item.key, "not the name of a segment's file")
    for one in uploads:
        if "log" in one.objects:
            content.segments.append(_segment(store, one))
            continue
        for item in one.objects.values():
            reason = f"{item.key} is there, not the log"
            content.add_problem("MISSING_OBJECT", f"{one.name}.log", reason)
    return content


def _match(pattern: re.Pattern[str], key: str) -> re.Match[str] | None:
    """Return the parts of the name of a segment's file; None for any other name."""
    match = pattern.fullmatch(key)
    return match if match is not None and match["suffix"] in ("log", *_KINDS) else None


def _segment(store: TierStore, upload: Upload) -> TierSegment:
    parts, objects = upload.parts, upload.objects
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


_LAYOUTS = {"aiven": AIVEN_KEY, "local": LOCAL_KEY, "pinterest": PINTEREST_KEY}
_NOT_READ = {
    "Confluent's tiered storage": re.compile(
        r"(?:.*/)?0/[^/]{22}/[^/]{22}/[0-9]+/[0-9]{20}_[0-9]+_v[0-9]+\.[a-z-]+", re.DOTALL
    ),
    "Redpanda": re.compile(
        r"(?:.*/)?(?:[^/]+/[0-9]+_[0-9]+/[0-9]+(?:-[0-9]+){1,3}-v1\.log(?:\.[0-9]+)?"
        r"|meta/.*manifest\.(?:json|bin))",
        re.DOTALL,
    ),
    "Aiven's Iceberg mode": re.compile(r"(?:.*/)?metadata/[A-Za-z0-9_-]{22}\.puffin", re.DOTALL),
}


class TopicSize(NamedTuple):
    """What a topic takes in remote storage: uploads of segments, and bytes of their objects."""

    topic: str
    topic_id: str | None
    segments: int
    stored_size: int


@dataclass(frozen=True, repr=False)
class TieredLogs(LogDir):
    """
    The logs in remote storage; result of `open_tiered`.

    Every function that takes a `LogDir` takes it, and every segment is a source.

    Attributes
    ----------
    path : pathlib.Path
    partitions : list of PartitionDir
        By topic and partition. Their files have the names that a broker gives them.
    layout : str
        ``aiven``, ``local`` or ``pinterest``.
    remote_segments : list of TierSegment
        The segments of all partitions, in their order: ids, offsets, times, sizes.
    problems : list of TierProblem
        Objects that are not read, and sizes that contradict each other.
    other_copies : list of TierSegment
        Uploads that are not read, because another one has the same base offset.
    """

    layout: str
    remote_segments: list[TierSegment]
    problems: list[TierProblem]
    other_copies: list[TierSegment]

    def _summary(self) -> str:
        return (
            f"layout {self.layout}, {super()._summary()},"
            f" {len(self.remote_segments):,} segments, {len(self.problems):,} problems"
        )

    def topic_sizes(self) -> list[TopicSize]:
        """Return the topics by the bytes that their segments take in objects, most first."""
        uploads: dict[tuple[str, str | None], list[TierSegment]] = {}
        for one in [*self.remote_segments, *self.other_copies]:
            uploads.setdefault((one.topic, one.topic_id), []).append(one)
        sizes = [
            TopicSize(topic, topic_id, len(own), sum(one.stored_size for one in own))
            for (topic, topic_id), own in uploads.items()
        ]
        return sorted(sizes, key=lambda one: (-one.stored_size, one.topic, one.topic_id or ""))

    def join(self, local: LogDir, /) -> JoinedLogs:
        """
        Return the logs of a broker's disk, with the remote segments before them.

        Each offset is in one segment: a remote one up to the first local segment, and a local one
        from there on. Of several uploads, the earlier one is read up to the start of the next.

        Parameters
        ----------
        local : LogDir
            Result of `open_log_dir`. Its ``leader-epoch-checkpoint`` files decide which uploads
            belong to the logs: those of a former leader may have other records.

        Returns
        -------
        JoinedLogs
            As of now: what a broker uploads or deletes later is not seen.

        Raises
        ------
        ValueError
            If several topics had the name of a partition whose folder has no topic id.
        CorruptCheckpointError, CorruptObjectError, OSError

        Notes
        -----
        If the layout does not have the last offset of a segment, its batch headers are read.
        """
        return join_logs(local, self.remote_segments)


def open_tiered(
    path: Place,
    /,
    *,
    layout: str = "auto",
    keys: KeyPairs | None = None,
    threads: int | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> TieredLogs:
    """
    List the segments in remote storage as partitions (KIP-405).

    Only names, sizes and manifests are read here; the bytes of a segment, when it is.

    Parameters
    ----------
    path : path or URL
        The bucket, the folder or the prefix with the objects.
    layout : {"auto", "aiven", "local", "pinterest"}
        How objects are named: by Aiven's plugin, by Kafka's ``LocalTieredStorage``, by
        Pinterest's uploader (also a copy of a data directory). By default, what the names are
        like.
    keys : mapping of str to path, optional
        For encrypted segments of Aiven's plugin: the PEM file with the private key, by the id of
        the key pair.
    threads : int, optional
        Manifests that are read at the same time; by default 32 of a URL, else one per CPU.
    storage_options : mapping, optional
        Options of the store, for a URL; see `ObjectUrl`.

    Returns
    -------
    TieredLogs

    Raises
    ------
    UnknownLayoutError
        If the objects are those of a system that kafkascan does not read; it is named.
    NoLogsError
        If there are no segments.
    OSError

    Notes
    -----
    Storage plugins upload a segment again after a failure, with another id. Of several uploads
    with the same base offset, the one with the latest leader epoch and time is read; the others
    are `problems`. Which one a broker reads stands only in ``__remote_log_metadata``.
    """
    store = store_at(path_or_url(path, storage_options))
    return read_tier(store, layout=layout, keys=keys, threads=threads)


def read_tier(
    store: TierStore,
    /,
    *,
    layout: str = "auto",
    keys: KeyPairs | None = None,
    threads: int | None = None,
) -> TieredLogs:
    """Return the segments of a store as `open_tiered` does."""
    objects = sorted(store.objects())
    name = _detect(store, objects) if layout == "auto" else _require_layout(layout)
    content = _read(store, objects, name, KeyRing(keys or {}), threads)
    segments, others = _current(content)
    if not segments:
        raise NoLogsError(str(store.path), _nothing_there(content))
    partitions = _partitions(store, segments)
    return TieredLogs(store.path, partitions, name, segments, content.problems, others)


def parts_of_key(layout: str, key: str) -> dict[str, str] | None:
    """
    Return what the key of a segment's object says; None of any other key.

    Parameters
    ----------
    layout : str
        `TieredLogs.layout`.
    key : str

    Returns
    -------
    dict of str to str, or None
        ``topic``, ``partition``, ``base`` (the base offset) and ``suffix``; except of
        ``pinterest``, ``topic_id`` and ``segment_id``.
    """
    match = _LAYOUTS[layout].fullmatch(key)
    if match is None or not can_be_a_segment(match["base"], match["partition"]):
        return None
    return match.groupdict()


def _require_layout(layout: str) -> str:
    if layout not in _LAYOUTS:
        raise ValueError(f"layout must be auto, {', '.join(_LAYOUTS)}, not {layout!r}")
    return layout


def _detect(store: TierStore, objects: Sequence[ObjectInfo]) -> str:
    """Return the layout that most names have."""
    counts = Counter(
        name for one in objects for name, key in _LAYOUTS.items() if key.fullmatch(one.key)
    )
    if counts:
        return counts.most_common(1)[0][0]
    for system, pattern in _NOT_READ.items():
        example = next((one.key for one in objects if pattern.fullmatch(one.key)), None)
        if example is not None:
            reason = f"{example} is named as by {system}, whose objects kafkascan does not read"
            raise UnknownLayoutError(str(store.path), reason)
    reason = f"none of the {len(objects)} objects is named as a segment in remote storage"
    raise NoLogsError(str(store.path), reason)


def _read(
    store: TierStore, objects: Sequence[ObjectInfo], name: str, keys: KeyRing, threads: int | None
) -> TierContent:
    if name == "aiven":
        at_once = store.reads_at_once if threads is None else threads
        return read_aiven(store, objects, keys, at_once)
    return read_plain(store, objects, _LAYOUTS[name])


def _current(content: TierContent) -> tuple[list[TierSegment], list[TierSegment]]:
    """Return the segments to read, by partition and base offset, and others, with problems."""
    ordered = sorted(content.segments, key=lambda one: (*_place(one), *_preference(one)))
    current, rest = [], []
    for _, copies in groupby(ordered, key=_place):
        *others, best = copies
        current.append(best)
        rest += others
        for other in others:
            reason = f"offset {other.base_offset} is read from upload {best.segment_id}"
            key = f"{other.topic}-{other.partition}: {other.segment_id}"
            content.add_problem("OTHER_COPY", key, reason)
    return current, rest


def _place(segment: TierSegment) -> tuple[str, str, int, int]:
    return segment.topic, segment.topic_id or "", segment.partition, segment.base_offset


def _preference(segment: TierSegment) -> tuple[int, int, int, str]:
    """Return what is larger for the upload that a broker more probably reads."""
    epoch = max((epoch for epoch, _ in segment.leader_epochs), default=-1)
    time = -1 if segment.event_timestamp is None else segment.event_timestamp
    return epoch, time, segment.size, segment.segment_id or ""


def _partitions(store: TierStore, segments: Sequence[TierSegment]) -> list[PartitionDir]:
    found = []
    for (topic, topic_id, partition), group in groupby(segments, key=lambda one: _place(one)[:3]):
        name = f"{topic}-{partition}" + (f"-{topic_id}" if topic_id else "")
        folder = TierFolder(store.path / name, broker_files(list(group)))
        found.append(PartitionDir(folder.path, topic, partition, None, folder))
    return found


def _nothing_there(content: TierContent) -> str:
    if not content.problems:
        return "no segments here"
    first, others = content.problems[0], len(content.problems) - 1
    return f"no segment can be read: {first}" + (f", and {others} others" if others else "")
