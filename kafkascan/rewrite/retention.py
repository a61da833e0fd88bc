"""Retention of batches after filtering (keep, empty, delete), as in `MemoryRecords.filterTo`.

A log whose last batch loses all records keeps the header of that batch, also for magic 0 and 1.
Otherwise the next append would use its offsets again; `filterTo` leaves that to its callers.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, compression_type, delete_horizon_ms, last_offset
from kafkascan.format.layout import DELETE_HORIZON_BIT, NO_TIMESTAMP, TIMESTAMP_TYPE_BIT
from kafkascan.records.record_table import RecordTable
from kafkascan.rewrite.batch_stream import FLAGS, blank_rows


class BatchRetention(enum.IntEnum):
    """Rule for a batch that has no records after filtering (``MemoryRecords.RecordFilter``)."""

    DELETE = 0
    """Drop the batch, whatever it contains."""
    DELETE_EMPTY = 1
    """Drop the batch if none of its records is kept."""
    RETAIN_EMPTY = 2
    """Keep its header, with its producer's last sequence and its last offset."""


@dataclass(frozen=True, eq=False)
class BatchRetentionPlan:
    """
    A plan of how each batch of a record table is written.

    Attributes
    ----------
    records : RecordTable
        All records of the batches.
    is_kept : ndarray of bool, shape (records,)
        Which records are kept.
    kept : ndarray of int64, shape (n,)
        Number of kept records of each batch.
    is_copied, is_rewritten, is_emptied, is_dropped : ndarray of bool, shape (n,)
        What is done with the batch; exactly one of them is true.
    keeps_last_offset : ndarray of bool, shape (n,)
        Whether a rewritten message keeps its last offset.
    new_horizon : ndarray of int64, shape (n,)
        The delete horizon that a batch gets; -1 if it keeps its own.
    """

    records: RecordTable
    is_kept: NDArray[np.bool_]
    kept: NDArray[np.int64]
    is_copied: NDArray[np.bool_]
    is_rewritten: NDArray[np.bool_]
    is_emptied: NDArray[np.bool_]
    is_dropped: NDArray[np.bool_]
    keeps_last_offset: NDArray[np.bool_]
    new_horizon: NDArray[np.int64]

    def new_rows(self) -> BatchTable:
        """Return the headers of all batches, as if each of them were rewritten."""
        old = self.records.batches
        rows = blank_rows(len(old))
        for name in ("partition_leader_epoch", "producer_id", "producer_epoch", "base_sequence"):
            rows[name] = old[name]
        rows["records_count"] = self.kept
        self._set_offsets(rows)
        self._set_timestamps(rows)
        return rows

    def _set_offsets(self, rows: BatchTable) -> None:
        old, offsets = self.records.batches, self.records.columns["offset"]
        has_records, is_legacy = self.kept > 0, old["magic"] < 2
        first = np.where(has_records, self._first_kept(offsets), old["base_offset"])
        old_last = last_offset(old)
        last = np.where(has_records, self._first_kept(offsets, last=True), old_last)
        last = np.where(self.keeps_last_offset, old_last, last)
        rows["base_offset"] = np.where(is_legacy, first, old["base_offset"])
        rows["last_offset_delta"] = np.where(is_legacy, last - first, old_last - old["base_offset"])

    def _set_timestamps(self, rows: BatchTable) -> None:
        """Set the timestamps of the batches, and the attributes that depend on them."""
        old, timestamps = self.records.batches, self.records.columns["timestamp"]
        is_empty, is_legacy = self.kept == 0, old["magic"] < 2
        latest = np.full(len(old), NO_TIMESTAMP)
        batch = self.records.columns["batch"]
        np.maximum.at(latest, batch[self.is_kept], timestamps[self.is_kept])
        is_appended = (old["magic"] > 0) & ((old["attributes"] & TIMESTAMP_TYPE_BIT) != 0)
        rows["max_timestamp"] = np.where(is_appended | is_empty, old["max_timestamp"], latest)
        gets_horizon = self.new_horizon != NO_TIMESTAMP
        horizon = np.where(gets_horizon, self.new_horizon, delete_horizon_ms(old))
        has_horizon = ~is_empty & (horizon != NO_TIMESTAMP)
        base = np.where(has_horizon, horizon, self._first_kept(timestamps))
        rows["base_timestamp"] = np.where(is_empty, NO_TIMESTAMP, base)
        flags = np.where(is_legacy, is_appended * TIMESTAMP_TYPE_BIT, old["attributes"] & FLAGS)
        codecs = np.where(is_empty, 0, compression_type(old))
        rows["attributes"] = flags | codecs | (has_horizon * DELETE_HORIZON_BIT)

    def _first_kept(self, values: NDArray[np.int64], *, last: bool = False) -> NDArray[np.int64]:
        """Return the value of each batch's first, or last, kept record; 0 if it has none."""
        found = np.zeros(len(self.kept), np.int64)
        batch, kept = self.records.columns["batch"][self.is_kept], values[self.is_kept]
        step = 1 if last else -1  # NumPy assigns in order: the last assignment remains.
        found[batch[::step]] = kept[::step]
        return found


def plan_retention(
    records: RecordTable,
    is_kept: NDArray[np.bool_],
    retention: NDArray[np.int8],
    new_horizon: int | None,
    ends_empty: NDArray[np.bool_],
) -> BatchRetentionPlan:
    """
    Plan how batches are written when some of their records are dropped.

    Parameters
    ----------
    records : RecordTable
        All records of the batches, with offset, timestamp, key, value and headers.
    is_kept : ndarray of bool, shape (records,)
    retention : ndarray of `BatchRetention`, shape (n,)
    new_horizon : int or None
        Delete horizon of batches that keep a tombstone and have none.
    ends_empty : ndarray of bool, shape (n,)
        Control batches that get the horizon, too.
    """
    rows, batch = records.batches, records.columns["batch"]
    total = np.bincount(batch, minlength=len(rows))
    kept = np.bincount(batch[is_kept], minlength=len(rows))
    gets_horizon = np.zeros(len(rows), np.bool_)
    if new_horizon is not None:
        is_tombstone = is_kept & (records.columns["value_size"] < 0)
        has_tombstone = np.bincount(batch[is_tombstone], minlength=len(rows)) > 0
        gets_horizon = (has_tombstone | ends_empty) & (delete_horizon_ms(rows) == NO_TIMESTAMP)
    has_records = kept > 0
    is_unchanged = (kept == total) & (rows["magic"] == 2) & ~gets_horizon
    is_emptied = ~has_records & (retention == BatchRetention.RETAIN_EMPTY)
    return BatchRetentionPlan(
        records=records,
        is_kept=is_kept,
        kept=kept,
        is_copied=has_records & is_unchanged,
        is_rewritten=has_records & ~is_unchanged,
        is_emptied=is_emptied,
        is_dropped=~has_records & ~is_emptied,
        keeps_last_offset=retention == BatchRetention.RETAIN_EMPTY,
        new_horizon=np.where(gets_horizon, new_horizon or 0, NO_TIMESTAMP),
    )
