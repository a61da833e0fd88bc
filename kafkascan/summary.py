"""What a log holds, in a few numbers, from batch tables alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kafkascan.batch_columns import (
    BatchTable,
    compression_type,
    is_control,
    is_transactional,
    last_offset,
)
from kafkascan.layout import NO_TIMESTAMP, CompressionType


@dataclass
class BatchSummary:
    """
    Numbers about batches; tables are added one after the other, in log order.

    Attributes
    ----------
    batches : int
    records : int
        Of the batches that declare how many they hold.
    uncounted_batches : int
        Compressed messages of magic 0 and 1, whose records only decompression counts.
    first_offset, last_offset : int or None
        Base offset of the first batch, last offset of the last one. None without
        batches; the first one also if the log starts with a compressed message of
        magic 0 or 1, whose header tells its last offset only.
    min_timestamp, max_timestamp : int or None
        Of the batches' `max_timestamp`, in milliseconds since the epoch; None without any.
    codecs : Counter of str
        Batches by codec.
    magics : Counter of int
        Batches by format.
    transactional_batches, control_batches : int
    """

    batches: int = 0
    records: int = 0
    uncounted_batches: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    min_timestamp: int | None = None
    max_timestamp: int | None = None
    codecs: Counter[str] = field(default_factory=Counter)
    magics: Counter[int] = field(default_factory=Counter)
    transactional_batches: int = 0
    control_batches: int = 0

    def add(self, batches: BatchTable) -> None:
        """Add the batches that follow."""
        if not len(batches):
            return
        counts = batches["records_count"]
        if self.batches == 0 and not _is_uncounted(batches[:1])[0]:
            self.first_offset = int(batches["base_offset"][0])
        self.batches += len(batches)
        self.records += int(counts.sum(dtype=np.int64, where=counts > 0))
        self.uncounted_batches += int(_is_uncounted(batches).sum())
        self.last_offset = int(last_offset(batches[-1:])[0])
        self._add_timestamps(batches["max_timestamp"])
        for code, count in _value_counts(compression_type(batches)):
            self.codecs[CompressionType.name_of(code)] += count
        for magic, count in _value_counts(batches["magic"]):
            self.magics[magic] += count
        self.transactional_batches += int(is_transactional(batches).sum())
        self.control_batches += int(is_control(batches).sum())

    def _add_timestamps(self, timestamps: NDArray[np.int64]) -> None:
        timestamps = timestamps[timestamps != NO_TIMESTAMP]
        if not len(timestamps):
            return
        low, high = int(timestamps.min()), int(timestamps.max())
        self.min_timestamp = low if self.min_timestamp is None else min(low, self.min_timestamp)
        self.max_timestamp = high if self.max_timestamp is None else max(high, self.max_timestamp)


def summarize(batches: BatchTable) -> BatchSummary:
    """Return the summary of one table."""
    summary = BatchSummary()
    summary.add(batches)
    return summary


def _is_uncounted(batches: BatchTable) -> NDArray[np.bool_]:
    result: NDArray[np.bool_] = (batches["records_count"] < 0) & (batches["magic"] < 2)
    return result


def _value_counts(values: NDArray[np.int8]) -> list[tuple[int, int]]:
    found, counts = np.unique(values, return_counts=True)
    return list(zip(found.tolist(), counts.tolist(), strict=True))
