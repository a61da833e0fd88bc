"""The dump of a log: its batches and records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kafkascan.batches.columns import BatchTable, compression_type, size_in_bytes
from kafkascan.dump_log.dump_options import MAX_INT, DumpOptions
from kafkascan.dump_log.line_output import (
    ChunkMemory,
    LineOutput,
    Offsets,
    TextChunk,
)
from kafkascan.dump_log.log_frames import Frame, framed_batches
from kafkascan.format.errors import UnsupportedCompressionError
from kafkascan.format.file_names import leading_offset
from kafkascan.format.layout import BATCH_DTYPE, CompressionType
from kafkascan.io.concurrency import are_small, group_by_bytes, map_ordered, require_threads
from kafkascan.io.sources import Source


def offset_of_name(path: Path) -> int:
    """
    Return the base offset in the name of a file.

    Raises
    ------
    ValueError
        If the name does not begin with one.
    """
    offset = leading_offset(path.name)
    if offset is None:
        raise ValueError(f"{path}: the name does not begin with an offset")
    return offset


_BOOTSTRAP = "bootstrap.checkpoint"
# Bytes of batches that a thread prints at once, the largest number of threads (one writes what
# all of them print), and chunks of each that may wait.
_BYTES_PER_JOB, _MAX_THREADS, _CHUNKS_AHEAD = 1 << 21, 4, 2


class OffsetGaps:
    """
    Offsets that do not follow the one before, as the tool collects them.

    Attributes
    ----------
    pairs : dict of int to int
        The offset before, and the one that follows it.
    """

    def __init__(self) -> None:
        self.pairs: dict[int, int] = {}
        self._last = -1

    def add(self, offsets: Offsets) -> None:
        """Compare the offsets of the next records."""
        if offsets.first != self._last + 1:
            self.pairs[self._last] = offsets.first
        self.pairs.update(offsets.gaps)
        self._last = offsets.last


def title_of_log(path: Path) -> str:
    """Return the first line of a log's or snapshot's dump."""
    if path.suffix == ".log":
        return f"Log starting offset: {offset_of_name(path)}"
    if path.name == _BOOTSTRAP:
        return "KRaft bootstrap snapshot"
    offset, _, epoch = path.stem.partition("-")
    return f"Snapshot end offset: {int(offset)}, epoch: {int(epoch)}"


def dump_log(path: Path, options: DumpOptions, gaps: OffsetGaps, output: LineOutput) -> None:
    """
    Write the lines of a log or snapshot.

    Parameters
    ----------
    path : Path
    options : DumpOptions
    gaps : OffsetGaps
        Receives the offsets of records.
    output : LineOutput

    Raises
    ------
    CorruptBatchError
        Where the tool ends: at the first batch whose size is impossible, or whose records cannot
        be read. The lines before it were added to the output.
    OSError
    """
    output.add([title_of_log(path)])
    left = dump_batches(path, options, gaps, output)
    if left:
        output.add([f"Found {left} invalid bytes at the end of {path.name}"])


def dump_batches(path: Path, options: DumpOptions, gaps: OffsetGaps, output: LineOutput) -> int:
    """
    Write the batches of a log or snapshot, and their records.

    See `dump_log`.

    Returns
    -------
    int
        Bytes behind the last batch.
    """
    source = Source(path)  # closed with the last view of it
    walk = DumpedBatches(source, options)
    threads = 1 if are_small([walk.stop]) else min(require_threads(None), _MAX_THREADS)
    memory = ChunkMemory()
    work = _worker(source, options, memory)
    for chunk in map_ordered(walk.jobs(), work, threads, _CHUNKS_AHEAD):
        output.add_bytes(chunk.data)
        memory.give_back(chunk)
        if chunk.offsets is not None:
            gaps.add(chunk.offsets)
    return walk.left


class DumpJob(NamedTuple):
    """Batches to print, or the error of the walk, which comes after their lines."""

    batches: BatchTable
    frame: Frame | None = None
    error: Exception | None = None


class DumpedBatches:
    """
    The batches of a log that are printed, in parts.

    Parameters
    ----------
    source : Source
    options : DumpOptions

    Attributes
    ----------
    position, stop : int
        Where the last batch ends, and where a reader stops.
    """

    def __init__(self, source: Source, options: DumpOptions) -> None:
        self.position = 0
        self.stop = min(source.size, options.max_bytes)
        self._source = source
        self._reads_all = options.max_bytes == MAX_INT

    @property
    def left(self) -> int:
        """Bytes behind the last batch, of a log that is read to its end."""
        return self.stop - self.position if self._reads_all else 0

    def jobs(self) -> Iterator[DumpJob]:
        """Yield the batches; an error is the last job, as it is raised in its turn."""
        batches: BatchTable | None = None
        try:
            for batches, frame in framed_batches(self._source, 0, self.stop):
                printed = _before_unknown_codec(batches)
                for part in group_by_bytes(size_in_bytes(printed), _BYTES_PER_JOB):
                    yield DumpJob(printed[part], frame)
                if len(printed) < len(batches):
                    raise _unknown_codec(self._source, batches[len(printed) :][:1])
                self.position = int(batches["position"][-1] + size_in_bytes(batches[-1:])[0])
        except (ValueError, OSError) as error:
            yield DumpJob(np.empty(0, BATCH_DTYPE), None, error)


def _before_unknown_codec(batches: BatchTable) -> BatchTable:
    unknown = np.flatnonzero(~np.isin(compression_type(batches), list(CompressionType)))
    return batches[: unknown[0]] if len(unknown) else batches


def _unknown_codec(source: Source, batch: BatchTable) -> UnsupportedCompressionError:
    reason = f"compression type {compression_type(batch)[0]} is not known"
    position, base_offset = int(batch["position"][0]), int(batch["base_offset"][0])
    symbol = "UNSUPPORTED_COMPRESSION"
    return UnsupportedCompressionError(source.path, position, base_offset, reason, symbol)


def _worker(
    source: Source, options: DumpOptions, memory: ChunkMemory
) -> Callable[[DumpJob], Iterator[TextChunk]]:
    """Return what yields the lines of a job."""
    # Not at the top: indexes are dumped without the readers of records.
    from kafkascan.dump_log.batch_printer import BatchPrinter, head_chunks

    def work(job: DumpJob) -> Iterator[TextChunk]:
        if job.error is not None:
            raise job.error
        if not options.is_deep:
            return head_chunks(source, job.batches, job.frame, options, memory)
        return BatchPrinter(source, job.frame, options, memory).chunks(job.batches)

    return work
