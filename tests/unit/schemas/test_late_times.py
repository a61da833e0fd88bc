"""Dates and times of typed values that Python, or microseconds, cannot hold."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kafkascan as ks
from kafkascan.tables.python_values import python_values
from kafkascan.tables.table import within_microseconds
from tests.support.command_line import DATA, run
from tests.support.internal_topics import TopicLog
from tests.support.records import varint
from tests.support.schema_topics import NOOP, schema
from tests.unit.schemas.test_values import framed

_ID = 7
_DAY = {"type": "int", "logicalType": "date"}
_MILLISECONDS = {"type": "long", "logicalType": "timestamp-millis"}
_ORDER = {"type": "record", "name": "Order", "fields": [
    {"name": "day", "type": _DAY},
    {"name": "time", "type": _MILLISECONDS},
    {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
    {"name": "times", "type": {"type": "array", "items": _MILLISECONDS}},
    {"name": "names", "type": {"type": "map", "values": _MILLISECONDS}},
]}  # fmt: skip
_OF_NO_YEAR = f"<value out of range: {2**63 - 1}>"
_LATE = {
    "day": f"<value out of range: {-(2**31)}>", "time": _OF_NO_YEAR, "local": _OF_NO_YEAR,
    "times": [_OF_NO_YEAR], "names": [("k", _OF_NO_YEAR)],
}  # fmt: skip


def order(day: int, time: int) -> bytes:
    item = varint(1) + varint(time) + b"\0"
    in_map = varint(1) + b"\2k" + varint(time) + b"\0"
    return framed(_ID, varint(day) + varint(time) * 2 + item + in_map)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a data directory with a usual record and a late one."""
    TopicLog(tmp_path / "_schemas-0").add(
        NOOP,
        schema("orders-value", 1, _ID, json.dumps(_ORDER)),
        schema("days-value", 1, 8, json.dumps(_DAY)),
    ).write()
    orders = [(None, order(5, 5)), (None, order(-(2**31), 2**63 - 1))]
    TopicLog(tmp_path / "orders-0").add(*orders).write()
    days = [(None, framed(8, varint(number))) for number in (5, 2**31 - 1)]
    TopicLog(tmp_path / "days-0").add(*days).write()
    return tmp_path


def read(data: Path, topic: str = "orders") -> ks.RecordTable:
    registry = ks.schemas.open_registry(data)
    return ks.read_records(data / f"{topic}-0", value=registry)


def test_rows_have_texts_of_them(data: Path) -> None:
    usual, late = (row["value"] for row in read(data).rows())
    assert usual["day"] == datetime.date(1970, 1, 6)
    assert late == _LATE
    assert [one["day"] for one in read(data).to_numpy()["value"]] == [usual["day"], late["day"]]
    assert "out of range" in read(data)._repr_html_()


def test_the_json_document_has_what_lines_of_json_have(data: Path) -> None:
    registry = ks.schemas.open_registry(data)
    table = ks.read_records(data / "orders-0", value=registry, columns=["offset", "value"])
    options = (
        "--columns",
        "offset,value",
        "--value-as",
        "auto",
        "--registry",
        data,
        "--format",
        "jsonl",
    )
    lines = run("records", data / "orders-0", *options).stdout.splitlines()
    assert json.loads(table.to_json())["rows"] == [json.loads(line) for line in lines]


def test_frames_of_pandas_have_texts_of_them(data: Path) -> None:
    assert read(data).to_pandas()["value"].tolist()[1] == _LATE
    days = read(data, "days").to_pandas()
    assert days["value"].tolist() == [
        datetime.date(1970, 1, 6),
        f"<value out of range: {2**31 - 1}>",
    ]
    assert list(days.columns) == ["offset", "timestamp", "key", "value", "headers"]


def test_queries(data: Path) -> None:
    done = run("sql", "SELECT value FROM orders", "--value-as", "auto", data, "--format", "jsonl")
    assert done.returncode == 1
    assert "microseconds cannot hold are null" in done.stderr
    usual, late = (json.loads(line)["value"] for line in done.stdout.splitlines())
    assert usual["times"] == ["1970-01-01 00:00:00.005000+00:00"]
    assert late["day"] == _LATE["day"]
    assert (late["time"], late["times"]) == (None, [None])
    assert "null" in json.dumps(late["names"])


def test_a_query_of_usual_times_says_nothing(data: Path) -> None:
    query = 'SELECT value FROM orders WHERE "offset" = 0'
    done = run("sql", query, "--value-as", "auto", data, "--format", "jsonl")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_late_date_of_a_query() -> None:
    done = run("sql", "SELECT DATE '20000-01-01' AS day", DATA, "--format", "jsonl")
    assert (done.returncode, done.stdout) == (0, '{"day": "20000-01-01"}\n')


@pytest.mark.parametrize(
    "values",
    [
        [5, None, 2**63 - 1],
        [{"a": 2**63 - 1, "b": 1}, None, {"a": None, "b": 2}],
        [[5, 2**63 - 1], None, [], [None]],
    ],
)
def test_times_that_microseconds_cannot_hold(values: list[Any]) -> None:
    time = pa.timestamp("ms", tz="UTC")
    kind = {int: time, dict: pa.struct({"a": time, "b": pa.int64()}), list: pa.list_(time)}
    column = pa.array([None, *values, None], kind[type(values[0])])[1:-1]

    def nulled(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: nulled(one) for name, one in value.items()}
        if isinstance(value, list):
            return [nulled(one) for one in value]
        return None if value == 2**63 - 1 else value

    expected = pa.array([nulled(one) for one in values], column.type)
    found = within_microseconds(column)
    assert found.equals(expected)
    assert within_microseconds(expected) is expected
    assert found.validate(full=True) is None
    assert len(python_values(column)) == len(values)
