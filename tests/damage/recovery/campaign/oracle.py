"""Judge a salvage of a damaged log by what was intact before: violations and named exceptions."""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Iterator

import kafkascan as ks
from kafkascan.recovery.salvaging.header_repair import FieldRepair, RepairedLog
from kafkascan.recovery.salvaging.segment_salvage import SegmentSalvage
from tests.damage.recovery.campaign.known_logs import (
    KnownBatch,
    KnownLog,
    ReadBatch,
    TrackedBytes,
    read_batch,
    valid_prefix,
)
from tests.damage.recovery.campaign.results import (
    Kept,
    contradict,
    most_in_order,
    offsets_and_sizes,
)
from tests.support.segments import V2_FIELDS

# Positions in a batch of bytes that its checksum covers, by magic.
_COVERED = {0: 16, 1: 16, 2: 21}
_MOST_BYTES = 4000  # larger than any batch of these logs
CLEAR_MAJORITY = 8  # so many times as many as what they contradict need no mark


class Oracle:
    """What is known of one damaged log."""

    def __init__(self, log: KnownLog, damaged: TrackedBytes) -> None:
        self.log, self.damaged = log, damaged
        self.data = bytes(damaged.data)
        self.instances = damaged.instances(log.batches)
        self.row_of = {(one.first, one.data): row for row, one in enumerate(log.batches)}
        self.starts = [one.position for one in log.batches]
        self.older = {one.data[_COVERED[one.data[16]] :]: one for one in [*log.cut, *log.older]}

    # ---- what must be kept ------------------------------------------------------------------

    def losses(self, kept: list[Kept], highest: int) -> Iterator[str]:
        """
        Yield violations and exceptions about batches that are not kept.

        `highest` is the last offset of the segment, as far as the reader knew it.
        """
        prefix = valid_prefix(self.data, self.log.base_offset, highest)
        rows = self._kept_rows(kept)
        most = most_in_order(
            [(at, self.log.batches[row]) for at, row in sorted(self.instances.items())]
        )
        if len(rows) < most:
            yield from self._loss(kept, rows, most, prefix)
        yield from self._prefix_losses(kept, rows, prefix)

    def _kept_rows(self, kept: list[Kept]) -> set[int]:
        """
        Return the batches of the log that are kept.

        One whose leader epoch is wrong counts if it is doubtful, and the bytes have it elsewhere:
        the copies differ in the epoch only, and a reader keeps one of them.
        """
        known = set(self.instances.values())
        rows = {one.row for one in kept if one.row is not None}
        for one in kept:
            origin = self.origin_of(one.position)
            if one.row is None and one.is_doubtful and origin in known:
                batch = self.log.batches[origin]
                is_same = (one.first, one.size) == (batch.first, len(batch.data))
                rows |= {origin} if is_same else set()
        return rows

    def _loss(
        self, kept: list[Kept], rows: set[int], most: int, prefix: list[ReadBatch]
    ) -> Iterator[str]:
        rivals = self._rivals(kept, self._lost(rows))
        rivals_of_copies = self._rivals(kept, self._left_out(kept))
        found = len(rows) + len(rivals)
        if found >= most:
            name, doubtful = (
                "outweighed by batches",
                self._are_marked(kept, rivals, self._lost(rows)),
            )
        elif len(rows) + len(rivals_of_copies) >= most:
            name = "outweighed by batches that contradict copies"
            doubtful = self._are_marked(kept, rivals_of_copies, self._left_out(kept))
        elif found >= self._most_after(prefix):
            name, doubtful = "contradict the prefix", self._is_marked(kept, rows)
        elif found + self._against_chain(kept, rows) >= most:
            name, doubtful = "contradict the first chain", self._is_marked(kept, rows)
        elif found + self._within_lengths(kept, rows) >= most:
            yield "within the length of a damaged batch"
            return
        elif found + self._overlapped(rows) >= most:
            yield "begins in the last bytes of another valid batch"
            return
        else:
            yield f"VIOLATION lost: {most - len(rows)} undisturbed batches, {len(rivals)} rivals"
            return
        if doubtful:
            yield f"{name}, which are doubtful"
        elif len(rows) + self._within_lengths(kept, rows) >= most:
            yield "within the length of a damaged batch"
        elif len(rows) + self._overlapped(rows) >= most:
            yield "begins in the last bytes of another valid batch"
        else:
            yield f"VIOLATION unmarked: {name}"

    def _is_marked(self, kept: list[Kept], rows: set[int]) -> bool:
        """Return whether the kept batches that contradict lost ones are doubtful."""
        return self._are_marked(kept, kept, self._lost(rows))

    def _are_marked(
        self, kept: list[Kept], rivals: list[Kept], lost: list[tuple[int, KnownBatch]]
    ) -> bool:
        """
        Return whether rivals that contradict lost batches are marked.

        If far more kept batches contradict those at a place, they need no mark.
        """
        places = [sum(one.position < at for one in kept) for at, _ in lost]
        for place, (at, batch) in zip(places, lost, strict=True):
            against = [one for one in kept if self._is_against(at, batch, one)]
            is_clear = len(against) > CLEAR_MAJORITY * places.count(place)
            if not is_clear and not all(one.is_doubtful for one in against if one in rivals):
                return False
        return True

    def _is_against(self, position: int, batch: KnownBatch, kept: Kept) -> bool:
        """Return whether a kept batch contradicts another one, and all equal bytes do."""
        return contradict(position, batch, kept) and all(
            contradict(position, batch, dataclasses.replace(kept, position=at))
            for at in self._positions_of(self.data[kept.position : kept.stop])
        )

    def _positions_of(self, data: bytes) -> Iterator[int]:
        at = self.data.find(data)
        while at >= 0:
            yield at
            at = self.data.find(data, at + 1)

    def _left_out(self, kept: list[Kept]) -> list[tuple[int, KnownBatch]]:
        """Return the intact batches that are not kept where they are, copies included."""
        positions = {one.position for one in kept}
        return [
            (at, self.log.batches[row]) for at, row in self.instances.items() if at not in positions
        ]

    def _lost(self, rows: set[int]) -> list[tuple[int, KnownBatch]]:
        return [
            (at, self.log.batches[row]) for at, row in self.instances.items() if row not in rows
        ]

    def _most_after(self, prefix: list[ReadBatch]) -> int:
        """Return how many intact batches can be kept together with Kafka's valid prefix."""
        if not prefix:
            return len(self.instances)
        end = prefix[-1]
        return len(self._own(prefix)) + most_in_order(
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
            any(contradict(at, self.log.batches[row], one) for one in chain)
            for at, row in self.instances.items()
            if row not in rows and at >= end
        )

    def _within_lengths(self, kept: list[Kept], rows: set[int]) -> int:
        """
        Return how many lost batches are within the length that a damaged header claims.

        Copies of batches in the value of a record are, too.
        """
        stops = [0, *(one.stop for one in kept), *(one.position for one in kept)]
        valid = (read_batch(self.data, at) for at in range(len(self.data)))
        stops += [one.position + one.size for one in valid if one is not None]
        frames = [frame for one in stops for frame in self._frames(one)]
        return sum(
            any(start < at < stop for start, stop in frames)
            for at, row in self.instances.items()
            if row not in rows
        )

    def _overlapped(self, rows: set[int]) -> int:
        """Return how many lost batches begin within a valid batch that ends within them."""
        return sum(
            any(
                one is not None and at < start + one.size < at + len(batch.data)
                for start in range(max(0, at - _MOST_BYTES), at)
                for one in [read_batch(self.data, start)]
            )
            for at, batch in self._lost(rows)
        )

    def _frames(self, position: int) -> Iterator[tuple[int, int]]:
        """Yield what headers from a position on claim to be batches, up to the next valid one."""
        while position + 17 <= len(self.data) and self.data[position + 16] <= 2:
            size = 12 + int.from_bytes(self.data[position + 8 : position + 12], signed=True)
            if size < 26 or read_batch(self.data, position) is not None:
                return
            yield position, position + size
            position += size

    def _own(self, prefix: list[ReadBatch]) -> set[int]:
        positions = {one.position for one in prefix}
        return {row for at, row in self.instances.items() if at in positions}

    def _rivals(self, kept: list[Kept], others: list[tuple[int, KnownBatch]]) -> list[Kept]:
        """Return kept, valid batches that are not of the log, and contradict others that are."""
        return [
            one
            for one in kept
            if one.row is None
            and any(contradict(at, batch, one) for at, batch in others)
            and self._has_valid_crc(one)
        ]

    def _has_valid_crc(self, one: Kept) -> bool:
        return one.is_repaired or read_batch(self.data, one.position) is not None

    def _prefix_losses(
        self, kept: list[Kept], rows: set[int], prefix: list[ReadBatch]
    ) -> Iterator[str]:
        if not (missing := self._own(prefix) - rows):
            return
        pinned = self._most_after(prefix)
        lost = [
            (one.position, self.log.batches[row])
            for one in prefix
            if (row := self.instances.get(one.position)) in missing and row is not None
        ]
        rivals = [
            one for one in kept if any(self._is_against(at, batch, one) for at, batch in lost)
        ]
        found = len(rows) + len(self._rivals(kept, self._lost(rows)))
        is_clear = len(rivals) > CLEAR_MAJORITY * len(missing)
        if not is_clear and not all(one.is_doubtful for one in rivals):
            yield "VIOLATION unmarked: contradict the prefix"
        elif len(missing) == 1 and sum(self._has_valid_crc(one) for one in rivals) == 1:
            yield "one batch of the prefix against one after it"
        elif found <= pinned and found + self._against_chain(kept, rows) <= pinned:
            yield f"VIOLATION prefix: {len(missing)} batches of Kafka's recovery"
        else:
            yield "prefix contradicted by more batches after it"

    # ---- what may be kept -------------------------------------------------------------------

    def strangers(self, kept: list[Kept], repairs: list[FieldRepair]) -> Iterator[str]:
        """Yield violations and exceptions about kept batches that the log did not have."""
        uncertain = {one.position for one in repairs if not one.is_certain}
        homes = {self.log.batches[row].first for row in self.damaged.resigned}
        for one in kept:
            if one.row is not None:
                if one.is_doubtful:
                    yield "intact but doubtful"
            elif self.origin_of(one.position) in self.damaged.resigned or one.first in homes:
                yield "stranger: re-signed"
            elif one.position in uncertain:
                yield "stranger: uncertain repair"
            elif one.is_doubtful:
                yield "stranger: doubtful"
            else:
                yield self._unmarked_stranger(kept, one)

    def _unmarked_stranger(self, kept: list[Kept], one: Kept) -> str:
        batch = self._batch_at(one.position, one.stop)
        if batch is not None and batch.first != one.first:
            return "stranger: base offset that fits"
        if batch is not None and not self._has_epoch_of(batch, one):
            epochs = [each.epoch for each in kept if each.epoch is not None]
            row = sum(each.position < one.position for each in kept if each.epoch is not None)
            around = epochs[max(0, row - 1) : row + 2]
            is_between = around == sorted(around)
            return (
                "stranger: leader epoch that fits" if is_between else f"VIOLATION epochs: {around}"
            )
        if batch is not None:
            return "stranger: older batch that fits"
        if one.position in {0, *(other.stop for other in kept)}:
            return "stranger: foreign batch that follows without damaged bytes"
        frames = (
            frame for each in [0, *(each.stop for each in kept)] for frame in self._frames(each)
        )
        if one.position in {stop for _, stop in frames}:
            return "stranger: foreign batch where a damaged one claims to end"
        return f"VIOLATION stranger: at {one.position}, offset {one.first}"

    def _has_epoch_of(self, batch: KnownBatch, one: Kept) -> bool:
        return one.epoch is None or one.epoch == int.from_bytes(batch.data[12:16], signed=True)

    def _batch_at(self, position: int, stop: int) -> KnownBatch | None:
        """Return the batch whose covered bytes are in a range, of the log or an older one."""
        row = self.origin_of(position)
        if row is not None:
            return self.log.batches[row]
        covered = (self.data[position + at : stop] for at in set(_COVERED.values()))
        return next((self.older[data] for data in covered if data in self.older), None)

    # ---- repairs ----------------------------------------------------------------------------

    def changes(self, kept: list[Kept], repairs: list[FieldRepair]) -> Iterator[str]:
        """Yield violations and exceptions about repaired fields."""
        rows, stops = {one.row for one in kept}, {one.position: one.stop for one in kept}
        end = max((one.last for one in kept), default=-1)
        for one in repairs:
            certainty = "certain" if one.is_certain else "uncertain"
            text = f"at {one.position}, {one.field} {one.old} -> {one.new}, {certainty}"
            if (row := self.instances.get(one.position)) is not None:
                is_end = one.field == "base_offset" and row not in rows and one.old > end
                if row in self.damaged.resigned and not one.is_certain:
                    yield "repair: moved batch whose place has a re-signed one, uncertain"
                elif self._has_twin(kept, one) and not one.is_certain:
                    yield "repair: moved batch whose offset a damaged one has, uncertain"
                elif is_end and not one.is_certain:
                    yield "repair: batch that the end of the log has lost, uncertain"
                else:
                    yield f"VIOLATION changed: intact batch {text}"
                continue
            batch = self._batch_at(one.position, stops[one.position])
            if one.field in ("batch_length", "magic") and not self._has_bytes_of(batch, one, stops):
                batch = None
            expected = None if batch is None else self._value(batch, one)
            if expected == one.new:
                yield f"repair: right, {certainty}"
            elif batch is None and one.field in ("batch_length", "magic"):
                yield "repair: foreign batch whose checksum proves the field"
            elif one.is_certain:
                yield f"VIOLATION certain: {text}, was {expected}"
            else:
                yield "repair: wrong, uncertain"

    def _has_bytes_of(
        self, batch: KnownBatch | None, repair: FieldRepair, stops: dict[int, int]
    ) -> bool:
        """Return whether the bytes that a checksum covers are those of a batch."""
        covered = _COVERED[batch.data[16]] if batch is not None else 0
        found = self.data[repair.position + covered : stops[repair.position]]
        return batch is not None and found == batch.data[covered:]

    def _has_twin(self, kept: list[Kept], repair: FieldRepair) -> bool:
        """Return whether a kept batch that is not the log's has the stored base offset."""
        return repair.field == "base_offset" and any(
            one.first == repair.old and one.row is None for one in kept
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

    def rows_of_scan(self, scan: ks.BatchScan) -> list[Kept]:
        """Return the rows of a scan."""
        return [
            Kept(at, size, first, last, self.row_of.get((first, self.data[at : at + size])), mark)
            for (at, size, first, last), mark in zip(
                offsets_and_sizes(scan.batches), scan.is_doubtful.tolist(), strict=True
            )
        ]

    def repaired(self, log: RepairedLog) -> bytes:
        """Return the damaged bytes with repaired headers."""
        data = bytearray(self.data)
        for position, patch in log.patches().items():
            data[position : position + len(patch)] = patch
        return bytes(data)

    def rows_of_salvage(self, segment: SegmentSalvage, repaired: RepairedLog) -> list[Kept]:
        """Return the batches of a salvage; an uncertain repair is a mark, too."""
        patches = repaired.patches()
        doubtful = [piece for piece in segment.pieces if piece.is_doubtful]
        guesses = {one.position for one in segment.repairs if not one.is_certain}
        found = []
        for at, size, first, last in offsets_and_sizes(repaired.batches):
            patch = patches.get(at, b"")
            data = patch + self.data[at + len(patch) : at + size]
            is_doubtful = at in guesses or any(
                one.position <= at < one.position + one.size for one in doubtful
            )
            row = self.row_of.get((first, data))
            epoch = int.from_bytes(data[12:16], signed=True) if data[16] == 2 else None
            is_repaired = at in patches
            found.append(Kept(at, size, first, last, row, is_doubtful, is_repaired, epoch))
        return found
