"""Columns of bytes of any size: where each item lies, and how to bring them together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kafkascan._core import items as _core
from kafkascan.errors import STATUS, BatchTableError
from kafkascan.sources import Source

Bytes = NDArray[np.uint8]


class Buffers:
    """
    The bytes that a table's positions point into.

    Parameters
    ----------
    source : Source
        Buffer 0, if it is in memory; otherwise buffer 0 is empty.
    others : sequence of ndarray of uint8
        What was decompressed, or read from a source that is not in memory.
    of_batch : ndarray of int32
        By batch: the buffer that its positions count in.
    give_back : callable, optional
        Gets the other buffers when nobody can look at them any more.
    """

    _give_back: Callable[[list[Bytes]], None] | None = None

    def __init__(
        self,
        source: Source,
        others: Sequence[Bytes],
        of_batch: NDArray[np.int32],
        give_back: Callable[[list[Bytes]], None] | None = None,
    ) -> None:
        self._source = source
        self._arrays: list[Bytes] = [_source_array(source), *others]
        self.of_batch = of_batch
        self.addresses = np.array([_address(array) for array in self._arrays], np.uintp)
        self.sizes = np.array([array.size for array in self._arrays], np.int64)
        self._give_back = give_back

    @property
    def source_bytes(self) -> Bytes:
        """Those of the source, which may be a map; none if it is not in memory."""
        return self._arrays[0]

    def lend(self) -> list[Bytes]:
        """Return the buffers themselves; they live as long as somebody looks at them."""
        self._give_back = None
        return self._arrays

    def __del__(self) -> None:
        if self._give_back is not None:
            given_back, self._arrays = self._arrays[1:], self._arrays[:1]
            # Who still asks, a finalizer of somebody else's, finds nothing there.
            self.sizes[:] = 0
            self._give_back(given_back)

    def require_done(self, outcome: tuple[int, int]) -> None:
        """Turn the status of a loop into an exception."""
        status, fault = outcome
        if status == STATUS["SOURCE_FAULT"]:
            raise self._source.fault_error(fault)
        if status != STATUS["OK"]:
            # Columns are ours; what they no longer describe has been changed since.
            self._source.require_unshrunk()
            raise BatchTableError(self._source.path, 0, status)

    def bytes_of(self, batch: int, position: int, size: int) -> bytes | None:
        """Copy one item; None for a negative size."""
        out = self.gather(
            np.array([batch], np.int32), np.array([position]), np.array([size], np.int32)
        )
        return None if size < 0 else out.data.tobytes()

    def addresses_of(
        self, batch: NDArray[np.int32], position: NDArray[np.int64], size: NDArray[np.int32]
    ) -> NDArray[np.uintp]:
        """Find where items lie in memory, as long as the buffers live; 0 where they are empty."""
        out = np.empty(len(size), np.uintp)
        self.require_done(
            _core.addresses_into(
                self.addresses, self.sizes, self.of_batch, batch, position, size, out
            )
        )
        return out

    def gather(
        self, batch: NDArray[np.int32], position: NDArray[np.int64], size: NDArray[np.int32]
    ) -> Gathered:
        """Copy items one behind the other."""
        total = int(np.maximum(size, 0).sum(dtype=np.int64))
        data = np.empty(total, np.uint8)
        starts = np.empty(len(size) + 1, np.int64)
        self.require_done(
            _core.gather_into(
                self.addresses, self.sizes, self.of_batch, batch, position, size, data, starts
            )
        )
        return Gathered(data, starts, size < 0)


@dataclass(frozen=True)
class Gathered:
    """
    Items one behind the other.

    Attributes
    ----------
    data : ndarray of uint8
    starts : ndarray of int64, shape (n + 1,)
        Where each item starts, and where the last one ends.
    is_null : ndarray of bool, shape (n,)
    """

    data: Bytes
    starts: NDArray[np.int64]
    is_null: NDArray[np.bool_]

    def to_list(self) -> list[bytes | None]:
        """Return each item as bytes, None for a null."""
        data, starts = self.data.tobytes(), self.starts.tolist()
        return [
            None if is_null else data[first:last]
            for first, last, is_null in zip(
                starts[:-1], starts[1:], self.is_null.tolist(), strict=True
            )
        ]


@dataclass(frozen=True)
class Headers:
    """
    The headers of records, one row each.

    Attributes
    ----------
    record_starts : ndarray of int64, shape (records + 1,)
        The first header of each record.
    batch, key_position, key_size, value_position, value_size : ndarrays, shape (headers,)
    """

    record_starts: NDArray[np.int64]
    batch: NDArray[np.int32]
    key_position: NDArray[np.int64]
    key_size: NDArray[np.int32]
    value_position: NDArray[np.int64]
    value_size: NDArray[np.int32]


def find_headers(
    buffers: Buffers,
    batch: NDArray[np.int32],
    headers_position: NDArray[np.int64],
    headers_count: NDArray[np.int32],
) -> Headers:
    """Find the keys and values of the headers of records, in order."""
    record_starts = np.zeros(len(batch) + 1, np.int64)
    np.cumsum(headers_count, out=record_starts[1:])
    total = int(record_starts[-1])
    found = Headers(
        record_starts,
        np.empty(total, np.int32),
        np.empty(total, np.int64),
        np.empty(total, np.int32),
        np.empty(total, np.int64),
        np.empty(total, np.int32),
    )
    buffers.require_done(
        _core.headers_into(
            buffers.addresses, buffers.sizes, buffers.of_batch,
            batch, headers_position, headers_count,
            found.batch, found.key_position, found.key_size,
            found.value_position, found.value_size,
        )
    )  # fmt: skip
    return found


def _source_array(source: Source) -> Bytes:
    return source.as_array() if source.is_in_memory else np.empty(0, np.uint8)


def _address(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])
