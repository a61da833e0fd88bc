"""Messages of magic 0 and 1 whose fields exceed them: the tool prints the sizes that they claim."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from kafkascan.batches.columns import BatchTable, compression_type, timestamp_type
from kafkascan.batches.walks import read_bytes
from kafkascan.format.errors import CorruptBatchError
from kafkascan.format.layout import LOG_OVERHEAD, CompressionType, TimestampType
from kafkascan.io.sources import Source
from kafkascan.records.decompression import DEFAULT_MAX_DECOMPRESSED_SIZE
from kafkascan.records.payloads import load_payloads

# Of the bytes behind offset and size: CRC, magic, attributes, in magic 1 the timestamp, and the
# size of the key.
_CRC = struct.Struct(">I")
_MAGIC_AT, _TIMESTAMP_AT = 4, 6
_KEY_SIZE_AT = {0: _TIMESTAMP_AT, 1: _TIMESTAMP_AT + 8}
_SIZE, _TIMESTAMP = struct.Struct(">i"), struct.Struct(">q")
_OVERHEAD = struct.Struct(">qi")
_MAGIC_V1 = 1


class ClaimedSizes(NamedTuple):
    """What a message says of itself."""

    offset: int
    timestamp_type: str
    timestamp: int
    key_size: int
    value_size: int
    is_valid: bool
    crc: int

    def line(self) -> str:
        """Return the line of the record, with metadata."""
        return (
            f"| offset: {self.offset} {self.timestamp_type}: {self.timestamp} keySize:"
            f" {self.key_size} valueSize: {self.value_size} isValid: {str(self.is_valid).lower()}"
            f" crc: {self.crc}"
        )


def claimed_sizes(
    source: Source, batch: BatchTable, error: CorruptBatchError
) -> Iterator[ClaimedSizes]:
    """
    Yield what ``LegacyRecord`` returns of messages without a look at their keys and values.

    Parameters
    ----------
    source : Source
    batch : array of BATCH_DTYPE, shape (1,)
        A message of magic 0 or 1, which may be compressed.
    error : CorruptBatchError
        Why its records cannot be decoded.

    Yields
    ------
    ClaimedSizes

    Raises
    ------
    CorruptBatchError
        `error`, at a message that contains no size of its value, or if one within it is compressed.
    """
    kind = TimestampType(timestamp_type(batch)[0])
    for offset, message in _messages(source, batch, error):
        found = _of_message(offset, message, kind, int(batch["max_timestamp"][0]))
        if found is None:
            raise error
        yield found


def _messages(
    source: Source, batch: BatchTable, error: CorruptBatchError
) -> Iterator[tuple[int, memoryview]]:
    """Yield offsets and bytes of messages: of the batch itself, or those that it contains."""
    row = batch[0]
    offset = int(row["base_offset"])
    if compression_type(batch)[0] == CompressionType.NONE:
        start, size = int(row["position"]) + LOG_OVERHEAD, int(row["batch_length"])
        yield offset, memoryview(read_bytes(source, start, size))
        return
    try:
        loaded = load_payloads(source, batch, DEFAULT_MAX_DECOMPRESSED_SIZE)
    except CorruptBatchError:
        raise error from None
    start, size = int(loaded.position[0]), int(loaded.size[0])
    data = memoryview(loaded.buffers[loaded.buffer_index[0] - 1])[start : start + size]
    first = _first_offset(int(row["magic"]), offset, data)
    if first is None or first < 0:
        raise error
    for inner, message in _framed(data):
        yield first + inner, message


def _first_offset(magic: int, offset: int, data: memoryview) -> int | None:
    """
    Return what is added to the offsets of messages: in magic 1, they are relative.

    None if there are no messages, which ``AbstractLegacyRecordBatch.DeepRecordsIterator`` refuses.
    """
    last = None
    for one, _ in _framed(data):
        last = one
    if last is None:
        return None
    # An offset of 0 is what librdkafka once wrote; then they are not relative.
    return 0 if magic != _MAGIC_V1 or offset == 0 else offset - last


def _framed(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    at = 0
    while at + _OVERHEAD.size <= len(data):
        offset, size = _OVERHEAD.unpack_from(data, at)
        at += _OVERHEAD.size + size
        if size < _KEY_SIZE_AT[0] + 2 * _SIZE.size or at > len(data):
            return
        yield offset, data[at - size : at]


def _of_message(
    offset: int, message: memoryview, kind: TimestampType, written: int
) -> ClaimedSizes | None:
    magic = message[_MAGIC_AT]
    if magic not in _KEY_SIZE_AT:
        return None
    key_size_at = _KEY_SIZE_AT[magic]
    if key_size_at + _SIZE.size > len(message):
        return None
    (key_size,) = _SIZE.unpack_from(message, key_size_at)
    value_size_at = key_size_at + _SIZE.size + max(0, key_size)
    if value_size_at + _SIZE.size > len(message):
        return None
    (value_size,) = _SIZE.unpack_from(message, value_size_at)
    timestamp = -1
    if magic == _MAGIC_V1 and kind is TimestampType.LOG_APPEND_TIME:
        timestamp = written
    elif magic == _MAGIC_V1:
        (timestamp,) = _TIMESTAMP.unpack_from(message, _TIMESTAMP_AT)
    (crc,) = _CRC.unpack_from(message)
    is_valid = crc == zlib.crc32(message[_CRC.size :])
    name = kind.display_name
    return ClaimedSizes(offset, name, timestamp, key_size, value_size, is_valid, crc)
