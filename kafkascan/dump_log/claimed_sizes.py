"""Messages of magic 0 and 1 whose fields exceed them: the tool prints the sizes that they claim."""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from kafkascan.batches.columns import BatchTable, compression_type, timestamp_type
from kafkascan.batches.walks import read_bytes
from kafkascan.format.layout import LOG_OVERHEAD, CompressionType, TimestampType
from kafkascan.io.sources import Source

# In front of the size of the key, by magic: CRC, magic, attributes, and in magic 1 the timestamp.
_KEY_SIZE_AT = {0: 4 + 1 + 1, 1: 4 + 1 + 1 + 8}
_CRC = struct.Struct(">I")
_SIZE = struct.Struct(">i")


class ClaimedSizes(NamedTuple):
    """What a message says of itself, which is not compressed."""

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


def claimed_sizes(source: Source, batch: BatchTable) -> ClaimedSizes | None:
    """
    Return what ``LegacyRecord`` returns without a look at the key or the value.

    Parameters
    ----------
    source : Source
    batch : array of BATCH_DTYPE, shape (1,)

    Returns
    -------
    ClaimedSizes or None
        None if the batch is no message of magic 0 or 1, if it is compressed, or if the size of
        its value lies outside of it.
    """
    row = batch[0]
    magic = int(row["magic"])
    if magic not in _KEY_SIZE_AT or compression_type(batch)[0] != CompressionType.NONE:
        return None
    data = read_bytes(source, int(row["position"]) + LOG_OVERHEAD, int(row["batch_length"]))
    key_size_at = _KEY_SIZE_AT[magic]
    (key_size,) = _SIZE.unpack_from(data, key_size_at)
    value_size_at = key_size_at + _SIZE.size + max(0, key_size)
    if value_size_at + _SIZE.size > len(data):
        return None
    (value_size,) = _SIZE.unpack_from(data, value_size_at)
    (crc,) = _CRC.unpack_from(data)
    kind = TimestampType(timestamp_type(batch)[0]).display_name
    is_valid = crc == zlib.crc32(data[_CRC.size :])
    offset, timestamp = int(row["base_offset"]), int(row["max_timestamp"])
    return ClaimedSizes(offset, kind, timestamp, key_size, value_size, is_valid, crc)
