"""Findings about the objects of a tier that are not read as segments."""

from __future__ import annotations

from collections.abc import Iterator

from kafkascan.auditing.finding_kinds import LogFinding, finding_kind
from kafkascan.tiered.aiven_layout import KEY as AIVEN_KEY
from kafkascan.tiered.plain_layouts import LOCAL_KEY, PINTEREST_KEY
from kafkascan.tiered.tier_listing import TieredLogs
from kafkascan.tiered.tier_segments import TierProblem, can_be_a_segment

_KEYS = {"aiven": AIVEN_KEY, "local": LOCAL_KEY, "pinterest": PINTEREST_KEY}


def check_objects(tier: TieredLogs) -> Iterator[LogFinding]:
    """Yield a finding for each problem that the listing of a tier has."""
    for problem in tier.problems:
        yield _finding(tier, problem)


def _finding(tier: TieredLogs, problem: TierProblem) -> LogFinding:
    match = _KEYS[tier.layout].fullmatch(problem.key)
    if match is not None and not can_be_a_segment(match["base"], match["partition"]):
        match = None
    severity, advice = finding_kind(problem.symbol)
    path = str(tier.path / problem.key)
    return LogFinding(
        symbol=problem.symbol,
        severity=severity,
        topic=None if match is None else match["topic"],
        partition=None if match is None else int(match["partition"]),
        path=path,
        file=problem.key.rpartition("/")[2],
        position=None,
        offset=None if match is None else int(match["base"]),
        count=1,
        message=problem.reason.removeprefix(f"{path}: "),
        advice=advice,
    )
