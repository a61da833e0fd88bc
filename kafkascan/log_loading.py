"""The log of a partition, loaded as a broker does after an unclean end (``LogLoader``).

Nothing is written here: what a broker would change is noted down.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kafkascan.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    LeaderEpoch,
    leader_epochs_file,
    read_leader_epochs,
)
from kafkascan.epochs import truncated_from_end, truncated_from_start
from kafkascan.indexes import DEFAULT_INTERVAL_BYTES, parse_index
from kafkascan.names import INDEX_KINDS
from kafkascan.producer_history import ProducerHistory, Snapshots
from kafkascan.producers import (
    PRODUCER_EXPIRATION_MS,
)
from kafkascan.segment_recovery import (
    OverflowingSegmentError,
    RecoveredSegment,
    recover_segment,
)
from kafkascan.segment_splitting import split_segment
from kafkascan.staged_files import Part, StagedFiles
from kafkascan.staged_segments import (
    EmptySegment,
    SegmentReport,
    StagedSegment,
    offset_of,
    overlapping,
)

_DELETED, _CLEANED, _SWAP = ".deleted", ".cleaned", ".swap"
_DIGITS = 20
_KRAFT_SNAPSHOT_DELETED = ".checkpoint.deleted"
_BESIDE_LOGS = tuple(kind for kind in INDEX_KINDS if kind != "snapshot")
_INDEX_SUFFIXES = tuple(f".{kind}" for kind in _BESIDE_LOGS)


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
    CorruptLogError
        If Kafka refuses to load the log: an `InvalidRecordError`, a `CorruptIndexError`, …
    OSError
    """
    return _Loading(folder, settings).load()


class _SplitError(Exception):
    """A segment is to be split before the log is loaded."""

    def __init__(self, segment: StagedSegment, so_far: RecoveredSegment) -> None:
        super().__init__(segment)
        self.segment, self.so_far = segment, so_far


