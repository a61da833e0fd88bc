"""What can be kept of a damaged segment, and what is lost of it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan.batch_columns import BatchTable, last_offset, size_in_bytes
from kafkascan.errors import SENTENCES, STATUS
from kafkascan.layout import BATCH_HEADER_SIZE, NO_PRODUCER_ID, NO_SEQUENCE, ScanEnd
from kafkascan.mending import Hole, MendedLog, Repair, mend, mend_epochs
from kafkascan.resync import ResyncScan
from kafkascan.sources import Source
from kafkascan.true_batches import HIGHEST_OFFSET
from kafkascan.walks import read_bytes, row_of_header

Doubtful: TypeAlias = Literal["keep", "drop"]

_PAGE = 512
_MOST_OFFSETS = (1 << 31) - 1
_READ_AT_ONCE = 1 << 22
# Batches before and behind a piece whose epochs say which ones it may have.
_WITNESSES = 8


@dataclass(frozen=True)
class Loss:
    """
    Bytes of a segment that are given up.

    Attributes
    ----------
    position, size : int
        In bytes.
    symbol, reason : str
        What is wrong at the position.
    first_offset, last_offset : int or None
        Records that were lost have offsets in between, inclusively; the segment's own bounds
        where nothing is kept on that side. None where those are not known, or leave no room for
        a record. There may be less of them: compaction and transactions leave gaps of their own.
    claimed_first_offset, claimed_last_offset, claimed_records : int or None
        What the header there says, if it is one of a batch.
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
class Piece:
    """
    A row of batches, one at the end of the other, that is kept.

    Attributes
    ----------
    position, size : int
        In bytes.
    batches : int
    first_offset, last_offset : int
    is_doubtful : bool
        Whether nothing but checksums and offsets says that it is the log's own: the header
        before it is damaged, and nothing behind it goes on where it ends. A copy of batches
        in the value of a damaged record looks like that.
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
    What became of one segment.

    Attributes
    ----------
    name : str
        Of the log file.
    base_offset : int or None
        By that name.
    size, kept_bytes : int
    batches : int
        That are kept.
    records : int or None
        In them; None if compressed messages of magic 0 or 1 do not say how many they hold.
    end : ScanEnd or None
        How the log ended. A zero tail is not copied, and is no loss.
    pieces : list of Piece
    losses : list of Loss
    repairs : list of Repair
    error : Exception or None
        Why the segment could not be copied; all of it is lost then.
    """

    name: str
    base_offset: int | None
    size: int = 0
    kept_bytes: int = 0
    batches: int = 0
    records: int | None = 0
    end: ScanEnd | None = None
    pieces: list[Piece] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    repairs: list[Repair] = field(default_factory=list)
    error: Exception | None = None

    @property
    def lost_bytes(self) -> int:
        """Bytes of all losses."""
        return sum(loss.size for loss in self.losses)

    def give_up(self, error: Exception, size: int, highest: int | None) -> None:
        """Count all of it as lost."""
        self.error, self.size = error, size
        self.kept_bytes = self.batches = self.records = 0
        self.pieces, self.repairs = [], []
        reason = str(error)
        self.losses = [
            Loss(0, size, "NOT_COPIED", reason, self.base_offset, highest, None, None, None, 0)
        ]


def salvage_segment(
    source: Source,
    result: SegmentSalvage,
    *,
    highest: int = HIGHEST_OFFSET,
    known_epochs: Collection[int] = (),
    doubtful: Doubtful = "keep",
    threads: int | None = 1,
) -> MendedLog:
    """
    Find what can be kept of a segment.

    Parameters
    ----------
    source : Source
    result : SegmentSalvage
        Is filled.
    highest : int
        Last offset that the segment may hold.
    known_epochs : collection of int
        Leader epochs that the file beside the log knows of.
    doubtful : {"keep", "drop"}
        What to do with pieces of which nothing but checksums and offsets says that they are
        the log's own.
    threads : int, optional
        As of `verify_crcs`.

    Returns
    -------
    MendedLog
        The batches to write.
    """
    lowest, known_end = result.base_offset or 0, highest if highest < HIGHEST_OFFSET else None
    if result.base_offset is not None:  # an index counts no further
        highest = min(highest, lowest + _MOST_OFFSETS)
    scan = ResyncScan(source, 0, source.size, threads, verify=True, lowest=lowest, highest=highest)
    log = mend(source, scan, lowest, highest)
    pieces = _leave_out_foreign(log, source, doubtful=doubtful)
    mend_epochs(log, known_epochs)
    result.end, result.size, result.pieces = scan.end, source.size, pieces
    result.batches, result.repairs = len(log.batches), log.repairs
    counts = log.batches["records_count"]
    result.records = None if (counts < 0).any() else int(counts.sum(dtype=np.int64))
    result.kept_bytes = int(size_in_bytes(log.batches).sum())
    result.losses = _losses(source, log, result.base_offset, known_end)
    return log


