"""Chunks of the batches of logs, each offset once, from the log start offsets on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from kafkascan.batches.columns import BatchTable, first_reaching, rows_from
from kafkascan.batches.screening import screen
from kafkascan.io.concurrency import map_ordered
from kafkascan.io.sources import Source
from kafkascan.logs.log_chunks import (
    DEFAULT_ROWS,
    InspectedChunk,
    LogChunk,
    Segments,
    group_segments,
    inspect_chunks,
)
from kafkascan.logs.log_dir import PartitionDir
from kafkascan.logs.log_problems import LogProblems
from kafkascan.logs.opened_logs import LogView, OffsetCursor, SegmentOverlap
from kafkascan.logs.segment import SegmentFile
from kafkascan.logs.walking.chunk_checks import ChunkChecks, ScreenedRows

SomeChunk = TypeVar("SomeChunk", bound=LogChunk)


def ordered_chunks(
    segments: Sequence[tuple[PartitionDir, SegmentFile]],
    jobs: Iterable[range],
    read: Callable[[range, int | None], Iterator[SomeChunk]],
    threads: int | None,
    *,
    once: bool = True,
) -> Iterator[tuple[SomeChunk, list[SegmentOverlap]]]:
    """
    Read segments on several threads, and yield their chunks in order.

    A job that starts before the jobs before it have ended reads its first segment from the
    beginning. If that repeats offsets, it is read again.

    Parameters
    ----------
    segments : sequence of (PartitionDir, SegmentFile)
    jobs : iterable of range
        Indices of adjacent segments of one partition.
    read : callable
        Takes a job, and the end of the segments before it, as `inspect_chunks` does.
    threads : int or None
        As in `map_ordered`.
    once : bool, default True
        Whether each offset of a log is read once; see `OffsetCursor`. Otherwise, all batches are
        read, and overlaps are not found.

    Yields
    ------
    SomeChunk, list of SegmentOverlap
        Of the segments that end in the chunk, with those before them.
    """

    def first_try(job: range) -> Iterator[tuple[range, SomeChunk]]:
        return ((job, chunk) for chunk in read(job, 0 if once else None))

    cursor, before, current = OffsetCursor(), None, None
    is_read_again = False
    for job, first in map_ordered(jobs, first_try, threads):
        chunks: Iterable[SomeChunk] = [first]
        if not once:
            yield first, []
            continue
        if job != current:
            partition, current = segments[job.start][0], job
            cursor = cursor if partition is before else OffsetCursor()
            before = partition
            is_read_again = len(rows_from(first.batches, cursor.position)) < len(first)
            chunks = read(job, cursor.position) if is_read_again else chunks
        elif is_read_again:
            continue
        for chunk in chunks:
            ends = ((segments[end.segment][1], end.end_offset) for end in chunk.ends)
            yield chunk, [overlap for end in ends for overlap in cursor.add(*end)]


# ---- from the log start offset on ----


class Screener:
    """Screens the batches of a segment; a `SegmentInspector`."""

    reads_content = False
    reads_side_files = False

    def __init__(self, segment: SegmentFile) -> None:
        pass

    def open(self, source: Source) -> None:
        """Take the source of the segment."""
        self._source = source

    def table(self, batches: BatchTable) -> ScreenedRows:
        """Screen the next batches."""
        return ScreenedRows(screen(batches))

    def end(self, *, is_whole: bool) -> None:
        """Do nothing."""


def read_segments(logs: Sequence[LogView], *, once: bool = True) -> Segments:
    """
    Return the segments of logs that `read_chunks` reads.

    Parameters
    ----------
    logs : sequence of LogView
    once : bool, default True
        Whether only those are read that may contain the start offset or later ones.
    """
    return [
        (log.partition, segment)
        for log in logs
        for segment in (log.served_segments if once else log.segments)
    ]


def read_chunks(
    logs: Sequence[LogView],
    segments: Segments,
    problems: LogProblems,
    threads: int | None,
    rows: int = DEFAULT_ROWS,
    *,
    once: bool = True,
    keep_cache: bool = True,
) -> Iterator[LogChunk]:
    """
    Yield the chunks of logs' batches, from the start offsets on.

    Parameters
    ----------
    logs : sequence of LogView
    segments : list of (PartitionDir, SegmentFile)
        Their `read_segments`.
    problems : LogProblems
        Receives what is wrong; complete after the last chunk.
    threads, once
        See `ordered_chunks`. Files that are in no log, which are read if `once` is False, have no
        order: only what cannot be read of them is a problem.
    rows, keep_cache
        See `inspect_chunks`.

    Yields
    ------
    LogChunk
        Its segments are indices into `segments`.
    """
    starts = start_offsets(logs) if once else {}
    checks = ChunkChecks(logs, segments, problems)

    def read(job: range, position: int | None) -> Iterator[InspectedChunk[ScreenedRows, None]]:
        return inspect_chunks(segments, job, rows, Screener, position, keep_cache=keep_cache)

    jobs = group_segments(segments)
    for chunk, overlaps in ordered_chunks(segments, jobs, read, threads, once=once):
        if once:
            checks.add(chunk, overlaps)
        else:
            checks.add_errors(chunk)
        served = without_deleted(chunk, starts)
        if len(served) or served.ends:
            yield served
    checks.finish()


def start_offsets(logs: Sequence[LogView]) -> dict[int, int]:
    """
    Return the log start offsets that are inside of segments.

    Returns
    -------
    dict
        By the index of the segment, among the `LogView.served_segments` of all logs.
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