class _Loading:
    def __init__(self, folder: Path, settings: LoadSettings) -> None:
        self._settings = settings
        self._files = StagedFiles(folder)
        self._segments: list[StagedSegment] = []
        # All that were found; those of the log are among them.
        self._found: dict[int, StagedSegment] = {}
        self._dropped: list[SegmentReport] = []
        self._epochs = self._read_epochs()
        self._epochs_changed = False

    def load(self) -> LoadedLog:
        self._first_snapshots = set(Snapshots(self._files).offsets)
        self._finish_replacements()
        self._snapshots = Snapshots(self._files)
        self._splitting(self._load_segments)
        self._splitting(self._recover_segments)
        self._require_segment()
        end = self._segments[-1].next_offset
        self._write_epochs(end)
        self._remove_stray_snapshots()
        log_start = max(self._settings.log_start_offset, self._segments[0].base_offset)
        producers = self._producers()
        producers.rebuild(self._segments, log_start, end)
        self._find_first_unstable(producers, log_start, end)
        reports = [segment.report() for segment in self._segments]
        return LoadedLog(log_start, end, reports + self._dropped, self._epochs, self._files)

    # ---- what the cleaner left --------------------------------------------------------------

    def _finish_replacements(self) -> None:
        """Give up replacements that were not complete, finish those that were."""
        files = self._files
        cleaned = [name for name in files.names() if name.endswith(_CLEANED)]
        given_up = min((offset_of(name) or 0 for name in cleaned), default=1 << 63)
        for name in files.names():
            if name.endswith(_DELETED) and not name.endswith(_KRAFT_SNAPSHOT_DELETED):
                files.delete(name, "the broker was about to delete it", at_first=True)
            elif name.endswith(_SWAP) and (offset_of(name) or 0) >= given_up:
                files.delete(name, "a replacement that is not complete", at_first=True)
        # In this order: without .cleaned files, .swap files count as complete.
        for name in cleaned:
            files.delete(name, "a replacement that is not complete", at_first=True)
        self._swap_in([name for name in files.names() if name.endswith(_SWAP)])

    def _swap_in(self, swaps: list[str]) -> None:
        """Put complete replacements in the place of what they replace."""
        files = self._files
        named = {name: offset_of(name) for name in swaps if name.endswith(".log" + _SWAP)}
        ranges = [self._range_of(base) for base in named.values() if base is not None]
        if ranges:
            first, last = min(start for start, _ in ranges), max(stop for _, stop in ranges)
            for name in files.names():
                offset = offset_of(name)
                if not name.endswith(_SWAP) and offset is not None and first <= offset < last:
                    files.delete(name, "replaced by the cleaner", at_first=True)
        for name in swaps:
            files.rename(name, name.removesuffix(_SWAP), "a complete replacement")
        for name in swaps:
            # To Kafka no index is missing there: looking at the replacement has created it.
            index = name.removesuffix(".log" + _SWAP) + ".index"
            if name.endswith(".log" + _SWAP) and index not in files:
                files.write(index, b"", "the index of a replacement is missing")

    def _range_of(self, base_offset: int) -> tuple[int, int]:
        return base_offset, StagedSegment(self._files, base_offset, _SWAP).next_offset

    # ---- segments ---------------------------------------------------------------------------

    def _load_segments(self) -> None:
        files = self._files
        self._segments = []
        for name in files.names():
            offset = offset_of(name)
            if offset is None:
                continue
            if name.endswith(_INDEX_SUFFIXES) and f"{offset:020}.log" not in files:
                files.delete(name, "an index without a log")
            elif name.endswith(".log"):
                segment = self._segment(offset)
                if not self._is_sane(segment):
                    self._recover(segment)
                    if segment.is_emptied:
                        raise segment.misfit()
                self._segments.append(segment)

    def _segment(self, base_offset: int) -> StagedSegment:
        if base_offset not in self._found:
            self._found[base_offset] = StagedSegment(self._files, base_offset)
        return self._found[base_offset]

    def _is_sane(self, segment: StagedSegment) -> bool:
        """Look at indexes as brokers do, which is not much (``LogSegment.sanityCheck``)."""
        files = self._files
        if segment.sibling("index") not in files:
            return False
        if segment.sibling("timeindex") not in files:
            files.write(segment.sibling("timeindex"), b"", "the time index is missing")
        name = segment.sibling("txnindex")
        if name not in files:
            return True
        entries = parse_index(files.read(name), Path(files.path(name)))
        return not (entries["last_offset"] < segment.base_offset).any()

    def _recover(self, segment: StagedSegment) -> None:
        """Read a segment again and write what belongs to it (``LogLoader.recoverSegment``)."""
        producers = self._producers()
        log_start = self._settings.log_start_offset
        producers.rebuild(self._segments, log_start, segment.base_offset)
        with segment.open() as source:
            try:
                recovered = recover_segment(
                    source,
                    segment.base_offset,
                    producers.state,
                    self._epochs,
                    interval_bytes=self._settings.interval_bytes,
                    threads=self._settings.threads,
                )
            except OverflowingSegmentError as overflow:
                self._note_overflow(segment, overflow.so_far)
                raise _SplitError(segment, overflow.so_far) from None
        segment.note(recovered)
        self._set_epochs(recovered.leader_epochs)
        self._write_segment(segment, recovered)
        if not recovered.is_emptied:
            producers.map_end = recovered.map_end_offset or producers.map_end
            producers.take_snapshot()

    def _producers(self) -> ProducerHistory:
        settings = self._settings
        return ProducerHistory(
            self._snapshots,
            now_ms=settings.now_ms,
            expiration_ms=settings.producer_expiration_ms,
        )

    def _write_segment(self, segment: StagedSegment, recovered: RecoveredSegment) -> None:
        self._files.truncate(segment.name, recovered.valid_bytes, recovered.reason or "")
        self._write_indexes(segment, recovered)

    def _write_indexes(self, segment: StagedSegment, recovered: RecoveredSegment) -> None:
        files = self._files
        reason = "rebuilt from the log"
        files.write(segment.sibling("index"), recovered.offset_index.tobytes(), reason)
        files.write(segment.sibling("timeindex"), recovered.time_index.tobytes(), reason)
        name = segment.sibling("txnindex")
        if name in files or recovered.has_transaction_index:
            files.write(name, recovered.transaction_index.tobytes(), reason)

    def _recover_segments(self) -> None:
        """Recover from the recovery point's segment on; behind damage, nothing is kept."""
        unflushed = list(overlapping(self._segments, self._settings.recovery_point, 1 << 63))
        for number, segment in enumerate(unflushed):
            # For the producers before a segment, Kafka looks at all segments there are.
            # One whose index was missing may have been cut already, without consequences.
            size = segment.valid_bytes
            self._recover(segment)
            if segment.valid_bytes < size:
                _ = segment.next_offset  # Kafka says it in its log, and so must find it
                self._drop(unflushed[number + 1 :], "it stands behind damage")
                return

    def _find_first_unstable(self, producers: ProducerHistory, log_start: int, end: int) -> None:
        """Fail where Kafka fails: it looks for where the last stable offset is."""
        first = producers.first_unstable_offset
        if first is None or max(first, log_start) >= end:
            return
        offset = max(first, log_start)
        for segment in overlapping(self._segments, offset, 1 << 63):
            if segment.find(offset) is not None:
                return

    def _drop(self, segments: list[StagedSegment], reason: str) -> None:
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
        self._segments = [EmptySegment(log_start)]

    # ---- segments that are split ------------------------------------------------------------

    def _splitting(self, step: Callable[[], None]) -> None:
        """Take a step, again after each split that it needs (``retryOnOffsetOverflow``)."""
        while True:
            try:
                step()
            except _SplitError as found:
                self._split(found.segment, found.so_far)
            else:
                return

    def _note_overflow(self, segment: StagedSegment, so_far: RecoveredSegment) -> None:
        """Keep what Kafka has noted down before it sees that a segment is to be split."""
        self._set_epochs(so_far.leader_epochs)
        self._write_indexes(segment, so_far)

    def _split(self, segment: StagedSegment, so_far: RecoveredSegment) -> None:
        """Put a segment's parts in its place (``LocalLog.splitOverflowedSegment``)."""
        base = segment.base_offset
        with segment.open() as source:
            interval = self._settings.interval_bytes
            parts = split_segment(source, base, so_far.offset_index, interval)
        bases = [part.base_offset for part in parts]
        # While logs are being loaded, Kafka does not know yet of the segment that it replaces:
        # of its files, those stay whose names the parts do not need.
        is_known = any(one.base_offset == base for one in self._segments)
        siblings = [segment.sibling(kind) for kind in _BESIDE_LOGS] if is_known else []
        self._files.take_apart(
            segment.name,
            [Part(f"{part.base_offset:020}.log", part.start, part.stop) for part in parts],
            "offsets lie too far apart for one segment",
            siblings=siblings,
            keeps=not is_known and base not in bases,
        )
        self._found = {one: kept for one, kept in self._found.items() if one not in (*bases, base)}
        for part in parts:
            for kind, entries in (("index", part.offset_index), ("timeindex", part.time_index)):
                name, reason = f"{part.base_offset:020}.{kind}", "of a part of a segment"
                self._files.write(name, entries.tobytes(), reason)
        if is_known:
            self._replace(base, bases)

    def _replace(self, base: int, parts: list[int]) -> None:
        """Let there be other segments in the place of one (``LocalLog.replaceSegments``)."""
        segments = {one.base_offset: one for one in self._segments}
        segments |= {part: self._segment(part) for part in parts}
        if base != min(parts):
            del segments[base]
        self._segments = [segments[offset] for offset in sorted(segments)]
        if base not in parts and base in self._first_snapshots:
            self._snapshots.delete(base, "its segment is split")

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
            data, reason = leader_epochs_file(self._epochs), "the leader epochs of the log"
            # As Kafka, which writes it when it sees a new epoch: segments that have got their
            # indexes are read late, and an epoch that is seen late is none.
            self._files.write(LEADER_EPOCH_CHECKPOINT, data, reason, at_first=True)
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
