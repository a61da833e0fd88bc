"""Two logs side by side: which batches are the same, and what lies between those."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kafkascan.fingerprints import FingerprintRows
from kafkascan.offset_order import heaviest_ascending


@dataclass(frozen=True)
class Block:
    """
    Neighbouring batches that are not the same in both logs.

    Attributes
    ----------
    left, right : slice
        Rows of each log.
    is_first, is_last : bool
        Whether no batch before it, or none behind it, is the same in both.
    """

    left: slice
    right: slice
    is_first: bool
    is_last: bool


@dataclass(frozen=True, eq=False)
class Alignment:
    """
    Attributes
    ----------
    left, right : ndarray of int64, shape (m,)
        Rows that are the same, ascending, pair by pair.
    blocks : list of Block
        What lies between them, in order.
    """

    left: NDArray[np.int64]
    right: NDArray[np.int64]
    blocks: list[Block]


def content_keys(rows: FingerprintRows) -> NDArray[np.uint64]:
    """Return a number for each batch that says what is in it."""
    sizes = rows["size"].astype(np.uint64)
    keys: NDArray[np.uint64] = rows["crc"].astype(np.uint64) << np.uint64(32) | sizes
    return keys


def align_by_offset(left: FingerprintRows, right: FingerprintRows) -> Alignment:
    """Pair batches that have the same offsets and the same content."""
    rows, others = _same_offsets(left["last_offset"], right["last_offset"])
    is_same = content_keys(left)[rows] == content_keys(right)[others]
    for name in ("first_offset", "magic"):
        is_same &= left[name][rows] == right[name][others]
    return _aligned(rows[is_same], others[is_same], left, right)


def _same_offsets(
    left: NDArray[np.int64], right: NDArray[np.int64]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    left, right = np.ascontiguousarray(left), np.ascontiguousarray(right)
    if len(left) == len(right) and np.array_equal(left, right):
        return np.arange(len(left)), np.arange(len(left))
    if not ((left[1:] > left[:-1]).all() and (right[1:] > right[:-1]).all()):
        _, rows, others = np.intersect1d(left, right, return_indices=True)
        keep = heaviest_ascending(rows, rows, np.ones(len(rows), np.int64))
        keep[keep] = heaviest_ascending(
            others[keep], others[keep], np.ones(int(keep.sum()), np.int64)
        )
        return rows[keep], others[keep]
    places = np.minimum(np.searchsorted(right, left), max(len(right) - 1, 0))
    rows = np.flatnonzero(right[places] == left) if len(right) else np.empty(0, np.intp)
    return rows, places[rows]


def align_by_content(left: FingerprintRows, right: FingerprintRows) -> Alignment:
    """
    Pair batches that have the same content, in the same order, whatever their offsets.

    Batches that are there once on both sides are paired first; others between two pairs
    where they stand at the same distance from either.
    """
    keys, other_keys = content_keys(left), content_keys(right)
    rows, others = _unique_pairs(keys, other_keys)
    keep = heaviest_ascending(others, others, np.ones(len(rows), np.int64))
    # Both logs begin and end somewhere: as if there were batches that are the same.
    rows = np.concatenate([[-1], rows[keep], [len(left)]]).astype(np.int64)
    others = np.concatenate([[-1], others[keep], [len(right)]]).astype(np.int64)
    here = np.arange(len(left))
    before = np.searchsorted(rows, here, side="right") - 1
    forward = others[before] + here - rows[before]
    after = np.minimum(before + 1, len(rows) - 1)
    backward = others[after] - (rows[after] - here)
    partner = np.full(len(left), -1, np.int64)
    for guess in (backward, forward):
        is_inside = (guess >= others[before]) & (guess < others[after]) & (guess >= 0)
        found = np.flatnonzero(is_inside)
        found = found[keys[found] == other_keys[guess[found]]]
        partner[found] = guess[found]
    paired = np.flatnonzero(partner >= 0)
    keep = heaviest_ascending(partner[paired], partner[paired], np.ones(len(paired), np.int64))
    return _aligned(paired[keep], partner[paired][keep], left, right)


def _unique_pairs(
    keys: NDArray[np.uint64], others: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    mine, at, count = np.unique(keys, return_index=True, return_counts=True)
    theirs, other_at, other_count = np.unique(others, return_index=True, return_counts=True)
    mine, at = mine[count == 1], at[count == 1]
    theirs, other_at = theirs[other_count == 1], other_at[other_count == 1]
    _, first, second = np.intersect1d(mine, theirs, assume_unique=True, return_indices=True)
    rows, partners = at[first], other_at[second]
    order = np.argsort(rows)
    return rows[order].astype(np.int64), partners[order].astype(np.int64)


def _aligned(
    rows: NDArray[np.intp],
    others: NDArray[np.intp],
    left: FingerprintRows,
    right: FingerprintRows,
) -> Alignment:
    first, second = rows.astype(np.int64), others.astype(np.int64)
    starts = np.append(-1, first) + 1, np.append(-1, second) + 1
    stops = np.append(first, len(left)), np.append(second, len(right))
    holds_any = np.flatnonzero((starts[0] < stops[0]) | (starts[1] < stops[1]))
    blocks = [
        Block(
            slice(int(starts[0][slot]), int(stops[0][slot])),
            slice(int(starts[1][slot]), int(stops[1][slot])),
            is_first=slot == 0,
            is_last=slot == len(first),
        )
        for slot in holds_any.tolist()
    ]
    return Alignment(first, second, blocks)
