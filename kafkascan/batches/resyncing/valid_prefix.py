"""Batches at the start of a log that need no evidence: valid, with ascending offsets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, last_offset
from kafkascan.batches.verify import verify_crcs
from kafkascan.batches.walks import BatchWalk
from kafkascan.format.layout import BATCH_DTYPE, MIN_BATCH_SIZE, ScanEnd
from kafkascan.io import result_memory
from kafkascan.io.sources import Source

VERIFIED_AT_ONCE = 1 << 27
"""Bytes that are framed before their checksums are verified."""

_ROWS = 1 << 16


@dataclass(eq=False)
class ValidPrefix:
    """
    Walks over the batches before the first damage; a scan can go on from there.

    Attributes
    ----------
    source : Source
    lowest, highest : int
        Range of the offsets that batches of the log may have, inclusive.
    threads : int or None
        As in `verify_crcs`.
    last : int
        Position of the last batch before the damage; 0 if there is none.
    limit : int
        Position up to which headers are framed at once, from there on.
    position : int
        Position after the last batch, if there is no damage.
    end : ScanEnd or None
        How the headers end; None before that, and if another batch is damaged.
    """

    source: Source
    lowest: int
    highest: int
    threads: int | None = 1
    last: int = 0
    limit: int = 0
    position: int = 0
    end: ScanEnd | None = None

    def __iter__(self) -> Iterator[BatchTable]:
        """Yield tables of valid batches; each takes the memory of the one before."""
        size, reach = self.source.size, self.lowest - 1
        room = result_memory.empty(min(_ROWS, size // MIN_BATCH_SIZE + 1), BATCH_DTYPE)
        while self.end is None:
            self.last, self.limit = self.position, min(size, self.position + VERIFIED_AT_ONCE)
            walk = BatchWalk(self.source, self.position, self.limit)
            while walk.end is None:
                table = room[: walk.fill(room)]
                are_wrong = ~self._are_valid(table, reach)
                count = int(are_wrong.argmax()) if are_wrong.any() else len(table)
                if count:
                    self.last = int(table["position"][count - 1])
                    reach = int(last_offset(table[count - 1 : count])[0])
                    yield table[:count]
                if count < len(table):
                    return
            self.position = walk.position
            if walk.end is not ScanEnd.CLEAN or walk.position >= size:
                self.end = walk.end

    def _are_valid(self, table: BatchTable, reach: int) -> NDArray[np.bool_]:
        """Return which batches have a valid checksum, and offsets after those before them."""
        are = verify_crcs(self.source, table, threads=self.threads)
        first, last = table["base_offset"], last_offset(table)
        are &= (first <= last) & (last <= self.highest)
        are[:1] &= first[:1] > reach
        are[1:] &= first[1:] > last[:-1]
        return are
