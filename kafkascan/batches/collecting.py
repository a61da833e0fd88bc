"""Collect the batch headers of a log in one table, in parts on several threads if it is large."""

from __future__ import annotations

import itertools

import numpy as np

from kafkascan._core import batches as _core
from kafkascan.batches.columns import BatchTable
from kafkascan.batches.header_reading.known_starts import known_starts
from kafkascan.batches.walks import BatchWalk
from kafkascan.format.layout import BATCH_DTYPE, ScanEnd
from kafkascan.io import result_memory
from kafkascan.io.concurrency import map_parts
from kafkascan.io.sources import Source

_FIRST_ROWS = 1024
_GROWTH = 8
_MAX_GROWTH = 1 << 19


def collect(walk: BatchWalk) -> BatchTable:
    """Walk to the end, in a table that grows by the expected number of remaining batches."""
    table = np.empty(_FIRST_ROWS, BATCH_DTYPE)
    count = walk.fill(table)
    while walk.end is None:
        table = _grown(table, walk)
        count += walk.fill(table[count:])
    return result_memory.fitted(table, count)


def _grown(table: BatchTable, walk: BatchWalk) -> BatchTable:
    """Return a larger table that begins with the rows of a full one."""
    bytes_per_batch = max(1, walk.valid_bytes // len(table))
    expected = (walk.stop - walk.position) // bytes_per_batch
    # The growth is limited, because the rest may be a hole instead of batches.
    limit = max(_MAX_GROWTH, _GROWTH * len(table))
    more = min(expected + expected // 8 + _FIRST_ROWS, limit)
    grown = result_memory.empty(len(table) + more, BATCH_DTYPE)
    # As bytes: NumPy copies structured arrays field by field.
    grown.view(np.uint8)[: table.nbytes] = table.view(np.uint8)
    return grown


# Bytes from which on a thread pays off.
_BYTES_PER_PART = 1 << 24
# Bytes after the intended start of a part that are searched for a batch.
_SEARCHED_BYTES = 1 << 21

Part = tuple[BatchTable, BatchWalk]


def collect_in_parts(
    source: Source, start: int, stop: int, threads: int
) -> tuple[BatchTable, BatchWalk]:
    """
    Walk to the end, with several threads if the log is large enough.

    Parameters
    ----------
    source : Source
    start, stop : int
        See `BatchWalk`.
    threads : int
        Largest number of threads.

    Returns
    -------
    batches : ndarray of BATCH_DTYPE, shape (n,)
    walk : BatchWalk
        The walk over the last part: its `end` is the end of the log.
    """
    starts = _part_starts(source, start, stop, min(threads, (stop - start) // _BYTES_PER_PART))
    if len(starts) == 1:
        return _walk(source, start, stop)
    bounds = list(itertools.pairwise([*starts, stop]))
    walked = map_parts(bounds, lambda part: _walk(source, *part))
    parts = _connected_parts(source, walked, stop)
    return _join([batches for batches, _ in parts]), parts[-1][1]


def _walk(source: Source, start: int, stop: int) -> Part:
    walk = BatchWalk(source, start, stop)
    return collect(walk), walk


def _part_starts(source: Source, start: int, stop: int, parts: int) -> list[int]:
    """Return the first position of each part, ascending."""
    starts = [start]
    if parts < 2 or not source.is_in_memory:
        return starts
    # The reads of one walk occupy a disk, and a guess in a map would read all bytes around it.
    if not source.is_cached(start, stop):
        return starts
    known = known_starts(source)
    with source.window(0, source.size) as window:
        for part in range(1, parts):
            target = start + (stop - start) * part // parts
            # -1: the offsets of the part are not known.
            found = _core.guess(window, target, min(target + _SEARCHED_BYTES, stop), -1)
            if found < 0:
                later = known[np.searchsorted(known, target) :]
                found = int(later[0]) if len(later) else -1
            if starts[-1] < found < stop:
                starts.append(found)
    return starts


def _connected_parts(source: Source, parts: list[Part], stop: int) -> list[Part]:
    """Keep the parts that a single walk would reach, and walk over the gaps between them."""
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


def _join(tables: list[BatchTable]) -> BatchTable:
    joined = result_memory.empty(sum(map(len, tables)), BATCH_DTYPE)
    bounds = np.cumsum([0, *map(len, tables)])

    def copy(index: int) -> None:
        # As bytes: NumPy copies structured arrays field by field.
        part = joined[bounds[index] : bounds[index + 1]]
        part.view(np.uint8)[:] = tables[index].view(np.uint8)

    map_parts(range(len(tables)), copy)
    return joined
