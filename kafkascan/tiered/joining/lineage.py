"""Which remote segments belong to a log, by the history of its leader epochs.

After a change of leader, uploads of the former leader may contain records that the log does not:
those after the point at which the new leader went on. Kafka compares the epochs of a segment with
the leader epochs of the log (``RemoteLogManager.isRemoteSegmentWithinLeaderEpochs``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TypeAlias

from kafkascan.broker_state.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    LeaderEpoch,
    parse_leader_epochs,
)
from kafkascan.tiered.tier_segments import TierSegment

_Epochs: TypeAlias = list[tuple[int, int]]


def contradiction(segment: TierSegment, end: int, lineage: Sequence[LeaderEpoch]) -> str | None:
    """
    Return why a segment is not of a log; None if its epochs are those of the log.

    Parameters
    ----------
    segment : TierSegment
    end : int
        The offset after its last one.
    lineage : sequence of LeaderEpoch
        All epochs of the log, from its start on.

    Raises
    ------
    CorruptCheckpointError
        If the epochs of the segment cannot be read.
    """
    log, own = _with_records(lineage), _with_records(_epochs_of(segment))
    if not log or not own:
        return None
    first, last = log[0][0], log[-1][0]
    if not first <= own[-1][0] <= last:
        return f"its last leader epoch is {own[-1][0]}, the log has {first} to {last}"
    # Brokers drop epochs before the log's start.
    return _first_difference([one for one in own if one[0] >= first], end, log)


def _first_difference(own: _Epochs, end: int, log: _Epochs) -> str | None:
    """Compare the epochs of a segment with those of its log; None if they agree."""
    starts = dict(log)
    after = {one: following for (one, _), following in pairwise(log)}
    epoch, start = own[0]
    if epoch in starts and epoch != log[0][0] and start < starts[epoch]:
        return f"its leader epoch {epoch} begins at offset {start}, the log's at {starts[epoch]}"
    for (epoch, _), following in zip(own, [*own[1:], None], strict=True):
        if epoch not in starts:
            return f"the log has no leader epoch {epoch}"
        if epoch not in after:  # the last epoch of the log, and so of the segment
            return None
        expected = after[epoch]
        in_log = f"in the log epoch {expected[0]} begins at offset {expected[1]}"
        if following is None and end > expected[1]:
            return f"it has offsets up to {end - 1} of epoch {epoch}, {in_log}"
        if following is not None and following != expected:
            return f"epoch {following[0]} begins at offset {following[1]}, {in_log}"
    return None


def _with_records(epochs: Iterable[tuple[int, int]]) -> _Epochs:
    """Return the epochs in order, without those in which no record was written."""
    latest = {start: epoch for epoch, start in sorted(epochs)}
    return sorted((epoch, start) for start, epoch in latest.items())


def _epochs_of(segment: TierSegment) -> Sequence[tuple[int, int]]:
    if segment.leader_epochs:
        return segment.leader_epochs
    file = segment.side_files.get(LEADER_EPOCH_CHECKPOINT)
    if file is None:
        return ()
    path = f"{segment.topic}-{segment.partition}/{LEADER_EPOCH_CHECKPOINT} of {segment.segment_id}"
    return parse_leader_epochs(file.read(), path)
