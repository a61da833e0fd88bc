"""The command `records`."""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import click
import numpy as np

import kafkascan as ks
from kafkascan.batches.arrow import NAMED_CODES
from kafkascan.batches.columns import BatchTable, next_offset
from kafkascan.cli.inputs import SEGMENT_COLUMNS, InputCursor, SegmentInput, SegmentPaths
from kafkascan.cli.output import ParquetOutput
from kafkascan.cli.row_writers import Columns
from kafkascan.cli.run import FindingReport, Run, scan
from kafkascan.cli.shared_options import Decorator, Time, check_ranges, with_run, with_segments
from kafkascan.io.concurrency import group_by_bytes
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
    verify: bool
    max_decompressed_size: int

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
        return table if mask.all() else table[mask]

    @property
    def read_columns(self) -> list[str]:
        """The columns to read: those that are shown, and those of the conditions."""
        shown = [name for name in self.columns if name not in SEGMENT_COLUMNS]
        needed = ["offset", "timestamp", *(["key"] if self.key is not None else [])]
        if self.control != "skip":
            needed += ["key", "value"]  # a control record is decoded from both
        return list(dict.fromkeys((*shown, *needed)))


Found = Iterator[tuple[SegmentInput, RecordTable]]


def _select(run: Run, inputs: Sequence[SegmentInput], query: RecordQuery) -> Found:
    """Yield the records that meet the conditions; a batch that cannot be read is a finding."""

    def read(
        wanted: RecordQuery, ends: list[int], source: ks.Source, report: FindingReport
    ) -> Iterator[RecordTable]:
        for batches in report.tables(source, scan(source)):
            ends.append(int(next_offset(batches[-1:])[0]))
            for table in _read_batches(source, wanted.select_batches(batches), wanted, report):
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


# ---- how keys and values are shown -----------------------------------------------------------


Decode = Callable[[bytes], Any]


def _text(data: bytes) -> str:
    # The output escapes bytes that are not UTF-8, in a way that text cannot imitate.
    return data.decode("utf-8", "surrogateescape")


def _json(data: bytes) -> Any:
    """Return the value of a JSON text; the text itself if it is not JSON that can be written."""
    try:
        value = json.loads(data)
        json.dumps([[[value]]], allow_nan=False)  # as deeply nested as in a row
    except (ValueError, RecursionError):
        return _text(data)
    return value


DECODERS: dict[str, Decode] = {
    "text": _text,
    "hex": bytes.hex,
    "base64": lambda data: base64.b64encode(data).decode(),
    "json": _json,
}


def decode_items(items: list[bytes | None], decoder: str) -> list[Any]:
    """Decode each item; None is a null and stays None."""
    decode = DECODERS[decoder]
    return [None if item is None else decode(item) for item in items]


def decode_headers(headers: list[tuple[bytes, bytes | None]], decoder: str) -> list[dict[str, Any]]:
    """Decode headers; their keys are always UTF-8."""
    decode = DECODERS[decoder]
    return [
        {"key": _text(key), "value": None if value is None else decode(value)}
        for key, value in headers
    ]


def decode_control(key: bytes | None, value: bytes | None) -> tuple[str, Any]:
    """Return the type of a control record, and its message by field names."""
    try:
        kind, code, _, message = ks.records.decode_control_record(key, value)
    except ValueError as error:
        return "INVALID", str(error)
    name = ks.records.ControlRecordType.UNKNOWN.name
    return (f"{name}({code})" if kind.name == name else kind.name), _to_json(message)


def _to_json(message: Any) -> Any:
    """Return a message made of the types that JSON has."""
    if isinstance(message, dict):
        return {name: _to_json(value) for name, value in message.items()}
    if isinstance(message, list):
        return [_to_json(value) for value in message]
    return message if isinstance(message, (int, float, str, type(None))) else str(message)


# ---- the command -----------------------------------------------------------------------------


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
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="Show at most N records.")
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
    **options: Any,
) -> None:
    """List records: offset, timestamp, key, value and headers.

    A batch that cannot be read is skipped and reported on stderr. If there are several files,
    the columns topic, partition and segment come first, and --limit applies to all files
    together. The end of a range is exclusive. That no record has the --key is a finding.
    """
    check_ranges(**options)
    inputs = run.find_segments(segments)
    if len(inputs) > 1:
        columns = tuple(dict.fromkeys((*SEGMENT_COLUMNS, *columns)))
    query = RecordQuery(columns, key=None if key is None else os.fsencode(key), **options)
    found = _select(run, inputs, query)
    if key is not None and limit != 0:
        found = _reporting_none(run, found, key)
    if limit is not None:
        found = _first_records(found, limit)
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
    if query.control != "skip":
        _decode_control(table, columns)
    return columns


def _decode_control(table: RecordTable, columns: dict[str, list[Any]]) -> None:
    """Replace key and value of control records by their type and message."""
    numpy = table.to_numpy()
    for index in np.flatnonzero(table["is_control"]).tolist():
        kind, message = decode_control(numpy["key"][index], numpy["value"][index])
        for name, decoded in (("key", kind), ("value", message)):
            if name in columns:
                columns[name][index] = decoded
