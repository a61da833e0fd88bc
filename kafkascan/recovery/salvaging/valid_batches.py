"""Salvage the valid batches at the start of a segment, without a table of them.

Where no batch follows them, they need no evidence, and only the damage after them is looked at.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, join_tables, last_offset, size_in_bytes
from kafkascan.batches.resyncing.kept_ranges import AT_END, has_odd_end
from kafkascan.batches.resyncing.offset_evidence import HIGHEST_OFFSET
from kafkascan.batches.resyncing.ranges import KeptRange
from kafkascan.batches.resyncing.resync import ResyncScan, scan_with_resync
from kafkascan.batches.resyncing.valid_prefix import ValidPrefix
from kafkascan.format.layout import BATCH_DTYPE, NO_PARTITION_LEADER_EPOCH, ScanEnd
from kafkascan.io.sources import Source
from kafkascan.logs.walking.batch_offsets import BatchOffsets
from kafkascan.recovery.salvaging.epoch_repair import are_missing
from kafkascan.recovery.salvaging.header_repair import repair_headers
from kafkascan.recovery.salvaging.segment_salvage import (
    LostRange,
    SegmentSalvage,
    lost_ranges,
    segment_offsets,
)


def salvage_valid(
    source: Source,
    name: str,
    base_offset: int | None,
    offsets: BatchOffsets,
    *,
    highest: int = HIGHEST_OFFSET,
    known_epochs: Collection[int] = (),
) -> SegmentSalvage | ResyncScan:
    """
    Return what `salvage_segment` returns if all kept batches are at the start, as they are.

    Parameters
    ----------
    source : Source
    name : str
        Name of the log file.
    base_offset : int or None
        From the file name.
    offsets : BatchOffsets
        Receives the batches, and whether bytes are lost after them.
    highest : int
        Last offset that the segment may contain.
    known_epochs : collection of int
        Leader epochs from ``leader-epoch-checkpoint``.

    Returns
    -------
    SegmentSalvage or ResyncScan
        The scan of the segment if batches follow the first damage, if headers can be repaired, or
        if batches may be wrong.
    """
    lowest, most = segment_offsets(base_offset, highest)
    valid = ValidPrefix(source, lowest, most)
    found = _Batches(np.unique(np.array(list(known_epochs), np.int64)))
    for table in valid:
        offsets.add(table)
        found.add(table)
    is_sure = found.count > 0 and found.have_right_epochs and not has_odd_end(found.last)
    if is_sure and valid.end in (ScanEnd.CLEAN, ScanEnd.ZERO_TAIL):
        return found.as_salvage(name, base_offset, source.size, valid.end, valid.position, [])
    scan = scan_with_resync(
        source, 0, source.size, verify=True, lowest=lowest, highest=most, valid=valid
    )
    if not is_sure or scan.valid is None:
        return scan.whole()
    log = repair_headers(source, scan, lowest, most)
    if log.has_found_batches:
        return scan.whole()
    losses = lost_ranges(source, log, base_offset, highest if highest < HIGHEST_OFFSET else None)
    if losses:
        offsets.add_loss()
    return found.as_salvage(name, base_offset, source.size, scan.end, scan.position, losses)


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

    def as_salvage(
        self,
        name: str,
        base_offset: int | None,
        size: int,
        end: ScanEnd,
        position: int,
        losses: list[LostRange],
    ) -> SegmentSalvage:
        """Return the result of a segment of these batches, whose scan ended at a position."""
        last = self.last[-1:]
        kept_bytes = int((last["position"] + size_in_bytes(last))[0])
        piece = KeptRange(
            0, kept_bytes, self.count, self.first_offset, int(last_offset(last)[0]), False
        )
        return SegmentSalvage(
            name,
            base_offset,
            size=size,
            kept_bytes=kept_bytes,
            batches=self.count,
            records=self.records,
            end=end,
            zero_tail_bytes=size - position if end is ScanEnd.ZERO_TAIL else 0,
            pieces=[piece],
            losses=losses,
        )
