"""What is a problem of a log that is read as a whole: the one place that decides it."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path, PurePath
from typing import NamedTuple

from kafkascan.broker_state.checkpoints import CLEANER_CHECKPOINT
from kafkascan.broker_state.offset_checkpoints import CheckpointReader
from kafkascan.format.errors import CHANGED_WHILE_READ, CorruptLogError, KafkaScanError, detached
from kafkascan.format.file_names import (
    GROUPS_TOPIC,
    INTERRUPTED_REWRITE,
    TRANSACTIONS_TOPIC,
    offset_in_full_name,
)
from kafkascan.format.findings import Severity
from kafkascan.format.layout import ScanEnd
from kafkascan.io.folders import Folder, PinnedFolder
from kafkascan.io.sources import Source
from kafkascan.logs.log_dir import PartitionDir, live_segment
from kafkascan.logs.opened_logs import (
    LogChange,
    LogView,
    OffsetCursor,
    OpenedLogs,
    SegmentOverlap,
    change_of,
    rewrite_marks,
)
from kafkascan.logs.segment import SegmentFile, position_after
from kafkascan.logs.walking.batch_offsets import BatchOffsets, SegmentOffsets, below_name
from kafkascan.logs.walking.segment_tails import (
    LogEnd,
    describe_end,
    intact_batches,
    is_preallocated,
)
from kafkascan.tables.table import Problem, Problems, problem_of

CUT_SEGMENT, OFFSET_GAP = "CUT_SEGMENT", "OFFSET_GAP"
"""Symbols of an `IncompleteLogError`."""

OFFSET_OVERLAP = "OFFSET_OVERLAP"
"""Symbol of the problem that offsets go back."""

FUTURE_LOG = "FUTURE_LOG"
"""Symbol of the note that a data dir has a copy of a log which a broker is moving there."""
OFFSET_OUT_OF_SEGMENT = "OFFSET_OUT_OF_SEGMENT"
"""Symbol of the problem that a segment has offsets below the one in its file's name."""

# Kafka creates them with cleanup.policy=compact. Its other topics delete from the start only.
COMPACTED_TOPICS = frozenset({GROUPS_TOPIC, TRANSACTIONS_TOPIC})
_GREATEST = 2**63 - 1


class IncompleteLogError(CorruptLogError):
    """
    Records are missing in a log: a segment before the last one was cut short, or offsets are gone.

    `symbol` is ``CUT_SEGMENT``, ``OFFSET_GAP``, or ``TORN_TAIL`` if the last segment was not cut
    short, but goes on after damage that looks so.
    """


def cut_segment_error(path: str, end: LogEnd) -> IncompleteLogError:
    """Return the error for a torn or zero tail of a segment that is not the last of its log."""
    reason = f"{describe_end(end)}, and the log goes on in the next segment"
    return IncompleteLogError(path, end.position, None, reason, CUT_SEGMENT)


def notes_of_moving(logs: Sequence[LogView]) -> Problems:
    """Return a note for each copy of a log that `live_logs` did not return."""
    moving = logs.moving if isinstance(logs, OpenedLogs) else []
    message = "a broker is moving the log here from another data directory: the copy is not read"
    return Problems(
        Problem(
            FUTURE_LOG,
            message,
            str(one.path),
            Severity.NOTE,
            topic=one.topic,
            partition=one.partition,
            rows_missing=False,
        )
        for one in moving
    )


def rewrite_problems(partition: PartitionDir, names: Iterable[str]) -> Iterator[Problem]:
    """Yield a problem for each mark, among names of files, of a rewrite that did not end."""
    topic, number = partition.topic, partition.partition
    for name in rewrite_marks(names):
        path = str(partition.folder.path / name)
        yield Problem(
            "INTERRUPTED_REWRITE", INTERRUPTED_REWRITE, path, Severity.WARNING,
            None, topic, number, rows_missing=False,
        )  # fmt: skip


