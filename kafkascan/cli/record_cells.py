"""Keys, values and headers of records as text, hex, base64, JSON, messages, or by a template."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import methodcaller
from typing import Any, NamedTuple, TextIO

import numpy as np
from numpy.typing import NDArray

import kafkascan as ks
from kafkascan._core.text_lines import (
    BASE64,
    HEX,
    MAX_LITERAL,
    MAX_PARTS,
    NOTHING,
    PLAIN,
    READY,
    TEXT,
    LineForm,
)
from kafkascan.format.schemas.message_decoder import SchemaError
from kafkascan.records.record_table import RecordTable
from kafkascan.tables.schema import Schema
from kafkascan.tables.text_columns import (
    ItemMemory,
    Part,
    PrintedHeaders,
    PrintedItems,
    TextColumn,
    located,
    part_of,
)
from kafkascan.tables.writers import LinesWriter

Decode = Callable[[bytes], Any]


# The output escapes bytes that are not UTF-8, in a way that text cannot imitate.
_text: Callable[[bytes], str] = methodcaller("decode", "utf-8", "surrogateescape")


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


# A JSON text of more bytes stays a text.
_LARGEST_JSON = 3 << 18
# What a cell of a terminal shows of an item at most, in bytes, with 4 for a character; a multiple
# of 3, for base64. And the headers that it shows at most: each takes 24 characters.
_SHOWN, _SHOWN_HEADERS = 3 << 8, 8
_KINDS = {"text": TEXT, "hex": HEX, "base64": BASE64, "json": TEXT, "raw": READY}


def item_column(table: RecordTable, name: str, decoder: str) -> PrintedItems:
    """
    Return keys or values as a writer of lines prints them.

    Parameters
    ----------
    table : RecordTable
    name : {"key", "value"}
    decoder : str
        One of `DECODERS`, or ``"raw"`` for bytes in a line of a template. A JSON text of more than
        `_LARGEST_JSON` bytes stays a text.
    """
    addresses, sizes = table.addresses(name)
    column = PrintedItems(_KINDS[decoder], addresses, sizes, table)
    if decoder == "json":
        rows = np.flatnonzero((sizes >= 0) & (sizes <= _LARGEST_JSON))
        for row, item in zip(rows.tolist(), table[rows].items(name), strict=True):
            column[row] = _json(item or b"")
    return column


def copied_items(items: list[bytes | None], decoder: str, *, in_cells: bool) -> TextColumn:
    """Return what is printed of copies of keys or values: as `item_column` and `shown_items` do."""
    if in_cells:
        decode, whole = DECODERS[decoder], _whole(decoder)
        return [
            None if one is None else decode(one if len(one) <= whole else one[:_SHOWN])
            for one in items
        ]
    column = PrintedItems(_KINDS[decoder], *located(items))
    if decoder == "json":
        for row, item in enumerate(items):
            if item is not None and len(item) <= _LARGEST_JSON:
                column[row] = _json(item)
    return column


def header_column(table: RecordTable, decoder: str) -> PrintedHeaders | list[Any]:
    """Return headers as a writer of lines prints them; their keys are always UTF-8."""
    if decoder == "json":
        return [named_headers(pairs, decoder) for pairs in table.to_numpy()["headers"]]
    return PrintedHeaders(_KINDS[decoder], *table.header_places(), table)


def shown_items(table: RecordTable, name: str, decoder: str) -> list[Any]:
    """Return what a terminal shows of keys or values: the begin, but for JSON."""
    decode = DECODERS[decoder]
    items = table.begins(name, _SHOWN, whole=_whole(decoder))
    return [None if item is None else decode(item) for item in items]


def shown_headers(table: RecordTable, decoder: str) -> list[Any]:
    """Return what a terminal shows of headers."""
    found = table.header_begins(_SHOWN_HEADERS, _SHOWN, whole=_whole(decoder))
    return [named_headers(pairs, decoder) if pairs else [] for pairs in found]


def _whole(decoder: str) -> int:
    return _LARGEST_JSON if decoder == "json" else 0


def named_headers(pairs: list[tuple[bytes, bytes | None]], decoder: str) -> list[dict[str, Any]]:
    """Return the headers of a record by the names of their parts."""
    decode = DECODERS[decoder]
    return [
        {"key": _text(key), "value": None if value is None else decode(value)}
        for key, value in pairs
    ]


# ---- templates -------------------------------------------------------------------------------

_TEMPLATE_COLUMNS = {
    "t": "topic", "p": "partition", "o": "offset", "T": "timestamp", "k": "key", "K": "key",
    "s": "value", "S": "value", "R": "value", "h": "headers",
}  # fmt: skip
_TEMPLATE_TOKEN = re.compile(r"%(.?)|\\(x[0-9A-Fa-f]{2}|.?)", re.DOTALL)
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\", "0": b"\0"}


@dataclass(frozen=True)
class RecordTemplate:
    """
    What is printed of a record: the format strings of kcat.

    Attributes
    ----------
    parts : tuple of (bytes, str)
        A text, and the letter of the field that follows it.
    end : bytes
        The text after the last field.
    """

    parts: tuple[tuple[bytes, str], ...]
    end: bytes

    @classmethod
    def parse(cls, text: str) -> RecordTemplate:
        """
        Return the template of a format string.

        Raises
        ------
        ValueError
            If it has an unknown letter or escape, no field, or too many fields or text.
        """
        parts, literal, at = [], b"", 0
        for token in _TEMPLATE_TOKEN.finditer(text):
            literal += os.fsencode(text[at : token.start()])
            at, letter, escape = token.end(), token[1], token[2]
            if letter in _TEMPLATE_COLUMNS:
                parts.append((literal, letter))
                literal = b""
            elif letter == "%":
                literal += b"%"
            elif escape in _ESCAPES:
                literal += _ESCAPES[escape]
            elif escape and escape[0] == "x" and len(escape) == 3:
                literal += bytes.fromhex(escape[1:])
            else:
                known = ", ".join(f"%{one}" for one in _TEMPLATE_COLUMNS)
                raise ValueError(
                    f"{token[0]!r} is unknown; known: {known}, %%, \\n, \\r, \\t, \\xFF"
                )
        literal += os.fsencode(text[at:])
        if not parts:
            raise ValueError("it has no field, such as %s for the value")
        texts = [one for one, _ in parts] + [literal]
        if 2 * len(parts) > MAX_PARTS or max(map(len, texts)) > MAX_LITERAL:
            raise ValueError(
                f"it has more than {MAX_PARTS // 2} fields, or more than {MAX_LITERAL} bytes of"
                " text between two fields"
            )
        return cls(tuple(parts), literal)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are printed."""
        return tuple(dict.fromkeys(_TEMPLATE_COLUMNS[letter] for _, letter in self.parts))


