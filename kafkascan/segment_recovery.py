"""One segment, read again as a broker does after an unclean end (``LogSegment.recover``)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kafkascan.batch_columns import BatchTable, last_offset, next_offset
from kafkascan.batches import scan_batches
from kafkascan.checkpoints import LeaderEpoch
from kafkascan.checks import verify_crcs
from kafkascan.epochs import build_leader_epochs
from kafkascan.errors import (
    SENTENCES,
    STATUS,
    BatchTableError,
    CorruptLogError,
    IndexOverflowError,
    record_error,
)
from kafkascan.indexes import IndexEntries, build_indexes, require_interval_bytes
from kafkascan.layout import (
    LOG_OVERHEAD,
    OFFSET_INDEX_ENTRY,
    TIME_INDEX_ENTRY,
    TRANSACTION_INDEX_ENTRY,
    ScanEnd,
)
from kafkascan.producers import (
    ProducerState,
    RefusedBatchError,
    require_begun,
    transaction_index_entries,
)
from kafkascan.sources import Source


@dataclass
class RecoveredSegment:
    """
    What a segment holds, and what its files should be.

    Attributes
    ----------
    batches : ndarray of BATCH_DTYPE
        Those that are valid.
    valid_bytes : int
        Up to the end of the last of them.
    reason : str or None
        Why the segment is cut there; None if all of it is valid.
    offset_index, time_index, transaction_index : ndarray
        Entries of the index files.
    leader_epochs : list of LeaderEpoch
        What was known before, and what the segment adds.
    map_end_offset : int or None
        What the producers' state covers all before of; None if it covers no more than before.
    has_transaction_index : bool
        Whether Kafka creates the file; once it is there, it stays, if only as an empty one.
    is_emptied : bool
        Whether Kafka wants to give all of it up, because offsets do not ascend.
    """

    batches: BatchTable
    valid_bytes: int
    reason: str | None
    offset_index: IndexEntries
    time_index: IndexEntries
    transaction_index: NDArray[np.void]
    leader_epochs: list[LeaderEpoch]
    map_end_offset: int | None
    has_transaction_index: bool
    is_emptied: bool = False


class OverflowingSegmentError(Exception):
    """
    A segment that holds offsets too far from its own, which Kafka splits.

    Attributes
    ----------
    so_far : RecoveredSegment
        What was found before the first batch that is too far away.
    """

    def __init__(self, so_far: RecoveredSegment) -> None:
        super().__init__(so_far)
        self.so_far = so_far


def recover_segment(
    source: Source,
    base_offset: int,
    state: ProducerState,
    leader_epochs: list[LeaderEpoch],
    *,
    interval_bytes: int,
    threads: int | None = 1,
) -> RecoveredSegment:
    """
    Find the valid part of a segment, and build what belongs to it.

    Parameters
    ----------
    source : Source
    base_offset : int
        Of the segment: its file's name.
    state : ProducerState
        At the start of the segment; it is moved to the end of what is valid.
    leader_epochs : list of LeaderEpoch
        What is known so far.
    interval_bytes : int
        Kafka's ``index.interval.bytes``.
    threads : int, optional
        For checksums; as of `verify_crcs`.

    Returns
    -------
    RecoveredSegment

    Raises
    ------
    OverflowingSegmentError
        If offsets lie too far from the segment's.
    CorruptLogError
        If Kafka refuses to load the log: an `InvalidRecordError`, or markers whose offsets do
        not ascend.
    SourceReadError
    """
    require_interval_bytes(interval_bytes)
    batches, reason = _sound_batches(source, threads)
    indexes, misfit = _indexed(batches, base_offset, interval_bytes)
    known = batches if misfit is None else batches[: misfit.row]
    covered = known
    try:
        completed = _applied(source, state, known)
    except RefusedBatchError as refused:
        if refused.is_fatal:
            raise refused.error from None
        # Kafka keeps the batch itself, and what follows it is cut.
        known = batches = batches[: refused.row + 1]
        covered, completed, reason = batches[:-1], refused.completed, refused.error.reason
        indexes, misfit = _indexed(batches, base_offset, interval_bytes)
    epochs = build_leader_epochs(known, prior=leader_epochs)
    aborted = transaction_index_entries(completed)
    _require_ascending(source, aborted)
    if isinstance(misfit, BatchTableError):
        kept = _kept_of_emptied(batches, base_offset, interval_bytes)
        return _emptied(kept, base_offset, epochs, had_aborted=bool(len(aborted)))
    if misfit is not None:
        batches, (indexes, _) = known, _indexed(known, base_offset, interval_bytes)
    recovered = RecoveredSegment(
        batches=batches,
        valid_bytes=_end_of(batches),
        reason=reason,
        offset_index=indexes[0],
        time_index=indexes[1],
        transaction_index=aborted,
        leader_epochs=epochs,
        map_end_offset=_map_end_offset(covered),
        has_transaction_index=bool(len(aborted)),
    )
    if misfit is not None:
        raise OverflowingSegmentError(recovered)
    return recovered


def _applied(source: Source, state: ProducerState, batches: BatchTable) -> NDArray[np.void]:
    """Apply batches to what is known of producers, to an end that Kafka arrives at, too."""
    open_before = state.open_transactions()
    try:
        completed = state.apply(source, batches)
    except RefusedBatchError as refused:
        require_begun(source.path, batches[: refused.row], refused.completed, open_before)
        raise
    require_begun(source.path, batches, completed, open_before)
    return completed


def _require_ascending(source: Source, aborted: NDArray[np.void]) -> None:
    """Fail where Kafka fails: markers in an index of transactions must ascend."""
    if len(aborted) < 2:
        return
    wrong = np.flatnonzero(np.diff(aborted["last_offset"].astype(np.int64)) <= 0)
    if len(wrong):
        offset = int(aborted["last_offset"][wrong[0] + 1])
        symbol = "OFFSETS_NOT_ASCENDING"
        raise CorruptLogError(source.path, 0, offset, SENTENCES[STATUS[symbol]], symbol)


def _sound_batches(source: Source, threads: int | None) -> tuple[BatchTable, str | None]:
    """Return the batches before the first one that is damaged, and what is wrong with that."""
    scan = scan_batches(source, on_corrupt="stop")
    verdicts = verify_crcs(source, scan.batches, threads=threads)
    if not verdicts.all():
        wrong = int(verdicts.argmin())
        error = record_error("CHECKSUM_MISMATCH", source.path, scan.batches[wrong])
        return scan.batches[:wrong], error.reason
    if scan.end is ScanEnd.CLEAN:
        return scan.batches, None
    if scan.error is not None:
        return scan.batches, scan.error.reason
    is_torn = scan.end is ScanEnd.TORN_TAIL
    return scan.batches, SENTENCES[STATUS["TORN_TAIL"]] if is_torn else "zeros follow"


def _indexed(
    batches: BatchTable, base_offset: int, interval_bytes: int
) -> tuple[tuple[IndexEntries, IndexEntries], IndexOverflowError | BatchTableError | None]:
    """Return the entries of both indexes, or what keeps batches from being indexed."""
    try:
        return build_indexes(batches, base_offset, interval_bytes), None
    except (IndexOverflowError, BatchTableError) as error:
        return (np.empty(0, OFFSET_INDEX_ENTRY), np.empty(0, TIME_INDEX_ENTRY)), error


def _kept_of_emptied(batches: BatchTable, base_offset: int, interval_bytes: int) -> BatchTable:
    """
    Return what is left of a segment that Kafka empties.

    ``LogSegment.truncateTo`` asks the index where the segment's first offset is. Usually that
    is its start; but if that offset stands there again, far enough from the start to have
    an entry, the log is cut there.
    """
    indexed = int(batches["position"].searchsorted(interval_bytes, side="right"))
    if indexed < len(batches) and last_offset(batches[indexed : indexed + 1])[0] == base_offset:
        return batches[:indexed]
    return batches[:0]


def _emptied(
    kept: BatchTable, base_offset: int, leader_epochs: list[LeaderEpoch], *, had_aborted: bool
) -> RecoveredSegment:
    """Give up a segment whose offsets do not ascend, as Kafka does."""
    return RecoveredSegment(
        batches=kept,
        valid_bytes=_end_of(kept),
        reason=SENTENCES[STATUS["OFFSETS_NOT_ASCENDING"]],
        offset_index=np.empty(0, OFFSET_INDEX_ENTRY),
        # Of the latest timestamp, which is entered when the log is closed.
        time_index=build_indexes(kept, base_offset, interval_bytes=_end_of(kept))[1],
        transaction_index=np.empty(0, TRANSACTION_INDEX_ENTRY),
        leader_epochs=leader_epochs,
        map_end_offset=None,
        has_transaction_index=had_aborted,
        is_emptied=True,
    )


def _end_of(batches: BatchTable) -> int:
    if not len(batches):
        return 0
    return int(batches["position"][-1]) + LOG_OVERHEAD + int(batches["batch_length"][-1])


def _map_end_offset(batches: BatchTable) -> int | None:
    """Messages of magic 0 and 1 do not move it."""
    if len(batches) and batches["magic"][-1] >= 2:
        return int(next_offset(batches[-1:])[0])
    new = np.flatnonzero(batches["magic"] >= 2)
    return int(next_offset(batches[new[-1:]])[0]) if len(new) else None
