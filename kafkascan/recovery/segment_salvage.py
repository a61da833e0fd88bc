"""Salvage one segment: the ranges to keep, the lost ranges and the repaired fields."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.batch_search import HIGHEST_OFFSET
from kafkascan.batches.columns import BatchTable, last_offset, size_in_bytes
from kafkascan.batches.resync import DamagedRange, scan_with_resync
from kafkascan.batches.walks import read_bytes, row_of_header
from kafkascan.format.errors import record_error
from kafkascan.format.layout import BATCH_HEADER_SIZE, NO_PRODUCER_ID, NO_SEQUENCE, ScanEnd
from kafkascan.io.sources import Source
from kafkascan.recovery.header_repair import (
    FieldRepair,
    RepairedLog,
    repair_epochs,
    repair_headers,
)

Doubtful: TypeAlias = Literal["keep", "drop"]

# Damage after which the bytes are not a header.
_NO_HEADER = ("BAD_LENGTH", "BAD_MAGIC", "NOT_A_LOG")
_PAGE = 512
_MOST_OFFSETS = (1 << 31) - 1
_READ_AT_ONCE = 1 << 22
# Number of batches before and after a range whose leader epochs limit those of the range.
_NEIGHBOURS = 8


@dataclass(frozen=True)
class LostRange:
    """
    Bytes of a segment that are not kept.

    Attributes
    ----------
    position, size : int
        In bytes.
    symbol, reason : str
        What is wrong at the position.
    first_offset, last_offset : int or None
        Range of the offsets that lost records may have, inclusive: between the neighbouring kept
        batches, or up to the bounds of the segment. None if the range is empty or unknown. The
        range may contain fewer records: compaction and transactions leave gaps of their own.
    claimed_first_offset, claimed_last_offset, claimed_records : int or None
        The values in the header at the position, if there is a batch header.
    zero_bytes : int
        Bytes in blocks of 512 that are all zero: pages that never reached the disk.
    """

    position: int
    size: int
    symbol: str
    reason: str
    first_offset: int | None
    last_offset: int | None
    claimed_first_offset: int | None
    claimed_last_offset: int | None
    claimed_records: int | None
    zero_bytes: int


@dataclass(frozen=True)
class KeptRange:
    """
    Consecutive batches that are kept.

    Attributes
    ----------
    position, size : int
        In bytes.
    batches : int
    first_offset, last_offset : int
    is_doubtful : bool
        Whether only checksums and offsets indicate that the range belongs to the log: the header
        before it is damaged, and no batch after it continues its offsets. Copies of batches
        within the value of a damaged record look the same.
    """

    position: int
    size: int
    batches: int
    first_offset: int
    last_offset: int
    is_doubtful: bool


@dataclass
class SegmentSalvage:
    """
    The result of salvaging one segment.

    Attributes
    ----------
    name : str
        Name of the log file.
    base_offset : int or None
        From the file name.
    size, kept_bytes : int
    batches : int
        Number of kept batches.
    records : int or None
        Number of their records; None if compressed messages of magic 0 or 1 are among them,
        which do not contain their record counts.
    end : ScanEnd or None
        How the log ended. A zero tail is not copied and does not count as lost.
    pieces : list of KeptRange
    losses : list of LostRange
    repairs : list of FieldRepair
    error : Exception or None
        Why the segment could not be copied; all of it counts as lost then.
    """

    name: str
    base_offset: int | None
    size: int = 0
    kept_bytes: int = 0
    batches: int = 0
    records: int | None = 0
    end: ScanEnd | None = None
    pieces: list[KeptRange] = field(default_factory=list)
    losses: list[LostRange] = field(default_factory=list)
    repairs: list[FieldRepair] = field(default_factory=list)
    error: Exception | None = None

    @property
    def lost_bytes(self) -> int:
        """Sum of the sizes of all lost ranges."""
        return sum(loss.size for loss in self.losses)


def not_copied(
    segment: SegmentSalvage, error: Exception, size: int, highest: int | None
) -> SegmentSalvage:
    """Return the result of a segment that could not be copied: all of it is lost."""
    name, base_offset = segment.name, segment.base_offset
    loss = LostRange(0, size, "NOT_COPIED", str(error), base_offset, highest, None, None, None, 0)
    return SegmentSalvage(name, base_offset, size, end=segment.end, losses=[loss], error=error)


def salvage_segment(
    source: Source,
    name: str,
    base_offset: int | None,
    *,
    highest: int = HIGHEST_OFFSET,
    known_epochs: Collection[int] = (),
    doubtful: Doubtful = "keep",
    threads: int | None = 1,
) -> tuple[SegmentSalvage, RepairedLog]:
    """
    Find the batches of a segment that can be kept.

    Parameters
    ----------
    source : Source
    name : str
        Name of the log file.
    base_offset : int or None
        From the file name.
    highest : int
        Last offset that the segment may contain.
    known_epochs : collection of int
        Leader epochs from ``leader-epoch-checkpoint``.
    doubtful : {"keep", "drop"}
        Whether to keep ranges for which only checksums and offsets indicate that they belong to
        the log.
    threads : int, optional
        As in `verify_crcs`.

    Returns
    -------
    SegmentSalvage
    RepairedLog
        The batches to write.
    """
    lowest, known_end = base_offset or 0, highest if highest < HIGHEST_OFFSET else None
    if base_offset is not None:  # relative offsets in an index are int32
        highest = min(highest, lowest + _MOST_OFFSETS)
    scan = scan_with_resync(
        source, 0, source.size, threads, verify=True, lowest=lowest, highest=highest
    )
    log = repair_headers(source, scan, lowest, highest)
    log, kept = _without_foreign(log, source, doubtful=doubtful)
    log = repair_epochs(log, known_epochs)
    counts = log.batches["records_count"]
    result = SegmentSalvage(
        name,
        base_offset,
        size=source.size,
        kept_bytes=int(size_in_bytes(log.batches).sum()),
        batches=len(log.batches),
        records=None if (counts < 0).any() else int(counts.sum(dtype=np.int64)),
        end=scan.end,
        pieces=kept,
        losses=_lost_ranges(source, log, base_offset, known_end),
        repairs=log.repairs,
    )
    return result, log


# ---- ranges that do not belong to the log -----------------------------------------------------


def _without_foreign(
    log: RepairedLog, source: Source, *, doubtful: Doubtful
) -> tuple[RepairedLog, list[KeptRange]]:
    """Count ranges that do not belong to the log as damaged; return the kept ranges, too."""
    kept, foreign = [], []
    is_kept = np.ones(len(log.batches), np.bool_)
    for start, stop, one in _ranges(log, source):
        if one.is_doubtful and (doubtful == "drop" or _is_foreign(log.batches, start, stop)):
            is_kept[start:stop] = False
            error = record_error("NESTED", source.path, log.batches[start])
            foreign.append(DamagedRange(one.position, one.position + one.size, error))
        else:
            kept.append(one)
    if not foreign:
        return log, kept
    dropped = set(log.batches["position"][~is_kept].tolist())
    log = RepairedLog(
        batches=log.batches[is_kept],
        damaged=sorted([*log.damaged, *foreign], key=lambda one: one.start),
        repairs=[one for one in log.repairs if one.position not in dropped],
    )
    return log, kept


def _ranges(log: RepairedLog, source: Source) -> Iterator[tuple[int, int, KeptRange]]:
    """Yield ranges of consecutive batches: first row, row after the last, range of bytes."""
    batches = log.batches
    stops = batches["position"] + size_in_bytes(batches)
    heads = np.flatnonzero(batches["position"][1:] != stops[:-1]) + 1
    bounds = [0, *heads.tolist(), len(batches)] if len(batches) else []
    ends = last_offset(batches)
    for start, stop in itertools.pairwise(bounds):
        position, end = int(batches["position"][start]), int(stops[stop - 1])
        previous = int(ends[start - 1]) if start > 0 else None
        first, last = int(batches["base_offset"][start]), int(ends[stop - 1])
        is_doubtful = (
            position > 0
            and end < source.size
            and (previous is None or first != previous + 1)
            and not _is_continued(source, end, last)
            and not _is_announced(source, log.damaged, position, first)
        )
        size = end - position
        yield start, stop, KeptRange(position, size, stop - start, first, last, is_doubtful)


def _header_at(source: Source, position: int) -> BatchTable:
    """Return the row of a plausible header, regardless of its length and checksum."""
    header = read_bytes(source, position, BATCH_HEADER_SIZE)
    return row_of_header(header, position, max(source.size - position, len(header)))


def _is_continued(source: Source, end: int, last: int) -> bool:
    """Return whether the bytes after a range start with the next offset, or with zeros."""
    stored = read_bytes(source, end, 8)
    return not any(stored) or int.from_bytes(stored, "big", signed=True) == last + 1


def _is_announced(source: Source, damaged: list[DamagedRange], position: int, first: int) -> bool:
    """Return whether the header of the damaged batch before a range claims to end where it starts.

    The end is a byte position (by the batch length) or an offset (by the last offset).
    """
    for one in damaged:
        if one.stop == position:
            row = _header_at(source, one.start)
            return bool(len(row)) and (
                int(last_offset(row)[0]) + 1 == first
                or one.start + int(size_in_bytes(row)[0]) == position
            )
    return False


def _is_foreign(batches: BatchTable, start: int, stop: int) -> bool:
    """Return whether leader epochs or sequences show that a range does not belong to the log."""
    inside = batches[start:stop]
    before = batches[max(0, start - _NEIGHBOURS) : start]
    after = batches[stop : stop + _NEIGHBOURS]
    return _has_other_epochs(inside, before, after) or _has_other_sequences(inside, before, after)


def _has_other_epochs(inside: BatchTable, before: BatchTable, after: BatchTable) -> bool:
    """Return whether all leader epochs of a range are below or above those of its neighbours."""

    def epochs(table: BatchTable) -> NDArray[np.int32]:
        found: NDArray[np.int32] = table["partition_leader_epoch"][table["magic"] == 2]
        return found

    mine, low, high = epochs(inside), epochs(before), epochs(after)
    if not len(mine):
        return False
    is_below = len(low) > 0 and int(mine.max()) < int(low.min())
    is_above = len(high) > 0 and int(mine.min()) > int(high.max())
    return bool(is_below or is_above)


def _has_other_sequences(inside: BatchTable, before: BatchTable, after: BatchTable) -> bool:
    """Return whether a producer's sequence is not between those of its neighbouring batches."""
    is_of_producer = (inside["producer_id"] > NO_PRODUCER_ID) & (
        inside["base_sequence"] > NO_SEQUENCE
    )
    if not is_of_producer.any():
        return False
    one = inside[is_of_producer][0]
    last = _of_same_producer(before, one)
    following = _of_same_producer(after, one)
    if not (len(last) and len(following)):
        return False
    low, high = int(last["base_sequence"][-1]), int(following["base_sequence"][0])
    return low < high and not low < int(one["base_sequence"]) < high


