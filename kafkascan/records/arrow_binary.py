"""Convert keys, values and headers to Arrow arrays of bytes, copied or as views."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import items as _core
from kafkascan.batches.arrow import require_pyarrow
from kafkascan.records.buffers import Buffers, Gathered

if TYPE_CHECKING:
    import pyarrow as pa

_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")

_LARGEST_BINARY = 2**31 - 1
# Positions in a binary_view have 31 bits. Larger buffers are exported as several that start
# every 2**30 bytes and overlap, so that every item is complete in the one that it starts in.
_WINDOW_BITS = 30
_WINDOW_SIZE = (1 << _WINDOW_BITS) + (1 << 31)


def binary_column(items: Gathered) -> pa.Array:
    """Return items as ``binary``, or as ``large_binary`` above 2 GiB."""
    pa = require_pyarrow()
    is_large = len(items.data) > _LARGEST_BINARY
    kind, width = (pa.large_binary(), np.int64) if is_large else (pa.binary(), np.int32)
    starts = pa.py_buffer(items.starts.astype(width, copy=False))
    return pa.Array.from_buffers(
        kind, len(items.is_null), [_validity(items.is_null), starts, pa.py_buffer(items.data)]
    )


def utf8_column(items: Gathered) -> pa.Array:
    """Return items as ``string``; invalid UTF-8 is replaced as Java does."""
    pa = require_pyarrow()
    raw = binary_column(items)
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if item is None else java_string(item) for item in items.to_list()]
        return pa.array(texts, pa.string())


def java_string(item: bytes) -> str:
    """Decode UTF-8 as Java does: an encoded surrogate gives one replacement character."""
    return _SURROGATE.sub(b"\xff", item).decode("utf-8", "replace")


def headers_column(starts: NDArray[np.int64], keys: pa.Array, values: pa.Array) -> pa.Array:
    """Return headers as ``list<struct<key, value>>``, or as ``large_list`` above 2**31 - 1."""
    pa = require_pyarrow()
    pairs = pa.StructArray.from_arrays([keys, values], ["key", "value"])
    if starts[-1] > _LARGEST_BINARY:
        return pa.LargeListArray.from_arrays(pa.array(starts), pairs)
    return pa.ListArray.from_arrays(pa.array(starts.astype(np.int32)), pairs)


def view_column(
    buffers: Buffers,
    batch: NDArray[np.int32],
    position: NDArray[np.int64],
    size: NDArray[np.int32],
) -> pa.Array:
    """Return items as ``binary_view`` into the buffers, without copying them."""
    pa = require_pyarrow()
    windows: list[object] = []
    arrays = buffers.lend()
    first_window = np.empty(len(arrays), np.int32)
    for number, array in enumerate(arrays):
        first_window[number] = len(windows)
        windows += [
            pa.py_buffer(array[start : start + _WINDOW_SIZE])
            for start in range(0, len(array), 1 << _WINDOW_BITS)
        ]
    views = np.empty((len(size), 16), np.uint8)
    buffers.require_done(
        _core.views_into(
            buffers.addresses, buffers.sizes, buffers.of_batch,
            batch, position, size, first_window, _WINDOW_BITS, views,
        )
    )  # fmt: skip
    validity = _validity(size < 0)
    return pa.Array.from_buffers(
        pa.binary_view(), len(size), [validity, pa.py_buffer(views), *windows]
    )


def _validity(is_null: NDArray[np.bool_]) -> pa.Buffer | None:
    if not is_null.any():
        return None
    return require_pyarrow().py_buffer(np.packbits(~is_null, bitorder="little"))
