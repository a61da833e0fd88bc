"""Batches as ``FileLogInputStream`` finds them: by their sizes, whatever else they contain."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kafkascan.batches.columns import BatchTable, size_in_bytes
from kafkascan.batches.scan import iter_batches
from kafkascan.batches.scattered_reads import row_of_header
from kafkascan.format.errors import CorruptBatchError
from kafkascan.format.layout import (
    BATCH_DTYPE,
    BATCH_HEADER_SIZE,
    HEADER_SIZE_UP_TO_MAGIC,
    LOG_OVERHEAD,
)
from kafkascan.io.sources import Source, read_bytes

# Base offset, size and magic; between the last two, other fields.
_PREFIX = struct.Struct(">qi4xB")
_MAGIC_AT = 16
_LENGTH_AT = slice(8, 12)
# ``LegacyRecord.RECORD_OVERHEAD_V0``, the size of the smallest message.
_SMALLEST_MESSAGE = 14
_MAGIC_V2 = 2
_LARGEST_MAGIC = 127
_LAST_OFFSET_DELTA = 23
_ROWS = 8192


class Frame(NamedTuple):
    """What Kafka reads of a batch before the batch itself."""

    position: int
    offset: int
    batch_length: int
    magic: int

    @property
    def size(self) -> int:
        """Bytes of the batch."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def has_header_v2(self) -> bool:
        """Whether Kafka reads a header of magic 2; magic is signed."""
        return _MAGIC_V2 <= self.magic <= _LARGEST_MAGIC


def frame_at(source: Source, position: int, stop: int) -> Frame | None:
    """
    Return the frame at a position; None if no whole batch is there.

    Raises
    ------
    CorruptBatchError
        If the size is smaller than any batch.
    """
    # As in Kafka: one byte more than it reads.
    if stop - position <= HEADER_SIZE_UP_TO_MAGIC:
        return None
    prefix = read_bytes(source, position, _PREFIX.size)
    offset, length, magic = _PREFIX.unpack(prefix)
    if length < _SMALLEST_MESSAGE:
        reason = f"batch_length {length} is below {_SMALLEST_MESSAGE}"
        raise CorruptBatchError(source.path, position, offset, reason, "BAD_LENGTH")
    if length > stop - position - LOG_OVERHEAD:
        return None
    return Frame(position, offset, length, magic)


def last_offset_of(source: Source, frame: Frame) -> int:
    """Return the last offset of a batch, as Kafka reads it from the header."""
    if not frame.has_header_v2:
        return frame.offset
    delta = read_bytes(source, frame.position + _LAST_OFFSET_DELTA, 4)
    return frame.offset + int.from_bytes(delta, "big", signed=True)


def framed_batches(
    source: Source, position: int, stop: int, *, reads_headers: bool = True
) -> Iterator[tuple[BatchTable, Frame | None]]:
    """
    Yield the batches of a log that Kafka finds.

    Parameters
    ----------
    source : Source
    position, stop : int
        Where a reader begins and ends.
    reads_headers : bool
        Whether a batch with a negative magic, whose header Kafka does not read, is an error.
        Otherwise its row has an offset and a size only.

    Yields
    ------
    batches : array of BATCH_DTYPE
    frame : Frame or None
        Of a single batch with another magic or size than a scan accepts; its row is the one of a
        header of magic 2, as Kafka reads it.

    Raises
    ------
    CorruptBatchError
        Where Kafka would fail.
    """
    while True:
        tables = iter_batches(source, rows=_ROWS, start=position, stop=stop, on_corrupt="stop")
        for batches in tables:
            count = _count_up_to(stop, batches)
            if count:
                yield batches[:count], None
            if count < len(batches):
                return
        frame = frame_at(source, tables.position, stop)
        if frame is None:
            return
        has_header = reads_headers or frame.has_header_v2
        yield _header_of(source, frame) if has_header else _row_without_header(frame), frame
        position = frame.position + frame.size


def _count_up_to(stop: int, batches: BatchTable) -> int:
    """Return how many batches end at a position or before it; a scan also returns the next."""
    return int(np.searchsorted(batches["position"] + size_in_bytes(batches), stop, "right"))


def _header_of(source: Source, frame: Frame) -> BatchTable:
    if frame.has_header_v2 and source.size - frame.position >= BATCH_HEADER_SIZE:
        header = bytearray(read_bytes(source, frame.position, BATCH_HEADER_SIZE))
        header[_MAGIC_AT] = _MAGIC_V2
        header[_LENGTH_AT] = struct.pack(">i", BATCH_HEADER_SIZE - LOG_OVERHEAD)
        row = row_of_header(bytes(header), frame.position, BATCH_HEADER_SIZE)
        if len(row):
            row["batch_length"] = frame.batch_length
            return row
    reason = f"magic {frame.magic} or batch_length {frame.batch_length} cannot be read"
    raise CorruptBatchError(source.path, frame.position, frame.offset, reason, "BAD_HEADER")


def _row_without_header(frame: Frame) -> BatchTable:
    row = np.zeros(1, BATCH_DTYPE)
    row["position"], row["base_offset"] = frame.position, frame.offset
    row["batch_length"] = frame.batch_length
    return row


def _as_magic_2(source: Source, frame: Frame) -> bytes:
    """Return the bytes of a batch with magic 2, which its checksum does not cover."""
    data = bytearray(read_bytes(source, frame.position, frame.size))
    data[_MAGIC_AT] = _MAGIC_V2
    return bytes(data)


def read_frame(source: Source, batch: BatchTable, frame: Frame) -> tuple[Source, BatchTable]:
    """
    Return a source with a batch that no scan accepts, with magic 2, and its row there.

    Raises
    ------
    CorruptBatchError
        If the batch has no header of magic 2, so that Kafka cannot read its records.
    """
    if not frame.has_header_v2 or frame.size < BATCH_HEADER_SIZE:
        reason = f"magic {frame.magic} or batch_length {frame.batch_length} has no records"
        raise CorruptBatchError(source.path, frame.position, frame.offset, reason, "BAD_HEADER")
    row = batch.copy()
    row["position"] = 0
    return Source(_as_magic_2(source, frame)), row
