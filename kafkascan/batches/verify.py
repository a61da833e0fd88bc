"""Verify checksums of batches; a mismatch is a result, not an exception."""

from __future__ import annotations

import bisect
import time
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

import kafkascan.format.checksums  # noqa: F401 - chooses the kernel
from kafkascan._core import checksums as _core
from kafkascan.batches.columns import BatchTable, require_batch_table, size_in_bytes
from kafkascan.batches.scattered_reads import range_of, requested_parts
from kafkascan.batches.walks import BatchWalk
from kafkascan.format.errors import STATUS, BatchTableError
from kafkascan.format.layout import BATCH_DTYPE, BATCH_HEADER_SIZE, CRC_STARTS, LOG_OVERHEAD
from kafkascan.io import result_memory
from kafkascan.io.concurrency import map_parts, require_threads, split_by_bytes
from kafkascan.io.page_cache import CAN_READ_CACHED, MapOrReads, page_faults
from kafkascan.io.sources import Source, SourceLike, borrowed_source
from kafkascan.io.stores.urls import as_object_url
from kafkascan.io.worker_threads import ChunkSizer

# Bytes from which on a thread pays off.
_BYTES_PER_THREAD = 1 << 23
# Bytes that are read at a time from a source that is not in memory.
_WINDOW = 1 << 23
# Bytes that are verified at first before signals are handled.
_FIRST_BYTES = 1 << 20
# Bytes of a cached file that are read at a time: they stay in the CPU's caches until their
# checksums are computed. And those of a table for which reads are tried.
_BUFFER, _LEAST_MEASURED = 1 << 21, 1 << 22
# Bytes of a map for each page fault from which on its pages are large, or mapped already: nothing
# is faster then. Times would not tell: several threads share the bandwidth of the memory.
_BYTES_PER_FAULT = 1 << 18


