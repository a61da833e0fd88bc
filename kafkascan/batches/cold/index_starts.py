"""Batch positions from the ``.index`` file, used as hints."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

from kafkascan.format.file_names import sibling_name
from kafkascan.format.layout import OFFSET_INDEX_ENTRY

# Entries that are read of an index: more than Kafka's default segment.index.bytes holds.
_MAX_INDEX_ENTRIES = 1 << 21


def known_starts(log_path: str | os.PathLike[str]) -> NDArray[np.int64] | None:
    """
    Read batch positions from the ``.index`` file beside a log, as hints.

    A walk checks each position against the bytes of the log, so a stale, damaged or forged index
    costs time but does not change the result.

    Parameters
    ----------
    log_path : path

    Returns
    -------
    ndarray of int64, shape (n,), or None
        Ascending; None if no index can be read.
    """
    folder, name = os.path.split(os.fspath(log_path))
    index = sibling_name(name, "index")
    if index is None:
        return None
    try:
        entries = np.fromfile(os.path.join(folder, index), OFFSET_INDEX_ENTRY, _MAX_INDEX_ENTRIES)
    except OSError:
        return None
    return starts_of(entries)


def starts_of(entries: NDArray[np.void]) -> NDArray[np.int64]:
    """Return the positions in entries of an offset index, ascending."""
    # A preallocated index ends with zeros; a forged one may not be sorted.
    positions = entries["position"].astype(np.int64)
    positions = positions[: np.count_nonzero(positions) + 1]
    is_ascending = bool((positions[1:] > positions[:-1]).all())
    return positions if is_ascending else np.unique(positions)
