"""Estimate compression ratios per producer from sampled batches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, compression_type, is_control
from kafkascan.format.errors import KafkaScanError
from kafkascan.format.layout import BATCH_HEADER_SIZE, LOG_OVERHEAD
from kafkascan.logs.log_dir import PartitionDir
from kafkascan.logs.segment import SegmentFile
from kafkascan.logs.walking.log_walk import LogSlice
from kafkascan.records.decompression import DEFAULT_MAX_DECOMPRESSED_SIZE
from kafkascan.records.payloads import load_payloads


class CompressionSample:
    """
    Samples compressed batches of each producer, and decompresses them for their ratios.

    Parameters
    ----------
    per_producer : int
        Largest number of batches per producer and log.
    """

    def __init__(self, per_producer: int) -> None:
        if per_producer < 0:
            raise ValueError("sample must not be negative")
        self._most = per_producer
        # By log and producer: (segment, batch), spread over the log by halving.
        self._chosen: dict[tuple[int, int], list[tuple[int, BatchTable]]] = {}
        self._every: dict[tuple[int, int], int] = {}
        self._seen: dict[tuple[int, int], int] = {}

    def add(self, log_slice: LogSlice) -> None:
        """Sample the next batches."""
        batches = log_slice.batches
        if not self._most or not len(batches):
            return
        is_one = (compression_type(batches) != 0) & (batches["magic"] >= 2)
        is_one &= (batches["records_count"] > 0) & ~is_control(batches)
        rows = np.flatnonzero(is_one)
        ids = batches["producer_id"][rows]
        for producer_id in np.unique(ids).tolist():
            self._choose(log_slice, producer_id, rows[ids == producer_id])

    def _choose(self, log_slice: LogSlice, producer_id: int, rows: NDArray[np.intp]) -> None:
        key = log_slice.log, producer_id
        chosen = self._chosen.setdefault(key, [])
        every, seen = self._every.get(key, 1), self._seen.get(key, 0)
        wanted = rows[(-seen) % every :: every]
        step = 1
        while len(chosen) + -(-len(wanted) // step) > 2 * self._most:
            if len(chosen) > self._most:
                del chosen[1::2]
            step *= 2
        every *= step
        for row in wanted[::step].tolist():
            segment = int(log_slice.chunk.segment[row])
            chosen.append((segment, log_slice.batches[row : row + 1].copy()))
        self._every[key], self._seen[key] = every, seen + len(rows)

    def ratios(
        self,
        segments: Sequence[tuple[PartitionDir, SegmentFile]],
        log: NDArray[np.int32],
        counts: NDArray[np.void],
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the compression ratio of each row, and its number of sampled batches."""
        ratios = np.where(counts["compressed_batches"] > 0, np.nan, 1.0)
        ratios[counts["batches"] == 0] = np.nan
        sampled = np.zeros(len(counts), np.int64)
        for row in np.flatnonzero(np.isnan(ratios)).tolist() if self._most else ():
            key = int(log[row]), int(counts["producer_id"][row])
            chosen = self._chosen.get(key, [])
            stored = plain = 0
            for segment, batch in chosen[:: max(1, len(chosen) // self._most)][: self._most]:
                size = _decompressed_size(segments[segment][1], batch)
                if size is not None:
                    stored += int(batch["batch_length"][0]) + LOG_OVERHEAD - BATCH_HEADER_SIZE
                    plain += size
                    sampled[row] += 1
            if stored:
                ratios[row] = plain / stored
        return ratios, sampled


def _decompressed_size(segment: SegmentFile, batch: BatchTable) -> int | None:
    try:
        with segment.borrow() as source:
            return int(load_payloads(source, batch, DEFAULT_MAX_DECOMPRESSED_SIZE).size[0])
    except (KafkaScanError, OSError):
        return None
