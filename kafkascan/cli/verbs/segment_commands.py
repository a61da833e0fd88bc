"""Commands about segment files: info, verify, batches."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import click
import numpy as np
from numpy.typing import NDArray

import kafkascan as ks
from kafkascan.batches.arrow import named_column
from kafkascan.batches.columns import BatchTable, last_offset
from kafkascan.batches.rollup import ROLLUP_KEYS, ROLLUP_SCHEMA, TOTALS, BatchRollup, merge_rows
from kafkascan.batches.scan import BatchIterator
from kafkascan.batches.summary import SEGMENT_SCHEMA
from kafkascan.cli.inputs import InputCursor, SegmentInput, SegmentPaths
from kafkascan.cli.queries.around import Place
from kafkascan.cli.queries.following import follow, require_followable
from kafkascan.cli.queries.row_selection import first_rows, last_rows, rows_around, rows_at_end
from kafkascan.cli.run import FindingReport, Run, scan, scan_to_read
from kafkascan.cli.shared_options import (
    FOLLOW,
    THREADS,
    Integer,
    IntegerRange,
    NameList,
    Time,
    check_ranges,
    check_row_options,
    with_around,
    with_run,
    with_segments,
)
from kafkascan.logs.log_problems import SegmentOffsets
from kafkascan.logs.log_table import LOG_BATCH_SCHEMA
from kafkascan.tables.schema import Field, Shown
from kafkascan.tables.table import Column

_INFO = SEGMENT_SCHEMA.select(
    (
        "topic", "partition", "segment", "size", "batches", "records", "uncounted_batches",
        "first_offset", "last_offset", "first_timestamp", "max_timestamp", "codecs", "magics",
        "end",
    )
)  # fmt: skip
INFO_SCHEMA = _INFO.with_last((replace(SEGMENT_SCHEMA["trailing_bytes"], shown=Shown.WIDE),))
VERIFY_SCHEMA = SEGMENT_SCHEMA.select(
    (
        "topic", "partition", "segment", "size", "batches", "bad_checksums", "end",
        "valid_bytes", "trailing_bytes",
    )
)  # fmt: skip
CRC_FIELD = Field("crc_is_valid", "bool", "whether the checksum is right", shown=Shown.ALWAYS,
                  alarms={"false": "red"})  # fmt: skip
_KNOWN = LOG_BATCH_SCHEMA.with_last((CRC_FIELD,))
DEFAULT_BATCH_SCHEMA = LOG_BATCH_SCHEMA.select(
    (
    "topic", "partition", "segment", "position", "base_offset", "last_offset", "records_count",
    "size_in_bytes", "magic", "compression_type", "max_timestamp", "timestamp_type",
    "producer_id", "producer_epoch", "base_sequence", "partition_leader_epoch",
    "is_transactional", "is_control",
    )
)  # fmt: skip
ROLLUP_NAMES = ("topic", "partition", "segment", *ROLLUP_KEYS)


# ---- info and verify -------------------------------------------------------------------------


@click.command()
@with_segments
@with_run(INFO_SCHEMA, to_file=True)
@THREADS
@click.option(
    "--by", type=NameList(ROLLUP_NAMES), metavar="NAMES",
    help="Show totals by these properties instead, separated by commas:"
    f" {', '.join(ROLLUP_NAMES)}. Days and hours are those of max_timestamp, in UTC.",
)  # fmt: skip
def info(run: Run, segments: SegmentPaths, threads: int | None, by: tuple[str, ...] | None) -> None:
    """Summarize segment files from their batch headers.

    Prints a row per file: its size, batches, records, offsets, timestamps, codecs, message
    formats (magics), and how it ends. uncounted_batches counts compressed messages of old
    formats, whose headers do not contain the number of records. first_timestamp is the earliest
    timestamp of a batch's first record; later records of a batch may be earlier.

    With --by, prints a row per value with its batches, records, bytes and their share of all bytes:
    the largest first, or in the order of time if NAMES begin with day or hour.
    """
    if by is not None:
        _roll_up(run, segments, threads, by)
        return

    def summarize(one: SegmentInput, source: ks.Source, report: FindingReport) -> dict[str, Any]:
        summary = ks.batches.BatchSummary()
        headers, offsets = scan(source), SegmentOffsets(one.segment)
        for table in report.tables(source, headers, offsets):
            summary.add(table)
        counts = {"codecs": summary.codecs, "magics": summary.magics}
        reach = {"path": one.path, "offsets": offsets}
        return one.labels | vars(summary) | counts | _ending(source, headers) | reach

    inputs = run.find_segments(segments)
    rows = run.map(inputs, summarize, threads)
    _report_offsets(run, inputs, rows)
    run.output.write_rows(INFO_SCHEMA, rows)


def _roll_up(run: Run, segments: SegmentPaths, threads: int | None, by: tuple[str, ...]) -> None:
    """Write the totals of batches by properties of batches and segments."""
    if run.output.columns is not None:
        raise click.UsageError("--by and --columns cannot be combined")

    def total(one: SegmentInput, source: ks.Source, report: FindingReport) -> list[dict[str, Any]]:
        rollup = BatchRollup([name for name in by if name in ROLLUP_KEYS])
        for table in report.tables(source, scan(source)):
            rollup.add(table)
        return [one.labels | row for row in rollup.rows()]

    inputs = run.find_segments(segments)
    rows = itertools.chain.from_iterable(run.map(inputs, total, threads))
    schema = ROLLUP_SCHEMA.select((*by, *TOTALS, "share"))
    run.output.write_rows(schema, merge_rows(list(rows), by))


def _report_offsets(
    run: Run, inputs: Sequence[SegmentInput], rows: Sequence[dict[str, Any]]
) -> None:
    """Report what is wrong with the offsets of logs."""
    read = {row["path"]: row["offsets"] for row in rows}
    cursor = InputCursor()
    for one in inputs:
        run.print_problems(cursor.add(one, read.get(one.path) or SegmentOffsets(one.segment)))
    run.print_problems(cursor.finish())


@click.command()
@with_segments
@with_run(VERIFY_SCHEMA, to_file=True)
@THREADS
def verify(run: Run, segments: SegmentPaths, threads: int | None) -> None:
    """Verify the checksum of every batch in segment files.

    Prints a row per file: its batches, how many of them have a wrong checksum, and how the
    file ends. Each wrong checksum is also a line on stderr.
    """

    def count_bad(one: SegmentInput, source: ks.Source, report: FindingReport) -> dict[str, Any]:
        counts, offsets = {"batches": 0, "bad_checksums": 0}, SegmentOffsets(one.segment)
        headers = scan_to_read(source)
        for table in report.tables(source, headers, offsets):
            are_valid = ks.verify_crcs(source, table, threads=1)
            _add_bad_checksums(report, source.path, table, are_valid)
            counts["batches"] += len(table)
            counts["bad_checksums"] += len(table) - int(are_valid.sum())
        return one.labels | counts | _ending(source, headers) | {
            "path": one.path, "offsets": offsets,
        }  # fmt: skip

    inputs = run.find_segments(segments)
    rows = run.map(inputs, count_bad, threads)
    _report_offsets(run, inputs, rows)
    run.output.write_rows(VERIFY_SCHEMA, rows)


def _ending(source: ks.Source, headers: BatchIterator) -> dict[str, Any]:
    return {
        "size": source.size,
        "end": str(headers.end),
        "valid_bytes": headers.valid_bytes,
        "trailing_bytes": headers.trailing_bytes,
    }


def _add_bad_checksums(
    report: FindingReport, path: str, rows: BatchTable, are_valid: NDArray[np.bool_]
) -> None:
    for batch in rows[~are_valid] if not are_valid.all() else ():
        report.add(
            f"{path}: position {batch['position']} (base_offset {batch['base_offset']}):"
            f" the stored checksum {batch['crc']} does not match the bytes [BAD_CRC]"
        )


# ---- batches ---------------------------------------------------------------------------------


class BatchFilter(NamedTuple):
    """Conditions on batches; None means no limit."""

    from_offset: int | None
    to_offset: int | None
    from_time: int | None
    to_time: int | None

    def from_start(self, offset: int) -> BatchFilter:
        """Return the conditions on the batches of a log that starts at an offset."""
        if offset <= max(0, self.from_offset or 0):
            return self
        return self._replace(from_offset=offset)

    def select(self, table: BatchTable) -> BatchTable:
        """Return the batches that meet the conditions."""
        mask = ks.batches.select_offsets(table, self.from_offset, self.to_offset)
        mask &= ks.batches.select_times(table, self.from_time, self.to_time)
        return table if mask.all() else table[mask]


@click.command()
@with_segments
@with_run(_KNOWN, rows="batches", to_file=True)
@click.option("--limit", type=IntegerRange(min=0),
              metavar="N", help="Show at most N batches: the first ones.")  # fmt: skip
@click.option(
    "--tail", type=IntegerRange(min=0), metavar="N",
    help="Show the last N batches. Without conditions, only the end of the last log is read.",
)  # fmt: skip
@with_around("batches", "max_timestamp")
@FOLLOW
@click.option("--from-offset", type=Integer(), metavar="OFFSET",
              help="Skip batches that end before OFFSET.")  # fmt: skip
@click.option("--to-offset", type=Integer(), metavar="OFFSET",
              help="Skip batches that start at OFFSET or after it.")  # fmt: skip
@click.option("--from-time", type=Time(), help="Skip batches with a max_timestamp before TIME.")
@click.option("--to-time", type=Time(),
              help="Skip batches with a max_timestamp of TIME or later.")  # fmt: skip
@click.option(
    "--verify", is_flag=True,
    help=f"Verify the checksums of the shown batches; adds the column {CRC_FIELD.name}.",
)  # fmt: skip
def batches(
    run: Run,
    segments: SegmentPaths,
    limit: int | None,
    tail: int | None,
    around: Any,
    context: int,
    is_followed: bool,
    verify: bool,
    **conditions: int | None,
) -> None:
    """List the batches of segment files, a row per batch header.

    --limit and --tail apply last, to the selected batches of all PATHS together. --follow shows
    the selected batches, then those that a broker appends, until Ctrl-C.
    """
    check_row_options(limit=limit, tail=tail, around=around, is_followed=is_followed)
    check_ranges(**conditions)
    inputs = run.find_segments(segments)
    schema = _KNOWN if run.output.columns is not None else DEFAULT_BATCH_SCHEMA
    if verify:
        run.output = run.output.with_last(CRC_FIELD.name)
        schema = schema.with_last((CRC_FIELD,))
    wanted = BatchFilter(**conditions)
    if is_followed:
        require_followable(run.output, inputs)
        found = _follow(run, inputs, wanted, tail)
    elif around is not None:
        found = rows_around(
            inputs,
            lambda log: _select(run, log, wanted),
            _reaching(around),
            Place.of(around, context),
            by_index=all(condition is None for condition in wanted),
        )
    elif tail is not None:
        found = rows_at_end(
            inputs,
            lambda some: _select(run, some, wanted),
            tail,
            by_index=all(condition is None for condition in wanted),
        )
    else:
        found = _select(run, inputs, wanted)
    if limit is not None:
        found = first_rows(found, limit)
    total = sum(one.size for one in inputs)
    # On a terminal, the rows show the progress.
    with (
        run.progress("bytes", total, is_shown=not (is_followed or sys.stdout.isatty())),
        run.output.open(schema) as writer,
    ):
        for one, rows in found:
            writer.write(_to_columns(run, one, rows, writer.schema.names))


Selected = Iterator[tuple[SegmentInput, BatchTable]]


def _select(run: Run, inputs: Iterable[SegmentInput], conditions: BatchFilter) -> Selected:
    """Yield the batches of all inputs that meet the conditions; report what is wrong with them."""

    def read(source: ks.Source, report: FindingReport) -> Iterator[BatchTable]:
        return report.tables(source, scan(source, one.start_position), offsets)

    cursor = InputCursor()
    for one in inputs:
        wanted, offsets = conditions.from_start(cursor.start_of(one)), SegmentOffsets(one.segment)
        for table in run.stream(one, read):
            yield one, wanted.select(table)
        run.print_problems(cursor.add(one, offsets))
    run.print_problems(cursor.finish())


def _follow(
    run: Run, inputs: Sequence[SegmentInput], conditions: BatchFilter, tail: int | None
) -> Selected:
    """Yield the batches that meet the conditions, and those that are appended."""
    for number, found in enumerate(follow(run, inputs, is_committed=False)):
        selected = (
            (one, conditions.from_start(one.start_offset).select(followed.batches))
            for one, followed in found
        )
        yield from selected if tail is None or number else last_rows(selected, tail)


def _reaching(around: int | np.datetime64) -> Callable[[BatchTable], NDArray[np.bool_]]:
    """Return a function that marks the batches that reach an offset or a time."""
    if isinstance(around, int):
        return lambda rows: last_offset(rows) >= around
    time = int(around.astype(np.int64))
    return lambda rows: np.asarray(rows["max_timestamp"] >= time)


def _to_columns(
    run: Run, one: SegmentInput, rows: BatchTable, names: Sequence[str]
) -> dict[str, Column]:
    columns: dict[str, Column] = {}
    for name in names:
        if name in one.labels:
            columns[name] = [one.labels[name]] * len(rows)
        elif name == CRC_FIELD.name:
            columns[name] = _verify_rows(run, one, rows)
        else:
            columns[name] = named_column(rows, name)
    return columns


def _verify_rows(run: Run, one: SegmentInput, rows: BatchTable) -> list[bool | None]:
    """Return a verdict per row; None if the file can no longer be read."""

    def verify(one: SegmentInput, source: ks.Source, report: FindingReport) -> NDArray[np.bool_]:
        are_valid = ks.verify_crcs(source, rows)
        _add_bad_checksums(report, source.path, rows, are_valid)
        return are_valid

    are_valid = run.work_on(one, verify)
    return [None] * len(rows) if are_valid is None else are_valid.tolist()
