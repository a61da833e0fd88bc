"""Select the batches of a damaged log whose offsets ascend, keeping as many as possible."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import search as _core
from kafkascan.batches.columns import BatchTable, last_offset
from kafkascan.batches.resyncing.offset_evidence import (
    HIGHEST_OFFSET,
    SEGMENT_OFFSETS,
    adjacent_count,
    are_copies,
    are_far,
    link_weights,
    prefix_count,
    support,
    support_of_prefix,
)


def heaviest_ascending(
    first: NDArray[np.int64],
    last: NDArray[np.int64],
    weight: NDArray[np.int64],
    link: NDArray[np.int64] | None = None,
) -> NDArray[np.bool_]:
    """
    Select ascending, disjoint ranges of offsets with the greatest total weight.

    Parameters
    ----------
    first, last : array of int64, shape (n,)
        Offsets of each range. A selected range starts after the end of the previous one.
    weight : array of int64, shape (n,)
        Positive.
    link : array of int64, shape (n,), optional
        Weight that a range adds if the range before it is selected, too.

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
        np.zeros(count, np.int64) if link is None else np.ascontiguousarray(link, np.int64),
        np.empty(count + 1, np.int64),
        np.empty(count + 1, np.int64),
        np.empty(count, np.int64),
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


def select_ascending(
    batches: BatchTable,
    is_joined: NDArray[np.bool_],
    announced: int | None = None,
    lowest: int = 0,
) -> NDArray[np.bool_]:
    """
    Select batches whose offsets ascend, from batches that all have valid checksums.

    Parameters
    ----------
    batches : array of BATCH_DTYPE, shape (n,)
        Sorted by position.
    is_joined : array of bool, shape (n,)
        Whether a batch follows the previous one, or the start of the log, without bytes whose
        extent is unknown. Joined batches form a chain.
    announced : int, optional
        The offset after the damaged batch that follows the first chain, as its header has it.
    lowest : int
        First offset that the log may contain.

    Returns
    -------
    ndarray of bool, shape (n,)

    Notes
    -----
    The chain at the start of the log is what Kafka's recovery keeps, so chains after it do not
    displace its batches, except for copies, and for batches at its end that have wrong offsets.
    Besides, the selection keeps as many batches as possible. Of selections of the same size, the
    one is preferred whose offsets agree with the record counts of the batches around them.
    """
    if are_ascending(batches):
        return np.ones(len(batches), np.bool_)
    links, heads = link_weights(batches), np.flatnonzero(~is_joined)
    stop = (int(heads[0]) if len(heads) else len(batches)) if is_joined[0] else 0
    evidence = np.append(support_of_prefix(batches[:stop]), support(batches[stop:]))
    one = int(evidence.sum() + links.sum()) + 1  # the number of batches comes first
    weight = np.maximum(1, evidence + one * ~are_far(batches))
    if not stop:
        return _select_beside(batches, np.empty(0, np.intp), weight, links)
    chain = _heaviest(batches[:stop], weight[:stop], links[:stop])
    if stop == len(batches):
        return chain
    bounds = _Bounds(stop, heads, announced, lowest)
    keep = _select_after(batches, chain, bounds, weight, links)
    if chain.all():
        return keep
    # Batches of the chain that have copies after it need no place within it.
    lighter = np.where(are_copies(batches[:stop], batches[stop:]), 1, weight[:stop])
    other_chain = _heaviest(batches[:stop], lighter, links[:stop])
    other = _select_after(batches, other_chain, bounds, weight, links)
    count = min(prefix_count(batches), adjacent_count(batches))
    prefix = batches[:count][keep[:count]]
    is_better = other.sum() > keep.sum() and are_copies(prefix, batches[other]).all()
    return other if is_better else keep


@dataclass(frozen=True)
class _Bounds:
    """
    The end of the first chain, and what is known about the batches after it.

    Attributes
    ----------
    stop : int
        Number of batches of the first chain.
    heads : ndarray of int
        Rows of the first batch of each later chain.
    announced : int or None
    lowest : int
    """

    stop: int
    heads: NDArray[np.intp]
    announced: int | None
    lowest: int


