"""The command `sql`: queries of DuckDB over logs."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from decimal import Decimal
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

import kafkascan as ks
from kafkascan.analysis.analysis_schemas import COUNT_SCHEMA, PRODUCER_SCHEMA, TRANSACTION_SCHEMA
from kafkascan.auditing.audit_schemas import FINDING_SCHEMA
from kafkascan.cli.shared_options import (
    ISOLATION,
    PATH,
    TYPED,
    declare,
    extend_help,
    option,
    usage_errors,
    with_partitions,
    with_registry,
    with_run,
)
from kafkascan.format.errors import ValueSchemaError
from kafkascan.format.optional_modules import require_module
from kafkascan.format.texts import with_escaped_bytes
from kafkascan.tables.python_values import python_values
from kafkascan.tables.schema import Field, Schema, Shown, require_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkascan.cli.run import FindingReport, Run
    from kafkascan.io.background_calls import BackgroundCalls
    from kafkascan.logs.log_dir import LogDir
    from kafkascan.logs.log_finding import PartitionFilter
    from kafkascan.logs.record_scan import Isolation
    from kafkascan.records.typed_items import ColumnDecoders
    from kafkascan.tables.table import Table

# Rows of a result at a time.
_ROWS = 1 << 14
# A name or label in quotes, or an interval: also one inside of lists and structs.
_BARE_OFFSET = re.compile(r"(?<![\w\"'])offset(?![\w\"'])", re.IGNORECASE)
_INTERVAL = re.compile(r"""("(?:[^"]|"")*"|'(?:[^']|'')*')|\bINTERVAL\b""")
_TABLES_HELP = """
\b
Tables, of which a query reads only those that it names:
  records            the records of `kafkascan records`, with the columns of their batches
  batches            the batches of `kafkascan batches`
  transactions       those of `kafkascan txns --state all`
  producers          those of `kafkascan producers`
  counts             those of `kafkascan count --deep`
  findings           those of `kafkascan audit`
  groups             the committed offsets of `kafkascan groups`
  transactional_ids  those of `kafkascan txn-state`
  NAME OF A TOPIC    its records, with the types of its own keys and values
SHOW TABLES lists them, DESCRIBE records the columns of one. Names of tables ignore case: if the
name of a topic is that of another table but for case, read FROM records WHERE topic = 'NAME'. Of
Kafka's own topics, values have no types: with --value-as auto, records has none of them.
"""


class _Logs(NamedTuple):
    """
    What a query reads.

    Attributes
    ----------
    path : Path
    wanted : PartitionFilter
    isolation : Isolation
    typed : collection of str
        Which of key and value have types.
    decoders : callable
        Opens the registry, which a query without typed tables does not need.
    background : BackgroundCalls
    """

    path: Path
    wanted: PartitionFilter
    isolation: Isolation
    typed: Collection[str]
    decoders: Callable[[], Mapping[str, ColumnDecoders]]
    background: BackgroundCalls

    @property
    def selected(self) -> Path | LogDir:
        return self.wanted.select(self.path)

    @property
    def topics_by_name(self) -> dict[str, list[str]]:
        """The topics that a query can name, by their names in SQL, which ignore case."""
        from kafkascan.logs.opened_logs import open_logs

        found: dict[str, list[str]] = {}
        topics = {one.partition.topic for one in open_logs(self.selected)}
        for topic in sorted(filter(None, topics)):
            if (name := topic.lower()) not in _TABLES:
                found.setdefault(name, []).append(topic)
        return found


def _records(logs: _Logs, topic: str | None = None) -> Any:
    decoders = logs.decoders()
    try:
        # In the thread of the query, with which reading ends.
        return logs.background.call(
            lambda: ks.polars.scan_records(
                logs.selected,
                topics=None if topic is None else [topic],
                columns=_record_columns(),
                isolation=logs.isolation,
                on_corrupt="stop",
                key=decoders.get("key"),
                value=decoders.get("value"),
                within_microseconds=True,
            )
        )
    except ValueSchemaError as error:
        reason = str(error).partition(":")[0]
        raise click.UsageError(
            f"{reason}: query the table with the name of a topic, select one with --topic, or name"
            " a schema with --value-schema, and its message with --value-message"
        ) from None


