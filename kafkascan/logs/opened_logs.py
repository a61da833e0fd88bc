"""Open logs: the segments of partitions that are read, from the log start offset on."""

from __future__ import annotations

import bisect
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np

from kafkascan.batches.columns import BatchTable, last_offset
from kafkascan.batches.walks import require_log
from kafkascan.broker_state.checkpoints import LOG_START_CHECKPOINT
from kafkascan.broker_state.offset_checkpoints import CheckpointReader
from kafkascan.format.file_names import parse_segment_name
from kafkascan.io.concurrency import map_ordered
from kafkascan.io.folders import SingleFileFolder
from kafkascan.io.sources import HasSource, Source, SourceLike, borrowed_source
from kafkascan.logs.log_chunks import ChunkTables, LogChunk, group_segments, read_chunks
from kafkascan.logs.log_dir import (
    LogDir,
    PartitionDir,
    SegmentKinds,
    is_log_dir,
    no_logs,
    open_log_dir,
    partition_dir,
    select_segments,
)
from kafkascan.logs.segment import SegmentFile, segment_file

LogsLike: TypeAlias = "LogDir | PartitionDir | SourceLike"
"""A data dir, a tar of one, the folder of a partition (each as an object or a path), or a
source, which is read as a log of one segment."""


@dataclass(frozen=True, eq=False)
class Log:
    """
    A log: a partition, and those of its segments that are read.

    Attributes
    ----------
    partition : PartitionDir
    segments : list of SegmentFile
        In offset order.
    start_offset : int
        The first offset that is read. Segments and batches before it may exist: a broker deletes
        segments some time after ``DeleteRecords``, and never part of one.
    """

    partition: PartitionDir
    segments: list[SegmentFile]
    start_offset: int = 0

    @property
    def name(self) -> str:
        """The log's name in messages: topic and partition, or else its path."""
        one = self.partition
        return str(one.path) if one.topic is None else f"{one.topic}-{one.partition}"

    @property
    def has_deleted_offsets(self) -> bool:
        """Whether the log starts after the first offset on disk."""
        return bool(self.segments) and self.start_offset > (self.segments[0].base_offset or 0)

    @property
    def served_segments(self) -> list[SegmentFile]:
        """The segments that may contain the start offset or later ones."""
        bases = [segment.base_offset or 0 for segment in self.segments]
        return self.segments[max(0, bisect.bisect_right(bases, self.start_offset) - 1) :]


def open_logs(
    logs: LogsLike, log_start_offset: int | None = None, *, damaged: bool = False
) -> list[Log]:
    """
    Return the logs of a data dir, a partition or a source.

    Only what a broker reads is returned; see `select_segments`. A partition that is given as
    such, or by its path, is read even if its log is being dropped.

    Parameters
    ----------
    logs : LogsLike
    log_start_offset : int, optional
        First offset of each log. By default, as a broker has it: the base offset of the first
        segment, or the offset in the data dir's ``log-start-offset-checkpoint`` if it is
        higher; a segment that is given as such is read from its first offset. 0 reads
        everything that is on disk.
    damaged : bool, default False
        Accept a source whose beginning is that of another kind of file.

    Raises
    ------
    NoLogsError
        If there are no live segments.
    NotALogError
        If a source that is not named as a segment is known to be another kind of file.
    As `open_log_dir`, and `Source`.
    """
    if isinstance(logs, PartitionDir):
        logs = LogDir(logs.path, [logs])
    if isinstance(logs, (str, os.PathLike)):
        path = Path(logs)
        if not is_log_dir(path):
            return [_one_file(path, damaged)]
        logs = open_log_dir(path)
    if isinstance(logs, LogDir):
        found = live_logs(logs, log_start_offset)
        if not found:
            raise no_logs(logs.path, logs.partitions)
        return found
    return [_one_file(logs, damaged)]


def open_partition(
    partition: PartitionDir | str | os.PathLike[str], log_start_offset: int | None = None
) -> Log:
    """
    Return the log of a partition, given as such or as its folder.

    Raises
    ------
    NoLogsError
        If there are no live segments, as in a data dir.
    OSError
        If the folder cannot be listed.
    """
    one = partition if isinstance(partition, PartitionDir) else partition_dir(partition)
    (log,) = open_logs(one, log_start_offset)
    return log


