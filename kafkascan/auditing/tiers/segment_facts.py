"""What the batches of remote segments say, and what their manifests say of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kafkascan.auditing.finding_kinds import WARNING, FoundInLog
from kafkascan.batches.columns import BatchTable, next_offset
from kafkascan.tiered.tier_segments import TierSegment


@dataclass(eq=False)
class SegmentFacts:
    """
    The offsets and times of the intact batches of one segment.

    Attributes
    ----------
    segment : TierSegment
    end_offset : int
        After the last batch; the base offset without batches.
    max_timestamp : int
        Of its batches; -1 without any.
    batches : int
    is_damaged : bool
        Whether some batches were left out, because their checksums are wrong.
    odd_epoch : str
        The first batch that has another leader epoch than the manifest says, if any.
    """

    segment: TierSegment
    end_offset: int
    max_timestamp: int = -1
    batches: int = 0
    is_damaged: bool = False
    odd_epoch: str = ""

    def add(self, batches: BatchTable) -> None:
        """Add the next batches of the segment."""
        if not len(batches):
            return
        self.batches += len(batches)
        self.end_offset = max(self.end_offset, int(next_offset(batches).max()))
        self.max_timestamp = max(self.max_timestamp, int(batches["max_timestamp"].max()))
        if not self.odd_epoch:
            self.odd_epoch = _odd_epoch(batches, self.segment.leader_epochs)

    def check_manifest(self, found: FoundInLog) -> None:
        """Add what the manifest says otherwise."""
        said, file = self.segment, f"{self.segment.base_offset:020}.log"
        if said.end_offset is None or self.is_damaged:
            return
        if said.end_offset != self.end_offset - 1:
            last = f"ends at offset {self.end_offset - 1}" if self.batches else "has no batches"
            message = f"the segment {last}; by the manifest, at {said.end_offset}"
            found.add("MANIFEST_MISMATCH", file, message, offset=self.end_offset)
        elif self.odd_epoch:
            found.add("MANIFEST_MISMATCH", file, self.odd_epoch)
        # Without timestamps, a broker takes the time of the file.
        elif self.max_timestamp >= 0 and said.max_timestamp != self.max_timestamp:
            message = (
                f"the latest timestamp is {self.max_timestamp}; by the manifest,"
                f" {said.max_timestamp}"
            )
            found.add("MANIFEST_MISMATCH", file, message, severity=WARNING)


def _odd_epoch(batches: BatchTable, said: tuple[tuple[int, int], ...]) -> str:
    """Return a sentence about the first batch whose epoch is not that of its offset."""
    rows = batches[(batches["magic"] >= 2) & (batches["partition_leader_epoch"] >= 0)]
    if not said or not len(rows):
        return ""
    ordered = sorted(said)
    starts = np.array([start for _, start in ordered], np.int64)
    # A batch before the first entry has no epoch there.
    epochs = np.array([-1, *(epoch for epoch, _ in ordered)], np.int64)
    expected = epochs[np.searchsorted(starts, rows["base_offset"], "right")]
    wrong = np.flatnonzero(expected != rows["partition_leader_epoch"])
    if not len(wrong):
        return ""
    row = rows[wrong[0]]
    epoch, known = int(row["partition_leader_epoch"]), int(expected[wrong[0]])
    other = f"epoch {known}" if known >= 0 else "none"
    return f"offset {row['base_offset']} has leader epoch {epoch}; by the manifest, {other}"


def add_batches(
    facts: list[SegmentFacts],
    batches: BatchTable,
    segment: NDArray[np.int32],
    is_bad: NDArray[np.bool_] | None,
) -> None:
    """
    Add the next batches of a log to the facts of its segments.

    Parameters
    ----------
    facts : list of SegmentFacts
        In the order of the log.
    batches : ndarray of BATCH_DTYPE, shape (n,)
    segment : ndarray of int32, shape (n,)
        The number of the segment of each; ascending.
    is_bad : ndarray of bool, shape (n,), or None
        Whether a batch is damaged.
    """
    for number in np.unique(segment).tolist():
        start, stop = np.searchsorted(segment, (number, number + 1)).tolist()
        one, rows = facts[number], batches[start:stop]
        if is_bad is not None and is_bad[start:stop].any():
            one.is_damaged = True
            rows = rows[~is_bad[start:stop]]
        one.add(rows)
