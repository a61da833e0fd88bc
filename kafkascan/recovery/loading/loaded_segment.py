"""A segment of a log that is being loaded, with the lookups that Kafka makes in it."""

from __future__ import annotations

import bisect
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, join_tables, offset_after
from kafkascan.batches.resyncing.resync import scan_with_resync
from kafkascan.batches.scan import iter_open_batches
from kafkascan.batches.summary import summarize
from kafkascan.batches.verify import verify_crcs
from kafkascan.broker_state.indexes import floor_entry
from kafkascan.format.errors import (
    SENTENCES,
    STATUS,
    CorruptBatchError,
    CorruptIndexError,
    CorruptLogError,
)
from kafkascan.format.findings import Finding, Severity
from kafkascan.format.layout import OFFSET_INDEX_ENTRY, ScanEnd
from kafkascan.io.sources import READ_AT_ONCE, Source
from kafkascan.logs.log_finding import partition_of
from kafkascan.logs.log_problems import offset_problems
from kafkascan.logs.opened_logs import LogView, rewrite_marks
from kafkascan.logs.segment import SegmentFile, segment_file
from kafkascan.logs.walking.batch_offsets import SegmentOffsets
from kafkascan.recovery.loading.offset_search import find_offset, framed_batches, is_batch_at
from kafkascan.recovery.loading.planned_files import PlannedFiles
from kafkascan.recovery.loading.segment_recovery import (
    RecoveredSegment,
    SegmentBatches,
    rows_at_once,
)
from kafkascan.tables.table import Problem

_DIGITS = 20
# Number of file names whose parsed offsets are cached: each name is parsed several times.
_NAMES_KNOWN = 4096
_ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class LoadFinding(Finding):
    """
    A fact about a log that its recovery does not change.

    Attributes
    ----------
    file : str or None
        Name of the file in the partition directory; None if the whole log is affected.
    """

    file: str | None = None


@dataclass(frozen=True)
class DiscardedRange:
    """
    The end of a segment, or all of it, that a broker discards.

    Attributes
    ----------
    size : int
        In bytes.
    first_offset : int
        The offset after the last batch that is kept; for a dropped segment its base offset.
    last_offset : int or None
        Last offset of the intact batches in the range; None if there are none. More offsets may
        be lost.
    batches : int
        Number of intact batches in the range, as a scan finds them after the damage.
    records : int
        Number of records of these batches whose headers contain a number.
    is_zeros : bool
        Whether the range is the end of a preallocated file, which contains no records.
    """

    size: int
    first_offset: int
    last_offset: int | None
    batches: int
    records: int
    is_zeros: bool


@dataclass
class SegmentReport:
    """
    The state of one segment after loading.

    Attributes
    ----------
    name : str
        Name of the log file.
    base_offset, next_offset : int
    batches : int
        Number of valid batches; for a dropped segment, of all its batches.
    size, valid_bytes : int
    is_recovered : bool
        Whether the segment was read in full; segments before the recovery point are not.
    is_verified : bool
        Whether the checksums of its batches were verified.
    reason : str or None
        Why the segment is truncated at `valid_bytes`, or dropped.
    discarded : DiscardedRange or None
        What a broker discards; None if it keeps the whole segment.
    """

    name: str
    base_offset: int
    next_offset: int
    batches: int
    size: int
    valid_bytes: int
    is_recovered: bool
    is_verified: bool
    reason: str | None
    discarded: DiscardedRange | None = None

    @property
    def truncated_bytes(self) -> int:
        """Bytes after the last valid batch."""
        return self.size - self.valid_bytes


