"""Findings about the objects of a tier that are not read as segments."""

from __future__ import annotations

from collections.abc import Iterator

from kafkascan.auditing.finding_kinds import LogFinding, finding_kind
from kafkascan.tiered.tier_listing import TieredLogs, parts_of_key
from kafkascan.tiered.tier_segments import TierProblem


def check_objects(tier: TieredLogs) -> Iterator[LogFinding]:
    """Yield a finding for each problem that the listing of a tier has."""
    for problem in tier.problems:
        yield _finding(tier, problem)


def _finding(tier: TieredLogs, problem: TierProblem) -> LogFinding:
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
