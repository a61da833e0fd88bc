"""Read batches and headers at known positions without the bytes between them.

A page fault in a map makes the system read ahead, 128 KiB to several MiB, whatever is needed of
them. Batches that were selected from a cold file are requested before their bytes are touched.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import batches as _core, guard as _guard
from kafkascan._core.cold_reads import LogFile
from kafkascan.batches.columns import BatchTable, size_in_bytes
from kafkascan.batches.header_reading.header_readers import LARGE_WINDOW
from kafkascan.format.errors import STATUS
from kafkascan.format.layout import BATCH_DTYPE, BATCH_HEADER_SIZE, LOG_OVERHEAD
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


def read_pieces(
    source: Source,
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    out: NDArray[np.uint8],
    places: NDArray[np.int64],
) -> None:
    """Copy pieces of a source, in any order, to places in a buffer; see `read_bytes`."""
    stops, row = starts + sizes, 0
    while row < len(starts):
        begin, end, count = 0, source.size, len(starts) - row
        if not source.is_in_memory:
            begin = int(starts[row])
            is_near = (starts[row:] >= begin) & (stops[row:] <= begin + LARGE_WINDOW)
            count = max(1, count if is_near.all() else int(is_near.argmin()))
            end = int(stops[row : row + count].max())
        part = slice(row, row + count)
        with source.window(begin, end - begin) as window:
            status, fault = _guard.copy_pieces(
                out, window, starts[part] - begin, sizes[part], places[part]
            )
        if status == STATUS["SOURCE_FAULT"]:
            raise source.fault_error(begin + fault)
        row += count


def read_headers(source: Source, positions: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return the bytes at positions that a batch header would have, with zeros after the end."""
    headers = np.zeros((len(positions), BATCH_HEADER_SIZE), np.uint8)
    sizes = np.clip(source.size - positions, 0, BATCH_HEADER_SIZE)
    places = BATCH_HEADER_SIZE * np.arange(len(positions))
    read_pieces(source, np.minimum(positions, source.size), sizes, headers.reshape(-1), places)
    return headers


def rows_of_headers(
    headers: NDArray[np.uint8], positions: NDArray[np.int64], left: NDArray[np.int64]
) -> tuple[BatchTable, NDArray[np.bool_]]:
    """
    Return a row for each batch header, and which of them may frame a batch.

    Parameters
    ----------
    headers : array of bytes, shape (n, 61)
    positions : array of int64, shape (n,)
    left : array of int64, shape (n,)
        Most bytes that each batch may have.
    """
    rows, are_framed = np.zeros(len(headers), BATCH_DTYPE), np.zeros(len(headers), np.uint8)
    _core.rows_of_headers(headers, np.ascontiguousarray(left, np.int64), rows, are_framed)
    rows["position"] = positions
    return rows, are_framed.view(np.bool_)


def row_of_header(header: bytes, position: int, size: int) -> BatchTable:
    """Return one row for a batch header at a position, or no rows if it is not a header."""
    row = np.empty(1, BATCH_DTYPE)
    _, count, _ = _core.scan_into(header, 0, max(size, len(header)), 0, 1, row)
    row["position"] = position
    return row[:count]
