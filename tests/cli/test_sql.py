"""`kafkascan sql`: tables, what is read of them, results, damage, wrong queries."""

from __future__ import annotations

import shutil
import sys
import threading
from collections import Counter
from pathlib import Path

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kafkascan as ks
from kafkascan.cli.verbs import sql_commands
from tests.support.command_line import DATA, rows, run
from tests.support.paths import GOLDEN
from tests.support.records import RecordV2, batch_of
from tests.support.segments import T0

COUNTS = {
    "records": ["records", DATA],
    "batches": ["batches", DATA],
    "transactions": ["txns", DATA, "--state", "all"],
    "producers": ["producers", DATA],
    "counts": ["count", DATA],
    "findings": ["audit", DATA],
    "groups": ["groups", DATA],
    "transactional_ids": ["txn-state", DATA],
}


TYPED = GOLDEN / "kafka-4.4.0-typed" / "data"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    folder = tmp_path / "orders-3"
    folder.mkdir()
    records = [
        RecordV2(b"k", b'{"id": 7}', [(b"h", b"1")]),
        RecordV2(None, b"\xff", offset_delta=1, timestamp_delta=5),
    ]
    (folder / f"{0:020}.log").write_bytes(batch_of(records, base_offset=0))
    return folder


@pytest.mark.parametrize("table", COUNTS)
def test_tables_are_those_of_the_commands(table: str) -> None:
    done = run(*COUNTS[table], "--format", "jsonl")
    (found,) = rows("sql", f"SELECT count(*) AS n FROM {table}", DATA)
    assert found["n"] == len(done.stdout.splitlines())


def test_rows(log: Path) -> None:
    query = 'SELECT topic, partition, "offset", timestamp, key, value, headers FROM records'
    assert rows("sql", query, log) == [
        {"topic": "orders", "partition": 3, "offset": 0, "timestamp": T0, "key": "k",
         "value": '{"id": 7}', "headers": [{"key": "h", "value": "1"}]},
        {"topic": "orders", "partition": 3, "offset": 1, "timestamp": T0 + 5, "key": None,
         "value": "\\xff", "headers": []},
    ]  # fmt: skip
    query = "SELECT utf8(value)->>'$.id' AS id FROM records WHERE \"offset\" = 0"
    assert rows("sql", query, log) == [{"id": "7"}]
    assert run("sql", query, log).stdout.split() == ["id", "7"]
    query = 'SELECT utf8(value) AS text FROM records WHERE "offset" = 1'
    assert rows("sql", query, log) == [{"text": "?"}]


def test_all_tables_are_listed(log: Path) -> None:
    assert {one["name"] for one in rows("sql", "SHOW TABLES", log)} == COUNTS.keys() | {"orders"}
    for table in COUNTS:
        listed = rows("sql", f"DESCRIBE {table}", DATA)
        query = f"SELECT column_name FROM information_schema.columns WHERE table_name = '{table}'"
        assert [one["column_name"] for one in rows("sql", query, log)] == [
            one["column_name"] for one in listed
        ]


def test_selected_partitions_and_isolation() -> None:
    def count(table: str, *options: str) -> int:
        (found,) = rows("sql", f"SELECT count(*) AS n FROM {table}", DATA, *options)
        return int(found["n"])

    place = ("-t", "transactions", "-p", "0")
    for committed in ((), ("--isolation", "read_committed")):
        expected = len(rows("records", DATA, *place, *committed))
        assert count("records", *place, *committed) == expected
    assert count("counts", *place) == 1
    assert count("transactions", *place) == count("transactions", "-t", "transactions")
    assert count("groups", *place) == 0
    assert count("groups", "-t", "consumed") == count("groups")
    assert run("sql", "SELECT 1 FROM counts", DATA, "-t", "nothing").returncode == 3


