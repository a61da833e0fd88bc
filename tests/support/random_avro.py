"""Random Avro schemas, values of them, and later versions of them, in the types of fastavro."""

from __future__ import annotations

import copy
import math
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_LOGICAL = (
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-millis"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "string", "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 3},
)
_PROMOTED = {
    "int": ("long", "float", "double"), "long": ("float", "double"), "float": ("double",),
    "string": ("bytes",),
}  # fmt: skip
_EPOCH = datetime(1970, 1, 1)


class RandomAvro:
    """A source of schemas that are valid, with names that occur once."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._names = 0
        self._declared: list[dict[str, Any]] = []

    def schema(self, depth: int = 3) -> Any:
        """Return a schema; most are records."""
        if depth == 3 and self.random.random() < 0.85:
            return self._record(depth)
        pick = self.random.random()
        if depth == 0 or pick < 0.45:
            return self.random.choice(_PRIMITIVES)
        if pick < 0.55:
            return copy.deepcopy(self.random.choice(_LOGICAL))
        if pick < 0.62:
            return {"type": "array", "items": self.schema(depth - 1)}
        if pick < 0.68:
            return {"type": "map", "values": self.schema(depth - 1)}
        if pick < 0.82:
            return self._union(depth)
        if pick < 0.88:
            return self._record(depth)
        return self._named(depth)

    def _name(self) -> str:
        self._names += 1
        return f"N{self._names}"

    def _named(self, depth: int) -> Any:
        if self._declared and self.random.random() < 0.3:
            return self.random.choice(self._declared)["name"]
        if self.random.random() < 0.5:
            symbols = [f"S{number}" for number in range(self.random.randint(1, 5))]
            named: dict[str, Any] = {"type": "enum", "name": self._name(), "symbols": symbols}
        else:
            named = {"type": "fixed", "name": self._name(), "size": self.random.choice([0, 1, 16])}
            if self.random.random() < 0.3:
                named |= {"size": 7, "logicalType": "decimal", "precision": 12, "scale": 4}
        self._declared.append(named)
        return named

    def _union(self, depth: int) -> list[Any]:
        branches: dict[str, Any] = {}
        for _ in range(self.random.randint(1, 4)):
            one = self.schema(depth - 1)
            if not isinstance(one, list):
                branches.setdefault(kind_of(one), one)
        if isinstance(branches.get("bytes"), dict):
            branches.pop("string", None)  # fastavro would read it as bytes of a decimal
        if self.random.random() < 0.6:
            branches["null"] = "null"
        found = list(branches.values()) or ["null"]
        self.random.shuffle(found)
        return found

    def _record(self, depth: int) -> dict[str, Any]:
        name = self._name()
        fields = [
            {"name": f"f{number}", "type": self.schema(depth - 1)}
            for number in range(self.random.randint(0, 5))
        ]
        return {"type": "record", "name": name, "fields": fields}

    # ---- values --------------------------------------------------------------------------

    def value(self, schema: Any, named: dict[str, Any]) -> Any:
        """Return a value; of a union, a pair of the branch's name and the value."""
        schema = named.get(schema, schema) if isinstance(schema, str) else schema
        if isinstance(schema, list):
            branch = self.random.choice(schema)
            found = self.value(branch, named)
            return found if kind_of(branch) == "null" else (kind_of(branch), found)
        kind = schema if isinstance(schema, str) else schema["type"]
        if isinstance(schema, dict) and "logicalType" in schema:
            return self._logical(schema)
        if kind == "record":
            return {one["name"]: self.value(one["type"], named) for one in schema["fields"]}
        if kind == "array":
            return [self.value(schema["items"], named) for _ in range(self._size())]
        if kind == "map":
            return {f"k{n}é": self.value(schema["values"], named) for n in range(self._size())}
        if kind == "enum":
            return self.random.choice(schema["symbols"])
        if kind == "fixed":
            return self.random.randbytes(schema["size"])
        return self._primitive(kind)

    def _size(self) -> int:
        return self.random.choice([0, 0, 1, 2, 5])

    def _primitive(self, kind: str) -> Any:
        pick = self.random
        if kind == "null":
            return None
        if kind == "boolean":
            return pick.random() < 0.5
        if kind in ("int", "long"):
            bits = pick.randint(1, 31 if kind == "int" else 63)
            return pick.randrange(-(1 << bits), 1 << bits)
        if kind == "float":
            return pick.choice([0.0, -1.5, 0.25, 2.0**40, math.inf])
        if kind == "double":
            return pick.choice([0.1, -1e300, math.inf, pick.random()])
        if kind == "bytes":
            return pick.choice([b"", b"\xff\0", "ü€𝄞".encode(), b"a" * 70])
        return pick.choice(["", "a", "ü€𝄞", "text of some length" * 4])

    def _logical(self, schema: dict[str, Any]) -> Any:
        pick, logical = self.random, schema["logicalType"]
        if logical == "decimal":
            most = 10 ** schema["precision"] - 1
            number = pick.choice([0, 1, -1, most, -most, pick.randrange(-most, most)])
            return Decimal(number).scaleb(-schema["scale"], Context(prec=80))
        if logical == "date":
            return date(1970, 1, 1) + timedelta(days=pick.randrange(-100_000, 100_000))
        if logical == "uuid":
            import uuid

            return uuid.UUID(int=pick.getrandbits(128))
        unit = 1000 if logical.endswith("millis") else 1
        micros = pick.randrange(0, 86_400_000_000 // unit) * unit
        if logical.startswith("time-"):
            return (_EPOCH + timedelta(microseconds=micros)).time()
        moment = _EPOCH + timedelta(days=pick.randrange(-9000, 40_000), microseconds=micros)
        return moment if logical.startswith("local") else moment.replace(tzinfo=UTC)

    # ---- versions ------------------------------------------------------------------------

    def later(self, schema: Any) -> Any:
        """Return a version that can read most values of a schema."""
        return self._changed(copy.deepcopy(schema))

    def _changed(self, one: Any) -> Any:
        pick = self.random
        if isinstance(one, str):
            if one in _PROMOTED and pick.random() < 0.2:
                return pick.choice(_PROMOTED[one])
            return ["null", one] if one in _PRIMITIVES[1:] and pick.random() < 0.15 else one
        if isinstance(one, list):
            # fastavro takes the first branch that a value can be promoted to, Java's classes (and
            # kafkascan) the one of the same type, so the narrower types come first.
            parts = [part if isinstance(part, str) else self._changed(part) for part in one]
            if "bytes" in map(kind_of, parts):
                parts = [part for part in parts if kind_of(part) != "string"]
            return sorted(parts, key=_width)
        if one["type"] == "record":
            return self._changed_record(one)
        if one["type"] == "enum" and pick.random() < 0.3:
            one["symbols"] = ["OTHER", *one["symbols"][::-1][:2]]
            one["default"] = "OTHER"
        for part in ("items", "values"):
            if part in one:
                one[part] = self._changed(one[part])
        return one

    def _changed_record(self, one: dict[str, Any]) -> dict[str, Any]:
        pick, fields = self.random, []
        for field in one["fields"]:
            if _declares(field["type"]) or pick.random() < 0.85:
                field["type"] = self._changed(field["type"])
                if pick.random() < 0.2:
                    field["aliases"], field["name"] = [field["name"]], field["name"] + "_new"
                fields.append(field)
        pick.shuffle(fields) if not any(_declares(f["type"]) for f in fields) else None
        for number in range(pick.choice([0, 0, 1, 2])):
            kind, default = pick.choice(
                [("int", 7), ("string", "ü"), (["null", "long"], None), ("double", 0.5),
                 ({"type": "array", "items": "int"}, [1, -2]),
                 ({"type": "map", "values": "string"}, {"k": "v"}),
                 (["string", "null"], "text"), ("boolean", True)]
            )  # fmt: skip
            fields.append({"name": f"new{number}", "type": kind, "default": default})
        one["fields"] = fields
        return one


def kind_of(schema: Any) -> str:
    """Return the name of a branch: of its type, or of its kind."""
    if isinstance(schema, str):
        return schema
    return str(schema["name"] if "name" in schema else schema["type"])


def _width(branch: Any) -> int:
    kind = kind_of(branch)
    return _PRIMITIVES.index(kind) if kind in _PRIMITIVES else -1


def _declares(schema: Any) -> bool:
    """Return whether a schema declares a name, which others may refer to."""
    if isinstance(schema, list):
        return any(_declares(one) for one in schema)
    if isinstance(schema, str):
        return False
    return "name" in schema or any(
        _declares(schema.get(one, "null")) for one in ("items", "values")
    )
