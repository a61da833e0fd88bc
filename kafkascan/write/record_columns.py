"""Columns of records to write, converted from tables, mappings, NumPy, Arrow or lists."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import record_columns as _core
from kafkascan.batches.columns import COLUMN_NAMES
from kafkascan.format.errors import UnknownColumnError
from kafkascan.format.layout import NO_TIMESTAMP
from kafkascan.format.suggestions import suggestion
from kafkascan.format.times import datetimes_to_milliseconds, to_milliseconds
from kafkascan.records.buffers import Buffers
from kafkascan.records.record_table import RECORD_COLUMN_NAMES, RecordTable
from kafkascan.tables.schema import require_pyarrow
from kafkascan.write.byte_columns import (
    Items,
    as_arrow,
    chunks_of,
    items_of_array,
    items_of_arrow,
    items_of_objects,
    join_items,
)

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("offset", "timestamp", "key", "value", "headers")
# Columns of the tables that readers return, of kafkascan and of Spark's Kafka source. They describe
# where a record was stored, not what to write.
_IGNORED_COLUMNS = frozenset(
    (*RECORD_COLUMN_NAMES, *COLUMN_NAMES, "topic", "partition", "segment", "timestampType")
)


class ArrowTable(Protocol):
    """A table that exports Arrow's stream: of pyarrow, pandas, Polars or DuckDB."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Arrow's PyCapsule stream."""


RecordInput: TypeAlias = RecordTable | Mapping[str, Any] | ArrowTable | None
"""Records as a `RecordTable`, a mapping of columns, or a table that Arrow can read."""


@dataclass(frozen=True)
class HeaderItems:
    """
    Record headers, as columns.

    Attributes
    ----------
    starts : ndarray of int64, shape (n + 1,)
        The first header of each record.
    keys, values : Items
    """

    starts: NDArray[np.int64]
    keys: Items
    values: Items

    def __len__(self) -> int:
        return len(self.starts) - 1


@dataclass(frozen=True)
class RecordColumns:
    """
    Columns of records to write.

    Attributes
    ----------
    offset, timestamp : ndarray of int64, shape (n,)
        Timestamps in milliseconds since the epoch; -1 for none.
    key, value : Items or None
        None if all are null.
    headers : HeaderItems or None
        None if no record has headers.
    buffers : Buffers or None
        The buffers of a record table, which may be a memory map whose file may shrink.
    core : Records
        The same columns for the compiled loops.
    """

    offset: NDArray[np.int64]
    timestamp: NDArray[np.int64]
    key: Items | None = None
    value: Items | None = None
    headers: HeaderItems | None = None
    buffers: Buffers | None = None
    core: _core.Records = field(init=False)

    def __post_init__(self) -> None:
        headers = self.headers
        object.__setattr__(
            self,
            "core",
            _core.Records(
                self.offset,
                self.timestamp,
                _pair(self.key),
                _pair(self.value),
                None if headers is None else headers.starts,
                None if headers is None else _pair(headers.keys),
                None if headers is None else _pair(headers.values),
                [self.key, self.value, headers, self.buffers],
                None if self.buffers is None else self.buffers.source_bytes,
            ),
        )

    def __len__(self) -> int:
        return len(self.offset)


def _pair(items: Items | None) -> tuple[NDArray[np.uintp], NDArray[np.int32]] | None:
    return None if items is None else (items.addresses, items.sizes)


def columns_of_table(table: RecordTable, offset: Any = None) -> RecordColumns:
    """
    Return the columns of a record table, without copying keys, values and headers.

    Parameters
    ----------
    table : RecordTable
        Keys, values and headers that were not read are null, timestamps are -1.
    offset : int or integers, optional
        See `build_batches`; by default the column of the table.

    Raises
    ------
    ValueError
        If there are no offsets.
    """
    count = len(table)
    offsets = table.columns.get("offset") if offset is None else _offsets(offset, count)
    if offsets is None:
        raise ValueError("the table does not have the column 'offset'; read it, or give offset=")
    timestamp = table.columns.get("timestamp")
    key, value = (
        Items(*table.addresses(name), table) if f"{name}_position" in table.columns else None
        for name in ("key", "value")
    )
    return RecordColumns(
        offsets,
        np.full(count, NO_TIMESTAMP, np.int64) if timestamp is None else timestamp,
        key,
        value,
        _headers_of_table(table) if "headers_position" in table.columns else None,
        table.buffers,
    )


def _headers_of_table(table: RecordTable) -> HeaderItems | None:
    if not table.columns["headers_count"].any():
        return None
    starts, keys, values = table.header_addresses()
    return HeaderItems(starts, Items(*keys, table), Items(*values, table))


def record_columns(
    records: RecordInput = None,
    offset: Any = None,
    timestamp: Any = None,
    key: Any = None,
    value: Any = None,
    headers: Any = None,
) -> RecordColumns:
    """
    Return a table, a mapping or columns of a caller as `RecordColumns`; see `build_batches`.

    Raises
    ------
    UnknownColumnError
        If the table or mapping has a column that is neither written nor one of a reader's.
    TypeError, ValueError
        If a column has a type or values that it cannot have, or columns differ in length.
    """
    if records is None:
        return columns_of(offset, timestamp, key, value, headers)
    if any(column is not None for column in (timestamp, key, value, headers)):
        raise ValueError("records must be given as a table or as columns, not both")
    if isinstance(records, RecordTable):
        return columns_of_table(records, offset)
    columns = _columns_by_name(records)
    return columns_of(**columns if offset is None else columns | {"offset": offset})


def _columns_by_name(table: Mapping[str, Any] | ArrowTable) -> dict[str, Any]:
    """Return the columns to write of a mapping, or of an Arrow table."""
    if isinstance(table, Mapping):
        names, index_names, columns = list(table), set(), table
    else:
        columns = _arrow_table(table)
        names, index_names = columns.column_names, _pandas_index(columns.schema)
    for name in names:
        if name not in _IGNORED_COLUMNS and name not in index_names:
            hint = suggestion(str(name), COLUMNS)
            raise UnknownColumnError(
                f"there is no record column {name!r}{hint}; the columns are {', '.join(COLUMNS)}"
            )
    return {name: columns[name] for name in COLUMNS if name in names}


def _arrow_table(table: ArrowTable) -> pa.Table:
    pa, pandas = require_pyarrow(), sys.modules.get("pandas")
    if pandas is not None and isinstance(table, pandas.DataFrame):
        return pa.Table.from_pandas(table, preserve_index=True)  # it may hold the offsets
    return pa.table(table)


def _pandas_index(schema: pa.Schema) -> set[str]:
    """Return the columns that hold the index of a pandas table, which may be unnamed."""
    metadata = schema.pandas_metadata or {}
    return {name for name in metadata.get("index_columns", ()) if isinstance(name, str)}


def columns_of(
    offset: Any = None,
    timestamp: Any = None,
    key: Any = None,
    value: Any = None,
    headers: Any = None,
) -> RecordColumns:
    """Return the columns of a caller as `RecordColumns`; see `record_columns`."""
    keys, values, pairs = _items(key), _items(value), _headers(headers)
    numbers, times = _numbers(0 if offset is None else offset, "offset"), times_of(timestamp)
    count = _common_count(
        offset=len(numbers) if numbers.ndim else None,
        timestamp=len(times) if times.ndim else None,
        key=None if keys is None else len(keys),
        value=None if values is None else len(values),
        headers=None if pairs is None else len(pairs),
    )
    return RecordColumns(
        _offsets(numbers, count),
        times if times.ndim else np.full(count, times, np.int64),
        keys,
        values,
        pairs,
    )


def _offsets(offset: Any, count: int) -> NDArray[np.int64]:
    """Return the offsets of records: those given, or consecutive ones from the given one on."""
    numbers = _numbers(offset, "offset")
    if numbers.ndim:
        _common_count(offset=len(numbers), records=count)
        return numbers
    # Past 2**63 - 1 the sum wraps to negative offsets, which are refused later.
    return np.arange(count, dtype=np.int64) + numbers


def _common_count(**counts: int | None) -> int:
    known = {name: count for name, count in counts.items() if count is not None}
    if not known:
        raise ValueError("at least one column must have one value per record")
    if len(set(known.values())) > 1:
        described = ", ".join(f"{name} {count}" for name, count in known.items())
        raise ValueError(f"columns differ in length: {described}")
    return next(iter(known.values()))


# ---- numbers -----------------------------------------------------------------------------


def _numbers(column: Any, name: str) -> NDArray[np.int64]:
    arrow = as_arrow(column)
    if arrow is not None:
        if arrow.null_count:
            raise ValueError(f"{name} contains nulls")
        column = arrow.to_numpy() if len(arrow) else []
    values = np.asarray(column)
    if values.shape == (0,):  # of any type: NumPy makes floats of an empty list
        return np.empty(0, np.int64)
    if values.dtype.kind in "Of" and _are_integers(column):
        raise ValueError(f"{name} does not fit into 64 bits")
    if values.ndim > 1 or values.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers, not {values.dtype} of shape {values.shape}")
    if values.dtype.kind == "u" and values.size and int(values.max()) > 2**63 - 1:
        raise ValueError(f"{name} exceeds 2**63 - 1")
    return values.astype(np.int64, order="C", copy=False)


def _are_integers(column: Any) -> bool:
    """Check the numbers of a caller; NumPy makes floats of integers above and below 2**63."""
    numbers = np.asarray(column, object)
    return numbers.size > 0 and all(isinstance(one, int) for one in numbers.flat)


def times_of(column: Any) -> NDArray[np.int64]:
    """Return times, in any form that `build_batches` accepts, as milliseconds; -1 for none."""
    if column is None:
        return np.array(NO_TIMESTAMP, np.int64)
    arrow = as_arrow(column)
    if arrow is not None:
        return _arrow_times(arrow)
    values = np.asarray(column)
    if values.dtype.kind in "OU":
        return _times_of_objects(values.ravel().tolist()).reshape(values.shape)
    if values.dtype.kind != "M":
        return _numbers(column, "timestamp")
    return datetimes_to_milliseconds(values, NO_TIMESTAMP, "timestamp")


def _times_of_objects(values: list[Any]) -> NDArray[np.int64]:
    times = (
        NO_TIMESTAMP if one is None else to_milliseconds(one, "timestamp", rounds_up=False)
        for one in values
    )
    return np.fromiter(times, np.int64, len(values))


def _arrow_times(column: Any) -> NDArray[np.int64]:
    import pyarrow as pa

    if not len(column):
        return np.empty(0, np.int64)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return _times_of_objects(column.to_pylist())
    if pa.types.is_timestamp(column.type):
        numbers = column.cast(pa.int64()).fill_null(np.iinfo(np.int64).min).to_numpy()
        return times_of(numbers.view(f"datetime64[{column.type.unit}]"))
    if not pa.types.is_integer(column.type):
        raise TypeError(f"timestamp must be timestamps or integers, not {column.type}")
    values = column.cast(pa.int64()).fill_null(NO_TIMESTAMP).to_numpy()
    return np.ascontiguousarray(values, np.int64)


# ---- bytes of any size -------------------------------------------------------------------


def _items(column: Any) -> Items | None:
    if column is None:
        return None
    if isinstance(column, (bytes, bytearray, memoryview, str)):
        raise TypeError(f"key and value must be columns, not one {type(column).__name__}")
    if isinstance(column, np.ndarray):
        return items_of_array(column)
    arrow = as_arrow(column)
    return items_of_objects(column) if arrow is None else items_of_arrow(arrow)


def _headers(column: Any) -> HeaderItems | None:
    if column is None:
        return None
    arrow = as_arrow(column)
    return _headers_of_lists(column) if arrow is None else _headers_of_arrow(arrow)


def _headers_of_lists(records: Iterable[Any]) -> HeaderItems:
    """Return headers given as pairs, mappings or None for each record."""
    counts: list[int] = [0]
    keys: list[Any] = []
    values: list[Any] = []
    if isinstance(records, (str, bytes)) or not isinstance(records, Iterable):
        raise TypeError(f"headers must be a column, not {type(records).__name__}")
    for row, headers in enumerate(records):
        pairs = headers.items() if isinstance(headers, Mapping) else headers or ()
        try:
            for key, value in pairs:
                keys.append(key)
                values.append(value)
        except (TypeError, ValueError):
            raise TypeError(
                f"headers of record {row} must be pairs of key and value, or a mapping, not"
                f" {headers!r:.100}"
            ) from None
        counts.append(len(keys))
    starts = np.array(counts, np.int64)
    return HeaderItems(starts, items_of_objects(keys), items_of_objects(values))


def _headers_of_arrow(column: Any) -> HeaderItems:
    """Return headers given as ``list<struct<key, value>>``, its large form, or a map."""
    parts = [_headers_of_chunk(chunk) for chunk in chunks_of(column)]
    counts = [np.diff(part.starts) for part in parts]
    starts = np.zeros(sum(map(len, counts)) + 1, np.int64)
    np.cumsum(np.concatenate([*counts, np.empty(0, np.int64)]), out=starts[1:])
    return HeaderItems(
        starts,
        join_items([part.keys for part in parts]),
        join_items([part.values for part in parts]),
    )


def _headers_of_chunk(chunk: Any) -> HeaderItems:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_null(chunk.type):
        empty = items_of_objects([])
        return HeaderItems(np.zeros(len(chunk) + 1, np.int64), empty, empty)
    if pa.types.is_map(chunk.type):
        chunk = chunk.cast(pa.list_(pa.struct([chunk.type.key_field, chunk.type.item_field])))
    is_list = pa.types.is_list(chunk.type) or pa.types.is_large_list(chunk.type)
    if is_list and pa.types.is_null(chunk.type.value_type) and not len(chunk.flatten()):
        return _headers_of_chunk(pa.nulls(len(chunk)))  # as pandas exports empty lists
    if not is_list or not pa.types.is_struct(chunk.type.value_type):
        raise TypeError(f"headers must be lists of structs, not {chunk.type}")
    if chunk.type.value_type.num_fields != 2:
        raise TypeError(f"headers must have a key and a value, not {chunk.type.value_type}")
    starts = np.zeros(len(chunk) + 1, np.int64)
    np.cumsum(pc.list_value_length(chunk).fill_null(0).to_numpy(), out=starts[1:])
    keys, values = chunk.flatten().flatten()
    return HeaderItems(starts, items_of_arrow(keys), items_of_arrow(values))
