"""Compile schemas of messages to programs of `_core.message_columns`.

A program decodes one version of a message; all versions of a message fill the same columns, those
of all its fields. The rules are those of `message_decoder`, which decodes one message.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from kafkascan._core.message_columns import MAX_COLUMNS, MAX_TAGS, OPS, MessageDecoder
from kafkascan.format.schemas.message_decoder import (
    EMPTY,
    NO_UUID,
    NUMBERS,
    Array,
    Field,
    Schema,
    Type,
)

_UUID_WIDTH = 16
_SIZE_WIDTHS = {"string": 2, "bytes": 4}
_OLDEST = -1
NO_MESSAGE = -(2**15) - 1
"""The version of a null instead of a message."""

Instruction = tuple[int, int, int, int, int, int]
Code = list[Instruction]


@dataclass
class MessageColumn:
    """
    A column of a message.

    Attributes
    ----------
    number : int
    type : str, Array or Schema
    width : int
        Bytes of a value; 0 for strings, bytes, arrays and structures.
    children : list of MessageColumn
        The fields of a structure; the elements of an array.
    """

    number: int
    type: Type
    width: int = 0
    children: list[MessageColumn] = field(default_factory=list)

    def __iter__(self) -> Iterator[MessageColumn]:
        """Yield the column and all below it, in the order of their numbers."""
        yield self
        for child in self.children:
            yield from child


@dataclass(frozen=True)
class MessagePrograms:
    """
    The programs of a message: one for a null, and one for each version.

    Attributes
    ----------
    root : MessageColumn
    instructions : array of int32, shape (m, 6)
    first : array of int32, shape (programs + 1,)
        The first instruction of each program.
    is_flexible : array of uint8, shape (programs,)
    """

    root: MessageColumn
    instructions: NDArray[np.int32]
    first: NDArray[np.int32]
    is_flexible: NDArray[np.uint8]

    def decoder(self, *, must_end: bool) -> MessageDecoder:
        """Return a decoder; `must_end` makes bytes behind a message an error."""
        columns = sum(1 for _ in self.root)
        return MessageDecoder(self.instructions, self.first, self.is_flexible, columns, must_end)

    def numbers_of(self, versions: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the number of the program of each version, or of a null for `NO_MESSAGE`."""
        newest = len(self.is_flexible) - 2 + _OLDEST
        numbers = np.clip(versions, _OLDEST, newest) - _OLDEST + 1
        return np.where(versions == NO_MESSAGE, 0, numbers).astype(np.int32)


@cache
def compile_message(schema: Schema) -> MessagePrograms:
    """Compile all versions of a message."""
    root = _column(schema, iter(range(MAX_COLUMNS)))
    # All newer versions than the schema's have the same known fields, all negative ones none.
    versions = range(_OLDEST, schema.newest + 2)
    codes = [_null(root)]
    codes += [
        _Compiler(one, one >= schema.flexible_since).structure(schema, root) for one in versions
    ]
    return MessagePrograms(
        root,
        np.array([one for code in codes for one in code], np.int32),
        np.cumsum([0, *map(len, codes)]).astype(np.int32),
        np.array([0, *(one >= schema.flexible_since for one in versions)], np.uint8),
    )


def _column(kind: Type, numbers: Iterator[int]) -> MessageColumn:
    if isinstance(kind, Schema):
        column = MessageColumn(next(numbers), kind)
        column.children += [_column(one.type, numbers) for one in kind.fields]
    elif isinstance(kind, Array):
        column = MessageColumn(next(numbers), kind)
        column.children.append(_column(kind.element, numbers))
    else:
        width = NUMBERS[kind].size if kind in NUMBERS else _UUID_WIDTH if kind == "uuid" else 0
        column = MessageColumn(next(numbers), kind, width)
    return column


def _op(
    name: str,
    column: int,
    *,
    is_nullable: bool = False,
    width: int = 0,
    first: int = 0,
    second: int = 0,
) -> Instruction:
    return OPS[name], column, int(is_nullable), width, first, second


