"""Tables of damaged logs in which many undisturbed batches are one row.

Most batches of a damaged log are far from its damage, and follow each other in bytes and offsets.
A *run* of them is one row, as if it were one large batch: with the size and the offsets of all.
Next to anything else, every batch has a row. If batches elsewhere have its offsets, these are
another run of the same batches, with the same checksum: that of the checksums of all.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches import screening
from kafkascan.batches.columns import (
    BatchTable,
    join_rows,
    join_tables,
    last_offset,
    size_in_bytes,
)
from kafkascan.batches.resyncing.gaps import (
    DAMAGED_DTYPE,
    OUT_OF_ORDER,
    RANGES_AT_ONCE,
    DamagedRanges,
    damaged_batches,
)
from kafkascan.batches.walks import BatchWalk
from kafkascan.format.layout import (
    BATCH_DTYPE,
    DELETE_HORIZON_BIT,
    LOG_OVERHEAD,
    NO_SEQUENCE,
)
from kafkascan.io import result_memory
from kafkascan.io.sources import Source

NEIGHBOURS = 64
"""Number of batches before and after a range that are evidence about it: they have rows. No less
than `AT_END`."""

RUN_DTYPE = np.dtype(
    [("position", "=i8"), ("batches", "=i8"), ("records", "=i8"), ("is_dense", "=u1")]
)
"""Position, batches and records of one run, and whether it has a record for each offset."""

_ROWS = 1 << 16
# Rows that are joined at once.
_JOINED = 1 << 14
_MOST = np.iinfo(np.int32).max
# Runs with these values are of the same batches.
_CONTENT = ["base_offset", "batch_length", "last_offset_delta", "crc"]


@dataclass(frozen=True)
class BatchRuns:
    """
    The runs of a table.

    Attributes
    ----------
    source : Source
    rows : ndarray of RUN_DTYPE
        Sorted by position; those of batches that the table lacks do not count.
    """

    source: Source
    rows: NDArray[np.void]

    @classmethod
    def none(cls, source: Source) -> BatchRuns:
        """Return no runs, for a table that has a row for each batch."""
        return cls(source, np.empty(0, RUN_DTYPE))

    def contain(self, batches: BatchTable, offsets: NDArray[np.int64]) -> bool:
        """Return whether a run of a table contains one of the offsets."""
        at, _ = self.find(batches)
        return bool(_are_hit(batches["base_offset"][at], last_offset(batches)[at], offsets).any())

    def find(self, batches: BatchTable) -> tuple[NDArray[np.intp], NDArray[np.void]]:
        """Return the rows of a table, sorted by position, that are runs, and these."""
        if not len(self.rows) or not len(batches):
            return np.empty(0, np.intp), self.rows[:0]
        at = np.searchsorted(batches["position"], self.rows["position"])
        here = np.minimum(at, len(batches) - 1)
        are = batches["position"][here] == self.rows["position"]
        return here[are], self.rows[are]

    def counts(self, batches: BatchTable) -> NDArray[np.int64]:
        """Return the number of batches that each row of a table stands for."""
        counts = np.ones(len(batches), np.int64)
        at, runs = self.find(batches)
        counts[at] = runs["batches"]
        return counts

    def records(self, batches: BatchTable) -> int | None:
        """Return the number of records in a table; None if some batch does not contain its own."""
        at, runs = self.find(batches)
        counts = batches["records_count"]
        if (counts < 0).any():
            return None
        return int(counts.sum(dtype=np.int64) - counts[at].sum(dtype=np.int64)
                   + runs["records"].sum())  # fmt: skip

    def are_dense(self, batches: BatchTable) -> bool:
        """Return whether all runs of a table have a record for each offset."""
        return bool(self.find(batches)[1]["is_dense"].all())

    def tables(self, batches: BatchTable, *, with_dense: bool = True) -> Iterator[BatchTable]:
        """
        Yield tables with a row for each batch; each may take the memory of the one before.

        `with_dense` is whether a run that has a record for each offset is replaced by its batches.
        """
        at, runs = self.find(batches)
        if not with_dense:
            at = at[runs["is_dense"] == 0]
        room = result_memory.empty(_ROWS if len(at) else 0, BATCH_DTYPE)
        row = 0
        for run in at.tolist():
            if row < run:
                yield batches[row:run]
            start, size = int(batches["position"][run]), size_in_bytes(batches[run : run + 1])
            yield from self._walked(start, start + int(size[0]), room)
            row = run + 1
        if row < len(batches):
            yield batches[row:]

    def damaged_parts(self, damaged: DamagedRanges) -> Iterator[DamagedRanges]:
        """Yield the ranges with a row for each batch of runs, some rows at a time."""
        are_runs = np.isin(damaged.rows["position"], self.rows["position"])
        at = np.flatnonzero(are_runs & damaged.have(OUT_OF_ORDER))
        room = result_memory.empty(RANGES_AT_ONCE if len(at) else 0, BATCH_DTYPE)
        row = 0
        for run in at.tolist():
            yield from damaged.parts(row, run)
            start, stop = int(damaged.rows["position"][run]), int(damaged.rows["stop"][run])
            for table in self._walked(start, stop, room):
                yield damaged.of(damaged_batches(table, OUT_OF_ORDER))
            row = run + 1
        yield from damaged.parts(row, len(damaged))

    def whole_damaged(self, damaged: DamagedRanges) -> DamagedRanges:
        """Return the ranges with a row for each batch."""
        rows = [part.rows for part in self.damaged_parts(damaged)]
        return damaged.of(join_rows(rows, DAMAGED_DTYPE))

    def _walked(self, start: int, stop: int, room: BatchTable) -> Iterator[BatchTable]:
        walk = BatchWalk(self.source, start, stop)
        while walk.end is None:
            count = walk.fill(room)
            if count:
                yield room[:count]

    def whole(self, batches: BatchTable) -> BatchTable:
        """Return the table with a row for each batch."""
        at, runs = self.find(batches)
        if not len(at):
            return batches
        count = len(batches) - len(at) + int(runs["batches"].sum())
        table, stop = result_memory.empty(count, BATCH_DTYPE), 0
        for part in self.tables(batches):
            table.view(np.uint8)[stop * table.itemsize :][: part.nbytes] = part.view(np.uint8)
            stop += len(part)
        return table[:stop]

    def undisputed(self, batches: BatchTable) -> tuple[BatchTable, BatchRuns]:
        """
        Return the table with a row for each batch of runs within which others have offsets.

        A run of the same batches is no other.
        """
        runs = self
        while True:
            at, rows = runs.find(batches)
            first, last = batches["base_offset"], last_offset(batches)
            _, distinct = np.unique(batches[_CONTENT][at], return_index=True)
            repeated = np.delete(at, distinct)
            bounds = np.sort(
                np.delete(
                    np.concatenate([first, last]), np.append(repeated, repeated + len(batches))
                )
            )
            inside = np.searchsorted(bounds, last[at], "right")
            inside -= np.searchsorted(bounds, first[at])
            are_disputed = inside > 2
            if not are_disputed.any():
                return batches, runs
            batches = BatchRuns(self.source, rows[are_disputed]).whole(batches)
            runs = BatchRuns(self.source, rows[~are_disputed])

    def opened(
        self, batches: BatchTable, offsets: NDArray[np.int64]
    ) -> tuple[BatchTable, BatchRuns]:
        """Return the table with a row for each batch near the batches with these offsets."""
        at, _ = self.find(batches)
        offsets = np.unique(offsets)
        are_hit = _are_hit(batches["base_offset"][at], last_offset(batches)[at], offsets)
        if not are_hit.any():
            return batches, self
        is_opened = np.isin(self.rows["position"], batches["position"][at[are_hit]])
        tables, runs, row = list[BatchTable](), [self.rows[~is_opened]], 0
        for run in at[are_hit].tolist():
            opened = RunJoiner(self.source, offsets, NEIGHBOURS)
            for table in self.tables(batches[run : run + 1]):
                opened.add(table)
            table, found = opened.finish()
            tables += [batches[row:run], table]
            runs.append(found.rows)
            row = run + 1
        rows = join_rows(runs, RUN_DTYPE)
        rows = rows.take(np.argsort(rows["position"]))
        return join_tables([*tables, batches[row:]]), BatchRuns(self.source, rows)


class RunJoiner:
    """
    Joins undisturbed batches to runs, table by table.

    Parameters
    ----------
    source : Source
    offsets : ndarray of int64, optional
        Batches with these offsets have rows, and those near them.
    since : int
        Number of undisturbed batches before the first one.
    """

    def __init__(
        self, source: Source, offsets: NDArray[np.int64] | None = None, since: int = 0
    ) -> None:
        self._source, self._offsets, self._since = source, offsets, since
        self._waiting = list[BatchTable]()  # the first ones are near what follows
        self._count = 0
        self._tables, self._runs = list[BatchTable](), list[NDArray[np.void]]()

    def add(self, batches: BatchTable) -> None:
        """Add the next batches, whose memory may be used again."""
        self._waiting.append(batches.copy() if len(batches) < _JOINED else batches)
        self._count += len(batches)
        if self._count >= _JOINED:
            self._join()

    def finish(self) -> tuple[BatchTable, BatchRuns]:
        """Return the table of all batches, and its runs."""
        self._join()
        runs = BatchRuns(self._source, join_rows(self._runs, RUN_DTYPE))
        tables = [*self._tables, *self._waiting]
        self._tables.clear()
        self._waiting.clear()
        return tables[0] if len(tables) == 1 else join_tables(tables), runs

    def _join(self) -> None:
        """Join the batches that wait, but for the last ones."""
        rows = join_tables(self._waiting)
        self._count = 0
        breaks, are_plain = self._breaks(rows)
        starts, stops = np.append(-self._since, breaks), np.append(breaks, len(rows))
        kept = max(0, len(rows) - NEIGHBOURS)
        self._since = kept - int(starts[np.searchsorted(starts, kept, "right") - 1])
        first, stop = np.maximum(starts + NEIGHBOURS, 0), stops - NEIGHBOURS
        are_long = stop - first >= NEIGHBOURS
        first, stop = first[are_long], stop[are_long]
        ends = last_offset(rows.take(stop - 1))
        low, at = rows.take(first), rows["position"]
        are_small = ends - low["base_offset"] < _MOST
        are_small &= at[stop] - low["position"] < _MOST
        first, stop, ends = first[are_small], stop[are_small], ends[are_small]
        self._waiting = [rows[kept:].copy()]
        if not len(first):
            self._tables.append(rows[:kept])
            return
        self._runs.append(_runs_of(rows, first, stop, are_plain))
        changes = np.zeros(kept + 1, np.int8)
        changes[first + 1] += 1
        changes[stop] -= 1
        table = rows[:kept].compress(np.cumsum(changes[:-1], dtype=np.int8) == 0)
        sizes = stop - first
        here = first - (np.cumsum(sizes - 1) - (sizes - 1))
        joined = table.take(here)
        joined["batch_length"] = at[stop] - at[first] - LOG_OVERHEAD
        joined["last_offset_delta"] = ends - joined["base_offset"]
        have_counts = joined["records_count"] >= 0
        joined["records_count"] = np.where(have_counts, joined["last_offset_delta"] + 1, -1)
        joined["attributes"] = 0
        joined["crc"] = 0 if self._offsets is None else _checksums(rows, first, stop)
        # The earliest and the latest of the run.
        bounds = np.stack([first, stop], axis=1).reshape(-1)
        joined["base_timestamp"] = np.minimum.reduceat(rows["max_timestamp"], bounds)[::2]
        joined["max_timestamp"] = np.maximum.reduceat(rows["max_timestamp"], bounds)[::2]
        joined["producer_id"] = np.maximum.reduceat(rows["producer_id"], bounds)[::2]
        joined["base_sequence"] = NO_SEQUENCE
        table[here] = joined
        self._tables.append(table)

    def _breaks(self, rows: BatchTable) -> tuple[NDArray[np.intp], NDArray[np.bool_] | None]:
        """
        Return the rows that do not continue the one before, without the first row.

        The second array is which rows have a record for each offset from the row before on; None if
        all have.
        """
        position, are_plain = rows["position"], None
        known = screening.OFFSETS | screening.EPOCHS | screening.COUNTS | screening.FORMATS
        are_odd_somewhere = bool(screening.screen(rows) & known)
        sizes = rows["batch_length"][:-1].sum(dtype=np.int64) + LOG_OVERHEAD * (len(rows) - 1)
        are_joined = not len(rows) or position[-1] - position[0] == sizes
        if are_joined and not are_odd_somewhere and self._offsets is None:
            return np.empty(0, np.intp), None
        are = np.zeros(len(rows), np.bool_)
        are[1:] = position[1:] != (position + size_in_bytes(rows))[:-1]
        if are_odd_somewhere:
            first, last = rows["base_offset"], last_offset(rows)
            counts, deltas = rows["records_count"], rows["last_offset_delta"]
            are_odd = (deltas < 0) | (last < first)
            are[1:] |= (first[1:] <= last[:-1]) | are_odd[1:] | are_odd[:-1]
            for values in (rows["partition_leader_epoch"], rows["magic"], counts < 0):
                are[1:] |= values[1:] != values[:-1]
            are_plain = (counts == deltas.astype(np.int64) + 1) & (
                rows["attributes"] & DELETE_HORIZON_BIT == 0
            )
            are_plain[1:] &= first[1:] == last[:-1] + 1
            # Dense runs are better evidence, unless compaction has left gaps everywhere.
            if len(rows) - np.count_nonzero(are_plain) <= len(rows) // (4 * NEIGHBOURS):
                are |= ~are_plain
        if self._offsets is not None:
            low, high = rows["base_offset"].copy(), last_offset(rows)
            # A row contains the offsets that are missing before it, too.
            low[1:] = np.minimum(low[1:], high[:-1] + 1)
            are_hit = _are_hit(low, high, self._offsets)
            are |= are_hit
            are[1:] |= are_hit[:-1]
            if len(are) and are[0]:
                self._since = 0
        are[:1] = False
        return np.flatnonzero(are), are_plain


def _are_hit(
    low: NDArray[np.int64], high: NDArray[np.int64], offsets: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return which ranges contain some of the sorted offsets."""
    are: NDArray[np.bool_] = np.searchsorted(offsets, low) < np.searchsorted(offsets, high, "right")
    return are


