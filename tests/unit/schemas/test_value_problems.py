"""Problems of typed values say which part of a value they are about, and what is written there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kafkascan as ks
from kafkascan.schemas import json_values
from kafkascan.schemas.programs.avro_columns import column_of
from kafkascan.schemas.programs.avro_schema import parse_avro
from kafkascan.schemas.programs.json_schema import JsonType, type_of_values
from kafkascan.schemas.programs.typed_columns import ColumnLayout
from tests.unit.schemas.test_values import encoded, framed, registry_of

_ITEM = {"type": "object", "properties": {"price": {"type": "integer"}, "name": {"type": "string"}}}
_ORDER = {"properties": {
    "order": {"properties": {"items": {"type": "array", "items": _ITEM}}},
    "tags": {"type": "object", "additionalProperties": {"type": "boolean"}},
    "ratio": {"type": "number"},
}}  # fmt: skip


def problems_of(value: bytes, schema: Any = _ORDER) -> list[str]:
    log = ks.build_batches(value=[value])
    table = ks.read_records(log, value=json_values(json.dumps(schema)))
    return [one.message.partition(": ")[2] for one in table.problems]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ('{"order": {"items": [{"price": 1}, {"price": 1.5}]}}',
         "order.items[].price: 1.5 is not an int64"),
        ('{"order": {"items": [{"price": "1"}]}}', 'order.items[].price: "1" is not an int64'),
        ('{"order": {"items": [{"price": 9223372036854775808}]}}',
         "order.items[].price: 9223372036854775808 is not an int64"),
        ('{"order": {"items": [{"name": {"a": 1}}]}}',
         "order.items[].name: an object is not a string"),
        ('{"order": {"items": [7]}}', "order.items[]: 7 is not an object"),
        ('{"order": {"items": true}}', "order.items: true is not an array"),
        ('{"order": [1]}', "order: an array is not an object"),
        ('{"tags": {"a": true, "b": "no"}}', 'tags{value}: "no" is not a boolean'),
        ('{"ratio": 1e999}', "ratio: 1e999 is not a double"),
        (f'{{"ratio": "{"x" * 90}"}}', f'ratio: "{"x" * 39}… is not a double'),
        ("17", "17 is not an object"),
        ('{"order": {"items": [{"price": }]}}', "order.items[].price: a text is not JSON"),
        ('{"other": [1, ]}', "a text is not JSON"),
    ],
)  # fmt: skip
def test_a_bad_member_is_named(value: str, message: str) -> None:
    assert problems_of(value.encode()) == [message]
    assert problems_of(b"\xef\xbb\xbf " + value.encode()) == [message]


def test_the_path_of_avro(tmp_path: Path) -> None:
    item = {"type": "record", "name": "I", "fields": [
        {"name": "what", "type": ["null", "int", {"type": "map", "values": "string"}]},
    ]}  # fmt: skip
    schema = {"type": "record", "name": "R", "fields": [
        {"name": "items", "type": {"type": "array", "items": item}},
    ]}  # fmt: skip
    registry = registry_of(tmp_path, schema)
    whole = encoded(schema, {"items": [{"what": 1}, {"what": {"k": "text"}}]})
    log = ks.build_batches(value=[framed(1, whole.replace(b"text", b"te\xfft")), framed(1, b"\1")])
    table = ks.read_records(log, value=registry.reader("orders-value"))
    assert [one.message.partition("schema id 1: ")[2] for one in table.problems] == [
        "items[].what.map{value}: a text is not UTF-8",
        "items: the value ends before its last field",
    ]


def test_the_path_of_protobuf() -> None:
    from kafkascan.schemas.programs.program_runs import decode_values
    from kafkascan.schemas.programs.protobuf_program import ProtobufProgram
    from kafkascan.schemas.programs.protobuf_schema import compile_protobuf
    from kafkascan.schemas.value_problems import reason_of

    text = "message M { repeated I items = 1; } message I { string name = 1; int32 n = 2; }"
    schema = compile_protobuf(f'syntax = "proto3"; {text}', {})
    program = ProtobufProgram(schema.messages[(0,)])
    data = np.frombuffer(b"\x0a\x03\x0a\x01\xff", np.uint8)
    found = decode_values(
        program, np.array([data.ctypes.data], np.uintp), np.array([len(data)], np.int32),
        np.array([program.PLAIN], np.int32), data[:0], lambda at: AssertionError(at),
    )  # fmt: skip
    reason = reason_of(program, int(found.status[0]), found.place[0], b"")
    assert reason == ("BAD_VALUE_TEXT", "items[].name: a text is not UTF-8")


def test_paths_of_columns() -> None:
    schema = {"type": "map", "values": {"type": "array", "items": {"type": "map", "values": {
        "type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}}}}  # fmt: skip
    layout = ColumnLayout(column_of(parse_avro(json.dumps(schema))))
    paths = [layout.path_of(number) for number in range(len(layout.columns))]
    assert paths == [
        "", "", "{key}", "{value}", "{value}[]", "{value}[]", "{value}[]{key}", "{value}[]{value}",
        "{value}[]{value}.a",
    ]  # fmt: skip


# ---- integers that are not exact -------------------------------------------------------------


def test_a_rounded_integer_is_kept_and_said() -> None:
    schema = json.dumps({"properties": {"n": {"type": "number"}, "m": {"type": "number"}}})
    exact = [b'{"n": 9007199254740992}', b'{"n": 1.1}', b'{"n": 100000000000000000000}']
    log = ks.build_batches(
        value=[*exact, b'{"m": 1, "n": -9007199254740993}', b'{"n": %d}' % 2**64]
    )
    table = ks.read_records(log, value=json_values(schema))
    assert [one["n"] for one in table["value"]] == [2.0**53, 1.1, 1e20, -(2.0**53), 2.0**64]
    (problem,) = table.problems
    assert (problem.symbol, problem.rows_missing) == ("ROUNDED_INTEGER", False)
    assert (problem.offset, problem.count) == (3, 1)
    assert problem.message == (
        "the value of offset 3 is not exactly what was written: n: -9007199254740993 is rounded to"
        " the nearest double"
    )


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        ([b"9007199254740993", b"1"], "long"),
        ([b"9007199254740993", b"1.5"], "text"),
        ([b"1.5", b"1", b"9007199254740993"], "text"),
        ([b"1", b"18446744073709551615"], "text"),
        ([b"9007199254740993", b"10000000000000000000"], "text"),
        ([b"9007199254740992", b"1.5", b"1e300"], "number"),
        ([b"1" + b"0" * 400], "text"),
    ],
)
def test_numbers_of_a_sample_are_kept_exactly(texts: list[bytes], kind: str) -> None:
    assert type_of_values(texts) == JsonType(kind)
    log = ks.build_batches(value=texts)
    table = ks.read_records(log, value=json_values())
    assert {one.symbol for one in table.problems} == {"INFERRED_SCHEMA"}
    found = table["value"].tolist()
    assert [json.loads(one) if kind == "text" else one for one in found] == [
        json.loads(one) for one in texts
    ]


# ---- records inside themselves ---------------------------------------------------------------


def test_records_inside_themselves_with_two_encodings_are_a_note(tmp_path: Path) -> None:
    def node(kind: str) -> Any:
        return {"type": "record", "name": "N", "fields": [
            {"name": "id", "type": kind}, {"name": "next", "type": ["null", "N"], "default": None},
        ]}  # fmt: skip

    registry = registry_of(tmp_path, node("int"), node("long"))
    value = {"id": 1, "next": {"id": 2, "next": None}}
    first = framed(1, encoded(node("int"), value))
    reader = registry.reader("orders-value")
    assert not len(ks.read_records(ks.build_batches(value=[first]), value=reader).problems)
    log = ks.build_batches(value=[first, framed(2, encoded(node("long"), value))])
    (note,) = ks.read_records(log, value=reader).problems
    assert (note.symbol, note.rows_missing) == ("RAW_RECORDS", False)
    assert "next: records inside themselves" in note.message
    assert note.message.endswith("the ids are 1, 2")
