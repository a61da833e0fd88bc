"""Batch positions from the index of a log, as hints of where to read headers."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

from kafkascan.format.file_names import sibling_name
from kafkascan.format.layout import OFFSET_INDEX_ENTRY
from kafkascan.io.sources import Source

BATCHES_PER_HINT = 1.5
"""An index is dense if it contains at least 2 of 3 batches: a walk waits for each of the others."""

# Entries that are read of an index: more than Kafka's default segment.index.bytes holds.
_MAX_INDEX_ENTRIES = 1 << 21


def known_starts(source: Source) -> NDArray[np.int64]:
    """
    Read batch positions from the ``.index`` beside a log, as hints.

    A walk checks each position against the bytes of the log, so a stale, damaged or forged index
    costs time but does not change the result.

    Parameters
    ----------
    source : Source
        A file, or an object in a store.

    Returns
    -------
    ndarray of int64, shape (n,)
        Ascending; empty if no index can be read.
    """
    # A preallocated index ends with zeros; a forged one may not be sorted.
    positions = _index_entries(source)["position"].astype(np.int64)
    positions = positions[: np.count_nonzero(positions) + 1]
    is_ascending = bool((positions[1:] > positions[:-1]).all())
    return positions if is_ascending else np.unique(positions)


def _index_entries(source: Source) -> NDArray[np.void]:
    if source.ahead is not None:
        index = source.ahead.read_index() or b""
        return np.frombuffer(index, OFFSET_INDEX_ENTRY, len(index) // OFFSET_INDEX_ENTRY.itemsize)
    folder, log = os.path.split(source.path)
    name = sibling_name(log, "index") if source.is_file else None
    if name is not None:
        try:
            return np.fromfile(os.path.join(folder, name), OFFSET_INDEX_ENTRY, _MAX_INDEX_ENTRIES)
        except OSError:
            pass
    return np.empty(0, OFFSET_INDEX_ENTRY)
