"""The verbs that write logs anew: convert, restamp, scrub."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

import kafkascan as ks
from kafkascan.cli.options import InputPath, Time, with_threads
from kafkascan.cli.output import FORMATS, write_rows
from kafkascan.cli.session import (
    EXIT_CLEAN,
    EXIT_FINDINGS,
    EXIT_UNREADABLE,
    READ_ERRORS,
    Report,
    tell_on_stderr,
)
from kafkascan.names import printable

_PLACES = ("path", "target", "size", "new_size", "is_changed")
CONVERT_COLUMNS = (*_PLACES, "batches", "copied", "recompressed", "converted", "dropped")
RESTAMP_COLUMNS = (*_PLACES, "batches", "signed")
SCRUB_COLUMNS = (
    *_PLACES, "batches", "copied", "rewritten", "emptied", "dropped", "records", "kept_records",
    "first_dropped_offset", "last_dropped_offset",
)  # fmt: skip


def with_target(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what these verbs take: what to read, where to write, and how to say so."""
    decorators = [
        click.argument("path", type=InputPath()),
        click.option(
            "--out", "target", type=InputPath(), metavar="TARGET",
            help="A folder for a partition's folder, a file for a log; not there yet.",
        ),
        click.option(
            "--in-place", is_flag=True,
            help="Replace what is there, each file at once; not while a broker uses it.",
        ),
        click.option(
            "--interval-bytes", type=click.IntRange(0, 2**31 - 1), metavar="BYTES",
            help="The broker's index.interval.bytes. In place, by default, what the metadata log"
            " in the data dir says of the topic; otherwise 4096.",
        ),
        click.option(
            "--format", "output_format", type=click.Choice(FORMATS), default="table",
            show_default=True, help="Of the rows, one for each log.",
        ),
    ]  # fmt: skip
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


@click.command()
@with_target
@click.option("--to-magic", type=click.IntRange(0, 2), help="The message format.")
@click.option(
    "--compression-type", type=click.Choice([one.display_name for one in ks.CompressionType]),
    help="By default each batch keeps its own.",
)  # fmt: skip
@click.option("--compression-level", type=int, help="By default Kafka's for the codec.")
@click.option(
    "--batch-size", type=click.IntRange(min=1), default=16384, show_default=True,
    help="Messages of old formats are gathered up to about this many bytes.",
)  # fmt: skip
@with_threads
@click.pass_context
def convert(
    context: click.Context,
    /,
    path: Path,
    target: Path | None,
    in_place: bool,
    output_format: str,
    **options: Any,
) -> None:
    """Change the message format or the compression of a log.

    PATH is a .log file or the folder of a partition. What the new format has no room for is
    told on stderr.
    """
    if options["to_magic"] is None and options["compression_type"] is None:
        raise click.UsageError("name a format with --to-magic, or a codec with --compression-type")

    def run() -> ks.LogRewrite:
        return ks.convert_log(path, target, in_place=in_place, **options)

    _run(context, path, target, in_place, output_format, CONVERT_COLUMNS, run)


@click.command()
@with_target
@click.option(
    "--offset-shift", type=click.IntRange(-(2**63), 2**63 - 1), default=0,
    help="Add this to all offsets.",
)  # fmt: skip
@click.option("--partition-leader-epoch", type=click.IntRange(-1, 2**31 - 1))
@click.option(
    "--log-append-time", type=Time(),
    help="Give all records this time, as of a topic with LogAppendTime.",
)  # fmt: skip
@click.option("--max-timestamp", type=Time(), help="Give all batches this max_timestamp.")
@click.pass_context
def restamp(
    context: click.Context,
    /,
    path: Path,
    target: Path | None,
    in_place: bool,
    output_format: str,
    log_append_time: int | None,
    max_timestamp: int | None,
    **options: Any,
) -> None:
    """Write header fields of all batches of a log anew; records stay as they are.

    PATH is a .log file or the folder of a partition.
    """
    if log_append_time is not None and max_timestamp is not None:
        raise click.UsageError("--log-append-time and --max-timestamp exclude each other")
    times = (log_append_time, max_timestamp, options["partition_leader_epoch"])
    if not options["offset_shift"] and times == (None, None, None):
        raise click.UsageError("name what is to change")
    kind = None if log_append_time is None else ks.TimestampType.LOG_APPEND_TIME
    time = max_timestamp if log_append_time is None else log_append_time

    def run() -> ks.LogRewrite:
        return ks.restamp_log(
            path, target, in_place=in_place, max_timestamp=time, timestamp_type=kind, **options
        )

    _run(context, path, target, in_place, output_format, RESTAMP_COLUMNS, run)


