"""Values of records as typed columns: resolution, damage, limits, memory."""

from __future__ import annotations

import io
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import kafkascan as ks
from kafkascan._core.typed_values import ITEMS, LISTS, VALUES, TypedColumns
from kafkascan.format.errors import STATUS, ValueSchemaError
from kafkascan.records.typed_items import ItemPlace
from kafkascan.schemas import Registry, open_registry
from kafkascan.schemas.registry import SchemaError
from kafkascan.tables.table import IncompleteTableWarning
from tests.property.schemas.test_avro import decoded

V1 = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
V2 = {"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"},
    {"name": "state", "type": ["null", "string"], "default": None},
]}  # fmt: skip


def encoded(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def framed(number: int, payload: bytes) -> bytes:
    return b"\0" + struct.pack(">i", number) + payload


def registry_of(folder: Path, *schemas: Any, subject: str = "orders-value") -> Registry:
    rows = [
        {"subject": subject, "version": number, "id": number, "schema": json.dumps(one)}
        for number, one in enumerate(schemas, 1)
    ]
    path = folder / "registry.json"
    path.write_text(json.dumps(rows))
    return open_registry(path)


def log_of(folder: Path, *values: bytes | None, headers: Any = ()) -> Path:
    builder = ks.BatchBuilder()
    for number, value in enumerate(values):
        builder.append(1_700_000_000_000 + number, b"k", value, headers)
    partition = folder / "orders-0"
    partition.mkdir(exist_ok=True)
    (partition / f"{0:020}.log").write_bytes(builder.build())
    return partition


def test_values_are_read_into_the_newest_schema(tmp_path: Path) -> None:
    registry = registry_of(tmp_path, V1, V2)
    values = [framed(1, encoded(V1, {"id": 1})), framed(2, encoded(V2, {"id": 2, "state": "x"}))]
    records = ks.read_records(log_of(tmp_path, *values, None), value=registry)
    assert records["value"].tolist() == [
        {"id": 1, "state": None}, {"id": 2, "state": "x"}, None,
    ]  # fmt: skip
    assert not len(records.problems)
    assert records[1].value == {"id": 2, "state": "x"}
    assert [one.value for one in records[1:]] == [{"id": 2, "state": "x"}, None]
    assert records.items("value") == [*values, None]


def test_values_are_read_into_a_named_version(tmp_path: Path) -> None:
    registry = registry_of(tmp_path, V1, V2)
    log = log_of(tmp_path, framed(2, encoded(V2, {"id": 2, "state": "x"})))
    (table,) = ks.iter_records(log, value=registry.reader("orders-value", 1))
    assert table.to_arrow()["value"].to_pylist() == [{"id": 2}]
    with pytest.raises(SchemaError, match="there is no version 9"):
        registry.reader("orders-value", 9)
    with pytest.raises(SchemaError, match="did you mean 'orders-value'"):
        registry.reader("order-value")


@pytest.mark.parametrize("is_iterated", [False, True])
def test_what_cannot_be_decoded_is_null_and_a_problem(tmp_path: Path, is_iterated: bool) -> None:
    registry = registry_of(tmp_path, V1, V2)
    whole = framed(2, encoded(V2, {"id": 2, "state": "text"}))
    log = log_of(tmp_path, b"plain", framed(9, b"\2"), whole[:-1], whole + b"\0", b"", whole)
    if is_iterated:
        tables = list(ks.iter_records(log, value=registry))
        values = [one for table in tables for one in table["value"].tolist()]
        problems = list(tables[-1].problems)
    else:
        table = ks.read_records(log, value=registry)
        values, problems = table["value"].tolist(), list(table.problems)
        with pytest.warns(IncompleteTableWarning, match="offset 0"):
            table.to_arrow()
    assert values == [None] * 5 + [{"id": 2, "state": "text"}]
    assert [one.symbol for one in problems] == [
        "NO_PREFIX", "UNKNOWN_ID", "BAD_VALUE_SIZE", "VALUE_BYTES_LEFT", "NO_PREFIX",
    ]  # fmt: skip
    assert problems[2].message.startswith("the value of offset 2 is not decoded: schema id 2: ")
    assert (problems[0].topic, problems[0].partition) == ("orders", 0)


def test_a_schema_that_cannot_be_read_is_a_problem_of_its_records(tmp_path: Path) -> None:
    registry = registry_of(tmp_path, {"type": "record", "name": "Order"}, V2)
    table = ks.read_records(log_of(tmp_path, framed(1, b"\2")), value=registry)
    (problem,) = table.problems
    assert problem.symbol == "BAD_SCHEMA"
    assert "schema id 1: the record 'Order' has no list of fields" in problem.message


def test_listed_problems_are_limited(tmp_path: Path) -> None:
    registry = registry_of(tmp_path, V2)
    table = ks.read_records(log_of(tmp_path, *[b"plain"] * 1_500), value=registry)
    *listed, last = table.problems
    assert len(listed) == 1_000
    assert str(last).endswith(
        "500 more values are not decoded, from offset 1000 on [UNDECODED_VALUES]"
    )


def test_without_a_subject_the_columns_follow_the_records(tmp_path: Path) -> None:
    other = {"type": "record", "name": "Refund", "fields": [{"name": "why", "type": "string"}]}
    registry = registry_of(tmp_path, V1, V2, other, subject="com.shop.All")
    log = log_of(
        tmp_path, framed(1, encoded(V1, {"id": 1})), framed(3, encoded(other, {"why": "x"}))
    )
    table = ks.read_records(log, value=registry)
    assert table["value"].tolist() == [
        {"Order": {"id": 1}, "Refund": None}, {"Order": None, "Refund": {"why": "x"}},
    ]  # fmt: skip
    (problem,) = table.problems
    assert problem.symbol == "NO_READER_SCHEMA"
    assert table.is_complete


def test_other_types_are_unresolved(tmp_path: Path) -> None:
    other = {"type": "record", "name": "Refund", "fields": []}
    registry = registry_of(tmp_path, other, V2)
    table = ks.read_records(log_of(tmp_path, framed(1, b"")), value=registry)
    assert [one.symbol for one in table.problems] == ["UNRESOLVED_VALUE"]


def test_values_of_aws_glue_are_decompressed(tmp_path: Path) -> None:
    guid = "b0c1f2a4-0000-4000-8000-000000000001"
    rows = [{"subject": "orders-value", "version": 1, "id": 1, "guid": guid,
             "schema": json.dumps(V1)}]  # fmt: skip
    (tmp_path / "registry.json").write_text(json.dumps(rows))
    prefix = bytes.fromhex(guid.replace("-", ""))
    payload = encoded(V1, {"id": 7})
    packed = b"\3\5" + prefix + zlib.compress(payload)
    log = log_of(tmp_path, b"\3\0" + prefix + payload, packed, packed[:-1])
    table = ks.read_records(log, value=open_registry(tmp_path / "registry.json"))
    assert table["value"].tolist() == [{"id": 7}, {"id": 7}, None]
    assert [one.symbol for one in table.problems] == ["BAD_COMPRESSED_DATA"]


@pytest.mark.parametrize(
    ("schema_type", "text", "row", "symbols"),
    [
        ("AVRO", json.dumps(V1), None, ["VALUE_TOO_SHORT"]),
        ("AVRO", '{"type":"record","name":"R","fields":[]}', {}, []),
        ("PROTOBUF", 'syntax = "proto3"; message A { int32 x = 1; }', {"x": 0}, []),
        ("JSON", '{"properties":{"x":{"type":"integer"}}}', None, ["BAD_JSON"]),
    ],
)
def test_a_value_without_bytes(
    tmp_path: Path, schema_type: str, text: str, row: Any, symbols: list[str]
) -> None:
    """A header names its schema; the values beside it stay where they are."""
    rows = [{"subject": "orders-value", "version": 1, "id": 1, "schemaType": schema_type,
             "schema": text}]  # fmt: skip
    (tmp_path / "registry.json").write_text(json.dumps(rows))
    headers = [[("__value_schema_id", bytes(4) + b"\1")], [], []]
    batches = ks.build_batches(value=[b"", None, None], headers=headers)
    table = ks.read_records(
        batches, value=open_registry(tmp_path / "registry.json").reader("orders-value")
    )
    assert table["value"].tolist() == [row, None, None]
    assert [one.symbol for one in table.problems] == symbols


def test_a_message_that_nobody_names_is_a_problem(tmp_path: Path) -> None:
    """There are two, and the value has no indexes, as kafkajs writes it."""
    text = 'syntax = "proto3"; message A { int32 x = 1; } message B { int32 x = 1; }'
    row = {
        "subject": "orders-value",
        "version": 1,
        "id": 1,
        "schemaType": "PROTOBUF",
        "schema": text,
    }
    (tmp_path / "registry.json").write_text(json.dumps([row]))
    registry = open_registry(tmp_path / "registry.json")
    log = log_of(tmp_path, framed(1, b"\x08\x05"), None)
    found = ks.read_records(log, value=registry)
    assert found["value"].tolist() == [None, None]
    (problem,) = found.problems
    assert problem.symbol == "UNNAMED_MESSAGE"
    assert problem.message.endswith("schema id 1 has several messages: say which one it is")
    named = ks.read_records(log, value=registry.reader("orders-value", message="B"))
    assert named["value"].tolist() == [{"x": 5}, None]
    ref = log_of(tmp_path, framed(1, b"\x03\x0a\x01B\x08\x05"), framed(1, b"\x08\x06"))
    by_name = ks.read_records(ref, value=registry)
    assert by_name["value"].tolist() == [{"x": 5}, None]
    assert [one.symbol for one in by_name.problems] == ["UNRESOLVED_VALUE"]


def test_threads_read_the_same(tmp_path: Path) -> None:
    schema = {"type": "record", "name": "Order", "fields": [
        {"name": "id", "type": "long"},
        {"name": "lines", "type": {"type": "array", "items": "string"}},
    ]}  # fmt: skip
    registry = registry_of(tmp_path, schema)
    values = [
        framed(1, encoded(schema, {"id": number, "lines": ["x" * 50] * (number % 40)}))
        for number in range(3_000)
    ]
    log = log_of(tmp_path, *values)
    one, four = (ks.read_records(log, value=registry, threads=threads) for threads in (1, 4))
    assert four.typed["value"].num_chunks > 1
    assert one["value"].tolist() == four["value"].tolist()
    mask = np.arange(3_000) % 7 == 0
    assert four[mask]["value"].tolist() == one["value"][mask].tolist()
    assert four[5:9]["value"].tolist() == one["value"][5:9].tolist()


def test_columns_of_parts_are_selected(tmp_path: Path) -> None:
    registry = registry_of(tmp_path, V2)
    log = log_of(tmp_path, framed(1, encoded(V2, {"id": 2, "state": "x"})))
    table = ks.read_records(log, columns=["value"], value=registry)
    assert table.to_arrow().column_names == ["value"]
    assert table.to_pandas()["value"].tolist() == [{"id": 2, "state": "x"}]
    assert ks.read_records(log, columns=["offset"], value=registry).typed == {}


# ---- hostile bytes ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "value", "symbol"),
    [
        ("long", b"\xff" * 11, "BAD_VALUE_NUMBER"),
        ("long", b"\xff" * 9, "VALUE_TOO_SHORT"),
        ("int", b"\xff" * 6 + b"\1", "BAD_VALUE_NUMBER"),
        ("bytes", b"\xfe\xff\xff\xff\x0f", "BAD_VALUE_SIZE"),
        ("bytes", b"\1", "BAD_VALUE_SIZE"),
        ("string", b"\x02\xff", "BAD_VALUE_TEXT"),
        ("boolean", b"\2", "BAD_VALUE_CHOICE"),
        (["null", "int"], b"\4\0", "BAD_VALUE_CHOICE"),
        (["null", "int"], b"\1\0", "BAD_VALUE_CHOICE"),
        ({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\0",
         "TOO_MANY_ITEMS"),
        ({"type": "array", "items": "int"}, b"\xff" * 9 + b"\1" + b"\2", "BAD_VALUE_SIZE"),
        ({"type": "array", "items": "int"}, b"\1\xfe\xff\x03\2\0", "BAD_VALUE_SIZE"),
        ({"type": "map", "values": "int"}, b"\2\x02\xff\0\0", "BAD_VALUE_TEXT"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, b"\4\0\x64",
         "DECIMAL_TOO_LARGE"),
        ({"type": "int", "logicalType": "time-millis"}, b"\1", "BAD_VALUE_NUMBER"),
        ({"type": "fixed", "name": "F", "size": 3}, b"ab", "VALUE_TOO_SHORT"),
        ("null", b"\0", "VALUE_BYTES_LEFT"),
    ],
)  # fmt: skip
def test_values_that_are_no_values(schema: Any, value: bytes, symbol: str) -> None:
    found, status = decoded(schema, schema, [value])
    assert found.to_pylist() == [None]
    assert int(status[0]) == STATUS[symbol]


def test_a_list_nested_in_itself_ends() -> None:
    node = {
        "type": "record",
        "name": "N",
        "fields": [
            {"name": "next", "type": ["null", "N"]},
            {"name": "many", "type": {"type": "array", "items": "N"}},
        ],
    }
    deep = b"\2" * 100_000
    short = b"\2" * 100 + b"\0" + b"\0" * 101
    found, status = decoded(node, node, [deep, short])
    assert status.tolist() == [STATUS["VALUE_TOO_DEEP"], 0]
    assert found.to_pylist()[1]["next"] == short[1:-1]


def test_values_before_and_after_a_damaged_one_are_kept() -> None:
    schema = {"type": "record", "name": "R", "fields": [
        {"name": "a", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "b", "type": {"type": "map", "values": {"type": "array", "items": "long"}}},
        {"name": "c", "type": ["int", "string"]},
    ]}  # fmt: skip
    value = {"a": ["x", None, "yz"], "b": {"k": [1, 2], "l": []}, "c": "text"}
    data = encoded(schema, value)
    values = [data, data[:-2], *[data[:size] for size in range(len(data))], data, b"", data]
    found, status = decoded(schema, schema, values)
    wanted = {"a": ["x", None, "yz"], "b": [("k", [1, 2]), ("l", [])],
              "c": {"int": None, "string": "text"}}  # fmt: skip
    assert found.to_pylist() == [
        wanted, *[None] * (1 + len(data)), wanted, None, wanted,
    ]  # fmt: skip
    assert (status == 0).sum() == 3


# ---- the columns' memory ---------------------------------------------------------------------


def test_layouts_and_memory_are_checked() -> None:
    def layout(*rows: tuple[int, int, int, int]) -> Any:
        return np.array(rows, np.int32).reshape(-1, 4)

    for bad in [(), ((LISTS, 0, 0, 1),), ((LISTS, 0, 2, 1), (VALUES, 4, 0, 0)),
                ((VALUES, -1, 0, 0),), ((LISTS, 0, 1, -1),)]:  # fmt: skip
        with pytest.raises(ValueError, match=r"layout|columns below"):
            TypedColumns(layout(*bad))
    columns = TypedColumns(layout((ITEMS, 0, 0, 0)))
    ends = np.zeros(3, np.int32)
    for column, capacity, data, given_ends in [
        (1, 2, None, ends), (0, 3, None, ends), (0, 2, None, None), (0, 2, None, ends + 1),
        (0, -1, None, np.zeros(0, np.int32)),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=r"size of the column|no such column"):
            columns.give(column, capacity, data, given_ends, None)
    with pytest.raises(IndexError):
        columns.entries(1)


def test_a_default_fills_its_column() -> None:
    reader = {"type": "record", "name": "T", "fields": [
        {"name": "new", "type": {"type": "map", "values": ["null", "double"]},
         "default": {"a": None, "b": 0.5}}]}  # fmt: skip
    found, status = decoded(reader, {"type": "record", "name": "T", "fields": []}, [b""] * 3)
    assert found.to_pylist() == [{"new": [("a", None), ("b", 0.5)]}] * 3
    assert not status.any()


def test_an_enum_is_a_dictionary_of_the_symbols_of_the_reader() -> None:
    writer = {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}
    reader = {"type": "enum", "name": "E", "symbols": ["C", "OTHER"], "default": "OTHER"}
    found, _ = decoded(reader, writer, [b"\0", b"\4", b"\2"])
    assert pa.types.is_dictionary(found.type)
    assert found.to_pylist() == ["OTHER", "C", "OTHER"]
    found, status = decoded({**reader, "default": None}, writer, [b"\4", b"\2"])
    assert found.to_pylist() == ["C", None]
    assert status[1] == STATUS["UNRESOLVED_VALUE"]


def test_a_lazy_frame_has_typed_columns(tmp_path: Path) -> None:
    registry = registry_of(tmp_path, V1, V2)
    log = log_of(tmp_path, framed(1, encoded(V1, {"id": 1})), framed(2, encoded(V2, {"id": 2})))
    frame = ks.polars.scan_records(log, value=registry).select("offset", "value")
    assert frame.collect_schema()["value"] == pl.Struct({"id": pl.Int64, "state": pl.String})
    late = frame.filter(pl.col("value").struct.field("id") > 1).collect()
    assert late.rows() == [(1, {"id": 2, "state": None})]
    with pytest.raises(ValueSchemaError, match="is unknown"):
        ks.polars.scan_records(log, key=registry)
    log_of(tmp_path, b"plain")
    with pytest.warns(IncompleteTableWarning, match="offset 0"):
        frame.collect()


def test_values_of_no_known_message_are_problems(tmp_path: Path) -> None:
    text = 'syntax = "proto3"; message A { int32 a = 1; } message B { int32 b = 1; }'
    rows = [{"subject": "orders-value", "version": 1, "id": 1, "schemaType": "PROTOBUF",
             "schema": text}]  # fmt: skip
    (tmp_path / "registry.json").write_text(json.dumps(rows))
    log = log_of(tmp_path, framed(1, b"\2\x0e\x08\1"), None)
    table = ks.read_records(log, value=open_registry(tmp_path / "registry.json"))
    assert table["value"].tolist() == [None, None]
    assert [one.symbol for one in table.problems] == ["UNNAMED_MESSAGE"]
    # The message of the first record whose indexes are known; others are noted.
    log = log_of(tmp_path, framed(1, b"\2\2\x08\1"), framed(1, b"\0\x08\2"))
    table = ks.read_records(log, value=open_registry(tmp_path / "registry.json"))
    assert table["value"].tolist() == [{"b": 1}, None]
    assert [one.symbol for one in table.problems] == ["NO_READER_SCHEMA", "UNRESOLVED_VALUE"]


def test_first_records_tell_the_message_of_all_partitions_of_a_lazy_frame(tmp_path: Path) -> None:
    text = 'syntax = "proto3"; message A { int32 a = 1; } message B { int32 b = 1; }'
    rows = [{"subject": "orders-value", "version": 1, "id": 1, "schemaType": "PROTOBUF",
             "schema": text}]  # fmt: skip
    (tmp_path / "registry.json").write_text(json.dumps(rows))
    registry = open_registry(tmp_path / "registry.json")
    for partition, values in enumerate([[None], [b"\2\2\x08\1"], [b"\0\x08\2", b"\2\2\x08\3"]]):
        folder = tmp_path / "data" / f"orders-{partition}"
        folder.mkdir(parents=True)
        log = ks.build_batches(value=[one and framed(1, one) for one in values])
        (folder / f"{0:020}.log").write_bytes(log)
    frame = ks.polars.scan_records(tmp_path / "data", value=registry).select("partition", "value")
    with pytest.warns(IncompleteTableWarning, match="is not decoded"):
        assert frame.collect().rows() == [(0, None), (1, {"b": 1}), (2, None), (2, {"b": 3})]
    decoder = ks.schemas.json_values().decoder(ItemPlace("value", "orders-0"))
    assert decoder.arrow_type is None
    decoder.decode(ks.read_records(ks.build_batches(value=[b'{"a": 1}'])), 1)
    assert decoder.at(ItemPlace("value", "orders-1")).arrow_type == decoder.arrow_type is not None


def test_the_bytes_of_values_are_a_column_if_it_is_asked_for(tmp_path: Path) -> None:
    whole = framed(1, encoded(V1, {"id": 7}))
    log = log_of(tmp_path, whole, b"plain", None)
    names = ["value_raw", "value", "key_raw"]
    table = ks.read_records(log, columns=names, value=registry_of(tmp_path, V1))
    with pytest.warns(IncompleteTableWarning):
        found = table.to_arrow()
    assert found.column_names == names
    assert found["value_raw"].to_pylist() == [whole, b"plain", None]
    assert found["key_raw"].to_pylist() == [b"k"] * 3
    assert table["value_raw"].tolist() == [whole, b"plain", None]
    assert [one.type for one in table.schema] == ["binary", "binary", "binary"]
    assert ks.read_records(log, columns=["value_raw"])["value_raw"][0] == whole


def test_a_value_that_cannot_be_decompressed_is_no_empty_one(tmp_path: Path) -> None:
    guid = "b0c1f2a4-0000-4000-8000-000000000001"
    empty = {"type": "record", "name": "Order", "fields": []}
    rows = [{"subject": "orders-value", "version": 1, "id": 1, "guid": guid,
             "schema": json.dumps(empty)}]  # fmt: skip
    (tmp_path / "registry.json").write_text(json.dumps(rows))
    prefix = b"\3\5" + bytes.fromhex(guid.replace("-", ""))
    log = log_of(tmp_path, prefix + zlib.compress(b""), prefix + b"no zlib", prefix)
    table = ks.read_records(log, value=open_registry(tmp_path / "registry.json"))
    assert table["value"].tolist() == [{}, None, None]
    assert [one.symbol for one in table.problems] == ["BAD_COMPRESSED_DATA"] * 2


def test_what_the_values_of_a_table_decompress_to_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkascan.schemas.values._MAX_UNPACKED", 100)
    guid = "b0c1f2a4-0000-4000-8000-000000000001"
    rows = [{"subject": "orders-value", "version": 1, "id": 1, "guid": guid, "schema": '"bytes"'}]
    (tmp_path / "registry.json").write_text(json.dumps(rows))
    prefix = b"\3\5" + bytes.fromhex(guid.replace("-", ""))
    value = prefix + zlib.compress(encoded("bytes", b"x" * 58))
    table = ks.read_records(
        log_of(tmp_path, value, value), value=open_registry(tmp_path / "registry.json")
    )
    assert table["value"].tolist() == [b"x" * 58, None]


def test_ids_are_those_of_the_context_of_a_named_schema(tmp_path: Path) -> None:
    rows = [
        {"subject": "orders-value", "version": 1, "id": 1, "schema": '"string"'},
        {"subject": ":.staging:orders-value", "version": 1, "id": 1, "schema": '"long"'},
    ]
    (tmp_path / "registry.json").write_text(json.dumps(rows))
    registry = open_registry(tmp_path / "registry.json")
    log = log_of(tmp_path, framed(1, b"\4"))
    reader = registry.reader(":.staging:orders-value")
    assert ks.read_records(log, value=reader)["value"].tolist() == [2]


def test_versions_with_references_are_one_type(tmp_path: Path) -> None:
    part = {"type": "record", "name": "Part", "fields": []}
    text = {"type": "record", "name": "Order", "fields": [{"name": "part", "type": "Part"}]}
    later = {**text, "fields": [*text["fields"], {"name": "n", "type": "int", "default": 7}]}
    reference = [{"name": "Part", "subject": "part", "version": 1}]
    rows = [{"subject": "part", "version": 1, "id": 1, "schema": json.dumps(part)}] + [
        {"subject": "all", "version": number, "id": 1 + number, "schema": json.dumps(one),
         "references": reference}
        for number, one in enumerate((text, later), 1)
    ]  # fmt: skip
    (tmp_path / "registry.json").write_text(json.dumps(rows))
    log = log_of(tmp_path, framed(2, b""), framed(3, b"\2"))
    table = ks.read_records(log, value=open_registry(tmp_path / "registry.json"))
    assert table["value"].tolist() == [{"part": {}, "n": 7}, {"part": {}, "n": 1}]


def test_without_a_subject_a_broken_schema_is_a_problem_of_each_record(tmp_path: Path) -> None:
    registry = registry_of(tmp_path, {"type": "record", "name": "Order"}, subject="all")
    table = ks.read_records(log_of(tmp_path, framed(1, b""), None), value=registry)
    assert table["value"].tolist() == [None, None]
    *_, problem = table.problems
    assert problem.symbol == "BAD_SCHEMA"
    assert "has no list of fields" in problem.message
