"""Reconstruct header fields that no checksum covers.

The CRC of magic 2 does not cover the base offset, the batch length, the leader epoch and the magic
byte; the CRC of older messages does not cover the offset and the size. If the bytes that the
checksum covers are intact, these fields can be reconstructed from the checksum and the
neighbouring batches.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import (
    BatchTable,
    join_rows,
    join_tables,
    last_offset,
    size_in_bytes,
)
from kafkascan.batches.resyncing.batch_runs import BatchRuns
from kafkascan.batches.resyncing.gaps import (
    DAMAGED_DTYPE,
    OUT_OF_ORDER,
    UNCOVERED,
    UNCOVERED_FIELDS,
    DamagedRanges,
    damaged_batches,
    damaged_range,
)
from kafkascan.batches.resyncing.offset_chains import fitting
from kafkascan.batches.resyncing.offset_evidence import are_copies
from kafkascan.batches.resyncing.resync import ResyncScan
from kafkascan.batches.scattered_reads import read_headers, rows_of_headers
from kafkascan.batches.verify import crcs_of_ranges
from kafkascan.format.layout import (
    BATCH_DTYPE,
    BATCH_HEADER,
    BATCH_HEADER_SIZE,
    CRC_POSITIONS,
    CRC_STARTS,
    DELETE_HORIZON_BIT,
    LOG_OVERHEAD,
    ScanEnd,
)
from kafkascan.io.sources import Source
from kafkascan.recovery.salvaging.offset_repair import OffsetRepair

CLEARLY_MORE = 4
"""Fewest batches whose leader epochs show that another one is wrong: fewer may have one fault."""

# Maximum number of adjacent damaged ranges that are tried as one batch.
_MOST_JOINED = 8
_ATTRIBUTES_END = 2 * DELETE_HORIZON_BIT  # above all attributes that Kafka sets
_FROM_NEIGHBOURS = ("base_offset", "partition_leader_epoch")


class FieldRepair(NamedTuple):
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
    damaged : DamagedRanges
    repairs : list of FieldRepair
        Sorted by position.
    runs : BatchRuns
        Of the batches, and of those that are not kept.
    copies : ndarray of BATCH_DTYPE
        Copies of batches of the log, at other positions.
    dropped : ndarray of BATCH_DTYPE
        Other batches with valid checksums, as they are stored, whose offsets contradict the log;
        they are damaged, too.
    foreign : ndarray of BATCH_DTYPE
        Batches that do not belong to the log, as they are stored. They are damaged, too.
    has_found_batches : bool
        Whether there are batches, of any of these kinds, that were found by their checksums.
    """

    batches: BatchTable
    damaged: DamagedRanges
    repairs: list[FieldRepair]
    runs: BatchRuns
    copies: BatchTable = field(default_factory=_no_batches)
    dropped: BatchTable = field(default_factory=_no_batches)
    foreign: BatchTable = field(default_factory=_no_batches)
    has_found_batches: bool = False

    def whole(self) -> RepairedLog:
        """Return the log with a row for each batch."""
        batches, copies, dropped = map(self.runs.whole, (self.batches, self.copies, self.dropped))
        return replace(
            self,
            batches=batches,
            damaged=self.runs.whole_damaged(self.damaged),
            runs=BatchRuns.none(self.runs.source),
            copies=copies,
            dropped=dropped,
        )

    def patches(self) -> dict[int, bytes]:
        """Return the new first bytes of repaired batches, by position."""
        positions = sorted({one.position for one in self.repairs})
        rows = self.batches[np.searchsorted(self.batches["position"], positions)]
        fields = np.empty(len(rows), UNCOVERED)
        for name in UNCOVERED_FIELDS:
            fields[name] = rows[name]
        data, size = fields.tobytes(), UNCOVERED.itemsize
        sizes = np.where(rows["magic"] >= 2, size, LOG_OVERHEAD).tolist()
        return {
            position: data[row * size : row * size + sizes[row]]
            for row, position in enumerate(positions)
        }


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
    while (log := _repaired(source, scan, lowest, highest)) is None:
        scan = scan.whole()
    return log


