"""Split record columns into batches and fill their headers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields as dataclass_fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import record_columns as _core
from kafkascan.batches.columns import BatchTable
from kafkascan.format.arguments import require_integers
from kafkascan.format.errors import STATUS, RecordInputError, UnknownOptionError
from kafkascan.format.layout import (
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
from kafkascan.format.suggestions import suggestion
from kafkascan.format.times import to_milliseconds
from kafkascan.io import result_memory
from kafkascan.records.compression import compression
from kafkascan.write.batch_encoder import BatchPlan, encode_batches, iter_encoded_batches
from kafkascan.write.record_columns import COLUMNS, RecordColumns, RecordInput, record_columns

DEFAULT_BATCH_SIZE = 16384
"""Kafka's ``batch.size`` of producers, in bytes."""

_MAX_INT = 2**31 - 1
_BITS = {
    "log_append_time": 64, "producer_id": 64, "producer_epoch": 16, "base_sequence": 32,
    "partition_leader_epoch": 32,
}  # fmt: skip


@dataclass(frozen=True)
class BatchFields:
    """
    Header fields that all batches of a build share; checked as by ``MemoryRecordsBuilder``.

    Attributes
    ----------
    magic : int
    compression_type : CompressionType or str or int
    compression_level : int or None
    timestamp_type : TimestampType or int
    log_append_time : int or time
        See `to_milliseconds`; used with LOG_APPEND_TIME only.
    producer_id, producer_epoch, base_sequence : int
    is_transactional, is_control : bool
    partition_leader_epoch : int
    delete_horizon_ms : int or time or None

    Raises
    ------
    ValueError
        If the format lacks a field, or fields contradict each other.
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
            raise ValueError(f"magic must be 0, 1 or 2, not {self.magic!r}")
        self._require_magic()
        self._convert_times()
        for name, bits in _BITS.items():
            require_number(name, getattr(self, name), bits)
        how = compression(self.compression_type, self.compression_level, magic=self.magic)
        object.__setattr__(self, "compression_type", how.codec)
        object.__setattr__(self, "timestamp_type", TimestampType(self.timestamp_type))
        if self.timestamp_type == TimestampType.NO_TIMESTAMP_TYPE and self.magic > 0:
            raise ValueError(f"magic {self.magic} needs a timestamp_type")
        if self.delete_horizon_ms is not None:
            require_number("delete_horizon_ms", self.delete_horizon_ms, 64, least=0)

    def _convert_times(self) -> None:
        for name in ("log_append_time", "delete_horizon_ms"):
            time = getattr(self, name)
            if time is not None and not isinstance(time, int):
                time = to_milliseconds(time, name, rounds_up=False)
                object.__setattr__(self, name, time)

    def _require_magic(self) -> None:
        if self.magic == 2:
            return
        for is_there, what in (
            (self.is_transactional, "transactions"),
            (self.is_control, "control records"),
            (self.delete_horizon_ms is not None, "delete horizons"),
        ):
            if is_there:
                raise ValueError(f"magic {self.magic} does not support {what}")

    def require_producer(self) -> None:
        """Check the fields of the producer, as Kafka does when it closes a batch."""
        if self.is_transactional and self.producer_id == NO_PRODUCER_ID:
            raise ValueError("a transaction needs a producer_id")
        if self.producer_id == NO_PRODUCER_ID:
            return
        if self.producer_epoch == NO_PRODUCER_EPOCH:
            raise ValueError("a producer needs a producer_epoch")
        if self.base_sequence < 0 and not self.is_control:
            raise ValueError("a producer needs a base_sequence")
        if self.magic < 2:
            raise ValueError(f"magic {self.magic} does not support producers")

    @property
    def is_compressed(self) -> bool:
        """Whether the batches are compressed."""
        return self.compression_type != CompressionType.NONE

    @property
    def attributes(self) -> int:
        """The header field `attributes`."""
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
        """Return consecutive base sequences, with wrap-around to 0."""
        if self.base_sequence < 0:
            return self.base_sequence
        return (self.base_sequence + first) & _MAX_INT


def require_number(name: str, value: Any, bits: int, *, least: int = -1) -> None:
    """Raise an error if a header field cannot have a value; -1 usually means that it has none."""
    if not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    if value >> (bits - 1) not in (0, -1):
        raise ValueError(f"{name} has {bits} bits, too few for {value}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")


def batch_fields(options: dict[str, Any]) -> BatchFields:
    """Return the header fields that options name; raise `UnknownOptionError` for other names."""
    known = [field.name for field in dataclass_fields(BatchFields)]
    for name in options:
        if name not in known:
            hint = suggestion(name, [*known, *COLUMNS, "batch_size", "max_records"])
            raise UnknownOptionError(f"there is no option {name!r}{hint}")
    return BatchFields(**options)


def build_batches(
    records: RecordInput = None,
    /,
    *,
    offset: Any = None,
    timestamp: Any = None,
    key: Any = None,
    value: Any = None,
    headers: Any = None,
    batch_size: int = DEFAULT_BATCH_SIZE,
    max_records: int | None = None,
    **fields: Any,
) -> bytes:
    """
    Encode columns of records as batches.

    Parameters
    ----------
    records : RecordTable, mapping or Arrow table, optional
        The columns ``offset``, ``timestamp``, ``key``, ``value`` and ``headers``, or some of
        them. Keys and values of a `RecordTable` are not copied before they are encoded. Other
        columns that kafkascan's readers or Spark's Kafka source return (such as ``topic`` or
        ``producer_id``), and a pandas index, are ignored; a column of another name is an error.
    offset : int or integers of shape (n,), optional
        An int is the offset of the first record; the others are consecutive. Replaces the
        offsets of `records`; by default those, or consecutive ones from 0 on. Offsets must
        increase, from 0 on, to at most 2**63 - 2.
    timestamp : one or n times: int, datetime, str, datetime64, Arrow or pandas timestamps, optional
        Integers are milliseconds since the epoch; -1 (the default), NaT or null for no timestamp.
    key, value : items of shape (n,), optional
        ``bytes``, other bytes-like objects, ``str`` (written as UTF-8) and None in a sequence
        or an array of objects; NumPy's ``S``, ``V`` and ``U``, or uint8 of shape (n, size);
        Arrow's ``binary``, ``string``, ``large_…``, ``…_view``, ``fixed_size_binary``, or
        dictionaries of them. By default all are null.
    headers : lists of shape (n,), optional
        For each record a sequence of (key, value) pairs, a mapping, or None; or Arrow's
        ``list<struct<key, value>>`` or ``map``.
    batch_size : int, default 16384
        Maximum bytes of a batch before compression, including its header (Kafka's
        ``batch.size``); a batch contains at least one record.
    max_records : int, optional
        Maximum number of records of a batch.
    **fields
        Header fields and compression of all batches; see `BatchFields`: ``magic``,
        ``compression_type``, ``compression_level``, ``timestamp_type``, ``log_append_time``,
        ``producer_id``, ``producer_epoch``, ``base_sequence`` (of the first record),
        ``is_transactional``, ``is_control``, ``partition_leader_epoch``, ``delete_horizon_ms``.

    Returns
    -------
    bytes
        The batches in order: a log.

    Raises
    ------
    RecordInputError
        If a record cannot be written: offsets do not increase or are out of range, a timestamp is
        below -1, a header key is null, the record is too large, or a record of magic 0 or 1 has
        headers.
    UnknownColumnError, UnknownOptionError
        If there is no such column or option; the message suggests one.
    TypeError, ValueError
        If a column has a wrong type, columns differ in length, or fields contradict each other,
        such as magic 1 and Zstandard, transactions or control records.

    Notes
    -----
    The result is byte for byte that of ``MemoryRecordsBuilder`` for the same batches. For
    compressed batches this depends on the codec libraries; see docs/format.md.
    """
    what = batch_fields(fields)
    columns = record_columns(records, offset, timestamp, key, value, headers)
    return encode_batches(plan_batches(columns, what, batch_size, max_records)).data


def iter_built_batches(
    records: RecordInput = None,
    /,
    *,
    offset: Any = None,
    timestamp: Any = None,
    key: Any = None,
    value: Any = None,
    headers: Any = None,
    batch_size: int = DEFAULT_BATCH_SIZE,
    max_records: int | None = None,
    **fields: Any,
) -> Iterator[bytes | memoryview]:
    """
    Encode columns of records as batches, one by one.

    Takes the arguments of `build_batches`.

    Returns
    -------
    iterator of bytes-like
        One batch each; about a megabyte is encoded ahead.

    Raises
    ------
    As `build_batches`, before the iterator is returned.
    """
    what = batch_fields(fields)
    columns = record_columns(records, offset, timestamp, key, value, headers)
    return iter_encoded_batches(plan_batches(columns, what, batch_size, max_records))


def plan_batches(
    records: RecordColumns, fields: BatchFields, batch_size: int, max_records: int | None
) -> BatchPlan:
    """
    Split records into batches and fill their headers.

    Parameters
    ----------
    records : RecordColumns
    fields : BatchFields
    batch_size, max_records
        See `build_batches`.

    Raises
    ------
    RecordInputError
        If a batch cannot hold a record.
    ValueError
        If the fields of the producer are incomplete.
    """
    fields.require_producer()
    if max_records is not None and max_records < 1:
        raise ValueError("max_records must be positive")
    require_integers(batch_size=batch_size)
    if batch_size < 0:
        raise ValueError(f"batch_size must not be negative: {batch_size}")
    is_message = fields.magic < 2 and not fields.is_compressed
    limit = 1 if is_message else min(max_records or _MAX_INT, _MAX_INT)
    starts = result_memory.empty(len(records) + 1, np.int64)
    sizes = result_memory.empty(len(records), np.int64)
    status, record, count = _core.plan(
        records.core, fields.magic, fields.is_compressed, min(batch_size, _MAX_INT), limit,
        fields.delete_horizon_ms, starts, sizes,
    )  # fmt: skip
    if status != STATUS["OK"]:
        raise RecordInputError(record, status)
    starts = starts[: count + 1].copy()
    rows = fields.rows(records, starts)
    return BatchPlan(records, rows, starts, sizes[:count].copy(), fields.compression_level)
