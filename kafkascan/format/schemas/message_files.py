"""
Read the schemas of messages from the files ``*.messages`` of this folder.

A line in the first column starts a message: name, number of the type, versions, flexible versions.
The lines below it are its fields: name, type, versions, nullable versions, tag, default. They have
the names, the order and the versions of Kafka's JSON definitions. Left out at the end of a line:
versions ``0+``, and ``-`` for none. ``[]`` is an array, and a type in capitals a structure, whose
fields follow with four more blanks, once per message. The default ``empty`` is an empty array, a
structure of defaults, or the id of zeros.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from kafkascan.format.schemas.message_decoder import (
    EMPTY,
    NO_UUID,
    NUMBERS,
    Array,
    MessageField,
    MessageSchema,
    Type,
)

_INDENT = 4
_UNBOUNDED = 2**15
_TYPES = frozenset({*NUMBERS, "uuid", "string", "bytes"})
_LEFT_OUT = ["", "", "0+", "-", "-", "-"]
_WORDS = {"-": None, "true": True, "false": False}


class TypedSchema(NamedTuple):
    """A message and Kafka's number of its type; -1 for a message without one."""

    type: int
    schema: MessageSchema


def read_messages(topic: str) -> list[TypedSchema]:
    """Read the messages of a topic, in the order of the file ``TOPIC.messages``."""
    return parse_messages(Path(__file__).with_name(f"{topic}.messages"))


def parse_messages(path: Path) -> list[TypedSchema]:
    """
    Parse a file of messages.

    Raises
    ------
    ValueError
        If a line is not valid; the text contains the file and the line.
    """
    parser = _Parser(path.read_text("utf-8"))
    try:
        return parser.messages()
    except ValueError as error:
        raise ValueError(f"{path}, line {parser.number}: {error}") from None


class _Line(NamedTuple):
    number: int
    indent: int
    words: list[str]


class _Parser:
    def __init__(self, text: str) -> None:
        lines = (
            _Line(number, len(line) - len(line.lstrip(" ")), line.split())
            for number, line in enumerate(text.splitlines(), 1)
        )
        self.lines = [one for one in lines if one.words and not one.words[0].startswith("#")][::-1]
        self.number = 0
        self.structures: dict[str, MessageSchema] = {}

    def messages(self) -> list[TypedSchema]:
        found = []
        while self.lines:
            name, code, versions, flexible = self.words(0, 4)
            (_, newest), first = _versions(versions), _first(flexible)
            self.structures = {}
            flexible_since = _UNBOUNDED if first is None else first
            schema = MessageSchema(name, self.fields(_INDENT), flexible_since, newest)
            found.append(TypedSchema(-1 if code == "-" else int(code), schema))
        return found

    def words(self, indent: int, most: int) -> list[str]:
        """Take the words of the next line."""
        self.number, found, words = self.lines.pop()
        if found != indent:
            raise ValueError(f"{found} blanks precede {words[0]}, not {indent}")
        if len(words) > most:
            raise ValueError(f"{most} columns are expected, not {len(words)}")
        return words

    def fields(self, indent: int) -> tuple[MessageField, ...]:
        found = []
        while self.lines and self.lines[-1].indent >= indent:
            found.append(self.field(indent))
        return tuple(found)

    def field(self, indent: int) -> MessageField:
        words = self.words(indent, len(_LEFT_OUT))
        words += _LEFT_OUT[len(words) :]
        name, kind, versions, nullable, tag, default = words
        element = self.element(kind.removeprefix("[]"), indent)
        of_array = kind.startswith("[]")
        since, until = _versions(versions)
        return MessageField(
            name,
            Array(element) if of_array else element,
            since,
            until,
            nullable_since=_first(nullable),
            tag=None if tag == "-" else int(tag),
            default=() if of_array and default == "empty" else _default(kind, default),
        )

    def element(self, kind: str, indent: int) -> Type:
        if kind in _TYPES:
            return kind
        if fields := self.fields(indent + _INDENT):
            self.structures[kind] = MessageSchema(kind, fields)
        if kind not in self.structures:
            raise ValueError(f"{kind!r} is no type, and has no fields")
        return self.structures[kind]


def _default(kind: str, text: str) -> object:
    if text in _WORDS:
        return _WORDS[text]
    if text == "empty":
        return NO_UUID if kind == "uuid" else EMPTY
    return int(text)


def _first(versions: str) -> int | None:
    """Return the first of versions that have no last one; None for ``-``."""
    if versions == "-":
        return None
    first, last = _versions(versions)
    if last != _UNBOUNDED:
        raise ValueError(f"the versions {versions} do not end with a plus")
    return first


def _versions(text: str) -> tuple[int, int]:
    """Parse ``3``, ``0-4`` or ``2+``."""
    if text.endswith("+"):
        return int(text[:-1]), _UNBOUNDED
    first, _, last = text.partition("-")
    return int(first), int(last or first)
