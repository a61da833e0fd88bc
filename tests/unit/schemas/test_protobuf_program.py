"""Protobuf messages as typed columns."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import json_format, message_factory, struct_pb2
from google.protobuf.message import DecodeError

from kafkascan.format.errors import SYMBOLS, ValueSchemaError
from kafkascan.schemas.programs.protobuf_program import ProtobufProgram
from kafkascan.schemas.programs.protobuf_schema import compile_protobuf
from tests.support.protobuf_values import decoded

RANGE = 2**63 // 10**9  # seconds of 64 bits of nanoseconds


def program_of(text: str) -> tuple[ProtobufProgram, Any]:
    """Return the program of a file's first message, and its class."""
    message = compile_protobuf(text, {}).messages[(0,)]
    return ProtobufProgram(message), message_factory.GetMessageClass(message)


def rows_of(text: str, *values: bytes) -> list[Any]:
    """Return rows, or the symbols of statuses."""
    found, status = decoded(program_of(text)[0], values)
    return [SYMBOLS[int(why)] if why else row for row, why in zip(found, status, strict=True)]


def proto3(fields: str) -> str:
    return f'syntax = "proto3"; message A {{ {fields} }}'


def test_types_and_nulls() -> None:
    program, _ = program_of("""
    syntax = "proto3";
    import "google/protobuf/any.proto";
    import "google/protobuf/struct.proto";
    import "google/protobuf/timestamp.proto";
    import "google/protobuf/duration.proto";
    import "google/protobuf/wrappers.proto";
    enum Color { RED = 0; }
    message A {
      uint32 a = 3; optional sfixed64 b = 1; repeated float c = 2; map<bool, bytes> d = 4;
      oneof e { string f = 5; Color g = 6; }
      google.protobuf.Timestamp h = 7; google.protobuf.Duration i = 8;
      google.protobuf.UInt64Value j = 9; google.protobuf.Struct k = 10;
      google.protobuf.Any l = 11; A m = 12; Empty n = 13;
    }
    message Empty {}
    """)
    color = pa.dictionary(pa.int32(), pa.string())
    any_type = pa.struct(
        [pa.field("type_url", pa.string(), False), pa.field("value", pa.binary(), False)]
    )
    item = pa.field("item", pa.float32(), False)
    assert list(program.layout.columns[0].type) == [
        pa.field("a", pa.uint32(), False),
        pa.field("b", pa.int64()),
        pa.field("c", pa.list_(item), False),
        pa.field("d", pa.map_(pa.bool_(), pa.field("value", pa.binary(), False)), False),
        pa.field("f", pa.string()),
        pa.field("g", color),
        pa.field("h", pa.timestamp("ns", "UTC")),
        pa.field("i", pa.duration("ns")),
        pa.field("j", pa.uint64()),
        pa.field("k", pa.string()),
        pa.field("l", any_type),
        pa.field("m", pa.binary()),
        pa.field("n", pa.binary()),
    ]


@pytest.mark.parametrize(
    ("text", "row"),
    [
        (proto3("int32 x = 1; optional string y = 2;"), {"x": 0, "y": None}),
        ("message A { optional int32 x = 1 [default = 7]; }", {"x": None}),
        ("message A { required int32 x = 1; }", {"x": None}),
        (
            'edition = "2023"; message A { int32 x = 1; '
            "int32 y = 2 [features.field_presence = IMPLICIT]; }",
            {"x": None, "y": 0},
        ),
    ],
)
def test_what_is_missing(text: str, row: dict[str, Any]) -> None:
    assert rows_of(text, b"") == [row]


