"""Reconstruct header fields that no checksum covers.

The CRC of magic 2 does not cover the base offset, the batch length, the leader epoch and the magic
byte; the CRC of older messages does not cover the offset and the size. If the bytes that the
checksum covers are intact, these fields can be reconstructed from the checksum and the
neighbouring batches.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, join_tables, size_in_bytes
from kafkascan.batches.resyncing.gaps import DamagedRange
from kafkascan.batches.resyncing.offset_chains import fitting, heaviest_ascending
from kafkascan.batches.resyncing.offset_evidence import are_copies
from kafkascan.batches.resyncing.resync import ResyncScan, torn_error
from kafkascan.batches.verify import crc_of_bytes
from kafkascan.batches.walks import read_bytes, row_of_header
from kafkascan.format.errors import record_error
from kafkascan.format.layout import (
    BATCH_DTYPE,
    BATCH_HEADER,
    BATCH_HEADER_SIZE,
    CRC_POSITIONS,
    CRC_STARTS,
    DELETE_HORIZON_BIT,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    NO_PARTITION_LEADER_EPOCH,
    ScanEnd,
)
from kafkascan.io.sources import Source
from kafkascan.recovery.salvaging.offset_repair import OffsetRepair

# Maximum number of adjacent damaged ranges that are tried as one batch.
_MOST_JOINED = 8
_FRAMED_SYMBOLS = ("CHECKSUM_MISMATCH",)
_OUT_OF_ORDER = "OFFSETS_NOT_ASCENDING"
_ATTRIBUTES_END = 2 * DELETE_HORIZON_BIT  # above all attributes that Kafka sets
# Evidence of a batch whose leader epoch no other batch has, one other, or several others, or the
# checkpoint. An epoch that few batches have may be damaged itself: of two batches that contradict a
# third one, both may have the same flipped bit.
_SINGLE, _PAIR, _CONFIRMED = 2, 3, 4
_FEWEST_CONTRADICTING = 2 * _CONFIRMED
# Epochs of later leaders are greater by less than this.
_LATER_EPOCHS = 64
_UNCOVERED = ("base_offset", "batch_length", "partition_leader_epoch", "magic")
_FROM_NEIGHBOURS = ("base_offset", "partition_leader_epoch")
_BEFORE_CRC = np.dtype([(name, BATCH_HEADER[name]) for name in _UNCOVERED])


@dataclass(frozen=True)
class FieldRepair:
    """
    A damaged header field of a batch, with its reconstructed value.

    Attributes
    ----------
    position : int
        Position of the batch, in bytes.
    base_offset : int
        Base offset of the batch, after the repair.
    field : str
    old, new : int
    is_certain : bool
        False if the neighbouring batches do not determine the value: a leader epoch between two
        different ones, an offset at the end of the log, where the batch is assumed to follow
        without a gap, an offset whose stored value a lost batch may have had, and both in a range
        that is doubtful.
    """

    position: int
    base_offset: int
    field: str
    old: int
    new: int
    is_certain: bool = True


def _no_batches() -> BatchTable:
    return np.empty(0, BATCH_DTYPE)


@dataclass(frozen=True)
class RepairedLog:
    """
    The batches of a damaged log, after the repair of their headers.

    Attributes
    ----------
    batches : ndarray of BATCH_DTYPE
        Sorted by position, with ascending offsets and repaired fields.
    damaged : list of DamagedRange
        Sorted by position.
    repairs : list of FieldRepair
        Sorted by position.
    copies : ndarray of BATCH_DTYPE
        Copies of batches of the log, at other positions.
    dropped : ndarray of BATCH_DTYPE
        Other batches with valid checksums, as they are stored, whose offsets contradict the log;
        they are damaged, too.
    """

    batches: BatchTable
    damaged: list[DamagedRange]
    repairs: list[FieldRepair]
    copies: BatchTable = field(default_factory=_no_batches)
    dropped: BatchTable = field(default_factory=_no_batches)

    def patches(self) -> dict[int, bytes]:
        """Return the new first bytes of repaired batches, by position."""
        positions = sorted({one.position for one in self.repairs})
        rows = self.batches[np.searchsorted(self.batches["position"], positions)]
        return {int(row["position"]): _uncovered_bytes(row) for row in rows}


def repair_headers(source: Source, scan: ResyncScan, lowest: int, highest: int) -> RepairedLog:
    """
    Reconstruct the length, the magic byte and the base offset of damaged batches.

    Parameters
    ----------
    source : Source
    scan : ResyncScan
        Scan of the whole source, with verified checksums and these bounds of the offsets.
    lowest, highest : int
        Range of the offsets that the segment may contain, inclusive.

    Returns
    -------
    RepairedLog
        Leader epochs are not repaired yet (`repair_epochs`): they help to recognize batches that
        do not belong to the log.
    """
    batches, damaged = scan.batches, _damaged_ranges(source, scan)
    framed = [part for one in damaged for part in _split_by_lengths(source, one)]
    matched = [_match_checksums(source, group) for group in _adjacent(framed)]
    unmatched = [one for _, rest in matched for one in rest]
    rows = [row for found, _ in matched for row in found]
    if not rows:
        return RepairedLog(batches, unmatched, [])
    out_of_order = {one.start for one in damaged if one.error.symbol == _OUT_OF_ORDER}
    found = join_tables(rows)
    fits = ~np.isin(found["position"], list(out_of_order))
    fits[fits] = fitting(batches, found[fits], lowest, highest)
    batches, dropped = sorted_by_position(join_tables([batches, found[fits]])), found[~fits]
    is_copy = are_copies(dropped, batches)
    placement = OffsetRepair(batches, dropped[~is_copy], unmatched, lowest, highest).place()
    batches = sorted_by_position(join_tables([batches, placement.batches]))
    changed = np.isin(batches["position"], found["position"])
    repairs = [
        replace(repair, is_certain=repair.field != "base_offset" or placement.is_certain(row))
        for row in batches[changed]
        for repair in _field_repairs(source, row)
    ]
    out_of_place = [misplaced(source, row) for row in placement.dropped]
    return RepairedLog(
        batches=batches,
        damaged=sorted([*unmatched, *out_of_place], key=lambda one: one.start),
        repairs=sorted(repairs, key=lambda one: one.position),
        copies=dropped[is_copy],
        dropped=placement.dropped[are_as_stored(source, placement.dropped)],
    )


def _damaged_ranges(source: Source, scan: ResyncScan) -> list[DamagedRange]:
    """Return all bytes of a scan that are no batches and no zero tail."""
    damaged = [gap.as_damaged() for gap in scan.gaps]
    if scan.end in (ScanEnd.TORN_TAIL, ScanEnd.CORRUPT):
        error = scan.error or torn_error(source, scan.position)
        damaged.append(DamagedRange(scan.position, source.size, error))
    return sorted(damaged, key=lambda one: one.start)


def misplaced(source: Source, row: np.void) -> DamagedRange:
    """Return the range of a batch whose offsets contradict the log."""
    start = int(row["position"])
    error = record_error(_OUT_OF_ORDER, source.path, row)
    return DamagedRange(start, start + LOG_OVERHEAD + int(row["batch_length"]), error)


def _split_by_lengths(source: Source, damaged: DamagedRange) -> Iterator[DamagedRange]:
    """Split a damaged range at the batch ends that its length fields claim."""
    start = damaged.start
    for _ in range(_MOST_JOINED if damaged.error.symbol in _FRAMED_SYMBOLS else 0):
        header = read_bytes(source, start, BATCH_HEADER_SIZE)
        row = row_of_header(header, start, max(damaged.stop - start, len(header)))
        size = int(size_in_bytes(row).sum())
        if not 0 < size < damaged.stop - start:
            break
        yield DamagedRange(start, start + size, damaged.error)
        start += size
    yield DamagedRange(start, damaged.stop, damaged.error)


def _adjacent(damaged: list[DamagedRange]) -> list[list[DamagedRange]]:
    """Group damaged ranges that touch each other."""
    groups = [damaged[:1]] if damaged else []
    for previous, one in itertools.pairwise(damaged):
        if previous.stop == one.start:
            groups[-1].append(one)
        else:
            groups.append([one])
    return groups


# ---- length and magic byte: the checksum shows where a batch ends -----------------------------


def _match_checksums(
    source: Source, group: list[DamagedRange]
) -> tuple[list[BatchTable], list[DamagedRange]]:
    """Return the batches whose checksums match whole damaged ranges, and the other ranges."""
    rows, unmatched, first = [], [], 0
    while first < len(group):
        for last in range(min(first + _MOST_JOINED, len(group)) - 1, first - 1, -1):
            row = _matching_batch(source, group[first].start, group[last].stop)
            if row is not None:
                rows.append(row)
                first = last
                break
        else:
            unmatched.append(group[first])
        first += 1
    return rows, unmatched


def _matching_batch(source: Source, start: int, stop: int) -> BatchTable | None:
    """Return the row of a batch that fills a range exactly, if its checksum matches."""
    size = stop - start
    header = read_bytes(source, start, BATCH_HEADER_SIZE)
    if len(header) <= MAGIC_POSITION + 1 or size - LOG_OVERHEAD >= 1 << 31:
        return None
    stored_magic = header[MAGIC_POSITION]
    for magic in (2, stored_magic) if stored_magic in (0, 1) else (2,):
        crc_at, covered = CRC_POSITIONS[magic], CRC_STARTS[magic]
        attributes = int.from_bytes(header[covered : covered + 2])
        if size <= covered or (magic == 2 and attributes >= _ATTRIBUTES_END):
            continue
        stored_crc = int.from_bytes(header[crc_at : crc_at + 4])
        if crc_of_bytes(source, start + covered, stop, magic) == stored_crc:
            repaired = bytearray(header)
            repaired[LOG_OVERHEAD - 4 : LOG_OVERHEAD] = (size - LOG_OVERHEAD).to_bytes(4)
            repaired[MAGIC_POSITION] = magic
            row = row_of_header(bytes(repaired[:size]), start, size)
            return row if len(row) else None
    return None


# ---- rows ------------------------------------------------------------------------------------


def sorted_by_position(batches: BatchTable) -> BatchTable:
    """Return batches in the order of the file."""
    result: BatchTable = batches[np.argsort(batches["position"], kind="stable")]
    return result


def are_as_stored(source: Source, batches: BatchTable) -> NDArray[np.bool_]:
    """Return which rows have no repaired field."""
    return np.array([not any(_field_repairs(source, row)) for row in batches], np.bool_)


def _field_repairs(source: Source, row: np.void) -> Iterator[FieldRepair]:
    """Yield the fields in which a repaired row differs from the bytes of the source."""
    position = int(row["position"])
    stored = read_bytes(source, position, _BEFORE_CRC.itemsize)
    repaired = _uncovered_bytes(row) + stored[len(_uncovered_bytes(row)) :]
    old, new = (np.frombuffer(data, _BEFORE_CRC)[0] for data in (stored, repaired))
    for name in _UNCOVERED:
        if old[name] != new[name]:
            values = int(old[name]), int(new[name])
            yield FieldRepair(position, int(row["base_offset"]), name, *values)


def _uncovered_bytes(row: np.void) -> bytes:
    """Return the first bytes of a batch, up to those that its checksum covers."""
    fields = np.empty(1, _BEFORE_CRC)
    for name in _UNCOVERED:
        fields[name] = row[name]
    data = fields.tobytes()
    return data if row["magic"] >= 2 else data[:LOG_OVERHEAD]


# ---- leader epochs: they never decrease -------------------------------------------------------


def repair_epochs(
    log: RepairedLog,
    known_epochs: Collection[int] = (),
    is_doubtful: NDArray[np.bool_] | None = None,
) -> RepairedLog:
    """
    Reconstruct damaged leader epochs, which never decrease in a log.

    An epoch is damaged if enough batches contradict it, or if one does and the checkpoint
    lacks it, or if the checkpoint lacks it although it has lower and higher ones. A slightly higher
    one that the checkpoint has, or that no checkpoint denies, stays.

    Parameters
    ----------
    log : RepairedLog
    known_epochs : collection of int
        Leader epochs from ``leader-epoch-checkpoint``.
    is_doubtful : array of bool, optional
        Batches that may not belong to the log: they are neither evidence nor repaired.

    Returns
    -------
    RepairedLog
    """
    is_checked = log.batches["magic"] == 2
    if is_doubtful is not None:
        is_checked &= ~is_doubtful
    rows = np.flatnonzero(is_checked)
    epochs = log.batches["partition_leader_epoch"][rows].astype(np.int64)
    if len(rows) < 2:
        return log
    known = np.unique(np.array(list(known_epochs), np.int64))
    is_possible = _are_possible(epochs, known)
    is_trusted = _trusted(epochs, known)
    is_damaged = ~is_trusted & _are_contradicted(epochs, is_trusted, known)
    trusted = np.flatnonzero(is_trusted)
    if not is_damaged.any() or not len(trusted):
        return log
    batches, repairs = log.batches.copy(), log.repairs.copy()
    uncertain = {one.position for one in log.repairs if not one.is_certain}
    is_enclosed = _are_enclosed(batches)
    for row in np.flatnonzero(is_damaged).tolist():
        following = int(np.searchsorted(trusted, row))
        neighbours = (following - 1, following)
        around = {int(epochs[trusted[i]]) for i in neighbours if 0 <= i < len(trusted)}
        around |= {one for one in known_epochs if min(around) < one < max(around)}
        batch, old = batches[rows[row]], int(epochs[row])
        new = min(around, key=lambda epoch: _bits_between(old, epoch))
        is_last, is_flipped = following == len(trusted), _bits_between(old, new) == 1
        # It may be the next leader's, and what follows may be of an older history.
        is_later = is_possible[row] and 0 < old - new < _LATER_EPOCHS
        # Several batches in a row rather are of another log.
        is_alone = not (is_damaged[row - 1 : row].any() or is_damaged[row + 1 : row + 2].any())
        # Nothing after the last one shows whether it or the others are wrong.
        is_guess = is_last and (not is_flipped or old in epochs[trusted])
        # The checkpoint has it, and lacks those of the others.
        is_known = len(known) > 0 and is_possible[row] and new not in known
        if is_later or not is_alone or is_guess or is_known:
            continue
        position, base_offset = int(batch["position"]), int(batch["base_offset"])
        is_determined = len(around) == 1 and 0 < following and not is_last
        is_certain = (
            is_determined and is_flipped and is_enclosed[rows[row]] and position not in uncertain
        )
        name = "partition_leader_epoch"
        repairs.append(FieldRepair(position, base_offset, name, old, new, is_certain))
        batches[name][rows[row]] = new
    return replace(log, batches=batches, repairs=sorted(repairs, key=lambda one: one.position))


def have_contested_epochs(log: RepairedLog) -> NDArray[np.bool_]:
    """Return which batches have a leader epoch that an adjacent batch or a copy contradicts."""
    is_same = are_copies(log.copies, log.batches, ("partition_leader_epoch",))
    contested = np.isin(log.batches["base_offset"], log.copies["base_offset"][~is_same])
    rows = np.flatnonzero(log.batches["magic"] == 2)
    epochs = log.batches["partition_leader_epoch"][rows]
    falls = np.flatnonzero(epochs[1:] < epochs[:-1])
    contested[rows[falls]] = contested[rows[falls + 1]] = True
    return contested


def with_doubts(log: RepairedLog, is_doubtful: NDArray[np.bool_]) -> RepairedLog:
    """Mark repairs of doubtful batches as uncertain, unless the checksum proves the value."""
    doubtful = set(log.batches["position"][is_doubtful].tolist())
    repairs = [
        replace(one, is_certain=False)
        if one.position in doubtful and one.field in _FROM_NEIGHBOURS
        else one
        for one in log.repairs
    ]
    return replace(log, repairs=repairs)


def _are_enclosed(batches: BatchTable) -> NDArray[np.bool_]:
    """Return which batches have no damaged bytes before and after them."""
    stops = batches["position"] + size_in_bytes(batches)
    is_next = batches["position"][1:] == stops[:-1]
    enclosed: NDArray[np.bool_] = np.append(False, is_next) & np.append(is_next, False)
    return enclosed


def _bits_between(one: int, other: int) -> int:
    """Return the number of bits in which two epochs differ."""
    return ((one ^ other) & 0xFFFFFFFF).bit_count()


def _trusted(epochs: NDArray[np.int64], known: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Select epochs that do not decrease, preferring frequent epochs and known ones."""
    values, value_of, counts = np.unique(epochs, return_inverse=True, return_counts=True)
    is_known = np.isin(values, known)
    weight = (2 + (counts > 1) + 4 * is_known)[value_of]
    keep = epochs >= NO_PARTITION_LEADER_EPOCH
    if (np.diff(epochs[keep]) < 0).any():
        here = epochs[keep]
        keep[keep] = heaviest_ascending(2 * here + 1, 2 * here, weight[keep])
    if len(known):
        keep &= ~_are_missing(epochs, known) | (counts > 1)[value_of]
    return keep


