"""Reconstruct header fields that no checksum covers.

The CRC of magic 2 does not cover the base offset, the batch length, the leader epoch and the magic
byte; the CRC of older messages does not cover the offset and the size. If the bytes that the
checksum covers are intact, these fields can be reconstructed from the checksum and the
neighbouring batches.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, join_tables, size_in_bytes
from kafkascan.batches.resyncing.gaps import DamagedRange
from kafkascan.batches.resyncing.offset_chains import fitting
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
    ScanEnd,
)
from kafkascan.io.sources import Source
from kafkascan.recovery.salvaging.offset_repair import OffsetRepair

CLEARLY_MORE = 4
"""Fewest batches whose leader epochs show that another one is wrong: fewer may have one fault."""

# Maximum number of adjacent damaged ranges that are tried as one batch.
_MOST_JOINED = 8
_FRAMED_SYMBOLS = ("CHECKSUM_MISMATCH",)
_OUT_OF_ORDER = "OFFSETS_NOT_ASCENDING"
_ATTRIBUTES_END = 2 * DELETE_HORIZON_BIT  # above all attributes that Kafka sets
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
    foreign : ndarray of BATCH_DTYPE
        Batches that do not belong to the log, as they are stored. They are damaged, too.
    """

    batches: BatchTable
    damaged: list[DamagedRange]
    repairs: list[FieldRepair]
    copies: BatchTable = field(default_factory=_no_batches)
    dropped: BatchTable = field(default_factory=_no_batches)
    foreign: BatchTable = field(default_factory=_no_batches)

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
    damaged = list(scan.damaged)
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
    may_have_more = damaged.error.symbol in _FRAMED_SYMBOLS and not damaged.is_framed
    for _ in range(_MOST_JOINED if may_have_more else 0):
        header = read_bytes(source, start, BATCH_HEADER_SIZE)
        row = row_of_header(header, start, max(damaged.stop - start, len(header)))
        size = int(size_in_bytes(row).sum())
        if not 0 < size < damaged.stop - start:
            break
        yield DamagedRange(start, start + size, damaged.error)
        start += size
    yield DamagedRange(start, damaged.stop, damaged.error, damaged.is_framed)


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
    position, names = int(row["position"]), _UNCOVERED if row["magic"] >= 2 else _UNCOVERED[:2]
    stored = np.frombuffer(read_bytes(source, position, _BEFORE_CRC.itemsize), _BEFORE_CRC)
    for name, old in zip(names, stored[0].item(), strict=False):
        new = int(row[name])
        if old != new:
            yield FieldRepair(position, int(row["base_offset"]), name, old, new)


def _uncovered_bytes(row: np.void) -> bytes:
    """Return the first bytes of a batch, up to those that its checksum covers."""
    fields = np.empty(1, _BEFORE_CRC)
    for name in _UNCOVERED:
        fields[name] = row[name]
    data = fields.tobytes()
    return data if row["magic"] >= 2 else data[:LOG_OVERHEAD]


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
