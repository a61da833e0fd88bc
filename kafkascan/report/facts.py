"""What a report tells of logs, gathered in one pass over headers, in memory that is bounded."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kafkascan.batch_columns import BatchTable, compression_type, size_in_bytes
from kafkascan.layout import CompressionType
from kafkascan.log_chunks import ChunkTables, LogChunk, group_segments, read_chunks
from kafkascan.logs import LogsLike, open_logs
from kafkascan.ordered import in_order
from kafkascan.summary import BatchSummary

_MOST_BINS = 400
_MOST_POINTS = 1500
_SIZE_BINS = 64


# Times before and after which there was, or can be, no log: 2000, and next year.
_EARLIEST = 946_684_800_000
_AHEAD = 366 * 86_400_000


def is_believed(times: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Tell which timestamps may be those of records: one outlier would flatten a plot."""
    latest = time.time_ns() // 1_000_000 + _AHEAD
    return (times >= _EARLIEST) & (times <= latest)


class TimeBins:
    """
    Bytes by time, in bins that grow so that there are never many.

    Attributes
    ----------
    width : int
        Of a bin, in milliseconds: a power of two.
    sizes : dict of int to int
        Bytes by the number of the bin.
    """

    def __init__(self) -> None:
        self.width = 1
        self.sizes: Counter[int] = Counter()

    def add(self, times: NDArray[np.int64], sizes: NDArray[np.int64]) -> None:
        """Add batches by their latest timestamp."""
        if not len(times):
            return
        low, high = int(times.min()), int(times.max())
        if self.sizes:
            low = min(low, min(self.sizes) * self.width)
            high = max(high, (max(self.sizes) + 1) * self.width - 1)
        while high // self.width - low // self.width >= _MOST_BINS:
            self._double()
        bins, place = np.unique(times // self.width, return_inverse=True)
        sums = np.bincount(place, sizes)
        for number, size in zip(bins.tolist(), sums.tolist(), strict=True):
            self.sizes[number] += int(size)

    def widen_to(self, width: int) -> None:
        """Let bins be at least so wide."""
        while self.width < width:
            self._double()

    def _double(self) -> None:
        doubled: Counter[int] = Counter()
        for number, size in self.sizes.items():
            doubled[number // 2] += size
        self.width, self.sizes = 2 * self.width, doubled


class Track:
    """Offsets and timestamps of a log, of which only so many are kept, evenly spread."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.times: list[int] = []
        self._every = 1
        self._seen = 0

    def add(self, batches: BatchTable) -> None:
        """Add the batches that follow."""
        first = -self._seen % self._every
        self._seen += len(batches)
        some = batches[first :: self._every]
        some = some[is_believed(some["max_timestamp"])]
        self.offsets += some["base_offset"].tolist()
        self.times += some["max_timestamp"].tolist()
        while len(self.offsets) > _MOST_POINTS:
            self.offsets, self.times = self.offsets[::2], self.times[::2]
            self._every *= 2


@dataclass
class LogFacts:
    """What headers tell of one log."""

    name: str
    topic: str
    segments: int
    size: int = 0
    summary: BatchSummary = field(default_factory=BatchSummary)
    track: Track = field(default_factory=Track)
    damage: list[str] = field(default_factory=list)


@dataclass
class Facts:
    """
    What headers tell of all logs.

    Attributes
    ----------
    logs : list of LogFacts
    times : dict of str to TimeBins
        By topic.
    sizes : dict of str to ndarray of int64, shape (64,)
        By codec: how many batches have a size from 2**(n/2) to 2**((n+1)/2) bytes.
    codec_bytes : dict of str to Counter
        By topic: bytes by codec.
    odd_times : int
        Batches whose timestamp is none, or none that can be.
    """

    logs: list[LogFacts]
    times: dict[str, TimeBins]
    sizes: dict[str, NDArray[np.int64]]
    codec_bytes: dict[str, Counter[str]]
    odd_times: int = 0

    @property
    def size(self) -> int:
        """Bytes of all logs."""
        return sum(log.size for log in self.logs)


def gather(logs: LogsLike, threads: int | None = None) -> Facts:
    """
    Read the headers of logs.

    Parameters
    ----------
    logs : LogsLike
    threads : int, optional
        Segments that are read at once; by default one per CPU.
    """
    opened = open_logs(logs)
    segments = [(log.partition, segment) for log in opened for segment in log.segments]
    facts = [
        LogFacts(log.name, log.partition.topic or log.name, len(log.segments)) for log in opened
    ]
    log_of = [number for number, log in enumerate(opened) for _ in log.segments]
    result = Facts(facts, defaultdict(TimeBins), defaultdict(_no_sizes), defaultdict(Counter))
    jobs = group_segments(segments)
    tables = ChunkTables()
    for chunk in in_order(jobs, lambda job: read_chunks(segments, job, tables), threads):
        last = chunk.ends[-1].segment if chunk.ends else int(chunk.segment[-1])
        log = facts[log_of[last]]
        _add(result, log, chunk)
    return result


def _no_sizes() -> NDArray[np.int64]:
    return np.zeros(_SIZE_BINS, np.int64)


def _add(facts: Facts, log: LogFacts, chunk: LogChunk) -> None:
    log.damage += [str(end.error) for end in chunk.ends if end.error is not None]
    log.size += sum(end.size for end in chunk.ends)
    batches = chunk.batches
    if not len(batches):
        return
    log.summary.add(batches)
    log.track.add(batches)
    sizes, codecs = size_in_bytes(batches), compression_type(batches)
    believed = is_believed(batches["max_timestamp"])
    facts.odd_times += int((~believed).sum())
    facts.times[log.topic].add(batches["max_timestamp"][believed], sizes[believed])
    bins = np.minimum(2 * np.log2(np.maximum(sizes, 1)), _SIZE_BINS - 1).astype(np.int64)
    for codec in np.unique(codecs).tolist():
        name, rows = CompressionType.name_of(codec), codecs == codec
        facts.sizes[name] += np.bincount(bins[rows], minlength=_SIZE_BINS)
        facts.codec_bytes[log.topic][name] += int(sizes[rows].sum())


def largest(counts: dict[str, int], most: int) -> list[tuple[str, int]]:
    """Return the largest of some numbers, and the rest as one."""
    ordered = sorted(counts.items(), key=lambda one: -one[1])
    head, rest = ordered[:most], ordered[most:]
    if rest:
        head.append((f"{len(rest)} others", sum(size for _, size in rest)))
    return head
