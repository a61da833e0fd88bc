"""What became of logs that were written anew, and what a reader of them should know."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafkascan.batch_columns import BatchTable, next_offset
from kafkascan.batches import BatchScan
from kafkascan.findings import Finding, Severity
from kafkascan.layout import ScanEnd

# What may hold records beside the logs that a broker reads.
_LEFTOVER = re.compile(r".*\.log\b.*\.(bak\d*|deleted|part)")


@dataclass
class SegmentRewrite:
    """
    One log, before and after.

    Attributes
    ----------
    path, target : pathlib.Path
        The log that was read, and the one that was written.
    report : ConversionReport, FilterReport or RestampReport
    size, new_size : int
        Bytes of the file.
    is_changed : bool
        Whether a byte of it is another one.
    """

    path: Path
    target: Path
    report: Any
    size: int
    new_size: int
    is_changed: bool


@dataclass
class LogRewrite:
    """
    A log, or the logs of a partition, written anew.

    Attributes
    ----------
    path, target : pathlib.Path
        What was read, and what was written; the same, if it was in place.
    segments : list of SegmentRewrite
    findings : list of Finding
        What a reader of the new files should know: tails that were left out, files beside the
        log that no longer fit it, or that may still hold what was taken out of it.
    """

    path: Path
    target: Path
    segments: list[SegmentRewrite] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def left_out(scan: BatchScan) -> list[Finding]:
    """Say what stands behind the last batch, and not in the new log."""
    if scan.end is ScanEnd.CLEAN:
        return []
    message = f"{scan.path}: {scan.trailing_bytes} bytes behind the last batch are left out"
    return [Finding(str(scan.end), Severity.WARNING, message, None, scan.valid_bytes)]


def moved_end(path: Path, old: BatchTable, new: BatchTable, shift: int) -> list[Finding]:
    """Say where offsets would be given a second time."""
    before, after = (int(next_offset(one)[-1]) if len(one) else 0 for one in (old, new))
    if after >= before + shift:
        return []
    message = f"{path}: it went up to offset {before - 1}, and ends before {after} now"
    return [Finding("LOG_END_MOVED", Severity.WARNING, message)]


def note_stale(result: LogRewrite) -> None:
    """Say what is not built anew for one log alone."""
    message = (
        f"{result.target.parent}: snapshots of producers, indexes of transactions and leader"
        " epochs are built for a whole folder, not for one log"
    )
    result.findings.append(Finding("STALE_SIBLINGS", Severity.NOTE, message))


def note_leftovers(result: LogRewrite, folder: Path) -> None:
    """Name the files of a folder that a broker does not read, but others may."""
    for entry in sorted(os.scandir(folder), key=lambda one: one.name):
        if _LEFTOVER.fullmatch(entry.name):
            message = f"{entry.path}: may still hold what the log held before"
            result.findings.append(Finding("LEFTOVER", Severity.WARNING, message))


def note_links(result: LogRewrite, logs: list[Path]) -> None:
    """Name the logs that have other names, too: what those name stays as it is."""
    for path in logs:
        others = path.stat().st_nlink - 1
        if others > 0:
            message = f"{path}: {others} other hard links still hold what the log held before"
            result.findings.append(Finding("LEFTOVER", Severity.WARNING, message))
