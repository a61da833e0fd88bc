"""Values of random JSON Schemas are what Python's json module reads, mapped by the schema."""

from __future__ import annotations

import json
import math
import random
from decimal import Decimal, InvalidOperation
from typing import Any

from hypothesis import given, strategies as st

from kafkascan.format.errors import STATUS
from kafkascan.schemas.programs.json_program import JsonProgram
from kafkascan.schemas.programs.json_schema import JsonType, parse_json_schema
from tests.support.typed_values import decoded

_NAMES = ["a", "b", "id", "ü", "long name of a member", "€", "x" * 40, "", "A", "a b"]
_TEXTS = ["", "a", "ü€𝄞", '"\\/\b\f\n\r\t\x7f', "text of some length" * 4, "\x00", "😀x"]
_INTEGERS = [0, -1, 7, 2**53 + 1, 2**63 - 1, -(2**63), 10**18]
_NUMBERS = [0.0, -0.5, 1e22, 1e-22, 1e23, 5e-324, 1.7976931348623157e308, 123456789012345678, 0.1]
_OTHERS = [[], {}, [1, {"a": [None]}], {"a": {"b": "ü"}}, "t", 1.5, True, 10**30]


class RandomJson:
    """A source of schemas, and of values of them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def schema(self, depth: int = 3) -> Any:
        pick = self.random.random()
        if depth == 3 or (depth and pick < 0.3):
            names = self.random.sample(_NAMES, self.random.randint(1, 6))
            found: Any = {"type": "object",
                          "properties": {one: self.schema(depth - 1) for one in names}}  # fmt: skip
        elif depth and pick < 0.4:
            found = {"type": "array", "items": self.schema(depth - 1)}
        elif depth and pick < 0.5:
            found = {"type": "object", "additionalProperties": self.schema(depth - 1)}
        else:
            found = self.random.choice(
                [{"type": one} for one in ("string", "integer", "number", "boolean")]
                + [{"type": ["null", "string"]}, {"enum": ["a", "b"]}, {"const": 7}, {}, True,
                   {"type": ["string", "integer"]}, {"type": "object"}, {"type": "array"},
                   {"type": ["integer", "number"]}, {"type": "array", "items": [{}, {}]}]
            )  # fmt: skip
        wrap = self.random.random()
        if wrap < 0.1:
            return {self.random.choice(["oneOf", "anyOf"]): [{"type": "null"}, found]}
        return {"allOf": [found, {"description": "d"}]} if wrap < 0.15 else found

    def value(self, one: JsonType) -> Any:
        pick = self.random
        if pick.random() < 0.1:
            return None
        if pick.random() < 0.01:
            return pick.choice(_OTHERS)
        if one.members is not None:
            names = [name for name in one.members if pick.random() < 0.9]
            if pick.random() < 0.3:
                pick.shuffle(names)
            found = {name: self.value(one.members[name]) for name in names}
            return found | {"unknown": pick.choice(_OTHERS)} if pick.random() < 0.2 else found
        if one.item is not None:
            items = [self.value(one.item) for _ in range(pick.choice([0, 1, 2, 5]))]
            return items if one.kind == "array" else dict(zip(_NAMES, items, strict=False))
        if one.kind == "integer":
            return pick.choice([*_INTEGERS, pick.randrange(-(2**63), 2**63), 3.0])
        if one.kind == "number":
            return pick.choice([*_NUMBERS, *_INTEGERS, pick.random(), pick.uniform(-1e300, 1e300)])
        if one.kind == "boolean":
            return pick.random() < 0.5
        return pick.choice(_TEXTS if one.kind == "string" else [*_OTHERS, *_TEXTS])

    def text(self, value: Any) -> bytes:
        pick = self.random
        colon, comma = pick.choice([(": ", ", "), (":", ","), (" \n:\t", "\r, ")])
        text = json.dumps(value, separators=(comma, colon), ensure_ascii=pick.random() < 0.5)
        if isinstance(value, dict) and value and pick.random() < 0.2:  # a member twice
            text = text[:-1] + comma + text[1:]
        return (pick.choice(["", " ", "\n"]) + text + pick.choice(["", "\r\n\t "])).encode()


_FIRST_REMARK = STATUS["REPEATED_KEYS"]


class _MismatchError(Exception):
    """A value has another type."""


def mapped(one: JsonType, value: Any) -> Any:
    """Return a value of Python's json module as Arrow has it."""
    if value is None:
        return None
    if one.members is not None and isinstance(value, dict):
        return {name: mapped(kind, value.get(name)) for name, kind in one.members.items()}
    if one.kind == "map" and one.item is not None and isinstance(value, dict):
        return {key: mapped(one.item, item) for key, item in value.items()}
    if one.kind == "array" and one.item is not None and isinstance(value, list):
        return [mapped(one.item, item) for item in value]
    if one.kind in ("text", "any"):
        return value
    is_number = isinstance(value, (int, Decimal)) and not isinstance(value, bool)
    if one.kind == "integer" and is_number and -(2**63) <= value < 2**63 and value == int(value):
        return int(value)
    if one.kind == "number" and is_number and math.isfinite(float(value)):
        return float(value)
    kind = {"string": str, "boolean": bool}.get(one.kind)
    if kind is not None and isinstance(value, kind):
        return value
    raise _MismatchError


