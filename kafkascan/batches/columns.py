"""Columns of the batch table, stored and derived.

Every function takes a table (array of `BATCH_DTYPE`) and returns one value per row, vectorized.
The results equal Kafka's for all inputs, including values that no correct writer produces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.batch_schemas import BATCH_SCHEMA
from kafkascan.format.arguments import require_integers, require_items
from kafkascan.format.errors import UnknownColumnError
from kafkascan.format.layout import (
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
from kafkascan.format.suggestions import suggestion
from kafkascan.format.times import TimeLike, moment_of
from kafkascan.io import result_memory

BatchTable: TypeAlias = NDArray[np.void]
"""An array of `BATCH_DTYPE`, shape (n,), such as ``scan.batches``."""

_MAX_SEQUENCE = 2**31 - 1
_LOWEST, _HIGHEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


def require_batch_table(batches: Any) -> BatchTable:
    """
    Return the table, with contiguous rows.

    Raises
    ------
    TypeError
        If it is not a one-dimensional array of `BATCH_DTYPE`.
    """
    if not isinstance(batches, np.ndarray) or batches.dtype != BATCH_DTYPE or batches.ndim != 1:
        described, hint = type(batches).__name__, ""
        if isinstance(batches, np.ndarray):
            described = f"{batches.ndim}-dimensional array of {batches.dtype}"
            hint = "; for a mask, pass scan.batches[mask]" if batches.dtype == np.bool_ else ""
        elif hasattr(batches, "batches"):
            hint = "; pass its .batches"
        raise TypeError(f"expected a one-dimensional array of BATCH_DTYPE, got {described}{hint}")
    return np.ascontiguousarray(batches)


def join_rows(tables: Sequence[NDArray[np.void]], dtype: np.dtype[np.void]) -> NDArray[np.void]:
    """
    Concatenate the rows of tables into a new one.

    NumPy copies structured arrays field by field; copying rows without holes as bytes takes a
    tenth of the time.
    """
    if not tables:
        return np.empty(0, dtype)
    return result_memory.concatenate([table.view(np.uint8) for table in tables]).view(dtype)


def join_tables(tables: Sequence[BatchTable]) -> BatchTable:
    """Concatenate the rows of batch tables into a new one."""
    return join_rows(tables, BATCH_DTYPE)


def last_offset(batches: BatchTable) -> NDArray[np.int64]:
    """
    Offset of the last record, even if compaction has removed it.

    Returns
    -------
    ndarray of int64, shape (n,)
        ``base_offset + last_offset_delta`` (``DefaultRecordBatch.lastOffset``).
    """
    result: NDArray[np.int64] = batches["base_offset"] + batches["last_offset_delta"]
    return result


def next_offset(batches: BatchTable) -> NDArray[np.int64]:
    """
    Offset after the last record.

    Returns
    -------
    ndarray of int64, shape (n,)
        ``last_offset + 1`` (``AbstractRecordBatch.nextOffset``).
    """
    result: NDArray[np.int64] = last_offset(batches) + 1
    return result


def offset_after(batches: BatchTable) -> int:
    """Return `next_offset` of the last one of some batches, as a number."""
    return _wrapped(int(batches["base_offset"][-1]) + int(batches["last_offset_delta"][-1]) + 1)


def offset_before(end_offset: int) -> int:
    """Return the offset before what `offset_after` returns."""
    return _wrapped(end_offset - 1)


def _wrapped(offset: int) -> int:
    """Return an offset as 64 bits have it."""
    return (offset + 2**63) % 2**64 - 2**63


def size_in_bytes(batches: BatchTable) -> NDArray[np.int64]:
    """
    Size of the batch in the file, its header included.

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
        -1 if the batch has none. Sequences wrap from 2147483647 to 0
        (``DefaultRecordBatch.incrementSequence``).
    """
    base = batches["base_sequence"]
    delta = batches["last_offset_delta"].astype(np.int64)
    # Casting to int32 wraps around, as Java's int arithmetic does.
    room = (_MAX_SEQUENCE - delta).astype(np.int32)
    wrapped = (delta - (_MAX_SEQUENCE - base.astype(np.int64)) - 1).astype(np.int32)
    plain = (base + delta).astype(np.int32)
    result: NDArray[np.int32] = np.where(base > room, wrapped, plain)
    result[base == NO_SEQUENCE] = NO_SEQUENCE
    return result


def compression_type(batches: BatchTable) -> NDArray[np.int8]:
    """
    Compression codec of each batch.

    Returns
    -------
    ndarray of int8, shape (n,)
        Values of `CompressionType`; 5, 6 and 7 are not assigned.
    """
    result: NDArray[np.int8] = (batches["attributes"] & COMPRESSION_MASK).astype(np.int8)
    return result


def timestamp_type(batches: BatchTable) -> NDArray[np.int8]:
    """
    Whether the producer or the broker set the timestamps.

    Returns
    -------
    ndarray of int8, shape (n,)
        Values of `TimestampType`; always -1 for magic 0, which has no timestamps
        (``LegacyRecord.timestampType``).
    """
    result: NDArray[np.int8] = ((batches["attributes"] & TIMESTAMP_TYPE_BIT) != 0).astype(np.int8)
    result[batches["magic"] == 0] = TimestampType.NO_TIMESTAMP_TYPE
    return result


def _has_v2_bit(batches: BatchTable, bit: int) -> NDArray[np.bool_]:
    """Return where a bit is set that is defined for magic 2 only."""
    result: NDArray[np.bool_] = (batches["attributes"] & bit) != 0
    if result.any():
        result &= batches["magic"] == 2
    return result


def is_transactional(batches: BatchTable) -> NDArray[np.bool_]:
    """
    Whether batches are part of a transaction (KIP-98).

    Returns
    -------
    ndarray of bool, shape (n,)
    """
    return _has_v2_bit(batches, TRANSACTIONAL_BIT)


def is_control(batches: BatchTable) -> NDArray[np.bool_]:
    """
    Whether batches contain control records: transaction markers and KRaft's records.

    Returns
    -------
    ndarray of bool, shape (n,)
    """
    return _has_v2_bit(batches, CONTROL_BIT)


def delete_horizon_ms(batches: BatchTable) -> NDArray[np.int64]:
    """
    Time from which on compaction may remove tombstones or the marker of a batch (KIP-534).

    Returns
    -------
    ndarray of int64, shape (n,)
        Milliseconds since the epoch; -1 for no horizon.
    """
    has_horizon = _has_v2_bit(batches, DELETE_HORIZON_BIT)
    return np.where(has_horizon, batches["base_timestamp"], NO_TIMESTAMP)


def first_timestamp(batches: BatchTable) -> NDArray[np.int64]:
    """
    Timestamp of the first record of each batch, as far as its header contains it.

    With LOG_APPEND_TIME, that is the timestamp of every record. Otherwise records that follow may
    be earlier, because producers choose their timestamps. Headers of magic 0 and 1, and those with
    a delete horizon, contain the `max_timestamp` only, which is returned for them.

    Returns
    -------
    ndarray of int64, shape (n,)
        Milliseconds since the epoch; -1 for none.
    """
    base = batches["base_timestamp"]
    is_first = (batches["magic"] == 2) & (timestamp_type(batches) == TimestampType.CREATE_TIME)
    is_first &= ~_has_v2_bit(batches, DELETE_HORIZON_BIT) & (base != NO_TIMESTAMP)
    return np.where(is_first, base, batches["max_timestamp"])


def as_datetime64(milliseconds: NDArray[np.int64]) -> NDArray[np.datetime64]:
    """
    Convert timestamps from milliseconds to datetime64.

    Parameters
    ----------
    milliseconds : array of int64
        Milliseconds since the epoch, such as ``batches["max_timestamp"]``.

    Returns
    -------
    ndarray of datetime64[ms], same shape
        UTC; NaT for no timestamp (-1).
    """
    values = np.array(milliseconds, dtype=np.int64)
    values[values == NO_TIMESTAMP] = np.iinfo(np.int64).min  # NaT
    return values.view("datetime64[ms]")


DERIVED: dict[str, Callable[[BatchTable], NDArray[Any]]] = {
    one.name: globals()[one.name]
    for one in BATCH_SCHEMA
    if one.name not in (BATCH_DTYPE.names or ())
}
"""The functions of this module that derive columns, by name."""

COLUMN_NAMES: tuple[str, ...] = BATCH_SCHEMA.names
"""The names of `BATCH_SCHEMA`."""

TIMESTAMP_COLUMNS: frozenset[str] = frozenset(
    field.name for field in BATCH_SCHEMA if field.type == "time"
)


def column(batches: BatchTable, name: str) -> NDArray[Any]:
    """
    A column of the table, stored or derived.

    Returns
    -------
    ndarray, shape (n,)

    Raises
    ------
    UnknownColumnError
        If there is no such column; the message suggests a similar name.
    """
    require_columns([name])
    return DERIVED[name](batches) if name in DERIVED else batches[name]


def require_columns(names: list[str]) -> None:
    """Raise `UnknownColumnError` if a name is not the name of a column."""
    require_items(str, columns=names)
    for name in names:
        if name not in COLUMN_NAMES:
            hint = suggestion(name, COLUMN_NAMES)
            raise UnknownColumnError(f"there is no batch column {name!r}{hint}")


# ---- selection -----------------------------------------------------------------------------


def select_offsets(
    batches: BatchTable, start: int | None = None, stop: int | None = None
) -> NDArray[np.bool_]:
    """
    Select the batches that contain offsets of ``[start, stop)``.

    Parameters
    ----------
    batches : array of BATCH_DTYPE, shape (n,)
    start, stop : int, optional
        None means no limit.

    Returns
    -------
    ndarray of bool, shape (n,)
        A compressed message of magic 0 or 1 is selected by its last offset, the only one
        that its header contains.
    """
    mask = np.ones(len(batches), np.bool_)
    if start is not None:
        require_integers(start=start)
        mask &= last_offset(batches) >= start
    if stop is not None:
        require_integers(stop=stop)
        mask &= batches["base_offset"] < stop
    return mask


def rows_from(batches: BatchTable, offset: int) -> BatchTable:
    """Return the rows from the first batch on that contains an offset or a later one."""
    if not len(batches) or batches["base_offset"][0] >= offset:
        return batches
    return batches[first_reaching(batches, offset) :]


def first_reaching(batches: BatchTable, offset: int) -> int:
    """Return the row of the first batch whose last offset is not below an offset."""
    reaching = last_offset(batches) >= offset
    return int(np.argmax(reaching)) if reaching.any() else len(batches)


def select_times(
    batches: BatchTable, start: TimeLike | None = None, stop: TimeLike | None = None
) -> NDArray[np.bool_]:
    """
    Select the batches that may contain records with timestamps of ``[start, stop)``.

    Headers contain the latest timestamp of a batch, but not the earliest: a batch is left out if
    all of its records are earlier than `start`. One whose records are later than `stop` is left
    out only if its header has the timestamp of all its records: with LOG_APPEND_TIME, and
    uncompressed messages of magic 0 and 1. To select records, use `read_records` with
    ``from_time`` and ``to_time``.

    Parameters
    ----------
    batches : array of BATCH_DTYPE, shape (n,)
    start, stop : int, str, datetime, numpy.datetime64 or pandas.Timestamp, optional
        An int is milliseconds since the epoch, a str in ISO 8601; without a zone, it is UTC.
        None means no limit.

    Returns
    -------
    ndarray of bool, shape (n,)

    Raises
    ------
    TypeError, ValueError
        If a time is not one.
    """
    mask = np.ones(len(batches), np.bool_)
    earliest, latest = timestamp_bounds(batches)
    if start is not None:
        mask &= latest >= moment_of(start, "start")
    if stop is not None:
        mask &= earliest < moment_of(stop, "stop")
    return mask


def timestamp_bounds(batches: BatchTable) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """
    Return the earliest and the latest timestamp that the records of batches may have.

    A record of magic 2 may be older than the batch's base timestamp, so only the latest is known,
    unless the broker has set it for the whole batch (KIP-32). The header of a compressed message
    of magic 0 or 1 decides nothing; a plain message is one record.
    """
    stored, is_v2 = batches["max_timestamp"], batches["magic"] >= 2
    is_appended = timestamp_type(batches) == TimestampType.LOG_APPEND_TIME
    is_plain = compression_type(batches) == 0
    earliest = np.where(np.where(is_v2, is_appended, is_plain), stored, _LOWEST)
    return earliest, np.where(is_v2 | is_plain, stored, _HIGHEST)
