"""Directories of logs: a broker's data dir, the folder of a partition, a tar or prefix of them."""

from __future__ import annotations

import enum
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import TypeVar

from kafkascan.batches.columns import offset_after
from kafkascan.batches.scan import scan_batches
from kafkascan.broker_state.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT,
    PARTITION_METADATA,
    LeaderEpoch,
    parse_leader_epochs,
    parse_partition_metadata,
)
from kafkascan.broker_state.offset_checkpoints import read_offsets
from kafkascan.format.errors import CHANGED_WHILE_READ, FileGoneError, SourceReadError
from kafkascan.format.file_names import OFFSETS, SegmentName, parse_segment_name
from kafkascan.format.layout import ScanEnd
from kafkascan.format.texts import few_lines
from kafkascan.io.folders import DiskFolder, Folder, PinnedFolder, pinned_folder
from kafkascan.logs.segment import SegmentFile

Result = TypeVar("Result")


class SegmentKinds(enum.Flag):
    """Which files of partition folders `select_segments` returns."""

    LOG = enum.auto()
    """Live ``.log`` files: what a broker reads as the log."""

    KRAFT_SNAPSHOTS = enum.auto()
    """Snapshots of a metadata log (``.checkpoint``)."""

    LEFTOVERS = enum.auto()
    """Files on their way out or in (``.deleted``, ``.cleaned``, ``.swap``, ``.part``), and logs
    whose names have an offset that no log can have."""

    DROPPED_LOGS = enum.auto()
    """Files of partitions that are being deleted or are stray, as far as other flags select
    them."""

    ALL = LOG | KRAFT_SNAPSHOTS | LEFTOVERS | DROPPED_LOGS


@dataclass(frozen=True)
class PartitionDir:
    """
    The folder of one partition.

    Attributes
    ----------
    path : pathlib.Path
    topic : str or None
    partition : int or None
        Both are None if the folder is not named as Kafka names partition folders.
    state : str or None
        ``future``, ``delete`` or ``stray`` for a log that is being moved or dropped.
    folder : Folder
        Reads its files.
    """

    path: Path
    topic: str | None
    partition: int | None
    state: str | None
    folder: Folder

    def __repr__(self) -> str:
        return f"<PartitionDir {self.path}>"

    @property
    def segments(self) -> list[SegmentFile]:
        """
        All segments in log order.

        Leftovers (``.deleted``, ``.cleaned``, ``.swap``) follow the live segment of their
        offset; KRaft snapshots come last.
        """
        return select_segments(self, SegmentKinds.ALL)

    @property
    def log_segments(self) -> list[SegmentFile]:
        """The segments that a broker would read as the log, in order."""
        return select_segments(self, SegmentKinds.LOG | SegmentKinds.DROPPED_LOGS)

    @property
    def kraft_snapshots(self) -> list[SegmentFile]:
        """The snapshots of a metadata log, in order; each is a log of its own."""
        return select_segments(self, SegmentKinds.KRAFT_SNAPSHOTS | SegmentKinds.DROPPED_LOGS)

    @property
    def is_log(self) -> bool:
        """Whether a broker would load the log; it is not being deleted, nor stray."""
        return self.state is None or self.is_moving

    @property
    def is_moving(self) -> bool:
        """Whether the log is a copy that a broker is moving here from another data dir."""
        return self.state == "future"

    @property
    def topic_id(self) -> str | None:
        """
        The topic id in ``partition.metadata``; None if the file is missing (KIP-516).

        Raises
        ------
        CorruptCheckpointError
        """
        data = self.folder.read(PARTITION_METADATA)
        if data is None:
            return None
        path = str(self.path / PARTITION_METADATA)
        return parse_partition_metadata(data, path).topic_id

    @property
    def leader_epochs(self) -> list[LeaderEpoch] | None:
        """
        The entries of ``leader-epoch-checkpoint``; None if the file is missing.

        Raises
        ------
        CorruptCheckpointError
        """
        data = self.folder.read(LEADER_EPOCH_CHECKPOINT)
        path = os.path.join(self.path, LEADER_EPOCH_CHECKPOINT)
        return None if data is None else parse_leader_epochs(data, path)

    @property
    def log_start_offset(self) -> int | None:
        """
        The first offset that a broker serves; None without segments.

        It is the larger one of the first segment's base offset and the offset in the data
        dir's ``log-start-offset-checkpoint``.

        Raises
        ------
        CorruptCheckpointError
        """
        checkpoint = read_offsets(self.folder.parent, LOG_START_CHECKPOINT)
        for _ in range(_LISTINGS):  # before and after the listing
            start, known = self.start_offset(checkpoint), checkpoint
            checkpoint = read_offsets(self.folder.parent, LOG_START_CHECKPOINT)
            if checkpoint == known:
                break
        return start

    def start_offset(self, checkpoint: dict[tuple[str, int], int]) -> int | None:
        """Return `log_start_offset` by the offsets of a checkpoint that was read already."""
        first = self.log_segments[:1]
        if not first:
            return None
        known = checkpoint.get((self.topic or "", self.partition or 0), 0)
        return max(first[0].name.base_offset or 0, known)

    def find_end_offset(self) -> int | None:
        """
        Return the offset after the last batch, from the headers of the last segment.

        Returns
        -------
        int or None
            None without segments, and if the last one is damaged.
        """
        return read_again_if_changed(self._read_end_offset)

    def _read_end_offset(self) -> int | None:
        segments = self.log_segments
        for segment in reversed(segments):
            with segment.open() as source:
                scan = scan_batches(source, on_corrupt="stop")
            if scan.end is ScanEnd.CORRUPT:
                return None
            if len(scan):
                return offset_after(scan.batches)
        return segments[-1].name.base_offset if segments else None


