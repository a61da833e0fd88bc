"""Tables of Iceberg and Delta: names, documents, columns. The formats themselves: tests/oracle."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kafkascan.format.errors import NoLogsError
from kafkascan.spark.jobs import lake_tables, table_jobs
from kafkascan.spark.jobs.lake_tables import Commit, IcebergTable, Progress
from kafkascan.spark.jobs.table_columns import follow_columns
from kafkascan.spark.rows.problem_rows import ProblemScan, scan_problems
from kafkascan.tables.schema import Field, require_pyarrow
from tests.spark.logs import DATA, GOLDEN, damaged_log, segment_path, tasks

pytest.importorskip("pyspark", reason="pyspark is not installed: make .venv/.dev")

TYPED = GOLDEN / "kafka-4.4.0-typed" / "data"


class Table:
    """A table whose commits are given."""

    name = "lake.db.t"

    def __init__(self, *commits: tuple[int, str | None]) -> None:
        self._commits = commits

    def commits(self) -> Iterator[Commit]:
        for version, text in self._commits:
            yield Commit(version, lake_tables._document(text), 0)


def document(run: str, sequence: int) -> str:
    return Progress({("a", 0): 5}, run, sequence, 0).to_json()


class Session:
    """A session that knows one table and records the statements that it runs."""

    def __init__(
        self, rows: list[dict[str, Any]] | None = None, columns: str = "", table: str = ""
    ) -> None:
        self.rows, self.columns = rows or [], columns
        self.run: list[str] = []
        self.catalog = SimpleNamespace(
            tableExists=lambda name: name == table, refreshTable=lambda name: None
        )

    def sql(self, text: str) -> Any:
        self.run.append(text)
        return SimpleNamespace(collect=lambda: self.rows)

    def table(self, name: str) -> Any:
        from pyspark.sql.types import _parse_datatype_json_string

        return SimpleNamespace(schema=_parse_datatype_json_string(self.columns))


@pytest.mark.parametrize(
    ("name", "kind", "reason"),
    [
        ("db.t", "iceberg", "expected catalog.database.table"),
        ("lake.db.t; DROP TABLE x", "iceberg", "expected catalog.database.table"),
        ("delta.`/x`", "iceberg", "expected catalog.database.table"),
        ("t", "delta", "expected database.table or delta"),
        ("delta.`a``b`", "delta", "expected database.table or delta"),
        ("lake.db.t", "hudi", "expected one of iceberg, delta"),
    ],
)
def test_names_that_are_no_tables(name: str, kind: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        lake_tables.require_table_name(name, kind)


def test_names() -> None:
    for name, kind in [
        ("lake.db.{topic}", "iceberg"),
        ("a.b.c.d", "iceberg"),
        ("db.t", "delta"),
        ("delta.`s3://bucket/a b/{topic}`", "delta"),
    ]:
        lake_tables.require_table_name(name, kind)
    assert table_jobs.problems_name("delta.`/x`") == "delta.`/x_problems`"
    assert table_jobs.problems_name("a.b.c") == "a.b.c_problems"


def test_progress_is_that_of_the_last_document() -> None:
    table = Table((9, None), (8, "by another program"), (7, '{"kafkascan": 1}'))
    session: Any = Session([{"topic": "a", "partition": 0, "next": 4}])
    assert lake_tables.read_progress(session, table) == Progress({("a", 0): 4}, "", 9, 9)  # type: ignore[arg-type]
    table = Table((9, None), (8, document("new", 3)), (7, document("old", 2)))
    found = lake_tables.read_progress(session, table)  # type: ignore[arg-type]
    assert found == Progress({("a", 0): 5}, "new", 3, 9)


def test_a_commit_is_found_by_its_run() -> None:
    before = Progress({}, "old", 2, 7)
    after = Progress({}, "new", 3, 7)
    table: Any = Table((9, None), (8, document("new", 3)), (7, document("old", 2)))
    found = lake_tables.find_commit(table, before, after)
    assert found is not None
    assert found.version == 8
    other: Any = Table((8, document("other", 3)), (7, document("old", 2)), (6, document("new", 1)))
    assert lake_tables.find_commit(other, before, after) is None


COLUMNS = """{"type": "struct", "fields": [
  {"name": "value", "nullable": true, "metadata": {}, "type": {"type": "struct", "fields": [
    {"name": "id", "type": "integer", "nullable": true, "metadata": {}},
    {"name": "wide", "type": "long", "nullable": true, "metadata": {}},
    {"name": "items", "nullable": true, "metadata": {}, "type": {"type": "array",
      "containsNull": true, "elementType": {"type": "struct", "fields": [
        {"name": "x", "type": "double", "nullable": true, "metadata": {}}]}}}]}}]}"""


def follow(**members: Any) -> list[str]:
    pa = require_pyarrow()
    session: Any = Session(columns=COLUMNS)
    kind = pa.struct(list(members.items()))
    table = IcebergTable(session, "lake.db.t")
    follow_columns(session, table, [Field("value", "typed", "", arrow=kind)])
    return [text.removeprefix("ALTER TABLE lake.db.t ") for text in session.run]


def test_columns_follow() -> None:
    pa = require_pyarrow()
    assert follow(id=pa.int32()) == []  # what the rows lack stays
    items = pa.list_(pa.struct({"x": pa.float32(), "y`z": pa.string()}))
    assert follow(id=pa.int64(), wide=pa.int32(), items=items, more=pa.decimal128(5, 2)) == [
        "ALTER COLUMN `value`.`id` TYPE bigint",
        "ADD COLUMN `value`.`items`.element.`y``z` string",
        "ADD COLUMN `value`.`more` decimal(5,2)",
    ]
    for wrong in (pa.string(), pa.float64(), pa.struct({"a": pa.int32()})):
        with pytest.raises(ValueError, match=r"the column `value`.`id` is int, and the rows have"):
            follow(id=wrong)


def test_options() -> None:
    options, typed = table_jobs.parse_table_options(
        str(TYPED), "lake.db.{topic}", "iceberg", {"registry": str(TYPED), "columns": "producer_id"}
    )
    assert options.columns[-1] == "producer_id"
    assert (options.mode, options.starting_offsets) == ("PERMISSIVE", "earliest")
    found = dict(table_jobs._tables(options, "lake.db.{topic}", typed))
    assert sorted(found) == ["lake.db.events", "lake.db.orders", "lake.db.payments"]
    assert found["lake.db.orders"].options.readers
    assert not found["lake.db.orders"].note
    untyped = dict(table_jobs._tables(options.replace(topics=("_schemas",)), "l.d.{topic}", typed))
    assert not untyped["l.d._schemas"].options.readers
    assert "_schemas: values are bytes: the registry has no" in untyped["l.d._schemas"].note
    with pytest.raises(ValueError, match="mode=DROPMALFORMED would drop"):
        table_jobs.parse_table_options(str(DATA), "a.b.c", "iceberg", {"mode": "DROPMALFORMED"})
    with pytest.raises(ValueError, match="select one topic"):
        table_jobs.parse_table_options(str(TYPED), "a.b.c", "iceberg", {"registry": str(TYPED)})


def test_two_topics_cannot_have_one_table(tmp_path: Any) -> None:
    for topic in ("a.b", "a-b"):
        segment_path(tmp_path, topic).write_bytes(damaged_log(1).log)
    options, _ = table_jobs.parse_table_options(str(tmp_path), "l.d.{topic}", "iceberg", {})
    with pytest.raises(ValueError, match=r"the topics a.b and a.b have the same table l\.d\.a_b"):
        list(table_jobs._tables(options, "l.d.{topic}", {}))


def test_a_topic_cannot_have_the_table_of_problems_of_another_one(tmp_path: Any) -> None:
    for topic in ("a", "a_problems"):
        segment_path(tmp_path, topic).write_bytes(damaged_log(1).log)
    options, _ = table_jobs.parse_table_options(str(tmp_path), "l.d.{topic}", "iceberg", {})
    with pytest.raises(ValueError, match=r"have the same table l\.d\.a_problems$"):
        list(table_jobs._tables(options, "l.d.{topic}", {}))


@pytest.mark.parametrize("table", ["l.d.{topic}", "l.d.all"])
def test_the_topic_of_a_registry_is_read_if_it_is_named(table: str) -> None:
    for given, is_read in [({}, False), ({"topics": "_schemas,orders"}, True)]:
        options, _ = table_jobs.parse_table_options(str(TYPED), table, "iceberg", given)
        assert options.selects("orders", 0)
        assert options.selects("_schemas", 0) == is_read
        assert options.selects("_schemas_2", 0) != is_read


def test_an_option_that_is_not_given_is_not_blamed() -> None:
    given = {"registry": str(TYPED), "topics": "_schemas"}
    with pytest.raises(ValueError, match="no version of the subject '_schemas-value'") as found:
        table_jobs.parse_table_options(str(TYPED), "l.d.t", "iceberg", given)
    assert "did you mean" not in str(found.value)
    assert "_schemas-value'=" not in str(found.value)


class Uncommitted:
    """A session that no statement reaches."""


def test_a_library_that_is_missing_is_named_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the last topic needs it."""
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    session: Any = Uncommitted()
    with pytest.raises(ImportError, match=r"needs google.protobuf.*kafkascan\[protobuf\]"):
        table_jobs.write_table(session, TYPED, "l.d.{topic}", registry=TYPED)


