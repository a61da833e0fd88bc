"""Search for the next valid batch after damage."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import kafkascan.format.checksums  # noqa: F401 - chooses the kernel
from kafkascan._core import search as _core
from kafkascan.batches.collecting import collect_in_parts
from kafkascan.batches.columns import BatchTable, size_in_bytes
from kafkascan.batches.resyncing.gaps import DAMAGED_DTYPE
from kafkascan.batches.resyncing.offset_evidence import HIGHEST_OFFSET
from kafkascan.batches.verify import verify_rows
from kafkascan.batches.walks import BatchWalk
from kafkascan.format.errors import STATUS
from kafkascan.format.layout import BATCH_DTYPE, HEADER_SIZE_UP_TO_MAGIC
from kafkascan.io.sources import Source

FIRST_REACH = 1 << 16
"""Bytes that are framed after damage before checksums are verified; doubled after each success."""

VERIFIED_AT_ONCE = 1 << 27
"""Bytes that are framed at most before their checksums are verified."""

# Window size for a source that is not in memory. Larger batches are read again to verify them:
# at most this multiple of the source size, in total.
_WINDOW = 1 << 24
_READ_AGAIN = 8
# Batches and damaged ranges that are skipped before signals are handled.
_SKIPPED_AT_ONCE = 1 << 14


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
        self._rows, self._ranges = np.empty(0, BATCH_DTYPE), np.empty(0, DAMAGED_DTYPE)
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

    def skip_damage(
        self, position: int, last_damage: int, stop: int, lowest: int, highest: int, *, verify: bool
    ) -> tuple[BatchTable, NDArray[np.void], int, int]:
        """
        Skip damaged ranges whose extent is clear, from a position on; see damaged_ranges.h.

        Returns
        -------
        batches : ndarray of BATCH_DTYPE
        damaged : ndarray of DAMAGED_DTYPE
            Empty if the first damage is left to the caller, or the source is not in memory.
        position, last_damage : int
            Positions after them, and after the last damage.
        """
        if not self._source.is_in_memory:
            return self._rows, self._ranges, position, last_damage
        if not len(self._rows):
            self._rows = np.empty(_SKIPPED_AT_ONCE, BATCH_DTYPE)
            self._ranges = np.empty(_SKIPPED_AT_ONCE, DAMAGED_DTYPE)
        with self._source.window(0, self._source.size) as window:
            status, batches, ranges, position, last_damage = self._opened_searcher().skip_damage(
                window, position, last_damage, stop, lowest, highest, verify,
                FIRST_REACH, VERIFIED_AT_ONCE, self._rows, self._ranges,
            )  # fmt: skip
        if status == STATUS["SOURCE_FAULT"]:
            raise self._source.fault_error(position)
        self._source.require_unshrunk()
        return self._rows[:batches].copy(), self._ranges[:ranges].copy(), position, last_damage

    def _opened_searcher(self) -> _core.Searcher:
        if self._searcher is None:
            size = self._source.size
            count = _core.sums_for(size if self._source.is_in_memory else min(size, _WINDOW))
            sums = np.empty((2, count), np.uint32)
            self._searcher = _core.Searcher(sums[0], sums[1])
        return self._searcher

    def _find_in_window(
        self, position: int, stop: int, lowest: int, highest: int, any_header: bool
    ) -> tuple[int, int]:
        size, searcher = self._source.size, self._opened_searcher()
        # Skip zeros that the file does not store; a batch may start in their last bytes.
        hole_end = self._source.skip_hole(position)
        position = max(position, hole_end - HEADER_SIZE_UP_TO_MAGIC)
        if position >= stop:
            return STATUS["AT_STOP"], stop
        self._require_window(position)
        return searcher.find(
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
