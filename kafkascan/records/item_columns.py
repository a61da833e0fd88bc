"""Keys, values and headers of records as Arrow columns, and the walks over their headers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import items as _core
from kafkascan._core.record_headers import HeaderWalk
from kafkascan.format.errors import STATUS
from kafkascan.format.texts import java_string
from kafkascan.io import result_memory
from kafkascan.io.worker_threads import ChunkSizer
from kafkascan.records.buffers import Buffers, Gathered, Starts, starts_of_items
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


# Headers that are read at first before signals are handled.
_FIRST_HEADERS = 1 << 12

Outcome: TypeAlias = "tuple[int, int]"
Located: TypeAlias = "tuple[NDArray[np.uintp], NDArray[np.int32]]"


@dataclass(frozen=True)
class HeadersOfRecords:
    """
    Location of the headers of records: columns of a table.

    A batch of 256 MiB can contain 134 million headers. So nothing is allocated for each of them but
    the result.

    Attributes
    ----------
    buffers : Buffers
    batch, position, count : ndarrays of int32, int64 and int32, shape (records,)
    """

    buffers: Buffers
    batch: NDArray[np.int32]
    position: NDArray[np.int64]
    count: NDArray[np.int32]

    def gather(self) -> tuple[Starts, Gathered, Gathered]:
        """
        Copy keys and values, each into one contiguous array.

        The first walk counts bytes, the second one copies them. A header takes 8 bytes besides
        those of its key and value, and 1 if there are null values; 4 more for a total of keys or
        values above 2 GiB.

        Returns
        -------
        record_starts : ndarray of int32 or int64, shape (records + 1,)
            The first header of each record, and the number of all headers.
        keys, values : Gathered
        """
        if not self.count.any():
            nothing = Gathered(np.empty(0, np.uint8), starts_of_items(0, 0), None)
            return np.zeros(len(self.count) + 1, np.int32), nothing, nothing
        record_starts, measured, walk = self._record_starts(), self._walk(), self._walk()
        self._run(measured, measured.measure)
        count = measured.done
        if count != record_starts[-1]:  # another thread changes the columns
            self.buffers.require_done((STATUS["ROW_MISMATCH"], 0))
        keys, values = (
            result_memory.empty(size, np.uint8)
            for size in (measured.key_bytes, measured.value_bytes)
        )
        key_starts, value_starts = (starts_of_items(count, len(data)) for data in (keys, values))
        is_null = result_memory.empty(count, np.bool_) if measured.nulls else None

        def copy(most: int) -> Outcome:
            return walk.copy(
                most, _as_bytes(key_starts), keys, _as_bytes(value_starts), values,
                None if is_null is None else is_null.view(np.uint8),
            )  # fmt: skip

        self._run(walk, copy)
        return (
            record_starts,
            Gathered(keys, key_starts, None),
            Gathered(values, value_starts, is_null),
        )

    def locate(self) -> tuple[NDArray[np.int64], Located, Located]:
        """
        Find the addresses of keys and values; they are valid while the buffers exist.

        Returns
        -------
        record_starts : ndarray of int64, shape (records + 1,)
            See `gather`.
        keys, values : (ndarray of uintp, ndarray of int32)
            Addresses and sizes; the address of an item without bytes is 0, the size of a null -1.
        """
        record_starts, walk = self._record_starts(), self._walk()
        count = int(record_starts[-1])
        keys, values = (
            (result_memory.empty(count, np.uintp), result_memory.empty(count, np.int32))
            for _ in range(2)
        )
        self._run(walk, lambda most: walk.locate(most, *keys, *values))
        return record_starts, keys, values

    def _record_starts(self) -> NDArray[np.int64]:
        starts = result_memory.empty(len(self.count) + 1, np.int64)
        starts[0] = 0
        np.cumsum(self.count, out=starts[1:])
        return starts

    def _walk(self) -> HeaderWalk:
        buffers = self.buffers
        return HeaderWalk(
            buffers.addresses, buffers.sizes, buffers.of_batch,
            self.batch, self.position, self.count,
        )  # fmt: skip

    def _run(self, walk: HeaderWalk, step: Callable[[int], Outcome]) -> None:
        pace = ChunkSizer(_FIRST_HEADERS)
        while not walk.is_finished:
            self.buffers.require_done(step(pace.next_size()))


def _as_bytes(numbers: NDArray[Any]) -> NDArray[np.uint8]:
    return numbers.view(np.uint8).reshape(len(numbers), numbers.itemsize)