def _record_columns() -> list[str]:
    names = ("topic", "partition", *ks.records.RECORD_COLUMN_NAMES, *ks.batches.COLUMN_NAMES)
    return [name for name in dict.fromkeys(names) if name != "batch"]


def _no_records(logs: _Logs) -> pa.Table:
    """
    Return the columns of records.

    Keys and values with types have DuckDB's type "NULL" until a query, such as DESCRIBE, names a
    table: their types are those of the schemas that its records name.
    """
    # In another thread, where no signal raises an exception: Polars aborts a call of it that fails.
    found = logs.background.call(
        lambda: (
            ks.polars.scan_records(logs.selected, columns=_record_columns())
            .collect_schema()
            .to_frame()
            .to_arrow()
        )
    )
    for name in logs.typed:
        place = found.schema.get_field_index(name)
        found = found.set_column(place, name, require_pyarrow().nulls(0))
    return found


def _groups(logs: _Logs) -> Table:
    from kafkascan.tables.table import Table

    offsets = ks.read_groups(logs.path).offsets
    rows = (one for one in offsets.rows() if logs.wanted.has(one["topic"], one["partition"]))
    return Table.of_rows(offsets.schema, rows, offsets.problems)


_TABLES: Mapping[str, Callable[[_Logs], Any]] = {
    "records": _records,
    "batches": lambda logs: ks.scan_log_dir(logs.selected),
    "transactions": lambda logs: ks.read_transactions(logs.selected),
    "producers": lambda logs: ks.read_producers(logs.selected),
    "counts": lambda logs: ks.count_records(logs.selected, deep=True),
    "findings": lambda logs: ks.audit(logs.selected),
    "groups": _groups,
    "transactional_ids": lambda logs: ks.read_transaction_state(logs.path).transactions,
}


def _tables_of(names: Collection[str], logs: _Logs) -> dict[str, Any]:
    """Return the tables that a query names; if it names none, all of them, without rows."""
    if names:
        known = {name.lower() for name in names}
        found = {name: read(logs) for name, read in _TABLES.items() if name in known}
        others = known - _TABLES.keys()
        by_name = logs.topics_by_name if others else {}
        topics = [_only_topic(by_name[name]) for name in others & by_name.keys()]
        return found | {topic: _records(logs, topic) for topic in topics}
    topics = [found[0] for found in logs.topics_by_name.values()]
    of_records = dict.fromkeys([*topics, "records"], _no_records(logs))
    without_rows = {name: one.to_arrow().empty_table() for name, one in _schemas().items()}
    return of_records | {"batches": _TABLES["batches"](logs)} | without_rows


def _only_topic(topics: list[str]) -> str:
    """Return the topic of a name in SQL, or fail if several topics have it."""
    if len(topics) > 1:
        raise click.UsageError(
            f"names of tables ignore case, and several topics have this name: {', '.join(topics)}."
            f" Select one with --topic, or query FROM records WHERE topic = '{topics[0]}'"
        )
    return topics[0]


def _schemas() -> dict[str, Schema]:
    """Return the schemas of the tables that are not lazy."""
    from kafkascan.internal_topics.consumer_groups import OFFSET_SCHEMA
    from kafkascan.internal_topics.transaction_states import STATE_SCHEMA

    return {
        "transactions": TRANSACTION_SCHEMA,
        "producers": PRODUCER_SCHEMA,
        "counts": COUNT_SCHEMA,
        "findings": FINDING_SCHEMA,
        "groups": OFFSET_SCHEMA,
        "transactional_ids": STATE_SCHEMA,
    }


