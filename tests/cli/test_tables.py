"""What a table shows: columns that fit, short values, details, colours; --wide and --columns."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kafkascan.cli import shown_columns
from kafkascan.cli.shown_columns import ShownColumns
from tests.support.command_line import DATA, KILLED, rows, run
from tests.support.waiting import HANG_SECONDS

TRANSACTIONS = DATA / "transactions-0"
# Every command with rows of its own, and their columns.
COMMANDS: dict[str, tuple[list[object], ShownColumns]] = {
    "info": (["info", KILLED], shown_columns.INFO),
    "verify": (["verify", KILLED], shown_columns.VERIFY),
    "batches": (["batches", TRANSACTIONS / f"{5:020}.log"], shown_columns.BATCHES),
    "audit": (["audit", DATA], shown_columns.AUDIT),
    "txns": (["txns", TRANSACTIONS, "--state", "all"], shown_columns.TXNS),
    "producers": (["producers", TRANSACTIONS], shown_columns.PRODUCERS),
    "count": (["count", DATA], shown_columns.COUNT),
    "diff": (["diff", DATA, KILLED], shown_columns.DIFF),
    "advise": (["advise", TRANSACTIONS, "--codec", "gzip"], shown_columns.ADVICE),
    "recover": (["recover", KILLED], shown_columns.RECOVERY),
    "salvage": (["salvage", KILLED], shown_columns.SALVAGE),
    "restore": (["restore", TRANSACTIONS.parent], shown_columns.RESTORE),
    "index check": (["index", "check", TRANSACTIONS], shown_columns.INDEX_CHECK),
    "index build": (["index", "build", TRANSACTIONS], shown_columns.INDEX_BUILD),
    "convert": (["convert", TRANSACTIONS, "--to-magic", 2, "--output"], shown_columns.CONVERT),
    "restamp": (["restamp", TRANSACTIONS, "--offset-shift", 1, "--output"], shown_columns.RESTAMP),
    "scrub": (["scrub", TRANSACTIONS, "--to-offset", 9, "--output"], shown_columns.SCRUB),
}
VERBS = pytest.mark.parametrize("verb", COMMANDS)
# A table whose names and codecs are long may exceed 100 characters by that much.
WIDEST = 125


def arguments_of(verb: str, tmp_path: Path) -> list[object]:
    arguments = COMMANDS[verb][0]
    number = len(list(tmp_path.iterdir()))
    return [*arguments, tmp_path / f"{number}-0"] if arguments[-1] == "--output" else [*arguments]


def test_every_set_of_columns_belongs_to_a_command_here() -> None:
    declared = {one for one in vars(shown_columns).values() if isinstance(one, ShownColumns)}
    jobs = set(shown_columns.JOBS.values())  # tested with Spark
    assert declared - jobs == {columns for _, columns in COMMANDS.values()}


@VERBS
def test_columns_are_those_of_the_other_formats(verb: str, tmp_path: Path) -> None:
    columns = COMMANDS[verb][1]
    assert set(columns.narrow) | set(columns.details) <= set(columns.names)
    out = run(*arguments_of(verb, tmp_path), "--format", "csv").stdout
    assert tuple(next(csv.reader(io.StringIO(out)))) == columns.names


@VERBS
def test_a_table_has_few_columns_and_a_wide_one_has_all(verb: str, tmp_path: Path) -> None:
    columns = COMMANDS[verb][1]
    lines = run(*arguments_of(verb, tmp_path)).stdout.splitlines()
    assert tuple(lines[0].split()) == columns.narrow
    assert columns.details or max(map(len, lines)) <= WIDEST
    wide = run(*arguments_of(verb, tmp_path), "--wide").stdout.splitlines()
    assert tuple(wide[0].split()) == columns.names
    assert len(wide) <= len(lines), "details are columns here"


def test_chosen_columns_are_written_in_every_format(tmp_path: Path) -> None:
    chosen = ["count", DATA, "--columns", "topic,records"]
    assert run(*chosen).stdout.splitlines()[0].split() == ["topic", "records"]
    for row in json.loads(run(*chosen, "--format", "json").stdout):
        assert list(row) == ["topic", "records"]
    assert run(*chosen, "--output", tmp_path / "x.parquet").returncode == 0
    assert pq.read_table(tmp_path / "x.parquet").column_names == ["topic", "records"]


def test_an_unknown_column_is_wrong_usage_before_anything_is_read() -> None:
    done = run("audit", "/no/such/folder", "--columns", "topic,serverity")
    assert done.returncode == 2
    assert "no column 'serverity'; did you mean 'severity'" in done.stderr


def test_details_follow_their_row() -> None:
    lines = run("audit", "--alarms", DATA).stdout.splitlines()
    assert lines[1].startswith("warning")
    assert lines[2].startswith("    max_timestamp is 1970-01-01")
    assert lines[3].startswith("    advice: Time-based retention")
    (command,) = [line for line in run("txns", DATA).stdout.splitlines() if line.startswith(" ")]
    assert command.endswith("--start-offset 37"), "a command to copy is one line"


def test_sizes_and_names_are_short_unless_exact_ones_are_wanted() -> None:
    short, exact = (run("verify", KILLED, *more).stdout for more in ([], ["--exact"]))
    assert "65.5 kB" in short
    assert "…0.log" in short
    assert " 65536 " in exact
    assert f" {0:020}.log " in exact


def on_a_terminal(*arguments: object, columns: int, **variables: str) -> str:
    """Return what a command prints to a terminal of a number of columns."""
    parent, child = pty.openpty()
    known = {name: text for name, text in os.environ.items() if name != "NO_COLOR"}
    with os.fdopen(parent, "rb") as reader:
        subprocess.run(
            [sys.executable, "-m", "kafkascan", *map(str, arguments)],
            stdout=child,
            stderr=subprocess.DEVNULL,
            env=known | {"COLUMNS": str(columns)} | variables,
            timeout=HANG_SECONDS,
            check=False,
        )
        os.close(child)
        text = b""
        try:
            while piece := reader.read1():
                text += piece
        except OSError:  # how Linux says that the other end is closed
            pass
    return text.decode()


def test_a_table_fits_a_narrow_terminal(tmp_path: Path) -> None:
    long = tmp_path / ("a-topic-with-a-name-of-some-length-" * 3 + "-0")
    long.symlink_to(TRANSACTIONS)
    lines = on_a_terminal("verify", long, columns=100, NO_COLOR="1").splitlines()
    assert len(lines) == 3
    assert all(len(line) <= 100 for line in lines)
    assert "…" in lines[1].split()[0]
    assert "\x1b" not in "".join(lines)


@VERBS
def test_tables_fit_a_terminal_of_80_columns(verb: str, tmp_path: Path) -> None:
    shown = on_a_terminal(*arguments_of(verb, tmp_path), columns=80, NO_COLOR="1")
    # Details are indented; commands among them are not broken.
    lines = [line for line in shown.splitlines() if not re.match(r" {4}\S", line)]
    assert 0 < max(map(len, lines)) <= 80


def test_headers_are_stacked_where_lines_are_too_long() -> None:
    shown = on_a_terminal("batches", TRANSACTIONS, columns=100, NO_COLOR="1").splitlines()
    number = next(n for n, line in enumerate(shown) if line.startswith("topic"))
    assert number > 0
    header = [line.ljust(100) for line in shown[: number + 1]]
    end = header[-1].rindex("offset") + len("offset")
    assert [line[end - 6 : end] for line in header[-2:]] == [" last_", "offset"]
    # A pipe has one line, and the names of the other formats.
    assert run("batches", TRANSACTIONS).stdout.split("\n", 1)[0].split()[4:6] == [
        "base_offset", "last_offset",
    ]  # fmt: skip


def test_colours_say_what_is_wrong_on_a_terminal_only() -> None:
    shown = on_a_terminal("audit", "--alarms", DATA, columns=120)
    assert "\x1b[33mwarning" in shown
    assert "\x1b" not in run("audit", "--alarms", DATA).stdout


def test_info_by_properties(tmp_path: Path) -> None:
    plain = rows("info", DATA)
    by_topic = rows("info", DATA, "--by", "topic")
    assert {row["topic"] for row in by_topic} == {row["topic"] for row in plain}
    for name in ("batches", "records"):
        assert sum(row[name] for row in by_topic) == sum(row[name] for row in plain)
    assert [row["size"] for row in by_topic] == sorted((r["size"] for r in by_topic), reverse=True)
    codecs = rows("info", DATA, "--topic", "codecs-java", "--by", "codec,magic")
    assert {row["codec"] for row in codecs} >= {"gzip", "zstd", "lz4", "snappy"}
    assert list(codecs[0]) == [
        "codec", "magic", "batches", "records", "uncounted_batches", "size", "share",
    ]  # fmt: skip
    shown = run("info", DATA, "--by", "partition,day", "--format", "csv").stdout.splitlines()
    assert shown[0] == "partition,day,batches,records,uncounted_batches,size,share"
    output = tmp_path / "totals.parquet"
    assert run("info", DATA, "--by", "hour,producer", "--output", output).returncode == 0
    expected = len(rows("info", DATA, "--by", "hour,producer"))
    assert pq.read_table(output).num_rows == expected
    for wrong in (("--by", "colour"), ("--by", "codec", "--columns", "size")):
        assert run("info", DATA, *wrong).returncode == 2
    assert run("info", DATA, "--output", tmp_path / "info.parquet").returncode == 0
