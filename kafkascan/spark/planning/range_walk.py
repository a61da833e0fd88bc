"""Walk the batches of one range of a file, exactly as a walk of the whole file finds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, next_offset
from kafkascan.batches.header_reading.header_readers import LARGE_WINDOW, window_for
from kafkascan.batches.verify import verify_rows
from kafkascan.batches.walks import BatchWalk
from kafkascan.format.errors import CorruptBatchError
from kafkascan.format.layout import BATCH_DTYPE, OFFSET_INDEX_ENTRY, ScanEnd
from kafkascan.io.sources import Source, read_bytes
from kafkascan.logs.walking.segment_tails import describe_end, intact_batches

_SKIPPED_ROWS = 1 << 14
_BASE_OFFSET_SIZE = 8


@dataclass(frozen=True, eq=False)
class IndexHints:
    """
    Positions where batches start, according to an index.

    A position is used only if the batch there has a valid checksum and an offset that the entry
    allows. A walk that passes such a position without stopping there is an error (`RangeWalk`).

    Attributes
    ----------
    positions : ndarray of int64
        Ascending.
    offsets : ndarray of int64
        An offset that is not below the base offset of the batch, for each position. Ascending.
    """

    positions: NDArray[np.int64]
    offsets: NDArray[np.int64]

    @classmethod
    def parse(cls, data: bytes, base_offset: int) -> IndexHints | None:
        """Parse the bytes of an index; None if its entries do not ascend."""
        count = len(data) // OFFSET_INDEX_ENTRY.itemsize
        entries = np.frombuffer(data, OFFSET_INDEX_ENTRY, count)
        positions = entries["position"].astype(np.int64)
        # A preallocated index ends with zeros.
        entries = entries[: int(np.flatnonzero(positions)[-1]) + 1 if positions.any() else 0]
        positions = entries["position"].astype(np.int64)
        offsets = base_offset + entries["relative_offset"].astype(np.int64)
        if (np.diff(positions) <= 0).any() or (np.diff(offsets) <= 0).any():
            return None
        return cls(positions, offsets)

    def position_of(self, offset: int) -> int:
        """Return the position where a search for an offset starts, as a broker does."""
        row = int(np.searchsorted(self.offsets, offset, "right")) - 1
        return 0 if row < 0 else int(self.positions[row])

    def proven_before(self, source: Source, position: int) -> int:
        """Return the last position not after another one where a batch starts; else 0."""
        row = int(np.searchsorted(self.positions, position, "right")) - 1
        for one in self.positions[max(row - 1, 0) : row + 1].tolist()[::-1]:
            if self.is_proven(source, one):
                return int(one)
        return 0

    def last_before(self, position: int) -> int:
        """Return the last position that is not after another one; 0 if there is none."""
        row = int(np.searchsorted(self.positions, position, "right")) - 1
        return 0 if row < 0 else int(self.positions[row])

    def position_after(self, offset: int) -> int | None:
        """Return a position after all batches that begin before an offset, if it is known."""
        row = int(np.searchsorted(self.offsets, offset - 1, "left")) + 1
        return int(self.positions[row]) if row < len(self.positions) else None

    def offset_after(self, start: int, size: int) -> int | None:
        """
        Return the offset after the batches of about `size` bytes from an offset on; at least one.

        None is the end of the file.
        """
        first = int(np.searchsorted(self.offsets, start, "left"))
        stop = self.position_of(start) + size
        row = max(first, int(np.searchsorted(self.positions, stop, "right")) - 1)
        return int(self.offsets[row]) + 1 if row < len(self.offsets) - 1 else None

    def is_proven(self, source: Source, position: int) -> bool:
        """Whether a batch with a valid checksum and a fitting offset starts at a position."""
        if position == 0:
            return True
        rows = np.empty(1, BATCH_DTYPE)
        walk = BatchWalk(source, position, position + 1)
        if position >= source.size or walk.fill(rows) == 0:
            return False
        (row,) = np.flatnonzero(self.positions == position)
        return int(rows["base_offset"][0]) <= self.offsets[row] and bool(
            verify_rows(source, rows)[0]
        )


class RangeWalk:
    """
    Walk the batches that start in ``[start, stop)``.

    The walk to the first batch starts at the beginning of the file and reads headers only. Nothing
    else proves that a batch starts at a position, and that the file is intact before it. In an
    object of a store, a walk over all headers would fetch most of the object again for each
    range. So the walk starts at a position of the object's index, if a batch with a valid checksum
    is there; the range before it must arrive at this position, too.

    Parameters
    ----------
    source : Source
    start, stop : int
    table_bytes : int, optional
        Approximate number of bytes that one table covers: few enough that its batches are still
        in the CPU cache when the caller reads them.
    hints : IndexHints, optional
        Positions from the index of an object.
    first : int, default 0
        A position of the hints before which the caller needs no batch.
    pause : int, default 0
        A position where a table ends: the caller may need nothing after it.
    on_batches : callable, optional
        Called with all batches that the walk passes, also those before the range.

    Raises
    ------
    CorruptBatchError
        From `tables`, if a batch of the index with a valid checksum is inside of another batch.

    Attributes
    ----------
    position : int
        Position of the next batch; after the walk, the end of the last batch.
    end : ScanEnd or None
        How the file ends, if it ends in this range; CLEAN if it continues after the range. None
        during the walk, and if the file ended before this range.
    error : CorruptBatchError or None
        The damage at `position`, if the file is corrupt in this range.
    next_offset : int or None
        The offset after the last batch before `position`; None at the beginning of a file.
    trailing_bytes : int
        Number of bytes from `position` to the end of the file that are not batches.
    """

    def __init__(
        self,
        source: Source,
        start: int,
        stop: int,
        table_bytes: int | None = None,
        hints: IndexHints | None = None,
        *,
        first: int = 0,
        pause: int = 0,
        on_batches: Callable[[BatchTable], object] = lambda table: None,
    ) -> None:
        self.source = source
        self.start = start
        self.stop = min(stop, source.size)
        self.position = 0
        self.end: ScanEnd | None = None
        self.error: CorruptBatchError | None = None
        self.next_offset: int | None = None
        self.trailing_bytes = 0
        self._table_bytes = table_bytes
        self._window = LARGE_WINDOW
        self._hints = hints
        self._first, self._pause, self._on_batches = first, pause, on_batches
        # Where the walk of the next range may start, so that this one must arrive there.
        self._hinted_stop = 0 if hints is None else hints.last_before(self.stop)

    def tables(self, rows: int) -> Iterator[BatchTable]:
        """Yield the batches, in tables of at most `rows` rows."""
        if not self._walk_to_start():
            return
        while self.end is None:
            yield from self._next_tables(rows)

    def damage(self, *, is_last: bool) -> CorruptBatchError | None:
        """
        Return the damage that ends the file in this range, if any.

        A torn tail, or zeros, are damage unless the file is the last one of its log, and no intact
        batches follow.
        """
        if self.end not in (ScanEnd.TORN_TAIL, ScanEnd.ZERO_TAIL):
            return self.error
        lost = intact_batches(self, self.source, self.next_offset)
        if is_last and not len(lost):
            return None
        header = read_bytes(self.source, self.position, _BASE_OFFSET_SIZE)
        is_whole = len(header) == _BASE_OFFSET_SIZE and self.end is ScanEnd.TORN_TAIL
        base_offset = int.from_bytes(header, "big", signed=True) if is_whole else None
        reason = describe_end(self, lost)
        if not is_last:
            reason += ", and the log goes on in the next segment"
        return CorruptBatchError(
            self.source.path, self.position, base_offset, reason, str(self.end)
        )

    def _walk_to_start(self) -> bool:
        """Walk to the first batch of the range; return False if the file ends before it."""
        self.position = max(self.start, self._proven_first())
        if self.start == 0 or self.position > self.start:
            return True
        self.position = 0
        if self.start > self.source.size:
            return False
        walk = BatchWalk(self.source, self._proven_start(), self.start)
        skipped = np.empty(_SKIPPED_ROWS, BATCH_DTYPE)
        while walk.end is None:
            count = walk.fill(skipped)
            if count:
                self.next_offset = int(next_offset(skipped[count - 1 : count])[0])
                self._on_batches(skipped[:count])
        self.position = walk.position
        return walk.end is ScanEnd.CLEAN

    def _proven_first(self) -> int:
        """Return the position of a batch before which the caller needs none; 0 if unknown."""
        if self._hints is None or self._first <= self.start:
            return 0
        return self._hints.proven_before(self.source, self._first)

    def _proven_start(self) -> int:
        """Return the position of a batch from which the walk to the range starts."""
        hints = self._hints
        position = 0 if hints is None else hints.last_before(self.start)
        return position if hints is not None and hints.is_proven(self.source, position) else 0

    def _require_hinted_stop(self) -> None:
        """Raise `CorruptBatchError` if the walk passed the position where the next one starts."""
        hints, expected = self._hints, self._hinted_stop
        if (
            hints is not None
            and self.position > expected
            and hints.is_proven(self.source, expected)
        ):
            reason = "the index has a batch here, which is inside of another batch of the log"
            raise CorruptBatchError(self.source.path, expected, None, reason, "INDEX_MISMATCH")

    def _next_tables(self, rows: int) -> Iterator[BatchTable]:
        is_before = self.position < self._hinted_stop
        stop = self._hinted_stop if is_before else self.stop
        if self.position < self._pause:
            stop = min(stop, self._pause)
        if self._table_bytes is not None:
            stop = min(stop, self.position + self._table_bytes)
        walk = BatchWalk(self.source, self.position, max(stop, self.position), self._window)
        batches = 0
        while walk.end is None:
            table = np.empty(rows, BATCH_DTYPE)
            count = walk.fill(table)
            batches += count
            if count:
                self.next_offset = int(next_offset(table[count - 1 : count])[0])
                self._on_batches(table[:count])
                yield table[:count]
        self.position, self._window = walk.position, window_for(batches, walk.valid_bytes)
        if is_before:
            self._require_hinted_stop()
        if walk.end is not ScanEnd.CLEAN or walk.position >= self.stop:
            self.end = walk.end
            self.error = walk.error
            self.trailing_bytes = walk.trailing_bytes
