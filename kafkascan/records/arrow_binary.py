"""Convert keys, values and headers to Arrow arrays of bytes, copied or as views."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import items as _core
from kafkascan.format.texts import java_string
from kafkascan.io import result_memory
from kafkascan.records.buffers import Buffers, Gathered, Starts
from kafkascan.tables.schema import require_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

_LARGEST_BINARY = 2**31 - 1
# Items that are Python objects at a time.
_REPLACED = 1 << 16
# Positions in a binary_view have 31 bits. Larger buffers are exported as several that start
# every 2**30 bytes and overlap, so that every item is complete in the one that it starts in.
_WINDOW_BITS = 30
_WINDOW_SIZE = (1 << _WINDOW_BITS) + (1 << 31)


def binary_column(items: Gathered) -> pa.Array:
    """Return items as ``binary``, or as ``large_binary`` above 2 GiB."""
    pa = require_pyarrow()
    return _column(items, pa.binary(), pa.large_binary())


def utf8_column(items: Gathered) -> pa.Array:
    """Return items as ``string``, or ``large_string``; invalid UTF-8 is replaced as Java does."""
    pa = require_pyarrow()
    texts = _column(items, pa.string(), pa.large_string())
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return _replaced_utf8(binary_column(items))
    return texts


def _column(items: Gathered, small: pa.DataType, large: pa.DataType) -> pa.Array:
    pa = require_pyarrow()
    is_large = len(items.data) > _LARGEST_BINARY
    starts = pa.py_buffer(items.starts.astype(np.int64 if is_large else np.int32, copy=False))
    buffers = [_validity(items.is_null), starts, pa.py_buffer(items.data)]
    return pa.Array.from_buffers(large if is_large else small, len(items), buffers)


def _replaced_utf8(raw: pa.Array) -> pa.Array:
    """Replace invalid UTF-8; Python objects exist only for a bounded number of items."""
    pa = require_pyarrow()
    pieces = [
        pa.array([None if item is None else java_string(item) for item in some], pa.string())
        for some in (raw[at : at + _REPLACED].to_pylist() for at in range(0, len(raw), _REPLACED))
    ]
    if sum(piece.nbytes for piece in pieces) > _LARGEST_BINARY:
        pieces = [piece.cast(pa.large_string()) for piece in pieces]
    return pa.concat_arrays(pieces)


def headers_column(starts: Starts, keys: pa.Array, values: pa.Array) -> pa.Array:
    """Return headers as ``list<struct<key, value>>``, or as ``large_list`` above 2**31 - 1."""
    pa = require_pyarrow()
    pairs = pa.StructArray.from_arrays([keys, values], ["key", "value"])
    if starts[-1] > _LARGEST_BINARY:
        return pa.LargeListArray.from_arrays(pa.array(starts), pairs)
    return pa.ListArray.from_arrays(pa.array(starts.astype(np.int32, copy=False)), pairs)


def view_column(
    buffers: Buffers,
    batch: NDArray[np.int32],
    position: NDArray[np.int64],
    size: NDArray[np.int32],
) -> pa.Array:
    """Return items as ``binary_view`` into the buffers, without copying them."""
    pa = require_pyarrow()
    windows: list[object] = []
    first_window = np.empty(len(buffers.arrays), np.int32)
    for number, array in enumerate(buffers.arrays):
        first_window[number] = len(windows)
        windows += [
            pa.py_buffer(array[start : start + _WINDOW_SIZE])
            for start in range(0, len(array), 1 << _WINDOW_BITS)
        ]
    views = result_memory.empty(16 * len(size), np.uint8).reshape(-1, 16)
    buffers.require_done(
        _core.views_into(
            buffers.addresses, buffers.sizes, buffers.of_batch,
            batch, position, size, first_window, _WINDOW_BITS, views,
        )
    )  # fmt: skip
    is_null = size < 0
    validity = _validity(is_null if is_null.any() else None)
    return pa.Array.from_buffers(
        pa.binary_view(), len(size), [validity, pa.py_buffer(views), *windows]
    )


def _validity(is_null: NDArray[np.bool_] | None) -> pa.Buffer | None:
    if is_null is None:
        return None
    return require_pyarrow().py_buffer(~np.packbits(is_null, bitorder="little"))
