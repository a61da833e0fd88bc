"""Truncation of a follower's log, as leader epochs determine it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kafkascan.analysis.fingerprints import FingerprintRows


def truncation_offset(leader: FingerprintRows, follower: FingerprintRows) -> int | None:
    """
    Return the offset at which a broker truncates a log when it begins to follow another one.

    Parameters
    ----------
    leader, follower : array of FINGERPRINT

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
    mine, theirs = _epochs_of(leader), _epochs_of(follower)
    epoch = theirs.last
    while epoch is not None:
        known, end = mine.end_of(epoch)
        if known is None:
            return None
        same, own_end = theirs.end_of(known)
        if same is None:
            return theirs.first_offset
        if same == known:
            offset = min(end, own_end)
            return None if offset >= theirs.log_end else offset
        epoch = same
    return None


@dataclass(frozen=True)
class _Epochs:
    """The leader epochs of a log, ascending, and the offsets at which they start."""

    epochs: list[int]
    starts: list[int]
    first_offset: int
    log_end: int

    @property
    def last(self) -> int | None:
        return self.epochs[-1] if self.epochs else None

    def end_of(self, epoch: int) -> tuple[int | None, int]:
        """Return the largest epoch that is at most this one, and its end offset."""
        index = int(np.searchsorted(self.epochs, epoch, side="right"))
        if index == 0:
            return None, 0
        end = self.starts[index] if index < len(self.starts) else self.log_end
        return self.epochs[index - 1], end


def _epochs_of(rows: FingerprintRows) -> _Epochs:
    epochs = np.ascontiguousarray(rows["leader_epoch"])
    # Epochs rarely change, and the highest one so far changes only where they do.
    heads = np.flatnonzero(np.append(len(rows) > 0, epochs[1:] != epochs[:-1]))
    highest = np.maximum.accumulate(epochs[heads]) if len(heads) else epochs[heads]
    is_new = np.diff(highest, prepend=np.int32(-1)) > 0
    return _Epochs(
        epochs=highest[is_new].tolist(),
        starts=rows["first_offset"][heads[is_new]].tolist(),
        first_offset=int(rows["first_offset"][0]) if len(rows) else 0,
        log_end=int(rows["last_offset"][-1]) + 1 if len(rows) else 0,
    )
