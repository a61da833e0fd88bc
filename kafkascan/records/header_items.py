"""Keys and values of record headers: copied for Arrow, or as addresses for the encoder.

The headers of a record are not stored in a table, only their position and count: a batch of
256 MiB can contain 134 million of them. So nothing is allocated for each header but the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan._core.record_headers import HeaderWalk
from kafkascan.format.errors import STATUS
from kafkascan.io import result_memory
from kafkascan.io.worker_threads import ChunkSizer
from kafkascan.records.buffers import Buffers, Gathered, Starts, starts_of_items

# Headers that are read at first before signals are handled.
_FIRST_HEADERS = 1 << 12

Outcome: TypeAlias = "tuple[int, int]"
Located: TypeAlias = "tuple[NDArray[np.uintp], NDArray[np.int32]]"


@dataclass(frozen=True)
class HeadersOfRecords:
    """
    Location of the headers of records: columns of a table.

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
