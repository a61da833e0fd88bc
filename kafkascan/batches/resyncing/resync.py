"""Header scan that resumes at the next valid batch after damage.

A batch is valid if its header is plausible, its offsets fit and its checksum matches its bytes.
Checksums are verified only near damage, or everywhere if the caller asks for it. Intact parts of
a log are scanned at full speed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

import kafkascan.format.checksums  # noqa: F401 - chooses the kernel
from kafkascan._core import search as _core
from kafkascan.batches.collecting import collect_in_parts
from kafkascan.batches.columns import (
    BatchTable,
    join_rows,
    join_tables,
    last_offset,
    next_offset,
    size_in_bytes,
)
from kafkascan.batches.resyncing.gaps import (
    DAMAGED_DTYPE,
    DamagedRanges,
    are_joined,
    damaged_batches,
    damaged_range,
    gaps_between,
)
from kafkascan.batches.resyncing.offset_chains import are_ascending, select_in_order
from kafkascan.batches.resyncing.offset_evidence import HIGHEST_OFFSET, SEGMENT_OFFSETS, are_copies
from kafkascan.batches.resyncing.ranges import Gap
from kafkascan.batches.resyncing.valid_prefix import VERIFIED_AT_ONCE, ValidPrefix
from kafkascan.batches.screening import OFFSETS, screen
from kafkascan.batches.verify import verify_crcs, verify_rows
from kafkascan.batches.walks import BatchWalk
from kafkascan.format.errors import STATUS, CorruptBatchError, NotALogError
from kafkascan.format.layout import BATCH_DTYPE, HEADER_SIZE_UP_TO_MAGIC, ScanEnd
from kafkascan.io.sources import Source, is_all_zero, read_bytes

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
                _FIRST_REACH, VERIFIED_AT_ONCE, self._rows, self._ranges,
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


# Bytes that are framed after damage before checksums are verified; doubled after each success.
_FIRST_REACH = 1 << 16
# Damaged batches in a row whose lengths are trusted if a valid batch follows.
_DAMAGED_IN_A_ROW = _core.DAMAGED_IN_A_ROW
# Batches and damaged ranges that are skipped before signals are handled.
_SKIPPED_AT_ONCE = 1 << 14
_CHECKSUM = "CHECKSUM_MISMATCH"
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
        Other batches with valid checksums, whose offsets contradict these.
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
    valid : ValidPrefix or None
        Batches that `batches` lacks, but for the last one of them: no batch follows it.
    """

    batches: BatchTable
    dropped: BatchTable
    copies: BatchTable
    damaged: DamagedRanges
    position: int
    end: ScanEnd
    error: CorruptBatchError | None
    is_exhaustive: bool
    valid: ValidPrefix | None = None

    def whole(self) -> ResyncScan:
        """Return the scan with all batches."""
        if self.valid is None:
            return self
        batches = join_tables([_rows_before_last(self.valid), self.batches])
        return replace(self, batches=batches, valid=None)

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
    valid: ValidPrefix | None = None,
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
    valid : ValidPrefix, optional
        Batches from the start of the source on that were verified, and are not verified again.

    Returns
    -------
    ResyncScan

    Notes
    -----
    Time is linear in the size of the source, for any bytes: after damage, headers are trusted
    for at most as many bytes as were valid since, and the search is a single pass
    (`crc_ranges.h`).
    """
    walk = _ResyncWalk(source, stop, threads or 1, verify, lowest, highest, position=start)
    if valid is not None:
        walk.skip_valid(valid)
    while walk.end is None:
        walk.advance()
    is_cut = valid is not None and sum(map(len, walk.tables)) == 1 and valid.last > 0
    if valid is not None and not is_cut:
        walk.tables.insert(0, _rows_before_last(valid))
    batches = walk.tables[0] if len(walk.tables) == 1 else join_tables(walk.tables)
    walk.tables.clear()  # kept until the end, they would cost fresh pages in the next scan
    damaged = DamagedRanges(source.path, join_rows(walk.damaged, DAMAGED_DTYPE), walk.not_a_log)
    dropped, copies = batches[:0], batches[:0]
    is_within = (batches["base_offset"] >= lowest) & (last_offset(batches) <= highest)
    if (walk.has_damage() or verify) and not (is_within.all() and are_ascending(batches)):
        is_valid = is_within if verify else is_within & verify_rows(source, batches)
        is_joined = are_joined(start, batches, damaged)
        keep = is_within & select_in_order(batches, is_valid, is_joined, start, lowest)
        damaged = damaged.joined(
            [damaged_batches(batches.compress(~keep), "OFFSETS_NOT_ASCENDING")]
        )
        dropped = batches.compress(is_valid & ~keep)
        if len(dropped):
            kept = batches.compress(is_valid & keep)
            is_copy = are_copies(dropped, kept, ("partition_leader_epoch",))
            copies, dropped = dropped.compress(is_copy), dropped.compress(~is_copy)
        batches = batches if keep.all() else batches.compress(keep)
    return ResyncScan(
        batches=batches,
        dropped=dropped,
        copies=copies,
        damaged=damaged,
        position=walk.position,
        end=walk.end,
        error=walk.error,
        is_exhaustive=walk.search.is_exhaustive,
        valid=valid if is_cut else None,
    )


def _rows_before_last(valid: ValidPrefix) -> BatchTable:
    return collect_in_parts(valid.source, 0, valid.last, valid.threads or 1)[0]


@dataclass(frozen=True)
class _Run:
    """
    Consecutive batches framed by one header walk, and how the walk ended.

    Attributes
    ----------
    batches : ndarray of BATCH_DTYPE
    limit : int
        The walk's stop: headers are not trusted to frame batches beyond it.
    position : int
        Position after the last batch.
    end : ScanEnd
    error : CorruptBatchError or None
    """

    batches: BatchTable
    limit: int
    position: int
    end: ScanEnd
    error: CorruptBatchError | None


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
    ) -> None:
        self._source, self._stop, self._threads = source, stop, threads
        self._verify, self._lowest, self._highest = verify, lowest, highest
        self.search = BatchSearch(source)
        self.tables: list[BatchTable] = []
        self.damaged: list[NDArray[np.void]] = []
        self.not_a_log: NotALogError | None = None
        self.position = position
        self.end: ScanEnd | None = None
        self.error: CorruptBatchError | None = None
        self._last_damage = -1
        self._began = position  # of the last advance
        self._is_searched = False  # no valid batch follows
        self._limit: int | None = None  # of the next advance

    def skip_valid(self, valid: ValidPrefix) -> None:
        """Go on from the last batch that was verified, as if `advance` had come there."""
        self.position, self._limit = valid.last, valid.limit

    def advance(self) -> None:
        """Scan up to the next damage, and skip it."""
        is_near = self.position - self._began < _FIRST_REACH
        if is_near and self.position == self._last_damage:  # the next one may be as near
            self._skip_clear_damage()
        self._began = self.position
        limit = self._limit or min(self._stop, self.position + self._reach())
        self._limit = None
        table, walk = collect_in_parts(self._source, self.position, limit, self._threads)
        assert walk.end is not None
        run = _Run(table, limit, walk.position, walk.end, walk.error)
        wrong = self._bad_rows(run)
        alone = wrong[: self._count_framed(table, wrong)]
        bad = int(wrong[len(alone)]) if len(alone) < len(wrong) else len(table)
        self.tables.append(np.delete(table[:bad], alone) if len(alone) else table[:bad])
        if len(alone):
            self.damaged.append(damaged_batches(table[alone], _CHECKSUM, is_framed=True))
            self._last_damage = int(table["position"][alone[-1] + 1])
        if bad < len(table):
            self.position = int(table["position"][bad])
            self._skip_batches(run, table[bad:])
            self._last_damage = self.position
            return
        self.position = run.position
        if run.end is not ScanEnd.CLEAN:
            self._skip_bytes(run)
            self._last_damage = self.position
        elif run.position >= self._stop:
            self.end = ScanEnd.CLEAN

    def _skip_clear_damage(self) -> None:
        """Skip damage that a compiled loop decides, as the rest of this class would."""
        while not self._is_searched:
            batches, damaged, self.position, self._last_damage = self.search.skip_damage(
                self.position, self._last_damage, self._stop, self._lowest, self._highest,
                verify=self._verify,
            )  # fmt: skip
            if not len(damaged):
                return
            self.tables.append(batches)
            self.damaged.append(damaged)

    def has_damage(self) -> bool:
        return self._last_damage >= 0

    def _reach(self) -> int:
        """Return the number of bytes for which headers are trusted."""
        most = VERIFIED_AT_ONCE if self._verify else self._stop - self.position
        if self._last_damage < 0:
            return most
        return max(_FIRST_REACH, min(2 * (self.position - self._last_damage), most))

    # ---- finding damage ---------------------------------------------------------------------

    def _bad_rows(self, run: _Run) -> NDArray[np.intp]:
        """Return the rows whose checksum is wrong, among the rows that are verified."""
        table = run.batches
        if self._verify or not len(table):
            return np.flatnonzero(~self._verified(table, run.limit))
        # No batch follows the last one that would confirm its length.
        suspects = np.array([len(table) - 1])
        if screen(table) & OFFSETS:
            starts, ends = table["base_offset"][1:], next_offset(table)[:-1]
            gaps = np.flatnonzero(starts != ends)
            suspects = np.append(gaps, suspects)
            falls = gaps[starts[gaps] < ends[gaps]]
            if len(falls):
                suspects = np.unique(np.append(suspects, falls + 1))
        wrong: NDArray[np.intp] = suspects[~self._verified(table.take(suspects), run.limit)]
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

    def _skip_batches(self, run: _Run, table: BatchTable) -> None:
        """Skip framed batches, of which the first one has a wrong checksum."""
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
            self._skip_unframed(run, table)

    def _reaches_end(self, run: _Run) -> bool:
        is_end = run.end is ScanEnd.ZERO_TAIL or (
            run.end is ScanEnd.CLEAN and run.position == self._source.size
        )
        return is_end and _stop_of(run.batches) == run.position

    def _are_in_segment(self, table: BatchTable) -> bool:
        """Return whether a segment with the batches up to here may contain these offsets."""
        distances = table["base_offset"].astype(np.float64) - self._last_offset()
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
        lowest = max(self._lowest, self._last_offset() + 1)
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

    def _skip_unframed(self, run: _Run, table: BatchTable) -> None:
        """Skip to the next valid batch: a length may be wrong, so no batch end is trusted."""
        found = self._find_any()
        if found is not None:
            self._skip_to(found, _CHECKSUM)
        else:
            self._skip_rows(table, is_framed=False)
            self._set_end(run)

    def _skip_bytes(self, run: _Run) -> None:
        """Skip bytes that are no batch."""
        if isinstance(run.error, NotALogError):
            self.not_a_log = run.error
        found = None if run.end is ScanEnd.ZERO_TAIL else self._find_any()
        if found is None:
            self._set_end(run)
        else:
            self._skip_to(found, run.error or "TORN_TAIL")

    def _skip_rows(self, table: BatchTable, *, is_framed: bool) -> None:
        if not self._verify:
            self.tables.append(table)
            self.position = _stop_of(table)
            return
        self.damaged.append(damaged_batches(table, _CHECKSUM, is_framed=is_framed))
        self.position = _stop_of(table)

    def _skip_to(self, stop: int, error: CorruptBatchError | str) -> None:
        self.damaged.append(damaged_range(self._source, self.position, stop, error))
        self.position = stop

    def _set_end(self, run: _Run) -> None:
        if run.end is not ScanEnd.CLEAN or self.position >= self._stop:
            self.end, self.error = run.end, run.error

    def _last_offset(self) -> int:
        for table in reversed(self.tables):
            if len(table):
                return int(last_offset(table[-1:])[0])
        return self._lowest - 1


# ---- rows ----------------------------------------------------------------------------


def _stop_of(batches: BatchTable) -> int:
    return int(batches["position"][-1]) + int(size_in_bytes(batches[-1:])[0])
