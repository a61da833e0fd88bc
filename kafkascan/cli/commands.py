"""The verbs."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from numpy.typing import NDArray

import kafkascan as ks
from kafkascan.batch_columns import BatchTable, require_columns
from kafkascan.cli.compare_commands import advise, diff
from kafkascan.cli.index_commands import index
from kafkascan.cli.inputs import PLACE_COLUMNS, Input
from kafkascan.cli.log_commands import audit, count, producers, txns
from kafkascan.cli.options import Time, with_inputs, with_threads
from kafkascan.cli.output import NAMED_CODES, Columns, open_writer, write_rows
from kafkascan.cli.record_commands import records
from kafkascan.cli.recovery_commands import recover
from kafkascan.cli.report_commands import report
from kafkascan.cli.rewrite_commands import convert, restamp, scrub
from kafkascan.cli.salvage_commands import salvage
from kafkascan.cli.session import EXIT_UNREADABLE, EXIT_USAGE, Report, Session
from kafkascan.cli.spark_commands import spark

INFO_COLUMNS = (
    *PLACE_COLUMNS, "size", "batches", "records", "uncounted_batches", "first_offset",
    "last_offset", "min_timestamp", "max_timestamp", "codecs", "magics", "end", "trailing_bytes",
)  # fmt: skip
VERIFY_COLUMNS = (
    *PLACE_COLUMNS, "size", "batches", "bad_checksums", "end", "valid_bytes", "trailing_bytes",
)  # fmt: skip
BATCH_COLUMNS = (
    "position", "base_offset", "last_offset", "records_count", "size_in_bytes", "magic",
    "compression_type", "max_timestamp", "timestamp_type", "producer_id", "producer_epoch",
    "base_sequence", "partition_leader_epoch", "is_transactional", "is_control",
)  # fmt: skip
CRC_COLUMN = "crc_is_valid"
LISTED_COLUMNS = (*PLACE_COLUMNS, *ks.COLUMN_NAMES, CRC_COLUMN)


class ColumnList(click.ParamType["tuple[str, ...]"]):
    """Column names separated by commas, or ``all``."""

    name = "columns"

    def convert(self, value: Any, param: Any, context: Any) -> tuple[str, ...]:
        """Return the names, all of them known."""
        if not isinstance(value, str):
            return tuple(value)
        names = ks.COLUMN_NAMES if value == "all" else tuple(dict.fromkeys(value.split(",")))
        try:
            require_columns([name for name in names if name not in LISTED_COLUMNS])
        except ValueError as error:
            self.fail(str(error), param, context)
        return names


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(ks.__version__, prog_name="kafkascan")
def cli() -> None:
    """Read Kafka's segment files: no broker, no JVM.

    PATHS are segment files (.log, also .log.deleted, .cleaned and .swap, and KRaft
    .checkpoint files), folders of partitions, a broker's data dirs, or tars of them.

    Rows go to stdout, findings to stderr. Exit codes: 0 clean, 1 findings (damage, a torn
    or a zero tail), 2 wrong usage, 3 something could not be read.
    """


@cli.command()
@with_inputs
@with_threads
@click.pass_context
def info(
    context: click.Context,
    paths: list[Path],
    output_format: str,
    memory_map: bool,
    drop_cache: bool,
    threads: int | None,
) -> None:
    """Say what each segment holds, from batch headers alone."""

    def summarize(one: Input, source: ks.Source, report: Report) -> dict[str, Any]:
        summary = ks.BatchSummary()
        for table in report.tables(source):
            summary.add(table)
        counts = {"codecs": dict(summary.codecs), "magics": dict(summary.magics)}
        return one.place | vars(summary) | counts | _ending(source, report)

    session = Session(paths, memory_map=memory_map, drop_cache=drop_cache, shows_progress=True)
    write_rows(output_format, INFO_COLUMNS, list(session.map(summarize, threads)))
    context.exit(session.exit_code)


@cli.command()
@with_inputs
@with_threads
@click.pass_context
def verify(
    context: click.Context,
    paths: list[Path],
    output_format: str,
    memory_map: bool,
    drop_cache: bool,
    threads: int | None,
) -> None:
    """Verify the checksum of every batch."""

    def count_bad(one: Input, source: ks.Source, report: Report) -> dict[str, Any]:
        counts = {"batches": 0, "bad_checksums": 0}
        for table in report.tables(source):
            verdicts = ks.verify_crcs(source, table, threads=1)
            _note_bad_checksums(report, source.path, table, verdicts)
            counts["batches"] += len(table)
            counts["bad_checksums"] += len(table) - int(verdicts.sum())
        return one.place | counts | _ending(source, report)

    session = Session(paths, memory_map=memory_map, drop_cache=drop_cache, shows_progress=True)
    write_rows(output_format, VERIFY_COLUMNS, list(session.map(count_bad, threads)))
    context.exit(session.exit_code)


def _ending(source: ks.Source, report: Report) -> dict[str, Any]:
    outcome = report.outcome
    return {
        "size": source.size,
        "end": str(outcome.end),
        "valid_bytes": outcome.valid_bytes,
        "trailing_bytes": outcome.trailing_bytes,
    }


def _note_bad_checksums(
    report: Report, path: str, rows: BatchTable, verdicts: NDArray[np.bool_]
) -> None:
    for batch in rows[~verdicts] if not verdicts.all() else ():
        report.finding(
            f"{path}: position {batch['position']} (base_offset {batch['base_offset']}):"
            f" the stored checksum {batch['crc']} is not that of the bytes [BAD_CRC]"
        )


@cli.command()
@with_inputs
@click.option(
    "--columns", type=ColumnList(), default=BATCH_COLUMNS, show_default=False,
    help=f"Comma-separated, or 'all'. Known: {', '.join(LISTED_COLUMNS)}.",
)  # fmt: skip
@click.option("--head", type=click.IntRange(min=0), metavar="N", help="Only the first N batches.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N batches.")
@click.option("--from-offset", type=int, help="Batches that reach this offset or a later one.")
@click.option("--to-offset", type=int, help="Batches that start before this offset.")
@click.option("--from-time", type=Time(), help="Batches whose max_timestamp is not before this.")
@click.option("--to-time", type=Time(), help="Batches whose max_timestamp is before this.")
@click.option("--verify", is_flag=True, help=f"Verify checksums: adds the column {CRC_COLUMN}.")
@click.pass_context
def batches(
    context: click.Context,
    paths: list[Path],
    output_format: str,
    memory_map: bool,
    drop_cache: bool,
    columns: tuple[str, ...],
    head: int | None,
    tail: int | None,
    from_offset: int | None,
    to_offset: int | None,
    from_time: int | None,
    to_time: int | None,
    verify: bool,
) -> None:
    """List batches: one row per batch header.

    Filters come first, then --head and --tail; both count over all PATHS.
    """
    if head is not None and tail is not None:
        raise click.UsageError("--head and --tail exclude each other")
    session = Session(
        paths,
        memory_map=memory_map,
        drop_cache=drop_cache,
        shows_progress=not sys.stdout.isatty(),  # rows show the progress by themselves
    )
    if len(session.inputs) > 1:
        columns = tuple(dict.fromkeys((*PLACE_COLUMNS, *columns)))
    if verify:
        columns = tuple(dict.fromkeys((*columns, CRC_COLUMN)))
    selection = Selection(from_offset, to_offset, from_time, to_time)
    writer = open_writer(output_format, columns)
    with session.progress():
        pieces = _selected(session, selection, head)
        for one, rows in pieces if tail is None else _last_rows(pieces, tail):
            writer.write(_to_columns(session, one, rows, columns))
    writer.close()
    context.exit(session.exit_code)


class Selection(NamedTuple):
    """Which batches are asked for; None is no limit."""

    from_offset: int | None
    to_offset: int | None
    from_time: int | None
    to_time: int | None

    def of(self, table: BatchTable) -> BatchTable:
        """Return the rows that are asked for."""
        mask = ks.select_offsets(table, self.from_offset, self.to_offset)
        mask &= ks.select_times(table, self.from_time, self.to_time)
        return table if mask.all() else table[mask]


def _selected(
    session: Session, selection: Selection, head: int | None
) -> Iterator[tuple[Input, BatchTable]]:
    """Yield the selected rows of all inputs, up to a number."""
    left = head
    for one in session.inputs:
        if left == 0:
            return
        for table in session.tables(one):
            rows = selection.of(table)[:left]
            left = None if left is None else left - len(rows)
            yield one, rows
            if left == 0:
                return


def _to_columns(session: Session, one: Input, rows: BatchTable, names: Sequence[str]) -> Columns:
    columns: dict[str, list[Any]] = {}
    for name in names:
        if name in PLACE_COLUMNS:
            columns[name] = [one.place[name]] * len(rows)
        elif name == CRC_COLUMN:
            columns[name] = _verify_listed(session, one, rows)
        elif name in NAMED_CODES:
            codes = ks.column(rows, name).tolist()
            columns[name] = [NAMED_CODES[name].name_of(code) for code in codes]
        else:
            columns[name] = ks.column(rows, name).tolist()
    return columns


def _verify_listed(session: Session, one: Input, rows: BatchTable) -> list[bool | None]:
    """Return a verdict per row; None where the file cannot be read any more."""

    def verify(one: Input, source: ks.Source, report: Report) -> NDArray[np.bool_]:
        verdicts = ks.verify_crcs(source, rows)
        _note_bad_checksums(report, source.path, rows, verdicts)
        return verdicts

    verdicts = session.attempt(verify, one)
    return [None] * len(rows) if verdicts is None else verdicts.tolist()


def _last_rows(
    pieces: Iterator[tuple[Input, BatchTable]], count: int
) -> Iterator[tuple[Input, BatchTable]]:
    """Yield the pieces that hold the last rows, the first of them cut to fit."""
    kept: deque[tuple[Input, BatchTable]] = deque()
    surplus = -count
    for one, rows in pieces:
        kept.append((one, rows))
        surplus += len(rows)
        while kept and len(kept[0][1]) <= surplus:
            surplus -= len(kept.popleft()[1])
    for one, rows in kept:
        yield one, rows[max(0, surplus) :]
        surplus = 0


for command in (
    records, index, audit, txns, producers, count, diff, report, advise,
    recover, salvage, convert, restamp, scrub, spark,
):  # fmt: skip
    cli.add_command(command)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns its exit code."""
    try:
        code = cli.main(
            None if arguments is None else list(arguments),
            prog_name="kafkascan",
            standalone_mode=False,
        )
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return EXIT_USAGE
    except click.Abort:
        return 130
    except OSError as error:
        return _cannot_write(error)
    return int(code or 0)


def _cannot_write(error: OSError) -> int:
    """Say that stdout takes no more, and keep the interpreter from trying again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    place = f" {error.filename}" if error.filename else ""
    print(f"kafkascan: cannot write{place}: {error.strerror}", file=sys.stderr)
    return EXIT_UNREADABLE
