"""Search for valid batches in the damaged bytes of a source (``csrc/batch_search.h``)."""

from __future__ import annotations

import numpy as np

import kafkascan.format.checksums  # noqa: F401 - chooses the kernel
from kafkascan._core import search as _core
from kafkascan.batches.columns import size_in_bytes
from kafkascan.batches.parallel_walk import collect_in_parts
from kafkascan.batches.resyncing.offset_evidence import HIGHEST_OFFSET
from kafkascan.batches.verify import verify_rows
from kafkascan.batches.walks import BatchWalk
from kafkascan.format.errors import STATUS
from kafkascan.format.layout import BATCH_DTYPE, HEADER_SIZE_UP_TO_MAGIC
from kafkascan.io.sources import Source

# Window size for a source that is not in memory. Larger batches are read again to verify them:
# at most this multiple of the source size, in total.
_WINDOW = 1 << 24
_READ_AGAIN = 8


class BatchSearch:
    """
    Search for valid batches in one source.

    Parameters
    ----------
    source : Source

    Attributes
    ----------
    is_exhaustive : bool
        Whether every candidate was verified. False once the candidates that are larger than the
        window have used up the bytes that may be read again.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._searcher: _core.Searcher | None = None
        self._window: memoryview | None = None
        self._window_start = 0
        self._budget = _READ_AGAIN * source.size
        self.is_exhaustive = True

    def find(
        self, position: int, stop: int, lowest: int, highest: int, *, any_header: bool = False
    ) -> int | None:
        """
        Return the position of the first valid batch that starts in ``[position, stop)``.

        Parameters
        ----------
        position, stop : int
        lowest, highest : int
            Range of its offsets, inclusive.
        any_header : bool
            Accept any header whose checksum is valid, whatever its other fields are.
        """
        if lowest > highest:
            return None
        stop = min(stop, self._source.size)
        try:
            while position < stop:
                status, position = self._find_in_window(position, stop, lowest, highest, any_header)
                if status == STATUS["SOURCE_FAULT"]:
                    raise self._source.fault_error(position)
                if status == STATUS["OK"]:
                    return position
                if status == STATUS["AT_STOP"]:
                    return None
                if not self._move_window(position):
                    if self._is_large_batch_valid(position):
                        return position
                    position += 1
            return None
        finally:
            if self._source.is_in_memory:
                self._window = None  # a view would prevent the source from being closed
            self._source.require_unshrunk()

    def is_valid(self, position: int) -> bool:
        """Return whether a valid batch starts at a position."""
        return self.find(position, position + 1, 0, HIGHEST_OFFSET) is not None

    def has_valid_crc(self, position: int) -> bool:
        """Return whether the batch framed at a position has a valid checksum."""
        at = self.find(position, position + 1, 0, HIGHEST_OFFSET, any_header=True)
        return at is not None

    def follow(self, position: int, stop: int) -> tuple[int, int]:
        """Return where the chain of valid batches from a position ends, and its first offset."""
        row, first = np.empty(1, BATCH_DTYPE), None
        while position < stop and self.is_valid(position):
            BatchWalk(self._source, position, position + 1).fill(row)
            first = int(row["base_offset"][0]) if first is None else first
            position += int(size_in_bytes(row)[0])
        if first is None:
            raise ValueError(f"no valid batch starts at position {position}")
        return position, first

    def _find_in_window(
        self, position: int, stop: int, lowest: int, highest: int, any_header: bool
    ) -> tuple[int, int]:
        size = self._source.size
        if self._searcher is None:
            count = _core.sums_for(size if self._source.is_in_memory else min(size, _WINDOW))
            sums = np.empty((2, count), np.uint32)
            self._searcher = _core.Searcher(sums[0], sums[1])
        # Skip zeros that the file does not store; a batch may start in their last bytes.
        hole_end = self._source.skip_hole(position)
        position = max(position, hole_end - HEADER_SIZE_UP_TO_MAGIC)
        if position >= stop:
            return STATUS["AT_STOP"], stop
        self._require_window(position)
        return self._searcher.find(
            self._window, self._window_start, size, position, stop, lowest, highest, any_header
        )

    def _require_window(self, position: int) -> None:
        if self._source.is_in_memory:
            self._window_start = 0
            self._window = self._source.window(0, self._source.size)
        elif self._window is None or not (
            self._window_start <= position < self._window_start + len(self._window)
        ):
            self._read_window(position)

    def _read_window(self, position: int) -> None:
        self._window_start = position
        self._window = self._source.window(position, _WINDOW)

    def _move_window(self, position: int) -> bool:
        """Read a window from a position on, unless it would mostly repeat the current one."""
        assert self._window is not None
        is_far = position - self._window_start >= len(self._window) // 2
        if is_far and not self._source.is_in_memory:
            self._read_window(position)
        return is_far

    def _is_large_batch_valid(self, position: int) -> bool:
        """Verify a batch that is larger than the window, within the budget."""
        table, _ = collect_in_parts(self._source, position, position + 1, 1)
        size = int(size_in_bytes(table).sum())
        if size > self._budget:
            self.is_exhaustive = False
            return False
        self._budget -= size
        return bool(len(table)) and bool(verify_rows(self._source, table)[0])
