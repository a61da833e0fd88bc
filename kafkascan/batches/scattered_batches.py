"""Read scattered batches of a mapped file without the bytes between them.

A page fault in a map makes the system read ahead, 128 KiB to several MiB, whatever is needed of
them. Batches that were selected from a cold file are requested before their bytes are touched.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from kafkascan._core.cold_reads import LogFile
from kafkascan.batches.columns import BatchTable, size_in_bytes
from kafkascan.format.layout import LOG_OVERHEAD
from kafkascan.io.sources import Source

# A selection is scattered if the bytes from its first batch to its last are this many times its
# own: read-ahead is faster where most of the bytes are needed.
_SCATTERED = 2
# A shorter range is requested exactly, unless it is most of its file.
_SHORT_RANGE = 1 << 20
# Bytes of batches that are requested before those of the part before them are read.
_BYTES_PER_PART = 1 << 24
_SAMPLES = 2


def requested_parts(source: Source, batches: BatchTable) -> Iterator[slice]:
    """
    Yield slices of rows to read one after the other; scattered rows of a cold map are requested.

    Parameters
    ----------
    source : Source
    batches : array of BATCH_DTYPE
        Rows that are not trusted: positions and sizes may be wrong.

    Yields
    ------
    slice
        One for all rows, unless they are scattered and cold. Of the following slice, the bytes
        are requested already.
    """
    if not (source.is_in_memory and source.has_file and len(batches)):
        yield slice(0, len(batches))
        return
    first, stop = range_of(source, batches)
    if source.is_cached(first, stop, _SAMPLES) or not _are_scattered(source, batches, first, stop):
        yield slice(0, len(batches))
        return
    parts = _parts(batches)
    _request(source, batches[parts[0]])
    for part, following in itertools.zip_longest(parts, parts[1:]):
        if following is not None:
            _request(source, batches[following])
        yield part


def request_rows(source: Source, batches: BatchTable) -> None:
    """Request all of the rows, if they are scattered and cold; see `requested_parts`."""
    for _ in requested_parts(source, batches):
        pass


def range_of(source: Source, batches: BatchTable) -> tuple[int, int]:
    """Return where the batches begin and end, if their positions ascend."""
    positions = batches["position"]
    stop = positions.item(-1) + batches["batch_length"].item(-1) + LOG_OVERHEAD
    first = min(max(positions.item(0), 0), source.size)
    return first, max(first, min(stop, source.size))


def _request(source: Source, batches: BatchTable) -> None:
    with source.borrowed_descriptor() as descriptor:
        file = LogFile(descriptor, source.file_start, source.size)
        file.request_batches(np.ascontiguousarray(batches))


def _are_scattered(source: Source, batches: BatchTable, first: int, stop: int) -> bool:
    if stop - first < _SHORT_RANGE:
        return _SCATTERED * (stop - first) < source.size
    return _SCATTERED * int(size_in_bytes(batches).sum()) < stop - first


def _parts(batches: BatchTable) -> list[slice]:
    """Split rows into parts of limited size, each of at least one batch."""
    ends = np.cumsum(np.maximum(size_in_bytes(batches), 0))
    part_of = ends // _BYTES_PER_PART
    bounds = [0, *(np.flatnonzero(np.diff(part_of)) + 1).tolist(), len(batches)]
    return [slice(*bound) for bound in itertools.pairwise(bounds)]
