"""Batches from columns of records: where they end, and what their headers say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import encoding as _core
from kafkascan.arrow import require_pyarrow
from kafkascan.batch_columns import BatchTable
from kafkascan.compression import compression
from kafkascan.encoding import BatchEncoder
from kafkascan.errors import STATUS, RecordInputError
from kafkascan.layout import (
    BATCH_DTYPE,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    CompressionType,
    TimestampType,
)
from kafkascan.record_columns import (
    COLUMNS,
    RecordColumns,
    columns_of,
    columns_of_mapping,
    columns_of_table,
)
from kafkascan.record_table import RecordTable

DEFAULT_BATCH_SIZE = 16384
"""Kafka's ``batch.size`` of producers, in bytes."""

_LARGEST = 2**31 - 1
_BITS = {
    "log_append_time": 64, "producer_id": 64, "producer_epoch": 16, "base_sequence": 32,
    "partition_leader_epoch": 32, "delete_horizon_ms": 64,
}  # fmt: skip


@dataclass(frozen=True)
class BatchFields:
    """
    What batches say of themselves beside their records; checked as by ``MemoryRecordsBuilder``.

    Attributes
    ----------
    magic : int
    compression_type : CompressionType or str or int
    compression_level : int or None
    timestamp_type : TimestampType or int
    log_append_time : int
        Milliseconds; of LOG_APPEND_TIME only.
    producer_id, producer_epoch, base_sequence : int
    is_transactional, is_control : bool
    partition_leader_epoch : int
    delete_horizon_ms : int or None

    Raises
    ------
    ValueError
        If the format does not have one of them, or one asks for another.
    """

    magic: int = 2
    compression_type: CompressionType | str | int = CompressionType.NONE
    compression_level: int | None = None
    timestamp_type: TimestampType | int = TimestampType.CREATE_TIME
    log_append_time: int = NO_TIMESTAMP
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE
    is_transactional: bool = False
    is_control: bool = False
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH
    delete_horizon_ms: int | None = None

    def __post_init__(self) -> None:
        if self.magic not in (0, 1, 2):
            raise ValueError(f"there is no magic {self.magic}, but 0, 1 and 2")
        self._require_magic()
        for name, bits in _BITS.items():
            if (value := getattr(self, name)) is not None and value >> (bits - 1) not in (0, -1):
                raise ValueError(f"{name} has {bits} bits, too few for {value}")
        how = compression(self.compression_type, self.compression_level, magic=self.magic)
        object.__setattr__(self, "compression_type", how.codec)
        object.__setattr__(self, "timestamp_type", TimestampType(self.timestamp_type))
        if self.timestamp_type == TimestampType.NO_TIMESTAMP_TYPE and self.magic > 0:
            raise ValueError(f"messages of magic {self.magic} have a timestamp_type")
        if self.delete_horizon_ms is not None and self.delete_horizon_ms < 0:
            raise ValueError("delete_horizon_ms must not be negative")

    def _require_magic(self) -> None:
        if self.magic == 2:
            return
        for is_there, what in (
            (self.is_transactional, "transactions"),
            (self.is_control, "control records"),
            (self.delete_horizon_ms is not None, "delete horizons"),
        ):
            if is_there:
                raise ValueError(f"magic {self.magic} knows of no {what}")

    def require_producer(self) -> None:
        """Check what is known of the producer, as when a batch is closed."""
        if self.is_transactional and self.producer_id == NO_PRODUCER_ID:
            raise ValueError("a transaction needs a producer_id")
        if self.producer_id == NO_PRODUCER_ID:
            return
        if self.producer_epoch == NO_PRODUCER_EPOCH:
            raise ValueError("a producer needs a producer_epoch")
        if self.base_sequence < 0 and not self.is_control:
            raise ValueError("a producer needs a base_sequence")
        if self.magic < 2:
            raise ValueError(f"magic {self.magic} knows of no producers")

    @property
    def is_compressed(self) -> bool:
        """Whether there is a codec."""
        return self.compression_type != CompressionType.NONE

    @property
    def attributes(self) -> int:
        """The bits of the header's `attributes`."""
        assert isinstance(self.compression_type, CompressionType)
        bits = int(self.compression_type)
        if self.timestamp_type == TimestampType.LOG_APPEND_TIME and self.magic > 0:
            bits |= TIMESTAMP_TYPE_BIT
        if self.is_transactional:
            bits |= TRANSACTIONAL_BIT
        if self.is_control:
            bits |= CONTROL_BIT
        if self.delete_horizon_ms is not None:
            bits |= DELETE_HORIZON_BIT
        return bits

    def rows(self, records: RecordColumns, starts: NDArray[np.int64]) -> BatchTable:
        """
        Return the rows of batches of consecutive records.

        Parameters
        ----------
        records : RecordColumns
        starts : ndarray of int64, shape (m + 1,)
        """
        rows = np.zeros(len(starts) - 1, BATCH_DTYPE)
        if not len(rows):
            return rows
        first, last = starts[:-1], starts[1:] - 1
        rows["magic"] = self.magic
        rows["attributes"] = self.attributes
        rows["partition_leader_epoch"] = self.partition_leader_epoch
        rows["base_offset"] = base_offset = records.offset[first]
        rows["last_offset_delta"] = records.offset[last] - base_offset
        rows["base_timestamp"] = (
            records.timestamp[first] if self.delete_horizon_ms is None else self.delete_horizon_ms
        )
        rows["max_timestamp"] = self._max_timestamps(records, first)
        rows["producer_id"] = self.producer_id
        rows["producer_epoch"] = self.producer_epoch
        rows["base_sequence"] = self._sequences(first)
        rows["records_count"] = last - first + 1
        return rows

    def _max_timestamps(
        self, records: RecordColumns, first: NDArray[np.int64]
    ) -> NDArray[np.int64] | int:
        if self.magic == 0:
            return NO_TIMESTAMP
        if self.timestamp_type == TimestampType.LOG_APPEND_TIME:
            return self.log_append_time
        return np.maximum.reduceat(records.timestamp, first)

    def _sequences(self, first: NDArray[np.int64]) -> NDArray[np.int64] | int:
        """Counted on from batch to batch, beginning anew at 0 behind the largest."""
        if self.base_sequence < 0:
            return self.base_sequence
        return (self.base_sequence + first) & _LARGEST


