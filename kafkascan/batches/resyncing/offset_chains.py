"""Select the batches of a damaged log whose offsets ascend, keeping as many as possible."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import search as _core
from kafkascan.batches.columns import BatchTable, last_offset
from kafkascan.batches.resyncing.offset_evidence import (
    HIGHEST_OFFSET,
    IN_PREFIX,
    SEGMENT_OFFSETS,
    are_copies,
    are_far,
    differ_in_one_bit,
    flipped_rows,
    inner_links,
    link_weights,
    support,
    support_of_prefix,
    valid_prefix_count,
)

# Weights of whole selections are int64.
_MOST_WEIGHT = 1 << 61


def heaviest_ascending(
    first: NDArray[np.int64],
    last: NDArray[np.int64],
    weight: NDArray[np.int64],
    link: NDArray[np.int64] | None = None,
    counts: NDArray[np.int64] | None = None,
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
    counts : array of int64, shape (n,), optional
        Number of ranges of which each consists: either ascending ones, in between which are no
        others than those of equal ranges, or equal ones that end before they start. Of selections
        of the same weight, the one is returned that would be if all of them were given.

    Returns
    -------
    ndarray of bool, shape (n,)

    Notes
    -----
    The weighted longest increasing subsequence, in O(n log n).
    """
    count = places = len(first)
    keep = np.zeros(count, np.uint8)
    ends = np.sort(last)
    below, rank = (np.searchsorted(ends, one).astype(np.int64) for one in (first, last))
    if counts is not None and (counts > 1).any():
        before = np.append(0, np.cumsum(counts[np.argsort(last, kind="stable")]))
        below, rank, places = before[below], before[rank], int(before[-1])
        equal = np.searchsorted(ends, last, "right") - np.searchsorted(ends, last)
        rank += np.where(last >= first, equal * (counts - 1), 0)
    _core.heaviest_ascending(
        below,
        rank,
        np.ascontiguousarray(weight, np.int64),
        np.zeros(count, np.int64) if link is None else np.ascontiguousarray(link, np.int64),
        np.empty(places + 1, np.int64),
        np.empty(places + 1, np.int64),
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
    start: int = 0,
    lowest: int = 0,
    counts: NDArray[np.int64] | None = None,
) -> NDArray[np.bool_]:
    """
    Select batches whose offsets ascend, from batches that all have valid checksums.

    Parameters
    ----------
    batches : array of BATCH_DTYPE, shape (n,)
        Sorted by position.
    is_joined : array of bool, shape (n,)
        Whether a batch follows the previous one, or the start of the log, without bytes whose
        extent is unknown.
    start : int
        Position at which the log begins.
    lowest : int
        First offset that the log may contain.
    counts : array of int64, shape (n,), optional
        Number of batches of which each row consists, without offsets of others in between, unless
        another row consists of the same; 1 by default.

    Returns
    -------
    ndarray of bool, shape (n,)

    Notes
    -----
    Kafka's recovery keeps the batches from the start of the log up to the first damage or the first
    offset that does not ascend. They are kept, or copies of them are, except for those that have
    wrong offsets. Besides, the selection keeps as many batches as possible. Of selections of the
    same size, the one is preferred whose offsets agree with the record counts around them.
    """
    if are_ascending(batches):
        return np.ones(len(batches), np.bool_)
    counts = np.ones(len(batches), np.int64) if counts is None else counts
    heads, links = np.flatnonzero(~is_joined), link_weights(batches)
    stop = int(heads[0]) if len(heads) else len(batches)
    evidence = np.append(
        support_of_prefix(batches[:stop], counts[:stop]), support(batches[stop:], counts[stop:])
    )
    inner = inner_links(counts)
    # The number of batches comes first.
    one = int((evidence * counts).sum() + links.sum() + inner.sum()) + 1
    weight = np.maximum(1, evidence + one * ~are_far(batches))
    # Damaged batches whose extent is known do not end the log: what follows them is evidence.
    is_prefix = _heaviest_of_chain(
        batches[:stop], weight[:stop] * counts[:stop] + inner[:stop], links[:stop], counts[:stop]
    )
    count = valid_prefix_count(batches, start)
    prefix = np.flatnonzero(is_prefix[:count])
    # Those that it contradicts are no more evidence than others.
    weight[:count] = np.maximum(1, weight[:count] - IN_PREFIX * ~is_prefix[:count])
    weight = weight * counts + inner
    keep = _select_with(batches, prefix, weight, links, counts)
    contested = _contested_end(batches, prefix, lowest, counts)
    if not contested:
        return keep
    other = _select_with(batches, prefix[:-contested], weight, links, counts)
    return other if counts[other].sum() > counts[keep].sum() else keep


