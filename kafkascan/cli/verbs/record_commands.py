"""The command `records`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from kafkascan.batches.batch_schemas import BATCH_SCHEMA
from kafkascan.cli.shared_options import (
    DECODED_AS,
    ISOLATION,
    ITEM_FORMS,
    NATURAL,
    POSITIVE,
    TYPED,
    Decorator,
    Integer,
    SortColumn,
    option,
    with_registry,
    with_row_options,
    with_run,
    with_segments,
)
from kafkascan.records.record_schemas import RECORD_SCHEMA
from kafkascan.tables.schema import (
    PARTITION,
    SEGMENT,
    TOPIC,
    Schema,
    require_pyarrow,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkascan.cli.output import RowOutput
    from kafkascan.cli.record_cells import RecordTemplate, ShownRecords, UndecodedRecords
    from kafkascan.cli.run import Run
    from kafkascan.logs.queries.conditions import RowRange
    from kafkascan.logs.queries.row_windows import FoundRows
    from kafkascan.logs.queries.segment_inputs import SegmentInput, SegmentPaths
    from kafkascan.logs.record_scan import Isolation
    from kafkascan.records.read_options import Control
    from kafkascan.records.record_table import RecordTable
    from kafkascan.tables.text_columns import TextColumn
    from kafkascan.tables.writers import SortOrder, Writer

# `batch` is an index into a table that users of the command line do not see.
LISTED_SCHEMA = (
    RECORD_SCHEMA.select(name for name in RECORD_SCHEMA.names if name != "batch")
    .with_last(BATCH_SCHEMA)
    .with_first((TOPIC, PARTITION, SEGMENT))
)
DEFAULT_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")

_LABELS = ("topic", "partition", "segment")
# Records of a table: larger ones are printed faster, but if only the first records are wanted, more
# are decoded needlessly.
_READ_RECORDS = 1 << 15
# Limits of one chunk that is shown or exported: records, and bytes of keys, values and headers.
_SHOWN_RECORDS, _SHOWN_BYTES = 1 << 13, 1 << 22
_EXPORTED_RECORDS, _EXPORTED_BYTES = 1 << 16, 1 << 26
# Memory that a header takes besides its bytes, approximately.
_HEADER_COST = 64


# ---- chunks ----------------------------------------------------------------------------------


def _chunks(
    found: FoundRows[RecordTable], max_records: int, max_bytes: int
) -> FoundRows[RecordTable]:
    """Split tables into chunks, as a small batch may contain millions of records."""
    import numpy as np

    from kafkascan.io.concurrency import group_by_bytes

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


class Template(click.ParamType):  # type: ignore[type-arg]  # as `NameList`
    """A format string of kcat."""

    name = "template"

    def convert(self, value: Any, param: Any, context: Any) -> RecordTemplate:
        """Return the parsed string."""
        from kafkascan.cli.record_cells import RecordTemplate

        try:
            return RecordTemplate.parse(value)
        except ValueError as error:
            self.fail(f"not a template: {error}", param, context)


class HeaderCondition(click.ParamType):  # type: ignore[type-arg]  # as `NameList`
    """A header that records have: its key, and maybe its value."""

    name = "header"

    def convert(self, value: Any, param: Any, context: Any) -> tuple[bytes, bytes | None]:
        """Return the key, and the value or None."""
        key, sign, wanted = value.partition("=")
        return os.fsencode(key), os.fsencode(wanted) if sign else None


def _decoding_option(item: str) -> Decorator:
    return option(f"--{item}-as", type=(*ITEM_FORMS, TYPED), default="text",
                  help=f"Show {item}s as UTF-8 text, hex, base64 or JSON; or (auto) decode each by"
                  " the schema that its prefix or header names. As text, a byte that is not UTF-8"
                  " is shown as \\xff. Parquet contains bytes, or decoded columns.")  # fmt: skip


@click.command()
@with_segments
@with_run(LISTED_SCHEMA, to_file=True, rows="records", sorts=())
@option(
    "-f --template TEMPLATE",
    type=Template(),
    help="Print each record by TEMPLATE, as kcat does, in which %t stands for the topic, %p for"
    " the partition, %o for the offset, %T for the timestamp, %k for the key, %K for its"
    " length (-1 for a null), %s for the value, %S for its length, %R for its length in 4"
    " bytes, %h for the headers; \\n, \\t, \\r and \\xFF for bytes.",
)
@option(
    "-K --key-delimiter TEXT",
    help="Print lines of key, TEXT and value: a short form of -f '%kTEXT%s\\n'.",
)
@_decoding_option("key")
@_decoding_option("value")
@with_registry
@option(
    "--json-schema inferred|FILE",
    help="With --key-as json and --value-as json, decode into columns: those of a JSON Schema, or"
    " (inferred) those of the first 1 000 values.",
)
@with_row_options("records", "timestamp", "before OFFSET", "from OFFSET on")
@option("--key TEXT", help="Show only records with this key (UTF-8).")
@option("--header KEY[=VALUE]", "headers", type=HeaderCondition(), multiple=True,
        help="Show only records with such a header; if it is given several times, with all of"
        " them.")  # fmt: skip
@option("--grep REGEX", "pattern", type=BytesPattern(),
        help="Show only records whose key or value contains a match of REGEX (bytes, as in"
        " Python).")  # fmt: skip
@option(
    "--sample N",
    type=NATURAL,
    help="Choose N records at random, after all conditions: from those that match --key, --header"
    " and --grep, which takes a second pass over all records in the ranges. Without these options,"
    " from those in the ranges; then only their batches are decoded.",
)
@option("--seed", type=Integer(), default=0, help="Seed of the random choice.")
@option("--sort [-]COLUMN", "order", type=SortColumn(LISTED_SCHEMA.names),
        help="Sort the records by COLUMN, which need not be shown; after a minus sign, the largest"
        " come first. Keys and values are compared as bytes, or as decoded columns. --sample,"
        " --tail and --around choose records first; --limit shows the first N of the sorted ones."
        " More than 64 MB of records are sorted in a temporary file.")  # fmt: skip
@ISOLATION
@option("--decode", type=("auto", "none", *DECODED_AS), default="auto",
        help="Decode the records of Kafka's own topics by the topic's name (auto), or show their"
        " bytes (none). The other names stand for "
        + ", ".join(f"{topic} ({name})" for name, topic in DECODED_AS.items())
        + ", for files whose folder does not have the topic's name. A record that cannot be decoded"
        " is shown as its bytes; with one of these names, it is a finding.")  # fmt: skip
@option("--control", type=("skip", "only", "include"), default="skip",
        help="Skip control records (transaction markers, KRaft's records), show only control"
        " records, or include them. They are shown decoded.")  # fmt: skip
@option("--verify/--no-verify", default=True,
        help="Skip batches with a wrong checksum, as consumers do (check.crcs), or show their"
        " records.")  # fmt: skip
@option("--max-decompressed-size BYTES", type=POSITIVE, default=1 << 28,
        help="Skip batches that decompress to more than BYTES bytes.")  # fmt: skip
def records(
    run: Run,
    segments: SegmentPaths,
    template: RecordTemplate | None,
    key_delimiter: str | None,
    key_as: str,
    value_as: str,
    registry: str | None,
    value_schema: str | None,
    value_message: str,
    json_schema: str | None,
    limits: RowRange,
    key: str | None,
    headers: tuple[tuple[bytes, bytes | None], ...],
    pattern: re.Pattern[bytes] | None,
    sample: int | None,
    seed: int,
    order: SortOrder | None,
    isolation: Isolation,
    decode: str,
    control: Control,
    verify: bool,
    max_decompressed_size: int,
    **options: Any,
) -> None:
    """List records: offset, timestamp, key, value and headers.

    A batch that cannot be read is skipped and reported on stderr. --limit and --tail apply to all
    files together. The end of a range is exclusive. That no record has the --key is a finding.

    --follow shows the selected records, then those that a broker appends, until Ctrl-C. With
    --isolation read_committed, it follows the last stable offset.
    """
    from kafkascan.cli.record_cells import RecordTemplate, ShownRecords, UndecodedRecords
    from kafkascan.cli.row_reading import RowReader, open_rows
    from kafkascan.cli.typed_rows import TypedRows, json_decoders, registry_decoders
    from kafkascan.logs.queries.record_matches import RecordMatch
    from kafkascan.logs.record_scan import RecordScan
    from kafkascan.records.decoding import iter_decoded_tables
    from kafkascan.records.read_options import ReadOptions
    from kafkascan.tables.writers import ParquetWriter

    if key_delimiter is not None:
        if template is not None:
            raise click.UsageError("--template and --key-delimiter cannot be combined")
        template = RecordTemplate.parse(f"%k{key_delimiter.replace('%', '%%')}%s\\n")
    formats = {"key": key_as, "value": value_as}
    if template is not None:
        run.output = _templated(run.output, template)
        formats = {name: "raw" if kind == "text" else kind for name, kind in formats.items()}
    inputs = run.find_segments(segments)
    folder = inputs[0].partition.path.parent if inputs else None
    decoders = {
        **registry_decoders(run, folder, formats, registry, value_schema, value_message),
        **json_decoders(formats, json_schema),
    }
    # How items are printed that are not decoded: those of Kafka's own topics.
    plain = "text" if template is None else "raw"
    shown = ShownRecords(
        columns=run.output.columns or DEFAULT_COLUMNS,
        formats={name: plain if kind == TYPED else kind for name, kind in formats.items()},
        has_control=control != "skip",
        decodes=decode != "none" and run.output.output_format not in ("parquet", "template"),
        undecoded=UndecodedRecords(DECODED_AS.get(decode)),
    )
    names = [*shown.read_columns, *(("headers", "key", "value") if decoders else ())]
    limit = options["limit"]
    if order is not None:
        if options["is_followed"]:
            raise click.UsageError("--sort cannot be combined with --follow")
        options["limit"] = None  # of the sorted records
        names += _sorted_names(shown, order)
    scan = RecordScan(
        options=ReadOptions(
            columns=[name for name in names if name not in _LABELS],
            control=control,
            verify=verify,
            max_decompressed_size=max_decompressed_size,
            batch_size=_READ_RECORDS,
            on_corrupt="stop",
        ),
        condition=limits.condition("offset", "offset", "timestamp"),
        match=RecordMatch(None if key is None else os.fsencode(key), headers, pattern),
        isolation=isolation,
    )
    reader = RowReader(run, scan, iter_decoded_tables)
    if sample is not None:
        if options["is_followed"] or options["around"] is not None or options["tail"] is not None:
            raise click.UsageError("--sample cannot be combined with --around, --tail and --follow")
        reader = reader.with_sample(inputs, sample, seed)
    found = reader.find(inputs, **options)
    shows_none = 0 in (limit, options["tail"])
    if key is not None and not (options["is_followed"] or shows_none):
        found = _reporting_none(run, found, key)
    if decoders:
        found = TypedRows(run, decoders).of(found)
    schema = LISTED_SCHEMA.select(shown.columns)
    with open_rows(run, inputs, schema, is_followed=options["is_followed"]) as writer:
        if order is not None:
            from kafkascan.cli.sorted_records import sorted_columns, sorted_tables

            wanted = LISTED_SCHEMA.select(_sorted_names(shown, order))
            tables = _arrow_tables(found, wanted, is_text=not isinstance(writer, ParquetWriter))
            for rows in sorted_tables(tables, order, limit):
                if isinstance(writer, ParquetWriter):
                    writer.write_table(rows.select(schema.names))
                else:
                    writer.write(sorted_columns(rows, shown, writer))
        elif isinstance(writer, ParquetWriter):
            for rows in _arrow_tables(found, schema):
                writer.write_table(rows)
        else:
            for one, table in _chunks(found, _SHOWN_RECORDS, _SHOWN_BYTES):
                writer.write(_to_columns(one, table, shown, writer), table.buffers)
    _report_undecoded(run, shown.undecoded)
    if shown.decodes:
        _report_later_topics(run, inputs)


def _templated(output: RowOutput, template: RecordTemplate) -> RowOutput:
    """Return an output that prints records by a template."""
    from kafkascan.cli.record_cells import TemplateWriter

    if output.output_format != "table" or output.columns is not None or output.is_wide:
        raise click.UsageError("a template cannot be combined with --format, --columns or --wide")
    writer = partial(TemplateWriter, template=template)
    return replace(output, output_format="template", columns=template.columns, make_writer=writer)


def _reporting_none(run: Run, found: FoundRows[RecordTable], key: str) -> FoundRows[RecordTable]:
    """Yield the records with a key; if there are none, that is a finding."""
    from kafkascan.cli.run import FindingReport

    is_empty = True
    for one, table in found:
        is_empty = False
        yield one, table
    if is_empty:
        report = FindingReport()
        report.add(f"no selected record has the key {key!r} [KEY_NOT_FOUND]")
        run.print_report(report)


def _report_undecoded(run: Run, undecoded: UndecodedRecords) -> None:
    from kafkascan.cli.run import FindingReport

    report = FindingReport()
    if undecoded.topic is not None and undecoded.count:
        report.add(
            f"{undecoded.count} records are not those of {undecoded.topic}; the first is at offset"
            f" {undecoded.first_offset}: {undecoded.reason} [UNDECODED]"
        )
    run.print_report(report)


def _report_later_topics(run: Run, inputs: list[SegmentInput]) -> None:
    """Say which of Kafka's own topics are shown as bytes, because their records are not known."""
    from kafkascan.cli.run import FindingReport
    from kafkascan.format.file_names import LATER_TOPICS

    report = FindingReport()
    topics = dict.fromkeys(one.partition.topic for one in inputs)
    for topic in topics:
        if topic in LATER_TOPICS:
            text = f"{topic}: the layout of the records is not known: {LATER_TOPICS[topic]}"
            report.add(f"{text} [UNKNOWN_TOPIC]", is_note=True)
    run.print_report(report)


