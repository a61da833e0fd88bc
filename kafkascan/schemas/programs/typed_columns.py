"""Typed columns: their layout, their memory while they are filled, and their Arrow arrays."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import typed_values as _core
from kafkascan.format.errors import ValueSchemaError
from kafkascan.io import result_memory
from kafkascan.tables.schema import require_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

MAX_COLUMNS = 1 << 14
"""Columns of one schema, with those below others."""

_ColumnArrays: TypeAlias = "tuple[NDArray[np.uint8], NDArray[np.int32], NDArray[np.uint8]]"

_LARGEST, _WORD = 2**31 - 1, 8
_FIRST_ENTRIES, _FIRST_BYTES = 64, 1 << 12
_NO_ENTRIES = (np.empty(0, np.uint8), np.zeros(1, np.int32), np.empty(0, np.uint8))


@dataclass(frozen=True)
class TypedColumn:
    """
    A column of typed values, and the columns below it.

    Attributes
    ----------
    name : str
        Of the field, union member or list item.
    type : pyarrow.DataType
    children : tuple of TypedColumn
        Members of a struct; the item of a list; of a map, one struct of key and value.
    nullable : bool, default False
    symbols : tuple of str, default ()
        Texts of a dictionary, in order.
    numbers : tuple of int, default ()
        What stands for these among the values, where another number means its digits; if there
        are none, the values are positions.
    """

    name: str
    type: pa.DataType
    children: tuple[TypedColumn, ...] = ()
    nullable: bool = False
    symbols: tuple[str, ...] = field(default=(), repr=False)
    numbers: tuple[int, ...] = field(default=(), repr=False)

    @classmethod
    def of_struct(
        cls, name: str, members: Sequence[TypedColumn], *, nullable: bool = False
    ) -> TypedColumn:
        """Return a struct of its members."""
        kind = require_pyarrow().struct([one.arrow_field for one in members])
        return cls(name, kind, tuple(members), nullable)

    @classmethod
    def of_list(cls, name: str, item: TypedColumn, *, nullable: bool = False) -> TypedColumn:
        """Return a list of its item."""
        return cls(name, require_pyarrow().list_(item.arrow_field), (item,), nullable)

    @classmethod
    def of_map(cls, name: str, value: TypedColumn, *, nullable: bool = False) -> TypedColumn:
        """Return a map from texts to a value."""
        pa = require_pyarrow()
        pair = cls.of_struct("entries", [cls("key", pa.string()), value])
        return cls(name, pa.map_(pa.string(), value.arrow_field), (pair,), nullable)

    @cached_property
    def kind(self) -> int:
        """What the compiled loop appends to the column."""
        types = require_pyarrow().types
        if types.is_struct(self.type):
            return _core.STRUCTS
        if types.is_list(self.type) or types.is_map(self.type):
            return _core.LISTS
        if types.is_string(self.type) or types.is_binary(self.type):
            return _core.ITEMS
        return _core.VALUES

    @cached_property
    def width(self) -> int:
        """Bytes of an entry of a column of values; 0 for other kinds."""
        if self.kind != _core.VALUES or require_pyarrow().types.is_null(self.type):
            return 0
        return max(1, int(self.type.bit_width) // 8)  # the loop writes a byte for a boolean

    @property
    def arrow_field(self) -> pa.Field:
        """The field of the column in an Arrow schema."""
        return require_pyarrow().field(self.name, self.type, self.nullable)


class ColumnCounter:
    """Base of what makes the columns of a schema, which are limited."""

    _columns = 0

    def _count(self) -> None:
        self._columns += 1
        if self._columns > MAX_COLUMNS:
            raise ValueSchemaError(f"the schema has more than {MAX_COLUMNS} columns")


class ColumnLayout:
    """
    The columns of a tree, numbered so that those below one are contiguous and come later.

    Parameters
    ----------
    root : TypedColumn

    Attributes
    ----------
    columns : list of TypedColumn
        By number; 0 is the root.
    first_child : list of int
        Number of the first column below each.
    parent : list of int
        Number of the column above each; -1 for the root.
    sizes : list of int
        Bytes that an entry of each takes, with those of the columns below it, but for text and
        other items.
    """

    def __init__(self, root: TypedColumn) -> None:
        self.columns, self.parent = [root], [-1]
        self.first_child: list[int] = []
        for number, one in enumerate(self.columns):  # grows while it is walked
            self.first_child.append(len(self.columns) if one.children else 0)
            self.columns += one.children
            self.parent += [number] * len(one.children)
        self.sizes = [max(_WORD, one.width) for one in self.columns]
        for number in reversed(range(len(self.columns))):
            self.sizes[number] += sum(self.sizes[child] for child in self.children_of(number))

    def children_of(self, number: int) -> Iterator[int]:
        """Yield the numbers of the columns below one."""
        first = self.first_child[number]
        yield from range(first, first + len(self.columns[number].children))

    def path_of(self, number: int) -> str:
        """Return where a column is below the root: ``order.items[].price``; empty for the root."""
        parts: list[str] = []
        while (above := self.parent[number]) >= 0:
            parts.append(self._step_to(number, above))
            number = above
        return "".join(reversed(parts)).removeprefix(".")

    def _step_to(self, number: int, above: int) -> str:
        """Return what a column adds to the path of the one above it; the pairs of a map nothing."""
        name = self.columns[number].name
        if self.columns[above].kind == _core.LISTS:
            return "" if self._is_map(above) else "[]"
        return f"{{{name}}}" if self._is_map(self.parent[above]) else f".{name}"

    def _is_map(self, number: int) -> bool:
        return number >= 0 and bool(require_pyarrow().types.is_map(self.columns[number].type))

    def as_array(self) -> NDArray[np.int32]:
        """Return kind, width, first column below, and number of these."""
        rows = [
            (one.kind, one.width, first, len(one.children))
            for one, first in zip(self.columns, self.first_child, strict=True)
        ]
        return np.array(rows, np.int32).reshape(-1, 4)


class ColumnMemory:
    """
    Memory of columns that are filled: it grows where a column is full.

    Parameters
    ----------
    layout : ColumnLayout
    rows : int
        Expected entries of the root.
    size : int
        Expected bytes of all items together.

    Attributes
    ----------
    filled : TypedColumns
        What the compiled loop fills.
    with_repeated_keys : list of pairs
        After `to_arrow`: a column of maps, and the entries of the root of which a map in it had a
        key more than once.
    """

    def __init__(self, layout: ColumnLayout, rows: int, size: int) -> None:
        columns = layout.columns
        item_columns = sum(one.kind == _core.ITEMS for one in columns)
        room = min(_LARGEST, max(_FIRST_BYTES, size // max(1, item_columns)))
        capacity = max(1, min(rows, _LARGEST))
        self._layout, self._capacity = layout, [0] * len(columns)
        self._arrays: list[_ColumnArrays] = [_NO_ENTRIES] * len(columns)
        self.filled = _core.TypedColumns(layout.as_array())
        self.with_repeated_keys: list[tuple[int, NDArray[np.intp]]] = []
        # In one block: of small free blocks, few are kept.
        shapes = itertools.chain.from_iterable(_shapes(one, capacity, room) for one in columns)
        arrays = iter(result_memory.empty_together(list(shapes)))
        for number in range(len(columns)):
            self._give(number, capacity, (next(arrays), next(arrays), next(arrays)))

    @property
    def has_entries(self) -> bool:
        """Whether the root has an entry."""
        return self.filled.entries(0)[0] > 0

    def grow(self, number: int, needed: int, *, is_again: bool) -> bool:
        """
        Make room in a column; False if it must not become larger.

        Parameters
        ----------
        number : int
            Of the column.
        needed : int
            Bytes of the next item; 0 if there is no room for an entry.
        is_again : bool
            Whether the same value did not fit before. Then others that are half full grow, too:
            the value is decoded again from its start each time that one has no room.
        """
        if not self._grow(number, needed):
            return False
        for other in range(len(self._arrays) if is_again else 0):
            entries, size = self.filled.reached(other)
            if other != number and 2 * entries > self._capacity[other]:
                self._grow(other, 0)
            if other != number and 2 * size > len(self._arrays[other][0]):
                self._grow(other, 1)
        return True

    def _grow(self, number: int, needed: int) -> bool:
        capacity, room = self._capacity[number], len(self._arrays[number][0])
        _, size = self.filled.entries(number)
        if needed == 0:
            if capacity == _LARGEST:
                return False
            capacity = min(_LARGEST, max(_FIRST_ENTRIES, 2 * capacity))
        else:
            if size + needed > _LARGEST:
                return False
            room = min(_LARGEST, max(size + needed, 2 * room))
        data, ends, is_valid = result_memory.empty_together(
            _shapes(self._layout.columns[number], capacity, room)
        )
        self._give(number, capacity, (data, ends, is_valid))
        return True

    def _give(self, number: int, capacity: int, arrays: _ColumnArrays) -> None:
        """Give a column larger arrays, which take over its entries."""
        column, (data, ends, is_valid) = self._layout.columns[number], arrays
        entries, size = self.filled.entries(number)
        old_data, old_ends, old_valid = self._arrays[number]
        used = entries * column.width if column.kind == _core.VALUES else size
        data[:used] = old_data[:used]
        if len(ends):
            ends[: entries + 1] = old_ends[: entries + 1]
        is_valid[:entries] = old_valid[:entries]
        is_valid[entries:] = 1
        self._arrays[number], self._capacity[number] = arrays, capacity
        self.filled.give(
            number, capacity, data, ends if len(ends) else None,
            is_valid if column.nullable else None,
        )  # fmt: skip

    def to_arrow(self) -> pa.Array:
        """Return the root's entries, in arrays that keep the memory."""
        return self._array(0, self.filled.entries(0)[0])

    def _array(self, number: int, entries: int) -> pa.Array:
        pa = require_pyarrow()
        column, (data, ends, is_valid) = self._layout.columns[number], self._arrays[number]
        if pa.types.is_null(column.type):
            return pa.nulls(entries)
        valid = None
        if column.nullable and not is_valid[:entries].all():
            valid = pa.py_buffer(np.packbits(is_valid[:entries], bitorder="little"))
        if column.kind == _core.VALUES:
            return _values(column, entries, valid, data)
        if column.kind == _core.ITEMS:
            buffers = [valid, pa.py_buffer(ends[: entries + 1]), pa.py_buffer(data)]
            return pa.Array.from_buffers(column.type, entries, buffers)
        below = int(ends[entries]) if column.kind == _core.LISTS else entries
        children = [self._array(child, below) for child in self._layout.children_of(number)]
        if self.filled.may_repeat_keys(number):
            all_ends = ends[: entries + 1]
            children[0], ends = _last_of_keys(children[0], all_ends)
            repeated = np.flatnonzero(np.diff(ends) != np.diff(all_ends))
            self.with_repeated_keys.append((number, self._entries_of_root(number, repeated)))
        has_ends = column.kind == _core.LISTS
        buffers = [valid, pa.py_buffer(ends[: entries + 1])] if has_ends else [valid]
        return pa.Array.from_buffers(column.type, entries, buffers, children=children)

    def _entries_of_root(self, number: int, entries: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the entries of the root that contain entries of a column."""
        while (number := self._layout.parent[number]) >= 0:
            if self._layout.columns[number].kind == _core.LISTS:
                ends = self._arrays[number][1][1 : self.filled.entries(number)[0] + 1]
                entries = np.searchsorted(ends, entries, side="right")
        return entries


def _shapes(column: TypedColumn, capacity: int, room: int) -> list[tuple[int, type[np.generic]]]:
    """Return what `empty_together` needs for data, ends and validity of a column."""
    sizes = {_core.VALUES: capacity * column.width, _core.ITEMS: room}
    has_ends = column.kind in (_core.ITEMS, _core.LISTS)
    return [
        (sizes.get(column.kind, 0), np.uint8),
        (capacity + 1 if has_ends else 0, np.int32),
        (capacity if column.nullable else 0, np.uint8),
    ]


def _values(
    column: TypedColumn, entries: int, valid: pa.Buffer | None, data: NDArray[np.uint8]
) -> pa.Array:
    pa = require_pyarrow()
    if pa.types.is_dictionary(column.type):
        positions, symbols = _positions(column, data[: entries * 4].view(np.int32))
        numbers = pa.Array.from_buffers(pa.int32(), entries, [valid, pa.py_buffer(positions)])
        return pa.DictionaryArray.from_arrays(numbers, pa.array(symbols, pa.string()))
    if pa.types.is_boolean(column.type):
        data = np.packbits(data[:entries], bitorder="little")
    return pa.Array.from_buffers(column.type, entries, [valid, pa.py_buffer(data)])


def _positions(
    column: TypedColumn, numbers: NDArray[np.int32]
) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """Return positions of the numbers' texts, and the texts: symbols, then digits of others."""
    known = np.array(column.numbers, np.int32)
    count = len(known)
    is_position = np.array_equal(known, np.arange(count))
    if not len(numbers) or not count or (is_position and numbers.view(np.uint32).max() < count):
        return numbers, column.symbols
    order = np.argsort(known)
    at = order[np.minimum(np.searchsorted(known, numbers, sorter=order), count - 1)]
    positions, is_known = at.astype(np.int32), known[at] == numbers
    others, position = np.unique(numbers[~is_known], return_inverse=True)
    positions[~is_known] = count + position
    return positions, (*column.symbols, *map(str, others.tolist()))


def _last_of_keys(pairs: pa.Array, ends: NDArray[np.int32]) -> tuple[pa.Array, NDArray[np.int32]]:
    """Return the pairs of maps, and their ends, without those whose key follows in its map."""
    keys = pairs.field(0).dictionary_encode()
    maps = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
    of_map = maps * max(1, len(keys.dictionary)) + keys.indices.to_numpy()
    _, from_end = np.unique(of_map[::-1], return_index=True)
    kept = np.sort(len(maps) - 1 - from_end)
    counts = np.bincount(maps[kept], minlength=len(ends) - 1)
    return pairs.take(kept), np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
