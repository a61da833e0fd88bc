"""Where batches are said to start: the positions in the ``.index`` file beside a log.

They are hints. What a walk makes of them is checked against the bytes of the log, so a
stale, damaged or lying index costs time and nothing else.
"""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

from kafkascan.layout import OFFSET_INDEX_ENTRY
from kafkascan.names import sibling_name

# More than Kafka's default segment.index.bytes; what lies behind is not read.
_MOST_ENTRIES = 1 << 21


def known_starts(log_path: str | os.PathLike[str]) -> NDArray[np.int64] | None:
    """
    Read the positions in the offset index of a log.

    Parameters
    ----------
    log_path : path

    Returns
    -------
    ndarray of int64, shape (n,), or None
        Ascending. None if there is no index that can be read.
    """
    folder, name = os.path.split(os.fspath(log_path))
    index = sibling_name(name, "index")
    if index is None:
        return None
    try:
        entries = np.fromfile(os.path.join(folder, index), OFFSET_INDEX_ENTRY, _MOST_ENTRIES)
    except OSError:
        return None
    # A preallocated index ends with zeros; a lying one is in any order.
    positions = entries["position"].astype(np.int64)
    positions = positions[: np.count_nonzero(positions) + 1]
    is_ascending = bool((positions[1:] > positions[:-1]).all())
    return positions if is_ascending else np.unique(positions)
