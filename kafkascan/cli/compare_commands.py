"""The verbs that compare: logs with each other, codecs with each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import click

import kafkascan as ks
from kafkascan.advice import DEFAULT_CHOICES
from kafkascan.cli.log_commands import TableRun, log_output
from kafkascan.cli.options import InputPath, with_threads
from kafkascan.files import AtomicFile

DIFF_COLUMNS = (
    "topic", "partition", "kind", "place", "left_first_offset", "left_last_offset",
    "right_first_offset", "right_last_offset", "left_batches", "right_batches", "is_difference",
)  # fmt: skip
ADVICE_COLUMNS = (
    "topic", "producer_id", "codec", "level", "ratio", "saving", "compress_mb_per_s",
    "decompress_mb_per_s", "batches", "total_bytes", "stored_codecs",
)  # fmt: skip


@click.command()
@click.argument("left", type=InputPath())
@click.argument("right", required=False, type=InputPath())
@click.option("--shifted", is_flag=True, help="The same content may have other offsets.")
@click.option("--compacted", is_flag=True, help="RIGHT may be a compacted copy of LEFT.")
@click.option(
    "--save", type=InputPath(), metavar="FILE",
    help="Write the fingerprints of LEFT to a .parquet or .json file, for another host.",
)  # fmt: skip
@click.option("--report", type=InputPath(), metavar="FILE", help="All that was found, as JSON.")
@log_output
@with_threads
@click.pass_context
def diff(
    context: click.Context,
    /,
    left: Path,
    right: Path | None,
    shifted: bool,
    compacted: bool,
    save: Path | None,
    report: Path | None,
    output_format: str,
    output: Path | None,
    threads: int | None,
) -> None:
    """Compare replicas, a backup or a mirror by their headers; no payload is read.

    LEFT and RIGHT are data dirs, folders of partitions, tars of them, segments, or files of
    fingerprints. A row for each range that differs; those that retention, lag or compaction
    explain are no difference. Exit code 1 says that there are others.
    """
    if (right is None) == (save is None):
        raise click.UsageError("give RIGHT to compare with, or --save FILE")
    run = TableRun([left], output_format, output)
    if right is None:
        assert save is not None
        for found in run.results(lambda path: ks.read_fingerprints(path, threads=threads)):
            damage = [message for one in found.logs for message in one.damage]
            if damage:
                run.note_findings(damage)
            _save(found, save)
        context.exit(run.exit_code)
    offsets: Literal["same", "shifted"] = "shifted" if shifted else "same"
    results: list[ks.LogDiff] = list(
        run.results(
            lambda path: ks.diff_logs(
                path, right, offsets=offsets, compacted=compacted, threads=threads
            )
        )
    )
    for result in results:
        if report is not None:
            with AtomicFile(report) as file:
                file.stream.write(result.to_json().encode())
        for one in result.partitions:
            _tell(run, one)
    run.write(DIFF_COLUMNS, results)
    context.exit(run.exit_code)


def _save(found: ks.Fingerprints, path: Path) -> None:
    try:
        found.save(path)
    except (ValueError, ImportError) as error:
        raise click.UsageError(str(error)) from None


def _tell(run: TableRun, one: ks.PartitionDiff) -> None:
    """Say how two logs differ, in a line."""
    name = f"{one.topic}-{one.partition}"
    messages = list(one.damage)
    if not (one.is_in_left and one.is_in_right):
        messages.append(f"{name}: is only in the {'left' if one.is_in_left else 'right'} one")
    elif one.differences:
        cut = one.truncation_offset
        cut_off = "" if cut is None else f"; a follower would be cut off at {cut}"
        ranges = f"{len(one.differences)} ranges"
        messages.append(f"{name}: differs from offset {one.first_divergence} on, {ranges}{cut_off}")
    if messages:
        run.note_findings(messages)


@click.command()
@click.argument("paths", nargs=-1, required=True, type=InputPath())
@click.option(
    "--codec", "choices", multiple=True, metavar="CODEC[:LEVEL]",
    help=f"What to try; by default {', '.join(DEFAULT_CHOICES)}.",
)  # fmt: skip
@click.option(
    "--by", type=click.Choice(("topic", "producer")), default="topic", show_default=True,
    help="What is sampled by itself.",
)  # fmt: skip
@click.option(
    "--sample", type=click.IntRange(min=1), default=100, show_default=True, metavar="N",
    help="Batches of each of them.",
)  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Of the choice of batches.")
@log_output
@with_threads
@click.pass_context
def advise(
    context: click.Context,
    /,
    paths: list[Path],
    output_format: str,
    output: Path | None,
    choices: tuple[str, ...],
    **options: Any,
) -> None:
    """Compress samples with other codecs, and tell what that would save.

    PATHS are brokers' data dirs, folders of partitions, tars of them, or segment files. A row
    for each codec: how many times smaller than not compressed, which part of what is stored now
    would be saved, and speeds in MB of records per second, of one thread and of the libraries
    at hand.
    """
    run = TableRun(paths, output_format, output)
    if choices:
        options["choices"] = choices

    def read(path: Path) -> ks.Advice:
        try:
            return ks.advise(path, **options)
        except ValueError as error:
            if isinstance(error, ks.KafkaScanError):
                raise
            raise click.UsageError(str(error)) from None

    found: list[ks.Advice] = list(run.results(read))
    for one in found:
        if one.damage:
            run.note_findings(one.damage)
    run.write(ADVICE_COLUMNS, found)
    context.exit(run.exit_code)
