"""Byte columns as pointers and sizes, input of the batch encoder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import record_columns as _core
from kafkascan.io import result_memory
from kafkascan.tables.schema import require_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

LARGEST_ITEM = 2**31 - 1
Addresses = NDArray[np.uintp]
Sizes = NDArray[np.int32]
_VIEW = np.dtype([("size", "<i4"), ("prefix", "V4"), ("buffer", "<i4"), ("offset", "<i4")])
_LARGEST_INLINE = 12


@dataclass(frozen=True)
class Items:
    """
    A column of byte strings in memory.

    Attributes
    ----------
    addresses : ndarray of uintp, shape (n,)
    sizes : ndarray of int32, shape (n,)
        In bytes; -1 for null.
    owner : object
        Keeps the memory alive.
    """

    addresses: Addresses
    sizes: Sizes
    owner: object

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, which: slice) -> Items:
        return Items(self.addresses[which], self.sizes[which], self.owner)


def join_items(parts: Sequence[Items]) -> Items:
    """Concatenate columns."""
    if len(parts) == 1:
        return parts[0]
    return Items(
        result_memory.concatenate([part.addresses for part in parts] or [np.empty(0, np.uintp)]),
        result_memory.concatenate([part.sizes for part in parts] or [np.empty(0, np.int32)]),
        [part.owner for part in parts],
    )


def nulls(count: int) -> Items:
    """Return a column of nulls."""
    return Items(np.zeros(count, np.uintp), np.full(count, -1, np.int32), None)


def items_of_objects(objects: Iterable[Any]) -> Items:
    """
    Return ``bytes``, other bytes-like objects, ``str`` (as UTF-8) and None as a column.

    Raises
    ------
    TypeError
        If an object has another type.
    ValueError
        If an item exceeds 2**31 - 1 bytes.
    """
    kept = list(objects)
    addresses = result_memory.empty(len(kept), np.uintp)
    sizes = result_memory.empty(len(kept), np.int32)
    while (odd := _core.addresses_of_bytes(kept, addresses, sizes)) < len(kept):
        _make_bytes(kept, odd)
    return Items(addresses, sizes, kept)


def _make_bytes(kept: list[Any], first: int) -> None:
    """Convert str and bytes-like items to bytes, starting at an index."""
    for index in range(first, len(kept)):
        item = kept[index]
        if isinstance(item, str):
            item = item.encode()
        elif item is not None:
            try:
                item = bytes(memoryview(item))
            except TypeError:
                kind = type(item).__name__
                raise TypeError(f"item {index} must be bytes, str or None, not {kind}") from None
        if item is not None and len(item) > LARGEST_ITEM:
            raise ValueError(f"item {index} has more than {LARGEST_ITEM} bytes")
        kept[index] = item


def items_of_array(array: NDArray[Any]) -> Items:
    """
    Return a NumPy array as a column.

    Parameters
    ----------
    array : ndarray
        Shape (n,) and dtype object, ``S`` (which drops trailing zeros), ``V`` or ``U``; or shape
        (n, size) and dtype uint8.
    """
    if array.ndim == 2 and array.dtype == np.uint8:
        return _items_of_rows(array)
    if array.ndim != 1:
        raise TypeError(f"shape {array.shape} of {array.dtype} is not a column of items")
    if array.dtype.kind == "S":
        return _items_of_rows(_as_rows(array), np.char.str_len(array))
    if array.dtype.kind == "V":
        return _items_of_rows(_as_rows(array))
    if array.dtype.kind not in "OUT":
        raise TypeError(f"an array of {array.dtype} is not a column of items")
    return items_of_objects(array.tolist())


def _as_rows(array: NDArray[Any]) -> NDArray[np.uint8]:
    rows = np.ascontiguousarray(array)
    return rows.view(np.uint8).reshape(len(rows), array.dtype.itemsize)


def _items_of_rows(rows: NDArray[np.uint8], sizes: NDArray[Any] | None = None) -> Items:
    rows = np.ascontiguousarray(rows)
    count, width = rows.shape
    if width > LARGEST_ITEM:
        raise ValueError(f"items have more than {LARGEST_ITEM} bytes")
    start = int(rows.__array_interface__["data"][0])
    addresses = (start + width * np.arange(count, dtype=np.int64)).astype(np.uintp)
    sizes = np.full(count, width, np.int32) if sizes is None else sizes.astype(np.int32)
    return Items(addresses, sizes, rows)


# ---- Arrow, without copying: needs pyarrow ---------------------------------------------------


def as_arrow(column: Any) -> pa.Array | pa.ChunkedArray | None:
    """Return an object as an Arrow array; None if it does not export one."""
    if not hasattr(column, "__arrow_c_array__") and not hasattr(column, "__arrow_c_stream__"):
        return None
    pa = require_pyarrow()
    if isinstance(column, (pa.Array, pa.ChunkedArray)):
        return column
    if hasattr(column, "__arrow_c_stream__"):
        return pa.chunked_array(column)
    return pa.array(column)


def chunks_of(column: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    """Return the arrays of a column."""
    return getattr(column, "chunks", [column])


def items_of_arrow(column: pa.Array | pa.ChunkedArray) -> Items:
    """
    Return an Arrow column as `Items`.

    Parameters
    ----------
    column : pyarrow.Array or pyarrow.ChunkedArray
        Of ``binary``, ``string``, their large and view forms, ``fixed_size_binary``, a
        dictionary of one of them, or ``null``.

    Raises
    ------
    TypeError
        If the column has another type.
    ValueError
        If an item exceeds 2**31 - 1 bytes, or the column is invalid.
    """
    return join_items([_items_of_chunk(chunk) for chunk in chunks_of(column)])


def _items_of_chunk(chunk: pa.Array) -> Items:
    types, kind = require_pyarrow().types, chunk.type
    if types.is_dictionary(kind):
        return _items_of_dictionary(chunk)
    if types.is_null(kind) or not len(chunk):
        items = nulls(len(chunk))
    elif types.is_binary(kind) or types.is_string(kind):
        items = _items_of_offsets(chunk, np.int32)
    elif types.is_large_binary(kind) or types.is_large_string(kind):
        items = _items_of_offsets(chunk, np.int64)
    elif types.is_fixed_size_binary(kind):
        items = _items_of_fixed(chunk)
    elif str(kind) in ("binary_view", "string_view"):
        items = _items_of_views(chunk)
    else:
        raise TypeError(f"an Arrow array of {kind} is not a column of items")
    if chunk.null_count:
        items.sizes[chunk.is_null().to_numpy(zero_copy_only=False)] = -1
    return items


def _items_of_offsets(chunk: pa.Array, width: type[np.signedinteger[Any]]) -> Items:
    _, offsets, data = chunk.buffers()
    count = len(chunk)
    ends = np.frombuffer(offsets, width, count + 1, chunk.offset * np.dtype(width).itemsize)
    start, size = (0, 0) if data is None else (data.address, data.size)
    addresses = result_memory.empty(count, np.uintp)
    sizes = result_memory.empty(count, np.int32)
    is_sound = _core.addresses_of_offsets(ends, start, size, addresses, sizes)
    _require(is_sound, "offsets are invalid, or an item is too large")
    return Items(addresses, sizes, chunk)


def _items_of_fixed(chunk: pa.Array) -> Items:
    _, data = chunk.buffers()
    width, count = chunk.type.byte_width, len(chunk)
    _require((chunk.offset + count) * width <= (data.size if data else 0), "the data is truncated")
    starts = width * (chunk.offset + np.arange(count, dtype=np.int64))
    return _items(starts + (data.address if data else 0), np.full(count, width), chunk)


def _items_of_views(chunk: pa.Array) -> Items:
    _, buffer, *variadic = chunk.buffers()
    views = np.frombuffer(buffer, _VIEW, len(chunk), chunk.offset * _VIEW.itemsize)
    sizes = views["size"].astype(np.int64)
    if chunk.null_count:
        sizes[chunk.is_null().to_numpy(zero_copy_only=False)] = 0
    first = buffer.address + chunk.offset * _VIEW.itemsize
    starts = first + 4 + _VIEW.itemsize * np.arange(len(chunk), dtype=np.int64)
    far = np.flatnonzero(sizes > _LARGEST_INLINE)
    if len(far):
        which, at = views["buffer"][far].astype(np.int64), views["offset"][far].astype(np.int64)
        _require(
            bool((which >= 0).all() and (which < len(variadic)).all()),
            "a buffer index is out of range",
        )
        room = np.array([data.size for data in variadic], np.int64)[which]
        _require(bool((at >= 0).all() and (at + sizes[far] <= room).all()), "the data is truncated")
        starts[far] = np.array([data.address for data in variadic], np.int64)[which] + at
    _require(bool((sizes >= 0).all()), "a view has a negative size")
    return _items(starts, sizes, chunk)


def _items_of_dictionary(chunk: pa.Array) -> Items:
    values = _items_of_chunk(chunk.dictionary)
    indices = chunk.indices.fill_null(0).to_numpy(zero_copy_only=False)
    if len(values) == 0:
        return nulls(len(chunk))
    items = Items(values.addresses[indices], values.sizes[indices], values.owner)
    if chunk.indices.null_count:
        items.sizes[chunk.indices.is_null().to_numpy(zero_copy_only=False)] = -1
    return items


def _items(starts: NDArray[np.int64], sizes: NDArray[Any], owner: object) -> Items:
    _require(not len(sizes) or int(sizes.max()) <= LARGEST_ITEM, "an item is too large")
    return Items(starts.astype(np.uintp), sizes.astype(np.int32), owner)


def _require(is_valid: bool, reason: str) -> None:
    if not is_valid:
        raise ValueError(f"the Arrow column cannot be read: {reason}")