class LogProblems:
    """
    Collects the problems of logs while they are read; each is listed once.

    Parameters
    ----------
    logs : sequence of LogView
        Those whose folders could not be listed are problems, copies that are not read are notes.
    """

    def __init__(self, logs: Sequence[LogView] = ()) -> None:
        self._found: dict[Problem, Exception | None] = {}
        self._checkpoints = CheckpointReader(self._add_ignored)
        for one in logs:
            if one.error is not None:
                self.add_error(one.partition, one.partition.path, one.error)
        for note in notes_of_moving(logs):
            self.add(note)

    def add(self, problem: Problem, error: Exception | None = None) -> None:
        """Add a problem, with the error that it is raised as."""
        self._found.setdefault(problem, error)

    def add_error(
        self, partition: PartitionDir, path: Path, error: Exception, offset: int | None = None
    ) -> None:
        """Add the error after which a segment or a log was not read, from an offset on."""
        topic, number = partition.topic, partition.partition
        problem = problem_of(error, str(path), topic=topic, partition=number, offset=offset)
        self.add(problem, error)

    def add_source(self, source: Source, end: LogEnd, offsets: BatchOffsets) -> None:
        """Add what is wrong with a source that was read by itself."""
        if end.error is not None:
            self.add(problem_of(end.error, source.path, offset=offsets.end_offset))
        self.add_offsets(source.path, offsets)
        self._add_tail(source, end, offsets)

    def _add_tail(self, source: Source, end: LogEnd, offsets: BatchOffsets) -> None:
        """Add what follows the last batch of a source that was read by itself."""
        if end.end not in (ScanEnd.TORN_TAIL, ScanEnd.ZERO_TAIL):
            return
        symbol, position = str(end.end), end.position
        lost = intact_batches(end, source, offsets.end_offset)
        is_lost, message = len(lost) > 0, describe_end(end, lost)
        severity = Severity.NOTE if is_preallocated(end.end, position) else Severity.WARNING
        if is_lost:
            severity = Severity.ERROR
        self.add(
            Problem(
                symbol, message, source.path, severity, position, rows_missing=is_lost,
                offset=offsets.end_offset,
            )
        )  # fmt: skip

    def add_offsets(self, path: str, offsets: BatchOffsets) -> None:
        """Add offsets of a source that is read by itself: they go back, or are below its name."""
        named = offset_in_full_name(PurePath(path).name)
        if named is not None and offsets.first is not None and offsets.first[0] < named:
            offset, position, _ = offsets.first
            message = below_name(offset)
            self._add_wrong_offset(OFFSET_OUT_OF_SEGMENT, message, path, position, offset)
        if offsets.disorder is not None:
            offset, position = offsets.disorder
            self._add_wrong_offset(OFFSET_OVERLAP, _disorder(offset), path, position, offset)

    def _add_wrong_offset(
        self, symbol: str, message: str, path: str, position: int, offset: int
    ) -> None:
        severity = Severity.ERROR
        self.add(
            Problem(symbol, message, path, severity, position, rows_missing=False, offset=offset)
        )

    def add_overlaps(self, partition: PartitionDir, overlaps: Iterable[SegmentOverlap]) -> None:
        """Add segments with the same offsets: which of them a consumer gets is a guess."""
        for one in overlaps:
            self.add_guess(
                partition, OFFSET_OVERLAP, one.reason, one.path, severity=Severity.ERROR,
                offset=one.first_offset, count=one.last_offset + 1 - one.first_offset,
            )  # fmt: skip

    def add_rewrite(self, log: LogView) -> None:
        """Add the marks of rewrites in place that did not end."""
        for problem in rewrite_problems(log.partition, log.rewrite_marks):
            self.add(problem)

    def add_guess(
        self,
        partition: PartitionDir,
        symbol: str,
        message: str,
        path: Path,
        position: int | None = None,
        severity: Severity = Severity.WARNING,
        offset: int | None = None,
        count: int | None = None,
    ) -> None:
        """Add a problem because of which no rows are missing."""
        topic, number = partition.topic, partition.partition
        self.add(
            Problem(
                symbol, message, str(path), severity, position, topic, number, False, offset, count
            )
        )

    def add_missing(
        self,
        partition: PartitionDir,
        symbol: str,
        message: str,
        path: Path,
        position: int | None = None,
        severity: Severity = Severity.ERROR,
        offset: int | None = None,
        count: int | None = None,
    ) -> None:
        """Add a problem because of which rows are missing, and which is no error elsewhere."""
        topic, number = partition.topic, partition.partition
        error = IncompleteLogError(str(path), position or 0, None, message, symbol)
        self.add(
            Problem(
                symbol, message, str(path), severity, position, topic, number, True, offset, count
            ),
            error,
        )

    def is_cleaned(self, partition: PartitionDir) -> bool:
        """Return whether its data dir, or Kafka itself, says that a log is compacted."""
        return (
            partition.topic in COMPACTED_TOPICS
            or self._checkpoints.offset_of(partition, CLEANER_CHECKPOINT) > 0
        )

    def _add_ignored(self, path: Path, error: Exception) -> None:
        """Add a checkpoint that cannot be read, which a broker ignores."""
        self.add(
            replace(problem_of(error, str(path)), severity=Severity.WARNING, rows_missing=False)
        )

    @property
    def found(self) -> Problems:
        """The problems so far."""
        return Problems(self._found)

    def take(self) -> Problems:
        """Return the problems since the last call."""
        found, self._found = Problems(self._found), {}
        return found

    def require_complete(self) -> None:
        """Raise the error of the first problem because of which rows are missing."""
        for problem, error in self._found.items():
            if problem.rows_missing and error is not None:
                raise error


