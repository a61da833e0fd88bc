"""Logs looked through for everything that is not as it should be."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kafkascan.audit_batches import EARLIEST_MS, FUTURE_MS, HeaderChecks, Limits
from kafkascan.audit_files import (
    AbortedCheck,
    EpochCheck,
    SnapshotCheck,
    check_folder,
    check_state,
)
from kafkascan.audit_findings import Audit, FoundInLog, LogFinding
from kafkascan.audit_looks import AuditLooks, EndLook, TableLook
from kafkascan.batch_columns import BatchTable
from kafkascan.checkpoints import CLEANER_CHECKPOINT
from kafkascan.errors import CorruptBatchError, CorruptCheckpointError
from kafkascan.folders import Folder
from kafkascan.layout import ScanEnd
from kafkascan.log_dir import (
    LogDir,
    PartitionDir,
    SegmentFile,
    is_log_dir,
    open_log_dir,
    read_offsets,
)
from kafkascan.log_table import SegmentEnd
from kafkascan.logs import Log, LogsLike, LogWalk, Piece, open_logs
from kafkascan.producer_census import ProducerCounter
from kafkascan.producers import PRODUCER_EXPIRATION_MS
from kafkascan.sources import Source
from kafkascan.transaction_spans import (
    TRANSACTION_TIMEOUT_MS,
    TransactionFollower,
    TransactionState,
)
from kafkascan.transactions import ControlRows

OnProgress = Callable[[int, int], object]


def audit(
    logs: LogsLike,
    /,
    *,
    verify: bool = True,
    deep: bool = False,
    now_ms: int | None = None,
    future_ms: int = FUTURE_MS,
    earliest_ms: int = EARLIEST_MS,
    max_message_bytes: int | None = None,
    many_producers: int = 10_000,
    timeout_ms: int = TRANSACTION_TIMEOUT_MS,
    expiration_ms: int = PRODUCER_EXPIRATION_MS,
    threads: int | None = None,
    on_progress: OnProgress | None = None,
) -> Audit:
    """
    Look through logs, and what stands beside them, for everything that is not as it should be.

    Parameters
    ----------
    logs : path, LogDir, PartitionDir, bytes-like, Source or Segment
        A data dir, the folder of a partition, a tar of them; or a source, which is taken as
        all there is of its log.
    verify : bool, default True
        Compare the checksums of all batches. Without it, only headers and markers are read.
    deep : bool, default False
        Decode records, too: whether they can be read, whether the latest timestamp of each
        batch is theirs, how many tombstones there are.
    now_ms : int, optional
        Milliseconds since the epoch; by default now.
    future_ms : int, default 1 hour
        How far ahead of now a timestamp may be (``message.timestamp.after.max.ms``).
    earliest_ms : int, default 2011
        Earlier timestamps are not believed.
    max_message_bytes : int, optional
        The topics' ``max.message.bytes``. Which it is does not stand in the logs: without it,
        batches above Kafka's default are no more than a note.
    many_producers : int, default 10000
        More producers than this in one partition are too many.
    timeout_ms : int, default 15 minutes
        The broker's ``transaction.max.timeout.ms``.
    expiration_ms : int, default 1 day
        The broker's ``producer.id.expiration.ms``.
    threads : int, optional
        Segments that are read at once; by default one per CPU.
    on_progress : callable, optional
        Gets how many bytes of segments are done, and of how many.

    Returns
    -------
    Audit
        A finding for each kind of thing in each file, with how often it is there.

    Raises
    ------
    As `open_log_dir`. Whatever is wrong inside of the logs is a finding.

    Notes
    -----
    Logs are judged as brokers leave them: what is no more than a note is found in the data dirs
    of healthy brokers, also of those that run or were killed. Memory: the headers of one
    segment for each thread.
    """
    limits = Limits(
        now_ms=time.time_ns() // 1_000_000 if now_ms is None else now_ms,
        future_ms=future_ms,
        earliest_ms=earliest_ms,
        max_message_bytes=max_message_bytes,
        many_producers=many_producers,
        timeout_ms=timeout_ms,
        expiration_ms=expiration_ms,
    )
    if isinstance(logs, (str, os.PathLike)) and is_log_dir(Path(logs)):
        logs = open_log_dir(logs)
    return _Auditing(logs, limits, on_progress).run(verify=verify, deep=deep, threads=threads)


class _Auditing:
    """One audit: what is looked at, and what has been found."""

    def __init__(self, logs: LogsLike, limits: Limits, on_progress: OnProgress | None) -> None:
        self._limits = limits
        self._on_progress = on_progress
        self._logs = open_logs(logs)
        self._path = logs.path if isinstance(logs, LogDir) else self._path_of_logs()
        self._others = logs.partitions if isinstance(logs, LogDir) else []
        self._total = 0
        self._cleaned: dict[Path, dict[tuple[str, int], int]] = {}

    def _path_of_logs(self) -> Path:
        return self._logs[0].partition.path if self._logs else Path()

    def run(self, *, verify: bool, deep: bool, threads: int | None) -> Audit:
        """Look at everything."""

        def look(segment: SegmentFile, source: Source) -> AuditLooks:
            return AuditLooks(segment, source, verify=verify, deep=deep)

        findings: list[LogFinding] = []
        for partition in self._others:
            if not partition.is_log:
                findings += _of_state(partition)
        snapshots = [log for one in self._others for log in _kraft_snapshots(one)]
        walk = LogWalk([*self._logs, *snapshots], threads, look)
        if self._on_progress is not None:
            self._total = sum(_size(segment) for _, segment in walk.segments)
        current: _LogAudit | None = None
        batches = size = done = 0
        for piece in walk:
            if current is None:
                log = [*self._logs, *snapshots][piece.log]
                first = walk.firsts[piece.log]
                is_snapshot = piece.log >= len(self._logs)
                cleaned = 0 if is_snapshot else self._cleaned_up_to(log.partition)
                current = _LogAudit(log, first, self._limits, cleaned, is_snapshot=is_snapshot)
            current.add(piece)
            batches += len(piece.batches)
            size += sum(end.size for end in piece.chunk.ends)
            done += len(piece.chunk.ends)
            if self._on_progress is not None:
                self._on_progress(size, self._total)
            if piece.is_last:
                findings += current.finish()
                current = None
        return Audit(self._path, findings, len(self._logs), done, batches, size)

    def _cleaned_up_to(self, partition: PartitionDir) -> int:
        """Return how far the cleaner has come; 0 where it has not been."""
        folder: Folder = partition.folder.parent
        if folder.path not in self._cleaned:
            try:
                known = read_offsets(folder, CLEANER_CHECKPOINT)
            except CorruptCheckpointError:
                known = {}
            self._cleaned[folder.path] = known
        place = partition.topic or "", partition.partition or 0
        return self._cleaned[folder.path].get(place, 0)


def _size(segment: SegmentFile) -> int:
    try:
        return segment.size
    except OSError:
        return 0


def _of_state(partition: PartitionDir) -> list[LogFinding]:
    found = FoundInLog()
    check_state(partition, found)
    return found.findings(partition.topic, partition.partition, partition.path)


def _kraft_snapshots(partition: PartitionDir) -> list[Log]:
    """Return the snapshots of a metadata log, each as a log of its own."""
    return [
        Log(partition, [one])
        for one in partition.segments
        if one.name.kind == "checkpoint" and one.name.state is None
    ]


class _LogAudit:
    """What is found in one log."""

    def __init__(
        self, log: Log, first: int, limits: Limits, cleaned_up_to: int, *, is_snapshot: bool
    ) -> None:
        self._log = log
        self._first = first
        self._limits = limits
        self._cleaned_up_to = cleaned_up_to
        self._found = FoundInLog()
        self._is_snapshot = is_snapshot
        self._names = [segment.path.name for segment in log.segments]
        self._sizes = [0] * len(log.segments)
        self._bases = [segment.name.base_offset for segment in log.segments]
        # A KRaft snapshot is named by the offset that it ends before.
        named: list[int | None] = [None] if is_snapshot else self._bases
        self._headers = HeaderChecks(self._found, limits, self._names, named)
        self._follower = TransactionFollower(0)
        self._counter = ProducerCounter(limits.expiration_ms)
        self._aborted = AbortedCheck(self._found)
        self._tombstones = self._empty_transactions = 0
        self._is_damaged = False
        self._has_files = not is_snapshot and bool(log.partition.folder.names())
        if not is_snapshot:
            check_folder(log, self._found)
            self._epochs = EpochCheck(log.partition, self._found)
            self._snapshots = SnapshotCheck(log, self._found)

    def add(self, piece: Piece) -> None:
        """Look at the batches that follow."""
        batches = piece.batches
        segment = piece.chunk.segment - np.int32(self._first)
        self._note_looks(piece, segment)
        is_bad = _bad_rows(piece)
        self._headers.add(batches, segment, is_bad)
        control = piece.control
        if is_bad is not None:
            self._is_damaged = True
            batches, control = _whole(batches, control, is_bad)
        if not self._is_snapshot:
            self._epochs.add(batches)
            self._snapshots.add(batches, control)
            self._follow(batches, control)
        for end in piece.chunk.ends:
            self._note_end(end)

    def _follow(self, batches: BatchTable, control: ControlRows) -> None:
        self._counter.add(batches, control)
        was_known = self._follower.error is None
        ended = self._follower.add_batches(batches, control)
        is_empty = ended["batches"] == 0
        self._empty_transactions += int(is_empty.sum())
        is_aborted = ended["state"] == TransactionState.ABORTED
        self._aborted.add(ended[is_aborted & ~is_empty])
        error = self._follower.error
        if was_known and isinstance(error, CorruptBatchError):
            self._is_damaged = True
            self._found.add("BAD_MARKER", None, error.reason, offset=error.base_offset)

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
        number = end.segment - self._first
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
        elif end.end is ScanEnd.TORN_TAIL:
            self._found.add("TORN_TAIL" if is_last else "CUT_SEGMENT", name, behind, position=place)
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
            self._aborted.end_segment(name, stop, end.look.aborted)

    def finish(self) -> list[LogFinding]:
        """Return what was found when all of the log was seen."""
        partition = self._log.partition
        is_compacted = bool(self._cleaned_up_to) or self._headers.cleaned_batches > 0
        self._headers.finish(self._cleaned_up_to, self._sizes)
        if not self._is_snapshot:
            self._snapshots.finish(self._follower.end_offset, is_compacted=is_compacted)
            self._note_transactions()
            self._note_producers()
            if is_compacted:
                self._note_compaction()
        return self._found.findings(partition.topic, partition.partition, partition.path)

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
        counts = self._counter.counts()
        counts = counts[counts["producer_id"] >= 0]
        for symbol, column, first, said in (
            ("SEQUENCE_GAP", "sequence_gaps", "first_gap", "skips sequence numbers"),
            ("DUPLICATE_SEQUENCE", "duplicates", "first_duplicate", "repeats sequence numbers"),
            ("FENCED_PRODUCER", "fenced", "first_fenced", "goes on after a later epoch of it"),
        ):
            wrong = np.flatnonzero(counts[column] > 0)
            if len(wrong):
                one = counts[wrong[np.argmin(counts[first][wrong])]]
                self._found.add(
                    symbol,
                    None,
                    f"producer {one['producer_id']} {said} at offset {one[first]}",
                    offset=int(one[first]),
                    count=int(counts[column].sum()),
                )
        if len(counts) > self._limits.many_producers:
            latest = min(self._limits.now_ms, int(counts["last_timestamp"].max()))
            alive = int((counts["last_timestamp"] > latest - self._limits.expiration_ms).sum())
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
