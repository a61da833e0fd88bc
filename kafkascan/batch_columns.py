"""Columns of the batch table: the stored ones, and those derived from them.

Every function takes a table (array of `BATCH_DTYPE`) and returns one value per row,
computed for all rows at once with Kafka's semantics, also on values that no honest
writer produces.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan.layout import (
    BATCH_DTYPE,
    COMPRESSION_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    LOG_OVERHEAD,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    TimestampType,
)

BatchTable: TypeAlias = "NDArray[np.void]"
"""Array of `BATCH_DTYPE`, shape (n,)."""

_MAX_SEQUENCE = 2**31 - 1


def require_batch_table(batches: Any) -> BatchTable:
    """
    Return the table with its rows in one contiguous piece.

    Raises
    ------
    TypeError
        If it is not a one-dimensional array of `BATCH_DTYPE`.
    """
    if not isinstance(batches, np.ndarray) or batches.dtype != BATCH_DTYPE or batches.ndim != 1:
        described = (
            f"{batches.ndim}-dimensional array of {batches.dtype}"
            if isinstance(batches, np.ndarray)
            else type(batches).__name__
        )
        raise TypeError(f"expected a one-dimensional array of BATCH_DTYPE, got {described}")
    return np.ascontiguousarray(batches)


def join_rows(tables: Sequence[NDArray[np.void]], dtype: np.dtype[np.void]) -> NDArray[np.void]:
    """
    Return one contiguous table with the rows of all, copied.

    NumPy copies structured arrays field by field; rows without holes are bytes, which
    takes a tenth of the time.
    """
    if not tables:
        return np.empty(0, dtype)
    return np.concatenate([table.view(np.uint8) for table in tables]).view(dtype)


def join_tables(tables: Sequence[BatchTable]) -> BatchTable:
    """Return one table of batches with the rows of all, copied."""
    return join_rows(tables, BATCH_DTYPE)


def last_offset(batches: BatchTable) -> NDArray[np.int64]:
    """
    Offset of the last record, also where compaction has removed it.

    Returns
    -------
    ndarray of int64, shape (n,)
        ``base_offset + last_offset_delta`` (``DefaultRecordBatch.lastOffset``).
    """
    result: NDArray[np.int64] = batches["base_offset"] + batches["last_offset_delta"]
    return result


def next_offset(batches: BatchTable) -> NDArray[np.int64]:
    """
    Offset that follows the batch.

    Returns
    -------
    ndarray of int64, shape (n,)
        ``last_offset + 1`` (``AbstractRecordBatch.nextOffset``).
    """
    result: NDArray[np.int64] = last_offset(batches) + 1
    return result


def size_in_bytes(batches: BatchTable) -> NDArray[np.int64]:
    """
    Size of the whole batch in the file.

    Returns
    -------
    ndarray of int64, shape (n,)
        In bytes: ``batch_length + 12``.
    """
    result: NDArray[np.int64] = batches["batch_length"].astype(np.int64) + LOG_OVERHEAD
    return result


def last_sequence(batches: BatchTable) -> NDArray[np.int32]:
    """
    Sequence number of the last record.

    Returns
    -------
    ndarray of int32, shape (n,)
        -1 where the batch has none. Sequences wrap from 2147483647 to 0
        (``DefaultRecordBatch.incrementSequence``).
    """
    base = batches["base_sequence"]
    delta = batches["last_offset_delta"].astype(np.int64)
    # Java's int arithmetic: casting to int32 wraps as it does there.
    room = (_MAX_SEQUENCE - delta).astype(np.int32)
    wrapped = (delta - (_MAX_SEQUENCE - base.astype(np.int64)) - 1).astype(np.int32)
    plain = (base + delta).astype(np.int32)
    result: NDArray[np.int32] = np.where(base > room, wrapped, plain)
    result[base == NO_SEQUENCE] = NO_SEQUENCE
    return result


def compression_type(batches: BatchTable) -> NDArray[np.int8]:
    """
    Codec of each batch.

    Returns
    -------
    ndarray of int8, shape (n,)
        Values of `CompressionType`; 5, 6 and 7 are not assigned to a codec.
    """
    result: NDArray[np.int8] = (batches["attributes"] & COMPRESSION_MASK).astype(np.int8)
    return result


def timestamp_type(batches: BatchTable) -> NDArray[np.int8]:
    """
    Who set the timestamps.

    Returns
    -------
    ndarray of int8, shape (n,)
        Values of `TimestampType`: -1 for magic 0, which has no timestamps, whatever the
        bit says (``LegacyRecord.timestampType``).
    """
    log_append_time = (batches["attributes"] & TIMESTAMP_TYPE_BIT) != 0
    result: NDArray[np.int8] = log_append_time.astype(np.int8)
    result[batches["magic"] == 0] = TimestampType.NO_TIMESTAMP_TYPE
    return result


def _has_v2_bit(batches: BatchTable, bit: int) -> NDArray[np.bool_]:
    """Return where a bit is set that only magic 2 gives a meaning."""
    result: NDArray[np.bool_] = (batches["magic"] == 2) & ((batches["attributes"] & bit) != 0)
    return result


def is_transactional(batches: BatchTable) -> NDArray[np.bool_]:
    """
    Tell which batches are part of a transaction (KIP-98).

    Returns
    -------
    ndarray of bool, shape (n,)
    """
    return _has_v2_bit(batches, TRANSACTIONAL_BIT)


def is_control(batches: BatchTable) -> NDArray[np.bool_]:
    """
    Tell which batches hold control records: markers and KRaft's own.

    Returns
    -------
    ndarray of bool, shape (n,)
    """
    return _has_v2_bit(batches, CONTROL_BIT)


def delete_horizon_ms(batches: BatchTable) -> NDArray[np.int64]:
    """
    Time from which compaction may drop a batch's tombstones or marker (KIP-534).

    Returns
    -------
    ndarray of int64, shape (n,)
        Milliseconds since the epoch; -1 where no horizon is set.
    """
    has_horizon = _has_v2_bit(batches, DELETE_HORIZON_BIT)
    return np.where(has_horizon, batches["base_timestamp"], NO_TIMESTAMP)


def as_datetime64(milliseconds: NDArray[np.int64]) -> NDArray[np.datetime64]:
    """
    Kafka's timestamps as NumPy's.

    Parameters
    ----------
    milliseconds : array of int64
        Since the epoch, such as ``batches["max_timestamp"]``.

    Returns
    -------
    ndarray of datetime64[ms], same shape
        UTC; NaT where Kafka says "no timestamp" (-1).
    """
    values = np.array(milliseconds, dtype=np.int64)
    values[values == NO_TIMESTAMP] = np.iinfo(np.int64).min  # how NumPy writes NaT
    return values.view("datetime64[ms]")


DERIVED: dict[str, Callable[[BatchTable], NDArray[Any]]] = {
    function.__name__: function
    for function in (
        last_offset,
        next_offset,
        size_in_bytes,
        last_sequence,
        compression_type,
        timestamp_type,
        is_transactional,
        is_control,
        delete_horizon_ms,
    )
}
"""Derived columns by name."""

COLUMN_NAMES: tuple[str, ...] = (*(BATCH_DTYPE.names or ()), *DERIVED)
"""All columns: the stored ones in Kafka's order, then the derived ones."""

TIMESTAMP_COLUMNS: frozenset[str] = frozenset(
    {"base_timestamp", "max_timestamp", "delete_horizon_ms"}
)


def column(batches: BatchTable, name: str) -> NDArray[Any]:
    """
    One column of a table, stored or derived.

    Returns
    -------
    ndarray, shape (n,)

    Raises
    ------
    ValueError
        If there is no such column; the message proposes one.
    """
    require_columns([name])
    return DERIVED[name](batches) if name in DERIVED else batches[name]


def require_columns(names: list[str]) -> None:
    """Raise `ValueError` if a name is not that of a column."""
    for name in names:
        if name not in COLUMN_NAMES:
            close = difflib.get_close_matches(name, COLUMN_NAMES, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise ValueError(f"there is no batch column {name!r}{hint}")