def _select_after(
    batches: BatchTable,
    chain: NDArray[np.bool_],
    bounds: _Bounds,
    weight: NDArray[np.int64],
    links: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Select batches whose offsets ascend, together with those selected of the first chain."""
    pinned = np.flatnonzero(chain)
    pinned = pinned[: len(pinned) - _contested_end(batches, pinned, bounds.stop, bounds.lowest)]
    announced = bounds.announced
    if announced is not None and announced > last_offset(batches)[pinned].max(initial=-1):
        named = bounds.heads[batches["base_offset"][bounds.heads] == announced]
        others = np.delete(batches, named)
        named = named[~are_copies(batches.take(named), others)]
        weight = weight.copy()
        weight[named] += int(weight.sum())
    has_copy = are_copies(batches.take(pinned), batches[bounds.stop :])
    keep = _select_beside(batches, pinned[~has_copy], weight, links)
    if not are_copies(batches.take(pinned), batches[keep]).all():
        keep = _select_beside(batches, pinned, weight, links)
    return keep


def _select_beside(
    batches: BatchTable,
    pinned: NDArray[np.intp],
    weight: NDArray[np.int64],
    links: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Select batches whose offsets ascend, among those that pinned ones do not contradict."""
    is_possible = ~_contradict(batches, pinned)
    # A run that contradicts pinned batches is no evidence for its other batches.
    _, impossible, sizes = _counts_of_runs(batches, is_possible, links)
    is_linked = np.repeat(impossible == 0, sizes)
    keep, is_foreign = _agreeing(batches, pinned, weight, links, is_possible, is_linked)
    if not is_foreign.any():
        return keep
    # Without the rest of a run, fewer batches may be left than with it.
    runs = np.flatnonzero(_heaviest(batches, weight, links, is_possible & is_foreign))
    is_possible &= ~_contradict(batches, runs)
    other, _ = _agreeing(batches, pinned, weight, links, is_possible, is_linked)
    is_larger = other.sum() > keep.sum() and weight[other].sum() > weight[keep].sum()
    return other if is_larger else keep


def _agreeing(
    batches: BatchTable,
    pinned: NDArray[np.intp],
    weight: NDArray[np.int64],
    links: NDArray[np.int64],
    is_possible: NDArray[np.bool_],
    is_linked: NDArray[np.bool_],
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Select pinned batches and runs that agree; return the batches of other runs, too."""
    keep = _heaviest(batches, weight, links * is_linked, is_possible)
    is_foreign = ~_are_of_own_runs(batches, keep, links, is_linked)
    is_foreign[pinned] = False
    if is_foreign.any():
        keep = _heaviest(batches, weight, links, is_possible & ~is_foreign)
    return keep, is_foreign


def _contradict(batches: BatchTable, pinned: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Return which batches have offsets that are out of order beside those of pinned rows."""
    first, last = batches["base_offset"], last_offset(batches)
    is_pinned = np.zeros(len(batches), np.bool_)
    is_pinned[pinned] = True
    highest = np.maximum.accumulate(np.where(is_pinned, last, -1))
    lowest = np.where(is_pinned, first, np.iinfo(np.int64).max)
    lowest = np.minimum.accumulate(lowest[::-1])[::-1]
    contradict: NDArray[np.bool_] = ~is_pinned & ((first <= highest) | (last >= lowest))
    return contradict


def _contested_end(batches: BatchTable, head: NDArray[np.intp], stop: int, lowest: int) -> int:
    """
    Return how many batches at the end of the first chain have offsets that may be wrong.

    Later batches contradict them, and they follow a gap in the offsets. They may be wrong if the
    gap is greater than a segment can have, if the later batches were written after them, if
    damage separates them from the valid prefix and the later batches are more, or if one flipped
    bit explains the offset of the last.
    """
    first, last, written = batches["base_offset"], last_offset(batches), batches["max_timestamp"]
    gaps = np.flatnonzero(first[head[1:]] != last[head[:-1]] + 1)
    start = int(gaps[-1]) + 1 if len(gaps) else 0
    low, end = (int(last[head[start - 1]]) + 1 if start else lowest), int(last[head[-1]])
    rivals = stop + np.flatnonzero((first[stop:] >= low) & (first[stop:] <= end))
    if not len(rivals) or (start == 0 and len(head) > 1):
        return 0
    known = low if start else int(first[rivals].min())
    if int(first[head[start]]) - known >= SEGMENT_OFFSETS:
        return len(head) - start
    mine, theirs = written[head[start:]], written[rivals]
    if start and 0 <= mine.min() and mine.max() < theirs.min():
        return len(head) - start
    is_after_damage = int(head[start]) >= adjacent_count(batches[:stop])
    if is_after_damage and _count_ascending(batches.take(rivals)) > len(head) - start:
        return len(head) - start
    if start < len(head) - 1 or len(gaps) > 1 or mine.min() > theirs.max():
        return 0
    offset, size = int(first[head[-1]]), end - int(first[head[-1]])
    return int(low + size < int(first[rivals].min()) and (offset ^ low).bit_count() == 1)


def _count_ascending(batches: BatchTable) -> int:
    """Return how many batches can be kept so that their offsets ascend."""
    first, last = batches["base_offset"], last_offset(batches)
    return int(heaviest_ascending(first, last, np.ones(len(first), np.int64)).sum())


def _are_of_own_runs(
    batches: BatchTable,
    keep: NDArray[np.bool_],
    links: NDArray[np.int64],
    is_linked: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """
    Return which batches are in runs of linked batches that mostly agree with the selection.

    A copy of a selected batch does not contradict it. A run that is as large as all other selected
    batches is no smaller evidence than these, nor is one that fewer batches contradict, or as many
    if none of them are pinned: they are selected for another reason.
    """
    kept, others, sizes = _counts_of_runs(batches, keep, links)
    is_large = (sizes >= kept.sum() - kept) | (kept == 0)
    is_tie_own = is_linked[np.cumsum(sizes) - sizes]
    is_large |= others + is_tie_own > _count_against_runs(batches, keep, sizes)
    is_own: NDArray[np.bool_] = np.repeat(is_large | (kept >= others), sizes)
    return is_own


def _count_against_runs(
    batches: BatchTable, keep: NDArray[np.bool_], sizes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return for each run how many selected batches elsewhere have offsets that contradict it."""
    stops = np.cumsum(sizes)
    starts = stops - sizes
    first, last = batches["base_offset"][keep], last_offset(batches)[keep]
    before = np.append(0, np.cumsum(keep))
    low = before[starts] - np.searchsorted(last, batches["base_offset"][starts])
    high = np.searchsorted(first, last_offset(batches)[stops - 1], "right") - before[stops]
    against: NDArray[np.int64] = np.maximum(0, low) + np.maximum(0, high)
    return against


def _counts_of_runs(
    batches: BatchTable, keep: NDArray[np.bool_], links: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return for each run the numbers of selected batches, of others but copies, and of all."""
    is_other = ~keep
    is_other[is_other] = ~are_copies(batches[~keep], batches[keep])
    starts = np.flatnonzero(links == 0)
    kept = np.add.reduceat(keep.astype(np.int64), starts)
    others = np.add.reduceat(is_other.astype(np.int64), starts)
    return kept, others, np.diff(np.append(starts, len(batches)))


def _heaviest(
    batches: BatchTable,
    weight: NDArray[np.int64],
    links: NDArray[np.int64],
    is_possible: NDArray[np.bool_] | None = None,
) -> NDArray[np.bool_]:
    first, last = batches["base_offset"], last_offset(batches)
    keep = last >= first
    if is_possible is not None:
        keep &= is_possible
    links = np.where(np.append(False, keep[:-1]), links, 0)
    keep[keep] = heaviest_ascending(first[keep], last[keep], weight[keep], links[keep])
    return keep


def select_in_order(
    batches: BatchTable,
    is_valid: NDArray[np.bool_],
    is_joined: NDArray[np.bool_],
    announced: int | None = None,
    lowest: int = 0,
) -> NDArray[np.bool_]:
    """
    Select batches whose offsets ascend; batches with wrong checksums have no weight.

    Parameters
    ----------
    batches : array of BATCH_DTYPE, shape (n,)
    is_valid : array of bool, shape (n,)
        Which batches have a valid checksum.
    is_joined, announced, lowest
        As in `select_ascending`.

    Returns
    -------
    ndarray of bool, shape (n,)
        The valid batches of `select_ascending`, and the other batches whose offsets are between
        those of their selected neighbours.
    """
    keep = is_valid.copy()
    valid = np.flatnonzero(is_valid)
    # A valid batch is joined if all batches since the last valid one are.
    breaks = np.cumsum(~is_joined)[valid]
    is_joined = np.diff(breaks, prepend=0) == 0
    is_selected = select_ascending(batches.take(valid), is_joined, announced, lowest)
    keep[valid[~is_selected]] = False
    damaged = np.flatnonzero(~is_valid)
    keep[damaged] = are_between(batches[keep], batches[damaged], 0, HIGHEST_OFFSET)
    return keep


def fitting(
    batches: BatchTable, others: BatchTable, lowest: int, highest: int
) -> NDArray[np.bool_]:
    """Select other batches that fit between these, as many as their offsets permit."""
    fits = are_between(batches, others, lowest, highest)
    first, last = others["base_offset"][fits], last_offset(others)[fits]
    fits[fits] = heaviest_ascending(first, last, np.ones(len(first), np.int64))
    return fits


def are_between(
    batches: BatchTable, others: BatchTable, lowest: int, highest: int
) -> NDArray[np.bool_]:
    """Return which other batches have offsets between those of the batches around them."""
    following = np.searchsorted(batches["position"], others["position"])
    low = np.append(np.int64(lowest - 1), last_offset(batches))[following]
    high = np.append(batches["base_offset"] - 1, np.int64(highest))[following]
    first, last = others["base_offset"], last_offset(others)
    are: NDArray[np.bool_] = (low < first) & (first <= last) & (last <= high)
    return are
