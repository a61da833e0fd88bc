"""`write_table` with the real jars of Iceberg and Delta: columns, upserts, evolution, races."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import kafkascan as ks
from kafkascan.schemas import open_registry
from kafkascan.spark.options.manifests import MANIFESTS
from tests.oracle.lake_race import TABLES, Driver
from tests.oracle.rest_catalog import RestCatalog
from tests.oracle.spark_kafka import ROOT, install, jar_folder, pyspark_folder, spark_version
from tests.spark.logs import DATA, damaged_log, rows, segment_path
from tests.support.paths import GOLDEN
from tests.support.records import RecordV2, batch_of

pytestmark = pytest.mark.oracle

TYPED = GOLDEN / "kafka-4.4.0-typed" / "data"

in_every_catalog = pytest.mark.parametrize("named", sorted(TABLES), indirect=True)
by_a_server = pytest.mark.parametrize("named", ["delta", "iceberg-rest"], indirect=True)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalog]:
    with RestCatalog(tmp_path_factory.mktemp("lake")) as one:
        yield one


@pytest.fixture(scope="module")
def driver(catalog: RestCatalog) -> Iterator[Driver]:
    one = Driver(catalog.folder)
    yield one
    one.kill()


def table_of(driver: Driver, kind: str, name: str) -> dict[str, str]:
    """Return the arguments of a table."""
    table = TABLES[kind].format(folder=driver.folder, name=name)
    return {"table": table, "table_format": kind.partition("-")[0]}


@pytest.fixture(params=["delta", "iceberg"])
def named(request: pytest.FixtureRequest, driver: Driver) -> Any:
    """Return a function that returns the arguments of a table."""
    return partial(table_of, driver, request.param)


def read(driver: Driver, table: str, columns: str = "*") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = driver.ask("query", text=f"SELECT {columns} FROM {table}")
    return found


def problems_of(table: str) -> str:
    return f"{table[:-1]}_problems`" if table.endswith("`") else f"{table}_problems"


@in_every_catalog
def test_all_records_are_written_once(driver: Driver, named: Any) -> None:
    target = named("all_records")
    first = driver.ask("write_table", path=str(DATA), maxBytesPerTrigger="50k", **target)
    assert first["summary"]["commits"] > 3
    assert first["findings"] == []
    assert tuple(first["manifest"][0]) == MANIFESTS["table"].names
    again = driver.ask("write_table", path=str(DATA), **target)
    assert again["summary"] == {"tables": 1, "commits": 0, "offsets": 0, "problems": 0}
    found = read(driver, target["table"], "topic, `partition`, offset, hex(key) k, hex(value) v")
    expected = Counter(
        (row["topic"], row["partition"], row["offset"], _hex(row["key"]), _hex(row["value"]))
        for row in rows(path=str(DATA), subscribePattern=".*")
    )
    assert Counter(tuple(row.values()) for row in found) == expected
    # The next offsets are those at which a live query would start.
    offsets = driver.ask("table_offsets", **target)
    ends = {(row["topic"], row["partition"]): row["next_offset"] for row in first["manifest"]}
    assert {(t, int(p)): at for t, by in offsets.items() for p, at in by.items() if at} == ends


def _hex(value: bytes | None) -> str | None:
    return None if value is None else value.hex().upper()


@in_every_catalog
def test_a_job_that_another_one_overtakes_writes_nothing_twice(
    driver: Driver, named: Any, tmp_path: Path
) -> None:
    target = named("overtaken") | {"path": str(tmp_path)}
    path = segment_path(tmp_path, "kept")
    path.write_bytes(damaged_log(3).log)
    driver.ask("write_table", **target)
    path.write_bytes(damaged_log(5).log)
    publishes = "INSERT" if target["table_format"] == "delta" else "CALL"
    found = driver.ask("write_table", overtaken_before=publishes, **target)
    assert found["summary"]["commits"] == 0
    assert sorted(row["offset"] for row in read(driver, target["table"])) == list(range(10))
    if target["table_format"] == "iceberg":
        assert [row["name"] for row in read(driver, f"{target['table']}.refs")] == ["main"]


@pytest.mark.parametrize(("is_remote", "count"), [(False, 8), (True, 4)], ids=["local", "connect"])
def test_tables_at_once(driver: Driver, tmp_path: Path, is_remote: bool, count: int) -> None:
    """In the threads of one session: each commit contains the offsets of its own log."""
    if is_remote:
        driver = Driver(tmp_path, "connect:local[1]")
    tables = []
    for number in range(count):
        segment_path(tmp_path / str(number), "kept").write_bytes(damaged_log(number + 1).log)
        target = table_of(driver, ("iceberg", "delta")[number % 2], f"at_once_{number}")
        more = {"path": str(tmp_path / str(number)), "upsert": number % 4 < 2}
        tables.append(target | more)
    try:
        reports = driver.ask("write_tables", tables=tables)
        for number, (report, target) in enumerate(zip(reports, tables, strict=True)):
            end = 2 * (number + 1)
            assert report["summary"]["offsets"] == end
            at = {"table": target["table"], "table_format": target["table_format"]}
            assert driver.ask("table_offsets", **at) == {"kept": {"0": end}}
            offsets = [row["offset"] for row in read(driver, str(target["table"]), "offset")]
            assert sorted(offsets) == list(range(end))
    finally:
        if is_remote:
            driver.kill()


def test_the_session_of_the_caller(driver: Driver, tmp_path: Path) -> None:
    """It reads at once what another session wrote."""
    path = segment_path(tmp_path, "kept")
    for kind in ("iceberg", "delta"):
        target = table_of(driver, kind, "read_at_once") | {"path": str(tmp_path), "upsert": True}
        for count in (1, 2):
            path.write_bytes(damaged_log(count).log)
            driver.ask("write_table", **target)
            assert len(read(driver, target["table"])) == 2 * count


@pytest.mark.parametrize("name", ["delta.`{folder}/delta/left`", "spark_catalog.default.left"])
def test_a_folder_in_which_delta_created_no_table(
    driver: Driver, name: str, tmp_path: Path
) -> None:
    """As it is left by a driver that was killed while it created the tables."""
    for table in ("left", "left_problems"):
        for place in ("delta", "tables"):
            (driver.folder / place / table / "_delta_log").mkdir(parents=True, exist_ok=True)
    segment_path(tmp_path, "kept").write_bytes(damaged_log(3).log)
    target = {"table": name.format(folder=driver.folder), "table_format": "delta"}
    driver.ask("write_table", path=str(tmp_path), **target)
    assert sorted(row["offset"] for row in read(driver, target["table"])) == list(range(6))
    assert read(driver, problems_of(target["table"])) == []


def test_answers_of_a_catalog_that_are_lost(
    driver: Driver, catalog: RestCatalog, tmp_path: Path
) -> None:
    """Iceberg does not know if such a commit took place, and raises an error."""
    target = {"table": "rest.db.lossy", "path": str(tmp_path)}
    path = segment_path(tmp_path, "kept")
    path.write_bytes(damaged_log(1).log)
    driver.ask("write_table", **target)
    path.write_bytes(damaged_log(5).log)
    catalog.lose_answers(every=3)  # each of the four statements of a commit is one of them
    try:
        found = driver.ask("write_table", maxOffsetsPerTrigger=2, **target)
    finally:
        catalog.lose_answers(every=0)
    assert found["summary"]["commits"] == 4
    assert sorted(row["offset"] for row in read(driver, target["table"])) == list(range(10))
    assert [row["name"] for row in read(driver, f"{target['table']}.refs")] == ["main"]


def test_all_answers_of_a_catalog_are_lost(
    driver: Driver, catalog: RestCatalog, tmp_path: Path
) -> None:
    """Also those to the statements that create a table and add a column."""
    target = {"table": "rest.db.lossy_from_the_start", "path": str(tmp_path)}
    path = segment_path(tmp_path, "kept")
    catalog.lose_answers(every=1)
    try:
        path.write_bytes(damaged_log(2).log)
        driver.ask("write_table", **target)
        path.write_bytes(damaged_log(4).log)
        driver.ask("write_table", columns="producer_id", **target)
    finally:
        catalog.lose_answers(every=0)
    found = read(driver, target["table"], "offset, producer_id")
    assert sorted(row["offset"] for row in found) == list(range(8))
    assert sum(row["producer_id"] is not None for row in found) == 4


def test_values_have_the_types_of_the_registry(driver: Driver, named: Any) -> None:
    target = named("orders")
    options = {"topics": "orders", "registry": str(TYPED)}
    found = driver.ask("write_table", path=str(TYPED), **options, **target)
    assert found["summary"]["problems"] == 1
    assert "1 records are no rows" in found["findings"][0]
    (problem,) = read(driver, problems_of(target["table"]))
    assert problem["offset"] == 81
    assert "the value of offset 81 is not decoded" in problem["reason"]
    assert problem["value_raw"]
    expected = ks.read_records(TYPED / "orders-0", value=open_registry(TYPED))
    by_offset = dict(zip(expected["offset"].tolist(), expected["value"], strict=True))
    values = read(driver, target["table"], "offset, value.id AS id, value.price AS price")
    assert len(values) == 81
    for row in values:
        value = by_offset[row["offset"]]
        assert row["id"] == (value and value["id"])


def test_each_topic_has_a_table(driver: Driver, named: Any) -> None:
    target = named("of_{topic}")
    found = driver.ask("write_table", path=str(TYPED), registry=str(TYPED), **target)
    assert found["summary"]["tables"] == 3  # neither internal topics nor that of the registry
    assert any("payments: values are bytes" in one for one in found["findings"])
    again = driver.ask("write_table", path=str(TYPED), registry=str(TYPED), **target)
    assert again["summary"]["commits"] == 0
    assert again["findings"] == []
    orders = target["table"].replace("{topic}", "orders")
    assert read(driver, orders, "count(value.buyer) AS buyers")[0]["buyers"] > 50


@by_a_server
def test_columns_follow_the_schema(driver: Driver, named: Any, tmp_path: Path) -> None:
    """The same topic, read with the first version of its schema and then with the newest one."""
    target = named("evolved") | {"path": str(tmp_path), "registry": str(TYPED), "topics": "orders"}
    table = target["table"]
    batches = _batches_of_orders(10)
    path = segment_path(tmp_path, "orders")
    path.write_bytes(b"".join(batches[:2]))
    driver.ask("write_table", valueSchema="orders-value:1", **target)
    assert len(read(driver, table, "value.customer")) == 20
    path.write_bytes(b"".join(batches))
    if target["table_format"] == "delta":
        with pytest.raises(RuntimeError, match=r"value.*TYPE bigint.*delta.enableTypeWidening"):
            driver.ask("write_table", **target)
        driver.ask(
            "query", text=f"ALTER TABLE {table} SET TBLPROPERTIES (delta.enableTypeWidening = true)"
        )
    driver.ask("write_table", **target)
    columns = "offset, value.id AS id, value.customer AS customer, value.buyer AS buyer"
    found = sorted(read(driver, table, columns), key=lambda row: int(row["offset"]))
    assert [row["offset"] for row in found] == list(range(81))
    assert all(row["customer"] for row in found[:20])
    assert all(row["customer"] is None for row in found[20:])
    expected = ks.read_records(TYPED / "orders-0", value=open_registry(TYPED))["value"]
    for row, value in zip(found, expected, strict=False):
        assert row["id"] == (value and value["id"])
        if row["offset"] >= 20:
            assert row["buyer"] == (value and value["buyer"])


def _batches_of_orders(count: int) -> list[bytes]:
    """Return the golden records of the topic in batches of some records."""
    found = ks.read_records(TYPED / "orders-0")
    columns = (found["key"].tolist(), found["value"].tolist(), found["headers"])
    records = list(zip(*columns, strict=True))
    return [
        batch_of(
            [
                RecordV2(key, value, list(headers), offset_delta=number)
                for number, (key, value, headers) in enumerate(records[at : at + count])
            ],
            base_offset=at,
        )
        for at in range(0, len(records), count)
    ]


@by_a_server
def test_upserts_keep_the_last_record_of_each_key(
    driver: Driver, named: Any, tmp_path: Path
) -> None:
    target = named("upserted") | {"upsert": True, "path": str(tmp_path)}
    path = segment_path(tmp_path, "kept")
    state: dict[bytes, bytes] = {}
    offset = 0

    def append(*pairs: tuple[bytes | None, bytes | None]) -> None:
        nonlocal offset
        records = [
            RecordV2(key, value, offset_delta=number) for number, (key, value) in enumerate(pairs)
        ]
        with path.open("ab") as log:
            log.write(batch_of(records, base_offset=offset))
        offset += len(pairs)
        for key, value in pairs:
            if key is not None and value is not None:
                state[key] = value
            elif key is not None:
                state.pop(key, None)

    def require_state() -> dict[str, int]:
        summary: dict[str, int] = driver.ask("write_table", **target)["summary"]
        found = read(driver, target["table"], "hex(key) AS k, hex(value) AS v")
        assert {bytes.fromhex(row["k"]): bytes.fromhex(row["v"]) for row in found} == state
        assert len(found) == len(state)
        return summary

    append((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", b"1"))
    require_state()
    append((b"b", None), (b"c", b"2"), (b"d", b"1"), (b"d", None), (None, b"lost"))
    assert require_state()["problems"] == 1
    # Nothing changes: neither key is in the table.
    append((b"d", None), (b"e", None))
    assert require_state()["commits"] == 1
    assert require_state()["commits"] == 0
    append((b"d", b"3"))
    require_state()


@by_a_server
def test_damage_is_in_the_table_of_problems(driver: Driver, named: Any, tmp_path: Path) -> None:
    target = named("damaged") | {"path": str(tmp_path)}
    segment_path(tmp_path, "bad").write_bytes(damaged_log().flip(5, 70).log)
    found = driver.ask("write_table", **target)
    assert found["summary"]["problems"] == 1
    (problem,) = read(driver, problems_of(target["table"]))
    assert problem["offset"] == 10
    assert "checksum" in problem["reason"]
    assert len(read(driver, target["table"])) == 22
    with pytest.raises(RuntimeError, match="checksum"):
        driver.ask("write_table", **(named("strict") | {"path": str(tmp_path), "mode": "FAILFAST"}))
    assert read(driver, named("strict")["table"]) == []


def test_lost_offsets_fail_the_job(driver: Driver, named: Any, tmp_path: Path) -> None:
    target = named("lost") | {"path": str(tmp_path)}
    segment_path(tmp_path, "cut").write_bytes(damaged_log(3).log)
    driver.ask("write_table", **target)
    shutil.rmtree(tmp_path / "cut-0")
    later = segment_path(tmp_path, "cut", 0, 100)
    later.write_bytes(batch_of([RecordV2(b"k")], base_offset=100))
    with pytest.raises(RuntimeError, match="offsets 6 to 99 no longer exist"):
        driver.ask("write_table", **target)
    driver.ask("write_table", failOnDataLoss=False, **target)
    found = read(driver, target["table"], "offset")
    assert sorted(row["offset"] for row in found) == [0, 1, 2, 3, 4, 5, 100]


@by_a_server
def test_offsets_are_those_of_the_rows_if_commits_have_expired(
    driver: Driver, named: Any, tmp_path: Path
) -> None:
    target = named("expired") | {"path": str(tmp_path)}
    table = target["table"]
    path = segment_path(tmp_path, "kept")
    path.write_bytes(damaged_log(3).log)
    driver.ask("write_table", **target)
    # A commit of another program; then that of the job expires.
    driver.ask("query", text=f"INSERT INTO {table} SELECT * FROM {table} WHERE false")
    if target["table_format"] == "iceberg":
        catalog, _, name = table.partition(".")
        last = "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1"
        driver.ask(
            "query", text=f"CALL {catalog}.system.expire_snapshots(table => '{name}', {last})"
        )
    else:
        for commit in (Path(table.split("`")[1]) / "_delta_log").glob("*.json"):
            commit.write_text(commit.read_text().replace("kafkascan", "expired"))
            (commit.parent / f".{commit.name}.crc").unlink(missing_ok=True)
    path.write_bytes(damaged_log(5).log)
    found = driver.ask("write_table", **target)
    assert "continued after the offsets of its rows" in found["findings"][0]
    assert found["summary"]["offsets"] == 4
    rows = read(driver, table, "offset")
    assert sorted(row["offset"] for row in rows) == list(range(10))


def test_snippets(driver: Driver, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "lakehouse.md").read_text()
    snippets = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(snippets) == 3
    for snippet in snippets:
        here = re.sub(r'"(warehouse|checkpoint)"', rf'"{tmp_path}/\1"', snippet)
        driver.ask("snippet", text=here.replace("tests/golden", str(GOLDEN)))


def test_the_command_of_the_page(tmp_path: Path) -> None:
    install()
    page = (ROOT / "docs" / "how-to" / "lakehouse.md").read_text()
    (block,) = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    pip, command = block.replace("\\\n", "").split("\n", 1)
    assert f"'pyspark=={spark_version()}'" in pip
    jar = r"jars\.packages=[\w.]+:(?P<name>[\w.-]+):(?P<version>[\d.]+)"
    program, *words = shlex.split(command)
    words = [re.sub(jar, rf"jars={jar_folder()}/\g<name>-\g<version>.jar", one) for one in words]
    words = [one.replace("/backups/broker-1", str(TYPED)) for one in words]
    words = [one.replace("warehouse=warehouse", f"warehouse={tmp_path}/warehouse") for one in words]
    assert program == "kafkascan"
    words += ["--master", "local[1]", "--conf", "spark.log.level=WARN"]
    paths = os.pathsep.join([str(pyspark_folder()), str(ROOT)])
    run = subprocess.run(
        [sys.executable, "-m", "kafkascan", *words],
        env=os.environ | {"PYTHONPATH": paths, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 1, run.stderr
    assert "lake.db.orders: 1 records are no rows" in run.stderr
    assert "CatalogNotFoundException" not in run.stderr
    names = ("events", "orders", "payments")
    tables = {f"{name}{end}" for name in names for end in ("", "_problems")}
    assert {one.name for one in (tmp_path / "warehouse" / "db").iterdir()} == tables
