"""Plan a format or codec conversion batch by batch, and the headers of the new batches.

Batches of magic 2 that only change their codec are recompressed, not encoded again: the bytes of
their records, with deltas and attributes, stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import (
    BatchTable,
    compression_type,
    delete_horizon_ms,
    is_control,
    is_transactional,
    size_in_bytes,
)
from kafkascan.format.arguments import require_integers
from kafkascan.format.layout import NO_TIMESTAMP, TIMESTAMP_TYPE_BIT, CompressionType
from kafkascan.records.compression import compression
from kafkascan.records.read_options import DEFAULT_MAX_DECOMPRESSED_SIZE
from kafkascan.records.record_table import RecordTable
from kafkascan.rewrite.batch_stream import blank_rows

DEFAULT_GATHERED_SIZE = 16384
"""Bytes of messages that are gathered into one batch; Kafka's ``batch.size`` of producers."""

# A batch spans fewer offsets than this: last_offset_delta is an int32.
_MAX_OFFSET_SPAN = 1 << 31
_NOT_APPENDED = -2


@dataclass(frozen=True, kw_only=True)
class ConversionOptions:
    """
    Validated options of `convert_records`.

    Attributes
    ----------
    codec : CompressionType or None
        The new codec; None if each batch keeps its own.
    """

    to_magic: int | None = None
    compression_type: CompressionType | str | int | None = None
    compression_level: int | None = None
    batch_size: int = DEFAULT_GATHERED_SIZE
    threads: int | None = None
    max_decompressed_size: int = DEFAULT_MAX_DECOMPRESSED_SIZE
    codec: CompressionType | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.to_magic not in (None, 0, 1, 2):
            raise ValueError(f"to_magic must be 0, 1 or 2, not {self.to_magic}")
        require_integers(batch_size=self.batch_size)
        if self.batch_size < 1:
            raise ValueError("batch_size must be at least 1")
        if self.compression_type is None:
            if self.compression_level is not None:
                raise ValueError("compression_level needs a compression_type")
            return
        magic = 2 if self.to_magic is None else self.to_magic
        how = compression(self.compression_type, self.compression_level, magic=magic)
        object.__setattr__(self, "codec", how.codec)


class EncodedHeaders(NamedTuple):
    """
    Headers of the batches that a conversion encodes.

    Attributes
    ----------
    rows : array of BATCH_DTYPE, shape (m,)
    counts : ndarray of int64, shape (m,)
        Number of records in each.
    owners : ndarray of int, shape (m,)
        The first old batch that each replaces: an index among the encoded batches of the plan.
    """

    rows: BatchTable
    counts: NDArray[np.int64]
    owners: NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class ConversionPlan:
    """
    How each batch of a table is converted.

    Attributes
    ----------
    rows : ndarray of BATCH_DTYPE, shape (n,)
    magic, codec : ndarray of int8, shape (n,)
        Format and codec of the new batches.
    is_dropped, is_copied, is_recompressed, is_encoded : ndarray of bool, shape (n,)
        What is done with the batch; exactly one of them is true.
    is_impossible : ndarray of bool, shape (n,)
        The new format does not have the codec.
    batch_size : int
        See `convert_records`.
    """

    rows: BatchTable
    magic: NDArray[np.int8]
    codec: NDArray[np.int8]
    is_dropped: NDArray[np.bool_]
    is_copied: NDArray[np.bool_]
    is_recompressed: NDArray[np.bool_]
    is_encoded: NDArray[np.bool_]
    is_impossible: NDArray[np.bool_]
    batch_size: int

    def encoded_headers(self, records: RecordTable) -> EncodedHeaders:
        """
        Return the headers of the encoded batches.

        Parameters
        ----------
        records : RecordTable
            The records of the encoded batches.
        """
        chosen = np.flatnonzero(self.is_encoded)
        old, magic, codec = self.rows[chosen], self.magic[chosen], self.codec[chosen]
        batch = records.columns["batch"]
        group = self._new_batch_of(old, magic, codec)[batch]
        is_message = ((magic < 2) & (codec == CompressionType.NONE))[batch]
        # A new batch begins where the group changes; every plain message is a batch.
        begins = np.ones(len(batch), np.bool_)
        begins[1:] = (group[1:] != group[:-1]) | is_message[1:]
        first = np.flatnonzero(begins)
        counts = np.diff(np.append(first, len(batch)))
        owners = batch[first].astype(np.intp)
        rows = _headers(records, first, counts, old[owners], magic[owners], codec[owners])
        return EncodedHeaders(rows, counts, owners)

    def _new_batch_of(
        self, old: BatchTable, magic: NDArray[np.int8], codec: NDArray[np.int8]
    ) -> NDArray[np.int64]:
        """Return the number of the new batch that each old one becomes part of."""
        if not len(old):
            return np.empty(0, np.int64)
        is_message = (old["magic"] < 2) & (compression_type(old) == CompressionType.NONE)
        can_join = is_message & ((magic == 2) | (codec != CompressionType.NONE))
        appended = _append_times(old)
        breaks = ~(can_join[1:] & can_join[:-1]) | (appended[1:] != appended[:-1])
        breaks |= (old["magic"][1:] != old["magic"][:-1]) | (np.diff(old["base_offset"]) <= 0)
        # Only neighbours in the log are joined: batches between them keep their order.
        breaks |= np.diff(np.flatnonzero(self.is_encoded)) > 1
        starts = np.append(0, np.flatnonzero(breaks) + 1)
        run = np.repeat(starts, np.diff(np.append(starts, len(old))))
        sizes = size_in_bytes(old)
        before = np.cumsum(sizes) - sizes
        part = (before - before[run]) // self.batch_size
        span = (old["base_offset"] - old["base_offset"][run]) // _MAX_OFFSET_SPAN
        changes = breaks | (np.diff(part) != 0) | (np.diff(span) != 0)
        return np.append(0, np.cumsum(changes))

    def lost_of_batches(self) -> dict[str, int]:
        """Count the properties of batches that formats below magic 2 do not have."""
        rows = self.rows[(self.rows["magic"] == 2) & (self.magic < 2)]
        control = is_control(rows)
        data = rows[~control]
        lost = {
            "control_batches": control,
            "empty_batches": data["records_count"] == 0,
            "transactional_batches": is_transactional(data),
            "idempotent_batches": data["producer_id"] >= 0,
            "leader_epochs": rows["partition_leader_epoch"] >= 0,
            "delete_horizons": delete_horizon_ms(rows) != NO_TIMESTAMP,
        }
        return {name: int(np.count_nonzero(mask)) for name, mask in lost.items()}

    def lost_of_records(self, records: RecordTable) -> dict[str, int]:
        """Count the properties of encoded records that their new format does not have."""
        chosen = np.flatnonzero(self.is_encoded)
        magic = self.magic[chosen][records.columns["batch"]]
        headers = records.columns["headers_count"][magic < 2]
        stamps = records.columns["timestamp"][magic == 0]
        return {
            "headers": int(headers.sum(dtype=np.int64)),
            "timestamps": int(np.count_nonzero(stamps != NO_TIMESTAMP)),
        }


