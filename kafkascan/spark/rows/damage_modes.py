"""Damage handling by the option ``mode``, as in Spark's file sources: fail, keep rows or drop."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from kafkascan.format.errors import CorruptBatchError
from kafkascan.format.layout import ScanEnd
from kafkascan.logs.log_problems import OFFSET_OVERLAP
from kafkascan.logs.segment import position_after
from kafkascan.logs.walking.segment_tails import describe_end
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.planning.range_walk import RangeWalk
from kafkascan.spark.planning.task_plan import ScanRange
from kafkascan.spark.rows.range_offsets import RangeOffsets

logger = logging.getLogger("kafkascan.spark")

OnDamage = Callable[[CorruptBatchError], object]
"""Called with damage that does not fail the read."""


class DamageHandler:
    """
    Handle the damaged batches of one range of a file as the option ``mode`` demands.

    Parameters
    ----------
    options : Options
    on_damage : callable, optional
        Called with each error that is kept or dropped.

    Attributes
    ----------
    dropped : int
        Number of damaged batches that were dropped.
    """

    def __init__(self, options: Options, on_damage: OnDamage | None = None) -> None:
        self._fails_fast = options.fails_fast
        self._drops = options.mode == "DROPMALFORMED"
        self._on_damage = on_damage
        self._kept: list[CorruptBatchError] = []
        self.dropped = 0

    def handle(self, error: CorruptBatchError) -> None:
        """Raise the error (FAILFAST), keep it (PERMISSIVE), or log and count it (DROPMALFORMED)."""
        if self._fails_fast:
            raise error
        self.report(error)
        if self._drops:
            self.dropped += 1
            logger.warning("dropped: %s", error)
        else:
            self._kept.append(error)

    def report(self, error: CorruptBatchError) -> None:
        """Report damage, or what is damage to no mode, as no complete batch is lost."""
        if self._on_damage is not None:
            self._on_damage(error)

    def take_kept(self) -> list[CorruptBatchError]:
        """Return the errors kept since the last call."""
        errors, self._kept = self._kept, []
        return errors


def handle_end(
    walk: RangeWalk, one: ScanRange, offsets: RangeOffsets, handler: DamageHandler
) -> bool:
    """
    Handle what is wrong with a range, and return whether it is in order.

    The torn tail of a log is, but it is reported unless a broker is writing it.
    """
    errors = range_errors(walk, one, offsets)
    for error in errors:
        handler.handle(error)
    is_torn = walk.end is ScanEnd.TORN_TAIL and is_at_end(walk, one)
    is_asked = one.stop_offset is None or (walk.next_offset or 0) < one.stop_offset
    if is_torn and is_asked and not errors and not walk.source.has_grown():
        reason = f"{describe_end(walk)}, which were not read"
        handler.report(CorruptBatchError(one.file.path, walk.position, None, reason, str(walk.end)))
    return not errors


def range_errors(walk: RangeWalk, one: ScanRange, offsets: RangeOffsets) -> list[CorruptBatchError]:
    """
    Return what is wrong with a range: damage, an end that the plan did not expect, its offsets.

    Damage counts if it hides requested offsets; these are all offsets after it in the file.
    """
    reached = one.file.base_offset if walk.next_offset is None else walk.next_offset
    damage = walk.damage(is_last=one.is_last)
    found = [damage] if damage is not None and not _is_after(reached, one) else []
    overlap = _unplanned_end(walk, one)
    found += [] if overlap is None else [overlap]
    return [*found, *offsets.errors(walk, is_whole=damage is None and is_at_end(walk, one))]


def is_at_end(walk: RangeWalk, one: ScanRange) -> bool:
    """Whether a file ends in a range."""
    return walk.end is not None and (walk.end is not ScanEnd.CLEAN or one.stop >= one.file.size)


def _is_after(offset: int, one: ScanRange) -> bool:
    return one.stop_offset is not None and offset >= one.stop_offset


def _unplanned_end(walk: RangeWalk, one: ScanRange) -> CorruptBatchError | None:
    """Return an error if later segments were planned to be read from another offset."""
    file = one.file
    if not is_at_end(walk, one):
        return None
    if file.end_offset is not None:
        if walk.next_offset == file.end_offset:
            return None
        reason = (
            f"the segment ends before offset {walk.next_offset}, but its last batches end before"
            f" offset {file.end_offset}, from which later segments are read"
        )
        return _overlap_error(walk, one, reason)
    end = position_after(0, file.base_offset, walk.next_offset)
    if file.is_named or one.next_base is None or end <= one.next_base:
        return None
    if _is_after(one.next_base, one):
        return None
    reason = (
        f"offsets {one.next_base} to {end - 1} may also be in the next segments: one of them is"
        " stale; with findOverlaps=true, each offset is read once"
    )
    return _overlap_error(walk, one, reason)


def _overlap_error(walk: RangeWalk, one: ScanRange, reason: str) -> CorruptBatchError:
    return CorruptBatchError(one.file.path, walk.position, one.next_base, reason, OFFSET_OVERLAP)


def log_dropped(handlers: Iterable[DamageHandler]) -> None:
    """Log how many damaged batches a task dropped."""
    dropped = sum(handler.dropped for handler in handlers)
    if dropped:
        logger.warning("dropped %d damaged batches in this task", dropped)
