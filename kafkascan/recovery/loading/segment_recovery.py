"""Crash recovery of one segment, as in ``LogSegment.recover``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, last_offset, next_offset
from kafkascan.batches.scan import scan_batches
from kafkascan.batches.verify import verify_rows
from kafkascan.broker_state.checkpoints import LeaderEpoch
from kafkascan.broker_state.indexes import IndexEntries, build_indexes, require_interval_bytes
from kafkascan.broker_state.leader_epochs import build_leader_epochs
from kafkascan.broker_state.producer_snapshots import transaction_index_entries
from kafkascan.broker_state.producer_state import (
    AppliedBatches,
    ProducerState,
    find_unknown_transaction,
)
from kafkascan.format.errors import (
    SENTENCES,
    STATUS,
    BatchTableError,
    CorruptLogError,
    IndexOverflowError,
    record_error,
)
from kafkascan.format.layout import (
    LOG_OVERHEAD,
    OFFSET_INDEX_ENTRY,
    TIME_INDEX_ENTRY,
    TRANSACTION_INDEX_ENTRY,
    ScanEnd,
)
from kafkascan.io.sources import Source


@dataclass
class RecoveredSegment:
    """
    The valid batches of a segment, and the content that its files must have.

    Attributes
    ----------
    batches : ndarray of BATCH_DTYPE
        The valid batches.
    valid_bytes : int
        Position of the end of the last valid batch.
    reason : str or None
        Why the segment is truncated there; None if all of it is valid.
    offset_index, time_index, transaction_index : ndarray
        Entries of the index files.
    leader_epochs : list of LeaderEpoch
        The leader epochs known before, and the ones that start in the segment.
    map_end_offset : int or None
        Offset up to which the producer state is complete; None if the segment does not move it.
    has_transaction_index : bool
        Whether Kafka creates the file. An existing file is kept, even if it becomes empty.
    is_emptied : bool
        Whether Kafka discards all batches, because offsets do not ascend.
    overflows : bool
        Whether an offset after these batches is too far from the base offset, so that Kafka
        splits the segment.
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
    overflows: bool = False


def recover_segment(
    source: Source,
    base_offset: int,
    state: ProducerState,
    leader_epochs: list[LeaderEpoch],
    *,
    interval_bytes: int,
) -> RecoveredSegment:
    """
    Find the valid batches of a segment, and build its indexes.

    Parameters
    ----------
    source : Source
    base_offset : int
        The base offset of the segment, from its file name.
    state : ProducerState
        State at the start of the segment. It is moved to the end of the valid batches.
    leader_epochs : list of LeaderEpoch
        The leader epochs known so far.
    interval_bytes : int
        Kafka's ``index.interval.bytes``.

    Returns
    -------
    RecoveredSegment

    Raises
    ------
    CorruptLogError
        If Kafka refuses to load the log: an `InvalidRecordError`, or markers whose offsets do
        not ascend.
    SourceReadError
    """
    require_interval_bytes(interval_bytes)
    batches, reason = _intact_batches(source)
    indexes, misfit = _indexed(batches, base_offset, interval_bytes)
    known = batches if misfit is None else batches[: misfit.row]
    covered = known
    applied = _apply(source, state, known)
    if applied.refused is not None:
        # Kafka keeps the batch itself, and truncates the segment after it.
        known = batches = batches[: applied.refused.row + 1]
        covered, reason = batches[:-1], applied.refused.error.reason
        indexes, misfit = _indexed(batches, base_offset, interval_bytes)
    epochs = build_leader_epochs(known, prior=leader_epochs)
    aborted = transaction_index_entries(applied.completed)
    _require_ascending(source, aborted)
    if isinstance(misfit, BatchTableError):
        kept = _kept_of_emptied(batches, base_offset, interval_bytes)
        return _emptied(kept, base_offset, epochs, had_aborted=bool(len(aborted)))
    if misfit is not None:
        batches, (indexes, _) = known, _indexed(known, base_offset, interval_bytes)
    return RecoveredSegment(
        batches=batches,
        valid_bytes=_end_of(batches),
        reason=reason,
        offset_index=indexes[0],
        time_index=indexes[1],
        transaction_index=aborted,
        leader_epochs=epochs,
        map_end_offset=_map_end_offset(covered),
        has_transaction_index=bool(len(aborted)),
        overflows=misfit is not None,
    )