class TemplateWriter(LinesWriter):
    """
    Writes each record by a template; a null is empty, and has the length -1.

    Parameters
    ----------
    schema, out
        See `Writer`.
    template : RecordTemplate
    """

    dialect = PLAIN

    def __init__(self, schema: Schema, out: TextIO, template: RecordTemplate) -> None:
        super().__init__(schema, out)
        self._template = template

    @staticmethod
    def bytes_writer(out: TextIO) -> Callable[[memoryview | bytes], object]:
        """Return a function that writes bytes as they are."""
        out.flush()
        write: Callable[[memoryview | bytes], object] = out.buffer.write
        return write

    def write(self, columns: Mapping[str, TextColumn], memory: ItemMemory | None = None) -> None:
        """Write a chunk of rows; see `Writer`."""
        parts: list[Part] = []
        for literal, letter in self._template.parts:
            column = _template_column(letter, columns[_TEMPLATE_COLUMNS[letter]])
            parts += [(NOTHING, literal), part_of(column, b"", PLAIN)]
        count = len(columns[self.schema.names[0]])
        self.print_lines(LineForm(parts, PLAIN, self._template.end), count, memory)


def _template_column(letter: str, column: Any) -> TextColumn:
    """Return what a template prints of a column of records."""
    if letter == "R":
        return _raw_items([size.to_bytes(4, "big", signed=True) for size in column.sizes.tolist()])
    if letter in ("K", "S"):
        sizes: NDArray[np.int32] = column.sizes
        return sizes
    if letter == "h":
        return _raw_items([b",".join(_header_text(*one) for one in pairs) for pairs in column])
    found: TextColumn = column
    return found


def _header_text(key: bytes, value: bytes | None) -> bytes:
    return key + b"=" + (b"NULL" if value is None else value)


def _raw_items(items: Sequence[bytes | None]) -> PrintedItems:
    return PrintedItems(READY, *located(items))


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


@dataclass(frozen=True)
class ShownRecords:
    """
    What a command shows of records, and how.

    Attributes
    ----------
    columns : tuple of str
    formats : dict of str to str
        The forms of keys and values.
    has_control : bool
        Whether control records are shown, which are decoded.
    decodes : bool
        Whether the records of Kafka's own topics are decoded.
    undecoded : UndecodedRecords
    """

    columns: tuple[str, ...]
    formats: dict[str, str]
    has_control: bool
    decodes: bool
    undecoded: UndecodedRecords

    @property
    def read_columns(self) -> tuple[str, ...]:
        """The columns to read."""
        items = ("key", "value") if self.decodes or self.has_control else ()
        kind = ("is_control",) if self.decodes else ()
        return (*self.columns, "offset", "timestamp", *items, *kind)


class Decodable(NamedTuple):
    """
    Records of a chunk that are decoded one by one.

    Attributes
    ----------
    rows, offsets : list of int
    are_control : list of bool
    keys, values : list of bytes or None
    """

    rows: list[int]
    offsets: list[int]
    are_control: list[bool]
    keys: list[bytes | None]
    values: list[bytes | None]

    @classmethod
    def of(cls, table: RecordTable, rows: NDArray[np.intp]) -> Decodable:
        """Return some records of a table."""
        some = table[rows]
        numbers = rows.tolist(), some["offset"].tolist(), some["is_control"].tolist()
        return cls(*numbers, some.items("key"), some.items("value"))


def decode_messages(
    topic: str, records: Decodable, columns: dict[str, Any], form: ShownRecords
) -> None:
    """Replace keys and values of one of Kafka's own topics that are shown as text by messages."""
    from kafkascan.internal_topics.record_words import describe_record  # with all schemas

    shown = [name for name in ("key", "value") if name in columns and form.formats[name] == "text"]
    for row, offset, is_control, key, value in zip(*records, strict=True) if shown else ():
        try:
            words = dict(zip(("key", "value"), describe_record(topic, key, value), strict=True))
        except SchemaError as error:
            if not is_control:
                form.undecoded.add(offset, error)
            continue
        for name in shown:
            columns[name][row] = words[name]


def decode_control_records(records: Decodable, columns: dict[str, Any]) -> None:
    """Replace key and value of control records by their type and message."""
    for row, _, _, key, value in zip(*records, strict=True):
        kind, message = decode_control(key, value)
        for name, decoded in (("key", kind), ("value", message)):
            if name in columns:
                columns[name][row] = decoded