def is_rounded(one: JsonType, value: Any) -> bool:
    """Return whether an integer of a value is not the double that a column has of it."""
    if one.members is not None and isinstance(value, dict):
        return any(is_rounded(kind, value.get(name)) for name, kind in one.members.items())
    if one.item is not None and value is not None:
        items = value.values() if isinstance(value, dict) else value
        return any(is_rounded(one.item, item) for item in items)
    return one.kind == "number" and isinstance(value, int) and int(float(value)) != value


def plain(one: JsonType, value: Any) -> Any:
    """Return Arrow's value with maps as objects, and JSON texts as what they say."""
    if value is None:
        return None
    if one.members is not None:
        return {name: plain(kind, value[name]) for name, kind in one.members.items()}
    if one.kind == "map" and one.item is not None:
        return {key: plain(one.item, item) for key, item in value}
    if one.item is not None:
        return [plain(one.item, item) for item in value]
    return _loads(value) if one.kind in ("text", "any") else value


def _loads(data: str | bytes) -> Any:
    """Return the JSON of a text, with all digits of its numbers."""
    return json.loads(data, parse_float=_number)


def _number(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:  # its exponent is beyond all limits
        return Decimal(float(text))


def expected(one: JsonType, data: bytes) -> Any:
    """Return the value of a text, or raise an error."""
    return mapped(one, _loads(data))


def check(seed: int) -> None:
    """Compare values of one random schema."""
    source = RandomJson(seed)
    one = parse_json_schema(json.dumps(source.schema()))
    values = [source.text(source.value(one)) for _ in range(12)]
    program = JsonProgram(one)
    found, status = decoded(program, program.first_step, values)
    for data, value, reason in zip(values, found.to_pylist(), status, strict=True):
        try:
            wanted = expected(one, data)
        except (_MismatchError, OverflowError):
            assert reason, (seed, data)
            continue
        status_of_it = STATUS["ROUNDED_INTEGER" if is_rounded(one, _loads(data)) else "OK"]
        assert reason == status_of_it, (seed, reason, data)
        assert plain(one, value) == wanted, (seed, data)


@given(st.integers(0, 2**32))
def test_values_of_random_schemas_are_those_of_json_loads(seed: int) -> None:
    check(seed)


def check_damaged(seed: int) -> None:
    """Decode texts with changed bytes: an error, or what json.loads reads."""
    source = RandomJson(seed)
    one = parse_json_schema(json.dumps(source.schema()))
    values = [_damaged(source, source.text(source.value(one))) for _ in range(30)]
    program = JsonProgram(one)
    found, status = decoded(program, program.first_step, values)
    for data, value, reason in zip(values, found.to_pylist(), status, strict=True):
        if reason and reason < _FIRST_REMARK:
            assert value is None
            continue
        assert plain(one, value) == expected(one, data), (seed, data)


_PIECES = [b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"\\u", b"\\ud800", b"0", b"-", b".",
           b"e9", b"null", b"\x00", b"\xff", b"\xed\xa0\x80", b"NaN", b"01", b"1.", b"1e", b" ",
           b"9" * 25, b"[" * 600, b'"a":', b"\\u0061", b"true", b"1e999"]  # fmt: skip


def _damaged(source: RandomJson, data: bytes) -> bytes:
    pick, changed = source.random, bytearray(data)
    for _ in range(pick.choice([0, 1, 1, 2, 5])):
        at = pick.randrange(len(changed) + 1)
        change = pick.randrange(4)
        if change == 0:
            changed[at : at + 1] = pick.choice(_PIECES)
        elif change == 1:
            changed[at:at] = pick.choice(_PIECES)
        elif change == 2 and pick.random() < 0.3:
            del changed[at:]
        elif at < len(changed):
            changed[at] ^= 1 << pick.randrange(8)
    return bytes(changed)


@given(st.integers(0, 2**32))
def test_damaged_values_are_errors_or_what_json_loads_reads(seed: int) -> None:
    check_damaged(seed)


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 40), st.integers(-330, 310))
def test_numbers_are_rounded_as_python_rounds_them(value: float, digits: int, power: int) -> None:
    program = JsonProgram(JsonType("number"))
    texts = [repr(value), f"{value:.{digits}e}", f"{value:.{digits}f}", f"{digits}.5e{power}"]
    texts += ["9007199254740993", "0.1e-6", f"1{'0' * digits}", f"1.{'3' * digits}5"]
    found, status = decoded(program, program.first_step, [one.encode() for one in texts])
    for text, one, reason in zip(texts, found.to_pylist(), status, strict=True):
        if not math.isfinite(float(text)):
            assert one is None
            continue
        is_rounded = text.lstrip("-").isdecimal() and int(text) != int(float(text))
        symbol = "ROUNDED_INTEGER" if is_rounded else "OK"
        assert (reason, repr(one)) == (STATUS[symbol], repr(float(text)))
