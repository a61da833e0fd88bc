"""Simulate Kafka's ``LogLoader`` on a partition directory, as after an unclean shutdown.

Nothing is written: the result contains the file changes that a broker would make.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from kafkascan.broker_state.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    LeaderEpoch,
    leader_epochs_file,
    parse_leader_epochs,
)
from kafkascan.broker_state.index_schemas import DEFAULT_INTERVAL_BYTES
from kafkascan.broker_state.indexes import parse_index
from kafkascan.broker_state.leader_epochs import (
    loaded_epochs,
    truncated_from_end,
    truncated_from_start,
)
from kafkascan.broker_state.producer_state import (
    PRODUCER_EXPIRATION_MS,
)
from kafkascan.format.file_names import INDEX_KINDS
from kafkascan.format.times import milliseconds_or_now
from kafkascan.recovery.loading.loaded_segment import (
    LoadedSegment,
    LoadFinding,
    SegmentReport,
    check_end,
    check_segments,
    offset_of,
    overlapping,
)
from kafkascan.recovery.loading.planned_files import Part, PlannedFiles
from kafkascan.recovery.loading.producer_replay import ProducerReplay, Snapshots
from kafkascan.recovery.loading.segment_recovery import RecoveredSegment, recover_segment
from kafkascan.recovery.loading.segment_splitting import split_segment

_INDEX_FILE_KINDS = tuple(kind for kind in INDEX_KINDS if kind != "snapshot")
_INDEX_SUFFIXES = tuple(f".{kind}" for kind in _INDEX_FILE_KINDS)

_DELETED, _CLEANED, _SWAP = ".deleted", ".cleaned", ".swap"
_KRAFT_SNAPSHOT_DELETED = ".checkpoint.deleted"
_NO_OFFSET = 1 << 63  # above all offsets

_Overflow: TypeAlias = tuple[LoadedSegment, RecoveredSegment]


@dataclass(frozen=True)
class LoadSettings:
    """
    Broker state and configuration that loading depends on.

    Attributes
    ----------
    recovery_point : int
        Offset up to which the log was flushed. Segments before the one that contains it are
        not recovered.
    log_start_offset : int
        From the checkpoint of the data directory.
    is_tiered : bool
        Whether segments are kept in remote storage, so that the log starts at `log_start_offset`
        even if the first segments are no longer stored in the directory.
    is_tiering_guessed : bool
        Whether that is only what the checkpoint suggests.
    interval_bytes : int
        Kafka's ``index.interval.bytes``.
    producer_expiration_ms : int
        Kafka's ``producer.id.expiration.ms``.
    now_ms : int
        Time at which producers are checked for expiration, in milliseconds since the epoch.
    verify : bool
        Whether to verify also the checksums of segments that are not recovered.
    """

    recovery_point: int = 0
    log_start_offset: int = 0
    is_tiered: bool = False
    is_tiering_guessed: bool = False
    interval_bytes: int = DEFAULT_INTERVAL_BYTES
    producer_expiration_ms: int = PRODUCER_EXPIRATION_MS
    now_ms: int = field(default_factory=milliseconds_or_now)
    verify: bool = False


@dataclass
class LoadedLog:
    """
    A log as a broker would have it after loading.

    Attributes
    ----------
    log_start_offset, log_end_offset : int
    segments : list of SegmentReport
        The segments of the log, then the segments that a broker would drop.
    leader_epochs : list of LeaderEpoch
    findings : list of LoadFinding
        Anything wrong that a broker does not notice when it loads the log.
    files : PlannedFiles
        The files, with the changes that a broker would make.
    """

    log_start_offset: int
    log_end_offset: int
    segments: list[SegmentReport]
    leader_epochs: list[LeaderEpoch]
    findings: list[LoadFinding]
    files: PlannedFiles


def load_log(folder: Path, settings: LoadSettings) -> LoadedLog:
    """
    Load the log of a partition as a broker does after an unclean shutdown.

    Parameters
    ----------
    folder : Path
        The partition directory.
    settings : LoadSettings

    Returns
    -------
    LoadedLog
        Index files have the content of a later clean shutdown: without the preallocated zeros
        of active indexes.

    Raises
    ------
    CorruptLogError
        If Kafka refuses to load the log: an `InvalidRecordError`, a `CorruptIndexError`, …
    OSError
    """
    files = PlannedFiles(folder)
    epochs = _read_epochs(files)
    first_snapshots = frozenset(Snapshots(files).offsets)
    _finish_replacements(files)
    loader = _LogLoader(settings, files, epochs, first_snapshots, Snapshots(files))
    loader.load_segments()
    loader.recover_segments()
    loader.require_segment()
    end = loader.segments[-1].read_next_offset()
    loader.write_epochs(end)
    loader.delete_stray_snapshots()
    local_start = max(settings.log_start_offset, loader.segments[0].base_offset)
    log_start = settings.log_start_offset if settings.is_tiered else local_start
    producers = loader.producers()
    producers.rebuild(loader.segments, log_start, end)
    _require_first_unstable(loader.segments, producers, log_start, end)
    findings = check_segments(files, loader.segments, log_start, verify=settings.verify)
    findings += check_end(settings.recovery_point, end)
    reports = [segment.report() for segment in loader.segments]
    return LoadedLog(log_start, end, reports + loader.dropped, loader.epochs, findings, files)


def _read_epochs(files: PlannedFiles) -> list[LeaderEpoch]:
    if LEADER_EPOCH_CHECKPOINT not in files:
        return []
    path = files.path(LEADER_EPOCH_CHECKPOINT)
    return loaded_epochs(parse_leader_epochs(files.read(LEADER_EPOCH_CHECKPOINT), path))


def _require_first_unstable(
    segments: list[LoadedSegment], producers: ProducerReplay, log_start: int, end: int
) -> None:
    """Raise where Kafka fails to find the position of the last stable offset."""
    first = producers.first_unstable_offset
    if first is None or max(first, log_start) >= end:
        return
    offset = max(first, log_start)
    for segment in overlapping(segments, offset, _NO_OFFSET):
        if segment.find(offset) is not None:
            return


@dataclass
class _LogLoader:
    """
    A log that is being loaded.

    Attributes
    ----------
    settings : LoadSettings
    files : PlannedFiles
    epochs : list of LeaderEpoch
    first_snapshots : frozenset of int
        Offsets of the snapshots that existed before loading.
    snapshots : Snapshots
    segments : list of LoadedSegment
        The segments of the log so far, in order.
    opened : dict of int to LoadedSegment
        All segments that were opened, by base offset.
    dropped : list of SegmentReport
    epochs_changed : bool
        Whether the file of leader epochs must be written.
    """

    settings: LoadSettings
    files: PlannedFiles
    epochs: list[LeaderEpoch]
    first_snapshots: frozenset[int]
    snapshots: Snapshots
    segments: list[LoadedSegment] = field(default_factory=list)
    opened: dict[int, LoadedSegment] = field(default_factory=dict)
    dropped: list[SegmentReport] = field(default_factory=list)
    epochs_changed: bool = False

    # ---- segments ---------------------------------------------------------------------------

    def load_segments(self) -> None:
        """Load all segments; start again after each split (``retryOnOffsetOverflow``)."""
        while (overflow := self._load_up_to_overflow()) is not None:
            self._split(*overflow)

    def _load_up_to_overflow(self) -> _Overflow | None:
        """Load segments up to the first one that has to be split; return it."""
        files = self.files
        self.segments = []
        for name in files.names():
            offset = offset_of(name)
            if offset is None:
                continue
            if name.endswith(_INDEX_SUFFIXES) and f"{offset:020}.log" not in files:
                files.delete(name, "an index without a log")
            elif name.endswith(".log"):
                segment = self._open_segment(offset)
                if not self._is_sane(segment):
                    recovered = self._recover(segment)
                    if recovered.overflows:
                        return segment, recovered
                    if segment.is_emptied:
                        raise segment.offsets_error()
                self.segments.append(segment)
        return None

    def _open_segment(self, base_offset: int) -> LoadedSegment:
        if base_offset not in self.opened:
            self.opened[base_offset] = LoadedSegment(self.files, base_offset)
        return self.opened[base_offset]

    def _is_sane(self, segment: LoadedSegment) -> bool:
        """Check the indexes as ``LogSegment.sanityCheck`` does, which is not much."""
        files = self.files
        if segment.sibling("index") not in files:
            return False
        if segment.sibling("timeindex") not in files:
            files.write(segment.sibling("timeindex"), b"", "the time index is missing")
        name = segment.sibling("txnindex")
        if name not in files:
            return True
        entries = parse_index(files.read(name), Path(files.path(name)))
        return not (entries["last_offset"] < segment.base_offset).any()

    def recover_segments(self) -> None:
        """Recover the segments from the recovery point on; start again after each split."""
        while (overflow := self._recover_up_to_overflow()) is not None:
            self._split(*overflow)

    def _recover_up_to_overflow(self) -> _Overflow | None:
        """Recover segments up to the first one that has to be split; return it."""
        unflushed = list(overlapping(self.segments, self.settings.recovery_point, _NO_OFFSET))
        for number, segment in enumerate(unflushed):
            # Kafka rebuilds the producer state from all segments, not only those before this one.
            # A segment without an index may have been truncated already; that drops nothing.
            size = segment.valid_bytes
            recovered = self._recover(segment)
            if recovered.overflows:
                return segment, recovered
            if segment.valid_bytes < size:
                # Kafka reads the next offset here to log it, and fails where that fails.
                segment.read_next_offset()
                self._drop(unflushed[number + 1 :], "it follows a damaged segment")
                return None
        return None

    def _recover(self, segment: LoadedSegment) -> RecoveredSegment:
        """Recover a segment and plan its files (``LogLoader.recoverSegment``)."""
        producers = self.producers()
        log_start = self.settings.log_start_offset
        producers.rebuild(self.segments, log_start, segment.base_offset)
        with segment.open() as source:
            recovered = recover_segment(
                source,
                segment.file,
                producers.state,
                self.epochs,
                interval_bytes=self.settings.interval_bytes,
            )
        self._set_epochs(recovered.leader_epochs)
        if recovered.overflows:  # Kafka has added its first index entries by then
            self._write_indexes(segment, recovered)
            return recovered
        segment.set_recovered(recovered)
        self.files.truncate(segment.name, segment.valid_bytes, recovered.reason or "")
        self._write_indexes(segment, recovered)
        if not recovered.is_emptied:
            producers.map_end = recovered.map_end_offset or producers.map_end
            producers.take_snapshot()
        return recovered

    def producers(self) -> ProducerReplay:
        """Return a new producer state, which reads and writes the log's snapshots."""
        return ProducerReplay(
            self.snapshots,
            now_ms=self.settings.now_ms,
            expiration_ms=self.settings.producer_expiration_ms,
        )

    def _write_indexes(self, segment: LoadedSegment, recovered: RecoveredSegment) -> None:
        files = self.files
        reason = "rebuilt from the log"
        files.write(segment.sibling("index"), recovered.offset_index.tobytes(), reason)
        files.write(segment.sibling("timeindex"), recovered.time_index.tobytes(), reason)
        name = segment.sibling("txnindex")
        if name in files or recovered.has_transaction_index:
            files.write(name, recovered.transaction_index.tobytes(), reason)

    def _drop(self, segments: list[LoadedSegment], reason: str) -> None:
        dropped = {segment.base_offset for segment in segments}
        self.segments = [one for one in self.segments if one.base_offset not in dropped]
        for segment in segments:
            self.dropped.append(segment.report(reason))
            # Kafka's list of snapshots is from before the recovery.
            if segment.base_offset in self.first_snapshots:
                self.snapshots.delete(segment.base_offset, reason, shortens_log=True)
            for kind in ("log", "index", "timeindex", "txnindex"):
                if segment.sibling(kind) in self.files:
                    self.files.delete(segment.sibling(kind), reason, shortens_log=True)

    def require_segment(self) -> None:
        """Start with an empty segment if the log has none, or ends before its start offset."""
        log_start = self.settings.log_start_offset
        if self.segments and self.segments[-1].read_next_offset() < log_start:
            self._drop(list(self.segments), f"it ends before the log start offset {log_start}")
            self.epochs, self.epochs_changed = [], True
        if self.segments:
            return
        for kind in ("log", "index", "timeindex"):
            self.files.write(f"{log_start:020}.{kind}", b"", "the log has no segments")
        self.segments = [LoadedSegment(self.files, log_start)]

    # ---- splitting --------------------------------------------------------------------------

    def _split(self, segment: LoadedSegment, so_far: RecoveredSegment) -> None:
        """Replace a segment by its parts (``LocalLog.splitOverflowedSegment``)."""
        base = segment.base_offset
        with segment.open() as source:
            interval = self.settings.interval_bytes
            parts = split_segment(source, base, so_far.offset_index, interval)
        bases = [part.base_offset for part in parts]
        # While Kafka loads segments, it does not know yet the one that it replaces: it keeps
        # those of its files whose names the parts do not need.
        is_known = any(one.base_offset == base for one in self.segments)
        siblings = [segment.sibling(kind) for kind in _INDEX_FILE_KINDS] if is_known else []
        self.files.split_log(
            segment.name,
            [Part(f"{part.base_offset:020}.log", part.start, part.stop) for part in parts],
            "the range of its offsets is too large for one segment",
            siblings=siblings,
            keeps=not is_known and base not in bases,
        )
        for replaced in (base, *bases):
            self.opened.pop(replaced, None)
        for part in parts:
            for kind, entries in (("index", part.offset_index), ("timeindex", part.time_index)):
                name, reason = (
                    f"{part.base_offset:020}.{kind}",
                    "index of a part of a split segment",
                )
                self.files.write(name, entries.tobytes(), reason)
        if is_known:
            self._replace(base, bases)

    def _replace(self, base: int, parts: list[int]) -> None:
        """Replace a segment in the list of segments (``LocalLog.replaceSegments``)."""
        segments = {one.base_offset: one for one in self.segments}
        segments |= {part: self._open_segment(part) for part in parts}
        if base != min(parts):
            del segments[base]
        self.segments = [segments[offset] for offset in sorted(segments)]
        if base not in parts and base in self.first_snapshots:
            self.snapshots.delete(base, "its segment is split")

    # ---- leader epochs and snapshots --------------------------------------------------------

    def _set_epochs(self, epochs: list[LeaderEpoch]) -> None:
        self.epochs_changed |= epochs != self.epochs
        self.epochs = epochs

    def write_epochs(self, end: int) -> None:
        """Truncate the leader epochs to the offsets of the log, and plan their file."""
        log_start = self.settings.log_start_offset
        self._set_epochs(truncated_from_end(self.epochs, end))
        # Kafka writes the file whenever an epoch starts at or before the log start offset.
        self.epochs_changed |= any(entry.start_offset <= log_start for entry in self.epochs)
        self._set_epochs(truncated_from_start(self.epochs, log_start))
        if self.epochs_changed:
            data, reason = leader_epochs_file(self.epochs), "the leader epochs of the log"
            # Kafka writes the file when it reads a new epoch, before it writes the segment's
            # indexes. A restart skips the segments that have indexes, and would miss the epoch.
            self.files.write(LEADER_EPOCH_CHECKPOINT, data, reason, at_first=True)
            self.files.delete(f"{LEADER_EPOCH_CHECKPOINT}.tmp", "an interrupted write")
        elif LEADER_EPOCH_CHECKPOINT not in self.files:
            self.files.write(LEADER_EPOCH_CHECKPOINT, b"", "the file is missing")

    def delete_stray_snapshots(self) -> None:
        """Delete snapshots between base offsets; the newest stays if it is after all of them."""
        bases = {segment.base_offset for segment in self.segments}
        stray = [offset for offset in self.snapshots.offsets if offset not in bases]
        keep_last = bool(stray) and stray[-1] >= max(bases)
        for offset in stray[:-1] if keep_last else stray:
            self.snapshots.delete(offset, "no segment starts at this offset")


