"""Salvage one segment: the ranges to keep, the lost ranges and the repaired fields."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from kafkascan.batches.columns import last_offset, size_in_bytes
from kafkascan.batches.resyncing.gaps import (
    NOT_A_LOG,
    RANGES_AT_ONCE,
    DamagedRanges,
    known_values,
)
from kafkascan.batches.resyncing.kept_ranges import are_doubtful, headers_at
from kafkascan.batches.resyncing.offset_evidence import HIGHEST_OFFSET
from kafkascan.batches.resyncing.ranges import KeptRange
from kafkascan.batches.resyncing.resync import scan_with_resync
from kafkascan.format.errors import STATUS
from kafkascan.format.layout import ScanEnd
from kafkascan.io.sources import Source, read_bytes
from kafkascan.recovery.salvaging.epoch_repair import have_contested_epochs, repair_epochs
from kafkascan.recovery.salvaging.foreign_ranges import (
    Doubtful,
    ranges_of,
    selected_again,
    without_foreign,
)
from kafkascan.recovery.salvaging.header_repair import (
    FieldRepair,
    RepairedLog,
    repair_headers,
    with_doubts,
)
from kafkascan.tables.packed_rows import PackedRows

# Damage after which the bytes are not a header.
_NO_HEADER = [NOT_A_LOG, STATUS["BAD_LENGTH"], STATUS["BAD_MAGIC"]]
_PAGE = 512
_MOST_OFFSETS = (1 << 31) - 1
_READ_AT_ONCE = 1 << 22
# Number of times that batches are selected, and checked for foreign ones.
_MOST_SELECTIONS = 8


# Tuples, as `KeptRange` is.
class LostRange(NamedTuple):
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


class DuplicateRange(NamedTuple):
    """
    A copy of kept batches, at another position. It is not kept, and nothing is lost with it.

    Attributes
    ----------
    position, size : int
        In bytes.
    first_offset, last_offset : int
    kept_in : str or None
        Name of the segment that keeps these offsets, of which one is stale: its batches may
        differ. None if the same segment keeps equal batches.
    """

    position: int
    size: int
    first_offset: int
    last_offset: int
    kept_in: str | None = None


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
    zero_tail_bytes : int
        Size of the zero tail.
    pieces : list of KeptRange
    losses : sequence of LostRange
    duplicates : sequence of DuplicateRange
    repairs : list of FieldRepair
    error : Exception or None
        Why the segment could not be copied; all of it counts as lost then.
    copied_as : str or None
        Name of the copy if it has another one, because its first batches are kept in an earlier
        segment.
    """

    name: str
    base_offset: int | None
    size: int = 0
    kept_bytes: int = 0
    batches: int = 0
    records: int | None = 0
    end: ScanEnd | None = None
    zero_tail_bytes: int = 0
    pieces: list[KeptRange] = field(default_factory=list)
    losses: Sequence[LostRange] = field(default_factory=list)
    duplicates: Sequence[DuplicateRange] = field(default_factory=list)
    repairs: list[FieldRepair] = field(default_factory=list)
    error: Exception | None = None
    copied_as: str | None = None

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


def segment_offsets(base_offset: int | None, highest: int) -> tuple[int, int]:
    """Return the lowest and the highest offset that a segment may contain."""
    if base_offset is None:
        return 0, highest
    return base_offset, min(highest, base_offset + _MOST_OFFSETS)  # an index has them as int32


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
    known_end = highest if highest < HIGHEST_OFFSET else None
    lowest, highest = segment_offsets(base_offset, highest)
    scan = scan_with_resync(
        source, 0, source.size, threads, verify=True, lowest=lowest, highest=highest, joined=True
    )
    log = repair_headers(source, scan, lowest, highest)
    log, kept = without_foreign(log, source, doubtful=doubtful)
    for _ in range(_MOST_SELECTIONS):  # foreign batches may have outweighed those of the log
        selected = selected_again(log, source, lowest, highest)
        if selected is None:
            break
        log, kept = without_foreign(selected, source, doubtful=doubtful)
    before = log
    log = repair_epochs(log, known_epochs, are_doubtful(log.batches, kept))
    is_contested = have_contested_epochs(log)
    if log is not before or is_contested.any():
        kept = ranges_of(log, source, is_contested)
    log = with_doubts(log, are_doubtful(log.batches, kept))
    result = SegmentSalvage(
        name,
        base_offset,
        size=source.size,
        kept_bytes=int(size_in_bytes(log.batches).sum()),
        batches=int(log.runs.counts(log.batches).sum()),
        records=log.runs.records(log.batches),
        end=scan.end,
        zero_tail_bytes=source.size - scan.position if scan.end is ScanEnd.ZERO_TAIL else 0,
        pieces=kept,
        losses=PackedRows.of(LostRange, lost_ranges(source, log, base_offset, known_end)),
        duplicates=PackedRows.of(DuplicateRange, _duplicates(log)),
        repairs=log.repairs,
    )
    return result, log


# ---- lost ranges ------------------------------------------------------------------------------


def lost_ranges(
    source: Source, log: RepairedLog, base_offset: int | None, known_end: int | None
) -> Iterator[LostRange]:
    """Yield the damaged ranges of a log; `known_end` is the last offset that it may contain."""
    batches = log.batches
    is_first_known = (batches["magic"] == 2) | (batches["records_count"] >= 0)
    before = np.append(0, last_offset(batches))
    after = np.append(batches["base_offset"] - is_first_known, 0)
    for damaged in log.runs.damaged_parts(log.damaged):
        following = np.searchsorted(batches["position"], damaged.rows["position"])
        firsts, lasts = list[int | None](), list[int | None]()
        for row, end, start in zip(
            following.tolist(), before[following].tolist(), after[following].tolist(), strict=True
        ):
            first = end + 1 if row else base_offset
            last = start if row < len(batches) else known_end
            is_empty = first is not None and last is not None and last < first
            firsts.append(None if is_empty else first)
            lasts.append(None if is_empty else last)
        yield from _with_headers(source, damaged, firsts, lasts)


def _with_headers(
    source: Source, damaged: DamagedRanges, firsts: list[int | None], lasts: list[int | None]
) -> Iterator[LostRange]:
    """Return damaged ranges, with the offsets that they may have and those that they claim."""
    starts, stops = damaged.rows["position"], damaged.rows["stop"]
    headers, is_header = headers_at(source, starts)
    is_header &= ~np.isin(damaged.rows["status"], _NO_HEADER)
    claims = headers["base_offset"], last_offset(headers), headers["records_count"]
    zero_bytes = np.zeros(len(starts), np.int64)
    for row in np.flatnonzero(-(-starts // _PAGE) * _PAGE + _PAGE <= stops).tolist():
        zero_bytes[row] = _zero_bytes(source, int(starts[row]), int(stops[row]))
    causes = damaged.symbols_and_reasons()
    return map(
        LostRange,
        starts.tolist(),
        (stops - starts).tolist(),
        (symbol for symbol, _ in causes),
        (reason for _, reason in causes),
        firsts,
        lasts,
        *(known_values(one, is_header) for one in claims),
        zero_bytes.tolist(),
    )


def _duplicates(log: RepairedLog) -> Iterator[DuplicateRange]:
    for table in log.runs.tables(log.copies):
        for start in range(0, len(table), RANGES_AT_ONCE):
            part = table[start : start + RANGES_AT_ONCE]
            columns = part["position"], size_in_bytes(part), part["base_offset"], last_offset(part)
            yield from map(DuplicateRange, *(one.tolist() for one in columns))


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
