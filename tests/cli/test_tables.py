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
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kafkascan.analysis.analysis_schemas import (
    ADVICE_SCHEMA,
    COUNT_SCHEMA,
    DIFF_SCHEMA,
    PRODUCER_SCHEMA,
    TRANSACTION_SCHEMA,
    USAGE_SCHEMA,
)
from kafkascan.auditing.audit_schemas import FINDING_SCHEMA
from kafkascan.broker_state.index_schemas import INDEX_BUILD_SCHEMA, INDEX_CHECK_SCHEMA
from kafkascan.cli.verbs.record_commands import DEFAULT_COLUMNS, LISTED_SCHEMA
from kafkascan.cli.verbs.segment_commands import DEFAULT_BATCH_SCHEMA, INFO_SCHEMA, VERIFY_SCHEMA
from kafkascan.recovery.recovery_schemas import RECOVERY_SCHEMA, RESTORE_SCHEMA, SALVAGE_SCHEMA
from kafkascan.rewrite.rewrite_schemas import CONVERSION_SCHEMA, RESTAMP_SCHEMA, SCRUB_SCHEMA
from kafkascan.schemas.registry_schemas import REGISTRY_SCHEMA
from kafkascan.tables.schema import Schema, Shown
from tests.support.command_line import DATA, KILLED, rows, run
from tests.support.paths import GOLDEN
from tests.support.waiting import HANG_SECONDS

TRANSACTIONS = DATA / "transactions-0"
SCHEMAS = GOLDEN / "kafka-4.4.0-schemas" / "data"
BATCHES, RECORDS = DEFAULT_BATCH_SCHEMA, LISTED_SCHEMA.select(DEFAULT_COLUMNS)
# Every command with rows of its own, and their columns.
COMMANDS: dict[str, tuple[list[object], Schema]] = {
    "info": (["info", KILLED], INFO_SCHEMA),
    "verify": (["verify", KILLED], VERIFY_SCHEMA),
    "batches": (["batches", TRANSACTIONS / f"{5:020}.log"], BATCHES),
    "records": (["records", TRANSACTIONS], RECORDS),
    "audit": (["audit", DATA], FINDING_SCHEMA),
    "txns": (["txns", TRANSACTIONS, "--state", "all"], TRANSACTION_SCHEMA),
    "producers": (["producers", TRANSACTIONS], PRODUCER_SCHEMA),
    "count": (["count", DATA], COUNT_SCHEMA),
    "diff": (["diff", DATA, KILLED], DIFF_SCHEMA),
    "advise": (["advise", TRANSACTIONS, "--codec", "gzip"], ADVICE_SCHEMA),
    "recover": (["recover", KILLED], RECOVERY_SCHEMA),
    "salvage": (["salvage", KILLED], SALVAGE_SCHEMA),
    "restore": (["restore", TRANSACTIONS.parent], RESTORE_SCHEMA),
    "schemas list": (["schemas", SCHEMAS], REGISTRY_SCHEMA),
    "schemas usage": (["schemas", "usage", SCHEMAS], USAGE_SCHEMA),
    "index check": (["index", "check", TRANSACTIONS], INDEX_CHECK_SCHEMA),
    "index build": (["index", "build", TRANSACTIONS], INDEX_BUILD_SCHEMA),
    "convert": (["convert", TRANSACTIONS, "--to-magic", 2, "--output"], CONVERSION_SCHEMA),
    "restamp": (["restamp", TRANSACTIONS, "--offset-shift", 1, "--output"], RESTAMP_SCHEMA),
    "scrub": (["scrub", TRANSACTIONS, "--to-offset", 9, "--output"], SCRUB_SCHEMA),
}
VERBS = pytest.mark.parametrize("verb", COMMANDS)
# A table whose names and codecs are long may exceed 100 characters by that much.
WIDEST = 130


