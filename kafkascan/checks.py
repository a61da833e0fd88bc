"""Verdicts on batches. Bad data is an answer here, not an exception."""

from __future__ import annotations

import itertools
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import checksums as _core
from kafkascan.batch_columns import BatchTable, require_batch_table, size_in_bytes
from kafkascan.errors import STATUS, BatchTableError
from kafkascan.layout import BATCH_DTYPE, BATCH_HEADER_SIZE, CRC_STARTS, LOG_OVERHEAD
from kafkascan.sources import Source, SourceLike, borrowed_source
from kafkascan.walks import BatchWalk

# A thread is worth starting for this many bytes.
_BYTES_PER_THREAD = 1 << 23
# Bytes read at once from a source that is not in memory.
_WINDOW = 1 << 23


def verify_crcs(
    source: SourceLike, batches: BatchTable, /, *, threads: int | None = None
) -> NDArray[np.bool_]:
    """
    Compare the stored checksum of each batch with that of its bytes.

    CRC-32C of everything from the attributes on for magic 2, CRC-32 of everything from
    the magic byte on for magic 1 and 0.

    Parameters
    ----------
    source : path, bytes-like, Source or Segment
    batches : array of BATCH_DTYPE, shape (n,)
        Rows of the source, in any order and selection, such as ``scan.batches[mask]``.
    threads : int, optional
        At most this many threads; by default one per CPU, as far as the size is worth it.

    Returns
    -------
    ndarray of bool, shape (n,)
        True where the checksums agree.

    Raises
    ------
    BatchTableError
        If a row does not describe the batch at its position in this source.
    SourceReadError
        If the file was truncated, or its disk failed, during the verification.
    TypeError
        If `batches` is not an array of `BATCH_DTYPE`.

    Notes
    -----
    The CRC of magic 2 does not cover the base offset, the length, the leader epoch and the
    magic byte (``DefaultRecordBatch``): damage there is not seen by it.
    """
    batches = require_batch_table(batches)
    with borrowed_source(source) as owner:
        parts = _split(batches, _thread_count(batches, threads))
        if len(parts) == 1:
            verdicts = verify_rows(owner, batches)
        else:
            with ThreadPoolExecutor(len(parts)) as pool:
                jobs = [
                    pool.submit(verify_rows, owner, batches[part], part.start) for part in parts
                ]
            verdicts = np.concatenate([job.result() for job in jobs])
        owner.require_unshrunk()
    return verdicts


def verify_rows(source: Source, batches: BatchTable, first_row: int = 0) -> NDArray[np.bool_]:
    """
    Verify rows in this thread.

    Parameters
    ----------
    source : Source
    batches : contiguous array of BATCH_DTYPE, shape (n,)
    first_row : int
        Number of the first of them in the caller's table, for errors.

    Returns
    -------
    ndarray of bool, shape (n,)
    """
    verdicts = np.zeros(len(batches), np.uint8)
    sizes = None if source.is_in_memory else _window_sizes(batches)
    row = 0
    while row < len(batches):
        start, size = (0, source.size) if sizes is None else _window(source, batches, sizes, row)
        with source.window(start, size) as window:
            status, done, fault = _core.verify_into(
                window, start, source.size, batches[row:], verdicts[row:]
            )
        row += done
        if status == STATUS["NEED_WINDOW"] and done == 0:
            verdicts[row] = _verify_in_pieces(source, start)
            row += 1
        elif status == STATUS["SOURCE_FAULT"]:
            raise source.fault_error(fault)
        elif status not in (STATUS["OK"], STATUS["NEED_WINDOW"]):
            # What a shrinking file shows behind its new end matches no row.
            source.require_unshrunk()
            raise BatchTableError(source.path, first_row + row, status)
    return verdicts.view(np.bool_)


def _thread_count(batches: BatchTable, threads: int | None) -> int:
    if threads is not None and threads < 1:
        raise ValueError("threads must be at least 1")
    if threads is None:
        threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if threads == 1:
        return 1
    total = int(size_in_bytes(batches).sum())
    return max(1, min(threads, total // _BYTES_PER_THREAD))


def _split(batches: BatchTable, parts: int) -> list[slice]:
    """Neighbouring rows of about the same number of bytes."""
    if parts == 1:
        return [slice(0, len(batches))]
    bytes_up_to = np.cumsum(size_in_bytes(batches))
    targets = bytes_up_to[-1] * np.arange(1, parts) // parts
    # Sorted: sizes that a caller made negative must not make a part miss a row.
    cuts = [0, *sorted(np.searchsorted(bytes_up_to, targets).tolist()), len(batches)]
    return [slice(first, last) for first, last in itertools.pairwise(cuts)]


def _window(
    source: Source, batches: BatchTable, sizes: NDArray[np.int64], row: int
) -> tuple[int, int]:
    """Position and size of what to read for a row and those that follow it."""
    # A row may lie about its position; the loop finds that out by itself.
    position = min(max(int(batches["position"][row]), 0), source.size)
    return position, int(sizes[row])


def _window_sizes(batches: BatchTable) -> NDArray[np.int64]:
    """For each row, how much to read there: as far as batches follow each other."""
    positions = batches["position"]
    stops = positions + size_in_bytes(batches)
    run_ends = np.append(np.flatnonzero(positions[1:] != stops[:-1]), len(batches) - 1)
    run_of = np.searchsorted(run_ends, np.arange(len(batches)))
    run_sizes: NDArray[np.int64] = stops[run_ends[run_of]] - positions
    return np.clip(run_sizes, BATCH_HEADER_SIZE, _WINDOW)


def _verify_in_pieces(source: Source, position: int) -> bool:
    """Verify a batch, known to be framed soundly, that is larger than a window."""
    # Its own bytes say how large it is, not the row, which another thread may change.
    rows = np.empty(1, BATCH_DTYPE)
    if BatchWalk(source, position, position + 1).fill(rows) == 0:
        return False
    header = rows[0]
    magic, stop = int(header["magic"]), position + LOG_OVERHEAD + int(header["batch_length"])
    return crc_of_bytes(source, position + CRC_STARTS[magic], stop, magic) == int(header["crc"])


def crc_of_bytes(source: Source, position: int, stop: int, magic: int) -> int:
    """Return the checksum that a format has of some bytes; they are read in pieces."""
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
