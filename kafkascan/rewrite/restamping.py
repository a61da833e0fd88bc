"""Set header fields of batches: offsets, leader epochs, timestamps."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kafkascan._core import restamping as _core
from kafkascan.batches.columns import BatchTable, compression_type, join_tables, require_batch_table
from kafkascan.batches.scan import scan_batches
from kafkascan.format.errors import (
    STATUS,
    BatchTableError,
    SourceReadError,
    UnfitBatchError,
    record_error,
)
from kafkascan.format.layout import CompressionType, TimestampType
from kafkascan.io.sources import SourceLike, borrowed_source, read_into
from kafkascan.write.record_columns import times_of

WritableBuffer: TypeAlias = Any
"""Contiguous writable bytes: a bytearray, a NumPy array, a writable memory map."""


def restamp(
    source: SourceLike,
    batches: BatchTable | None = None,
    /,
    *,
    last_offset: ArrayLike | None = None,
    partition_leader_epoch: ArrayLike | None = None,
    max_timestamp: ArrayLike | None = None,
    timestamp_type: ArrayLike | None = None,
) -> NDArray[np.uint8]:
    """
    Return a copy of a log with other header fields.

    Parameters
    ----------
    source : path, bytes-like, Source or SegmentFile
    batches : array of BATCH_DTYPE, optional
        Rows of the source to change; by default all of them.
    last_offset, partition_leader_epoch, max_timestamp, timestamp_type
        See `restamp_in_place`.

    Returns
    -------
    ndarray of uint8, shape (size of the source,)
        The new log.

    Raises
    ------
    As `restamp_in_place`; as `scan_batches`, if `batches` is not given.
    """
    with borrowed_source(source) as owner:
        if batches is None:
            batches = scan_batches(owner).batches
        data = np.empty(owner.size, np.uint8)
        read_into(owner, 0, data)
        owner.require_unshrunk()
        stamps = (last_offset, partition_leader_epoch, max_timestamp, timestamp_type)
        restamp_range(data, 0, owner.path, batches, *stamps)
    return data


def restamp_in_place(
    data: WritableBuffer,
    batches: BatchTable,
    /,
    *,
    last_offset: ArrayLike | None = None,
    partition_leader_epoch: ArrayLike | None = None,
    max_timestamp: ArrayLike | None = None,
    timestamp_type: ArrayLike | None = None,
) -> BatchTable:
    """
    Set header fields of batches in place.

    Each value is one number for all batches, or an array with one number per row. Fields that are
    not given do not change.

    Parameters
    ----------
    data : writable bytes-like
        The log: a bytearray, a NumPy array, a writable memory map.
    batches : array of BATCH_DTYPE, shape (n,)
        Rows of the log. The table is not changed.
    last_offset : array-like of int64, optional
        Offset of each batch's last record: the base offset becomes `last_offset` minus
        ``last_offset_delta``. No checksum covers it.
    partition_leader_epoch : array-like of int32, optional
        No checksum covers it.
    max_timestamp : array-like of int64 or times, optional
        Milliseconds since the epoch, datetimes or texts in ISO 8601 (UTC without a zone). The
        checksum is updated.
    timestamp_type : array-like of TimestampType, optional
        With ``LOG_APPEND_TIME``, every record of the batch has its `max_timestamp`. The checksum
        is updated.

    Returns
    -------
    ndarray of BATCH_DTYPE, shape (n,)
        The rows after the change.

    Raises
    ------
    ValueError
        If a format lacks a field (leader epochs below magic 2, timestamps in magic 0), a base
        offset would be negative, or a value is out of the field's range.
    UnsupportedCompressionError
        If a timestamp is set, and the codec of a batch does not exist in Kafka.
    BatchTableError
        If a row does not describe the batch at its position; rows before it have been changed.
    TypeError
        If `data` cannot be written, or `batches` is not an array of `BATCH_DTYPE`.

    Notes
    -----
    ``setLastOffset``, ``setPartitionLeaderEpoch`` and ``setMaxTimestamp`` of Kafka's
    ``DefaultRecordBatch`` and ``AbstractLegacyRecordBatch``. As there, a change of a timestamp
    clears unused bits of the attributes. Records are not changed: messages inside a compressed
    message of magic 0 keep their absolute offsets, which readers use.
    """
    view = memoryview(data)
    if view.readonly:
        raise TypeError(f"{type(data).__name__} is read-only")
    stamps = (last_offset, partition_leader_epoch, max_timestamp, timestamp_type)
    array = np.frombuffer(view, np.uint8)
    return restamp_range(array, 0, f"<{type(data).__name__}>", batches, *stamps)


# The fields of `_Stamps`, by the names of the arguments.
_FIELDS: dict[str, type[np.signedinteger[Any]]] = {
    "last_offset": np.int64,
    "partition_leader_epoch": np.int32,
    "max_timestamp": np.int64,
    "timestamp_type": np.int8,
}


class _Stamps(NamedTuple):
    """One value per row, or None for a field that does not change."""

    offsets: NDArray[np.int64] | None
    epochs: NDArray[np.int32] | None
    timestamps: NDArray[np.int64] | None
    types: NDArray[np.int8] | None


def restamp_range(
    data: NDArray[np.uint8], start: int, path: str, batches: BatchTable, *values: ArrayLike | None
) -> BatchTable:
    """
    Set header fields in a copied range of a log; see `restamp_in_place`.

    Parameters
    ----------
    data : ndarray of uint8
    start : int
        Position of its first byte in the log.
    path : str
        Of the log, for errors.
    batches : array of BATCH_DTYPE
        Rows of the log.
    *values : array-like or None
        The values of the four fields.
    """
    stamped = join_tables([require_batch_table(batches)])
    fields = zip(_FIELDS.items(), values, strict=True)
    stamps = _Stamps(*(_column(*one, given, len(stamped)) for one, given in fields))
    _require_possible(path, stamped, stamps)
    stamped["position"] -= start
    status, row, fault = _core.restamp_into(data, stamped, *stamps)
    if status == STATUS["SOURCE_FAULT"]:
        raise SourceReadError(path, fault, "the memory could not be read or written")
    if status != STATUS["OK"]:
        raise BatchTableError(path, row, status)
    return stamped


def _column(
    name: str, dtype: type[np.signedinteger[Any]], values: ArrayLike | None, count: int
) -> NDArray[Any] | None:
    """Return one value per row, or None if none is given."""
    if values is None:
        return None
    given = np.asarray(values)
    if name == "max_timestamp" and given.dtype.kind in "OUM":
        given = times_of(values)
    if given.dtype.kind not in "iu":
        raise ValueError(f"{name} must be integers, not {given.dtype}")
    limits = np.iinfo(dtype)
    if given.size and (given.min() < limits.min or given.max() > limits.max):
        raise ValueError(f"{name} does not fit into {limits.bits} bits")
    if given.shape not in ((), (count,)):
        raise ValueError(f"{name} has shape {given.shape} for {count} batches")
    return np.ascontiguousarray(np.broadcast_to(given.astype(dtype), (count,)))


def _require_possible(path: str, batches: BatchTable, stamps: _Stamps) -> None:
    """Refuse values that a format does not support, before anything is changed."""
    magic = batches["magic"]
    if stamps.offsets is not None:
        is_low = stamps.offsets < batches["last_offset_delta"]
        _refuse(path, batches, is_low, "last_offset is below last_offset_delta")
    if stamps.epochs is not None:
        _refuse(path, batches, magic < 2, "messages of magic 0 and 1 have no leader epoch")
    if stamps.timestamps is None and stamps.types is None:
        return
    _refuse(path, batches, magic == 0, "messages of magic 0 have no timestamp")
    if stamps.types is not None:
        known = (TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)
        if not np.isin(stamps.types, known).all():
            raise ValueError("timestamp_type must be 0 or 1")
    unknown = np.flatnonzero(compression_type(batches) > CompressionType.ZSTD)
    if len(unknown):
        raise record_error("UNSUPPORTED_COMPRESSION", path, batches[unknown[0]])


def _refuse(path: str, batches: BatchTable, is_wrong: NDArray[np.bool_], reason: str) -> None:
    for batch in batches[is_wrong][:1]:
        raise UnfitBatchError(path, int(batch["position"]), int(batch["base_offset"]), reason)
