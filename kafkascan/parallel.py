"""One log walked by several threads, a part each.

Where the parts meet is taken from an index or guessed. A part counts only if the one before
it arrives exactly at its start, so the rows are those of one walk, on any bytes.
"""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from kafkascan._core import batches as _core
from kafkascan.batch_columns import BatchTable
from kafkascan.layout import BATCH_DTYPE, ScanEnd
from kafkascan.sources import Source
from kafkascan.starts import known_starts
from kafkascan.walks import BatchWalk, collect

# A thread is worth starting for this many bytes.
_BYTES_PER_PART = 1 << 24
# How far behind the middle between two threads a start is looked for.
_SEARCHED = 1 << 21

Part = tuple[BatchTable, BatchWalk]


def collect_in_parts(
    source: Source, start: int, stop: int, threads: int
) -> tuple[BatchTable, BatchWalk]:
    """
    Walk to the end, with several threads where the log is large enough for them.

    Parameters
    ----------
    source : Source
    start, stop : int
        As of `BatchWalk`.
    threads : int
        At most this many.

    Returns
    -------
    batches : ndarray of BATCH_DTYPE, shape (n,)
    walk : BatchWalk
        The one that ended last: it knows how the log ends.
    """
    starts = _part_starts(source, start, stop, min(threads, (stop - start) // _BYTES_PER_PART))
    if len(starts) == 1:
        return _walk(source, start, stop)
    with ThreadPoolExecutor(len(starts)) as pool:
        jobs = [
            pool.submit(_walk, source, first, last)
            for first, last in itertools.pairwise([*starts, stop])
        ]
        parts = _true_parts(source, [job.result() for job in jobs], stop)
        return _join([batches for batches, _ in parts], pool), parts[-1][1]


def _walk(source: Source, start: int, stop: int) -> Part:
    walk = BatchWalk(source, start, stop)
    return collect(walk), walk


def _part_starts(source: Source, start: int, stop: int, parts: int) -> list[int]:
    """The first position of each part, ascending."""
    starts = [start]
    if parts < 2 or not source.is_in_memory:
        return starts
    known = known_starts(source.path) if source.is_file else None
    with source.window(0, source.size) as window:
        for part in range(1, parts):
            target = start + (stop - start) * part // parts
            # Offsets may start anywhere: any batch is higher than this.
            found = _core.guess(window, target, min(target + _SEARCHED, stop), -1)
            if found < 0 and known is not None:
                later = known[np.searchsorted(known, target) :]
                found = int(later[0]) if len(later) else -1
            if starts[-1] < found < stop:
                starts.append(found)
    return starts


def _true_parts(source: Source, parts: list[Part], stop: int) -> list[Part]:
    """Keep the parts that one walk from the start would have come upon; fill the gaps."""
    kept = parts[:1]
    for part in parts[1:]:
        last = kept[-1][1]
        if last.end is not ScanEnd.CLEAN:
            return kept
        if last.position < part[1].start:
            kept.append(_walk(source, last.position, part[1].start))
            last = kept[-1][1]
        if last.end is ScanEnd.CLEAN and last.position == part[1].start:
            kept.append(part)
    last = kept[-1][1]
    if last.end is ScanEnd.CLEAN and last.position < stop:
        kept.append(_walk(source, last.position, stop))
    return kept


def _join(tables: list[BatchTable], pool: ThreadPoolExecutor) -> BatchTable:
    joined = np.empty(sum(map(len, tables)), BATCH_DTYPE)
    bounds = np.cumsum([0, *map(len, tables)])

    def copy(index: int) -> None:
        # As bytes: NumPy copies structured arrays field by field.
        part = joined[bounds[index] : bounds[index + 1]]
        part.view(np.uint8)[:] = tables[index].view(np.uint8)

    list(pool.map(copy, range(len(tables))))
    return joined
