"""What one value may become, and how long schemas take: defaults, wide unions."""

from __future__ import annotations

import json
import resource
import time
from typing import Any

import pytest

from kafkascan.format.errors import SENTENCES, STATUS, ValueSchemaError
from kafkascan.schemas.programs.avro_program import AvroProgram
from kafkascan.schemas.programs.avro_schema import parse_avro
from tests.property.schemas.test_avro import decoded
from tests.support.typed_values import decoded as decoded_values

_WRITER = {"type": "array", "items": {"type": "record", "name": "R", "fields": [
    {"name": "a", "type": "int"},
]}}  # fmt: skip
_CPU_SECONDS = 20  # the tests take a small part of it


def _reader(size: int) -> Any:
    """Return a schema whose items have a text as a default."""
    text = {"name": "b", "type": "string", "default": "x" * size}
    fields = [{"name": "a", "type": "int"}, text]
    return {"type": "array", "items": {"type": "record", "name": "R", "fields": fields}}


def _varint(number: int) -> bytes:
    number, size = 2 * number, bytearray()
    while number > 0x7F:
        size.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*size, number])


def _items(count: int) -> bytes:
    return _varint(count) + bytes(count) + b"\0"


@pytest.mark.parametrize("count", [20_000, 100_000])
def test_defaults_do_not_multiply(count: int) -> None:
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    found, status = decoded(_reader(60_000), _WRITER, [_items(count)])
    assert status.tolist() == [STATUS["DEFAULTS_TOO_LARGE"]]
    assert found.to_pylist() == [None]
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before  # in KiB
    assert grown < 3 * (128 + 2 * count)
    assert time.process_time() - started < _CPU_SECONDS


def test_branches_that_are_wide_take_no_memory_of_other_values() -> None:
    """All 5 000 branches are columns of each value: fixed ones of a kilobyte took 5 MB of it."""
    wide = [{"type": "fixed", "name": f"F{number}", "size": 1_024} for number in range(5_000)]
    values = [bytes([2 * number]) + bytes([number]) * 1_024 for number in range(60)]
    found, status = decoded(wide, wide, values)
    assert not status.any()
    assert found.field("F59")[59].as_py() == bytes([59]) * 1_024
    assert found.nbytes < 16 << 20
    listed, status = decoded(
        {"type": "array", "items": wide}, {"type": "array", "items": wide},
        [b"\x78" + b"".join(values) + b"\0"],
    )  # fmt: skip
    assert not status.any()
    assert listed.flatten().field("F59")[59].as_py() == bytes([59]) * 1_024


def test_items_of_few_bytes_and_many_columns_are_bounded() -> None:
    inner = [{"name": f"f{number}", "type": "long"} for number in range(5_000)]
    fields = ["null", {"type": "record", "name": "R", "fields": inner}]
    schema = {"type": "array", "items": fields}
    found, status = decoded(schema, schema, [_items(3), _items(1_000), _items(1_000_000)])
    assert status.tolist() == [0, STATUS["TOO_MANY_ITEMS"], STATUS["TOO_MANY_ITEMS"]]
    assert found.to_pylist() == [[None] * 3, None, None]


_SLOW = pytest.mark.slow
_SIZES = [1 << 20, *(pytest.param(size << 20, marks=_SLOW) for size in (16, 100))]


@pytest.mark.parametrize(
    ("count", "text", "fields"),
    [
        (2_000, "unknown", 20),
        (200_000, "a text of fifty bytes or less", 1),
        (50_000, "x" * 1_000, 1),
        pytest.param(1_000_000, "unknown", 20, marks=_SLOW),
        pytest.param(16_000_000, "a text of fifty bytes or less", 1, marks=_SLOW),
    ],
)
def test_small_records_may_have_defaults(count: int, text: str, fields: int) -> None:
    """Each record takes one byte."""
    reader = json.loads(json.dumps(_WRITER))
    reader["items"]["fields"] += [
        {"name": f"b{n}", "type": "string", "default": text} for n in range(fields)
    ]
    found, status = decoded(reader, _WRITER, [_items(count)])
    assert not status.any()
    assert len(found[0]) == count
    assert found[0][-1].as_py() == {"a": 0, **{f"b{n}": text for n in range(fields)}}


@pytest.mark.parametrize("size", _SIZES)
@pytest.mark.parametrize("kind", ["bytes", "string"])
def test_texts_of_usual_sizes_are_read(kind: str, size: int) -> None:
    found, status = decoded(kind, kind, [_varint(size) + b"x" * size])
    assert not status.any()
    assert len(found[0].as_buffer()) == size


@pytest.mark.parametrize("size", _SIZES)
@pytest.mark.parametrize(
    "item", ["boolean", ["null", {"type": "long", "logicalType": "timestamp-millis"}]]
)
def test_lists_of_usual_sizes_are_read(item: Any, size: int) -> None:
    schema = {"type": "array", "items": item}
    found, status = decoded(schema, schema, [_items(size)])
    assert not status.any()
    assert len(found[0]) == size


