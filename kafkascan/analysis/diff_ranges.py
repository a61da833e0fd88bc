"""Ranges in which two aligned logs differ, and shifts of offsets between them."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkascan.analysis.alignment import Alignment, Block
from kafkascan.analysis.fingerprints import FingerprintRows

_DELETE_HORIZON = 0x40


class DiffKind(enum.StrEnum):
    """How a range of two logs differs."""

    ONLY_LEFT = "only_left"
    """The range is missing in the right log."""

    ONLY_RIGHT = "only_right"
    """The range is missing in the left log."""

    CHANGED = "changed"
    """Batches of the same offsets have different content."""

    COMPACTED = "compacted"
    """The cleaner removed records from batches of the same offsets in one of the logs, or rewrote
    the batches: in both logs, or to note when their tombstones and markers may be removed."""

    REBATCHED = "rebatched"
    """The same offsets are in different batches, so their content cannot be compared."""


class RangeLocation(enum.StrEnum):
    """Location of a range, relative to the batches that are the same in both logs."""

    START = "start"
    MIDDLE = "middle"
    END = "end"
    ALL = "all"
    """No batch is the same in both logs."""


@dataclass(frozen=True)
class DiffRange:
    """
    A range in which two logs differ.

    Attributes
    ----------
    kind : DiffKind
    location : RangeLocation
    left_first_offset, left_last_offset, right_first_offset, right_last_offset : int or None
        None if that log has no batch in the range.
    left_batches, right_batches : int
    left_records, right_records : int or None
        None if the range contains compressed messages of magic 0 or 1, which declare no count.
    left_epoch, right_epoch : int or None
        Leader epochs of the first batches.
    """

    kind: DiffKind
    location: RangeLocation
    left_first_offset: int | None
    left_last_offset: int | None
    right_first_offset: int | None
    right_last_offset: int | None
    left_batches: int
    right_batches: int
    left_records: int | None
    right_records: int | None
    left_epoch: int | None
    right_epoch: int | None


@dataclass(frozen=True)
class OffsetShift:
    """
    Neighbouring batches that are the same in both logs, but for a shift of their offsets.

    Attributes
    ----------
    left_first_offset, left_last_offset : int
    shift : int
        Offset in the right log minus the offset in the left log.
    batches : int
    """

    left_first_offset: int
    left_last_offset: int
    shift: int
    batches: int


class _Section(NamedTuple):
    """Neighbouring batches of a block that differ in the same way."""

    kind: DiffKind
    left: FingerprintRows
    right: FingerprintRows


def ranges_of_block(
    block: Block,
    left: FingerprintRows,
    right: FingerprintRows,
    *,
    has_offsets: bool,
    is_compacted: bool,
) -> Iterator[DiffRange]:
    """
    Split a block of batches that differ into ranges of one kind each.

    Parameters
    ----------
    block : Block
    left, right : array of FINGERPRINT
        All rows of each log.
    has_offsets : bool
        Whether the same content has the same offsets in both logs.
    is_compacted : bool
        Whether either log was compacted.
    """
    mine, theirs = left[block.left], right[block.right]
    location = _location(block)
    if not len(theirs):
        yield _range(DiffKind.ONLY_LEFT, location, mine, theirs)
    elif not len(mine):
        yield _range(DiffKind.ONLY_RIGHT, location, mine, theirs)
    elif not has_offsets:
        yield _range(DiffKind.CHANGED, location, mine, theirs)
    else:
        sections = list(_sections(mine, theirs))
        for index, (kind, of_left, of_right) in enumerate(sections):
            here = _location_in_block(location, index, len(sections), is_compacted=is_compacted)
            yield _range(kind, here, of_left, of_right)


def _location(block: Block) -> RangeLocation:
    if block.is_first and block.is_last:
        return RangeLocation.ALL
    if block.is_first:
        return RangeLocation.START
    return RangeLocation.END if block.is_last else RangeLocation.MIDDLE


def _location_in_block(
    location: RangeLocation, index: int, count: int, *, is_compacted: bool
) -> RangeLocation:
    """Return the location of one of the sections of a block: only the outermost one keeps it."""
    # The cleaner may have rewritten every batch that a replica has in common with another one.
    if location is RangeLocation.ALL and not (is_compacted and count > 1):
        return location
    is_whole = location is RangeLocation.ALL
    if index == 0 and (is_whole or location is RangeLocation.START):
        return RangeLocation.START
    if index == count - 1 and (is_whole or location is RangeLocation.END):
        return RangeLocation.END
    return RangeLocation.MIDDLE


def _sections(left: FingerprintRows, right: FingerprintRows) -> Iterator[_Section]:
    """Group batches whose offsets overlap, and yield neighbouring groups of one kind."""
    rows = np.concatenate([left, right])
    is_right = np.arange(len(rows)) >= len(left)
    order = np.argsort(rows["first_offset"], kind="stable")
    rows, is_right = rows[order], is_right[order]
    reach = np.maximum.accumulate(rows["last_offset"])
    begins = np.append(True, rows["first_offset"][1:] > reach[:-1])
    group = np.cumsum(begins) - 1
    heads = np.flatnonzero(begins)
    lefts = np.bincount(group[~is_right], minlength=len(heads))
    rights = np.bincount(group[is_right], minlength=len(heads))
    kinds = _kinds(rows, heads, lefts, rights)
    runs = np.flatnonzero(np.append(True, kinds[1:] != kinds[:-1]))
    bounds = np.append(heads[runs], len(rows))
    for run, start, stop in zip(runs.tolist(), bounds[:-1], bounds[1:], strict=True):
        part, of_right = rows[start:stop], is_right[start:stop]
        yield _Section(_SECTION_KINDS[int(kinds[run])], part[~of_right], part[of_right])


# The kinds of sections: compacted batches of one section have fewer records on the same side.
_ONLY_LEFT, _ONLY_RIGHT, _CHANGED, _FEWER_LEFT, _FEWER_RIGHT, _REWRITTEN, _REBATCHED = range(7)
_SECTION_KINDS = (
    DiffKind.ONLY_LEFT, DiffKind.ONLY_RIGHT, DiffKind.CHANGED, DiffKind.COMPACTED,
    DiffKind.COMPACTED, DiffKind.COMPACTED, DiffKind.REBATCHED,
)  # fmt: skip


def _kinds(
    rows: FingerprintRows,
    heads: NDArray[np.intp],
    lefts: NDArray[np.intp],
    rights: NDArray[np.intp],
) -> NDArray[np.intp]:
    """Return the kind of each group of overlapping batches, as its index in `_SECTION_KINDS`."""
    following = np.minimum(heads + 1, len(rows) - 1)
    is_pair = (lefts == 1) & (rights == 1)
    for name in ("first_offset", "last_offset"):
        is_pair &= rows[name][heads] == rows[name][following]
    # Sorting is stable: the batch of the left log comes first.
    left, right = rows[heads], rows[following]
    counts, others = left["records_count"], right["records_count"]
    has_counts = is_pair & (counts >= 0) & (others >= 0)
    kinds = np.full(len(heads), _REBATCHED)
    kinds[is_pair] = _CHANGED
    kinds[has_counts & (counts < others)] = _FEWER_LEFT
    kinds[has_counts & (counts > others)] = _FEWER_RIGHT
    is_rewritten = _lacks_records(left) & _lacks_records(right)
    is_rewritten |= _has_horizon(left) | _has_horizon(right)
    kinds[has_counts & (counts == others) & is_rewritten] = _REWRITTEN
    kinds[rights == 0] = _ONLY_LEFT
    kinds[lefts == 0] = _ONLY_RIGHT
    return kinds


def _lacks_records(rows: FingerprintRows) -> NDArray[np.bool_]:
    """Return which batches have fewer records than offsets: only the cleaner leaves such."""
    slots = rows["last_offset"] - rows["first_offset"] + 1
    lacking: NDArray[np.bool_] = (rows["magic"] >= 2) & (rows["records_count"] < slots)
    return lacking


def _has_horizon(rows: FingerprintRows) -> NDArray[np.bool_]:
    """Return which batches the cleaner rewrote with a delete horizon (KIP-534)."""
    marked: NDArray[np.bool_] = (rows["magic"] >= 2) & (rows["attributes"] & _DELETE_HORIZON != 0)
    return marked


def _range(
    kind: DiffKind, location: RangeLocation, left: FingerprintRows, right: FingerprintRows
) -> DiffRange:
    return DiffRange(
        kind,
        location,
        *_first_and_last(left),
        *_first_and_last(right),
        len(left),
        len(right),
        _records(left),
        _records(right),
        int(left["leader_epoch"][0]) if len(left) else None,
        int(right["leader_epoch"][0]) if len(right) else None,
    )


def _first_and_last(rows: FingerprintRows) -> tuple[int | None, int | None]:
    if not len(rows):
        return None, None
    return int(rows["first_offset"][0]), int(rows["last_offset"][-1])


def _records(rows: FingerprintRows) -> int | None:
    counts = rows["records_count"]
    return None if (counts < 0).any() else int(counts.sum(dtype=np.int64))


def offset_shifts(
    alignment: Alignment, left: FingerprintRows, right: FingerprintRows
) -> list[OffsetShift]:
    """Return the runs of same batches whose offsets differ by the same number."""
    mine, theirs = left[alignment.left], right[alignment.right]
    if not len(mine):
        return []
    shift = theirs["first_offset"] - mine["first_offset"]
    heads = np.flatnonzero(np.append(True, shift[1:] != shift[:-1]))
    bounds = [*heads.tolist(), len(mine)]
    return [
        OffsetShift(
            int(mine["first_offset"][start]),
            int(mine["last_offset"][stop - 1]),
            int(shift[start]),
            stop - start,
        )
        for start, stop in itertools.pairwise(bounds)
    ]
