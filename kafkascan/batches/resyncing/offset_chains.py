"""Select the batches of a damaged log whose offsets ascend, keeping as many as possible."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import search as _core
from kafkascan.batches.columns import BatchTable, last_offset, size_in_bytes

HIGHEST_OFFSET = (1 << 63) - 1
SEGMENT_OFFSETS = 1 << 31
"""Largest number of offsets in a segment: those in its indexes are relative, as int32."""

# Evidence that decides between selections with the same number of batches: a batch of the valid
# prefix, offsets that agree with the record counts of several batches, and a batch that follows
# the previous one in bytes and in offsets. A batch of the prefix that one flipped bit explains has
# less than any other evidence: it decides only if there is none.
_IN_PREFIX = 1 << 10
_MAY_BE_FLIPPED = 1
_SUPPORTED = 1 << 9
_FEWEST_IN_SUPPORT = 4
_MOST_IN_SUPPORT = 1 << 7
_LINKED = 1 << 7


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
    links, heads = _links(batches), np.flatnonzero(~is_joined)
    stop = (int(heads[0]) if len(heads) else len(batches)) if is_joined[0] else 0
    evidence = np.append(_support_of_prefix(batches[:stop]), _support(batches[stop:]))
    one = int(evidence.sum() + links.sum()) + 1  # the number of batches comes first
    weight = np.maximum(1, evidence + one * ~_are_far(batches))
    if stop:
        keep = _heaviest(batches[:stop], weight[:stop], links[:stop])
        if stop == len(batches):
            return keep
        pinned = np.flatnonzero(keep)
        pinned = pinned[: len(pinned) - _contested_end(batches, pinned, stop, lowest)]
        if announced is not None and announced > last_offset(batches)[pinned].max(initial=-1):
            named = heads[batches["base_offset"][heads] == announced]
            others = np.delete(batches, named)
            named = named[~are_copies(batches.take(named), others)]
            weight[named] += int(weight.sum())
    else:
        pinned = np.empty(0, np.intp)
    has_copy = are_copies(batches.take(pinned), batches[stop:])
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
    keep, is_foreign = _agreeing(batches, weight, links, is_possible, is_linked)
    if not is_foreign.any():
        return keep
    # Without the rest of a run, fewer batches may be left than with it.
    runs = np.flatnonzero(_heaviest(batches, weight, links, is_possible & is_foreign))
    is_possible &= ~_contradict(batches, runs)
    other, _ = _agreeing(batches, weight, links, is_possible, is_linked)
    is_larger = other.sum() > keep.sum() and weight[other].sum() > weight[keep].sum()
    return other if is_larger else keep


def _agreeing(
    batches: BatchTable,
    weight: NDArray[np.int64],
    links: NDArray[np.int64],
    is_possible: NDArray[np.bool_],
    is_linked: NDArray[np.bool_],
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Select from runs that agree with the selection; return the batches of other runs, too."""
    keep = _heaviest(batches, weight, links * is_linked, is_possible)
    is_foreign = ~_are_of_own_runs(batches, keep, links, is_linked)
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


def _prefix_count(batches: BatchTable) -> int:
    """Return the number of batches before the first one whose offset does not ascend."""
    first, last = batches["base_offset"], last_offset(batches)
    is_bad = last < first
    is_bad[1:] |= first[1:] <= last[:-1]
    return int(is_bad.argmax()) if is_bad.any() else len(batches)


def _contested_end(batches: BatchTable, head: NDArray[np.intp], stop: int, lowest: int) -> int:
    """
    Return how many batches at the end of the first chain have offsets that may be wrong.

    Later batches contradict them, and they follow a gap in the offsets. They may be wrong if the
    gap is greater than a segment can have, if the later batches were written after them, or if
    one flipped bit explains the offset of the last.
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
    if start < len(head) - 1 or len(gaps) > 1 or mine.min() > theirs.max():
        return 0
    offset, size = int(first[head[-1]]), end - int(first[head[-1]])
    return int(low + size < int(first[rivals].min()) and (offset ^ low).bit_count() == 1)


def _are_far(batches: BatchTable) -> NDArray[np.bool_]:
    """Return which batches have offsets that a segment with most of the others cannot have."""
    first = batches["base_offset"].astype(np.float64)
    far: NDArray[np.bool_] = np.abs(first - np.median(first)) >= SEGMENT_OFFSETS
    return far


def are_copies(
    batches: BatchTable, others: BatchTable, names: tuple[str, ...] = ()
) -> NDArray[np.bool_]:
    """
    Return which batches have the base offset, length and checksum of one of the others.

    `names` are further columns with equal values.
    """
    if not len(batches):
        return np.zeros(0, np.bool_)
    others = others[np.isin(others["crc"], batches["crc"])]
    is_copy = np.isin(batches["crc"], others["crc"])
    rows = np.flatnonzero(is_copy)
    columns = ["base_offset", "batch_length", "crc", *names]
    known = set(others[columns].tolist())
    is_copy[rows] = [one in known for one in batches[columns][rows].tolist()]
    return is_copy


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


def _links(batches: BatchTable) -> NDArray[np.int64]:
    """Return the weight of each batch that continues the previous one in bytes and offsets."""
    links = np.zeros(len(batches), np.int64)
    stops, ends = batches["position"] + size_in_bytes(batches), last_offset(batches)
    is_next = (batches["position"][1:] == stops[:-1]) & (
        batches["base_offset"][1:] == ends[:-1] + 1
    )
    links[1:][is_next & (ends[:-1] >= batches["base_offset"][:-1])] = _LINKED
    return links


def _support(batches: BatchTable) -> NDArray[np.int64]:
    """Return more weight for batches whose offsets agree with the record counts around them."""
    origin = _origins(batches)
    _, origin_of, seen = np.unique(origin, return_inverse=True, return_counts=True)
    seen = seen[origin_of]
    support: NDArray[np.int64] = np.minimum(seen, _MOST_IN_SUPPORT)
    is_near = np.zeros(len(batches), np.bool_)
    for distance in (1, 2):
        agrees = origin[distance:] == origin[:-distance]
        is_near[distance:] |= agrees
        is_near[:-distance] |= agrees
    support[is_near & (seen >= _FEWEST_IN_SUPPORT)] += _SUPPORTED
    return support


def _support_of_prefix(batches: BatchTable) -> NDArray[np.int64]:
    """
    Return more weight for the valid prefix of a chain, and for batches that agree with it.

    The prefix has less weight where one flipped bit explains a gap in its offsets.
    """
    count = _prefix_count(batches)
    origin = _origins(batches)
    values, seen = np.unique(origin[:count], return_counts=True)
    frequent = values[seen >= _FEWEST_IN_SUPPORT]
    support = np.where(np.isin(origin, frequent), np.int64(_SUPPORTED), np.int64(0))
    changed = batches["base_offset"][1:count] ^ (last_offset(batches)[: max(0, count - 1)] + 1)
    is_flipped = (changed != 0) & (changed & (changed - 1) == 0)
    support[:count] += np.where(np.append(False, is_flipped)[:count], _MAY_BE_FLIPPED, _IN_PREFIX)
    return support


def _origins(batches: BatchTable) -> NDArray[np.int64]:
    """Return the first offset of the log that follows from each base offset and record counts."""
    counts = batches["last_offset_delta"].astype(np.int64) + 1
    origins: NDArray[np.int64] = batches["base_offset"] - (np.cumsum(counts) - counts)
    return origins


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