def _repaired(source: Source, scan: ResyncScan, lowest: int, highest: int) -> RepairedLog | None:
    """Return the log; None if batches in runs that are not kept have to have rows."""
    batches, damaged = scan.batches, _damaged_ranges(source, scan)
    left_out = sorted_by_position(join_tables([scan.dropped, scan.copies]))
    left_out = left_out.take(scan.runs.find(left_out)[0])
    are_others = ~np.isin(damaged.rows["position"], left_out["position"])
    others = damaged.of(damaged.rows.compress(are_others))
    found, unmatched = _match_checksums(source, _split_by_lengths(source, others))
    found = with_rows(found, left_out)
    if not len(found):
        return RepairedLog(batches, unmatched, [], scan.runs)
    fits = ~np.isin(found["position"], damaged.rows["position"][damaged.have(OUT_OF_ORDER)])
    fits[fits] = fitting(batches, found.compress(fits), lowest, highest)
    dropped = found.compress(~fits)
    are_single = ~np.isin(dropped["position"], left_out["position"])
    batches, runs = _near_offsets_of(dropped.compress(are_single), batches, scan.runs)
    if len(left_out) and runs is not scan.runs:
        return None
    batches = with_rows(batches, found.compress(fits))
    is_copy = are_copies(dropped, batches)
    repair = OffsetRepair(batches, dropped.compress(~is_copy), unmatched, runs, lowest, highest)
    if repair.may_place_runs():
        return None
    placement = repair.place()
    batches = with_rows(batches, placement.batches)
    # A damaged offset may be that of another batch with the same content.
    copies = dropped.compress(is_copy)
    are_own = _may_be_own(copies, batches)
    repair = OffsetRepair(batches, copies.compress(are_own), unmatched, runs, lowest, highest)
    if repair.may_place_runs():
        return None
    own = repair.place()
    copies = sorted_by_position(join_tables([copies.compress(~are_own), own.dropped]))
    batches = with_rows(batches, own.batches)
    changed = _rows_at(batches, found["position"])
    offsets = np.append(changed["base_offset"], last_offset(changed))
    if runs.contain(left_out, np.sort(offsets)):
        return None
    are_certain = placement.are_certain(changed) & own.are_certain(changed)
    repairs = _field_repairs(source, changed, are_certain)
    return RepairedLog(
        batches=batches,
        damaged=unmatched.joined([damaged_batches(placement.dropped, OUT_OF_ORDER)]),
        repairs=repairs,
        runs=runs,
        copies=copies,
        dropped=placement.dropped.compress(are_as_stored(runs, placement.dropped)),
        has_found_batches=True,
    )


def _near_offsets_of(
    others: BatchTable, batches: BatchTable, runs: BatchRuns
) -> tuple[BatchTable, BatchRuns]:
    """Return the batches of a log, with a row for each of those that others may contradict."""
    if not len(others):
        return batches, runs
    if not runs.are_dense(batches):
        return runs.whole(batches), BatchRuns.none(runs.source)
    return runs.opened(batches, np.append(others["base_offset"], last_offset(others)))


def _may_be_own(copies: BatchTable, batches: BatchTable) -> NDArray[np.bool_]:
    """
    Return which copies may have been written where they are, with the content of another batch.

    No producer repeats a sequence, and a copy from elsewhere has another time than its neighbours.
    """
    row, times = np.searchsorted(batches["position"], copies["position"]), np.iinfo(np.int64)
    around = np.concatenate([[times.min], batches["max_timestamp"], [times.max]], dtype=np.int64)
    time = copies["max_timestamp"]
    may_be: NDArray[np.bool_] = copies["base_sequence"] < 0
    may_be &= (around[row] <= time) & (time <= around[row + 1])
    return may_be


def _damaged_ranges(source: Source, scan: ResyncScan) -> DamagedRanges:
    """Return all bytes of a scan that are no batches and no zero tail."""
    if scan.end not in (ScanEnd.TORN_TAIL, ScanEnd.CORRUPT):
        return scan.damaged
    error = scan.error or "TORN_TAIL"
    return scan.damaged.joined([damaged_range(source, scan.position, source.size, error)])


def _split_by_lengths(source: Source, damaged: DamagedRanges) -> DamagedRanges:
    """Split damaged ranges at the batch ends that their length fields claim."""
    may_have_more = damaged.have("CHECKSUM_MISMATCH") & (damaged.rows["is_framed"] == 0)
    parts, rest = [damaged.rows[~may_have_more]], damaged.rows[may_have_more]
    for _ in range(_MOST_JOINED):
        starts, sizes = rest["position"], rest["stop"] - rest["position"]
        headers = read_headers(source, starts)
        in_source = np.minimum(source.size - starts, BATCH_HEADER_SIZE)
        rows, has_size = rows_of_headers(headers, starts, np.maximum(sizes, in_source))
        stops = starts + size_in_bytes(rows)
        has_size &= stops < rest["stop"]
        parts.append(rest[~has_size])
        rest, stops = rest[has_size], stops[has_size]
        if not len(rest):
            break
        parts.append(rest.copy())
        parts[-1]["stop"] = rest["position"] = stops
    return damaged.of(join_rows([*parts, rest], DAMAGED_DTYPE))


# ---- length and magic byte: the checksum shows where a batch ends -----------------------------


def _match_checksums(source: Source, damaged: DamagedRanges) -> tuple[BatchTable, DamagedRanges]:
    """
    Return the batches whose checksums match whole damaged ranges, and the other ranges.

    Several ranges that touch each other may be one batch; the most of them are tried first.
    """
    starts, stops = damaged.rows["position"], damaged.rows["stop"]
    count = len(damaged)
    group = np.cumsum(np.append(False, starts[1:] != stops[:-1])[:count])
    found = np.empty(count, BATCH_DTYPE)
    most = np.full(count, -1)
    for more in range(min(_MOST_JOINED, count)):
        first = np.flatnonzero(group[: count - more] == group[more:])
        if not len(first):
            break
        rows, are_batches = _matching_batches(source, starts[first], stops[first + more])
        found[first[are_batches]] = rows[are_batches]
        most[first[are_batches]] = more
    firsts, is_rest, stop = [], np.ones(count, np.bool_), 0
    for row in np.flatnonzero(most >= 0).tolist():
        if row >= stop:  # else the batch before covers it
            stop = row + int(most[row]) + 1
            firsts.append(row)
            is_rest[row:stop] = False
    return found.take(firsts), replace(damaged, rows=damaged.rows.compress(is_rest))