def _of_same_producer(batches: BatchTable, one: np.void) -> BatchTable:
    is_same = batches["producer_id"] == one["producer_id"]
    is_same &= batches["producer_epoch"] == one["producer_epoch"]
    is_same &= batches["base_sequence"] > NO_SEQUENCE
    found: BatchTable = batches[is_same]
    return found


# ---- lost ranges ------------------------------------------------------------------------------


def _lost_ranges(
    source: Source, log: RepairedLog, base_offset: int | None, known_end: int | None
) -> list[LostRange]:
    ends = last_offset(log.batches)
    following = np.searchsorted(log.batches["position"], [one.start for one in log.damaged])
    found = []
    for damaged, row in zip(log.damaged, following.tolist(), strict=True):
        first = int(ends[row - 1]) + 1 if row > 0 else base_offset
        last = known_end
        if row < len(ends):
            batch = log.batches[row]
            is_first_known = batch["magic"] == 2 or batch["records_count"] >= 0
            last = int(batch["base_offset"]) - int(is_first_known)
        if first is not None and last is not None and last < first:
            first = last = None
        found.append(_lost_range(source, damaged, first, last))
    return found


def _lost_range(
    source: Source, damaged: DamagedRange, first: int | None, last: int | None
) -> LostRange:
    row = _header_at(source, damaged.start)
    is_header = len(row) > 0 and damaged.error.symbol not in _NO_HEADER
    return LostRange(
        position=damaged.start,
        size=damaged.stop - damaged.start,
        symbol=damaged.error.symbol,
        reason=damaged.error.reason,
        first_offset=first,
        last_offset=last,
        claimed_first_offset=int(row["base_offset"][0]) if is_header else None,
        claimed_last_offset=int(last_offset(row)[0]) if is_header else None,
        claimed_records=int(row["records_count"][0]) if is_header else None,
        zero_bytes=_zero_bytes(source, damaged.start, damaged.stop),
    )


def _zero_bytes(source: Source, start: int, stop: int) -> int:
    """Count bytes in aligned blocks that are all zero."""
    count = 0
    position = -(-start // _PAGE) * _PAGE
    while position + _PAGE <= stop:
        hole_end = min(source.skip_hole(position), stop) // _PAGE * _PAGE
        if hole_end > position:  # zeros that the file does not store
            count += hole_end - position
            position = hole_end
            continue
        size = min(_READ_AT_ONCE, (stop - position) // _PAGE * _PAGE)
        data = np.frombuffer(read_bytes(source, position, size), np.uint8)
        count += _PAGE * int((~data.reshape(-1, _PAGE).any(axis=1)).sum())
        position += size
    return count
