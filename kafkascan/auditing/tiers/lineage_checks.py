"""Whether the uploads of a partition serve all offsets, by the lineage of leader epochs.

A broker that is asked for an offset looks up its leader epoch, and reads an upload that has
the offset in this epoch (``RemoteLogMetadataCache``, ``RemoteLogLeaderEpochState``). After a
change of leader, uploads overlap: that is legal, also with other content, which a later epoch
replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kafkascan.auditing.finding_kinds import FoundInLog
from kafkascan.broker_state.checkpoints import LEADER_EPOCH_CHECKPOINT, parse_leader_epochs
from kafkascan.format.errors import KafkaScanError
from kafkascan.tiered.tier_segments import TierSegment

Epochs = Sequence[tuple[int, int]]
LAST = 2**63 - 1


@dataclass(frozen=True)
class UploadRange:
    """
    The offsets of an upload.

    Attributes
    ----------
    file : str
        The name of its log, as a broker has it.
    start, end : int
        The base offset, and the offset after the last one.
    epochs : sequence of (int, int)
        Epochs and their first offsets.
    has_history : bool
        Whether these are all epochs from the start of the log, not only those of the upload.
    """

    file: str
    start: int
    end: int
    epochs: Epochs
    has_history: bool = True


def upload_range(segment: TierSegment, end: int) -> UploadRange:
    """
    Return the offsets of a segment, with the epochs of its epoch file, or else of its manifest.

    Parameters
    ----------
    segment : TierSegment
    end : int
        The offset after its last batch, which counts if there is no manifest.
    """
    epochs: Epochs = segment.leader_epochs
    has_history = False
    if LEADER_EPOCH_CHECKPOINT in segment.side_files:
        try:
            data = segment.side_files[LEADER_EPOCH_CHECKPOINT].read()
            epochs = [(one.epoch, one.start_offset) for one in parse_leader_epochs(data, "")]
            has_history = True
        except (KafkaScanError, OSError):
            pass  # the audit of the log reports the file
    base, said = segment.base_offset, segment.end_offset
    end = end if said is None else said + 1
    return UploadRange(f"{base:020}.log", base, end, epochs, has_history)


def check_lineage(uploads: Sequence[UploadRange], found: FoundInLog) -> None:
    """
    Add offsets that no upload serves, and uploads that serve none.

    Parameters
    ----------
    uploads : sequence of UploadRange
        Of one partition; the newest lineage is that of the latest epoch, and the furthest end.
    found : FoundInLog
    """
    filled = [one for one in uploads if one.end > one.start]
    if not filled:
        return
    newest = max(filled, key=lambda one: (max((e for e, _ in one.epochs), default=-1), one.end))
    lineage = newest.epochs if newest.has_history else ()
    served = []
    for one in sorted(filled, key=lambda one: (one.start, one.end)):
        parts = _served(one, lineage)
        served += parts
        if not parts:
            message = f"offsets {one.start} to {one.end - 1} are not of the epochs of the log"
            found.add("UNREFERENCED_SEGMENT", one.file, message, offset=one.start)
    _note_gaps(served, found)


def _served(upload: UploadRange, lineage: Epochs) -> list[tuple[int, int, str]]:
    """Return the ranges of offsets that an upload serves."""
    if not lineage or not upload.epochs:
        return [(upload.start, upload.end, upload.file)]
    own = dict(_ranges(upload.epochs))
    parts = []
    for epoch, (start, end) in _ranges(lineage):
        mine = own.get(epoch)
        if mine is None:
            continue
        first = max(start, mine[0], upload.start)
        last = min(end, mine[1], upload.end)
        if first < last:
            parts.append((first, last, upload.file))
    return parts


def _ranges(epochs: Epochs) -> Iterable[tuple[int, tuple[int, int]]]:
    """Yield each epoch with its first offset, and that of the next epoch."""
    for (epoch, start), (_, end) in pairwise([*sorted(epochs), (LAST, LAST)]):
        yield epoch, (start, end)


def _note_gaps(served: list[tuple[int, int, str]], found: FoundInLog) -> None:
    end = None
    for first, last, file in sorted(served):
        if end is not None and first > end:
            message = f"no segment serves the offsets from {end} to {first - 1}"
            found.add("TIER_GAP", file, message, offset=end)
        end = last if end is None else max(end, last)
