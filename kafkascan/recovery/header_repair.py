"""Reconstruct header fields that no checksum covers.

The CRC of magic 2 does not cover the base offset, the batch length, the leader epoch and the magic
byte; the CRC of older messages does not cover the offset and the size. If the bytes that the
checksum covers are intact, these fields can be reconstructed from the checksum and the
neighbouring batches.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, join_tables, last_offset, size_in_bytes
from kafkascan.batches.offset_chains import are_ascending, heaviest_ascending
from kafkascan.batches.resync import DamagedRange, ResyncScan, torn_error
from kafkascan.batches.verify import crc_of_bytes
from kafkascan.batches.walks import read_bytes, row_of_header
from kafkascan.format.errors import record_error
from kafkascan.format.layout import (
    BATCH_HEADER,
    BATCH_HEADER_SIZE,
    CRC_POSITIONS,
    CRC_STARTS,
    DELETE_HORIZON_BIT,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    ScanEnd,
)
from kafkascan.io.sources import Source

# Maximum number of adjacent damaged ranges that are tried as one batch.
_MOST_JOINED = 8
_MOST_OFFSETS = 1 << 31
_FRAMED_SYMBOLS = ("CHECKSUM_MISMATCH",)
_ATTRIBUTES_END = 2 * DELETE_HORIZON_BIT  # above all attributes that Kafka sets
_UNCOVERED = ("base_offset", "batch_length", "partition_leader_epoch", "magic")
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
        False for a leader epoch between two different ones, and for an offset at the end of a
        log, where the batch is assumed to follow without a gap.
    """

    position: int
    base_offset: int
    field: str
    old: int
    new: int
    is_certain: bool = True


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
    """

    batches: BatchTable
    damaged: list[DamagedRange]
    repairs: list[FieldRepair]

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
        Scan of the whole source, with verified checksums.
    lowest, highest : int
        Range of the offsets that the segment may contain, inclusive.

    Returns
    -------
    RepairedLog
        Leader epochs are not repaired yet (`repair_epochs`): they help to recognize batches that
        do not belong to the log.
    """
    batches, damaged = _within_bounds(source, scan, lowest, highest)
    framed = [part for one in damaged for part in _split_by_lengths(source, one)]
    matched = [_match_checksums(source, group) for group in _adjacent(framed)]
    found = [row for rows, _ in matched for row in rows]
    damaged = [one for _, unmatched in matched for one in unmatched]
    if not found:
        return RepairedLog(batches, damaged, [])
    placed, misplaced = _place(source, batches, damaged, join_tables(found), lowest, highest)
    repairs = [repair for row in placed for repair in _field_repairs(source, row)]
    rows = join_tables([batches, placed])
    return RepairedLog(
        batches=rows[np.argsort(rows["position"], kind="stable")],
        damaged=sorted([*damaged, *misplaced], key=lambda one: one.start),
        repairs=sorted(repairs, key=lambda one: one.position),
    )


def _within_bounds(
    source: Source, scan: ResyncScan, lowest: int, highest: int
) -> tuple[BatchTable, list[DamagedRange]]:
    """Return the batches whose offsets the segment may contain, and all other bytes as damage."""
    batches = scan.batches
    is_within = (batches["base_offset"] >= lowest) & (last_offset(batches) <= highest)
    damaged = [DamagedRange(gap.position, gap.position + gap.size, gap.error) for gap in scan.gaps]
    damaged += [_misplaced(source, row) for row in batches[~is_within]]
    if scan.end in (ScanEnd.TORN_TAIL, ScanEnd.CORRUPT):
        error = scan.error or torn_error(source, scan.position)
        damaged.append(DamagedRange(scan.position, source.size, error))
    return batches[is_within], sorted(damaged, key=lambda one: one.start)


def _misplaced(source: Source, row: np.void) -> DamagedRange:
    start = int(row["position"])
    error = record_error("OFFSETS_NOT_ASCENDING", source.path, row)
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


# ---- base offsets: the neighbours limit the range ---------------------------------------------


