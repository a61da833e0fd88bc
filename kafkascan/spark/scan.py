"""Tasks to rows: the one scan that both doors to Spark stand on."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan.batch_columns import BatchTable, is_control
from kafkascan.checks import verify_rows
from kafkascan.committed import CommittedView
from kafkascan.errors import record_error
from kafkascan.ordered import in_order
from kafkascan.record_table import RecordTable
from kafkascan.records import iter_records
from kafkascan.selection import select_offsets
from kafkascan.sources import Source
from kafkascan.spark.batch_rows import BAD_CHECKSUM, BatchRows, batch_values, place_of
from kafkascan.spark.committed import committed_view
from kafkascan.spark.damage import Damage, logger, tell_dropped
from kafkascan.spark.files import FoundFile, open_file
from kafkascan.spark.options import Options
from kafkascan.spark.plan import ScanRange, ScanTask, files_at_once
from kafkascan.spark.prefetch import prefetched
from kafkascan.spark.ranges import RangeWalk
from kafkascan.spark.record_rows import RecordRows, read_columns
from kafkascan.spark.segment_rows import segment_batches, segment_row, unreadable_row

# Batches of this many bytes are verified and decoded together: they stay in a cache, and what
# is done once for all of them weighs little. Usual records become a RecordBatch of 4 MiB.
_PIECE = 3 << 20
_SEGMENTS_AT_ONCE = 256
# Tables of headers, 3 MB each, for each thread, that wait until those before them are handed over.
_TABLES_AHEAD = 2

Making: TypeAlias = Callable[[], Any]
"""What makes a RecordBatch of headers that were scanned."""


def scan_task(task: ScanTask, options: Options) -> Generator[Any]:
    """
    Scan what a task is given.

    Parameters
    ----------
    task : ScanTask
    options : Options

    Yields
    ------
    pyarrow.RecordBatch
        Of `Options.schema`, of at most `batch_rows` rows and about `batch_bytes` bytes; one
        record may be larger.

    Raises
    ------
    CorruptBatchError
        At damage, if the mode is FAILFAST.
    FileNotFoundError
        If a file is gone, unless missing files are to be ignored.
    SourceReadError
        If a file became shorter meanwhile, or its disk failed.
    """
    found = prefetched(_scan(task, options), options.prefetch)
    if options.view != "batches":
        return found
    # Headers are scanned as fast as rows are made of them and sent: each by a thread of its own.
    return prefetched(_made(found), options.prefetch)


def _made(found: Generator[Making]) -> Iterator[Any]:
    with closing(found):
        for make in found:
            yield make()


def _scan(task: ScanTask, options: Options) -> Iterator[Any]:
    """Yield RecordBatches; of headers, what makes them."""
    if options.view == "segments":
        rows = in_order(task.ranges, partial(_segment_rows, options), files_at_once(task, options))
        yield from segment_batches(rows, options.schema(), _SEGMENTS_AT_ONCE)
        return
    met: list[Damage] = []

    def scanned(one: ScanRange) -> Iterator[Any]:
        source = _open(one.file, options)
        if source is None:
            return
        damage = Damage(options)
        met.append(damage)
        if options.view == "batches":
            yield from _batches(one, source, options, damage)
        else:
            yield from _records(one, source, task, options, damage)
        source.require_unshrunk()

    # Records are decoded no faster than the JVM takes them from one thread.
    at_once = files_at_once(task, options) if options.view == "batches" else 1
    yield from in_order(task.ranges, scanned, at_once, _TABLES_AHEAD)
    tell_dropped(met)


def _open(file: FoundFile, options: Options) -> Source | None:
    """Open a file; None if it is gone and that is no matter."""
    try:
        return open_file(file, options)
    except FileNotFoundError:
        if not options.ignore_missing_files:
            raise
        logger.warning("ignored: %s is gone", file.path)
        return None


# ---- segments ----------------------------------------------------------------------------


def _segment_rows(options: Options, one: ScanRange) -> Iterator[dict[str, Any]]:
    try:
        source = _open(one.file, options)
        row = None if source is None else segment_row(one, source, options)
    except FileNotFoundError:
        raise
    except OSError as error:
        if options.fails_fast:
            raise
        row = unreadable_row(one.file, error)
    if row is None or (row["status"] != "OK" and options.mode == "DROPMALFORMED"):
        return
    if options.fails_fast and row["error"] is not None:
        raise ValueError(row["error"])
    yield row


# ---- batches -----------------------------------------------------------------------------


def _batches(one: ScanRange, source: Source, options: Options, damage: Damage) -> Iterator[Making]:
    rows = BatchRows(one.file, options.schema())
    walk = RangeWalk(source, one.start, one.stop, _PIECE if options.verifies else None)
    for table in walk.tables(options.batch_rows):
        batches = _selected(table, one, options)
        verdicts = verify_rows(source, batches) if options.verifies else None
        if verdicts is not None and options.mode not in (None, "PERMISSIVE"):
            for row in np.flatnonzero(~verdicts):
                damage.meet(record_error(BAD_CHECKSUM, source.path, batches[row]))
            batches, verdicts = batches[verdicts], verdicts[verdicts]
        if len(batches):
            yield partial(rows.of, batches, verdicts)
    error = walk.damage(is_last=one.is_last)
    if error is not None and _is_asked_for(walk, one):
        damage.meet(error)
        for kept in damage.take():
            yield partial(rows.of_error, kept, walk.trailing_bytes)


def _selected(
    table: BatchTable, one: ScanRange, options: Options, view: CommittedView | None = None
) -> BatchTable:
    """Return the batches that may hold what is asked for."""
    mask = _offset_mask(table, one)
    if options.where is not None:
        mask = mask & options.where.mask(batch_values(table, place_of(one.file)), len(table))
    if view is not None:
        mask = mask & view.mask(table)
    return _taken(table, mask)


def _offset_mask(table: BatchTable, one: ScanRange) -> NDArray[np.bool_]:
    mask = select_offsets(table, one.start_offset, None)
    if one.stop_offset is not None:
        # Of a compressed message of magic 0 or 1, the header tells the last offset only.
        mask &= (table["base_offset"] < one.stop_offset) | (table["records_count"] < 0)
    return mask


def _is_asked_for(walk: RangeWalk, one: ScanRange) -> bool:
    """Tell whether the damage that ends a log stands where offsets that are asked for do."""
    offset = one.file.base_offset if walk.next_offset is None else walk.next_offset
    is_behind_start = one.start_offset is None or offset >= one.start_offset
    return is_behind_start and (one.stop_offset is None or offset < one.stop_offset)


# ---- records -----------------------------------------------------------------------------


def _records(
    one: ScanRange, source: Source, task: ScanTask, options: Options, damage: Damage
) -> Iterator[Any]:
    view = task.views.get(one.file.folder)
    if one.file.folder in task.logs:
        view = committed_view(task.logs[one.file.folder], options)
    rows = RecordRows(one.file, options)
    walk = RangeWalk(source, one.start, one.stop, _PIECE)
    for table in walk.tables(options.batch_rows):
        batches = _readable(_selected(table, one, options, view), source, options, damage)
        yield from _decoded(one, batches, source, rows, options, damage)
        yield from rows.of_errors(damage.take())
    error = walk.damage(is_last=one.is_last)
    if error is not None and _is_asked_for(walk, one):
        damage.meet(error)
        yield from rows.of_errors(damage.take())


def _readable(batches: BatchTable, source: Source, options: Options, damage: Damage) -> BatchTable:
    """Return the batches that hold records and whose checksums are right."""
    if not options.include_control_records:
        batches = _taken(batches, ~is_control(batches))
    if options.verifies and len(batches):
        verdicts = verify_rows(source, batches)
        for row in np.flatnonzero(~verdicts):
            damage.meet(record_error(BAD_CHECKSUM, source.path, batches[row]))
        batches = _taken(batches, verdicts)
    # Compaction leaves batches without records, for the sake of their producers.
    return _taken(batches, (batches["magic"] < 2) | (batches["records_count"] != 0))


def _taken(batches: BatchTable, mask: NDArray[np.bool_]) -> BatchTable:
    return batches if mask.all() else batches.take(np.flatnonzero(mask))


def _decoded(
    one: ScanRange,
    batches: BatchTable,
    source: Source,
    rows: RecordRows,
    options: Options,
    damage: Damage,
) -> Iterator[Any]:
    if not len(batches):
        return
    tables = iter_records(
        source,
        batches,
        columns=read_columns(options.schema()),
        control="include",
        max_decompressed_size=options.max_decompressed_size,
        batch_size=options.batch_rows,
        on_damage=damage.meet,
    )
    for records in tables:
        yield from rows.of(_asked_for(records, one))


def _asked_for(records: RecordTable, one: ScanRange) -> RecordTable:
    """Return the records that lie within the offsets asked for."""
    if one.start_offset is None and one.stop_offset is None:
        return records
    offsets = records["offset"]
    mask = np.ones(len(offsets), np.bool_)
    if one.start_offset is not None:
        mask &= offsets >= one.start_offset
    if one.stop_offset is not None:
        mask &= offsets < one.stop_offset
    return records if mask.all() else records[mask]
