"""How well producers compress: told by some of their batches, which are decompressed for it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kafkascan.batch_columns import BatchTable, compression_type, is_control
from kafkascan.codecs import DEFAULT_MAX_DECOMPRESSED_SIZE
from kafkascan.errors import KafkaScanError
from kafkascan.layout import BATCH_HEADER_SIZE, LOG_OVERHEAD
from kafkascan.log_dir import PartitionDir, SegmentFile
from kafkascan.logs import Piece
from kafkascan.payloads import load_payloads


class CompressionSample:
    """
    Chooses compressed batches of each producer, and decompresses them at last.

    Parameters
    ----------
    per_producer : int
        At most so many of each producer of each log.
    """

    def __init__(self, per_producer: int) -> None:
        if per_producer < 0:
            raise ValueError("sample must not be negative")
        self._most = per_producer
        # By log and producer: (segment, row as bytes), spread over the log by halving.
        self._chosen: dict[tuple[int, int], list[tuple[int, BatchTable]]] = {}
        self._every: dict[tuple[int, int], int] = {}
        self._seen: dict[tuple[int, int], int] = {}

    def add(self, piece: Piece) -> None:
        """Choose among the batches that follow."""
        batches = piece.batches
        if not self._most or not len(batches):
            return
        is_one = (compression_type(batches) != 0) & (batches["magic"] >= 2)
        is_one &= (batches["records_count"] > 0) & ~is_control(batches)
        rows = np.flatnonzero(is_one)
        ids = batches["producer_id"][rows]
        for producer_id in np.unique(ids).tolist():
            self._choose(piece, producer_id, rows[ids == producer_id])

    def _choose(self, piece: Piece, producer_id: int, rows: NDArray[np.intp]) -> None:
        key = piece.log, producer_id
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
            segment = int(piece.chunk.segment[row])
            chosen.append((segment, piece.batches[row : row + 1].copy()))
        self._every[key], self._seen[key] = every, seen + len(rows)

    def ratios(
        self,
        segments: Sequence[tuple[PartitionDir, SegmentFile]],
        log: NDArray[np.int32],
        counts: NDArray[np.void],
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the ratio of each row, and how many batches it is of."""
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
