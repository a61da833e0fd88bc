"""Reconstruct damaged leader epochs, which no checksum covers and which never decrease in a log."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, size_in_bytes
from kafkascan.batches.resyncing.offset_chains import heaviest_ascending
from kafkascan.batches.resyncing.offset_evidence import are_copies
from kafkascan.format.layout import NO_PARTITION_LEADER_EPOCH
from kafkascan.recovery.salvaging.header_repair import CLEARLY_MORE, FieldRepair, RepairedLog

# Epochs of later leaders are greater by less than this.
_LATER_EPOCHS = 64


def repair_epochs(
    log: RepairedLog,
    known_epochs: Collection[int] = (),
    is_doubtful: NDArray[np.bool_] | None = None,
) -> RepairedLog:
    """
    Reconstruct damaged leader epochs, which never decrease in a log.

    An epoch is damaged if enough batches contradict it, or if the checkpoint lacks it and either
    has one that contradicts it, or lower and higher ones. A slightly higher one that the
    checkpoint has, or that no checkpoint denies, stays.

    Parameters
    ----------
    log : RepairedLog
    known_epochs : collection of int
        Leader epochs from ``leader-epoch-checkpoint``.
    is_doubtful : array of bool, optional
        Batches that may not belong to the log: they are neither evidence nor repaired.

    Returns
    -------
    RepairedLog
    """
    is_checked = log.batches["magic"] == 2
    if is_doubtful is not None:
        is_checked &= ~is_doubtful
    rows = np.flatnonzero(is_checked)
    epochs = log.batches["partition_leader_epoch"][rows].astype(np.int64)
    if len(rows) < 2:
        return log
    known = np.unique(np.array(list(known_epochs), np.int64))
    is_possible = _are_possible(epochs, known)
    is_trusted = _trusted(epochs, known)
    is_damaged = ~is_trusted & _are_contradicted(epochs, is_trusted, known)
    trusted = np.flatnonzero(is_trusted)
    if not is_damaged.any() or not len(trusted):
        return log
    batches, repairs = log.batches.copy(), log.repairs.copy()
    uncertain = {one.position for one in log.repairs if not one.is_certain}
    is_enclosed = _are_enclosed(batches)
    for row in np.flatnonzero(is_damaged).tolist():
        following = int(np.searchsorted(trusted, row))
        neighbours = (following - 1, following)
        around = {int(epochs[trusted[i]]) for i in neighbours if 0 <= i < len(trusted)}
        around |= {one for one in known_epochs if min(around) < one < max(around)}
        batch, old = batches[rows[row]], int(epochs[row])
        new = min(around, key=lambda epoch: _bits_between(old, epoch))
        is_last, is_flipped = following == len(trusted), _bits_between(old, new) == 1
        # It may be the next leader's, and what follows may be of an older history.
        is_later = is_possible[row] and 0 < old - new < _LATER_EPOCHS
        # Several batches in a row rather are of another log.
        is_alone = not (is_damaged[row - 1 : row].any() or is_damaged[row + 1 : row + 2].any())
        # Nothing after the last one shows whether it or the others are wrong.
        is_guess = is_last and (not is_flipped or old in epochs[trusted])
        # The checkpoint has it, and lacks those of the others.
        is_known = len(known) > 0 and is_possible[row] and new not in known
        if is_later or not is_alone or is_guess or is_known:
            continue
        position, base_offset = int(batch["position"]), int(batch["base_offset"])
        is_determined = len(around) == 1 and 0 < following and not is_last
        is_certain = (
            is_determined and is_flipped and is_enclosed[rows[row]] and position not in uncertain
        )
        name = "partition_leader_epoch"
        repairs.append(FieldRepair(position, base_offset, name, old, new, is_certain))
        batches[name][rows[row]] = new
    return replace(log, batches=batches, repairs=sorted(repairs, key=lambda one: one.position))


def have_contested_epochs(log: RepairedLog) -> NDArray[np.bool_]:
    """Return which batches have a leader epoch that an adjacent batch or a copy contradicts."""
    is_same = are_copies(log.copies, log.batches, ("partition_leader_epoch",))
    contested = np.isin(log.batches["base_offset"], log.copies["base_offset"][~is_same])
    rows = np.flatnonzero(log.batches["magic"] == 2)
    epochs = log.batches["partition_leader_epoch"][rows]
    falls = np.flatnonzero(epochs[1:] < epochs[:-1])
    contested[rows[falls]] = contested[rows[falls + 1]] = True
    return contested


def _are_enclosed(batches: BatchTable) -> NDArray[np.bool_]:
    """Return which batches have no damaged bytes before and after them."""
    stops = batches["position"] + size_in_bytes(batches)
    is_next = batches["position"][1:] == stops[:-1]
    enclosed: NDArray[np.bool_] = np.append(False, is_next) & np.append(is_next, False)
    return enclosed


def _bits_between(one: int, other: int) -> int:
    """Return the number of bits in which two epochs differ."""
    return ((one ^ other) & 0xFFFFFFFF).bit_count()


def _trusted(epochs: NDArray[np.int64], known: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Select epochs that do not decrease, preferring frequent epochs and known ones."""
    values, value_of, counts = np.unique(epochs, return_inverse=True, return_counts=True)
    is_known = np.isin(values, known)
    weight = (2 + (counts > 1) + 4 * is_known)[value_of]
    keep = epochs >= NO_PARTITION_LEADER_EPOCH
    if (np.diff(epochs[keep]) < 0).any():
        here = epochs[keep]
        keep[keep] = heaviest_ascending(2 * here + 1, 2 * here, weight[keep])
    if len(known):
        keep &= ~_are_missing(epochs, known) | (counts > 1)[value_of]
    return keep


def _are_possible(epochs: NDArray[np.int64], known: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which epochs a leader may have had, if the checkpoint has all of them."""
    are: NDArray[np.bool_] = epochs >= NO_PARTITION_LEADER_EPOCH
    return are & np.isin(epochs, known) if len(known) else are


def _are_missing(epochs: NDArray[np.int64], known: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which epochs a checkpoint lacks, although it has lower and higher ones."""
    is_within = (epochs > known[0]) & (epochs < known[-1])
    missing: NDArray[np.bool_] = is_within & ~np.isin(epochs, known)
    return missing


def _are_contradicted(
    epochs: NDArray[np.int64], is_trusted: NDArray[np.bool_], known: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """
    Return which epochs are impossible, or contradict trusted ones that are enough evidence.

    One epoch of the checkpoint is enough against one that the checkpoint lacks. Lower ones after an
    epoch are more evidence than higher ones before it: most wrong epochs are too high, because the
    highest bits of true ones are zero.
    """
    higher, lower = _count_contradicting(epochs, is_trusted)
    are: NDArray[np.bool_] = higher + 2 * lower >= CLEARLY_MORE
    if len(known):
        higher, lower = _count_contradicting(epochs, is_trusted & np.isin(epochs, known))
        are |= ~np.isin(epochs, known) & (higher + lower > 0)
        are |= _are_missing(epochs, known)
    return are | (epochs < NO_PARTITION_LEADER_EPOCH)


def _count_contradicting(
    epochs: NDArray[np.int64], is_evidence: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count for each epoch the higher ones before it, and the lower ones after it, which ascend."""
    evidence = epochs[is_evidence]
    before: NDArray[np.int64] = np.cumsum(is_evidence) - is_evidence
    not_higher = np.minimum(before, np.searchsorted(evidence, epochs, "right"))
    not_lower = np.maximum(before, np.searchsorted(evidence, epochs, "left"))
    return before - not_higher, not_lower - before
