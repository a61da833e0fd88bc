"""Walks over the batch headers of a source.

The loop itself is in ``kafkascan/_core/batches.pyx``; it knows no policy. What its outcome
means, and how a walk goes on after a pause, is decided here, once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import batches as _core
from kafkascan._core import memory as _memory
from kafkascan.batch_columns import BatchTable
from kafkascan.errors import STATUS, CorruptBatchError, corrupt_batch_error
from kafkascan.layout import BATCH_DTYPE, HEADER_SIZE_UP_TO_MAGIC, ScanEnd
from kafkascan.sources import Source
from kafkascan.starts import known_starts

# Windows of a source that is not in memory: many batches at once where they are
# small, little more than a header where they are large (on average, in bytes).
_LARGE_WINDOW = 1 << 18
_SMALL_WINDOW = 1 << 12
_LARGE_BATCH = 1 << 15
_ZERO_SEARCH_WINDOW = 1 << 22

_FIRST_ROWS = 1024
_GROWTH = 8
_ROWS_AT_ONCE = 1 << 19


class BatchWalk:
    """
    One walk over the batch headers of a source.

    Parameters
    ----------
    source : Source
    start, stop : int
        Positions: the walk takes the batches that start in ``[start, stop)``.

    Attributes
    ----------
    position : int
        Of the next batch; at last, where the rows end.
    end : ScanEnd or None
        How the walk ended; None while it goes on.
    error : CorruptBatchError or None
        What is wrong at `position`, if `end` is CORRUPT.
    """

    def __init__(self, source: Source, start: int, stop: int) -> None:
        self.source = source
        self.start = start
        self.stop = stop
        self.position = start
        self.end: ScanEnd | None = None
        self.error: CorruptBatchError | None = None
        self._window_size = _LARGE_WINDOW
        self._known_starts = self._ask_index()

    def fill(self, rows: BatchTable) -> int:
        """
        Write the headers of the next batches into rows.

        Returns
        -------
        int
            Rows written: fewer than there are only if the walk has ended.
        """
        count = 0
        while self.end is None and count < len(rows):
            with self._next_window() as window:
                status, written, position = _core.scan_into(
                    window,
                    self._window_start,
                    self.source.size,
                    self.position,
                    self.stop,
                    rows[count:],
                    in_chains=self.source.is_in_memory,
                    known_starts=self._known_starts,
                )
            if status == STATUS["SOURCE_FAULT"]:
                raise self.source.fault_error(position)
            self._choose_window(written, position - self.position)
            self.position = position
            count += written
            if status not in (STATUS["OUTPUT_FULL"], STATUS["NEED_WINDOW"]):
                self._finish(status)
        # What a shrinking file shows behind its new end is zeros or nothing at all.
        self.source.require_unshrunk()
        return count

    def _ask_index(self) -> NDArray[np.int64] | None:
        """Where batches are said to start, if that cannot be guessed.

        Guesses cost less than reading an index, but messages of magic 0 and 1 say too
        little of themselves.
        """
        if not (self.source.is_in_memory and self.source.is_file):
            return None
        header = read_bytes(self.source, self.start, HEADER_SIZE_UP_TO_MAGIC)
        is_legacy = len(header) == HEADER_SIZE_UP_TO_MAGIC and header[-1] < 2
        return known_starts(self.source.path) if is_legacy else None

    def _next_window(self) -> memoryview:
        if self.source.is_in_memory:
            self._window_start = 0
            return self.source.window(0, self.source.size)
        self._window_start = self.position
        return self.source.window(self.position, self._window_size)

    def _choose_window(self, batches: int, size: int) -> None:
        batches_are_small = batches > 0 and size <= batches * _LARGE_BATCH
        self._window_size = _LARGE_WINDOW if batches_are_small else _SMALL_WINDOW

    def _finish(self, status: int) -> None:
        if status == STATUS["AT_STOP"]:
            self.end = ScanEnd.CLEAN
            return
        header = read_bytes(self.source, self.position, HEADER_SIZE_UP_TO_MAGIC)
        if not any(header) and is_all_zero(self.source, self.position):
            self.end = ScanEnd.ZERO_TAIL
        elif status == STATUS["TORN_TAIL"]:
            self.end = ScanEnd.TORN_TAIL
        else:
            self.end = ScanEnd.CORRUPT
            self.error = corrupt_batch_error(status, self.source.path, self.position, header)

    @property
    def valid_bytes(self) -> int:
        """Bytes that the rows cover, from `start` on."""
        return self.position - self.start

    @property
    def trailing_bytes(self) -> int:
        """Bytes behind them that no row covers; 0 if the walk ended at its stop."""
        return 0 if self.end is ScanEnd.CLEAN else self.source.size - self.position


def row_of_header(header: bytes, position: int, size: int) -> BatchTable:
    """Return the row of a batch that has a header, a position and a size; none if it is none."""
    row = np.empty(1, BATCH_DTYPE)
    _, count, _ = _core.scan_into(header, 0, max(size, len(header)), 0, 1, row)
    row["position"] = position
    return row[:count]


def read_bytes(source: Source, position: int, size: int) -> bytes:
    """Return a copy of some bytes; a fault in a map is an error, as in the loops."""
    with source.window(position, size) as window:
        status, copy, fault = _memory.copy_bytes(window)
    if status == STATUS["SOURCE_FAULT"]:
        raise source.fault_error(position + fault)
    return copy


def read_into(source: Source, position: int, out: NDArray[np.uint8]) -> None:
    """Copy as many bytes as there is room for, as `read_bytes` does."""
    with source.window(position, len(out)) as window:
        status, fault = _memory.copy_into(out, window)
    if status == STATUS["SOURCE_FAULT"]:
        raise source.fault_error(position + fault)


def is_all_zero(source: Source, position: int) -> bool:
    """Tell whether nothing but zeros follows a position; stops at the first other byte."""
    while (position := source.skip_hole(position)) < source.size:
        with source.window(position, _ZERO_SEARCH_WINDOW) as window:
            status, all_zero, fault = _memory.all_zero(window)
            size = len(window)
        if status == STATUS["SOURCE_FAULT"]:
            raise source.fault_error(position + fault)
        if not all_zero:
            return False
        position += size
    return True


def collect(walk: BatchWalk) -> BatchTable:
    """Walk to the end; the table grows by what the batches so far let one expect."""
    table = np.empty(_FIRST_ROWS, BATCH_DTYPE)
    count = walk.fill(table)
    while walk.end is None:
        table = _grown(table, walk)
        count += walk.fill(table[count:])
    table.resize(count, refcheck=False)
    return table


def _grown(table: BatchTable, walk: BatchWalk) -> BatchTable:
    """Return a larger table that begins with a full one's rows."""
    bytes_per_batch = max(1, walk.valid_bytes // len(table))
    expected = (walk.stop - walk.position) // bytes_per_batch
    # Not all at once: what lies ahead may be a hole instead of batches.
    limit = max(_ROWS_AT_ONCE, _GROWTH * len(table))
    more = min(expected + expected // 8 + _FIRST_ROWS, limit)
    grown = np.empty(len(table) + more, BATCH_DTYPE)
    # As bytes: NumPy copies structured arrays field by field.
    grown.view(np.uint8)[: table.nbytes] = table.view(np.uint8)
    return grown
