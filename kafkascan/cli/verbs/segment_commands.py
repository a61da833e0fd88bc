"""Commands about segment files: info, verify, batches."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

import kafkascan as ks
from kafkascan.batches.batch_schemas import ROLLUP_KEYS, ROLLUP_SCHEMA, SEGMENT_SCHEMA
from kafkascan.cli.shared_options import (
    NATURAL,
    THREADS,
    NameList,
    option,
    with_row_options,
    with_run,
    with_segments,
)
from kafkascan.logs.log_schemas import LOG_BATCH_SCHEMA
from kafkascan.tables.schema import Field, Shown

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kafkascan.batches.columns import BatchTable
    from kafkascan.batches.scan import BatchIterator
    from kafkascan.cli.run import FindingReport, ReadingReport, Run
    from kafkascan.logs.queries.conditions import RowRange
    from kafkascan.logs.queries.segment_inputs import SegmentInput, SegmentPaths
    from kafkascan.tables.table import Column

_INFO = SEGMENT_SCHEMA.select(
    (
        "topic", "partition", "segment", "size", "batches", "records", "uncounted_batches",
        "first_offset", "last_offset", "first_timestamp", "max_timestamp", "codecs", "magics",
        "end",
    )
)  # fmt: skip
INFO_SCHEMA = _INFO.with_last((replace(SEGMENT_SCHEMA["trailing_bytes"], shown=Shown.WIDE),))
VERIFY_SCHEMA = SEGMENT_SCHEMA.select(
    (
        "topic", "partition", "segment", "size", "batches", "bad_checksums", "end",
        "valid_bytes", "trailing_bytes",
    )
)  # fmt: skip
CRC_FIELD = Field("crc_is_valid", "bool", "whether the checksum is right", shown=Shown.ALWAYS,
                  alarms={"false": "red"})  # fmt: skip
_KNOWN = LOG_BATCH_SCHEMA.with_last((CRC_FIELD,))
DEFAULT_BATCH_SCHEMA = LOG_BATCH_SCHEMA.select(
    (
    "topic", "partition", "segment", "position", "base_offset", "last_offset", "records_count",
    "size_in_bytes", "magic", "compression_type", "max_timestamp", "timestamp_type",
    "producer_id", "producer_epoch", "base_sequence", "partition_leader_epoch",
    "is_transactional", "is_control",
    )
)  # fmt: skip
_SUMMED = ("size", "batches", "records", "uncounted_batches")
ROLLUP_NAMES = ("topic", "partition", "segment", *ROLLUP_KEYS)


# ---- info and verify -------------------------------------------------------------------------


@click.command()
@with_segments
@with_run(INFO_SCHEMA, to_file=True, sorts=(*INFO_SCHEMA.names, *ROLLUP_SCHEMA.names))
@THREADS
@option("--by NAMES", type=NameList(ROLLUP_NAMES),
        help="Show totals by these properties instead, separated by commas:"
        f" {', '.join(ROLLUP_NAMES)}. Days and hours are those of max_timestamp, in"
        " UTC.")  # fmt: skip
@option("-c --limit N", type=NATURAL, help="Show at most N rows, the first ones in their order.")
def info(
    run: Run,
    segments: SegmentPaths,
    threads: int | None,
    by: tuple[str, ...] | None,
    limit: int | None,
) -> None:
    """Summarize segment files from their batch headers.

    Prints a row per file: its size, batches, records, offsets, timestamps, codecs, message
    formats (magics), and how it ends. uncounted_batches counts compressed messages of old
    formats, whose headers do not contain the number of records. Control records are counted, too.
    first_timestamp is the earliest timestamp of a batch's first record; later records of a batch
    may be earlier.

    With --by, prints a row per value with its batches, records, bytes, their share of all bytes,
    and codecs: the largest first, or in the order of time if NAMES begin with day or hour. Bytes
    that are in no batch, such as preallocated zeros, count for their topic, partition and segment;
    they have no codec, magic, producer, day or hour.
    """
    if by is not None:
        _roll_up(run, segments, threads, by, limit)
        return

    def summarize(one: SegmentInput, report: ReadingReport) -> dict[str, Any]:
        from kafkascan.cli.run import scan

        summary = ks.batches.BatchSummary()
        with one.open(is_listed=True) as source:
            headers = scan(source)
            for table in report.tables(source, headers):
                summary.add(table)
        return one.labels | vars(summary) | _ending(source, headers)

    rows = run.map(run.find_segments(segments), summarize, threads)
    run.output.write_rows(INFO_SCHEMA, rows, footer=_totals(rows, "files", limit), limit=limit)


def _totals(rows: Sequence[Mapping[str, Any]], noun: str, limit: int | None) -> str:
    """Return a line with the totals of several rows, and how many of them are shown."""
    from rich.filesize import decimal

    if len(rows) < 2:
        return ""
    size, batches, records, unknown = (sum(row[name] for row in rows) for name in _SUMMED)
    counted = f"{'at least ' if unknown else ''}{records:,} records"
    hidden = limit is not None and limit < len(rows)
    shown = f", of which {limit:,} are shown" if hidden else ""
    return f"{len(rows):,} {noun}, {decimal(size)}, {batches:,} batches, {counted}{shown}\n"


def _roll_up(
    run: Run,
    segments: SegmentPaths,
    threads: int | None,
    by: tuple[str, ...],
    limit: int | None,
) -> None:
    """Write the totals of batches by properties of batches and segments."""
    from kafkascan.batches.rollup import TOTALS, merge_rows

    if run.output.columns is not None:
        raise click.UsageError("--by and --columns cannot be combined")
    counts = () if "codec" in by else ("codecs",)
    schema = ROLLUP_SCHEMA.select((*by, *TOTALS, "share", *counts))
    run.output.check_sort(schema.names)

    def total(one: SegmentInput, report: ReadingReport) -> list[dict[str, Any]]:
        from kafkascan.batches.rollup import BatchRollup
        from kafkascan.cli.run import scan

        rollup = BatchRollup([name for name in by if name in ROLLUP_KEYS])
        with one.open(is_listed=True) as source:
            headers = scan(source)
            for table in report.tables(source, headers):
                rollup.add(table)
            rollup.add_bytes(source.size - headers.valid_bytes)
        return [one.labels | row for row in rollup.rows()]

    found = itertools.chain.from_iterable(run.map(run.find_segments(segments), total, threads))
    rows = merge_rows(list(found), by)
    run.output.write_rows(schema, rows, footer=_totals(rows, "rows", limit), limit=limit)


@click.command()
@with_segments
@with_run(VERIFY_SCHEMA, to_file=True)
@THREADS
def verify(run: Run, segments: SegmentPaths, threads: int | None) -> None:
    """Verify the checksum of every batch in segment files.

    Prints a row per file: its batches, how many of them have a wrong checksum, and how the
    file ends. Each wrong checksum is also a line on stderr.
    """

    def count_bad(one: SegmentInput, report: ReadingReport) -> dict[str, Any]:
        from kafkascan.cli.run import scan

        counts = {"batches": 0, "bad_checksums": 0}
        with one.open(is_listed=True) as source:
            headers = scan(source, reads_content=True)
            for table in report.tables(source, headers):
                are_valid = ks.verify_crcs(source, table, threads=1)
                _add_bad_checksums(report, source.path, table, are_valid)
                counts["batches"] += len(table)
                counts["bad_checksums"] += len(table) - int(are_valid.sum())
        return one.labels | counts | _ending(source, headers)

    rows = run.map(run.find_segments(segments), count_bad, threads)
    run.output.write_rows(VERIFY_SCHEMA, rows)


def _ending(source: ks.Source, headers: BatchIterator) -> dict[str, Any]:
    return {
        "size": source.size,
        "end": str(headers.end),
        "valid_bytes": headers.valid_bytes,
        "trailing_bytes": headers.trailing_bytes,
    }


def _add_bad_checksums(
    report: FindingReport, path: str, rows: BatchTable, are_valid: NDArray[np.bool_]
) -> None:
    for batch in rows[~are_valid] if not are_valid.all() else ():
        report.add(
            f"{path}: position {batch['position']} (base_offset {batch['base_offset']}):"
            f" the stored checksum {batch['crc']} does not match the bytes [CHECKSUM_MISMATCH]"
        )


# ---- batches ---------------------------------------------------------------------------------


@click.command()
@with_segments
@with_run(_KNOWN, rows="batches", to_file=True, sorts=())
@with_row_options("batches", "max_timestamp",
                  "that end before OFFSET", "that start at OFFSET or after it")  # fmt: skip
@option("--verify",
        help="Verify the checksums of the shown batches; adds the column"
        f" {CRC_FIELD.name}.")  # fmt: skip
def batches(
    run: Run, segments: SegmentPaths, verify: bool, limits: RowRange, **options: Any
) -> None:
    """List the batches of segment files, a row per batch header.

    --limit and --tail apply last, to the selected batches of all PATHS together. --follow shows
    the selected batches, then those that a broker appends, until Ctrl-C.
    """
    from kafkascan.cli.row_reading import RowReader, open_rows, selected_batches
    from kafkascan.logs.record_scan import RecordScan
    from kafkascan.records.read_options import ReadOptions

    inputs = run.find_segments(segments)
    schema = _KNOWN if run.output.columns is not None else DEFAULT_BATCH_SCHEMA
    if verify:
        run.output = run.output.with_last(CRC_FIELD.name)
        schema = schema.with_last((CRC_FIELD,))
    condition = limits.condition("base_offset", "last_offset", "max_timestamp")
    scan = RecordScan(options=ReadOptions(control="include", selects_few=True), condition=condition)
    found = RowReader(run, scan, selected_batches).find(inputs, **options)
    with open_rows(run, inputs, schema, is_followed=options["is_followed"]) as writer:
        for one, rows in found:
            writer.write(_to_columns(run, one, rows, writer.schema.names))


def _to_columns(
    run: Run, one: SegmentInput, rows: BatchTable, names: Sequence[str]
) -> dict[str, Column]:
    from kafkascan.batches.arrow import NAMED_CODES, named_codes
    from kafkascan.batches.columns import column
    from kafkascan.tables.text_columns import Repeated

    columns: dict[str, Column] = {}
    for name in names:
        if name in one.labels:
            columns[name] = Repeated.once(one.labels[name], len(rows))
        elif name == CRC_FIELD.name:
            columns[name] = _verify_rows(run, one, rows)
        elif name in NAMED_CODES:
            columns[name] = named_codes(name, column(rows, name))
        else:
            columns[name] = column(rows, name)
    return columns


def _verify_rows(run: Run, one: SegmentInput, rows: BatchTable) -> list[bool | None]:
    """Return a verdict per row; None if the file can no longer be read."""

    def verify(one: SegmentInput, report: ReadingReport) -> NDArray[np.bool_]:
        with one.open() as source:
            are_valid = ks.verify_crcs(source, rows)
            _add_bad_checksums(report, source.path, rows, are_valid)
        return are_valid

    are_valid = run.work_on(one, verify)
    return [None] * len(rows) if are_valid is None else are_valid.tolist()
