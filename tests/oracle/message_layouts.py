"""Layouts of messages: those of kafkascan's schemas, and those that Kafka's jars declare."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kafkascan.format.schemas.message_decoder import (
    EMPTY,
    NO_UUID,
    Array,
    MessageField,
    MessageSchema,
    Type,
)
from kafkascan.format.schemas.message_json import camel_case

_RESOURCE = re.compile(r"(?:common/)?(?:message|metadata)/\w+\.json")
# A comment begins behind what is not text, or behind whole texts.
_COMMENT = re.compile(r'^((?:[^"/]|"(?:[^"\\]|\\.)*"|/(?!/))*)//.*$', re.MULTILINE)
_UNBOUNDED = 2**15


class FieldLayout(NamedTuple):
    """How a version encodes a field."""

    name: str
    kind: object
    is_nullable: bool
    tag: int | None
    default: object


class MessageLayout(NamedTuple):
    """How a version encodes a message."""

    is_flexible: bool
    fields: tuple[FieldLayout, ...]


def declared_messages(jars: Path) -> dict[str, dict[str, Any]]:
    """Return the declarations in the jars of a Kafka version, by name."""
    found = {}
    for jar in sorted(jars.glob("*.jar")):
        with zipfile.ZipFile(jar) as content:
            for name in filter(_RESOURCE.fullmatch, content.namelist()):
                text = _COMMENT.sub(r"\1", content.read(name).decode())
                # Some files have braces behind their end.
                message, _ = json.JSONDecoder().raw_decode(text.lstrip())
                found[message["name"]] = message
    return found


def declared_versions(message: Mapping[str, Any]) -> range:
    """Return the versions of a declared message."""
    first, last = _versions(message["validVersions"])
    return range(first, last + 1)


def declared_layout(message: Mapping[str, Any], version: int) -> MessageLayout:
    """Return how a version encodes a declared message."""
    structures = {one["name"]: one["fields"] for one in message.get("commonStructs", [])}
    fields = tuple(_declared_fields(message["fields"], structures, version))
    return MessageLayout(_has(message.get("flexibleVersions", "none"), version), _ordered(fields))


def known_layout(schema: MessageSchema, version: int) -> MessageLayout:
    """Return how a version encodes the message of a schema."""
    fields = tuple(_known_field(one, version) for one in schema.fields if one.is_in(version))
    return MessageLayout(version >= schema.flexible_since, _ordered(fields))


def without_tagged(layout: MessageLayout, known: set[str]) -> MessageLayout:
    """Return a layout with only those of its tagged fields that are named."""
    return MessageLayout(layout.is_flexible, _without_tagged(layout.fields, known))


def tagged_names(layout: MessageLayout) -> set[str]:
    """Return the names of all tagged fields, those in structures too."""
    return set(_tagged(layout.fields))


def _ordered(fields: tuple[FieldLayout, ...]) -> tuple[FieldLayout, ...]:
    """Put tagged fields behind the others, in the order of their tags."""
    return tuple(sorted(fields, key=lambda one: -1 if one.tag is None else one.tag))


def _declared_fields(
    fields: list[dict[str, Any]], structures: Mapping[str, Any], version: int
) -> Iterator[FieldLayout]:
    for field in fields:
        tagged = field.get("taggedVersions", "none")
        if not _has(field.get("versions", tagged), version):
            continue
        kind, is_array = field["type"].removeprefix("[]"), field["type"].startswith("[]")
        inner = field.get("fields", structures.get(kind))
        element: object = kind
        if inner is not None:
            element = _ordered(tuple(_declared_fields(inner, structures, version)))
        is_tagged = _has(tagged, version)
        yield FieldLayout(
            field["name"][0].lower() + field["name"][1:],
            [element] if is_array else element,
            _has(field.get("nullableVersions", "none"), version),
            int(field["tag"]) if is_tagged else None,
            _declared_default(field, kind, is_array) if is_tagged else None,
        )


def _declared_default(field: dict[str, Any], kind: str, is_array: bool) -> object:
    default = field.get("default")
    if default == "null":
        return None
    if is_array:
        return []
    if kind[0].isupper():
        return "structure"
    if kind in ("string", "bytes", "uuid"):
        return default or ""
    return str(default).lower() == "true" if kind == "bool" else int(str(default or 0), 0)


def _known_field(field: MessageField, version: int) -> FieldLayout:
    return FieldLayout(
        camel_case(field.name),
        _known_kind(field.type, version),
        field.is_nullable(version),
        field.tag,
        None if field.tag is None else _known_default(field.default),
    )


def _known_default(default: object) -> object:
    if default is EMPTY:
        return "structure"
    if default == NO_UUID or default == b"":
        return ""
    return list(default) if isinstance(default, tuple) else default


def _known_kind(kind: Type, version: int) -> object:
    if isinstance(kind, Array):
        return [_known_kind(kind.element, version)]
    return known_layout(kind, version).fields if isinstance(kind, MessageSchema) else kind


def _without_tagged(fields: tuple[FieldLayout, ...], known: set[str]) -> tuple[FieldLayout, ...]:
    return tuple(
        one._replace(kind=_kind_without_tagged(one.kind, known))
        for one in fields
        if one.tag is None or one.name in known
    )


def _kind_without_tagged(kind: Any, known: set[str]) -> object:
    if isinstance(kind, list):
        return [_kind_without_tagged(kind[0], known)]
    return _without_tagged(kind, known) if isinstance(kind, tuple) else kind


def _tagged(fields: tuple[FieldLayout, ...]) -> Iterator[str]:
    for one in fields:
        if one.tag is not None:
            yield one.name
        kind = one.kind[0] if isinstance(one.kind, list) else one.kind
        if isinstance(kind, tuple):
            yield from _tagged(kind)


def _has(versions: str, version: int) -> bool:
    first, last = _versions(versions)
    return first <= version <= last


def _versions(text: str) -> tuple[int, int]:
    """Parse versions: ``3``, ``0-4``, ``2+`` or ``none``."""
    if text == "none":
        return 0, -1
    first, separator, last = text.partition("-")
    if first.endswith("+"):
        return int(first[:-1]), _UNBOUNDED
    return int(first), int(last) if separator else int(first)
