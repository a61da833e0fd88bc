"""Maps with a key more than once: the last one counts, as for Java's readers, and it is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

import kafkascan as ks
from kafkascan.schemas import json_values
from tests.property.schemas.test_avro import decoded as decoded_avro
from tests.support.command_line import run
from tests.unit.schemas.test_values import framed, registry_of

_LONGS = {"type": "map", "values": "long"}
_COUNTS = json.dumps({"type": "object", "additionalProperties": {"type": "integer"}})


def avro_map(*pairs: tuple[str, int]) -> bytes:
    items = b"".join(bytes([2 * len(key)]) + key.encode() + bytes([2 * n]) for key, n in pairs)
    count = len(pairs)
    return (bytes([2 * count & 0x7F | 0x80, count >> 6]) if count else b"") + items + b"\0"


@pytest.mark.parametrize("count", [2, 3, 8, 9, 40, 1_000])
@pytest.mark.parametrize("same", ["a", "key of some length, behind which it goes on"])
def test_the_last_one_counts_in_maps_of_any_size(count: int, same: str) -> None:
    pairs = [(f"k{number}", number % 60) for number in range(count)]
    once, twice = avro_map(*pairs), avro_map((same, 1), *pairs[:-1], (same, 2))
    schema = {"type": "record", "name": "R", "fields": [
        {"name": "many", "type": {"type": "array", "items": _LONGS}}, {"name": "x", "type": "int"},
    ]}  # fmt: skip
    values = [b"\2" + once + b"\0\2", b"\4" + once + twice + b"\0\4", b"\0\6"]
    found, status = decoded_avro(schema, schema, values)
    assert [[dict(one) for one in row["many"]] for row in found.to_pylist()] == [
        [dict(pairs)], [dict(pairs), {same: 2, **dict(pairs[:-1])}], [],
    ]  # fmt: skip
    assert all(len(one) == len(dict(one)) for row in found.to_pylist() for one in row["many"])
    symbols = {number: symbol for symbol, number in ks.format.errors.STATUS.items()}
    assert [symbols[one] for one in status.tolist()] == ["OK", "REPEATED_KEYS", "OK"]


def test_keys_that_are_made_to_collide_cost_little() -> None:
    pairs = [(f"begin---{number:05}---the end", 1) for number in range(2_000)]
    found, status = decoded_avro(_LONGS, _LONGS, [avro_map(*pairs), avro_map(*pairs, pairs[7])])
    assert [len(one) for one in found.to_pylist()] == [2_000, 2_000]
    assert [bool(one) for one in status] == [False, True]


def test_a_problem_names_the_record_and_the_map(tmp_path: Path) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "tags", "type": _LONGS}]}
    registry = registry_of(tmp_path, schema)
    log = ks.build_batches(
        value=[framed(1, avro_map(("a", 1))), framed(1, avro_map(("a", 1), ("a", 2)))]
    )
    records = ks.read_records(log, value=registry.reader("orders-value"))
    assert records["value"].tolist() == [{"tags": [("a", 1)]}, {"tags": [("a", 2)]}]
    (problem,) = records.problems
    assert (problem.symbol, problem.rows_missing) == ("REPEATED_KEYS", False)
    assert problem.message == (
        "the value of offset 1 is not exactly what was written: schema id 1: tags: a map has a key"
        " more than once, of which the last one counts"
    )


def test_duckdb_and_parquet_read_such_maps(tmp_path: Path) -> None:
    log = ks.build_batches(value=[b'{"a": 1, "b": 2}', b'{"a": 1, "\\u0061": 2, "a": 3}', None])
    records = ks.read_records(log, value=json_values(_COUNTS))
    table = records.arrow_table()
    assert [dict(one) if one else one for one in table["value"].to_pylist()] == [
        {"a": 1, "b": 2}, {"a": 3}, None,
    ]  # fmt: skip
    pq.write_table(table, tmp_path / "maps.parquet")
    for source in ("records", f"'{tmp_path}/maps.parquet'"):
        query = f"SELECT value['a'], cardinality(value) FROM {source} ORDER BY \"offset\""
        assert duckdb.sql(query).fetchall() == [(1, 2), (3, 1), (None, None)]
    assert [one.symbol for one in records.problems] == ["REPEATED_KEYS"]


def test_maps_of_protobuf_may_repeat_keys_by_its_rules() -> None:
    """Its readers take the last one, and writers may write so."""
    from kafkascan.schemas.programs.protobuf_program import ProtobufProgram
    from kafkascan.schemas.programs.protobuf_schema import compile_protobuf
    from tests.support.typed_values import decoded

    schema = compile_protobuf('syntax = "proto3"; message M { map<string, int32> m = 1; }', {})
    program = ProtobufProgram(schema.messages[(0,)])
    entry = b"\x0a\x05\x0a\x01a\x10"
    found, status = decoded(program, program.PLAIN, [entry + b"\1" + entry + b"\2"])
    assert found.to_pylist() == [{"m": [("a", 2)]}]
    assert not status.any()


def test_the_exit_code_of_the_command_says_it(tmp_path: Path) -> None:
    partition = tmp_path / "orders-0"
    partition.mkdir()
    log = ks.build_batches(value=[b'{"a": 1, "a": 2}'])
    (partition / f"{0:020}.log").write_bytes(bytes(log))
    (tmp_path / "schema.json").write_text(_COUNTS)
    arguments: list[Any] = ["records", partition, "--value-as", "json"]
    done = run(*arguments, "--json-schema", tmp_path / "schema.json")
    assert done.returncode == 1
    assert "REPEATED_KEYS" in done.stderr
