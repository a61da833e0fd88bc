"""Results of crash recovery and salvage."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from kafkascan.broker_state.checkpoints import LeaderEpoch
from kafkascan.format.errors import FileChangedError
from kafkascan.format.findings import Severity
from kafkascan.format.texts import few_lines, json_text
from kafkascan.logs.log_problems import OFFSET_GAP
from kafkascan.logs.opened_logs import SegmentOverlap
from kafkascan.recovery.loading.planned_files import Change
from kafkascan.recovery.recovery_schemas import RECOVERY_SCHEMA, SALVAGE_SCHEMA
from kafkascan.tables.schema import Schema
from kafkascan.tables.table import (
    NO_PROBLEMS,
    AnyTable,
    Column,
    Problem,
    Problems,
    plain_rows,
    problem_of,
)

if TYPE_CHECKING:
    from kafkascan.recovery.loading.loaded_segment import (
        DiscardedRange,
        LoadFinding,
        SegmentReport,
    )
    from kafkascan.recovery.salvaging.segment_salvage import LostRange, SegmentSalvage


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
        stays: damage below the recovery point, segments that overlap, missing offsets, a lost end.
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
    def discarded(self) -> dict[str, DiscardedRange]:
        """What a broker discards of the log, by the names of segments."""
        return {one.name: one.discarded for one in self.segments if one.discarded is not None}

    @property
    def discarded_records(self) -> int | None:
        """
        Records that a broker discards, counted by their offsets, those of damaged batches, too.

        Offsets are lost up to the next segment, in the last one up to its last intact batch: more
        may be lost there. None if bytes are discarded whose offsets are not known.
        """
        in_order = sorted(self.segments, key=lambda one: one.base_offset)
        next_offsets = (one.base_offset for one in in_order[1:])
        lost = [
            _offset_count(one.discarded, end)
            for one, end in zip_longest(in_order, next_offsets)
            if one.discarded is not None and not one.discarded.is_zeros
        ]
        return sum(lost) or (None if lost else 0)

    @property
    def salvageable_records(self) -> int:
        """Records of intact batches that a broker discards, and `salvage` keeps."""
        return sum(one.records for one in self.discarded.values())

    @property
    def is_in_order(self) -> bool:
        """Whether the log can be loaded and no change remains to be made."""
        return self.error is None and len(self.applied) == len(self.changes)

    @property
    def has_alarms(self) -> bool:
        """
        Whether any finding is an error.

        Offsets that are missing are a warning: nothing that a recovery does brings them back.
        """
        return any(one.severity is Severity.ERROR for one in self.findings)

    @property
    def damaged_segments(self) -> set[str]:
        """Names of the segments with damage that a broker does not notice, so that it stays."""
        recovered = {one.name for one in self.segments if one.is_recovered}
        errors = (one for one in self.findings if one.severity is Severity.ERROR)
        return {
            one.file
            for one in errors
            if one.position is not None and one.file is not None and one.file not in recovered
        }

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


@dataclass(repr=False)
class Recovery(AnyTable):
    """
    The result of recovering data directories or partitions, a row per partition.

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

    schema: ClassVar[Schema] = RECOVERY_SCHEMA

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
        """Whether any log has a finding that is an error."""
        return any(partition.has_alarms for partition in self.partitions)

    @property
    def truncated_bytes(self) -> int:
        """Bytes of the logs that a broker discards."""
        return sum(partition.truncated_bytes for partition in self.partitions)

    @property
    def problems(self) -> Problems:
        """Why logs cannot be loaded, or changes failed, and what is wrong and stays."""
        return _problems_of(self.partitions) + Problems(
            Problem(
                one.symbol,
                one.message,
                str(log.path if one.file is None else log.path / one.file),
                one.severity,
                one.position,
                log.topic,
                log.partition,
                rows_missing=one.symbol == OFFSET_GAP,
            )
            for log in self.partitions
            for one in log.findings
        )

    def __len__(self) -> int:
        return len(self.partitions)

    def to_columns(self) -> dict[str, Column]:
        """Return the values of each column."""
        rows = [
            {
                **vars(one),
                "segments": len(one.segments),
                "recovered": sum(segment.is_recovered for segment in one.segments),
                "truncated_bytes": one.truncated_bytes,
                "discarded_records": one.discarded_records,
                "changes": len(one.changes),
                "changes_made": len(one.applied),
                "findings": len(one.findings),
                "error": None if one.error is None else str(one.error),
            }
            for one in self.partitions
        ]
        return {name: [row[name] for row in rows] for name in RECOVERY_SCHEMA.names}

    def _summary_lines(self) -> list[str]:
        worst_first = sorted(self.partitions, key=_severity_order)
        lines = (line for one in worst_first for line in repr(one).splitlines())
        paths = ", ".join(map(str, self.paths))
        logs = f"{len(self.partitions):,} logs, {self.truncated_bytes:,} bytes to discard"
        return few_lines(f"<Recovery {paths}: {logs}>", lines).split("\n")


