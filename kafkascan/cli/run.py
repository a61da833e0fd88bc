"""One run of a command: inputs, work, findings, progress, output and exit code."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from kafkascan.batches.columns import BatchTable
from kafkascan.batches.scan import BatchIterator, iter_open_batches
from kafkascan.cli.exit_codes import EXIT_CLEAN, EXIT_FINDINGS, EXIT_UNREADABLE, print_message
from kafkascan.cli.output import RowOutput
from kafkascan.format.errors import FileGoneError, KafkaScanError, NotALogError
from kafkascan.format.file_kinds import why_not_a_log
from kafkascan.format.findings import Severity
from kafkascan.format.shown_places import shown_url, without_secrets
from kafkascan.format.texts import printable
from kafkascan.io.concurrency import are_small, map_ordered
from kafkascan.io.sources import Source
from kafkascan.logs.log_dir import attempts_to_open
from kafkascan.logs.log_problems import LogProblems
from kafkascan.logs.queries.segment_inputs import (
    SegmentInput,
    SegmentPaths,
    group_by_log,
    reader_of,
    rewrite_problems,
)
from kafkascan.logs.walking.batch_offsets import SegmentOffsets
from kafkascan.logs.walking.log_reader import SegmentReading
from kafkascan.tables.table import UNREAD, Problem, Problems

if TYPE_CHECKING:
    from rich.progress import Progress

# A table this small is still in the CPU's cache when its batches are verified.
_ROWS = 8192
# Findings printed per input; the rest are counted. `batches --verify` lists all of them.
_MAX_FINDINGS = 1000

READ_ERRORS = (OSError, KafkaScanError)

Result = TypeVar("Result")
SegmentWork: TypeAlias = "Callable[[SegmentInput, ReadingReport], Result]"
ReadSegment: TypeAlias = "Callable[[SegmentInput, Source, ReadingReport], Iterator[Result]]"


def _message_of(name: str, error: object) -> str:
    """Return a message that starts with the name of the file or log, once."""
    message = str(error)
    return message if message.startswith(f"{name}: ") else f"{name}: {message}"


class FindingReport:
    """
    The findings of one input, and the exit code that they cause.

    Attributes
    ----------
    exit_code : int
    problems : set of Problem
        Those that were added.
    """

    def __init__(self) -> None:
        self.exit_code = EXIT_CLEAN
        self.problems: set[Problem] = set()
        self._findings: list[str] = []
        self._unlisted = 0

    def add(self, message: str, *, is_note: bool = False, is_unread: bool = False) -> None:
        """
        Add a finding, or a note; beyond a limit, they are only counted.

        Parameters
        ----------
        message : str
        is_note : bool, default False
            Whether it leaves the exit code as it is.
        is_unread : bool, default False
            Whether it means that a file was not read.
        """
        if is_unread:
            self.exit_code = EXIT_UNREADABLE
        elif not is_note:
            self.exit_code = max(self.exit_code, EXIT_FINDINGS)
        if len(self._findings) < _MAX_FINDINGS:
            self._findings.append(message)
        else:
            self._unlisted += 1

    def add_problems(self, problems: Problems) -> None:
        """Add the problems of an answer; what they mean for the exit code is in the symbol."""
        self.problems.update(problems)
        for one in problems:
            is_note = one.severity is Severity.NOTE and not one.rows_missing
            self.add(str(one), is_note=is_note, is_unread=one.symbol in UNREAD)

    def add_unreadable(self, path: str, error: Exception) -> None:
        """Add an error that prevented a file from being read or written."""
        if isinstance(error, FileGoneError):  # retention or compaction goes on meanwhile
            self.add(str(error), is_note=True)
            return
        if isinstance(error, KafkaScanError):  # its message contains the path
            self._findings.append(str(error))
        else:
            name = shown_url(getattr(error, "filename", None) or path)
            self._findings.append(_message_of(name, getattr(error, "strerror", None) or error))
        self.exit_code = EXIT_UNREADABLE

    def take_lines(self) -> list[str]:
        """Remove the findings, and return them as lines to print."""
        lines = [printable(message) for message in self._findings]
        if self._unlisted:
            lines.append(f"… and {self._unlisted} more findings in the same file")
        self._findings, self._unlisted = [], 0
        return lines


class ReadingReport(FindingReport):
    """
    The findings of one segment, and how it was read.

    Parameters
    ----------
    reading : SegmentReading
        Receives the batches of `tables`, and how they end.
    advance : callable, optional
        Receives the number of bytes that were read since the last call.
    """

    def __init__(
        self, reading: SegmentReading, advance: Callable[[int], None] = lambda size: None
    ) -> None:
        super().__init__()
        self.reading = reading
        self._advance = advance

    def tables(self, source: Source, headers: BatchIterator) -> Iterator[BatchTable]:
        """Yield the batches of a scan that are to be read, and show its progress."""
        position = 0
        for table in headers:
            yield self.reading.offsets.take(table)
            self._advance(headers.position - position)
            position = headers.position
        self._advance(source.size - position)
        self.reading.end = headers


def scan(source: Source, start: int = 0, *, reads_content: bool = False) -> BatchIterator:
    """
    Return a scan of batch headers that stops at damage; see `FindingReport.tables`.

    Parameters
    ----------
    source : Source
    start : int, default 0
        Position of the first batch.
    reads_content : bool, default False
        Whether the batches of each table are read before the next one.
    """
    return iter_open_batches(
        source, rows=_ROWS, start=start, on_corrupt="stop", reads_content=reads_content
    )


class Run:
    """
    One run of a command.

    An input that cannot be read becomes a line on stderr, and the run continues with the next
    one. Findings are printed to stderr, a line each; rows go to `output`.

    Parameters
    ----------
    output : RowOutput
    is_quiet : bool, default False
        Show no progress.

    Attributes
    ----------
    exit_code : int
        The highest one of all findings so far.
    """

    def __init__(self, output: RowOutput, *, is_quiet: bool = False) -> None:
        self.output = output
        self.is_quiet = is_quiet
        self.exit_code = EXIT_CLEAN
        self._printed: set[Problem] = set()
        self._bar: Progress | None = None

    # ---- inputs ------------------------------------------------------------------------------

    def find_segments(self, segments: SegmentPaths) -> list[SegmentInput]:
        """Return the segment files that paths name."""
        report = FindingReport()
        found = segments.find(report.add_unreadable, report.add_problems)
        for one in found:
            is_given = one.size == 0 and one.path in segments.paths and one.path.is_file()
            if is_given and why_not_a_log(one.path.name, b"") is None:
                report.add(f"{one.path}: the file is empty, a log without batches", is_note=True)
        self.print_report(report)
        self.print_problems(rewrite_problems(found))
        self.output.check_against(one.path for one in found)
        return found

    # ---- work --------------------------------------------------------------------------------

    def map(
        self,
        inputs: Sequence[SegmentInput],
        work: SegmentWork[Result],
        threads: int | None = None,
        *,
        checks_offsets: bool = True,
    ) -> list[Result]:
        """
        Work on several segments concurrently, with a progress bar.

        Parameters
        ----------
        inputs : sequence of SegmentInput
        work : callable
            Takes an input and a report.
        threads : int, optional
            By default one for small files on disk, else one per CPU.
        checks_offsets : bool, default True
            Whether what is wrong between the segments of logs is a finding.

        Returns
        -------
        list
            The results, in the order of the inputs. Inputs that cannot be read have none.
        """
        results: list[Result] = []
        sizes = [one.size for one in inputs]
        if threads is None and are_small(sizes) and all(one.is_on_disk for one in inputs):
            threads = 1
        with self.progress("bytes", sum(sizes)):
            done = map_ordered(inputs, lambda one: (self._work_on(one, work),), threads)
            reports = []
            for number, (found, report) in enumerate(done, 1):
                if report is not None:
                    self.print_report(report)
                reports.append(report)
                results += found
                self._show_files(number, len(inputs))
        readings = (None if report is None else report.reading for report in reports)
        self._print_judgement(inputs, readings, checks_offsets=checks_offsets)
        return results

    def _print_judgement(
        self,
        inputs: Sequence[SegmentInput],
        readings: Iterable[SegmentReading | None],
        *,
        checks_offsets: bool,
    ) -> None:
        """Print what is wrong with logs; there is no reading of a deleted input."""
        read = iter(readings)
        for log in group_by_log(inputs):
            problems = LogProblems()
            reader = reader_of(log, problems, is_selection=not checks_offsets)
            for reading in itertools.islice(read, len(log)):
                if reading is not None:
                    reader.add(reading)
            reader.finish()
            self.print_problems(problems.found)

    def each(
        self,
        paths: Sequence[Path],
        work: Callable[[Path, FindingReport], Result],
        damage: tuple[type[KafkaScanError], ...] = (),
    ) -> list[Result]:
        """
        Work on paths one after the other.

        Parameters
        ----------
        paths : sequence of Path
        work : callable
            Takes a path and a report.
        damage : tuple of types
            Errors that are findings: the file was read, and its content prevents a result.

        Returns
        -------
        list
            The results, in the order of the paths. Paths that cannot be read have none.
        """
        self.output.check_against(paths)
        results: list[Result] = []
        for path in paths:
            report = FindingReport()
            try:
                results.append(work(path, report))
            except READ_ERRORS as error:
                if isinstance(error, FileGoneError):  # of a whole answer nothing is left
                    report.add(str(error), is_unread=True)
                elif isinstance(error, damage) and not isinstance(error, NotALogError):
                    report.add(str(error) if str(path) in str(error) else f"{path}: {error}")
                else:
                    report.add_unreadable(str(path), error)
            self.print_report(report)
        return results

    def stream(
        self,
        inputs: Sequence[SegmentInput],
        read: ReadSegment[Result],
    ) -> Iterator[tuple[SegmentInput, Result]]:
        """
        Yield the results of `read` for each segment, up to its first error.

        Sources are not closed, as results may be views into them.

        Parameters
        ----------
        inputs : sequence of SegmentInput
        read : callable
            Takes an input, its source and a report.
        """
        for log in group_by_log(inputs):
            problems = LogProblems()
            readings = iter(reader_of(log, problems))
            try:
                for reading in readings:
                    self.print_problems(problems.take())
                    yield from self._read(replace(log[0], segment=reading.segment), reading, read)
            finally:  # also if the caller has enough rows
                readings.close()
                self.print_problems(problems.take())

    def _read(
        self, one: SegmentInput, reading: SegmentReading, read: ReadSegment[Result]
    ) -> Iterator[tuple[SegmentInput, Result]]:
        """Yield the results of `read` for a segment, up to its first error."""
        report = ReadingReport(reading, self._advance)
        try:
            with reading, one.open(close=False, is_listed=True) as source:
                for result in read(one, source, report):
                    yield one, result
        finally:
            self.print_report(report)

    def work_on(self, one: SegmentInput, work: SegmentWork[Result]) -> Result | None:
        """Work on one segment that was read before; None if it cannot be read any more."""
        report = ReadingReport(SegmentReading(one.segment, SegmentOffsets(one.segment)))
        try:
            return work(replace(one, drop_cache=False), report)
        except READ_ERRORS as error:
            report.add_unreadable(str(one.path), error)
            return None
        finally:
            self.print_report(report)

    def _work_on(
        self, listed: SegmentInput, work: SegmentWork[Result]
    ) -> tuple[list[Result], ReadingReport | None]:
        """
        Work on one segment, or on the one that has its name now if the cleaner replaced it.

        There is no report if retention or the cleaner deleted it: no other file has its name.
        """
        for segment in attempts_to_open(listed.segment, by_name=True):
            reading = SegmentReading(segment, SegmentOffsets(segment))
            report = ReadingReport(reading, self._advance)
            with reading:
                return [work(replace(listed, segment=segment), report)], report
            if not reading.is_gone:
                return [], report
        return [], None

    # ---- findings ----------------------------------------------------------------------------

    def print_report(self, report: FindingReport) -> None:
        """Print the findings of a report, and raise the exit code to the report's."""
        for line in report.take_lines():
            self.print(line)
        self.exit_code = max(self.exit_code, report.exit_code)
        self._printed |= report.problems

    def print_problems(self, problems: Problems) -> None:
        """Print what is wrong with logs, as findings; what a report contained is known already."""
        unknown = [one for one in problems if one not in self._printed]
        for _, found in itertools.groupby(unknown, lambda one: one.path):
            report = FindingReport()
            report.add_problems(Problems(found))
            self.print_report(report)

    def raise_exit_code(self, code: int) -> None:
        """Raise the exit code; a lower one changes nothing."""
        self.exit_code = max(self.exit_code, code)

    def print(self, line: str) -> None:
        """Print a line to stderr, above the progress bar."""
        if self._bar is None:
            print_message(line)
        else:
            self._bar.console.print(
                without_secrets(line), markup=False, highlight=False, emoji=False, soft_wrap=True
            )

    # ---- progress ----------------------------------------------------------------------------

    @contextmanager
    def progress(
        self, unit: str, total: int | None = None, *, is_shown: bool = True
    ) -> Iterator[None]:
        """
        Show a progress bar while the context lasts, if stderr is a terminal.

        Parameters
        ----------
        unit : str
            What is counted: ``"bytes"``, or the plural of anything else.
        total : int, optional
            How many there are; `show_progress` may set it later.
        is_shown : bool, default True
            False draws nothing on a terminal, either.
        """
        if not is_shown or self.is_quiet or not sys.stderr.isatty():
            yield
            return
        with _progress_bar(unit) as bar:
            bar.add_task("", total=total, files="")
            self._bar = bar
            try:
                yield
            finally:
                self._bar = None

    def show_progress(self, done: int, total: int) -> None:
        """Set the completed and the total amount of work. Any thread may call it."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done, total=total)

    def _advance(self, size: int) -> None:
        if self._bar is not None:
            self._bar.advance(self._bar.task_ids[0], size)

    def _show_files(self, done: int, total: int) -> None:
        if self._bar is not None and total > 1:
            self._bar.update(self._bar.task_ids[0], files=f"{done:,} of {total:,} files")


def _progress_bar(unit: str) -> Progress:
    """Return a bar on stderr: files, bytes, rate and the time left; or how many of `unit`."""
    # Here, as commands whose stderr is a file do not need it: it takes 50 ms.
    from rich import progress
    from rich.console import Console

    columns: tuple[progress.ProgressColumn, ...] = (
        (
            progress.TextColumn("{task.percentage:>3.0f} %"),
            progress.BarColumn(),
            progress.TextColumn("{task.fields[files]}"),
            progress.DownloadColumn(),
            progress.TransferSpeedColumn(),
        )
        if unit == "bytes"
        else (progress.TextColumn(unit), progress.BarColumn(), progress.MofNCompleteColumn())
    )
    return progress.Progress(
        *columns,
        progress.TimeRemainingColumn(),
        console=Console(stderr=True, emoji=False),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
