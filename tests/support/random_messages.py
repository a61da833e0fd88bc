"""Random messages of a schema."""

from __future__ import annotations

import random
import uuid
from typing import Any

from kafkascan.format.schemas.message_decoder import (
    Array,
    MessageField,
    MessageSchema,
    Type,
    default_of,
)

_RANGES = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
_TEXTS = ("", "a", "topic-1", "ä€𝄞", "x" * 130, 'q"\\/', "\x00\x1f\n\x7f", "\u2028")
_DOUBLES = (0.0, -0.0, 1.0, 1e-3, 9.9e-4, 1e7, 123456.789, 9999999.0, -2.5e-9, 1.7e308, 1e22, 100.0)


def random_message(schema: MessageSchema, version: int, choice: random.Random) -> dict[str, Any]:
    """Return values for all fields of a version; now and then defaults and nulls."""
    return {
        field.name: _field_value(field, version, choice)
        if field.is_in(version)
        else default_of(field)
        for field in schema.fields
    }


def _field_value(field: MessageField, version: int, choice: random.Random) -> Any:
    if field.tag is not None and choice.random() < 0.4:
        return default_of(field)
    if field.is_nullable(version) and choice.random() < 0.25:
        return None
    return _value(field.type, version, choice)


def _value(kind: Type, version: int, choice: random.Random) -> Any:
    if isinstance(kind, MessageSchema):
        return random_message(kind, version, choice)
    if isinstance(kind, Array):
        count = choice.choice((0, 1, 1, 2, 3, 40 if isinstance(kind.element, str) else 4))
        return [_value(kind.element, version, choice) for _ in range(count)]
    if kind in _RANGES:
        low, high = _RANGES[kind]
        return choice.choice((low, high, 0, 1, 5, choice.randint(low, high)))
    if kind == "bool":
        return choice.random() < 0.5
    if kind == "float64":
        return choice.choice(_DOUBLES)
    if kind == "uuid":
        return uuid.UUID(int=choice.choice((0, 1, choice.getrandbits(128))))
    return (
        choice.choice(_TEXTS) if kind == "string" else choice.randbytes(choice.choice((0, 1, 200)))
    )