def _offset_count(lost: DiscardedRange, next_segment: int | None) -> int:
    """Return how many offsets a range has, if the segment after it starts at this offset."""
    end = next_segment
    if end is None:
        end = lost.first_offset if lost.last_offset is None else lost.last_offset + 1
    return max(0, end - lost.first_offset)


def writing_command(recovery: Recovery, *options: str) -> str | None:
    """Return the command that makes the remaining changes; None if no change remains."""
    left = [
        change for one in recovery.partitions for change in one.changes if change not in one.applied
    ]
    if not left:
        return None
    truncate = ["--truncate"] if any(change.shortens_log for change in left) else []
    paths = map(str, recovery.paths)
    return shlex.join(["kafkascan", "recover", *paths, *options, "--write", *truncate])


def damage_headline(path: Path, segments: Collection[Path], *, is_lasting: bool) -> tuple[str, str]:
    """
    Return a sentence about damaged segments, and the command that copies the intact batches.

    Parameters
    ----------
    path : Path
        The directory or file that was read.
    segments : collection of Path
        The damaged ones. If they are of one log, only that is copied.
    is_lasting : bool
        Whether a broker leaves them as they are when it starts.
    """
    noun = "segment is" if len(segments) == 1 else "segments are"
    why = ", and a broker does not look there when it starts" if is_lasting else ""
    logs = {one.parent for one in segments}
    copied = logs.pop() if path.is_dir() and len(logs) == 1 else path
    command = shlex.join(["kafkascan", "salvage", str(copied), "COPY"])
    return f"{len(segments):,} {noun} damaged: consumers fail there{why}", command


