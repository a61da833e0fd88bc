"""The compiled text of typed values is what Python's modules write of them."""

from __future__ import annotations

import io
import json
import struct
from typing import Any

import numpy as np
import pyarrow as pa
from fastavro._schema_common import UnknownType
from hypothesis import given, strategies as st

from kafkascan.tables import writers
from kafkascan.tables.schema import Field, Schema
from kafkascan.tables.value_texts import PrintedValues
from tests.property.schemas.test_avro import decoded, names_of as names_of_avro, written
from tests.support.plain_values import plain_values
from tests.support.random_avro import RandomAvro
from tests.support.row_text import csv_text, json_lines

_SCHEMA = Schema("rows", (Field("n", "int64", "number"), Field("value", "binary", "typed value")))
_TEXTS = st.text(max_size=20) | st.sampled_from(["=1", "-", "\r", '"', "ü€𝄞\x7f\x00", "x" * 5000])
_KEYS = st.sampled_from(["a", "b", "ü", "", '"'])
_SECONDS = st.integers(-(2**40), 2**40)
_TYPED = {
    pa.string(): _TEXTS,
    pa.float64(): st.floats(),
    pa.float32(): st.floats(width=32),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.int8(): st.integers(-128, 127),
    pa.bool_(): st.booleans(),
    pa.binary(): st.binary(max_size=40),
    pa.timestamp("s", "UTC"): _SECONDS,
    pa.timestamp("us"): _SECONDS,
    pa.duration("ms"): _SECONDS,
    pa.map_(pa.string(), pa.int64()): st.lists(st.tuples(_KEYS, st.none() | _SECONDS)),
    pa.list_(pa.string()): st.lists(st.none() | _TEXTS, max_size=3),
    pa.struct([("ü", pa.int32()), ("l", pa.list_(pa.float64()))]): st.fixed_dictionaries(
        {"ü": st.none() | st.integers(0, 9), "l": st.none() | st.lists(st.floats())}
    ),
}


def _lines(values: pa.ChunkedArray, column: Any, output_format: str) -> str:
    out = io.StringIO()
    writer = writers.TEXT_WRITERS[output_format](_SCHEMA, out)
    writer.write({"n": np.arange(len(values)), "value": column})
    writer.close()
    return out.getvalue()


def check(values: pa.ChunkedArray) -> None:
    """Compare each format of a column."""
    plain = plain_values(values)
    columns = {"n": range(len(plain)), "value": plain}
    printed = PrintedValues(values)
    assert _lines(values, printed, "jsonl").splitlines() == json_lines(columns)
    assert _lines(values, printed, "csv") == csv_text(columns)
    assert json.dumps(list(printed)) == json.dumps(plain)
    texts = [None if one is None else json.dumps(one) for one in plain]
    assert printed.sizes.tolist() == [-1 if one is None else len(one) for one in texts]


@given(st.integers(0, 2**32))
def test_values_of_random_avro_schemas(seed: int) -> None:
    source = RandomAvro(seed)
    schema = source.schema()
    try:
        data = [written(schema, source.value(schema, names_of_avro(schema))) for _ in range(6)]
    except UnknownType:
        return
    found, _ = decoded(schema, schema, [*data, b"\xff"])
    check(pa.chunked_array([found.slice(2), found.slice(1, 1)]))


@given(st.data())
def test_columns_of_each_type(data: st.DataObject) -> None:
    for kind, value in _TYPED.items():
        values = data.draw(st.lists(st.none() | value, max_size=6))
        array = pa.array(values, kind)
        check(pa.chunked_array([array.slice(1), array], kind))


@given(st.lists(st.binary(min_size=8, max_size=8)))
def test_floats_have_the_digits_of_repr(data: list[bytes]) -> None:
    powers = [2.0**power for power in range(-1074, 1024)] + [10.0**power for power in range(-9, 25)]
    numbers = [*(struct.unpack("d", one)[0] for one in data), *powers]
    check(pa.chunked_array([pa.array(numbers, pa.float64())]))


def test_a_column_without_chunks() -> None:
    check(pa.chunked_array([], pa.null()))
