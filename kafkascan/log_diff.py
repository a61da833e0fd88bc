"""Replicas, backups and mirrors compared by what their headers say; no payload is read."""

from __future__ import annotations

import enum
import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from kafkascan import arrow
from kafkascan.alignment import Alignment, Block, align_by_content, align_by_offset
from kafkascan.fingerprints import (
    FINGERPRINT,
    FingerprintRows,
    Fingerprints,
    LogFingerprints,
    read_fingerprints,
)
from kafkascan.logs import LogsLike

if TYPE_CHECKING:
    import pyarrow as pa

Offsets: TypeAlias = Literal["same", "shifted"]


class DiffKind(enum.StrEnum):
    """How a range of two logs differs."""

    ONLY_LEFT = "only_left"
    """The right log does not have it."""

    ONLY_RIGHT = "only_right"
    """The left log does not have it."""

    CHANGED = "changed"
    """The same offsets in the same batches, but other content."""

    COMPACTED = "compacted"
    """Batches of the same offsets, of which one log holds fewer records."""

    REBATCHED = "rebatched"
    """Offsets of one log in other batches of the other, whose content cannot be compared."""


class Place(enum.StrEnum):
    """Where a range lies, as seen from what is the same in both logs."""

    START = "start"
    MIDDLE = "middle"
    END = "end"
    ALL = "all"
    """Nothing is the same in both."""


@dataclass(frozen=True)
class DiffRange:
    """
    A range in which two logs differ.

    Attributes
    ----------
    kind : DiffKind
    place : Place
    left_first_offset, left_last_offset, right_first_offset, right_last_offset : int or None
        None where that log has no batch in the range.
    left_batches, right_batches : int
    left_records, right_records : int or None
        None if compressed messages of magic 0 or 1 do not say how many they hold.
    left_epoch, right_epoch : int or None
        Leader epochs of the first batches.
    """

    kind: DiffKind
    place: Place
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
class Shift:
    """
    Neighbouring batches that are the same, at offsets that differ by the same number.

    Attributes
    ----------
    left_first_offset, left_last_offset : int
    shift : int
        Offset in the right log minus that in the left one.
    batches : int
    """

    left_first_offset: int
    left_last_offset: int
    shift: int
    batches: int


@dataclass
class PartitionDiff:
    """
    How two logs differ.

    Attributes
    ----------
    topic : str or None
    partition : int or None
        Of the left log, or of the right one if there is no left one.
    is_in_left, is_in_right : bool
    left_batches, right_batches, same_batches : int
    epoch_changes : int
        Batches that are the same but for their leader epoch, which no checksum covers.
    ranges : list of DiffRange
    shifts : list of Shift
        Where what is the same lies, if offsets may be shifted.
    truncation_offset : int or None
        Where the right log would be cut off if it followed the left one, by leader epochs
        (KIP-101, KIP-279); None if it would not.
    damage : list of str
        What could not be read on either side.
    """

    topic: str | None
    partition: int | None
    is_in_left: bool = True
    is_in_right: bool = True
    left_batches: int = 0
    right_batches: int = 0
    same_batches: int = 0
    epoch_changes: int = 0
    ranges: list[DiffRange] = field(default_factory=list)
    shifts: list[Shift] = field(default_factory=list)
    truncation_offset: int | None = None
    damage: list[str] = field(default_factory=list)
    is_subset: bool = False

    @property
    def differences(self) -> list[DiffRange]:
        """Ranges that are not explained: by retention, by lag, or by compaction if that may be."""
        return [one for one in self.ranges if not self._is_explained(one)]

    def _is_explained(self, one: DiffRange) -> bool:
        if one.kind in (DiffKind.ONLY_LEFT, DiffKind.ONLY_RIGHT):
            is_missing_here = self.is_subset and one.kind is DiffKind.ONLY_LEFT
            return is_missing_here or one.place in (Place.START, Place.END)
        if one.kind is DiffKind.COMPACTED and self.is_subset:
            return (one.right_records or 0) <= (one.left_records or 0)
        return False

    @property
    def first_divergence(self) -> int | None:
        """First offset, of the left log where it has one, at which content differs."""
        if not self.differences:
            return None
        first = self.differences[0]
        offset = first.left_first_offset
        return first.right_first_offset if offset is None else offset

    @property
    def is_same(self) -> bool:
        """Whether one log is a copy of the other, but for what retention and lag explain."""
        return self.is_in_left and self.is_in_right and not self.differences and not self.damage

    def __repr__(self) -> str:
        name = f"{self.topic}-{self.partition}"
        lines = [f"<PartitionDiff {name}: {self.same_batches:,} batches are the same>"]
        lines += [
            f"  {one.kind} ({one.place}): left {one.left_first_offset} to"
            f" {one.left_last_offset}, right {one.right_first_offset} to"
            f" {one.right_last_offset}"
            for one in self.ranges
        ]
        return "\n".join(lines)