def select_segments(
    partition: PartitionDir, include: SegmentKinds = SegmentKinds.LOG
) -> list[SegmentFile]:
    """
    Return the segments of a partition that a command or function reads.

    Parameters
    ----------
    partition : PartitionDir
    include : SegmentKinds, default SegmentKinds.LOG
        The default is what a broker reads: nothing of a log that is being dropped.

    Returns
    -------
    list of SegmentFile
        In log order: by base offset, leftovers after the live segment of their offset, KRaft
        snapshots last.

    Raises
    ------
    OSError
        If the folder cannot be listed.
    """
    if not partition.is_log and SegmentKinds.DROPPED_LOGS not in include:
        return []
    folder = pinned_folder(partition.folder)
    return segments_among(folder, folder.names(), include)


def segments_among(
    folder: Folder, names: Iterable[str], include: SegmentKinds
) -> list[SegmentFile]:
    """Return the segments of some kinds among the names of the files in a folder, in log order."""
    found = []
    for name in names:
        parsed = parse_segment_name(name)
        if parsed is not None and _kind_of(parsed) in include:
            base_offset = -1 if parsed.base_offset is None else parsed.base_offset
            found.append((parsed.kind != "log", base_offset, name, parsed))
    found.sort(key=lambda one: one[:3])
    return [SegmentFile(name, parsed, folder) for *_, name, parsed in found]


# A broker that deletes or replaces a segment again before it can be opened is one in a million.
_LISTINGS = 5


def attempts_to_open(segment: SegmentFile, *, by_name: bool = False) -> Iterator[SegmentFile]:
    """
    Yield a listed segment; each time that it is gone, list its folder again for its offsets.

    Retention deletes segments from the start of a log, and so has deleted all offsets before the
    segment, too. The cleaner replaces segments by one with the name of the first of them.

    Parameters
    ----------
    segment : SegmentFile
    by_name : bool, default False
        Whether only a file with the same name counts: the other files are read for themselves.

    Yields
    ------
    SegmentFile
        The segment, and then those that have its offsets now, until the caller could open one; the
        end means that they were deleted.
    """
    yield segment
    for folder in _newer_listings(segment):
        found = _segment_among(folder, segment)
        if found is None or (by_name and found.file_name != segment.file_name):
            return
        yield found


