"""Which batches may hold what is asked for: masks over the batch table."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kafkascan.batch_columns import BatchTable, last_offset


def select_offsets(
    batches: BatchTable, start: int | None = None, stop: int | None = None
) -> NDArray[np.bool_]:
    """
    Tell which batches hold offsets of ``[start, stop)``.

    Parameters
    ----------
    batches : array of BATCH_DTYPE, shape (n,)
    start, stop : int, optional
        None is no limit.

    Returns
    -------
    ndarray of bool, shape (n,)
        A compressed message of magic 0 or 1 is placed by its last offset, the only one
        that its header tells.
    """
    mask = np.ones(len(batches), np.bool_)
    if start is not None:
        mask &= last_offset(batches) >= start
    if stop is not None:
        mask &= batches["base_offset"] < stop
    return mask


def select_times(
    batches: BatchTable, start: int | None = None, stop: int | None = None
) -> NDArray[np.bool_]:
    """
    Tell which batches have their `max_timestamp` in ``[start, stop)``.

    Parameters
    ----------
    batches : array of BATCH_DTYPE, shape (n,)
    start, stop : int, optional
        Milliseconds since the epoch; None is no limit.

    Returns
    -------
    ndarray of bool, shape (n,)
    """
    mask = np.ones(len(batches), np.bool_)
    if start is not None:
        mask &= batches["max_timestamp"] >= start
    if stop is not None:
        mask &= batches["max_timestamp"] < stop
    return mask