def plan_batches(
    records: RecordColumns, fields: BatchFields, batch_size: int, max_records: int | None
) -> BatchEncoder:
    """
    Divide records into batches.

    Parameters
    ----------
    records : RecordColumns
    fields : BatchFields
    batch_size : int
    max_records : int or None
        As of `build_batches`.

    Raises
    ------
    RecordInputError
    """
    fields.require_producer()
    if max_records is not None and max_records < 1:
        raise ValueError("max_records must be positive")
    is_message = fields.magic < 2 and not fields.is_compressed
    most = 1 if is_message else min(max_records or _LARGEST, _LARGEST)
    starts, sizes = np.empty(len(records) + 1, np.int64), np.empty(len(records), np.int64)
    status, record, count = _core.plan(
        records.core, fields.magic, fields.is_compressed, min(batch_size, _LARGEST), most,
        fields.delete_horizon_ms, starts, sizes,
    )  # fmt: skip
    if status != STATUS["OK"]:
        raise RecordInputError(record, status)
    starts = starts[: count + 1].copy()
    rows = fields.rows(records, starts)
    level = fields.compression_level
    return BatchEncoder(records, rows, starts, level=level, sizes=sizes[:count].copy())


def build_batches(
    records: RecordTable | Mapping[str, Any] | Any = None,
    /,
    *,
    offset: Any = 0,
    timestamp: Any = None,
    key: Any = None,
    value: Any = None,
    headers: Any = None,
    batch_size: int = DEFAULT_BATCH_SIZE,
    max_records: int | None = None,
    **fields: Any,
) -> bytes:
    """
    Encode records, given in columns, as batches.

    Parameters
    ----------
    records : RecordTable, mapping or Arrow table, optional
        Its columns ``offset``, ``timestamp``, ``key``, ``value`` and ``headers``, as far as it
        has them. A `RecordTable` is written without copying its items before.
    offset : int or integers of shape (n,), default 0
        An int is the first record's, and the others follow. They must increase.
    timestamp : int or integers, datetime64 or Arrow timestamps of shape (n,), optional
        Milliseconds since the epoch; -1, which is the default, NaT or null for none.
    key, value : items of shape (n,), optional
        ``bytes``, other bytes-like objects, ``str`` (written as UTF-8) and None in a sequence
        or an array of objects; NumPy's ``S``, ``V`` and ``U``, or uint8 of shape (n, size);
        Arrow's ``binary``, ``string``, ``large_…``, ``…_view``, ``fixed_size_binary``, or
        dictionaries of them. By default all are null.
    headers : lists of shape (n,), optional
        Of each record pairs of key and value in order, a mapping, or None; or Arrow's
        ``list<struct<key, value>>`` or ``map``.
    batch_size : int, default 16384
        Bytes that a batch may have before compression, its header included (Kafka's
        ``batch.size``); a first record is always admitted.
    max_records : int, optional
        Records that a batch may have.
    **fields
        What the batches' headers say, and how they are compressed; see `BatchFields`:
        ``magic``, ``compression_type``, ``compression_level``, ``timestamp_type``,
        ``log_append_time``, ``producer_id``, ``producer_epoch``, ``base_sequence`` (of the first
        record; counted on), ``is_transactional``, ``is_control``, ``partition_leader_epoch``,
        ``delete_horizon_ms``.

    Returns
    -------
    bytes
        The batches, one behind the other: a log.

    Raises
    ------
    RecordInputError
        If a record cannot be written: offsets do not increase, a timestamp is negative, a
        header's key is null, it is too large, or it has headers below magic 2.
    TypeError, ValueError
        If a column cannot be one, or columns differ in length, or the fields do not go
        together: Zstandard, transactions, control records below magic 2, …

    Notes
    -----
    The bytes are those of ``MemoryRecordsBuilder`` for the same batches; compressed ones as far
    as the libraries agree (docs/format.md).
    """
    return _planned(
        records, offset, timestamp, key, value, headers, batch_size, max_records, fields
    ).to_bytes()


