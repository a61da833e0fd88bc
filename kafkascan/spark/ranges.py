"""The batches that start in a range of a log, exactly as one walk over all of it finds them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kafkascan.batch_columns import BatchTable, next_offset
from kafkascan.errors import CorruptBatchError
from kafkascan.layout import BATCH_DTYPE, ScanEnd
from kafkascan.sources import Source
from kafkascan.walks import BatchWalk, read_bytes

_ROWS_PASSED_OVER = 1 << 14
_BASE_OFFSET_SIZE = 8


class RangeWalk:
    """
    Walk over the batches that start in ``[start, stop)``.

    Where the first of them starts is found by walking there from the beginning of the log, over
    headers alone: whether a batch starts at a position, or damage before it ended the log, is
    told by nothing else.

    Parameters
    ----------
    source : Source
    start, stop : int
    piece : int, optional
        Bytes that one table covers, about: they are in a cache still when they are looked at
        again.

    Attributes
    ----------
    position : int
        Of the next batch; at last, where the batches end.
    end : ScanEnd or None
        How the log ends, if it ends in this range; CLEAN where it goes on behind it. None
        while the walk goes on, and if the log ended before this range.
    error : CorruptBatchError or None
        What is wrong at `position`, if the log is corrupt in this range.
    next_offset : int or None
        That follows the batch before `position`; None at the beginning of a log.
    trailing_bytes : int
        From `position` to the end of the log, if it does not end there.
    """

    def __init__(self, source: Source, start: int, stop: int, piece: int | None = None) -> None:
        self.source = source
        self.start = start
        self.stop = min(stop, source.size)
        self.position = 0
        self.end: ScanEnd | None = None
        self.error: CorruptBatchError | None = None
        self.next_offset: int | None = None
        self.trailing_bytes = 0
        self._piece = piece

    def tables(self, rows: int) -> Iterator[BatchTable]:
        """Yield the batches, in tables of at most so many rows."""
        if not self._walk_to_start():
            return
        while self.end is None:
            yield from self._piece_tables(rows)

    def damage(self, *, is_last: bool) -> CorruptBatchError | None:
        """
        Return what is wrong where the log ends in this range.

        A torn end is wrong unless it is that of the last file of a log.
        """
        if self.end is not ScanEnd.TORN_TAIL or is_last:
            return self.error
        header = read_bytes(self.source, self.position, _BASE_OFFSET_SIZE)
        is_whole = len(header) == _BASE_OFFSET_SIZE
        base_offset = int.from_bytes(header, "big", signed=True) if is_whole else None
        reason = "a batch is cut off, and the log goes on in another file"
        return CorruptBatchError(
            self.source.path, self.position, base_offset, reason, str(ScanEnd.TORN_TAIL)
        )

    def _walk_to_start(self) -> bool:
        """Walk to the first batch of the range; False if the log ended before it."""
        if self.start == 0:
            return True
        if self.start > self.source.size:
            return False
        walk = BatchWalk(self.source, 0, self.start)
        passed_over = np.empty(_ROWS_PASSED_OVER, BATCH_DTYPE)
        while walk.end is None:
            self._note(passed_over[: walk.fill(passed_over)])
        self.position = walk.position
        return walk.end is ScanEnd.CLEAN

    def _note(self, table: BatchTable) -> None:
        if len(table):
            self.next_offset = int(next_offset(table[-1:])[0])

    def _piece_tables(self, rows: int) -> Iterator[BatchTable]:
        stop = self.stop
        if self._piece is not None:
            stop = min(stop, self.position + self._piece)
        walk = BatchWalk(self.source, self.position, max(stop, self.position))
        while walk.end is None:
            table = np.empty(rows, BATCH_DTYPE)
            count = walk.fill(table)
            if count:
                self._note(table[:count])
                yield table[:count]
        self.position = walk.position
        if walk.end is not ScanEnd.CLEAN or walk.position >= self.stop:
            self.end = walk.end
            self.error = walk.error
            self.trailing_bytes = walk.trailing_bytes
