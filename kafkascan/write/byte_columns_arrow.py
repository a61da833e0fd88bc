"""Arrow columns of bytes as pointers and sizes, without copying them. Needs pyarrow."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import record_columns as _core
from kafkascan.io import result_memory
from kafkascan.tables.schema import require_pyarrow
from kafkascan.write.byte_columns import LARGEST_ITEM, Items, join_items, nulls

if TYPE_CHECKING:
    import pyarrow as pa

_VIEW = np.dtype([("size", "<i4"), ("prefix", "V4"), ("buffer", "<i4"), ("offset", "<i4")])
_LARGEST_INLINE = 12


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
    types = require_pyarrow().types
    kind = chunk.type
    if types.is_dictionary(kind):
        return _items_of_dictionary(chunk)
    for is_kind, read in _readers(types):
        if is_kind(kind):
            items = read(chunk)
            if chunk.null_count:
                items.sizes[chunk.is_null().to_numpy(zero_copy_only=False)] = -1
            return items
    raise TypeError(f"an Arrow array of {kind} is not a column of items")


def _readers(types: Any) -> list[tuple[Callable[[Any], bool], Callable[[Any], Items]]]:
    return [
        (types.is_null, lambda chunk: nulls(len(chunk))),
        (lambda kind: types.is_binary(kind) or types.is_string(kind), _offsets_of(np.int32)),
        (
            lambda kind: types.is_large_binary(kind) or types.is_large_string(kind),
            _offsets_of(np.int64),
        ),
        (types.is_fixed_size_binary, _items_of_fixed),
        (
            lambda kind: str(kind) in ("binary_view", "string_view"),
            _items_of_views,
        ),
    ]


def _offsets_of(width: type[np.signedinteger[Any]]) -> Callable[[pa.Array], Items]:
    def read(chunk: pa.Array) -> Items:
        _, offsets, data = chunk.buffers()
        count = len(chunk)
        if count == 0:
            return nulls(0)
        skipped = chunk.offset * np.dtype(width).itemsize
        ends = np.frombuffer(offsets, width, count + 1, skipped)
        start, size = (0, 0) if data is None else (data.address, data.size)
        addresses = result_memory.empty(count, np.uintp)
        sizes = result_memory.empty(count, np.int32)
        is_sound = _core.addresses_of_offsets(ends, start, size, addresses, sizes)
        _require(is_sound, "offsets are invalid, or an item is too large")
        return Items(addresses, sizes, chunk)

    return read


def _items_of_fixed(chunk: pa.Array) -> Items:
    _, data = chunk.buffers()
    width, count = chunk.type.byte_width, len(chunk)
    _require((chunk.offset + count) * width <= (data.size if data else 0), "the data is truncated")
    starts = width * (chunk.offset + np.arange(count, dtype=np.int64))
    return _items(starts + (data.address if data else 0), np.full(count, width), chunk)


def _items_of_views(chunk: pa.Array) -> Items:
    _, buffer, *variadic = chunk.buffers()
    if len(chunk) == 0:
        return nulls(0)
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
