"""Records as columns, and their conversion to NumPy, Arrow, pandas and Polars."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from kafkascan.batches.arrow import (
    NAMED_CODES,
    batch_column,
    display_column,
    named_column,
    plain_column,
)
from kafkascan.batches.columns import (
    BATCH_SCHEMA,
    COLUMN_NAMES,
    BatchTable,
    as_datetime64,
    column,
    join_tables,
    timestamp_type,
)
from kafkascan.batches.small_plots import plot_over_time
from kafkascan.format.errors import UnknownColumnError
from kafkascan.format.layout import NO_SEQUENCE, TimestampType
from kafkascan.format.suggestions import suggestion
from kafkascan.io import result_memory
from kafkascan.records import arrow_binary
from kafkascan.records.buffers import Buffers, Gathered
from kafkascan.records.header_items import HeadersOfRecords, Located
from kafkascan.tables.schema import Field, Schema, Shown, require_pyarrow
from kafkascan.tables.table import NO_PROBLEMS, AnyTable, Column, Problems, timestamp_column

if TYPE_CHECKING:
    import pyarrow as pa

DEFAULT_RECORD_COLUMNS = ("offset", "timestamp", "key", "value", "headers")

RECORD_SCHEMA = Schema(
    "records",
    (
        Field("offset", "int64", "offset of the record", nullable=False, shown=Shown.ALWAYS),
        Field("timestamp", "time", "timestamp of the record", shown=Shown.ALWAYS),
        Field("key", "binary", "key; null without one", shown=Shown.ALWAYS),
        Field("value", "binary", "value; null of a tombstone", shown=Shown.ALWAYS),
        Field("headers", "list<struct<key:string,value:binary>>", "headers, in order",
              nullable=False),
        Field("sequence", "int32", "sequence number of the record; -1 without one",
              nullable=False, shown=Shown.WIDE),
        Field("batch", "int32", "row of the record's batch in `RecordTable.batches`",
              nullable=False, shown=Shown.WIDE),
    ),
)  # fmt: skip
"""The columns of a table of records; those of `BATCH_SCHEMA` are also columns of it."""

RECORD_COLUMN_NAMES = RECORD_SCHEMA.names
"""Columns of records. Every column of the batch table can be requested as well."""

# Stored columns that a requested column needs.
_STORED = {
    "offset": ("offset",),
    "timestamp": ("timestamp",),
    "key": ("key_position", "key_size"),
    "value": ("value_position", "value_size"),
    "headers": ("headers_position", "headers_count"),
    "sequence": ("offset",),
}
_MAX_SEQUENCE = 2**31 - 1


@dataclass(frozen=True)
class Record:
    """
    One record, its bytes copied.

    Attributes
    ----------
    offset : int or None
    timestamp : int or None
        Milliseconds since the epoch; -1 if the record has none.
    timestamp_type : TimestampType
    key, value : bytes or None
        None for a null.
    headers : list of (bytes, bytes or None)
        In order, including duplicate keys. Kafka reads the keys as UTF-8.
    sequence : int or None
        The producer's sequence number; -1 if there is none.
    batch : int
        Row of `RecordTable.batches`.

    Fields whose column was not requested are None (`headers` is an empty list). `offset` and
    `sequence` are set if one of them was requested.
    """

    offset: int | None
    timestamp: int | None
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]
    sequence: int | None
    batch: int


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
        if name not in RECORD_COLUMN_NAMES and name not in COLUMN_NAMES:
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
    with a NumPy mask or array of indices, are tables.

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
    """

    def __init__(
        self,
        batches: BatchTable,
        names: tuple[str, ...],
        columns: dict[str, NDArray[Any]],
        buffers: Buffers,
        problems: Problems = NO_PROBLEMS,
    ) -> None:
        self.batches = batches
        self.names = names
        self.columns = columns
        self._buffers = buffers
        self._problems = problems

    @property
    def schema(self) -> Schema:
        """The fields of the requested columns."""
        return RECORD_SCHEMA.with_last(BATCH_SCHEMA).select(self.names)

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
        return RecordTable(self.batches, self.names, self.columns, self._buffers, problems)

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
            return self._numbers(index)
        if isinstance(index, (slice, np.ndarray)):
            if isinstance(index, np.ndarray) and index.ndim != 1:
                raise IndexError("an index array must have one dimension")
            columns = {
                name: np.ascontiguousarray(values[index]) for name, values in self.columns.items()
            }
            return RecordTable(self.batches, self.names, columns, self._buffers, self._problems)
        try:
            return self._record(range(len(self))[index])
        except TypeError:
            raise TypeError(
                "an index must be an integer, a slice, a NumPy array or a column's name,"
                f" not {type(index).__name__}"
            ) from None
        except IndexError:
            raise IndexError(f"index {index} is out of range for {len(self)} records") from None

    def __iter__(self) -> Iterator[Record]:
        return map(self._record, range(len(self)))

    def _record(self, index: int) -> Record:
        columns = self.columns
        batch = int(columns["batch"][index])
        rows = self.batches[batch : batch + 1]
        one = self[index : index + 1]
        return Record(
            offset=int(columns["offset"][index]) if "offset" in columns else None,
            timestamp=int(columns["timestamp"][index]) if "timestamp" in columns else None,
            timestamp_type=TimestampType(int(timestamp_type(rows)[0])),
            key=self._item("key", index) if "key" in self.names else None,
            value=self._item("value", index) if "value" in self.names else None,
            headers=one._header_lists()[0] if "headers" in self.names else [],
            sequence=int(one._sequences()[0]) if "offset" in columns else None,
            batch=batch,
        )

    def _item(self, name: str, index: int) -> bytes | None:
        return self._buffers.bytes_of(
            int(self.columns["batch"][index]),
            int(self.columns[f"{name}_position"][index]),
            int(self.columns[f"{name}_size"][index]),
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
        if name in DEFAULT_RECORD_COLUMNS or name == "sequence":
            raise KeyError(f"{name!r} is not a numeric column of this table; see to_numpy()")
        stored_columns([name])  # raises, with a suggestion
        raise KeyError(name)

    def _sequences(self) -> NDArray[np.int32]:
        """Return sequence numbers as ``DefaultRecord.readFrom`` computes them, with wrap-around."""
        batch = self.columns["batch"]
        if (self.batches["base_sequence"] < 0).all():
            return np.full(len(batch), NO_SEQUENCE, np.int32)
        base = self.batches["base_sequence"][batch].astype(np.int64)
        delta = self.columns["offset"] - self.batches["base_offset"][batch]
        wrapped = delta - (_MAX_SEQUENCE - base) - 1
        # Casting to int32 wraps as Java's int arithmetic does.
        room = (_MAX_SEQUENCE - delta).astype(np.int32)
        counted = np.where(base > room, wrapped, base + delta).astype(np.int32)
        return np.where(base >= 0, counted, NO_SEQUENCE).astype(np.int32)

    def items(self, name: str) -> list[bytes | None]:
        """
        Return copies of the keys or values.

        Parameters
        ----------
        name : {"key", "value"}
            A requested column.
        """
        return self.gathered(name).to_list()

    def gathered(self, name: str) -> Gathered:
        """
        Return the keys or values, copied into one contiguous array.

        Parameters
        ----------
        name : {"key", "value"}
            A requested column.
        """
        columns = self.columns
        if f"{name}_position" not in columns:
            raise KeyError(f"{name!r} is not a requested column of keys or values")
        return self._buffers.gather(
            columns["batch"], columns[f"{name}_position"], columns[f"{name}_size"]
        )

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

    def _headers(self) -> HeadersOfRecords:
        columns = self.columns
        return HeadersOfRecords(
            self._buffers, columns["batch"], columns["headers_position"], columns["headers_count"]
        )

    def _header_lists(self) -> list[list[tuple[bytes, bytes | None]]]:
        starts, keys, values = self._headers().gather()
        items = zip(keys.to_list(), values.to_list(), strict=True)
        pairs = [(key or b"", value) for key, value in items]
        return [pairs[first:last] for first, last in itertools.pairwise(starts.tolist())]

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

    def _as_numpy(self, name: str) -> NDArray[Any]:
        if name not in ("key", "value", "headers"):
            return self._numbers(name)
        items = self._header_lists() if name == "headers" else self.gathered(name).to_list()
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

    def arrow_table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return what `to_arrow` returns, for callers that report the problems themselves."""
        names = self.names if columns is None else columns
        return require_pyarrow().table({name: self._as_arrow(name, False) for name in names})

    def _as_arrow(self, name: str, views: bool) -> pa.Array:
        if name in ("key", "value"):
            columns = self.columns
            items = columns["batch"], columns[f"{name}_position"], columns[f"{name}_size"]
            if views:
                return arrow_binary.view_column(self._buffers, *items)
            return arrow_binary.binary_column(self._buffers.gather(*items))
        if name == "headers":
            return self._arrow_headers()
        if name in COLUMN_NAMES:
            return batch_column(self.batches, name).take(plain_column(self["batch"]))
        if name == "timestamp":
            return timestamp_column(self._numbers(name))
        return plain_column(self._numbers(name))

    def _arrow_headers(self) -> pa.Array:
        starts, keys, values = self._headers().gather()
        return arrow_binary.headers_column(
            starts, arrow_binary.utf8_column(keys), arrow_binary.binary_column(values)
        )

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