def read_again_if_changed(read: Callable[[], Result]) -> Result:
    """Call a function that lists a folder and reads its files, again if one of them changed."""
    for _ in range(_LISTINGS):
        try:
            return read()
        except FileGoneError:
            continue
        except SourceReadError as error:
            if error.symbol != CHANGED_WHILE_READ:
                raise
    return read()


def _newer_listings(segment: SegmentFile) -> Iterator[PinnedFolder]:
    """
    Yield newer listings of a segment's folder: the last one that was made, then new ones.

    Retention may delete thousands of segments of a log: one listing serves all that are gone in it.
    """
    listed = segment.folder
    if not isinstance(listed, PinnedFolder):
        return
    newer = listed.newer
    if newer is not None and (newer.live_logs or not newer.path.exists()):
        yield newer
    for _ in range(_LISTINGS):
        yield listed.listed_again(segment.file_name)


def _segment_among(folder: PinnedFolder, listed: SegmentFile) -> SegmentFile | None:
    """
    Return the segment of a folder that has the offsets of one that was listed before.

    None if a broker deleted them. A broker never deletes the last segment of a log, and renames a
    folder that it deletes. Anything else is an error of the segment, which the caller gets when it
    opens it.
    """
    if not folder.live_logs:
        plain = DiskFolder(folder.path)
        return None if _is_being_deleted(plain.path) else replace(listed, folder=plain)
    after = bisect_right(folder.live_logs, listed.base_offset or 0, key=itemgetter(0))
    return live_segment(folder, after - 1) if after else None


def live_segment(folder: PinnedFolder, number: int) -> SegmentFile:
    """Return one of the segments that a broker reads, by its place among them."""
    base_offset, name = folder.live_logs[number]
    return SegmentFile(name, SegmentName(base_offset, None, "log", None), folder)


def _is_being_deleted(folder: Path) -> bool:
    """Return whether a broker has renamed a partition's folder to delete it."""
    states = ("-delete", "-stray")
    with suppress(OSError):
        return not folder.exists() and any(
            name.startswith(f"{folder.name}.") and name.endswith(states)
            for name in os.listdir(folder.parent)
        )
    return False


def _kind_of(name: SegmentName) -> SegmentKinds:
    if name.state is not None:
        return SegmentKinds.LEFTOVERS
    if name.base_offset is not None and name.base_offset >= OFFSETS:
        return SegmentKinds.LEFTOVERS
    return SegmentKinds.KRAFT_SNAPSHOTS if name.kind == "checkpoint" else SegmentKinds.LOG


@dataclass(frozen=True)
class LogDir:
    """
    A broker's data dir, the folder of one partition, or a tar or prefix of them.

    Attributes
    ----------
    path : pathlib.Path
    partitions : list of PartitionDir
        By topic and partition.
    """

    path: Path
    partitions: list[PartitionDir]

    def __repr__(self) -> str:
        names = (f"  {one.path.name}" for one in self.partitions)
        return few_lines(f"<{type(self).__name__} {self.path}: {self._summary()}>", names)

    def _summary(self) -> str:
        return f"{len(self.partitions):,} partitions"

    @property
    def is_partition(self) -> bool:
        """Whether the path is the folder of a partition."""
        return len(self.partitions) == 1 and self.partitions[0].path == self.path

    def segments(self) -> Iterator[tuple[PartitionDir, SegmentFile]]:
        """Every segment of every partition, in order."""
        return self.select(SegmentKinds.ALL)

    def log_segments(self) -> Iterator[tuple[PartitionDir, SegmentFile]]:
        """The segments of the logs that a broker would load, in order."""
        return self.select(SegmentKinds.LOG)

    def select(self, include: SegmentKinds) -> Iterator[tuple[PartitionDir, SegmentFile]]:
        """
        Yield the segments that `select_segments` returns of each partition, in order.

        The log of a partition whose folder is the path is selected even if it is being dropped.
        """
        kinds = self.kinds(include)
        for partition in self.partitions:
            for segment in select_segments(partition, kinds):
                yield partition, segment

    def kinds(self, include: SegmentKinds) -> SegmentKinds:
        """Return the kinds to select, with dropped logs if the path is that of a partition."""
        return include | SegmentKinds.DROPPED_LOGS if self.is_partition else include