def _are_possible(epochs: NDArray[np.int64], known: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which epochs a leader may have had, if the checkpoint has all of them."""
    are: NDArray[np.bool_] = epochs >= NO_PARTITION_LEADER_EPOCH
    return are & np.isin(epochs, known) if len(known) else are


def _are_missing(epochs: NDArray[np.int64], known: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which epochs a checkpoint lacks, although it has lower and higher ones."""
    is_within = (epochs > known[0]) & (epochs < known[-1])
    missing: NDArray[np.bool_] = is_within & ~np.isin(epochs, known)
    return missing


def _are_contradicted(
    epochs: NDArray[np.int64], is_trusted: NDArray[np.bool_], known: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return which epochs are impossible, or contradict trusted ones that are enough evidence."""
    trusted = epochs[is_trusted]
    _, value_of, counts = np.unique(trusted, return_inverse=True, return_counts=True)
    weights = np.array([_SINGLE, _PAIR, _CONFIRMED])
    weight = np.where(
        np.isin(trusted, known), _CONFIRMED, weights[np.minimum(counts, 3) - 1][value_of]
    )
    sums = np.append(0, np.cumsum(weight))
    before: NDArray[np.int64] = np.cumsum(is_trusted) - is_trusted
    not_higher = np.minimum(before, np.searchsorted(trusted, epochs, "right"))
    lower = np.maximum(before, np.searchsorted(trusted, epochs, "left"))
    contradicting = sums[before] - sums[not_higher] + sums[lower] - sums[before]
    if len(known):
        contradicting += _CONFIRMED * ((contradicting > 0) & ~np.isin(epochs, known))
        contradicting[_are_missing(epochs, known)] = _FEWEST_CONTRADICTING
    contradicting[epochs < NO_PARTITION_LEADER_EPOCH] = _FEWEST_CONTRADICTING
    are_contradicted: NDArray[np.bool_] = contradicting >= _FEWEST_CONTRADICTING
    return are_contradicted
