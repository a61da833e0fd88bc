"""Logs whose older segments are in remote storage, and whose newer ones are on a broker's disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

from kafkascan.batches.scan import scan_batches
from kafkascan.broker_state.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    LeaderEpoch,
    parse_leader_epochs,
)
from kafkascan.io.folders import Folder
from kafkascan.io.source_protocols import FileRange, ReadsAt
from kafkascan.io.sources import SourceLike
from kafkascan.logs.log_dir import LogDir, PartitionDir
from kafkascan.tiered.tier_files import TierFile, read_small
from kafkascan.tiered.tier_segments import TierProblem, TierSegment, broker_files, end_of

_Epochs: TypeAlias = list[tuple[int, int]]


def contradiction(segment: TierSegment, end: int, lineage: Sequence[LeaderEpoch]) -> str | None:
    """
    Return why a segment is not of a log; None if its epochs are those of the log.

    Parameters
    ----------
    segment : TierSegment
    end : int
        The offset after its last one.
    lineage : sequence of LeaderEpoch
        All epochs of the log, from its start on.

    Raises
    ------
    CorruptCheckpointError
        If the epochs of the segment cannot be read.
    """
    log, own = _with_records(lineage), _with_records(_epochs_of(segment))
    if not log or not own:
        return None
    first, last = log[0][0], log[-1][0]
    if not first <= own[-1][0] <= last:
        return f"its last leader epoch is {own[-1][0]}, the log has {first} to {last}"
    # Brokers drop epochs before the log's start.
    return _first_difference([one for one in own if one[0] >= first], end, log)


def _first_difference(own: _Epochs, end: int, log: _Epochs) -> str | None:
    """Compare the epochs of a segment with those of its log; None if they agree."""
    starts = dict(log)
    after = {one: following for (one, _), following in pairwise(log)}
    epoch, start = own[0]
    if epoch in starts and epoch != log[0][0] and start < starts[epoch]:
        return f"its leader epoch {epoch} begins at offset {start}, the log's at {starts[epoch]}"
    for (epoch, _), following in zip(own, [*own[1:], None], strict=True):
        if epoch not in starts:
            return f"the log has no leader epoch {epoch}"
        if epoch not in after:  # the last epoch of the log, and so of the segment
            return None
        expected = after[epoch]
        in_log = f"in the log epoch {expected[0]} begins at offset {expected[1]}"
        if following is None and end > expected[1]:
            return f"it has offsets up to {end - 1} of epoch {epoch}, {in_log}"
        if following is not None and following != expected:
            return f"epoch {following[0]} begins at offset {following[1]}, {in_log}"
    return None


def _with_records(epochs: Iterable[tuple[int, int]]) -> _Epochs:
    """Return the epochs in order, without those in which no record was written."""
    latest = {start: epoch for epoch, start in sorted(epochs)}
    return sorted((epoch, start) for start, epoch in latest.items())


def _epochs_of(segment: TierSegment) -> Sequence[tuple[int, int]]:
    if segment.leader_epochs:
        return segment.leader_epochs
    file = segment.side_files.get(LEADER_EPOCH_CHECKPOINT)
    if file is None:
        return ()
    path = f"{segment.topic}-{segment.partition}/{LEADER_EPOCH_CHECKPOINT} of {segment.segment_id}"
    return parse_leader_epochs(file.read(), path)


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
        return read_small(self, self.path)


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


_INDEX_KINDS = ("index", "timeindex", "snapshot")


@dataclass(frozen=True, repr=False)
class JoinedLogs(LogDir):
    """
    Local logs with the remote segments before them.

    Attributes
    ----------
    path : pathlib.Path
    partitions : list of PartitionDir
        The local partitions. Each has the remote segments before its first local one.
    problems : list of TierProblem
        ``OTHER_LINEAGE``: a remote segment that is not read, because its leader epochs contradict
        those of the local log. ``MISSING_RANGE``: offsets that no segment contains.
    """

    problems: list[TierProblem]

    def _summary(self) -> str:
        return f"{super()._summary()}, {len(self.problems):,} problems"


def join_logs(local: LogDir, segments: Sequence[TierSegment]) -> JoinedLogs:
    """
    Return local logs with the remote segments before them; see `TieredLogs.join`.

    Parameters
    ----------
    local : LogDir
    segments : sequence of TierSegment
        By partition and base offset.
    """
    problems: list[TierProblem] = []
    partitions = [_joined(one, segments, problems) for one in local.partitions]
    return JoinedLogs(local.path, partitions, problems)


def _joined(
    partition: PartitionDir, segments: Sequence[TierSegment], problems: list[TierProblem]
) -> PartitionDir:
    logs = partition.log_segments
    if not logs or not partition.is_log:
        return partition
    start = logs[0].base_offset or 0
    before = [one for one in _of(partition, segments) if one.base_offset < start]
    if not before:
        return partition
    parts = list(_placed(_of_lineage(partition, before, problems), start))
    files: dict[str, TierFile] = {}
    for part in parts:
        files |= part.files()
        if part.end < part.stop:
            reason = f"no segment contains the offsets {part.end} to {part.stop - 1}"
            problems.append(TierProblem("MISSING_RANGE", str(partition.path), reason))
    local_names = set(partition.folder.names())  # such as the snapshot as of the first segment
    remote = {name: one for name, one in files.items() if name not in local_names}
    return replace(partition, folder=JoinedFolder(partition.folder, remote))


def _of(partition: PartitionDir, segments: Sequence[TierSegment]) -> list[TierSegment]:
    """
    Return the remote segments of a partition.

    Raises
    ------
    ValueError
        If several topics had its name, and the local folder does not say which one it is of.
    """
    place, topic_id = (partition.topic, partition.partition), partition.topic_id
    named = [one for one in segments if (one.topic, one.partition) == place]
    found = [one for one in named if None in (topic_id, one.topic_id) or one.topic_id == topic_id]
    ids = sorted({one.topic_id or "" for one in found})
    if len(ids) > 1:
        reason = f"remote storage has several topics of this name: {', '.join(ids)}"
        raise ValueError(f"{partition.path}: {reason}")
    return found


@dataclass(frozen=True)
class _Part:
    """
    The offsets of a remote segment that are read from it.

    Attributes
    ----------
    segment : TierSegment
    end : int
        The offset after its last one.
    stop : int
        The offset after the last one that is read.
    """

    segment: TierSegment
    end: int
    stop: int

    def files(self) -> dict[str, TierFile]:
        """Return its files, by the names that a broker gives them."""
        left_out = (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA)  # those of the local log count
        whole = replace(self.segment, end_offset=self.end - 1)
        files = {name: one for name, one in broker_files([whole]).items() if name not in left_out}
        if self.end <= self.stop:
            return files
        # The indexes are of the whole segment.
        kept = {name: one for name, one in files.items() if not name.endswith(_INDEX_KINDS)}
        log = f"{self.segment.base_offset:020}.log"
        kept[log] = PrefixOfFile(files[log], log, _position_of(self.segment, self.stop))
        return kept


def _of_lineage(
    partition: PartitionDir, segments: Sequence[TierSegment], problems: list[TierProblem]
) -> Iterator[tuple[TierSegment, int]]:
    """Yield the segments whose epochs are those of the local log, with their ends."""
    lineage = partition.leader_epochs or []
    for segment in segments:
        end = end_of(segment)
        reason = contradiction(segment, end, lineage)
        if reason is None:
            yield segment, end
        else:
            key = f"{segment.topic}-{segment.partition}: {segment.segment_id}"
            problems.append(TierProblem("OTHER_LINEAGE", key, reason))


def _placed(segments: Iterator[tuple[TierSegment, int]], start: int) -> Iterator[_Part]:
    """Yield the segments that have offsets of their own, each up to the next one."""
    reached, kept = -1, list[tuple[TierSegment, int]]()
    for segment, end in segments:
        if end > max(reached, segment.base_offset):  # not within the one before it
            kept.append((segment, end))
            reached = end
    following = [segment.base_offset for segment, _ in kept[1:]] + [start]
    for (segment, end), stop in zip(kept, following, strict=True):
        yield _Part(segment, end, stop)


def _position_of(segment: TierSegment, offset: int) -> int:
    """Return the position of the first batch from an offset on."""
    scan = scan_batches(segment.log.source())
    later = scan.batches[scan.batches["base_offset"] >= offset]
    return int(later["position"][0]) if len(later) else segment.log.size