def test_maps_with_many_small_entries_are_read() -> None:
    count = 100_000
    keys = (bytes([number >> 14, number >> 7 & 0x7F, number & 0x7F]) for number in range(count))
    value = _varint(count) + b"".join(b"\6" + key + b"\0" for key in keys) + b"\0"
    reader = {"type": "map", "values": ["null", "long", "string"]}
    found, status = decoded(reader, {"type": "map", "values": "long"}, [value])
    assert not status.any()
    assert len(found[0]) == count


def test_messages_say_what_the_limit_is() -> None:
    for symbol in ("DEFAULTS_TOO_LARGE", "TOO_MANY_ITEMS"):
        assert "2,048 bytes for each byte of the value" in SENTENCES[STATUS[symbol]]


def test_items_may_have_many_more_columns_than_bytes() -> None:
    fields = [{"name": f"b{n}", "type": ["null", "long"], "default": None} for n in range(50)]
    reader = json.loads(json.dumps(_WRITER))
    reader["items"]["fields"] += fields
    found, status = decoded(reader, _WRITER, [_items(1_000)])
    assert not status.any()
    assert len(found[0]) == 1_000


def test_a_few_large_defaults_and_many_small_ones_are_read() -> None:
    found, status = decoded(_reader(60_000), _WRITER, [_items(1)])
    assert found.to_pylist() == [[{"a": 0, "b": "x" * 60_000}]]
    found, status = decoded(_reader(40), _WRITER, [_items(100_000)])
    assert not status.any()
    assert len(found[0]) == 100_000
    assert found[0][-1].as_py() == {"a": 0, "b": "x" * 40}


def test_what_all_defaults_of_a_schema_take_is_limited() -> None:
    inner = {"type": "record", "name": "I", "fields": [
        {"name": "b", "type": "string", "default": "x" * 60_000},
    ]}  # fmt: skip
    fields = [
        {"name": f"f{n}", "type": inner if n == 0 else "I", "default": {}} for n in range(4_000)
    ]
    program = AvroProgram(parse_avro(json.dumps({"type": "record", "name": "R", "fields": fields})))
    writer = parse_avro('{"type": "record", "name": "R", "fields": []}')
    with pytest.raises(ValueSchemaError, match="defaults have more than"):
        program.add(writer)


def _fixed(count: int, names: str = "n{0}.F{0}") -> list[Any]:
    return [{"type": "fixed", "name": names.format(number), "size": 2} for number in range(count)]


@pytest.mark.parametrize("names", ["n{0}.F{0}", "n{0}.F", "F{0}"])
def test_wide_unions_resolve_with_few_comparisons(
    names: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafkascan.schemas.programs import avro_program

    compared = [0]
    match = avro_program._match

    def counted(*types: Any) -> bool:
        compared[0] += 1
        return match(*types)

    monkeypatch.setattr(avro_program, "_match", counted)
    union = parse_avro(json.dumps(_fixed(4_000, names)))
    program = AvroProgram(union)
    first = program.add(parse_avro(json.dumps(_fixed(4_000, names))))
    assert compared[0] <= 2 * 4_000
    found, status = decoded_values(program, first, [b"\xfe\x3aab"])  # branch 3 775
    assert not status.any()
    (value,) = found.to_pylist()
    name = names.format(3_775)
    assert {key for key, one in value.items() if one is not None} == {name}


def test_branches_that_match_by_name_only_are_tried_a_limited_number_of_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from kafkascan.schemas.programs import avro_program

    monkeypatch.setattr(avro_program, "_MAX_TRIES", 1_000)

    def union(field: str) -> str:
        return json.dumps([
            {"type": "record", "name": f"n{number}.R", "fields": [{"name": field, "type": "int"}]}
            for number in range(50)
        ])  # fmt: skip

    program = AvroProgram(parse_avro(union("a")))
    with pytest.raises(ValueSchemaError, match="too many branches of unions"):
        program.add(parse_avro(union("b")))


def test_a_fields_own_name_comes_before_its_aliases() -> None:
    long = {"type": "long"}
    reader = {"type": "record", "name": "R", "fields": [
        {"name": "new", "type": "long", "aliases": ["old", "older"]},
        {"name": "other", **long, "aliases": ["old"], "default": -1},
    ]}  # fmt: skip

    def writer(*names: str) -> Any:
        fields = [{"name": name, "type": "long"} for name in names]
        return {"type": "record", "name": "R", "fields": fields}

    assert decoded(reader, writer("old", "new"), [b"\2\4"])[0].to_pylist() == [
        {"new": 2, "other": 1}
    ]
    assert decoded(reader, writer("older", "new"), [b"\2\4"])[0].to_pylist() == [
        {"new": 2, "other": -1}
    ]
    assert decoded(reader, writer("older", "old"), [b"\2\4"])[0].to_pylist() == [
        {"new": 2, "other": -1}
    ]
