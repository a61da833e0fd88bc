"""Write batches to the files of a partition, as a broker that appends them does."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import numpy as np

from kafkascan.batches.columns import (
    BatchTable,
    join_tables,
    last_offset,
    next_offset,
    size_in_bytes,
)
from kafkascan.batches.scan import iter_batches
from kafkascan.batches.verify import verify_crcs
from kafkascan.batches.walks import read_bytes
from kafkascan.broker_state.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    LeaderEpoch,
    PartitionMetadata,
    leader_epochs_file,
    partition_metadata_file,
)
from kafkascan.broker_state.indexes import (
    DEFAULT_INTERVAL_BYTES,
    build_indexes,
    require_interval_bytes,
)
from kafkascan.broker_state.leader_epochs import assign_epoch
from kafkascan.broker_state.producer_snapshots import snapshot_file, transaction_index_entries
from kafkascan.broker_state.producer_state import ProducerState
from kafkascan.format.errors import (
    SENTENCES,
    STATUS,
    BatchTableError,
    CorruptBatchError,
    record_error,
)
from kafkascan.format.layout import (
    OFFSET_INDEX_ENTRY,
    TIME_INDEX_ENTRY,
    ScanEnd,
)
from kafkascan.io.atomic_files import adopt_folder, sync_folder
from kafkascan.io.sources import Source, SourceLike, borrowed_source

DEFAULT_SEGMENT_BYTES = 1 << 30
"""Kafka's ``segment.bytes``."""

DEFAULT_SEGMENT_MS = 7 * 24 * 3600 * 1000
"""Kafka's ``segment.ms``."""

DEFAULT_MAX_INDEX_BYTES = 10 << 20
"""Kafka's ``segment.index.bytes``."""

_MAX_INT = 2**31 - 1
_COPY_SIZE = 1 << 22
# Stands for the epoch of messages of magic 0 and 1, which have none.
_LEGACY = -2