@dataclass
class _WrongChecksums:
    """
    Batches of a segment whose checksums are wrong.

    Attributes
    ----------
    count : int
    first : (int, int, int) or None
        Row, position and base offset of the first one.
    """

    count: int = 0
    first: tuple[int, int, int] | None = None

    def add(self, source: Source, batches: BatchTable, first_row: int) -> None:
        """Verify the next batches."""
        wrong = np.flatnonzero(~verify_crcs(source, batches, threads=1))
        self.count += len(wrong)
        if len(wrong) and self.first is None:
            batch = batches[wrong[0]]
            place = int(batch["position"]), int(batch["base_offset"])
            self.first = first_row + int(wrong[0]), *place


class LoadedSegment:
    """
    A segment of a log that is being loaded. Its batches are read on demand and not kept.

    Parameters
    ----------
    files : PlannedFiles
    base_offset : int
    suffix : str
        Suffix of its file names, such as ``.swap``.

    Attributes
    ----------
    name : str
        Name of the log file.
    path : str
        Its path, for errors.
    size, valid_bytes : int
    is_recovered : bool
    is_emptied : bool
        Whether Kafka discards all batches, because offsets do not ascend.
    is_verified : bool
        Whether the checksums of its batches were verified.
    damage : list of LoadFinding
        Damage in a segment that was not recovered, so that it stays.
    """

    def __init__(self, files: PlannedFiles, base_offset: int, suffix: str = "") -> None:
        self.base_offset = base_offset
        self._files = files
        self._stem, self._suffix = f"{base_offset:020}", suffix
        self.name = self.sibling("log")
        self._source = files.source(self.name)
        self.path = self._source if isinstance(self._source, str) else files.path(self.name)
        self.size = self.valid_bytes = files.size(self.name)
        self.reason: str | None = None
        self.is_recovered = self.is_emptied = False
        self.is_verified = False
        self.damage: list[LoadFinding] = []
        self._batches: SegmentBatches | None = None
        self._next_offset: int | None = None

    def sibling(self, kind: str) -> str:
        """Return the name of the segment's file of a kind, such as "index"."""
        return f"{self._stem}.{kind}{self._suffix}"

    def open(self) -> Source:
        """Open the log, at its current location."""
        return Source(self._source, read_below=READ_AT_ONCE)

    def _open_up_to(self, stop: int) -> Source:
        if isinstance(self._source, bytes):
            return Source(self._source[:stop])
        return Source(self._source, read_below=READ_AT_ONCE, max_size=stop)

    @property
    def file(self) -> SegmentFile:
        """The segment's file."""
        return segment_file(Path(self.name), self._files.disk_folder)

    def set_recovered(self, recovered: RecoveredSegment) -> None:
        """Set the result of a recovery."""
        self.is_recovered = self.is_verified = True
        self.is_emptied = recovered.is_emptied
        self.valid_bytes = recovered.batches.end
        self.reason = recovered.reason
        self._batches = recovered.batches
        # What the lookup of the next offset finds by a rebuilt index, if that is plain.
        self._next_offset = None if self.is_emptied else recovered.batches.plain_end

    def offsets_error(self) -> CorruptLogError:
        """Return the error of a segment whose offsets do not ascend."""
        symbol = "OFFSETS_NOT_ASCENDING"
        return CorruptLogError(self.path, 0, self.base_offset, SENTENCES[STATUS[symbol]], symbol)

    # ---- Kafka's lookups --------------------------------------------------------------------

    def read_next_offset(self) -> int:
        """
        Return the offset after the last batch, as Kafka finds it (``LogSegment.readNextOffset``).

        Raises
        ------
        CorruptLogError
            If Kafka's lookup fails, so that it does not load the log.
        """
        if self._next_offset is None:
            self._next_offset = self._find_next_offset()
        return self._next_offset

    def _find_next_offset(self) -> int:
        entries = self._index_entries()
        last = self.base_offset + (int(entries["relative_offset"][-1]) if len(entries) else 0)
        end = self.base_offset
        with self._open_up_to(self.valid_bytes) as source:
            position = self._find_in(source, entries, last)
            if position is not None:
                for batches in framed_batches(source, position, rows=_ROWS_AT_ONCE):
                    end = offset_after(batches)
        return end

    def find(self, offset: int) -> int | None:
        """
        Return the position where Kafka starts to read for an offset.

        As ``LogSegment.translateOffset``: the index gives a position to search from.

        Raises
        ------
        CorruptLogError
            If Kafka's lookup fails, so that it does not load the log.
        """
        entries = self._index_entries()
        with self._open_up_to(self.valid_bytes) as source:
            return self._find_in(source, entries, offset)

    def _find_in(self, source: Source, entries: NDArray[np.void], offset: int) -> int | None:
        row = floor_entry(entries, "relative_offset", offset - self.base_offset)
        start = 0 if row < 0 else int(entries["position"][row])
        try:
            if start >= 0:
                return find_offset(source, start, offset)
            target = "a negative position"
        except CorruptBatchError:
            if is_batch_at(source, start):
                raise
            target = f"position {start}, where no batch starts"
        reason = (
            f"the entry for offset {offset} points to {target}."
            " Delete the index; the broker rebuilds it at startup"
        )
        path, position = self._files.path(self.sibling("index")), row * entries.itemsize
        raise CorruptIndexError(path, position, offset, reason, "WRONG_POSITION")

    def batches(self, start: int, stop: int) -> BatchTable:
        """Return the batches between two positions, framed as in `find`."""
        return join_tables(list(self._framed(start, stop)))

    def _framed(self, start: int, stop: int) -> Iterator[BatchTable]:
        with self._open_up_to(stop) as source:
            yield from framed_batches(source, start, rows=_ROWS_AT_ONCE)

    def _index_entries(self) -> NDArray[np.void]:
        """Return all entries of the offset index, including zeros, as Kafka reads them."""
        name = self.sibling("index")
        data = self._files.read(name) if name in self._files else b""
        whole = len(data) - len(data) % OFFSET_INDEX_ENTRY.itemsize
        return np.frombuffer(data[:whole], OFFSET_INDEX_ENTRY)

    # ---- the report -------------------------------------------------------------------------

    def check_headers(self, *, verify: bool) -> None:
        """Read the batch headers of a segment that was not recovered, and set its `damage`."""
        if self._batches is not None:
            return
        self._batches = SegmentBatches(self.file)
        wrong = _WrongChecksums()
        with self._open_up_to(self.valid_bytes) as source:
            headers = iter_open_batches(source, rows=rows_at_once(source), on_corrupt="stop")
            for table in headers:
                if verify:
                    wrong.add(source, table, self._batches.count)
                self._batches.add(table)
        if headers.error is not None:
            self._add_damage("CORRUPT", headers.error.reason, headers.valid_bytes)
        elif headers.end is not None and headers.end is not ScanEnd.CLEAN:
            message = f"{headers.trailing_bytes} bytes after the last batch"
            self._add_damage(headers.end.name, message, headers.valid_bytes)
        self.is_verified = verify
        if wrong.first is not None:
            row, position, offset = wrong.first
            message = f"{wrong.count} batches have a wrong checksum, the first at offset {offset}"
            self._add_damage("CHECKSUM_MISMATCH", message, position, row)

    def _add_damage(self, symbol: str, what: str, position: int, row: int | None = None) -> None:
        message = (
            f"{what}. The segment is below the recovery point: a broker does not recover it,"
            " and consumers fail there. Restore the log from another replica, or copy its intact"
            " batches with `kafkascan salvage`"
        )
        found = LoadFinding(symbol, Severity.ERROR, message, row, position, self.name)
        self.damage.append(found)

    def offsets(self) -> SegmentOffsets:
        """Return the offsets of its batches."""
        self.check_headers(verify=False)
        assert self._batches is not None
        self._batches.offsets.is_whole = not self.damage
        return self._batches.offsets

    def report(self, dropped_because: str | None = None) -> SegmentReport:
        """Return the report of the segment; a reason marks it as dropped."""
        end = self.offsets().end_offset
        assert self._batches is not None
        next_offset = self.base_offset if end is None else end
        start = 0 if dropped_because else self.valid_bytes
        first_offset = self.base_offset if dropped_because else next_offset
        return SegmentReport(
            name=self.name,
            base_offset=self.base_offset,
            next_offset=next_offset,
            batches=self._batches.count,
            size=self.size,
            valid_bytes=start,
            is_recovered=self.is_recovered,
            is_verified=self.is_verified,
            reason=dropped_because or self.reason,
            discarded=self._discarded(start, first_offset) if start < self.size else None,
        )

    def _discarded(self, start: int, first_offset: int) -> DiscardedRange:
        """Return what is lost from a position on, with the batches that a scan finds there."""
        with self.open() as source:
            # Lower offsets are those of a copy, or of old data.
            scan = scan_with_resync(
                source, start, self.size, verify=True, lowest=max(first_offset, 0)
            )
        intact = summarize(scan.batches)
        return DiscardedRange(
            size=self.size - start,
            first_offset=first_offset,
            last_offset=intact.last_offset,
            batches=intact.batches,
            records=intact.records,
            is_zeros=scan.end is ScanEnd.ZERO_TAIL and scan.position == start,
        )


