"""Find an offset in a segment as Kafka does (``FileRecords``), failing where Kafka fails."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, compression_type, last_offset
from kafkascan.batches.scan import iter_open_batches
from kafkascan.format.errors import STATUS, CorruptBatchError, NotALogError, corrupt_batch_error
from kafkascan.format.layout import (
    BATCH_DTYPE,
    BATCH_HEADER,
    BATCH_HEADER_SIZE,
    HEADER_SIZE_UP_TO_MAGIC,
    LOG_OVERHEAD,
    MIN_BATCH_LENGTH,
)
from kafkascan.io.sources import Source, read_bytes
from kafkascan.logs.reading import read_records

# Offsets are searched near an index entry: few batches are read at a time.
_FEW_ROWS = 256
# The fields that Kafka uses of a batch with an unknown magic.
_FRAME_FIELDS = ("base_offset", "batch_length", "last_offset_delta")


def base_offset_of(source: Source, batch: BatchTable) -> int:
    """
    Return the first offset of a batch, as ``RecordBatch.baseOffset`` finds it.

    A compressed message of magic 0 or 1 stores the last one: its records are read for the first.

    Raises
    ------
    CorruptBatchError
        If the compressed message cannot be read.
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
        Byte position of a batch.
    rows : int
        Largest number of rows of a table.

    Yields
    ------
    array of BATCH_DTYPE
        Batches of an unknown magic are included: Kafka uses their lengths only.

    Raises
    ------
    CorruptBatchError
        At a batch_length that is too small.
    """
    while source.size - start > HEADER_SIZE_UP_TO_MAGIC:
        tables = iter_open_batches(source, rows=rows, start=start, on_corrupt="stop")
        yield from tables
        if isinstance(tables.error, NotALogError):
            raise tables.error
        at = start + tables.valid_bytes
        head = read_bytes(source, at, BATCH_HEADER_SIZE)
        source.require_unshrunk()  # after its new end, a file that shrank contains zeros
        header = np.frombuffer(head.ljust(BATCH_HEADER_SIZE, b"\0"), BATCH_HEADER)
        size = int(header["batch_length"][0])
        if len(head) <= HEADER_SIZE_UP_TO_MAGIC or at + LOG_OVERHEAD + size > source.size:
            return
        if size < MIN_BATCH_LENGTH:
            raise corrupt_batch_error(STATUS["BAD_LENGTH"], source.path, at, head)
        yield _batch_of_unknown_magic(at, header)
        start = at + LOG_OVERHEAD + size


def _batch_of_unknown_magic(position: int, header: NDArray[np.void]) -> BatchTable:
    batch = np.zeros(1, BATCH_DTYPE)
    batch["position"], batch["magic"] = position, 2
    for name in _FRAME_FIELDS:
        batch[name] = header[name]
    batch["producer_id"] = batch["partition_leader_epoch"] = -1
    return batch


def find_offset(source: Source, start: int, offset: int) -> int | None:
    """
    Return the byte position of the batch that Kafka finds for an offset.

    Parameters
    ----------
    source : Source
    start : int
        Byte position of the batch at which the search begins.
    offset : int

    Returns
    -------
    int or None
        Of the batch that contains the offset, or of the first one after it
        (``FileRecords.searchForOffsetFromPosition``).

    Raises
    ------
    CorruptBatchError
        If the search meets invalid bytes, or a compressed message that cannot be read.
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
    """
    Return whether a walk from the start of the source finds a batch at a byte position.

    A damaged batch counts; bytes at the end that no walk reads as a batch do not.
    """
    try:
        for batches in framed_batches(source, 0):
            row = int(batches["position"].searchsorted(position))
            if row < len(batches):
                return bool(batches["position"][row] == position)
    except CorruptBatchError as error:
        return error.position == position
    return False
