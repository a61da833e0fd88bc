"""Batches whose damage a checksum does not cover, mended.

The CRC of magic 2 covers neither base offset, length, leader epoch nor the magic byte; that of
older messages neither offset nor size. Where the rest of a batch is as its checksum says, these
fields follow from what stands around it.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kafkascan.batch_columns import BatchTable, join_tables, last_offset, size_in_bytes
from kafkascan.checks import crc_of_bytes
from kafkascan.errors import CorruptBatchError, record_error
from kafkascan.layout import BATCH_HEADER_SIZE, CRC_STARTS, LOG_OVERHEAD
from kafkascan.offset_order import are_ascending, heaviest_ascending
from kafkascan.resync import ResyncScan, torn_error
from kafkascan.sources import Source
from kafkascan.walks import read_bytes, row_of_header

# Of neighbouring pieces of damage, so many may have been one batch.
_MOST_PIECES = 8
_MOST_OFFSETS = 1 << 31
_OF_FRAMED = ("CHECKSUM_MISMATCH",)
_MOST_ATTRIBUTES = 0x80
_CRC_AT = {0: 12, 1: 12, 2: 17}
_MAGIC_AT = 16
_UNCOVERED_V2, _UNCOVERED_LEGACY = struct.Struct(">qiib"), struct.Struct(">qi")


@dataclass(frozen=True)
class Repair:
    """
    A field of a batch that was damaged, and is known.

    Attributes
    ----------
    position : int
        Of the batch, in bytes.
    base_offset : int
        Of the batch, as mended.
    field : str
    old, new : int
    is_certain : bool
        False for a leader epoch between two others, and for an offset at the end of a log,
        which is taken to follow without a gap.
    """

    position: int
    base_offset: int
    field: str
    old: int
    new: int
    is_certain: bool = True


@dataclass(frozen=True)
class Hole:
    """
    Bytes that hold no batch of the log.

    Attributes
    ----------
    start, stop : int
        Positions.
    error : CorruptBatchError or None
        What is wrong at the start; None of batches that are the content of a record.
    """

    start: int
    stop: int
    error: CorruptBatchError | None


@dataclass
class MendedLog:
    """
    Attributes
    ----------
    batches : ndarray of BATCH_DTYPE
        By position, with ascending offsets; fields as mended.
    holes : list of Hole
        By position.
    repairs : list of Repair
    """

    batches: BatchTable
    holes: list[Hole]
    repairs: list[Repair] = field(default_factory=list)

    def patches(self) -> dict[int, bytes]:
        """Return what is to be written over the first bytes of mended batches, by position."""
        positions = sorted({one.position for one in self.repairs})
        rows = self.batches[np.searchsorted(self.batches["position"], positions)]
        return {int(row["position"]): _uncovered(row) for row in rows}


def mend(
    source: Source,
    scan: ResyncScan,
    lowest: int,
    highest: int,
) -> MendedLog:
    """
    Take back what can be told of damaged batches.

    Parameters
    ----------
    source : Source
    scan : ResyncScan
        Of all of it, verified.
    lowest, highest : int
        Offsets that batches of the segment may have.

    Returns
    -------
    MendedLog
        But for leader epochs: they help to tell what is the log's own (`mend_epochs`).
    """
    log = _with_bounds(source, scan, lowest, highest)
    if log.holes:
        log.holes = [piece for hole in log.holes for piece in _framed(source, hole)]
        found = [_undamaged(source, some) for some in _stretches(log.holes)]
        rows = [row for rows, _ in found for row in rows]
        log.holes = [hole for _, holes in found for hole in holes]
        if rows:
            _place(source, log, join_tables(rows), lowest, highest)
    log.repairs.sort(key=lambda one: one.position)
    return log


def _with_bounds(source: Source, scan: ResyncScan, lowest: int, highest: int) -> MendedLog:
    """Take offsets that the segment cannot hold for damaged, and what is behind the rows."""
    holes = [Hole(gap.position, gap.position + gap.size, gap.error) for gap in scan.gaps]
    batches = scan.batches
    is_within = (batches["base_offset"] >= lowest) & (last_offset(batches) <= highest)
    holes += [_misplaced(source, row) for row in batches[~is_within]]
    if scan.end is not None and scan.end.name in ("TORN_TAIL", "CORRUPT"):
        holes.append(
            Hole(scan.position, source.size, scan.error or torn_error(source, scan.position))
        )
    holes.sort(key=lambda hole: hole.start)
    return MendedLog(batches[is_within], holes)


def _misplaced(source: Source, row: np.void) -> Hole:
    start = int(row["position"])
    error = record_error("OFFSETS_NOT_ASCENDING", source.path, row)
    return Hole(start, start + LOG_OVERHEAD + int(row["batch_length"]), error)


def _stretches(holes: list[Hole]) -> Iterator[list[Hole]]:
    """Group holes that touch."""
    stretch = holes[:1]
    for one, other in itertools.pairwise(holes):
        if one.stop != other.start:
            yield stretch
            stretch = []
        stretch.append(other)
    yield stretch


def _framed(source: Source, hole: Hole) -> Iterator[Hole]:
    """Cut a hole where the lengths in it say that batches begin."""
    start = hole.start
    for _ in range(_MOST_PIECES if hole.error and hole.error.symbol in _OF_FRAMED else 0):
        header = read_bytes(source, start, BATCH_HEADER_SIZE)
        row = row_of_header(header, start, max(hole.stop - start, len(header)))
        size = int(size_in_bytes(row).sum())
        if not 0 < size < hole.stop - start:
            break
        yield Hole(start, start + size, hole.error)
        start += size
    yield Hole(start, hole.stop, hole.error)


# ---- length and magic byte: the checksum says where a batch ends ------------------------------


def _undamaged(source: Source, stretch: list[Hole]) -> tuple[list[BatchTable], list[Hole]]:
    """Find batches in damage whose checksum is right from one end to the other."""
    rows, left, first = [], [], 0
    while first < len(stretch):
        for last in range(min(first + _MOST_PIECES, len(stretch)) - 1, first - 1, -1):
            row = _whole_batch(source, stretch[first].start, stretch[last].stop)
            if row is not None:
                rows.append(row)
                first = last
                break
        else:
            left.append(stretch[first])
        first += 1
    return rows, left


def _whole_batch(source: Source, start: int, stop: int) -> BatchTable | None:
    """Return the row of the batch that fills some bytes, if a checksum says that one does."""
    size = stop - start
    header = read_bytes(source, start, BATCH_HEADER_SIZE)
    if len(header) <= _MAGIC_AT + 1 or size - LOG_OVERHEAD >= 1 << 31:
        return None
    said = header[_MAGIC_AT]
    for magic in (2, said) if said in (0, 1) else (2,):
        crc_at, covered = _CRC_AT[magic], CRC_STARTS[magic]
        is_odd = magic == 2 and int.from_bytes(header[covered : covered + 2]) >= _MOST_ATTRIBUTES
        if size <= covered or is_odd:
            continue
        stored = int.from_bytes(header[crc_at : crc_at + 4])
        if crc_of_bytes(source, start + covered, stop, magic) == stored:
            mended = bytearray(header)
            mended[8:LOG_OVERHEAD] = (size - LOG_OVERHEAD).to_bytes(4)
            mended[_MAGIC_AT] = magic
            row = row_of_header(bytes(mended[:size]), start, size)
            return row if len(row) else None
    return None


# ---- base offsets: neighbours say where a batch stands ----------------------------------------


def _place(source: Source, log: MendedLog, found: BatchTable, lowest: int, highest: int) -> None:
    """Put batches into the log whose checksum is right; where they belong is to be found."""
    places = np.searchsorted(log.batches["position"], found["position"])
    ends = last_offset(log.batches)
    taken = []
    for place in np.unique(places).tolist():
        group = found[places == place]
        low = int(ends[place - 1]) + 1 if place > 0 else lowest
        is_last = place == len(ends)
        high = highest if is_last else int(log.batches["base_offset"][place]) - 1
        is_whole = not any(group["position"][0] < hole.start < group["position"][-1]
                           for hole in log.holes)  # fmt: skip
        placed = _placed(group, low, high, is_whole=is_whole)
        if placed is None:
            placed = group[_fitting(group, low, high)]
        gone = ~np.isin(group["position"], placed["position"])
        log.holes += [_misplaced(source, row) for row in group[gone]]
        taken.append(placed)
    mended = join_tables(taken)
    for row in mended:
        _note_repairs(source, log, row)
    rows = join_tables([log.batches, mended])
    log.batches = rows[np.argsort(rows["position"], kind="stable")]
    log.holes.sort(key=lambda hole: hole.start)


def _placed(group: BatchTable, low: int, high: int, *, is_whole: bool) -> BatchTable | None:
    """
    Return batches with offsets that fill the room for them; None if they would not.

    At the end of a log there is no such room: there they follow what stands before them.
    """
    if are_ascending(group) and group["base_offset"][0] >= low and last_offset(group)[-1] <= high:
        return group
    counts = group["last_offset_delta"].astype(np.int64) + 1
    is_counted = (group["magic"] == 2) | (group["records_count"] >= 0)
    fills = int(counts.sum()) == high - low + 1 or high - low > _MOST_OFFSETS // 2
    if not (is_whole and is_counted.all() and (counts > 0).all() and fills):
        return None
    placed = group.copy()
    placed["base_offset"] = low + np.cumsum(counts) - counts
    return placed


def _fitting(group: BatchTable, low: int, high: int) -> NDArray[np.intp]:
    first, last = group["base_offset"], last_offset(group)
    fits = np.flatnonzero((first >= low) & (last <= high) & (first <= last))
    ones = np.ones(len(fits), np.int64)
    return fits[heaviest_ascending(first[fits], last[fits], ones)]


def _note_repairs(source: Source, log: MendedLog, row: np.void) -> None:
    position = int(row["position"])
    old = read_bytes(source, position, _UNCOVERED_V2.size)
    names = ("base_offset", "batch_length", "partition_leader_epoch", "magic")
    pairs = zip(names, _UNCOVERED_V2.unpack(old), _UNCOVERED_V2.unpack(_uncovered(row, old)),
                strict=True)  # fmt: skip
    for name, before, after in pairs:
        if before != after:
            log.repairs.append(Repair(position, int(row["base_offset"]), name, before, after))


def _uncovered(row: np.void, old: bytes = b"") -> bytes:
    """Return the first bytes of a batch, up to where its checksum knows of them."""
    start = (int(row["base_offset"]), int(row["batch_length"]))
    if row["magic"] < 2:
        return _UNCOVERED_LEGACY.pack(*start) + old[_UNCOVERED_LEGACY.size :]
    return _UNCOVERED_V2.pack(*start, int(row["partition_leader_epoch"]), int(row["magic"]))


# ---- leader epochs: they do not fall ----------------------------------------------------------


def mend_epochs(log: MendedLog, known_epochs: Collection[int] = ()) -> None:
    """
    Take back damage of leader epochs, which never fall in a log.

    Parameters
    ----------
    log : MendedLog
        Is changed.
    known_epochs : collection of int
        Leader epochs that the file beside the log knows of.
    """
    rows = np.flatnonzero(log.batches["magic"] == 2)
    epochs = log.batches["partition_leader_epoch"][rows].astype(np.int64)
    if len(rows) < 2:
        return
    keep = _believed(epochs, known_epochs)
    believed = np.flatnonzero(keep)
    if len(believed) in (0, len(keep)):
        return
    batches = log.batches.copy()
    for row in np.flatnonzero(~keep).tolist():
        place = int(np.searchsorted(believed, row))
        around = {int(epochs[believed[i]]) for i in (place - 1, place) if 0 <= i < len(believed)}
        around |= {one for one in known_epochs if min(around) < one < max(around)}
        is_certain = len(around) == 1 and 0 < place < len(believed)
        one, old = batches[rows[row]], int(epochs[row])
        new = min(around, key=lambda epoch: ((old ^ epoch) & 0xFFFFFFFF).bit_count())
        position, base_offset = int(one["position"]), int(one["base_offset"])
        log.repairs.append(
            Repair(position, base_offset, "partition_leader_epoch", old, new, is_certain)
        )
        batches["partition_leader_epoch"][rows[row]] = new
    log.batches = batches
    log.repairs.sort(key=lambda one: one.position)


def _believed(epochs: NDArray[np.int64], known_epochs: Collection[int]) -> NDArray[np.bool_]:
    """Choose epochs that do not fall; those that were seen more often, or elsewhere, count more."""
    values, value_of, counts = np.unique(epochs, return_inverse=True, return_counts=True)
    is_known = np.isin(values, list(known_epochs))
    weight = (2 + (counts > 1) + 4 * is_known)[value_of]
    keep = np.ones(len(epochs), np.bool_)
    if (np.diff(epochs) < 0).any():
        keep = heaviest_ascending(2 * epochs + 1, 2 * epochs, weight)
    if is_known.any():  # one batch alone of an epoch that nobody has heard of
        keep &= (is_known | (counts > 1))[value_of]
    return keep