def _checksums(rows: BatchTable, first: NDArray[np.intp], stop: NDArray[np.intp]) -> list[int]:
    """
    Return a checksum of the offsets and checksums of the batches of each run.

    It is no weaker than the checksums of single batches, by which copies of these are recognized.
    """
    offsets, crcs = (np.ascontiguousarray(rows[name]) for name in ("base_offset", "crc"))
    return [
        zlib.crc32(crcs[start:end].data, zlib.crc32(offsets[start:end].data))
        for start, end in zip(first.tolist(), stop.tolist(), strict=True)
    ]


def _runs_of(
    rows: BatchTable,
    first: NDArray[np.intp],
    stop: NDArray[np.intp],
    are_plain: NDArray[np.bool_] | None,
) -> NDArray[np.void]:
    runs, bounds = np.empty(len(first), RUN_DTYPE), np.stack([first, stop], axis=1).reshape(-1)
    runs["position"], runs["batches"] = rows["position"][first], stop - first
    if are_plain is None:  # a record for each offset
        ends = last_offset(rows.take(stop - 1))
        runs["records"], runs["is_dense"] = ends - rows["base_offset"][first] + 1, 1
    else:
        runs["records"] = np.add.reduceat(rows["records_count"].astype(np.int64), bounds)[::2]
        runs["is_dense"] = np.logical_and.reduceat(are_plain, bounds)[::2]
    return runs
