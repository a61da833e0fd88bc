"""Write messages as Kafka's generated ``*JsonConverter`` classes do."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from kafkascan.format.schemas.message_decoder import Array, MessageSchema, Type, default_of


def json_of(schema: MessageSchema, message: Mapping[str, Any], version: int) -> dict[str, Any]:
    """
    Return a message in the shape in which Kafka prints it.

    Parameters
    ----------
    schema : MessageSchema
    message : mapping
        Values by field name, as `decode` returns them.
    version : int
        Fields that the version does not have are left out, and tagged fields with their
        defaults.

    Returns
    -------
    dict
        Names are in camel case; ids and bytes are text in base64.
    """
    found: dict[str, Any] = {}
    for field in schema.fields:
        value = message[field.name]
        is_left_out = field.tag is not None and value == default_of(field)
        if field.is_in(version) and not is_left_out:
            found[camel_case(field.name)] = _json_value(field.type, value, version)
    return found


def camel_case(name: str) -> str:
    """Return the name that Kafka gives a field in JSON."""
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def uuid_text(value: Any) -> str:
    """Return the text of an id as ``Uuid.toString`` does: base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def _json_value(kind: Type, value: Any, version: int) -> Any:
    if value is None:
        return None
    if isinstance(kind, MessageSchema):
        return json_of(kind, value, version)
    if isinstance(kind, Array):
        return [_json_value(kind.element, element, version) for element in value]
    if kind == "uuid":
        return uuid_text(value)
    if kind == "bytes":
        return base64.b64encode(value).decode()
    return value


def jackson_text(value: Any) -> str:
    """
    Return the JSON text of a value as Jackson, which Kafka uses, writes it.

    Without blanks; text is not escaped beyond what JSON asks for, and numbers with a point
    are those of ``Double.toString``.
    """
    if isinstance(value, dict):
        fields = (f"{jackson_text(name)}:{jackson_text(one)}" for name, one in value.items())
        return "{" + ",".join(fields) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(jackson_text, value)) + "]"
    if isinstance(value, float):
        return _double_text(value)
    if isinstance(value, str):
        return f'"{value.translate(_ESCAPES)}"'
    return json.dumps(value)


_ESCAPES = str.maketrans(
    {chr(code): f"\\u{code:04X}" for code in range(0x20)}
    | {"\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", '"': r"\"", "\\": r"\\"}
)


def _double_text(value: float) -> str:
    if not math.isfinite(value):
        return '"NaN"' if math.isnan(value) else f'"{"-" * (value < 0)}Infinity"'
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        text = format(Decimal(repr(value)), "f")
        return text if "." in text else text + ".0"
    digits, exponent = f"{Decimal(repr(value)).normalize():e}".split("e")
    return f"{digits if '.' in digits else digits + '.0'}E{int(exponent)}"