def _sorted_names(shown: ShownRecords, order: SortOrder) -> list[str]:
    """Return the columns of records to sort: to show, to sort by, and to decode records by."""
    is_decoded = shown.decodes or shown.has_control
    decoded = ("topic", "offset", "is_control", "key", "value") if is_decoded else ()
    return list(dict.fromkeys((*shown.columns, order.column, *decoded)))


def _arrow_tables(
    found: FoundRows[RecordTable], schema: Schema, *, is_text: bool = False
) -> Iterator[pa.Table]:
    """
    Yield records as Arrow tables of one schema.

    Raises
    ------
    click.UsageError
        If keys or values are decoded into columns of several types.
    """
    kinds: pa.Schema | None = None
    for one, table in _chunks(found, _EXPORTED_RECORDS, _EXPORTED_BYTES):
        rows = _arrow_table(one, table, schema, is_text=is_text)
        kinds = kinds or rows.schema
        if rows.schema != kinds:
            raise click.UsageError(
                f"the columns of topic {one.partition.topic} have other types than those before"
                " them: select one topic (-t)"
            )
        yield rows


def _arrow_table(
    one: SegmentInput, table: RecordTable, schema: Schema, *, is_text: bool
) -> pa.Table:
    """Return records in the types of the schema; with keys of headers as bytes to print them."""
    from kafkascan.format.texts import with_escaped_bytes

    pa = require_pyarrow()
    stored = table.arrow_table([name for name in schema.names if name not in one.labels])
    columns = {}
    for field in schema:
        kind = field.arrow_type()
        if field.name in table.typed:
            columns[field.name] = stored[field.name]
            continue
        if field.name in one.labels:
            label = one.labels[field.name]
            text = with_escaped_bytes(label) if isinstance(label, str) else label
            columns[field.name] = pa.repeat(pa.scalar(text, kind), len(table))
        elif field.name == "headers" and is_text:
            columns[field.name] = table.arrow_headers()
        else:
            # Segments have different dictionaries, and a file has one schema.
            columns[field.name] = stored[field.name].cast(kind)
    return pa.table(columns)


