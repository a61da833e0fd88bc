"""Keys, values and headers of records as cells: text, hex, base64, JSON, or decoded messages."""

from __future__ import annotations

import base64
import codecs
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import kafkascan as ks
from kafkascan.format.schemas.message_decoder import SchemaError
from kafkascan.internal_topics.record_words import DECODED_TOPICS, describe_record
from kafkascan.records.record_table import RecordTable
from kafkascan.tables.writers import LargeText

Decode = Callable[[bytes], Any]


def _text(data: bytes) -> str:
    # The output escapes bytes that are not UTF-8, in a way that text cannot imitate.
    return data.decode("utf-8", "surrogateescape")


def _json(data: bytes) -> Any:
    """Return the value of a JSON text; the text itself if it is not JSON that can be written."""
    try:
        value = json.loads(data)
        json.dumps([[[value]]], allow_nan=False)  # as deeply nested as in a row
    except (ValueError, RecursionError):
        return _text(data)
    return value


DECODERS: dict[str, Decode] = {
    "text": _text,
    "hex": bytes.hex,
    "base64": lambda data: base64.b64encode(data).decode(),
    "json": _json,
}


# Items from this size on are written piece by piece. A multiple of 3, for base64.
_LARGE = 3 << 18
# Bytes of an item that a cell of a terminal shows at most, with 4 for a character.
_SHOWN = 3 << 8


def decode_items(items: list[bytes | None], decoder: str, *, in_cells: bool) -> list[Any]:
    """
    Decode each item; None is a null and stays None.

    Parameters
    ----------
    items : list of bytes or None
    decoder : str
        One of `DECODERS`. A JSON text of more than `_LARGE` bytes stays a text.
    in_cells : bool
        Whether only the begin of a large item is shown.
    """
    return [None if item is None else _decoded(item, decoder, in_cells) for item in items]


def _decoded(item: bytes, decoder: str, in_cells: bool) -> Any:
    if len(item) <= _LARGE:
        return DECODERS[decoder](item)
    if in_cells:
        return DECODERS[decoder](item[:_SHOWN])
    return LargeText(partial(_pieces, item, decoder))


def _pieces(item: bytes, decoder: str) -> Iterator[str]:
    # Bytes that are not UTF-8 become those texts that JSON and CSV contain of smaller items.
    text = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    for start in range(0, len(item), _LARGE):
        part = item[start : start + _LARGE]
        if decoder in ("hex", "base64"):
            yield DECODERS[decoder](part)
        else:
            yield text.decode(part, final=start + _LARGE >= len(item))


def decode_headers(headers: list[tuple[bytes, bytes | None]], decoder: str) -> list[dict[str, Any]]:
    """Decode headers; their keys are always UTF-8."""
    decode = DECODERS[decoder]
    return [
        {"key": _text(key), "value": None if value is None else decode(value)}
        for key, value in headers
    ]


def decode_control(key: bytes | None, value: bytes | None) -> tuple[str, Any]:
    """Return the type of a control record, and its message by field names."""
    try:
        kind, code, _, message = ks.records.decode_control_record(key, value)
    except ValueError as error:
        return "INVALID", str(error)
    name = ks.records.ControlRecordType.UNKNOWN.name
    return (f"{name}({code})" if kind.name == name else kind.name), _to_json(message)


def _to_json(message: Any) -> Any:
    """Return a message made of the types that JSON has."""
    if isinstance(message, dict):
        return {name: _to_json(value) for name, value in message.items()}
    if isinstance(message, list):
        return [_to_json(value) for value in message]
    return message if isinstance(message, (int, float, str, type(None))) else str(message)


DECODED_AS = {
    "groups": "__consumer_offsets",
    "txns": "__transaction_state",
    "share": "__share_group_state",
    "metadata": "__cluster_metadata",
    "remote": "__remote_log_metadata",
}
"""Names of Kafka's own topics in the option --decode."""


@dataclass
class UndecodedRecords:
    """The records that could not be decoded as those of a topic, if one was requested."""

    topic: str | None
    count: int = 0
    first_offset: int = -1
    reason: str = ""

    def add(self, offset: int, error: SchemaError) -> None:
        """Count a record."""
        if not self.count:
            self.first_offset, self.reason = offset, str(error)
        self.count += 1


def decode_messages(
    topic: str | None,
    table: RecordTable,
    columns: dict[str, list[Any]],
    formats: dict[str, str],
    undecoded: UndecodedRecords,
) -> None:
    """Replace keys and values of Kafka's own topics that are shown as text by their messages."""
    if topic not in DECODED_TOPICS:
        return
    shown = [name for name in ("key", "value") if name in columns and formats[name] == "text"]
    if not shown:
        return
    keys, values = table.items("key"), table.items("value")
    for index, (key, value) in enumerate(zip(keys, values, strict=True)):
        try:
            words = dict(zip(("key", "value"), describe_record(topic, key, value), strict=True))
        except SchemaError as error:
            if not table["is_control"][index]:
                undecoded.add(int(table["offset"][index]), error)
            continue
        for name in shown:
            columns[name][index] = words[name]


def decode_control_records(table: RecordTable, columns: dict[str, list[Any]]) -> None:
    """Replace key and value of control records by their type and message."""
    numpy = table.to_numpy()
    for index in np.flatnonzero(table["is_control"]).tolist():
        kind, message = decode_control(numpy["key"][index], numpy["value"][index])
        for name, decoded in (("key", kind), ("value", message)):
            if name in columns:
                columns[name][index] = decoded