# ---- pieces ----------------------------------------------------------------------------------


def _leave_out_foreign(log: MendedLog, source: Source, *, doubtful: Doubtful) -> list[Piece]:
    """Move pieces that are not the log's own to the holes; return the others."""
    pieces = _pieces(log, source)
    foreign = [
        index
        for index, (start, stop, piece) in enumerate(pieces)
        if piece.is_doubtful and (doubtful == "drop" or _is_foreign(log.batches, start, stop))
    ]
    keep = np.ones(len(log.batches), np.bool_)
    for index in foreign:
        start, stop, piece = pieces[index]
        keep[start:stop] = False
        log.holes.append(Hole(piece.position, piece.position + piece.size, None))
    if foreign:
        log.batches = log.batches[keep]
        dropped = {pieces[index][2].position for index in foreign}
        log.holes.sort(key=lambda hole: hole.start)
        log.repairs = [one for one in log.repairs if one.position not in dropped]
    gone = set(foreign)
    return [piece for index, (_, _, piece) in enumerate(pieces) if index not in gone]


def _pieces(log: MendedLog, source: Source) -> list[tuple[int, int, Piece]]:
    batches = log.batches
    if not len(batches):
        return []
    stops = batches["position"] + size_in_bytes(batches)
    heads = np.concatenate(
        [[0], np.flatnonzero(batches["position"][1:] != stops[:-1]) + 1, [len(batches)]]
    )
    ends = last_offset(batches)
    found = []
    for start, stop in zip(heads[:-1].tolist(), heads[1:].tolist(), strict=True):
        position, end = int(batches["position"][start]), int(stops[stop - 1])
        previous = int(ends[start - 1]) if start > 0 else None
        first, last = int(batches["base_offset"][start]), int(ends[stop - 1])
        is_doubtful = (
            position > 0
            and end < source.size
            and (previous is None or first != previous + 1)
            and not _goes_on(source, end, last)
            and not _is_announced(source, log.holes, position, first)
        )
        piece = Piece(position, end - position, stop - start, first, last, is_doubtful)
        found.append((start, stop, piece))
    return found


def _header_at(source: Source, position: int) -> BatchTable:
    """Return the row of a plausible header, whatever its length and checksum are."""
    header = read_bytes(source, position, BATCH_HEADER_SIZE)
    return row_of_header(header, position, max(source.size - position, len(header)))


def _goes_on(source: Source, end: int, last: int) -> bool:
    """Tell whether what stands behind a piece says an offset as of a batch that follows it."""
    said = read_bytes(source, end, 8)
    return not any(said) or int.from_bytes(said, "big", signed=True) == last + 1


def _is_announced(source: Source, holes: list[Hole], position: int, first: int) -> bool:
    """Tell whether the damage before a piece begins with a header that ends there, or says so."""
    for hole in holes:
        if hole.stop == position:
            row = _header_at(source, hole.start)
            return bool(len(row)) and (
                int(last_offset(row)[0]) + 1 == first
                or hole.start + int(size_in_bytes(row)[0]) == position
            )
    return False


def _is_foreign(batches: BatchTable, start: int, stop: int) -> bool:
    """Tell whether leader epochs or sequences contradict that a piece is the log's own."""
    piece = batches[start:stop]
    before = batches[max(0, start - _WITNESSES) : start]
    behind = batches[stop : stop + _WITNESSES]
    return _has_other_epochs(piece, before, behind) or _has_other_sequences(
        piece, batches[:start], batches[stop:]
    )