def _with_tables(command: Callable[..., Any]) -> Callable[..., Any]:
    extend_help(command, _TABLES_HELP)
    return declare(command, click.argument("query"), PATH, with_partitions, ISOLATION)


@click.command()
@_with_tables
@with_run(to_file=True)
@option("--key-as", type=("bytes", TYPED), default="bytes",
        help="Read keys as bytes, or (auto) into columns with types; see --value-as.")  # fmt: skip
@option("--value-as", type=("bytes", TYPED),
        help="Read values as bytes, or (auto) into columns with types, by the schema that the"
        " prefix or header of each names: value.id is a field. By default auto with --registry,"
        " else bytes.")  # fmt: skip
@with_registry
@option("--describe", help="Show the columns of the result and their types instead of its rows.")
def sql(
    run: Run,
    query: str,
    path: Path,
    wanted: PartitionFilter,
    isolation: Isolation,
    key_as: str,
    value_as: str | None,
    registry: str | None,
    value_schema: str | None,
    value_message: str,
    describe: bool,
) -> None:
    r"""Query records, batches and other tables with SQL (DuckDB).

    Conditions on topic, partition, offset, timestamp and columns of batches leave out the
    partitions, segments and batches that cannot meet them, and only the columns of the query are
    decoded. Keys and values are BLOBs: utf8(value) is their text, utf8(value)->>'$.name' a field
    of JSON; with --registry, values are structs: value.name is a field. Bytes that are not UTF-8
    are shown as \xff. A column named offset needs quotes.

    PATH is a data directory, a partition directory, a tar archive of directories, a segment file,
    or a URL of one. Exit code 1: a part of the logs was not read.
    """
    if "://" in query.partition(" ")[0]:  # not repeated, as it may contain a password
        raise click.UsageError("the first argument is the query: it is a URL")
    if with_escaped_bytes(query) != query:
        raise click.UsageError(f"the query is not UTF-8: {with_escaped_bytes(query)}")
    with usage_errors():
        duckdb = require_module("duckdb", extra="sql")
        require_module("polars", extra="sql")
    formats = {"key": key_as, "value": value_as or ("bytes" if registry is None else TYPED)}

    typed = [name for name, kind in formats.items() if kind == TYPED]

    def decoders_in(folder: Path | None) -> dict[str, ColumnDecoders]:
        from kafkascan.cli.typed_rows import registry_decoders

        return registry_decoders(run, folder, formats, registry, value_schema, value_message)

    def decoders_of(one: Path) -> dict[str, ColumnDecoders]:
        from kafkascan.logs.opened_logs import open_logs

        logs = open_logs(wanted.select(one)) if typed else []
        return decoders_in(logs[0].partition.path.parent if logs else None)

    def work(one: Path, report: FindingReport) -> None:
        from kafkascan.tables.table import NO_PROBLEMS, WithinMicroseconds

        with _connection() as (connection, background), _reported_warnings(report):
            try:
                names = connection.get_table_names(query)
                decoders = cache(partial(decoders_of, one))
                logs = _Logs(one, wanted, isolation, typed, decoders, background)
                tables = _tables_of(names, logs)
                for name, table in tables.items():
                    is_lazy = _TABLES.get(name, _records) is _records
                    connection.register(name, table if is_lazy else WithinMicroseconds(table))
                statement = f"DESCRIBE {query}" if describe else query
                found = background.call(lambda: connection.sql(statement))
                if found is not None:  # a statement may have no rows
                    _write(run, _with_text_intervals(found), background)
            except duckdb.CatalogException as error:  # its suggestions are DuckDB's own tables
                tables_are = f"{', '.join(_TABLES)}, and the names of topics"
                raise click.UsageError(f"{_first_line(error)} Tables: {tables_are}") from None
            except duckdb.OperationalError as error:  # of memory and files: the query may be right
                report.add(f"sql: {_first_line(error)}", is_unread=True)
                return
            except (duckdb.InternalError, duckdb.FatalException):
                raise
            except duckdb.Error as error:
                hint = _hint(query, error, formats)
                raise click.UsageError(f"{error}{hint}") from None
            for table in tables.values():
                report.add_problems(getattr(table, "problems", NO_PROBLEMS))

    decoders_in(None)  # refuses options that do not fit each other
    run.each([path], work)