def test_a_column_of_another_type_is_found_first() -> None:
    columns = """{"type": "struct", "fields": [
      {"name": "value", "nullable": true, "metadata": {}, "type": "binary"}]}"""
    session: Any = Session(columns=columns, table="l.d.orders")  # of events, there is no table yet
    with pytest.raises(ValueError, match=r"l.d.orders: the column `value` is binary") as found:
        table_jobs.write_table(session, TYPED, "l.d.{topic}", registry=TYPED)
    assert session.run == []
    assert str(found.value).endswith(
        ": drop the table, or write to another one, or read its topic without the option registry"
    )


def test_columns_without_a_schema_say_why() -> None:
    session: Any = Session(columns=COLUMNS, table="l.d._schemas")
    with pytest.raises(ValueError, match=r"the column `value` is struct.*have binary") as found:
        table_jobs.write_table(session, TYPED, "l.d.{topic}", registry=TYPED, topics="_schemas")
    assert "(_schemas: values are bytes: the registry has no version of" in str(found.value)


def test_damage_of_the_registry_is_a_finding(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Its topic has no table of problems, and all values depend on it."""
    monkeypatch.setattr(table_jobs, "read_progress", lambda *_: Progress({}, "", 0, 1))
    monkeypatch.setattr(table_jobs, "_fill", lambda *_: iter(()))
    (log,) = (TYPED / "_schemas-0").glob("*.log")
    data = bytearray(log.read_bytes())
    data[70] ^= 1
    path = segment_path(tmp_path, "_schemas")
    path.write_bytes(data)
    session: Any = Session()
    options = {"registry": str(tmp_path), "topics": "orders"}
    found = table_jobs.write_table(session, TYPED, "l.d.{topic}", **options)
    assert found.findings
    assert all("CHECKSUM_MISMATCH" in one for one in found.findings)
    assert found.exit_code == 1


def test_only_what_is_new_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run reports that values are bytes; a run that finds problems has them."""
    empty, later = Progress({}, "", 0, 1), Progress({("_schemas", 0): 1}, "a", 1, 2)
    session: Any = Session()
    monkeypatch.setattr(table_jobs, "read_progress", lambda *_: later)

    def run(before: Progress | None, problems: int) -> list[str]:
        def fill(spark: Any, table: Any, *_: Any) -> Iterator[table_jobs._Step]:
            added = problems if table.name.endswith("_problems") else 1
            if before is not None:
                yield table_jobs._Step(before, before.offsets, {}, Commit(9, None, added))

        monkeypatch.setattr(table_jobs, "_fill", fill)
        options = {"registry": TYPED, "topics": "_schemas"}
        return table_jobs.write_table(session, TYPED, "l.d.{topic}", **options).findings

    (note,) = run(empty, 0)
    assert note.startswith("_schemas: values are bytes")
    assert run(later, 0) == run(None, 0) == []
    assert run(later, 3) == ["l.d._schemas: 3 records are no rows: see l.d._schemas_problems"]


class Appended:
    """Rows that record the tables to which they are appended, and the options."""

    def __init__(self) -> None:
        self.written: list[tuple[str, dict[str, str]]] = []

    def where(self, condition: str) -> Appended:
        assert condition == "false"
        return self

    def writeTo(self, table: str) -> Any:  # noqa: N802
        def option(name: str, value: str) -> Any:
            return SimpleNamespace(append=lambda: self.written.append((table, {name: value})))

        return SimpleNamespace(option=option)


@pytest.mark.parametrize("verb", ["append", "upsert"])
def test_a_branch_is_published_by_the_whole_name_of_the_table(verb: str) -> None:
    """Iceberg tries the first name of another one as a catalog, and logs that there is none."""
    session: Any = Session()
    run, session.sql = session.sql, lambda text, **_: run(text)
    rows, after = Appended(), Progress({("t", 0): 4}, "new", 3, 7)
    table = lake_tables.IcebergTable(session, "lake.db.t")
    getattr(table, verb)(rows, Progress({}, "old", 2, 7), after)
    call = "CALL lake.system.fast_forward('lake.db.t', 'main', 'kafkascan_new')"
    verbs = [text.split(None, 1)[0] for text in session.run]
    assert verbs == ["ALTER", *(["MERGE"] if verb == "upsert" else []), "CALL", "ALTER"]
    assert call in session.run
    document = {"snapshot-property.kafkascan": after.to_json()}
    assert rows.written == [("lake.db.t.branch_kafkascan_new", document)]


@pytest.mark.parametrize("fails", [False, True])
def test_settings_of_a_merge_are_those_of_no_other_statement(fails: bool) -> None:
    """MERGE into Delta has no options: it takes the settings of its session."""
    settings: dict[str, str] = {}
    during: list[dict[str, str]] = []

    def run(text: str, **_: Any) -> Any:
        if text.lstrip().startswith("MERGE"):
            during.append(dict(settings))
            if fails:
                raise RuntimeError("a driver was first")
        row = {"version": 8, "userMetadata": None, "operationMetrics": None}
        return SimpleNamespace(collect=lambda: [row])

    conf = SimpleNamespace(set=settings.__setitem__, unset=settings.__delitem__)
    session: Any = SimpleNamespace(sql=run, conf=conf)
    rows: Any = Appended()
    before, after = Progress({}, "old", 2, 7), Progress({("t", 0): 4}, "new", 3, 7)
    with pytest.raises(RuntimeError) if fails else contextlib.nullcontext():
        lake_tables.DeltaTable(session, "db.t").upsert(rows, before, after)
    (given,) = during
    assert sorted(given.values()) == sorted(["3", "kafkascan", after.to_json()])
    assert settings == {}
    assert rows.written == []  # the MERGE has made a commit


def test_only_upserts_in_delta_have_a_session_of_their_own() -> None:
    spark: Any = SimpleNamespace(
        conf=SimpleNamespace(getAll={"a": "1", "b": "2"}),
        catalog=SimpleNamespace(currentCatalog=lambda: "c", currentDatabase=lambda: "d"),
        newSession=lambda: other,
    )
    known, place = {"a": "1", "b": "0"}, []
    other = SimpleNamespace(
        conf=SimpleNamespace(getAll=dict(known), set=known.__setitem__),
        catalog=SimpleNamespace(setCurrentCatalog=place.append, setCurrentDatabase=place.append),
    )
    assert lake_tables.session_for(spark, "iceberg", upsert=True) is spark
    assert lake_tables.session_for(spark, "delta", upsert=False) is spark
    assert lake_tables.session_for(spark, "delta", upsert=True) is other
    assert (known, place) == ({"a": "1", "b": "2"}, ["c", "d"])


def test_no_logs_are_an_error(tmp_path: Any) -> None:
    segment_path(tmp_path, "a").write_bytes(damaged_log(1).log)
    session: Any = Uncommitted()
    for options in ({"topics": "b"}, {"topics": ["a", "b"]}, {"topicPattern": "b.*"}):
        for loss in (True, False):
            with pytest.raises(NoLogsError, match="no segments of the selected topics"):
                table_jobs.write_table(session, tmp_path, "a.b.c", failOnDataLoss=loss, **options)


def test_ranges_of_commits(tmp_path: Any) -> None:
    """Neither the table of problems nor that of rows goes back if another driver went further."""
    path = segment_path(tmp_path, "a")
    path.write_bytes(damaged_log(3).log)
    options, _ = table_jobs.parse_table_options(str(tmp_path), "a.b.c", "iceberg", {})
    logs = table_jobs._Logs.of(options)
    one = ("a", 0)
    assert logs.range_after({}, None) == ({one: 0}, {one: 6})
    assert logs.range_after({one: 2}, None) == ({one: 2}, {one: 6})
    path.write_bytes(damaged_log(5).log)
    assert logs.range_after({one: 2}, None) == ({one: 2}, {one: 6})  # as when the job started
    assert logs.range_after({one: 8}, None) == ({one: 8}, {one: 8})
    assert logs.range_after({one: 8}, {one: 6}) == ({one: 8}, {one: 8})
    assert logs.range_after({one: 2, ("b", 0): 3}, {one: 6, ("b", 0): 5})[0][one] == 2
    assert logs.unread_tails() == []


def test_bytes_that_are_no_batches_are_named(tmp_path: Any) -> None:
    whole = damaged_log(3).log
    for name, log, position in [
        ("torn", whole[:-5], 2),
        ("zeros", whole + bytes(100), None),
        ("wrong", damaged_log(3).flip(2, 70).log, 2),
    ]:
        segment_path(tmp_path, name).write_bytes(log)
        options, _ = table_jobs.parse_table_options(
            str(tmp_path), "a.b.c", "iceberg", {"topics": name}
        )
        logs = table_jobs._Logs.of(options)
        logs.range_after({}, None)
        found = logs.unread_tails()
        assert len(found) == (position is not None), name
        if position is not None:
            assert f"position {len(whole) * position // 3}: " in found[0]


def test_problems_of_a_task(tmp_path: Any) -> None:
    options, _ = table_jobs.parse_table_options(
        str(TYPED), "l.d.t", "iceberg", {"topics": "orders", "registry": str(TYPED)}
    )
    (task,) = tasks(path=str(TYPED), topics="orders")
    found = [
        row
        for batch in scan_problems(task, ProblemScan(options, needs_key=False))
        for row in batch.to_pylist()
    ]
    assert [row["offset"] for row in found] == [81]
    assert found[0]["value_raw"]
    assert "is not decoded" in found[0]["reason"]
    strict = options.replace(mode="FAILFAST", registry=None)
    assert not [b for b in scan_problems(task, ProblemScan(strict, needs_key=True)) if b.num_rows]