def iter_built_batches(
    records: RecordTable | Mapping[str, Any] | Any = None,
    /,
    *,
    offset: Any = 0,
    timestamp: Any = None,
    key: Any = None,
    value: Any = None,
    headers: Any = None,
    batch_size: int = DEFAULT_BATCH_SIZE,
    max_records: int | None = None,
    **fields: Any,
) -> Iterator[bytes | memoryview]:
    """
    Encode records as batches, and give them one by one.

    Parameters
    ----------
    As of `build_batches`.

    Returns
    -------
    iterator of bytes-like
        One batch each. About a megabyte is encoded ahead. What is wrong with
        the records is known before the first of them is there.

    Raises
    ------
    As `build_batches`.
    """
    return iter(
        _planned(records, offset, timestamp, key, value, headers, batch_size, max_records, fields)
    )


def _planned(
    records: Any,
    offset: Any,
    timestamp: Any,
    key: Any,
    value: Any,
    headers: Any,
    batch_size: int,
    max_records: int | None,
    fields: dict[str, Any],
) -> BatchEncoder:
    what = BatchFields(**fields)
    if records is None:
        columns = columns_of(offset, timestamp, key, value, headers)
    elif any(one is not None for one in (timestamp, key, value, headers)):
        raise ValueError("records are given as a table and in columns")
    else:
        columns = _columns(records)
    return plan_batches(columns, what, batch_size, max_records)


def _columns(records: Any) -> RecordColumns:
    if isinstance(records, RecordTable):
        return columns_of_table(records)
    if isinstance(records, Mapping):
        return columns_of_mapping(records)
    pa = require_pyarrow()
    table = pa.table(records)
    return columns_of_mapping({name: table[name] for name in COLUMNS if name in table.column_names})
