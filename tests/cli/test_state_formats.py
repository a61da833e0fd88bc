"""Every table of Kafka's own topics has equal contents in all formats."""

from __future__ import annotations

import csv
import datetime
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest

import kafkascan as ks
from kafkascan.cli.verb_table import VERBS_BY_TASK
from kafkascan.internal_topics.metadata.metadata_tables import TABLE_SCHEMAS
from kafkascan.tables import Table
from tests.support.command_line import run
from tests.support.state_dirs import METADATA_MOMENTS, STATE_TABLES, write_state

Row = dict[str, Any]

TABLES = [(verb, table) for verb, tables in STATE_TABLES.items() for table in tables]
TABLES += [("metadata", "changes")]
# Each topic of the data dir has an unknown record.
pytestmark = pytest.mark.filterwarnings("ignore::kafkascan.tables.table.IncompleteTableWarning")
_READERS: Mapping[str, Callable[[Path], Any]] = {
    "groups": ks.read_groups,
    "txn-state": ks.read_transaction_state,
    "share-state": ks.read_share_state,
    "metadata": ks.read_metadata,
    "remote-segments": ks.internal_topics.read_remote_segments,
}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_state(tmp_path_factory.mktemp("state"))


def library_table(data_dir: Path, verb: str, table: str) -> Table:
    if table == "changes":
        before, after = (ks.read_metadata(data_dir, as_of=one) for one in METADATA_MOMENTS)
        return ks.internal_topics.diff_metadata(before, after)
    found = _READERS[verb](data_dir)
    if table == "contradictions":
        return ks.analysis.find_contradictions(found, ks.read_transactions(data_dir))
    result: Table = found[table]
    return result


def printed(data_dir: Path, verb: str, table: str, *arguments: object) -> str:
    shown = ("--diff", *METADATA_MOMENTS) if table == "changes" else ("--show", table)
    done = run(verb, data_dir, *shown, *arguments)
    assert done.returncode == 1, "unknown records are findings"
    assert "ignored" in done.stderr
    return done.stdout


# ---- what each format has for a value --------------------------------------------------------


def time_or_none(value: int | None) -> datetime.datetime | None:
    """A time, as Arrow has it."""
    known = value is not None and value >= 0
    return datetime.datetime.fromtimestamp(value / 1000, datetime.UTC) if known else None


def in_json(kind: str, value: Any) -> Any:
    return value.hex() if kind == "binary" and value is not None else value


def in_csv(kind: str, value: Any) -> str:
    value = in_json(kind, value)
    if value is None or value == []:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, list) else str(value)
    is_formula = isinstance(value, str) and text[:1] in "=+-@"
    return f"'{text}" if is_formula and text else text


def in_table(kind: str, value: Any) -> str:
    if kind == "time":
        time = time_or_none(value)
        return "-" if time is None else f"{np.datetime64(time.replace(tzinfo=None), 'ms')}Z"
    if in_json(kind, value) == "":
        return '""'
    text = in_csv(kind, value).removeprefix("'")
    return (text if len(text) <= 120 else f"{text[:119]}…") or "-"


def in_python(kind: str, value: Any) -> Any:
    return time_or_none(value) if kind == "time" else value


def converted(table: Table, convert: Callable[[str, Any], Any]) -> list[Row]:
    return [
        {name: convert(table.schema[name].type, value) for name, value in row.items()}
        for row in table.rows()
    ]


def plain(value: Any) -> Any:
    """Return Python's value for one of pandas."""
    if isinstance(value, np.ndarray):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if not isinstance(value, str) and pd.isna(value):
        return None
    if isinstance(value, datetime.datetime):
        return datetime.datetime.fromtimestamp(value.timestamp(), datetime.UTC)
    return value.item() if isinstance(value, np.generic) else value


# ---- tests -----------------------------------------------------------------------------------


def test_every_command_about_state_is_here() -> None:
    assert {verb.name for verb in VERBS_BY_TASK["Ask"]} == {*STATE_TABLES, "sql", "schemas"}
    assert set(STATE_TABLES["metadata"]) == {*TABLE_SCHEMAS, "unknown"}


@pytest.mark.parametrize(("verb", "table"), TABLES)
def test_json_csv_and_parquet(data_dir: Path, verb: str, table: str, tmp_path: Path) -> None:
    found = library_table(data_dir, verb, table)
    assert len(found) > 0
    of_json = converted(found, in_json)
    assert json.loads(printed(data_dir, verb, table, "--format", "json")) == of_json
    lines = printed(data_dir, verb, table, "--format", "jsonl").splitlines()
    assert [json.loads(line) for line in lines] == of_json
    text = printed(data_dir, verb, table, "--columns", "all", "--format", "csv")
    assert list(csv.DictReader(io.StringIO(text))) == converted(found, in_csv)
    output = tmp_path / "rows.parquet"
    printed(data_dir, verb, table, "--output", output)
    written = pyarrow.parquet.read_table(output)
    assert written.to_pylist() == converted(found, in_python)
    assert written.schema == found.to_arrow().schema


@pytest.mark.parametrize(("verb", "table"), TABLES)
def test_tables_of_text(data_dir: Path, verb: str, table: str) -> None:
    found = library_table(data_dir, verb, table)
    for name, expected in cells(found):
        text = printed(data_dir, verb, table, "--columns", name, "--exact")
        title, *lines = text.splitlines()
        assert title.strip() == name
        assert [line.strip() for line in lines] == expected, name
    wide = printed(data_dir, verb, table, "--columns", "all").splitlines()
    assert re.split(r"\s{2,}", wide[0].strip()) == list(found.schema.names)
    assert len(wide) == len(found) + 1
    narrow = printed(data_dir, verb, table).splitlines()
    # A heading has the topic and partition that all rows have in common.
    assert len(narrow) - len(found) in (1, 2)


def cells(table: Table) -> Iterator[tuple[str, list[str]]]:
    for one in table.schema:
        yield one.name, [in_table(one.type, value) for value in table[one.name]]


@pytest.mark.parametrize(("verb", "table"), TABLES)
def test_python(data_dir: Path, verb: str, table: str) -> None:
    found = library_table(data_dir, verb, table)
    expected = converted(found, in_python)
    assert found.to_arrow().to_pylist() == expected
    assert found.to_polars().to_dicts() == expected
    frame = found.to_pandas()
    rows = [
        {name: plain(frame[name].iloc[row]) for name in frame.columns} for row in range(len(frame))
    ]
    assert rows == expected
    # A column of doubles would not have all integers.
    assert not [
        one.name for one in found.schema
        if one.is_number and one.type != "float64" and frame[one.name].dtype.kind == "f"
    ]  # fmt: skip


def test_two_dirs_are_one_table(data_dir: Path, tmp_path: Path) -> None:
    for verb, table in TABLES:
        if table == "changes":
            continue
        output = tmp_path / "rows.parquet"
        assert run(verb, data_dir, data_dir, "--show", table, "--output", output).returncode == 1
        assert pyarrow.parquet.read_table(output).num_rows == 2 * len(
            library_table(data_dir, verb, table)
        )
