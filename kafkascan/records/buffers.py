"""Buffers that hold record bytes, and columns of keys, values and headers in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import items as _core
from kafkascan.format.errors import STATUS, BatchTableError
from kafkascan.io import result_memory
from kafkascan.io.sources import Source
from kafkascan.io.worker_threads import ChunkSizer

Bytes = NDArray[np.uint8]
Starts: TypeAlias = "NDArray[np.int32] | NDArray[np.int64]"

# Items that are copied at first before signals are handled.
_FIRST_ITEMS = 64
_LARGEST_INT32 = 2**31 - 1


class Buffers:
    """
    The buffers that a table's positions refer to.

    Parameters
    ----------
    source : Source
        Buffer 0 if it is in memory; otherwise buffer 0 is empty.
    others : sequence of ndarray of uint8
        Buffers 1, 2, …: decompressed batches, and batches of a source that is not in memory.
    of_batch : ndarray of int32
        The buffer of each batch.

    Attributes
    ----------
    arrays : list of ndarray of uint8
        All buffers.
    addresses, sizes : ndarrays
        Of the buffers.
    """

    def __init__(
        self, source: Source, others: Sequence[Bytes], of_batch: NDArray[np.int32]
    ) -> None:
        self._source = source
        self.arrays: list[Bytes] = [_source_array(source), *others]
        self.of_batch = of_batch
        self.addresses = np.array([_address(array) for array in self.arrays], np.uintp)
        self.sizes = np.array([array.size for array in self.arrays], np.int64)

    @classmethod
    def joined(cls, parts: Sequence[Buffers]) -> Buffers:
        """Return the buffers of several tables; their sources must not be mapped."""
        arrays: list[Bytes] = []
        of_batch = []
        for part in parts:
            of_batch.append(part.of_batch + np.int32(1 + len(arrays)))
            arrays += part.arrays
        return cls(Source(b""), arrays, np.concatenate(of_batch))

    @property
    def source_bytes(self) -> Bytes:
        """The source, which may be a memory map; empty if it is not in memory."""
        return self.arrays[0]

    def fault_error(self, position: int) -> Exception:
        """Return the error of a position at which the source could not be read."""
        return self._source.fault_error(position)

    def require_done(self, outcome: tuple[int, int]) -> None:
        """Raise an exception for the status of a loop, unless it is OK."""
        status, fault = outcome
        if status == STATUS["SOURCE_FAULT"]:
            raise self._source.fault_error(fault)
        if status != STATUS["OK"]:
            # The columns were valid when they were made: the file or the columns have changed.
            self._source.require_unshrunk()
            raise BatchTableError(self._source.path, 0, status)

    def bytes_of(self, batch: int, position: int, size: int) -> bytes | None:
        """Return a copy of one item; None for a negative size."""
        out = self.gather(
            np.array([batch], np.int32), np.array([position]), np.array([size], np.int32)
        )
        return None if size < 0 else out.data.tobytes()

    def addresses_of(
        self, batch: NDArray[np.int32], position: NDArray[np.int64], size: NDArray[np.int32]
    ) -> NDArray[np.uintp]:
        """Return the addresses of items, valid while the buffers exist; 0 for empty items."""
        out = result_memory.empty(len(size), np.uintp)
        self.require_done(
            _core.addresses_into(
                self.addresses, self.sizes, self.of_batch, batch, position, size, out
            )
        )
        return out

    def gather(
        self, batch: NDArray[np.int32], position: NDArray[np.int64], size: NDArray[np.int32]
    ) -> Gathered:
        """Copy items into one contiguous array."""
        total, nulls = _core.measure_items(size)
        is_null = np.less(size, 0, out=result_memory.empty(len(size), np.bool_)) if nulls else None
        data = result_memory.empty(total, np.uint8)
        if total == 0:
            return Gathered(data, np.zeros(len(size) + 1, np.int32), is_null)
        starts = starts_of_items(len(size), total)
        for items in _pieces(len(size)):
            self.require_done(
                _core.gather_into(
                    self.addresses, self.sizes, self.of_batch,
                    batch[items], position[items], size[items],
                    data, starts[items.start : items.stop + 1],
                )
            )  # fmt: skip
        return Gathered(data, starts, is_null)


def starts_of_items(count: int, size: int) -> Starts:
    """
    Return an array for the starts of items; the first one is 0, the others are undefined.

    Parameters
    ----------
    count : int
        Of the items; there is one start more.
    size : int
        Of all items, in bytes: starts have 32 bits if that is enough.
    """
    dtype: type[np.generic] = np.int32 if size <= _LARGEST_INT32 else np.int64
    starts: NDArray[Any] = result_memory.empty(count + 1, dtype)
    starts[0] = 0
    return starts


def _pieces(count: int) -> Iterator[slice]:
    """Yield slices that cover a number of items, each for work of bounded time."""
    first, pace = 0, ChunkSizer(_FIRST_ITEMS)
    while first < count:
        stop = min(count, first + pace.next_size())
        yield slice(first, stop)
        first = stop


@dataclass(frozen=True)
class Gathered:
    """
    Items in one contiguous array.

    Attributes
    ----------
    data : ndarray of uint8
    starts : ndarray of int32 or int64, shape (n + 1,)
        The start of each item, and the end of the last one.
    is_null : ndarray of bool, shape (n,), or None
        None if no item is null.
    """

    data: Bytes
    starts: Starts
    is_null: NDArray[np.bool_] | None

    def __len__(self) -> int:
        return len(self.starts) - 1

    def objects(self) -> _core.GatheredItems:
        """Return what makes each item bytes, or None for a null."""
        is_null = None if self.is_null is None else self.is_null.view(np.uint8)
        return _core.GatheredItems(self.data, self.starts.astype(np.int64, copy=False), is_null)

    def to_list(self) -> list[bytes | None]:
        """Return each item as bytes; None for a null."""
        items: list[bytes | None] = []
        for rows in _pieces(len(self)):
            is_null = None if self.is_null is None else self.is_null[rows]
            piece = Gathered(self.data, self.starts[rows.start : rows.stop + 1], is_null)
            items += piece.objects().to_list()
        return items


def _source_array(source: Source) -> Bytes:
    return source.as_array() if source.is_in_memory else np.empty(0, np.uint8)


def _address(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])
