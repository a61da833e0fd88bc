"""The log that batches are appended to: its segments, producer snapshots and leader epochs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import (
    BatchTable,
    join_tables,
    last_offset,
    next_offset,
    offset_after,
    size_in_bytes,
)
from kafkascan.batches.scan import iter_batches
from kafkascan.batches.verify import verify_crcs
from kafkascan.broker_state.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    LeaderEpoch,
    leader_epochs_file,
)
from kafkascan.broker_state.indexes import build_indexes, require_interval_bytes
from kafkascan.broker_state.leader_epochs import assign_epoch
from kafkascan.broker_state.producer_snapshots import snapshot_file, transaction_index_entries
from kafkascan.broker_state.producer_state import ProducerState
from kafkascan.format.arguments import require_integers
from kafkascan.format.errors import (
    SENTENCES,
    STATUS,
    BatchTableError,
    CorruptBatchError,
    record_error,
)
from kafkascan.format.layout import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY, ScanEnd
from kafkascan.io.sources import Source, read_bytes

# Stands for the epoch of messages of magic 0 and 1, which have none.
_LEGACY = -2
# Largest difference between an offset and the base offset of its segment.
_MAX_RELATIVE_OFFSET = 2**31 - 1
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
        if not 0 < self.segment_bytes <= _MAX_RELATIVE_OFFSET or self.segment_ms < 0:
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
        is_out |= last_offset(rows) - self.base_offset > _MAX_RELATIVE_OFFSET
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


class AppendedLog:
    """
    Writes the files of a log to a folder. It is in an undefined state after an error.

    Parameters
    ----------
    folder : Path
    limits : SegmentLimits
    base_offset : int or None
        Start offset of the log; None for that of the first batch.
    verify : bool
        Verify checksums.

    Attributes
    ----------
    base_offsets : list of int
        Base offsets of the segments so far.
    next_offset : int or None
        Lowest possible base offset of the next batch.
    """

    def __init__(
        self, folder: Path, limits: SegmentLimits, *, base_offset: int | None, verify: bool
    ) -> None:
        self.base_offsets: list[int] = []
        self.next_offset = base_offset
        self._start_offset = base_offset
        self._folder = folder
        self._limits = limits
        self._verify = verify
        self._state = ProducerState()
        self._epochs: list[LeaderEpoch] = []
        self._had_epochs = False
        self._segment: AppendedSegment | None = None

    def append(self, source: Source) -> int:
        """Append all batches of a source, as if one by one; return their number."""
        count = 0
        walk = iter_batches(source)
        for rows in walk:
            self._require_appendable(source, rows)
            self._append(source, rows)
            count += len(rows)
        if walk.end is not ScanEnd.CLEAN:
            symbol = "TORN_TAIL"
            raise CorruptBatchError(
                source.path, walk.position, None, SENTENCES[STATUS[symbol]], symbol
            )
        return count

    def finish(self, partition_metadata: bytes | None) -> None:
        """Write the files that a broker leaves when it stops."""
        segment = self._segment or self._open_segment(self.next_offset or 0)
        self._finish_segment(segment)
        if self.next_offset not in (None, *self.base_offsets):
            self._take_snapshot(self.next_offset)
        # A broker leaves the file empty until it has an epoch.
        epochs = leader_epochs_file(self._epochs) if self._had_epochs else b""
        _write_file(self._folder / LEADER_EPOCH_CHECKPOINT, epochs)
        if partition_metadata is not None:
            _write_file(self._folder / PARTITION_METADATA, partition_metadata)

    def abandon(self) -> None:
        """Close the open file."""
        if self._segment is not None:
            self._segment.log.close()
            self._segment = None

    # ---- batches -------------------------------------------------------------------------

    def _require_appendable(self, source: Source, rows: BatchTable) -> None:
        first, ends = rows["base_offset"], next_offset(rows)
        _refuse(source, (first < 0) | (ends < 0), "OFFSET_OUT_OF_RANGE")
        before = np.concatenate([[self.next_offset or 0], ends[:-1]])
        is_wrong = (first < before) | (rows["last_offset_delta"] < 0)
        _refuse(source, is_wrong, "OFFSETS_NOT_ASCENDING", least=before)
        _refuse(source, size_in_bytes(rows) > self._limits.segment_bytes, "RECORD_TOO_LARGE")
        if self._verify and not (sound := verify_crcs(source, rows)).all():
            row = int(np.flatnonzero(~sound)[0])
            raise record_error("CHECKSUM_MISMATCH", source.path, rows[row])

    def _append(self, source: Source, rows: BatchTable) -> None:
        while len(rows):
            segment = self._segment or self._open_segment(self._first_base_for(rows))
            taken = segment.room_for(rows, self._limits)
            if taken == 0:
                self._finish_segment(segment)
                self._open_segment(self._base_for(rows))
                continue
            self._write(source, rows[:taken], segment)
            rows = rows[taken:]

    def _write(self, source: Source, rows: BatchTable, segment: AppendedSegment) -> None:
        completed = self._state.apply(source, rows).require_accepted()
        segment.write(source, rows)
        segment.aborted.append(transaction_index_entries(completed))
        self._update_epochs(rows)
        self.next_offset = offset_after(rows)

    def _update_epochs(self, rows: BatchTable) -> None:
        """Update leader epochs; a message of magic 0 or 1 has none, and clears the epochs."""
        epochs = np.where(rows["magic"] < 2, _LEGACY, rows["partition_leader_epoch"])
        for row in np.flatnonzero(np.diff(epochs, prepend=-1)).tolist():
            epoch = LeaderEpoch(int(epochs[row]), int(rows["base_offset"][row]))
            if epoch.epoch == _LEGACY:
                self._epochs.clear()
            elif not self._epochs or self._epochs[-1].epoch != epoch.epoch:
                assign_epoch(self._epochs, epoch)
                self._had_epochs |= bool(self._epochs)

    # ---- segments ------------------------------------------------------------------------

    def _first_base_for(self, rows: BatchTable) -> int:
        return self._base_for(rows) if self._start_offset is None else self._start_offset

    def _base_for(self, rows: BatchTable) -> int:
        """Return the base offset of a segment that begins with a batch (``maybeRoll``)."""
        first = int(rows["base_offset"][0])
        if rows["magic"][0] < 2:
            # A wrapper's base_offset is its last offset; the broker does not decompress it.
            first -= _MAX_RELATIVE_OFFSET
        return max(first, self.next_offset or 0)

    def _open_segment(self, base_offset: int) -> AppendedSegment:
        """Start a segment; a snapshot belongs to every segment whose base offset is not 0."""
        self._segment = AppendedSegment(self._folder, base_offset)
        self.base_offsets.append(base_offset)
        if base_offset > 0:
            self._take_snapshot(base_offset)
        return self._segment

    def _finish_segment(self, segment: AppendedSegment) -> None:
        for suffix, data in segment.finish(self._limits):
            _write_file(self._folder / f"{segment.base_offset:020}.{suffix}", data)
        self._segment = None

    def _take_snapshot(self, offset: int | None) -> None:
        _write_file(self._folder / f"{offset:020}.snapshot", snapshot_file(self._state.entries()))


def _refuse(
    source: Source,
    is_wrong: NDArray[np.bool_],
    symbol: str,
    least: NDArray[np.int64] | None = None,
) -> None:
    """Raise an error about the first wrong row, with the least offset that it may have."""
    for row in np.flatnonzero(is_wrong)[:1].tolist():
        advice = "" if least is None else f"build it with offset={least[row]} or higher"
        raise BatchTableError(source.path, row, STATUS[symbol], advice=advice)


def _write_file(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