def _problems_of(partitions: Sequence[PartitionRecovery | PartitionSalvage]) -> Problems:
    return Problems(
        problem_of(one.error, str(one.path), topic=one.topic, partition=one.partition)
        for one in partitions
        if one.error is not None
    )


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
    gaps : Problems
        Offsets that are missing in the copy where no bytes are lost, unless the log was compacted,
        and zeros after the last batch of a segment.
    changed : list of FileChangedError
        Files that another process changed while they were copied: the copy may lack batches that
        were there when `salvage` began, or that came later.
    recovery : PartitionRecovery or None
        The recovery of the copy, which builds its indexes and other files.
    error : Exception or None
        Why there is no copy, or why a broker would not load it. If a segment could not be read,
        the copy lacks it. Such a copy is in a directory whose name ends with ``.incomplete``. One
        that the disk has no space for is removed.
    """

    path: Path
    destination: Path | None
    topic: str | None
    partition: int | None
    segments: list[SegmentSalvage] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    overlaps: list[SegmentOverlap] = field(default_factory=list)
    gaps: Problems = NO_PROBLEMS
    changed: list[FileChangedError] = field(default_factory=list)
    recovery: PartitionRecovery | None = None
    error: Exception | None = None

    @property
    def lost_bytes(self) -> int:
        """Sum of the sizes of all lost ranges."""
        return sum(segment.lost_bytes for segment in self.segments)


@dataclass(repr=False)
class Salvage(AnyTable):
    """
    The result of salvaging a data directory, a partition or one segment.

    Its rows are the ranges that are lost, repaired or a copy.

    Attributes
    ----------
    path : pathlib.Path
    destination : pathlib.Path or None
    partitions : list of PartitionSalvage
    is_marked_clean : bool
        Whether the copy of a data directory is marked as cleanly shut down.
    leftovers : list of pathlib.Path
        What earlier runs left next to the destination: incomplete copies, and the work of a run
        that was killed, which is removed if possible.
    """

    schema: ClassVar[Schema] = SALVAGE_SCHEMA

    path: Path
    destination: Path | None
    partitions: list[PartitionSalvage]
    is_marked_clean: bool = False
    leftovers: list[Path] = field(default_factory=list)

    @property
    def lost_bytes(self) -> int:
        """Sum of the sizes of all lost ranges."""
        return sum(one.lost_bytes for one in self.partitions)

    @property
    def gaps(self) -> Problems:
        """The gaps of all partitions; a checkpoint that several of them need is there once."""
        return Problems(dict.fromkeys(gap for log in self.partitions for gap in log.gaps))

    @property
    def kept_batches(self) -> int:
        """Number of kept batches."""
        return sum(one.batches for log in self.partitions for one in log.segments)

    @property
    def kept_records(self) -> int | None:
        """Number of their records; None if a header of magic 0 or 1 does not contain a number."""
        counts = [one.records for log in self.partitions for one in log.segments]
        known = [one for one in counts if one is not None]
        return sum(known) if len(known) == len(counts) else None

    @property
    def problems(self) -> Problems:
        """What is lost, doubtful or a copy, missing offsets, and why a log has no usable copy."""
        found = [one for log in self.partitions for one in _range_problems(log)]
        notes = Problems(map(_leftover, self.leftovers))
        return Problems(found) + _problems_of(self.partitions) + self.gaps + notes

    def __len__(self) -> int:
        return sum(
            len(one.losses) + len(one.duplicates) + len(one.repairs)
            for partition in self.partitions
            for one in partition.segments
        )

    def to_columns(self) -> dict[str, Column]:
        """Return the values of each column."""
        rows = list(self._ranges())
        return {name: [row[name] for row in rows] for name in SALVAGE_SCHEMA.names}

    def _ranges(self) -> Iterator[dict[str, Any]]:
        for partition in self.partitions:
            log = {"topic": partition.topic, "partition": partition.partition}
            for segment in partition.segments:
                here = log | {"segment": segment.name}
                for loss in segment.losses:
                    yield _ROW | here | {"outcome": "lost"} | loss._asdict()
                for copy in segment.duplicates:
                    found = copy._asdict()
                    keeper = found.pop("kept_in")
                    reason = _COPY_REASON if keeper is None else f"{keeper} keeps these offsets"
                    yield _ROW | here | {
                        "outcome": "duplicate", "symbol": "DUPLICATE", "reason": reason,
                    } | found  # fmt: skip
                for one in segment.repairs:
                    reason = f"{one.field} was {one.old}, is {one.new}"
                    if not one.is_certain:
                        reason += ", which the neighbouring batches do not determine"
                    yield _ROW | here | {
                        "outcome": "repaired", "symbol": one.field.upper(), "reason": reason,
                        "first_offset": one.base_offset, "position": one.position,
                    }  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Return the result as dictionaries and lists."""
        return {
            "path": str(self.path),
            "destination": None if self.destination is None else str(self.destination),
            "is_marked_clean": self.is_marked_clean,
            "kept_batches": self.kept_batches,
            "kept_records": self.kept_records,
            "lost_bytes": self.lost_bytes,
            "is_complete": self.is_complete,
            "problems": plain_rows(self.problems),
            "partitions": [_partition_dict(one) for one in self.partitions],
        }

    def to_json(self, *, indent: int | None = 2) -> str:
        """Return the complete result as a JSON document."""
        return json_text(self.to_dict(), indent=indent)

    def _summary_lines(self) -> list[str]:
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
        title = f"<Salvage {self.path}: {self.lost_bytes:,} bytes lost>"
        return few_lines(title, lines).split("\n")


