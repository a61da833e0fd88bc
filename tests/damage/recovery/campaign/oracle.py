"""Judge a salvage of a damaged log by what was intact before: violations and named exceptions."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

import kafkascan as ks
from kafkascan.batches.columns import BatchTable, last_offset, size_in_bytes
from kafkascan.recovery.salvaging.header_repair import FieldRepair, RepairedLog
from kafkascan.recovery.salvaging.segment_salvage import SegmentSalvage
from tests.damage.recovery.campaign.known_logs import (
    KnownBatch,
    KnownLog,
    TrackedBytes,
    read_batch,
    valid_prefix,
)
from tests.support.segments import V2_FIELDS

# Positions in a batch of bytes that its checksum covers, by magic.
_COVERED = {0: 16, 1: 16, 2: 21}


@dataclass(frozen=True)
class Kept:
    """A batch of a result. `row` is the batch of the undamaged log that it equals, or None."""

    position: int
    size: int
    first: int
    last: int
    row: int | None
    is_doubtful: bool = False

    @property
    def stop(self) -> int:
        return self.position + self.size


class Oracle:
    """What is known of one damaged log."""

    def __init__(self, log: KnownLog, damaged: TrackedBytes) -> None:
        self.log, self.damaged = log, damaged
        self.data = bytes(damaged.data)
        self.instances = damaged.instances(log.batches)
        self.row_of = {(one.first, one.data): row for row, one in enumerate(log.batches)}
        self.starts = [one.position for one in log.batches]
        self.prefix = valid_prefix(self.data, log.base_offset)

    # ---- what must be kept ------------------------------------------------------------------

    def losses(self, kept: list[Kept]) -> Iterator[str]:
        """Yield violations and exceptions about batches that are not kept."""
        rows = {one.row for one in kept if one.row is not None}
        most = _most_in_order(
            [(at, self.log.batches[row]) for at, row in sorted(self.instances.items())]
        )
        if len(rows) < most:
            rivals = self._rivals(kept, rows)
            prefix = {one.position for one in self.prefix}
            doubtful = any(one.is_doubtful for one in rivals)
            if len(rows) + len(rivals) >= most:
                yield f"outweighed by {'doubtful ' if doubtful else ''}batches"
            elif len(rows) + len(rivals) >= self.most_after_prefix():
                marked = any(one.is_doubtful and one.position in prefix for one in kept)
                yield f"contradict the prefix{', which is doubtful' if marked else ''}"
            elif len(rows) + len(rivals) + self._against_chain(kept, rows) >= most:
                marked = any(one.is_doubtful for one in kept)
                yield f"contradict the first chain{', which is doubtful' if marked else ''}"
            elif len(rows) + len(rivals) + self._within_lengths(kept, rows) >= most:
                yield "within the length of a damaged batch"
            else:
                count = most - len(rows)
                yield f"VIOLATION lost: {count} undisturbed batches, {len(rivals)} rivals"
        yield from self._prefix_losses(kept, rows)

    def most_after_prefix(self) -> int:
        """Return how many intact batches can be kept together with Kafka's valid prefix."""
        if not self.prefix:
            return len(self.instances)
        end = self.prefix[-1]
        return len(self._own_prefix()) + _most_in_order(
            [
                (at, self.log.batches[row])
                for at, row in sorted(self.instances.items())
                if at > end.position and self.log.batches[row].first > end.last
            ]
        )

    def _against_chain(self, kept: list[Kept], rows: set[int]) -> int:
        """Return how many lost batches contradict kept ones that headers frame from the start."""
        end, size = 0, len(self.data)
        while end + 17 <= size and 0 < (length := int.from_bytes(self.data[end + 8 : end + 12])):
            if self.data[end + 16] > 2 or end + 12 + length > size:
                break
            end += 12 + length
        chain = [one for one in kept if one.position < end]
        return sum(
            any(_contradict(at, self.log.batches[row], one) for one in chain)
            for at, row in self.instances.items()
            if row not in rows and at >= end
        )

    def _within_lengths(self, kept: list[Kept], rows: set[int]) -> int:
        """
        Return how many lost batches are within the length that a damaged header claims.

        Copies of batches in the value of a record are, too.
        """
        frames = [frame for one in [0, *(one.stop for one in kept)] for frame in self._frames(one)]
        return sum(
            any(start < at < stop for start, stop in frames)
            for at, row in self.instances.items()
            if row not in rows
        )

    def _frames(self, position: int) -> Iterator[tuple[int, int]]:
        """Yield what headers from a position on claim to be batches, up to the next valid one."""
        while position + 17 <= len(self.data) and self.data[position + 16] <= 2:
            size = 12 + int.from_bytes(self.data[position + 8 : position + 12], signed=True)
            if size < 26 or read_batch(self.data, position) is not None:
                return
            yield position, position + size
            position += size

    def _own_prefix(self) -> set[int]:
        positions = {one.position for one in self.prefix}
        return {row for at, row in self.instances.items() if at in positions}

    def _rivals(self, kept: list[Kept], rows: set[int]) -> list[Kept]:
        """Return kept batches that are not of the log, and contradict lost ones that are."""
        lost = [
            (at, self.log.batches[row]) for at, row in self.instances.items() if row not in rows
        ]
        return [
            one
            for one in kept
            if one.row is None and any(_contradict(at, batch, one) for at, batch in lost)
        ]

    def _prefix_losses(self, kept: list[Kept], rows: set[int]) -> Iterator[str]:
        missing = self._own_prefix() - rows
        if not missing:
            return
        pinned = self.most_after_prefix()
        rivals = [
            one
            for one in kept
            for at, row in self.instances.items()
            if row in missing and _contradict(at, self.log.batches[row], one)
        ]
        if len(missing) == 1 and len(rivals) == 1:
            yield "one batch of the prefix against one after it"
        elif len(rows) + len(self._rivals(kept, rows)) <= pinned:
            yield f"VIOLATION prefix: {len(missing)} batches of Kafka's recovery"
        else:
            yield "prefix contradicted by more batches after it"

    # ---- what may be kept -------------------------------------------------------------------

    def strangers(self, kept: list[Kept], repairs: list[FieldRepair]) -> Iterator[str]:
        """Yield violations and exceptions about kept batches that the log did not have."""
        uncertain = {one.position for one in repairs if not one.is_certain}
        homes = {self.log.batches[row].first for row in self.damaged.resigned}
        ends = {one.last + 1 for one in self.log.batches}
        older = {(one.first, one.data) for one in self.log.older}
        for one in kept:
            if one.row is not None:
                if one.is_doubtful:
                    yield "intact but doubtful"
                continue
            origin = self.origin_of(one.position)
            data = self.data[one.position : one.stop]
            if origin in self.damaged.resigned or one.first in homes:
                yield "stranger: re-signed"
            elif one.position in uncertain:
                yield "stranger: uncertain repair"
            elif one.is_doubtful:
                yield "stranger: doubtful"
            elif origin is not None:
                yield from self._displaced(one, self.log.batches[origin])
            elif (one.first, data) in older:
                yield "stranger: older batch that fits without a gap"
            elif one.first == self._end_before(kept, one) or one.first in ends:
                yield "stranger: foreign batch that continues the offsets"
            else:
                yield f"VIOLATION stranger: at {one.position}, offset {one.first}"

    def _displaced(self, one: Kept, batch: KnownBatch) -> Iterator[str]:
        if one.first == batch.first:
            yield "stranger: leader epoch that fits"
        else:
            yield "stranger: base offset that fits"

    def _end_before(self, kept: list[Kept], one: Kept) -> int:
        before = [other.last + 1 for other in kept if other.position < one.position]
        return before[-1] if before else self.log.base_offset

    # ---- repairs ----------------------------------------------------------------------------

    def changes(self, kept: list[Kept], repairs: list[FieldRepair]) -> Iterator[str]:
        """Yield violations and exceptions about repaired fields."""
        rows = {one.row for one in kept}
        has_foreign = any(one.row is None and self.origin_of(one.position) is None for one in kept)
        end = max((one.last for one in kept), default=-1)
        for one in repairs:
            if one.position in self.instances:
                certainty = "certain" if one.is_certain else "uncertain"
                if self.instances[one.position] in self.damaged.resigned and not one.is_certain:
                    yield "repair: moved batch whose place has a re-signed one, uncertain"
                    continue
                is_epoch = one.field == "partition_leader_epoch"
                if is_epoch and has_foreign and not one.is_certain:
                    yield "repair: epoch that foreign batches contradict, uncertain"
                    continue
                is_lost = self.instances[one.position] not in rows and one.old > end
                if one.field == "base_offset" and is_lost and not one.is_certain:
                    yield "repair: copy of a batch that the end of the log has lost, uncertain"
                    continue
                yield (
                    f"VIOLATION changed: intact batch at {one.position}, {one.field}"
                    f" {one.old} -> {one.new}, {certainty}"
                )
                continue
            origin = self.origin_of(one.position)
            expected = None if origin is None else self._value(self.log.batches[origin], one)
            if expected == one.new:
                yield f"repair: right, {'certain' if one.is_certain else 'uncertain'}"
            elif not one.is_certain:
                yield "repair: wrong, uncertain"
            elif expected is not None or one.field in ("base_offset", "partition_leader_epoch"):
                yield (
                    f"VIOLATION certain: {one.field} at {one.position} {one.old} -> {one.new},"
                    f" was {expected}"
                )

    def _value(self, batch: KnownBatch, repair: FieldRepair) -> int:
        at, code = V2_FIELDS[repair.field]
        size = {"q": 8, "i": 4, "b": 1}[code]
        return int.from_bytes(batch.data[at : at + size], "big", signed=True)

    def origin_of(self, position: int) -> int | None:
        """Return the batch of the undamaged log whose covered bytes are at a position."""
        for inner in (21, 16, 24, 19):
            if (
                position + inner < len(self.data)
                and (at := self.damaged.origin[position + inner]) >= 0
            ):
                row = bisect.bisect_right(self.starts, at) - 1
                if at - self.starts[row] == inner:
                    return row
        return None

    # ---- results ----------------------------------------------------------------------------

    def rows_of_scan(self, batches: BatchTable) -> list[Kept]:
        """Return the rows of a scan."""
        return [
            Kept(at, size, first, last, self.row_of.get((first, self.data[at : at + size])))
            for at, size, first, last in _tuples(batches)
        ]

    def rows_of_salvage(self, segment: SegmentSalvage, repaired: RepairedLog) -> list[Kept]:
        patches = repaired.patches()
        doubtful = [piece for piece in segment.pieces if piece.is_doubtful]
        found = []
        for at, size, first, last in _tuples(repaired.batches):
            patch = patches.get(at, b"")
            data = patch + self.data[at + len(patch) : at + size]
            is_doubtful = any(one.position <= at < one.position + one.size for one in doubtful)
            found.append(Kept(at, size, first, last, self.row_of.get((first, data)), is_doubtful))
        return found


def _tuples(batches: BatchTable) -> Iterator[tuple[int, int, int, int]]:
    return zip(
        batches["position"].tolist(),
        size_in_bytes(batches).tolist(),
        batches["base_offset"].tolist(),
        last_offset(batches).tolist(),
        strict=True,
    )


def _contradict(position: int, batch: KnownBatch, kept: Kept) -> bool:
    if position < kept.position:
        return batch.last >= kept.first or position + len(batch.data) > kept.position
    return batch.first <= kept.last or position < kept.stop


def _most_in_order(instances: list[tuple[int, KnownBatch]]) -> int:
    """Return the size of the largest selection whose offsets ascend."""
    ends: list[int] = []  # the lowest last offset of a selection of each size
    for _, batch in instances:
        at = bisect.bisect_left(ends, batch.first)
        if at == len(ends):
            ends.append(batch.last)
        else:
            ends[at] = min(ends[at], batch.last)
    return len(ends)


def crcs_are_valid(data: bytes, batches: BatchTable) -> bool:
    return bool(np.all(ks.verify_crcs(data, batches))) if len(batches) else True
