"""The log of a partition, loaded as a broker does after an unclean end (``LogLoader``).

Nothing is written here: what a broker would change is noted down.
"""

from __future__ import annotations

import bisect
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kafkascan.batch_columns import BatchTable, last_offset, next_offset
from kafkascan.batches import BatchScan, scan_batches
from kafkascan.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    LeaderEpoch,
    leader_epochs_file,
    read_leader_epochs,
)
from kafkascan.epochs import truncated_from_end, truncated_from_start
from kafkascan.errors import (
    SENTENCES,
    STATUS,
    CorruptLogError,
    CorruptSnapshotError,
    IndexOverflowError,
)
from kafkascan.indexes import DEFAULT_INTERVAL_BYTES, read_index
from kafkascan.names import INDEX_KINDS
from kafkascan.producers import (
    PRODUCER_EXPIRATION_MS,
    ProducerState,
    RefusedBatchError,
    parse_producer_snapshot,
    snapshot_file,
    unexpired,
)
from kafkascan.segment_recovery import RecoveredSegment, recover_segment
from kafkascan.sources import Source
from kafkascan.staged_files import StagedFiles

_DELETED, _CLEANED, _SWAP = ".deleted", ".cleaned", ".swap"
_DIGITS = 20
_KRAFT_SNAPSHOT_DELETED = ".checkpoint.deleted"
_INDEX_SUFFIXES = tuple(f".{kind}" for kind in INDEX_KINDS if kind != "snapshot")


@dataclass(frozen=True)
class LoadSettings:
    """
    What a broker knows besides the files of a partition.

    Attributes
    ----------
    recovery_point : int
        Offset up to which the log was flushed: segments before that one are taken as they are.
    log_start_offset : int
        By the checkpoint of the data dir.
    interval_bytes : int
        Kafka's ``index.interval.bytes``.
    producer_expiration_ms : int
        Kafka's ``producer.id.expiration.ms``.
    now_ms : int
        Milliseconds since the epoch: which producers have expired.
    threads : int or None
        For checksums; as of `verify_crcs`.
    """

    recovery_point: int = 0
    log_start_offset: int = 0
    interval_bytes: int = DEFAULT_INTERVAL_BYTES
    producer_expiration_ms: int = PRODUCER_EXPIRATION_MS
    now_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)
    threads: int | None = 1


@dataclass
class SegmentReport:
    """
    What became of one segment.

    Attributes
    ----------
    name : str
        Of the log file.
    base_offset, next_offset : int
    batches : int
        Those that are valid, or, of a segment that is given up, those that are there.
    size, valid_bytes : int
    is_recovered : bool
        Whether it was read in full; segments before the recovery point are not.
    reason : str or None
        Why it is cut at `valid_bytes`, or left out.
    """

    name: str
    base_offset: int
    next_offset: int
    batches: int
    size: int
    valid_bytes: int
    is_recovered: bool
    reason: str | None

    @property
    def truncated_bytes(self) -> int:
        """What is behind the last valid batch."""
        return self.size - self.valid_bytes


class _Segment:
    """A segment of the log. Its batches are read when they are asked for, and not kept."""

    def __init__(self, files: StagedFiles, base_offset: int) -> None:
        self.base_offset = base_offset
        self.name = f"{base_offset:020}.log"
        self.path = files.origin(self.name)
        self.size = self.valid_bytes = files.size(self.name)
        self.reason: str | None = None
        self.is_recovered = self.is_emptied = False
        self._known: tuple[int, int] | None = None

    def sibling(self, kind: str) -> str:
        return f"{self.base_offset:020}.{kind}"

    def note(self, recovered: RecoveredSegment) -> None:
        self.is_recovered = True
        self.is_emptied = recovered.is_emptied
        self.valid_bytes = recovered.valid_bytes
        self.reason = recovered.reason
        self._known = _count_and_end(recovered.batches, self.base_offset)

    def misfit(self) -> CorruptLogError:
        """Say that the offsets do not ascend."""
        symbol = "OFFSETS_NOT_ASCENDING"
        return CorruptLogError(
            str(self.path), 0, self.base_offset, SENTENCES[STATUS[symbol]], symbol
        )

    def scan(self) -> BatchScan:
        return scan_batches(self.path, stop=self.valid_bytes, on_corrupt="stop")

    @property
    def next_offset(self) -> int:
        return self._count_and_end()[1]

    def _count_and_end(self) -> tuple[int, int]:
        if self._known is None:
            self._known = _count_and_end(self.scan().batches, self.base_offset)
        return self._known

    def report(self, reason: str | None = None) -> SegmentReport:
        """Describe it; a reason says why all of it is given up."""
        count, next_offset = self._count_and_end()
        return SegmentReport(
            name=self.name,
            base_offset=self.base_offset,
            next_offset=next_offset,
            batches=count,
            size=self.size,
            valid_bytes=0 if reason else self.valid_bytes,
            is_recovered=self.is_recovered,
            reason=reason or self.reason,
        )


