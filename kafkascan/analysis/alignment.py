"""Align the batches of two logs and find the blocks that differ."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import fingerprints as _core
from kafkascan.analysis.fingerprints import FINGERPRINT, ROWS, FingerprintRows
from kafkascan.batches.columns import join_rows
from kafkascan.batches.resyncing.offset_chains import heaviest_ascending
from kafkascan.format.errors import STATUS

_FIRST_RUNS = 256


@dataclass(frozen=True)
class Block:
    """
    A range of each log, between two pairs of same batches.

    Attributes
    ----------
    left, right : slice
        Rows of each log.
    is_first, is_last : bool
        Whether no pair of same batches precedes the block, or follows it.
    """

    left: slice
    right: slice
    is_first: bool
    is_last: bool


@dataclass(frozen=True, eq=False)
class Alignment:
    """
    The pairs of same batches of two logs.

    Attributes
    ----------
    runs : ndarray of int64, shape (m, 3)
        Runs of same batches: first row in the left log, first row in the right log, number
        of rows. Ascending.
    sizes : tuple of (int, int)
        Number of rows of each log.
    epoch_changes : int
        Number of pairs with different leader epochs; only `align_by_offset` counts them.
    """

    runs: NDArray[np.int64]
    sizes: tuple[int, int]
    epoch_changes: int = 0

    def __len__(self) -> int:
        return int(self.runs[:, 2].sum())

    @property
    def left(self) -> NDArray[np.int64]:
        """Rows of the left log that have a partner."""
        return self._rows(0)

    @property
    def right(self) -> NDArray[np.int64]:
        """Rows of the right log that have a partner, in the order of `left`."""
        return self._rows(1)

    def _rows(self, side: int) -> NDArray[np.int64]:
        counts = self.runs[:, 2]
        shift = self.runs[:, side] - (np.cumsum(counts) - counts)
        rows: NDArray[np.int64] = np.repeat(shift, counts) + np.arange(len(self))
        return rows

    @property
    def blocks(self) -> list[Block]:
        """The blocks between the runs, in order."""
        blocks: list[Block] = []
        left = right = 0
        ends = [*self.runs.tolist(), [*self.sizes, 0]]
        for number, (stop, other_stop, count) in enumerate(ends):
            if left < stop or right < other_stop:
                is_first, is_last = number == 0, number == len(self.runs)
                mine, theirs = slice(left, stop), slice(right, other_stop)
                blocks.append(Block(mine, theirs, is_first=is_first, is_last=is_last))
            left, right = stop + count, other_stop + count
        return blocks


def content_keys(rows: FingerprintRows) -> NDArray[np.uint64]:
    """Return a number for each batch that identifies its content: checksum and size."""
    sizes = rows["size"].astype(np.uint64)
    keys: NDArray[np.uint64] = rows["crc"].astype(np.uint64) << np.uint64(32) | sizes
    return keys


def align_by_offset(left: FingerprintRows, right: FingerprintRows) -> Alignment:
    """Pair batches that have the same offsets and the same content."""
    left, right = np.ascontiguousarray(left), np.ascontiguousarray(right)
    if _core.are_ascending(left) and _core.are_ascending(right):
        return _paired(left, right)
    rows, others = _same_offsets(left["last_offset"], right["last_offset"])
    is_same = content_keys(left)[rows] == content_keys(right)[others]
    for name in ("first_offset", "magic"):
        is_same &= left[name][rows] == right[name][others]
    rows, others = rows[is_same], others[is_same]
    changes = left["leader_epoch"][rows] != right["leader_epoch"][others]
    return _aligned(rows, others, left, right, int(changes.sum()))


def _paired(left: FingerprintRows, right: FingerprintRows) -> Alignment:
    """Pair batches of logs whose offsets ascend, as in logs without damage."""
    found: list[NDArray[np.int64]] = []
    row = other = epoch_changes = 0
    capacity, status = _FIRST_RUNS, STATUS["OUTPUT_FULL"]
    while status == STATUS["OUTPUT_FULL"]:
        runs = np.empty((capacity, 3), np.int64)
        status, count, row, other, changes = _core.pair_by_offset(left, right, row, other, runs)
        found.append(runs[:count])
        epoch_changes += changes
        capacity *= 2
    return Alignment(np.concatenate(found), (len(left), len(right)), epoch_changes)


def _same_offsets(
    left: NDArray[np.int64], right: NDArray[np.int64]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Pair rows of the same offset if offsets do not ascend: the longest ascending selection."""
    if len(left) == len(right) and np.array_equal(left, right):
        return np.arange(len(left)), np.arange(len(left))
    _, rows, others = np.intersect1d(left, right, return_indices=True)
    keep = heaviest_ascending(rows, rows, np.ones(len(rows), np.int64))
    keep[keep] = heaviest_ascending(others[keep], others[keep], np.ones(int(keep.sum()), np.int64))
    return rows[keep], others[keep]


