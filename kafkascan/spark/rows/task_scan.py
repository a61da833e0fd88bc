"""Scan a task: from its ranges of files to record batches. All Spark APIs use this scan."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.columns import BatchTable, select_offsets
from kafkascan.batches.verify import verify_rows
from kafkascan.format.errors import CHANGED_WHILE_READ, SourceReadError, record_error
from kafkascan.io.concurrency import map_ordered
from kafkascan.io.sources import Source
from kafkascan.logs.queries.conditions import RowRange
from kafkascan.logs.read_committed import CommittedView
from kafkascan.logs.record_scan import RecordScan
from kafkascan.records.decoding import iter_decoded
from kafkascan.records.read_options import ReadOptions
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.options.view_schemas import Row
from kafkascan.spark.planning.planned_logs import open_file
from kafkascan.spark.planning.range_walk import IndexHints, RangeWalk
from kafkascan.spark.planning.task_plan import ScanRange, ScanTask, concurrent_files, hints_of
from kafkascan.spark.rows.batch_rows import (
    BAD_CHECKSUM,
    BatchRows,
    column_lookup,
)
from kafkascan.spark.rows.committed_views import committed_view
from kafkascan.spark.rows.damage_modes import (
    DamageHandler,
    OnDamage,
    handle_end,
    log_dropped,
    logger,
)
from kafkascan.spark.rows.range_offsets import OFFSET_SYMBOLS, CompactedLogs, RangeOffsets
from kafkascan.spark.rows.record_rows import BATCH_ROWS, RecordRows
from kafkascan.spark.rows.segment_rows import segment_batches, segment_row, unreadable_row

if TYPE_CHECKING:
    import pyarrow as pa

Item = TypeVar("Item")

# Bytes of batches that are verified and decoded together: few enough to stay in the CPU cache,
# many enough that costs per table are small. Typical records become a RecordBatch of 4 MiB.
_TABLE_BYTES = 3 << 20
_ROWS_OF_SEGMENTS = 256
_MAGIC_V2 = 2
# Header tables, of 3 MB each, that may wait per thread until earlier ones are consumed.
_TABLES_AHEAD = 2


def scan_task(
    task: ScanTask, options: Options, on_damage: OnDamage | None = None
) -> Generator[pa.RecordBatch]:
    """
    Scan the ranges of a task.

    Parameters
    ----------
    task : ScanTask
    options : Options
    on_damage : callable, optional
        Called with each damaged batch of records or batches that does not fail the read.

    Yields
    ------
    pyarrow.RecordBatch
        With the columns of `Options.schema`, at most 32,768 rows and about 4 MiB; a
        single record may be larger.

    Raises
    ------
    CorruptBatchError
        At damage, if the mode is FAILFAST.
    FileNotFoundError
        If a file is missing and `ignore_missing_files` is false.
    SourceReadError
        If a file was truncated since it was listed, or its disk failed.
    """
    if options.view == "segments":
        found = _scan_segments(task, options)
    elif options.view == "batches":
        found = _scan_batches(task, options, on_damage)
    else:
        # One file at a time: a decoding thread is faster than the JVM thread that takes the rows.
        found = scan_ranges(task, options, partial(_record_batches, task), 1, on_damage)
    return _prefetched(found, options.prefetch)


def _prefetched(items: Iterator[Item], ahead: int) -> Generator[Item]:
    """Yield the items of an iterator, which runs up to `ahead` items ahead in a thread."""
    # Two of the results that may wait are reserved for the first job, which is the only one.
    threads, each = (2, max(0, ahead - 1) // 2) if ahead else (1, 0)
    yield from map_ordered([items], iter, threads, each)


@dataclass(frozen=True, eq=False)
class OpenRange:
    """A range of an open file, and the state of its scan."""

    range: ScanRange
    source: Source
    hints: IndexHints | None
    bulk_stop: int
    options: Options
    damage: DamageHandler
    offsets: RangeOffsets

    def walk(self, table_bytes: int | None) -> RangeWalk:
        """Return a walk over the batches of the range."""
        one = self.range
        first = 0
        if self.hints is not None and one.start_offset is not None:
            first = self.hints.position_of(one.start_offset)
        return RangeWalk(
            self.source, one.start, one.stop, table_bytes, self.hints,
            first=first, pause=self.bulk_stop, on_batches=self.offsets.add,
        )  # fmt: skip

    def report_bad(self, batches: BatchTable, verdicts: NDArray[np.bool_]) -> None:
        """Handle the batches whose checksums are wrong."""
        for row in np.flatnonzero(~verdicts):
            self.damage.handle(record_error(BAD_CHECKSUM, self.source.path, batches[row]))


def scan_ranges(
    task: ScanTask,
    options: Options,
    scan: Callable[[OpenRange], Iterator[Item]],
    files: int,
    on_damage: OnDamage | None = None,
) -> Iterator[Item]:
    """Scan the ranges of a task, up to `files` concurrently; results are in the task's order."""
    handlers: list[DamageHandler] = []
    compacted = CompactedLogs(options)

    def scan_range(one: ScanRange) -> Iterator[Item]:
        hints = hints_of(one, options)
        bulk_stop = _bulk_stop(one, options, hints)
        source = open_present(one, options, bulk_stop)
        if source is None:
            return
        damage = DamageHandler(options, on_damage)
        handlers.append(damage)
        offsets = RangeOffsets(one, options, compacted)
        yield from scan(OpenRange(one, source, hints, bulk_stop, options, damage, offsets))
        source.require_unshrunk()

    yield from map_ordered(task.ranges, scan_range, files, _TABLES_AHEAD)
    log_dropped(handlers)