class _EmptySegment(_Segment):
    """The one that a log begins anew with."""

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.name = f"{base_offset:020}.log"
        self.size = self.valid_bytes = 0
        self.reason = None
        self.is_recovered = self.is_emptied = False
        self._known = 0, base_offset

    def scan(self) -> BatchScan:
        return scan_batches(b"")


def _count_and_end(batches: BatchTable, base_offset: int) -> tuple[int, int]:
    if not len(batches):
        return 0, base_offset
    return len(batches), int(next_offset(batches[-1:])[0])


class _Snapshots:
    """The snapshots of a partition's producers, in the order of their offsets."""

    def __init__(self, files: StagedFiles) -> None:
        self._files = files
        names = (name for name in files.names() if name.endswith(".snapshot"))
        self.offsets = sorted(offset for name in names if (offset := _offset_of(name)) is not None)

    def write(self, offset: int, state: ProducerState) -> None:
        data = snapshot_file(state.entries())
        self._files.write(_snapshot_name(offset), data, "the producers' state at this offset")
        place = bisect.bisect_left(self.offsets, offset)
        if self.offsets[place : place + 1] != [offset]:
            self.offsets.insert(place, offset)

    def read(self, offset: int) -> NDArray[np.void]:
        name = _snapshot_name(offset)
        return parse_producer_snapshot(self._files.read(name), str(self._files.folder / name))

    def delete(self, offset: int, reason: str, *, shortens_log: bool = False) -> None:
        place = bisect.bisect_left(self.offsets, offset)
        if self.offsets[place : place + 1] == [offset]:
            del self.offsets[place]
            self._files.delete(_snapshot_name(offset), reason, shortens_log=shortens_log)

    def delete_outside(self, first: int, last: int, reason: str) -> None:
        """Delete those that are not in ``[first, last]``."""
        before = self.offsets[: bisect.bisect_left(self.offsets, first)]
        behind = self.offsets[bisect.bisect_right(self.offsets, last) :]
        for offset in before + behind:
            self.delete(offset, reason)


class _Producers:
    """Producers' state on its way through a log: ``ProducerStateManager``."""

    def __init__(self, snapshots: _Snapshots, settings: LoadSettings) -> None:
        self._snapshots = snapshots
        self._settings = settings
        self.state = ProducerState()
        self.map_end = 0
        self._last_snapshot = 0

    def take_snapshot(self) -> None:
        if self.map_end > self._last_snapshot:
            self._snapshots.write(self.map_end, self.state)
            self._last_snapshot = self.map_end

    def rebuild(self, segments: list[_Segment], log_start: int, target: int) -> None:
        """Bring the state to an offset (``UnifiedLog.rebuildProducerState``)."""
        take_at = {segment.base_offset for segment in segments[-2:]} | {target}
        self._load(log_start, target)
        if target > self.map_end and target > 0:
            last = _floor(segments, target)
            for segment in _overlapping(segments, self.map_end, target):
                start = max(segment.base_offset, self.map_end, log_start)
                self.map_end = start
                if segment.base_offset in take_at:
                    self.take_snapshot()
                is_last = segment is segments[last]
                self._apply(segment, start, target if is_last else None)
        self.map_end = target
        self.take_snapshot()

    def _load(self, log_start: int, target: int) -> None:
        """Load the newest snapshot that can be read (``truncateAndReload``)."""
        reason = "producers are counted anew from an earlier offset"
        self._snapshots.delete_outside(log_start + 1, target, reason)
        if target == self.map_end:
            return
        self.map_end = self._last_snapshot = log_start
        for offset in reversed(self._snapshots.offsets.copy()):
            try:
                entries = self._snapshots.read(offset)
            except CorruptSnapshotError as error:
                self._snapshots.delete(offset, f"the snapshot cannot be read: {error.reason}")
                continue
            settings = self._settings
            known = unexpired(entries, settings.now_ms, settings.producer_expiration_ms)
            self.state = ProducerState(known)
            self.map_end = self._last_snapshot = offset
            return

    def _apply(self, segment: _Segment, start: int, stop: int | None) -> None:
        """Apply from the batch that holds an offset up to the one that holds another."""
        scan = segment.scan()
        ends = last_offset(scan.batches)
        first, last = _first_at(ends, start), _first_at(ends, stop)
        if last == len(ends):
            _require_framed(scan)
        with Source(segment.path) as source:
            try:
                self.state.apply_at_once(source, scan.batches[first:last])
            except RefusedBatchError as refused:
                raise refused.error from None