def test_numbers_of_enums() -> None:
    enum = "enum E { option allow_alias = true; A0 = 0; B = 9; C = 9; N = -1; }"
    opened = f'syntax = "proto3"; message A {{ {enum} E e = 1; repeated E r = 2; }}'
    values = b"\x08\x09", b"\x08\x2a\x12\x02\x00\x2b", b"\x08" + b"\xff" * 9 + b"\x01"
    assert rows_of(opened, *values) == [
        {"e": "B", "r": []},
        {"e": "42", "r": ["A0", "43"]},
        {"e": "N", "r": []},
    ]
    closed = f"message A {{ {enum} optional E e = 1; repeated E r = 2; map<int32, E> m = 3; }}"
    values = b"\x08\x2a", b"\x08\x09\x08\x2a", b"\x12\x03\x00\x2a\x09", b"\x1a\x04\x08\x01\x10\x2a"
    assert rows_of(closed, *values) == [
        {"e": None, "r": [], "m": {}},
        {"e": "B", "r": [], "m": {}},
        {"e": None, "r": ["A0", "B"], "m": {}},
        {"e": None, "r": [], "m": {}},
    ]


def dynamic(fields: str) -> str:
    return f'syntax = "proto3"; import "google/protobuf/struct.proto"; message A {{ {fields} }}'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"), (True, "true"), (7, "7"), (-0.0, "-0"), (0.1, "0.1"), (1e300, "1e+300"),
        (2.0**53, "9007199254740992"), (1 / 3, "0.3333333333333333"), ("ü\n\"", '"ü\\n\\""'),
        ([1, [], {}, "x"], '[1, [], {}, "x"]'), ({"a": {"": None}}, '{"a": {"": null}}'),
    ],
)  # fmt: skip
def test_values_of_any_type_are_json(value: Any, text: str) -> None:
    made = json_format.ParseDict(value, struct_pb2.Value()).SerializeToString()
    field = b"\x0a" + bytes([len(made)]) + made
    (row,) = rows_of(dynamic("google.protobuf.Value v = 1;"), field)
    assert row == {"v": text}


def test_json_of_a_struct_that_is_not_set_or_not_valid() -> None:
    text = dynamic("google.protobuf.Struct s = 1; map<int32, google.protobuf.Value> m = 2;"
                   " repeated google.protobuf.ListValue l = 3;")  # fmt: skip
    no_number, no_text = b"\x12\x09\x11" + b"\0" * 6 + b"\xf8\x7f", b"\x12\x03\x1a\x01\xff"
    twice = b"\x12\x00\x12\x00"
    entries = [b"\x0a" + bytes([len(one)]) + one for one in (no_number, no_text, twice)]
    values = [b"\x0a" + bytes([len(one)]) + one for one in entries]
    assert rows_of(text, b"", b"\x0a\x00\x12\x00\x1a\x00", *values) == [
        {"s": None, "m": {}, "l": []},
        {"s": "{}", "m": {0: "null"}, "l": ["[]"]},
        "BAD_VALUE_NUMBER", "BAD_VALUE_TEXT", "BAD_VALUE_TAG",
    ]  # fmt: skip


def test_json_is_not_deeper_than_protobuf_reads() -> None:
    """A list in a list is two messages deeper."""
    program, message = program_of(dynamic("google.protobuf.Value v = 1;"))
    for depth in (48, 49, 50, 1_000):
        value = b""
        for _ in range(depth):
            value = _sized(b"\x32", _sized(b"\x0a", value))
        value = _sized(b"\x0a", value)
        (row,), (status,) = decoded(program, [value])
        if depth < 50:
            assert row == {"v": "[" * depth + "null" + "]" * depth}
            message.FromString(value)
        else:
            assert SYMBOLS[int(status)] == "VALUE_TOO_DEEP"
            with pytest.raises(DecodeError):
                message.FromString(value)


@pytest.mark.parametrize(
    ("kind", "levels"), [("Value", (33, 34)), ("Struct", (32, 33)), ("ListValue", (32, 33))]
)
def test_structs_are_not_deeper_than_protobuf_reads(kind: str, levels: tuple[int, int]) -> None:
    """A struct in a struct is three messages deeper."""
    program, message = program_of(dynamic(f"google.protobuf.{kind} v = 1;"))
    for depth in levels:
        value = b""
        for _ in range(depth):
            value = _sized(b"\x2a", _sized(b"\x0a", _sized(b"\x12", value)))
        if kind != "Value":
            value = _sized(b"\x0a", value if kind == "ListValue" else _sized(b"\x12", value))
        value = _sized(b"\x0a", value)
        _, (status,) = decoded(program, [value])
        if depth == levels[0]:
            assert status == 0
            message.FromString(value)
        else:
            assert SYMBOLS[int(status)] == "VALUE_TOO_DEEP"
            with pytest.raises(DecodeError):
                message.FromString(value)


