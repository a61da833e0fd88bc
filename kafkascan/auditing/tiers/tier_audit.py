"""The audit of a tier: of its objects, its manifests, and the lineage of its partitions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby

from kafkascan.auditing.finding_kinds import FoundInLog, LogFinding
from kafkascan.auditing.tiers.lineage_checks import check_lineage, upload_range
from kafkascan.auditing.tiers.segment_facts import UploadFacts
from kafkascan.auditing.tiers.tier_problems import check_objects
from kafkascan.auditing.tiers.upload_chains import Chain, upload_chains
from kafkascan.logs.log_dir import LogDir, PartitionDir
from kafkascan.tiered.tier_listing import TieredLogs


@dataclass(eq=False)
class TierAudit:
    """
    The audit of a tier, besides that of its logs.

    Attributes
    ----------
    tier : TieredLogs
    chains : list of (PartitionDir, list of TierSegment)
        The logs to audit; see `upload_chains`.
    facts : list of UploadFacts
        What the batches of each say, while they are read.
    """

    tier: TieredLogs
    chains: list[Chain]
    facts: list[UploadFacts] = field(default_factory=list)

    @classmethod
    def of(cls, tier: TieredLogs) -> TierAudit:
        """Return the audit of a tier, before its batches are read."""
        chains = upload_chains(tier)
        return cls(tier, chains, [UploadFacts(segments) for _, segments in chains])

    @property
    def logs(self) -> LogDir:
        """The logs to audit, in the order of `chains`."""
        return replace(self.tier, partitions=[partition for partition, _ in self.chains])

    def findings(self) -> list[LogFinding]:
        """Return the findings, after all batches were read."""
        return [*check_objects(self.tier), *self._of_partitions()]

    def _of_partitions(self) -> Iterator[LogFinding]:
        read = zip(self.chains, self.facts, strict=True)
        by_path = groupby(((chain[0], facts) for chain, facts in read), lambda one: one[0].path)
        for _, chains in by_path:
            yield from _of_partition(list(chains), has_lineage=self.tier.layout != "pinterest")


def _of_partition(
    chains: list[tuple[PartitionDir, UploadFacts]], *, has_lineage: bool
) -> list[LogFinding]:
    found, partition = FoundInLog(), chains[0][0]
    facts = [one for _, log in chains for one in log.segments]
    for one in facts:
        one.check_manifest(found)
    if has_lineage:  # else the audit of the log compares the segments
        check_lineage([upload_range(one.segment, one.end_offset) for one in facts], found)
    return found.findings(partition.topic, partition.partition, partition.path)
