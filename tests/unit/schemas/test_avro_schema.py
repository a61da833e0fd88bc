"""Avro schemas that are odd, hostile, or refer to others."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from kafkascan.format.errors import ValueSchemaError
from kafkascan.schemas.programs.avro_columns import column_of
from kafkascan.schemas.programs.avro_program import AvroProgram
from kafkascan.schemas.programs.avro_schema import parse_avro


def record(name: str, **fields: object) -> dict[str, object]:
    members = [{"name": key, "type": kind} for key, kind in fields.items()]
    return {"type": "record", "name": name, "fields": members}


def arrow_type(schema: object, references: dict[str, str] | None = None) -> pa.DataType:
    return column_of(parse_avro(json.dumps(schema), references)).type


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ("int", pa.int32()),
        (["null", "string"], pa.string()),
        (["string"], pa.string()),
        (["null"], pa.null()),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9}, pa.decimal128(9, 0)),
        ({"type": "bytes", "logicalType": "decimal", "precision": 76, "scale": 2},
         pa.decimal256(76, 2)),
        ({"type": "bytes", "logicalType": "decimal", "precision": 77}, pa.binary()),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 5}, pa.binary()),
        ({"type": "bytes", "logicalType": "decimal", "precision": 10**6}, pa.binary()),
        ({"type": "string", "logicalType": "date"}, pa.string()),
        ({"type": "long", "logicalType": "timestamp-nanos"}, pa.timestamp("ns", "UTC")),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, pa.timestamp("us")),
        ({"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}, pa.string()),
        ({"type": "fixed", "name": "F", "size": 5}, pa.binary(5)),
        ({"type": "fixed", "name": "F", "size": 1 << 20}, pa.binary()),
        ({"type": "fixed", "name": "F", "size": 0}, pa.binary()),
        ({"type": {"type": "array", "items": "long"}},
         pa.list_(pa.field("item", pa.int64(), False))),
    ],
)  # fmt: skip
def test_types_of_columns(schema: object, expected: pa.DataType) -> None:
    assert arrow_type(schema) == expected


def test_a_union_of_types_is_a_struct_of_members_that_may_be_null() -> None:
    found = arrow_type(["null", "int", {"type": "enum", "name": "a.E", "symbols": ["X"]}])
    assert [one.name for one in found] == ["int", "a.E"]
    assert all(one.nullable for one in found)


def test_a_record_in_itself_is_the_bytes_of_its_encoding() -> None:
    found = arrow_type(record("Node", value="int", next=["null", "Node"]))
    assert found.field("next").type == pa.binary()


def test_names_come_from_references_whatever_their_order() -> None:
    references = {
        "b": json.dumps({**record("B", c="ns.C"), "namespace": "ns"}),
        "c": json.dumps({"type": "enum", "name": "C", "namespace": "ns", "symbols": ["X"]}),
    }
    found = arrow_type(record("A", b="ns.B", c="ns.C"), references)
    assert pa.types.is_dictionary(found.field("b").type.field("c").type)
    assert pa.types.is_dictionary(found.field("c").type)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON|nested"),
        ('{"type":"array","items":' * 5_000 + '"int"' + "}" * 5_000, "nested|no JSON"),
        ('"Unknown"', "there is no type 'Unknown'"),
        ('["int", "int"]', "two branches of one type"),
        ('["int", ["null", "string"]]', "a union contains a union"),
        ('{"type": "record", "name": "R"}', "no list of fields"),
        ('{"type": "record", "fields": []}', "no name"),
        ('{"type": "fixed", "name": "F", "size": -1}', "size is -1"),
        ('{"type": "fixed", "name": "F", "size": true}', "size is True"),
        ('{"type": "enum", "name": "E", "symbols": ["A", "A"]}', "a symbol twice"),
        ('{"type": "enum", "name": "E", "symbols": [1]}', "no list of texts"),
        (json.dumps(record("R", a=record("R"))), "declared twice"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "a",'
         ' "type": "int"}]}', "a field twice"),
        ("17", "is no type"),
        (" " * (1 << 24) + '"int"', "more than"),
    ],
)  # fmt: skip
def test_texts_that_are_no_schema(text: str, reason: str) -> None:
    with pytest.raises(ValueSchemaError, match=reason):
        parse_avro(text)


def test_references_in_a_circle_end() -> None:
    references = {"a": json.dumps(record("A", b="B")), "b": json.dumps(record("B", a="A"))}
    found = arrow_type(record("Root", a="A"), references)
    assert found.field("a").type.field("b").type.field("a").type == pa.binary()


def test_columns_are_limited() -> None:
    wide = record("W", **{f"f{number}": "int" for number in range(20_000)})
    with pytest.raises(ValueSchemaError, match="more than 16384 columns"):
        arrow_type(wide)


def test_types_that_grow_exponentially_are_limited() -> None:
    schema: object = "int"
    for level in range(60):
        schema = record(f"R{level}", a=schema, b=f"R{level - 1}" if level else "int")
    with pytest.raises(ValueSchemaError, match="more than"):
        arrow_type(schema)
    # As a writer's schema, nothing of it is needed.
    reader = record("Other")
    program = AvroProgram(parse_avro(json.dumps([reader, "null"])))
    program.add(parse_avro(json.dumps(schema)))
    outer = {"type": "record", "name": "Root", "fields": [{"name": "a", "type": schema}]}
    program = AvroProgram(parse_avro(json.dumps(record("Root"))))
    program.add(parse_avro(json.dumps(outer)))


def test_a_long_chain_of_types_is_an_error() -> None:
    references = {
        f"R{number}": json.dumps(record(f"R{number}", next=f"R{number + 1}"))
        for number in range(3_000)
    }
    with pytest.raises(ValueSchemaError, match=r"nested|there is no type"):
        arrow_type("R0", references)


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ("int", "x"),
        ("int", 1 << 31),
        ("boolean", 1),
        ("int", True),
        ("bytes", "€"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B"),
        ({"type": "fixed", "name": "F", "size": 2}, "abc"),
        (["null", "int"], "text"),
        (record("R", a="int"), {}),
        ([], None),
    ],
)
def test_defaults_that_do_not_fit_are_errors(kind: object, default: object) -> None:
    reader = {"type": "record", "name": "T",
              "fields": [{"name": "new", "type": kind, "default": default}]}  # fmt: skip
    program = AvroProgram(parse_avro(json.dumps(reader)))
    with pytest.raises(ValueSchemaError, match="no default of type"):
        program.add(parse_avro(json.dumps(record("T"))))


def test_a_default_that_contains_itself_is_an_error() -> None:
    node = {"type": "record", "name": "N", "fields": [
        {"name": "left", "type": "N", "default": {}}, {"name": "right", "type": "N", "default": {}},
    ]}  # fmt: skip
    reader = {"type": "record", "name": "T",
              "fields": [{"name": "new", "type": node, "default": {}}]}  # fmt: skip
    program = AvroProgram(parse_avro(json.dumps(reader)))
    with pytest.raises(ValueSchemaError, match=r"more than 4096 values|no default"):
        program.add(parse_avro(json.dumps(record("T"))))
