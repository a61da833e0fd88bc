"""Columns as a compiled writer of lines prints them: bytes in memory, and values of Python."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan._core.text_lines import CSV, HEADERS, MIXED, NUMBER, READY, TEXT
from kafkascan.format.texts import json_text, with_escaped_bytes
from kafkascan.tables.table import Column, as_list

Part = tuple[object, ...]
"""A part of a `LineForm`; what follows its columns keeps them alive."""

Cell = tuple[int, bytes | None]
"""A value as it is printed: the kind of the item, and its bytes; None is a null."""


class ItemMemory(Protocol):
    """The memory in which items are: the buffers of records."""

    @property
    def source_bytes(self) -> NDArray[np.uint8]:
        """Those bytes that are a map, whose file may shrink."""

    def require_done(self, outcome: tuple[int, int], /) -> None:
        """Raise an exception for the status of a loop, unless it is OK."""


def located(items: Sequence[bytes | None]) -> tuple[NDArray[np.uintp], NDArray[np.int32], object]:
    """Return the addresses and sizes of a copy of items, and what keeps it; a null has size -1."""
    joined = np.frombuffer(b"".join(one for one in items if one), np.uint8)
    sizes = np.array([-1 if one is None else len(one) for one in items], np.int32)
    starts = np.zeros(len(items), np.uintp)
    np.cumsum(np.maximum(sizes[:-1], 0), out=starts[1:])
    address = joined.__array_interface__["data"][0]
    return starts + np.uintp(address), sizes, joined


class PrintedColumn:
    """A column that knows how a line prints it."""

    def __len__(self) -> int:
        raise NotImplementedError

    def part(self, literal: bytes, dialect: int) -> Part:
        """Return what a line prints of the column behind a literal."""
        raise NotImplementedError


@dataclass(frozen=True)
class PrintedItems(PrintedColumn):
    """
    A column of bytes.

    Attributes
    ----------
    kind : int
        How they are printed: a kind of parts of `LineForm`.
    addresses : ndarray of uintp, shape (n,)
    sizes : ndarray of int32, shape (n,)
        -1 for a null.
    owner : object
        Keeps the bytes.
    others : dict of int to value
        The rows that are not bytes, but values of Python.
    """

    kind: int
    addresses: NDArray[np.uintp]
    sizes: NDArray[np.int32]
    owner: object
    others: dict[int, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.sizes)

    def __setitem__(self, row: int, value: Any) -> None:
        self.others[row] = value

    def part(self, literal: bytes, dialect: int) -> Part:
        """Return what a line prints of the column behind a literal."""
        if not self.others:
            return self.kind, literal, self.addresses, self.sizes, self.owner
        kinds, addresses, sizes, owner = _cells(list(self.others.values()), dialect)
        rows = np.array(list(self.others))
        all_kinds = np.full(len(self), self.kind, np.uint8)
        all_addresses, all_sizes = self.addresses.copy(), self.sizes.copy()
        all_kinds[rows], all_addresses[rows], all_sizes[rows] = kinds, addresses, sizes
        return MIXED, literal, all_kinds, all_addresses, all_sizes, owner, self.owner


@dataclass(frozen=True)
class PrintedHeaders:
    """
    A column of the headers of records.

    Attributes
    ----------
    kind : int
        How their values are printed.
    addresses : ndarray of uintp, shape (n,)
        Of each record's first header.
    counts : ndarray of int32, shape (n,)
    rooms : ndarray of int64, shape (n,)
        Bytes of memory from there on.
    owner : object
        Keeps the bytes.
    """

    kind: int
    addresses: NDArray[np.uintp]
    counts: NDArray[np.int32]
    rooms: NDArray[np.int64]
    owner: object

    def __len__(self) -> int:
        return len(self.counts)

    def part(self, literal: bytes) -> Part:
        """Return what a line prints of the column behind a literal."""
        return HEADERS, literal, self.addresses, self.counts, self.rooms, self.kind, self.owner


class Repeated(PrintedColumn, Sequence[Any]):
    """
    A column of few values.

    Parameters
    ----------
    values : sequence
    rows : ndarray of integers, shape (n,)
        The index of each row's value.
    """

    def __init__(self, values: Sequence[Any], rows: NDArray[np.integer[Any]]) -> None:
        self._values = values
        self._rows = rows

    @classmethod
    def once(cls, value: Any, count: int) -> Repeated:
        """Return a column with one value."""
        return cls((value,), np.zeros(count, np.intp))

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Repeated(self._values, self._rows[index])
        return self._values[self._rows[index]]

    def __iter__(self) -> Iterator[Any]:
        return map(self._values.__getitem__, self._rows.tolist())

    def mapped(self, convert: Callable[[Sequence[Any]], Sequence[Any]]) -> Repeated:
        """Return the column of converted values."""
        return Repeated(convert(self._values), self._rows)

    def part(self, literal: bytes, dialect: int) -> Part:
        """Return what a line prints of the column behind a literal."""
        kinds, addresses, sizes, owner = _cells(self._values, dialect)
        return MIXED, literal, kinds[self._rows], addresses[self._rows], sizes[self._rows], owner


TextColumn: TypeAlias = "Column | PrintedColumn | PrintedHeaders"
"""A column that is printed: values, or bytes in memory."""


def part_of(column: TextColumn, literal: bytes, dialect: int) -> Part:
    """Return what a line prints of a column behind a literal."""
    if isinstance(column, PrintedHeaders):
        return column.part(literal)
    if isinstance(column, PrintedColumn):
        return column.part(literal, dialect)
    if isinstance(column, np.ndarray) and np.can_cast(column.dtype, np.int64):
        if column.dtype == bool:
            return Repeated((False, True), column.astype(np.intp)).part(literal, dialect)
        # A field of one packed row is contiguous, but not aligned.
        return NUMBER, literal, np.require(column, np.int64, ["C", "A"])
    return MIXED, literal, *_cells(as_list(column), dialect)


def _cells(
    values: Sequence[Any], dialect: int
) -> tuple[NDArray[np.uint8], NDArray[np.uintp], NDArray[np.int32], object]:
    """Return kinds, addresses and sizes of values, and what keeps them."""
    make = _csv_cell if dialect == CSV else _json_cell
    cells = [make(value) for value in values]
    kinds = np.array([kind for kind, _ in cells], np.uint8)
    return kinds, *located([item for _, item in cells])


def _json_cell(value: Any) -> Cell:
    if value is None:
        return READY, None
    if type(value) is int:  # most cells
        return READY, str(value).encode()
    if type(value) is str:
        try:
            return TEXT, value.encode()
        except UnicodeEncodeError:
            pass
    return READY, json_text(value).encode()


def _csv_cell(value: Any) -> Cell:
    """Return a cell; only texts, and what is written like one, may be formulas."""
    kind = TEXT if isinstance(value, (str, list, dict)) else READY
    return kind, None if value is None else plain_text(value).encode()


def plain_text(value: Any) -> str:
    """Return a value as text without quotes; a null and an empty list are empty."""
    if value is None or (isinstance(value, (list, dict)) and not value):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Counter):
        return ", ".join(f"{key} {count}" for key, count in value.items())
    if isinstance(value, (list, dict)):
        return with_escaped_bytes(json.dumps(value, ensure_ascii=False))
    return with_escaped_bytes(str(value))


def iso_times(milliseconds: Column) -> PrintedItems:
    """Return times in ISO 8601; -1 and None are nulls."""
    if not isinstance(milliseconds, np.ndarray):
        milliseconds = np.array([-1 if one is None else one for one in milliseconds], np.int64)
    is_known = milliseconds != -1
    times = np.where(is_known, milliseconds, 0).astype("datetime64[ms]")
    texts = np.datetime_as_string(times, timezone="UTC").astype(bytes)
    sizes = np.where(is_known, np.strings.str_len(texts), -1).astype(np.int32)
    first = texts.__array_interface__["data"][0]
    starts = np.arange(len(texts), dtype=np.uintp) * np.uintp(texts.itemsize)
    return PrintedItems(TEXT, starts + np.uintp(first), sizes, texts)