def plan_conversion(rows: BatchTable, options: ConversionOptions) -> ConversionPlan:
    """Plan how each batch of a table is converted."""
    magic, old_codec = rows["magic"], compression_type(rows)
    new_magic = _filled(options.to_magic, magic)
    is_empty = (magic == 2) & (rows["records_count"] == 0)
    # Kafka compresses neither control records nor batches without records.
    stays_plain = (old_codec == CompressionType.NONE) & (is_control(rows) | is_empty)
    codec = np.where(stays_plain, old_codec, _filled(options.codec, old_codec))
    is_dropped = (new_magic < 2) & (is_control(rows) | is_empty)
    is_same = ~is_dropped & (new_magic == magic)
    is_copied = is_same & ((codec == old_codec) | is_empty)
    is_recompressed = is_same & ~is_copied & (magic == 2)
    is_unsupported = (new_magic < 2) & (codec >= CompressionType.ZSTD)
    is_unknown = old_codec > CompressionType.ZSTD
    return ConversionPlan(
        rows=rows,
        magic=new_magic,
        codec=codec,
        is_dropped=is_dropped,
        is_copied=is_copied,
        is_recompressed=is_recompressed,
        is_encoded=~(is_dropped | is_copied | is_recompressed),
        is_impossible=~is_dropped & ~is_copied & (is_unsupported | is_unknown),
        batch_size=options.batch_size,
    )


def _filled(value: int | None, default: NDArray[np.int8]) -> NDArray[np.int8]:
    return default if value is None else np.full(len(default), value, np.int8)


def _append_times(rows: BatchTable) -> NDArray[np.int64]:
    """Return the append time of LOG_APPEND_TIME batches; -2 for the other batches."""
    is_appended = (rows["magic"] > 0) & ((rows["attributes"] & TIMESTAMP_TYPE_BIT) != 0)
    return np.where(is_appended, rows["max_timestamp"], _NOT_APPENDED)


def _headers(
    records: RecordTable,
    first: NDArray[np.int64],
    counts: NDArray[np.int64],
    old: BatchTable,
    magic: NDArray[np.int8],
    codec: NDArray[np.int8],
) -> BatchTable:
    """Return the headers of new batches, without producer and leader epoch."""
    offsets, timestamps = records.columns["offset"], records.columns["timestamp"]
    rows = blank_rows(len(first))
    rows["magic"] = magic
    rows["records_count"] = counts
    rows["base_offset"] = offsets[first]
    rows["last_offset_delta"] = offsets[first + counts - 1] - offsets[first]
    rows["base_timestamp"] = timestamps[first]
    appended = _append_times(old)
    is_appended = (appended != _NOT_APPENDED) & (magic > 0)
    latest = np.maximum.reduceat(timestamps, first) if len(first) else timestamps[:0]
    latest = np.where(is_appended, appended, np.maximum(latest, NO_TIMESTAMP))
    rows["max_timestamp"] = np.where(magic > 0, latest, NO_TIMESTAMP)
    rows["attributes"] = codec | (is_appended * TIMESTAMP_TYPE_BIT)
    return rows
