"""JSON Schema (drafts 4 to 2020-12): the types that a schema gives to values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import TypeAlias
from urllib.parse import unquote, urljoin

from kafkascan.format.errors import ValueSchemaError
from kafkascan.schemas.programs.avro_schema import Json, parse_json

MAX_DEPTH = 64
"""Levels of types, and of schemas that only lead to others; what is below has none."""

MAX_NAME = 1024
"""Bytes that the name of a member may have; an object with a longer one has no members."""

_MAX_SCHEMAS = 1 << 16
_MAX_MEMBERS = 1 << 10  # of an object in a sample
_LARGEST, _MAX_DOUBLE_BITS = 2**63, 1024
SCALARS = ("string", "integer", "long", "number", "boolean")


@dataclass(frozen=True)
class JsonType:
    """
    The type of values.

    Attributes
    ----------
    kind : str
        ``object``, ``array``, ``map``, ``string``, ``integer``, ``number`` or ``boolean``;
        ``long`` for an integer of 64 bits that no double is; ``text`` for values of which only the
        JSON text is known, ``any`` if nothing says more.
    members : dict of str to JsonType
        Of an object, in order.
    item : JsonType or None
        Of an array or map.
    """

    kind: str
    members: Mapping[str, JsonType] | None = None
    item: JsonType | None = None


TEXT, ANY = JsonType("text"), JsonType("any")

# Kinds of numbers that have one type in common. An integer that no double is has none with a
# fraction: what is written of both is kept, as text.
_NUMBERS = {frozenset(["integer", "number"]): "number", frozenset(["integer", "long"]): "long"}


def parse_json_schema(text: str, references: Mapping[str, str] | None = None) -> JsonType:
    """
    Return the type of a schema's values.

    Parameters
    ----------
    text : str
    references : mapping of str to str, optional
        The texts of schemas that it refers to, by their names or URIs.

    Raises
    ------
    ValueSchemaError
        If a text is not JSON, or leads to too many schemas.
    """
    documents = {name: parse_json(one) for name, one in (references or {}).items()}
    for one in list(documents.values()):
        if isinstance(one, dict) and isinstance(one.get("$id"), str):
            documents.setdefault(str(one["$id"]), one)
    root = parse_json(text)
    return _Types(documents).of(root, root, ())


_Outer: TypeAlias = "tuple[int, ...]"  # the identities of schemas around one


class _Types:
    def __init__(self, documents: Mapping[str, Json]) -> None:
        self._documents = documents
        self._anchors: dict[int, dict[str, Json]] = {}  # by the identity of a document
        self._left = _MAX_SCHEMAS

    def of(self, root: Json, schema: Json, outer: _Outer) -> JsonType:
        """Return the type of a schema; `root` is what its references without a URI refer to."""
        self._left -= 1
        if self._left < 0:
            raise ValueSchemaError(f"the schema leads to more than {_MAX_SCHEMAS} others")
        if not isinstance(schema, dict):
            return ANY
        if id(schema) in outer or len(outer) == MAX_DEPTH:
            return TEXT
        outer = (*outer, id(schema))
        parts = [self._own(root, schema, outer)]
        if isinstance(reference := schema.get("$ref"), str):
            parts.append(self._referred(root, reference, outer))
        parts += [self.of(root, one, outer) for one in _schemas(schema.get("allOf"))]
        for name in ("oneOf", "anyOf"):
            branches = [self.of(root, one, outer)
                        for one in _schemas(schema.get(name)) if not _is_null(one)]  # fmt: skip
            parts.append(_one_of(branches))
        return reduce(_both, parts, ANY)

    def _own(self, root: Json, schema: dict[str, Json], outer: _Outer) -> JsonType:
        """Return the type that the schema itself gives, without others."""
        kinds = _kinds(schema)
        if kinds is None:
            return ANY
        if len(kinds) > 1:
            return JsonType(_NUMBERS.get(frozenset(kinds), "text"))
        if not kinds:
            return TEXT
        if kinds[0] == "object":
            return self._object(root, schema, outer)
        if kinds[0] == "array":
            items = schema.get("items")
            if not isinstance(items, dict) or "prefixItems" in schema:
                return TEXT
            return JsonType("array", item=self.of(root, items, outer))
        return JsonType(kinds[0]) if kinds[0] in SCALARS else TEXT

    def _object(self, root: Json, schema: dict[str, Json], outer: _Outer) -> JsonType:
        members, others = schema.get("properties"), schema.get("additionalProperties")
        if isinstance(members, dict) and members:
            if any(map(_is_odd, members)):
                return TEXT
            types = {name: self.of(root, one, outer) for name, one in members.items()}
            return JsonType("object", types)
        if isinstance(others, dict) and "patternProperties" not in schema:
            return JsonType("map", item=self.of(root, others, outer))
        return ANY

    def _referred(self, root: Json, reference: str, outer: _Outer) -> JsonType:
        uri, _, fragment = reference.partition("#")
        if uri:
            base = root.get("$id") if isinstance(root, dict) else None
            known = (uri, reference, urljoin(base if isinstance(base, str) else "", uri))
            name = next((one for one in known if one in self._documents), None)
            if name is None:
                return TEXT
            root = self._documents[name]
        fragment = unquote(fragment)
        is_pointer = not fragment or fragment.startswith("/")
        target = _pointed(root, fragment) if is_pointer else self._anchored(root, fragment)
        return TEXT if target is None else self.of(root, target, outer)

    def _anchored(self, root: Json, name: str) -> Json:
        """Return the schema of a document with an anchor; None if there is none."""
        if id(root) not in self._anchors:
            self._anchors[id(root)] = _anchors_of(root)
        return self._anchors[id(root)].get(name)


def _anchors_of(root: Json) -> dict[str, Json]:
    """Return the schemas of a document by anchor, without those of documents inside it."""
    found: dict[str, Json] = {}
    inside = [root]
    while inside:
        one = inside.pop()
        if isinstance(one, list):
            inside += one
        if not isinstance(one, dict):
            continue
        own_id, anchor = one.get("$id"), one.get("$anchor")
        if isinstance(own_id, str) and own_id.startswith("#"):  # up to draft 7
            found.setdefault(own_id[1:], one)
        elif isinstance(own_id, str) and one is not root:
            continue
        if isinstance(anchor, str):
            found.setdefault(anchor, one)
        inside += one.values()
    return found


def _is_odd(name: str) -> bool:
    """Return whether a compiled program cannot have the name of a member."""
    if len(name) > MAX_NAME // 4:
        return True
    return any(c < " " or c in '"\\' or "\ud800" <= c <= "\udfff" for c in name)


def _pointed(root: Json, pointer: str) -> Json:
    """Return what a JSON pointer points to; None without it."""
    found = root
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        elif isinstance(found, dict) and name in found:
            found = found[name]
        else:
            return None
    return found


def _schemas(found: Json) -> list[Json]:
    return found if isinstance(found, list) else []


def _is_null(schema: Json) -> bool:
    if not isinstance(schema, dict):
        return False
    return schema.get("type") in ("null", ["null"]) or schema.get("enum") == [None]


def _kinds(schema: dict[str, Json]) -> list[str] | None:
    """Return the types that values may have, but for null; None if the schema has no type."""
    if "const" in schema or isinstance(schema.get("enum"), list):
        values = schema.get("enum") if "const" not in schema else [schema["const"]]
        return list(dict.fromkeys(_kind_of(one) for one in _schemas(values) if one is not None))
    kinds = schema.get("type")
    if isinstance(kinds, str):
        return [kinds]
    if isinstance(kinds, list):
        return [str(one) for one in kinds if one != "null"]
    if isinstance(schema.get("properties"), dict):
        return ["object"]
    return ["array"] if "items" in schema or "prefixItems" in schema else None


def _kind_of(value: Json) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        is_double = value.bit_length() < _MAX_DOUBLE_BITS and int(float(value)) == value
        if -_LARGEST <= value < _LARGEST:
            return "integer" if is_double else "long"
        return "number" if is_double else "text"
    if isinstance(value, float):
        return "number"
    return "string" if isinstance(value, str) else "other"


def _one_of(types: Sequence[JsonType]) -> JsonType:
    """Return the type of values that have one of several types."""
    if not types:
        return ANY
    if all(one == types[0] for one in types):
        return types[0]
    return JsonType(_NUMBERS.get(frozenset(one.kind for one in types), "text"))


def _merged(one: JsonType, other: JsonType, *, is_both: bool) -> JsonType:
    """Return the type of values that have two types at once, or otherwise one of them."""
    if one == other or other is ANY:
        return one
    if one is ANY:
        return other
    if (number := _NUMBERS.get(frozenset([one.kind, other.kind]))) is not None:
        return JsonType("integer" if is_both else number)
    if one.kind == other.kind == "array" and not is_both:
        return JsonType("array", item=_common(one.item or ANY, other.item or ANY))
    if one.kind == other.kind == "object":
        members = dict(one.members or {})
        for name, kind in (other.members or {}).items():
            members[name] = _merged(members.get(name, ANY), kind, is_both=is_both)
        return JsonType("object", members) if is_both or len(members) <= _MAX_MEMBERS else TEXT
    return TEXT


_both, _common = partial(_merged, is_both=True), partial(_merged, is_both=False)


# ---- types of a sample -----------------------------------------------------------------------


def type_of_values(texts: Iterable[bytes | None]) -> JsonType:
    """Return a type that all values of a sample have; those that are not JSON do not count."""
    found = ANY
    for text in texts:
        try:
            found = _common(found, _type_of(json.loads(text or b"null"), MAX_DEPTH))
        except (ValueError, RecursionError):
            continue
    return found


def _type_of(value: Json, depth: int) -> JsonType:
    if value is None:
        return ANY
    if depth == 0:
        return TEXT
    if isinstance(value, dict):
        if not value or len(value) > _MAX_MEMBERS or any(map(_is_odd, value)):
            return TEXT if value else JsonType("object", {})
        return JsonType("object", {name: _type_of(one, depth - 1) for name, one in value.items()})
    if isinstance(value, list):
        return JsonType("array", item=reduce(_common, (_type_of(v, depth - 1) for v in value), ANY))
    return JsonType(_kind_of(value))
