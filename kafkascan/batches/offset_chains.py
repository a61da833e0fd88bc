"""Select the batches of a damaged log whose offsets ascend, keeping as many as possible."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import search as _core
from kafkascan.batches.columns import BatchTable, last_offset, size_in_bytes

_UNIT = 1 << 10


def heaviest_ascending(
    first: NDArray[np.int64], last: NDArray[np.int64], weight: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """
    Select ascending, disjoint ranges of offsets with the greatest total weight.

    Parameters
    ----------
    first, last : array of int64, shape (n,)
        Offsets of each range. A selected range starts after the end of the previous one.
    weight : array of int64, shape (n,)
        Positive.

    Returns
    -------
    ndarray of bool, shape (n,)

    Notes
    -----
    The weighted longest increasing subsequence, in O(n log n).
    """
    count = len(first)
    keep = np.zeros(count, np.uint8)
    ends = np.sort(last)
    _core.heaviest_ascending(
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
    """Return whether each batch starts after the last offset of the previous one."""
    if not len(batches):
        return True
    first, last = batches["base_offset"], last_offset(batches)
    return bool((last >= first).all() and (first[1:] > last[:-1]).all())


def select_ascending(batches: BatchTable, log_end: int) -> NDArray[np.bool_]:
    """
    Select batches whose offsets ascend, from batches that all have valid checksums.

    Parameters
    ----------
    batches : array of BATCH_DTYPE, shape (n,)
        Sorted by position. Batches that follow each other without a gap form a chain.
    log_end : int
        Position of the end of the log, or -1 if it is not known. A chain that ends there belongs
        to the log; batches nested in a value end before it.

    Returns
    -------
    ndarray of bool, shape (n,)

    Notes
    -----
    The selection keeps as many batches as possible. Batches weigh more if their offsets agree
    with the record counts of the batches around them.
    """
    keep = np.ones(len(batches), np.bool_)
    if are_ascending(batches):
        return keep
    weight = _support(batches)
    keep = _heaviest(batches, weight)
    stops = batches["position"] + size_in_bytes(batches)
    starts = np.append(0, np.flatnonzero(batches["position"][1:] != stops[:-1]) + 1)
    if int(stops[-1]) == log_end:
        tail = int(starts[-1])
        at_end = _heaviest(batches[tail:], weight[tail:])
        if 2 * int(weight[tail:][keep[tail:]].sum()) < int(weight[tail:][at_end].sum()):
            # Most of the chain at the log's end was dropped in favour of batches before it.
            weight[tail:][at_end] += weight.sum()
            keep = _heaviest(batches, weight)
    # A chain does not belong to the log if most of its batches contradict it.
    sizes = np.diff(np.append(starts, len(batches)))
    is_own = 2 * np.add.reduceat(keep.astype(np.int64), starts) >= sizes
    return keep & np.repeat(is_own, sizes)


def _heaviest(batches: BatchTable, weight: NDArray[np.int64]) -> NDArray[np.bool_]:
    first, last = batches["base_offset"], last_offset(batches)
    keep = last >= first
    keep[keep] = heaviest_ascending(first[keep], last[keep], weight[keep])
    return keep


def _support(batches: BatchTable) -> NDArray[np.int64]:
    """Return weights: greater where offsets agree with the record counts around them."""
    counts = batches["last_offset_delta"].astype(np.int64) + 1
    origin = batches["base_offset"] - (np.cumsum(counts) - counts)
    _, origin_of, seen = np.unique(origin, return_inverse=True, return_counts=True)
    weight: NDArray[np.int64] = _UNIT + np.minimum(seen, _UNIT // 2 - 1)[origin_of]
    is_near = np.zeros(len(batches), np.bool_)
    for distance in (1, 2):
        agrees = origin[distance:] == origin[:-distance]
        is_near[distance:] |= agrees
        is_near[:-distance] |= agrees
    weight[is_near] += _UNIT // 2
    return weight


def select_in_order(
    batches: BatchTable, is_valid: NDArray[np.bool_], log_end: int
) -> NDArray[np.bool_]:
    """
    Select batches whose offsets ascend; batches with wrong checksums have no weight.

    Parameters
    ----------
    batches : array of BATCH_DTYPE, shape (n,)
    is_valid : array of bool, shape (n,)
        Which batches have a valid checksum.
    log_end : int
        As in `select_ascending`.

    Returns
    -------
    ndarray of bool, shape (n,)
        The valid batches of `select_ascending`, and the other batches whose offsets are between
        those of their selected neighbours.
    """
    keep = is_valid.copy()
    valid = np.flatnonzero(is_valid)
    keep[valid[~select_ascending(batches.take(valid), log_end)]] = False
    damaged = np.flatnonzero(~is_valid)
    keep[damaged[_fit_between(batches, keep, damaged)]] = True
    return keep


def _fit_between(
    batches: BatchTable, keep: NDArray[np.bool_], rows: NDArray[np.intp]
) -> NDArray[np.bool_]:
    """Return which rows have offsets between those of the selected rows around them."""
    selected = np.flatnonzero(keep)
    following = np.searchsorted(selected, rows)
    first, last = batches["base_offset"], last_offset(batches)
    ends = np.concatenate([[np.int64(-1)], last[selected]])
    starts = np.append(first[selected], np.iinfo(np.int64).max)
    is_between = (ends[following] < first[rows]) & (last[rows] < starts[following])
    result: NDArray[np.bool_] = is_between & (first[rows] <= last[rows])
    return result
