"""The types that a JSON Schema gives, and the values that have them."""

from __future__ import annotations

import json
import locale
from typing import Any

import pyarrow as pa
import pytest

from kafkascan.format.errors import STATUS, ValueSchemaError
from kafkascan.schemas.programs.json_program import JsonProgram
from kafkascan.schemas.programs.json_schema import TEXT, JsonType, parse_json_schema
from kafkascan.schemas.programs.typed_columns import ColumnMemory
from tests.support.typed_values import decoded

_INTEGER, _STRING = JsonType("integer"), JsonType("string")
_A = JsonType("object", {"a": _INTEGER})
_OBJECT_A = {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": ["null", "string"], "format": "date-time"}, _STRING),
        ({"enum": ["a", "b", None]}, _STRING),
        ({"enum": ["a", 1]}, TEXT),
        ({"const": 1.5}, JsonType("number")),
        ({"properties": {"a": {"type": "integer"}}}, _A),
        ({"type": "array", "items": {"type": "integer"}}, JsonType("array", item=_INTEGER)),
        ({"type": "array", "items": [{"type": "integer"}]}, TEXT),
        ({"type": "array", "prefixItems": [{}], "items": {"type": "integer"}}, TEXT),
        ({"type": "object", "additionalProperties": _OBJECT_A}, JsonType("map", item=_A)),
        ({"oneOf": [{"type": "null"}, _OBJECT_A]}, _A),
        ({"anyOf": [{"type": "integer"}, {"type": "number"}]}, JsonType("number")),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, TEXT),
        ({**_OBJECT_A, "anyOf": [{"required": ["a"]}, {"minProperties": 2}]}, _A),
        ({"$ref": "#/definitions/a", "definitions": {"a": _OBJECT_A}}, _A),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": _OBJECT_A}}, _A),
        ({"$ref": "#/$defs/missing"}, TEXT),
        ({"$ref": "#one", "$defs": {"a": {"$anchor": "one", **_OBJECT_A}}}, _A),
        ({"$ref": "#one", "definitions": {"a": {"$id": "#one", **_OBJECT_A}}}, _A),
        ({"$ref": "anchored.json#one"}, _INTEGER),
        ({"$ref": "#none", "$defs": {"a": {"$anchor": "one"}}}, TEXT),
        (
            {"$ref": "#one", "$defs": {"a": {"$id": "x.json", "$defs": {"b": {"$anchor": "one"}}}}},
            TEXT,
        ),
        ({"$ref": "a.json"}, _A),
        ({"$id": "http://example.com/x/b.json", "$ref": "a.json#/properties/a"}, _INTEGER),
        ({"$ref": "http://example.com/other.json"}, _STRING),
        ({"properties": {"a\\b": {}}}, TEXT),
        (
            {"allOf": [_OBJECT_A, {"properties": {"b": {"type": "string"}}}, {"required": ["b"]}]},
            JsonType("object", {"a": _INTEGER, "b": _STRING}),
        ),
        (
            {"properties": {"a": {"type": "integer"}, "next": {"$ref": "#"}}},
            JsonType("object", {"a": _INTEGER, "next": TEXT}),
        ),
    ],
)
def test_types(schema: Any, kind: JsonType) -> None:
    references = {
        "a.json": json.dumps(_OBJECT_A),
        "anchored.json": "\ufeff" + json.dumps({"$defs": {"a": {"$anchor": "one", "const": 1}}}),
        "other": json.dumps({"$id": "http://example.com/other.json", "type": "string"}),
    }
    assert parse_json_schema(json.dumps(schema), references) == kind


def test_schemas_that_are_too_large_or_no_json() -> None:
    doubling = {f"d{n}": {"properties": {"x": {"$ref": f"#/$defs/d{n + 1}"},
                                         "y": {"$ref": f"#/$defs/d{n + 1}"}}}
                for n in range(40)}  # fmt: skip
    for text in ("{", "[" * 100_000, json.dumps({"$ref": "#/$defs/d0", "$defs": doubling})):
        with pytest.raises(ValueSchemaError):
            JsonProgram(parse_json_schema(text))
    wide = JsonType("object", {f"m{number}": _INTEGER for number in range(1 << 14)})
    with pytest.raises(ValueSchemaError, match="columns"):
        JsonProgram(wide)


def _one(kind: JsonType, text: bytes) -> tuple[Any, str]:
    program = JsonProgram(kind)
    found, status = decoded(program, program.first_step, [text])
    symbols = {number: symbol for symbol, number in STATUS.items()}
    return found.to_pylist()[0], symbols[int(status[0])]


