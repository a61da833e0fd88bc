"""The command `records`."""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

import kafkascan as ks
from kafkascan.batches.arrow import NAMED_CODES
from kafkascan.batches.columns import BatchTable, next_offset
from kafkascan.cli.inputs import SEGMENT_COLUMNS, InputCursor, SegmentInput, SegmentPaths
from kafkascan.cli.output import ParquetOutput
from kafkascan.cli.record_cells import (
    DECODERS,
    decode_control_records,
    decode_headers,
    decode_items,
    decode_messages,
)
from kafkascan.cli.row_writers import Columns
from kafkascan.cli.run import FindingReport, Run, scan
from kafkascan.cli.shared_options import Decorator, Time, check_ranges, with_run, with_segments
from kafkascan.io.concurrency import group_by_bytes
from kafkascan.logs.reading import Isolation
from kafkascan.records.record_table import RecordTable, stored_columns

DEFAULT_COLUMNS = ("offset", "timestamp", "key", "value", "headers")
# `batch` is an index into a table that users of the command line do not see.
LISTED_COLUMNS = (
    *SEGMENT_COLUMNS,
    *(name for name in ks.records.RECORD_COLUMN_NAMES if name != "batch"),
    *ks.batches.COLUMN_NAMES,
)

# Limits of one chunk that is shown or exported: records, and bytes of keys, values and headers.
_SHOWN_RECORDS, _SHOWN_BYTES = 1 << 10, 1 << 22
_EXPORTED_RECORDS, _EXPORTED_BYTES = 1 << 16, 1 << 26
# Memory that a header takes besides its bytes, approximately.
_HEADER_COST = 64


# ---- which records ---------------------------------------------------------------------------


@dataclass(frozen=True)
class RecordQuery:
    """Conditions on records, and the columns to read; None means no limit."""

    columns: tuple[str, ...]
    control: Any
    from_offset: int | None
    to_offset: int | None
    from_time: int | None
    to_time: int | None
    key: bytes | None
    grep: re.Pattern[bytes] | None
    isolation: Isolation
    verify: bool
    max_decompressed_size: int
    decodes: bool

    def from_start(self, offset: int) -> RecordQuery:
        """Return the conditions on the records of a log that starts at an offset."""
        if offset <= max(0, self.from_offset or 0):
            return self
        return replace(self, from_offset=offset)

    def select_batches(self, table: BatchTable) -> BatchTable:
        """Return the batches that may contain records that meet the conditions."""
        mask = ks.batches.select_offsets(table, self.from_offset, None)
        mask &= ks.batches.select_times(table, self.from_time, None)
        if self.to_offset is not None:
            # The header of a compressed message of magic 0 or 1 contains its last offset only.
            mask &= (table["base_offset"] < self.to_offset) | (table["records_count"] < 0)
        return table if mask.all() else table.take(np.flatnonzero(mask))

    def select_records(self, table: RecordTable) -> RecordTable:
        """Return the records that meet the conditions."""
        mask = np.ones(len(table), np.bool_)
        for name, start, stop in (
            ("offset", self.from_offset, self.to_offset),
            ("timestamp", self.from_time, self.to_time),
        ):
            if start is not None:
                mask &= table[name] >= start
            if stop is not None:
                mask &= table[name] < stop
        if self.key is not None:
            mask &= table["key_size"] == len(self.key)
            candidates = np.flatnonzero(mask)
            mask[candidates] = [key == self.key for key in table[candidates].items("key")]
        if self.grep is not None:
            candidates = np.flatnonzero(mask)
            mask[candidates] = self._matches(table[candidates], self.grep)
        return table if mask.all() else table[mask]

    @staticmethod
    def _matches(table: RecordTable, pattern: re.Pattern[bytes]) -> list[bool]:
        return [
            any(item is not None and pattern.search(item) for item in (key, value))
            for key, value in zip(table.items("key"), table.items("value"), strict=True)
        ]

    @property
    def read_columns(self) -> list[str]:
        """The columns to read: those that are shown, and those of the conditions."""
        shown = [name for name in self.columns if name not in SEGMENT_COLUMNS]
        needed = ["offset", "timestamp", *(["key"] if self.key is not None else [])]
        # A control record is decoded from both.
        if self.control != "skip" or self.grep is not None or self.decodes:
            needed += ["key", "value"]
        return list(dict.fromkeys((*shown, *needed)))


Found = Iterator[tuple[SegmentInput, RecordTable]]


def _select(run: Run, inputs: Sequence[SegmentInput], query: RecordQuery) -> Found:
    """Yield the records that meet the conditions; a batch that cannot be read is a finding."""
    visible = _Visibility(query.isolation)

    def read(
        wanted: RecordQuery, ends: list[int], source: ks.Source, report: FindingReport
    ) -> Iterator[RecordTable]:
        for batches in report.tables(source, scan(source)):
            ends.append(int(next_offset(batches[-1:])[0]))
            selected_batches = visible.select(one, source, wanted.select_batches(batches))
            for table in _read_batches(source, selected_batches, wanted, report):
                selected = wanted.select_records(table)
                if len(selected):
                    yield selected

    cursor = InputCursor()
    for one in inputs:
        ends: list[int] = []
        wanted = query.from_start(cursor.start_of(one))
        for table in run.stream(one, partial(read, wanted, ends)):
            yield one, table
        run.print_overlaps(cursor.add(one, ends[-1] if ends else None))


