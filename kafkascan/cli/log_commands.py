"""The verbs about whole logs: audits, transactions, producers, counts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

import kafkascan as ks
from kafkascan.arrow import require_pyarrow
from kafkascan.cli.options import InputPath, Time
from kafkascan.cli.output import FORMATS, Columns, open_output
from kafkascan.cli.parquet import write_tables
from kafkascan.cli.session import EXIT_FINDINGS, READ_ERRORS, Report, tell_on_stderr

AUDIT_COLUMNS = (
    "severity", "symbol", "topic", "partition", "file", "position", "offset", "count", "message",
)  # fmt: skip
TXNS_COLUMNS = (
    "topic", "partition", "producer_id", "producer_epoch", "state", "first_offset", "last_offset",
    "marker_offset", "last_timestamp", "records", "age_ms", "is_hanging", "command",
)  # fmt: skip
PRODUCERS_COLUMNS = (
    "topic", "partition", "producer_id", "producer_epoch", "last_sequence", "batches", "records",
    "mean_batch_size", "mean_span_ms", "codecs", "compression_ratio", "sequence_gaps",
    "duplicates", "fenced", "last_timestamp",
)  # fmt: skip
COUNT_COLUMNS = (
    "topic", "partition", "start_offset", "end_offset", "records", "committed_records",
    "aborted_records", "open_records", "control_records", "missing_offsets", "is_exact",
)  # fmt: skip
_STATES = ("open", "hanging", "empty", "aborted", "committed", "all")

_threads = click.option(
    "--threads", type=click.IntRange(min=1), help="Segments at once; by default one per CPU."
)
_now = click.option("--now", "now_ms", type=Time(), help="As if it were that time.")
_timeout = click.option(
    "--timeout-ms", type=click.IntRange(min=0), default=900_000, show_default=True,
    help="The broker's transaction.max.timeout.ms.",
)  # fmt: skip


def _log_verb(command: Callable[..., Any]) -> click.Command:
    """Add what all of these verbs take: paths, the output format, a file."""
    paths = click.argument("paths", nargs=-1, required=True, type=InputPath())
    made: click.Command = click.command()(paths(log_output(_threads(command))))
    return made


def log_output(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add where a table goes, and how."""
    decorators: list[Callable[..., Any]] = [
        click.option(
            "--format", "output_format", type=click.Choice((*FORMATS, "parquet")),
            default="table", show_default=True, help="Of the rows; all columns but for a table.",
        ),
        click.option(
            "--output", type=InputPath(), metavar="FILE",
            help="Instead of stdout; it appears when it is whole. Parquet needs it.",
        ),
    ]  # fmt: skip
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


class TableRun:
    """One run of a verb: goes over paths, writes one table, and knows the exit code."""

    def __init__(self, paths: Sequence[Path], output_format: str, output: Path | None) -> None:
        if output_format == "parquet" and output is None:
            raise click.UsageError("Parquet is written to a file: --output FILE")
        if output_format == "parquet":
            try:
                require_pyarrow()
            except ImportError as error:
                raise click.UsageError(str(error)) from None
        if output is not None and output.exists() and not output.is_file():
            raise click.UsageError(f"{output}: not a regular file")
        if output is not None and any(output.resolve() == path.resolve() for path in paths):
            raise click.UsageError(f"{output}: is one of the files that are read")
        self._paths = paths
        self._format = output_format
        self._output = output
        self.exit_code = 0

    def results(self, read: Callable[[Path], Any]) -> Iterator[Any]:
        """Yield what is read of each path, and say which of them cannot be read."""
        for path in self._paths:
            report = Report(lambda size: None)
            try:
                found = read(path)
            except READ_ERRORS as error:
                report.unreadable(str(path), error)
                self._tell(report)
                continue
            for number, damage in getattr(found, "errors", {}).items():
                report.finding(f"{found.logs[number].name}: {damage}")
            self._tell(report)
            yield found

    def _tell(self, report: Report) -> None:
        tell_on_stderr(report)
        self.exit_code = max(self.exit_code, report.exit_code)

    def note_findings(self, messages: Sequence[str] = ()) -> None:
        """Say that something is not as it should be."""
        report = Report(lambda size: None)
        for message in messages:
            report.finding(message)
        self._tell(report)
        self.exit_code = max(self.exit_code, EXIT_FINDINGS)

    def write(self, names: Sequence[str], results: Sequence[Any]) -> None:
        """Write the rows of all results as one table."""
        if self._format == "parquet":
            assert self._output is not None
            write_tables(self._output, [one.to_arrow() for one in results])
            return
        tables: list[Columns] = [one.to_columns() for one in results]
        shown = names if self._format == "table" or not tables else list(tables[0])
        with open_output(self._format, shown, self._output) as writer:
            for table in tables:
                writer.write({name: table[name] for name in shown})


# ---- audit -----------------------------------------------------------------------------------