_TEXTS = ("topic", "kind", "place")
DIFF_COLUMNS = ("topic", "partition", *DiffRange.__dataclass_fields__, "is_difference")
"""Columns of `LogDiff.to_columns`."""


@dataclass
class LogDiff:
    """
    How two logs, or two sets of them, differ; what `diff_logs` returns.

    Attributes
    ----------
    left, right : str
        What was compared.
    partitions : list of PartitionDiff
    """

    left: str
    right: str
    partitions: list[PartitionDiff]

    @property
    def is_same(self) -> bool:
        """Whether all partitions are."""
        return all(one.is_same for one in self.partitions)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a row for each range."""
        for one in self.partitions:
            unexplained = one.differences
            for found in one.ranges:
                yield {"topic": one.topic, "partition": one.partition, **asdict(found),
                       "is_difference": found in unexplained}  # fmt: skip

    def to_columns(self) -> dict[str, list[Any]]:
        """Return the ranges as a table."""
        rows = list(self.rows())
        return {name: [row[name] for row in rows] for name in DIFF_COLUMNS}

    def to_arrow(self) -> pa.Table:
        """Return the ranges as Arrow's table."""
        return arrow.table_of(self.to_columns(), texts=_TEXTS)

    def to_json(self) -> str:
        """Return all of it as a JSON document."""
        partitions = [
            asdict(one) | {"first_divergence": one.first_divergence, "is_same": one.is_same}
            for one in self.partitions
        ]
        document = {"left": self.left, "right": self.right, "is_same": self.is_same}
        return json.dumps(document | {"partitions": partitions}, indent=2)

    def __repr__(self) -> str:
        verdict = "the same" if self.is_same else "not the same"
        lines = [f"<LogDiff {self.left} and {self.right}: {verdict}>"]
        return "\n".join([*lines, *map(repr, self.partitions)])


def diff_logs(
    left: LogsLike | Fingerprints,
    right: LogsLike | Fingerprints,
    /,
    *,
    offsets: Offsets = "same",
    compacted: bool = False,
    threads: int | None = None,
) -> LogDiff:
    """
    Compare replicas, a backup and its source, or a topic and its mirror.

    Parameters
    ----------
    left, right : path, LogDir, PartitionDir, Fingerprints, bytes-like, Source or Segment
        Data dirs, folders of partitions, tars of them, segments, or files of fingerprints
        (`Fingerprints.save`), so that no host has to see the other's disk. Segments may end
        at other places. Partitions are compared by name; two single logs in any case.
    offsets : {"same", "shifted"}
        Whether the same content has the same offsets, or may have others, as in a mirror that
        passes batches on as they are.
    compacted : bool, default False
        Whether the right log may be a compacted copy of the left one: batches that lack
        records, or are not there, are no difference then.
    threads : int, optional
        As of `read_fingerprints`.

    Returns
    -------
    LogDiff

    Raises
    ------
    As `read_fingerprints`.

    Notes
    -----
    Batches are the same if their size and their checksum are, which covers all that a leader
    does not write (``DefaultRecordBatch.computeChecksum``). That is evidence, not proof: one in
    2**32 changes goes unseen, and so does damage that left the stored checksum as it was;
    `verify_crcs` finds that. Where batches were put together anew, content is not compared.
    """
    if offsets not in ("same", "shifted"):
        raise ValueError(f"offsets must be 'same' or 'shifted', not {offsets!r}")
    mine = read_fingerprints(left, threads=threads)
    theirs = read_fingerprints(right, threads=threads)
    found = [
        _compare(one, other, offsets=offsets, compacted=compacted)
        for one, other in _paired(mine.logs, theirs.logs)
    ]
    return LogDiff(mine.path, theirs.path, found)


