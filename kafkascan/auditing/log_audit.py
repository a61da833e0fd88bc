"""The audit of one log: its batches, segments, producers and transactions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkascan.analysis.transaction_contradictions import (
    Coordinators,
    Owner,
    coordinator_clause,
    is_within_timeout,
)
from kafkascan.analysis.transaction_follower import (
    TransactionFollower,
    abort_command,
    at_latest_write,
    is_empty,
)
from kafkascan.auditing.cluster_checks import OpenTransaction
from kafkascan.auditing.epoch_checks import EpochChecks, EpochFile, read_epoch_file
from kafkascan.auditing.finding_kinds import ERROR, NOTE, FoundInLog, LogFinding
from kafkascan.auditing.header_checks import HeaderChecks, Limits, size_limit
from kafkascan.auditing.segment_checks import SegmentChecks, TableChecks
from kafkascan.auditing.side_file_checks import (
    AbortedCheck,
    SnapshotCheck,
    check_folder,
)
from kafkascan.batches.columns import BatchTable, offset_after
from kafkascan.broker_state.checkpoints import LeaderEpoch
from kafkascan.broker_state.index_checks import is_padded
from kafkascan.broker_state.markers import ControlRows, TransactionState
from kafkascan.format.errors import SENTENCES, STATUS, CorruptBatchError, KafkaScanError
from kafkascan.format.file_names import BROKERS_TOPICS
from kafkascan.format.layout import ScanEnd
from kafkascan.format.times import age_text
from kafkascan.logs.log_chunks import InspectedChunk, LogChunk, SegmentEnd
from kafkascan.logs.log_problems import COMPACTED_TOPICS, OFFSET_GAP
from kafkascan.logs.metadata_log import TopicConfig
from kafkascan.logs.opened_logs import LogView
from kafkascan.logs.walking.log_walk import InspectedSlice
from kafkascan.logs.walking.segment_tails import describe_end, intact_batches
from kafkascan.tables.table import Problems


class LogCheckpoints(NamedTuple):
    """
    Offsets of a log in the checkpoints of its data dir; 0 if a checkpoint does not list it.

    Attributes
    ----------
    cleaned_up_to : int
        Offset up to which the cleaner has come.
    high_watermark : int
        Offset up to which the log was replicated.
    recovery_point : int
        Offset up to which the log was flushed.
    log_start_offset : int
        First offset of the log. If it is behind the end, a broker deletes all segments.
    """

    cleaned_up_to: int = 0
    high_watermark: int = 0
    recovery_point: int = 0
    log_start_offset: int = 0


@dataclass(eq=False)
class AuditedLog:
    """
    A log to audit, with the information that is known before it is read.

    Attributes
    ----------
    log : LogView
    checkpoints : LogCheckpoints
    config : TopicConfig
        Settings of its topic.
    now_ms : int or None
        Time relative to which its transactions are old; None for that of its latest write.
    is_snapshot : bool
        Whether it is a KRaft snapshot: only its batches are checked.
    coordinators : Coordinators
        Of its transactions; the logs of an audit share one.
    """

    log: LogView
    checkpoints: LogCheckpoints
    config: TopicConfig
    now_ms: int | None = None
    is_snapshot: bool = False
    coordinators: Coordinators = field(default_factory=Coordinators)


class _StateChecks(NamedTuple):
    """Checks that follow the state of a log: producers, transactions, its end."""

    latest_epoch: LeaderEpoch
    snapshots: SnapshotCheck
    follower: TransactionFollower
    aborted: AbortedCheck


class LogAudit:
    """
    Checks the files of a log's folder, and then its batches, slice by slice.

    Parameters
    ----------
    audited : AuditedLog
    limits : Limits
    names : collection of str
        Names of the files in the folder.

    Attributes
    ----------
    opened : list of OpenTransaction
        The open transactions, after `finish`.
    """

    def __init__(self, audited: AuditedLog, limits: Limits, names: Collection[str]) -> None:
        self._audited = audited
        self._log = log = audited.log
        self._limits = limits
        self._found = found = FoundInLog.of(log.partition)
        self._names = [segment.file_name for segment in log.segments]
        self._bases = [segment.base_offset for segment in log.segments]
        self._sizes = [0] * len(log.segments)
        # A KRaft snapshot is named by its end offset.
        lowest = [-1 if one is None or audited.is_snapshot else one for one in self._bases]
        largest = size_limit(limits, audited.config)
        self._headers = HeaderChecks(limits, largest, np.array(lowest, np.int64))
        self._tombstones = self._empty_transactions = 0
        self._is_damaged = False
        self.opened: list[OpenTransaction] = []
        epochs, self._state = None, None
        if not audited.is_snapshot:
            check_folder(log, names, found)
            epochs = read_epoch_file(log.partition, names, found)
            self._state = self._start_state(epochs, names)
        self._epochs = EpochChecks(epochs, found, self._names)

    def _start_state(self, epochs: EpochFile | None, names: Collection[str]) -> _StateChecks:
        snapshots = SnapshotCheck(self._log, names, self._found)
        follower = TransactionFollower(
            0, snapshots.known, self._bases[0] or 0 if self._bases else 0,
            str(self._log.partition.path), self._limits.expiration_ms,
            of_clients=self._log.partition.topic not in BROKERS_TOPICS,
        )  # fmt: skip
        # A source by itself has no side files that could lack anything.
        aborted = AbortedCheck(self._found, is_enabled=bool(names))
        latest = LeaderEpoch(-1, 0) if epochs is None else epochs.latest_entry
        return _StateChecks(latest, snapshots, follower, aborted)

    def add(self, part: InspectedSlice[TableChecks, SegmentChecks]) -> NDArray[np.bool_] | None:
        """Check the next batches; return which have wrong checksums, or None if none has."""
        batches, control, chunk = part.batches, part.control, part.chunk
        self._note_tables(chunk)
        is_bad = _bad_rows(chunk)
        starts = [row for row, _ in chunk.tables]
        before = self._headers.next_offset
        flags, found = self._headers.add(batches, chunk.segment, part.flags, starts, is_bad)
        for kind in found:
            kind.add_to(self._found, self._names)
        segment = chunk.segment
        if is_bad is not None:
            self._is_damaged = True
            batches, control = _intact(batches, control, is_bad)
            segment = segment[~is_bad]
        self._epochs.add(batches, segment, flags)
        if self._state is not None:
            self._follow(self._state, batches, control, flags)
        for end, checks in zip(chunk.ends, chunk.end_checks, strict=True):
            is_in_use = checks is not None and is_padded(one for _, one in checks.of_indexes)
            offset = self._offset_after(chunk, end.segment, before)
            self._note_end(end, offset, is_in_use=is_in_use)
            if checks is not None:
                self._note_indexes(end.segment, checks)
        return is_bad

    def _follow(
        self, state: _StateChecks, batches: BatchTable, control: ControlRows, flags: int
    ) -> None:
        follower = state.follower
        was_known = follower.error is None
        ended = follower.add_batches(batches, control, flags, state.snapshots.pauses(batches))
        if len(ended):
            empty = is_empty(ended)
            self._empty_transactions += int(empty.sum())
            is_aborted = ended["state"] == TransactionState.ABORTED
            state.aborted.add(ended[is_aborted & ~empty])
        error = follower.error
        if was_known and isinstance(error, CorruptBatchError):
            self._is_damaged = True
            self._found.add("BAD_MARKER", None, str(error), offset=error.base_offset)

    def _note_tables(self, chunk: InspectedChunk[TableChecks, SegmentChecks]) -> None:
        for row, table in chunk.tables:
            self._tombstones += table.tombstones
            if table.is_bad is not None:
                message = SENTENCES[STATUS["CHECKSUM_MISMATCH"]]
                self._note_rows(
                    "CHECKSUM_MISMATCH", chunk, row + np.flatnonzero(table.is_bad), message
                )
            for symbol, at, message in table.of_records:
                self._note_rows(symbol, chunk, np.array([row + at]), message)

    def _note_rows(
        self, symbol: str, chunk: LogChunk, rows: NDArray[np.intp], message: str
    ) -> None:
        batch = chunk.batches[rows[0]]
        self._found.add(
            symbol,
            self._names[chunk.segment[rows[0]]],
            message,
            position=int(batch["position"]),
            offset=int(batch["base_offset"]),
            count=len(rows),
        )

    def _offset_after(self, chunk: LogChunk, number: int, before: int) -> int:
        """Return the offset after the last batch of a segment; damaged bytes do not contain it."""
        row = int(np.searchsorted(chunk.segment, number, "right"))
        end = before if row == 0 else offset_after(chunk.batches[:row])
        return max(end, self._bases[number] or 0)

    def _note_end(self, end: SegmentEnd, next_offset: int, *, is_in_use: bool) -> None:
        """Add findings about the end of a segment, whose indexes are preallocated while in use."""
        name, is_last = self._names[end.segment], end.segment == len(self._names) - 1
        self._sizes[end.segment] = end.size
        position = end.valid_bytes
        if isinstance(end.error, CorruptBatchError):
            self._is_damaged = True
            message = f"{end.error.reason} [{end.error.symbol}]; {end.trailing_bytes} bytes follow"
            self._found.add("CORRUPT", name, message, position=position, offset=next_offset)
        elif end.error is not None:
            self._is_damaged = True
            self._found.add("UNREADABLE", name, str(end.error))
        elif end.end is ScanEnd.TORN_TAIL:
            self._note_torn_tail(end, is_last=is_last)
        elif end.end is ScanEnd.ZERO_TAIL:
            of_last = "ZERO_TAIL" if position or is_in_use else "NO_BATCHES"
            symbol = of_last if is_last else "CUT_SEGMENT"
            self._found.add(symbol, name, describe_end(end), position=position)

    def _note_torn_tail(self, end: SegmentEnd, *, is_last: bool) -> None:
        """Add a finding about an incomplete batch, or a wrong length that looks like one."""
        name, severity = self._names[end.segment], None
        try:
            with self._log.segments[end.segment].borrow() as source:
                intact = intact_batches(end, source, end.end_offset)
        except (OSError, KafkaScanError) as error:
            self._is_damaged = True
            self._found.add("UNREADABLE", name, str(error))
            return
        if is_last and len(intact):
            self._is_damaged, severity = True, ERROR
        elif is_last and self._has_grown(end):
            severity = NOTE
        symbol = "TORN_TAIL" if is_last else "CUT_SEGMENT"
        message = describe_end(end, intact)
        self._found.add(symbol, name, message, position=end.valid_bytes, severity=severity)

    def _note_indexes(self, number: int, checks: SegmentChecks) -> None:
        """Add findings about the indexes of a segment."""
        for file, finding in checks.of_indexes:
            self._found.add(
                finding.symbol, file, finding.message,
                position=finding.position, count=finding.count, severity=finding.severity,
            )  # fmt: skip
        if self._state is not None:
            following = self._bases[number + 1 : number + 2]
            stop = following[0] if following and following[0] is not None else 2**63 - 1
            self._state.aborted.end_segment(self._log.segments[number], stop, checks.aborted)

    def _has_grown(self, end: SegmentEnd) -> bool:
        """Return whether the file has grown since it was opened, because a broker writes to it."""
        try:
            return self._log.segments[-1].size > end.size
        except OSError:
            return False

    def finish(self, problems: Problems) -> list[LogFinding]:
        """Return the findings after the last slice, and the gaps among the problems of the walk."""
        state = self._state
        self._epochs.finish(self._log.partition)
        is_compacted = (
            bool(self._audited.checkpoints.cleaned_up_to) or self._headers.cleaned_batches > 0
        )
        self._headers.finish(
            self._found,
            self._names,
            self._sizes,
            is_compacted=is_compacted or self._log.partition.topic in COMPACTED_TOPICS,
        )
        if not self._found.of_kind(OFFSET_GAP):  # batches of old formats do not show all
            for one in (one for one in problems if one.symbol == OFFSET_GAP):
                name = Path(one.path).name
                self._found.add(OFFSET_GAP, name, one.message, position=one.position)
        if state is not None:
            follower = state.follower
            known = follower.state if follower.error is None else None
            state.snapshots.finish(follower.end_offset, known, is_compacted=is_compacted)
            self._note_end_of_log(state)
            self._note_transactions(follower)
            self._note_producers(follower)
            if is_compacted:
                self._note_compaction()
        return self._found.findings()

    def _note_end_of_log(self, state: _StateChecks) -> None:
        bases = [base for base in self._bases if base is not None]
        end = max([0, self._headers.next_offset, *bases])
        offset, what = max(
            (self._audited.checkpoints.high_watermark, "was replicated up to"),
            (self._audited.checkpoints.recovery_point, "was flushed up to"),
            (self._audited.checkpoints.log_start_offset, "starts, by the checkpoint, at"),
            (state.snapshots.latest, "has a producer snapshot at"),
            (state.latest_epoch.start_offset, f"began epoch {state.latest_epoch.epoch} at"),
        )
        if offset > end:
            message = f"the log ends at offset {end}, but {what} {offset}"
            self._found.add("ENDS_EARLY", None, message, offset=end)

    def _note_transactions(self, follower: TransactionFollower) -> None:
        if self._empty_transactions:
            count = self._empty_transactions
            markers = (
                "1 marker ends a transaction" if count == 1 else f"{count} markers end transactions"
            )
            message = f"{markers} without batches"
            self._found.add("EMPTY_TRANSACTIONS", None, message)
        if self._is_damaged:  # the damage may contain the marker
            return
        opened = follower.open_ones()
        if not len(opened):
            return
        now_ms, clock = self._clock(follower)
        for one in opened:
            idle_ms = now_ms - int(one["last_timestamp"])
            owner = self._owner_of(one)
            is_hanging = idle_ms > self._limits.timeout_ms and not is_within_timeout(
                owner, self._log.partition, one, now_ms
            )
            self.opened.append(OpenTransaction(self._log.partition, one, is_hanging))
            idle = f"has been idle for {age_text(idle_ms)}{clock}"
            idle += coordinator_clause(owner, now_ms)
            if is_hanging:
                self._note_open("HANGING_TRANSACTION", one, idle)
            elif clock or idle_ms > self._limits.timeout_ms:
                self._note_open("OPEN_TRANSACTION", one, idle)

    def _owner_of(self, one: np.void) -> Owner | None:
        """Return what the coordinator has recorded about the producer of a transaction."""
        known = self._audited.coordinators.beside(self._log.partition)
        return known.get(int(one["producer_id"]))

    def _clock(self, follower: TransactionFollower) -> tuple[int, str]:
        """Return the time relative to which transactions are idle, and what it is, if not now."""
        if self._audited.now_ms is not None:
            return self._audited.now_ms, ""
        latest = follower.latest_write_ms(self._limits.now_ms)
        return latest, at_latest_write(latest)

    def _note_open(self, symbol: str, one: np.void, idle: str) -> None:
        first = int(one["first_offset"])
        message = (
            f"the transaction of producer {one['producer_id']} (epoch {one['producer_epoch']})"
            f" is open since offset {first} and {idle}"
        )
        bases = np.array([base or 0 for base in self._bases], np.int64)
        number = max(0, int(np.searchsorted(bases, first, "right")) - 1)
        command = abort_command(self._log, first) if symbol == "HANGING_TRANSACTION" else None
        self._found.add(symbol, self._names[number], message, offset=first, command=command)

    def _note_producers(self, follower: TransactionFollower) -> None:
        orders = follower.state.orders()
        if not len(orders):
            return
        for symbol, column, first, verb in (
            ("SEQUENCE_GAP", "sequence_gaps", "first_gap", "skips sequence numbers"),
            ("DUPLICATE_SEQUENCE", "duplicates", "first_duplicate", "repeats sequence numbers"),
            ("FENCED_PRODUCER", "fenced", "first_fenced", "used an old epoch"),
        ):
            wrong = np.flatnonzero(orders[column] > 0)
            if len(wrong):
                one = orders[wrong[np.argmin(orders[first][wrong])]]
                self._found.add(
                    symbol,
                    None,
                    f"producer {one['producer_id']} {verb} at offset {one[first]}",
                    offset=int(one[first]),
                    count=int(orders[column].sum()),
                )
        if len(orders) > self._limits.many_producers:
            latest = min(self._limits.now_ms, int(orders["last_seen_ms"].max()))
            is_alive = orders["last_seen_ms"] > latest - self._limits.expiration_ms
            alive = int(is_alive.sum())
            if alive > self._limits.many_producers:
                message = f"{alive:,} producers have not expired yet"
                self._found.add("MANY_PRODUCERS", None, message, count=alive)

    def _note_compaction(self) -> None:
        headers, cleaned = self._headers, self._audited.checkpoints.cleaned_up_to
        # The last segment is active: the cleaner leaves it alone.
        sizes = list(zip(self._bases, self._sizes, strict=True))[:-1]
        clean = sum(size for base, size in sizes if (base or 0) < cleaned)
        dirty = sum(size for base, size in sizes if (base or 0) >= cleaned)
        facts = [
            f"cleaned up to offset {cleaned}" if cleaned else "not in the cleaner's checkpoint",
            f"{headers.cleaned_batches:,} batches cleaned, {headers.empty_batches:,} of them empty",
        ]
        if clean + dirty:
            facts.insert(1, f"dirty ratio {dirty / (clean + dirty):.2f}")
        if self._tombstones:
            facts.append(f"{self._tombstones:,} tombstones")
        self._found.add("COMPACTION", None, ", ".join(facts))


def _bad_rows(
    chunk: InspectedChunk[TableChecks, SegmentChecks],
) -> NDArray[np.bool_] | None:
    """Return whether each batch has a wrong checksum; None if all are right."""
    is_bad: NDArray[np.bool_] | None = None
    for row, table in chunk.tables:
        if table.is_bad is not None:
            is_bad = np.zeros(len(chunk), np.bool_) if is_bad is None else is_bad
            is_bad[row : row + len(table.is_bad)] = table.is_bad
    return is_bad


def _intact(
    batches: BatchTable, control: ControlRows, is_bad: NDArray[np.bool_]
) -> tuple[BatchTable, ControlRows]:
    """Return the batches, and their control records, without those that are damaged."""
    kept = np.flatnonzero(~is_bad)
    is_kept = ~is_bad[control.rows]
    numbers = np.cumsum(is_kept) - 1
    errors = {int(numbers[at]): error for at, error in control.errors.items() if is_kept[at]}
    rows = np.searchsorted(kept, control.rows[is_kept])
    return batches.take(kept), ControlRows(rows, control.markers[is_kept], errors)