def _to_columns(
    one: SegmentInput, table: RecordTable, shown: ShownRecords, writer: Writer
) -> dict[str, TextColumn]:
    import numpy as np

    from kafkascan.batches.arrow import NAMED_CODES, named_codes
    from kafkascan.cli.record_cells import (
        Decodable,
        TemplateWriter,
        decode_control_records,
        decode_messages,
        header_column,
        item_column,
        shown_headers,
        shown_items,
    )
    from kafkascan.cli.table_text import TableWriter
    from kafkascan.tables.text_columns import Repeated
    from kafkascan.tables.value_texts import PrintedValues

    columns: dict[str, Any] = {}
    in_cells = isinstance(writer, TableWriter)
    items, headers = (shown_items, shown_headers) if in_cells else (item_column, header_column)
    for name in shown.columns:
        if name in one.labels:
            columns[name] = Repeated.once(one.labels[name], len(table))
        elif name in table.typed:
            columns[name] = PrintedValues(table.typed[name])
        elif name in ("key", "value"):
            columns[name] = items(table, name, shown.formats[name])
        elif name == "headers" and isinstance(writer, TemplateWriter):
            columns[name] = table["headers"]
        elif name == "headers":
            columns[name] = headers(table, shown.formats["value"])
        elif name in NAMED_CODES:
            columns[name] = named_codes(name, table[name])
        else:
            columns[name] = table[name]
    topic = shown.undecoded.topic or one.partition.topic
    if shown.decodes and topic is not None and topic in DECODED_AS.values():
        records = Decodable.of(table, np.arange(len(table)))
        decode_messages(topic, records, columns, shown)
    if shown.has_control:
        records = Decodable.of(table, np.flatnonzero(table["is_control"]))
        decode_control_records(records, columns)
    return columns
