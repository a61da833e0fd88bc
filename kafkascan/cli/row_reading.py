"""Read the rows of segments for a command: all, the first or last ones, those around an anchor."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import click
import numpy as np

from kafkascan.cli.run import FindingReport, ReadingReport, Run, scan, scan_to_read
from kafkascan.io.sources import Source
from kafkascan.logs.log_problems import LogProblems
from kafkascan.logs.queries.index_seek import RowAnchor
from kafkascan.logs.queries.row_queries import RecordQuery, RecordSample, RowQuery, records_of
from kafkascan.logs.queries.row_windows import (
    FoundRows,
    first_rows,
    last_rows,
    rows_around,
    rows_at_end,
)
from kafkascan.logs.queries.segment_inputs import SegmentInput, group_by_log, reader_of
from kafkascan.logs.record_scan import Isolation
from kafkascan.tables.schema import Schema
from kafkascan.tables.writers import Writer


def find_rows(
    run: Run,
    inputs: Sequence[SegmentInput],
    query: RowQuery[Any],
    *,
    limit: int | None,
    tail: int | None,
    around: Any,
    context: int,
    is_followed: bool,
) -> FoundRows[Any]:
    """
    Yield the rows of inputs that meet the conditions of a query and of the common options.

    Raises
    ------
    click.UsageError
        If the options contradict each other.
    """
    if limit is not None and tail is not None:
        raise click.UsageError("--limit and --tail cannot be combined")
    if around is not None and (limit is not None or tail is not None or is_followed):
        raise click.UsageError("--around cannot be combined with --limit, --tail and --follow")
    read, by_index = partial(_read, run, query=query), query.selects_all
    if is_followed:
        from kafkascan.cli.following import require_followable

        require_followable(run.output, inputs)
        found = _follow(run, inputs, query, tail)
    elif around is not None:
        anchor = RowAnchor.at(around, context)
        found = rows_around(inputs, read, query.reaches, anchor, by_index=by_index)
    elif tail is not None:
        found = rows_at_end(inputs, read, tail, by_index=by_index)
    else:
        found = read(inputs)
    return found if limit is None else first_rows(found, limit)


@contextmanager
def open_rows(
    run: Run, inputs: Sequence[SegmentInput], schema: Schema, *, is_followed: bool
) -> Iterator[Writer]:
    """Open the output of rows, with a progress bar unless the rows themselves show the progress."""
    is_shown = not is_followed and (run.output.path is not None or not sys.stdout.isatty())
    total = sum(one.size for one in inputs)
    with run.progress("bytes", total, is_shown=is_shown), run.output.open(schema) as writer:
        yield writer


def _read(run: Run, inputs: Sequence[SegmentInput], query: RowQuery[Any]) -> FoundRows[Any]:
    """Yield the rows of inputs that meet the conditions."""
    begin = scan_to_read if query.reads_batches else scan

    def read(one: SegmentInput, source: Source, report: ReadingReport) -> Iterator[Any]:
        reading = report.reading
        for batches in report.tables(source, begin(source, reading.start_position)):
            yield from query.rows(one, reading.start_offset, source, batches, report)

    for log in group_by_log(inputs):
        _read_transactions(run, log[0], query)
        yield from run.stream(log, read)


def _read_transactions(run: Run, one: SegmentInput, query: RowQuery[Any]) -> None:
    report = FindingReport()
    query.read_transactions(one, report)
    run.print_report(report)


def with_sample(
    run: Run, inputs: Sequence[SegmentInput], query: RecordQuery, count: int, seed: int
) -> RecordQuery:
    """
    Return a query for records that are chosen at random, after a pass that counts them.

    It reads batch headers only, unless the query has conditions on keys, values or headers.
    """
    import random  # for this option only

    total, uncounted = _count_records(run, inputs, query)
    if uncounted:
        report = FindingReport()
        report.add(
            f"{uncounted} compressed messages of old formats are not sampled: their headers do not"
            " contain the number of records [NOT_SAMPLED]"
        )
        run.print_report(report)
    chosen = sorted(random.Random(seed).sample(range(total), min(count, total)))
    return replace(query, sample=RecordSample(np.array(chosen, np.int64)))


def _count_records(run: Run, inputs: Sequence[SegmentInput], query: RecordQuery) -> tuple[int, int]:
    """Return the number of records that a query reads, and of batches that do not contain it."""
    total = uncounted = 0
    if query.has_row_filter:
        counting, begin = replace(query, columns=(), also_read=(), decodes=False), scan_to_read
    else:
        counting, begin = replace(query, sample=RecordSample(np.empty(0, np.int64))), scan
    for log in group_by_log(inputs):
        _read_transactions(run, log[0], query)
        # What is wrong is reported when the records are read.
        for reading in reader_of(log, LogProblems()):
            report = ReadingReport(reading)
            one, start = replace(log[0], segment=reading.segment), reading.start_offset
            with reading, one.open(is_listed=True) as source:
                for batches in report.tables(source, begin(source)):
                    if query.has_row_filter:
                        rows = counting.rows(one, start, source, batches, report)
                        total += sum(map(len, rows))
                        continue
                    found = counting.batches_to_read(one, start, source, batches, report)
                    total += int(records_of(found).sum())
                    uncounted += int((found["records_count"] < 0).sum())
    return total, uncounted


def _follow(
    run: Run,
    inputs: Sequence[SegmentInput],
    query: RowQuery[Any],
    tail: int | None,
) -> FoundRows[Any]:
    """Yield the rows, of which `tail` may select the last ones, and those that are appended."""
    from kafkascan.cli.following import follow

    isolation: Isolation = "read_uncommitted"
    if isinstance(query, RecordQuery):  # a follower withholds batches by itself
        isolation, query = query.isolation, replace(query, isolation="read_uncommitted")
    for number, appended in enumerate(follow(run, inputs, isolation=isolation)):
        report = FindingReport()
        found = (
            (one, rows)
            for one, new in appended
            for rows in query.rows(one, one.start_offset, new.source, new.batches, report)
        )
        yield from found if tail is None or number else last_rows(found, tail)
        run.print_report(report)