def test_members_come_in_any_order_twice_or_not_at_all() -> None:
    kind = JsonType("object", {"a": JsonType("array", item=_INTEGER), "ü": _STRING})
    assert _one(kind, b'{"\\u00fc":"x","b":{"a":[{}]},"a":[1,2],"a":[3]}') == (
        {"a": [3], "ü": "x"}, "OK",
    )  # fmt: skip
    assert _one(kind, b" { } ") == ({"a": None, "ü": None}, "OK")
    assert _one(kind, b"null") == (None, "OK")
    assert JsonProgram(kind).layout.columns[0].type == pa.struct(
        [("a", pa.list_(pa.field("item", pa.int64()))), ("ü", pa.string())]
    )


@pytest.mark.parametrize(
    ("kind", "text", "symbol"),
    [
        (_INTEGER, b"9223372036854775808", "BAD_VALUE_NUMBER"),
        (_INTEGER, b"1.5", "BAD_VALUE_NUMBER"),
        (_INTEGER, b'"1"', "BAD_VALUE_TYPE"),
        (_INTEGER, b"x", "BAD_JSON"),
        (_INTEGER, b"1 1", "VALUE_BYTES_LEFT"),
        (_INTEGER, b"", "BAD_JSON"),
        (JsonType("number"), b"1e400", "BAD_VALUE_NUMBER"),
        (JsonType("number"), b"1" * 2000, "BAD_VALUE_NUMBER"),
        (_STRING, b'"\\ud800"', "BAD_VALUE_TEXT"),
        (_STRING, b'"\xed\xa0\x80"', "BAD_VALUE_TEXT"),
        (_STRING, b'"\n"', "BAD_JSON"),
        (_A, b'{"a":1,}', "BAD_JSON"),
        (TEXT, b"[" * 100_000, "VALUE_TOO_DEEP"),
        (TEXT, b"1\xef\xbb\xbf", "VALUE_BYTES_LEFT"),
    ],
)
def test_values_that_do_not_fit_are_nulls_with_a_reason(
    kind: JsonType, text: bytes, symbol: str
) -> None:
    assert _one(kind, text) == (None, symbol)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (b"9007199254740993.0", 9007199254740993),
        (b"-9007199254740993e0", -9007199254740993),
        (b"90071992547409930e-1", 9007199254740993),
        (b"9.223372036854775807e18", 2**63 - 1),
        (b"-9223372036854775808.000", -(2**63)),
        (b"9223372036854775808.0", None),
        (b"1." + b"0" * 40, 1),
        (b"1." + b"0" * 40 + b"1", None),
        (b"0.99999999999999999999", None),
        (b"1.2345678901234567890000e4", None),
        (b"1.234000000000000000000e3", 1234),
        (b"0." + b"0" * 30 + b"7e31", 7),
        (b"-0.0", 0),
        (b"1e19", None),
    ],
)
def test_integers_with_a_point_or_an_exponent_are_exact(text: bytes, number: int | None) -> None:
    assert _one(_INTEGER, text) == (number, "OK" if number is not None else "BAD_VALUE_NUMBER")


def test_columns_cost_what_the_size_of_the_value_allows() -> None:
    wide = JsonType("object", {f"m{number}": _INTEGER for number in range(10_000)})
    kind = JsonType("array", item=wide)
    assert _one(kind, b'[{"m1":1}]')[1] == "OK"
    assert _one(kind, b"[{},{},{}]")[1] == "TOO_MANY_ITEMS"
    again = JsonType("object", {"a": wide})
    assert _one(again, b"{" + b'"a":{},' * 100 + b'"a":{}}')[1] == "TOO_MANY_ITEMS"


def test_numbers_do_not_depend_on_the_locale() -> None:
    before = locale.setlocale(locale.LC_NUMERIC)
    for name in ("de_DE.UTF-8", "fr_FR.UTF-8", "C"):
        try:
            locale.setlocale(locale.LC_NUMERIC, name)
        except locale.Error:
            continue
        try:
            assert _one(JsonType("number"), b"1.2345678901234567e-30")[0] == 1.2345678901234567e-30
        finally:
            locale.setlocale(locale.LC_NUMERIC, before)


def test_a_large_value_is_decoded_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    grown = []
    grow = ColumnMemory.grow

    def counted(memory: ColumnMemory, number: int, needed: int, *, is_again: bool) -> bool:
        grown.append(number)
        return grow(memory, number, needed, is_again=is_again)

    monkeypatch.setattr(ColumnMemory, "grow", counted)
    names = [f"m{number}" for number in range(200)]
    kind = JsonType("array", item=JsonType("object", dict.fromkeys(names, _STRING)))
    rows = [{name: name * number for name in names} for number in range(100)]
    assert _one(kind, json.dumps(rows).encode()) == (rows, "OK")
    assert 0 < len(grown) < 40
