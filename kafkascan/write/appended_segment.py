"""The segment of a log that batches are appended to, and the limits that end it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from kafkascan.batches.columns import BatchTable, join_tables, last_offset, size_in_bytes
from kafkascan.batches.walks import read_bytes
from kafkascan.broker_state.indexes import build_indexes, require_interval_bytes
from kafkascan.format.arguments import require_integers
from kafkascan.format.layout import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY
from kafkascan.io.sources import Source

MAX_RELATIVE_OFFSET = 2**31 - 1
"""Largest difference between an offset and the base offset of its segment."""

_COPY_SIZE = 1 << 22


@dataclass(frozen=True)
class SegmentLimits:
    """Limits that end a segment (``LogSegment.shouldRoll``)."""

    segment_bytes: int
    segment_ms: int
    interval_bytes: int
    max_index_bytes: int

    def __post_init__(self) -> None:
        require_integers(segment_bytes=self.segment_bytes, segment_ms=self.segment_ms)
        if not 0 < self.segment_bytes <= MAX_RELATIVE_OFFSET or self.segment_ms < 0:
            raise ValueError("segment limits are out of range: 1 <= segment_bytes < 2**31")
        require_interval_bytes(self.interval_bytes)
        if self.max_time_entries < 1:
            raise ValueError(f"max_index_bytes is too small for indexes: {self.max_index_bytes}")

    @property
    def max_offset_entries(self) -> int:
        """Entries of a full offset index."""
        return self.max_index_bytes // OFFSET_INDEX_ENTRY.itemsize

    @property
    def max_time_entries(self) -> int:
        """Entries of a full time index; one is reserved for the end (``TimeIndex.isFull``)."""
        return self.max_index_bytes // TIME_INDEX_ENTRY.itemsize - 1

    @property
    def can_fill_an_index(self) -> bool:
        """Whether a segment of maximum size can fill an index."""
        entries = self.segment_bytes // (self.interval_bytes + 1) + 1
        return entries >= min(self.max_offset_entries, self.max_time_entries)


class AppendedSegment:
    """The segment that is appended to."""

    def __init__(self, folder: Path, base_offset: int) -> None:
        self.base_offset = base_offset
        self.log: IO[bytes] = (folder / f"{base_offset:020}.log").open("xb", buffering=0)
        self.size = 0
        self.aborted: list[np.ndarray[tuple[int], np.dtype[np.void]]] = []
        self._tables: list[BatchTable] = []
        self._first_timestamp = -1

    def room_for(self, rows: BatchTable, limits: SegmentLimits) -> int:
        """Return how many of the first batches belong to this segment."""
        first_timestamp = self._first_timestamp if self.size else int(rows["max_timestamp"][0])
        is_out = self.size + np.cumsum(size_in_bytes(rows)) > limits.segment_bytes
        is_out |= last_offset(rows) - self.base_offset > MAX_RELATIVE_OFFSET
        if first_timestamp >= 0:
            is_late = rows["max_timestamp"] - first_timestamp > limits.segment_ms
            is_out |= is_late
        count = int(np.argmax(is_out)) if is_out.any() else len(rows)
        if limits.can_fill_an_index:
            count = min(count, self._room_of_indexes(rows[:count], limits))
        return count

    def _room_of_indexes(self, rows: BatchTable, limits: SegmentLimits) -> int:
        """Return how many batches fit until one takes the last entry of an index."""
        known = sum(map(len, self._tables))
        all_rows = join_tables([*self._tables, self._moved(rows)])
        offsets, _ = build_indexes(all_rows, self.base_offset, limits.interval_bytes)
        indexed = np.searchsorted(all_rows["position"], offsets["position"].astype(np.int64))
        latest = np.maximum.accumulate(np.maximum(all_rows["max_timestamp"], -1))[indexed]
        timed = indexed[np.diff(latest, prepend=np.int64(-1)) > 0]
        stop = len(all_rows)
        for entries, most in (
            (indexed, limits.max_offset_entries),
            (timed, limits.max_time_entries),
        ):
            if len(entries) >= most:
                stop = min(stop, int(entries[most - 1]) + 1)
        return stop - known

    def _moved(self, rows: BatchTable) -> BatchTable:
        """Return rows with their positions in this segment."""
        moved = join_tables([rows])
        moved["position"] = self.size + np.cumsum(size_in_bytes(rows)) - size_in_bytes(rows)
        return moved

    def write(self, source: Source, rows: BatchTable) -> None:
        """Append adjacent batches of a source."""
        moved = self._moved(rows)
        start = int(rows["position"][0])
        end = start + int(size_in_bytes(rows).sum())
        for at in range(start, end, _COPY_SIZE):
            _write_all(self.log, read_bytes(source, at, min(_COPY_SIZE, end - at)))
        if self.size == 0:
            self._first_timestamp = int(rows["max_timestamp"][0])
        self._tables.append(moved)
        self.size += end - start

    def finish(self, limits: SegmentLimits) -> Iterator[tuple[str, bytes]]:
        """Sync the log, and yield suffix and content of each other file of the segment."""
        os.fsync(self.log.fileno())
        self.log.close()
        rows = join_tables(self._tables)
        offsets, times = build_indexes(rows, self.base_offset, limits.interval_bytes)
        yield "index", offsets.tobytes()
        yield "timeindex", times.tobytes()
        aborted = b"".join(entries.tobytes() for entries in self.aborted)
        if aborted:
            yield "txnindex", aborted


def _write_all(file: IO[bytes], data: bytes) -> None:
    """Write all bytes to an unbuffered file, whose `write` may accept a part of them."""
    remaining = memoryview(data)
    while remaining:
        remaining = remaining[file.write(remaining) :]
