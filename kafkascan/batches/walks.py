"""Walk over the batch headers of a source, in pauses, and classify how it ends.

The loop is in ``kafkascan/_core/batches.pyx`` and has no policy. This module interprets its
status and continues a walk after a pause.
"""

from __future__ import annotations

import os
import sys

import numpy as np

from kafkascan.batches.columns import BatchTable
from kafkascan.batches.header_reading.header_readers import LARGE_WINDOW, header_reader_of
from kafkascan.format.errors import (
    STATUS,
    CorruptBatchError,
    NotALogError,
    corrupt_batch_error,
)
from kafkascan.format.file_kinds import HEAD_SIZE, why_not_a_log
from kafkascan.format.layout import BATCH_DTYPE, HEADER_SIZE_UP_TO_MAGIC, ScanEnd
from kafkascan.io.sources import Source, is_all_zero, read_bytes
from kafkascan.io.stores.prefetching_reader import PrefetchingReader
from kafkascan.io.worker_threads import ChunkSizer

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
        Bytes to read first from a source that is not in memory; see `window_for`.
    reads_content : bool, default False
        Whether the caller reads the batches of each table before it fills the next one. Tables
        of a store and of a cold file then end after some MiB: each byte is requested once, and
        the system reads the next ones meanwhile.

    Attributes
    ----------
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
        self._content = content_tables_of(source, start, stop) if reads_content else None
        self._reader = header_reader_of(source, stop, window, is_in_order=self._content is not None)

    def fill(self, rows: BatchTable) -> int:
        """
        Write the headers of the next batches into rows.

        Returns
        -------
        int
            Number of rows written: less than `len(rows)` only if the walk has ended, or if the
            caller is to read their bytes now.
        """
        count, pace, until = 0, ChunkSizer(_FIRST_PIECE), sys.maxsize
        if self._content is not None:
            until = self._content.next_stop(self.position, self.stop)
        while self.end is None and count < len(rows) and (count == 0 or self.position < until):
            piece = min(pace.next_size(), max(until - self.position, 1))
            pause = min(self.stop, self.position + piece)
            status, written, position = self._reader.fill(self.position, pause, rows[count:])
            if status == STATUS["SOURCE_FAULT"]:
                raise self.source.fault_error(position)
            is_at_stop = status == STATUS["AT_STOP"]
            begins = written > 0 and self.position == 0 and not is_at_stop
            if begins and _is_unlikely_offset(rows) and self._ends_as_another_kind():
                break
            self.position = position
            count += written
            is_paused = is_at_stop and position < self.stop
            if not is_paused and status not in (STATUS["OUTPUT_FULL"], STATUS["NEED_WINDOW"]):
                self._finish(status)
        if self._content is not None and self.end is not None:
            self._content.expect_no_more()
        # After its new end, a file that shrank contains zeros or nothing.
        self.source.require_unshrunk()
        return count

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


# Bytes of a table whose batches the caller reads: at first, and at most. A caller that reads a few
# records only needs no more. The reader of a store keeps them until the table is read; of a cold
# file, the system reads the next ones meanwhile. Smaller files are read as if they were cached.
_FIRST_BYTES, _BYTES_GROWTH = 1 << 18, 4
_MOST_STORED_BYTES, _MOST_COLD_BYTES = 1 << 24, 1 << 22
_COLD_SAMPLES, _BYTES_PER_COLD_SAMPLE = 4, 1 << 26


class ContentTables:
    """Ends of tables whose batches the caller reads; their bytes are announced to a store."""

    def __init__(self, ahead: PrefetchingReader | None) -> None:
        self._ahead = ahead
        self._size = _FIRST_BYTES
        self._most = _MOST_COLD_BYTES if ahead is None else _MOST_STORED_BYTES

    def next_stop(self, position: int, stop: int) -> int:
        """Return where the table that begins at a position ends at the latest."""
        until = min(position + self._size, stop)
        self._size = min(_BYTES_GROWTH * self._size, self._most)
        if self._ahead is not None:
            self._ahead.expect(until)
        return until

    def expect_no_more(self) -> None:
        """Announce that the walk has ended."""
        if self._ahead is not None:
            self._ahead.expect(0)


def content_tables_of(source: Source, start: int, stop: int) -> ContentTables | None:
    """Return where tables end early: of a store and of a cold map, which is announced; or None."""
    if source.ahead is not None:
        return ContentTables(source.ahead)
    samples = _COLD_SAMPLES + (stop - start) // _BYTES_PER_COLD_SAMPLE
    is_cold = stop - start >= _MOST_COLD_BYTES and not source.is_cached(start, stop, samples)
    return ContentTables(None) if is_cold and source.announce_order() else None