@pytest.mark.parametrize("kind", ["Value", "Struct", "ListValue"])
def test_json_is_written_again_wherever_its_column_has_no_room(kind: str) -> None:
    """A column has 4096 bytes at first: each size ends it at another character."""
    program, _ = program_of(dynamic(f"google.protobuf.{kind} v = 1;"))
    for size in [*range(1850, 2050), *range(3940, 4100)]:
        for number in (0.5, 0.25):  # of as many bytes
            members = {"a": [True] * 8, "": [False] * 8, "b": [None] * 8}
            items = ["x" * size, number, members, [{}, []]]
            wanted: Any = {"k": items} if kind == "Struct" else items
            made = json_format.ParseDict(wanted, getattr(struct_pb2, kind)())
            (row,), _ = decoded(program, [_sized(b"\x0a", made.SerializeToString())])
            assert json.loads(row["v"]) == wanted


def _sized(tag: bytes, data: bytes) -> bytes:
    size, rest = bytearray(), len(data)
    while rest > 127:
        size.append(rest & 127 | 128)
        rest >>= 7
    return tag + bytes([*size, rest]) + data


def test_json_grows_its_column() -> None:
    """A control character becomes six, so that no column has room for it at first."""
    values = [_sized(b"\x0a", _sized(b"\x1a", b"\x01" * size)) for size in (10, 5_000, 300_000)]
    rows = rows_of(dynamic("google.protobuf.Value v = 1;"), *values)
    assert [json.loads(row["v"]) for row in rows] == ["\x01" * n for n in (10, 5_000, 300_000)]


def test_the_last_value_and_the_last_member() -> None:
    text = proto3("string s = 1; oneof o { A a = 2; int32 i = 3; } int32 j = 4;")
    a = b"\x12\x02\x20\x07"
    values = b"\x0a\x02xx\x20\x01\x0a\x00\x20\x05", a + b"\x18\x01", b"\x18\x01" + a + a
    assert rows_of(text, *values) == [
        {"s": "", "a": None, "i": None, "j": 5},
        {"s": "", "a": None, "i": 1, "j": 0},
        {"s": "", "a": b"\x20\x07\x20\x07", "i": None, "j": 0},
    ]


def test_a_message_that_occurs_twice_is_merged() -> None:
    text = proto3("B b = 1;") + "message B { B2 b = 1; repeated int32 r = 2; int32 x = 3; }"
    text += "message B2 { repeated int32 r = 1; optional int32 y = 2; }"
    one = b"\x0a\x07\x0a\x03\x0a\x01\x05\x10\x01"
    other = b"\x0a\x08\x0a\x04\x08\x06\x10\x02\x18\x03"
    assert rows_of(text, one + other, other + one) == [
        {"b": {"b": {"r": [5, 6], "y": 2}, "r": [1], "x": 3}},
        {"b": {"b": {"r": [6, 5], "y": 2}, "r": [1], "x": 3}},
    ]


@pytest.mark.parametrize("count", [2, 16, 17, 300])
@pytest.mark.parametrize("key", ["string", "fixed32", "bool"])
def test_the_last_entry_of_a_key(key: str, count: int) -> None:
    text = proto3(f"map<{key}, string> m = 1; repeated A a = 2;").replace("repeated A", "A")
    program, message = program_of(text)
    values = []
    for numbers in (range(count), [0] * count, [*range(count), 0], []):
        data = b""
        for at, number in enumerate(numbers):
            made = {"string": str(number), "fixed32": number, "bool": number % 2 == 1}[key]
            data += message(m={made: str(at)}).SerializeToString()
        values.append(data)
    found, status = decoded(program, values)
    assert not status.any()
    assert [row["m"] for row in found] == [dict(message.FromString(one).m) for one in values]