def arguments_of(verb: str, tmp_path: Path) -> list[object]:
    arguments = COMMANDS[verb][0]
    number = len(list(tmp_path.iterdir()))
    return [*arguments, tmp_path / f"{number}-0"] if arguments[-1] == "--output" else [*arguments]


@VERBS
def test_columns_are_those_of_the_other_formats(verb: str, tmp_path: Path) -> None:
    out = run(*arguments_of(verb, tmp_path), "--format", "csv").stdout
    assert tuple(next(csv.reader(io.StringIO(out)))) == COMMANDS[verb][1].names


@VERBS
def test_a_table_has_few_columns_and_a_wide_one_has_all(verb: str, tmp_path: Path) -> None:
    schema = COMMANDS[verb][1]
    lines = run(*arguments_of(verb, tmp_path)).stdout.splitlines()
    places = [word for word in re.split(" {2,}", lines[0]) if " " in word]
    lifted = [word.split()[0] for word in places]
    assert lifted == list(schema.names[: len(lifted)])
    narrow = [one.name for one in schema if one.shown <= Shown.USUALLY][len(lifted) :]
    below = [one for one in schema if one.shown == Shown.BELOW]
    assert lines[bool(lifted)].split() == narrow
    assert below or max(map(len, lines)) <= WIDEST
    wide = run(*arguments_of(verb, tmp_path), "--wide").stdout.splitlines()
    assert tuple(wide[0].split()) == schema.names
    assert len(wide) <= len(lines), "details are columns here"


def test_columns_do_not_depend_on_the_input() -> None:
    one_segment, two = TRANSACTIONS / f"{5:020}.log", TRANSACTIONS
    for verb in ("batches", "records"):
        for more in ([], ["--columns", "offset,key"] if verb == "records" else []):
            first, second = (
                run(verb, path, "--format", "csv", *more).stdout.splitlines()[0]
                for path in (one_segment, two)
            )
            assert first == second


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
    now = ("--now", "2026-11-22")
    lines = run("audit", "--alarms", *now, DATA).stdout.splitlines()
    assert lines[1].startswith("warning")
    assert lines[2].startswith("    max_timestamp is 1970-01-01")
    assert lines[3].startswith("    advice: Time-based retention")
    listed = run("txns", *now, DATA).stdout.splitlines()
    (command,) = [line for line in listed if line.startswith(" ")]
    assert command.endswith("--start-offset 37"), "a command to copy is one line"


def test_sizes_and_names_are_short_unless_exact_ones_are_wanted() -> None:
    short, exact = (run("verify", KILLED, *more).stdout for more in ([], ["--exact"]))
    assert "65.5 kB" in short
    assert "…0.log" in short
    assert " 65536 " in exact
    assert f"{0:020}.log " in exact


def on_a_terminal(*arguments: object, columns: int, **variables: str) -> str:
    """Return the rows that a command prints to a terminal of a number of columns."""
    return rows_and_lines(*arguments, columns=columns, **variables)[0]