def verify_crcs(
    source: SourceLike,
    batches: BatchTable,
    /,
    *,
    threads: int | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> NDArray[np.bool_]:
    """
    Compare the stored checksum of each batch with the checksum of its bytes.

    Magic 2 stores the CRC-32C of everything from the attributes on; magic 0 and 1 store the
    CRC-32 of everything from the magic byte on.

    Parameters
    ----------
    source : path, bytes-like, Source or SegmentFile
    batches : array of BATCH_DTYPE, shape (n,)
        Rows of the source, in any order and selection, such as ``scan.batches[mask]``.
    threads : int, optional
        Largest number of threads; by default one per CPU, but fewer for small inputs. Bytes of a
        store are verified by one.
    storage_options : mapping, optional
        Options of the store, if the source is a URL; see `ObjectUrl`.

    Returns
    -------
    ndarray of bool, shape (n,)
        True if the checksums agree.

    Raises
    ------
    BatchTableError
        If a row does not describe the batch at its position in this source.
    SourceReadError
        If the file was truncated, or its disk failed, during the verification.
    OSError
        If the file cannot be opened.
    TypeError
        If `batches` is not an array of `BATCH_DTYPE`.

    Notes
    -----
    The CRC of magic 2 does not cover the base offset, the length, the leader epoch and the
    magic byte (``DefaultRecordBatch``), so it does not detect damage to these fields.
    """
    batches = require_batch_table(batches)
    with borrowed_source(as_object_url(source, storage_options)) as owner:
        sizes = size_in_bytes(batches)
        threads = require_threads(threads)
        if owner.ahead is not None:
            threads = 1  # several readers of an object would wait for each other's bytes
        parts = split_by_bytes(sizes, threads, _BYTES_PER_THREAD)
        verdicts = map_parts(parts, lambda part: verify_rows(owner, batches[part], part.start))
        owner.require_unshrunk()
    return verdicts[0] if len(parts) == 1 else np.concatenate(verdicts)


def verify_rows(source: Source, batches: BatchTable, first_row: int = 0) -> NDArray[np.bool_]:
    """
    Verify rows in the calling thread.

    Parameters
    ----------
    source : Source
    batches : contiguous array of BATCH_DTYPE, shape (n,)
    first_row : int
        Number of the first row in the caller's table, for error messages.

    Returns
    -------
    ndarray of bool, shape (n,)
    """
    verdicts = np.zeros(len(batches), np.uint8)
    for part in requested_parts(source, batches):
        _verify_part(source, batches[part], verdicts[part], first_row + part.start)
    return verdicts.view(np.bool_)


def _verify_part(
    source: Source, batches: BatchTable, verdicts: NDArray[np.uint8], first_row: int
) -> None:
    sizes = None if source.is_in_memory else _window_sizes(batches)
    cached = _map_or_reads(source, batches)
    row, pace, buffer = 0, ChunkSizer(_FIRST_BYTES), memoryview(b"")
    while row < len(batches):
        most, began_ns = pace.next_size(), time.perf_counter_ns()
        faults = 0 if cached is None else page_faults()
        # The position of a row may be wrong; the loop checks it.
        start = min(max(int(batches["position"][row]), 0), source.size)
        if sizes is not None:
            window = source.window(start, int(sizes[row]))
        elif cached is not None and cached.are_read:
            buffer = buffer or result_memory.empty(_BUFFER, np.uint8).data
            window = buffer[: min(_size_to_read(batches, row), source.size - start)]
            source.read_into(start, window)
        else:
            start, window = 0, source.window(0, source.size)
            most = most if cached is None else min(most, cached.left)
        with window:
            status, done, fault = _core.verify_into(
                window, start, source.size, batches[row:], verdicts[row:], most
            )
        if cached is not None and done > 0:
            size = max(1, _bytes_of(batches, row, row + done))
            if cached.are_read or (page_faults() - faults) * _BYTES_PER_FAULT > size:
                taken_ns = time.perf_counter_ns() - began_ns
                cached.note(size, taken_ns, has_small_pages=not cached.are_read)
            else:
                cached = None
        row += done
        if status == STATUS["NEED_WINDOW"] and done == 0:
            verdicts[row] = _verify_large_batch(source, start)
            row += 1
        elif status == STATUS["SOURCE_FAULT"]:
            raise source.fault_error(fault)
        elif status not in (STATUS["OK"], STATUS["NEED_WINDOW"]):
            # After its new end, a file that shrank contains zeros, which match no row.
            source.require_unshrunk()
            raise BatchTableError(source.path, first_row + row, status)


def _map_or_reads(source: Source, batches: BatchTable) -> MapOrReads | None:
    """Return what chooses for a large part of a cached file; None for anything else."""
    if not (source.is_in_memory and source.has_file and CAN_READ_CACHED and len(batches)):
        return None
    first, stop = range_of(source, batches)
    if stop - first < _LEAST_MEASURED or not source.is_cached(first, stop):
        return None
    return MapOrReads(_BUFFER, kept=1 << 26)


def _size_to_read(batches: BatchTable, row: int) -> int:
    """Return the size of a window for a row and those after it, if their positions ascend."""
    positions = batches["position"]
    after = bisect.bisect_right(positions, int(positions[row]) + _BUFFER, row)
    # The batch of the last row that starts in it is not complete.
    size = _bytes_of(batches, row, max(after - 1, row + 1))
    return min(max(size, BATCH_HEADER_SIZE), _BUFFER)


def _bytes_of(batches: BatchTable, row: int, stop: int) -> int:
    """Return the bytes from one row up to another one, if their positions ascend."""
    last = batches[stop - 1]
    end = int(last["position"]) + int(last["batch_length"]) + LOG_OVERHEAD
    return end - int(batches["position"][row])


def _window_sizes(batches: BatchTable) -> NDArray[np.int64]:
    """Return the bytes to read for each row: as far as batches follow each other."""
    positions = batches["position"]
    stops = positions + size_in_bytes(batches)
    run_ends = np.append(np.flatnonzero(positions[1:] != stops[:-1]), len(batches) - 1)
    run_of = np.searchsorted(run_ends, np.arange(len(batches)))
    run_sizes: NDArray[np.int64] = stops[run_ends[run_of]] - positions
    return np.clip(run_sizes, BATCH_HEADER_SIZE, _WINDOW)


def _verify_large_batch(source: Source, position: int) -> bool:
    """Verify a batch that is larger than a window; its framing was checked before."""
    # The size comes from the bytes, not from the row, which another thread may change.
    rows = np.empty(1, BATCH_DTYPE)
    if BatchWalk(source, position, position + 1).fill(rows) == 0:
        return False
    header = rows[0]
    magic, stop = int(header["magic"]), position + LOG_OVERHEAD + int(header["batch_length"])
    return crc_of_bytes(source, position + CRC_STARTS[magic], stop, magic) == int(header["crc"])


def crcs_of_ranges(
    source: Source, starts: NDArray[np.int64], stops: NDArray[np.int64], magic: int
) -> NDArray[np.uint32]:
    """Return `crc_of_bytes` of each range."""
    if not source.is_in_memory:
        ranges = zip(starts.tolist(), stops.tolist(), strict=True)
        return np.array([crc_of_bytes(source, *one, magic) for one in ranges], np.uint32)
    crcs = np.empty(len(starts), np.uint32)
    with source.window(0, source.size) as window:
        fault = _core.sum_ranges(window, starts, stops, crcs, magic != 2)
    if fault >= 0:
        raise source.fault_error(fault)
    return crcs


def crc_of_bytes(source: Source, position: int, stop: int, magic: int) -> int:
    """Return the checksum of a range of bytes, as a magic defines it, read window by window."""
    checksum = _core.crc32c if magic == 2 else _core.crc32
    crc = 0
    while position < stop:
        with source.window(position, min(_WINDOW, stop - position)) as window:
            crc, fault = checksum(window, crc)
            size = len(window)
        if fault >= 0 or size == 0:
            raise source.fault_error(position)
        position += size
    return crc