def _leftover(path: Path) -> Problem:
    """Return a note about what an earlier run left."""
    message = (
        "an earlier run left incomplete copies here. Delete the directory when you do not need them"
        if path.exists()
        else "a killed run left its work here, which was removed"
    )
    return Problem("LEFTOVER", message, str(path), Severity.NOTE, rows_missing=False)


def _range_problems(log: PartitionSalvage) -> Iterator[Problem]:
    """Yield what is wrong with the ranges of a log."""
    topic, number = log.topic, log.partition
    for overlap in log.overlaps:
        path, reason = str(overlap.path), overlap.reason
        yield Problem("OFFSET_OVERLAP", reason, path, Severity.ERROR, None, topic, number, False)
    for change in log.changed:
        reason = f"{change.reason} while it was copied: the copy may lack batches"
        yield Problem(
            "FILE_CHANGED", reason, change.path, Severity.ERROR, change.position, topic, number
        )
    for segment in log.segments:
        path = str(log.path if log.path.name == segment.name else log.path / segment.name)
        for loss in segment.losses:
            message = f"{loss.size} bytes lost, {_offsets(loss)}"
            first, count = loss.first_offset, None
            if first is not None and loss.last_offset is not None:
                count = loss.last_offset + 1 - first
            yield Problem(
                loss.symbol, message, path, Severity.ERROR, loss.position, topic, number,
                offset=first, count=count,
            )  # fmt: skip
        for symbol, message, position in _uncertainties(segment):
            yield Problem(symbol, message, path, Severity.WARNING, position, topic, number, False)


def _offsets(loss: LostRange) -> str:
    if loss.first_offset is None and loss.last_offset is None:
        return "of unknown offsets"
    first = "?" if loss.first_offset is None else loss.first_offset
    return f"offsets {first} to {'?' if loss.last_offset is None else loss.last_offset}"


def _uncertainties(segment: SegmentSalvage) -> Iterator[tuple[str, str, int]]:
    """Yield symbol, message and position of what may not be that of the log."""
    for piece in segment.pieces:
        if piece.is_doubtful:
            message = (
                f"kept {piece.batches} batches that may be old data or the content of a damaged"
                " record, or may have wrong headers"
            )
            yield "DOUBTFUL", message, piece.position
    for copy in segment.duplicates:
        offsets = f"offsets {copy.first_offset} to {copy.last_offset}"
        what = (
            f"a copy of the kept batch with {offsets}"
            if copy.kept_in is None
            else f"a range with {offsets}, which {copy.kept_in} keeps,"
        )
        yield "DUPLICATE", f"{what} is left out", copy.position
    for one in segment.repairs:
        if not one.is_certain:
            message = f"{one.field} {one.new} instead of {one.old} is not certain"
            yield "UNCERTAIN", message, one.position


_COPY_REASON = "the batch is a copy of one that is kept"
_ROW: dict[str, Any] = dict.fromkeys(SALVAGE_SCHEMA.names)


def _partition_dict(one: PartitionSalvage) -> dict[str, Any]:
    return {
        "path": str(one.path),
        "destination": None if one.destination is None else str(one.destination),
        "topic": one.topic,
        "partition": one.partition,
        "lost_bytes": one.lost_bytes,
        "left_out": one.left_out,
        "overlaps": [overlap.message for overlap in one.overlaps],
        "changed": [f"{change.path}: {change.reason}" for change in one.changed],
        "error": None if one.error is None else str(one.error),
        "segments": [_segment_dict(segment) for segment in one.segments],
    }


def _segment_dict(segment: SegmentSalvage) -> dict[str, Any]:
    plain = {name: value for name, value in vars(segment).items() if name not in _LISTS}
    return plain | {
        "end": None if segment.end is None else segment.end.name,
        "error": None if segment.error is None else str(segment.error),
        "lost_bytes": segment.lost_bytes,
        **{name: [one._asdict() for one in getattr(segment, name)] for name in _LISTS},
    }


_LISTS = ("pieces", "losses", "duplicates", "repairs")