def align_by_content(left: FingerprintRows, right: FingerprintRows) -> Alignment:
    """
    Pair batches that have the same content, in the same order, whatever their offsets.

    Batches whose content occurs once in both logs are paired first. Between two such pairs,
    batches are paired that have the same distance from either pair.
    """
    keys, other_keys = content_keys(left), content_keys(right)
    rows, others = _unique_pairs(keys, other_keys)
    keep = heaviest_ascending(others, others, np.ones(len(rows), np.int64))
    # Sentinels: the starts of both logs are a pair, and so are their ends.
    rows = np.concatenate([[-1], rows[keep], [len(left)]]).astype(np.int64)
    others = np.concatenate([[-1], others[keep], [len(right)]]).astype(np.int64)
    here = np.arange(len(left))
    before = np.searchsorted(rows, here, side="right") - 1
    forward = others[before] + here - rows[before]
    after = np.minimum(before + 1, len(rows) - 1)
    backward = others[after] - (rows[after] - here)
    partner = np.full(len(left), -1, np.int64)
    for guess in (backward, forward):
        is_inside = (guess >= others[before]) & (guess < others[after]) & (guess >= 0)
        found = np.flatnonzero(is_inside)
        found = found[keys[found] == other_keys[guess[found]]]
        partner[found] = guess[found]
    paired = np.flatnonzero(partner >= 0)
    keep = heaviest_ascending(partner[paired], partner[paired], np.ones(len(paired), np.int64))
    return _aligned(paired[keep], partner[paired][keep], left, right)


