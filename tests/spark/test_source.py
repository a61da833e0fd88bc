"""Both APIs on a real Spark: the data source, and DataFrames by mapInArrow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import kafkascan as ks
from kafkascan.spark.readers import frames
from tests.spark.logs import (
    DATA,
    OLD_DATA,
    damaged_log,
    multiset,
    plain_batch,
    rows,
    segment_path,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GOLDEN = [str(DATA), str(OLD_DATA)]
KAFKA_SCHEMA = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
    "timestamp:timestamp,timestampType:int"
)


def load(spark: SparkSession, path: Any, **options: Any) -> DataFrame:
    return spark.read.format("kafkascan").options(**options).load(path)


def arrow_rows(frame: DataFrame) -> list[dict[str, Any]]:
    return frame.toArrow().to_pylist()


def both(spark: SparkSession, view: str, path: Any, **options: Any) -> list[DataFrame]:
    return [
        load(spark, path, view=view, **options),
        frames.view(spark, view, path, **options),
    ]


def comparable(found: list[dict[str, Any]]) -> Any:
    """Sort maps, whose order is not defined."""
    return multiset(
        [
            {
                name: sorted(dict(value).items()) if name in ("codecs", "magics") else value
                for name, value in row.items()
            }
            for row in found
        ]
    )


def test_the_source_is_registered_with_the_session() -> None:
    """Classic Spark also discovers it; a Connect server does not."""
    pytest.importorskip("pyspark")
    from kafkascan.spark.readers.data_source import KafkaScanSource, register

    registered: list[Any] = []
    register(SimpleNamespace(dataSource=SimpleNamespace(register=registered.append)))  # type: ignore[arg-type]
    assert registered == [KafkaScanSource]


@pytest.mark.parametrize(
    ("view", "options"),
    [
        ("records", {"includeHeaders": "true", "includeControlRecords": "true"}),
        ("records", {"maxPartitionBytes": "40000", "prefetch": "0"}),
        ("records", {"isolationLevel": "read_committed"}),
        ("batches", {"verify": "true", "maxPartitionBytes": "40000"}),
        ("segments", {"verify": "true"}),
    ],
)
def test_both_apis_return_the_rows_of_a_plain_scan(
    spark: SparkSession, view: str, options: dict[str, str]
) -> None:
    expected = rows(paths=GOLDEN, view=view, **options)
    assert len(expected) >= 40
    for frame in both(spark, view, GOLDEN, **options):
        assert comparable(arrow_rows(frame)) == comparable(expected)


def test_every_column(spark: SparkSession) -> None:
    from kafkascan.spark.options.view_schemas import VIEWS

    for view, columns in VIEWS.items():
        names = ",".join(column.name for column in columns)
        expected = rows(path=str(OLD_DATA), view=view, columns=names)
        for frame in both(spark, view, str(OLD_DATA), columns=names):
            assert frame.columns == [column.name for column in columns]
            assert comparable(arrow_rows(frame)) == comparable(expected)


def test_records_have_the_schema_of_sparks_kafka_source(spark: SparkSession) -> None:
    for frame in both(spark, "records", str(DATA)):
        assert frame.schema.simpleString() == KAFKA_SCHEMA + ">"
    for frame in both(spark, "records", str(DATA), includeHeaders="true"):
        headers = "headers:array<struct<key:string,value:binary>>"
        assert frame.schema.simpleString() == f"{KAFKA_SCHEMA},{headers}>"


def test_times(spark: SparkSession) -> None:
    path = DATA / "timestamps-0"
    load(spark, str(path), columns="offset,timestamp").createOrReplaceTempView("times")
    found = spark.sql("select unix_micros(timestamp) from times order by offset").collect()
    records = ks.read_records(path / f"{0:020d}.log", columns=["timestamp"])
    assert [row[0] for row in found] == (1000 * records["timestamp"]).tolist()
    assert len(found) > 20


def test_times_that_spark_cannot_hold(spark: SparkSession, tmp_path: Path) -> None:
    log = plain_batch(0, 1, max_timestamp=2**63 - 1, attributes=8)
    log += plain_batch(1, 1, max_timestamp=-1, attributes=8)
    segment_path(tmp_path, "times").write_bytes(log)
    load(spark, str(tmp_path), columns="offset,timestamp").createOrReplaceTempView("odd_times")
    found = spark.sql("select unix_micros(timestamp) from odd_times order by offset")
    assert [row[0] for row in found.collect()] == [None, -1000]
    for view in ("batches", "segments"):
        for frame in both(spark, view, str(tmp_path)):
            assert {row.max_timestamp for row in frame.collect()} == {None}, "as in the library"


def test_a_schema_given_by_the_user(spark: SparkSession) -> None:
    reader = spark.read.format("kafkascan").schema("offset bigint, value binary")
    frame = reader.load(str(DATA / "headers-0"))
    expected = rows(path=str(DATA / "headers-0"), columns="offset,value")
    assert multiset(arrow_rows(frame)) == multiset(expected)
    wrong = spark.read.format("kafkascan").schema("offset int").load(str(DATA))
    with pytest.raises(Exception, match="'offset' is of the type bigint, not int"):
        wrong.collect()


def test_paths(spark: SparkSession, tmp_path: Path) -> None:
    one = DATA / "headers-0" / "00000000000000000000.log"
    expected = len(rows(path=str(one)))
    assert load(spark, str(one)).count() == expected
    assert load(spark, f"file://{one}").count() == expected
    assert load(spark, str(DATA / "head*-0")).count() == expected
    assert load(spark, [str(one), str(DATA / "headers-0")]).count() == expected
    with pytest.raises(Exception, match="no segments of the selected topics"):
        load(spark, str(DATA), topics="headers,no-such-topic").count()
    lenient = {"ignoreMissingFiles": "true"}
    assert load(spark, str(DATA), topics="headers,no-such-topic", **lenient).count() == expected
    assert load(spark, str(DATA), topicPattern="head.*").count() == expected
    assert load(spark, str(DATA), partitions="1", view="segments").count() == 1
    (tmp_path / "empty-0").mkdir()
    with pytest.raises(Exception, match="NO_LOGS"):
        load(spark, str(tmp_path)).count()
    with pytest.raises(FileNotFoundError, match="NO_LOGS"):
        frames.records(spark, tmp_path)
    assert load(spark, str(tmp_path), **lenient).count() == 0
    assert frames.records(spark, tmp_path, **lenient).count() == 0


def test_error_messages(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="did you mean 'startingOffsets'"):
        load(spark, str(DATA), startingOfsets="earliest")
    with pytest.raises(Exception, match="no-such-folder"):
        load(spark, str(tmp_path / "no-such-folder")).collect()
    assert load(spark, str(tmp_path / "x"), ignoreMissingFiles="true").count() == 0
    path = segment_path(tmp_path, "bad")
    path.write_bytes(damaged_log().flip(5, 70).log)
    message = rf"{path}: position 595 \(base_offset 10\).*CHECKSUM_MISMATCH"
    for frame in both(spark, "records", str(tmp_path)):
        with pytest.raises(Exception, match=message):
            frame.collect()


def test_modes(spark: SparkSession, tmp_path: Path) -> None:
    path = segment_path(tmp_path, "bad")
    path.write_bytes(damaged_log().flip(5, 70).log)
    for frame in both(spark, "records", str(tmp_path), mode="PERMISSIVE"):
        (bad,) = frame.where("_corrupt_record is not null").collect()
        assert (bad.topic, bad.offset, bad.value) == ("bad", 10, None)
        assert str(path) in bad["_corrupt_record"]
        assert frame.count() == 23
    options = {"mode": "PERMISSIVE", "columns": "offset,_Corrupt_record"}
    for frame in both(spark, "records", str(tmp_path), **options):
        assert frame.where("_corrupt_record is not null").count() == 1
    for frame in both(spark, "records", str(tmp_path), mode="DROPMALFORMED"):
        assert frame.count() == 22
    for frame in both(spark, "batches", str(tmp_path), verify="true"):
        assert [row.status for row in frame.where("not crc_is_valid").collect()] == [
            "CHECKSUM_MISMATCH"
        ]
    for frame in both(spark, "segments", str(tmp_path), verify="true"):
        (row,) = frame.collect()
        assert (row.status, row.bad_checksums, row.batches) == ("CHECKSUM_MISMATCH", 1, 12)


def test_pushed_filters_do_not_leak(spark: SparkSession) -> None:
    """pyspark 4.1 to 4.3 keep a pushed filter for other queries on the same load."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        paths = [str(DATA / "headers-0"), str(DATA / "partitions-0")]
        frame = load(spark, paths, columns="topic,partition,offset")
        expected = rows(paths=paths)
        total = len(expected)
        late = sum(row["offset"] > 5 for row in expected)
        headers = sum(row["topic"] == "headers" for row in expected)
        assert 0 < late < total
        assert frame.filter("offset > 5").count() == late
        assert frame.count() == total
        assert frame.filter("topic = 'headers'").count() == headers
        assert frame.filter("offset > 5").union(frame).count() == late + total
        joined = frame.filter("offset > 5").alias("x").join(frame.alias("y"), "topic")
        assert joined.selectExpr("count(distinct y.offset, y.partition, topic)").first()[0] > late
        frame.createOrReplaceTempView("leaky")
        query = "select (select count(*) from leaky where offset > 5), (select count(*) from leaky)"
        assert tuple(spark.sql(query).first()) == (late, total)
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_columns_and_where_prune(spark: SparkSession) -> None:
    expected = rows(path=str(DATA), view="batches")
    where = "topic = 'transactions' and producer_id >= 4 and not is_control"
    wanted = sum(
        row["topic"] == "transactions" and row["producer_id"] >= 4 and not row["is_control"]
        for row in expected
    )
    frame = frames.batches(spark, DATA, columns=["base_offset", "records_count"], where=where)
    assert frame.columns == ["base_offset", "records_count"]
    assert frame.count() == wanted > 3
    assert load(spark, str(DATA), view="batches", where=where).count() == wanted


