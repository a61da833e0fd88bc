"""The verb that puts logs in order."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import kafkascan as ks
from kafkascan.cli.options import InputPath, with_threads
from kafkascan.cli.output import FORMATS, write_rows
from kafkascan.cli.session import (
    EXIT_CLEAN,
    EXIT_UNREADABLE,
    READ_ERRORS,
    Report,
    tell_on_stderr,
)

RECOVERY_COLUMNS = (
    "topic", "partition", "log_start_offset", "log_end_offset", "segments", "recovered",
    "truncated_bytes", "changes", "changes_made", "error",
)  # fmt: skip


@click.command()
@click.argument("path", type=InputPath())
@click.option("--write", is_flag=True, help="Write indexes, snapshots and leader epochs.")
@click.option(
    "--truncate", is_flag=True,
    help="With --write: also cut logs off behind their last valid batch, and split segments with"
    " offsets too far apart.",
)  # fmt: skip
@click.option(
    "--backup/--no-backup", default=True, show_default=True,
    help="Keep what is replaced, cut off or dropped beside it, as .bak.",
)  # fmt: skip
@click.option(
    "--mark-clean/--no-mark-clean", default=True, show_default=True,
    help="Once a whole data dir is in order, tell the next broker not to do it again.",
)  # fmt: skip
@click.option(
    "--broker-epoch", type=click.IntRange(min=-1), metavar="EPOCH",
    help="Of the broker's last registration, for that mark. By default what the metadata log"
    " in the data dir says.",
)  # fmt: skip
@click.option(
    "--recovery-point", type=click.IntRange(min=0), metavar="OFFSET",
    help="Up to where logs were flushed. By default, what the data dir's checkpoint says;"
    " 0 reads all of each log.",
)  # fmt: skip
@click.option(
    "--log-start-offset", type=click.IntRange(min=0), metavar="OFFSET",
    help="By default, what the data dir's checkpoint says.",
)  # fmt: skip
@click.option(
    "--interval-bytes", type=click.IntRange(min=0), metavar="BYTES",
    help="The broker's index.interval.bytes. By default, what the metadata log in the data dir"
    " says of each topic, or 4096.",
)  # fmt: skip
@click.option(
    "--format", "output_format", type=click.Choice(FORMATS), default="table",
    show_default=True, help="Of the rows, one for each partition.",
)  # fmt: skip
@with_threads
@click.pass_context
def recover(
    context: click.Context,
    /,
    path: Path,
    output_format: str,
    write: bool,
    truncate: bool,
    **options: Any,
) -> None:
    """Put logs in order as a broker does when it starts after an unclean end.

    PATH is a broker's data dir or the folder of one partition. Without --write nothing is
    touched: what would be done is told on stderr, a line for each file. A data dir that a
    running broker uses is left alone.
    """
    if truncate and not write:
        raise click.UsageError("--truncate needs --write")
    with _progress_bar() as progress:
        task = progress.add_task("", total=None)

        def show(_: ks.PartitionRecovery, done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        try:
            result = ks.recover(path, write=write, truncate=truncate, on_progress=show, **options)
        except READ_ERRORS as error:
            report = Report(lambda size: None)
            report.unreadable(str(path), error)
            tell_on_stderr(report)
            context.exit(EXIT_UNREADABLE)
    write_rows(output_format, RECOVERY_COLUMNS, [_row(one) for one in result.partitions])
    if result.is_marked_clean:
        epoch = result.broker_epoch
        print(f"{path}: marked as shut down cleanly, broker epoch {epoch}", file=sys.stderr)
    context.exit(max([EXIT_CLEAN, *map(_tell, result.partitions)]))


def _row(one: ks.PartitionRecovery) -> dict[str, Any]:
    return vars(one) | {
        "segments": len(one.segments),
        "recovered": sum(segment.is_recovered for segment in one.segments),
        "truncated_bytes": one.truncated_bytes,
        "changes": len(one.changes),
        "changes_made": len(one.applied),
        "error": None if one.error is None else str(one.error),
    }


def _tell(one: ks.PartitionRecovery) -> int:
    """Say what is to be done in a partition, and what keeps it from being done."""
    report = Report(lambda size: None)
    for change in one.changes:
        if change not in one.applied:
            report.finding(f"{one.path / change.name}: {change.action}: {change.reason}")
    if one.error is not None:
        report.unreadable(str(one.path), one.error)
    tell_on_stderr(report)
    return report.exit_code


def _progress_bar() -> Progress:
    return Progress(
        TextColumn("partitions"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True, emoji=False),
        transient=True,
        disable=not sys.stderr.isatty(),
        redirect_stdout=False,
        redirect_stderr=False,
    )
