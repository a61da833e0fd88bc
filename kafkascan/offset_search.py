"""Where Kafka finds an offset in a segment, and where it fails to (``FileRecords``)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kafkascan.batch_columns import BatchTable, compression_type, last_offset
from kafkascan.batches import iter_batches
from kafkascan.errors import STATUS, CorruptBatchError, corrupt_batch_error
from kafkascan.layout import BATCH_DTYPE, LOG_OVERHEAD, ScanEnd
from kafkascan.records import read_records
from kafkascan.sources import Source

# Offsets are looked for near an entry of an index.
_FEW_ROWS = 256
_HEADER_UP_TO_MAGIC = 17
_SMALLEST = 14
_LAST_OFFSET_DELTA = slice(23, 27)


def base_offset_of(source: Source, batch: BatchTable) -> int:
    """
    Return the first offset of a batch, as ``RecordBatch.baseOffset`` finds it.

    A compressed message of magic 0 or 1 says the last one only: it is read for the first.

    Raises
    ------
    CorruptBatchError
        If it cannot be read.
    """
    if _is_wrapper(batch)[0]:
        return int(read_records(source, batch, columns=["offset"])["offset"][0])
    return int(batch["base_offset"][0])


def _is_wrapper(batches: BatchTable) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    result: np.ndarray[tuple[int], np.dtype[np.bool_]]
    result = (batches["magic"] < 2) & (compression_type(batches) != 0)
    return result


def framed_batches(source: Source, start: int, *, rows: int = _FEW_ROWS) -> Iterator[BatchTable]:
    """
    Step from batch to batch as Kafka does (``FileLogInputStream``).

    Parameters
    ----------
    source : Source
    start : int
        Where there should be a batch.
    rows : int
        Of each table, at most.

    Yields
    ------
    array of BATCH_DTYPE
        With as much as can be said of batches of no known magic: Kafka looks at lengths only.

    Raises
    ------
    CorruptBatchError
        At what is too short for a batch.
    """
    while source.size - start > _HEADER_UP_TO_MAGIC:
        tables = iter_batches(source, rows=rows, start=start, on_corrupt="stop")
        yield from tables
        if tables.end in (ScanEnd.CLEAN, ScanEnd.TORN_TAIL):
            return
        at = start + tables.valid_bytes
        head = bytes(source.window(at, _LAST_OFFSET_DELTA.stop))
        size = int.from_bytes(head[8:12], "big", signed=True)
        if len(head) <= _HEADER_UP_TO_MAGIC or at + LOG_OVERHEAD + size > source.size:
            return
        if size < _SMALLEST:
            raise corrupt_batch_error(STATUS["BAD_LENGTH"], source.path, at, head)
        yield _of_no_known_kind(at, head)
        start = at + LOG_OVERHEAD + size


def _of_no_known_kind(position: int, head: bytes) -> BatchTable:
    batch = np.zeros(1, BATCH_DTYPE)
    batch["position"], batch["magic"] = position, 2
    batch["base_offset"] = int.from_bytes(head[:8], "big", signed=True)
    batch["batch_length"] = int.from_bytes(head[8:12], "big", signed=True)
    batch["last_offset_delta"] = int.from_bytes(head[_LAST_OFFSET_DELTA], "big", signed=True)
    batch["producer_id"] = batch["partition_leader_epoch"] = -1
    return batch


def find_offset(source: Source, start: int, offset: int) -> int | None:
    """
    Return the position of the batch that Kafka finds for an offset.

    Parameters
    ----------
    source : Source
    start : int
        Where it begins to look.
    offset : int

    Returns
    -------
    int or None
        ``FileRecords.searchForOffsetFromPosition``: of the batch that holds the offset, or of
        the first one that begins behind it.

    Raises
    ------
    CorruptBatchError
        If what is on the way there cannot be a batch, or is a compressed message that cannot be
        read.
    """
    before: BatchTable | None = None
    for batches in framed_batches(source, start):
        # The offset of a compressed message is its last one: it begins no later.
        for row in np.flatnonzero(
            _is_wrapper(batches) | (batches["base_offset"] >= offset)
        ).tolist():
            base = base_offset_of(source, batches[row : row + 1])
            if base >= offset:
                previous = batches[row - 1 : row] if row else before
                if base > offset and _reaches(previous, offset):
                    return _position(previous)
                return _position(batches[row : row + 1])
        before = batches[-1:]
    return _position(before) if _reaches(before, offset) else None


def _reaches(batch: BatchTable | None, offset: int) -> bool:
    return batch is not None and int(last_offset(batch)[0]) >= offset


def _position(batch: BatchTable | None) -> int | None:
    return None if batch is None else int(batch["position"][0])


def is_batch_at(source: Source, position: int) -> bool:
    """Tell whether a batch begins at a position, for those who come from the start."""
    at = 0
    try:
        for batches in framed_batches(source, 0):
            row = int(batches["position"].searchsorted(position))
            if row < len(batches):
                return bool(batches["position"][row] == position)
            at = int(batches["position"][-1]) + LOG_OVERHEAD + int(batches["batch_length"][-1])
    except CorruptBatchError as error:
        return error.position == position
    return at == position
