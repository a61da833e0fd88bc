"""Records in columns: where their keys, values and headers lie, and ways out of the house."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from kafkascan import arrow
from kafkascan.batch_columns import COLUMN_NAMES, BatchTable, as_datetime64, column, timestamp_type
from kafkascan.columns import Buffers, Gathered, find_headers
from kafkascan.layout import NO_SEQUENCE, TimestampType

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

DEFAULT_RECORD_COLUMNS = ("offset", "timestamp", "key", "value", "headers")
RECORD_COLUMN_NAMES = (*DEFAULT_RECORD_COLUMNS, "sequence", "batch")
"""Columns of records. Besides them, every column of the batch table can be asked for."""

# What is decoded for a column.
_STORED = {
    "offset": ("offset",),
    "timestamp": ("timestamp",),
    "key": ("key_position", "key_size"),
    "value": ("value_position", "value_size"),
    "headers": ("headers_position", "headers_count"),
    "sequence": ("offset",),
}
_MAX_SEQUENCE = 2**31 - 1

Located: TypeAlias = "tuple[NDArray[np.uintp], NDArray[np.int32]]"


@dataclass(frozen=True)
class Record:
    """
    One record, its bytes copied.

    Attributes
    ----------
    offset : int or None
    timestamp : int or None
        Milliseconds since the epoch; -1 where the record has none.
    timestamp_type : TimestampType
    key, value : bytes or None
        None for a null.
    headers : list of (bytes, bytes or None)
        In order, duplicate keys kept. Kafka reads the keys as UTF-8.
    sequence : int or None
        Of the producer; -1 where there is none.
    batch : int
        Row of `RecordTable.batches`.

    Fields whose column was not asked for are None (`headers` an empty list); `offset` and
    `sequence` are there if one of them was asked for.
    """

    offset: int | None
    timestamp: int | None
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]
    sequence: int | None
    batch: int


def stored_columns(names: Sequence[str]) -> list[str]:
    """
    Return what has to be decoded for some columns.

    Raises
    ------
    ValueError
        If there is no such column; the message proposes one.
    """
    if not names:
        raise ValueError("no column is asked for")
    stored = ["batch"]
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"a column's name is a str, not {type(name).__name__}")
        if name not in RECORD_COLUMN_NAMES and name not in COLUMN_NAMES:
            known = [*RECORD_COLUMN_NAMES, *COLUMN_NAMES]
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise ValueError(f"there is no record column {name!r}{hint}")
        stored += [part for part in _STORED.get(name, ()) if part not in stored]
    return stored


class RecordTable:
    """
    Records of some batches, in columns; what `read_records` returns.

    Keys, values and headers are positions into buffers: the source itself where batches are
    not compressed, so nothing of it is copied until it is asked for. The source must stay
    open as long as the table is used. pyarrow, Polars and DuckDB take the object as it is,
    through Arrow's stream capsule. ``table[i]`` is a `Record`; ``table[a:b]``, and ``table[mask]``
    with a mask or indices of NumPy, are tables.

    Attributes
    ----------
    batches : ndarray of BATCH_DTYPE
        The batches that were read.
    names : tuple of str
        The columns that were asked for.
    columns : dict of ndarray, each of shape (n,)
        What was decoded: ``batch`` (int32, row of `batches`), and as far as `names` needs
        them ``offset``, ``timestamp`` (int64), ``key_position``, ``value_position``,
        ``headers_position`` (int64), ``key_size``, ``value_size`` (int32, in bytes, -1 for
        a null), ``headers_count`` (int32). Positions count in the buffer of the batch.
    """

    def __init__(
        self,
        batches: BatchTable,
        names: tuple[str, ...],
        columns: dict[str, NDArray[Any]],
        buffers: Buffers,
    ) -> None:
        self.batches = batches
        self.names = names
        self.columns = columns
        self._buffers = buffers

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
                raise IndexError("an array that selects records must have one dimension")
            columns = {
                name: np.ascontiguousarray(values[index]) for name, values in self.columns.items()
            }
            return RecordTable(self.batches, self.names, columns, self._buffers)
        try:
            return self._record(range(len(self))[index])
        except TypeError:
            raise TypeError(
                "an index must be an integer, a slice, a NumPy array or a column's name,"
                f" not {type(index).__name__}"
            ) from None
        except IndexError:
            raise IndexError(f"there are {len(self)} records, and none at {index}") from None

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
        """Return a column that is one number for each record."""
        if name in self.columns:
            return self.columns[name]
        if name == "sequence" and "offset" in self.columns:
            return self._sequences()
        if name in COLUMN_NAMES:
            values = column(self.batches, name)
            taken: NDArray[Any] = values[self.columns["batch"]]
            return taken
        if name in DEFAULT_RECORD_COLUMNS or name == "sequence":
            raise KeyError(f"{name!r} is no column of numbers that was read; see to_numpy()")
        stored_columns([name])  # names what might have been meant
        raise KeyError(name)

    def _sequences(self) -> NDArray[np.int32]:
        """Kafka's ``DefaultRecord.readFrom``: the base sequence, counted on, with wrap."""
        batch = self.columns["batch"]
        base = self.batches["base_sequence"][batch].astype(np.int64)
        delta = self.columns["offset"] - self.batches["base_offset"][batch]
        wrapped = delta - (_MAX_SEQUENCE - base) - 1
        # Java's int arithmetic: casting to int32 wraps as it does there.
        room = (_MAX_SEQUENCE - delta).astype(np.int32)
        counted = np.where(base > room, wrapped, base + delta).astype(np.int32)
        return np.where(base >= 0, counted, NO_SEQUENCE).astype(np.int32)

    def items(self, name: str) -> list[bytes | None]:
        """
        Return keys or values, copied.

        Parameters
        ----------
        name : {"key", "value"}
            A column that was asked for.
        """
        return self.gathered(name).to_list()

    def gathered(self, name: str) -> Gathered:
        """
        Return keys or values, copied one behind the other.

        Parameters
        ----------
        name : {"key", "value"}
            A column that was asked for.
        """
        columns = self.columns
        return self._buffers.gather(
            columns["batch"], columns[f"{name}_position"], columns[f"{name}_size"]
        )

    @property
    def buffers(self) -> Buffers:
        """What positions point into."""
        return self._buffers

    def addresses(self, name: str) -> tuple[NDArray[np.uintp], NDArray[np.int32]]:
        """
        Find where keys or values lie in memory, as long as the table lives.

        Parameters
        ----------
        name : {"key", "value"}
            A column that was asked for.

        Returns
        -------
        addresses : ndarray of uintp, shape (n,)
        sizes : ndarray of int32, shape (n,)
            In bytes; -1 for a null.
        """
        columns = self.columns
        # A copy: an address is good for this size only, whatever becomes of the column.
        size = columns[f"{name}_size"].copy()
        found = self._buffers.addresses_of(columns["batch"], columns[f"{name}_position"], size)
        return found, size

    def header_addresses(self) -> tuple[NDArray[np.int64], Located, Located]:
        """
        Find where the headers lie in memory, as long as the table lives.

        Returns
        -------
        record_starts : ndarray of int64, shape (n + 1,)
            The first header of each record.
        keys, values : (ndarray of uintp, ndarray of int32)
            As of `addresses`.
        """
        found = self._found_headers()
        find = self._buffers.addresses_of
        return (
            found.record_starts,
            (find(found.batch, found.key_position, found.key_size), found.key_size),
            (find(found.batch, found.value_position, found.value_size), found.value_size),
        )

    def _found_headers(self) -> Any:
        columns = self.columns
        return find_headers(
            self._buffers, columns["batch"], columns["headers_position"], columns["headers_count"]
        )

    def _header_lists(self) -> list[list[tuple[bytes, bytes | None]]]:
        found, buffers = self._found_headers(), self._buffers
        keys = buffers.gather(found.batch, found.key_position, found.key_size).to_list()
        values = buffers.gather(found.batch, found.value_position, found.value_size).to_list()
        pairs = [(key or b"", value) for key, value in zip(keys, values, strict=True)]
        starts = found.record_starts.tolist()
        return [pairs[first:last] for first, last in itertools.pairwise(starts)]

    def to_numpy(self) -> dict[str, NDArray[Any]]:
        """
        Return the columns that were asked for as arrays.

        Returns
        -------
        dict of ndarray, each of shape (n,)
            Numbers as they are (timestamps in milliseconds, see `timestamps`); keys and
            values as objects, ``bytes`` or None; headers as lists of pairs.
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
        """`timestamp` as datetime64[ms], UTC; NaT where there is none."""
        return as_datetime64(self._numbers("timestamp"))

    def to_arrow(self, *, columns: Sequence[str] | None = None, views: bool = False) -> pa.Table:
        """
        Return the columns that were asked for as Arrow's.

        Timestamps become ``timestamp[ms, tz=UTC]``, null where Kafka says -1; keys and
        values ``binary`` (``large_binary`` beyond 2 GiB); headers
        ``list<struct<key: string, value: binary>>``, invalid UTF-8 in keys replaced as
        Kafka does.

        Parameters
        ----------
        columns : sequence of str, optional
            Of those that were asked for; all of them by default.
        views : bool, default False
            Keys and values as ``binary_view``: nothing is copied; the views point into the
            source's memory. Touching them after a mapped file was truncated kills the
            process, as with any map.

        Returns
        -------
        pyarrow.Table
        """
        pa = arrow.require_pyarrow()
        names = self.names if columns is None else columns
        return pa.table({name: self._as_arrow(name, views) for name in names})

    def _as_arrow(self, name: str, views: bool) -> pa.Array:
        if name in ("key", "value"):
            columns = self.columns
            items = columns["batch"], columns[f"{name}_position"], columns[f"{name}_size"]
            if views:
                return arrow.view_column(self._buffers, *items)
            return arrow.binary_column(self._buffers.gather(*items))
        if name == "headers":
            return self._arrow_headers()
        if name in COLUMN_NAMES:
            return arrow.batch_column(self.batches, name).take(arrow.plain_column(self["batch"]))
        if name == "timestamp":
            return arrow.timestamp_column(self._numbers(name))
        return arrow.plain_column(self._numbers(name))

    def _arrow_headers(self) -> pa.Array:
        found, buffers = self._found_headers(), self._buffers
        keys = buffers.gather(found.batch, found.key_position, found.key_size)
        values = buffers.gather(found.batch, found.value_position, found.value_size)
        return arrow.headers_column(
            found.record_starts, arrow.utf8_column(keys), arrow.binary_column(values)
        )

    def to_pandas(self) -> pd.DataFrame:
        """Return the columns that were asked for as a DataFrame, with `to_arrow`'s types."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """Return the columns that were asked for as Polars' DataFrame."""
        import polars

        frame = polars.from_arrow(self.to_arrow())
        assert isinstance(frame, polars.DataFrame)
        return frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Arrow's PyCapsule stream of `to_arrow`."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        lines = [f"<RecordTable: {len(self):,} records of {len(self.batches):,} batches>"]
        lines.append(f"  columns  {', '.join(self.names)}")
        if len(self) and "offset" in self.columns:
            offsets = self.columns["offset"]
            lines.append(f"  offsets  {offsets.min()} to {offsets.max()}")
        if len(self) and "timestamp" in self.columns:
            times = self.timestamps[~np.isnat(self.timestamps)]
            if len(times):
                lines.append(f"  times    {times.min()} to {times.max()}")
        return "\n".join(lines)
