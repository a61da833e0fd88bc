"""What a listing of remote storage says: segments, and objects that are none."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from kafkascan.batches.columns import offset_after
from kafkascan.batches.scan import scan_batches
from kafkascan.broker_state.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    PartitionMetadata,
    partition_metadata_file,
)
from kafkascan.format.file_names import sibling_name
from kafkascan.io.folders import missing_file
from kafkascan.io.sources import SourceLike
from kafkascan.io.stores.prefetching_reader import PrefetchingReader
from kafkascan.io.stores.stored_objects import ObjectInfo
from kafkascan.io.stores.urls import LARGEST_HINTS
from kafkascan.tiered.tier_files import SyntheticFile, TierFile


def can_be_a_segment(base_offset: str, partition: str) -> bool:
    """Return whether the numbers in a name are an offset and a partition that Kafka can have."""
    return int(base_offset) < 1 << 63 and int(partition) < 1 << 31


@dataclass(frozen=True, eq=False)
class TierSegment:
    """
    A segment in remote storage.

    Attributes
    ----------
    topic : str
    topic_id : str or None
        As ``Uuid.toString`` prints it; None if the layout does not have it.
    partition : int
    base_offset : int
    segment_id : str or None
        Each upload has another one.
    end_offset : int or None
        The last offset, if the layout says it.
    max_timestamp : int or None
        In milliseconds.
    event_timestamp : int or None
        When the upload began, in milliseconds.
    leader_epochs : tuple of (int, int)
        Epochs, and the first offset of each; empty if the layout does not say them.
    stored_size : int
        Bytes of the objects.
    is_compressed, is_encrypted : bool
    log : TierFile
    side_files : dict of str to TierFile
        By kind: ``index``, ``timeindex``, ``txnindex``, ``snapshot`` (as of the end of the
        segment), ``leader-epoch-checkpoint``.
    """

    topic: str
    topic_id: str | None
    partition: int
    base_offset: int
    segment_id: str | None
    log: TierFile = field(repr=False)
    side_files: dict[str, TierFile] = field(repr=False)
    stored_size: int
    end_offset: int | None = None
    max_timestamp: int | None = None
    event_timestamp: int | None = None
    leader_epochs: tuple[tuple[int, int], ...] = ()
    is_compressed: bool = False
    is_encrypted: bool = False

    @property
    def size(self) -> int:
        """Size of the log, in bytes, as a broker has it on disk."""
        return self.log.size


def end_of(segment: TierSegment) -> int:
    """Return the offset after the last one, as the manifest says it, or else the batches."""
    if segment.end_offset is not None:
        return segment.end_offset + 1
    batches = scan_batches(segment.log.source(), on_corrupt="stop").batches
    return offset_after(batches) if len(batches) else segment.base_offset


@dataclass(frozen=True)
class TierProblem:
    """
    Something in remote storage that is not read as a segment, or contradicts the rest.

    Attributes
    ----------
    symbol : str
        ``NOT_UPLOADED`` (a log without a manifest), ``MISSING_OBJECT`` (a manifest without its
        log or indexes), ``BAD_MANIFEST``, ``MISSING_KEY``, ``SIZE_MISMATCH``, ``OTHER_COPY``
        (another upload of the same offsets is read instead), ``UNKNOWN_OBJECT``,
        ``MANIFEST_MISMATCH`` (the offsets of a manifest).
    key : str
        The object.
    reason : str
    """

    symbol: str
    key: str
    reason: str

    def __str__(self) -> str:
        return f"{self.key}: {self.reason} [{self.symbol}]"


@dataclass
class TierContent:
    """
    The segments and problems of a listing.

    Attributes
    ----------
    segments : list of TierSegment
    problems : list of TierProblem
    """

    segments: list[TierSegment] = field(default_factory=list)
    problems: list[TierProblem] = field(default_factory=list)

    def add_problem(self, symbol: str, key: str, reason: str) -> None:
        """Note a problem of an object."""
        self.problems.append(TierProblem(symbol, key, reason))


@dataclass(frozen=True)
class Upload:
    """
    The objects of one upload.

    Attributes
    ----------
    name : str
        What their keys have in common.
    parts : mapping of str to str
        What the keys say.
    objects : mapping of str to ObjectInfo
        By suffix.
    """

    name: str
    parts: Mapping[str, str]
    objects: Mapping[str, ObjectInfo]


def group_uploads(
    objects: Iterable[ObjectInfo], match: Callable[[str], re.Match[str] | None]
) -> tuple[list[Upload], list[ObjectInfo]]:
    """
    Return the uploads by their names, and the objects that are of none.

    Parameters
    ----------
    objects : iterable of ObjectInfo
    match : callable
        Returns the parts of a key; None if it is not that of a segment's object.
    """
    found: dict[str, dict[str, ObjectInfo]] = {}
    parts: dict[str, Mapping[str, str]] = {}
    others = []
    for item in objects:
        key = match(item.key)
        if key is None or not can_be_a_segment(key["base"], key["partition"]):
            others.append(item)
            continue
        name = item.key.removesuffix(f".{key['suffix']}")
        found.setdefault(name, {})[key["suffix"]] = item
        parts[name] = key.groupdict()
    return [Upload(name, parts[name], found[name]) for name in sorted(found)], others


class TierFolder:
    """
    A `Folder` of files in remote storage, with the names that a broker gives them.

    Parameters
    ----------
    path : Path
        Its name in messages.
    files : dict of str to TierFile
    """

    def __init__(self, path: Path, files: dict[str, TierFile]) -> None:
        self.path = path
        self._files = files

    @property
    def parent(self) -> TierFolder:
        """The parent folder, in which no checkpoints are."""
        return TierFolder(self.path.parent, {})

    def names(self) -> list[str]:
        """Return the names of the files, sorted."""
        return sorted(self._files)

    def _file(self, name: str) -> TierFile:
        try:
            return self._files[name]
        except KeyError:
            raise missing_file(self.path / name) from None

    def size(self, name: str) -> int:
        """Return the size of a file, in bytes."""
        return self._file(name).size

    def source(self, name: str) -> SourceLike:
        """Return the input for a `Source` of a file."""
        source = self._file(name).source()
        if isinstance(source, PrefetchingReader):
            return source.with_index(partial(self._hints_for, name))
        return source

    def _hints_for(self, name: str) -> bytes | None:
        index = self._files.get(sibling_name(name, "index") or "")
        if index is None or not 0 < index.size <= LARGEST_HINTS:
            return None
        try:
            return index.read()
        except OSError:
            return None

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a side file; None if it is missing."""
        return self._files[name].read() if name in self._files else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TierFolder) and other.path == self.path

    def __hash__(self) -> int:
        return hash(self.path)

    def __repr__(self) -> str:
        return f"TierFolder({str(self.path)!r})"