def _paired(
    left: list[LogFingerprints], right: list[LogFingerprints]
) -> Iterator[tuple[LogFingerprints | None, LogFingerprints | None]]:
    if len(left) == len(right) == 1:
        yield left[0], right[0]
        return
    mine = {(log.topic, log.partition): log for log in left}
    theirs = {(log.topic, log.partition): log for log in right}
    for key in dict.fromkeys([*mine, *theirs]):
        yield mine.get(key), theirs.get(key)


_NO_ROWS = np.empty(0, FINGERPRINT)


def _compare(
    one: LogFingerprints | None,
    other: LogFingerprints | None,
    *,
    offsets: Offsets,
    compacted: bool,
) -> PartitionDiff:
    named = one or other
    assert named is not None
    left = _NO_ROWS if one is None else one.rows
    right = _NO_ROWS if other is None else other.rows
    align = align_by_offset if offsets == "same" else align_by_content
    alignment = align(left, right)
    diff = PartitionDiff(
        named.topic,
        named.partition,
        is_in_left=one is not None,
        is_in_right=other is not None,
        left_batches=len(left),
        right_batches=len(right),
        same_batches=len(alignment),
        is_subset=compacted,
        damage=[damage for side in (one, other) if side is not None for damage in side.damage],
    )
    for block in alignment.blocks:
        diff.ranges += _ranges(block, left, right, has_offsets=offsets == "same")
    if offsets == "shifted":
        diff.shifts = _shifts(alignment, left, right)
    else:
        diff.epoch_changes = alignment.epoch_changes
        diff.truncation_offset = truncation_offset(left, right)
    return diff


# ---- ranges ----------------------------------------------------------------------------------


def _ranges(
    block: Block, left: FingerprintRows, right: FingerprintRows, *, has_offsets: bool
) -> Iterator[DiffRange]:
    """Cut what lies between two batches that are the same into ranges of one kind each."""
    mine, theirs = left[block.left], right[block.right]
    if block.is_first and block.is_last:
        place = Place.ALL
    else:
        place = Place.START if block.is_first else Place.END if block.is_last else Place.MIDDLE
    if not has_offsets or not (len(mine) and len(theirs)):
        kind = DiffKind.CHANGED if len(mine) and len(theirs) else None
        yield _range(mine, theirs, place, kind)
        return
    pieces = list(_pieces(mine, theirs))
    for index, (kind, of_left, of_right) in enumerate(pieces):
        here = _place_in_block(place, index, len(pieces), _missing_so_far(pieces, index))
        yield _range(of_left, of_right, here, kind)


def _missing_so_far(pieces: list[Any], index: int) -> tuple[bool, bool]:
    """Tell whether nothing was met on one side before, or is behind a piece."""
    _, mine, _ = pieces[index]
    side = 1 if not len(mine) else 2
    before = any(len(piece[side]) for piece in pieces[:index])
    behind = any(len(piece[side]) for piece in pieces[index + 1 :])
    return not before, not behind


def _place_in_block(place: Place, index: int, count: int, alone: tuple[bool, bool]) -> Place:
    """What one log lacks at its start or end is no difference, whatever follows or precedes."""
    if place is Place.START and index == 0 and alone[0]:
        return place
    if place is Place.END and index == count - 1 and alone[1]:
        return place
    return Place.ALL if place is Place.ALL else Place.MIDDLE


def _pieces(
    left: FingerprintRows, right: FingerprintRows
) -> Iterator[tuple[DiffKind, FingerprintRows, FingerprintRows]]:
    """Yield neighbouring batches of one kind, by which offsets overlap."""
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
        yield _KINDS[int(kinds[run])], part[~of_right], part[of_right]


_KINDS = tuple(DiffKind)