def test_times() -> None:
    text = """
    syntax = "proto3";
    import "google/protobuf/timestamp.proto";
    import "google/protobuf/duration.proto";
    message A { google.protobuf.Timestamp t = 1; google.protobuf.Duration d = 2; }
    """
    program, message = program_of(text)
    given = [
        ("t", RANGE, 854775807, 2**63 - 1), ("t", RANGE, 854775808, None),
        ("t", -RANGE - 1, 145224192, -(2**63)), ("t", -RANGE - 1, 145224191, None),
        ("t", 1, -1, None), ("t", 1, 10**9, None), ("t", 2**63 - 1, 0, None), ("t", 0, 0, 0),
        ("d", -RANGE, -854775808, -(2**63)), ("d", -RANGE, -854775809, None),
        ("d", -1, -(10**9) + 1, -2 * 10**9 + 1), ("d", 1, -1, None), ("d", -1, 1, None),
        ("d", 0, -5, -5), ("d", 0, -(10**9), None), ("d", -(2**63), 0, None),
    ]  # fmt: skip
    values = []
    for name, seconds, nanos, _ in given:
        value = message()
        time = getattr(value, name)
        time.SetInParent()
        time.seconds, time.nanos = seconds, nanos
        values.append(value.SerializeToString())
    found, status = decoded(program, values)
    for (name, *numbers, expected), row, why in zip(given, found, status, strict=True):
        if expected is None:
            assert SYMBOLS[int(why)] == "TIME_OUT_OF_RANGE", (name, numbers)
        else:
            assert row == {"t": None, "d": None, name: expected}, numbers


def test_a_well_known_name_with_other_fields_is_a_message() -> None:
    text = """
    syntax = "proto3"; package google.protobuf;
    message A { Timestamp t = 1; Int32Value i = 2; }
    message Timestamp { string seconds = 1; }
    message Int32Value { repeated int32 value = 1; }
    """
    value = b"\x0a\x03\x0a\x01x\x12\x03\x0a\x01\x05"
    assert rows_of(text, value) == [{"t": {"seconds": "x"}, "i": {"value": [5]}}]


def test_prefixes() -> None:
    program, _ = program_of(proto3("int32 x = 1;"))
    first, nested = (
        program.after_naming((0,), "M", may_be_unnamed=False),
        program.after_naming((1, 2), "M", may_be_unnamed=False),
    )
    value = b"\x08\x05"
    found = {
        (step, prefix): decoded(program, [prefix + value], step)
        for step in (first, nested)
        for prefix in (b"\x00", b"\x02\x00", b"\x02\x02", b"\x04\x02\x04", b"\x04\x02\x06")
    }
    read = {where: SYMBOLS[int(status[0])] for where, (_, status) in found.items()}
    assert {where for where, symbol in read.items() if symbol == "OK"} == {
        (first, b"\x00"), (first, b"\x02\x00"), (nested, b"\x04\x02\x04"),
    }  # fmt: skip
    assert set(read.values()) == {"OK", "UNRESOLVED_VALUE"}
    assert found[first, b"\x00"][0] == [{"x": 5}]
    for prefix in (b"", b"\x80", b"\x04", b"\x04\x02", b"\x01", b"\xff" * 5 + b"\x01"):
        for step in (first, nested):
            assert decoded(program, [prefix], step)[1][0] != 0


REF = b"\x07\x0a\x05Order"
OTHER = b"\x08\x0a\x06Orders"


