"""Which segment of a log keeps the offsets that several of its segments contain."""

from __future__ import annotations

import bisect
import contextlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from kafkascan.batches.columns import BatchTable, join_tables, last_offset, rows_from, size_in_bytes
from kafkascan.batches.resyncing.batch_runs import BatchRuns
from kafkascan.batches.resyncing.gaps import OUT_OF_ORDER
from kafkascan.batches.resyncing.offset_evidence import HIGHEST_OFFSET
from kafkascan.batches.resyncing.ranges import KeptRange
from kafkascan.batches.scan import iter_open_batches
from kafkascan.batches.verify import verify_rows
from kafkascan.format.errors import KafkaScanError
from kafkascan.format.layout import BATCH_DTYPE, ScanEnd
from kafkascan.io.sources import Source
from kafkascan.logs.log_chunks import end_of
from kafkascan.logs.opened_logs import LogView, OffsetCursor, SegmentOverlap
from kafkascan.logs.segment import SegmentFile
from kafkascan.recovery.salvaging.header_repair import RepairedLog
from kafkascan.recovery.salvaging.segment_salvage import (
    DuplicateRange,
    LostRange,
    SegmentSalvage,
)
from kafkascan.tables.packed_rows import PackedRows

# No checksum covers a base offset: one batch beyond the end of its segment proves nothing.
_FEWEST_BEYOND = 2


@dataclass(frozen=True)
class SegmentBounds:
    """
    The offsets that are kept of a segment.

    Attributes
    ----------
    lowest : int
        Offsets before it are kept in earlier segments; the base offset if there are none.
    highest : int
        The last offset that the segment may contain.
    keeper : str or None
        Name of the earlier segment that keeps offsets of this one.
    is_covered : bool
        Whether an earlier segment keeps all of its offsets.
    """

    lowest: int
    highest: int = HIGHEST_OFFSET
    keeper: str | None = None
    is_covered: bool = False


@dataclass(frozen=True)
class _Reach:
    """
    The end of a segment according to its headers.

    Attributes
    ----------
    end_offset : int or None
        The offset after the last batch that is certainly of the segment.
    is_whole : bool
        Whether the headers lead to the end of the file.
    """

    end_offset: int | None
    is_whole: bool


def find_bounds(log: LogView) -> tuple[list[SegmentBounds], list[SegmentOverlap]]:
    """
    Return which offsets each segment of a log keeps, and the segments that overlap.

    An offset is kept in the segment from which `OffsetCursor` reads it. A segment keeps offsets of
    the segments after it only up to its first damage: they may contain what is lost there.
    """
    if len(log.segments) < 2:
        return [SegmentBounds(0) for _ in log.segments], []
    bases = [segment.base_offset or 0 for segment in log.segments]
    reaches = [
        _reach(segment, base, following)
        for segment, base, following in zip(
            log.segments, bases, [*bases[1:], HIGHEST_OFFSET + 1], strict=True
        )
    ]
    cursor, found, overlaps = OffsetCursor(), list[SegmentBounds](), list[SegmentOverlap]()
    for segment, base, reach in zip(log.segments, bases, reaches, strict=True):
        position = cursor.position
        overlaps += (here := cursor.add(segment, reach.end_offset))
        keeper = here[0].path.name if here else None
        is_covered = keeper is not None and reach.is_whole and (reach.end_offset or 0) <= position
        found.append(SegmentBounds(max(base, position), HIGHEST_OFFSET, keeper, is_covered))
    return _with_highest(found), overlaps


def _with_highest(bounds: list[SegmentBounds]) -> list[SegmentBounds]:
    """Return bounds whose highest offsets are before the next segment that is kept."""
    result, following = list[SegmentBounds](), HIGHEST_OFFSET + 1
    for one in reversed(bounds):
        result.append(replace(one, highest=following - 1))
        following = following if one.is_covered else one.lowest
    return result[::-1]


def _reach(segment: SegmentFile, base_offset: int, following: int) -> _Reach:
    """Return the end of a segment; `following` is the base offset of the next one."""
    with contextlib.suppress(OSError, KafkaScanError), segment.borrow() as source:
        headers, end_offset = iter_open_batches(source, on_corrupt="stop"), None
        for table in headers:
            end_offset = end_of(table)
        if end_offset is not None and end_offset > following:
            end_offset = _certain_end(source, base_offset, following)
        return _Reach(end_offset, headers.end in (ScanEnd.CLEAN, ScanEnd.ZERO_TAIL))
    return _Reach(None, is_whole=False)