# ---- interrupted replacements ----------------------------------------------------------------


def _finish_replacements(files: PlannedFiles) -> None:
    """Discard interrupted replacements of segments that are incomplete, and finish the others."""
    cleaned = files.names(_CLEANED)
    incomplete_from = min((offset_of(name) or 0 for name in cleaned), default=_NO_OFFSET)
    for name in files.names():
        if name.endswith(_DELETED) and not name.endswith(_KRAFT_SNAPSHOT_DELETED):
            files.delete(name, "the broker had marked it for deletion", at_first=True)
        elif name.endswith(_SWAP) and (offset_of(name) or 0) >= incomplete_from:
            files.delete(name, "an incomplete replacement", at_first=True)
    # After the .swap files: without .cleaned files, .swap files count as complete.
    for name in cleaned:
        files.delete(name, "an incomplete replacement", at_first=True)
    _swap_in(files, files.names(_SWAP))


def _swap_in(files: PlannedFiles, swaps: list[str]) -> None:
    """Replace segments by their complete replacements."""
    named = {name: offset_of(name) for name in swaps if name.endswith(".log" + _SWAP)}
    ranges = [
        (base, LoadedSegment(files, base, _SWAP).read_next_offset())
        for base in named.values()
        if base is not None
    ]
    if ranges:
        first, last = min(start for start, _ in ranges), max(stop for _, stop in ranges)
        for name in files.names():
            offset = offset_of(name)
            if not name.endswith(_SWAP) and offset is not None and first <= offset < last:
                files.delete(name, "replaced by the log cleaner", at_first=True)
    for name in swaps:
        files.rename(name, name.removesuffix(_SWAP), "a complete replacement")
    for name in swaps:
        # Kafka opens the index of a replacement to find the end, and so creates a missing one.
        index = name.removesuffix(".log" + _SWAP) + ".index"
        if name.endswith(".log" + _SWAP) and index not in files:
            files.write(index, b"", "the index of a replacement is missing")