class _Visibility:
    """
    Selects the batches that a consumer sees; the transactions of each log are read once.

    Parameters
    ----------
    isolation : str
    """

    def __init__(self, isolation: Isolation) -> None:
        self._is_committed = isolation == "read_committed"
        self._views: dict[Path, ks.logs.CommittedView] = {}

    def select(self, one: SegmentInput, source: ks.Source, batches: BatchTable) -> BatchTable:
        """Return the visible batches of a segment."""
        if not self._is_committed or not len(batches):
            return batches
        path = one.partition.path if one.is_served else one.path
        if path not in self._views:
            log = one.partition if one.is_served else source
            self._views[path] = ks.logs.read_committed_view(log)
        return batches[self._views[path].mask(batches)]


def _last_records(found: Found, count: int) -> Found:
    """Yield the last records."""
    kept: deque[tuple[SegmentInput, RecordTable]] = deque()
    surplus = -count
    for one, table in found:
        kept.append((one, table))
        surplus += len(table)
        while kept and len(kept[0][1]) <= surplus:
            surplus -= len(kept.popleft()[1])
    for one, table in kept:
        yield one, table[max(0, surplus) :]
        surplus = 0


def _read_batches(
    source: ks.Source, batches: BatchTable, query: RecordQuery, report: FindingReport
) -> Iterator[RecordTable]:
    return ks.iter_records(
        source,
        batches,
        columns=query.read_columns,
        control=query.control,
        verify=query.verify,
        max_decompressed_size=query.max_decompressed_size,
        batch_size=8192,
        on_damage=lambda error: report.add(str(error)),
    )


def _reporting_none(run: Run, found: Found, key: str) -> Found:
    """Yield the records with a key; if there are none, that is a finding."""
    is_empty = True
    for one, table in found:
        is_empty = False
        yield one, table
    if is_empty:
        report = FindingReport()
        report.add(f"no selected record has the key {key!r} [KEY_NOT_FOUND]")
        run.print_report(report)


def _first_records(found: Found, count: int) -> Found:
    """Yield the first records, and read no further."""
    if count == 0:
        return
    for one, table in found:
        yield one, table[:count]
        count -= len(table)
        if count <= 0:
            return


def _chunks(found: Found, max_records: int, max_bytes: int) -> Found:
    """Split tables into chunks, as a small batch may contain millions of records."""
    for one, table in found:
        costs = np.zeros(len(table), np.int64)
        for name in ("key_size", "value_size"):
            costs += np.maximum(table.columns.get(name, 0), 0)
        costs += _HEADER_COST * table.columns.get("headers_count", np.int32(0)).astype(np.int64)
        for group in group_by_bytes(costs, max_bytes, most=max_records, exceed=True):
            yield one, table[group]


# ---- the command -----------------------------------------------------------------------------


class BytesPattern(click.ParamType):  # type: ignore[type-arg]  # as `NameList`
    """A regular expression that is searched in bytes."""

    name = "regex"

    def convert(self, value: Any, param: Any, context: Any) -> re.Pattern[bytes]:
        """Return the compiled expression."""
        try:
            return re.compile(os.fsencode(value), re.DOTALL)
        except re.error as error:
            self.fail(f"not a regular expression: {error}", param, context)


class RecordColumnList(click.ParamType):  # type: ignore[type-arg]  # subscripted from click 8.4 on
    """Record column names separated by commas."""

    name = "columns"

    def convert(self, value: Any, param: Any, context: Any) -> tuple[str, ...]:
        """Return the names; an unknown one is an error."""
        if not isinstance(value, str):
            return tuple(value)
        names = tuple(dict.fromkeys(value.split(",")))
        try:
            if "batch" in names:
                raise ValueError("there is no column 'batch'; did you mean 'position'?")
            stored_columns([name for name in names if name not in SEGMENT_COLUMNS])
        except ValueError as error:
            self.fail(str(error), param, context)
        return names


def _decoding_option(item: str) -> Decorator:
    return click.option(
        f"--{item}-as", type=click.Choice(list(DECODERS)), default="text", show_default=True,
        help=f"Show {item}s as UTF-8 text, hex, base64 or JSON. As text, a byte that is not UTF-8"
        " is shown as \\xff. Parquet always contains bytes.",
    )  # fmt: skip