def _first_at(ends: NDArray[np.int64], offset: int | None) -> int:
    """Return the first row whose last offset is not below an offset."""
    if offset is None:
        return len(ends)
    reaching = np.flatnonzero(ends >= offset)
    return int(reaching[0]) if len(reaching) else len(ends)


def _floor(segments: list[_Segment], offset: int) -> int:
    """Return the place of the segment that an offset belongs to, -1 if there is none."""
    return bisect.bisect_right(segments, offset, key=lambda one: one.base_offset) - 1


def _overlapping(segments: list[_Segment], start: int, stop: int) -> Iterator[_Segment]:
    """Segments from the one that holds an offset on (``LogSegments.values``)."""
    for segment in segments[max(0, _floor(segments, start)) :]:
        if segment.base_offset >= stop:
            return
        yield segment


@dataclass
class LoadedLog:
    """
    A log as a broker would have it after loading.

    Attributes
    ----------
    log_start_offset, log_end_offset : int
    segments : list of SegmentReport
        Those of the log, then those that a broker would drop.
    leader_epochs : list of LeaderEpoch
    files : StagedFiles
        What a broker would change.
    """

    log_start_offset: int
    log_end_offset: int
    segments: list[SegmentReport]
    leader_epochs: list[LeaderEpoch]
    files: StagedFiles


def load_log(folder: Path, settings: LoadSettings) -> LoadedLog:
    """
    Load the log of a partition as a broker does that was not shut down cleanly.

    Parameters
    ----------
    folder : Path
        Of the partition.
    settings : LoadSettings

    Returns
    -------
    LoadedLog
        Index files are those of a broker that was shut down cleanly afterwards: without
        the zeros of those that are written to.

    Raises
    ------
    IndexOverflowError
        If a segment holds offsets too far from its own, which Kafka would split.
    CorruptLogError
        If Kafka refuses to load the log: an `InvalidRecordError`, a `CorruptIndexError`, …
    OSError
    """
    return _Loading(folder, settings).load()