def test_values_of_other_types(log: Path) -> None:
    query = (
        "SELECT sum(size_in_bytes) AS total, 1.5::DECIMAL(5, 2) AS d, DATE '2020-01-02' AS day,"
        " NULL::TIMESTAMP AS never, true AS yes, {'a': ['b'::BLOB]} AS nested,"
        " 'nan'::DOUBLE AS nan, '-inf'::DOUBLE AS inf FROM batches"
    )
    (found,) = rows("sql", query, log)
    assert found == {
        "total": (log / f"{0:020}.log").stat().st_size, "d": "1.50", "day": "2020-01-02",
        "never": -1, "yes": True, "nested": {"a": ["b"]}, "nan": "nan", "inf": "-inf",
    }  # fmt: skip


def test_intervals_are_the_text_of_duckdb(log: Path, tmp_path: Path) -> None:
    query = """SELECT timestamp - lag(timestamp) OVER (ORDER BY "offset") AS gap, [INTERVAL 1 DAY]
    AS many, {'INTERVAL': INTERVAL 3 MONTH} AS "as ""INTERVAL\" FROM records ORDER BY "offset" """
    fields: dict[str, object] = {"many": ["1 day"], 'as "INTERVAL': {"INTERVAL": "3 months"}}
    expected = [{"gap": None, **fields}, {"gap": "00:00:00.005", **fields}]
    assert rows("sql", query, log) == expected
    assert run("sql", query, log, "--output", tmp_path / "gaps.parquet").returncode == 0
    assert pq.read_table(tmp_path / "gaps.parquet").to_pylist() == expected


def test_times_that_sql_does_not_have_are_null_and_reported(tmp_path: Path) -> None:
    folder = tmp_path / "orders-3"
    folder.mkdir()
    late = {"base_timestamp": 2**63 - 1, "max_timestamp": 2**63 - 1, "base_offset": 1}
    log = batch_of([RecordV2()]) + batch_of([RecordV2()], **late)
    (folder / f"{0:020}.log").write_bytes(log)
    for table, column in (("records", "timestamp"), ("batches", "max_timestamp")):
        query = f"SELECT count(*) AS n, max({column}) AS latest FROM {table}"
        assert rows("sql", query, folder, code=1) == [{"n": 2, "latest": T0}]
        assert "64 bits of microseconds cannot hold are null" in run("sql", query, folder).stderr


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("SELECT DATE '10000-01-01' AS a", "10000-01-01"),
        ("SELECT {'x': [DATE '10000-01-01', NULL]} AS a", {"x": ["10000-01-01", None]}),
        ("SELECT MAP {'x': {'y': DATE '10000-01-01'}} AS a", [["x", {"y": "10000-01-01"}]]),
        (
            "SELECT {'x': TIMESTAMP '10000-01-01 00:00:01'} AS a",
            {"x": "10000-01-01 00:00:01.000000"},
        ),
        (
            "SELECT [TIMESTAMPTZ '10000-01-01', TIMESTAMPTZ '2024-01-01 00:00:00.5'] AS a",
            ["10000-01-01 00:00:00.000000+00:00", "2024-01-01 00:00:00.500000+00:00"],
        ),
        ("SELECT union_value(d := DATE '10000-01-01') AS a", "10000-01-01"),
        ("SELECT [union_value(d := [DATE '10000-01-01'])] AS a", [["10000-01-01"]]),
    ],
)
def test_dates_that_python_does_not_have_are_texts(query: str, text: object, log: Path) -> None:
    assert rows("sql", query, log) == [{"a": text}]


def test_a_file_of_results(log: Path, tmp_path: Path) -> None:
    query = 'SELECT "offset", key FROM records ORDER BY ALL DESC'
    assert run("sql", query, log, "--output", tmp_path / "r.parquet").returncode == 0
    written = pq.read_table(tmp_path / "r.parquet")
    assert written.to_pydict() == {"offset": [1, 0], "key": [None, b"k"]}
    assert written.schema.field("key").type == pa.binary()


def test_a_type_that_parquet_does_not_have(log: Path, tmp_path: Path) -> None:
    query = "SELECT union_value(number := 1) AS one"
    assert rows("sql", query, log) == [{"one": 1}]
    done = run("sql", query, log, "--output", tmp_path / "r.parquet")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Parquet cannot store a column, other formats can: Unhandled type" in done.stderr
    assert list(tmp_path.glob("r.*")) == []


