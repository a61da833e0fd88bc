"""Compare replicas, backups and mirrors by their batch headers, without reading records."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import ClassVar, Literal, TypeAlias

import numpy as np

from kafkascan.analysis.alignment import (
    Alignment,
    DisorderError,
    LeftOut,
    WithdrawnRowsError,
    align_by_content,
    align_by_offset,
    without_common,
)
from kafkascan.analysis.analysis_schemas import DIFF_SCHEMA
from kafkascan.analysis.diff_ranges import (
    DiffKind,
    DiffRange,
    OffsetShift,
    RangeLocation,
    offset_shifts,
    ranges_of_block,
)
from kafkascan.analysis.fingerprints import (
    FINGERPRINT,
    FingerprintedLog,
    FingerprintRows,
    Fingerprints,
    LogFingerprints,
    LogTables,
    LogToRead,
    key_of,
    logs_to_read,
    threads_of,
    whole_fingerprints,
    with_checkpoints,
)
from kafkascan.broker_state.checkpoints import LeaderEpoch
from kafkascan.broker_state.leader_epochs import assign_epoch
from kafkascan.format.findings import Severity
from kafkascan.format.texts import few_lines, json_text
from kafkascan.io.concurrency import map_parts
from kafkascan.logs.log_finding import PartitionFilter
from kafkascan.logs.log_problems import OFFSET_GAP
from kafkascan.logs.opened_logs import LogsLike
from kafkascan.tables.schema import Schema
from kafkascan.tables.table import NO_PROBLEMS, AnyTable, Column, Problem, Problems, plain_rows

LOG_CHANGED = "LOG_CHANGED"
"""Symbol of the note that a broker changed a log each time that it was read."""


@dataclass(frozen=True)
class EpochHistory:
    """
    The leader epochs of a log; returned by `epoch_history`.

    Attributes
    ----------
    epochs, starts : list of int
        Epochs, ascending, and the offsets at which they start.
    log_end : int
        The offset after the last batch.
    """

    epochs: list[int]
    starts: list[int]
    log_end: int

    @property
    def last(self) -> int | None:
        """The last epoch; None without epochs."""
        return self.epochs[-1] if self.epochs else None

    def end_of(self, epoch: int) -> tuple[int | None, int]:
        """
        Return the largest epoch that is at most this one, and its end offset.

        An epoch before the first one ends where that begins, and a later one than the last is
        known to a leader that has not written yet (``LeaderEpochFileCache.endOffsetFor``).
        """
        if not self.epochs:
            return None, 0
        index = int(np.searchsorted(self.epochs, epoch, side="right"))
        end = self.starts[index] if index < len(self.starts) else self.log_end
        return (self.epochs[index - 1] if index else epoch), end


def epoch_history(rows: FingerprintRows, checkpoint: Iterable[LeaderEpoch] = ()) -> EpochHistory:
    """
    Return the leader epochs of a log.

    Parameters
    ----------
    rows : array of FINGERPRINT
    checkpoint : iterable of LeaderEpoch
        Entries of ``leader-epoch-checkpoint``: a leader adds an epoch before it writes batches.
    """
    entries = list(checkpoint)
    epochs = np.ascontiguousarray(rows["leader_epoch"])
    # Epochs rarely change, and the highest one so far changes only where they do.
    heads = np.flatnonzero(np.append(len(rows) > 0, epochs[1:] != epochs[:-1]))
    highest = np.maximum.accumulate(epochs[heads]) if len(heads) else epochs[heads]
    is_new = np.diff(highest, prepend=np.int32(-1)) > 0
    offsets = rows["first_offset"][heads[is_new]].tolist()
    for epoch, offset in zip(highest[is_new].tolist(), offsets, strict=True):
        if not entries or epoch > entries[-1].epoch:
            assign_epoch(entries, LeaderEpoch(epoch, offset))
    return EpochHistory(
        epochs=[one.epoch for one in entries],
        starts=[one.start_offset for one in entries],
        log_end=int(rows["last_offset"][-1]) + 1 if len(rows) else 0,
    )


def truncation_offset(leader: EpochHistory, follower: EpochHistory) -> int | None:
    """
    Return the offset at which a broker truncates a log when it begins to follow another one.

    Parameters
    ----------
    leader, follower : EpochHistory

    Returns
    -------
    int or None
        None if the log is not truncated.

    Notes
    -----
    The follower asks for the end of its last epoch, and continues with the epoch that the leader
    returns until both logs have it (KIP-101, KIP-279;
    ``AbstractFetcherThread.getOffsetTruncationState``).
    """
    epoch = follower.last
    while epoch is not None:
        known, end = leader.end_of(epoch)
        if known is None:
            return None
        same, own_end = follower.end_of(known)
        if same == known:
            offset = min(end, own_end)
            return None if offset >= follower.log_end else offset
        epoch = same
    return None


def diverging_offset(rows: FingerprintRows, other: EpochHistory) -> int | None:
    """
    Return the first offset of batches that another log cannot get by replication.

    Their epochs are older than the one that the other log has at the same offset: its leader of
    that epoch did not have these batches.

    Parameters
    ----------
    rows : array of FINGERPRINT
    other : EpochHistory

    Returns
    -------
    int or None
        None if there are none.
    """
    if not other.epochs:
        return None
    at = np.searchsorted(other.starts, rows["last_offset"], side="right")
    begun = np.append(-1, other.epochs)[at]
    is_older = (rows["leader_epoch"] >= 0) & (rows["leader_epoch"] < begun)
    return int(rows["first_offset"][np.argmax(is_older)]) if is_older.any() else None


@dataclass
class PartitionDiff:
    """
    The differences of two logs.

    Attributes
    ----------
    topic : str or None
    partition : int or None
        Of the left log, or of the right log if there is no left one.
    is_in_left, is_in_right : bool
    left_batches, right_batches, same_batches : int
    epoch_changes : int
        Same batches with different leader epochs, which no checksum covers.
    ranges : list of DiffRange
    shifts : list of OffsetShift
        Shifts of the offsets of same batches, if offsets may be shifted.
    truncation_offset : int or None
        Offset at which a broker would truncate the right log if it followed the left one, by
        leader epochs (KIP-101, KIP-279); None if it would not truncate it.
    left_diverging_offset, right_diverging_offset : int or None
        First offset at the end of this log whose batch is in an older leader epoch than the
        other log has there. The other log does not get this batch by replication: a broker
        truncates it when it follows the other log. Epochs without batches count.
    left_cleaned_up_to, right_cleaned_up_to : int
        Offsets up to which the cleaner may have removed records from this log.
    problems : Problems
        What was not read of either log, and segments with the same offsets, of which one is
        stale: each offset is compared once, from the first of them.
    """

    topic: str | None
    partition: int | None
    is_in_left: bool = True
    is_in_right: bool = True
    left_batches: int = 0
    right_batches: int = 0
    same_batches: int = 0
    epoch_changes: int = 0
    ranges: list[DiffRange] = field(default_factory=list)
    shifts: list[OffsetShift] = field(default_factory=list)
    truncation_offset: int | None = None
    left_diverging_offset: int | None = None
    right_diverging_offset: int | None = None
    left_cleaned_up_to: int = 0
    right_cleaned_up_to: int = 0
    problems: Problems = NO_PROBLEMS

    @property
    def differences(self) -> list[DiffRange]:
        """Ranges that retention, lag and compaction do not explain."""
        return [one for one in self.ranges if not self._is_explained(one)]

    def _is_explained(self, one: DiffRange) -> bool:
        left_last, right_last = one.left_last_offset, one.right_last_offset
        if one.kind is DiffKind.ONLY_LEFT and left_last is not None:
            diverging, cleaned_up_to = self.left_diverging_offset, self.right_cleaned_up_to
            return _is_missing_by_design(one.location, left_last, diverging, cleaned_up_to)
        if one.kind is DiffKind.ONLY_RIGHT and right_last is not None:
            diverging, cleaned_up_to = self.right_diverging_offset, self.left_cleaned_up_to
            return _is_missing_by_design(one.location, right_last, diverging, cleaned_up_to)
        if one.kind is DiffKind.COMPACTED and left_last is not None:
            return left_last < self._cleaned_where_fewer(one)
        return False

    def _cleaned_where_fewer(self, one: DiffRange) -> int:
        """Return how far the log with fewer records was cleaned; of both, if they have as many."""
        left, right = one.left_records or 0, one.right_records or 0
        if left == right:
            return max(self.left_cleaned_up_to, self.right_cleaned_up_to)
        return self.left_cleaned_up_to if left < right else self.right_cleaned_up_to

    @property
    def first_divergence(self) -> int | None:
        """First offset, of the left log where it has one, at which content differs."""
        if not self.differences:
            return None
        first = self.differences[0]
        offset = first.left_first_offset
        return first.right_first_offset if offset is None else offset

    @property
    def is_same(self) -> bool:
        """Whether both logs exist, were read without errors, and have no `differences`."""
        is_read = all(one.severity is Severity.NOTE for one in self.problems)
        return self.is_in_left and self.is_in_right and not self.differences and is_read

    def __repr__(self) -> str:
        name = f"{self.topic}-{self.partition}"
        lines = [
            f"  {one.kind} ({one.location}): left {one.left_first_offset} to"
            f" {one.left_last_offset}, right {one.right_first_offset} to"
            f" {one.right_last_offset}"
            for one in self.ranges
        ]
        title = f"<PartitionDiff {name}: {self.same_batches:,} batches are the same>"
        return few_lines(title, lines)


def _is_missing_by_design(
    location: RangeLocation, last_offset: int, diverging_offset: int | None, cleaned_up_to: int
) -> bool:
    """Return whether retention, lag or compaction explain that the other log lacks a range."""
    if location is RangeLocation.END:
        return diverging_offset is None or last_offset < diverging_offset
    # The cleaner never removes a whole log.
    is_cleaned = location is not RangeLocation.ALL and last_offset < cleaned_up_to
    return is_cleaned or location is RangeLocation.START


@dataclass(repr=False)
class LogDiff(AnyTable):
    """
    The differences of two logs or two sets of logs, a row per range; returned by `diff_logs`.

    Attributes
    ----------
    left, right : str
        The compared logs.
    partitions : list of PartitionDiff
    notes : Problems
        Copies of logs that brokers were moving between data dirs: they were not compared.
    """

    schema: ClassVar[Schema] = DIFF_SCHEMA

    left: str
    right: str
    partitions: list[PartitionDiff]
    notes: Problems = NO_PROBLEMS

    @property
    def problems(self) -> Problems:
        """What was not compared, and segments with the same offsets."""
        return Problems([*self.notes, *(one for diff in self.partitions for one in diff.problems)])

    @property
    def is_same(self) -> bool:
        """Whether all partitions are the same."""
        return all(one.is_same for one in self.partitions)

    def __len__(self) -> int:
        return sum(len(one.ranges) for one in self.partitions)

    def to_columns(self) -> dict[str, Column]:
        """Return the values of each column."""
        rows = [
            {"topic": one.topic, "partition": one.partition, **vars(found),
             "is_difference": found in one.differences}
            for one in self.partitions
            for found in one.ranges
        ]  # fmt: skip
        return {name: [row[name] for row in rows] for name in DIFF_SCHEMA.names}

    def to_json(self, *, indent: int | None = 2) -> str:
        """Return the complete result as a JSON document."""
        partitions = [
            asdict(one)
            | {"problems": plain_rows(one.problems)}
            | {"first_divergence": one.first_divergence, "is_same": one.is_same}
            for one in self.partitions
        ]
        document = {"left": self.left, "right": self.right, "is_same": self.is_same}
        document |= {"is_complete": self.is_complete, "problems": plain_rows(self.problems)}
        return json_text(document | {"partitions": partitions}, indent=indent)

    def _summary_lines(self) -> list[str]:
        verdict = "the same" if self.is_same else "not the same"
        differing_first = sorted(self.partitions, key=lambda one: (one.is_same, not one.ranges))
        lines = (line for one in differing_first for line in repr(one).splitlines())
        title = f"<LogDiff {self.left} and {self.right}: {verdict}>"
        return few_lines(title, lines).split("\n")


def diff_logs(
    left: LogsLike | Fingerprints,
    right: LogsLike | Fingerprints,
    /,
    *,
    topics: Collection[str] | None = None,
    partitions: Collection[int] | None = None,
    offsets: Literal["same", "shifted"] = "same",
    compacted: bool = False,
    log_start_offset: int | None = None,
    threads: int | None = None,
) -> LogDiff:
    """
    Compare replicas, a backup and its source, or a topic and its mirror.

    Parameters
    ----------
    left, right : path, LogDir, PartitionDir, Fingerprints, bytes-like, Source or SegmentFile
        Data directories, partition directories, tar archives of them, segments, or files of
        fingerprints (`Fingerprints.save`), which can be carried to another host. Segment
        boundaries need not agree. Partitions are matched by name; two single logs are compared
        whatever their names are.
    topics : collection of str, optional
        Topics to read of a directory or an archive; by default all.
    partitions : collection of int, optional
        Numbers of the partitions to read; by default all.
    offsets : {"same", "shifted"}
        Whether the same content has the same offsets, or may have other offsets, as in a mirror
        that copies batches unchanged.
    compacted : bool, default False
        Whether the topics are compacted: in either log, records that are missing and batches
        that the cleaner rewrote are not a difference then. By default that applies to the
        offsets below those in the ``cleaner-offset-checkpoint`` of each log's data dir.
    log_start_offset : int, optional
        See `read_fingerprints`.
    threads : int, optional
        See `read_fingerprints`.

    Returns
    -------
    LogDiff

    Raises
    ------
    As `read_fingerprints`.

    Notes
    -----
    Two batches count as the same if their sizes and checksums are equal. The checksum covers
    everything that a leader does not write (``DefaultRecordBatch.computeChecksum``). This is
    evidence, not proof: one in 2**32 changes is missed, and so is damage that left the stored
    checksum unchanged; `verify_crcs` finds such damage. The content of batches that were
    rebatched is not compared.

    Two logs are read side by side, in memory for 39 bytes of each batch that differs. All batches
    of both are kept if offsets may be shifted, or do not ascend; of a log that only one side has;
    and of a damaged segment, while it is read.

    Logs that differ are read again, a few times, if retention or the cleaner of a running broker
    changed one of them meanwhile. Differences that remain have a note, ``LOG_CHANGED``, if the log
    changed each time.
    """
    if offsets not in ("same", "shifted"):
        raise ValueError(f"offsets must be 'same' or 'shifted', not {offsets!r}")
    wanted = PartitionFilter.of(topics, partitions)
    mine, theirs = (logs_to_read(one, wanted, log_start_offset) for one in (left, right))
    notes = Problems(dict.fromkeys([*mine.notes, *theirs.notes]))
    comparison = _Comparison(offsets, compacted, log_start_offset)
    read = comparison.read(list(_paired(mine.logs, theirs.logs)), threads)
    return LogDiff(mine.path, theirs.path, list(map(comparison.of, read)), notes)


def _paired(left: list[LogToRead], right: list[LogToRead]) -> Iterator[_PairToRead]:
    if len(left) == len(right) == 1:
        yield left[0], right[0]
        return
    mine, theirs = ({key_of(one): one for one in logs} for logs in (left, right))
    for key in dict.fromkeys([*mine, *theirs]):
        yield mine.get(key), theirs.get(key)


_PairToRead: TypeAlias = tuple[LogToRead | None, LogToRead | None]


@dataclass(frozen=True, eq=False)
class _Pair:
    """
    Two logs that were read, without most of the batches that are the same.

    Attributes
    ----------
    left, right : FingerprintedLog or None
        None if there is no such log.
    left_out : LeftOut
    """

    left: FingerprintedLog | None
    right: FingerprintedLog | None
    left_out: LeftOut

    @property
    def logs(self) -> list[FingerprintedLog]:
        """Those that there are."""
        return [one for one in (self.left, self.right) if one is not None]

    def has_changed(self) -> bool:
        """Return whether a broker changed one of two logs since it was listed."""
        return len(self.logs) == 2 and any(one.has_changed() for one in self.logs)


# Pauses before a pair is read again: the cleaner needs some time from one step to the next one.
_PAUSES_S = (0.01, 0.03, 0.1, 0.3)


@dataclass(frozen=True)
class _Comparison:
    """How logs are compared; see `diff_logs`."""

    offsets: Literal["same", "shifted"]
    compacted: bool
    log_start_offset: int | None

    def read(self, pairs: Sequence[_PairToRead], threads: int | None) -> list[_Pair]:
        """Read pairs of logs."""
        logs = [one for pair in pairs for one in pair if one is not None]
        found = map_parts(pairs, self._read, threads_of(logs, threads))
        rows = [one for mine, theirs, _ in found for one in (mine, theirs) if one is not None]
        done = iter(with_checkpoints(zip(logs, rows, strict=True)))
        return [
            _Pair(None if left is None else next(done), None if right is None else next(done), out)
            for left, right, out in found
        ]

    def _read(
        self, pair: _PairToRead
    ) -> tuple[LogFingerprints | None, LogFingerprints | None, LeftOut]:
        left, right = pair
        if self.offsets == "same" and left is not None and right is not None:
            with contextlib.suppress(DisorderError):
                return _read_side_by_side(left, right)
        mine, theirs = (None if one is None else whole_fingerprints(one) for one in pair)
        return mine, theirs, LeftOut()

    def of(self, pair: _Pair) -> PartitionDiff:
        """
        Compare two logs, and again as long as they differ and a broker changes one of them.

        They are not read at one moment, and the cleaner writes how far it came only after it has
        replaced the segments. So a difference counts only between logs that stayed as they were.
        """
        for seconds in _PAUSES_S:
            diff = self._compare(pair)
            if diff.is_same or not pair.has_changed():
                return diff
            time.sleep(seconds)
            pair = self._read_again(pair)
        diff = self._compare(pair)
        if not diff.is_same and len(pair.logs) == 2:
            notes = [_note_of_change(one) for one in pair.logs if one.has_changed()]
            diff.problems = Problems([*diff.problems, *dict.fromkeys(notes)])
        return diff

    def _read_again(self, pair: _Pair) -> _Pair:
        """Return a pair as it is now; as it was if one cannot be listed any more."""
        left, right = (one.listed_again(self.log_start_offset) for one in pair.logs)
        if left is None or right is None:
            return pair
        return self.read([(left, right)], threads=1)[0]

    def _compare(self, pair: _Pair) -> PartitionDiff:
        return _compare(
            None if pair.left is None else pair.left.fingerprints,
            None if pair.right is None else pair.right.fingerprints,
            pair.left_out,
            offsets=self.offsets,
            compacted=self.compacted,
        )


def _read_side_by_side(
    left: LogToRead, right: LogToRead
) -> tuple[LogFingerprints, LogFingerprints, LeftOut]:
    """Read two logs without most of the batches that are the same."""
    for by_segment in (False, True):
        mine, theirs = (LogTables.of(one, by_segment=by_segment) for one in (left, right))
        with contextlib.suppress(WithdrawnRowsError):
            rows, other_rows, left_out = without_common(mine, theirs)
            return mine.fingerprints(rows), theirs.fingerprints(other_rows), left_out
    return whole_fingerprints(left), whole_fingerprints(right), LeftOut()


def _note_of_change(one: FingerprintedLog) -> Problem:
    assert one.listed is not None
    partition = one.listed.partition
    return Problem(
        LOG_CHANGED,
        f"the log changed each of the {len(_PAUSES_S) + 1} times that it was read: retention or"
        " the cleaner may have caused differences",
        str(partition.path),
        Severity.NOTE,
        topic=partition.topic,
        partition=partition.partition,
        rows_missing=False,
    )


_NO_ROWS = np.empty(0, FINGERPRINT)


def _compare(
    one: LogFingerprints | None,
    other: LogFingerprints | None,
    left_out: LeftOut,
    *,
    offsets: Literal["same", "shifted"],
    compacted: bool,
) -> PartitionDiff:
    named = one or other
    assert named is not None
    left = one or LogFingerprints(named.topic, named.partition, _NO_ROWS)
    right = other or LogFingerprints(named.topic, named.partition, _NO_ROWS)
    align = align_by_offset if offsets == "same" else align_by_content
    alignment = align(left.rows, right.rows)
    diff = PartitionDiff(
        named.topic,
        named.partition,
        is_in_left=one is not None,
        is_in_right=other is not None,
        left_batches=len(left.rows) + left_out.batches,
        right_batches=len(right.rows) + left_out.batches,
        same_batches=len(alignment) + left_out.batches,
        problems=Problems(
            problem
            for problem in (*left.problems, *right.problems)
            if not (compacted and problem.symbol == OFFSET_GAP)
        ),
    )
    has_offsets = offsets == "same"
    if has_offsets:
        diff.epoch_changes = alignment.epoch_changes + left_out.epoch_changes
        diff.left_cleaned_up_to = left.cleaned_up_to
        diff.right_cleaned_up_to = right.cleaned_up_to
        _compare_epochs(diff, left, right, alignment)
    else:
        diff.shifts = offset_shifts(alignment, left.rows, right.rows)
    if compacted:
        diff.left_cleaned_up_to = diff.right_cleaned_up_to = _EVERYWHERE
    is_compacted = max(diff.left_cleaned_up_to, diff.right_cleaned_up_to) > 0
    for block in alignment.blocks:
        diff.ranges += ranges_of_block(
            block, left.rows, right.rows, has_offsets=has_offsets, is_compacted=is_compacted
        )
    return diff


_EVERYWHERE = 2**63 - 1


def _compare_epochs(
    diff: PartitionDiff, left: LogFingerprints, right: LogFingerprints, alignment: Alignment
) -> None:
    mine = epoch_history(left.rows, left.epochs)
    theirs = epoch_history(right.rows, right.epochs)
    diff.truncation_offset = truncation_offset(mine, theirs)
    for block in alignment.blocks[-1:]:
        if block.is_last:
            diff.left_diverging_offset = diverging_offset(left.rows[block.left], theirs)
            diff.right_diverging_offset = diverging_offset(right.rows[block.right], mine)