def test_a_view_in_sql(spark: SparkSession) -> None:
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW batches_of_golden USING kafkascan"
        f" OPTIONS (path '{DATA}', view 'batches')"
    )
    found = spark.sql(
        "select compression_type as codec, sum(records_count) from batches_of_golden group by 1"
    )
    assert {row.codec for row in found.collect()} == {"none", "gzip", "snappy", "lz4", "zstd"}


def test_a_table_in_sql(spark: SparkSession) -> None:
    """Spark reads a table without the options it was created with, so the error says what to do."""
    options = f"USING kafkascan OPTIONS (path '{DATA}')"
    with pytest.raises(Exception, match=r"does not pass the options of a table .* TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE refused {options}")
    spark.sql(f"CREATE TABLE with_columns (offset bigint NOT NULL) {options}")
    try:
        with pytest.raises(Exception, match=r"no path is given.*a temporary view"):
            spark.sql("SELECT * FROM with_columns").collect()
        found = spark.sql(f"SELECT count(*) FROM with_columns WITH (path='{DATA}')").first()[0]
        assert found == len(rows(path=str(DATA)))
        of_view = f"SELECT * FROM with_columns WITH (path='{DATA}')"
        spark.sql(f"CREATE VIEW with_options AS {of_view}")
        assert spark.newSession().table("with_options").count() == found
        spark.sql("DROP VIEW with_options")
    finally:
        spark.sql("DROP TABLE with_columns")


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("CREATE VIEW kept AS SELECT offset FROM temporary", "INVALID_TEMP_OBJ_REFERENCE"),
        (f"SELECT * FROM kafkascan.`{DATA}`", "UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY"),
    ],
)
def test_what_spark_refuses(spark: SparkSession, statement: str, error: str) -> None:
    spark.read.format("kafkascan").load(str(DATA)).createOrReplaceTempView("temporary")
    with pytest.raises(Exception, match=error):
        spark.sql(statement)


def test_a_limit_ends_the_scan(spark: SparkSession) -> None:
    for frame in both(spark, "records", str(DATA)):
        assert len(frame.limit(5).collect()) == 5


def test_imports_are_lazy() -> None:
    script = (
        "import sys, kafkascan.spark, pyspark_kafkascan;"
        "heavy = ('pyarrow', 'pandas', 'kafkascan.spark.rows.task_scan');"
        "print([m for m in heavy if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert result.stdout.decode().strip() == "[]"
