"""Avro schemas: the types that a text in JSON declares, by the specification 1.12."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from kafkascan.format.errors import ValueSchemaError

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

PRIMITIVES = frozenset(["null", "boolean", "int", "long", "float", "double", "bytes", "string"])

MAX_DEPTH = 64
"""Levels of types inside types. A decoder's calls are nested as deeply."""

_LARGEST_TEXT = 1 << 24
_NAMED = ("record", "error", "enum", "fixed")
# The primitive that a logical type annotates; decimal, uuid and duration have rules of their own.
_LOGICAL = {
    "date": "int", "time-millis": "int", "time-micros": "long",
    "timestamp-millis": "long", "timestamp-micros": "long", "timestamp-nanos": "long",
    "local-timestamp-millis": "long", "local-timestamp-micros": "long",
    "local-timestamp-nanos": "long",
}  # fmt: skip
# The bytes of a fixed that one annotates.
_FIXED = {"duration": 12, "uuid": 16}
_LARGEST_PRECISION, _LARGEST_FIXED = 76, 2**31 - 1


class NoDefault:
    """The default of a field that has none: no value of any type; None is the default null."""


NO_DEFAULT = NoDefault()


@dataclass(frozen=True, eq=False)
class AvroField:
    """A field of a record; `default` is JSON, or `NO_DEFAULT`."""

    name: str
    type: AvroType
    default: Json | NoDefault
    aliases: tuple[str, ...]


@dataclass(eq=False)
class AvroType:
    """
    A type. Types are compared by identity, as a record may contain itself.

    Attributes
    ----------
    kind : str
        A primitive type, or ``record``, ``enum``, ``array``, ``map``, ``union``, ``fixed``.
    name : str
        Full name of a named type.
    aliases : tuple of str
        Full names.
    logical : str
        Name of the logical type, if it is valid here and known; otherwise "".
    precision, scale : int
        Of a decimal.
    fields : list of AvroField
    symbols : tuple of str
    default_symbol : str or None
    size : int
        Of a fixed, in bytes.
    has_size : bool
        Whether bytes have their size before them. A value that is only bytes has none if one of
        Confluent's serializers wrote it.
    parts : list of AvroType
        Branches of a union, the items of an array, the values of a map.
    """

    kind: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    logical: str = ""
    precision: int = 0
    scale: int = 0
    fields: list[AvroField] = field(default_factory=list, repr=False)
    symbols: tuple[str, ...] = ()
    default_symbol: str | None = None
    size: int = 0
    has_size: bool = True
    parts: list[AvroType] = field(default_factory=list, repr=False)

    @property
    def short_name(self) -> str:
        """The name without its namespace; that of the kind, if the type has no name."""
        return self.name.rpartition(".")[2] or self.kind


def parse_avro(text: str, references: Mapping[str, str] | None = None) -> AvroType:
    """
    Return the type that a schema declares.

    Parameters
    ----------
    text : str
        JSON, or the bare name of a primitive type.
    references : mapping of str to str, optional
        Texts of schemas by the names by which others refer to them.

    Raises
    ------
    ValueSchemaError
        If a text is no schema, a name is unknown, or types are nested in more than 64 levels.
    """
    try:
        return _Parser(references or {}).of(_json(text), "", 0)
    except RecursionError:
        raise ValueSchemaError("types are nested too deeply") from None


