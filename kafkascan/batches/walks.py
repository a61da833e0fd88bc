"""Walk over the batch headers of a source, in pauses, and classify how it ends.

The loop is in ``kafkascan/_core/batches.pyx`` and has no policy. This module interprets its
status and continues a walk after a pause.
"""

from __future__ import annotations

import os
import sys
import time

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import batches as _core
from kafkascan.batches.columns import BatchTable
from kafkascan.batches.header_reads import ColdHeaders, StoredHeaders, known_starts, scan_cached
from kafkascan.format.errors import (
    STATUS,
    CorruptBatchError,
    NotALogError,
    corrupt_batch_error,
)
from kafkascan.format.file_kinds import HEAD_SIZE, why_not_a_log
from kafkascan.format.layout import (
    BATCH_DTYPE,
    HEADER_SIZE_UP_TO_MAGIC,
    ScanEnd,
)
from kafkascan.io.page_cache import CAN_READ_CACHED, MapOrReads, page_faults
from kafkascan.io.sources import Source, is_all_zero, read_bytes
from kafkascan.io.worker_threads import ChunkSizer

# Bytes that are read at a time from a source that is not in memory: many batches if they are
# small on average, little more than a header if they are large.
LARGE_WINDOW = 1 << 18
_SMALL_WINDOW = 1 << 12
_LARGE_BATCH = 1 << 15
# Headers by which map and reads are compared at first, and those of them that show whether each of
# a map takes a fault. A fault maps the pages of 4 KiB around it, with the headers of small batches.
_MEASURED, _FEWEST_MEASURED, _FAULT_AROUND = 16, 3, 1 << 16

# Bytes of a table of a store, whose reader keeps them until the table is read: at first, and at
# most. A caller that reads a few records only needs no more.
_FIRST_BYTES, _MOST_BYTES, _BYTES_GROWTH = 1 << 18, 1 << 24, 4
# The same of a cold file, at most: the system reads the next ones meanwhile. Smaller files are
# read as if they were cached.
_MOST_COLD_BYTES = 1 << 22
_COLD_SAMPLES, _BYTES_PER_COLD_SAMPLE = 4, 1 << 26

# Bytes that are scanned at first before signals are handled.
_FIRST_PIECE = 1 << 26


