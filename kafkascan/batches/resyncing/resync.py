"""Header scan that resumes at the next valid batch after damage.

A batch is valid if its header is plausible, its offsets fit and its checksum matches its bytes.
Checksums are verified only near damage, or everywhere if the caller asks for it. Intact parts of
a log are scanned at full speed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

import kafkascan.format.checksums  # noqa: F401 - chooses the kernel
from kafkascan._core import search as _core
from kafkascan.batches.collecting import collect, collect_in_parts
from kafkascan.batches.columns import (
    BatchTable,
    join_rows,
    join_tables,
    last_offset,
    next_offset,
    size_in_bytes,
)
from kafkascan.batches.resyncing.batch_runs import BatchRuns, RunJoiner
from kafkascan.batches.resyncing.batch_search import FIRST_REACH, VERIFIED_AT_ONCE, BatchSearch
from kafkascan.batches.resyncing.gaps import (
    DAMAGED_DTYPE,
    OUT_OF_ORDER,
    DamagedRanges,
    are_joined,
    damaged_batches,
    damaged_range,
    gaps_between,
)
from kafkascan.batches.resyncing.offset_chains import are_ascending, select_in_order
from kafkascan.batches.resyncing.offset_evidence import HIGHEST_OFFSET, SEGMENT_OFFSETS, are_copies
from kafkascan.batches.resyncing.ranges import Gap
from kafkascan.batches.screening import OFFSETS, screen
from kafkascan.batches.verify import verify_crcs, verify_rows
from kafkascan.batches.walks import BatchWalk
from kafkascan.format.errors import CorruptBatchError, NotALogError
from kafkascan.format.layout import (
    BATCH_DTYPE,
    HEADER_SIZE_UP_TO_MAGIC,
    MIN_BATCH_SIZE,
    ScanEnd,
)
from kafkascan.io import result_memory
from kafkascan.io.sources import Source, is_all_zero, read_bytes

# Damaged batches in a row whose lengths are trusted if a valid batch follows.
_DAMAGED_IN_A_ROW = _core.DAMAGED_IN_A_ROW
_CHECKSUM = "CHECKSUM_MISMATCH"
# Batches of a run that are verified at once.
_ROWS, _FEWEST_ROWS = 1 << 16, 16
# Greatest difference of a large offset and its float64.
_ROUNDED = 1 << 12
# No batch ends within so many zeros twice.
_ZEROS = 16


@dataclass(frozen=True)
class ResyncScan:
    """
    The valid batches of a damaged log; the result of `scan_with_resync`.

    Attributes
    ----------
    batches : ndarray of BATCH_DTYPE
    dropped : ndarray of BATCH_DTYPE
        Other batches with valid checksums, whose offsets contradict these; if all checksums are
        verified, those whose offsets the log cannot have, too.
    copies : ndarray of BATCH_DTYPE
        Copies of these batches, with the same leader epoch, at other positions.
    damaged : DamagedRanges
        The damaged ranges and the batches tile ``[start, position)``.
    position : int
        Position after the last batch.
    end : ScanEnd
    error : CorruptBatchError or None
        What is wrong at `position`.
    is_exhaustive : bool
        Whether every candidate was verified. False for a source that is not in memory and is full
        of headers that claim huge batches.
    runs : BatchRuns
        Of all these batches, if they were joined to runs.
    """

    batches: BatchTable
    dropped: BatchTable
    copies: BatchTable
    damaged: DamagedRanges
    position: int
    end: ScanEnd
    error: CorruptBatchError | None
    is_exhaustive: bool
    runs: BatchRuns

    def whole(self) -> ResyncScan:
        """Return the scan with a row for each batch."""
        batches, dropped, copies = map(self.runs.whole, (self.batches, self.dropped, self.copies))
        return replace(
            self,
            batches=batches,
            dropped=dropped,
            copies=copies,
            damaged=self.runs.whole_damaged(self.damaged),
            runs=BatchRuns.none(self.runs.source),
        )

    @property
    def gaps(self) -> list[Gap]:
        """The damaged ranges with the offsets around them."""
        return gaps_between(self.batches, self.damaged)


def scan_with_resync(
    source: Source,
    start: int,
    stop: int,
    threads: int | None = 1,
    *,
    verify: bool = False,
    lowest: int = 0,
    highest: int = HIGHEST_OFFSET,
    joined: bool = False,
) -> ResyncScan:
    """
    Scan batch headers, and resume at the next valid batch after damage.

    Parameters
    ----------
    source : Source
    start, stop : int
        Positions, as in `BatchWalk`.
    threads : int
        As in `scan_batches`.
    verify : bool
        Verify all checksums; batches with a wrong checksum become gaps. Without it, a batch with
        an intact header stays a row even if its records are damaged.
    lowest, highest : int
        Range of the offsets that batches of the log may have, inclusive.
    joined : bool
        Join undisturbed batches to runs; checksums are to be verified.

    Returns
    -------
    ResyncScan

    Notes
    -----
    Time is linear in the size of the source, for any bytes: after damage, headers are trusted
    for at most as many bytes as were valid since, and the search is a single pass
    (`crc_ranges.h`).
    """
    joiner = RunJoiner(source) if joined else None
    walk = _ResyncWalk(
        source, stop, threads or 1, verify, lowest, highest, position=start, joiner=joiner
    )
    while walk.end is None:
        walk.advance()
    if joiner is not None:
        batches, runs = joiner.finish()
    else:
        batches, runs = _joined(walk.tables), BatchRuns.none(source)
    walk.tables.clear()  # kept until the end, they would cost fresh pages in the next scan
    damaged = DamagedRanges(source.path, join_rows(walk.damaged, DAMAGED_DTYPE), walk.not_a_log)
    scan = ResyncScan(
        batches=batches,
        dropped=batches[:0],
        copies=batches[:0],
        damaged=damaged,
        position=walk.position,
        end=walk.end,
        error=walk.error,
        is_exhaustive=walk.search.is_exhaustive,
        runs=runs,
    )
    if not (walk.has_damage() or verify):
        return scan
    return _in_order(scan, start, lowest, highest, verify=verify)


def _joined(tables: list[BatchTable]) -> BatchTable:
    return tables[0] if len(tables) == 1 else join_tables(tables)


def _in_order(
    scan: ResyncScan, start: int, lowest: int, highest: int, *, verify: bool
) -> ResyncScan:
    """Return a scan whose offsets ascend."""
    batches, runs = scan.batches, scan.runs
    is_within = (batches["base_offset"] >= lowest) & (last_offset(batches) <= highest)
    if is_within.all() and are_ascending(batches):
        return scan
    if len(runs.rows):
        bounds = [batches["base_offset"], last_offset(batches), np.array([lowest, highest])]
        batches, runs = runs.opened(batches, np.concatenate(bounds))
        batches, runs = runs.undisputed(batches)
        if _need_all(batches, runs, lowest, highest):
            batches, runs = runs.whole(batches), BatchRuns.none(runs.source)
        is_within = (batches["base_offset"] >= lowest) & (last_offset(batches) <= highest)
    source, damaged = runs.source, scan.damaged
    is_valid = is_within if verify else is_within & verify_rows(source, batches)
    is_joined = are_joined(start, batches, damaged)
    counts = runs.counts(batches)
    keep = is_within & select_in_order(batches, is_valid, is_joined, start, lowest, counts)
    damaged = damaged.joined([damaged_batches(batches.compress(~keep), OUT_OF_ORDER)])
    copies, dropped = batches[:0], batches.compress(~keep if verify else is_valid & ~keep)
    if len(dropped):
        kept = batches.compress(is_valid & keep)
        is_copy = are_copies(dropped, kept, ("partition_leader_epoch",))
        copies, dropped = dropped.compress(is_copy), dropped.compress(~is_copy)
    batches = batches if keep.all() else batches.compress(keep)
    return replace(
        scan, batches=batches, dropped=dropped, copies=copies, damaged=damaged, runs=runs
    )


def _need_all(batches: BatchTable, runs: BatchRuns, lowest: int, highest: int) -> bool:
    """Return whether batches within a run may have to be dropped, or are evidence by themselves."""
    first, last = batches["base_offset"], last_offset(batches)
    are_within = (first >= lowest) & (last <= highest)
    if not runs.are_dense(batches.compress(are_within)):
        return True
    # Far offsets are so by the middle of all.
    reach = last[are_within].max(initial=lowest) - first[are_within].min(initial=highest)
    return bool(reach >= SEGMENT_OFFSETS - _ROUNDED)


@dataclass(frozen=True)
class _Run:
    """
    Consecutive batches framed by one header walk, from damage on.

    Attributes
    ----------
    batches : ndarray of BATCH_DTYPE
        The next ones at least that show how the log goes on.
    limit : int
        The walk's stop: headers are not trusted to frame batches beyond it.
    walk : BatchWalk
        It has ended if `batches` has all of them.
    """

    batches: BatchTable
    limit: int
    walk: BatchWalk

    def whole(self) -> BatchTable:
        """Return all batches up to the limit."""
        if self.walk.end is not None:
            return self.batches
        return join_tables([self.batches, collect(self.walk)])


class _ResyncWalk:
    """State of a resync scan: the batches and damaged ranges up to `position`."""

    def __init__(
        self,
        source: Source,
        stop: int,
        threads: int,
        verify: bool,
        lowest: int,
        highest: int,
        *,
        position: int,
        joiner: RunJoiner | None = None,
    ) -> None:
        self._source, self._stop, self._threads = source, stop, threads
        self._verify, self._lowest, self._highest = verify, lowest, highest
        self.search = BatchSearch(source)
        self.tables: list[BatchTable] = []
        self._joiner = joiner
        self._end_offset = lowest - 1  # of the last batch
        self._room: BatchTable | None = None
        self.damaged: list[NDArray[np.void]] = []
        self.not_a_log: NotALogError | None = None
        self.position = position
        self.end: ScanEnd | None = None
        self.error: CorruptBatchError | None = None
        self._last_damage = -1
        self._began = position  # of the last advance
        self._is_searched = False  # no valid batch follows

    def advance(self) -> None:
        """Scan up to the next damage, and skip it."""
        is_near = self.position - self._began < FIRST_REACH
        if is_near and self.position == self._last_damage:  # the next one may be as near
            self._skip_clear_damage()
        self._began = self.position
        limit = min(self._stop, self.position + self._reach())
        for table, stop, wrong, walk in self._parts(limit):
            alone = wrong[: self._count_framed(table, wrong)]
            bad = int(wrong[len(alone)]) if len(alone) < len(wrong) else stop
            self._add(np.delete(table[:bad], alone) if len(alone) else table[:bad])
            if len(alone):
                self.damaged.append(damaged_batches(table[alone], _CHECKSUM, is_framed=True))
                self._last_damage = int(table["position"][alone[-1] + 1])
            if bad < stop:
                self.position = int(table["position"][bad])
                self._skip_batches(_Run(self._enough(table[bad:], walk), limit, walk))
                self._last_damage = self.position
                return
        self.position = walk.position
        if walk.end is not ScanEnd.CLEAN:
            self._skip_bytes(walk)
            self._last_damage = self.position
        elif walk.position >= self._stop:
            self.end = ScanEnd.CLEAN

    def _parts(self, limit: int) -> Iterator[tuple[BatchTable, int, NDArray[np.intp], BatchWalk]]:
        """
        Yield the next batches in tables, how many of each are new, and which of these are wrong.

        The next table begins with the others, and takes the memory of the one before.
        """
        if self._joiner is None:
            table, walk = collect_in_parts(self._source, self.position, limit, self._threads)
            yield table, len(table), self._bad_rows(table, limit), walk
            return
        if self._room is None:
            most = min(_ROWS, self._source.size // MIN_BATCH_SIZE)
            self._room = result_memory.empty(max(most, _FEWEST_ROWS), BATCH_DTYPE)
        walk, count, are_valid = BatchWalk(self._source, self.position, limit), 0, np.empty(0, "?")
        while walk.end is None:
            if count == len(self._room):
                self._room = join_tables([self._room, self._room])
            begin, room = count, self._room
            count += walk.fill(room[begin:])
            are_valid = np.append(are_valid, self._verified(room[begin:count], limit))
            # What is damaged is not split.
            pairs = np.flatnonzero(are_valid[1:] & are_valid[:-1])
            stop = count if walk.end is not None else int(pairs[-1]) + 1 if len(pairs) else 0
            yield room[:count], stop, np.flatnonzero(~are_valid[:stop]), walk
            room[: count - stop] = room[stop:count].copy()
            count, are_valid = count - stop, are_valid[stop:]

    def _enough(self, table: BatchTable, walk: BatchWalk) -> BatchTable:
        """Return a table with more of the batches, so that it shows how the log goes on."""
        while walk.end is None and len(table) <= _DAMAGED_IN_A_ROW:
            more = np.empty(_DAMAGED_IN_A_ROW, BATCH_DTYPE)
            table = join_tables([table, more[: walk.fill(more)]])
        return table

    def _add(self, table: BatchTable) -> None:
        """Add batches of the log."""
        if not len(table):
            return
        self._end_offset = int(last_offset(table[-1:])[0])
        if self._joiner is None:
            self.tables.append(table)
        else:
            self._joiner.add(table)

    def _skip_clear_damage(self) -> None:
        """Skip damage that a compiled loop decides, as the rest of this class would."""
        while not self._is_searched:
            batches, damaged, self.position, self._last_damage = self.search.skip_damage(
                self.position, self._last_damage, self._stop, self._lowest, self._highest,
                verify=self._verify,
            )  # fmt: skip
            if not len(damaged):
                return
            self._add(batches)
            self.damaged.append(damaged)

    def has_damage(self) -> bool:
        return self._last_damage >= 0

    def _reach(self) -> int:
        """Return the number of bytes for which headers are trusted."""
        most = VERIFIED_AT_ONCE if self._verify else self._stop - self.position
        if self._last_damage < 0:
            return most
        return max(FIRST_REACH, min(2 * (self.position - self._last_damage), most))

    # ---- finding damage ---------------------------------------------------------------------

    def _bad_rows(self, table: BatchTable, limit: int) -> NDArray[np.intp]:
        """Return the rows whose checksum is wrong, among the rows that are verified."""
        if self._verify or not len(table):
            return np.flatnonzero(~self._verified(table, limit))
        # No batch follows the last one that would confirm its length.
        suspects = np.array([len(table) - 1])
        if screen(table) & OFFSETS:
            starts, ends = table["base_offset"][1:], next_offset(table)[:-1]
            gaps = np.flatnonzero(starts != ends)
            suspects = np.append(gaps, suspects)
            falls = gaps[starts[gaps] < ends[gaps]]
            if len(falls):
                suspects = np.unique(np.append(suspects, falls + 1))
        wrong: NDArray[np.intp] = suspects[~self._verified(table.take(suspects), limit)]
        return wrong

    def _count_framed(self, table: BatchTable, wrong: NDArray[np.intp]) -> int:
        """
        Return how many of the first damaged rows are between two valid ones that touch them.

        Their offsets leave none for batches that a wrong length covers (`_skip_framed`).
        """
        rows = wrong[wrong < len(table) - 1]
        if not self._verify or not len(rows):
            return 0
        first, last = table["base_offset"], last_offset(table)
        are = (np.diff(rows, prepend=-1) > 1) & (np.diff(wrong, append=-1)[: len(rows)] != 1)
        are &= (last[rows - 1] < first[rows]) & (self._lowest <= first[rows])
        are &= (first[rows] <= last[rows]) & (last[rows] < self._highest)
        are &= last[rows] == first[rows + 1] - 1
        return len(rows) if are.all() else int(are.argmin())

    def _verified(self, table: BatchTable, limit: int) -> NDArray[np.bool_]:
        """
        Return which batches have a valid checksum.

        After damage, many batches that reach beyond the limit may overlap each other, with forged
        lengths. Their checksums come from the sums of the search, at the cost of one pass.
        """
        count = len(table)
        if self._last_damage >= 0:
            count = int(np.searchsorted(table["position"] + size_in_bytes(table), limit, "right"))
        if count <= _DAMAGED_IN_A_ROW:  # not worth a thread
            near = verify_rows(self._source, table[:count])
        else:
            near = verify_crcs(self._source, table[:count], threads=self._threads)
        if count == len(table):
            return near
        far = [self.search.has_valid_crc(int(at)) for at in table["position"][count:]]
        return np.append(near, np.array(far, np.bool_))

    # ---- skipping damage --------------------------------------------------------------------

    def _skip_batches(self, run: _Run) -> None:
        """Skip framed batches, of which the first one has a wrong checksum."""
        table = run.batches
        valid = np.flatnonzero(self._verified(table[1 : _DAMAGED_IN_A_ROW + 1], run.limit))
        if len(valid):
            count = int(valid[0]) + 1
            self._skip_framed(table[:count], int(table["base_offset"][count]) - 1)
        elif (
            len(table) <= _DAMAGED_IN_A_ROW
            and self._reaches_end(run)
            and self._are_in_segment(table)
        ):
            self._skip_framed(table, self._highest)
        else:
            self._skip_unframed(run)

    def _reaches_end(self, run: _Run) -> bool:
        walk = run.walk
        is_end = walk.end is ScanEnd.ZERO_TAIL or (
            walk.end is ScanEnd.CLEAN and walk.position == self._source.size
        )
        return is_end and _stop_of(run.batches) == walk.position

    def _are_in_segment(self, table: BatchTable) -> bool:
        """Return whether a segment with the batches up to here may contain these offsets."""
        distances = table["base_offset"].astype(np.float64) - self._end_offset
        return bool((np.abs(distances) < SEGMENT_OFFSETS).all())

    def _skip_framed(self, damaged: BatchTable, highest: int) -> None:
        """
        Skip damaged batches that end where the log continues, or ends.

        Their lengths are correct, unless a length covers whole valid batches. Such batches have
        offsets between those that the damaged batches claim and those that follow.
        """
        ranges = self._free_offsets(damaged, highest)
        for row, (lowest, highest_here) in enumerate(ranges):
            one = damaged[row : row + 1]
            found = self._find_covered(_stop_of(one), lowest, highest_here)
            if found is not None:
                self._skip_to(found, _CHECKSUM)
                return
            self._skip_rows(one, is_framed=True)
        if self.position >= self._stop:
            self.end = ScanEnd.CLEAN

    def _free_offsets(self, damaged: BatchTable, highest: int) -> list[tuple[int, int]]:
        """Return, for each damaged batch, the offsets that other batches within it may have."""
        lowest = max(self._lowest, self._end_offset + 1)
        if lowest > highest:  # one of the neighbours is wrong
            return [(self._lowest, self._highest - 1)] * len(damaged)
        first, last = damaged["base_offset"], last_offset(damaged)
        are_plausible = (
            lowest <= first[0]
            and last[-1] <= highest
            and bool((first <= last).all() and (first[1:] > last[:-1]).all())
        )
        if not are_plausible:
            return [(lowest, highest)] * len(damaged)
        stops = [*(first[1:] - 1).tolist(), highest]
        return [(end + 1, stop) for end, stop in zip(last.tolist(), stops, strict=True)]

    def _find_covered(self, stop: int, lowest: int, highest: int) -> int | None:
        """
        Return the position of a valid batch that the damaged batch at `position` covers.

        At the end of the log, all offsets are possible, because the last one may be wrong. There,
        the covered batches must start at the next offset, reach the end or beyond, or be followed
        by zeros only, unless the claimed end itself is within zeros.
        """
        if highest < self._highest:
            return self.search.find(self.position + 1, stop, lowest, highest)
        is_in_zeros = not any(read_bytes(self._source, max(0, stop - _ZEROS), 2 * _ZEROS))
        found = self.search.find(self.position + 1, stop, self._lowest, highest)
        while found is not None:
            chain, offset = self.search.follow(found, stop)
            if chain >= stop or offset == lowest or self._is_zero_after(chain) or is_in_zeros:
                break
            found = self.search.find(max(chain, found + 1), stop, self._lowest, highest)
        return found

    def _is_zero_after(self, position: int) -> bool:
        header = read_bytes(self._source, position, HEADER_SIZE_UP_TO_MAGIC)
        return not any(header) and is_all_zero(self._source, position)

    def _find_any(self) -> int | None:
        """Return the position of the next valid batch; do not search twice if there is none."""
        if self._is_searched:
            return None
        found = self.search.find(self.position + 1, self._stop, self._lowest, self._highest)
        self._is_searched = found is None
        return found

    def _skip_unframed(self, run: _Run) -> None:
        """Skip to the next valid batch: a length may be wrong, so no batch end is trusted."""
        found = self._find_any()
        if found is not None:
            self._skip_to(found, _CHECKSUM)
        else:
            self._skip_rows(run.whole(), is_framed=False)
            self._set_end(run.walk)

    def _skip_bytes(self, walk: BatchWalk) -> None:
        """Skip bytes that are no batch."""
        if isinstance(walk.error, NotALogError):
            self.not_a_log = walk.error
        found = None if walk.end is ScanEnd.ZERO_TAIL else self._find_any()
        if found is None:
            self._set_end(walk)
        else:
            self._skip_to(found, walk.error or "TORN_TAIL")

    def _skip_rows(self, table: BatchTable, *, is_framed: bool) -> None:
        if self._verify:
            self.damaged.append(damaged_batches(table, _CHECKSUM, is_framed=is_framed))
        else:
            self._add(table)
        self.position = _stop_of(table)

    def _skip_to(self, stop: int, error: CorruptBatchError | str) -> None:
        self.damaged.append(damaged_range(self._source, self.position, stop, error))
        self.position = stop

    def _set_end(self, walk: BatchWalk) -> None:
        if walk.end is not ScanEnd.CLEAN or self.position >= self._stop:
            self.end, self.error = walk.end, walk.error


# ---- rows ----------------------------------------------------------------------------


def _stop_of(batches: BatchTable) -> int:
    return int(batches["position"][-1]) + int(size_in_bytes(batches[-1:])[0])