def open_present(one: ScanRange, options: Options, bulk_stop: int = 0) -> Source | None:
    """Open the file of a range; return None if it is missing and missing files are ignored."""
    try:
        return open_file(one.file, options, bulk_stop)
    except FileNotFoundError:
        if not options.ignore_missing_files:
            raise
        logger.warning("ignored missing file: %s, %s", one.file.path, _offsets_of(one))
        return None


def _offsets_of(one: ScanRange) -> str:
    first = max(one.file.base_offset, one.start_offset or 0)
    ends = [end for end in (one.next_base, one.stop_offset) if end is not None]
    return f"offsets {first} to {min(ends) - 1}" if ends else f"offsets from {first} on"


def _bulk_stop(one: ScanRange, options: Options, hints: IndexHints | None = None) -> int:
    """
    Return the position up to which a scan reads all bytes; 0 if it may skip some.

    It reads only headers, or selected batches; or nothing shows at which positions it starts and
    ends.
    """
    if options.where is not None or not (options.view == "records" or options.verifies):
        return 0
    starts_late = one.start_offset is not None and one.start_offset > one.file.base_offset
    if hints is None:
        return 0 if starts_late or one.stop_offset is not None else one.stop
    if one.stop_offset is None:
        return one.stop
    stop = hints.position_after(one.stop_offset)
    return one.stop if stop is None else min(max(stop, one.start), one.stop)


# ---- segments ----------------------------------------------------------------------------


def _scan_segments(task: ScanTask, options: Options) -> Iterator[pa.RecordBatch]:
    scan = partial(_segment_rows, options, CompactedLogs(options))
    rows = map_ordered(task.ranges, scan, concurrent_files(task, options))
    yield from segment_batches(rows, options.schema(), _ROWS_OF_SEGMENTS)


def _segment_rows(options: Options, compacted: CompactedLogs, one: ScanRange) -> Iterator[Row]:
    try:
        source = open_present(one, options, _bulk_stop(one, options))
        offsets = RangeOffsets(one, options, compacted)
        row = None if source is None else segment_row(one, source, options, offsets)
    except OSError as error:
        is_gone = isinstance(error, FileNotFoundError) and not one.file.is_broken_link
        if is_gone or options.fails_fast:
            raise
        row = unreadable_row(one, error)
    if row is None:
        return
    is_damaged = row["error"] is not None and row["status"] not in OFFSET_SYMBOLS
    if is_damaged and options.fails_fast:
        raise ValueError(row["error"])
    if is_damaged and options.mode == "DROPMALFORMED":
        logger.warning("dropped: %s", row["error"])
        return
    yield row


# ---- batches -----------------------------------------------------------------------------


def _scan_batches(
    task: ScanTask, options: Options, on_damage: OnDamage | None
) -> Iterator[pa.RecordBatch]:
    """
    Scan headers and build their rows.

    Both take about as long as Spark takes for the rows, so the scan runs ahead in a thread.
    """
    files = concurrent_files(task, options)
    scanned = scan_ranges(task, options, _pending_rows, files, on_damage)
    for rows in _prefetched(scanned, options.prefetch):
        yield rows()


