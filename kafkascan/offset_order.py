"""Which pieces of a log are its own: those that stand in order, and hold most of it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import search as _core
from kafkascan.batch_columns import BatchTable, last_offset, size_in_bytes

_ONE = 1 << 10


def heaviest_ascending(
    first: NDArray[np.int64], last: NDArray[np.int64], weight: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """
    Choose ranges of offsets, in their order, that ascend and weigh most.

    Parameters
    ----------
    first, last : array of int64, shape (n,)
        Of each range. Chosen is only what begins behind the end of what was chosen before.
    weight : array of int64, shape (n,)
        Positive.

    Returns
    -------
    ndarray of bool, shape (n,)

    Notes
    -----
    O(n log n): a longest ascending subsequence, weighted.
    """
    count = len(first)
    keep = np.zeros(count, np.uint8)
    ends = np.sort(last)
    _core.heaviest_ascending(
        np.ascontiguousarray(first, np.int64),
        np.searchsorted(ends, first, side="left").astype(np.int64),
        np.searchsorted(ends, last, side="left").astype(np.int64),
        np.ascontiguousarray(weight, np.int64),
        np.empty(count + 1, np.int64),
        np.empty(count + 1, np.int64),
        np.empty(count, np.int64),
        keep,
    )
    return keep.view(np.bool_)


def are_ascending(batches: BatchTable) -> bool:
    """Tell whether each batch begins behind the end of the one before it."""
    if not len(batches):
        return True
    first, last = batches["base_offset"], last_offset(batches)
    return bool((last >= first).all() and (first[1:] > last[:-1]).all())


def in_order(batches: BatchTable, log_end: int) -> NDArray[np.bool_]:
    """
    Choose the batches whose offsets ascend, where checksums do not tell.

    Parameters
    ----------
    batches : array of BATCH_DTYPE, shape (n,)
        By position; where one does not begin at the end of the one before it, a new piece
        of the log begins.
    log_end : int
        Position: the piece that arrives there is the log's own. What is nested in a value
        ends within it.

    Returns
    -------
    ndarray of bool, shape (n,)

    Notes
    -----
    As many batches as possible stay; those count more whose offsets are where they would be
    without any gap between them and others.
    """
    keep = np.ones(len(batches), np.bool_)
    if are_ascending(batches):
        return keep
    weight = _support(batches)
    keep = _heaviest(batches, weight)
    stops = batches["position"] + size_in_bytes(batches)
    starts = np.append(0, np.flatnonzero(batches["position"][1:] != stops[:-1]) + 1)
    if int(stops[-1]) == log_end:
        own = int(starts[-1])
        at_end = _heaviest(batches[own:], weight[own:])
        if 2 * int(weight[own:][keep[own:]].sum()) < int(weight[own:][at_end].sum()):
            # Most of the log's own end was given up for something before it.
            weight[own:][at_end] += weight.sum()
            keep = _heaviest(batches, weight)
    # A piece that mostly contradicts the log is none of it.
    sizes = np.diff(np.append(starts, len(batches)))
    is_own = 2 * np.add.reduceat(keep.astype(np.int64), starts) >= sizes
    return keep & np.repeat(is_own, sizes)


def _heaviest(batches: BatchTable, weight: NDArray[np.int64]) -> NDArray[np.bool_]:
    first, last = batches["base_offset"], last_offset(batches)
    keep = last >= first
    keep[keep] = heaviest_ascending(first[keep], last[keep], weight[keep])
    return keep


def _support(batches: BatchTable) -> NDArray[np.int64]:
    """Weigh batches: those more whose offsets agree with the counts of records around them."""
    counts = batches["last_offset_delta"].astype(np.int64) + 1
    origin = batches["base_offset"] - (np.cumsum(counts) - counts)
    _, origin_of, seen = np.unique(origin, return_inverse=True, return_counts=True)
    weight: NDArray[np.int64] = _ONE + np.minimum(seen, _ONE // 2 - 1)[origin_of]
    is_near = np.zeros(len(batches), np.bool_)
    for distance in (1, 2):
        agrees = origin[distance:] == origin[:-distance]
        is_near[distance:] |= agrees
        is_near[:-distance] |= agrees
    weight[is_near] += _ONE // 2
    return weight


def fit_between(
    batches: BatchTable, keep: NDArray[np.bool_], rows: NDArray[np.intp]
) -> NDArray[np.bool_]:
    """
    Tell which rows have offsets between those of the chosen rows around them.

    Parameters
    ----------
    batches : array of BATCH_DTYPE, shape (n,)
    keep : ndarray of bool, shape (n,)
        The rows that are chosen; their offsets ascend.
    rows : ndarray of int, shape (m,)
        Other rows, ascending.

    Returns
    -------
    ndarray of bool, shape (m,)
    """
    chosen = np.flatnonzero(keep)
    places = np.searchsorted(chosen, rows)
    first, last = batches["base_offset"], last_offset(batches)
    ends = np.concatenate([[np.int64(-1)], last[chosen]])
    starts = np.append(first[chosen], np.iinfo(np.int64).max)
    is_between = (ends[places] < first[rows]) & (last[rows] < starts[places])
    result: NDArray[np.bool_] = is_between & (first[rows] <= last[rows])
    return result