# ---- logs ------------------------------------------------------------------------------------

_CHANGES = {
    LogChange.START: "a broker deleted or replaced segments while the log was read: the answer has"
    " offsets of before and of after",
    LogChange.ALL: "a broker deleted all segments of the log before they were read: the answer has"
    " no offsets, and the log has later ones by now",
    LogChange.EMPTIED: "a broker deleted all offsets of the log before they were read",
    LogChange.END: "the end of the log was cut off while it was read: the answer may have offsets"
    " that the log has no more",
    LogChange.DELETED: "the topic was deleted, or the log moved away, while it was read: the answer"
    " lacks what was not read yet",
    LogChange.WHOLE: "another folder took the place of the log's while it was read, as of a topic"
    " that was made again: the answer may have parts of both",
}


class _Gap(NamedTuple):
    """Offsets that are missing in a segment, or between it and the one before."""

    segment: SegmentFile
    message: str
    position: int
    first: int
    missing: int | None
    before: SegmentFile | None = None

    def is_in_place(self) -> bool:
        """Return whether the folder still has the segments, in this order."""
        if self.before is None:
            return self.segment.is_in_place()
        return self.before.is_in_place() and self.segment.is_in_place()


@dataclass
class LogChecks:
    """
    Finds the problems of one log from its segments, which are added in their order.

    A gap in the offsets of a log is no problem if the cleaner has made it. Only after the last
    segment is it known whether something says that the log was compacted.

    Parameters
    ----------
    log : LogView
    problems : LogProblems
        Receives them.
    is_selection : bool, default False
        Whether the segments are files that somebody has chosen: others may be missing.

    Attributes
    ----------
    expected : int or None
        The offset after the segments so far; None before the first one, and after damage.
    last : SegmentFile or None
        The segment that was added last.
    """

    log: LogView
    problems: LogProblems
    is_selection: bool = False
    expected: int | None = None
    last: SegmentFile | None = None
    _is_compacted: bool = False
    _gaps: list[_Gap] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.problems.add_rewrite(self.log)

    def add(self, offsets: SegmentOffsets, end: LogEnd) -> None:
        """Add a segment that was read to its end, or to its damage."""
        self._add_offsets(offsets)
        if not self._add_tail(offsets, end):
            self.expected = None

    def add_offsets(self, offsets: SegmentOffsets) -> None:
        """Add a segment for whose end a caller answers itself."""
        self._add_offsets(offsets)
        if not offsets.is_whole:
            self.expected = None

    def add_error(self, segment: SegmentFile, error: Exception) -> None:
        """Add a segment that cannot be read."""
        self._add_offsets(SegmentOffsets(segment))
        self.problems.add_error(self.log.partition, segment.path, error)
        self.expected = None

    def add_following(self, base_offset: int, position: int) -> None:
        """Add the base offset of a segment that is not read; the last one ends at `position`."""
        if self.last is not None:
            self._note_gap(self.last, self.expected, base_offset, position)

    def add_newer(self, folder: Folder) -> None:
        """Add the segment after the last one that was read, of the newest listing of a folder."""
        newer = folder.newer if isinstance(folder, PinnedFolder) else None
        if newer is None or self.last is None:
            return
        after = bisect_right(newer.live_logs, self.last.base_offset or 0, key=itemgetter(0))
        if after < len(newer.live_logs):
            following = live_segment(newer, after)
            self._note_gap(following, self.expected, following.base_offset or 0, 0)

    @property
    def has_gaps(self) -> bool:
        """Whether offsets are missing, and no batch so far shows that the log was compacted."""
        return bool(self._gaps) and not self._is_compacted

    def forgive_gaps(self) -> None:
        """Note that the log was compacted, which leaves gaps."""
        self._is_compacted = True

    def skip(self) -> None:
        """Leave a segment out, because nothing of it is asked for."""
        self.expected = None

    def finish(self) -> None:
        """Add that the log changed, and the gaps, if nothing says that it was compacted."""
        gaps: list[_Gap] = []
        if self.has_gaps and not (
            self.is_selection or self.problems.is_cleaned(self.log.partition)
        ):
            gaps = self._gaps
        # Retention or the cleaner went on while the log was read.
        are_in_place = [gap.is_in_place() for gap in gaps]
        change = change_of(self.log)
        if change is None and not all(are_in_place):
            change = LogChange.START
        if change is not None:
            self._add_change(change)
        for one in itertools.compress(gaps, are_in_place):
            self.problems.add_missing(
                self.log.partition,
                OFFSET_GAP,
                f"{one.message}; compaction leaves such gaps, but nothing else shows that the log"
                " was compacted",
                one.segment.path,
                one.position,
                Severity.WARNING,
                one.first,
                one.missing,
            )

    def _add_change(self, change: LogChange) -> None:
        segments = self.log.segments
        folder = segments[0].folder if segments else self.log.partition.folder
        gone = folder.gone if isinstance(folder, PinnedFolder) else None
        is_note = change in (LogChange.START, LogChange.EMPTIED, LogChange.DELETED)
        severity = Severity.NOTE if is_note else Severity.WARNING
        self.problems.add_guess(
            self.log.partition, CHANGED_WHILE_READ, _CHANGES[change],
            folder.path / gone if gone else folder.path, severity=severity,
        )  # fmt: skip

    def _add_offsets(self, one: SegmentOffsets) -> None:
        segment, named = one.segment, one.segment.base_offset
        self._is_compacted |= one.is_cleaned
        if one.misplaced is not None:
            offset, position = one.misplaced
            self._guess(OFFSET_OUT_OF_SEGMENT, below_name(offset), segment, position, offset)
        expected = named if self.expected is None else self.expected
        if one.first is not None:
            first, position, is_wrapper = one.first
            self._note_gap(segment, expected, max(named or 0, 0 if is_wrapper else first), position)
        else:
            self._note_gap(segment, expected, named or 0, 0)
        if one.gap is not None and one.gap[1] > self.log.start_offset:
            first, following, position = one.gap
            more = f", and {one.gaps - 1:,} more ranges" if one.gaps > 1 else ""
            if one.disorder is not None and one.disorder[1] > position:
                more += f"; the offset then goes back to {one.disorder[0]}"
            message, start = _missing(first, following) + more, max(first, self.log.start_offset)
            count = one.missing - (start - first)
            is_known = one.disorder is None and count <= _GREATEST
            self._gaps.append(_Gap(segment, message, position, start, count if is_known else None))
        if one.disorder is not None:
            offset, position = one.disorder
            self._guess(OFFSET_OVERLAP, _disorder(offset), segment, position, offset)
        if expected is not None:
            base = max(expected, named or 0)
            self.expected = position_after(base, named or 0, one.end_offset)
        if one.is_after_loss:
            self.expected = None
        self.last = segment

    def _guess(
        self, symbol: str, message: str, segment: SegmentFile, position: int, offset: int
    ) -> None:
        partition, severity = self.log.partition, Severity.ERROR
        self.problems.add_guess(
            partition, symbol, message, segment.path, position, severity, offset
        )

    def _note_gap(
        self, segment: SegmentFile, expected: int | None, found: int, position: int
    ) -> None:
        first = max(expected or 0, self.log.start_offset)
        if expected is not None and found > first:
            count = found - first
            self._gaps.append(
                _Gap(segment, _missing(first, found), position, first, count, self.last)
            )

    def _add_tail(self, offsets: SegmentOffsets, end: LogEnd) -> bool:
        """Add how a segment ends; return whether it is whole."""
        partition, segment, position = self.log.partition, offsets.segment, end.position
        end_offset = offsets.end_offset
        if end.error is not None:
            self.problems.add_error(partition, segment.path, end.error, end_offset)
            return False
        if end.end not in (ScanEnd.TORN_TAIL, ScanEnd.ZERO_TAIL):
            return True
        if self._goes_on_after(segment):
            reason = cut_segment_error(str(segment.path), end).reason
            self.problems.add_missing(
                partition, CUT_SEGMENT, reason, segment.path, position, offset=end_offset
            )
            return False
        try:
            with segment.borrow() as source:
                lost = intact_batches(end, source, end_offset)
        except (OSError, KafkaScanError) as error:
            self.problems.add_error(partition, segment.path, detached(error), end_offset)
            return False
        symbol, message = str(end.end), describe_end(end, lost)
        if len(lost):
            self.problems.add_missing(
                partition, symbol, message, segment.path, position, offset=end_offset
            )
            return False
        # A broker that runs may be writing the last batch now.
        has_grown = segment.current_size() > position + end.trailing_bytes
        is_note = is_preallocated(end.end, position) or has_grown
        severity = Severity.NOTE if is_note else Severity.WARNING
        self.problems.add_guess(
            partition, symbol, message, segment.path, position, severity, end_offset
        )
        return True

    def _goes_on_after(self, segment: SegmentFile) -> bool:
        """Return whether other segments follow, in the listing that found a segment, and now."""
        if self.is_selection:
            return False
        last, folder = self.log.segments[-1], segment.folder
        if isinstance(folder, PinnedFolder) and folder is not last.folder:
            last = live_segment(folder, -1)
        return segment != last and last.is_in_place()


def offset_problems(log: LogView, offsets: Iterable[SegmentOffsets]) -> Problems:
    """Return what is wrong with the offsets of a log's segments, and between them."""
    problems, cursor = LogProblems(), OffsetCursor()
    checks = LogChecks(log, problems)
    for one in offsets:
        problems.add_overlaps(log.partition, cursor.add(one.segment, one.end_offset))
        checks.add_offsets(one)
    checks.finish()
    return problems.found


def _missing(first: int, following: int) -> str:
    return f"offsets from {first} to {following - 1} are missing"


def _disorder(offset: int) -> str:
    return f"offset {offset} follows an equal or higher offset"
