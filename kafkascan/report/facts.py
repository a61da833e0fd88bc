"""Statistics of logs for a report: one pass over batch headers, in bounded memory."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import (
    BatchTable,
    compression_type,
    is_control,
    join_tables,
    size_in_bytes,
)
from kafkascan.batches.summary import BatchSummary
from kafkascan.format.layout import COMPRESSION_MASK, CompressionType
from kafkascan.format.times import milliseconds_or_now
from kafkascan.logs.log_chunks import DEFAULT_ROWS, SegmentEnd
from kafkascan.logs.opened_logs import LogView
from kafkascan.logs.walking.log_walk import LogSlice

_MAX_BINS = 400
_MAX_POINTS = 1500
_SIZE_BINS = 64
_SIZES = (COMPRESSION_MASK + 1) * _SIZE_BINS


# Plausible timestamps lie between the year 2000 and one year from now.
_EARLIEST = 946_684_800_000
_MAX_AHEAD = 366 * 86_400_000


def are_plausible(times: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which timestamps are plausible: a single outlier would flatten a plot."""
    latest = milliseconds_or_now() + _MAX_AHEAD
    return (times >= _EARLIEST) & (times <= latest)


class TimeBins:
    """
    Bytes by time, in a bounded number of bins that double in width when time spans grow.

    Attributes
    ----------
    width : int
        Width of a bin in milliseconds, a power of two.
    sizes : dict of int to int
        Bytes by bin number, which is the timestamp divided by the width.
    """

    def __init__(self) -> None:
        self.width = 1
        self.sizes: Counter[int] = Counter()
        self._low, self._high = 1 << 63, -(1 << 63)  # of all times

    def add(self, times: NDArray[np.int64], sizes: NDArray[np.int64]) -> None:
        """Add batches by their latest timestamp."""
        if not len(times):
            return
        low, high = int(times.min()), int(times.max())
        self._low, self._high = min(self._low, low), max(self._high, high)
        while self._high // self.width - self._low // self.width >= _MAX_BINS:
            self._double()
        if low // self.width == high // self.width:
            self.sizes[low // self.width] += int(sizes.sum())
            return
        bins, bin_of = np.unique(times // self.width, return_inverse=True)
        sums = np.bincount(bin_of, sizes)
        for number, size in zip(bins.tolist(), sums.tolist(), strict=True):
            self.sizes[number] += int(size)

    @property
    def earliest(self) -> int:
        """The earliest time; there is one if `sizes` is not empty."""
        return self._low

    @property
    def latest(self) -> int:
        """The latest time."""
        return self._high

    def widen_to(self, width: int) -> None:
        """Widen the bins to at least this many milliseconds."""
        while self.width < width:
            self._double()

    def _double(self) -> None:
        doubled: Counter[int] = Counter()
        for number, size in self.sizes.items():
            doubled[number // 2] += size
        self.width, self.sizes = 2 * self.width, doubled


class Timeline:
    """Offsets and timestamps of a log: a bounded number of evenly spaced batches."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.times: list[int] = []
        self._every = 1
        self._seen = 0

    def add(self, batches: BatchTable, is_plausible: NDArray[np.bool_]) -> None:
        """
        Add batches that follow those added before, and which of them have plausible times.

        A marker has the time of its coordinator, between records with the times of a producer.
        """
        rows = np.flatnonzero(~is_control(batches))
        first = -self._seen % self._every
        self._seen += len(rows)
        sampled = rows[first :: self._every]
        shown = sampled[is_plausible[sampled]]
        self.offsets += batches["base_offset"][shown].tolist()
        self.times += batches["max_timestamp"][shown].tolist()
        while len(self.offsets) > _MAX_POINTS:
            self.offsets, self.times = self.offsets[::2], self.times[::2]
            self._every *= 2


@dataclass
class LogFacts:
    """Statistics of one log."""

    name: str
    topic: str
    segments: int
    size: int = 0
    summary: BatchSummary = field(default_factory=BatchSummary)
    timeline: Timeline = field(default_factory=Timeline)
    damage: list[str] = field(default_factory=list)
    deleted_segments: int = 0  # all of whose offsets are before the log start offset

    @classmethod
    def of(cls, log: LogView) -> LogFacts:
        """Return the statistics of a log that is not read yet."""
        served = len(log.served_segments)
        one = cls(log.name, log.partition.topic or log.name, served)
        one.deleted_segments = len(log.segments) - served
        return one

    def add_ends(self, ends: Sequence[SegmentEnd]) -> None:
        """Add the next segments."""
        for end in ends:
            if self.deleted_segments:
                self.deleted_segments -= 1
                continue
            self.size += end.size
            if end.error is not None:
                self.damage.append(str(end.error))


@dataclass
class Facts:
    """
    Statistics of all logs, which are added slice by slice of a `LogWalk`.

    Attributes
    ----------
    logs : list of LogFacts
    times : dict of str to TimeBins
        By topic.
    size_counts : ndarray of int64, shape (512,)
        Numbers of batches: `sizes`, by the codes of the codecs.
    implausible_times : int
        Number of batches without a timestamp, or with an implausible one.
    """

    logs: list[LogFacts]
    times: dict[str, TimeBins] = field(default_factory=lambda: defaultdict(TimeBins))
    size_counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(_SIZES, np.int64))
    implausible_times: int = 0
    _pending: list[tuple[LogFacts, BatchTable]] = field(default_factory=list)
    _pending_rows: int = 0

    @classmethod
    def of(cls, logs: Sequence[LogView]) -> Facts:
        """Return the statistics of logs that are not read yet."""
        return cls([LogFacts.of(log) for log in logs])

    def add(self, log_slice: LogSlice) -> None:
        """Add the next batches of a log that are not deleted; `finish` completes the statistics."""
        log, batches = self.logs[log_slice.log], log_slice.served_batches
        log.add_ends(log_slice.chunk.ends)
        if not len(batches):
            return
        log.summary.add(batches)
        self._pending.append((log, batches))
        self._pending_rows += len(batches)
        if self._pending_rows >= DEFAULT_ROWS:
            self.finish()

    def finish(self) -> None:
        """Complete the statistics of what was added: those of many small logs at once."""
        pending, self._pending, self._pending_rows = self._pending, [], 0
        batches = join_tables([part for _, part in pending])
        times, sizes = batches["max_timestamp"], size_in_bytes(batches)
        is_plausible = are_plausible(times)
        self.implausible_times += int((~is_plausible).sum())
        bins = np.minimum(2 * np.log2(np.maximum(sizes, 1)), _SIZE_BINS - 1).astype(np.int64)
        bins += _SIZE_BINS * compression_type(batches).astype(np.int64)
        self.size_counts += np.bincount(bins, minlength=_SIZES)
        row = 0
        for topic, of_topic in itertools.groupby(pending, lambda one: one[0].topic):
            first = row
            for log, part in of_topic:
                log.timeline.add(part, is_plausible[row : row + len(part)])
                row += len(part)
            shown = first + np.flatnonzero(is_plausible[first:row])
            self.times[topic].add(times[shown], sizes[shown])

    @property
    def sizes(self) -> dict[str, NDArray[np.int64]]:
        """By codec, the number of batches of a size from 2**(n/2) to 2**((n+1)/2) bytes."""
        by_code = enumerate(self.size_counts.reshape(-1, _SIZE_BINS))
        return {CompressionType.name_of(code): one for code, one in by_code if one.any()}

    @property
    def size(self) -> int:
        """Size of all logs, in bytes."""
        return sum(log.size for log in self.logs)

    def codec_sizes(self) -> dict[str, Counter[str]]:
        """Return the bytes by codec of each topic that has batches."""
        result: dict[str, Counter[str]] = defaultdict(Counter)
        for log in self.logs:
            if log.summary.batches:
                result[log.topic] += log.summary.codec_sizes
        return result


def largest(counts: dict[str, int], most: int) -> list[tuple[str, int]]:
    """Return the largest counts by name, and the sum of the rest as one."""
    descending = sorted(counts.items(), key=lambda one: -one[1])
    head, rest = descending[:most], descending[most:]
    if rest:
        head.append((f"{len(rest)} others", sum(size for _, size in rest)))
    return head