@click.command()
@with_target
@click.option("--key", "keys", multiple=True, help="Drop records with this key (UTF-8).")
@click.option(
    "--keys-from", type=click.File("rb"), metavar="FILE", help="Keys to drop, one in a line."
)
@click.option("--from-offset", type=int, help="Drop records from this offset on.")
@click.option("--to-offset", type=int, help="Drop records up to this offset, with it.")
@with_threads
@click.pass_context
def scrub(
    context: click.Context,
    /,
    path: Path,
    target: Path | None,
    in_place: bool,
    output_format: str,
    keys: tuple[str, ...],
    keys_from: Any,
    from_offset: int | None,
    to_offset: int | None,
    **options: Any,
) -> None:
    """Take records out of a log, as compaction does, and make sure that they are gone.

    PATH is a .log file or the folder of a partition. Keys and a range of offsets exclude each
    other. Offsets, sequences and markers stay; what is left is read again before it is put in
    its place.
    """
    names = [key.encode("utf-8", "surrogateescape") for key in keys]
    names += [] if keys_from is None else keys_from.read().splitlines()
    by_offset = from_offset is not None or to_offset is not None
    if bool(names) == by_offset:
        raise click.UsageError("name either keys or offsets that are to go")
    keep = ks.without_offsets(from_offset, to_offset) if by_offset else ks.without_keys(names)

    def run() -> ks.LogRewrite:
        return ks.scrub_log(path, target, keep=keep, in_place=in_place, **options)

    _run(context, path, target, in_place, output_format, SCRUB_COLUMNS, run)


def _run(
    context: click.Context,
    path: Path,
    target: Path | None,
    in_place: bool,
    output_format: str,
    columns: tuple[str, ...],
    run: Callable[[], ks.LogRewrite],
) -> None:
    """Write anew, then the rows and the findings."""
    if in_place == (target is not None):
        raise click.UsageError("name a target with --out, or ask for --in-place")
    report = Report(lambda size: None)
    try:
        result = run()
    except READ_ERRORS as error:
        report.unreadable(str(path), error)
        tell_on_stderr(report)
        context.exit(EXIT_UNREADABLE)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    rows = [_row(one) for one in result.segments]
    write_rows(output_format, columns, rows)
    context.exit(_tell(result))


def _row(one: ks.SegmentRewrite) -> dict[str, Any]:
    dropped = getattr(one.report, "dropped_offsets", None)
    first, last = (None, None) if dropped is None or not len(dropped) else dropped[[0, -1]].tolist()
    ends = {"first_dropped_offset": first, "last_dropped_offset": last}
    places = {name: _plain(getattr(one, name)) for name in _PLACES}
    return {**vars(one.report), **ends, **places}


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def _tell(result: ks.LogRewrite) -> int:
    """Say on stderr what a reader should know; returns the exit code."""
    lines = [str(one) for one in result.findings]
    code = EXIT_FINDINGS if any(one.severity != "note" for one in result.findings) else EXIT_CLEAN
    for segment in result.segments:
        for name, count in getattr(segment.report, "lost", {}).items():
            lines.append(f"{segment.path}: lost {count} {name.replace('_', ' ')}")
            code = EXIT_FINDINGS
    for line in lines:
        print(printable(line), file=sys.stderr)
    return code