class _Parser:
    def __init__(self, references: Mapping[str, str]) -> None:
        self._named: dict[str, AvroType] = {}
        self._unread = dict(references)

    def of(self, node: Json, namespace: str, depth: int) -> AvroType:
        if depth > MAX_DEPTH:
            raise ValueSchemaError(f"types are nested in more than {MAX_DEPTH} levels")
        if isinstance(node, str):
            return AvroType(node) if node in PRIMITIVES else self._found(node, namespace, depth)
        if isinstance(node, list):
            return self._union(node, namespace, depth)
        if not isinstance(node, dict):
            raise ValueSchemaError(f"{node!r} is no type")
        kind = node.get("type")
        if not isinstance(kind, str):
            return self.of(kind, namespace, depth + 1)
        if kind in _NAMED:
            return self._declared(kind, node, namespace, depth)
        if kind in ("array", "map"):
            part = node.get("items" if kind == "array" else "values")
            return AvroType(kind, parts=[self.of(part, namespace, depth + 1)])
        if kind not in PRIMITIVES:
            return self._found(kind, namespace, depth)
        return _with_logical(AvroType(kind), node)

    def _found(self, name: str, namespace: str, depth: int) -> AvroType:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        for known in (full, name):
            if known in self._named:
                return self._named[known]
            if known in self._unread:
                return self._referenced(known, depth)
        for reference in list(self._unread):
            if reference in self._unread:
                self._referenced(reference, depth)
            if full in self._named:
                return self._named[full]
        raise ValueSchemaError(f"there is no type {full!r}")

    def _referenced(self, reference: str, depth: int) -> AvroType:
        found = self.of(_json(self._unread.pop(reference)), "", depth + 1)
        return self._named.get(reference, found)

    def _union(self, branches: list[Json], namespace: str, depth: int) -> AvroType:
        parts = [self.of(one, namespace, depth + 1) for one in branches]
        if any(one.kind == "union" for one in parts):
            raise ValueSchemaError("a union contains a union")
        names = [one.name or one.kind for one in parts]
        if len(set(names)) < len(names):
            raise ValueSchemaError(f"a union has two branches of one type: {', '.join(names)}")
        return AvroType("union", parts=parts)

    def _declared(self, kind: str, node: dict[str, Json], namespace: str, depth: int) -> AvroType:
        name = _full_name(_text(node, "name"), node.get("namespace"), namespace)
        if name in self._named:
            raise ValueSchemaError(f"the type {name!r} is declared twice")
        space = name.rpartition(".")[0]
        aliases = tuple(_full_name(one, None, space) for one in _texts(node, "aliases"))
        declared = AvroType("record" if kind == "error" else kind, name, aliases)
        self._named[name] = declared
        if kind == "enum":
            declared.symbols = _texts(node, "symbols")
            default = node.get("default")
            declared.default_symbol = default if isinstance(default, str) else None
            if len(set(declared.symbols)) < len(declared.symbols):
                raise ValueSchemaError(f"the enum {name!r} has a symbol twice")
            return declared
        if kind == "fixed":
            declared.size = _whole(node, "size", _LARGEST_FIXED)
            return _with_logical(declared, node)
        fields = node.get("fields")
        if not isinstance(fields, list):
            raise ValueSchemaError(f"the record {name!r} has no list of fields")
        declared.fields += [self._field(one, space, depth) for one in fields]
        names = [one.name for one in declared.fields]
        if len(set(names)) < len(names):
            raise ValueSchemaError(f"the record {name!r} has a field twice")
        return declared

    def _field(self, node: Json, namespace: str, depth: int) -> AvroField:
        if not isinstance(node, dict):
            raise ValueSchemaError(f"{node!r} is no field")
        return AvroField(
            _text(node, "name"),
            self.of(node.get("type"), namespace, depth + 1),
            node.get("default", NO_DEFAULT),
            _texts(node, "aliases"),
        )


def _json(text: str) -> Json:
    if len(text) > _LARGEST_TEXT:
        raise ValueSchemaError(f"the text of a schema has more than {_LARGEST_TEXT} characters")
    bare = text.removeprefix("\ufeff").strip()
    if bare in PRIMITIVES:
        return bare
    return parse_json(text)


def parse_json(text: str) -> Json:
    """Return the JSON of a schema, or raise `ValueSchemaError`."""
    try:
        found: Json = json.loads(text.removeprefix("\ufeff"))  # a byte order mark
    except (ValueError, RecursionError) as error:
        raise ValueSchemaError(f"the text of a schema is no JSON: {error}") from None
    return found


def _text(node: dict[str, Json], key: str) -> str:
    found = node.get(key)
    if not isinstance(found, str) or not found:
        raise ValueSchemaError(f"a type or field has no {key}")
    return found


def _texts(node: dict[str, Json], key: str) -> tuple[str, ...]:
    found = node.get(key)
    if found is None and key == "aliases":
        return ()
    texts = tuple(one for one in found if isinstance(one, str)) if isinstance(found, list) else ()
    if not isinstance(found, list) or len(texts) < len(found):
        raise ValueSchemaError(f"{key} are no list of texts")
    return texts


def _whole(node: dict[str, Json], key: str, largest: int) -> int:
    found = node.get(key)
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found <= largest:
        raise ValueSchemaError(f"{key} is {found!r}, not a number between 0 and {largest}")
    return found


def _full_name(name: str, own: Json, namespace: str) -> str:
    if "." in name:
        return name
    space = own if isinstance(own, str) else namespace
    return f"{space}.{name}" if space else name


def _with_logical(found: AvroType, node: dict[str, Json]) -> AvroType:
    """Set the logical type; one that is unknown or not valid here is ignored, as Avro says."""
    logical = node.get("logicalType")
    if isinstance(logical, str) and _is_valid(logical, found, node):
        found.logical = logical
    return found


def _is_valid(logical: str, found: AvroType, node: dict[str, Json]) -> bool:
    if logical == "decimal":
        return _is_decimal(found, node)
    if found.kind == "fixed":
        return _FIXED.get(logical) == found.size
    return found.kind == ("string" if logical == "uuid" else _LOGICAL.get(logical))


def _is_decimal(found: AvroType, node: dict[str, Json]) -> bool:
    precision, scale = node.get("precision"), node.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int):
        return False
    is_in_range = 0 <= scale <= precision and 1 <= precision <= _LARGEST_PRECISION
    if found.kind not in ("bytes", "fixed") or not is_in_range:
        return False
    found.precision, found.scale = precision, scale
    return True
