"""Arrays for results, in memory that is used again; large ones in large pages.

The first write to a page of fresh memory is a page fault, which takes longer than filling the
page. Arrays from `MIN_BLOCK_SIZE` bytes on are therefore views of blocks; those from 1 MiB on are
in pages of 2 MiB. A block is free as soon as no array refers to it, and is then used for the next
result.

Limits on memory: an allocation below 1 MiB takes less than 64 KiB more than its arrays, a larger
one less than 2 MiB more. Large free blocks take at most 64 MiB of the process, which the system may
take back when it is short of memory; small ones take at most 8 MiB. None are left in the child of a
fork. The arrays of `empty_together` share one block: each of them keeps all of it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import result_blocks as _core

MIN_BLOCK_SIZE = 1 << 17
"""Bytes of the smallest result in a block; smaller ones are allocated as usual. From this size on,
glibc asks the system for fresh pages."""

# A result that is smaller, and takes less than half of its block, leaves it.
_LEAST_OF_BLOCK = 1 << 19
# Columns start at different positions in a page and in the sets of a CPU's caches, because they
# are written side by side.
_COLUMN_SHIFT = 7 * 64
_ALIGNMENT = 64

Scalar = TypeVar("Scalar", bound=np.generic)


def empty(count: int, dtype: np.dtype[Scalar] | type[Scalar]) -> NDArray[Scalar]:
    """
    Return an array with undefined content, like `numpy.empty`.

    Parameters
    ----------
    count : int
    dtype : dtype

    Returns
    -------
    ndarray, shape (count,)
        It may be a view of a block; `fitted` shortens it.
    """
    block = _take(count * np.dtype(dtype).itemsize)
    return np.empty(count, dtype) if block is None else np.frombuffer(block, dtype, count)


def empty_columns(count: int, dtypes: Mapping[str, type[np.generic]]) -> dict[str, NDArray[Any]]:
    """
    Return arrays of one length, with undefined content, in one block if they are large.

    Parameters
    ----------
    count : int
    dtypes : mapping of str to dtype
        By name of the column.
    """
    arrays = empty_together([(count, dtype) for dtype in dtypes.values()])
    return dict(zip(dtypes, arrays, strict=True))


def empty_together(shapes: Sequence[tuple[int, type[np.generic]]]) -> list[NDArray[Any]]:
    """
    Return arrays with undefined content, in one block if they are large.

    Parameters
    ----------
    shapes : sequence of (int, dtype)
        The length and dtype of each.
    """
    starts, size = [], 0
    for count, dtype in shapes:
        starts.append(size)
        size += -(-count * np.dtype(dtype).itemsize // _ALIGNMENT) * _ALIGNMENT + _COLUMN_SHIFT
    block = _take(size)
    if block is None:
        return [np.empty(count, dtype) for count, dtype in shapes]
    return [
        np.frombuffer(block, dtype, count, start)
        for (count, dtype), start in zip(shapes, starts, strict=True)
    ]


def concatenate(arrays: Sequence[NDArray[Scalar]]) -> NDArray[Scalar]:
    """
    Return the items of arrays in one array, like `numpy.concatenate`.

    Parameters
    ----------
    arrays : sequence of ndarray, each of shape (n,)
        At least one; all of the dtype of the first one.
    """
    return np.concatenate(arrays, out=empty(sum(map(len, arrays)), arrays[0].dtype))


def fitted(array: NDArray[Scalar], count: int) -> NDArray[Scalar]:
    """
    Return the first items of an array from `empty`, and give back the memory of the others.

    Parameters
    ----------
    array : ndarray
        Not used any more afterwards.
    count : int
    """
    size = count * array.itemsize
    if size < _LEAST_OF_BLOCK and 2 * size < array.nbytes:
        # As bytes: NumPy copies structured items field by field.
        used = array.view(np.uint8)[:size]
        if size < MIN_BLOCK_SIZE:
            return used.copy().view(array.dtype)
        kept = empty(count, array.dtype)
        kept.view(np.uint8)[:] = used
        return kept
    if isinstance(array.base, memoryview) and isinstance(array.base.obj, _core.Block):
        array.base.obj.forget_rest(size)
    return array[:count]


def read_file(descriptor: int, position: int, size: int) -> bytes | memoryview:
    """
    Read bytes of a file, like `os.pread`; large reads fill blocks.

    Parameters
    ----------
    descriptor, position : int
    size : int
        The result may be shorter.

    Returns
    -------
    bytes or memoryview
        Read-only.
    """
    block = _take(size) if hasattr(os, "preadv") else None
    if block is None:
        return os.pread(descriptor, size, position)
    count = os.preadv(descriptor, [block], position)
    return block[:count].toreadonly()


def _take(size: int) -> memoryview | None:
    block = _core.take_block(size) if MIN_BLOCK_SIZE <= size <= sys.maxsize else None
    return None if block is None else memoryview(block)
