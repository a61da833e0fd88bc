"""The audit of a tier: of its objects, its manifests, and the lineage of its partitions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import groupby

from kafkascan.auditing.finding_kinds import FoundInLog, LogFinding, finding_kind
from kafkascan.auditing.tiers.lineage_checks import check_lineage, upload_range
from kafkascan.auditing.tiers.segment_facts import UploadFacts
from kafkascan.batches.columns import next_offset
from kafkascan.batches.scan import scan_batches
from kafkascan.format.errors import KafkaScanError
from kafkascan.logs.log_dir import LogDir, PartitionDir
from kafkascan.tiered.tier_listing import TieredLogs, parts_of_key
from kafkascan.tiered.tier_segments import TierFolder, TierProblem, TierSegment, broker_files


@dataclass(frozen=True, eq=False)
class UploadRun:
    """
    Uploads of a partition that follow each other without overlaps and gaps.

    Attributes
    ----------
    partition : PartitionDir
        Its folder has the segments of the run only, if the partition has several runs.
    facts : UploadFacts
        What the batches of the segments say, while they are read.
    """

    partition: PartitionDir
    facts: UploadFacts


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
                self.runs.append(UploadRun(own, UploadFacts(one)))

    @property
    def logs(self) -> LogDir:
        """The logs to audit, in the order of `runs`."""
        return replace(self.tier, partitions=[run.partition for run in self.runs])

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
        end = _end_of(segment)
        for number, (before, run) in enumerate(runs):
            if before == segment.base_offset:
                runs[number] = end, [*run, segment]
                break
        else:
            runs.append((end, [segment]))
    return [run for _, run in runs]


def _end_of(segment: TierSegment) -> int:
    """Return the offset after the last one of a segment, as the manifest or the batches say it."""
    if segment.end_offset is not None:
        return segment.end_offset + 1
    try:
        batches = scan_batches(segment.log.source(), on_corrupt="stop").batches
    except (KafkaScanError, OSError):
        return segment.base_offset  # the audit of the log reports it
    return int(next_offset(batches[-1:])[0]) if len(batches) else segment.base_offset


def _of_object(tier: TieredLogs, problem: TierProblem) -> LogFinding:
    """Return the finding about an object that is not read as a segment."""
    parts = parts_of_key(tier.layout, problem.key)
    severity, advice = finding_kind(problem.symbol)
    path = str(tier.path / problem.key)
    return LogFinding(
        symbol=problem.symbol,
        severity=severity,
        topic=None if parts is None else parts["topic"],
        partition=None if parts is None else int(parts["partition"]),
        path=path,
        file=problem.key.rpartition("/")[2],
        position=None,
        offset=None if parts is None else int(parts["base"]),
        count=1,
        message=problem.reason.removeprefix(f"{path}: "),
        advice=advice,
    )


def _of_partition(runs: list[UploadRun], *, has_lineage: bool) -> list[LogFinding]:
    found, partition = FoundInLog(), runs[0].partition
    facts = [one for run in runs for one in run.facts.segments]
    for one in facts:
        one.check_manifest(found)
    if has_lineage:  # else the audit of the log compares the segments
        check_lineage([upload_range(one.segment, one.end_offset) for one in facts], found)
    return found.findings(partition.topic, partition.partition, partition.path)
