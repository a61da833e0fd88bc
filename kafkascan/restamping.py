"""Header fields of batches written anew: offsets, leader epochs, times."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kafkascan._core import restamping as _core
from kafkascan.batch_columns import BatchTable, compression_type, require_batch_table
from kafkascan.batches import scan_batches
from kafkascan.errors import STATUS, BatchTableError, SourceReadError, record_error
from kafkascan.layout import CompressionType, TimestampType
from kafkascan.sources import SourceLike, borrowed_source
from kafkascan.walks import read_into

WritableBuffer: TypeAlias = Any
"""Contiguous bytes that can be written: a bytearray, an array, a writable map."""


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
    Return a copy of a log in which header fields of its batches are written anew.

    Parameters
    ----------
    source : path, bytes-like, Source or Segment
    batches : array of BATCH_DTYPE, optional
        Rows of the source that are changed; by default all of them.
    last_offset, partition_leader_epoch, max_timestamp, timestamp_type
        As of `restamp_in_place`.

    Returns
    -------
    ndarray of uint8, shape (size of the source,)
        A source like any other.

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
        _restamp(
            data, owner.path, batches, last_offset, partition_leader_epoch,
            max_timestamp, timestamp_type,
        )  # fmt: skip
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
    Write header fields of batches anew, where they stand.

    Each value is one number for all batches, or an array with one for each row; what is not
    given stays.

    Parameters
    ----------
    data : writable bytes-like
        The log: a bytearray, a NumPy array, a writable map.
    batches : array of BATCH_DTYPE, shape (n,)
        Rows of it. The table itself stays as it is.
    last_offset : array-like of int64, optional
        Offset of each batch's last record: its base offset becomes that less its
        ``last_offset_delta``. No checksum covers it.
    partition_leader_epoch : array-like of int32, optional
        No checksum covers it.
    max_timestamp : array-like of int64, optional
        Milliseconds since the epoch. The checksum is computed anew.
    timestamp_type : array-like of TimestampType, optional
        ``LOG_APPEND_TIME`` gives every record of the batch its max_timestamp. The checksum is
        computed anew.

    Returns
    -------
    ndarray of BATCH_DTYPE, shape (n,)
        The rows as they are now.

    Raises
    ------
    ValueError
        If a batch's format lacks the field (leader epochs before magic 2, times of magic 0),
        an offset is less than the batch needs, or a value is not a number of the field.
    UnsupportedCompressionError
        If times are to be set, and a batch names a codec that Kafka does not know.
    BatchTableError
        If a row does not describe the batch at its position; those before it have been changed.
    TypeError
        If `data` cannot be written, or `batches` is not an array of `BATCH_DTYPE`.

    Notes
    -----
    ``setLastOffset``, ``setPartitionLeaderEpoch`` and ``setMaxTimestamp`` of Kafka's
    ``DefaultRecordBatch`` and ``AbstractLegacyRecordBatch``. Where a time changes, bits of the
    attributes that have no meaning are dropped, as there. Records are not touched: messages in
    a compressed one of magic 0 bear offsets of their own, which readers go by.
    """
    view = memoryview(data)
    if view.readonly:
        raise TypeError(f"{type(data).__name__} cannot be written")
    array = np.frombuffer(view, np.uint8)
    return _restamp(
        array, f"<{type(data).__name__}>", batches, last_offset, partition_leader_epoch,
        max_timestamp, timestamp_type,
    )  # fmt: skip


def _restamp(
    data: NDArray[np.uint8],
    path: str,
    batches: BatchTable,
    last_offset: ArrayLike | None,
    partition_leader_epoch: ArrayLike | None,
    max_timestamp: ArrayLike | None,
    timestamp_type: ArrayLike | None,
) -> BatchTable:
    batches = require_batch_table(batches)
    count = len(batches)
    stamped = batches.view(np.uint8).copy().view(batches.dtype)
    offsets = _column("last_offset", last_offset, np.int64, count)
    epochs = _column("partition_leader_epoch", partition_leader_epoch, np.int32, count)
    times = _column("max_timestamp", max_timestamp, np.int64, count)
    types = _column("timestamp_type", timestamp_type, np.int8, count)
    _require_possible(path, stamped, offsets, epochs, times, types)
    status, row, fault = _core.restamp_into(data, stamped, offsets, epochs, times, types)
    if status == STATUS["SOURCE_FAULT"]:
        raise SourceReadError(path, fault, "the memory could not be read or written")
    if status != STATUS["OK"]:
        raise BatchTableError(path, row, status)
    return stamped


def _column(
    name: str, values: ArrayLike | None, dtype: type[np.signedinteger[Any]], count: int
) -> NDArray[Any] | None:
    """Return a number for each row, or None for what is not given."""
    if values is None:
        return None
    given = np.asarray(values)
    if given.dtype.kind not in "iu":
        raise ValueError(f"{name} must be of integers, not {given.dtype}")
    limits = np.iinfo(dtype)
    if given.size and (given.min() < limits.min or given.max() > limits.max):
        raise ValueError(f"{name} does not fit into {limits.bits} bits")
    if given.shape not in ((), (count,)):
        raise ValueError(f"{name} has shape {given.shape} for {count} batches")
    return np.ascontiguousarray(np.broadcast_to(given.astype(dtype), (count,)))


def _require_possible(
    path: str,
    batches: BatchTable,
    offsets: NDArray[Any] | None,
    epochs: NDArray[Any] | None,
    times: NDArray[Any] | None,
    types: NDArray[Any] | None,
) -> None:
    """Refuse what a format does not have before anything is changed."""
    magic = batches["magic"]
    if offsets is not None:
        _refuse(batches, offsets < batches["last_offset_delta"], "last_offset is before the first")
    if epochs is not None:
        _refuse(batches, magic < 2, "messages of magic 0 and 1 have no leader epoch")
    if times is None and types is None:
        return
    _refuse(batches, magic == 0, "messages of magic 0 have no timestamp")
    if types is not None:
        known = (TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)
        _refuse(batches, ~np.isin(types, known), "a timestamp type is 0 or 1")
    unknown = np.flatnonzero(compression_type(batches) > CompressionType.ZSTD)
    if len(unknown):
        raise record_error("UNSUPPORTED_COMPRESSION", path, batches[unknown[0]])


def _refuse(batches: BatchTable, is_wrong: NDArray[np.bool_], reason: str) -> None:
    wrong = np.flatnonzero(is_wrong)
    if len(wrong):
        row = int(wrong[0])
        raise ValueError(f"batches[{row}], position {batches['position'][row]}: {reason}")
