"""Evidence about the offsets of valid batches: copies, links to neighbours, record counts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, last_offset, size_in_bytes

HIGHEST_OFFSET = (1 << 63) - 1
SEGMENT_OFFSETS = 1 << 31
"""Largest number of offsets in a segment: those in its indexes are relative, as int32."""

# Evidence that decides between selections with the same number of batches: a batch of the valid
# prefix, offsets that agree with the record counts of several batches, and a batch that follows
# the previous one in bytes and in offsets.
IN_PREFIX = 1 << 14
_SUPPORTED = 1 << 9
_FEWEST_IN_SUPPORT = 4
_MOST_IN_SUPPORT = 1 << 7
_LINKED = 1 << 7

# A copy of a batch has its values.
_COPY_COLUMNS = ["base_offset", "batch_length", "crc"]


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
    columns = [*_COPY_COLUMNS, *names]
    known = set(others[columns].tolist())
    is_copy[rows] = [one in known for one in batches[columns][rows].tolist()]
    return is_copy


def by_content(batches: BatchTable) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return the order by base offset, length and checksum, and which rows are no copies there."""
    columns = [batches[name] for name in _COPY_COLUMNS]
    order = np.lexsort(columns[::-1])
    is_next = np.ones(len(batches), np.bool_)
    is_next[1:] = np.any([one[order[1:]] != one[order[:-1]] for one in columns], axis=0)
    return order, is_next


def prefix_count(batches: BatchTable) -> int:
    """Return the number of batches before the first one whose offset does not ascend."""
    first, last = batches["base_offset"], last_offset(batches)
    is_bad = last < first
    is_bad[1:] |= first[1:] <= last[:-1]
    return int(is_bad.argmax()) if is_bad.any() else len(batches)


def adjacent_count(batches: BatchTable) -> int:
    """Return the number of batches before the first one that does not follow in bytes."""
    stops = batches["position"] + size_in_bytes(batches)
    is_apart = batches["position"][1:] != stops[:-1]
    return int(is_apart.argmax()) + 1 if is_apart.any() else len(batches)


def differ_in_one_bit(value: int, other: int) -> bool:
    """Return whether one flipped bit of an int64 explains the difference of two values."""
    return ((value ^ other) & ((1 << 64) - 1)).bit_count() == 1


def valid_prefix_count(batches: BatchTable, start: int) -> int:
    """Return the number of valid batches that Kafka's recovery keeps of a log, from its start."""
    if not len(batches) or int(batches["position"][0]) != start:
        return 0
    return min(prefix_count(batches), adjacent_count(batches))


def are_far(batches: BatchTable) -> NDArray[np.bool_]:
    """
    Return which batches have offsets that a segment with most of the others cannot have.

    Copies do not count. Of two sets of the same size, none is far.
    """
    first = batches["base_offset"].astype(np.float64)
    order, is_next = by_content(batches)
    distinct = batches["base_offset"][order[is_next]]
    far = np.ones(len(batches), np.bool_)
    for middle in (distinct[(len(distinct) - 1) // 2], distinct[len(distinct) // 2]):
        far &= np.abs(first - middle) >= SEGMENT_OFFSETS
    return far


def link_weights(batches: BatchTable) -> NDArray[np.int64]:
    """Return the weight of each batch that continues the previous one in bytes and offsets."""
    links = np.zeros(len(batches), np.int64)
    stops, ends = batches["position"] + size_in_bytes(batches), last_offset(batches)
    is_next = (batches["position"][1:] == stops[:-1]) & (
        batches["base_offset"][1:] == ends[:-1] + 1
    )
    links[1:][is_next & (ends[:-1] >= batches["base_offset"][:-1])] = _LINKED
    return links


def inner_links(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the `link_weights` within rows that consist of several batches."""
    return (counts - 1) * _LINKED


def support(batches: BatchTable, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return more weight for batches whose offsets agree with the record counts around them."""
    origin = _origins(batches)
    values, origin_of = np.unique(origin, return_inverse=True)
    seen = _sums(origin_of, counts, len(values))[origin_of]
    support: NDArray[np.int64] = np.minimum(seen, _MOST_IN_SUPPORT)
    is_near = np.zeros(len(batches), np.bool_)
    for distance in (1, 2):
        agrees = origin[distance:] == origin[:-distance]
        is_near[distance:] |= agrees
        is_near[:-distance] |= agrees
    support[is_near & (seen >= _FEWEST_IN_SUPPORT)] += _SUPPORTED
    return support


def support_of_prefix(batches: BatchTable, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return more weight for the valid prefix of a chain, and for batches that agree with it."""
    count = prefix_count(batches)
    origin = _origins(batches)
    values, origin_of = np.unique(origin[:count], return_inverse=True)
    seen = _sums(origin_of, counts[:count], len(values))
    frequent = values[seen >= _FEWEST_IN_SUPPORT]
    support = np.where(np.isin(origin, frequent), np.int64(_SUPPORTED), np.int64(0))
    support[:count] += IN_PREFIX
    return support


def flipped_rows(batches: BatchTable) -> NDArray[np.intp]:
    """Return the row of a prefix after the only gap in its offsets, if it has one flipped bit."""
    count = prefix_count(batches)
    changed = batches["base_offset"][1:count] ^ (last_offset(batches)[: max(0, count - 1)] + 1)
    rows: NDArray[np.intp] = np.flatnonzero(changed) + 1
    is_one_bit = (changed & (changed - 1) == 0)[rows - 1]
    return rows[is_one_bit] if len(rows) == 1 else rows[:0]


def _sums(group_of: NDArray[np.intp], counts: NDArray[np.int64], groups: int) -> NDArray[np.int64]:
    """Return the sum of the counts of each group."""
    return np.bincount(group_of, counts, groups).astype(np.int64)


def _origins(batches: BatchTable) -> NDArray[np.int64]:
    """Return the first offset of the log that follows from each base offset and record counts."""
    counts = batches["last_offset_delta"].astype(np.int64) + 1
    origins: NDArray[np.int64] = batches["base_offset"] - (np.cumsum(counts) - counts)
    return origins
