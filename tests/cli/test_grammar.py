"""One grammar over all commands: which of them have the shared options, and why some have not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kafkascan.cli.commands import cli
from tests.support.command_line import run

_DATA = Path(__file__).parents[1] / "golden" / "kafka-4.4.0" / "data"
_LOG = _DATA / "transactions-0" / "00000000000000000005.log"

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
    },
    "--quiet": {
        "dump-log": "it shows no progress, as the tool",
        "report": "it shows no progress",
    },
    "--exact": {
        "dump-log": "its lines are those of the tool",
        "report": "it writes a page",
    },
}  # fmt: skip
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
    elif option != "--columns":
        assert spark == set()


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


@pytest.mark.parametrize("arguments", _ROWS, ids=name_of)
def test_a_format_that_a_command_does_not_write(
    arguments: tuple[object, ...], tmp_path: Path
) -> None:
    file = tmp_path / "rows.parquet"
    written = run(*arguments, "--output", file)
    assert written.returncode == 2
    assert "rows.parquet: the rows are written as table, json, jsonl, csv" in written.stderr
    assert not file.exists()


def test_a_file_that_is_read_is_not_written(tmp_path: Path) -> None:
    log = tmp_path / "copy.bin"
    log.write_bytes(_LOG.read_bytes())
    result = run("verify", log, "--output", log, "--format", "csv")
    assert result.returncode == 2
    assert "the output file is also an input" in result.stderr
    assert log.read_bytes() == _LOG.read_bytes()
