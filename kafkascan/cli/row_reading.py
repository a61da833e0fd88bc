"""Read the rows of segments for a command: all, the first or last ones, those around an anchor."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

import click
import numpy as np

from kafkascan.batches.columns import BatchTable
from kafkascan.cli.run import FindingReport, ReadingReport, Run, scan
from kafkascan.io.sources import Source
from kafkascan.logs.log_problems import LogProblems
from kafkascan.logs.opened_logs import LogView
from kafkascan.logs.queries.index_seek import RowAnchor
from kafkascan.logs.queries.record_matches import RecordSample, records_of
from kafkascan.logs.queries.row_windows import FoundRows, Window, first_rows, last_rows
from kafkascan.logs.queries.segment_inputs import SegmentInput, group_by_log, reader_of
from kafkascan.logs.record_scan import RecordScan
from kafkascan.records.read_options import ReadOptions, Visible
from kafkascan.tables.schema import Schema
from kafkascan.tables.writers import Writer

Rows = TypeVar("Rows", bound=Any)

DecodeRows: TypeAlias = Callable[[Source, Iterable[BatchTable], ReadOptions], Iterator[Rows]]
"""Yields what a command shows of tables of batches."""


def selected_batches(
    _source: Source, tables: Iterable[BatchTable], options: ReadOptions
) -> Iterator[BatchTable]:
    """Yield the selected batches of tables."""
    return map(options.select, tables)


@contextmanager
def open_rows(
    run: Run, inputs: Sequence[SegmentInput], schema: Schema, *, is_followed: bool
) -> Iterator[Writer]:
    """Open the output of rows, with a progress bar unless the rows themselves show the progress."""
    is_shown = not is_followed and (run.output.path is not None or not sys.stdout.isatty())
    total = sum(one.size for one in inputs)
    with run.progress("bytes", total, is_shown=is_shown), run.output.open(schema) as writer:
        yield writer


@dataclass(frozen=True)
class RowReader(Generic[Rows]):
    """
    Reads rows of segments for a command, and prints what is wrong with the segments.

    Parameters
    ----------
    run : Run
    scan : RecordScan
    decode : callable
        See `DecodeRows`.
    visible : dict
        The masks of the visible batches of logs and files whose transactions were read.
    """

    run: Run
    scan: RecordScan
    decode: DecodeRows[Rows]
    visible: dict[Path, Visible | None] = field(default_factory=dict)

    def find(
        self,
        inputs: Sequence[SegmentInput],
        *,
        limit: int | None,
        tail: int | None,
        around: Any,
        context: int,
        is_followed: bool,
    ) -> FoundRows[Rows]:
        """
        Yield the rows of inputs that the scan and the common options select.

        Raises
        ------
        click.UsageError
            If the options contradict each other.
        """
        if limit is not None and tail is not None:
            raise click.UsageError("--limit and --tail cannot be combined")
        if around is not None and (limit is not None or tail is not None or is_followed):
            raise click.UsageError("--around cannot be combined with --limit, --tail and --follow")
        if is_followed:
            from kafkascan.cli.following import require_followable

            require_followable(self.run.output, inputs)
            found = self._follow(inputs, tail)
            return found if limit is None else first_rows(found, limit)
        anchor = None if around is None else RowAnchor.at(around, context)
        window = Window(first=limit, last=tail, around=anchor)
        return window.rows(inputs, self._read, by_index=self.scan.selects_all)

    def with_sample(self, inputs: Sequence[SegmentInput], count: int, seed: int) -> RowReader[Rows]:
        """
        Return a reader of records that are chosen at random, after a pass that counts them.

        It reads batch headers only, unless the scan has conditions on keys, values or headers.
        """
        import random  # for this option only

        total, uncounted = self._count(inputs)
        if uncounted:
            report = FindingReport()
            report.add(
                f"{uncounted} compressed messages of old formats are not sampled: their headers do"
                " not contain the number of records [NOT_SAMPLED]"
            )
            self.run.print_report(report)
        chosen = sorted(random.Random(seed).sample(range(total), min(count, total)))
        sample = RecordSample(np.array(chosen, np.int64))
        return replace(self, scan=replace(self.scan, sample=sample))

    def _count(self, inputs: Sequence[SegmentInput]) -> tuple[int, int]:
        """Return the number of records that are read, and of batches that do not contain it."""
        total = uncounted = 0
        is_decoded = bool(self.scan.match.columns)
        options = replace(self.scan.options, columns=("offset",))
        counting = replace(self, scan=replace(self.scan, options=options))
        for log in group_by_log(inputs):
            self._read_transactions(log[0])
            # What is wrong is reported when the records are read.
            for reading in reader_of(log, LogProblems()):
                report = ReadingReport(reading)
                one = replace(log[0], segment=reading.segment)
                with reading, one.open(is_listed=True) as source:
                    options = counting._options(one, source, reading.start_offset, report)
                    tables = report.tables(source, scan(source, reads_content=is_decoded))
                    if is_decoded:
                        for rows in self.decode(source, tables, options):
                            total += len(rows)
                        continue
                    for batches in map(options.select, tables):
                        total += int(records_of(batches).sum())
                        uncounted += int((batches["records_count"] < 0).sum())
        return total, uncounted

    def _read(self, inputs: Sequence[SegmentInput]) -> FoundRows[Rows]:
        """Yield the selected rows of inputs."""
        for log in group_by_log(inputs):
            self._read_transactions(log[0])
            yield from self.run.stream(log, self._read_segment)

    def _read_segment(
        self, one: SegmentInput, source: Source, report: ReadingReport
    ) -> Iterator[Rows]:
        reading = report.reading
        options = self._options(one, source, reading.start_offset, report)
        headers = scan(source, reading.start_position, reads_content=not options.reads_few)
        return self.decode(source, report.tables(source, headers), options)

    def _options(
        self, one: SegmentInput, source: Source, start_offset: int, report: FindingReport
    ) -> ReadOptions:
        """Return the options that select the rows of a segment."""
        visible = (
            self._visible_in(one.partition.path, one.log)
            if one.is_served
            else self._visible_in(one.path, source)
        )
        return self._reporting(visible, start_offset, report)

    def _reporting(
        self, visible: Visible | None, start_offset: int, report: FindingReport
    ) -> ReadOptions:
        options = self.scan.selecting(visible, start_offset=start_offset)
        return replace(options, on_damage=lambda error: report.add(str(error)))

    def _read_transactions(self, one: SegmentInput) -> None:
        """
        Read what decides which batches of a log are visible, before a segment of it is opened.

        A segment that is opened before has none of the records that the transactions make visible
        and that were appended in between.
        """
        if one.is_served:
            self._visible_in(one.partition.path, one.log)

    def _visible_in(self, path: Path, log: LogView | Source) -> Visible | None:
        """Return the mask of visible batches; the transactions of a log are read once."""
        if path not in self.visible:
            problems = LogProblems()
            if isinstance(log, LogView):
                self.visible[path] = self.scan.visible_in_log(log, problems)
            else:
                self.visible[path], _ = self.scan.visible_in_source(log, problems)
            self.run.print_problems(problems.found)
        return self.visible[path]

    def _follow(self, inputs: Sequence[SegmentInput], tail: int | None) -> FoundRows[Rows]:
        """Yield the rows, of which `tail` may select the last ones, and those that are appended."""
        from kafkascan.cli.following import follow

        # A follower withholds batches by itself.
        for number, appended in enumerate(follow(self.run, inputs, isolation=self.scan.isolation)):
            report = FindingReport()
            found = (
                (one, rows)
                for one, new in appended
                for rows in self.decode(
                    new.source, [new.batches], self._reporting(None, one.start_offset, report)
                )
            )
            yield from found if tail is None or number else last_rows(found, tail)
            self.run.print_report(report)
