"""Which remote segments belong to a log, by the history of its leader epochs.

After a change of leader, uploads of the former leader may contain records that the log does not:
those after the point at which the new leader went on. Kafka compares the epochs of a segment with
the leader epochs of the log (``RemoteLogManager.isRemoteSegmentWithinLeaderEpochs``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from kafkascan.broker_state.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    LeaderEpoch,
    parse_leader_epochs,
)
from kafkascan.tiered.tier_segments import TierSegment

_LAST = 2**63 - 1


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
    if not lineage:
        return None
    first = min(lineage).epoch
    known = {epoch: (start, stop) for epoch, start, stop in _ranges(lineage)}
    for epoch, start, stop in _ranges(_epochs_of(segment)):
        start, stop = max(start, segment.base_offset), min(stop, end)
        if start >= stop or epoch < first:  # brokers drop epochs before the log's start
            continue
        if epoch not in known:
            return f"the log has no leader epoch {epoch}"
        lowest, highest = known[epoch]
        if stop > highest or (start < lowest and epoch != first):
            its = f"the offsets {lowest} to {highest - 1}" if highest < _LAST else f"{lowest} on"
            return (
                f"offsets {start} to {stop - 1} have leader epoch {epoch}, the log has it for {its}"
            )
    return None


def _epochs_of(segment: TierSegment) -> Sequence[tuple[int, int]]:
    if segment.leader_epochs:
        return segment.leader_epochs
    file = segment.side_files.get(LEADER_EPOCH_CHECKPOINT)
    if file is None:
        return ()
    path = f"{segment.topic}-{segment.partition}/{LEADER_EPOCH_CHECKPOINT} of {segment.segment_id}"
    return parse_leader_epochs(file.read(), path)


def _ranges(epochs: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """Yield each epoch with its first offset, and the first one of the next epoch."""
    for (epoch, start), (_, stop) in pairwise([*sorted(epochs), (_LAST, _LAST)]):
        yield epoch, start, stop
