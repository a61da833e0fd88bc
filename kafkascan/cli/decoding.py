"""Bytes of keys, values and headers as something to read."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import kafkascan as ks

Decode = Callable[[bytes], Any]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _json(data: bytes) -> Any:
    """What a JSON text says; the text itself where it is none, or none that can be written."""
    try:
        value = json.loads(data)
        json.dumps([[[value]]], allow_nan=False)  # as deep as a row will have it
    except (ValueError, RecursionError):
        return _text(data)
    return value


DECODERS: dict[str, Decode] = {
    "text": _text,
    "hex": bytes.hex,
    "base64": lambda data: base64.b64encode(data).decode(),
    "json": _json,
}


def decode_items(items: list[bytes | None], decoder: str) -> list[Any]:
    """Decode each item; a null stays None."""
    decode = DECODERS[decoder]
    return [None if item is None else decode(item) for item in items]


def decode_headers(headers: list[tuple[bytes, bytes | None]], decoder: str) -> list[dict[str, Any]]:
    """Headers in order; their keys are UTF-8 by Kafka's rule."""
    decode = DECODERS[decoder]
    return [
        {"key": _text(key), "value": None if value is None else decode(value)}
        for key, value in headers
    ]


def decode_control(key: bytes | None, value: bytes | None) -> tuple[str, Any]:
    """Say what a control record says: its type, and its message by field names."""
    try:
        kind, code, _, message = ks.decode_control_record(key, value)
    except ValueError as error:
        return "INVALID", str(error)
    name = ks.ControlRecordType.UNKNOWN.name
    return (f"{name}({code})" if kind.name == name else kind.name), _plain(message)


def _plain(message: Any) -> Any:
    """The message in what JSON knows."""
    if isinstance(message, dict):
        return {name: _plain(value) for name, value in message.items()}
    if isinstance(message, list):
        return [_plain(value) for value in message]
    return message if isinstance(message, (int, float, str, type(None))) else str(message)
