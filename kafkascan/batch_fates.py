"""What becomes of batches whose records are dropped."""

from __future__ import annotations

import enum

import numpy as np
from numpy.typing import NDArray

from kafkascan.batch_columns import BatchTable, compression_type, delete_horizon_ms, last_offset
from kafkascan.layout import DELETE_HORIZON_BIT, NO_TIMESTAMP, TIMESTAMP_TYPE_BIT
from kafkascan.record_table import RecordTable
from kafkascan.rewriting import FLAGS, blank_rows


class BatchRetention(enum.IntEnum):
    """What becomes of a batch without records (``MemoryRecords.RecordFilter``)."""

    DELETE = 0
    """It goes, whatever is in it."""
    DELETE_EMPTY = 1
    """It goes if nothing of it is kept."""
    RETAIN_EMPTY = 2
    """Its header stays, with its producer's last sequence and its last offset."""


class BatchFates:
    """What becomes of each batch of a table whose records are read."""

    def __init__(
        self,
        records: RecordTable,
        kept: NDArray[np.bool_],
        retention: NDArray[np.int8],
        new_horizon: int | None,
        ends_empty: NDArray[np.bool_],
    ) -> None:
        rows, batch = records.batches, records.columns["batch"]
        self._rows, self._records, self._kept = rows, records, kept
        self._is_last = retention == BatchRetention.RETAIN_EMPTY
        total = np.bincount(batch, minlength=len(rows))
        self.kept = np.bincount(batch[kept], minlength=len(rows))
        self._gets_horizon = np.zeros(len(rows), np.bool_)
        self._horizon = new_horizon
        if new_horizon is not None:
            is_tombstone = kept & (records.columns["value_size"] < 0)
            has_tombstone = np.bincount(batch[is_tombstone], minlength=len(rows)) > 0
            self._gets_horizon = (has_tombstone | ends_empty) & (
                delete_horizon_ms(rows) == NO_TIMESTAMP
            )
        has_some = self.kept > 0
        is_whole = (self.kept == total) & (rows["magic"] == 2) & ~self._gets_horizon
        self.is_copied = has_some & is_whole
        self.is_rewritten = has_some & ~is_whole
        self.is_emptied = ~has_some & (retention == BatchRetention.RETAIN_EMPTY)
        self.is_dropped = ~has_some & ~self.is_emptied

    def new_rows(self) -> BatchTable:
        """Return what the headers of all batches say, as if all of them were written anew."""
        old, columns = self._rows, self._records.columns
        rows = blank_rows(len(old))
        for name in ("partition_leader_epoch", "producer_id", "producer_epoch", "base_sequence"):
            rows[name] = old[name]
        rows["records_count"] = self.kept
        first, last, latest = self._ends(columns["offset"], columns["timestamp"])
        is_legacy = old["magic"] < 2
        # The log ends where it did, also if it ends with a message.
        last = np.where(self._is_last, last_offset(old), last)
        rows["base_offset"] = np.where(is_legacy, first, old["base_offset"])
        rows["last_offset_delta"] = np.where(
            is_legacy, last - first, last_offset(old) - old["base_offset"]
        )
        is_appended = (old["magic"] > 0) & ((old["attributes"] & TIMESTAMP_TYPE_BIT) != 0)
        is_empty = self.kept == 0
        rows["max_timestamp"] = np.where(is_appended | is_empty, old["max_timestamp"], latest)
        horizon = np.where(self._gets_horizon, self._horizon or 0, delete_horizon_ms(old))
        has_horizon = ~is_empty & (horizon != NO_TIMESTAMP)
        first_time = self._first(columns["timestamp"])
        rows["base_timestamp"] = np.where(
            is_empty, NO_TIMESTAMP, np.where(has_horizon, horizon, first_time)
        )
        flags = np.where(is_legacy, is_appended * TIMESTAMP_TYPE_BIT, old["attributes"] & FLAGS)
        codecs = np.where(is_empty, 0, compression_type(old))
        rows["attributes"] = flags | codecs | (has_horizon * DELETE_HORIZON_BIT)
        return rows

    def _ends(
        self, offsets: NDArray[np.int64], timestamps: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return first and last offset, and the latest time, of what is kept of each batch."""
        first = np.where(self.kept > 0, self._first(offsets), self._rows["base_offset"])
        last = np.where(self.kept > 0, self._first(offsets, last=True), last_offset(self._rows))
        latest = np.full(len(self._rows), NO_TIMESTAMP)
        np.maximum.at(latest, self._records.columns["batch"][self._kept], timestamps[self._kept])
        return first, last, latest

    def _first(self, values: NDArray[np.int64], *, last: bool = False) -> NDArray[np.int64]:
        """Return the first, or the last, value of what is kept of each batch; 0 if nothing is."""
        found = np.zeros(len(self._rows), np.int64)
        batch, kept = self._records.columns["batch"][self._kept], values[self._kept]
        step = 1 if last else -1  # of several, the one that is assigned last stays
        found[batch[::step]] = kept[::step]
        return found
