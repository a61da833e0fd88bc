"""The records view with values that a registry gives types, on a real Spark and without one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kafkascan as ks
from kafkascan.format.errors import ValueSchemaError
from kafkascan.schemas import Registry, SubjectVersion, open_registry
from kafkascan.spark.jobs.output_folders import LocalFolder
from kafkascan.spark.jobs.planned_outputs import plan_exports
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.options.typed_fields import spark_kind
from kafkascan.spark.options.view_schemas import declared_type
from kafkascan.spark.planning.read_plan import plan_read
from kafkascan.tables.schema import Field
from tests.spark.logs import GOLDEN, rows, write_planned
from tests.spark.test_source import both

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATA = GOLDEN / "kafka-4.4.0-typed" / "data"
ORDERS = {"registry": str(DATA), "valueSchema": "orders-value"}


def test_both_apis_decode_values(spark: SparkSession) -> None:
    expected = ks.read_records(DATA / "orders-0", value=open_registry(DATA))
    for frame in both(spark, "records", str(DATA / "orders-0"), mode="PERMISSIVE", **ORDERS):
        assert frame.schema["value"].dataType.simpleString() == (
            "struct<id:bigint,buyer:string,attributes:map<string,double>,"
            "lines:array<struct<sku:string,count:int>>,due:date,"
            "ships_to:struct<street:string,zip:binary>,"
            "origin:struct<string:string,long:bigint,boolean:boolean>,price:decimal(12,2)>"
        )
        found = frame.orderBy("offset").toArrow()
        values = found["value"].to_pylist()
        assert len(values) == len(expected)
        for ours, theirs in zip(expected["value"], values, strict=True):
            if ours is not None:
                ours = {**ours, "attributes": sorted(ours["attributes"])}
                theirs = {**theirs, "attributes": sorted(theirs["attributes"])}
            assert ours == theirs
        damage = [one for one in found["_corrupt_record"].to_pylist() if one is not None]
        assert len(damage) == 1
        assert "the value of offset 81 is not decoded" in damage[0]


def test_spark_computes_on_fields(spark: SparkSession) -> None:
    path = str(DATA / "payments-0")
    schema = {"registry": str(DATA), "valueSchema": "payments-value:2"}
    for frame in both(spark, "records", path, **schema, valueMessage="shop.Payment"):
        found = frame.where("value.state = 'DONE'").selectExpr("sum(size(value.tags)) AS tags")
        decoded = ks.read_records(
            path, value=open_registry(DATA).reader("payments-value", 2, message="shop.Payment")
        )
        expected = [one for one in decoded["value"] if one and one["state"] == "DONE"]
        assert found.collect()[0].tags == sum(len(one["tags"]) for one in expected)


def test_modes() -> None:
    path = str(DATA / "orders-0")
    with pytest.raises(ValueSchemaError, match="offset 81 is not decoded"):
        rows(path=path, **ORDERS)
    assert len(rows(path=path, mode="DROPMALFORMED", **ORDERS)) == 81
    assert len(rows(path=path, mode="PERMISSIVE", **ORDERS)) == 82


def test_columns_follow_the_topic_or_an_option() -> None:
    by_topic = rows(path=str(DATA), topics="orders", registry=str(DATA), mode="DROPMALFORMED")
    assert by_topic == rows(path=str(DATA / "orders-0"), mode="DROPMALFORMED", **ORDERS)
    for options, reason in [
        ({"registry": str(DATA)}, "valueSchema=SUBJECT, or select one topic"),
        ({"registry": str(DATA), "valueSchema": "nothing"}, "no version of the subject 'nothing'"),
        ({"valueSchema": "orders-value"}, "need the option registry"),
        ({**ORDERS, "view": "batches"}, "requires the view 'records'"),
    ]:
        with pytest.raises(ValueError, match=reason):
            rows(path=str(DATA), **options)
    keys = rows(path=str(DATA), keySchema="orders-value", mode="PERMISSIVE", **ORDERS)
    assert {row["key"] for row in keys} == {None}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.dictionary(pa.int32(), pa.string()), "string"),
        (pa.uint64(), "decimal(20,0)"),
        (pa.uint32(), "bigint"),
        (pa.time32("ms"), "string"),
        (pa.timestamp("ns", "UTC"), "timestamp"),
        (pa.timestamp("ms"), "timestamp_ntz"),
        (pa.decimal256(50, 3), "string"),
        (pa.duration("ns"), "interval day to second"),
        (pa.list_(pa.struct([("a.b", pa.binary(5))])), "array<struct<`a.b`:binary>>"),
        (pa.map_(pa.string(), pa.float32()), "map<string,float>"),
        (pa.null(), "string"),
    ],
)
def test_types(kind: pa.DataType, expected: str) -> None:
    assert declared_type(Field("value", "typed", arrow=spark_kind(kind))) == expected


def test_a_registry_of_files(tmp_path: Path) -> None:
    folder = tmp_path / "schemas"
    ks.schemas.export_schemas(open_registry(DATA), folder)
    options: dict[str, Any] = {**ORDERS, "mode": "PERMISSIVE", "path": str(DATA / "orders-0")}
    by_id = [row["value"] for row in rows(**{**options, "registry": str(folder)})]
    assert by_id == [row["value"] for row in rows(**options)]


def test_an_export_has_typed_columns(tmp_path: Path) -> None:
    folder = LocalFolder(str(tmp_path / "out"))
    options = {"path": str(DATA / "orders-0"), "mode": "PERMISSIVE", "valueSchema": "orders-value"}
    (output,) = write_planned(folder, registry=str(DATA), **options)
    table = pq.read_table(tmp_path / "out" / output, columns=["value"])
    assert table.schema.field("value").type.field("price").type == pa.decimal128(12, 2)
    assert table["value"].null_count == 2
    # Other schemas are other outputs.
    registry = open_registry(DATA)
    assert digest_of(registry, **options) == digest_of(open_registry(DATA), **options)
    assert digest_of(registry, **options) != digest_of(with_a_space(registry), **options)


def digest_of(registry: Registry, **options: str) -> str:
    parsed = Options.parse({**options, "registry": registry})
    (task,) = plan_exports(plan_read(parsed), parsed, "zstd")
    return task.outputs[0].digest


def with_a_space(registry: Registry) -> Registry:
    """Return a registry in which the texts of schemas have a space more."""
    versions: dict[str, dict[int, SubjectVersion]] = {}
    for one in registry:
        schema = replace(one.schema, text=f"{one.schema.text} ")
        versions.setdefault(one.subject, {})[one.version] = replace(one, schema=schema)
    return Registry("other", versions)
