"""The verb that reads records."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

import kafkascan as ks
from kafkascan.arrow import require_pyarrow
from kafkascan.batch_columns import BatchTable
from kafkascan.cli.decoding import DECODERS, decode_control, decode_headers, decode_items
from kafkascan.cli.inputs import PLACE_COLUMNS, Input
from kafkascan.cli.options import InputPath, Time, with_inputs
from kafkascan.cli.output import FORMATS, NAMED_CODES, Columns, Writer, open_output
from kafkascan.cli.parquet import ParquetOutput
from kafkascan.cli.session import Report, Session
from kafkascan.record_table import RecordTable, stored_columns

DEFAULT_COLUMNS = ("offset", "timestamp", "key", "value", "headers")
# Not the number of the batch in a table, of which nobody hears here; it has a `position`.
LISTED_COLUMNS = (
    *PLACE_COLUMNS,
    *(name for name in ks.RECORD_COLUMN_NAMES if name != "batch"),
    *ks.COLUMN_NAMES,
)

# What is shown at once: records, and bytes of keys, values and headers.
_SHOWN_RECORDS, _SHOWN_BYTES = 1 << 10, 1 << 22
_EXPORTED_RECORDS, _EXPORTED_BYTES = 1 << 16, 1 << 26
# A header takes about this much besides its bytes.
_HEADER_COST = 64


@dataclass(frozen=True)
class Query:
    """Which records are asked for, and what of them; None is no limit."""

    columns: tuple[str, ...]
    control: Any
    from_offset: int | None
    to_offset: int | None
    from_time: int | None
    to_time: int | None
    key: bytes | None
    verify: bool
    max_decompressed_size: int

    def batches_of(self, table: BatchTable) -> BatchTable:
        """Return the batches that may hold what is asked for."""
        mask = ks.select_offsets(table, self.from_offset, None)
        mask &= ks.select_times(table, self.from_time, None)
        if self.to_offset is not None:
            # Of a compressed message of magic 0 or 1, the header tells the last offset only.
            mask &= (table["base_offset"] < self.to_offset) | (table["records_count"] < 0)
        return table if mask.all() else table.take(np.flatnonzero(mask))

    def records_of(self, table: RecordTable) -> RecordTable:
        """Return the records that are asked for."""
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
            likely = np.flatnonzero(mask)
            found = [key == self.key for key in table[likely].items("key")]
            mask[likely] = found
        return table if mask.all() else table[mask]

    @property
    def read_columns(self) -> list[str]:
        """What has to be read: what is shown, and what is filtered by."""
        shown = [name for name in self.columns if name not in PLACE_COLUMNS]
        needed = ["offset", "timestamp", *(["key"] if self.key is not None else [])]
        if self.control != "skip":
            needed += ["key", "value"]  # what a control record says is in both
        return list(dict.fromkeys((*shown, *needed)))


class RecordColumnList(click.ParamType["tuple[str, ...]"]):
    """Column names separated by commas."""

    name = "columns"

    def convert(self, value: Any, param: Any, context: Any) -> tuple[str, ...]:
        """Return the names, all of them known."""
        if not isinstance(value, str):
            return tuple(value)
        names = tuple(dict.fromkeys(value.split(",")))
        try:
            if "batch" in names:
                raise ValueError("there is no column 'batch'; did you mean 'position'?")
            stored_columns([name for name in names if name not in PLACE_COLUMNS])
        except ValueError as error:
            self.fail(str(error), param, context)
        return names


def _with_inputs(command: Callable[..., Any]) -> Callable[..., Any]:
    return with_inputs(command, (*FORMATS, "parquet"))


def _as_option(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(
        f"--{what}-as", type=click.Choice(list(DECODERS)), default="text", show_default=True,
        help=f"How {what}s are shown; not in Parquet, which holds bytes.",
    )  # fmt: skip


@click.command()
@_with_inputs
@click.option(
    "--columns", type=RecordColumnList(), default=DEFAULT_COLUMNS, show_default=False,
    help=f"Comma-separated. Known: {', '.join(LISTED_COLUMNS)}.",
)  # fmt: skip
@_as_option("key")
@_as_option("value")
@click.option("--from-offset", type=int, help="Records of this offset or a later one.")
@click.option("--to-offset", type=int, help="Records before this offset.")
@click.option("--from-time", type=Time(), help="Records whose timestamp is not before this.")
@click.option("--to-time", type=Time(), help="Records whose timestamp is before this.")
@click.option("--key", help="Records with this key, as UTF-8.")
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="Only the first N.")
@click.option(
    "--control", type=click.Choice(["skip", "only", "include"]), default="skip",
    show_default=True, help="Markers of transactions and KRaft's own records, decoded.",
)  # fmt: skip
@click.option("--verify", is_flag=True, help="Read no batch whose checksum is wrong.")
@click.option(
    "--max-decompressed-size", type=click.IntRange(min=1), metavar="BYTES",
    default=1 << 28, show_default=True, help="That one batch may take.",
)  # fmt: skip
@click.option(
    "--output", type=InputPath(), metavar="FILE",
    help="Instead of stdout; it appears when it is whole. Parquet needs it.",
)  # fmt: skip
def records(
    paths: list[Path],
    output_format: str,
    memory_map: bool,
    drop_cache: bool,
    columns: tuple[str, ...],
    key_as: str,
    value_as: str,
    limit: int | None,
    key: str | None,
    output: Path | None,
    **options: Any,
) -> None:
    """List records: offsets, timestamps, keys, values, headers.

    A batch that cannot be read is a finding; the records of the others follow. --limit
    counts over all PATHS.
    """
    if output_format == "parquet" and output is None:
        raise click.UsageError("Parquet is written to a file: --output FILE")
    if output_format == "parquet":
        _require_parquet()
    session = Session(
        paths,
        memory_map=memory_map,
        drop_cache=drop_cache,
        shows_progress=output is not None or not sys.stdout.isatty(),
    )
    _require_output(output, session.inputs)
    if len(session.inputs) > 1:
        columns = tuple(dict.fromkeys((*PLACE_COLUMNS, *columns)))
    query = Query(columns, key=None if key is None else os.fsencode(key), **options)
    with session.progress():
        found = _limited(_found(session, query), limit)
        if output_format == "parquet":
            assert output is not None
            with ParquetOutput(output, columns) as parquet:
                for one, table in _pieces(found, _EXPORTED_RECORDS, _EXPORTED_BYTES):
                    parquet.write(one.place, table)
        else:
            with open_output(output_format, columns, output) as writer:
                _write(writer, found, query, key_as, value_as)
    click.get_current_context().exit(session.exit_code)


def _write(
    writer: Writer,
    found: Iterator[tuple[Input, RecordTable]],
    query: Query,
    key_as: str,
    value_as: str,
) -> None:
    for one, table in _pieces(found, _SHOWN_RECORDS, _SHOWN_BYTES):
        shown = _to_columns(one, table, query.columns, key_as, value_as)
        if query.control != "skip":
            _show_control(table, shown)
        writer.write(shown)


def _require_parquet() -> None:
    try:
        require_pyarrow()
    except ImportError as error:
        raise click.UsageError(str(error)) from None


def _require_output(output: Path | None, inputs: Sequence[Input]) -> None:
    """Refuse to replace what is read, or what is no file."""
    if output is None or not output.exists():
        return
    if not output.is_file():
        raise click.UsageError(f"{output}: not a regular file; leave --output away for stdout")
    if any(one.path.exists() and output.samefile(one.path) for one in inputs):
        raise click.UsageError(f"{output}: is one of the files that are read")


def _pieces(
    found: Iterator[tuple[Input, RecordTable]], most_records: int, most_bytes: int
) -> Iterator[tuple[Input, RecordTable]]:
    """Cut tables: a small batch may hold millions of records."""
    for one, table in found:
        costs = np.zeros(len(table), np.int64)
        for name in ("key_size", "value_size"):
            costs += np.maximum(table.columns.get(name, 0), 0)
        costs += _HEADER_COST * table.columns.get("headers_count", np.int32(0)).astype(np.int64)
        costs_up_to = np.cumsum(costs)
        first = 0
        while first < len(table):
            before = costs_up_to[first - 1] if first else 0
            last = 1 + int(np.searchsorted(costs_up_to, before + most_bytes))
            last = min(last, first + most_records)
            yield one, table[first:last]
            first = last


def _found(session: Session, query: Query) -> Iterator[tuple[Input, RecordTable]]:
    """Yield the records that are asked for; what cannot be read becomes a finding."""
    for one in session.inputs:

        def read(source: ks.Source, report: Report) -> Iterator[RecordTable]:
            for batches in report.tables(source):
                rows = query.batches_of(batches)
                for table in _readable(source, rows, query, report):
                    wanted = query.records_of(table)
                    if len(wanted):
                        yield wanted

        for table in session.stream(read, one):
            yield one, table


def _readable(
    source: ks.Source, batches: BatchTable, query: Query, report: Report
) -> Iterator[RecordTable]:
    """Yield the records of the batches that can be read."""
    return ks.iter_records(
        source,
        batches,
        columns=query.read_columns,
        control=query.control,
        verify=query.verify,
        max_decompressed_size=query.max_decompressed_size,
        batch_size=8192,
        on_damage=lambda error: report.finding(str(error)),
    )


def _limited(
    found: Iterator[tuple[Input, RecordTable]], limit: int | None
) -> Iterator[tuple[Input, RecordTable]]:
    if limit == 0:
        return
    for one, table in found:
        if limit is not None and len(table) >= limit:
            yield one, table[:limit]
            return
        limit = None if limit is None else limit - len(table)
        yield one, table


def _to_columns(
    one: Input, table: RecordTable, names: Sequence[str], key_as: str, value_as: str
) -> Columns:
    columns: dict[str, list[Any]] = {}
    numpy = table.to_numpy()
    for name in names:
        if name in PLACE_COLUMNS:
            columns[name] = [one.place[name]] * len(table)
        elif name in ("key", "value"):
            columns[name] = decode_items(
                numpy[name].tolist(), key_as if name == "key" else value_as
            )
        elif name == "headers":
            columns[name] = [decode_headers(headers, value_as) for headers in numpy[name]]
        elif name in NAMED_CODES:
            columns[name] = [NAMED_CODES[name].name_of(code) for code in numpy[name].tolist()]
        else:
            columns[name] = numpy[name].tolist()
    return columns


def _show_control(table: RecordTable, columns: Columns) -> None:
    """Put what control records say in the place of their bytes."""
    is_control = table["is_control"]
    numpy = table.to_numpy()
    for index in np.flatnonzero(is_control).tolist():
        kind, message = decode_control(numpy["key"][index], numpy["value"][index])
        for name, said in (("key", kind), ("value", message)):
            if name in columns:
                columns[name][index] = said  # type: ignore[index]