def floor(segments: list[LoadedSegment], offset: int) -> int:
    """Return the index of the segment that an offset belongs to, or -1."""
    return bisect.bisect_right(segments, offset, key=lambda one: one.base_offset) - 1


def overlapping(segments: list[LoadedSegment], start: int, stop: int) -> Iterator[LoadedSegment]:
    """Yield the segments of an offset range, as ``LogSegments.values`` does."""
    for segment in segments[max(0, floor(segments, start)) :]:
        if segment.base_offset >= stop:
            return
        yield segment


@functools.lru_cache(_NAMES_KNOWN)
def offset_of(name: str) -> int | None:
    """Return the offset in a file name of Kafka's form (20 digits), or None."""
    digits = name.partition(".")[0]
    if len(digits) != _DIGITS or not (digits.isascii() and digits.isdigit()):
        return None
    return offset if (offset := int(digits)) < 1 << 63 else None


# ---- what a broker does not notice -----------------------------------------------------------


def check_segments(
    files: PlannedFiles, segments: list[LoadedSegment], log_start: int, *, verify: bool
) -> list[LoadFinding]:
    """
    Return the damage in segments that are not recovered, and what is wrong with their offsets.

    Parameters
    ----------
    files : PlannedFiles
        Of the log.
    segments : list of LoadedSegment
        The segments of the log, in order.
    log_start : int
        The log start offset.
    verify : bool
        Whether to verify the checksums of segments that are not recovered.
    """
    for segment in segments:
        segment.check_headers(verify=verify)
    damage = [one for segment in segments for one in segment.damage]
    offsets = [segment.offsets() for segment in segments]
    marks = rewrite_marks(sorted(files.names_on_disk()))
    log = LogView(partition_of(files.disk_folder), (), log_start, rewrite_marks=marks)
    return damage + [_finding_of(one, files.folder) for one in offset_problems(log, offsets)]


def _finding_of(one: Problem, folder: Path) -> LoadFinding:
    path, message = Path(one.path), one.message
    if path.parent == folder:
        return LoadFinding(one.symbol, one.severity, message, None, one.position, path.name)
    # A checkpoint of the data directory, which might have said that the log was compacted.
    return LoadFinding(one.symbol, one.severity, f"{path}: {message}", None, one.position)


def check_end(recovery_point: int, end: int) -> list[LoadFinding]:
    """Return a finding if a log ends before its recovery point."""
    if end >= recovery_point:
        return []
    message = (
        f"the log ends at offset {end}, but was flushed up to {recovery_point}: its end is lost."
        " Restore the log from another replica"
    )
    return [LoadFinding("ENDS_EARLY", Severity.ERROR, message)]
