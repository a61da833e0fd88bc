"""Truncation of a follower's log, as leader epochs determine it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from kafkascan.analysis.fingerprints import FingerprintRows
from kafkascan.broker_state.checkpoints import LeaderEpoch
from kafkascan.broker_state.leader_epochs import assign_epoch


@dataclass(frozen=True)
class EpochHistory:
    """
    The leader epochs of a log; returned by `epoch_history`.

    Attributes
    ----------
    epochs, starts : list of int
        Epochs, ascending, and the offsets at which they start.
    log_end : int
        The offset after the last batch.
    """

    epochs: list[int]
    starts: list[int]
    log_end: int

    @property
    def last(self) -> int | None:
        """The last epoch; None without epochs."""
        return self.epochs[-1] if self.epochs else None

    def end_of(self, epoch: int) -> tuple[int | None, int]:
        """
        Return the largest epoch that is at most this one, and its end offset.

        An epoch before the first one ends where that begins, and a later one than the last is
        known to a leader that has not written yet (``LeaderEpochFileCache.endOffsetFor``).
        """
        if not self.epochs:
            return None, 0
        index = int(np.searchsorted(self.epochs, epoch, side="right"))
        end = self.starts[index] if index < len(self.starts) else self.log_end
        return (self.epochs[index - 1] if index else epoch), end


def epoch_history(rows: FingerprintRows, checkpoint: Iterable[LeaderEpoch] = ()) -> EpochHistory:
    """
    Return the leader epochs of a log.

    Parameters
    ----------
    rows : array of FINGERPRINT
    checkpoint : iterable of LeaderEpoch
        Entries of ``leader-epoch-checkpoint``: a leader adds an epoch before it writes batches.
    """
    entries = list(checkpoint)
    epochs = np.ascontiguousarray(rows["leader_epoch"])
    # Epochs rarely change, and the highest one so far changes only where they do.
    heads = np.flatnonzero(np.append(len(rows) > 0, epochs[1:] != epochs[:-1]))
    highest = np.maximum.accumulate(epochs[heads]) if len(heads) else epochs[heads]
    is_new = np.diff(highest, prepend=np.int32(-1)) > 0
    offsets = rows["first_offset"][heads[is_new]].tolist()
    for epoch, offset in zip(highest[is_new].tolist(), offsets, strict=True):
        if not entries or epoch > entries[-1].epoch:
            assign_epoch(entries, LeaderEpoch(epoch, offset))
    return EpochHistory(
        epochs=[one.epoch for one in entries],
        starts=[one.start_offset for one in entries],
        log_end=int(rows["last_offset"][-1]) + 1 if len(rows) else 0,
    )


def truncation_offset(leader: EpochHistory, follower: EpochHistory) -> int | None:
    """
    Return the offset at which a broker truncates a log when it begins to follow another one.

    Parameters
    ----------
    leader, follower : EpochHistory

    Returns
    -------
    int or None
        None if the log is not truncated.

    Notes
    -----
    The follower asks for the end of its last epoch, and continues with the epoch that the leader
    returns until both logs have it (KIP-101, KIP-279;
    ``AbstractFetcherThread.getOffsetTruncationState``).
    """
    epoch = follower.last
    while epoch is not None:
        known, end = leader.end_of(epoch)
        if known is None:
            return None
        same, own_end = follower.end_of(known)
        if same == known:
            offset = min(end, own_end)
            return None if offset >= follower.log_end else offset
        epoch = same
    return None


def diverging_offset(rows: FingerprintRows, other: EpochHistory) -> int | None:
    """
    Return the first offset of batches that another log cannot get by replication.

    Their epochs are older than the one that the other log has at the same offset: its leader of
    that epoch did not have these batches.

    Parameters
    ----------
    rows : array of FINGERPRINT
    other : EpochHistory

    Returns
    -------
    int or None
        None if there are none.
    """
    if not other.epochs:
        return None
    at = np.searchsorted(other.starts, rows["last_offset"], side="right")
    begun = np.append(-1, other.epochs)[at]
    is_older = (rows["leader_epoch"] >= 0) & (rows["leader_epoch"] < begun)
    return int(rows["first_offset"][np.argmax(is_older)]) if is_older.any() else None