def test_the_columns_of_a_result(log: Path) -> None:
    found = rows("sql", "SELECT key, base_offset FROM records", log, "--describe")
    assert [(one["column_name"], one["column_type"]) for one in found] == [
        ("key", "BLOB"),
        ("base_offset", "BIGINT"),
    ]


def test_damage_is_reported(tmp_path: Path) -> None:
    log = tmp_path / "headers-0"
    shutil.copytree(DATA / "headers-0", log)
    path = next(log.glob("*.log"))
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    done = run("sql", "SELECT count(*) AS n FROM records", log)
    assert done.returncode == 1
    assert "rows or values are missing" in done.stderr
    assert "CHECKSUM_MISMATCH" in done.stderr
    # The headers are intact.
    assert rows("sql", "SELECT count(*) AS n FROM batches", log) == [{"n": 3}]
    path.write_bytes(data[:-1])
    done = run("sql", "SELECT count(*) AS n FROM batches", log)
    assert (done.returncode, "TORN_TAIL" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELEC 1", "Parser Error"),
        ("SELECT offset, key FROM records", 'a column of this name needs quotes: "offset"'),
        ("SELECT * FROM nothing", "nothing does not exist! Tables: records, batches, trans"),
        ("SELECT bytes FROM batches", "bytes"),
        ("", "statement"),
    ],
)
def test_wrong_queries(query: str, reason: str, log: Path) -> None:
    done = run("sql", query, log)
    assert (done.returncode, done.stdout) == (2, "")
    assert reason in done.stderr


def test_fields_of_bytes(log: Path) -> None:
    for name in ("key", "value"):
        done = run("sql", f"SELECT {name}.id FROM records", log)
        assert done.returncode == 2
        assert f"{name} is bytes: with --{name}-as auto" in done.stderr
    assert "is bytes" not in run("sql", "SELECT topic.id FROM records", log).stderr


def test_nothing_to_read(tmp_path: Path) -> None:
    assert run("sql", "SELECT 1 FROM counts", tmp_path).returncode == 3
    assert run("sql", "SELECT 1 FROM counts", tmp_path / "none").returncode == 3


def test_only_named_tables_are_read(monkeypatch: pytest.MonkeyPatch, log: Path) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("read")

    for name in ("audit", "read_transactions", "scan_log_dir"):
        monkeypatch.setattr(ks, name, refuse, raising=False)
    assert rows("sql", "SELECT count(*) AS n FROM records", log) == [{"n": 2}]


def test_a_url_is_no_query() -> None:
    done = run("sql", "https://user:secret@127.0.0.1:1/", DATA)
    assert done.returncode == 2
    assert "the first argument is the query" in done.stderr
    assert "secret" not in done.stderr


@pytest.mark.parametrize(
    "options",
    [
        [TYPED, "--registry", TYPED, "--topic", "orders"],
        [TYPED / "orders-0", "--value-as", "auto"],
        [TYPED, "--registry", TYPED, "--topic", "orders", "--value-schema", "orders-value:4"],
    ],
)
def test_values_with_types_are_structs(options: list[str | Path]) -> None:
    query = "SELECT value.buyer AS buyer, count(*) AS n FROM records GROUP BY 1 ORDER BY 1"
    done = run("sql", query, *options, "--format", "csv")
    assert done.stdout.splitlines() == ["buyer,n", "Zoë 客,40", "buyer,40", ",2"]
    assert done.returncode == 1
    assert "the value of offset 81 is not decoded" in done.stderr


