"""The audit of one log: what its batches, segments, producers and transactions tell."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkascan.audit_batches import HeaderChecks, Limits
from kafkascan.audit_files import AbortedCheck, EpochCheck, SnapshotCheck, check_folder
from kafkascan.audit_findings import NOTE, FoundInLog, LogFinding
from kafkascan.audit_looks import EndLook, TableLook
from kafkascan.batch_columns import BatchTable
from kafkascan.errors import CorruptBatchError
from kafkascan.layout import ScanEnd
from kafkascan.log_chunks import SegmentEnd
from kafkascan.logs import Log, Piece
from kafkascan.transaction_follower import TransactionFollower, is_empty
from kafkascan.transactions import ControlRows, TransactionState


class Marks(NamedTuple):
    """
    What the checkpoints of a data dir say of a log; 0 where they say nothing.

    Attributes
    ----------
    cleaned_up_to : int
        Where the cleaner has come to.
    high_watermark : int
        Up to where it was replicated.
    recovery_point : int
        Up to where it was flushed.
    """

    cleaned_up_to: int = 0
    high_watermark: int = 0
    recovery_point: int = 0


class LogAudit:
    """
    Finds what is not as it should be in one log, piece by piece.

    Parameters
    ----------
    log : Log
    limits : Limits
    marks : Marks
        What the checkpoints of its data dir say of it.
    names : collection of str
        Of the files in its folder.
    is_snapshot : bool
        Whether it is a snapshot of KRaft: only its batches are looked at.
    """

    def __init__(
        self,
        log: Log,
        limits: Limits,
        marks: Marks,
        names: Collection[str],
        *,
        is_snapshot: bool,
    ) -> None:
        self._log = log
        self._limits = limits
        self._marks = marks
        self._cleaned_up_to = marks.cleaned_up_to
        self._found = FoundInLog()
        self._is_snapshot = is_snapshot
        self._names = [segment.path.name for segment in log.segments]
        self._sizes = [0] * len(log.segments)
        self._bases = [segment.name.base_offset for segment in log.segments]
        # A KRaft snapshot is named by the offset that it ends before.
        named: list[int | None] = [None] if is_snapshot else self._bases
        self._headers = HeaderChecks(self._found, limits, self._names, named)
        self._aborted = AbortedCheck(self._found)
        self._tombstones = self._empty_transactions = 0
        self._is_damaged = False
        self._has_files = not is_snapshot and bool(names)
        if not is_snapshot:
            check_folder(log, names, self._found)
            self._epochs = EpochCheck(log.partition, self._found)
            self._snapshots = SnapshotCheck(log, names, self._found)
            path = str(log.partition.path)
            start = self._bases[0] or 0 if self._bases else 0
            known, expiration_ms = self._snapshots.known, limits.expiration_ms
            self._follower = TransactionFollower(0, known, start, path, expiration_ms)

    def add(self, piece: Piece) -> None:
        """Look at the batches that follow."""
        batches = piece.batches
        segment = piece.chunk.segment
        self._note_looks(piece, segment)
        is_bad = _bad_rows(piece)
        starts = [row for row, _ in piece.chunk.looks]
        flags = self._headers.add(batches, segment, piece.flags, starts, is_bad)
        control = piece.control
        if is_bad is not None:
            self._is_damaged = True
            batches, control = _whole(batches, control, is_bad)
        if not self._is_snapshot:
            self._epochs.add(batches, flags)
            self._follow(batches, control, flags)
        for end in piece.chunk.ends:
            self._note_end(end)

    def _follow(self, batches: BatchTable, control: ControlRows, flags: int) -> None:
        was_known = self._follower.error is None
        pauses = self._snapshots.pauses(batches)
        ended = self._follower.add_batches(batches, control, flags, pauses)
        if len(ended):
            empty = is_empty(ended)
            self._empty_transactions += int(empty.sum())
            is_aborted = ended["state"] == TransactionState.ABORTED
            self._aborted.add(ended[is_aborted & ~empty])
        error = self._follower.error
        if was_known and isinstance(error, CorruptBatchError):
            self._is_damaged = True
            self._found.add("BAD_MARKER", None, str(error), offset=error.base_offset)

    def _note_looks(self, piece: Piece, segment: NDArray[np.int32]) -> None:
        for row, look in piece.chunk.looks:
            assert isinstance(look, TableLook)
            self._tombstones += look.tombstones
            if look.is_bad is not None:
                self._note_rows("BAD_CRC", piece, segment, row + np.flatnonzero(look.is_bad),
                                "the stored checksum is not that of the bytes")  # fmt: skip
            for at, time_ms in look.wrong_times:
                said = int(piece.batches["max_timestamp"][row + at])
                self._note_rows("MAX_TIMESTAMP_MISMATCH", piece, segment, np.array([row + at]),
                                f"the latest timestamp is {time_ms}, and not {said}")  # fmt: skip
            for at, reason in look.unreadable:
                self._note_rows("BAD_RECORDS", piece, segment, np.array([row + at]), reason)

    def _note_rows(
        self,
        symbol: str,
        piece: Piece,
        segment: NDArray[np.int32],
        rows: NDArray[np.intp],
        message: str,
    ) -> None:
        batch = piece.batches[rows[0]]
        self._found.add(
            symbol,
            self._names[segment[rows[0]]],
            message,
            position=int(batch["position"]),
            offset=int(batch["base_offset"]),
            count=len(rows),
        )

    def _note_end(self, end: SegmentEnd) -> None:
        """Say how a segment ends, and what is wrong with its indexes."""
        number = end.segment
        name, is_last = self._names[number], number == len(self._names) - 1
        self._sizes[number] = end.size
        place = end.valid_bytes
        behind = f"{end.trailing_bytes} bytes follow the last whole batch"
        if isinstance(end.error, CorruptBatchError):
            self._is_damaged = True
            message = f"{end.error.reason} [{end.error.symbol}]; {end.trailing_bytes} bytes follow"
            self._found.add("CORRUPT", name, message, position=place, offset=end.error.base_offset)
        elif end.error is not None:
            self._is_damaged = True
            self._found.add("UNREADABLE", name, str(end.error))
        elif end.end is ScanEnd.TORN_TAIL and is_last:
            severity = NOTE if self._has_grown(end) else None
            self._found.add("TORN_TAIL", name, behind, position=place, severity=severity)
        elif end.end is ScanEnd.TORN_TAIL:
            self._found.add("CUT_SEGMENT", name, behind, position=place)
        elif end.end is ScanEnd.ZERO_TAIL:
            message = f"{end.trailing_bytes} zeros follow the last batch"
            self._found.add(
                "ZERO_TAIL" if is_last else "CUT_SEGMENT", name, message, position=place
            )
        if not isinstance(end.look, EndLook):
            return
        for file, (finding, count) in end.look.of_indexes:
            self._found.add(
                finding.symbol, file, finding.message,
                position=finding.position, count=count, severity=finding.severity,
            )  # fmt: skip
        following = self._bases[number + 1 : number + 2]
        stop = following[0] if following and following[0] is not None else 2**63 - 1
        if self._has_files:
            self._aborted.end_segment(self._log.segments[number], stop, end.look.aborted)

    def _has_grown(self, end: SegmentEnd) -> bool:
        """Tell whether the rest of a batch has come since: a broker writes it."""
        try:
            return self._log.segments[-1].size > end.size
        except OSError:
            return False

    def finish(self) -> list[LogFinding]:
        """Return what was found when all of the log was seen."""
        partition = self._log.partition
        is_compacted = bool(self._cleaned_up_to) or self._headers.cleaned_batches > 0
        self._headers.finish(self._cleaned_up_to, self._sizes)
        if not self._is_snapshot:
            state = self._follower.state if self._follower.error is None else None
            self._snapshots.finish(self._follower.end_offset, state, is_compacted=is_compacted)
            self._note_end_of_log()
            self._note_transactions()
            self._note_producers()
            if is_compacted:
                self._note_compaction()
        return self._found.findings(partition.topic, partition.partition, partition.path)

    def _note_end_of_log(self) -> None:
        bases = [base for base in self._bases if base is not None]
        end = max([self._headers.next_offset, *bases])
        for offset, said in (
            (self._marks.high_watermark, "replicated"),
            (self._marks.recovery_point, "flushed"),
        ):
            if offset > end:
                message = f"the log ends at offset {end}, and was {said} up to {offset}"
                self._found.add("ENDS_EARLY", None, message, offset=end)

    def _note_transactions(self) -> None:
        if self._empty_transactions:
            message = f"{self._empty_transactions} markers end no transaction that is there"
            self._found.add("EMPTY_TRANSACTIONS", None, message)
        if self._is_damaged:  # a marker may be where nothing can be read
            return
        for one in self._follower.open_ones():
            age_ms = self._limits.now_ms - int(one["last_timestamp"])
            if age_ms > self._limits.timeout_ms:
                self._note_hanging(one, age_ms)

    def _note_hanging(self, one: np.void, age_ms: int) -> None:
        partition, first = self._log.partition, int(one["first_offset"])
        message = (
            f"the transaction of producer {one['producer_id']} (epoch {one['producer_epoch']})"
            f" is open since offset {first}, and idle for {age_ms / 60_000:,.0f} minutes"
        )
        if partition.topic is not None:
            message += (
                "; kafka-transactions.sh --bootstrap-server HOST:PORT abort --topic"
                f" {partition.topic} --partition {partition.partition} --start-offset {first}"
            )
        bases = np.array([base or 0 for base in self._bases], np.int64)
        number = max(0, int(np.searchsorted(bases, first, "right")) - 1)
        self._found.add("HANGING_TRANSACTION", self._names[number], message, offset=first)

    def _note_producers(self) -> None:
        orders = self._follower.state.orders()
        for symbol, column, first, said in (
            ("SEQUENCE_GAP", "sequence_gaps", "first_gap", "skips sequence numbers"),
            ("DUPLICATE_SEQUENCE", "duplicates", "first_duplicate", "repeats sequence numbers"),
            ("FENCED_PRODUCER", "fenced", "first_fenced", "goes on after a later epoch of it"),
        ):
            wrong = np.flatnonzero(orders[column] > 0)
            if len(wrong):
                one = orders[wrong[np.argmin(orders[first][wrong])]]
                self._found.add(
                    symbol,
                    None,
                    f"producer {one['producer_id']} {said} at offset {one[first]}",
                    offset=int(one[first]),
                    count=int(orders[column].sum()),
                )
        if len(orders) > self._limits.many_producers:
            latest = min(self._limits.now_ms, int(orders["last_seen_ms"].max()))
            is_alive = orders["last_seen_ms"] > latest - self._limits.expiration_ms
            alive = int(is_alive.sum())
            if alive > self._limits.many_producers:
                message = f"{alive:,} producers wrote within the time a broker remembers them"
                self._found.add("MANY_PRODUCERS", None, message, count=alive)

    def _note_compaction(self) -> None:
        headers, cleaned = self._headers, self._cleaned_up_to
        sizes = list(zip(self._bases, self._sizes, strict=True))[:-1]  # the last is written to
        clean = sum(size for base, size in sizes if (base or 0) < cleaned)
        dirty = sum(size for base, size in sizes if (base or 0) >= cleaned)
        said = [
            f"cleaned up to offset {cleaned}"
            if cleaned
            else "the cleaner's checkpoint says nothing",
            f"{headers.cleaned_batches:,} batches cleaned, {headers.empty_batches:,} of them empty",
        ]
        if clean + dirty:
            said.insert(1, f"dirty ratio {dirty / (clean + dirty):.2f}")
        if self._tombstones:
            said.append(f"{self._tombstones:,} tombstones")
        self._found.add("COMPACTION", None, ", ".join(said))


def _bad_rows(piece: Piece) -> NDArray[np.bool_] | None:
    """Return whose checksums are wrong; None if none are."""
    is_bad: NDArray[np.bool_] | None = None
    for row, look in piece.chunk.looks:
        if look.is_bad is not None:
            is_bad = np.zeros(len(piece.batches), np.bool_) if is_bad is None else is_bad
            is_bad[row : row + len(look.is_bad)] = look.is_bad
    return is_bad


def _whole(
    batches: BatchTable, control: ControlRows, is_bad: NDArray[np.bool_]
) -> tuple[BatchTable, ControlRows]:
    """Leave out batches that are damaged: what they say counts for nothing."""
    kept = np.flatnonzero(~is_bad)
    is_kept = ~is_bad[control.rows]
    numbers = np.cumsum(is_kept) - 1
    errors = {int(numbers[at]): error for at, error in control.errors.items() if is_kept[at]}
    rows = np.searchsorted(kept, control.rows[is_kept])
    return batches.take(kept), ControlRows(rows, control.markers[is_kept], errors)
