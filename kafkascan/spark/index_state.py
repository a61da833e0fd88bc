"""Whether the index files beside a segment say what its batches say."""

from __future__ import annotations

import os

import numpy as np

from kafkascan.batch_columns import BatchTable, last_offset
from kafkascan.errors import CorruptIndexError
from kafkascan.indexes import read_index
from kafkascan.names import sibling_name

OK, MISSING, DAMAGED, WRONG, UNKNOWN = "OK", "MISSING", "DAMAGED", "WRONG", "UNKNOWN"
KINDS = ("index", "timeindex")


def index_states(path: str, base_offset: int, batches: BatchTable) -> tuple[str, str]:
    """
    Judge the ``.index`` and the ``.timeindex`` file of a segment.

    Parameters
    ----------
    path : str
        Of the ``.log`` file.
    base_offset : int
        Of the segment.
    batches : array of BATCH_DTYPE
        All of the segment.

    Returns
    -------
    tuple of str
        For each: OK; MISSING; DAMAGED, if it is not made of whole entries; WRONG, if an entry
        is not true of the batches. An index need not have an entry for every batch, and the
        active segment's may end with zeros.
    """
    return (
        _state(path, "index", base_offset, batches),
        _state(path, "timeindex", base_offset, batches),
    )


def _state(path: str, kind: str, base_offset: int, batches: BatchTable) -> str:
    folder, name = os.path.split(path)
    sibling = sibling_name(name, kind)
    if sibling is None or not os.path.exists(os.path.join(folder, sibling)):
        return MISSING
    try:
        entries = read_index(os.path.join(folder, sibling))
    except CorruptIndexError:
        return DAMAGED
    if not len(entries):
        return OK
    offsets = base_offset + entries["relative_offset"].astype(np.int64)
    judge = _offset_index_holds if kind == "index" else _time_index_holds
    values = entries["position" if kind == "index" else "timestamp"].astype(np.int64)
    return OK if judge(offsets, values, batches) else WRONG


def _offset_index_holds(offsets: np.ndarray, positions: np.ndarray, batches: BatchTable) -> bool:
    """Each entry names a batch, and an offset that stands in it or in one soon behind it."""
    rows = np.searchsorted(batches["position"], positions)
    rows[rows == len(batches)] = 0
    if not len(batches) or (batches["position"][rows] != positions).any():
        return False
    are_ascending = (np.diff(offsets) > 0).all() and (np.diff(positions) > 0).all()
    return bool(are_ascending and (offsets >= batches["base_offset"][rows]).all())


def _time_index_holds(offsets: np.ndarray, times: np.ndarray, batches: BatchTable) -> bool:
    """Up to the batch that holds the offset of an entry, nothing is later than it says."""
    if not len(batches):
        return False
    latest = np.maximum.accumulate(batches["max_timestamp"])
    rows = np.minimum(np.searchsorted(last_offset(batches), offsets), len(batches) - 1)
    are_ascending = (np.diff(offsets) >= 0).all() and (np.diff(times) >= 0).all()
    return bool(are_ascending and (times == latest[rows]).all())