def _certain_end(source: Source, base_offset: int, following: int) -> int:
    """Return the end of the valid batches at the start, if it is after the next base offset."""
    end_offset, beyond = base_offset, 0
    for batches in iter_open_batches(source, on_corrupt="stop"):
        first, last = batches["base_offset"], last_offset(batches)
        is_valid = verify_rows(source, batches) & (last >= first)
        is_valid &= first >= np.append(end_offset, last[:-1] + 1)
        count = len(batches) if is_valid.all() else int(np.argmin(is_valid))
        beyond += int((last[:count] >= following).sum())
        if count:
            end_offset = int(last[count - 1]) + 1
        if count < len(batches):
            break
    return end_offset if beyond >= _FEWEST_BEYOND else following


# ---- results ---------------------------------------------------------------------------------


def covered(segment: SegmentFile, bounds: SegmentBounds) -> SegmentSalvage:
    """Return the result of a segment of which an earlier one keeps all offsets."""
    name, base_offset = segment.file_name, segment.base_offset
    with segment.borrow() as source:
        headers, ends = iter_open_batches(source, on_corrupt="stop"), np.empty(0, BATCH_DTYPE)
        for table in headers:
            ends = join_tables([ends[:1], table[:1], table[-1:]])[[0, -1]]
        result = SegmentSalvage(name, base_offset, size=source.size, end=headers.end)
        if len(ends):
            result.duplicates = [_duplicate(ends, bounds.keeper)]
        return result


def without_covered(
    result: SegmentSalvage, log: RepairedLog, bounds: SegmentBounds
) -> tuple[SegmentSalvage, RepairedLog]:
    """Return the result without the batches at the start that an earlier segment keeps."""
    if bounds.lowest <= (result.base_offset or 0):
        return result, log
    batches, runs = log.runs.opened(log.batches, np.array([bounds.lowest]))
    kept = rows_from(batches, bounds.lowest)
    dropped = batches[: len(batches) - len(kept)]
    earlier = [_duplicate(dropped, bounds.keeper)] if len(dropped) else []
    start = int(kept["position"][0]) if len(kept) else result.size
    changed = replace(
        result,
        kept_bytes=int(size_in_bytes(kept).sum()),
        batches=int(runs.counts(kept).sum()),
        records=runs.records(kept),
        pieces=[_from(piece, kept, runs) for piece in result.pieces if _end(piece) > start],
        duplicates=PackedRows.of(DuplicateRange, itertools.chain(earlier, result.duplicates)),
        repairs=[one for one in result.repairs if one.position >= start],
        copied_as=f"{int(kept['base_offset'][0]):020}.log" if len(kept) else None,
    )
    return changed, replace(log, batches=kept, runs=runs, repairs=changed.repairs)


def _duplicate(batches: BatchTable, keeper: str | None) -> DuplicateRange:
    start, stop = int(batches["position"][0]), batches["position"][-1] + size_in_bytes(batches)[-1]
    first, last = int(batches["base_offset"][0]), int(last_offset(batches)[-1])
    return DuplicateRange(start, int(stop) - start, first, last, keeper)


def _end(piece: KeptRange) -> int:
    return piece.position + piece.size


def _from(piece: KeptRange, kept: BatchTable, runs: BatchRuns) -> KeptRange:
    """Return the part of a range that has kept batches."""
    inside = kept[(kept["position"] >= piece.position) & (kept["position"] < _end(piece))]
    position = int(inside["position"][0])
    first = int(inside["base_offset"][0])
    size, batches = _end(piece) - position, int(runs.counts(inside).sum())
    return piece._replace(position=position, size=size, batches=batches, first_offset=first)


def move_kept_elsewhere(segments: Sequence[SegmentSalvage]) -> None:
    """Turn losses of batches into duplicates if another segment keeps their offsets."""
    losses = itertools.chain.from_iterable(one.losses for one in segments)
    if not any(loss.symbol == OUT_OF_ORDER for loss in losses):
        return
    pieces = [(one, segment) for segment in segments for one in segment.pieces]
    pieces.sort(key=lambda pair: pair[0].first_offset)
    starts = [one.first_offset for one, _ in pieces]

    def duplicate_of(loss: LostRange, segment: SegmentSalvage) -> DuplicateRange | None:
        first, last = loss.claimed_first_offset, loss.claimed_last_offset
        if loss.symbol != OUT_OF_ORDER or first is None or last is None:
            return None
        at = bisect.bisect_right(starts, first) - 1
        if at < 0 or pieces[at][1] is segment or last > pieces[at][0].last_offset:
            return None
        return DuplicateRange(loss.position, loss.size, first, last, pieces[at][1].name)

    for segment in segments:
        duplicates = (duplicate_of(loss, segment) for loss in segment.losses)
        moved = PackedRows.of(DuplicateRange, filter(None, duplicates))
        if len(moved):
            segment.duplicates = PackedRows.of(
                DuplicateRange, itertools.chain(segment.duplicates, moved)
            )
            lost = (loss for loss in segment.losses if duplicate_of(loss, segment) is None)
            segment.losses = PackedRows.of(LostRange, lost)