@_log_verb
@click.option("--verify/--no-verify", default=True, show_default=True,
              help="Compare the checksums of all batches, or read headers only.")  # fmt: skip
@click.option("--deep", is_flag=True, help="Decode records, too.")
@click.option("--alarms", is_flag=True, help="Warnings and errors only, no notes.")
@click.option("--max-message-bytes", type=click.IntRange(min=1), metavar="BYTES",
              help="The topics' max.message.bytes.")  # fmt: skip
@click.option("--many-producers", type=click.IntRange(min=1), default=10_000, show_default=True,
              help="More than this in one partition are too many.")  # fmt: skip
@_now
@_timeout
@click.pass_context
def audit(
    context: click.Context,
    /,
    paths: list[Path],
    output_format: str,
    output: Path | None,
    alarms: bool,
    **options: Any,
) -> None:
    """Look through logs for everything that is not as it should be.

    PATHS are brokers' data dirs, folders of partitions, tars of them, or segment files. A
    row for each kind of finding in each file. Exit code 1 says that there are warnings or
    errors; notes are as they may be.
    """
    run = TableRun(paths, output_format, output)
    found: list[ks.Audit] = []
    with _progress_bar() as progress:
        task = progress.add_task("", total=None)

        def show(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        found += run.results(lambda path: ks.audit(path, on_progress=show, **options))
    if any(one.alarms for one in found):
        run.note_findings()
    run.write(AUDIT_COLUMNS, [one.only_alarms() for one in found] if alarms else found)
    context.exit(run.exit_code)


@contextmanager
def _progress_bar() -> Iterator[Progress]:
    with Progress(
        TextColumn("{task.percentage:>3.0f} %"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TimeRemainingColumn(),
        console=Console(stderr=True, emoji=False),
        transient=True,
        disable=not sys.stderr.isatty(),
        redirect_stdout=False,
        redirect_stderr=False,
    ) as progress:
        yield progress


# ---- txns ------------------------------------------------------------------------------------


@_log_verb
@click.option("--state", type=click.Choice(_STATES), default="open", show_default=True,
              help="Which transactions are listed.")  # fmt: skip
@_now
@_timeout
@click.pass_context
def txns(
    context: click.Context,
    /,
    paths: list[Path],
    output_format: str,
    output: Path | None,
    state: str,
    **options: Any,
) -> None:
    """List transactions: open ones, those that hang, aborted ones.

    PATHS are brokers' data dirs, folders of partitions, tars of them, or segment files. A
    transaction hangs that is open for longer than the timeout, as kafka-transactions
    find-hanging counts; the row says what would end it. Exit code 1 says that some hang.
    """
    run = TableRun(paths, output_format, output)
    found: list[ks.Transactions] = []
    for one in run.results(lambda path: ks.read_transactions(path, **options)):
        if one.is_hanging.any():
            run.note_findings([f"{log}: a transaction hangs" for log in one.hanging_logs])
        found.append(one.select(_in_state(one, state)))
    run.write(TXNS_COLUMNS, found)
    context.exit(run.exit_code)


def _in_state(found: ks.Transactions, state: str) -> Any:
    if state in ("open", "hanging", "empty"):
        return getattr(found, f"is_{state}")
    if state == "all":
        return found.spans["log"] >= 0
    return found.spans["state"] == ks.TransactionState[state.upper()]


# ---- producers, count ------------------------------------------------------------------------


@_log_verb
@click.option("--sample", type=click.IntRange(min=0), default=0, show_default=True, metavar="N",
              help="Decompress N batches of each producer to tell how well they are"
              " compressed.")  # fmt: skip
@click.pass_context
def producers(
    context: click.Context,
    /,
    paths: list[Path],
    output_format: str,
    output: Path | None,
    **options: Any,
) -> None:
    """List who wrote: how much and how, and whether in the right order.

    PATHS are brokers' data dirs, folders of partitions, tars of them, or segment files. A
    row for each producer of each partition; producer_id -1 stands for all that have none.
    """
    run = TableRun(paths, output_format, output)
    run.write(PRODUCERS_COLUMNS, list(run.results(lambda path: ks.read_producers(path, **options))))
    context.exit(run.exit_code)


@_log_verb
@click.option("--deep", is_flag=True,
              help="Decompress messages of magic 0 and 1, whose headers do not tell.")  # fmt: skip
@click.pass_context
def count(
    context: click.Context,
    /,
    paths: list[Path],
    output_format: str,
    output: Path | None,
    **options: Any,
) -> None:
    """Count records exactly: all, committed, aborted, those of open transactions.

    PATHS are brokers' data dirs, folders of partitions, tars of them, or segment files. A
    row for each partition; is_exact says whether headers told of all records.
    """
    run = TableRun(paths, output_format, output)
    run.write(COUNT_COLUMNS, list(run.results(lambda path: ks.count_records(path, **options))))
    context.exit(run.exit_code)
