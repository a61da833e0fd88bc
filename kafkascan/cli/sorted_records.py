"""Records in the order of a column, sorted in parts that are merged from a temporary file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan.cli.record_cells import (
    Decodable,
    ShownRecords,
    TemplateWriter,
    copied_items,
    decode_control_records,
    decode_messages,
    named_headers,
)
from kafkascan.cli.shared_options import DECODED_AS
from kafkascan.cli.table_text import TableWriter
from kafkascan.format.texts import json_text
from kafkascan.tables.schema import require_pyarrow
from kafkascan.tables.text_columns import TextColumn
from kafkascan.tables.value_texts import PrintedValues
from kafkascan.tables.writers import SortOrder, Writer

if TYPE_CHECKING:
    import pyarrow as pa

# Bytes that are sorted at a time, in memory; the parts are merged from a temporary file, of which
# this many bytes of each part are in memory.
_PART_BYTES, _BLOCK_BYTES = 1 << 26, 1 << 18
# Limits of a table that is returned.
_ROWS, _TABLE_BYTES = 1 << 13, 1 << 22

_INT32_BITS = 32

_Row: TypeAlias = "tuple[tuple[bool, Any], pa.Table, int]"
"""What a row is sorted by, a table, and the row's number in it."""


def sorted_tables(
    found: Iterable[pa.Table], sort: SortOrder, limit: int | None
) -> Iterator[pa.Table]:
    """
    Yield the rows of tables in the order of a column; equal ones stay in their order.

    Parameters
    ----------
    found : iterable of pyarrow.Table
        All with the same schema, which has the column.
    sort : SortOrder
    limit : int, optional
        Largest number of rows; the first ones in their order.
    """
    # A file exists from the first write on.
    with tempfile.SpooledTemporaryFile(max_size=1) as file:
        sorter = _Sorter(sort, limit, file)
        for table in found:
            sorter.add(table)
        yield from _gathered(islice(sorter.rows(), limit))


class _Sorter:
    """
    Sorts tables part by part.

    Parameters
    ----------
    sort, limit
        See `sorted_tables`.
    file : file
        Takes the parts, if there are several.
    """

    def __init__(self, sort: SortOrder, limit: int | None, file: IO[bytes]) -> None:
        self._sort, self._limit, self._file = sort, limit, file
        self._tables: list[pa.Table] = []
        self._size = 0
        self._parts: list[list[int]] = []  # the positions of their blocks

    def add(self, table: pa.Table) -> None:
        """Add rows."""
        self._tables.append(table)
        self._size += table.nbytes
        if self._size >= _PART_BYTES:
            table = self._sorted()
            if self._limit is None or table.nbytes > _PART_BYTES // 2:
                self._store(table)
            else:  # the first rows of all so far
                self._tables, self._size = [table], table.nbytes

    def rows(self) -> Iterator[_Row]:
        """Yield the rows in their order."""
        last = [self._sorted()] if self._tables else []
        parts = [map(self._load, positions) for positions in self._parts]
        found = (self._rows(blocks) for blocks in (*parts, last))
        return merge(*found, key=itemgetter(0), reverse=self._sort.is_descending)

    def _sorted(self) -> pa.Table:
        """Return the rows that are in memory in their order."""
        table = require_pyarrow().concat_tables(self._tables)
        keys = self._keys(table)
        order = sorted(range(len(keys)), key=keys.__getitem__, reverse=self._sort.is_descending)
        return table.take(order[: self._limit])

    def _keys(self, table: pa.Table) -> list[tuple[bool, Any]]:
        """Return what rows are sorted by: nulls come last in either order."""
        is_first = self._sort.is_descending
        return [
            ((key is not None) == is_first, key) for key in _comparable(table[self._sort.column])
        ]

    def _rows(self, blocks: Iterable[pa.Table]) -> Iterator[_Row]:
        for table in blocks:
            for row, key in enumerate(self._keys(table)):
                yield key, table, row

    def _store(self, table: pa.Table) -> None:
        """Write a sorted part to the temporary file, block by block."""
        pa = require_pyarrow()
        rows = max(1, len(table) * _BLOCK_BYTES // table.nbytes)
        positions = []
        for first in range(0, len(table), rows):
            positions.append(self._file.tell())
            with pa.ipc.new_stream(self._file, table.schema) as stream:
                stream.write_table(table.slice(first, rows))
        self._parts.append(positions)
        self._tables, self._size = [], 0

    def _load(self, position: int) -> pa.Table:
        self._file.seek(position)
        return require_pyarrow().ipc.open_stream(self._file).read_all()


def _comparable(column: pa.ChunkedArray) -> list[Any]:
    """Return values that can be compared; lists and structs are compared as JSON."""
    pa = require_pyarrow()
    if pa.types.is_nested(column.type):
        return [None if one is None else json_text(one) for one in PrintedValues(column)]
    if pa.types.is_temporal(column.type):  # some are no times of Python
        column = column.cast(pa.int32() if column.type.bit_width == _INT32_BITS else pa.int64())
    return column.to_pylist()  # type: ignore[no-any-return]


def _gathered(rows: Iterator[_Row]) -> Iterator[pa.Table]:
    """Yield tables of rows of other tables."""
    while True:
        tables: list[pa.Table] = []
        places: dict[int, tuple[int, int]] = {}  # first row and bytes per row, by table
        picked: list[int] = []
        size = total = 0
        for _, table, row in islice(rows, _ROWS):
            if id(table) not in places:
                places[id(table)] = total, table.nbytes // len(table)
                tables.append(table)
                total += len(table)
            first, row_size = places[id(table)]
            picked.append(first + row)
            size += row_size
            if size >= _TABLE_BYTES:
                break
        if not picked:
            return
        yield require_pyarrow().concat_tables(tables).take(picked)


def sorted_columns(rows: pa.Table, shown: ShownRecords, writer: Writer) -> dict[str, TextColumn]:
    """Return what is printed of sorted records."""
    columns: dict[str, Any] = {
        name: _printed(rows[name], name, shown.formats, writer) for name in shown.columns
    }
    if shown.decodes:
        topics = rows["topic"].to_pylist()
        for topic in sorted(DECODED_AS.values()):
            is_of = [topic == (shown.undecoded.topic or one) for one in topics]
            if any(is_of):
                decode_messages(topic, _decodable(rows, np.flatnonzero(is_of)), columns, shown)
    if shown.has_control:
        are_control = np.flatnonzero(rows["is_control"].to_numpy())
        decode_control_records(_decodable(rows, are_control), columns)
    return columns


def _printed(column: pa.ChunkedArray, name: str, formats: dict[str, str], writer: Writer) -> Any:
    types = require_pyarrow().types
    if name == "headers":
        pairs = [[(one["key"], one["value"]) for one in some] for some in column.to_pylist()]
        if isinstance(writer, TemplateWriter):
            return pairs
        return [named_headers(one, formats["value"]) for one in pairs]
    if name in formats and types.is_binary(column.type):
        in_cells = isinstance(writer, TableWriter)
        return copied_items(column.to_pylist(), formats[name], in_cells=in_cells)
    if name in formats:
        return PrintedValues(column)
    if types.is_timestamp(column.type):
        return column.cast("int64").fill_null(-1).to_numpy()
    return column.to_pylist()


def _decodable(rows: pa.Table, numbers: NDArray[np.intp]) -> Decodable:
    some = rows.take(numbers)
    names = ("offset", "is_control", "key", "value")
    return Decodable(numbers.tolist(), *(some[name].to_pylist() for name in names))