def live_logs(log_dir: LogDir, log_start_offset: int | None = None) -> list[Log]:
    """Return the logs of a data dir or a partition that have live segments, as `open_logs`."""
    kinds, checkpoints = log_dir.kinds(SegmentKinds.LOG), CheckpointReader()
    found = []
    for one in log_dir.partitions:
        segments = select_segments(one, kinds)
        if segments:
            start = log_start_offset
            if start is None:
                start = checkpoints.offset_of(one, LOG_START_CHECKPOINT)
            found.append(Log(one, segments, max(start, segments[0].base_offset or 0)))
    return found


def _one_file(source: SourceLike, damaged: bool) -> Log:
    if isinstance(source, HasSource):
        source = source.as_source()
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        path.stat()  # raises if the file is missing
        partition = partition_dir(path.parent)
    else:
        owner = source if isinstance(source, Source) else Source(source)
        path, source = Path(owner.path), owner
        partition = partition_dir(path.parent if owner.is_file else "")
    if not damaged and parse_segment_name(path.name) is None:
        with borrowed_source(source) as opened:
            require_log(opened)
    folder = SingleFileFolder(source, path)
    partition = replace(partition, path=path, folder=folder)
    segment = segment_file(path, folder)
    return Log(partition, [segment], segment.base_offset or 0)


# ---- segments that overlap ----


@dataclass(frozen=True)
class SegmentOverlap:
    """
    Offsets that are in a segment and also in the following one.

    A broker serves an offset from the segment with the largest base offset that is not above it,
    but a fetch that begins in a segment continues to its end. What a consumer gets depends on the
    sizes of its fetches.

    Attributes
    ----------
    path, following : Path
        The two segments.
    first_offset, last_offset : int
        From the base offset of the following segment to the end of the first one.
    """

    path: Path
    following: Path
    first_offset: int
    last_offset: int

    def __str__(self) -> str:
        return (
            f"{self.path}: offsets {self.first_offset} to {self.last_offset} are also in"
            f" {self.following.name}: one of the segments is stale [OFFSET_OVERLAP]"
        )


def segment_overlap(
    segment: SegmentFile, end_offset: int, following: SegmentFile
) -> SegmentOverlap | None:
    """Return the overlap of a segment that ends before an offset with the following segment."""
    base_offset = following.base_offset
    if base_offset is None or end_offset <= base_offset:
        return None
    return SegmentOverlap(segment.path, following.path, base_offset, end_offset - 1)


# ---- from the log start offset on ----


def first_reaching(batches: BatchTable, offset: int) -> int:
    """Return the row of the first batch whose last offset is not below an offset."""
    reaching = last_offset(batches) >= offset
    return int(np.argmax(reaching)) if reaching.any() else len(batches)


def served_chunks(
    logs: Sequence[Log], threads: int | None, tables: ChunkTables
) -> tuple[list[tuple[PartitionDir, SegmentFile]], Iterator[LogChunk]]:
    """Return the segments of logs, and the chunks of the batches that reach the start offsets."""
    segments = [(log.partition, one) for log in logs for one in log.served_segments]
    starts = start_offsets(logs)

    def read(job: range) -> Iterator[LogChunk]:
        return read_chunks(segments, job, tables)

    chunks = map_ordered(group_segments(segments), read, threads)
    served = (without_deleted(chunk, starts) for chunk in chunks)
    return segments, (chunk for chunk in served if len(chunk) or chunk.ends)


def start_offsets(logs: Sequence[Log]) -> dict[int, int]:
    """
    Return the log start offsets that are inside of segments.

    Returns
    -------
    dict
        By the index of the segment, among the `Log.served_segments` of all logs.
    """
    found, index = {}, 0
    for log in logs:
        if log.has_deleted_offsets:
            found[index] = log.start_offset
        index += len(log.served_segments)
    return found


def without_deleted(chunk: LogChunk, starts: Mapping[int, int]) -> LogChunk:
    """Return the rows of a chunk that reach the start offsets of `start_offsets`."""
    if not starts or not len(chunk):
        return chunk
    here = range(int(chunk.segment[0]), int(chunk.segment[-1]) + 1)
    for index in (index for index in here if index in starts):
        rows = slice(*np.searchsorted(chunk.segment, (index, index + 1)).tolist())
        deleted = rows.start + np.arange(first_reaching(chunk.batches[rows], starts[index]))
        if len(deleted):
            kept = np.delete(np.arange(len(chunk)), deleted)
            batches = chunk.batches.take(kept)
            chunk = replace(chunk, batches=batches, segment=chunk.segment[kept])
    return chunk