def rows_and_lines(*arguments: object, columns: int, **variables: str) -> tuple[str, str]:
    """Return what a command prints to a terminal of a number of columns, and to stderr."""
    parent, child = pty.openpty()
    known = {name: text for name, text in os.environ.items() if name != "NO_COLOR"}
    with os.fdopen(parent, "rb") as reader:
        done = subprocess.run(
            [sys.executable, "-m", "kafkascan", *map(str, arguments)],
            stdout=child,
            stderr=subprocess.PIPE,
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
    return text.decode(), done.stderr.decode()


def test_a_table_fits_a_narrow_terminal(tmp_path: Path) -> None:
    long = tmp_path / ("a-topic-with-a-name-of-some-length-" * 3 + "-0")
    long.symlink_to(TRANSACTIONS)
    lines = on_a_terminal("verify", long, columns=100, NO_COLOR="1").splitlines()
    assert len(lines) == 4
    assert all(len(line) <= 100 for line in lines)
    assert lines[0].startswith("topic a-topic-with")
    assert "…" in lines[0]
    assert "\x1b" not in "".join(lines)


@VERBS
def test_tables_fit_a_terminal_of_80_columns(verb: str, tmp_path: Path) -> None:
    shown = on_a_terminal(*arguments_of(verb, tmp_path), columns=80, NO_COLOR="1")
    # Details are indented; commands among them are not broken.
    lines = [line for line in shown.splitlines() if not re.match(r" {4}\S", line)]
    assert 0 < max(map(len, lines)) <= 80


def test_headers_are_stacked_where_lines_are_too_long() -> None:
    shown = on_a_terminal("batches", TRANSACTIONS, columns=100, NO_COLOR="1").splitlines()
    assert shown[0].startswith("topic transactions  partition 0  segment ")
    number = next(n for n, line in enumerate(shown) if line.startswith("position"))
    assert number > 1
    header = [line.ljust(100) for line in shown[1 : number + 1]]
    end = header[-1].rindex("offset") + len("offset")
    assert [line[end - 6 : end] for line in header[-2:]] == [" last_", "offset"]
    # A pipe has one line, and the names of the other formats.
    assert run("batches", TRANSACTIONS).stdout.splitlines()[1].split()[1:3] == [
        "base_offset", "last_offset",
    ]  # fmt: skip


def test_a_table_that_is_too_wide_is_vertical_and_loses_no_value() -> None:
    shown = on_a_terminal("batches", TRANSACTIONS, columns=30, NO_COLOR="1").splitlines()
    assert max(map(len, shown)) <= 30
    assert {"base_offset 0", "last_offset 2", "compression_type none"} <= {
        " ".join(one.split()) for one in shown
    }
    # Columns that were named are never left out.
    names = "offset,timestamp,key,value,headers,producer_id"
    shown = on_a_terminal(
        "records", TRANSACTIONS, "--columns", names, columns=50, NO_COLOR="1"
    ).splitlines()
    assert [line.split()[0] for line in shown[:6]] == names.split(",")


def test_the_least_important_columns_go_first() -> None:
    wide, narrow = (
        on_a_terminal("txns", TRANSACTIONS, "--state", "all", columns=columns, NO_COLOR="1")
        for columns in (100, 44)
    )
    assert "hanging" in wide
    assert "hanging" not in narrow
    command = ("txns", TRANSACTIONS, "--state", "all", "--now", "2026-11-21T03:10:33Z")
    _, stderr = rows_and_lines(*command, columns=60)
    assert stderr == "2 columns do not fit: coordinator_state, is_hanging; --wide shows all\n"
    assert rows_and_lines(*command, columns=120)[1] == ""
    assert rows_and_lines(*command, "--wide", columns=60)[1] == ""
    assert run(*command).stderr == ""
    assert "state" in narrow
    assert max(len(line) for line in narrow.splitlines() if "kafka-trans" not in line) <= 44


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
    assert shown[0] == "partition,day,batches,records,uncounted_batches,size,share,codecs"
    output = tmp_path / "totals.parquet"
    assert run("info", DATA, "--by", "hour,producer", "--output", output).returncode == 0
    expected = len(rows("info", DATA, "--by", "hour,producer"))
    assert pq.read_table(output).num_rows == expected
    for wrong in (("--by", "colour"), ("--by", "codec", "--columns", "size")):
        assert run("info", DATA, *wrong).returncode == 2
    assert run("info", DATA, "--output", tmp_path / "info.parquet").returncode == 0


@pytest.mark.parametrize("by", ["topic,partition", "topic,segment", "codec,magic", "day"])
def test_totals_by_properties_count_the_bytes_of_files(by: str) -> None:
    sizes: Counter[str] = Counter()
    for row in rows("info", KILLED):
        sizes[row["topic"]] += row["size"]
    found = rows("info", KILLED, "--by", by)
    assert sum(row["size"] for row in found) == sizes.total()
    if by.startswith("topic"):
        assert {row["topic"]: row["size"] for row in found} == sizes
        assert found[0]["topic"] == "preallocated"  # the most bytes, most of them zeros
    of_files = run("info", KILLED).stdout.splitlines()[-1]
    of_rows = run("info", KILLED, "--by", by).stdout.splitlines()[-1]
    assert of_files.partition(",")[2] == of_rows.partition(",")[2]


def test_totals_and_limits_of_info() -> None:
    by_topic = rows("info", DATA, "--by", "topic")
    of_files: Counter[str] = Counter()
    for row in rows("info", DATA, "--topic", "codecs-java"):
        of_files.update(row["codecs"])
    (found,) = (row for row in by_topic if row["topic"] == "codecs-java")
    assert found["codecs"] == of_files
    *_, total = run("info", DATA, "--by", "topic").stdout.splitlines()
    assert total.startswith(f"{len(by_topic)} rows, ")
    (*_, of_info) = run("info", DATA).stdout.splitlines()
    assert total.partition(",")[2] == of_info.partition(",")[2]
    lines = run("info", DATA, "--by", "topic", "-c", "2").stdout.splitlines()
    assert (len(lines), lines[-1]) == (4, f"{total}, of which 2 are shown")
    assert rows("info", DATA, "--by", "topic", "--limit", 2) == by_topic[:2]
    assert run("info", DATA, "--by", "topic", "--limit", len(by_topic)).stdout.endswith(
        f"{total}\n"
    )
    for sort in ("size", "-size", "first_timestamp"):
        assert (
            rows("info", DATA, "--sort", sort, "--limit", 3)
            == (rows("info", DATA, "--sort", sort)[:3])
        )
    assert run("info", DATA, "--sort", "codec", "--limit", 2).returncode == 2


# ---- sorted rows, totals ---------------------------------------------------------------------


@pytest.mark.parametrize("column", ["size", "-size", "topic", "-codecs", "first_timestamp"])
def test_sorted_rows(column: str, tmp_path: Path) -> None:
    name, is_descending = column.removeprefix("-"), column.startswith("-")
    found = [row[name] for row in rows("info", DATA, "--sort", column)]
    known = [one for one in found if one is not None]
    key = json.dumps if name == "codecs" else lambda one: one
    assert known == sorted(known, key=key, reverse=is_descending)
    assert found == known + [None] * (len(found) - len(known))
    target = tmp_path / "rows.parquet"
    assert run("info", DATA, "--sort", column, "--output", target).returncode == 0
    written = pq.read_table(target)
    places = [(row["topic"], row["partition"]) for row in rows("info", DATA, "--sort", column)]
    of_file = written.select(["topic", "partition"]).to_pylist()
    if name in ("size", "topic"):
        assert written[name].to_pylist() == found
    assert sorted(places) == sorted((row["topic"], row["partition"]) for row in of_file)


def test_sorting_by_what_is_not_there() -> None:
    done = run("info", DATA, "--sort", "siz")
    assert (done.returncode, "did you mean 'size'" in done.stderr) == (2, True)
    for options in (("--columns", "topic"), ("--by", "topic", "--sort", "-segment")):
        done = run("info", DATA, "--sort", "size" if "--by" not in options else "end", *options)
        assert done.returncode == 2
        assert "the rows do not have this column" in done.stderr
    assert run("info", DATA, "--by", "topic", "--sort", "-records").returncode == 0


def test_json_is_short_for_format_json() -> None:
    assert run("info", DATA, "--json").stdout == run("info", DATA, "--format", "json").stdout


def test_totals_below_a_table() -> None:
    found = rows("info", DATA)
    last = run("info", DATA).stdout.splitlines()[-1]
    records = sum(row["records"] for row in found)
    counted = "at least " if any(row["uncounted_batches"] for row in found) else ""
    assert last.startswith(f"{len(found)} files, ")
    assert last.endswith(f" batches, {counted}{records:,} records")
    assert "files" not in run("info", TRANSACTIONS / f"{5:020}.log").stdout.splitlines()[-1]
