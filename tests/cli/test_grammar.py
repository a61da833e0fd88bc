"""One grammar over all commands: which of them have the shared options, and why some have not."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kafkascan as ks
from kafkascan.cli.commands import cli
from kafkascan.tables.schema import Schema
from kafkascan.tables.writers import ParquetWriter
from tests.cli.test_tables import COMMANDS as TABLES
from tests.support.command_line import run

_DATA = Path(__file__).parents[1] / "golden" / "kafka-4.4.0" / "data"
_LOG = _DATA / "transactions-0" / "00000000000000000005.log"

_TIMES = {
    "timestamp", "base_timestamp", "first_timestamp", "max_timestamp", "delete_horizon_ms",
}  # fmt: skip

_SPARK = "spark "
# Commands without an option, and the reason.
_WITHOUT = {
    "--format": {
        "report": "it writes HTML",
    },
    "--output": {},
    "--columns": {
        "dump-log": "its lines are those of the tool",
        "report": "it writes a page",
        "index show": "the columns depend on the kind of file",
        "index lookup": "the columns depend on what is looked for",
        "sql": "the query names the columns",
    },
    "--quiet": {
        "dump-log": "it shows no progress, as the tool",
        "report": "it shows no progress",
    },
    "--wide": {
        "dump-log": "its lines are those of the tool",
        "report": "it writes a page",
        "index show": "it shows all columns",
        "index lookup": "it shows all columns",
        "sql": "it shows all columns",
    },
    "--exact": {
        "dump-log": "its lines are those of the tool",
        "report": "it writes a page",
    },
}  # fmt: skip
_OF_LOGS = {
    "info", "batches", "records", "count", "txns", "producers", "advise", "verify", "audit", "sql",
}  # fmt: skip
_OF_FILES = {"index build", "index check"}
# Options of some commands, and the reason why the others do not have them.
_ONLY = {
    "--topic": (
        _OF_LOGS | _OF_FILES | {"restore", "schemas usage"},
        "state, metadata and schemas are of known topics; lookup, salvage and the rewriting"
        " commands have one log or all of a directory as PATH; diff and report are about all logs"
        " of PATH",
    ),
    "--partition": (
        _OF_LOGS | _OF_FILES | {"schemas usage"},
        "as --topic; restore copies topics, which a broker serves as a whole",
    ),
    "--key": ({"records", "scrub"}, "a key of records, which the others do not read by key"),
    "--dry-run": (
        {"recover", "index build", "salvage", "restore"},
        "a dry run is their default; the others change nothing, or write where --output says",
    ),
    "--now": ({"txns", "audit"}, "only these report ages"),
    "--timeout-ms": ({"txns", "audit"}, "only these report hanging transactions"),
}
# Of the Spark jobs, only two write data; the rows of all of them describe the written files.
_SPARK_OUTPUTS = {"spark catalog", "spark export"}


def commands(group: click.Group = cli, prefix: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, f"{prefix}{name} ")
        elif command is not None:
            yield prefix + name, command


COMMANDS = dict(commands())


def options_of(command: click.Command) -> set[str]:
    return {name for one in command.params for name in one.opts if name.startswith("--")}


@pytest.mark.parametrize("option", _WITHOUT)
def test_all_commands_have_it_unless_there_is_a_reason(option: str) -> None:
    lacking = {name for name, command in COMMANDS.items() if option not in options_of(command)}
    spark = {name for name in lacking if name.startswith(_SPARK)}
    reasons = {*_WITHOUT[option], "dump-log"} if option == "--output" else {*_WITHOUT[option]}
    assert lacking - spark == reasons
    if option == "--output":
        assert _SPARK_OUTPUTS.isdisjoint(spark)
    else:
        assert spark == set()


@pytest.mark.parametrize("option", _ONLY)
def test_some_commands_have_it_for_a_reason(option: str) -> None:
    having = {name for name, command in COMMANDS.items() if option in options_of(command)}
    assert {name for name in having if not name.startswith(_SPARK)} == _ONLY[option][0]


def test_the_help_shows_every_default() -> None:
    silent = [
        (name, one.name)
        for name, command in COMMANDS.items()
        for one in command.params
        if isinstance(one, click.Option)
        and isinstance(one.default, str | int)
        and not (one.is_flag or one.show_default)
    ]
    assert silent == []


_ROWS = [
    ("batches", _LOG),
    ("verify", _LOG),
    ("index", "check", _LOG.parent),
    ("index", "show", _LOG.with_suffix(".timeindex")),
    ("index", "lookup", _LOG.parent, "--offset", "7"),
    ("recover", _LOG.parent),
]


def name_of(arguments: tuple[object, ...]) -> str:
    return " ".join(one for one in arguments if isinstance(one, str) and one.isalpha())


@pytest.mark.parametrize("arguments", _ROWS, ids=name_of)
@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".csv", ".txt"])
def test_rows_are_written_to_a_file(
    arguments: tuple[object, ...], suffix: str, tmp_path: Path
) -> None:
    name = {".txt": "table"}.get(suffix, suffix[1:])
    shown = run(*arguments, "--format", name)
    file = tmp_path / f"rows{suffix}"
    written = run(*arguments, "--output", file)
    assert (written.returncode, written.stdout) == (shown.returncode, "")
    assert file.read_text() == shown.stdout
    assert shown.stdout


@pytest.mark.parametrize(
    "arguments",
    [*_ROWS, ("info", _LOG.parent), ("restore", _LOG.parents[1]),
     ("index", "show", _LOG.parents[1] / "meta.properties"),
     ("batches", _LOG, "--verify", "--columns", "all")],
    ids=name_of,
)  # fmt: skip
def test_parquet_has_the_same_rows(arguments: tuple[object, ...], tmp_path: Path) -> None:
    shown = run(*arguments, "--format", "jsonl")
    file = tmp_path / "rows.parquet"
    written = run(*arguments, "--output", file)
    assert (written.returncode, written.stdout) == (shown.returncode, "")
    table = pq.read_table(file)
    times = {one.name for one in table.schema if pa.types.is_timestamp(one.type)}
    assert times == {name for name in table.column_names if name in _TIMES}
    for name in times:
        number = table.column_names.index(name)
        table = table.set_column(number, name, table[name].cast("int64"))
    maps = {one.name for one in table.schema if pa.types.is_map(one.type)}
    rows = [
        {name: dict(value) if name in maps else value for name, value in row.items()}
        for row in table.to_pylist()
    ]
    expected = [json.loads(line) for line in shown.stdout.splitlines()]
    # No time is -1 in text, and null here.
    assert rows == [
        {name: None if name in times and value == -1 else value for name, value in row.items()}
        for row in expected
    ]
    assert rows


def test_parquet_without_rows_has_the_columns(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    assert run("batches", _LOG, "--from-offset", 10**6, "--output", file).returncode == 0
    table = pq.read_table(file)
    assert table.num_rows == 0
    assert table.schema.field("max_timestamp").type == pa.timestamp("ms", "UTC")


@pytest.mark.parametrize(
    ("arguments", "columns"),
    [
        (("batches", _LOG), TABLES["batches"][1]),
        (("info", _LOG), TABLES["info"][1]),
        (("verify", _LOG), TABLES["verify"][1]),
        (("recover", _LOG.parent), TABLES["recover"][1]),
        (("restore", _DATA), TABLES["restore"][1]),
        (("index", "check", _LOG.parent), TABLES["index check"][1]),
    ],
    ids=lambda one: name_of(one) if isinstance(one, tuple) else "",
)
def test_types_do_not_depend_on_the_rows(
    arguments: tuple[object, ...], columns: Schema, tmp_path: Path
) -> None:
    file = tmp_path / "rows.parquet"
    run(*arguments, "--output", file)
    written = pq.read_table(file)
    assert written.num_rows > 0
    without_rows = io.BytesIO()
    writer = ParquetWriter(columns, without_rows)
    writer.close()
    assert pq.read_schema(without_rows) == written.schema
    # Nulls of the first rows say nothing of the type.
    nulls_first = io.BytesIO()
    writer = ParquetWriter(columns, nulls_first)
    writer.write({name: [None] for name in columns.names})
    writer.write(_plain_columns(written))
    writer.close()
    assert pq.read_table(nulls_first).slice(1).equals(written)


def _plain_columns(table: pa.Table) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {}
    for name in table.column_names:
        values = table[name]
        if pa.types.is_timestamp(values.type):
            columns[name] = values.cast("int64").to_pylist()
        elif pa.types.is_map(values.type):
            columns[name] = [None if one is None else dict(one) for one in values.to_pylist()]
        else:
            columns[name] = values.to_pylist()
    return columns


def test_many_batches_are_row_groups(tmp_path: Path) -> None:
    log = tmp_path / f"{0:020}.log"
    one = ks.build_batches(value=[b"v"])
    log.write_bytes(b"".join(offset.to_bytes(8) + one[8:] for offset in range(70_000)))
    file = tmp_path / "rows.parquet"
    assert run("batches", log, "--output", file).returncode == 0
    found = pq.ParquetFile(file)
    assert (found.metadata.num_rows, found.metadata.num_row_groups) == (70_000, 2)


def test_a_file_that_is_read_is_not_written(tmp_path: Path) -> None:
    log = tmp_path / "copy.bin"
    log.write_bytes(_LOG.read_bytes())
    result = run("verify", log, "--output", log, "--format", "csv")
    assert result.returncode == 2
    assert "the output file is also an input" in result.stderr
    assert log.read_bytes() == _LOG.read_bytes()
