"""Iteration order of a Java ``HashMap``, which is the order of producers in a snapshot."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_FIRST_BUCKETS = 16


def java_hash_order(ids: NDArray[np.int64], *, buckets_for: int | None = None) -> NDArray[np.intp]:
    """
    Return the order in which a ``java.util.HashMap<Long, …>`` iterates over its keys.

    Parameters
    ----------
    ids : ndarray of int64
        Distinct, in the order of insertion. (``computeIfAbsent`` inserts a key at the head of
        its bucket: for a map that it fills, pass the reverse order.)
    buckets_for : int, optional
        Number of keys that the map has made room for; by default all of them.

    Notes
    -----
    Iteration is by bucket, and in a bucket by insertion. The number of buckets doubles when
    three quarters are used.
    """
    count = len(ids) if buckets_for is None else buckets_for
    buckets = _FIRST_BUCKETS
    while count > buckets * 3 // 4:
        buckets *= 2
    unsigned = ids.astype(np.uint64)
    hashes = (unsigned ^ unsigned >> np.uint64(32)).astype(np.uint32)
    hashes ^= hashes >> np.uint32(16)
    return np.argsort(hashes & np.uint32(buckets - 1), kind="stable")
