"""Dtypes, enums and constants of Kafka's format.

All numbers come from ``csrc/kafka_layout.h``, the only definition of the layout.
"""

from __future__ import annotations

import enum

import numpy as np

from kafkascan._core import layout as _layout

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_PARTITION_LEADER_EPOCH = -1

LOG_OVERHEAD: int = _layout.log_overhead
"""Bytes of a batch that `batch_length` does not count (base offset and length)."""

HEADER_SIZE_UP_TO_MAGIC: int = _layout.size_up_to_magic
BATCH_HEADER_SIZE: int = _layout.batch_header_size

MIN_BATCH_LENGTH: int = min(_layout.min_lengths)
"""The smallest `batch_length` of any magic: that of an empty message of magic 0."""

MIN_BATCH_SIZE = LOG_OVERHEAD + MIN_BATCH_LENGTH

CRC_STARTS: tuple[int, int, int] = _layout.crc_starts
"""By magic: the first byte that the checksum of a batch covers; it covers the rest, too."""

MAGIC_POSITION: int = _layout.size_up_to_magic - 1
"""Position of the magic byte in a batch of any magic."""

CRC_POSITIONS: tuple[int, int, int] = tuple(  # type: ignore[assignment]
    {name: offset for name, _, offset in fields}["crc"]
    for fields in (_layout.message_v0, _layout.message_v1, _layout.batch_header)
)
"""By magic: the position of the checksum in a batch."""

MESSAGE_KEY_STARTS: tuple[int, int] = tuple(  # type: ignore[assignment]
    {name: offset for name, _, offset in fields}["key_size"]
    for fields in (_layout.message_v0, _layout.message_v1)
)
"""By magic 0 and 1: the offset of the key size in a message."""

_NUMPY_CODES = {"i8": "i1", "i16": "i2", "i32": "i4", "u32": "u4", "i64": "i8"}


def _batch_dtype() -> np.dtype[np.void]:
    header = [(name, "=" + _NUMPY_CODES[kind]) for name, kind, _ in _layout.batch_header]
    dtype = np.dtype([("position", "=i8"), *header])
    if dtype.itemsize != _layout.row_size:
        raise AssertionError("BATCH_DTYPE and ks_batch_row differ")
    return dtype


BATCH_DTYPE = _batch_dtype()
"""One row of the batch table: 69 bytes, no holes, native byte order.

``position`` (byte position of the batch in its source), then the 61-byte batch header
in Kafka's names and order: ``base_offset``, ``batch_length``, ``partition_leader_epoch``,
``magic``, ``crc``, ``attributes``, ``last_offset_delta``, ``base_timestamp``,
``max_timestamp``, ``producer_id``, ``producer_epoch``, ``base_sequence``,
``records_count``. Timestamps are milliseconds since the epoch.

Messages of magic 0 and 1 are rows of the same table. Fields that their format lacks are -1. A
compressed wrapper is one row; its ``base_offset`` is the offset of its last record, and its
``base_timestamp`` and ``records_count`` are -1.
"""

BATCH_HEADER = np.dtype(
    [(name, ">" + _NUMPY_CODES[kind]) for name, kind, _ in _layout.batch_header]
)
"""The header of a batch of magic 2 as it is stored: 61 bytes, big-endian."""

OFFSET_INDEX_ENTRY = np.dtype(
    [(name, ">" + _NUMPY_CODES[kind]) for name, kind, _ in _layout.offset_index_entry]
)
"""An entry of a ``.index`` file, big-endian: ``relative_offset`` (to the segment's base offset)
and ``position`` of a batch (``OffsetIndex``)."""

TIME_INDEX_ENTRY = np.dtype(
    [(name, ">" + _NUMPY_CODES[kind]) for name, kind, _ in _layout.time_index_entry]
)
"""An entry of a ``.timeindex`` file, big-endian: the latest ``timestamp`` so far, and the
``relative_offset`` of the first batch that has it (``TimeIndex``)."""

TRANSACTION_INDEX_ENTRY = np.dtype(
    [(name, ">" + _NUMPY_CODES[kind]) for name, kind, _ in _layout.transaction_index_entry]
)
"""An entry of a ``.txnindex`` file, big-endian: ``version`` (0), ``producer_id``,
``first_offset`` and ``last_offset`` (of the marker) of an aborted transaction, and the
``last_stable_offset`` at its end (``AbortedTxn``)."""

SNAPSHOT_HEADER = np.dtype(
    [(name, ">" + _NUMPY_CODES[kind]) for name, kind, _ in _layout.snapshot_header]
)
"""The header of a ``.snapshot`` file; its checksum covers everything after the header."""

PRODUCER_ENTRY = np.dtype(
    [(name, "=" + _NUMPY_CODES[kind]) for name, kind, _ in _layout.producer_entry]
)
"""The state of a producer, in native byte order: ``producer_id``, ``producer_epoch``,
``last_sequence``, ``last_offset`` and ``offset_delta`` of its last batch (-1, -1 and 0 if it has
none in this epoch), ``timestamp`` of its last batch or marker in milliseconds,
``coordinator_epoch`` of its last marker and ``current_txn_first_offset``, or -1
(``ProducerStateManager``). A ``.snapshot`` file contains the same entries, big-endian."""

COMPRESSION_MASK: int = _layout.compression_mask
TIMESTAMP_TYPE_BIT: int = _layout.timestamp_type_bit
TRANSACTIONAL_BIT: int = _layout.transactional_bit
CONTROL_BIT: int = _layout.control_bit
DELETE_HORIZON_BIT: int = _layout.delete_horizon_bit


class NamedCode(enum.IntEnum):
    """A numeric code of the format, with Kafka's name for it."""

    @property
    def display_name(self) -> str:
        """Kafka's name of the code, as its tools print it."""
        return self.name

    @classmethod
    def name_of(cls, code: int) -> str:
        """Kafka's name of a code, or ``unknown(code)``."""
        return cls(code).display_name if code in cls._value2member_map_ else f"unknown({code})"


class CompressionType(NamedCode):
    """Codec of a batch: bits 0-2 of its attributes (``CompressionType`` in Kafka)."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def display_name(self) -> str:
        """Kafka's name of the codec, such as ``zstd``."""
        return self.name.lower()


class TimestampType(NamedCode):
    """Origin of the timestamps of a batch: bit 3 of its attributes (KIP-32)."""

    NO_TIMESTAMP_TYPE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1

    @property
    def display_name(self) -> str:
        """Kafka's name of the type, such as ``CreateTime``."""
        return "".join(word.capitalize() for word in self.name.split("_"))


class ScanEnd(enum.StrEnum):
    """What follows the last complete batch of a scan."""

    CLEAN = "CLEAN"
    """Nothing: the source ends there, or the scan's `stop` was reached."""

    TORN_TAIL = "TORN_TAIL"
    """An incomplete batch: the writer stopped in the middle of it, or is still writing."""

    ZERO_TAIL = "ZERO_TAIL"
    """Only zeros up to the end of the source: preallocated space (`preallocate=true`)."""

    CORRUPT = "CORRUPT"
    """Bytes that cannot be a batch."""