# ---- values that are not in a message ----------------------------------------------------------


def _null(column: MessageColumn) -> Code:
    if isinstance(column.type, Schema):
        fields = [one for child in column.children for one in _null(child)]
        return [_op("VALID", column.number, is_nullable=True), *fields]
    return [_op("DEFAULT", column.number, is_nullable=True, width=column.width)]


def _default(one: Field, column: MessageColumn) -> Code:
    """Return what adds the default of a field, as `default_of`."""
    if one.default is None:
        return _null(column)
    if one.default is EMPTY:
        return _empty(replace(one, default=None, nullable_since=None), column)
    bits = 0
    if column.width == 0 or one.type == "uuid":
        assert one.default in ("", b"", (), NO_UUID), "a default that programs do not know"
    else:
        assert isinstance(one.default, int)
        bits = one.default
    return [_constant(column, bits)]


def _constant(column: MessageColumn, bits: int = 0) -> Instruction:
    low, high = struct.unpack("<ii", struct.pack("<q", bits))
    return _op("DEFAULT", column.number, width=column.width, first=low, second=high)


def _empty(one: Field, column: MessageColumn) -> Code:
    """Return what adds the value of a field in a structure of defaults."""
    if one.default is not None or one.nullable_since is not None:
        return _default(one, column)
    if isinstance(one.type, Schema):
        parts = zip(one.type.fields, column.children, strict=True)
        fields = [instruction for part in parts for instruction in _empty(*part)]
        return [_op("VALID", column.number), *fields]
    return [_constant(column)]


# ---- values of a message -----------------------------------------------------------------------


@dataclass(frozen=True)
class _Compiler:
    """Compiles one version."""

    version: int
    is_flexible: bool

    def structure(self, schema: Schema, column: MessageColumn) -> Code:
        code = [_op("VALID", column.number)]
        tagged: list[tuple[Field, MessageColumn]] = []
        for one, child in zip(schema.fields, column.children, strict=True):
            if not one.is_in(self.version) or (one.tag is not None and not self.is_flexible):
                code += _default(one, child)
            elif one.tag is None:
                code += self.value(one, child)
            else:
                tagged.append((one, child))
        return code + self.tags(tagged) if self.is_flexible else code

    def tags(self, tagged: list[tuple[Field, MessageColumn]]) -> Code:
        """Compile the section of tagged fields, which ends a structure of flexible versions."""
        assert len(tagged) <= MAX_TAGS, "more tags than programs know"
        parts: Code = []
        for one, child in tagged:
            body, default = self.value(one, child), _default(one, child)
            tag = _op("TAG", one.tag or 0, first=len(body), second=len(default))
            parts += [tag, *body, *default]
        return [_op("TAGS", 0, first=len(tagged), second=len(parts)), *parts]

    def value(self, one: Field, column: MessageColumn) -> Code:
        is_nullable = one.is_nullable(self.version)
        if isinstance(one.type, Schema) and is_nullable:
            body, null = self.structure(one.type, column), _null(column)
            name = "NULLABLE" if one.tag is None else "TAGGED_NULLABLE"
            return [_op(name, column.number, first=len(body), second=len(null)), *body, *null]
        return self.typed(one.type, column, is_nullable=is_nullable)

    def typed(self, kind: Type, column: MessageColumn, *, is_nullable: bool) -> Code:
        if isinstance(kind, Schema):
            return self.structure(kind, column)
        if isinstance(kind, Array):
            # An element may always be null: Kafka finds out when it uses it.
            element = self.typed(kind.element, column.children[0], is_nullable=True)
            array = _op("ARRAY", column.number, is_nullable=is_nullable, first=len(element))
            return [array, *element]
        if kind in _SIZE_WIDTHS:
            width = _SIZE_WIDTHS[kind]
            return [_op(kind.upper(), column.number, is_nullable=is_nullable, width=width)]
        name = {"bool": "BOOL", "uuid": "RAW"}.get(kind, "NUMBER")
        return [_op(name, column.number, width=column.width)]
