"""Positions of batches from the ``.index`` objects of a store, so that a task needs no prefix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.verify import verify_rows
from kafkascan.batches.walks import BatchWalk
from kafkascan.format.layout import BATCH_DTYPE, OFFSET_INDEX_ENTRY
from kafkascan.io.sources import Source


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
    def of(cls, entries: Sequence[tuple[int, int]]) -> IndexHints:
        """Return hints from pairs of positions and offsets, in order."""
        positions, offsets = zip(*entries, strict=True)
        return cls(np.array(positions, np.int64), np.array(offsets, np.int64))

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
