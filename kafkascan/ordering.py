"""Which pieces of a log are its own: those that stand in order, and hold most of it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import search as _core
from kafkascan.batch_columns import BatchTable, last_offset, size_in_bytes


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
    Within a piece, as many batches as possible stay; of the pieces those that hold most
    bytes, as far as their offsets ascend.
    """
    keep = np.ones(len(batches), np.bool_)
    if are_ascending(batches):
        return keep
    first, last = batches["base_offset"], last_offset(batches)
    keep &= last >= first
    stops = batches["position"] + size_in_bytes(batches)
    starts = np.flatnonzero(batches["position"][1:] != stops[:-1]) + 1
    bounds = np.concatenate([[0], starts, [len(batches)]])
    for start, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        if not are_ascending(batches[start:stop]):
            rows = start + np.flatnonzero(keep[start:stop])
            keep[rows] = heaviest_ascending(first[rows], last[rows], np.ones(len(rows), np.int64))
    _keep_pieces(keep, batches, bounds, log_end)
    return keep


def _keep_pieces(
    keep: NDArray[np.bool_], batches: BatchTable, bounds: NDArray[np.int64], log_end: int
) -> None:
    """Let pieces go that contradict heavier ones."""
    piece_of = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    rows = np.flatnonzero(keep)
    if not len(rows):
        return
    pieces, heads = np.unique(piece_of[rows], return_index=True)
    tails = np.append(heads[1:], len(rows)) - 1
    first, last = batches["base_offset"], last_offset(batches)
    sizes = size_in_bytes(batches)
    weight = np.add.reduceat(sizes[rows], heads)
    if int(batches["position"][-1] + sizes[-1]) == log_end and piece_of[rows[-1]] == piece_of[-1]:
        weight[-1] += weight.sum()
    is_chosen = heaviest_ascending(first[rows[heads]], last[rows[tails]], weight)
    keep &= np.isin(piece_of, pieces[is_chosen])


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
