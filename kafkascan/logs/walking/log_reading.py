"""Read the records of a log or a source from an offset on, and collect what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from kafkascan.batches.columns import BatchTable, first_reaching
from kafkascan.format.errors import CorruptBatchError, FileGoneError, KafkaScanError, detached
from kafkascan.io.sources import READ_AT_ONCE, Source, SourceLike, borrowed_source
from kafkascan.logs.log_dir import attempts_to_open
from kafkascan.logs.log_problems import BatchOffsets, LogChecks, LogProblems, SegmentOffsets
from kafkascan.logs.opened_logs import Log, OffsetCursor
from kafkascan.logs.segment import SegmentFile
from kafkascan.records.decoding import decode_records, iter_decoded, scan_headers
from kafkascan.records.read_options import HeadersEnd, ReadOptions, every_batch, ignore
from kafkascan.records.record_table import RecordTable
from kafkascan.tables.table import problem_of


def collecting(options: ReadOptions, problems: LogProblems) -> ReadOptions:
    """Return options that collect how a source ends, and its damage if it is not raised."""
    on_damage, offsets = options.on_damage, BatchOffsets()

    def note_damage(error: CorruptBatchError) -> None:
        problems.add(problem_of(detached(error), error.path))
        if on_damage is not None:
            on_damage(error)

    def add_offsets(batches: BatchTable) -> BatchTable:
        offsets.add(batches)
        return batches

    def note_end(source: Source, headers: HeadersEnd) -> None:
        if headers.error is not None:
            problems.add(problem_of(headers.error, headers.error.path))
        problems.add_offsets(source.path, offsets)
        problems.add_tail(source, headers, offsets)

    options = replace(options, on_headers=add_offsets, on_end=note_end)
    if options.on_corrupt == "raise" and on_damage is None:
        return options
    return replace(options, on_damage=note_damage)


def every_segment(_: SegmentFile) -> bool:
    """Return True."""
    return True


def last_table(problems: LogProblems, options: ReadOptions) -> Iterator[RecordTable]:
    """Yield a table that has the problems, if there are any."""
    if len(problems.found):
        none = replace(options, on_headers=every_batch, on_end=ignore)
        yield decode_records(b"", None, none).with_problems(problems.found)


class _SegmentsInTurn:
    """
    Yields the segments of a log, each with the first offset to read: see `OffsetCursor`.

    Parameters
    ----------
    log : Log
    options : ReadOptions
    problems : LogProblems
        Receives what is wrong; complete after the last segment.
    is_wanted : callable
        Returns whether the offsets of a listed segment are read: where the cleaner has replaced it
        since, by one that also has other offsets.

    Attributes
    ----------
    options : ReadOptions
        For reading the segments; the end of each is known when it was read.
    """

    def __init__(
        self,
        log: Log,
        options: ReadOptions,
        problems: LogProblems,
        is_wanted: Callable[[SegmentFile], bool],
    ) -> None:
        self._goes_on = options.on_corrupt == "stop"
        self._log, self._problems, self._is_wanted = log, problems, is_wanted
        self._checks = LogChecks(log, problems)
        self._cursor = OffsetCursor()
        self._offsets: SegmentOffsets  # of the segment that is read
        self._tail: HeadersEnd | None = None
        self._is_gone = False
        self._on_damage = options.on_damage
        self.options = replace(options, on_headers=self._unread, on_end=self._end)
        if self._goes_on or options.on_damage is not None:
            self.options = replace(self.options, on_damage=self._skip_batch)

    def __iter__(self) -> Iterator[tuple[SegmentFile, int]]:
        for listed in self._log.served_segments:
            if not self._is_wanted(listed):
                self._checks.skip()
                continue
            for segment in attempts_to_open(listed):
                self._offsets, self._tail = SegmentOffsets(segment, self._cursor.position), None
                self._is_gone = False
                yield segment, self._first_of(segment, listed)
                if not self._is_gone:
                    break
            else:
                self._checks.skip()
                continue
            if self._tail is not None:
                self._checks.add(self._offsets, self._tail)
            overlaps = self._cursor.add(segment, self._offsets.reached)
            self._problems.add_overlaps(self._log.partition, overlaps)
            self._require_complete()
        self._checks.finish()
        self._require_complete()

    def _first_of(self, segment: SegmentFile, listed: SegmentFile) -> int:
        """Return the first offset to read of a segment that has the offsets of a listed one."""
        log, base_offset = self._log, segment.base_offset or 0
        start_offset = log.start_offset if log.has_deleted_offsets else 0
        first = max(start_offset, self._cursor.position, listed.base_offset or 0)
        return first if first > base_offset else 0

    def skip(self, segment: SegmentFile, error: Exception) -> None:
        """Go on with the next segment, or raise the error; list the folder of a deleted one."""
        if isinstance(error, FileGoneError):
            self._is_gone = True
            return
        if not self._goes_on:
            raise error
        self._checks.add_error(segment, detached(error))

    def _require_complete(self) -> None:
        if not self._goes_on:
            self._problems.require_complete()

    def _skip_batch(self, error: CorruptBatchError) -> None:
        path = self._offsets.segment.path
        found = problem_of(detached(error), str(path))
        one = self._log.partition
        self._problems.add(replace(found, topic=one.topic, partition=one.partition))
        if self._on_damage is not None:
            self._on_damage(error)

    def _unread(self, batches: BatchTable) -> BatchTable:
        unread = self._offsets.unread(batches)
        self._offsets.add(unread)
        return unread

    def _end(self, _: Source, headers: HeadersEnd) -> None:
        self._tail = headers


def read_log(
    log: Log,
    options: ReadOptions,
    problems: LogProblems,
    is_wanted: Callable[[SegmentFile], bool] = every_segment,
) -> RecordTable:
    """Decode the records of a log into one table; see `read_records` and `iter_log`."""
    segments = _SegmentsInTurn(log, options, problems, is_wanted)
    is_alone = len(log.served_segments) == 1
    tables = []
    for segment, start_offset in segments:
        try:
            if is_alone:
                tables.append(read_from(segment.listed(), None, start_offset, segments.options))
                continue
            # A join has no place for maps: the loops that read its items guard one map only.
            place = segment.listed()
            with Source(place, memory_map=False, read_below=READ_AT_ONCE) as source:
                tables.append(read_from(source, None, start_offset, segments.options))
        except (OSError, KafkaScanError) as error:
            segments.skip(segment, error)
    if not tables:
        tables = [decode_records(b"", None, replace(options, on_corrupt="stop"))]
    table = tables[0] if len(tables) == 1 else RecordTable.joined(tables)
    return table.with_problems(problems.found)


def iter_log(
    log: Log,
    options: ReadOptions,
    *,
    problems: LogProblems | None = None,
    is_wanted: Callable[[SegmentFile], bool] = every_segment,
) -> Iterator[RecordTable]:
    """
    Decode the records of a log into tables of bounded size; see `iter_records`.

    Parameters
    ----------
    log : Log
    options : ReadOptions
    problems : LogProblems, optional
        Those that are known already.
    is_wanted : callable, optional
        Returns whether a segment is read.
    """
    problems = LogProblems() if problems is None else problems
    segments = _SegmentsInTurn(log, options, problems, is_wanted)
    for segment, start_offset in segments:
        try:
            yield from iter_from(segment.listed(), None, start_offset, segments.options)
        except (OSError, KafkaScanError) as error:
            segments.skip(segment, error)
    yield from last_table(problems, options)


def read_from(
    source: SourceLike, batches: BatchTable | None, start_offset: int, options: ReadOptions
) -> RecordTable:
    """Decode the records of a source from an offset on."""
    if start_offset <= 0 and options.on_damage is None:
        return decode_records(source, batches, options)
    with borrowed_source(source, close=False) as owner:
        rows = _rows_from(owner, batches, start_offset, options)
        table = _decode_intact(owner, rows, options)
        deleted = _count_before(owner, rows[:1], start_offset, options)
        return table[deleted:] if deleted else table


def _decode_intact(source: Source, batches: BatchTable, options: ReadOptions) -> RecordTable:
    """Decode the records of batches, without those of damaged ones if `on_damage` is set."""
    try:
        return decode_records(source, batches, options)
    except CorruptBatchError:
        if options.on_damage is None:
            raise
    on_damage, damaged = options.on_damage, list[int]()

    def note(error: CorruptBatchError) -> None:
        damaged.append(error.position)
        on_damage(error)

    for _ in iter_decoded(source, batches, replace(options, on_damage=note)):
        pass
    intact = np.flatnonzero(~np.isin(batches["position"], damaged))
    return decode_records(source, batches.take(intact), options)


def iter_from(
    source: SourceLike, batches: BatchTable | None, start_offset: int, options: ReadOptions
) -> Iterator[RecordTable]:
    """Decode the records of a source from an offset on into tables of bounded size."""
    if start_offset <= 0:
        yield from iter_decoded(source, batches, options)
        return
    with borrowed_source(source, close=False) as owner:
        rows = _rows_from(owner, batches, start_offset, options)
        deleted = _count_before(owner, rows[:1], start_offset, options)
        for table in iter_decoded(owner, rows, options):
            if len(table) > deleted:
                yield table[deleted:] if deleted else table
            deleted = 0


def _rows_from(
    source: Source, batches: BatchTable | None, start_offset: int, options: ReadOptions
) -> BatchTable:
    """Return the batches to read that reach an offset."""
    rows = scan_headers(source, options) if batches is None else batches
    return options.select(rows[first_reaching(rows, start_offset) :])


def _count_before(source: Source, batch: BatchTable, offset: int, options: ReadOptions) -> int:
    """Return the number of records of a batch before an offset."""
    on_damage = None if options.on_damage is None else ignore  # reported when the batch is read
    options = replace(options, columns=("offset",), on_damage=on_damage)
    return sum(
        int((table["offset"] < offset).sum()) for table in iter_decoded(source, batch, options)
    )
