"""Crash recovery of one segment, as in ``LogSegment.recover``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, join_rows, join_tables, last_offset, next_offset
from kafkascan.batches.scan import iter_open_batches
from kafkascan.batches.screening import FORMATS, OFFSETS, screen
from kafkascan.batches.verify import verify_rows
from kafkascan.broker_state.checkpoints import LeaderEpoch
from kafkascan.broker_state.indexes import IndexBuilder, IndexEntries, require_interval_bytes
from kafkascan.broker_state.leader_epochs import build_leader_epochs
from kafkascan.broker_state.producer_snapshots import transaction_index_entries
from kafkascan.broker_state.producer_state import (
    COMPLETED_TRANSACTION,
    ProducerState,
    RefusedBatch,
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
    MIN_BATCH_SIZE,
    OFFSET_INDEX_ENTRY,
    TIME_INDEX_ENTRY,
    TRANSACTION_INDEX_ENTRY,
    ScanEnd,
)
from kafkascan.io.sources import Source
from kafkascan.logs.segment import SegmentFile
from kafkascan.logs.walking.batch_offsets import SegmentOffsets

_ROWS_AT_ONCE = 1 << 16


def rows_at_once(source: Source) -> int:
    """Return the rows of a table of a source's batches: a small segment gets a small table."""
    return min(_ROWS_AT_ONCE, source.size // MIN_BATCH_SIZE + 1)


class SegmentBatches:
    """
    What is known of a segment's batches, which are added table by table.

    Parameters
    ----------
    segment : SegmentFile

    Attributes
    ----------
    offsets : SegmentOffsets
    count : int
    end : int
        Position after the last one.
    """

    def __init__(self, segment: SegmentFile) -> None:
        self.offsets = SegmentOffsets(segment)
        self.count = self.end = 0
        self._first_offset = 0
        self._flags = 0

    def add(self, batches: BatchTable) -> None:
        """Add the next batches."""
        if not len(batches):
            return
        flags, first_offset = screen(batches), int(batches["base_offset"][0])
        if not self.count:
            self._first_offset = first_offset
        elif first_offset != self.offsets.end_offset:
            self._flags |= OFFSETS
        self._flags |= flags
        self.offsets.add(batches, flags)
        self.count += len(batches)
        last = batches[-1]
        self.end = int(last["position"]) + LOG_OVERHEAD + int(last["batch_length"])

    @property
    def plain_end(self) -> int | None:
        """The offset after the last batch, if all follow each other; None without batches."""
        if not self.count or self._flags & (OFFSETS | FORMATS):
            return None
        base_offset = self.offsets.segment.base_offset or 0
        return None if self._first_offset < base_offset else self.offsets.end_offset


@dataclass
class RecoveredSegment:
    """
    The valid batches of a segment, and the content that its files must have.

    Attributes
    ----------
    batches : SegmentBatches
        The valid batches.
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

    batches: SegmentBatches
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
    segment: SegmentFile,
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
    segment : SegmentFile
        Its name has the base offset.
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
    base_offset = segment.base_offset or 0
    builder = IndexBuilder(base_offset, interval_bytes)
    batches, transactions = SegmentBatches(segment), _Transactions(source, state)
    intact = _IntactBatches(source)
    emptied = _EmptiedStart(interval_bytes)
    map_end_offset, misfit, refused = None, None, None
    for table in intact:
        before = builder.copy()
        emptied.add(table)
        misfit = _add(builder, table)
        known = table if misfit is None else table[: misfit.row - batches.count]
        refused = transactions.apply(known, batches.count)
        covered = known
        if refused is not None:  # Kafka keeps the batch itself, and truncates the segment after it
            known, covered = table[: refused.row + 1], table[: refused.row]
            builder = before
            misfit = _add(builder, known)
        elif isinstance(misfit, IndexOverflowError):
            builder = before
            builder.add(known)
        map_end_offset = _map_end_offset(covered) or map_end_offset
        leader_epochs = build_leader_epochs(known, prior=leader_epochs)
        batches.add(known)
        if misfit is not None or refused is not None:
            break
    aborted = transaction_index_entries(transactions.require_known())
    _require_ascending(source, aborted)
    indexes, at_end = _finished(builder)
    if misfit is None:
        misfit = at_end
    if isinstance(misfit, BatchTableError):
        kept = _kept_of_emptied(source, segment, emptied)
        return _emptied(source, kept, leader_epochs, had_aborted=bool(len(aborted)))
    return RecoveredSegment(
        batches=batches,
        reason=intact.reason if refused is None else refused.error.reason,
        offset_index=indexes[0],
        time_index=indexes[1],
        transaction_index=aborted,
        leader_epochs=leader_epochs,
        map_end_offset=map_end_offset,
        has_transaction_index=bool(len(aborted)),
        overflows=misfit is not None,
    )


class _IntactBatches:
    """
    Iterates over the batches before the first damaged one.

    Attributes
    ----------
    reason : str or None
        What is wrong with that one; after the last table.
    """

    def __init__(self, source: Source) -> None:
        self.reason: str | None = None
        self._source = source

    def __iter__(self) -> Iterator[BatchTable]:
        source = self._source
        headers = iter_open_batches(
            source, rows=rows_at_once(source), on_corrupt="stop", reads_content=True
        )
        for table in headers:
            verdicts = verify_rows(source, table)
            source.require_unshrunk()
            if not verdicts.all():
                wrong = int(verdicts.argmin())
                error = record_error("CHECKSUM_MISMATCH", source.path, table[wrong])
                self.reason = error.reason
                yield table[:wrong]
                return
            yield table
        source.require_unshrunk()
        if headers.error is not None:
            self.reason = headers.error.reason
        elif headers.end is ScanEnd.TORN_TAIL:
            self.reason = SENTENCES[STATUS["TORN_TAIL"]]
        elif headers.end is not ScanEnd.CLEAN:
            self.reason = "zeros follow the last batch"


class _Transactions:
    """
    Applies the batches of a segment to the producers' state, table by table.

    Parameters
    ----------
    source : Source
    state : ProducerState
    """

    def __init__(self, source: Source, state: ProducerState) -> None:
        self._source, self._state = source, state
        self._open_before = state.open_transactions()
        self._completed: list[NDArray[np.void]] = []
        self._count = 0

    def apply(self, batches: BatchTable, first_row: int) -> RefusedBatch | None:
        """Apply the next batches; return the one that Kafka refuses, if it is not fatal to it."""
        applied, refused = self._state.apply(self._source, batches), None
        completed = applied.completed.copy()
        completed["row"] += first_row
        self._completed.append(completed)
        self._count = first_row + len(batches)
        if applied.refused is not None:
            refused = applied.refused
            self._count = first_row + refused.row
            if refused.is_fatal:
                self.require_known()
                raise refused.error
        return refused

    def require_known(self) -> NDArray[np.void]:
        """Return the transactions that ended; raise the error of one that Kafka does not know."""
        completed = join_rows(self._completed, COMPLETED_TRANSACTION)
        path, applied = self._source.path, self._applied_batches
        unknown = find_unknown_transaction(path, applied, completed, self._open_before)
        if unknown is not None:
            raise unknown.error
        return completed

    def _applied_batches(self) -> BatchTable:
        return join_tables(list(_first_batches(self._source, self._count)))


def _first_batches(source: Source, count: int) -> Iterator[BatchTable]:
    """Yield the first batches of a source, which were read before."""
    for table in iter_open_batches(source, rows=rows_at_once(source), on_corrupt="stop"):
        yield table[:count]
        count -= len(table)
        if count <= 0:
            return


def _require_ascending(source: Source, aborted: NDArray[np.void]) -> None:
    """Raise where Kafka fails: the markers in a transaction index must ascend."""
    if len(aborted) < 2:
        return
    wrong = np.flatnonzero(np.diff(aborted["last_offset"].astype(np.int64)) <= 0)
    if len(wrong):
        offset = int(aborted["last_offset"][wrong[0] + 1])
        symbol = "OFFSETS_NOT_ASCENDING"
        raise CorruptLogError(source.path, 0, offset, SENTENCES[STATUS[symbol]], symbol)


def _add(builder: IndexBuilder, batches: BatchTable) -> IndexOverflowError | BatchTableError | None:
    """Add batches to the indexes; return the error of the first that cannot be indexed."""
    try:
        builder.add(batches)
    except (IndexOverflowError, BatchTableError) as error:
        return error
    return None


def _finished(
    builder: IndexBuilder,
) -> tuple[tuple[IndexEntries, IndexEntries], BatchTableError | None]:
    """Return the entries of both indexes, and the error that prevents the last one."""
    try:
        return builder.finish(), None
    except BatchTableError as error:
        return (np.empty(0, OFFSET_INDEX_ENTRY), np.empty(0, TIME_INDEX_ENTRY)), error


# ---- segments whose offsets do not ascend ----------------------------------------------------


@dataclass
class _EmptiedStart:
    """
    The batches that remain if Kafka empties a segment.

    ``LogSegment.truncateTo`` looks up the segment's first offset in the index. Usually the result
    is position 0. If the offset occurs again, far enough from the start to have an index entry,
    Kafka truncates the log there.

    Attributes
    ----------
    interval_bytes : int
    count : int
        Number of batches before the first that has an index entry.
    indexed_offset : int or None
        Last offset of that one.
    """

    interval_bytes: int
    count: int = 0
    indexed_offset: int | None = None

    def add(self, batches: BatchTable) -> None:
        """Add the next batches of the segment."""
        if self.indexed_offset is not None:
            return
        row = int(batches["position"].searchsorted(self.interval_bytes, side="right"))
        self.count += row
        if row < len(batches):
            self.indexed_offset = int(last_offset(batches[row : row + 1])[0])


def _kept_of_emptied(source: Source, segment: SegmentFile, start: _EmptiedStart) -> SegmentBatches:
    """Return the batches that remain of a segment that Kafka empties."""
    kept = SegmentBatches(segment)
    if start.indexed_offset == (segment.base_offset or 0):
        for table in _first_batches(source, start.count):
            kept.add(table)
    return kept


def _emptied(
    source: Source, kept: SegmentBatches, leader_epochs: list[LeaderEpoch], *, had_aborted: bool
) -> RecoveredSegment:
    """Return the result for a segment whose offsets do not ascend, which Kafka empties."""
    builder = IndexBuilder(kept.offsets.segment.base_offset or 0, interval_bytes=kept.end)
    for table in _first_batches(source, kept.count):
        builder.add(table)
    return RecoveredSegment(
        batches=kept,
        reason=SENTENCES[STATUS["OFFSETS_NOT_ASCENDING"]],
        offset_index=np.empty(0, OFFSET_INDEX_ENTRY),
        # The entry of the latest timestamp, which Kafka appends when it closes the log.
        time_index=builder.finish()[1],
        transaction_index=np.empty(0, TRANSACTION_INDEX_ENTRY),
        leader_epochs=leader_epochs,
        map_end_offset=None,
        has_transaction_index=had_aborted,
        is_emptied=True,
    )


def _map_end_offset(batches: BatchTable) -> int | None:
    """Return the offset up to which batches move the producer state; legacy messages do not."""
    new = np.flatnonzero(batches["magic"] >= 2)
    return int(next_offset(batches[new[-1:]])[0]) if len(new) else None
