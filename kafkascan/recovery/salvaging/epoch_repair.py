"""Reconstruct damaged leader epochs, which no checksum covers and which never decrease in a log."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, size_in_bytes
from kafkascan.batches.resyncing.offset_chains import heaviest_ascending
from kafkascan.batches.resyncing.offset_evidence import are_copies
from kafkascan.format.layout import NO_PARTITION_LEADER_EPOCH
from kafkascan.recovery.salvaging.header_repair import CLEARLY_MORE, FieldRepair, RepairedLog

_BITS = 0xFFFFFFFF
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
    counts = log.runs.counts(log.batches)[rows]
    is_possible = _are_possible(epochs, known)
    is_trusted = _trusted(epochs, known, counts)
    is_damaged = ~is_trusted & _are_contradicted(epochs, is_trusted, known, counts)
    trusted = np.flatnonzero(is_trusted)
    if not is_damaged.any() or not len(trusted):
        return log
    damaged = np.flatnonzero(is_damaged)
    following = np.searchsorted(trusted, damaged)
    before = epochs[trusted[np.maximum(following - 1, 0)]]
    after = epochs[trusted[np.minimum(following, len(trusted) - 1)]]
    old, is_last = epochs[damaged], following == len(trusted)
    new = _nearest(old, before, after, known_epochs)
    is_flipped = _bits_between(old, new) == 1
    # It may be the next leader's, and what follows may be of an older history.
    is_later = is_possible[damaged] & (old > new) & (old - new < _LATER_EPOCHS)
    # Several batches in a row rather are of another log.
    beside = np.append(is_damaged, False)
    is_alone = ~(beside[damaged - 1] | beside[damaged + 1])
    # Nothing after the last one shows whether it or the others are wrong.
    is_guess = is_last & (~is_flipped | np.isin(old, epochs[trusted]))
    # The checkpoint has it, and lacks those of the others.
    is_known = (len(known) > 0) & is_possible[damaged] & ~np.isin(new, known)
    is_determined = (before == after) & (following > 0) & ~is_last
    uncertain = np.array([one.position for one in log.repairs if not one.is_certain], np.int64)
    is_certain = is_determined & is_flipped & _are_enclosed(log.batches)[rows[damaged]]
    is_certain &= ~np.isin(log.batches["position"][rows[damaged]], uncertain)
    repaired = np.flatnonzero(is_alone & ~(is_later | is_guess | is_known))
    batches, name = log.batches.copy(), "partition_leader_epoch"
    here = rows[damaged[repaired]]
    batches[name][here] = new[repaired]
    columns = (batches["position"][here], batches["base_offset"][here], old[repaired],
               new[repaired], is_certain[repaired])  # fmt: skip
    position, base_offset, *values = (one.tolist() for one in columns)
    repairs = list(map(FieldRepair, position, base_offset, itertools.repeat(name), *values))
    repairs = sorted([*log.repairs, *repairs], key=lambda one: one.position)
    return replace(log, batches=batches, repairs=repairs)


def _nearest(
    old: NDArray[np.int64],
    before: NDArray[np.int64],
    after: NDArray[np.int64],
    known_epochs: Collection[int],
) -> NDArray[np.int64]:
    """Return the epochs with the fewest other bits, of those around and known ones in between."""
    new = before.copy()
    for row in np.flatnonzero(before != after).tolist():
        around = {int(before[row]), int(after[row])}
        around |= {one for one in known_epochs if min(around) < one < max(around)}
        new[row] = min(around, key=lambda epoch: ((int(old[row]) ^ epoch) & _BITS).bit_count())
    return new


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


def _bits_between(some: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of bits in which epochs differ."""
    changed = np.unpackbits(((some ^ others) & _BITS).view(np.uint8).reshape(-1, 8), axis=1)
    bits: NDArray[np.int64] = changed.sum(axis=1, dtype=np.int64)
    return bits


def _trusted(
    epochs: NDArray[np.int64], known: NDArray[np.int64], counts: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Select epochs that do not decrease, preferring frequent epochs and known ones."""
    values, value_of = np.unique(epochs, return_inverse=True)
    is_frequent = np.bincount(value_of, counts) > 1
    weight = (2 + is_frequent + 4 * np.isin(values, known))[value_of] * counts
    keep = epochs >= NO_PARTITION_LEADER_EPOCH
    if (np.diff(epochs[keep]) < 0).any():
        here = epochs[keep]
        keep[keep] = heaviest_ascending(2 * here + 1, 2 * here, weight[keep], counts=counts[keep])
    if len(known):
        keep &= ~are_missing(epochs, known) | is_frequent[value_of]
    return keep


def _are_possible(epochs: NDArray[np.int64], known: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which epochs a leader may have had, if the checkpoint has all of them."""
    are: NDArray[np.bool_] = epochs >= NO_PARTITION_LEADER_EPOCH
    return are & np.isin(epochs, known) if len(known) else are


def are_missing(epochs: NDArray[np.int64], known: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which epochs a checkpoint lacks, although it has lower and higher ones."""
    is_within = (epochs > known[0]) & (epochs < known[-1])
    missing: NDArray[np.bool_] = is_within & ~np.isin(epochs, known)
    return missing


def _are_contradicted(
    epochs: NDArray[np.int64],
    is_trusted: NDArray[np.bool_],
    known: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """
    Return which epochs are impossible, or contradict trusted ones that are enough evidence.

    One epoch of the checkpoint is enough against one that the checkpoint lacks. Lower ones after an
    epoch are more evidence than higher ones before it: most wrong epochs are too high, because the
    highest bits of true ones are zero.
    """
    higher, lower = _count_contradicting(epochs, is_trusted, counts)
    are: NDArray[np.bool_] = higher + 2 * lower >= CLEARLY_MORE
    if len(known):
        higher, lower = _count_contradicting(epochs, is_trusted & np.isin(epochs, known), counts)
        are |= ~np.isin(epochs, known) & (higher + lower > 0)
        are |= are_missing(epochs, known)
    return are | (epochs < NO_PARTITION_LEADER_EPOCH)


def _count_contradicting(
    epochs: NDArray[np.int64], is_evidence: NDArray[np.bool_], counts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count for each epoch the higher ones before it, and the lower ones after it, which ascend."""
    evidence = epochs[is_evidence]
    number = np.append(0, np.cumsum(counts[is_evidence]))
    before: NDArray[np.int64] = number[np.cumsum(is_evidence) - is_evidence]
    not_higher = np.minimum(before, number[np.searchsorted(evidence, epochs, "right")])
    not_lower = np.maximum(before, number[np.searchsorted(evidence, epochs, "left")])
    return before - not_higher, not_lower - before
