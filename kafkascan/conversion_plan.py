"""What becomes of each batch when formats and codecs change, and what its new header says."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kafkascan.batch_columns import (
    BatchTable,
    compression_type,
    delete_horizon_ms,
    is_control,
    is_transactional,
    size_in_bytes,
)
from kafkascan.layout import NO_TIMESTAMP, TIMESTAMP_TYPE_BIT, CompressionType
from kafkascan.record_table import RecordTable
from kafkascan.rewriting import blank_rows

# Offsets of a batch lie within an int32 of its first one.
_MOST_OFFSETS = 1 << 31


class ConversionPlan:
    """
    What becomes of some batches.

    Parameters
    ----------
    rows : array of BATCH_DTYPE, shape (n,)
    to_magic : int or None
    codec : CompressionType or None
        None, both, for what each batch has.
    batch_size : int
        As of `convert_records`.

    Attributes
    ----------
    rows : ndarray of BATCH_DTYPE, shape (n,)
    magic, codec : ndarray of int8, shape (n,)
        What each batch is to have.
    is_copied, is_recompressed, is_encoded, is_dropped : ndarray of bool, shape (n,)
        Each batch is one of these.
    is_impossible : ndarray of bool, shape (n,)
        Its new format does not have the codec.
    """

    def __init__(
        self, rows: BatchTable, to_magic: int | None, codec: CompressionType | None, batch_size: int
    ) -> None:
        self.rows, self._batch_size = rows, batch_size
        magic, old_codec = rows["magic"], compression_type(rows)
        self.magic = magic if to_magic is None else np.full(len(rows), to_magic, np.int8)
        self.codec = old_codec if codec is None else np.full(len(rows), codec, np.int8)
        is_empty = (magic == 2) & (rows["records_count"] == 0)
        # Kafka does not compress control records, and nothing is gained by no records at all.
        stays_plain = (old_codec == CompressionType.NONE) & (is_control(rows) | is_empty)
        self.codec = np.where(stays_plain, old_codec, self.codec)
        self.is_dropped = (self.magic < 2) & (is_control(rows) | is_empty)
        is_same = ~self.is_dropped & (self.magic == magic)
        self.is_copied = is_same & ((self.codec == old_codec) | is_empty)
        self.is_recompressed = is_same & ~self.is_copied & (magic == 2)
        self.is_encoded = ~(self.is_dropped | self.is_copied | self.is_recompressed)
        is_late = (self.magic < 2) & (self.codec >= CompressionType.ZSTD)
        unknown = old_codec > CompressionType.ZSTD
        self.is_impossible = ~self.is_dropped & ~self.is_copied & (is_late | unknown)

    def new_rows(
        self, records: RecordTable
    ) -> tuple[BatchTable, NDArray[np.int64], NDArray[np.intp]]:
        """
        Say what the headers of encoded batches are.

        Parameters
        ----------
        records : RecordTable
            Of the batches that are encoded.

        Returns
        -------
        rows : array of BATCH_DTYPE, shape (m,)
        counts : ndarray of int64, shape (m,)
            Records of each.
        owners : ndarray of int, shape (m,)
            The batch that each stands in the place of, counted among those that are encoded.
        """
        chosen = np.flatnonzero(self.is_encoded)
        old, magic, codec = self.rows[chosen], self.magic[chosen], self.codec[chosen]
        batch = records.columns["batch"]
        group = self._gathered(old, magic, codec)[batch]
        is_alone = ((magic < 2) & (codec == CompressionType.NONE))[batch]
        # A new batch begins where the group changes, and with each message by itself.
        begins = np.ones(len(batch), np.bool_)
        begins[1:] = (group[1:] != group[:-1]) | is_alone[1:]
        first = np.flatnonzero(begins)
        counts = np.diff(np.append(first, len(batch)))
        owners = batch[first].astype(np.intp)
        rows = _headers(records, first, counts, old[owners], magic[owners], codec[owners])
        return rows, counts, owners

    def _gathered(
        self, old: BatchTable, magic: NDArray[np.int8], codec: NDArray[np.int8]
    ) -> NDArray[np.int64]:
        """Number the new batches that old ones become part of."""
        if not len(old):
            return np.empty(0, np.int64)
        is_message = (old["magic"] < 2) & (compression_type(old) == CompressionType.NONE)
        can_join = is_message & ((magic == 2) | (codec != CompressionType.NONE))
        appended = _append_times(old)
        breaks = ~(can_join[1:] & can_join[:-1]) | (appended[1:] != appended[:-1])
        breaks |= (old["magic"][1:] != old["magic"][:-1]) | (np.diff(old["base_offset"]) <= 0)
        # Neighbours in the log, so that order is kept where others stand between them.
        breaks |= np.diff(np.flatnonzero(self.is_encoded)) > 1
        starts = np.append(0, np.flatnonzero(breaks) + 1)
        run = np.repeat(starts, np.diff(np.append(starts, len(old))))
        sizes = size_in_bytes(old)
        before = np.cumsum(sizes) - sizes
        part = (before - before[run]) // self._batch_size
        span = (old["base_offset"] - old["base_offset"][run]) // _MOST_OFFSETS
        changes = breaks | (np.diff(part) != 0) | (np.diff(span) != 0)
        return np.append(0, np.cumsum(changes))

    def lost_of_records(self, records: RecordTable) -> dict[str, int]:
        """Count what records lose that are encoded anew."""
        chosen = np.flatnonzero(self.is_encoded)
        magic = self.magic[chosen][records.columns["batch"]]
        headers = records.columns["headers_count"][magic < 2]
        stamps = records.columns["timestamp"][magic == 0]
        return {
            "headers": int(headers.sum(dtype=np.int64)),
            "timestamps": int(np.count_nonzero(stamps != NO_TIMESTAMP)),
        }


def losses(plan: ConversionPlan) -> dict[str, int]:
    """Count what batches lose whose new format is older than magic 2."""
    rows = plan.rows[(plan.rows["magic"] == 2) & (plan.magic < 2)]
    control = is_control(rows)
    data = rows[~control]
    found = {
        "control_batches": control,
        "empty_batches": data["records_count"] == 0,
        "transactional_batches": is_transactional(data),
        "idempotent_batches": data["producer_id"] >= 0,
        "leader_epochs": rows["partition_leader_epoch"] >= 0,
        "delete_horizons": delete_horizon_ms(rows) != NO_TIMESTAMP,
    }
    return {name: int(np.count_nonzero(mask)) for name, mask in found.items()}


def _append_times(rows: BatchTable) -> NDArray[np.int64]:
    """When batches of LOG_APPEND_TIME were appended; -2 for others."""
    is_appended = (rows["magic"] > 0) & ((rows["attributes"] & TIMESTAMP_TYPE_BIT) != 0)
    return np.where(is_appended, rows["max_timestamp"], -2)


def _headers(
    records: RecordTable,
    first: NDArray[np.int64],
    counts: NDArray[np.int64],
    old: BatchTable,
    magic: NDArray[np.int8],
    codec: NDArray[np.int8],
) -> BatchTable:
    """Return the rows of batches that begin with some records, whoever wrote them forgotten."""
    offsets, timestamps = records.columns["offset"], records.columns["timestamp"]
    rows = blank_rows(len(first))
    rows["magic"] = magic
    rows["records_count"] = counts
    rows["base_offset"] = offsets[first]
    rows["last_offset_delta"] = offsets[first + counts - 1] - offsets[first]
    rows["base_timestamp"] = timestamps[first]
    appended = _append_times(old)
    is_appended = (appended != -2) & (magic > 0)
    latest = np.maximum.reduceat(timestamps, first) if len(first) else timestamps[:0]
    latest = np.where(is_appended, appended, np.maximum(latest, NO_TIMESTAMP))
    rows["max_timestamp"] = np.where(magic > 0, latest, NO_TIMESTAMP)
    rows["attributes"] = codec | (is_appended * TIMESTAMP_TYPE_BIT)
    return rows
