"""Results of crash recovery and salvage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkascan.batches import arrow
from kafkascan.broker_state.checkpoints import LeaderEpoch
from kafkascan.format.findings import Severity
from kafkascan.format.texts import few_lines, json_text
from kafkascan.logs.opened_logs import SegmentOverlap
from kafkascan.recovery.loading.load_findings import LoadFinding
from kafkascan.recovery.loading.loaded_segment import SegmentReport
from kafkascan.recovery.loading.planned_files import Change
from kafkascan.recovery.salvaging.segment_salvage import SegmentSalvage

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class PartitionRecovery:
    """
    The changes that a broker would make to the log of a partition, and those that were made.

    Attributes
    ----------
    path : pathlib.Path
    topic : str or None
    partition : int or None
    log_start_offset, log_end_offset : int or None
        None if the log cannot be loaded.
    is_tiered : bool
        Whether the topic has remote storage, so that the log may start before its first segment.
    segments : list of SegmentReport
    leader_epochs : list of LeaderEpoch
    findings : list of LoadFinding
        Anything wrong that a broker does not notice when it loads the log, and that therefore
        stays: damage below the recovery point, segments that overlap, a lost end.
    changes : list of Change
        The planned changes.
    applied : list of Change
        The changes that were made.
    error : Exception or None
        Why the log cannot be loaded, or why a change failed.
    """

    path: Path
    topic: str | None
    partition: int | None
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    is_tiered: bool = False
    segments: list[SegmentReport] = field(default_factory=list)
    leader_epochs: list[LeaderEpoch] = field(default_factory=list)
    findings: list[LoadFinding] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    applied: list[Change] = field(default_factory=list)
    error: Exception | None = None

    @property
    def truncated_bytes(self) -> int:
        """Bytes of the log that a broker discards."""
        return sum(segment.truncated_bytes for segment in self.segments)

    @property
    def is_in_order(self) -> bool:
        """Whether the log can be loaded and no change remains to be made."""
        return self.error is None and len(self.applied) == len(self.changes)

    @property
    def has_alarms(self) -> bool:
        """Whether any finding is more than a note."""
        return any(one.severity is not Severity.NOTE for one in self.findings)

    @property
    def unverified(self) -> list[SegmentReport]:
        """The segments whose checksums were not verified, as they are below the recovery point."""
        return [segment for segment in self.segments if not segment.is_verified]

    def __repr__(self) -> str:
        lines = [f"  {finding}" for finding in self.findings]
        for change in self.changes:
            done = "done" if change in self.applied else "to do"
            lines.append(f"  {change.action:<8} {change.name}: {change.reason} ({done})")
        return few_lines(f"<PartitionRecovery {self.path}: {self._verdict()}>", lines)

    def _verdict(self) -> str:
        if self.error is not None:
            return str(self.error)
        left = len(self.changes) - len(self.applied)
        offsets = f"offsets {self.log_start_offset} to {self.log_end_offset}"
        return f"{offsets}, {left} changes to make, {self.truncated_bytes} bytes to discard"


@dataclass
class Recovery:
    """
    The result of recovering data directories or partitions.

    Attributes
    ----------
    paths : list of pathlib.Path
    partitions : list of PartitionRecovery
    marked_clean : list of pathlib.Path
        The data directories that were marked as cleanly shut down.
    broker_epoch : int or None
        The broker epoch in those marks; -1 if it is unknown.
    had_clean_shutdown : list of pathlib.Path
        The directories that were already marked as cleanly shut down. A broker would load their
        logs without recovery.
    """

    paths: list[Path]
    partitions: list[PartitionRecovery] = field(default_factory=list)
    marked_clean: list[Path] = field(default_factory=list)
    broker_epoch: int | None = None
    had_clean_shutdown: list[Path] = field(default_factory=list)

    @property
    def path(self) -> Path:
        """The first directory."""
        return self.paths[0]

    @property
    def is_marked_clean(self) -> bool:
        """Whether all directories were marked as cleanly shut down."""
        return self.marked_clean == self.paths

    @property
    def is_in_order(self) -> bool:
        """Whether every log can be loaded and no change remains to be made."""
        return all(partition.is_in_order for partition in self.partitions)

    @property
    def has_alarms(self) -> bool:
        """Whether any log has a finding that is more than a note."""
        return any(partition.has_alarms for partition in self.partitions)

    @property
    def truncated_bytes(self) -> int:
        """Bytes of the logs that a broker discards."""
        return sum(partition.truncated_bytes for partition in self.partitions)

    def __repr__(self) -> str:
        worst_first = sorted(self.partitions, key=_severity_order)
        lines = (line for one in worst_first for line in repr(one).splitlines())
        paths = ", ".join(map(str, self.paths))
        logs = f"{len(self.partitions):,} logs, {self.truncated_bytes:,} bytes to discard"
        return few_lines(f"<Recovery {paths}: {logs}>", lines)


def _severity_order(log: PartitionRecovery) -> tuple[bool, bool, bool]:
    return log.error is None, not log.truncated_bytes, not log.findings


@dataclass
class PartitionSalvage:
    """
    The result of salvaging the log of one partition.

    Attributes
    ----------
    path : pathlib.Path
    destination : pathlib.Path or None
        The directory that was written; None if nothing was written.
    topic : str or None
    partition : int or None
    segments : list of SegmentSalvage
        In log order.
    left_out : list of str
        Log files that are not part of the log: ``.deleted``, ``.cleaned`` and ``.swap`` files.
    overlaps : list of SegmentOverlap
        Segments with the same offsets; only one of them keeps each offset.
    recovery : PartitionRecovery or None
        The recovery of the copy, which builds its indexes and other files.
    error : Exception or None
        Why there is no copy, or why a broker would not load it. If a segment could not be read
        or written, the copy lacks it. Such a copy is in a directory whose name ends with
        ``.incomplete``.
    """

    path: Path
    destination: Path | None
    topic: str | None
    partition: int | None
    segments: list[SegmentSalvage] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    overlaps: list[SegmentOverlap] = field(default_factory=list)
    recovery: PartitionRecovery | None = None
    error: Exception | None = None

    @property
    def lost_bytes(self) -> int:
        """Sum of the sizes of all lost ranges."""
        return sum(segment.lost_bytes for segment in self.segments)


@dataclass
class Salvage:
    """
    The result of salvaging a data directory, a partition or one segment.

    Attributes
    ----------
    path : pathlib.Path
    destination : pathlib.Path or None
    partitions : list of PartitionSalvage
    is_marked_clean : bool
        Whether the copy of a data directory is marked as cleanly shut down.
    """

    path: Path
    destination: Path | None
    partitions: list[PartitionSalvage]
    is_marked_clean: bool = False

    @property
    def lost_bytes(self) -> int:
        """Sum of the sizes of all lost ranges."""
        return sum(one.lost_bytes for one in self.partitions)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield lost ranges, copies and repairs as rows with the same columns.

        The columns are `SALVAGE_COLUMNS`.
        """
        for partition in self.partitions:
            log = {"topic": partition.topic, "partition": partition.partition}
            for segment in partition.segments:
                here = log | {"segment": segment.name}
                for loss in segment.losses:
                    yield _ROW | here | {"what": "lost"} | asdict(loss)
                for copy in segment.duplicates:
                    found = asdict(copy)
                    keeper = found.pop("kept_in")
                    reason = _COPY_REASON if keeper is None else f"{keeper} keeps these offsets"
                    yield _ROW | here | {
                        "what": "duplicate", "symbol": "DUPLICATE", "reason": reason,
                    } | found  # fmt: skip
                for one in segment.repairs:
                    reason = f"{one.field} was {one.old}, is {one.new}"
                    if not one.is_certain:
                        reason += ", which the neighbouring batches do not determine"
                    yield _ROW | here | {
                        "what": "repaired", "symbol": one.field.upper(), "reason": reason,
                        "first_offset": one.base_offset, "position": one.position,
                    }  # fmt: skip

    def to_columns(self) -> dict[str, list[Any]]:
        """Return lost ranges, copies and repairs as a dictionary of columns."""
        rows = list(self.rows())
        return {name: [row[name] for row in rows] for name in SALVAGE_COLUMNS}

    def to_arrow(self) -> pa.Table:
        """Return lost ranges, copies and repairs as an Arrow table."""
        return arrow.table_of(self.to_columns(), texts=_TEXTS)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as dictionaries and lists."""
        return {
            "path": str(self.path),
            "destination": None if self.destination is None else str(self.destination),
            "is_marked_clean": self.is_marked_clean,
            "lost_bytes": self.lost_bytes,
            "partitions": [_partition_dict(one) for one in self.partitions],
        }

    def to_json(self) -> str:
        """Return the result as a JSON document."""
        return json_text(self.to_dict(), indent=2)

    def __repr__(self) -> str:
        lines = []
        for one in sorted(self.partitions, key=lambda one: (one.error is None, -one.lost_bytes)):
            kept = sum(segment.batches for segment in one.segments)
            losses = sum(len(segment.losses) for segment in one.segments)
            repairs = sum(len(segment.repairs) for segment in one.segments)
            lines.append(
                f"  {one.path.name}: {kept:,} batches kept, {losses} lost ranges of"
                f" {one.lost_bytes:,} bytes, {repairs} fields repaired"
                + ("" if one.error is None else f"; {one.error}")
            )
        return few_lines(f"<Salvage {self.path}: {self.lost_bytes:,} bytes lost>", lines)


SALVAGE_COLUMNS = (
    "topic", "partition", "segment", "what", "symbol", "position", "size", "first_offset",
    "last_offset", "claimed_first_offset", "claimed_last_offset", "claimed_records",
    "zero_bytes", "reason",
)  # fmt: skip
"""Columns of `Salvage.rows`."""

_COPY_REASON = "the batch is a copy of one that is kept"
_TEXTS = ("topic", "segment", "what", "symbol", "reason")
_ROW: dict[str, Any] = dict.fromkeys(SALVAGE_COLUMNS)


def _partition_dict(one: PartitionSalvage) -> dict[str, Any]:
    return {
        "path": str(one.path),
        "destination": None if one.destination is None else str(one.destination),
        "topic": one.topic,
        "partition": one.partition,
        "lost_bytes": one.lost_bytes,
        "left_out": one.left_out,
        "overlaps": [overlap.message for overlap in one.overlaps],
        "error": None if one.error is None else str(one.error),
        "segments": [_segment_dict(segment) for segment in one.segments],
    }


def _segment_dict(segment: SegmentSalvage) -> dict[str, Any]:
    plain = {name: value for name, value in vars(segment).items() if name not in _LISTS}
    return plain | {
        "end": None if segment.end is None else segment.end.name,
        "error": None if segment.error is None else str(segment.error),
        "lost_bytes": segment.lost_bytes,
        **{name: [asdict(one) for one in getattr(segment, name)] for name in _LISTS},
    }


_LISTS = ("pieces", "losses", "duplicates", "repairs")