def test_a_message_of_protobuf_is_named() -> None:
    query = "SELECT value.state AS state, count(*) AS n FROM records WHERE value.amount > 0.5"
    query += " GROUP BY ALL ORDER BY ALL"
    options = [TYPED, "--registry", TYPED, "--topic", "payments"]
    named = ["--value-schema", "payments-value:2", "--value-message", "shop.Payment"]
    registry = ks.schemas.open_registry(TYPED)
    reader = registry.reader("payments-value", 2, message="shop.Payment")
    values = ks.read_records(TYPED / "payments-0", value=reader)["value"]
    states = Counter(one["state"] for one in values if one and (one["amount"] or 0) > 0.5)
    found = rows("sql", query, *options, *named)
    assert {one["state"]: one["n"] for one in found} == states
    # Otherwise it is the one of the first records.
    assert rows("sql", query, *options) == found


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            [TYPED, "--registry", TYPED],
            "the values of several topics have different types: query the table",
        ),
        ([TYPED, "--value-schema", "orders-value"], "need --value-as auto"),
        ([TYPED, "--registry", TYPED, "--value-as", "bytes"], "needs --value-as auto"),
        ([DATA, "--value-as", "auto"], "has no topic _schemas"),
        ([TYPED, "--registry", TYPED, "--value-schema", "nothing"], "subject 'nothing'"),
    ],
)
def test_types_that_are_not_known(options: list[str | Path], reason: str) -> None:
    done = run("sql", "SELECT value FROM records", *options)
    assert done.returncode == 2
    assert reason in " ".join(done.stderr.split())


