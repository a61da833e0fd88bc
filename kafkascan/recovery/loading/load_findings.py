"""Check a loaded log for what a broker does not notice when it loads the log."""

from __future__ import annotations

from dataclasses import dataclass

from kafkascan.format.findings import Finding, Severity
from kafkascan.recovery.loading.loaded_segment import LoadedSegment


@dataclass(frozen=True)
class LoadFinding(Finding):
    """
    A fact about a log that its recovery does not change.

    Attributes
    ----------
    file : str or None
        Name of the file in the partition directory; None if the whole log is affected.
    """

    file: str | None = None


def check_segments(segments: list[LoadedSegment], *, verify: bool) -> list[LoadFinding]:
    """
    Return the damage in segments that are not recovered, and the segments that overlap.

    Parameters
    ----------
    segments : list of LoadedSegment
        The segments of the log, in order.
    verify : bool
        Whether to verify the checksums of segments that are not recovered.
    """
    found, end, reaching = list[LoadFinding](), -1, ""
    for segment in segments:
        segment.check_headers(verify=verify)
        found += (_kept_damage(one, segment.name) for one in segment.damage)
        if segment.base_offset < end:
            found.append(_overlap(segment, reaching, end))
        if (next_offset := segment.report().next_offset) > end:
            end, reaching = next_offset, segment.name
    return found


def _kept_damage(damage: Finding, name: str) -> LoadFinding:
    message = (
        f"{damage.message}. The segment is below the recovery point: a broker does not recover it,"
        " and consumers fail there. Restore the log from another replica"
    )
    return LoadFinding(damage.symbol, damage.severity, message, damage.row, damage.position, name)


def _overlap(segment: LoadedSegment, before: str, end: int) -> LoadFinding:
    message = (
        f"the segment begins at offset {segment.base_offset}, but {before} reaches offset"
        f" {end - 1}. One of them may be a stale copy; a broker loads both, and which one a"
        " consumer reads depends on the offset at which it starts"
    )
    return LoadFinding("OFFSET_OVERLAP", Severity.ERROR, message, file=segment.name)


def check_end(recovery_point: int, end: int) -> list[LoadFinding]:
    """Return a finding if a log ends before its recovery point."""
    if end >= recovery_point:
        return []
    message = (
        f"the log ends at offset {end}, but was flushed up to {recovery_point}: its end is lost."
        " Restore the log from another replica"
    )
    return [LoadFinding("ENDS_EARLY", Severity.ERROR, message)]
