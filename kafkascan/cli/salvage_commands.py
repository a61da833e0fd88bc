"""The verb that copies logs without their damage."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

import kafkascan as ks
from kafkascan.cli.log_commands import TableRun, log_output
from kafkascan.cli.options import InputPath, with_threads
from kafkascan.cli.session import EXIT_UNREADABLE, Report, tell_on_stderr
from kafkascan.files import AtomicFile

SALVAGE_COLUMNS = (
    "topic", "partition", "segment", "what", "symbol", "position", "size", "first_offset",
    "last_offset", "reason",
)  # fmt: skip


@click.command()
@click.argument("path", type=InputPath())
@click.argument("destination", required=False, type=InputPath())
@click.option(
    "--doubtful", type=click.Choice(("keep", "drop")), default="keep", show_default=True,
    help="Batches in damage that may be the content of a damaged record.",
)  # fmt: skip
@click.option(
    "--interval-bytes", type=click.IntRange(min=0), default=4096, show_default=True,
    help="The broker's index.interval.bytes.",
)  # fmt: skip
@click.option("--report", type=InputPath(), metavar="FILE", help="All that was found, as JSON.")
@log_output
@with_threads
@click.pass_context
def salvage(
    context: click.Context,
    /,
    path: Path,
    destination: Path | None,
    output_format: str,
    output: Path | None,
    report: Path | None,
    **options: Any,
) -> None:
    """Copy logs without their damage, with what is intact behind it.

    PATH is a broker's data dir, the folder of one partition, a tar of them, or a segment file;
    DESTINATION a folder that is empty or not there yet. Without it nothing is written, and the
    rows tell what would be lost or mended. Exit code 1 says that something is lost.
    """
    run = TableRun([path], output_format, output)
    found: list[ks.Salvage] = list(run.results(lambda one: ks.salvage(one, destination, **options)))
    for result in found:
        if report is not None:
            with AtomicFile(report) as file:
                file.stream.write(result.to_json().encode())
        for one in result.partitions:
            _tell(run, one)
        if result.is_marked_clean:
            print(f"{destination}: marked as shut down cleanly", file=sys.stderr)
    run.write(SALVAGE_COLUMNS, found)
    context.exit(run.exit_code)


def _offsets(loss: ks.Loss) -> str:
    if loss.first_offset is None and loss.last_offset is None:
        return "of no known offsets"
    first = "?" if loss.first_offset is None else loss.first_offset
    return f"offsets {first} to {'?' if loss.last_offset is None else loss.last_offset}"


def _tell(run: TableRun, one: ks.PartitionSalvage) -> None:
    """Say what is lost of a partition, and what keeps it from being copied."""
    told = Report(lambda size: None)
    for segment in one.segments:
        for loss in segment.losses:
            place = f"{one.path / segment.name}: position {loss.position}"
            told.finding(f"{place}: {loss.size} bytes lost, {_offsets(loss)} [{loss.symbol}]")
        for piece in segment.pieces:
            if piece.is_doubtful:
                place = f"{one.path / segment.name}: position {piece.position}"
                told.finding(f"{place}: {piece.batches} batches kept that may be nested [DOUBTFUL]")
    if one.error is not None:
        told.unreadable(str(one.path), one.error)
    tell_on_stderr(told)
    run.exit_code = max(run.exit_code, min(told.exit_code, EXIT_UNREADABLE))