class SegmentWriter:
    """
    Writes the files of a partition: segments, indexes, producer snapshots, leader epochs.

    The folder is written under a temporary name and renamed when the writer is closed, so it
    appears complete and durable, or not at all. It contains the same segments, index entries and
    snapshots as the folder of a broker that appended the same batches one by one and stopped.

    Parameters
    ----------
    partition_dir : path
        Such as ``orders-0``; it must not exist, or be empty.
    base_offset : int, optional
        Start offset of the log; by default that of the first batch.
    segment_bytes : int, default 1 GiB
        Kafka's ``segment.bytes``: maximum size of a segment.
    segment_ms : int, default 7 days
        Kafka's ``segment.ms``: maximum difference between the timestamp of a batch and that of
        its segment's first batch.
    interval_bytes : int, default 4096
        Kafka's ``index.interval.bytes``.
    max_index_bytes : int, default 10 MiB
        Kafka's ``segment.index.bytes``: a segment ends when one of its indexes is full.
    topic_id : str, optional
        Topic id for ``partition.metadata``, 22 characters of base64; KRaft brokers need it.
    verify : bool, default True
        Verify checksums, as a broker does before it appends.

    Attributes
    ----------
    partition_dir : Path
    base_offsets : list of int
        Base offsets of the segments so far.
    next_offset : int or None
        Lowest possible base offset of the next batch; None before the first one.

    Raises
    ------
    FileExistsError
        If the folder is not empty.
    ValueError
        If a limit is out of range.
    """

    def __init__(
        self,
        partition_dir: str | os.PathLike[str],
        /,
        *,
        base_offset: int | None = None,
        segment_bytes: int = DEFAULT_SEGMENT_BYTES,
        segment_ms: int = DEFAULT_SEGMENT_MS,
        interval_bytes: int = DEFAULT_INTERVAL_BYTES,
        max_index_bytes: int = DEFAULT_MAX_INDEX_BYTES,
        topic_id: str | None = None,
        verify: bool = True,
    ) -> None:
        self.partition_dir = Path(os.path.realpath(partition_dir))
        self.base_offsets: list[int] = []
        self.next_offset = base_offset
        self._limits = _Limits(segment_bytes, segment_ms, interval_bytes, max_index_bytes)
        self._topic_id = topic_id
        self._verify = verify
        self._state = ProducerState()
        self._epochs: list[LeaderEpoch] = []
        self._had_epochs = False
        self._segment: _OpenSegment | None = None
        if self.partition_dir.exists() and any(self.partition_dir.iterdir()):
            raise FileExistsError(f"{self.partition_dir} is not empty")
        parent, name = self.partition_dir.parent, self.partition_dir.name
        self._folder: Path | None = Path(
            tempfile.mkdtemp(prefix=f".{name}.", suffix=".part", dir=parent)
        )
        if base_offset is not None:
            self._open_segment(base_offset)

    def append(self, batches: SourceLike, /) -> int:
        """
        Append batches, as if one by one.

        Parameters
        ----------
        batches : path, bytes-like, Source or SegmentFile
            Complete batches, such as the result of `build_batches` or a segment.

        Returns
        -------
        int
            Number of appended batches.

        Raises
        ------
        CorruptBatchError, InvalidRecordError
            If a batch is invalid, a checksum is wrong, or Kafka would reject a marker.
        BatchTableError
            If offsets do not increase, or a batch is larger than a segment.

        Notes
        -----
        After an error the writer must be discarded, which its context manager does.
        """
        count = 0
        # Not closed here: an error's traceback may hold a table that views it.
        with borrowed_source(batches, close=False) as source:
            walk = iter_batches(source)
            for rows in walk:
                self._append(source, rows)
                count += len(rows)
            if walk.end is not ScanEnd.CLEAN:
                symbol = "TORN_TAIL"
                raise CorruptBatchError(
                    source.path, walk.position, None, SENTENCES[STATUS[symbol]], symbol
                )
        return count

    def _append(self, source: Source, rows: BatchTable) -> None:
        if self._folder is None:
            raise ValueError("the writer is closed")
        self._require_appendable(source, rows)
        while len(rows):
            if self._segment is None:
                self._open_segment(self._base_for(rows))
            assert self._segment is not None
            taken = self._segment.room_for(rows, self._limits)
            if taken == 0:
                self._roll(self._base_for(rows))
                continue
            self._write(source, rows[:taken])
            rows = rows[taken:]

    def _require_appendable(self, source: Source, rows: BatchTable) -> None:
        ends = next_offset(rows)
        before = np.concatenate([[-1 if self.next_offset is None else self.next_offset], ends[:-1]])
        wrong = np.flatnonzero((rows["base_offset"] < before) | (rows["last_offset_delta"] < 0))
        if len(wrong):
            row = int(wrong[0])
            raise BatchTableError(source.path, row, STATUS["OFFSETS_NOT_ASCENDING"])
        large = np.flatnonzero(size_in_bytes(rows) > self._limits.segment_bytes)
        if len(large):
            raise BatchTableError(source.path, int(large[0]), STATUS["RECORD_TOO_LARGE"])
        if self._verify and not (sound := verify_crcs(source, rows)).all():
            row = int(np.flatnonzero(~sound)[0])
            raise record_error("CHECKSUM_MISMATCH", source.path, rows[row])

    def _base_for(self, rows: BatchTable) -> int:
        """Return the base offset of a segment that begins with a batch (``maybeRoll``)."""
        first = int(rows["base_offset"][0])
        if rows["magic"][0] < 2:
            # A wrapper's base_offset is its last offset; the broker does not decompress it.
            first -= _MAX_INT
        return max(first, self.next_offset or 0)

    def _open_segment(self, base_offset: int) -> None:
        """Start a segment; a snapshot belongs to every segment whose base offset is not 0."""
        assert self._folder is not None
        self._segment = _OpenSegment(self._folder, base_offset)
        self.base_offsets.append(base_offset)
        if base_offset > 0:
            self._take_snapshot(base_offset)

    def _roll(self, base_offset: int) -> None:
        self._finish_segment()
        self._open_segment(base_offset)

    def _write(self, source: Source, rows: BatchTable) -> None:
        assert self._segment is not None
        completed = self._state.apply(source, rows).require_accepted()
        self._segment.write(source, rows)
        self._segment.aborted.append(transaction_index_entries(completed))
        self._update_epochs(rows)
        self.next_offset = int(next_offset(rows[-1:])[0])

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

    # ---- close ---------------------------------------------------------------------------

    def close(self) -> None:
        """
        Complete the files, and rename the folder to `partition_dir`.

        Raises
        ------
        FileExistsError
            If `partition_dir` has been created in the meantime and is not empty.
        OSError
            If the files cannot be written; the temporary folder is removed.
        """
        if self._folder is None:
            return
        try:
            if self._segment is None:
                self._open_segment(self.next_offset or 0)
            self._finish_segment()
            if self.next_offset not in (None, *self.base_offsets):
                self._take_snapshot(self.next_offset)
            self._write_small_files()
            adopt_folder(self._folder, like=self.partition_dir.parent)
            os.replace(self._folder, self.partition_dir)
            sync_folder(self.partition_dir.parent)
            self._folder = None
        finally:
            self.discard()

    def discard(self) -> None:
        """Remove the temporary folder, unless the writer is closed."""
        if self._segment is not None:
            self._segment.log.close()
            self._segment = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _finish_segment(self) -> None:
        assert self._segment is not None
        assert self._folder is not None
        for suffix, data in self._segment.finish(self._limits):
            _write_file(self._folder / f"{self._segment.base_offset:020}.{suffix}", data)
        self._segment = None

    def _take_snapshot(self, offset: int | None) -> None:
        assert self._folder is not None
        _write_file(self._folder / f"{offset:020}.snapshot", snapshot_file(self._state.entries()))

    def _write_small_files(self) -> None:
        assert self._folder is not None
        # A broker leaves the file empty until it has an epoch.
        epochs = leader_epochs_file(self._epochs) if self._had_epochs else b""
        _write_file(self._folder / LEADER_EPOCH_CHECKPOINT, epochs)
        if self._topic_id is not None:
            path = self._folder / "partition.metadata"
            _write_file(path, partition_metadata_file(PartitionMetadata(0, self._topic_id)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def __del__(self) -> None:
        if getattr(self, "_folder", None) is not None:
            self.discard()


@dataclass(frozen=True)
class _Limits:
    """Limits that end a segment (``LogSegment.shouldRoll``)."""

    segment_bytes: int
    segment_ms: int
    interval_bytes: int
    max_index_bytes: int

    def __post_init__(self) -> None:
        if not 0 < self.segment_bytes <= _MAX_INT or self.segment_ms < 0:
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


class _OpenSegment:
    """The segment that is appended to."""

    def __init__(self, folder: Path, base_offset: int) -> None:
        self.base_offset = base_offset
        self.log: IO[bytes] = (folder / f"{base_offset:020}.log").open("xb", buffering=0)
        self.size = 0
        self.aborted: list[np.ndarray[tuple[int], np.dtype[np.void]]] = []
        self._tables: list[BatchTable] = []
        self._first_timestamp = -1

    def room_for(self, rows: BatchTable, limits: _Limits) -> int:
        """Return how many of the first batches belong to this segment."""
        first_timestamp = self._first_timestamp if self.size else int(rows["max_timestamp"][0])
        is_out = self.size + np.cumsum(size_in_bytes(rows)) > limits.segment_bytes
        is_out |= last_offset(rows) - self.base_offset > _MAX_INT
        if first_timestamp >= 0:
            is_late = rows["max_timestamp"] - first_timestamp > limits.segment_ms
            is_out |= is_late
        count = int(np.argmax(is_out)) if is_out.any() else len(rows)
        if limits.can_fill_an_index:
            count = min(count, self._room_of_indexes(rows[:count], limits))
        return count

    def _room_of_indexes(self, rows: BatchTable, limits: _Limits) -> int:
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

    def finish(self, limits: _Limits) -> Iterator[tuple[str, bytes]]:
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


def _write_file(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
