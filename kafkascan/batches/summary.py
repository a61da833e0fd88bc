"""Totals of batch tables: batches, records, bytes, offsets, times, codecs, formats."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import screening as _core
from kafkascan.batches.columns import BatchTable, last_offset
from kafkascan.format.layout import CompressionType


@dataclass
class BatchSummary:
    """
    Totals of the batches of a log. Tables are added one after the other, in log order.

    Attributes
    ----------
    batches : int
    records : int
        Records of the batches that declare a count.
    uncounted_batches : int
        Compressed messages of magic 0 and 1: only decompression counts their records.
    first_offset, last_offset : int or None
        Base offset of the first batch and last offset of the last one. None without
        batches; `first_offset` also if the log starts with a compressed message of
        magic 0 or 1, whose header contains its last offset only.
    first_timestamp : int or None
        Earliest timestamp of a batch's first record, in milliseconds since the epoch; see
        `kafkascan.batches.first_timestamp`. A later record of a batch may be earlier. None if no
        batch has a timestamp.
    max_timestamp : int or None
        Latest `max_timestamp` of the batches; None if no batch has one.
    codecs : Counter of str
        Batches by codec.
    codec_sizes : Counter of str
        Bytes of the batches by codec.
    magics : Counter of int
        Batches by format.
    transactional_batches, control_batches : int
    """

    batches: int = 0
    records: int = 0
    uncounted_batches: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    first_timestamp: int | None = None
    max_timestamp: int | None = None
    codecs: Counter[str] = field(default_factory=Counter)
    codec_sizes: Counter[str] = field(default_factory=Counter)
    magics: Counter[int] = field(default_factory=Counter)
    transactional_batches: int = 0
    control_batches: int = 0

    def add(self, batches: BatchTable) -> None:
        """Add the next batches of the log."""
        if not len(batches):
            return
        if self.batches == 0 and not is_uncounted(batches[:1])[0]:
            self.first_offset = int(batches["base_offset"][0])
        self.batches += len(batches)
        self.last_offset = int(last_offset(batches[-1:])[0])
        _core.add_up(np.ascontiguousarray(batches), totals := np.empty(_core.TOTAL_COUNT, np.int64))
        records, uncounted, transactional, control, timed, low, high = totals[:7].tolist()
        self.records += records
        self.uncounted_batches += uncounted
        self.transactional_batches += transactional
        self.control_batches += control
        if timed:
            known = self.first_timestamp, self.max_timestamp
            self.first_timestamp = low if known[0] is None else min(low, known[0])
            self.max_timestamp = high if known[1] is None else max(high, known[1])
        for code, (count, size) in enumerate(totals[7:23].reshape(2, 8).T.tolist()):
            if count:
                name = CompressionType.name_of(code)
                self.codecs[name] += count
                self.codec_sizes[name] += size
        magics = totals[23:]
        for magic in np.flatnonzero(magics).astype(np.int8).tolist():
            self.magics[magic] += int(magics[magic])


def summarize(batches: BatchTable) -> BatchSummary:
    """Return the summary of one table."""
    summary = BatchSummary()
    summary.add(batches)
    return summary


def is_uncounted(batches: BatchTable) -> NDArray[np.bool_]:
    """Return which batches are compressed messages of magic 0 and 1."""
    result: NDArray[np.bool_] = (batches["records_count"] < 0) & (batches["magic"] < 2)
    return result