class _Loading:
    def __init__(self, folder: Path, settings: LoadSettings) -> None:
        self._settings = settings
        self._files = StagedFiles(folder)
        self._segments: list[_Segment] = []
        self._dropped: list[SegmentReport] = []
        self._epochs = self._read_epochs()
        self._epochs_changed = False

    def load(self) -> LoadedLog:
        self._first_snapshots = set(_Snapshots(self._files).offsets)
        self._finish_replacements()
        self._snapshots = _Snapshots(self._files)
        self._load_segments()
        self._recover_segments()
        self._require_segment()
        end = self._segments[-1].next_offset
        self._write_epochs(end)
        self._remove_stray_snapshots()
        log_start = max(self._settings.log_start_offset, self._segments[0].base_offset)
        _Producers(self._snapshots, self._settings).rebuild(self._segments, log_start, end)
        reports = [segment.report() for segment in self._segments]
        return LoadedLog(log_start, end, reports + self._dropped, self._epochs, self._files)

    # ---- what the cleaner left --------------------------------------------------------------

    def _finish_replacements(self) -> None:
        """Give up replacements that were not complete, finish those that were."""
        files = self._files
        cleaned = [name for name in files.names() if name.endswith(_CLEANED)]
        given_up = min((_offset_of(name) or 0 for name in cleaned), default=1 << 63)
        for name in files.names():
            if name.endswith(_DELETED) and not name.endswith(_KRAFT_SNAPSHOT_DELETED):
                files.delete(name, "the broker was about to delete it", at_first=True)
            elif name.endswith(_SWAP) and (_offset_of(name) or 0) >= given_up:
                files.delete(name, "a replacement that is not complete", at_first=True)
        # In this order: without .cleaned files, .swap files count as complete.
        for name in cleaned:
            files.delete(name, "a replacement that is not complete")
        self._swap_in([name for name in files.names() if name.endswith(_SWAP)])

    def _swap_in(self, swaps: list[str]) -> None:
        """Put complete replacements in the place of what they replace."""
        files = self._files
        ranges = [self._range_of(name) for name in swaps if name.endswith(".log" + _SWAP)]
        if ranges:
            first, last = min(start for start, _ in ranges), max(stop for _, stop in ranges)
            for name in files.names():
                offset = _offset_of(name)
                if not name.endswith(_SWAP) and offset is not None and first <= offset < last:
                    files.delete(name, "replaced by the cleaner", at_first=True)
        for name in swaps:
            files.rename(name, name.removesuffix(_SWAP), "a complete replacement")
        for name in swaps:
            # To Kafka no index is missing there: looking at the replacement has created it.
            index = name.removesuffix(".log" + _SWAP) + ".index"
            if name.endswith(".log" + _SWAP) and index not in files:
                files.write(index, b"", "the index of a replacement is missing")

    def _range_of(self, name: str) -> tuple[int, int]:
        base_offset = _offset_of(name) or 0
        scan = scan_batches(self._files.origin(name), on_corrupt="stop")
        _require_framed(scan)
        batches = scan.batches
        stop = int(next_offset(batches[-1:])[0]) if len(batches) else base_offset
        return base_offset, stop

    # ---- segments ---------------------------------------------------------------------------

    def _load_segments(self) -> None:
        files = self._files
        for name in files.names():
            offset = _offset_of(name)
            if offset is None:
                continue
            if name.endswith(_INDEX_SUFFIXES) and f"{offset:020}.log" not in files:
                files.delete(name, "an index without a log")
            elif name.endswith(".log"):
                segment = _Segment(files, offset)
                if not self._is_sane(segment):
                    self._recover(segment)
                    if segment.is_emptied:
                        raise CorruptLogError(
                            str(segment.path),
                            0,
                            offset,
                            segment.reason or "",
                            "OFFSETS_NOT_ASCENDING",
                        )
                self._segments.append(segment)

    def _is_sane(self, segment: _Segment) -> bool:
        """Look at indexes as brokers do, which is not much (``LogSegment.sanityCheck``)."""
        files = self._files
        if segment.sibling("index") not in files:
            return False
        if segment.sibling("timeindex") not in files:
            files.write(segment.sibling("timeindex"), b"", "the time index is missing")
        name = segment.sibling("txnindex")
        if name not in files:
            return True
        entries = read_index(files.origin(name))
        return not (entries["last_offset"] < segment.base_offset).any()

    def _recover(self, segment: _Segment) -> None:
        """Read a segment again and write what belongs to it (``LogLoader.recoverSegment``)."""
        producers = _Producers(self._snapshots, self._settings)
        log_start = self._settings.log_start_offset
        producers.rebuild(self._segments, log_start, segment.base_offset)
        with Source(segment.path) as source:
            try:
                recovered = recover_segment(
                    source,
                    segment.base_offset,
                    producers.state,
                    self._epochs,
                    interval_bytes=self._settings.interval_bytes,
                    threads=self._settings.threads,
                )
            except IndexOverflowError as error:
                error.add_note(f"{segment.path}: Kafka would split this segment")
                raise
        segment.note(recovered)
        self._set_epochs(recovered.leader_epochs)
        self._write_segment(segment, recovered)
        if not recovered.is_emptied:
            producers.map_end = recovered.map_end_offset or producers.map_end
            producers.take_snapshot()

    def _write_segment(self, segment: _Segment, recovered: RecoveredSegment) -> None:
        files = self._files
        files.truncate(segment.name, recovered.valid_bytes, recovered.reason or "")
        reason = "rebuilt from the log"
        files.write(segment.sibling("index"), recovered.offset_index.tobytes(), reason)
        files.write(segment.sibling("timeindex"), recovered.time_index.tobytes(), reason)
        name = segment.sibling("txnindex")
        if name in files or recovered.has_transaction_index:
            files.write(name, recovered.transaction_index.tobytes(), reason)

    def _recover_segments(self) -> None:
        """Recover from the recovery point's segment on; behind damage, nothing is kept."""
        unflushed = list(_overlapping(self._segments, self._settings.recovery_point, 1 << 63))
        for number, segment in enumerate(unflushed):
            # For the producers before a segment, Kafka looks at all segments there are.
            # One whose index was missing may have been cut already, without consequences.
            size = segment.valid_bytes
            self._recover(segment)
            if segment.valid_bytes < size:
                self._drop(unflushed[number + 1 :], "it stands behind damage")
                return

    def _drop(self, segments: list[_Segment], reason: str) -> None:
        dropped = {segment.base_offset for segment in segments}
        self._segments = [one for one in self._segments if one.base_offset not in dropped]
        for segment in segments:
            self._dropped.append(segment.report(reason))
            # Kafka has its list of snapshots from before the recovery.
            if segment.base_offset in self._first_snapshots:
                self._snapshots.delete(segment.base_offset, reason, shortens_log=True)
            for kind in ("log", "index", "timeindex", "txnindex"):
                if segment.sibling(kind) in self._files:
                    self._files.delete(segment.sibling(kind), reason, shortens_log=True)

    def _require_segment(self) -> None:
        """Start anew where the log ends before it starts, or is not there at all."""
        log_start = self._settings.log_start_offset
        if self._segments and self._segments[-1].next_offset < log_start:
            self._drop(list(self._segments), f"it ends before the log's start, {log_start}")
            self._epochs, self._epochs_changed = [], True
        if self._segments:
            return
        for kind in ("log", "index", "timeindex"):
            self._files.write(f"{log_start:020}.{kind}", b"", "a log must have a segment")
        self._segments = [_EmptySegment(log_start)]

    # ---- what belongs to the whole log ------------------------------------------------------

    def _read_epochs(self) -> list[LeaderEpoch]:
        if LEADER_EPOCH_CHECKPOINT not in self._files:
            return []
        return read_leader_epochs(self._files.origin(LEADER_EPOCH_CHECKPOINT))

    def _set_epochs(self, epochs: list[LeaderEpoch]) -> None:
        self._epochs_changed |= epochs != self._epochs
        self._epochs = epochs

    def _write_epochs(self, end: int) -> None:
        log_start = self._settings.log_start_offset
        self._set_epochs(truncated_from_end(self._epochs, end))
        # Kafka writes the file whenever an epoch reaches back to the start.
        self._epochs_changed |= any(entry.start_offset <= log_start for entry in self._epochs)
        self._set_epochs(truncated_from_start(self._epochs, log_start))
        if self._epochs_changed:
            data = leader_epochs_file(self._epochs)
            self._files.write(LEADER_EPOCH_CHECKPOINT, data, "the leader epochs of the log")
            self._files.delete(f"{LEADER_EPOCH_CHECKPOINT}.tmp", "a write that was interrupted")
        elif LEADER_EPOCH_CHECKPOINT not in self._files:
            self._files.write(LEADER_EPOCH_CHECKPOINT, b"", "the file is missing")

    def _remove_stray_snapshots(self) -> None:
        """Keep snapshots at segments, and the newest of the others if it is behind them."""
        bases = {segment.base_offset for segment in self._segments}
        stray = [offset for offset in self._snapshots.offsets if offset not in bases]
        keep_last = bool(stray) and stray[-1] >= max(bases)
        for offset in stray[:-1] if keep_last else stray:
            self._snapshots.delete(offset, "no segment begins there")


def _require_framed(scan: BatchScan) -> None:
    """Fail where Kafka fails that only steps from batch to batch: it looks at no magic byte."""
    if scan.error is not None and scan.error.symbol == "BAD_LENGTH":
        raise scan.error


def _offset_of(name: str) -> int | None:
    """Return the offset that a file is named by, in as many digits as Kafka writes."""
    digits = name.partition(".")[0]
    if len(digits) != _DIGITS or not (digits.isascii() and digits.isdigit()):
        return None
    return offset if (offset := int(digits)) < 1 << 63 else None


def _snapshot_name(offset: int) -> str:
    return f"{offset:020}.snapshot"