def _has_other_epochs(piece: BatchTable, before: BatchTable, behind: BatchTable) -> bool:
    def epochs(table: BatchTable) -> NDArray[np.int32]:
        found: NDArray[np.int32] = table["partition_leader_epoch"][table["magic"] == 2]
        return found

    mine, low, high = epochs(piece), epochs(before), epochs(behind)
    if not len(mine):
        return False
    is_below = len(low) > 0 and int(mine.max()) < int(low.min())
    is_above = len(high) > 0 and int(mine.min()) > int(high.max())
    return bool(is_below or is_above)


def _has_other_sequences(piece: BatchTable, before: BatchTable, behind: BatchTable) -> bool:
    """Tell whether a producer would have gone back, in the same epoch, and come again."""
    is_of_producer = (piece["producer_id"] > NO_PRODUCER_ID) & (
        piece["base_sequence"] > NO_SEQUENCE
    )
    if not is_of_producer.any():
        return False
    one = piece[is_of_producer][0]
    last = _of_same_writer(before[-_WITNESSES:], one)
    following = _of_same_writer(behind[:_WITNESSES], one)
    if not (len(last) and len(following)):
        return False
    low, high = int(last["base_sequence"][-1]), int(following["base_sequence"][0])
    return low < high and not low < int(one["base_sequence"]) < high


def _of_same_writer(batches: BatchTable, one: np.void) -> BatchTable:
    is_same = batches["producer_id"] == one["producer_id"]
    is_same &= batches["producer_epoch"] == one["producer_epoch"]
    is_same &= batches["base_sequence"] > NO_SEQUENCE
    found: BatchTable = batches[is_same]
    return found


# ---- losses ----------------------------------------------------------------------------------


def _losses(
    source: Source, log: MendedLog, base_offset: int | None, known_end: int | None
) -> list[Loss]:
    ends = last_offset(log.batches)
    places = np.searchsorted(log.batches["position"], [hole.start for hole in log.holes])
    losses = []
    for hole, place in zip(log.holes, places.tolist(), strict=True):
        first = int(ends[place - 1]) + 1 if place > 0 else base_offset
        last = known_end
        if place < len(ends):
            row = log.batches[place]
            is_known = row["magic"] == 2 or row["records_count"] >= 0
            last = int(row["base_offset"]) - int(is_known)
        if first is not None and last is not None and last < first:
            first = last = None
        losses.append(_loss(source, hole, first, last))
    return losses


def _loss(source: Source, hole: Hole, first: int | None, last: int | None) -> Loss:
    symbol = "NESTED" if hole.error is None else hole.error.symbol
    reason = SENTENCES[STATUS["NESTED"]] if hole.error is None else hole.error.reason
    row = _header_at(source, hole.start)
    is_header = len(row) > 0 and symbol not in ("BAD_LENGTH", "BAD_MAGIC")
    return Loss(
        position=hole.start,
        size=hole.stop - hole.start,
        symbol=symbol,
        reason=reason,
        first_offset=first,
        last_offset=last,
        claimed_first_offset=int(row["base_offset"][0]) if is_header else None,
        claimed_last_offset=int(last_offset(row)[0]) if is_header else None,
        claimed_records=int(row["records_count"][0]) if is_header else None,
        zero_bytes=_zero_bytes(source, hole.start, hole.stop),
    )


def _zero_bytes(source: Source, start: int, stop: int) -> int:
    """Count bytes in aligned blocks that are all zero."""
    count = 0
    position = -(-start // _PAGE) * _PAGE
    while position + _PAGE <= stop:
        hole_end = min(source.skip_hole(position), stop) // _PAGE * _PAGE
        if hole_end > position:  # zeros that are not even stored
            count += hole_end - position
            position = hole_end
            continue
        size = min(_READ_AT_ONCE, (stop - position) // _PAGE * _PAGE)
        data = np.frombuffer(read_bytes(source, position, size), np.uint8)
        count += _PAGE * int((~data.reshape(-1, _PAGE).any(axis=1)).sum())
        position += size
    return count