def _pending_rows(opened: OpenRange) -> Iterator[Callable[[], pa.RecordBatch]]:
    """Yield functions that build the rows of a range."""
    rows = BatchRows(opened.range, opened.options)
    keeps_bad = opened.options.mode in (None, "PERMISSIVE")
    walk = opened.walk(_TABLE_BYTES if opened.options.verifies else None)
    for batches, verdicts in checked_batches(opened, walk):
        if verdicts is not None:
            opened.report_bad(batches, verdicts)
            if keeps_bad:  # in their own rows, with a status
                opened.damage.take_kept()
            else:
                batches, verdicts = batches[verdicts], verdicts[verdicts]
        if len(batches):
            yield partial(rows.build, batches, verdicts)
    for error in opened.damage.take_kept():
        unread = 0 if error.symbol in OFFSET_SYMBOLS else walk.trailing_bytes
        yield partial(rows.build_damage, error, unread)


def checked_batches(
    opened: OpenRange, walk: RangeWalk
) -> Iterator[tuple[BatchTable, NDArray[np.bool_] | None]]:
    """
    Yield the requested batches of a range, with the verdicts on their checksums.

    The verdicts are None if the options do not ask for them. What is wrong at the end of the range
    is handled as the option ``mode`` demands.
    """
    one, options = opened.range, opened.options
    selection = _selection(one, options, ReadOptions(control="include"))
    for table in _tables(walk, opened):
        batches = selection.select(table)
        yield batches, verify_rows(opened.source, batches) if options.verifies else None
    handle_end(walk, one, opened.offsets, opened.damage)


def _tables(walk: RangeWalk, opened: OpenRange) -> Iterator[BatchTable]:
    """Yield the batches of a range, up to the requested offsets: later ones need no fetch."""
    one = opened.range
    for table in walk.tables(BATCH_ROWS):
        yield table
        if one.stop_offset is not None and (walk.next_offset or 0) >= one.stop_offset:
            return


def _selection(
    one: ScanRange, options: Options, read: ReadOptions, view: CommittedView | None = None
) -> ReadOptions:
    """Return the options that select the batches of a range, and their records."""

    def are_visible(table: BatchTable) -> NDArray[np.bool_]:
        mask = select_offsets(table, one.first_offset, None)
        if options.where is not None:
            look_up = column_lookup(table, one.file_values)
            mask = mask & options.where.mask(look_up, len(table))
        return mask if view is None else mask & view.mask(table)

    limits = RowRange(one.start_offset, one.stop_offset)
    condition = limits.condition("offset", "offset", "timestamp")
    return RecordScan(options=read, condition=condition).selecting(are_visible)


# ---- records -----------------------------------------------------------------------------


def _record_batches(task: ScanTask, opened: OpenRange) -> Iterator[pa.RecordBatch]:
    one, options, damage = opened.range, opened.options, opened.damage
    view = task.views.get(one.file.folder)
    if one.file.folder in task.logs:
        view = committed_view(task.logs[one.file.folder], options)
    rows = RecordRows(one, options)
    read = ReadOptions(
        columns=rows.read_columns,
        control="include" if options.include_control_records else "skip",
        max_decompressed_size=options.max_decompressed_size,
        batch_size=BATCH_ROWS,
        on_damage=damage.handle,
    )
    selection = _selection(one, options, read, view)
    of_selected = replace(selection, visible=None)
    walk = opened.walk(_TABLE_BYTES)
    for table in _tables(walk, opened):
        batches = _readable(selection.select(table), opened)
        for records in iter_decoded(opened.source, batches, of_selected):
            yield from rows.build(records, options)
        yield from rows.build_damage(damage.take_kept())
    is_in_order = handle_end(walk, one, opened.offsets, damage)
    yield from rows.build_damage(damage.take_kept())
    if is_in_order and task.has_stops:
        _require_stop(walk, one, options)


def _require_stop(walk: RangeWalk, one: ScanRange, options: Options) -> None:
    """Raise `SourceReadError` if a log ends before the offset that the driver found in it."""
    end = one.file.base_offset if walk.next_offset is None else walk.next_offset
    stop = one.stop_offset or 0
    if not one.is_last or one.stop < one.file.size or end >= stop:
        return
    reason = f"the log ends at offset {end}, but was planned up to offset {stop}"
    if options.fail_on_data_loss:
        raise SourceReadError(one.file.path, walk.position, reason, CHANGED_WHILE_READ)
    logger.warning("%s: %s", one.file.path, reason)


def _readable(batches: BatchTable, opened: OpenRange) -> BatchTable:
    """Return the batches that contain records and whose checksums are right."""
    mask = np.ones(len(batches), np.bool_)
    if opened.options.verifies and len(batches):
        mask = verify_rows(opened.source, batches)
        opened.report_bad(batches, mask)
    # Compaction keeps batches without records, to preserve the state of their producers.
    mask = mask & ((batches["magic"] < _MAGIC_V2) | (batches["records_count"] != 0))
    return batches if mask.all() else batches.take(np.flatnonzero(mask))
