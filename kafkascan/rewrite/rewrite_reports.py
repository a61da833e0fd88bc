"""Results of rewriting logs, and findings about what the rewrite does not cover."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from kafkascan.broker_state.checkpoints import LOG_START_CHECKPOINT
from kafkascan.broker_state.offset_checkpoints import CheckpointReader
from kafkascan.format.findings import Finding, Severity
from kafkascan.format.layout import ScanEnd
from kafkascan.logs.log_finding import partition_dir
from kafkascan.logs.log_problems import offset_problems
from kafkascan.logs.opened_logs import LogView, rewrite_marks
from kafkascan.logs.walking.batch_offsets import SegmentOffsets
from kafkascan.logs.walking.segment_tails import LogEnd
from kafkascan.rewrite.conversion import ConversionReport
from kafkascan.rewrite.filtering import FilterReport
from kafkascan.rewrite.rewrite_schemas import CONVERSION_SCHEMA, RESTAMP_SCHEMA, SCRUB_SCHEMA
from kafkascan.tables.schema import Schema
from kafkascan.tables.table import AnyTable, Column, Problem, Problems

Report = TypeVar("Report")
"""ConversionReport, FilterReport or RestampReport."""

# How many of the missing keys a finding names.
_NAMED_KEYS = 10
# Files that may contain records, and that a broker does not read.
_LEFTOVER = re.compile(r".*\.log\b.*\.(bak\d*|deleted|part)")


@dataclass
class RestampReport:
    """
    Counts of a restamped log.

    Attributes
    ----------
    batches : int
    signed : int
        Batches whose checksum changed.
    """

    batches: int = 0
    signed: int = 0


_SCHEMAS = {
    ConversionReport: CONVERSION_SCHEMA,
    RestampReport: RESTAMP_SCHEMA,
    FilterReport: SCRUB_SCHEMA,
}


@dataclass(frozen=True)
class SegmentRewrite(Generic[Report]):
    """
    The rewrite of one segment.

    Attributes
    ----------
    path, target : pathlib.Path
        The log that was read, and the one that was written.
    report : ConversionReport, FilterReport or RestampReport
    size, new_size : int
        Bytes of the file before and after.
    is_changed : bool
        Whether the new file differs from the old one.
    offsets : SegmentOffsets
        Those of the old file.
    """

    path: Path
    target: Path
    report: Report
    size: int
    new_size: int
    is_changed: bool
    offsets: SegmentOffsets


@dataclass(repr=False)
class LogRewrite(AnyTable, Generic[Report]):
    """
    The rewrite of a log file, or of all logs of a partition, a row per segment.

    Attributes
    ----------
    path, target : pathlib.Path
        What was read, and what was written; equal for a rewrite in place.
    segments : list of SegmentRewrite
    findings : list of Finding
        What a reader of the new files should know: tails that were left out, side files that
        no longer match their log, files that may still contain removed records, keys that no
        record has, segments with the same offsets (all of them are rewritten), missing offsets.
    """

    path: Path
    target: Path
    segments: list[SegmentRewrite[Report]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def schema(self) -> Schema:
        """`CONVERSION_SCHEMA`, `RESTAMP_SCHEMA` or `SCRUB_SCHEMA`."""
        reports = (type(one.report) for one in self.segments)
        return _SCHEMAS[next(reports, ConversionReport)]

    @property
    def problems(self) -> Problems:
        """The findings, and what the new format could not represent."""
        found = []
        for one in self.findings:
            path, _, reason = one.message.partition(": ")
            found.append(
                Problem(one.symbol, reason, path, one.severity, one.position, rows_missing=False)
            )
        lost = (
            (segment.path, name.replace("_", " "), count)
            for segment in self.segments
            for name, count in getattr(segment.report, "lost", {}).items()
        )
        found += [
            Problem("NOT_REPRESENTED", f"lost {count} {name}", str(path), Severity.WARNING,
                    rows_missing=False)
            for path, name, count in lost
        ]  # fmt: skip
        return Problems(found)

    def __len__(self) -> int:
        return len(self.segments)

    def to_columns(self) -> dict[str, Column]:
        """Return the values of each column."""
        rows = [_row(one) for one in self.segments]
        return {name: [row[name] for row in rows] for name in self.schema.names}

    def _summary_lines(self) -> list[str]:
        changed = sum(segment.is_changed for segment in self.segments)
        return [
            f"<LogRewrite of {self.target}: {len(self.segments):,} segments,"
            f" {changed:,} changed, {len(self.findings):,} findings>"
        ]


def _row(one: SegmentRewrite[Report]) -> dict[str, object]:
    dropped = getattr(one.report, "dropped_offsets", None)
    first, last = (None, None) if dropped is None or not len(dropped) else dropped[[0, -1]].tolist()
    ends = {"first_dropped_offset": first, "last_dropped_offset": last}
    of_segment = {name: getattr(one, name) for name in ("size", "new_size", "is_changed")}
    paths = {"path": str(one.path), "target": str(one.target)}
    return {**vars(one.report), **ends, **of_segment, **paths}


def tail_findings(path: Path, end: LogEnd) -> list[Finding]:
    """Report the trailing bytes of a log, which are not copied into the new one."""
    if end.end is ScanEnd.CLEAN:
        return []
    message = f"{path}: {end.trailing_bytes} bytes after the last batch are not copied"
    return [Finding(str(end.end), Severity.WARNING, message, None, end.position)]


def log_end_findings(path: Path, old: int | None, new: int | None, shift: int) -> list[Finding]:
    """Report a log that ends at a lower offset: a broker would assign offsets again."""
    old_end, new_end = old or 0, new or 0
    if new_end >= old_end + shift:
        return []
    message = f"{path}: the log end offset was {old_end}, and is {new_end} now"
    return [Finding("LOG_END_MOVED", Severity.WARNING, message)]


def offset_findings(result: LogRewrite[Report]) -> list[Finding]:
    """Report offsets of a partition that several segments have, or that none has."""
    partition = partition_dir(result.path)
    log_start = CheckpointReader().offset_of(partition, LOG_START_CHECKPOINT)
    try:
        marks = rewrite_marks(partition.folder.names())
    except OSError:  # nothing is known of files beside those that were rewritten
        marks = ()
    log = LogView(partition, (), log_start, rewrite_marks=marks)
    offsets = [one.offsets for one in result.segments]
    return [
        Finding(one.symbol, one.severity, f"{one.path}: {one.message}", None, one.position)
        for one in offset_problems(log, offsets)
    ]


def stale_findings(log: Path) -> list[Finding]:
    """Report the side files that are rebuilt for a partition only, not for a single log."""
    message = (
        f"{log.parent}: producer snapshots, transaction indexes and leader epochs are not"
        " rebuilt for a single log; rewrite the folder to rebuild them"
    )
    return [Finding("STALE_SIBLINGS", Severity.NOTE, message)]


def link_findings(logs: Iterable[Path]) -> list[Finding]:
    """Report logs with several hard links: the other names keep the old file."""
    found = []
    for path in logs:
        others = path.stat().st_nlink - 1
        if others > 0:
            message = f"{path}: {others} other hard links still contain the old log"
            found.append(Finding("LEFTOVER", Severity.WARNING, message))
    return found


def not_removed_findings(
    result: LogRewrite[FilterReport], missing: Sequence[bytes]
) -> list[Finding]:
    """Report a scrub that removed no record, or that did not find some of its keys."""
    removed = sum(len(segment.report.dropped_offsets) for segment in result.segments)
    if removed and not missing:
        return []
    reason = f"no record has the key {_listed(missing)}" if missing else "no record was selected"
    symbol, effect = ("KEY_NOT_FOUND", "") if removed else ("NOTHING_REMOVED", "; none was removed")
    return [Finding(symbol, Severity.WARNING, f"{result.path}: {reason}{effect}")]


def _listed(keys: Sequence[bytes]) -> str:
    named = ", ".join(map(repr, keys[:_NAMED_KEYS]))
    return named if len(keys) <= _NAMED_KEYS else f"{named} and {len(keys) - _NAMED_KEYS} more"


def leftover_findings(folder: Path) -> list[Finding]:
    """Report files, and other folders of the partition, that may contain removed records."""
    absolute = Path(os.path.abspath(folder))
    here = partition_dir(absolute)
    names = [name for name in sorted(os.listdir(absolute)) if _LEFTOVER.fullmatch(name)]
    found = [folder / name for name in names]
    for entry in sorted(os.scandir(absolute.parent), key=lambda one: one.name):
        other = partition_dir(entry.path)
        is_namesake = (other.topic, other.partition) == (here.topic, here.partition)
        if (
            here.topic is not None
            and is_namesake
            and entry.name != absolute.name
            and entry.is_dir()
        ):
            found.append(Path(entry.path))
    return [
        Finding("LEFTOVER", Severity.WARNING, f"{path}: may still contain records of the old log")
        for path in found
    ]


def converted_findings(path: Path, count: int) -> list[Finding]:
    """Report messages of old formats, which the cleaner of Kafka writes in the current one."""
    if not count:
        return []
    message = f"{path}: {count} messages of magic 0 or 1 are converted to batches of magic 2"
    return [Finding("CONVERTED", Severity.NOTE, message)]


def completed_findings(path: Path) -> list[Finding]:
    """Report that an interrupted rewrite was completed: maybe no log has changed now."""
    message = f"{path}: an interrupted rewrite was completed, and its side files were rebuilt"
    return [Finding("COMPLETED", Severity.NOTE, message)]