class BatchWalk:
    """
    One walk over the batch headers of a source.

    Parameters
    ----------
    source : Source
    start, stop : int
        Positions: the walk covers the batches that start in ``[start, stop)``.
    window : int, optional
        Bytes to read first from a source that is not in memory, such as `window` of the walk that
        ended at `start`.
    reads_content : bool, default False
        Whether the caller reads the batches of each table before it fills the next one. Tables
        of a store and of a cold file then end after some MiB: each byte is requested once, and
        the system reads the next ones meanwhile.

    Attributes
    ----------
    window : int
        Bytes to read next, by the size of batches.
    position : int
        Position of the next batch; after the end, the end of the last row.
    end : ScanEnd or None
        How the walk ended; None before that.
    error : CorruptBatchError or None
        The damage at `position`, if `end` is CORRUPT.
    """

    def __init__(
        self,
        source: Source,
        start: int,
        stop: int,
        window: int = LARGE_WINDOW,
        *,
        reads_content: bool = False,
    ) -> None:
        self.source = source
        self.start = start
        self.stop = stop
        self.position = start
        self.end: ScanEnd | None = None
        self.error: CorruptBatchError | None = None
        self.window = window
        self._cold = ColdHeaders(source)
        self._cached = MapOrReads(_MEASURED, kept=2_048, fast_ns=500)
        self._stored = StoredHeaders(source)
        self._content_of = source.ahead if reads_content else None
        self._is_read_in_order = reads_content and _announces_order(source, start, stop)
        self._bytes_of_table = _FIRST_BYTES
        # Not a cached_property: before Python 3.12 all instances share its lock, and the child
        # of a fork would wait for a thread of its parent.
        self._index_starts: NDArray[np.int64] | None = None
        self._index_is_read = False

    def fill(self, rows: BatchTable) -> int:
        """
        Write the headers of the next batches into rows.

        Returns
        -------
        int
            Number of rows written: less than `len(rows)` only if the walk has ended, or if the
            caller is to read their bytes now.
        """
        count, pace, until = 0, ChunkSizer(_FIRST_PIECE), self._expect_content()
        while self.end is None and count < len(rows) and (count == 0 or self.position < until):
            piece = min(pace.next_size(), max(until - self.position, 1))
            status, written, position = self._scan_piece(piece, rows[count:])
            if status == STATUS["SOURCE_FAULT"]:
                raise self.source.fault_error(position)
            self._cold.note(written, position - self.position)
            self._stored.note(written)
            self._choose_window(written, position - self.position)
            is_at_stop = status == STATUS["AT_STOP"]
            begins = written > 0 and self.position == 0 and not is_at_stop
            if begins and _is_unlikely_offset(rows) and self._ends_as_another_kind():
                break
            self.position = position
            count += written
            is_paused = is_at_stop and position < self.stop
            if not is_paused and status not in (STATUS["OUTPUT_FULL"], STATUS["NEED_WINDOW"]):
                self._finish(status)
        if self._content_of is not None and self.end is not None:
            self._content_of.expect(0)
        # After its new end, a file that shrank contains zeros or nothing.
        self.source.require_unshrunk()
        return count

    def _expect_content(self) -> int:
        """Return where the next table ends at the latest; its bytes are announced if read."""
        if self._content_of is None and not self._is_read_in_order:
            return sys.maxsize
        until = min(self.position + self._bytes_of_table, self.stop)
        most = _MOST_BYTES if self._content_of is not None else _MOST_COLD_BYTES
        self._bytes_of_table = min(_BYTES_GROWTH * self._bytes_of_table, most)
        if self._content_of is not None:
            self._content_of.expect(until)
        return until

    def _scan_piece(self, piece: int, rows: BatchTable) -> tuple[int, int, int]:
        """Scan the next bytes; return status, number of rows and position, as `scan_into` does."""
        if not self._is_read_in_order and self._cold.is_for(self.position, self.stop):
            return self._cold.scan(self.position, self.stop, rows)
        stop = min(self.stop, self.position + piece)
        if not self.source.is_in_memory:
            if self._content_of is None:
                self._stored.request(self.position, self.stop)
            return self._scan_window(self.position, self.window, stop, rows)
        is_cold = self._cold.is_cold or self._is_read_in_order
        if not self._index_is_read:
            self._index_starts, self._index_is_read = self._read_index_starts(is_cold), True
        is_small = self.source.size <= LARGE_WINDOW  # a measurement would take longer
        if is_cold or is_small or not (self.source.has_file and CAN_READ_CACHED):
            return self._scan_window(0, self.source.size, stop, rows)
        return self._scan_cached(stop, rows)

    def _scan_cached(self, stop: int, rows: BatchTable) -> tuple[int, int, int]:
        cached = self._cached
        is_first = cached.left == _MEASURED and not cached.are_read
        rows = rows[: _FEWEST_MEASURED if is_first else cached.left]
        rows[:_FEWEST_MEASURED].view(np.uint8)[:] = 0  # their memory must not take a fault later
        faults, began_ns = page_faults(), time.perf_counter_ns()
        if cached.are_read:
            found = scan_cached(self.source, self.position, stop, rows)
        else:
            found = self._scan_window(0, self.source.size, stop, rows)
        taken_ns, faults = time.perf_counter_ns() - began_ns, page_faults() - faults
        _, count, end = found
        has_small_pages = 0 < count <= min(faults, (end - self.position) // _FAULT_AROUND)
        cached.note(count, taken_ns, has_small_pages=has_small_pages)
        return found

    def _scan_window(
        self, start: int, size: int, stop: int, rows: BatchTable
    ) -> tuple[int, int, int]:
        is_in_memory = self.source.is_in_memory
        with self.source.window(start, size) as window:
            return _core.scan_into(
                window,
                start,
                self.source.size,
                self.position,
                stop,
                rows,
                # The system's read-ahead follows one walk through a cold map, not several.
                in_chains=is_in_memory and not (self._cold.is_cold or self._is_read_in_order),
                known_starts=self._index_starts,
                keeps_gil=not is_in_memory and len(window) <= _SMALL_WINDOW,
            )

    def _read_index_starts(self, is_cold: bool) -> NDArray[np.int64] | None:
        """
        Return batch positions from the index, for a log whose positions cannot be guessed.

        A guess is cheaper than reading an index, but the headers of magic 0 and 1 have too few
        fields for it.
        """
        if not self.source.is_file or self.source.size <= LARGE_WINDOW:
            return None
        header: bytes | bytearray
        if is_cold or not CAN_READ_CACHED:  # a read would change how the system reads ahead
            header = read_bytes(self.source, self.start, HEADER_SIZE_UP_TO_MAGIC)
        else:  # without a page fault, which is measured later
            left = self.source.size - self.start
            header = bytearray(min(HEADER_SIZE_UP_TO_MAGIC, left))
            self.source.read_into(self.start, memoryview(header))
        is_legacy = len(header) == HEADER_SIZE_UP_TO_MAGIC and header[-1] < 2
        return known_starts(self.source.path) if is_legacy else None

    def _choose_window(self, batches: int, size: int) -> None:
        batches_are_small = batches > 0 and size <= batches * _LARGE_BATCH
        self.window = LARGE_WINDOW if batches_are_small else _SMALL_WINDOW

    def _ends_as_another_kind(self) -> bool:
        """End the walk if the source is recognized as a file of another kind."""
        reason = _why_not_a_log(self.source)
        if reason is not None:
            self.end, self.error = ScanEnd.CORRUPT, NotALogError(self.source.path, reason)
        return reason is not None

    def _finish(self, status: int) -> None:
        is_at_stop = status == STATUS["AT_STOP"] and self.source.size > 0
        if self.position == 0 and not is_at_stop and self._ends_as_another_kind():
            return
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
        """Bytes from `start` to the end of the last row."""
        return self.position - self.start

    @property
    def trailing_bytes(self) -> int:
        """Bytes after the last row; 0 if the walk ended at its stop."""
        return 0 if self.end is ScanEnd.CLEAN else self.source.size - self.position


def _announces_order(source: Source, start: int, stop: int) -> bool:
    """Announce that a cold map is read in order; return whether it is one."""
    if stop - start < _MOST_COLD_BYTES:
        return False
    samples = _COLD_SAMPLES + (stop - start) // _BYTES_PER_COLD_SAMPLE
    return not source.is_cached(start, stop, samples) and source.announce_order()


def _is_unlikely_offset(rows: BatchTable) -> bool:
    """Return whether the first offset may be the beginning of a file such as a zip archive."""
    return int(rows["base_offset"][0]) >> 56 != 0


def _why_not_a_log(source: Source) -> str | None:
    return why_not_a_log(os.path.basename(source.path), read_bytes(source, 0, HEAD_SIZE))


def require_log(source: Source) -> None:
    """Raise `NotALogError` if a source does not begin with a batch and is recognized."""
    walk = BatchWalk(source, 0, min(1, source.size))
    walk.fill(np.empty(1, BATCH_DTYPE))
    if isinstance(walk.error, NotALogError):
        raise walk.error
