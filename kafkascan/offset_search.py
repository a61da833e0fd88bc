"""Where Kafka finds an offset in a segment, and where it fails to (``FileRecords``)."""

from __future__ import annotations

import numpy as np

from kafkascan.batch_columns import BatchTable, compression_type, last_offset
from kafkascan.records import read_records
from kafkascan.sources import Source


def base_offset_of(source: Source, batch: BatchTable) -> int:
    """
    Return the first offset of a batch, as ``RecordBatch.baseOffset`` finds it.

    A compressed message of magic 0 or 1 says the last one only: it is read for the first.

    Raises
    ------
    CorruptBatchError
        If it cannot be read.
    """
    if batch["magic"][0] < 2 and compression_type(batch)[0]:
        return int(read_records(source, batch, columns=["offset"])["offset"][0])
    return int(batch["base_offset"][0])


def find_offset(source: Source, batches: BatchTable, offset: int) -> int | None:
    """
    Return the row of the batch that Kafka finds for an offset.

    Parameters
    ----------
    source : Source
    batches : array of BATCH_DTYPE
        From the place on at which Kafka begins to look.
    offset : int

    Returns
    -------
    int or None
        ``FileRecords.searchForOffsetFromPosition``: the batch that holds the offset, or the
        first one that begins behind it.

    Raises
    ------
    CorruptBatchError
        If one of the compressed messages on the way there cannot be read.
    """
    is_wrapper = (batches["magic"] < 2) & (compression_type(batches) != 0)
    # The offset of a wrapper is its last one: it begins no later.
    candidates = np.flatnonzero(is_wrapper | (batches["base_offset"] >= offset))
    ends = last_offset(batches)
    for row in candidates.tolist():
        base = base_offset_of(source, batches[row : row + 1])
        if base == offset:
            return row
        if base > offset:
            return row - 1 if row and ends[row - 1] >= offset else row
    return len(batches) - 1 if len(batches) and ends[-1] >= offset else None
