"""Scans that go on behind damage, at the next true batch.

A batch is true if its header is plausible, its offsets are ones that it may have, and its
checksum is that of its bytes. Checksums are looked at only where something is wrong, or
where the caller wants all of them to be: the rest of a log is scanned as fast as ever.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kafkascan.batch_columns import BatchTable, join_tables, last_offset, next_offset, size_in_bytes
from kafkascan.checks import verify_crcs, verify_rows
from kafkascan.errors import SENTENCES, STATUS, CorruptBatchError, record_error
from kafkascan.layout import BATCH_DTYPE, HEADER_SIZE_UP_TO_MAGIC, ScanEnd
from kafkascan.offset_order import are_ascending, fit_between, in_order
from kafkascan.parallel import collect_in_parts
from kafkascan.screening import OFFSETS, screen
from kafkascan.sources import Source
from kafkascan.true_batches import HIGHEST_OFFSET, BatchSearch
from kafkascan.walks import BatchWalk, read_bytes

# What is scanned after damage before headers are trusted again; then twice as much each time.
_FIRST_REACH = 1 << 16
_VERIFIED_AT_ONCE = 1 << 27
# Damaged batches in a row whose lengths are believed if a true batch follows.
_DAMAGED_IN_A_ROW = 8


@dataclass(frozen=True)
class Gap:
    """
    Bytes between the batches of a scan that no row covers.

    Attributes
    ----------
    position, size : int
        In bytes.
    after_offset, before_offset : int or None
        Last offset of the batch before it, first offset of the one behind it; what was lost
        lies in between. None where there is no such batch, or where a compressed message of
        magic 0 or 1 does not say with which offset it begins.
    error : CorruptBatchError
        What is wrong at the position.
    """

    position: int
    size: int
    after_offset: int | None
    before_offset: int | None
    error: CorruptBatchError

    def __str__(self) -> str:
        return f"{self.error}; {self.size} bytes are left out"


class ResyncScan:
    """
    A scan from the first true batch to the last one.

    Parameters
    ----------
    source : Source
    start, stop : int
        As of `BatchWalk`.
    threads : int
        As of `scan_batches`.
    verify : bool
        Look at all checksums; batches that do not have theirs become gaps. Otherwise a batch
        whose header is sound stays a row, whatever its records are.
    lowest, highest : int
        Offsets that batches of the log have, inclusively.

    Attributes
    ----------
    batches : ndarray of BATCH_DTYPE
    gaps : list of Gap
        They and the batches tile ``[start, position)``.
    position : int
        Where the rows end.
    end : ScanEnd
    error : CorruptBatchError or None
        What is wrong at `position`.
    is_exhaustive : bool
        Whether all that looked like a batch was looked at. It is not where a source that is
        not in memory is full of batches that claim to be huge.

    Notes
    -----
    Time is linear in the size of the source, on any bytes: behind damage, headers are trusted
    for as many bytes as were found true since, and the search costs one pass (`crc_ranges.h`).
    """

    def __init__(
        self,
        source: Source,
        start: int,
        stop: int,
        threads: int | None = 1,
        *,
        verify: bool = False,
        lowest: int = 0,
        highest: int = HIGHEST_OFFSET,
    ) -> None:
        self._source, self._start, self._stop, self._threads = source, start, stop, threads
        self._verify, self._lowest, self._highest = verify, lowest, highest
        self._search = BatchSearch(source)
        self._tables: list[BatchTable] = []
        self._holes: list[tuple[int, int, CorruptBatchError]] = []
        self.position = start
        self.end: ScanEnd | None = None
        self.error: CorruptBatchError | None = None
        self._damage_at = -1
        self._is_barren = False
        while self.end is None:
            self._go_on(self._reach())
        self._put_in_order()

    @property
    def is_exhaustive(self) -> bool:
        """See the class."""
        return self._search.is_exhaustive

    def _reach(self) -> int:
        """Return for how many bytes headers are trusted."""
        most = _VERIFIED_AT_ONCE if self._verify else self._stop - self.position
        if self._damage_at < 0:
            return most
        return max(_FIRST_REACH, min(2 * (self.position - self._damage_at), most))

    def _go_on(self, reach: int) -> None:
        """Scan some bytes, up to the first damage, and over it."""
        limit = self._limit = min(self._stop, self.position + reach)
        table, walk = collect_in_parts(self._source, self.position, limit, self._threads or 1)
        self._walk_end, self._walk_error = walk.end, walk.error
        self._walk_position = walk.position
        bad = self._first_bad(table)
        self._tables.append(table[:bad])
        if bad < len(table):
            self.position = int(table["position"][bad])
            self._pass_over_batches(table[bad:])
            self._damage_at = self.position
        elif walk.end is ScanEnd.CLEAN:
            self.position = walk.position
            if walk.position >= self._stop:
                self.end = ScanEnd.CLEAN
        else:
            self.position = walk.position
            assert walk.end is not None
            self._pass_over(walk.end, walk.error)
            self._damage_at = self.position

    # ---- where something is wrong -----------------------------------------------------------

    def _first_bad(self, table: BatchTable) -> int:
        """Return the first row whose checksum is wrong, of those that are looked at."""
        if self._verify:
            wrong = np.flatnonzero(~self._verified(table))
            return int(wrong[0]) if len(wrong) else len(table)
        if not len(table):
            return 0
        # What follows the last one is not known: its length may have swallowed all there was.
        suspects = np.array([len(table) - 1])
        if screen(table) & OFFSETS:
            does_not_go_on = table["base_offset"][1:] != next_offset(table)[:-1]
            suspects = np.append(np.flatnonzero(does_not_go_on), suspects)
        wrong = suspects[~self._verified(table.take(suspects))]
        bad = int(wrong[0]) if len(wrong) else len(table)
        if bad == len(table) and self._walk_end is not ScanEnd.CLEAN:
            return self._end_of_true(table)
        return bad

    def _verified(self, table: BatchTable) -> NDArray[np.bool_]:
        """
        Tell whose checksum is right.

        Behind damage, a batch that goes on beyond what is trusted may be one of many whose
        lengths lie; the sums of the search tell of all of them at the cost of one.
        """
        count = len(table)
        while count and self._damage_at >= 0 and _stop_of(table[:count]) > self._limit:
            count -= 1
        near = verify_crcs(self._source, table[:count], threads=self._threads)
        far = [self._search.has_true_crc(int(at)) for at in table["position"][count:]]
        return np.append(near, np.array(far, np.bool_))

    def _end_of_true(self, table: BatchTable) -> int:
        """Return the row behind the last one whose checksum is right."""
        stop, at_once = len(table), 1
        while stop > 0:
            start = max(0, stop - at_once)
            right = np.flatnonzero(self._verified(table[start:stop]))
            if len(right):
                return start + int(right[-1]) + 1
            stop, at_once = start, 2 * at_once
        return 0

    # ---- how it goes on ---------------------------------------------------------------------

    def _pass_over_batches(self, table: BatchTable) -> None:
        """Pass over batches that are framed, of which the first one has a wrong checksum."""
        some = table[:_DAMAGED_IN_A_ROW]
        true = np.flatnonzero(self._verified(table[1 : _DAMAGED_IN_A_ROW + 1]))
        if len(true):
            count = int(true[0]) + 1
            self._pass_over_framed(table[:count], int(table["base_offset"][count]) - 1)
        elif len(some) == len(table) and self._arrives_at_end(table):
            self._pass_over_framed(table, self._highest)
        else:
            self._pass_over_unframed(table)

    def _arrives_at_end(self, table: BatchTable) -> bool:
        is_end = self._walk_end is ScanEnd.ZERO_TAIL or (
            self._walk_end is ScanEnd.CLEAN and self._walk_position == self._source.size
        )
        return is_end and _stop_of(table) == self._walk_position

    def _pass_over_framed(self, damaged: BatchTable, highest: int) -> None:
        """
        Pass over damaged batches behind which the log goes on, or ends.

        Their lengths are right, unless a length swallows whole batches: those have offsets
        for which there is room between what the damaged batches claim and what follows.
        """
        rooms = self._rooms(damaged, highest)
        for row, (lowest, highest_here) in enumerate(rooms):
            one = damaged[row : row + 1]
            found = self._find_swallowed(_stop_of(one), lowest, highest_here)
            if found is not None:
                self._leave_out(found, self._checksum_error(one[0]))
                return
            self._pass_over_rows(one)
        if self.position >= self._stop:
            self.end = ScanEnd.CLEAN

    def _rooms(self, damaged: BatchTable, highest: int) -> list[tuple[int, int]]:
        """Return which offsets there may be in each of some batches that are not theirs."""
        lowest = max(self._lowest, self._last_offset() + 1)
        first, last = damaged["base_offset"], last_offset(damaged)
        is_claimed = (
            lowest <= first[0]
            and last[-1] <= highest
            and bool((first <= last).all() and (first[1:] > last[:-1]).all())
        )
        if not is_claimed:
            return [(lowest, highest)] * len(damaged)
        behind = [*(first[1:] - 1).tolist(), highest]
        return [(end + 1, stop) for end, stop in zip(last.tolist(), behind, strict=True)]

    def _find_swallowed(self, stop: int, lowest: int, highest: int) -> int | None:
        """
        Return where a batch starts that the length of the one at `position` swallows.

        At the end of the log all offsets behind the damage are possible; there, what was
        swallowed goes on without a gap, or fills the length.
        """
        found = self._search.find(self.position + 1, stop, lowest, highest)
        while found is not None and highest == self._highest:
            chain, offset = self._chain_end(found, stop)
            if chain == stop or offset == lowest:
                break
            found = self._search.find(max(chain, found + 1), stop, lowest, highest)
        return found

    def _pass_over_rows(self, table: BatchTable) -> None:
        if not self._verify:
            self._tables.append(table)
            self.position = _stop_of(table)
            return
        for row in range(len(table)):
            one = table[row : row + 1]
            self._leave_out(_stop_of(one), self._checksum_error(one[0]))

    def _chain_end(self, position: int, stop: int) -> tuple[int, int]:
        """Follow true batches from one on; return where they end, and the first offset."""
        row, first = np.empty(1, BATCH_DTYPE), None
        while position < stop and self._search.is_true(position):
            BatchWalk(self._source, position, position + 1).fill(row)
            first = int(row["base_offset"][0]) if first is None else first
            position = _stop_of(row)
        assert first is not None
        return position, first

    def _find_any(self) -> int | None:
        """Return where the next true batch is; what was looked for in vain is not again."""
        if self._is_barren:
            return None
        found = self._search.find(self.position + 1, self._stop, self._lowest, self._highest)
        self._is_barren = found is None
        return found

    def _pass_over_unframed(self, table: BatchTable) -> None:
        """Pass over batches that lead nowhere: a length may lie."""
        found = self._find_any()
        error = self._checksum_error(table[0])
        if found is not None:
            self._leave_out(found, error)
        else:  # nothing that is true follows
            self._pass_over_rows(table)
            self._take_end(self._walk_end, self._walk_error)

    def _pass_over(self, end: ScanEnd, error: CorruptBatchError | None) -> None:
        """Pass over bytes that are no batch."""
        if end is ScanEnd.ZERO_TAIL:
            self._take_end(end, error)
            return
        found = self._find_any()
        if found is None:
            self._take_end(end, error)
        else:
            self._leave_out(found, error or torn_error(self._source, self.position))

    def _take_end(self, end: ScanEnd | None, error: CorruptBatchError | None) -> None:
        if end is ScanEnd.CLEAN and self.position < self._stop:
            return  # of a part of the source
        self.end, self.error = end, error

    def _leave_out(self, stop: int, error: CorruptBatchError) -> None:
        self._holes.append((self.position, stop, error))
        self.position = stop

    def _checksum_error(self, row: np.void) -> CorruptBatchError:
        return record_error("CHECKSUM_MISMATCH", self._source.path, row)

    def _last_offset(self) -> int:
        for table in reversed(self._tables):
            if len(table):
                return int(last_offset(table[-1:])[0])
        return self._lowest - 1

    # ---- what the rows and gaps are ---------------------------------------------------------

    def _put_in_order(self) -> None:
        batches = self._tables[0] if len(self._tables) == 1 else join_tables(self._tables)
        self._tables.clear()
        if (self._holes or self._verify) and not are_ascending(batches):
            keep = self._in_order(batches)
            for row in np.flatnonzero(~keep).tolist():
                one = batches[row : row + 1]
                error = record_error("OFFSETS_NOT_ASCENDING", self._source.path, one[0])
                self._holes.append((int(one["position"][0]), _stop_of(one), error))
            self._holes.sort(key=lambda hole: hole[0])
            batches = batches[keep]
        self.batches = batches
        self.gaps = self._named_gaps()

    def _in_order(self, batches: BatchTable) -> NDArray[np.bool_]:
        """Choose those that stand in order; those whose checksum is wrong decide nothing."""
        keep = np.ones(len(batches), np.bool_)
        if not self._verify:
            keep = verify_rows(self._source, batches)
        arrives = self.end in (ScanEnd.CLEAN, ScanEnd.ZERO_TAIL)
        true = np.flatnonzero(keep)
        keep[true[~in_order(batches.take(true), self.position if arrives else -1)]] = False
        others = np.flatnonzero(~keep)
        keep[np.setdiff1d(others[fit_between(batches, keep, others)], true)] = True
        return keep

    def _named_gaps(self) -> list[Gap]:
        starts, lasts = self.batches["position"], last_offset(self.batches)
        places = np.searchsorted(starts, [first for first, _, _ in self._holes])
        return [
            Gap(
                first,
                stop - first,
                int(lasts[place - 1]) if place > 0 else None,
                _first_offset(self.batches, int(place)),
                error,
            )
            for (first, stop, error), place in zip(self._holes, places.tolist(), strict=True)
        ]


def _first_offset(batches: BatchTable, row: int) -> int | None:
    if row >= len(batches) or (batches["magic"][row] < 2 and batches["records_count"][row] < 0):
        return None
    return int(batches["base_offset"][row])


def _stop_of(batches: BatchTable) -> int:
    return int(batches["position"][-1]) + int(size_in_bytes(batches[-1:])[0])


def torn_error(source: Source, position: int) -> CorruptBatchError:
    """Return the error of a batch that is cut off, where that is one."""
    header = read_bytes(source, position, HEADER_SIZE_UP_TO_MAGIC)
    base_offset = int.from_bytes(header[:8], "big", signed=True) if len(header) >= 8 else None
    reason = SENTENCES[STATUS["TORN_TAIL"]]
    return CorruptBatchError(source.path, position, base_offset, reason, "TORN_TAIL")
