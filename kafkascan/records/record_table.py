"""Records as columns, and their conversion to NumPy, Arrow, pandas and Polars."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, overload

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import items as _core
from kafkascan._core.items import Record as Record
from kafkascan.batches.arrow import (
    NAMED_CODES,
    batch_column,
    display_column,
    named_column,
    plain_column,
)
from kafkascan.batches.batch_schemas import BATCH_SCHEMA
from kafkascan.batches.columns import (
    COLUMN_NAMES,
    BatchTable,
    as_datetime64,
    column,
    join_tables,
)
from kafkascan.batches.small_plots import plot_over_time
from kafkascan.format.errors import UnknownColumnError
from kafkascan.format.layout import TimestampType
from kafkascan.format.suggestions import suggestion
from kafkascan.io import result_memory
from kafkascan.records.buffers import Buffers, Gathered, Starts
from kafkascan.records.item_columns import (
    HeadersOfRecords,
    Located,
    binary_column,
    headers_column,
    utf8_column,
    view_column,
)
from kafkascan.records.record_schemas import RAW_SCHEMA, RECORD_SCHEMA
from kafkascan.records.typed_items import selected
from kafkascan.tables.python_values import python_values
from kafkascan.tables.schema import Field, Schema, require_pyarrow
from kafkascan.tables.table import NO_PROBLEMS, AnyTable, Column, Problems, timestamp_column

if TYPE_CHECKING:
    import pyarrow as pa


def _clipped(sizes: NDArray[np.int32], most: int, whole: int) -> NDArray[np.int32]:
    """Return sizes of at most so many bytes; those of items up to `whole` stay."""
    return np.where(sizes > whole, np.minimum(sizes, np.int32(most)), sizes)


def _json_header(key: bytes, value: bytes | None) -> dict[str, str | None]:
    return {
        "key": key.decode("utf-8", "surrogateescape"),
        "value": None if value is None else value.hex(),
    }


def _pairs(
    starts: Starts, keys: Gathered, values: Gathered
) -> list[list[tuple[bytes, bytes | None]]]:
    """Return the headers of each record."""
    items = zip(keys.to_list(), values.to_list(), strict=True)
    pairs = [(key or b"", value) for key, value in items]
    return [pairs[first:last] for first, last in itertools.pairwise(starts.tolist())]


DEFAULT_RECORD_COLUMNS = ("offset", "timestamp", "key", "value", "headers")

RECORD_COLUMN_NAMES = RECORD_SCHEMA.names
"""Columns of records. Every column of the batch table can be requested as well."""

# Records whose keys and values are gathered at a time, and about how many bytes these have.
_RECORDS_AT_ONCE, _BYTES_AT_ONCE = 1 << 12, 1 << 22

# Stored columns that a requested column needs.
_STORED = {
    "offset": ("offset",),
    "timestamp": ("timestamp",),
    "key": ("key_position", "key_size"),
    "value": ("value_position", "value_size"),
    "headers": ("headers_position", "headers_count"),
    "sequence": ("offset",),
    "key_raw": ("key_position", "key_size"),
    "value_raw": ("value_position", "value_size"),
}
# Columns of bytes, and whose bytes they are.
_ITEMS = {"key": "key", "value": "value", "key_raw": "key", "value_raw": "value"}
_TIMESTAMP_TYPES = tuple(TimestampType)
Sequence.register(Record)  # pandas takes the names of fields from sequences that have them


def stored_columns(names: Sequence[str]) -> tuple[str, ...]:
    """
    Return the stored columns that requested columns need.

    Raises
    ------
    UnknownColumnError
        If a column does not exist; the message suggests one.
    """
    if not names:
        raise ValueError("columns must name at least one column")
    stored = ["batch"]
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"a column name must be a str, not {type(name).__name__}")
        if name not in _STORED and name not in RECORD_COLUMN_NAMES and name not in COLUMN_NAMES:
            hint = suggestion(name, [*RECORD_COLUMN_NAMES, *COLUMN_NAMES])
            raise UnknownColumnError(f"there is no record column {name!r}{hint}")
        stored += [part for part in _STORED.get(name, ()) if part not in stored]
    return tuple(stored)


class RecordTable(AnyTable):
    """
    Records of batches in columns; returned by `read_records`.

    Keys, values and headers are stored as positions in buffers. For uncompressed batches, the
    buffer is the source itself, and bytes are copied only by conversions, so the source must
    stay open while the table is in use. pyarrow, Polars and DuckDB accept the object directly,
    through Arrow's stream capsule. ``table[i]`` is a `Record`. ``table[a:b]``, and ``table[mask]``
    with a NumPy mask or array of indices, are tables. ``table["offset"]`` is an array of numbers;
    ``table["key"]`` one of objects, copies of the keys, as of `to_numpy`.

    Attributes
    ----------
    batches : ndarray of BATCH_DTYPE
        The batches of the records.
    names : tuple of str
        The requested columns.
    columns : dict of ndarray, each of shape (n,)
        The stored columns: ``batch`` (int32, row of `batches`) and, as `names` requires,
        ``offset``, ``timestamp`` (int64), ``key_position``, ``value_position``,
        ``headers_position`` (int64), ``key_size``, ``value_size`` (int32, in bytes, -1 for
        null), ``headers_count`` (int32). Positions are relative to the buffer of the batch.
    typed : dict of pyarrow.ChunkedArray
        ``key`` and ``value`` as columns with the types of their schemas, if `read_records` was
        given a registry. Conversions return these; `items` returns the bytes, and so do the
        columns ``key_raw`` and ``value_raw``, if they were requested.
    """

    def __init__(
        self,
        batches: BatchTable,
        names: tuple[str, ...],
        columns: dict[str, NDArray[Any]],
        buffers: Buffers,
        problems: Problems = NO_PROBLEMS,
        typed: Mapping[str, pa.ChunkedArray] | None = None,
    ) -> None:
        self.batches = batches
        self.names = names
        self.columns = columns
        self.typed: Mapping[str, pa.ChunkedArray] = {} if typed is None else typed
        self._buffers = buffers
        self._problems = problems

    @property
    def schema(self) -> Schema:
        """The fields of the requested columns."""
        known = RECORD_SCHEMA.with_last(RAW_SCHEMA).with_last(BATCH_SCHEMA)
        return known.select(self.names)

    @property
    def problems(self) -> Problems:
        """Batches and segments that were not read."""
        return self._problems

    def to_columns(self) -> dict[str, Column]:
        """Return the values of each column; codecs and timestamp types are Kafka's names."""
        return {
            name: named_column(self.batches[self.columns["batch"]], name)
            if name in NAMED_CODES
            else self._as_numpy(name)
            for name in self.names
        }

    def with_problems(self, problems: Problems) -> RecordTable:
        """Return the same records with other problems."""
        return RecordTable(
            self.batches, self.names, self.columns, self._buffers, problems, self.typed
        )

    def with_typed(self, typed: Mapping[str, pa.ChunkedArray]) -> RecordTable:
        """Return the same records with keys or values as columns with types."""
        return RecordTable(
            self.batches, self.names, self.columns, self._buffers, self._problems, typed
        )

    @classmethod
    def joined(cls, tables: Sequence[RecordTable], problems: Problems = NO_PROBLEMS) -> RecordTable:
        """Return one table of tables with the same columns, from sources that are not mapped."""
        first = np.cumsum([0, *(len(one.batches) for one in tables)])
        columns = {
            name: result_memory.concatenate([one.columns[name] for one in tables])
            for name in tables[0].columns
        }
        batch = [one.columns["batch"] + row for one, row in zip(tables, first[:-1], strict=True)]
        columns["batch"] = result_memory.concatenate(batch).astype(np.int32)
        buffers = Buffers.joined([one._buffers for one in tables])
        batches = join_tables([one.batches for one in tables])
        return cls(batches, tables[0].names, columns, buffers, problems)

    def __len__(self) -> int:
        return len(self.columns["batch"])

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice | NDArray[Any]) -> RecordTable: ...
    @overload
    def __getitem__(self, index: str) -> NDArray[Any]: ...
    def __getitem__(
        self, index: int | slice | NDArray[Any] | str
    ) -> Record | RecordTable | NDArray[Any]:
        if isinstance(index, str):
            return self._as_numpy(index)
        if isinstance(index, (slice, np.ndarray)):
            if isinstance(index, np.ndarray):
                self._require_fitting(index)
            columns = {
                name: np.ascontiguousarray(values[index]) for name, values in self.columns.items()
            }
            typed = {name: selected(values, index) for name, values in self.typed.items()}
            return RecordTable(
                self.batches, self.names, columns, self._buffers, self._problems, typed
            )
        try:
            at = range(len(self))[index]
        except TypeError:
            raise TypeError(
                "an index must be an integer, a slice, a NumPy array or a column's name,"
                f" not {type(index).__name__}"
            ) from None
        except IndexError:
            raise IndexError(f"index {index} is out of range for {len(self)} records") from None
        return next(self[at : at + 1]._rows())

    def _require_fitting(self, index: NDArray[Any]) -> None:
        if index.ndim != 1:
            raise IndexError("an index array must have one dimension")
        if index.dtype == np.bool_ and len(index) != len(self):
            raise IndexError(
                f"a mask of {len(index)} values does not fit {len(self)} records; to select by"
                " batch, read the records of scan.batches[mask]"
            )

    def __iter__(self) -> Iterator[Record]:
        return itertools.chain.from_iterable(part._rows() for part in self._parts())

    def _parts(self) -> Iterator[RecordTable]:
        """Yield slices whose keys and values are gathered at the same time."""
        first = 0
        while first < len(self):
            stop = first + _RECORDS_AT_ONCE
            sizes = [
                self.columns[name][first:stop]
                for name in ("key_size", "value_size")
                if name in self.columns
            ]
            ends = np.cumsum(sum(sizes, np.zeros(1, np.int64)))
            count = int(np.searchsorted(ends, _BYTES_AT_ONCE)) if sizes else _RECORDS_AT_ONCE
            yield self[first : first + max(1, count)]
            first += max(1, count)

    def _rows(self) -> Iterator[Record]:
        """Yield the records; typed keys and values as Python's values."""
        if not self.typed:
            return self._records()
        values = zip(*map(python_values, self.typed.values()), strict=True)
        return (
            Record(**{**record._asdict(), **dict(zip(self.typed, row, strict=True))})
            for record, row in zip(self._records(), values, strict=True)
        )

    def _records(self) -> Iterator[Record]:
        has_headers = "headers" in self.names and self.columns["headers_count"].any()
        return _core.RecordRows(
            np.ascontiguousarray(self.batches),
            self.columns["batch"],
            _TIMESTAMP_TYPES,
            self.columns.get("offset"),
            self.columns.get("timestamp"),
            self.gathered("key").objects() if "key" in self.names else None,
            self.gathered("value").objects() if "value" in self.names else None,
            self.header_lists() if has_headers else None,
        )

    def _numbers(self, name: str) -> NDArray[Any]:
        """Return a column with one number per record."""
        if name in self.columns:
            return self.columns[name]
        if name == "sequence" and "offset" in self.columns:
            return self._sequences()
        if name in COLUMN_NAMES:
            values = column(self.batches, name)
            taken: NDArray[Any] = values[self.columns["batch"]]
            return taken
        stored_columns([name])  # raises for an unknown name, with a suggestion
        raise KeyError(f"{name!r} was not requested: this table has {', '.join(self.names)}")

    def _sequences(self) -> NDArray[np.int32]:
        batches, offset = np.ascontiguousarray(self.batches), self.columns["offset"]
        found = np.empty(len(offset), np.int32)
        _core.sequences_into(batches, self.columns["batch"], offset, found)
        return found

    def items(self, name: str) -> list[bytes | None]:
        """
        Return copies of the keys or values.

        Parameters
        ----------
        name : {"key", "value"}
            A requested column.
        """
        return self.gathered(name).to_list()

    def begins(self, name: str, most: int, *, whole: int = 0) -> list[bytes | None]:
        """
        Return copies of the first bytes of keys or values.

        Parameters
        ----------
        name : {"key", "value"}
            A requested column.
        most : int
            Bytes of each item.
        whole : int, default 0
            Size up to which items are complete.
        """
        sizes = _clipped(self.columns[f"{name}_size"], most, whole)
        return self.gathered(name, sizes).to_list()

    def header_begins(
        self, count: int, most: int, *, whole: int = 0
    ) -> list[list[tuple[bytes, bytes | None]]]:
        """
        Return copies of the first bytes of the first headers of each record.

        Parameters
        ----------
        count : int
            Headers of a record.
        most, whole
            See `begins`.
        """
        counts = np.minimum(self.columns["headers_count"], np.int32(count))
        starts, *located = self._headers(counts).locate()
        batch = np.repeat(self.columns["batch"], np.diff(starts))
        keys, values = (
            self._gather_at(batch, addresses, _clipped(sizes, most, whole))
            for addresses, sizes in located
        )
        return _pairs(starts, keys, values)

    def headers_named(
        self, names: Sequence[bytes], most: int
    ) -> list[tuple[NDArray[np.int64], Gathered]]:
        """
        Return, for each name, the last header of that name of each record that has one.

        Parameters
        ----------
        names : sequence of bytes
        most : int
            Headers of a record that are compared.

        Returns
        -------
        list of (ndarray of int64, Gathered)
            The rows of the records, in their order, and the values.
        """
        counts = np.minimum(self.columns["headers_count"], np.int32(most))
        _, (keys, key_sizes), (values, value_sizes) = self._headers(counts).locate()
        owner = np.repeat(np.arange(len(counts)), counts)
        found = []
        for name in names:
            at = np.flatnonzero(key_sizes == len(name))
            texts = self._gather_at(self.columns["batch"][owner[at]], keys[at], key_sizes[at])
            at = at[texts.data.view(f"S{len(name)}") == name]
            rows = owner[at]
            is_last = np.append(rows[1:] != rows[:-1], np.ones(min(1, len(rows)), np.bool_))
            rows, at = rows[is_last], at[is_last]
            batch = self.columns["batch"][rows]
            found.append((rows, self._gather_at(batch, values[at], value_sizes[at])))
        return found

    def _gather_at(
        self, batch: NDArray[np.int32], addresses: NDArray[np.uintp], sizes: NDArray[np.int32]
    ) -> Gathered:
        """Copy items at addresses in the buffers of their batches."""
        first = self._buffers.addresses[self._buffers.of_batch[batch]]
        return self._buffers.gather(batch, (addresses - first).astype(np.int64), sizes)

    def gathered(self, name: str, sizes: NDArray[np.int32] | None = None) -> Gathered:
        """
        Return the keys or values, copied into one contiguous array.

        Parameters
        ----------
        name : {"key", "value"}
            A requested column.
        sizes : ndarray of int32, optional
            Bytes of each item; by default all of them.
        """
        columns = self.columns
        if f"{name}_position" not in columns:
            raise KeyError(f"{name!r} is not a requested column of keys or values")
        sizes = columns[f"{name}_size"] if sizes is None else sizes
        return self._buffers.gather(columns["batch"], columns[f"{name}_position"], sizes)

    @property
    def buffers(self) -> Buffers:
        """The buffers that positions refer to."""
        return self._buffers

    def addresses(self, name: str) -> tuple[NDArray[np.uintp], NDArray[np.int32]]:
        """
        Return the addresses of keys or values; they are valid while the table exists.

        Parameters
        ----------
        name : {"key", "value"}
            A requested column.

        Returns
        -------
        addresses : ndarray of uintp, shape (n,)
        sizes : ndarray of int32, shape (n,)
            In bytes; -1 for a null.
        """
        columns = self.columns
        # A copy, because an address is valid for this size only, and the column may be changed.
        size = columns[f"{name}_size"].copy()
        found = self._buffers.addresses_of(columns["batch"], columns[f"{name}_position"], size)
        return found, size

    def header_addresses(self) -> tuple[NDArray[np.int64], Located, Located]:
        """
        Return the addresses of record headers; they are valid while the table exists.

        Returns
        -------
        record_starts : ndarray of int64, shape (n + 1,)
            The first header of each record.
        keys, values : (ndarray of uintp, ndarray of int32)
            See `addresses`.
        """
        return self._headers().locate()

    def header_places(self) -> tuple[NDArray[np.uintp], NDArray[np.int32], NDArray[np.int64]]:
        """
        Return where the headers of each record are; addresses are valid while the table exists.

        Returns
        -------
        addresses : ndarray of uintp, shape (n,)
            Of the first header; 0 without headers.
        counts : ndarray of int32, shape (n,)
        rooms : ndarray of int64, shape (n,)
            Bytes from there to the end of the buffer.
        """
        columns, buffers = self.columns, self._buffers
        batch, position = columns["batch"], columns["headers_position"].copy()
        counts = columns["headers_count"].copy()
        addresses = buffers.addresses_of(batch, position, np.minimum(counts, np.int32(1)))
        return addresses, counts, buffers.sizes[buffers.of_batch[batch]] - position

    def _headers(self, counts: NDArray[np.int32] | None = None) -> HeadersOfRecords:
        columns = self.columns
        counts = columns["headers_count"] if counts is None else counts
        return HeadersOfRecords(
            self._buffers, columns["batch"], columns["headers_position"], counts
        )

    def header_lists(self) -> list[list[tuple[bytes, bytes | None]]]:
        """Return copies of the headers: their keys and values."""
        return _pairs(*self._headers().gather())

    def __array__(self, dtype: object = None, copy: bool | None = None) -> NoReturn:
        raise TypeError(
            "a RecordTable has columns of several types: use to_numpy(), a dict of arrays, or a"
            ' column, such as table["offset"]'
        )

    def to_numpy(self) -> dict[str, NDArray[Any]]:
        """
        Return the requested columns as NumPy arrays.

        Returns
        -------
        dict of ndarray, each of shape (n,)
            Numbers (timestamps in milliseconds, see `timestamps`); keys and values as objects,
            ``bytes`` or None; headers as lists of pairs.
        """
        return {name: self._as_numpy(name) for name in self.names}

    def json_column(self, column: Field, values: Column) -> list[Any]:
        """Return the values of a column in the types that JSON has; see `AnyTable`."""
        if column.name in self.typed:
            from kafkascan.tables.value_texts import PrintedValues

            return list(PrintedValues(self.typed[column.name]))
        if column.name == "headers":
            return [[_json_header(*pair) for pair in pairs] for pairs in values]
        return super().json_column(column, values)

    def _as_numpy(self, name: str) -> NDArray[Any]:
        if name not in self.names or not (name in _ITEMS or name == "headers"):
            return self._numbers(name)
        if name in self.typed:
            items = python_values(self.typed[name])
        elif name == "headers":
            items = self.header_lists()
        else:
            items = self.gathered(_ITEMS[name]).to_list()
        objects = np.empty(len(items), object)
        for index, item in enumerate(items):
            objects[index] = item
        return objects

    @property
    def timestamps(self) -> NDArray[np.datetime64]:
        """`timestamp` as datetime64[ms], UTC; NaT for -1."""
        return as_datetime64(self._numbers("timestamp"))

    def to_arrow(self, columns: Sequence[str] | None = None, *, views: bool = False) -> pa.Table:
        """
        Return the table as a `pyarrow.Table`.

        Timestamps are ``timestamp[ms, tz=UTC]``, null for -1. Keys and values are ``binary``, or
        ``large_binary`` above 2 GiB. Headers are ``list<struct<key: string, value: binary>>``;
        invalid UTF-8 in keys is replaced as Kafka does. A header takes 8 bytes and 1 bit, besides
        its key and value, and while it is converted 1 byte more for null values and 8 for keys
        that are not UTF-8: a batch of `max_decompressed_size` bytes can hold half as many headers.

        Parameters
        ----------
        columns : sequence of str, optional
            Of the requested columns; all of them by default.
        views : bool, default False
            Return keys and values as ``binary_view`` into the memory of the source, without
            copying them. Access to a view after a mapped file was truncated kills the process,
            as with any memory map.

        Returns
        -------
        pyarrow.Table
        """
        self._warn_if_incomplete()
        names = self.names if columns is None else columns
        return require_pyarrow().table({name: self._as_arrow(name, views) for name in names})

    def arrow_headers(self) -> pa.Array:
        """Return the headers as `to_arrow` does, but with their keys as bytes."""
        starts, keys, values = self._headers().gather()
        return headers_column(starts, binary_column(keys), binary_column(values))

    def arrow_table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return what `to_arrow` returns, for callers that report the problems themselves."""
        names = self.names if columns is None else columns
        return require_pyarrow().table({name: self._as_arrow(name, False) for name in names})

    def _as_arrow(self, name: str, views: bool) -> pa.Array:
        if name in self.typed:
            return self.typed[name]
        if name in _ITEMS:
            columns, item = self.columns, _ITEMS[name]
            items = columns["batch"], columns[f"{item}_position"], columns[f"{item}_size"]
            if views:
                return view_column(self._buffers, *items)
            return binary_column(self._buffers.gather(*items))
        if name == "headers":
            return self._arrow_headers()
        if name in COLUMN_NAMES:
            return batch_column(self.batches, name).take(plain_column(self["batch"]))
        if name == "timestamp":
            return timestamp_column(self._numbers(name))
        return plain_column(self._numbers(name))

    def _arrow_headers(self) -> pa.Array:
        starts, keys, values = self._headers().gather()
        return headers_column(starts, utf8_column(keys), binary_column(values))

    def _summary_lines(self) -> list[str]:
        lines = [f"<RecordTable: {len(self):,} records of {len(self.batches):,} batches>"]
        lines.append(f"  columns  {', '.join(self.names)}")
        if len(self) and "offset" in self.columns:
            offsets = self.columns["offset"]
            lines.append(f"  offsets  {offsets.min()} to {offsets.max()}")
        if len(self) and "timestamp" in self.columns:
            times = self.timestamps[~np.isnat(self.timestamps)]
            if len(times):
                lines.append(f"  times    {times.min()} to {times.max()}")
        return lines

    def _plot(self) -> str:
        if "timestamp" not in self.columns:
            return ""
        return plot_over_time("Records by timestamp", self.columns["timestamp"])

    def _head(self, rows: int) -> dict[str, Sequence[object]]:
        first = self[:rows]
        return {name: first._display(name) for name in self.names}

    def _display(self, name: str) -> Sequence[object]:
        if name in COLUMN_NAMES:
            return display_column(self.batches[self.columns["batch"]], name)
        if name == "timestamp":
            return list(self.timestamps)
        return list(self._as_numpy(name))
