"""Replay producer state through a log and take snapshots as a broker does."""

from __future__ import annotations

import bisect

import numpy as np
from numpy.typing import NDArray

from kafkascan.broker_state.producer_snapshots import (
    parse_producer_snapshot,
    snapshot_file,
    unexpired,
)
from kafkascan.broker_state.producer_state import ProducerState
from kafkascan.format.errors import CorruptSnapshotError
from kafkascan.recovery.loading.loaded_segment import LoadedSegment, floor, offset_of, overlapping
from kafkascan.recovery.loading.planned_files import PlannedFiles


class Snapshots:
    """The producer snapshots of a partition, in the order of their offsets."""

    def __init__(self, files: PlannedFiles) -> None:
        self._files = files
        offsets = map(offset_of, files.names(".snapshot"))
        self.offsets = sorted([offset for offset in offsets if offset is not None])
        # The snapshot that was written last is read next.
        self._written: tuple[int, NDArray[np.void]] | None = None

    def write(self, offset: int, state: ProducerState) -> None:
        """Write the snapshot of an offset."""
        entries = state.entries()
        self._written = offset, entries
        data = snapshot_file(entries)
        self._files.write(_snapshot_name(offset), data, "the producers' state at this offset")
        place = bisect.bisect_left(self.offsets, offset)
        if self.offsets[place : place + 1] != [offset]:
            self.offsets.insert(place, offset)

    def read(self, offset: int) -> NDArray[np.void]:
        """Read the snapshot of an offset; `CorruptSnapshotError` if it cannot be read."""
        if self._written is not None and self._written[0] == offset:
            return self._written[1]
        name = _snapshot_name(offset)
        return parse_producer_snapshot(self._files.read(name), self._files.path(name))

    def delete(self, offset: int, reason: str, *, shortens_log: bool = False) -> None:
        """Delete the snapshot of an offset, if there is one."""
        place = bisect.bisect_left(self.offsets, offset)
        if self.offsets[place : place + 1] == [offset]:
            del self.offsets[place]
            self._files.delete(_snapshot_name(offset), reason, shortens_log=shortens_log)

    def delete_up_to(self, log_start: int) -> None:
        """Delete the snapshots of offsets up to the log start offset."""
        for offset in self.offsets[: bisect.bisect_right(self.offsets, log_start)]:
            self.delete(offset, f"it is not after the log start offset {log_start}")

    def delete_after(self, target: int) -> None:
        """Delete the snapshots of offsets after the one that the state is rebuilt for."""
        for offset in self.offsets[bisect.bisect_right(self.offsets, target) :]:
            self.delete(offset, f"the producer state after offset {target} is rebuilt")


class ProducerReplay:
    """
    Replays the producer state of a log: ``ProducerStateManager``.

    Parameters
    ----------
    snapshots : Snapshots
    now_ms, expiration_ms : int
        Producers that were idle for longer are dropped when a snapshot is loaded.

    Attributes
    ----------
    state : ProducerState
    map_end : int
        The offset after the last batch that the state covers.
    """

    def __init__(self, snapshots: Snapshots, *, now_ms: int, expiration_ms: int) -> None:
        self._snapshots = snapshots
        self._now_ms, self._expiration_ms = now_ms, expiration_ms
        self.state = ProducerState()
        self.map_end = 0
        self._last_snapshot = 0
        # First offsets of transactions that ended after the snapshot.
        self._ended: list[int] = []

    def take_snapshot(self) -> None:
        """Write a snapshot if the state covers more than the last snapshot."""
        if self.map_end > self._last_snapshot:
            self._snapshots.write(self.map_end, self.state)
            self._last_snapshot = self.map_end

    def rebuild(self, segments: list[LoadedSegment], log_start: int, target: int) -> None:
        """Replay the log up to an offset (``UnifiedLog.rebuildProducerState``)."""
        take_at = {segment.base_offset for segment in segments[-2:]} | {target}
        self._load(log_start, target)
        if target > self.map_end and target > 0:
            last = floor(segments, target)
            for segment in overlapping(segments, self.map_end, target):
                start = max(segment.base_offset, self.map_end, log_start)
                self.map_end = start
                if segment.base_offset in take_at:
                    self.take_snapshot()
                is_last = segment is segments[last]
                self._apply(segment, start, target if is_last else None)
        self.map_end = target
        self.take_snapshot()

    def _load(self, log_start: int, target: int) -> None:
        """Load the newest readable snapshot (``truncateAndReload``)."""
        self._snapshots.delete_up_to(log_start)
        self._snapshots.delete_after(target)
        if target == self.map_end:
            return
        self.map_end = self._last_snapshot = log_start
        for offset in reversed(self._snapshots.offsets.copy()):
            try:
                entries = self._snapshots.read(offset)
            except CorruptSnapshotError as error:
                self._snapshots.delete(offset, f"the snapshot cannot be read: {error.reason}")
                continue
            self.state = ProducerState(unexpired(entries, self._now_ms, self._expiration_ms))
            self.map_end = self._last_snapshot = offset
            return

    def _apply(self, segment: LoadedSegment, start: int, target: int | None) -> None:
        """Apply the batches from the one with offset `start` up to the one with offset `target`."""
        stop = None if target is None else segment.find(target)
        stop = segment.valid_bytes if stop is None else stop
        first = segment.find(start)
        if first is None:
            return
        if stop < first:
            raise segment.offsets_error()
        with segment.open() as source:
            applied = self.state.load(source, segment.batches(first, stop))
        completed = applied.require_accepted()
        self._ended += completed["first_offset"].tolist()

    @property
    def first_unstable_offset(self) -> int | None:
        """
        The first offset that Kafka considers unstable; None if there is none.

        This includes transactions that ended during the replay: Kafka assumes that their
        markers may not be replicated yet.
        """
        first_open = self.state.first_open_offset()
        return min(self._ended if first_open is None else [first_open, *self._ended], default=None)


def _snapshot_name(offset: int) -> str:
    return f"{offset:020}.snapshot"
