"""Logs whose older segments are in remote storage, and whose newer ones are on a broker's disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kafkascan.batches.columns import next_offset
from kafkascan.batches.scan import scan_batches
from kafkascan.broker_state.checkpoints import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA
from kafkascan.logs.log_dir import LogDir, PartitionDir
from kafkascan.tiered.joining.joined_folder import JoinedFolder, PrefixOfFile
from kafkascan.tiered.joining.lineage import contradiction
from kafkascan.tiered.tier_files import TierFile
from kafkascan.tiered.tier_folder import broker_files
from kafkascan.tiered.tier_segments import TierProblem, TierSegment

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
    for end, following in _gaps(parts, start):
        reason = f"no segment contains the offsets {end} to {following - 1}"
        problems.append(TierProblem("MISSING_RANGE", str(partition.path), reason))
    files: dict[str, TierFile] = {}
    for part in parts:
        files |= part.files()
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
        end = _end_of(segment)
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


def _gaps(parts: Sequence[_Part], start: int) -> Iterator[tuple[int, int]]:
    following = [part.segment.base_offset for part in parts[1:]] + [start]
    for part, base in zip(parts, following, strict=False):
        if part.end < base:
            yield part.end, base


def _end_of(segment: TierSegment) -> int:
    """Return the offset after the last one, as the manifest says it, or else the batches."""
    if segment.end_offset is not None:
        return segment.end_offset + 1
    batches = scan_batches(segment.log.source(), on_corrupt="stop").batches
    return int(next_offset(batches[-1:])[0]) if len(batches) else segment.base_offset


def _position_of(segment: TierSegment, offset: int) -> int:
    """Return the position of the first batch from an offset on."""
    scan = scan_batches(segment.log.source())
    later = scan.batches[scan.batches["base_offset"] >= offset]
    return int(later["position"][0]) if len(later) else segment.log.size