def test_a_query_that_is_not_utf_8(log: Path) -> None:
    done = run("sql", "SELECT '\udcff' AS a", log)
    assert (done.returncode, done.stdout) == (2, "")
    assert "the query is not UTF-8: SELECT '\\xff' AS a" in done.stderr


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT max(a) FROM (SELECT list(range) AS a FROM range(100000000))", "Out of Memory"),
        ("SELECT * FROM read_csv('/nothing')", "No files found"),
    ],
)
def test_a_machine_that_lacks_what_a_query_needs(
    query: str, reason: str, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no wrong usage: the same query works elsewhere."""
    connect, limits = duckdb.connect, {"memory_limit": "20MB", "temp_directory": ""}
    monkeypatch.setattr(duckdb, "connect", lambda: connect(config=limits))
    done = run("sql", query, log)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("sql: ")
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_bug_of_duckdb_is_no_wrong_query(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise duckdb.InternalException("an assertion failed")

    monkeypatch.setattr(sql_commands, "_tables_of", fail)
    assert run("sql", "SELECT 1", log).returncode == 70


def test_topics_with_different_types_are_tables_of_their_own() -> None:
    query = (
        "SELECT o.value.id AS id, e.value.name AS name FROM orders o"
        ' JOIN events e ON o."offset" = e."offset" ORDER BY o."offset" LIMIT 3'
    )
    found = rows("sql", query, TYPED, "--value-as", "auto", code=1)  # the last order is damaged
    registry = ks.schemas.open_registry(TYPED)
    orders, events = (
        ks.read_records(TYPED / f"{topic}-0", value=registry) for topic in ("orders", "events")
    )
    assert found == [
        {"id": orders[row].value["id"], "name": events[row].value["name"]} for row in range(3)
    ]


def test_queries_without_typed_tables_need_no_types() -> None:
    """Values of several topics have different types, and other folders have no registry."""
    topics = {"orders", "payments", "events", "_schemas", "__cluster_metadata"}
    for path in (TYPED, DATA):
        for query in ("SHOW TABLES", "SELECT 1 AS name", "SELECT count(*) AS name FROM batches"):
            typed = rows("sql", query, path, "--value-as", "auto")
            assert typed == rows("sql", query, path)
    shown = {one["name"] for one in rows("sql", "SHOW TABLES", TYPED, "--value-as", "auto")}
    assert shown == COUNTS.keys() | topics
    query = "SELECT table_name AS name, data_type FROM information_schema.columns WHERE column_name"
    query += " = 'value' AND table_name IN ('orders', 'records')"
    for options, kind in (([], "BLOB"), (["--value-as", "auto"], '"NULL"')):
        found = rows("sql", query, TYPED, *options)
        assert sorted(one["data_type"] for one in found) == [kind] * 2


def test_a_typed_table_is_described_with_its_types() -> None:
    for topic, field in (("orders", "buyer"), ("payments", "amount")):
        found = rows("sql", f"DESCRIBE {topic}", TYPED, "--value-as", "auto")
        (kind,) = (one["column_type"] for one in found if one["column_name"] == "value")
        assert kind.startswith("STRUCT(")
        assert field in kind
    done = run("sql", "DESCRIBE records", TYPED, "--value-as", "auto")
    assert done.returncode == 2
    assert "different types" in done.stderr


def test_a_topic_is_a_table_also_without_types() -> None:
    query = 'SELECT count(*) AS n, any_value(topic) AS topic FROM "_schemas"'
    (found,) = rows("sql", query, TYPED)
    assert found == {"n": len(ks.read_records(TYPED / "_schemas-0")), "topic": "_schemas"}
    done = run("sql", "SELECT * FROM orderz", TYPED)
    assert done.returncode == 2
    assert "transactional_ids, and the names of topics" in done.stderr


_NAMES_WITH_CASE = pytest.mark.skipif(
    sys.platform != "linux", reason="needs names of files that differ only in case"
)


def make_topics(folder: Path, **counts: int) -> None:
    for topic, count in counts.items():
        partition = folder / f"{topic}-0"
        partition.mkdir()
        log = ks.build_batches(value=[b"a"] * count)
        (partition / f"{0:020}.log").write_bytes(log)


@_NAMES_WITH_CASE
def test_topics_whose_names_differ_in_case(tmp_path: Path) -> None:
    make_topics(tmp_path, orders=1, Orders=2, Other=3)
    for query in (
        "SELECT count(*) AS n FROM orders",
        'SELECT (SELECT count(*) FROM orders) AS a, (SELECT count(*) FROM "Orders") AS b',
        "DESCRIBE ORDERS",
    ):
        done = run("sql", query, tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert "several topics have this name: Orders, orders. Select one" in done.stderr
        assert "--topic, or query FROM records WHERE topic = 'Orders'" in done.stderr
    (found,) = rows("sql", "SELECT count(*) AS n FROM orders", tmp_path, "--topic", "Orders")
    assert found == {"n": 2}
    query = "SELECT count(*) AS n FROM records WHERE topic = 'orders'"
    assert rows("sql", query, tmp_path) == [{"n": 1}]
    assert rows("sql", "SELECT count(*) AS n FROM OTHER", tmp_path) == [{"n": 3}]
    shown = [one["name"] for one in rows("sql", "SHOW TABLES", tmp_path)]
    assert sorted(shown) == sorted([*COUNTS, "Orders", "Other"])


@_NAMES_WITH_CASE
def test_a_topic_that_is_named_as_a_table(tmp_path: Path) -> None:
    make_topics(tmp_path, Records=1, records=2, Batches=4)
    query = 'SELECT (SELECT count(*) FROM records) AS a, (SELECT count(*) FROM "Records") AS b'
    assert rows("sql", query, tmp_path) == [{"a": 7, "b": 7}]
    assert rows("sql", 'SELECT count(*) AS n FROM "Batches"', tmp_path) == [{"n": 3}]
    query = "SELECT count(*) AS n FROM Records WHERE topic = 'Records'"
    assert rows("sql", query, tmp_path) == [{"n": 1}]
    assert {one["name"] for one in rows("sql", "SHOW TABLES", tmp_path)} == COUNTS.keys()


def test_polars_works_where_no_signal_raises_an_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    """It aborts a call of it that an exception ends, and prints a trace."""
    threads: list[threading.Thread] = []
    collect = polars.LazyFrame.collect_schema

    def collect_schema(frame: polars.LazyFrame) -> polars.Schema:
        threads.append(threading.current_thread())
        return collect(frame)

    monkeypatch.setattr(polars.LazyFrame, "collect_schema", collect_schema)
    assert rows("sql", "SHOW TABLES", DATA)
    assert threads
    assert threading.main_thread() not in threads