def _place(
    source: Source,
    batches: BatchTable,
    damaged: list[DamagedRange],
    found: BatchTable,
    lowest: int,
    highest: int,
) -> tuple[BatchTable, list[DamagedRange]]:
    """
    Give batches with valid checksums offsets between those of the intact batches around them.

    Returns
    -------
    BatchTable
        The batches that have offsets in the log.
    list of DamagedRange
        The other batches.
    """
    following = np.searchsorted(batches["position"], found["position"])
    ends = last_offset(batches)
    placed, misplaced = [], []
    for row in np.unique(following).tolist():
        group = found[following == row]
        low = int(ends[row - 1]) + 1 if row > 0 else lowest
        high = int(batches["base_offset"][row]) - 1 if row < len(ends) else highest
        first, last = group["position"][0], group["position"][-1]
        is_complete = not any(first < one.start < last for one in damaged)
        fitted = _with_offsets(group, low, high, is_complete=is_complete)
        if fitted is None:
            fitted = group[_fitting(group, low, high)]
        is_dropped = ~np.isin(group["position"], fitted["position"])
        misplaced += [_misplaced(source, one) for one in group[is_dropped]]
        placed.append(fitted)
    return join_tables(placed), misplaced


def _with_offsets(
    group: BatchTable, low: int, high: int, *, is_complete: bool
) -> BatchTable | None:
    """
    Return batches with offsets that fill a range; None if they do not fill it.

    At the end of a log the range is open; there, the batches follow the previous one without a gap.
    """
    if are_ascending(group) and group["base_offset"][0] >= low and last_offset(group)[-1] <= high:
        return group
    counts = group["last_offset_delta"].astype(np.int64) + 1
    is_counted = (group["magic"] == 2) | (group["records_count"] >= 0)
    fills = int(counts.sum()) == high - low + 1 or high - low > _MOST_OFFSETS // 2
    if not (is_complete and is_counted.all() and (counts > 0).all() and fills):
        return None
    placed = group.copy()
    placed["base_offset"] = low + np.cumsum(counts) - counts
    return placed


def _fitting(group: BatchTable, low: int, high: int) -> NDArray[np.intp]:
    first, last = group["base_offset"], last_offset(group)
    fits = np.flatnonzero((first >= low) & (last <= high) & (first <= last))
    ones = np.ones(len(fits), np.int64)
    return fits[heaviest_ascending(first[fits], last[fits], ones)]


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


def repair_epochs(log: RepairedLog, known_epochs: Collection[int] = ()) -> RepairedLog:
    """
    Reconstruct damaged leader epochs, which never decrease in a log.

    Parameters
    ----------
    log : RepairedLog
    known_epochs : collection of int
        Leader epochs from ``leader-epoch-checkpoint``.

    Returns
    -------
    RepairedLog
    """
    rows = np.flatnonzero(log.batches["magic"] == 2)
    epochs = log.batches["partition_leader_epoch"][rows].astype(np.int64)
    if len(rows) < 2:
        return log
    is_trusted = _trusted(epochs, known_epochs)
    trusted = np.flatnonzero(is_trusted)
    if len(trusted) in (0, len(epochs)):
        return log
    batches, repairs = log.batches.copy(), log.repairs.copy()
    for row in np.flatnonzero(~is_trusted).tolist():
        following = int(np.searchsorted(trusted, row))
        neighbours = (following - 1, following)
        around = {int(epochs[trusted[i]]) for i in neighbours if 0 <= i < len(trusted)}
        around |= {one for one in known_epochs if min(around) < one < max(around)}
        is_certain = len(around) == 1 and 0 < following < len(trusted)
        batch, old = batches[rows[row]], int(epochs[row])
        new = min(around, key=lambda epoch: ((old ^ epoch) & 0xFFFFFFFF).bit_count())
        position, base_offset = int(batch["position"]), int(batch["base_offset"])
        field = "partition_leader_epoch"
        repairs.append(FieldRepair(position, base_offset, field, old, new, is_certain))
        batches[field][rows[row]] = new
    return replace(log, batches=batches, repairs=sorted(repairs, key=lambda one: one.position))


def _trusted(epochs: NDArray[np.int64], known_epochs: Collection[int]) -> NDArray[np.bool_]:
    """Select epochs that do not decrease, preferring frequent epochs and known ones."""
    values, value_of, counts = np.unique(epochs, return_inverse=True, return_counts=True)
    is_known = np.isin(values, list(known_epochs))
    weight = (2 + (counts > 1) + 4 * is_known)[value_of]
    keep = np.ones(len(epochs), np.bool_)
    if (np.diff(epochs) < 0).any():
        keep = heaviest_ascending(2 * epochs + 1, 2 * epochs, weight)
    if is_known.any():  # an unknown epoch of a single batch is not trusted
        keep &= (is_known | (counts > 1))[value_of]
    return keep