def _matching_batches(
    source: Source, starts: NDArray[np.int64], stops: NDArray[np.int64]
) -> tuple[BatchTable, NDArray[np.bool_]]:
    """Return rows of batches that fill ranges exactly, and which of them have a valid checksum."""
    sizes, headers = stops - starts, read_headers(source, starts)
    stored, magics = headers.view(BATCH_HEADER)[:, 0], np.full(len(starts), -1, np.int8)
    for magic in (2, 1, 0):
        may_be = (magics < 0) & (sizes > CRC_STARTS[magic]) & (sizes - LOG_OVERHEAD < 1 << 31)
        if magic == 2:
            may_be &= stored["attributes"].astype(np.uint16) < _ATTRIBUTES_END
        else:
            may_be &= stored["magic"] == magic
        tried, at = np.flatnonzero(may_be), CRC_POSITIONS[magic]
        crcs = crcs_of_ranges(source, starts[tried] + CRC_STARTS[magic], stops[tried], magic)
        stored_crcs = np.ascontiguousarray(headers[tried, at : at + 4]).view(">u4")[:, 0]
        magics[tried[crcs == stored_crcs]] = magic
    stored["batch_length"], stored["magic"] = sizes - LOG_OVERHEAD, magics
    rows, are_framed = rows_of_headers(headers, starts, sizes)
    return rows, are_framed & (magics >= 0)


# ---- rows ------------------------------------------------------------------------------------


def sorted_by_position(batches: BatchTable) -> BatchTable:
    """Return batches in the order of the file."""
    result: BatchTable = batches.take(np.argsort(batches["position"], kind="stable"))
    return result


def with_rows(batches: BatchTable, rows: BatchTable) -> BatchTable:
    """Return sorted batches with other rows among them; without these, no copy is made."""
    if not len(rows):
        return batches
    rows, item = sorted_by_position(rows), np.dtype((np.void, batches.itemsize))
    at = np.searchsorted(batches["position"], rows["position"], "right")
    return np.insert(batches.view(item), at, rows.view(item)).view(batches.dtype)


def _rows_at(batches: BatchTable, positions: NDArray[np.int64]) -> BatchTable:
    """Return the batches at positions, in the order of the file."""
    positions = np.sort(positions)
    rows = np.searchsorted(batches["position"], positions)
    found: BatchTable = batches.take(rows[np.append(batches["position"], -1)[rows] == positions])
    return found


def are_as_stored(runs: BatchRuns, batches: BatchTable) -> NDArray[np.bool_]:
    """Return which rows have no repaired field; runs have none."""
    old, new = _uncovered_fields(runs.source, batches)
    are: NDArray[np.bool_] = (old == new).all(axis=1)
    are[runs.find(batches)[0]] = True
    return are


def _field_repairs(
    source: Source, batches: BatchTable, are_certain: NDArray[np.bool_]
) -> list[FieldRepair]:
    """Return the fields in which repaired rows, in order, differ from the bytes of the source."""
    old, new = _uncovered_fields(source, batches)
    rows, fields = np.nonzero(old != new)
    is_certain = are_certain[rows] | (fields != UNCOVERED_FIELDS.index("base_offset"))
    columns = (batches["position"][rows], batches["base_offset"][rows], fields, old[rows, fields],
               new[rows, fields], is_certain)  # fmt: skip
    position, base_offset, field, *values = (one.tolist() for one in columns)
    names = map(UNCOVERED_FIELDS.__getitem__, field)
    return list(map(FieldRepair, position, base_offset, names, *values))


def _uncovered_fields(
    source: Source, batches: BatchTable
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the fields that no checksum covers, shape (n, 4): as they are stored, and in rows."""
    stored = read_headers(source, batches["position"]).view(BATCH_HEADER)[:, 0]
    old, new = (
        np.stack([table[name].astype(np.int64) for name in UNCOVERED_FIELDS], axis=1)
        for table in (stored, batches)
    )
    # In older messages, these bytes are others.
    old[:, 2:] = np.where((batches["magic"] >= 2)[:, None], old[:, 2:], new[:, 2:])
    return old, new


def with_doubts(log: RepairedLog, is_doubtful: NDArray[np.bool_]) -> RepairedLog:
    """Mark repairs of doubtful batches as uncertain, unless the checksum proves the value."""
    doubtful = set(log.batches["position"][is_doubtful].tolist())
    repairs = [
        one._replace(is_certain=False)
        if one.position in doubtful and one.field in _FROM_NEIGHBOURS
        else one
        for one in log.repairs
    ]
    return replace(log, repairs=repairs)