def broker_files(segments: Sequence[TierSegment]) -> dict[str, TierFile]:
    """
    Return the files of a partition, by the names that a broker gives them.

    Parameters
    ----------
    segments : sequence of TierSegment
        Of one partition, by base offset, each once.
    """
    files: dict[str, TierFile] = {}
    for number, segment in enumerate(segments):
        files[f"{segment.base_offset:020}.log"] = segment.log
        for kind in ("index", "timeindex", "txnindex"):
            if kind in segment.side_files:
                files[f"{segment.base_offset:020}.{kind}"] = segment.side_files[kind]
        end = _next_offset(segment, segments[number + 1 : number + 2])
        if end is not None and "snapshot" in segment.side_files:
            files[f"{end:020}.snapshot"] = segment.side_files["snapshot"]
    newest = segments[-1]
    if LEADER_EPOCH_CHECKPOINT in newest.side_files:
        files[LEADER_EPOCH_CHECKPOINT] = newest.side_files[LEADER_EPOCH_CHECKPOINT]
    if newest.topic_id is not None:
        with contextlib.suppress(ValueError):  # names of objects may have an id that is none
            content = partition_metadata_file(PartitionMetadata(0, newest.topic_id))
            files[PARTITION_METADATA] = SyntheticFile(content)
    return files


def _next_offset(segment: TierSegment, following: Sequence[TierSegment]) -> int | None:
    """Return the offset that names the snapshot as of the end of a segment."""
    if segment.end_offset is not None:
        return segment.end_offset + 1
    return following[0].base_offset if following else None
