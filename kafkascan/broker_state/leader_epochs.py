"""Leader epochs of a log, built from its batches."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import numpy as np

from kafkascan.batches.columns import BatchTable, require_batch_table
from kafkascan.broker_state.checkpoints import LeaderEpoch
from kafkascan.format.arguments import require_items


def build_leader_epochs(
    batches: BatchTable, /, *, prior: Iterable[LeaderEpoch] = ()
) -> list[LeaderEpoch]:
    """
    Build the entries of ``leader-epoch-checkpoint``, as Kafka's recovery would.

    Parameters
    ----------
    batches : array of BATCH_DTYPE, shape (n,)
        In log order.
    prior : iterable of LeaderEpoch
        Epochs of the segments before these batches, or of the file.

    Returns
    -------
    list of LeaderEpoch
        Ascending in both fields.

    Notes
    -----
    ``LogSegment.recover``: a batch of magic 2 whose ``partition_leader_epoch`` exceeds the
    last known one starts an epoch at its base offset.
    """
    batches = require_batch_table(batches)
    entries = list(prior)
    require_items(LeaderEpoch, prior=entries)
    if entries and not (batches["partition_leader_epoch"] > entries[-1].epoch).any():
        return entries
    # No epoch starts at a negative offset; see `assign_epoch`.
    may_start = (batches["magic"] >= 2) & (batches["base_offset"] >= 0)
    epochs = np.where(may_start, batches["partition_leader_epoch"], -1)
    # An epoch can be new only where the maximum rises.
    highest = np.maximum.accumulate(epochs)
    is_rise = highest > -1
    is_rise[1:] &= highest[1:] > highest[:-1]
    rises = np.flatnonzero(is_rise)
    for epoch, offset in zip(
        epochs[rises].tolist(), batches["base_offset"][rises].tolist(), strict=True
    ):
        if not entries or epoch > entries[-1].epoch:
            assign_epoch(entries, LeaderEpoch(epoch, offset))
    return entries


def assign_epoch(entries: list[LeaderEpoch], new: LeaderEpoch) -> None:
    """Add an entry; remove entries that contradict it (``LeaderEpochFileCache.assign``)."""
    if new.epoch < 0 or new.start_offset < 0:
        return
    while entries and (
        entries[-1].epoch >= new.epoch or entries[-1].start_offset >= new.start_offset
    ):
        entries.pop()
    entries.append(new)


def loaded_epochs(entries: list[LeaderEpoch]) -> list[LeaderEpoch]:
    """Return the entries of a file that a broker keeps: it assigns one after the other."""
    if len(entries) < 2:  # as most logs have
        return [entry for entry in entries if min(entry) >= 0]
    numbers = np.fromiter(chain.from_iterable(entries), np.int64, 2 * len(entries)).reshape(-1, 2)
    is_valid = (numbers[:, 0] >= 0) & (numbers[:, 1] >= 0)
    numbers[~is_valid] = np.iinfo(np.int64).max
    # The least epoch and the least offset from each entry on, and after it.
    least = np.minimum.accumulate(numbers[::-1])[::-1]
    is_valid[:-1] &= (numbers[:-1] < least[1:]).all(axis=1)
    return [entries[row] for row in np.flatnonzero(is_valid).tolist()]


def truncated_from_end(entries: list[LeaderEpoch], end_offset: int) -> list[LeaderEpoch]:
    """Drop the epochs that start at or after the end of a log."""
    return [entry for entry in entries if entry.start_offset < end_offset]


def truncated_from_start(entries: list[LeaderEpoch], start_offset: int) -> list[LeaderEpoch]:
    """Start the epochs at the log's start (``LeaderEpochFileCache.truncateFromStart``)."""
    dropped = [entry for entry in entries if entry.start_offset <= start_offset]
    kept = [entry for entry in entries if entry.start_offset > start_offset]
    return [LeaderEpoch(dropped[-1].epoch, start_offset), *kept] if dropped else kept
