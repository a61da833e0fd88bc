"""The search for true batches in damaged bytes (``csrc/batch_search.h``), in any source."""

from __future__ import annotations

import numpy as np

from kafkascan._core import search as _core
from kafkascan.batch_columns import size_in_bytes
from kafkascan.checks import verify_rows
from kafkascan.errors import STATUS
from kafkascan.layout import HEADER_SIZE_UP_TO_MAGIC
from kafkascan.parallel import collect_in_parts
from kafkascan.sources import Source

HIGHEST_OFFSET = (1 << 63) - 1

# Bytes at hand while a source is searched that is not in memory; no more is read of a batch
# that is larger than this, all in all, than so many times the source.
_WINDOW = 1 << 24
_READ_AGAIN = 8


class BatchSearch:
    """The search for true batches in one source."""

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
        Return where the first true batch starts in ``[position, stop)``.

        With `any_header`, what has its checksum is true, whatever else its header says.
        """
        if lowest > highest:
            return None
        stop = min(stop, self._source.size)
        try:
            while position < stop:
                status, position = self._find_at_hand(position, stop, lowest, highest, any_header)
                if status == STATUS["SOURCE_FAULT"]:
                    raise self._source.fault_error(position)
                if status == STATUS["OK"]:
                    return position
                if status == STATUS["AT_STOP"]:
                    return None
                if not self._move_window(position):
                    if self._is_true_in_pieces(position):
                        return position
                    position += 1
            return None
        finally:
            if self._source.is_in_memory:
                self._window = None  # a view would keep the source from being closed
            self._source.require_unshrunk()

    def is_true(self, position: int) -> bool:
        """Tell whether a true batch starts at a position."""
        return self.find(position, position + 1, 0, HIGHEST_OFFSET) is not None

    def has_true_crc(self, position: int) -> bool:
        """Tell whether the checksum of what is framed at a position is right."""
        at = self.find(position, position + 1, 0, HIGHEST_OFFSET, any_header=True)
        return at is not None

    def _find_at_hand(
        self, position: int, stop: int, lowest: int, highest: int, any_header: bool
    ) -> tuple[int, int]:
        size = self._source.size
        if self._searcher is None:
            room = _core.room_for(size if self._source.is_in_memory else min(size, _WINDOW))
            sums = np.empty((2, room), np.uint32)
            self._searcher = _core.Searcher(sums[0], sums[1])
        position = self._skip_hole(position)
        if position >= stop:
            return STATUS["AT_STOP"], stop
        self._require_window(position)
        return self._searcher.find(
            self._window, self._window_start, size, position, stop, lowest, highest, any_header
        )

    def _skip_hole(self, position: int) -> int:
        """Pass over zeros that are not even stored; a batch may begin in their last bytes."""
        return max(position, self._source.skip_hole(position) - HEADER_SIZE_UP_TO_MAGIC)

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
        """Read the bytes from a position on, unless most of them are at hand already."""
        assert self._window is not None
        is_far = position - self._window_start >= len(self._window) // 2
        if is_far and not self._source.is_in_memory:
            self._read_window(position)
        return is_far

    def _is_true_in_pieces(self, position: int) -> bool:
        """Verify what is larger than a window."""
        table, _ = collect_in_parts(self._source, position, position + 1, 1)
        size = int(size_in_bytes(table).sum())
        if size > self._budget:
            self.is_exhaustive = False
            return False
        self._budget -= size
        return bool(len(table)) and bool(verify_rows(self._source, table)[0])
