"""Read the records of a log or a source from an offset on, and collect what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from kafkascan.batches.columns import BatchTable, first_reaching, require_batch_table
from kafkascan.batches.scan import iter_open_batches, scan_batches
from kafkascan.format.errors import CorruptBatchError, detached
from kafkascan.io.sources import READ_AT_ONCE, Source, SourceLike, borrowed_source
from kafkascan.logs.log_dir import PartitionDir
from kafkascan.logs.log_problems import LogProblems
from kafkascan.logs.opened_logs import LogView
from kafkascan.logs.segment import SegmentFile
from kafkascan.logs.walking.batch_offsets import BatchOffsets
from kafkascan.logs.walking.log_reader import LogReader, every_segment
from kafkascan.logs.walking.segment_tails import LogEnd
from kafkascan.records.decoding import (
    decode_records,
    iter_decoded,
    iter_decoded_tables,
    no_records,
)
from kafkascan.records.read_options import ReadOptions
from kafkascan.records.record_table import RecordTable
from kafkascan.tables.table import problem_of


class Reading(Protocol):
    """Receives the headers of a source that is read, such as a `SegmentReading`."""

    start_position: int
    end: LogEnd | None

    @property
    def offsets(self) -> BatchOffsets:
        """Receives the batches, and returns those to read."""


@dataclass(eq=False)
class _SourceReading:
    """A source that is read by itself."""

    offsets: BatchOffsets
    start_position: int = 0
    end: LogEnd | None = None


# ---- a source by itself ----------------------------------------------------------------------


def read_source(
    source: SourceLike,
    batches: BatchTable | None,
    start_offset: int,
    options: ReadOptions,
    problems: LogProblems,
) -> RecordTable:
    """Decode the records of a source, or of some of its batches; see `read_records`."""
    reading, options = _SourceReading(BatchOffsets()), _noting_damage(options, problems)
    # An opened source is not closed: it lives as long as the table that views it.
    with borrowed_source(source, close=False) as owner:
        table = _read_from(owner, batches, start_offset, options, reading)
        if reading.end is not None:
            problems.add_source(owner, reading.end, reading.offsets)
    return table


def iter_source(
    source: SourceLike,
    batches: BatchTable | None,
    start_offset: int,
    options: ReadOptions,
    problems: LogProblems,
) -> Iterator[RecordTable]:
    """Decode the records of a source into tables of bounded size; see `iter_records`."""
    reading, noting = _SourceReading(BatchOffsets()), _noting_damage(options, problems)
    with borrowed_source(source, close=False) as owner:
        yield from _iter_from(owner, batches, start_offset, noting, reading)
        if reading.end is not None:
            problems.add_source(owner, reading.end, reading.offsets)


def last_table(problems: LogProblems, options: ReadOptions) -> Iterator[RecordTable]:
    """Yield a table that has the problems, if there are any."""
    if len(problems.found):
        yield no_records(options).with_problems(problems.found)


def _noting_damage(
    options: ReadOptions, problems: LogProblems, partition: PartitionDir | None = None
) -> ReadOptions:
    """Return options that also note the damage that is not raised."""
    on_damage = options.on_damage
    if options.on_corrupt == "raise" and on_damage is None:
        return options
    topic = None if partition is None else partition.topic
    number = None if partition is None else partition.partition

    def note(error: CorruptBatchError) -> None:
        problems.add(problem_of(detached(error), error.path, topic=topic, partition=number))
        if on_damage is not None:
            on_damage(error)

    return replace(options, on_damage=note)


# ---- a log -----------------------------------------------------------------------------------


def read_log(
    log: LogView,
    options: ReadOptions,
    problems: LogProblems,
    is_wanted: Callable[[SegmentFile], bool] = every_segment,
) -> RecordTable:
    """Decode the records of a log into one table; see `read_records` and `iter_log`."""
    noting = _noting_damage(options, problems, log.partition)
    is_alone = len(log.served_segments) == 1
    tables = []
    goes_on = options.on_corrupt == "stop"
    for reading in LogReader(log, problems, goes_on=goes_on, is_wanted=is_wanted):
        with reading:
            place = reading.segment.listed()
            if is_alone:
                with borrowed_source(place, close=False) as source:
                    tables.append(_read_from(source, None, reading.start_offset, noting, reading))
                continue
            # A join has no place for maps: the loops that read its items guard one map only.
            with Source(place, memory_map=False, read_below=READ_AT_ONCE) as source:
                tables.append(_read_from(source, None, reading.start_offset, noting, reading))
    if not tables:
        tables = [no_records(options)]
    table = tables[0] if len(tables) == 1 else RecordTable.joined(tables)
    return table.with_problems(problems.found)


def iter_log(
    log: LogView,
    options: ReadOptions,
    problems: LogProblems,
    is_wanted: Callable[[SegmentFile], bool] = every_segment,
    segments: Sequence[SegmentFile] | None = None,
    start_position: int = 0,
) -> Iterator[RecordTable]:
    """
    Decode the records of a log into tables of bounded size; see `iter_records`.

    Parameters
    ----------
    log : LogView
    options : ReadOptions
    problems : LogProblems
        Receives what is wrong; complete after the last table.
    is_wanted : callable, optional
        Returns whether a segment is read.
    segments, start_position
        Where to begin; see `LogReader`.
    """
    noting = _noting_damage(options, problems, log.partition)
    reader = LogReader(
        log, problems, goes_on=options.on_corrupt == "stop", is_wanted=is_wanted,
        segments=segments, start_position=start_position,
    )  # fmt: skip
    for reading in reader:
        with reading, borrowed_source(reading.segment.listed(), close=False) as source:
            yield from _iter_from(source, None, reading.start_offset, noting, reading)


# ---- from an offset on -----------------------------------------------------------------------


def _read_from(
    source: Source,
    batches: BatchTable | None,
    start_offset: int,
    options: ReadOptions,
    reading: Reading,
) -> RecordTable:
    """Decode the records of a source, or of some of its batches, from an offset on."""
    is_simple = start_offset <= 0 and options.on_damage is None
    if batches is None and is_simple and source.ahead is not None and not options.reads_few:
        headers = _header_tables(source, options, reading)
        tables = [decode_records(source, table, options) for table in headers]
        return RecordTable.joined(tables) if tables else no_records(options)
    batches = _headers(source, batches, options, reading)
    if is_simple:
        return decode_records(source, batches, options)
    rows = options.select(batches[first_reaching(batches, start_offset) :])
    table = _decode_intact(source, rows, options)
    deleted = _count_before(source, rows[:1], start_offset, options)
    return table[deleted:] if deleted else table


def _iter_from(
    source: Source,
    batches: BatchTable | None,
    start_offset: int,
    options: ReadOptions,
    reading: Reading,
) -> Iterator[RecordTable]:
    """Decode the records of a source from an offset on into tables of bounded size."""
    if start_offset <= 0:
        headers = (
            _header_tables(source, options, reading)
            if batches is None
            else iter([require_batch_table(batches)])
        )
        yield from iter_decoded_tables(source, headers, options)
        return
    batches = _headers(source, batches, options, reading)
    rows = options.select(batches[first_reaching(batches, start_offset) :])
    deleted = _count_before(source, rows[:1], start_offset, options)
    for table in iter_decoded(source, rows, options):
        if len(table) > deleted:
            yield table[deleted:] if deleted else table
        deleted = 0


def _header_tables(source: Source, options: ReadOptions, reading: Reading) -> Iterator[BatchTable]:
    """Yield the headers of a source that are to be read."""
    headers = iter_open_batches(
        source, start=reading.start_position, on_corrupt=options.on_corrupt,
        reads_content=not options.reads_few,
    )  # fmt: skip
    for table in headers:
        yield reading.offsets.take(table)
    reading.end = headers


def _headers(
    source: Source, batches: BatchTable | None, options: ReadOptions, reading: Reading
) -> BatchTable:
    """Return the batches that were given, or the headers of a source that are to be read."""
    if batches is not None:
        return require_batch_table(batches)
    reading.end = scan = scan_batches(
        source, start=reading.start_position, threads=options.threads,
        on_corrupt=options.on_corrupt,
    )  # fmt: skip
    return reading.offsets.take(scan.batches)


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


def _ignore(_: CorruptBatchError) -> None:
    """Ignore damage that is noted when the batch is read."""


def _count_before(source: Source, batch: BatchTable, offset: int, options: ReadOptions) -> int:
    """Return the number of records of a batch before an offset."""
    on_damage = None if options.on_damage is None else _ignore
    options = replace(options, columns=("offset",), on_damage=on_damage)
    return sum(
        int((table["offset"] < offset).sum()) for table in iter_decoded(source, batch, options)
    )