@pytest.mark.parametrize(("name", "unnamed", "prefix", "symbol"), [
    ("Order", False, REF, "OK"),
    ("Order", False, REF + b"\x04\x02\x04", "OK"),
    ("Order", False, REF + b"\x04\x02\x06", "UNRESOLVED_VALUE"),
    ("Order", False, REF + b"\x00", "UNRESOLVED_VALUE"),
    ("Order", False, REF + b"\x04\x02", "UNRESOLVED_VALUE"),
    ("", False, REF, "UNRESOLVED_VALUE"),
    ("Order", False, OTHER, "UNRESOLVED_VALUE"),
    ("Order", False, REF[:-1], "UNRESOLVED_VALUE"),
    ("Order", False, b"", "UNRESOLVED_VALUE"),
    ("Order", True, b"", "OK"),
    ("Order", True, REF, "OK"),
    ("Order", True, REF + b"\x04\x02\x04", "OK"),
    ("Order", True, b"\x04\x02\x04", "OK"),
    ("Order", True, b"\x00", "UNRESOLVED_VALUE"),
    ("Order", True, b"\x01\x01", "UNRESOLVED_VALUE"),
    ("Order", True, OTHER, "UNRESOLVED_VALUE"),
    # Of a message that is named so: a field that happens to have these bytes.
    ("Order", True, b"\x12\x03\x01ab", "OK"),
])  # fmt: skip
def test_names(name: str, unnamed: bool, prefix: bytes, symbol: str) -> None:
    """Apicurio's serializers name the message; kafkajs does not name it at all."""
    program, _ = program_of(proto3("int32 x = 1;"))
    step = program.after_naming((1, 2), name, may_be_unnamed=unnamed)
    rows, status = decoded(program, [prefix + b"\x08\x05"], step)
    assert SYMBOLS[int(status[0])] == symbol
    assert rows == [{"x": 5} if symbol == "OK" else None]


def test_a_name_and_nothing_else() -> None:
    program, _ = program_of(proto3("int32 x = 1;"))
    named = program.after_naming((0,), "Order", may_be_unnamed=False)
    unnamed = program.after_naming((0,), "Order", may_be_unnamed=True)
    assert decoded(program, [REF], named)[0] == [{"x": 0}]
    assert decoded(program, [REF, b"", b"\x00"], unnamed)[0] == [{"x": 0}] * 3
    for size in range(len(REF)):
        assert decoded(program, [REF[:size]], named)[1][0] != 0


def test_every_text_is_checked() -> None:
    program, message = program_of(proto3("string s = 1; int32 x = 2;"))
    texts = [b"a" * size for size in range(40)]
    parts = "é€😀".encode(), b"\x80", b"\xff", b"\xe2\x82", b"\xed\xa0\x80"
    texts += [b"a" * at + part + b"a" * rest
              for at in range(20) for rest in range(20) for part in parts]  # fmt: skip
    values = [b"\x0a" + bytes([len(text)]) + text + b"\x10\x01" for text in texts]
    found, status = decoded(program, values)
    for text, value, row, why in zip(texts, values, found, status, strict=True):
        try:
            assert row == {"s": text.decode(), "x": 1}
            assert message.FromString(value).s == row["s"]
        except UnicodeDecodeError:
            assert SYMBOLS[int(why)] == "BAD_VALUE_TEXT"


