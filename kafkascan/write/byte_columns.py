"""Byte columns as pointers and sizes, input of the batch encoder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import record_columns as _core
from kafkascan.io import result_memory

LARGEST_ITEM = 2**31 - 1
Addresses = NDArray[np.uintp]
Sizes = NDArray[np.int32]


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
