"""One run of a command: its inputs, its progress, its findings and its exit code."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from kafkascan import BatchIterator, KafkaScanError, ScanEnd, Source, iter_batches
from kafkascan.batch_columns import BatchTable
from kafkascan.cli.inputs import Input, find_inputs
from kafkascan.names import printable

EXIT_CLEAN, EXIT_FINDINGS, EXIT_USAGE, EXIT_UNREADABLE = 0, 1, 2, 3

# Small enough for a table's batches to be in the cache still when they are verified.
_ROWS = 8192
# Listed per input; `batches --verify` lists them all.
_MOST_FINDINGS = 1000

READ_ERRORS = (OSError, KafkaScanError)

Result = TypeVar("Result")


class Cancelled(Exception):  # noqa: N818 - it is no error
    """The user wants no more of it."""


class Report:
    """What was met in one input: its findings, and whether it could be read."""

    def __init__(self, advance: Callable[[int], None]) -> None:
        self.findings: list[str] = []
        self.unlisted = 0
        self.exit_code = EXIT_CLEAN
        self._advance = advance

    def finding(self, message: str) -> None:
        """Note something that is not as it should be; after many of them, only their number."""
        self.exit_code = max(self.exit_code, EXIT_FINDINGS)
        if len(self.findings) < _MOST_FINDINGS:
            self.findings.append(message)
        else:
            self.unlisted += 1

    def unreadable(self, path: str, error: Exception) -> None:
        """Note that something could not be read."""
        if isinstance(error, KafkaScanError):  # says where by itself
            self.findings.append(str(error))
        else:
            self.findings.append(f"{path}: {getattr(error, 'strerror', None) or error}")
        self.exit_code = EXIT_UNREADABLE

    def take(self) -> list[str]:
        """Return the lines that are to be told, once."""
        lines = [printable(message) for message in self.findings]
        if self.unlisted:
            lines.append(f"… and {self.unlisted} more findings in the same file")
        self.findings.clear()
        self.unlisted = 0
        return lines

    def tables(self, source: Source) -> Iterator[BatchTable]:
        """
        Yield the batches of a source, then note how its log ends.

        Damage ends them; `outcome` tells what was met.
        """
        self.outcome: BatchIterator = iter_batches(source, rows=_ROWS, on_corrupt="stop")
        position = 0
        for table in self.outcome:
            yield table
            self._advance(self.outcome.position - position)
            position = self.outcome.position
        self._advance(source.size - position)
        self._note_end(source)

    def _note_end(self, source: Source) -> None:
        outcome = self.outcome
        if outcome.end is ScanEnd.CORRUPT:
            self.finding(f"{outcome.error}; {outcome.trailing_bytes} bytes are unreadable")
        elif outcome.end is not ScanEnd.CLEAN:
            self.finding(
                f"{source.path}: position {outcome.position}:"
                f" {outcome.trailing_bytes} bytes behind the last batch [{outcome.end}]"
            )


def tell_on_stderr(report: Report) -> None:
    """Print what a report holds, where there is no session."""
    for line in report.take():
        print(line, file=sys.stderr)


class Session:
    """
    Runs over inputs, and keeps going where one of them cannot be read.

    Findings go to stderr, a line each. The progress bar is drawn only where stderr is a
    terminal.

    Attributes
    ----------
    exit_code : int
    inputs : list of Input
    """

    def __init__(
        self, paths: Sequence[Path], *, memory_map: bool, drop_cache: bool, shows_progress: bool
    ) -> None:
        self.exit_code = EXIT_CLEAN
        self._memory_map = memory_map
        self._drop_cache = drop_cache
        self._progress = _progress_bar(is_shown=shows_progress and sys.stderr.isatty())
        self._is_cancelled = threading.Event()
        report = Report(lambda size: None)
        self.inputs = [one for path in paths for one in find_inputs(path, report.unreadable)]
        self.tell(report)

    def map(
        self, work: Callable[[Input, Source, Report], Result], threads: int | None
    ) -> Iterator[Result]:
        """Work on all inputs, several at once; yields results in the order of the inputs."""

        def work_and_finish(one: Input, source: Source, report: Report) -> Result:
            result = work(one, source, report)
            self._done_with(source)
            return result

        with self.progress():
            pool = ThreadPoolExecutor(threads or os.cpu_count())
            try:
                jobs = [pool.submit(self._attempt, work_and_finish, one) for one in self.inputs]
                for job in jobs:
                    results, report = job.result()
                    self.tell(report)
                    yield from results
            finally:
                # After Ctrl-C: what runs stops at its next table, what waits never starts.
                self._is_cancelled.set()
                pool.shutdown(cancel_futures=True)

    def _attempt(
        self, work: Callable[[Input, Source, Report], Result], one: Input
    ) -> tuple[list[Result], Report]:
        """Return the result, or none if the input cannot be read."""
        report = Report(self._advance)
        try:
            with Source(one.source, memory_map=self._memory_map) as source:
                result = work(one, source, report)
        except READ_ERRORS as error:
            report.unreadable(str(one.path), error)
            return [], report
        return [result], report

    def tables(self, one: Input) -> Iterator[BatchTable]:
        """Yield the batches of an input, up to where it cannot be read; then tell the report."""
        return self.stream(lambda source, report: report.tables(source), one)

    def stream(
        self, read: Callable[[Source, Report], Iterator[Result]], one: Input
    ) -> Iterator[Result]:
        """Yield what is read of an input, up to where it cannot be read; then tell the report."""
        report = Report(self._advance)
        try:
            source = Source(one.source, memory_map=self._memory_map)
            yield from read(source, report)
            self._done_with(source)
        except READ_ERRORS as error:
            report.unreadable(str(one.path), error)
        self.tell(report)

    def attempt(self, work: Callable[[Input, Source, Report], Result], one: Input) -> Result | None:
        """Work on one input, and tell the report; None if it cannot be read."""
        results, report = self._attempt(work, one)
        self.tell(report)
        return results[0] if results else None

    @contextmanager
    def progress(self) -> Iterator[None]:
        """Show progress over all inputs while the context lasts."""
        with self._progress:
            self._task = self._progress.add_task("", total=sum(one.size for one in self.inputs))
            yield

    def _done_with(self, source: Source) -> None:
        """Give back the pages of a file that is not read again, if that was asked for."""
        if self._drop_cache:
            source.drop_cache()

    def _advance(self, size: int) -> None:
        if self._is_cancelled.is_set():
            raise Cancelled
        self._progress.advance(self._task, size)

    def tell(self, report: Report) -> None:
        """Print what a report holds, and let it count for the exit code."""
        for message in report.take():
            self._print(message)
        self.exit_code = max(self.exit_code, report.exit_code)

    def _print(self, line: str) -> None:
        if self._progress.disable:
            print(line, file=sys.stderr)
        else:  # above the bar
            self._progress.console.print(
                line, markup=False, highlight=False, emoji=False, soft_wrap=True
            )


def _progress_bar(*, is_shown: bool) -> Progress:
    return Progress(
        TextColumn("{task.percentage:>3.0f} %"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True, emoji=False),
        transient=True,
        disable=not is_shown,
        redirect_stdout=False,
        redirect_stderr=False,
    )