@pytest.mark.parametrize(
    ("value", "symbol"),
    [
        (b"\x08", "VALUE_TOO_SHORT"),
        (b"\x08" + b"\xff" * 10 + b"\x01", "BAD_VALUE_NUMBER"),
        (b"\xff" * 5 + b"\x01", "BAD_VALUE_NUMBER"),
        (b"\x00\x01", "BAD_VALUE_TAG"),
        (b"\x0e", "BAD_VALUE_TAG"),
        (b"\x0c", "BAD_VALUE_TAG"),
        (b"\x53\x5c", "BAD_VALUE_TAG"),
        (b"\x53" * 100_000, "VALUE_TOO_DEEP"),
        (b"\x1b\x08\x05", "VALUE_TOO_SHORT"),
        (b"\x12\x05abcd", "BAD_VALUE_SIZE"),
        (b"\x12\xff\xff\xff\xff\x0f", "BAD_VALUE_SIZE"),
        (b"\x12" + b"\xff" * 9 + b"\x01", "BAD_VALUE_NUMBER"),
        (b"\x22\x03\x01\x01\x80", "VALUE_TOO_SHORT"),
        (b"\x2a\x05\x00\x00\x00\x00\x00", "VALUE_TOO_SHORT"),
        (b"\x09\x00\x00", "VALUE_TOO_SHORT"),
        (b"\x35\x00", "VALUE_TOO_SHORT"),
    ],
)
def test_damaged_values(value: bytes, symbol: str) -> None:
    text = """message A { optional int32 a = 1; optional string b = 2; optional group C = 3 {
    optional int32 x = 1; } repeated int32 d = 4; repeated fixed32 e = 5; optional int32 f = 6; }"""
    assert rows_of(text, value, b"\x08\x01")[0] == symbol
    assert rows_of(text, value, b"\x08\x01")[1]["a"] == 1
    if symbol != "BAD_VALUE_TAG" or value[0]:
        with pytest.raises(DecodeError):
            program_of(text)[1].FromString(value)


@pytest.mark.parametrize("depth", [99, 100, 101])
def test_groups_have_protobufs_depth(depth: int) -> None:
    program, message = program_of(proto3("int32 x = 1; B b = 2;") + "message B { int32 y = 1; }")
    for outside in (0, 1):
        data = b"\x53" * (depth - outside) + b"\x54" * (depth - outside)
        if outside:
            size = len(data)
            data = b"\x12" + bytes([size & 127 | 128, size >> 7]) + data
        _, status = decoded(program, [data])
        try:
            message.FromString(data)
            assert not status[0], (depth, outside)
        except DecodeError:
            assert SYMBOLS[int(status[0])] == "VALUE_TOO_DEEP", (depth, outside)


def test_small_messages_of_many_columns_are_bounded() -> None:
    def text(columns: int) -> str:
        wide = "".join(f"int32 f{at} = {at + 1};" for at in range(columns))
        text = proto3("repeated B b = 1; oneof o { B x = 2; B y = 3; }")
        return f"{text} message B {{ {wide} }}"

    values = b"\x0a\x00" * 10**4, b"\x12\x00\x1a\x00" * 10**4
    listed, chosen = rows_of(text(500), *values)
    assert [len(row) for row in listed["b"]] == [500] * 10**4
    assert chosen["x"] is None
    assert set(chosen["y"].values()) == {0}
    assert rows_of(text(5000), *values) == ["TOO_MANY_ITEMS"] * 2


def test_limits_of_messages() -> None:
    def text(levels: int) -> str:
        chain = "".join(f"message M{at} {{ M{at + 1} m = 1; }}" for at in range(levels))
        return f'syntax = "proto3"; {chain} message M{levels} {{ int32 x = 1; }}'

    program_of(text(60))
    for levels in (65, 2000):
        with pytest.raises(ValueSchemaError, match="64 levels"):
            program_of(text(levels))
    doubled = "".join(f"message M{at} {{ M{at + 1} a = 1; M{at + 1} b = 2; }}" for at in range(40))
    with pytest.raises(ValueSchemaError, match="16384 columns"):
        program_of(f'syntax = "proto3"; {doubled} message M40 {{}}')


def test_numbers_of_fields_are_found() -> None:
    numbers = [1, 2, 15, 16, 17, 100, 18999, 20000, 2**28, 2**29 - 1]
    fields = "".join(f"optional int32 f{number} = {number};" for number in reversed(numbers))
    program, message = program_of(proto3(fields))
    values = []
    for one, other in pairwise([*numbers, 1]):
        value = message(**{f"f{one}": 1, f"f{other}": 2})
        values.append(value.SerializeToString() + b"\xf8\x3f\x01\xf0\xff\xff\xff\x0f\x01")
    found, status = decoded(program, values)
    assert not status.any()
    for (one, other), row in zip(pairwise([*numbers, 1]), found, strict=True):
        assert {name: at for name, at in row.items() if at} == {f"f{one}": 1, f"f{other}": 2}
