"""Values of random Avro schemas are read as fastavro reads them, with the same and later ones."""

from __future__ import annotations

import io
import json
import math
import uuid
from collections.abc import Sequence
from datetime import datetime, time
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
from fastavro._schema_common import UnknownType
from hypothesis import given, strategies as st

from kafkascan.schemas.programs.avro_program import AvroProgram
from kafkascan.schemas.programs.avro_schema import parse_avro
from tests.support.random_avro import RandomAvro
from tests.support.typed_values import decoded as decoded_values

_VALUES = 8


def decoded(
    reader: Any, writer: Any, values: Sequence[bytes]
) -> tuple[pa.Array, np.ndarray[Any, Any]]:
    """Return what kafkascan decodes, and the statuses."""
    program = AvroProgram(parse_avro(json.dumps(reader)))
    first = program.add(parse_avro(json.dumps(writer)))
    return decoded_values(program, first, values)


def equal(expected: Any, found: Any, schema: Any, named: dict[str, Any]) -> bool:
    """Return whether Arrow's value is that of fastavro, by the reader's schema."""
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    if isinstance(schema, list):
        return _equal_branch(expected, found, schema, named)
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind == "record":
        return set(found) == set(expected) and all(
            equal(expected[one["name"]], found[one["name"]], one["type"], named)
            for one in schema["fields"]
        )
    if kind == "array":
        return len(expected) == len(found) and all(
            equal(*pair, schema["items"], named) for pair in zip(expected, found, strict=True)
        )
    if kind == "map":
        pairs = dict(found)
        return pairs.keys() == expected.keys() and all(
            equal(expected[key], pairs[key], schema["values"], named) for key in pairs
        )
    if isinstance(expected, uuid.UUID):
        text = found.decode() if isinstance(found, bytes) else found
        return bool(text.lower() == str(expected))
    if isinstance(expected, bytes) and kind == "string":
        return bool(found == expected.decode())
    if isinstance(expected, str) and isinstance(found, bytes):
        return bool(found == expected.encode())
    if isinstance(expected, int) and isinstance(found, datetime | time):
        return True  # an int that is promoted to a long with a logical type, which Arrow shows
    if isinstance(expected, str) and isinstance(found, Decimal):  # a default, as its JSON has it
        number = int.from_bytes(expected.encode("latin-1"), "big", signed=True)
        return bool(found == Decimal(number).scaleb(-schema["scale"]))
    if isinstance(expected, float) and math.isnan(expected):
        return math.isnan(found)
    if kind == "float":
        return bool(np.float32(expected) == np.float32(found))
    return bool(found == expected)


def _equal_branch(expected: Any, found: Any, union: list[Any], named: dict[str, Any]) -> bool:
    branches = [one for one in union if one != "null"]
    if len(branches) <= 1 or expected is None:
        if expected is None or not branches:
            return found is None and expected is None
        return equal(expected, found, branches[0], named)
    given = [number for number, one in enumerate(found.values()) if one is not None]
    if len(given) != 1:
        return False
    try:
        return equal(expected, list(found.values())[given[0]], branches[given[0]], named)
    except (TypeError, KeyError, AttributeError):
        return False


def names_of(schema: Any, named: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the types that a schema declares, by name."""
    named = {} if named is None else named
    if isinstance(schema, list):
        for one in schema:
            names_of(one, named)
    elif isinstance(schema, dict):
        if "name" in schema:
            named[schema["name"]] = schema
        for one in schema.get("fields", ()):
            names_of(one["type"], named)
        for part in ("items", "values"):
            names_of(schema.get(part), named)
    return named


def written(writer: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(writer), value)
    return out.getvalue()


def check(seed: int) -> None:
    """Compare values of one random schema, read with itself and with a later version."""
    source = RandomAvro(seed)
    writer = source.schema()
    try:
        fastavro.parse_schema(writer)
    except UnknownType:  # the branch of a union that declared a name was dropped
        return
    values = [written(writer, source.value(writer, names_of(writer))) for _ in range(_VALUES)]
    for reader in (writer, source.later(writer)):
        named = names_of(reader)
        found, status = decoded(reader, writer, values)
        parsed = fastavro.parse_schema(writer), fastavro.parse_schema(reader)
        for data, one, reason in zip(values, found.to_pylist(), status, strict=True):
            try:
                expected = fastavro.schemaless_reader(io.BytesIO(data), *parsed)
            except UnicodeDecodeError:  # it reads bytes as the first text of a union
                continue
            except Exception:  # fastavro has no error of its own for values it cannot resolve
                assert reason, (seed, one, reader)
                continue
            assert not reason, (seed, reason, expected, reader)
            assert equal(expected, one, reader, named), (seed, expected, one, reader)


@given(st.integers(0, 2**32))
def test_values_of_random_schemas_are_those_of_fastavro(seed: int) -> None:
    check(seed)


def check_damaged(seed: int) -> None:
    """Decode values with changed bytes: an error, or what fastavro reads."""
    source = RandomAvro(seed)
    schema = source.schema()
    try:
        parsed = fastavro.parse_schema(schema)
    except UnknownType:
        return
    named = names_of(schema)
    values = [_damaged(source, written(schema, source.value(schema, named))) for _ in range(30)]
    found, status = decoded(schema, schema, values)
    for data, one, reason in zip(values, found, status, strict=True):
        if reason:
            continue
        try:
            expected = fastavro.schemaless_reader(io.BytesIO(data), parsed)
            value = one.as_py()
        except (ValueError, OverflowError):  # a time that Python does not have
            continue
        assert equal(expected, value, schema, named), (seed, expected, value, schema)


def _damaged(source: RandomAvro, data: bytes) -> bytes:
    pick = source.random
    changed = bytearray(data)
    for _ in range(pick.choice([1, 1, 2, 5])):
        at = pick.randrange(len(changed) + 1)
        change = pick.randrange(4)
        if change == 0:
            changed[at : at + 1] = bytes([pick.choice([0, 1, 2, 0x7F, 0x80, 0xFF])])
        elif change == 1:
            changed[at:at] = pick.choice([b"\xff" * 9 + b"\1", b"\x80" * 10, b"\0", b"\x02"])
        elif change == 2:
            del changed[at:]
        elif at < len(changed):
            changed[at] ^= 1 << pick.randrange(8)
    return bytes(changed)


@given(st.integers(0, 2**32))
def test_damaged_values_are_errors_or_what_fastavro_reads(seed: int) -> None:
    check_damaged(seed)