def _heaviest_of_chain(
    batches: BatchTable,
    weight: NDArray[np.int64],
    links: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """
    Select batches of the first chain.

    Of two batches that contradict each other, and nothing else, the one is dropped whose offset has
    one flipped bit.
    """
    keep = _heaviest(batches, weight, links, counts)
    is_intact = np.ones(len(batches), np.bool_)
    is_intact[flipped_rows(batches)] = False
    if is_intact.all():
        return keep
    other = _heaviest(batches, weight, links, counts, is_intact)
    is_exchange = counts[other].sum() == counts[keep].sum() and counts[other != keep].sum() == 2
    return other if is_exchange else keep


def _select_with(
    batches: BatchTable,
    prefix: NDArray[np.intp],
    weight: NDArray[np.int64],
    links: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Select batches, among them those of the prefix, or copies of these."""
    has_copy = are_copies(batches.take(prefix), np.delete(batches, prefix))
    more = int(weight.sum() + links.sum()) + 1  # outweighs any batches that are no such copies
    if more * int(counts[prefix][has_copy].sum()) > _MOST_WEIGHT:
        has_copy[:] = False
    is_copied = are_copies(batches, batches.take(prefix[has_copy]))
    is_possible = ~_contradict(batches, prefix[~has_copy])
    return _heaviest(batches, weight + more * is_copied * counts, links, counts, is_possible)


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


def _contested_end(
    batches: BatchTable, prefix: NDArray[np.intp], lowest: int, counts: NDArray[np.int64]
) -> int:
    """
    Return how many batches at the end of the valid prefix have offsets that may be wrong.

    Later batches contradict them, and they follow a gap in the offsets. They may be wrong if the
    gap is greater than a segment can have, if the later batches were written after them, or if one
    flipped bit explains the offset of the last.
    """
    if not len(prefix):
        return 0
    first, last, written = batches["base_offset"], last_offset(batches), batches["max_timestamp"]
    earliest = np.where(counts > 1, batches["base_timestamp"], written)
    gaps = np.flatnonzero(first[prefix[1:]] != last[prefix[:-1]] + 1)
    start = int(gaps[-1]) + 1 if len(gaps) else 0
    low, end = (int(last[prefix[start - 1]]) + 1 if start else lowest), int(last[prefix[-1]])
    behind = int(prefix[-1]) + 1
    rivals = behind + np.flatnonzero((first[behind:] >= low) & (first[behind:] <= end))
    if not len(rivals) or (start == 0 and len(prefix) > 1):
        return 0
    known = low if start else int(first[rivals].min())
    if int(first[prefix[start]]) - known >= SEGMENT_OFFSETS:
        return len(prefix) - start
    mine, begin, end_of_rivals = (
        prefix[start:],
        earliest[prefix[start:]].min(),
        written[rivals].max(),
    )
    if start and 0 <= begin and written[mine].max() < earliest[rivals].min():
        return len(prefix) - start
    if start < len(prefix) - 1 or len(gaps) > 1 or begin > end_of_rivals:
        return 0
    offset, size = int(first[prefix[-1]]), end - int(first[prefix[-1]])
    return int(low + size < int(first[rivals].min()) and differ_in_one_bit(offset, low))


def _heaviest(
    batches: BatchTable,
    weight: NDArray[np.int64],
    links: NDArray[np.int64],
    counts: NDArray[np.int64],
    is_possible: NDArray[np.bool_] | None = None,
) -> NDArray[np.bool_]:
    first, last = batches["base_offset"], last_offset(batches)
    keep = last >= first
    if is_possible is not None:
        keep &= is_possible
    links = np.where(np.append(False, keep[:-1]), links, 0)
    keep[keep] = heaviest_ascending(
        first[keep], last[keep], weight[keep], links[keep], counts[keep]
    )
    return keep


def select_in_order(
    batches: BatchTable,
    is_valid: NDArray[np.bool_],
    is_joined: NDArray[np.bool_],
    start: int = 0,
    lowest: int = 0,
    counts: NDArray[np.int64] | None = None,
) -> NDArray[np.bool_]:
    """
    Select batches whose offsets ascend; batches with wrong checksums have no weight.

    Parameters
    ----------
    batches : array of BATCH_DTYPE, shape (n,)
    is_valid : array of bool, shape (n,)
        Which batches have a valid checksum.
    is_joined, start, lowest, counts
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
    counts = None if counts is None else counts[valid]
    is_selected = select_ascending(batches.take(valid), is_joined, start, lowest, counts)
    keep[valid[~is_selected]] = False
    damaged = np.flatnonzero(~is_valid)
    keep[damaged] = are_between(batches.compress(keep), batches.take(damaged), 0, HIGHEST_OFFSET)
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
