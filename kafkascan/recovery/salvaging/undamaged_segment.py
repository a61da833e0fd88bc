"""Salvage one segment without damage: no evidence is needed, so no table of its batches."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, join_tables, last_offset
from kafkascan.batches.resyncing.kept_ranges import AT_END, has_odd_end
from kafkascan.batches.resyncing.ranges import KeptRange
from kafkascan.batches.resyncing.valid_prefix import ValidPrefix
from kafkascan.format.layout import BATCH_DTYPE, NO_PARTITION_LEADER_EPOCH, ScanEnd
from kafkascan.logs.log_problems import BatchOffsets
from kafkascan.recovery.salvaging.epoch_repair import are_missing
from kafkascan.recovery.salvaging.segment_salvage import SegmentSalvage


def salvage_undamaged(
    valid: ValidPrefix,
    name: str,
    base_offset: int | None,
    offsets: BatchOffsets,
    *,
    known_epochs: Collection[int] = (),
) -> SegmentSalvage | None:
    """
    Return what `salvage_segment` returns of a segment all of whose batches are kept as they are.

    Parameters
    ----------
    valid : ValidPrefix
        To be read.
    name : str
        Name of the log file.
    base_offset : int or None
        From the file name.
    offsets : BatchOffsets
        Receives the batches.
    known_epochs : collection of int
        Leader epochs from ``leader-epoch-checkpoint``.

    Returns
    -------
    SegmentSalvage or None
        None if the segment is damaged, has no batches, or has some that may be wrong.
    """
    found = _Batches(np.unique(np.array(list(known_epochs), np.int64)))
    for table in valid:
        offsets.add(table)
        found.add(table)
    is_whole = valid.end in (ScanEnd.CLEAN, ScanEnd.ZERO_TAIL)
    if not is_whole or not found.count or not found.have_right_epochs or has_odd_end(found.last):
        return None
    size, kept_bytes = valid.source.size, valid.position
    last = int(last_offset(found.last)[-1])
    return SegmentSalvage(
        name,
        base_offset,
        size=size,
        kept_bytes=kept_bytes,
        batches=found.count,
        records=found.records,
        end=valid.end,
        zero_tail_bytes=size - kept_bytes,
        pieces=[KeptRange(0, kept_bytes, found.count, found.first_offset, last, False)],
    )


@dataclass
class _Batches:
    """
    What is kept of the valid batches of a segment.

    Attributes
    ----------
    known_epochs : ndarray of int64
        Ascending.
    count : int
    records : int or None
        None if some batch does not contain its count.
    first_offset : int
    epoch : int
        Of the last batch of magic 2.
    have_right_epochs : bool
        Whether the leader epochs never fall, and the checkpoint lacks none of them.
    last : ndarray of BATCH_DTYPE
        The last batches.
    """

    known_epochs: NDArray[np.int64]
    count: int = 0
    records: int | None = 0
    first_offset: int = 0
    epoch: int = NO_PARTITION_LEADER_EPOCH
    have_right_epochs: bool = True
    last: BatchTable = field(default_factory=lambda: np.empty(0, BATCH_DTYPE))

    def add(self, table: BatchTable) -> None:
        """Add the next batches, one or more."""
        if not self.count:
            self.first_offset = int(table["base_offset"][0])
        self.count += len(table)
        counts = table["records_count"]
        if self.records is not None:
            is_known = not (counts < 0).any()
            self.records = self.records + int(counts.sum(dtype=np.int64)) if is_known else None
        self._add_epochs(table)
        self.last = join_tables([self.last, table[-AT_END:]])[-AT_END:]

    def _add_epochs(self, table: BatchTable) -> None:
        epochs = table["partition_leader_epoch"][table["magic"] == 2].astype(np.int64)
        if not len(epochs):
            return
        is_right = bool(epochs[0] >= self.epoch and (epochs[1:] >= epochs[:-1]).all())
        if len(self.known_epochs):
            is_right &= not are_missing(epochs, self.known_epochs).any()
        self.have_right_epochs &= is_right
        self.epoch = int(epochs[-1])