@contextmanager
def _connection() -> Iterator[tuple[Any, BackgroundCalls]]:
    """Open a database, and the thread in which it works: DuckDB does not look for signals."""
    import duckdb

    from kafkascan.io.background_calls import BackgroundCalls

    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("CREATE MACRO utf8(bytes) AS decode(bytes, 'replace')")
        with closing(BackgroundCalls(connection.interrupt)) as background:
            yield connection, background


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _hint(query: str, error: Exception, formats: Mapping[str, str]) -> str:
    """Return a line for an error about the column offset, or a field of bytes."""
    message = str(error)
    if message.startswith("Parser Error") and _BARE_OFFSET.search(query):
        return '\noffset is a keyword of SQL: a column of this name needs quotes: "offset"'
    for name, kind in formats.items():
        if kind != TYPED and f'from expression "{name}" because it is not a struct' in message:
            return (
                f"\n{name} is bytes: with --{name}-as auto it is a struct, by the schemas in the"
                f" data directory or of --registry PATH; utf8({name})->>'$.name' is a field of JSON"
            )
    return ""


@contextmanager
def _reported_warnings(report: FindingReport) -> Iterator[None]:
    """Report the warnings of a lazy frame, which has no list of problems."""
    from kafkascan.tables.table import IncompleteTableWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", IncompleteTableWarning)
        yield
    found = [one.message for one in caught if isinstance(one.message, IncompleteTableWarning)]
    for message, warning in {str(one): one for one in found}.items():
        report.add(message.replace(", see .problems", ""), is_note=warning.is_note)


def _with_text_intervals(relation: Any) -> Any:
    """Return a result with DuckDB's text of intervals, which Parquet and JSON do not have."""
    kinds = [str(one) for one in relation.types]
    texts = [_INTERVAL.sub(lambda found: found[1] or "VARCHAR", one) for one in kinds]
    if texts == kinds:
        return relation
    names = (name.replace('"', '""') for name in relation.columns)
    columns = zip(range(1, len(texts) + 1), texts, names, strict=True)
    return relation.project(", ".join(f'#{at}::{text} AS "{name}"' for at, text, name in columns))


def _write(run: Run, relation: Any, background: BackgroundCalls) -> None:
    """Write the rows of a result, chunk by chunk."""
    from kafkascan.tables.writers import ParquetWriter

    pa, reader = require_pyarrow(), background.call(lambda: relation.to_arrow_reader(_ROWS))
    schema = Schema("rows", tuple(_field(one) for one in reader.schema))
    with run.output.open(schema) as writer:
        while (batch := background.call(lambda: next(reader, None))) is not None:
            if isinstance(writer, ParquetWriter):
                writer.write_table(pa.Table.from_batches([batch]))
            else:
                writer.write({name: _values(batch.column(name)) for name in schema.names})


def _field(one: pa.Field) -> Field:
    if str(one.type).startswith("timestamp"):
        return Field(one.name, "time", shown=Shown.ALWAYS)
    is_number = str(one.type).startswith(("int", "uint", "decimal"))
    return Field(one.name, "int64" if is_number else str(one.type), shown=Shown.ALWAYS)


def _values(column: pa.Array) -> list[Any]:
    """Return what is written of the values of a column."""
    kind = str(column.type)
    if kind.startswith("timestamp"):
        times = column.cast("timestamp[ms]", safe=False).cast("int64")
        return [-1 if time is None else time for time in times.to_pylist()]
    return [_plain(value) for value in python_values(column)]


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such number
    if isinstance(value, (int, float, str, type(None))):
        return value
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return int(value)
    return str(value)