@click.command()
@with_segments
@with_run(parquet=True, to_file=True, rows="records")
@click.option(
    "--columns", type=RecordColumnList(), default=DEFAULT_COLUMNS,
    show_default=", ".join(DEFAULT_COLUMNS),
    help=f"Columns to show, separated by commas. Known columns: {', '.join(LISTED_COLUMNS)}.",
)  # fmt: skip
@_decoding_option("key")
@_decoding_option("value")
@click.option("--from-offset", type=int, metavar="OFFSET", help="Skip records before OFFSET.")
@click.option("--to-offset", type=int, metavar="OFFSET", help="Skip records from OFFSET on.")
@click.option("--from-time", type=Time(), help="Skip records with a timestamp before TIME.")
@click.option("--to-time", type=Time(), help="Skip records with a timestamp of TIME or later.")
@click.option("--key", help="Show only records with this key (UTF-8).")
@click.option(
    "--grep", type=BytesPattern(), metavar="REGEX",
    help="Show only records whose key or value contains a match of REGEX (bytes, as in Python).",
)  # fmt: skip
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="Show at most N records.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Show the last N records.")
@click.option(
    "--isolation", type=click.Choice(["read_uncommitted", "read_committed"]),
    default="read_uncommitted", show_default=True,
    help="read_committed shows what a consumer with this isolation.level gets: no records of"
    " aborted transactions, and none from the first open transaction on.",
)  # fmt: skip
@click.option(
    "--decode", type=click.Choice(["auto", "none"]), default="auto", show_default=True,
    help="Decode the records of Kafka's own topics (auto), or show their bytes (none). A record"
    " that cannot be decoded is shown as its bytes.",
)  # fmt: skip
@click.option(
    "--control", type=click.Choice(["skip", "only", "include"]), default="skip",
    show_default=True,
    help="Skip control records (transaction markers, KRaft's records), show only control"
    " records, or include them. They are shown decoded.",
)  # fmt: skip
@click.option("--verify", is_flag=True, help="Skip batches with a wrong checksum.")
@click.option(
    "--max-decompressed-size", type=click.IntRange(min=1), metavar="BYTES",
    default=1 << 28, show_default=True,
    help="Skip batches that decompress to more than BYTES bytes.",
)  # fmt: skip
def records(
    run: Run,
    segments: SegmentPaths,
    columns: tuple[str, ...],
    key_as: str,
    value_as: str,
    key: str | None,
    limit: int | None,
    tail: int | None,
    decode: str,
    **options: Any,
) -> None:
    """List records: offset, timestamp, key, value and headers.

    A batch that cannot be read is skipped and reported on stderr. If there are several files,
    the columns topic, partition and segment come first, and --limit and --tail apply to all files
    together. The end of a range is exclusive. That no record has the --key is a finding.
    """
    if limit is not None and tail is not None:
        raise click.UsageError("--limit and --tail cannot be combined")
    check_ranges(**options)
    inputs = run.find_segments(segments)
    if len(inputs) > 1:
        columns = tuple(dict.fromkeys((*SEGMENT_COLUMNS, *columns)))
    options["decodes"] = decode == "auto" and run.output.output_format != "parquet"
    query = RecordQuery(columns, key=None if key is None else os.fsencode(key), **options)
    found = _select(run, inputs, query)
    if key is not None and limit != 0:
        found = _reporting_none(run, found, key)
    if limit is not None:
        found = _first_records(found, limit)
    if tail is not None:
        found = _last_records(found, tail)
    path, total = run.output.path, sum(one.size for one in inputs)
    # On a terminal, the rows show the progress.
    with run.progress("bytes", total, is_shown=path is not None or not sys.stdout.isatty()):
        if run.output.output_format == "parquet":
            assert path is not None
            with ParquetOutput(path, columns) as parquet:
                for one, table in _chunks(found, _EXPORTED_RECORDS, _EXPORTED_BYTES):
                    parquet.write(one.labels, table)
        else:
            with run.output.open(columns) as writer:
                for one, table in _chunks(found, _SHOWN_RECORDS, _SHOWN_BYTES):
                    writer.write(_to_columns(one, table, query, key_as, value_as))


def _to_columns(
    one: SegmentInput, table: RecordTable, query: RecordQuery, key_as: str, value_as: str
) -> Columns:
    columns: dict[str, list[Any]] = {}
    numpy = table.to_numpy()
    for name in query.columns:
        if name in SEGMENT_COLUMNS:
            columns[name] = [one.labels[name]] * len(table)
        elif name in ("key", "value"):
            columns[name] = decode_items(
                numpy[name].tolist(), key_as if name == "key" else value_as
            )
        elif name == "headers":
            columns[name] = [decode_headers(headers, value_as) for headers in numpy[name]]
        elif name in NAMED_CODES:
            columns[name] = [NAMED_CODES[name][0].name_of(code) for code in numpy[name].tolist()]
        else:
            columns[name] = numpy[name].tolist()
    if query.decodes:
        decode_messages(one.partition.topic, table, columns, {"key": key_as, "value": value_as})
    if query.control != "skip":
        decode_control_records(table, columns)
    return columns