def _unique_pairs(
    keys: NDArray[np.uint64], others: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    mine, at, count = np.unique(keys, return_index=True, return_counts=True)
    theirs, other_at, other_count = np.unique(others, return_index=True, return_counts=True)
    mine, at = mine[count == 1], at[count == 1]
    theirs, other_at = theirs[other_count == 1], other_at[other_count == 1]
    _, first, second = np.intersect1d(mine, theirs, assume_unique=True, return_indices=True)
    rows, partners = at[first], other_at[second]
    order = np.argsort(rows)
    return rows[order].astype(np.int64), partners[order].astype(np.int64)


def _aligned(
    rows: NDArray[np.intp],
    others: NDArray[np.intp],
    left: FingerprintRows,
    right: FingerprintRows,
    epoch_changes: int = 0,
) -> Alignment:
    is_head = np.ones(len(rows), np.bool_)
    is_head[1:] = (np.diff(rows) != 1) | (np.diff(others) != 1)
    heads = np.flatnonzero(is_head)
    counts = np.diff(np.append(heads, len(rows)))
    runs = np.stack([rows[heads], others[heads], counts], axis=1).astype(np.int64)
    return Alignment(runs, (len(left), len(right)), epoch_changes)


# ---- logs that are mostly the same -----------------------------------------------------------


class LeftOut(NamedTuple):
    """
    Same batches that are left out of the rows of both logs.

    Attributes
    ----------
    batches : int
    epoch_changes : int
        Those of them with different leader epochs.
    """

    batches: int = 0
    epoch_changes: int = 0


class WithdrawnRowsError(Exception):
    """Rows of a log do not count that were compared already: its segment is damaged, or gone."""


class DisorderError(Exception):
    """The last offsets of a log do not ascend."""


Tables = Iterable[tuple[int, FingerprintRows]]


def without_common(left: Tables, right: Tables) -> tuple[FingerprintRows, FingerprintRows, LeftOut]:
    """
    Read two logs side by side, and leave out most batches that are the same in both.

    Of neighbouring same batches, the first and the last stay, and those at which a leader epoch
    begins in either log: so `align_by_offset` finds the same blocks, and `epoch_history` the same
    epochs, as in all rows.

    Parameters
    ----------
    left, right : iterable of (int, array of FINGERPRINT)
        See `LogTables`.

    Returns
    -------
    left, right : array of FINGERPRINT
    left_out : LeftOut

    Raises
    ------
    WithdrawnRowsError, DisorderError
    """
    mine, theirs = _RowsAhead(left), _RowsAhead(right)
    if mine.are_few() and theirs.are_few():
        return mine.rows, theirs.rows, LeftOut()
    kept, kept_others = list[FingerprintRows](), list[FingerprintRows]()
    batches = epoch_changes = 0
    while mine.fill() and theirs.fill():
        stop = min(mine.last_offset, theirs.last_offset)
        one, other, more = _kept_of(mine.take(stop), theirs.take(stop))
        kept.append(one)
        kept_others.append(other)
        batches += more.batches
        epoch_changes += more.epoch_changes
    for rest, tables in ((mine, kept), (theirs, kept_others)):
        while rest.fill():
            tables.append(rest.take(rest.last_offset))
    rows, others = (join_rows(tables, FINGERPRINT) for tables in (kept, kept_others))
    return rows, others, LeftOut(batches, epoch_changes)


# Rows of a log that are kept, whatever they are: leaving them out takes longer.
_FEW = 1 << 10
_BEFORE_ALL = -(1 << 63) - 1


def _kept_of(
    left: FingerprintRows, right: FingerprintRows
) -> tuple[FingerprintRows, FingerprintRows, LeftOut]:
    """Return the rows that stay of two logs, between the same offsets."""
    runs = _paired(left, right).runs
    inner, their_inner = _inner_rows(runs, 0, len(left)), _inner_rows(runs, 1, len(right))
    epochs, their_epochs = (np.ascontiguousarray(one["leader_epoch"]) for one in (left, right))
    goes_on = _goes_on(epochs)[inner] & _goes_on(their_epochs)[their_inner]
    changes = (epochs[inner] != their_epochs[their_inner])[goes_on]
    inner[inner], their_inner[their_inner] = goes_on, goes_on
    left_out = LeftOut(int(goes_on.sum()), int(changes.sum()))
    return left.compress(~inner), right.compress(~their_inner), left_out


def _inner_rows(runs: NDArray[np.int64], side: int, count: int) -> NDArray[np.bool_]:
    """Return which rows of a log are in a run of same batches, and not the first or the last."""
    firsts, counts = runs[runs[:, 2] > 2][:, [side, 2]].T
    marks = np.zeros(count, np.int8)
    marks[firsts + 1] = 1
    marks[firsts + counts - 1] = -1
    return np.cumsum(marks, dtype=np.int8).view(np.bool_)


def _goes_on(epochs: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return which rows have the leader epoch of the row before."""
    goes_on = np.zeros(len(epochs), np.bool_)
    goes_on[1:] = epochs[1:] == epochs[:-1]
    return goes_on


class _RowsAhead:
    """
    The next rows of a log, of which enough are read ahead.

    Attributes
    ----------
    rows : array of FINGERPRINT
    last_offset : int
        Of the rows that were read.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables, self.rows = iter(tables), np.empty(0, FINGERPRINT)
        self._joined = 0  # number of tables
        self.last_offset = _BEFORE_ALL

    def are_few(self) -> bool:
        """Read some rows; return whether these are few, and all rows."""
        self.fill()
        return len(self.rows) <= min(_FEW, ROWS - 1)

    def fill(self) -> bool:
        """Read some rows if few are left; return whether there are any."""
        ahead, count = list[FingerprintRows](), len(self.rows)
        while count < ROWS and (read := next(self._tables, None)) is not None:
            still, table = read
            if still < self._joined:
                raise WithdrawnRowsError
            del ahead[still - self._joined :]
            ahead.append(table)
            count = len(self.rows) + sum(map(len, ahead))
        if ahead:
            self._joined += len(ahead)
            self._add(ahead[0] if len(ahead) == 1 else join_rows(ahead, FINGERPRINT))
        return len(self.rows) > 0

    def _add(self, rows: FingerprintRows) -> None:
        if not len(rows):
            return
        if rows["last_offset"][0] <= self.last_offset or not _core.are_ascending(rows):
            raise DisorderError
        self.last_offset = int(rows["last_offset"][-1])
        self.rows = join_rows([self.rows, rows], FINGERPRINT) if len(self.rows) else rows

    def take(self, last_offset: int) -> FingerprintRows:
        """Return the next rows up to an offset."""
        stop = int(np.searchsorted(self.rows["last_offset"], last_offset, side="right"))
        rows, self.rows = self.rows[:stop], self.rows[stop:]
        return rows