def _kinds(rows: FingerprintRows, heads: Any, lefts: Any, rights: Any) -> Any:
    """Return the kind of each group of overlapping batches, as its place in `_KINDS`."""
    following = np.minimum(heads + 1, len(rows) - 1)
    is_pair = (lefts == 1) & (rights == 1)
    for name in ("first_offset", "last_offset"):
        is_pair &= rows[name][heads] == rows[name][following]
    counts, others = rows["records_count"][heads], rows["records_count"][following]
    is_compacted = is_pair & (counts != others) & (counts >= 0) & (others >= 0)
    kinds = np.full(len(heads), _KINDS.index(DiffKind.REBATCHED))
    kinds[is_pair] = _KINDS.index(DiffKind.CHANGED)
    kinds[is_compacted] = _KINDS.index(DiffKind.COMPACTED)
    kinds[rights == 0] = _KINDS.index(DiffKind.ONLY_LEFT)
    kinds[lefts == 0] = _KINDS.index(DiffKind.ONLY_RIGHT)
    return kinds


def _range(
    left: FingerprintRows, right: FingerprintRows, place: Place, kind: DiffKind | None
) -> DiffRange:
    if kind is None:
        kind = DiffKind.ONLY_LEFT if len(left) else DiffKind.ONLY_RIGHT
    return DiffRange(
        kind,
        place,
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


# ---- shifts and epochs -----------------------------------------------------------------------


def _shifts(alignment: Alignment, left: FingerprintRows, right: FingerprintRows) -> list[Shift]:
    mine, theirs = left[alignment.left], right[alignment.right]
    if not len(mine):
        return []
    shift = theirs["first_offset"] - mine["first_offset"]
    heads = np.flatnonzero(np.append(True, shift[1:] != shift[:-1]))
    bounds = [*heads.tolist(), len(mine)]
    return [
        Shift(
            int(mine["first_offset"][start]),
            int(mine["last_offset"][stop - 1]),
            int(shift[start]),
            stop - start,
        )
        for start, stop in itertools.pairwise(bounds)
    ]


def truncation_offset(leader: FingerprintRows, follower: FingerprintRows) -> int | None:
    """
    Return where a log is cut off when it begins to follow another; None if it is not.

    Parameters
    ----------
    leader, follower : array of FINGERPRINT

    Notes
    -----
    The follower asks for the end of its last epoch, and goes on with the leader's answer until
    both know of the epoch (KIP-101, KIP-279; ``AbstractFetcherThread.getOffsetTruncationState``).
    """
    mine, theirs = _Epochs(leader), _Epochs(follower)
    epoch = theirs.last
    while epoch is not None:
        known, end = mine.end_of(epoch)
        if known is None:
            return None
        same, own_end = theirs.end_of(known)
        if same is None:
            return theirs.first_offset
        if same == known:
            offset = min(end, own_end)
            return None if offset >= theirs.log_end else offset
        epoch = same
    return None


class _Epochs:
    """Where the leader epochs of a log begin and end."""

    def __init__(self, rows: FingerprintRows) -> None:
        epochs = np.ascontiguousarray(rows["leader_epoch"])
        # There are few, and the highest one so far is another only where they are others.
        heads = np.flatnonzero(np.append(len(rows) > 0, epochs[1:] != epochs[:-1]))
        highest = np.maximum.accumulate(epochs[heads]) if len(heads) else epochs[heads]
        is_new = np.diff(highest, prepend=np.int32(-1)) > 0
        starts = heads[is_new]
        self._epochs = highest[is_new].tolist()
        self._starts = rows["first_offset"][starts].tolist()
        self.log_end = int(rows["last_offset"][-1]) + 1 if len(rows) else 0
        self.first_offset = int(rows["first_offset"][0]) if len(rows) else 0

    @property
    def last(self) -> int | None:
        return self._epochs[-1] if self._epochs else None

    def end_of(self, epoch: int) -> tuple[int | None, int]:
        """Return the largest epoch that is not above one, and where it ends."""
        place = int(np.searchsorted(self._epochs, epoch, side="right"))
        if place == 0:
            return None, 0
        end = self._starts[place] if place < len(self._starts) else self.log_end
        return self._epochs[place - 1], end
