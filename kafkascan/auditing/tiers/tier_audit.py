"""The audit of a tier: of its objects, its manifests, and the lineage of its partitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise

import numpy as np
from numpy.typing import NDArray

from kafkascan.auditing.cluster_checks import ClusterChecks
from kafkascan.auditing.finding_kinds import FoundInLog, LogFinding
from kafkascan.auditing.tiers.cluster_records import check_cluster_records
from kafkascan.auditing.tiers.segment_facts import SegmentFacts, add_batches
from kafkascan.batches.columns import BatchTable
from kafkascan.broker_state.checkpoints import LEADER_EPOCH_CHECKPOINT, parse_leader_epochs
from kafkascan.format.errors import KafkaScanError
from kafkascan.logs.log_dir import LogDir, PartitionDir
from kafkascan.logs.log_table import LogDirLike
from kafkascan.tiered.tier_listing import TieredLogs, parts_of_key
from kafkascan.tiered.tier_segments import (
    TierFolder,
    TierProblem,
    TierSegment,
    broker_files,
    end_of,
)

Epochs = Sequence[tuple[int, int]]
LAST = 2**63 - 1


@dataclass(frozen=True)
class UploadRange:
    """
    The offsets of an upload.

    Attributes
    ----------
    file : str
        The name of its log, as a broker has it.
    start, end : int
        The base offset, and the offset after the last one.
    epochs : sequence of (int, int)
        Epochs and their first offsets.
    has_history : bool
        Whether these are all epochs from the start of the log, not only those of the upload.
    """

    file: str
    start: int
    end: int
    epochs: Epochs
    has_history: bool = True


def upload_range(segment: TierSegment, end: int) -> UploadRange:
    """
    Return the offsets of a segment, with the epochs of its epoch file, or else of its manifest.

    Parameters
    ----------
    segment : TierSegment
    end : int
        The offset after its last batch, which counts if there is no manifest.
    """
    epochs: Epochs = segment.leader_epochs
    has_history = False
    if LEADER_EPOCH_CHECKPOINT in segment.side_files:
        try:
            data = segment.side_files[LEADER_EPOCH_CHECKPOINT].read()
            epochs = [(one.epoch, one.start_offset) for one in parse_leader_epochs(data, "")]
            has_history = True
        except (KafkaScanError, OSError):
            pass  # the audit of the log reports the file
    base, said = segment.base_offset, segment.end_offset
    end = end if said is None else said + 1
    return UploadRange(f"{base:020}.log", base, end, epochs, has_history)


def check_lineage(uploads: Sequence[UploadRange], found: FoundInLog) -> None:
    """
    Add offsets that no upload serves, and uploads that serve none.

    Parameters
    ----------
    uploads : sequence of UploadRange
        Of one partition; the newest lineage is that of the latest epoch, and the furthest end.
    found : FoundInLog
    """
    filled = [one for one in uploads if one.end > one.start]
    if not filled:
        return
    newest = max(filled, key=lambda one: (max((e for e, _ in one.epochs), default=-1), one.end))
    lineage = newest.epochs if newest.has_history else ()
    served = []
    for one in sorted(filled, key=lambda one: (one.start, one.end)):
        parts = _served(one, lineage)
        served += parts
        if not parts:
            message = f"offsets {one.start} to {one.end - 1} are not of the epochs of the log"
            found.add("UNREFERENCED_SEGMENT", one.file, message, offset=one.start)
    _note_gaps(served, found)


def _served(upload: UploadRange, lineage: Epochs) -> list[tuple[int, int, str]]:
    """Return the ranges of offsets that an upload serves."""
    if not lineage or not upload.epochs:
        return [(upload.start, upload.end, upload.file)]
    own = dict(_ranges(upload.epochs))
    parts = []
    for epoch, (start, end) in _ranges(lineage):
        mine = own.get(epoch)
        if mine is None:
            continue
        first = max(start, mine[0], upload.start)
        last = min(end, mine[1], upload.end)
        if first < last:
            parts.append((first, last, upload.file))
    return parts


def _ranges(epochs: Epochs) -> Iterable[tuple[int, tuple[int, int]]]:
    """Yield each epoch with its first offset, and that of the next epoch."""
    for (epoch, start), (_, end) in pairwise([*sorted(epochs), (LAST, LAST)]):
        yield epoch, (start, end)


def _note_gaps(served: list[tuple[int, int, str]], found: FoundInLog) -> None:
    end = None
    for first, last, file in sorted(served):
        if end is not None and first > end:
            message = f"no segment serves the offsets from {end} to {first - 1}"
            found.add("TIER_GAP", file, message, offset=end)
        end = last if end is None else max(end, last)


@dataclass(frozen=True, eq=False)
class UploadRun:
    """
    Uploads of a partition that follow each other without overlaps and gaps.

    Attributes
    ----------
    partition : PartitionDir
        Its folder has the segments of the run only, if the partition has several runs.
    facts : list of SegmentFacts
        What the batches of the segments say, while they are read.
    """

    partition: PartitionDir
    facts: list[SegmentFacts]


@dataclass(eq=False)
class TierAudit:
    """
    The audit of a tier, besides that of its logs.

    Attributes
    ----------
    tier : TieredLogs
    runs : list of UploadRun
        The logs to audit. Uploads of several leaders may overlap; in each run, batches, producers
        and epochs follow each other.
    """

    tier: TieredLogs
    runs: list[UploadRun] = field(init=False)

    def __post_init__(self) -> None:
        tier = self.tier
        groups = groupby(tier.remote_segments, lambda one: (one.topic, one.topic_id, one.partition))
        self.runs = []
        for partition, (_, segments) in zip(tier.partitions, groups, strict=True):
            found = [list(segments)] if tier.layout == "pinterest" else _split(segments)
            for one in found:
                files = TierFolder(partition.path, broker_files(one))
                own = partition if len(found) == 1 else replace(partition, folder=files)
                facts = [SegmentFacts(segment, segment.base_offset) for segment in one]
                self.runs.append(UploadRun(own, facts))

    @property
    def logs(self) -> LogDir:
        """The logs to audit, in the order of `runs`."""
        return replace(self.tier, partitions=[run.partition for run in self.runs])

    def add(
        self,
        run: int,
        batches: BatchTable,
        segment: NDArray[np.int32],
        is_bad: NDArray[np.bool_] | None,
    ) -> None:
        """Add the next batches of a run; see `add_batches`."""
        add_batches(self.runs[run].facts, batches, segment, is_bad)

    def check_cluster(self, cluster: LogDirLike, now_ms: int) -> ClusterChecks:
        """Compare the tier with what a cluster knows; see `check_cluster_records`."""
        return check_cluster_records(self.tier, cluster, now_ms)

    def findings(self) -> list[LogFinding]:
        """Return the findings, after all batches were read."""
        found = [_of_object(self.tier, problem) for problem in self.tier.problems]
        for _, runs in groupby(self.runs, lambda run: run.partition.path):
            found += _of_partition(list(runs), has_lineage=self.tier.layout != "pinterest")
        return found


def _split(segments: Iterable[TierSegment]) -> list[list[TierSegment]]:
    """Return the runs of a partition's segments."""
    runs: list[tuple[int, list[TierSegment]]] = []
    for segment in segments:
        end = _readable_end(segment)
        for number, (before, run) in enumerate(runs):
            if before == segment.base_offset:
                runs[number] = end, [*run, segment]
                break
        else:
            runs.append((end, [segment]))
    return [run for _, run in runs]


def _readable_end(segment: TierSegment) -> int:
    """Return the offset after the last one of a segment; its first if it cannot be read."""
    try:
        return end_of(segment)
    except (KafkaScanError, OSError):
        return segment.base_offset  # the audit of the log reports it


def _of_object(tier: TieredLogs, problem: TierProblem) -> LogFinding:
    """Return the finding about an object that is not read as a segment."""
    parts = parts_of_key(tier.layout, problem.key)
    parent, _, name = problem.key.rpartition("/")
    return FoundInLog(
        topic=None if parts is None else parts["topic"],
        partition=None if parts is None else int(parts["partition"]),
        folder=tier.path / parent,
    ).add(
        problem.symbol,
        name,
        problem.reason.removeprefix(f"{tier.path / problem.key}: "),
        offset=None if parts is None else int(parts["base"]),
    )


def _of_partition(runs: list[UploadRun], *, has_lineage: bool) -> list[LogFinding]:
    found = FoundInLog.of(runs[0].partition)
    facts = [one for run in runs for one in run.facts]
    for one in facts:
        one.check_manifest(found)
    if has_lineage:  # else the audit of the log compares the segments
        check_lineage([upload_range(one.segment, one.end_offset) for one in facts], found)
    return found.findings()