def _apply(source: Source, state: ProducerState, batches: BatchTable) -> AppliedBatches:
    """Apply batches to the producers' state; raise the error of a batch that is fatal to Kafka."""
    open_before = state.open_transactions()
    applied = state.apply(source, batches)
    if applied.refused is not None:
        batches = batches[: applied.refused.row]
    unknown = find_unknown_transaction(source.path, batches, applied.completed, open_before)
    refused = unknown or applied.refused
    if refused is not None and refused.is_fatal:
        raise refused.error
    return applied


def _require_ascending(source: Source, aborted: NDArray[np.void]) -> None:
    """Raise where Kafka fails: the markers in a transaction index must ascend."""
    if len(aborted) < 2:
        return
    wrong = np.flatnonzero(np.diff(aborted["last_offset"].astype(np.int64)) <= 0)
    if len(wrong):
        offset = int(aborted["last_offset"][wrong[0] + 1])
        symbol = "OFFSETS_NOT_ASCENDING"
        raise CorruptLogError(source.path, 0, offset, SENTENCES[STATUS[symbol]], symbol)


def _intact_batches(source: Source) -> tuple[BatchTable, str | None]:
    """Return the batches before the first damaged one, and what is wrong with that one."""
    scan = scan_batches(source, on_corrupt="stop")
    verdicts = verify_rows(source, scan.batches)
    source.require_unshrunk()
    if not verdicts.all():
        wrong = int(verdicts.argmin())
        error = record_error("CHECKSUM_MISMATCH", source.path, scan.batches[wrong])
        return scan.batches[:wrong], error.reason
    if scan.end is ScanEnd.CLEAN:
        return scan.batches, None
    if scan.error is not None:
        return scan.batches, scan.error.reason
    is_torn = scan.end is ScanEnd.TORN_TAIL
    return scan.batches, SENTENCES[
        STATUS["TORN_TAIL"]
    ] if is_torn else "zeros follow the last batch"


def _indexed(
    batches: BatchTable, base_offset: int, interval_bytes: int
) -> tuple[tuple[IndexEntries, IndexEntries], IndexOverflowError | BatchTableError | None]:
    """Return the entries of both indexes, and the error of a batch that cannot be indexed."""
    try:
        return build_indexes(batches, base_offset, interval_bytes), None
    except (IndexOverflowError, BatchTableError) as error:
        return (np.empty(0, OFFSET_INDEX_ENTRY), np.empty(0, TIME_INDEX_ENTRY)), error


def _kept_of_emptied(batches: BatchTable, base_offset: int, interval_bytes: int) -> BatchTable:
    """
    Return the batches that remain of a segment that Kafka empties.

    ``LogSegment.truncateTo`` looks up the segment's first offset in the index. Usually the result
    is position 0. If the offset occurs again, far enough from the start to have an index entry,
    Kafka truncates the log there.
    """
    indexed = int(batches["position"].searchsorted(interval_bytes, side="right"))
    if indexed < len(batches) and last_offset(batches[indexed : indexed + 1])[0] == base_offset:
        return batches[:indexed]
    return batches[:0]


def _emptied(
    kept: BatchTable, base_offset: int, leader_epochs: list[LeaderEpoch], *, had_aborted: bool
) -> RecoveredSegment:
    """Return the result for a segment whose offsets do not ascend, which Kafka empties."""
    return RecoveredSegment(
        batches=kept,
        valid_bytes=_end_of(kept),
        reason=SENTENCES[STATUS["OFFSETS_NOT_ASCENDING"]],
        offset_index=np.empty(0, OFFSET_INDEX_ENTRY),
        # The entry of the latest timestamp, which Kafka appends when it closes the log.
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
    """Return the offset up to which batches move the producer state; legacy messages do not."""
    new = np.flatnonzero(batches["magic"] >= 2)
    return int(next_offset(batches[new[-1:]])[0]) if len(new) else None
